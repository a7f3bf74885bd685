//! The `blklab` command as the pages run it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::de::DeserializeOwned;

/// The command, and the folder of measured data that replaces `DATA` in its arguments.
pub struct Program {
    blklab: PathBuf,
    data: PathBuf,
}

impl Program {
    /// # Errors
    /// If the command does not exist.
    pub fn new(blklab: &Path, data: &Path) -> Result<Program, String> {
        let blklab = std::fs::canonicalize(blklab)
            .map_err(|e| format!("{}: {e}; `make build` makes it", blklab.display()))?;
        Ok(Program {
            blklab,
            data: data.to_path_buf(),
        })
    }

    /// Returns the folder of measured data.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the output of `blklab LINE`. Exit status 1 is accepted, too: `conform`
    /// ends with it if a run does not agree.
    ///
    /// # Errors
    /// If it cannot be run or has another exit status.
    pub fn run(&self, line: &str) -> Result<String, String> {
        let data = self.data.to_string_lossy();
        let words = line
            .split_whitespace()
            .map(|word| word.replace("DATA", &data));
        let done = Command::new(&self.blklab)
            .args(words)
            .output()
            .map_err(|e| format!("{}: {e}", self.blklab.display()))?;
        match done.status.code() {
            Some(0 | 1) if !done.stdout.is_empty() => {
                String::from_utf8(done.stdout).map_err(|e| format!("blklab {line}: {e}"))
            }
            _ => Err(format!(
                "blklab {line}: {}: {}",
                done.status,
                String::from_utf8_lossy(&done.stderr)
            )),
        }
    }

    /// Returns what `blklab LINE` prints with `--output-format json`.
    ///
    /// # Errors
    /// As [`Program::run`], or if the JSON is of another form.
    pub fn json<A: DeserializeOwned>(&self, line: &str) -> Result<A, String> {
        // The option comes before all others: arguments after `--` are fio's.
        let (command, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let printed = self.run(&format!("{command} --output-format json {arguments}"))?;
        serde_json::from_str(&printed).map_err(|e| format!("blklab {line}: {e}"))
    }

    /// Returns the output of `blklab LINE` in a folder; of a refusal, which is an answer, too,
    /// with standard error, where else only progress stands.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn run_in(&self, folder: &Path, line: &str) -> Result<String, String> {
        let done = Command::new(&self.blklab)
            .args(line.split_whitespace())
            .current_dir(folder)
            .output()
            .map_err(|e| format!("{}: {e}", self.blklab.display()))?;
        let printed = match done.status.success() {
            true => done.stdout,
            false => [done.stdout, done.stderr].concat(),
        };
        String::from_utf8(printed).map_err(|e| format!("blklab {line}: {e}"))
    }
}
