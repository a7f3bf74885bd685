//! What can go wrong on a real machine, said in one message.

use std::path::PathBuf;

/// Why an experiment was refused or ended early.
///
/// [`HostError::is_mistake`] divides them: what the user can mend by asking
/// differently, and what only the machine can be blamed for.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The device named is not one an experiment can run on.
    #[error("{device}: {reason}")]
    Device {
        /// The device as it was named.
        device: String,
        /// Why not, and what would be right.
        reason: String,
    },
    /// Writing to the device needs the user's word.
    #[error("{0}")]
    Refused(String),
    /// A scheduler, tunable or job that this kernel or fio cannot take.
    #[error("{0}")]
    Unfit(String),
    /// A right is missing.
    #[error("{what}: {path}: permission denied; {remedy}")]
    Rights {
        /// What was to be done.
        what: String,
        /// On which file.
        path: PathBuf,
        /// What would allow it.
        remedy: String,
    },
    /// The kernel has no tracefs to read latencies from.
    #[error("{0}")]
    NoTracefs(String),
    /// fio is not installed.
    #[error(
        "fio is not installed; it is in the package `fio` of Debian, Ubuntu, Fedora, Arch and \
         openSUSE (for example: apt install fio)"
    )]
    NoFio,
    /// fio ran and failed.
    #[error("{0}")]
    Fio(String),
    /// The device went away.
    #[error("{device}: the device has vanished; nothing is left there to put back")]
    Vanished {
        /// The device as it was named.
        device: String,
    },
    /// A file of the kernel could not be read or written.
    #[error("{what}: {path}: {source}")]
    Io {
        /// What was to be done.
        what: String,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the user's cannot be written, for want of room or right.
    #[error("{}: cannot write: {source}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the kernel does not read as the kernel's documents say.
    #[error("{path}: {message}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        message: String,
    },
    /// Ctrl-C, SIGTERM or SIGHUP.
    #[error("stopped by {0}; everything was put back as it was")]
    Interrupted(&'static str),
    /// Something could not be put back. The message says what, and how to do
    /// it by hand.
    #[error("{0}")]
    NotRestored(String),
}

impl HostError {
    /// The user can mend it by asking for something else, or as somebody else.
    pub fn is_mistake(&self) -> bool {
        use std::io::ErrorKind::{IsADirectory, NotFound, PermissionDenied};
        if let HostError::Output { source, .. } = self {
            // A wrong place, and not a full disk.
            return matches!(source.kind(), NotFound | PermissionDenied | IsADirectory);
        }
        matches!(
            self,
            HostError::Device { .. }
                | HostError::Refused(_)
                | HostError::Unfit(_)
                | HostError::Rights { .. }
                | HostError::NoTracefs(_)
                | HostError::NoFio
        )
    }

    /// This error of a run, where putting things back behind it failed too.
    pub fn with_failed_restore(self, restore: HostError) -> HostError {
        match (self, restore) {
            // The drive went during the run: one message tells it.
            (HostError::Vanished { device }, _) => HostError::Vanished { device },
            (error, HostError::Vanished { device }) => {
                HostError::Fio(format!("{error}; {device} has vanished"))
            }
            (HostError::Interrupted(signal), restore) => {
                HostError::NotRestored(format!("stopped by {signal}, and {restore}"))
            }
            (error, restore) => HostError::NotRestored(format!("{error}; and {restore}")),
        }
    }

    /// A file that could not be read or written; a missing right gets its
    /// own explanation.
    pub fn io(
        what: impl Into<String>,
        path: impl Into<PathBuf>,
        source: std::io::Error,
    ) -> HostError {
        let (what, path) = (what.into(), path.into());
        if matches!(source.kind(), std::io::ErrorKind::PermissionDenied) {
            let remedy = "run as root (sudo), or with CAP_SYS_ADMIN and CAP_DAC_OVERRIDE";
            return HostError::Rights {
                what,
                path,
                remedy: remedy.to_string(),
            };
        }
        HostError::Io { what, path, source }
    }

    pub(crate) fn device(device: &std::path::Path, reason: impl Into<String>) -> HostError {
        HostError::Device {
            device: device.display().to_string(),
            reason: reason.into(),
        }
    }
}
