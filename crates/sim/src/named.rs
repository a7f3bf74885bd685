//! Finds the drives and machines that users name: those that come with the
//! program, or files that describe others.

use std::path::Path;

use blklab_device::{DriveSpec, registry};
use blklab_workload::hint;

use crate::machine::Machine;

/// The drive of that name, or that a file describes, and its text.
///
/// # Errors
/// Where there is none, or it says what is not understood; the message says what
/// there is, or has file and line.
pub fn find_drive(name: &str) -> Result<(DriveSpec, String), String> {
    if let Some(found) = registry::find(name) {
        let text = registry::text(name).unwrap_or_default().to_string();
        return Ok((found.map_err(|e| e.to_string())?, text));
    }
    let text = described(name, "drive", registry::names())?;
    let spec = DriveSpec::parse(name, &text).map_err(|e| e.to_string())?;
    Ok((spec, text))
}

/// The machine of that name, or that a file describes, and its text.
///
/// # Errors
/// As [`find_drive`].
pub fn find_machine(name: &str) -> Result<(Machine, String), String> {
    if let Some(found) = Machine::find(name) {
        let text = Machine::text(name).unwrap_or_default().to_string();
        return Ok((found.map_err(|e| e.to_string())?, text));
    }
    let text = described(name, "machine", Machine::names())?;
    let machine = Machine::parse(name, &text).map_err(|e| e.to_string())?;
    Ok((machine, text))
}

fn described(
    name: &str,
    kind: &str,
    known: impl Iterator<Item = &'static str>,
) -> Result<String, String> {
    std::fs::read_to_string(name).map_err(|error| {
        let known: Vec<&str> = known.collect();
        if Path::new(name).exists() {
            return format!("{name}: cannot read: {error}");
        }
        let hint = hint(name, known.iter().copied());
        let list = known.join(", ");
        format!("{name}: no such file, and no {kind} of that name; there are {list}{hint}")
    })
}
