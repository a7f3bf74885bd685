//! Errors and notes about jobs, with their places.

use std::fmt;

/// The place of an option.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The job file as given by the user, or `command line`.
    pub file: String,
    /// The line, counted from 1; 0 where lines have no meaning.
    pub line: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// A mistake in a job: its place, the text that was found and the correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    /// The job file as given by the user, or `command line`.
    pub file: String,
    /// The line, counted from 1; 0 where lines have no meaning.
    pub line: u32,
    /// The option as written (`rw=randred`); empty if the mistake is not in one option.
    pub option: String,
    /// The mistake.
    pub message: String,
    /// The correction; may be empty.
    pub help: String,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.option.is_empty() {
            write!(f, ": {}", self.option)?;
        }
        write!(f, ": {}", self.message)?;
        if !self.help.is_empty() {
            write!(f, "; {}", self.help)?;
        }
        Ok(())
    }
}

impl std::error::Error for JobError {}

impl JobError {
    /// Makes an error from a fault and its place.
    pub(crate) fn of(
        position: &Position,
        option: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> JobError {
        JobError::at(position, option, Fault::new(message).help(help))
    }

    pub(crate) fn at(position: &Position, option: impl Into<String>, fault: Fault) -> JobError {
        JobError {
            file: position.file.clone(),
            line: position.line,
            option: option.into(),
            message: fault.message,
            help: fault.help,
        }
    }
}

/// A mistake without its place, which the caller adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub message: String,
    pub help: String,
}

impl Fault {
    pub fn new(message: impl Into<String>) -> Fault {
        Fault {
            message: message.into(),
            help: String::new(),
        }
    }

    pub fn help(mut self, help: impl Into<String>) -> Fault {
        self.help = help.into();
        self
    }
}

/// A remark about a job that is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The job; `None` if the note is about the whole file.
    pub job: Option<String>,
    /// The remark.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            Some(job) => write!(f, "{job}: {}", self.text),
            None => write!(f, "{}", self.text),
        }
    }
}
