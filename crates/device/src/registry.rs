//! The drives that come with the program, by name.

use alloc::format;
use alloc::string::{String, ToString};

use blklab_description::{Shipped, SpecError, shipped, with_value};

use crate::spec::DriveSpec;

/// The descriptions in `drives/`.
const DRIVES: Shipped = shipped!("drive", "../../../drives":
    "null",
    "loop",
    "memory",
    "mx100-256",
    "mx100-256-ranges",
    "mqsim-default",
    "mqsim-ideal",
    "sd-card",
    "sd-card-a1",
    "sd-card-hybrid",
    "hdd-7200",
    "hdd-7200-raid",
    "nvme",
    "enterprise-tlc",
    "p3600-1600gb",
    "qlc-1tb",
    "980pro-1tb",
    "rocket4plus-2tb",
    "optane-ssd",
    "kioxia-cm7",
    "micron-7450-max",
    "zn540-1tb",
);

/// Their names, in the order they should be listed.
pub fn names() -> impl Iterator<Item = &'static str> {
    DRIVES.names()
}

/// The text of a drive's description, for `show` and as a model for one's own.
pub fn text(name: &str) -> Option<&'static str> {
    DRIVES.text(name)
}

/// The drive of that name; `None` where there is none.
pub fn find(name: &str) -> Option<Result<DriveSpec, SpecError>> {
    text(name).map(|text| DriveSpec::parse(name, text))
}

/// The drive of that name, or that a file describes, and its text.
///
/// # Errors
/// Where there is none, or its description has a mistake; the message names the
/// drives that there are, or file and line.
pub fn load(name: &str) -> Result<(DriveSpec, String), String> {
    load_with(name, &[])
}

/// The same with other values for some keys, each as [`with_value`] takes it.
///
/// # Errors
/// As [`load`], and where a key cannot be set.
pub fn load_with(name: &str, values: &[(String, String)]) -> Result<(DriveSpec, String), String> {
    let text = DRIVES.text_or_file(name);
    let mut text = text.map_err(|problem| problem + &real_drive_hint(name))?;
    for (key, value) in values {
        text = with_value(&text, key, value).map_err(|problem| format!("{name}: {problem}"))?;
    }
    let spec = DriveSpec::parse(name, &text).map_err(|e| e.to_string())?;
    Ok((spec, text))
}

/// Returns the end of the message for a real drive in the place of a description; nothing for
/// another name.
#[cfg(feature = "std")]
fn real_drive_hint(name: &str) -> String {
    use std::os::unix::fs::FileTypeExt;

    let kind = std::fs::metadata(name).map(|found| found.file_type());
    match kind.is_ok_and(|kind| kind.is_block_device()) {
        true => format!(
            "; a real drive is measured with `blklab compare JOB --world host --device {name}` \
             and described with `blklab calibrate --host {name}`"
        ),
        false => String::new(),
    }
}

/// Returns nothing, as there are no devices.
#[cfg(not(feature = "std"))]
fn real_drive_hint(_: &str) -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;

    use super::*;

    #[test]
    fn every_drive_parses_and_says_what_it_is() {
        for name in names() {
            let spec = find(name)
                .expect("listed")
                .unwrap_or_else(|e| panic!("{e}"));
            assert!(!spec.description.is_empty() && !spec.description.contains('\n'));
            assert!(spec.identity().capacity_sectors > 0);
        }
        assert!(find("no-such-drive").is_none());
    }

    #[test]
    fn a_block_device_is_refused_with_a_hint_and_no_other_device() {
        let refusal = |name: &str| load(name).expect_err("no description");
        assert!(!refusal("/dev/null").contains("--world host"));
        let is_block = |path: &std::path::Path| {
            path.metadata()
                .is_ok_and(|found| found.file_type().is_block_device())
        };
        let entries = std::fs::read_dir("/dev").expect("a folder");
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        if let Some(device) = paths.find(|path| is_block(path)) {
            let name = device.display().to_string();
            let said = refusal(&name);
            assert!(said.contains("a device, and a file with text is needed; a real drive"));
            assert!(
                said.contains(&format!("--world host --device {name}")),
                "{said}"
            );
            assert!(said.contains(&format!("calibrate --host {name}")), "{said}");
        }
    }
}
