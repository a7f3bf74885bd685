//! The `blklab` command as the pages run it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The command, and the folder of measured data that `DATA/` in an argument
/// stands for.
pub struct Program {
    blklab: PathBuf,
    data: PathBuf,
}

impl Program {
    /// # Errors
    /// Where the command is not there.
    pub fn new(blklab: &Path, data: &Path) -> Result<Program, String> {
        let blklab = std::fs::canonicalize(blklab)
            .map_err(|e| format!("{}: {e}; `make build` makes it", blklab.display()))?;
        Ok(Program {
            blklab,
            data: data.to_path_buf(),
        })
    }

    /// The measured data.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// What `blklab LINE` prints, and whether it ended with status 0 or 1: 1 is
    /// an answer too (`conform` that does not agree).
    ///
    /// # Errors
    /// Where it could not be run or ended otherwise.
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

    /// What `blklab LINE` prints in a folder, on standard error too: a refusal is an
    /// answer there.
    ///
    /// # Errors
    /// Where it could not be run.
    pub fn run_in(&self, folder: &Path, line: &str) -> Result<String, String> {
        let done = Command::new(&self.blklab)
            .args(line.split_whitespace())
            .current_dir(folder)
            .output()
            .map_err(|e| format!("{}: {e}", self.blklab.display()))?;
        let printed = [done.stdout, done.stderr].concat();
        String::from_utf8(printed).map_err(|e| format!("blklab {line}: {e}"))
    }
}
