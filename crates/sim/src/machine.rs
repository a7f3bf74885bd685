//! The host: how many CPUs it has and what its work costs them.

use serde::Deserialize;
use thiserror::Error;

/// A mistake in a machine description.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}:{line}: {message}")]
pub struct MachineError {
    /// The file as the user named it.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// What was found and what would be right.
    pub message: String,
}

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name: the registry's, or the file's.
    pub name: String,
    /// One line of help.
    pub description: String,
    /// Processors, hyper-threads included.
    pub cpus: u32,
    /// What I/O costs them.
    pub costs: Costs,
}

/// What a unit of I/O costs the CPU it is done on, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// From the program's decision to the bio's arrival in the block layer.
    pub submit_ns: u64,
    /// From the interrupt to the program's knowing of it.
    pub complete_ns: u64,
}

/// Machines that come with the program.
const MACHINES: &[(&str, &str)] = &[
    (
        "generic-8",
        include_str!("../../../machines/generic-8.toml"),
    ),
    ("i7-3770k", include_str!("../../../machines/i7-3770k.toml")),
];

const MAX_CPUS: u32 = 4096;
/// A second: more than any step of I/O costs.
const MAX_COST_NS: u64 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    description: String,
    cpu: Cpu,
    #[serde(default)]
    costs: Costs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpu {
    count: toml::Spanned<u32>,
}

impl Machine {
    /// The names of the machines that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MACHINES.iter().map(|(name, _)| *name)
    }

    /// The text of one that comes with the program.
    pub fn text(name: &str) -> Option<&'static str> {
        MACHINES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, text)| *text)
    }

    /// One that comes with the program.
    pub fn find(name: &str) -> Option<Result<Machine, MachineError>> {
        Some(Machine::parse(name, Machine::text(name)?))
    }

    /// Reads a description; `name` is the file as the user named it.
    ///
    /// # Errors
    /// Where the text is no description; the message has file and line.
    pub fn parse(name: &str, text: &str) -> Result<Machine, MachineError> {
        let fault = |offset: usize, message: String| MachineError {
            file: name.to_string(),
            line: 1 + text.as_bytes()[..offset.min(text.len())]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
            message,
        };
        let parsed: Text = toml::from_str(text)
            .map_err(|e| fault(e.span().map_or(0, |s| s.start), e.message().to_string()))?;
        let count = *parsed.cpu.count.get_ref();
        if !(1..=MAX_CPUS).contains(&count) {
            let at = parsed.cpu.count.span().start;
            let message = format!("cpu.count: found {count}, legal is 1 to {MAX_CPUS}");
            return Err(fault(at, message));
        }
        let costs = parsed.costs;
        if costs.submit_ns.max(costs.complete_ns) > MAX_COST_NS {
            let at = text.find("[costs]").unwrap_or(0);
            let message = format!("costs: legal is 0 to {MAX_COST_NS} ns a step");
            return Err(fault(at, message));
        }
        Ok(Machine {
            name: name.to_string(),
            description: parsed.description,
            cpus: count,
            costs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_parses() {
        for name in Machine::names() {
            let machine = Machine::find(name)
                .expect("listed")
                .unwrap_or_else(|e| panic!("{e}"));
            assert!(machine.cpus > 0 && !machine.description.is_empty());
        }
    }

    #[test]
    fn mistakes_have_a_line() {
        let error = Machine::parse("m.toml", "description = \"x\"\n[cpu]\ncount = 0\n");
        assert_eq!(
            error.unwrap_err().to_string(),
            "m.toml:3: cpu.count: found 0, legal is 1 to 4096"
        );
        let error = Machine::parse("m.toml", "description = \"x\"\n[cpu]\ncuont = 4\n");
        let text = error.unwrap_err().to_string();
        assert!(
            text.starts_with("m.toml:3: unknown field `cuont`"),
            "{text}"
        );
    }
}
