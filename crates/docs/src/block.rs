//! The fenced blocks of a template.

use serde::Deserialize;

use crate::program::Program;
use crate::{calibrate, compare, conform, questions, set};

/// What stands in place of a block on the page.
#[derive(Default)]
pub struct Made {
    /// Markdown.
    pub text: String,
    /// The lines of groups of rows, for standard output.
    pub groups: Vec<String>,
}

/// A block that makes a part of a page.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Block {
    /// A table from several comparisons.
    Compare(compare::Block),
    /// Recorded kernels.
    Conform(conform::Block),
    /// Measured fio results.
    Calibrate(calibrate::Block),
    /// A set of published measurements.
    Set(set::Block),
    /// Questions that a kernel was asked.
    Questions(questions::Block),
    /// A command with all that it prints.
    Output {
        /// The command's arguments.
        command: String,
    },
}

impl Block {
    /// Runs it.
    ///
    /// # Errors
    /// Where a command fails or prints something else than expected.
    pub fn make(&self, program: &Program) -> Result<Made, String> {
        match self {
            Block::Compare(block) => block.make(program),
            Block::Conform(block) => block.make(program),
            Block::Calibrate(block) => block.make(program),
            Block::Set(block) => block.make(program),
            Block::Questions(block) => block.make(program),
            Block::Output { command } => Ok(Made {
                text: format!(
                    "    $ blklab {command}\n{}",
                    indented(&program.run(command)?)
                ),
                groups: Vec::new(),
            }),
        }
    }
}

fn indented(text: &str) -> String {
    let line = |line: &str| match line.trim_end() {
        "" => "\n".to_string(),
        line => format!("    {line}\n"),
    };
    text.lines().map(line).collect()
}
