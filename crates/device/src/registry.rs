//! The drives that come with the program, by name.

use blklab_description::{SpecError, text_of};

use crate::spec::DriveSpec;

/// Name and text of every description in `drives/`.
const DRIVES: &[(&str, &str)] = &[
    ("null", include_str!("../../../drives/null.toml")),
    ("loop", include_str!("../../../drives/loop.toml")),
    ("mx100-256", include_str!("../../../drives/mx100-256.toml")),
    (
        "mx100-256-ranges",
        include_str!("../../../drives/mx100-256-ranges.toml"),
    ),
    (
        "mqsim-default",
        include_str!("../../../drives/mqsim-default.toml"),
    ),
    (
        "mqsim-ideal",
        include_str!("../../../drives/mqsim-ideal.toml"),
    ),
    ("sd-card", include_str!("../../../drives/sd-card.toml")),
    ("hdd-7200", include_str!("../../../drives/hdd-7200.toml")),
    ("nvme", include_str!("../../../drives/nvme.toml")),
    (
        "enterprise-tlc",
        include_str!("../../../drives/enterprise-tlc.toml"),
    ),
    ("qlc-1tb", include_str!("../../../drives/qlc-1tb.toml")),
    (
        "980pro-1tb",
        include_str!("../../../drives/980pro-1tb.toml"),
    ),
];

/// Their names, in the order they should be listed.
pub fn names() -> impl Iterator<Item = &'static str> {
    DRIVES.iter().map(|(name, _)| *name)
}

/// The text of a drive's description, for `show` and as a model for one's own.
pub fn text(name: &str) -> Option<&'static str> {
    DRIVES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
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
    let text = text_of("drive", name, DRIVES)?;
    let spec = DriveSpec::parse(name, &text).map_err(|e| e.to_string())?;
    Ok((spec, text))
}

#[cfg(test)]
mod tests {
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
}
