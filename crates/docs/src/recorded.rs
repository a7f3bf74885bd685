//! Comparisons that were recorded in a real kernel, and the same asked of the simulation.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::program::Program;

/// A comparison that was recorded, its answer as a page reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded<A> {
    /// The options that the simulation gets, too.
    pub options: String,
    /// The recorded output of `--output-format json`.
    pub answer: A,
}

/// Reads the comparisons of a file in the folder of measured data.
///
/// # Errors
/// If the file cannot be read or is of another form.
pub fn read<A: DeserializeOwned>(
    program: &Program,
    file: &str,
) -> Result<Vec<Recorded<A>>, String> {
    let file = program.data().join(file);
    let in_file = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|e| in_file(&e))?;
    serde_json::from_str(&text).map_err(|e| in_file(&e))
}

/// Simulates a comparison: `command` with `JOB` and `OPTIONS` replaced.
///
/// # Errors
/// If the comparison fails or its answer is of another form.
pub fn simulated<A: DeserializeOwned>(
    program: &Program,
    command: &str,
    job: &str,
    options: &str,
) -> Result<A, String> {
    program.json(&command.replace("JOB", job).replace("OPTIONS", options))
}
