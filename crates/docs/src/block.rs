//! The fenced blocks of a template.

use std::collections::BTreeMap;

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
    /// Commands one after the other in an empty folder, each with what it prints.
    Session {
        /// Files that are there, by their names.
        #[serde(default)]
        files: BTreeMap<String, String>,
        /// Each command's arguments; behind ` | grep ` is a text that lines have to
        /// have.
        commands: Vec<String>,
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
            Block::Session { files, commands } => Ok(Made {
                text: session(program, files, commands)?,
                groups: Vec::new(),
            }),
        }
    }
}

/// What commands print in a folder of their own.
fn session(
    program: &Program,
    files: &BTreeMap<String, String>,
    commands: &[String],
) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a session: {error}"))?;
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let printed = commands.iter().map(|command| {
        let (line, wanted) = command.split_once(" | grep ").unwrap_or((command, ""));
        let printed = program.run_in(folder.path(), line)?;
        let lines = printed.lines().filter(|line| line.contains(wanted));
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        Ok(format!("    $ blklab {command}\n{}", indented(&lines)))
    });
    printed.collect()
}

fn indented(text: &str) -> String {
    let line = |line: &str| match line.trim_end() {
        "" => "\n".to_string(),
        line => format!("    {line}\n"),
    };
    text.lines().map(line).collect()
}
