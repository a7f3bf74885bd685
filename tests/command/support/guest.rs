//! Scripts in a guest with a real kernel, where its packages are unpacked.

use std::path::{Path, PathBuf};

use blklab_guest::{Packages, default_folder};

use super::{Outcome, Place};

/// The folder in which `make module-test` or `blklab guest setup` unpacked a kernel with
/// what `has` asks for; without one the test is skipped, for want of `wanted`.
pub fn kernel(wanted: &str, has: impl Fn(&Packages) -> bool) -> Option<String> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/build");
    let is_found = |folder: &PathBuf| Packages::find(folder).is_ok_and(|found| has(&found));
    let found = [ours, default_folder()].into_iter().find(is_found);
    if found.is_none() {
        blklab_judges::not_possible(&format!(
            "no {wanted} for a guest is unpacked: blklab guest setup"
        ));
    }
    found.map(|folder| folder.display().to_string())
}

impl Place {
    /// Runs a script in a guest of this kernel with two emulated processors and so much
    /// memory, with more options of `blklab guest script`.
    pub fn in_guest(&self, script: &str, kernel: &str, memory_mib: u32, more: &[&str]) -> Outcome {
        self.file("script", script);
        let memory_mib = memory_mib.to_string();
        let own = [
            "guest",
            "script",
            "script",
            "--guest",
            kernel,
            "--accelerator",
            "tcg",
            "--guest-cpus",
            "2",
            "--memory",
            &memory_mib,
        ];
        self.blklab(&[&own, more].concat())
    }
}
