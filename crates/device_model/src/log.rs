//! The log of what a model did, as a tree.

use std::fmt;

use crate::Model;

/// A line of the log: one thing that a model did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When, on the caller's clock.
    pub at_ns: u64,
    /// Inside how many others.
    pub depth: usize,
    /// What.
    pub text: String,
}

/// As the kernel's log has its time.
impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.at_ns / 1000;
        let (seconds, rest) = (us / 1_000_000, us % 1_000_000);
        let indent = "  ".repeat(self.depth);
        write!(f, "[{seconds:5}.{rest:06}] {indent}{}", self.text)
    }
}

impl Model {
    /// All lines so far.
    pub fn log(&self) -> &[LogLine] {
        &self.log
    }

    /// Notes something that happens inside what was entered last.
    pub fn note(&mut self, text: impl Into<String>) {
        self.log.push(LogLine {
            at_ns: self.now_ns,
            depth: self.depth,
            text: text.into(),
        });
    }

    /// Notes something that others happen inside of, until [`Model::leave`].
    pub fn enter(&mut self, text: impl Into<String>) {
        self.note(text);
        self.depth += 1;
    }

    /// Ends what was entered last.
    pub fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}
