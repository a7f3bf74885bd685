//! How a command fails: exit status 2 for a user's mistake, 1 for anything else.

use std::fmt::Display;
use std::process::ExitCode;

use blklab_sim::SetupError;

/// Why a command did not do what it should.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The user can mend it; the message says how.
    Mistake(String),
    /// The user cannot.
    Broken(String),
    /// What was to be found out is not so; it has been printed already.
    No,
}

impl Failure {
    pub(crate) fn mistake(message: impl Display) -> Failure {
        Failure::Mistake(message.to_string())
    }

    /// Why a run did not end as it should.
    pub(crate) fn of_run(error: SetupError) -> Failure {
        match error.is_users() {
            true => Failure::mistake(error),
            false => Failure::Broken(error.to_string()),
        }
    }

    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::Mistake(message) => {
                eprintln!("blklab: {message}");
                ExitCode::from(2)
            }
            Failure::Broken(message) => {
                eprintln!("blklab: {message}");
                ExitCode::FAILURE
            }
            Failure::No => ExitCode::FAILURE,
        }
    }
}
