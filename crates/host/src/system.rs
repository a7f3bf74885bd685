//! Paths of the kernel's file systems. Tests replace these by a folder of plain files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::HostError;

/// Root of the kernel's file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    root: PathBuf,
}

impl Default for System {
    fn default() -> System {
        System::at("/")
    }
}

impl System {
    /// Returns the system whose `/sys` and `/proc` are below `root`.
    pub fn at(root: impl Into<PathBuf>) -> System {
        System { root: root.into() }
    }

    /// A path below `/sys`.
    pub fn sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(path)
    }

    /// A path below `/proc`.
    pub fn proc(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join("proc").join(path)
    }

    /// The kernel's name and release, without the host name, for reports.
    pub fn kernel(&self) -> String {
        let path = self.proc("sys/kernel/osrelease");
        let release = read("read the kernel's release", &path);
        let kernel = format!("Linux {}", release.unwrap_or_default());
        kernel.trim_end().to_string()
    }
}

/// Size of a read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Reads a small file, without the newline at its end.
pub(crate) fn read(what: &str, path: &Path) -> Result<String, HostError> {
    let text = read_text(path).map_err(|e| HostError::io(what, path, e))?;
    Ok(text.trim_end().to_string())
}

/// Reads a file in large blocks: tracefs gives some files (`events/header_page`) only to the first
/// read, truncated to its size.
fn read_text(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    let mut block = vec![0; READ_BYTES];
    loop {
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&block[..length]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    // Names of tasks and drives may contain any bytes.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the names in a folder, sorted; none if it does not exist.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
