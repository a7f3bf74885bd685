//! The fenced blocks of a template.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::part::PagePart;
use crate::program::Program;
use crate::{calibrate, compare, conform, map, measured, questions, run, set, worlds};

/// A block that makes a part of a page.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Block {
    /// A table of several comparisons.
    Compare(compare::Block),
    /// A table of several runs.
    Run(run::Block),
    /// Where a document's figures hold.
    Map(map::Block),
    /// A comparison with recorded kernels.
    Conform(conform::Block),
    /// A comparison with measured fio results.
    Calibrate(calibrate::Block),
    /// A set of published measurements.
    Set(set::Block),
    /// Questions with a real kernel's answers.
    Questions(questions::Block),
    /// Comparisons of a real kernel's beside simulated ones.
    Worlds(worlds::Block),
    /// A table of recorded measurements.
    Measured(measured::Block),
    /// A command with its output.
    Output {
        /// The command's arguments.
        command: String,
    },
    /// Commands that run in an empty folder, each with its output.
    Session {
        /// Files in the folder, by name.
        #[serde(default)]
        files: BTreeMap<String, String>,
        /// Each command's arguments. A text after ` | grep ` selects the lines that
        /// contain it.
        commands: Vec<String>,
    },
}

impl Block {
    /// Makes the block's part of the page.
    ///
    /// # Errors
    /// If a command fails, or its output is not as expected.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        match self {
            Block::Compare(block) => block.make(program),
            Block::Run(block) => block.make(program),
            Block::Map(block) => block.make(program),
            Block::Conform(block) => block.make(program),
            Block::Calibrate(block) => block.make(program),
            Block::Set(block) => block.make(program),
            Block::Questions(block) => block.make(program),
            Block::Worlds(block) => block.make(program),
            Block::Measured(block) => block.make(program),
            Block::Output { command } => Ok(PagePart {
                text: format!(
                    "    $ blklab {command}\n{}",
                    indented(&program.run(command)?)
                ),
                groups: Vec::new(),
            }),
            Block::Session { files, commands } => Ok(PagePart {
                text: session(program, files, commands)?,
                groups: Vec::new(),
            }),
        }
    }
}

/// Returns the output of commands in a folder of their own.
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
