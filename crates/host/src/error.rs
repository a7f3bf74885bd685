//! Errors of experiments on a real machine.

use std::path::PathBuf;

/// The reason why an experiment was refused or ended early.
///
/// [`HostError::is_mistake`] tells errors that the user can fix from failures of the machine.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// An experiment cannot run on this device.
    #[error("{device}: {reason}")]
    Device {
        /// The device as it was named.
        device: String,
        /// The reason, and what would be right.
        reason: String,
    },
    /// Writing to the device needs the user's permission.
    #[error("{0}")]
    Refused(String),
    /// This kernel or fio does not support the scheduler, tunable or job.
    #[error("{0}")]
    Unfit(String),
    /// A permission is missing.
    #[error("{what}: {path}: permission denied; {remedy}")]
    Rights {
        /// The attempted action.
        what: String,
        /// The file.
        path: PathBuf,
        /// What would give the permission.
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
    /// The device disappeared.
    #[error("{device}: the device has vanished; nothing is left there to put back")]
    Vanished {
        /// The device as it was named.
        device: String,
    },
    /// A kernel file could not be read or written.
    #[error("{what}: {path}: {source}")]
    Io {
        /// The attempted action.
        what: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A user's file could not be written, for lack of space or permission.
    #[error("{}: cannot write: {source}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A kernel file does not have the documented format.
    #[error("{path}: {message}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        message: String,
    },
    /// A signal: Ctrl-C, SIGTERM or SIGHUP.
    #[error("stopped by {0}; everything was put back as it was")]
    Interrupted(&'static str),
    /// Something could not be restored. The message says what, and how to do it by hand.
    #[error("{0}")]
    NotRestored(String),
}

impl HostError {
    /// Whether the user can fix the error, by other options or other permissions.
    pub fn is_mistake(&self) -> bool {
        use std::io::ErrorKind::{IsADirectory, NotFound, PermissionDenied};
        if let HostError::Output { source, .. } = self {
            // The place is wrong; the disk is not full.
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

    /// Says that a measurement goes without traces too, which a recording does not.
    pub(crate) fn or_without_trace(self) -> HostError {
        match self {
            HostError::NoTracefs(why) => HostError::NoTracefs(format!(
                "{why}; or do without latencies from the block layer (--no-trace)"
            )),
            other => other,
        }
    }

    /// Combines the error of a run with the error of restoring the queue after it.
    pub fn with_failed_restore(self, restore: HostError) -> HostError {
        match (self, restore) {
            // The drive disappeared during the run, so one message is enough.
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

    /// Returns the error for a file that could not be read or written; a missing permission has its
    /// own message.
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
