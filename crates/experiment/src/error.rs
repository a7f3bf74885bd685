//! Why an experiment cannot be, or ended early.

use blklab_host::HostError;
use blklab_sim::SetupError;
use thiserror::Error;

/// Why an experiment cannot be, or ended early.
#[derive(Debug, Error)]
pub enum Error {
    /// Something asked for that cannot be had; the message says what can.
    #[error("{0}")]
    Mistake(String),
    /// From the simulation.
    #[error(transparent)]
    Simulation(#[from] SetupError),
    /// From this machine, its kernel or fio.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A guest does not run.
    #[error(transparent)]
    Guest(#[from] blklab_guest::Error),
    /// The server of a served drive failed.
    #[error("{0}")]
    Server(String),
    /// A sweep's folder does not take its runs.
    #[error("{0}")]
    Store(String),
    /// The threads that were asked for cannot be had.
    #[error("{0}")]
    Threads(String),
}

impl Error {
    /// A mistake of the user's.
    pub(crate) fn mistake(message: impl ToString) -> Error {
        Error::Mistake(message.to_string())
    }

    /// Whether the user can mend it by asking for something else.
    pub fn is_mistake(&self) -> bool {
        match self {
            Error::Mistake(_) => true,
            Error::Simulation(error) => error.is_users(),
            Error::Host(error) => error.is_mistake(),
            Error::Guest(error) => error.is_mistake(),
            Error::Server(_) | Error::Store(_) | Error::Threads(_) => false,
        }
    }

    /// This error, where cleaning up failed too.
    pub(crate) fn with_failed_clean_up(self, clean_up: Error) -> Error {
        match (self, clean_up) {
            (Error::Host(error), Error::Host(clean_up)) => {
                Error::Host(error.with_failed_restore(clean_up))
            }
            (error, _) => error,
        }
    }
}
