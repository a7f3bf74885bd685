//! The errors of experiments.

use blklab_host::HostError;
use blklab_sim::SetupError;
use blklab_tables::WriteError;
use thiserror::Error;

/// The reason for which an experiment is refused or ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// A mistake in the request; the message says what would be right.
    #[error("{0}")]
    Mistake(String),
    /// An error of the simulation.
    #[error(transparent)]
    Simulation(#[from] SetupError),
    /// An error of this machine, its kernel or fio.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A guest failed to run.
    #[error(transparent)]
    Guest(#[from] blklab_guest::Error),
    /// The server of a served drive failed.
    #[error("{0}")]
    Server(String),
    /// A sweep's folder could not be written.
    #[error("{0}")]
    Store(String),
    /// A sweep's table could not be written.
    #[error("the table cannot be written: {0}")]
    Table(#[from] WriteError),
    /// The requested threads could not be started.
    #[error("{0}")]
    Threads(String),
}

impl Error {
    /// Makes an error of the user's request.
    pub(crate) fn mistake(message: impl ToString) -> Error {
        Error::Mistake(message.to_string())
    }

    /// Returns whether the user can correct the error by another request.
    pub fn is_mistake(&self) -> bool {
        match self {
            Error::Mistake(_) => true,
            Error::Simulation(error) => error.is_users(),
            Error::Host(error) => error.is_mistake(),
            Error::Guest(error) => error.is_mistake(),
            Error::Server(_) | Error::Store(_) | Error::Table(_) | Error::Threads(_) => false,
        }
    }

    /// Returns whether a signal ended the run, after which all was put back as it was.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Error::Host(HostError::Interrupted(_)))
    }

    /// Returns this error, extended by the error of a failed clean-up.
    pub(crate) fn with_failed_clean_up(self, clean_up: Error) -> Error {
        match (self, clean_up) {
            (Error::Host(error), Error::Host(clean_up)) => {
                Error::Host(error.with_failed_restore(clean_up))
            }
            (error, _) => error,
        }
    }
}
