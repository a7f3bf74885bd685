//! A real kernel in a virtual machine: Debian's, from its packages, which are
//! unpacked and not installed.
//!
//! [`Packages`] says where the kernel and its modules are, [`Initramfs`] is the file
//! system that it starts with, and [`Machine`] boots it under QEMU and waits for its
//! end. What runs inside is one script; what it writes to its port comes back.

mod initramfs;
mod machine;
mod packages;

use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

pub use initramfs::Initramfs;
pub use machine::{Accelerator, Boot, Machine, ORDER, PORT};
pub use packages::{Packages, default_folder, setup};

/// Why a guest does not run.
#[derive(Debug, ThisError)]
pub enum Error {
    /// Something that can be had is missing, or a wrong file was named; the message
    /// says what would be right.
    #[error("{0}")]
    Missing(String),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The guest did not do what it should; the message has the end of what it said.
    #[error("{0}")]
    Failed(String),
    /// The watch that the guest was given ended it.
    #[error("the guest was stopped")]
    Stopped,
}

impl Error {
    /// Whether the user can mend it.
    pub fn is_mistake(&self) -> bool {
        matches!(self, Error::Missing(_))
    }

    pub(crate) fn file(path: &Path, source: std::io::Error) -> Error {
        Error::File {
            path: path.to_path_buf(),
            source,
        }
    }
}
