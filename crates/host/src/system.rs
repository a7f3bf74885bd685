//! Where the kernel's own file systems are. Tests put a tree of plain files
//! in their place.

use std::path::{Path, PathBuf};

use crate::error::HostError;

/// The places of the kernel's file systems.
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
    /// The system whose `/sys` and `/proc` lie below `root`.
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
}

/// The whole of a small file, without the line feed at its end.
pub(crate) fn read(what: &str, path: &Path) -> Result<String, HostError> {
    let text = std::fs::read_to_string(path).map_err(|e| HostError::io(what, path, e))?;
    Ok(text.trim_end().to_string())
}

/// The names in a folder, sorted; none where the folder is not there.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
