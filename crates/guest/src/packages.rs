//! The programs and the kernel that a guest is made of.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// Fetches and unpacks the kernel's packages; a script of its own, since the kernel
/// module is built with what it unpacks.
const SETUP: &str = include_str!("../../../kernel/setup.sh");

/// Programs that a guest needs, with their Debian packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("fio", "fio"),
    ("xz", "xz-utils"),
];

/// Where packages are unpacked if nobody says otherwise: `blklab/guest` in the user's
/// cache.
pub fn default_folder() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or_else(home).unwrap_or_else(std::env::temp_dir);
    cache.join("blklab").join("guest")
}

/// Fetches a kernel by the machine's own package manager and unpacks it into `folder`.
/// Returns what the kernel module is built with: variables for `make`, a line each.
///
/// # Errors
/// Where a program or package is missing; the message names it.
pub fn setup(folder: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| Error::Missing(format!("sh cannot be run: {error}"));
    let mut shell = Command::new("sh")
        .args(["-s", "--"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = shell.stdin.take() {
        // A shell that has ended says itself why.
        let _ = input.write_all(SETUP.as_bytes());
    }
    let done = shell.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_string();
    match done.status.success() {
        false => Err(Error::Missing(said)),
        true => check_programs().map(|()| String::from_utf8_lossy(&done.stdout).into_owned()),
    }
}

fn check_programs() -> Result<(), Error> {
    let missing = PROGRAMS.iter().filter(|(name, _)| program(name).is_none());
    let (names, packages): (Vec<&str>, Vec<&str>) = missing.copied().unzip();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Error::Missing(format!(
            "a guest needs {}, missing here: apt-get install {}",
            names.join(", "),
            packages.join(" ")
        ))),
    }
}

/// Where a program is, by `PATH`.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places.into_iter().find(|place| place.is_file())
}

/// A kernel that [`setup`] unpacked, on a machine with the programs to boot it.
#[derive(Clone, Debug)]
pub struct Packages {
    folder: PathBuf,
    /// The kernel's release: `6.12.74+deb12-amd64`.
    release: String,
}

impl Packages {
    /// Those in `folder`.
    ///
    /// # Errors
    /// Where a program or the kernel is missing; the message says what provides it.
    pub fn find(folder: &Path) -> Result<Packages, Error> {
        check_programs()?;
        // `ldd` tells of libraries in a folder as that is named to it.
        let folder = &std::path::absolute(folder).map_err(|e| Error::file(folder, e))?;
        let version = std::fs::read_to_string(folder.join("version"));
        let packages = version.map(|version| Packages {
            folder: folder.clone(),
            release: format!("{}-amd64", version.trim()),
        });
        let is_whole = |packages: &Packages| {
            packages.kernel().is_file() && packages.modules().join("modules.dep").is_file()
        };
        packages.ok().filter(is_whole).ok_or_else(|| {
            Error::Missing(format!(
                "no guest's kernel in {}: `blklab guest setup` fetches it",
                folder.display()
            ))
        })
    }

    /// The kernel's release.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// A program of the packages beside the kernel's, or of this machine.
    ///
    /// # Errors
    /// Where neither has it; the message says what provides it.
    pub fn program(&self, name: &str) -> Result<PathBuf, Error> {
        let unpacked = ["sbin", "usr/sbin", "bin", "usr/bin"].map(|place| self.root().join(place));
        let places = unpacked.iter().map(|place| place.join(name));
        let found = places.into_iter().find(|place| place.is_file());
        found.or_else(|| program(name)).ok_or_else(|| {
            Error::Missing(format!(
                "no {name} for the guest in {}: `blklab guest setup` fetches it",
                self.folder.display()
            ))
        })
    }

    /// Where its packages are unpacked.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Whether it has a module.
    pub fn has_module(&self, name: &str) -> bool {
        let list = std::fs::read_to_string(self.modules().join("modules.dep"));
        let ending = format!("/{name}.ko");
        list.is_ok_and(|list| list.lines().any(|line| line.contains(&ending)))
    }

    /// Its image, unpacked: QEMU boots that some seconds sooner.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    /// The folder of its modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.root().join("lib/modules").join(&self.release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_names_what_provides_it() {
        let empty = tempfile::tempdir().expect("a folder");
        let error = Packages::find(empty.path()).expect_err("there is no kernel");
        assert!(error.is_mistake());
        let said = error.to_string();
        assert!(
            said.contains("blklab guest setup") || said.contains("apt-get install"),
            "{said}"
        );
    }
}
