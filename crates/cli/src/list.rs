//! `blklab list`: what there is, a line each.

use blklab_device::registry;
use blklab_experiment::AXES;
use blklab_sim::Machine;
use blklab_workload::library;

use crate::args::{ListArgs, Listed};
use crate::failure::Failure;
use crate::output;

pub(crate) fn list(args: &ListArgs) -> Result<(), Failure> {
    let rows: Vec<(&str, String)> = match args.what {
        Listed::Schedulers => blklab_elevator::all()
            .iter()
            .map(|t| (t.name, t.help.to_string()))
            .collect(),
        Listed::Drives => registry::names()
            .map(|name| (name, drive_help(name)))
            .collect(),
        Listed::Machines => Machine::names()
            .map(|name| (name, machine_help(name)))
            .collect(),
        Listed::Axes => AXES
            .iter()
            .map(|axis| (axis.name, axis.help.to_string()))
            .collect(),
        Listed::Jobs => library::names()
            .map(|name| (name, library::help(name).to_string()))
            .collect(),
    };
    output::print(&table(&rows))
}

fn drive_help(name: &str) -> String {
    match registry::find(name) {
        Some(Ok(spec)) => spec.description,
        _ => String::new(),
    }
}

fn machine_help(name: &str) -> String {
    match Machine::find(name) {
        Some(Ok(machine)) => machine.description,
        _ => String::new(),
    }
}

fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter()
        .map(|(name, help)| format!("{name:width$}  {help}\n"))
        .collect()
}
