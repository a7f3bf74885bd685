//! `blklab show`: one scheduler, drive, machine or job.

use blklab_blk::{Attribute, Tunable};
use blklab_description::hint;
use blklab_device::registry;
use blklab_elevator::SchedulerChoice;
use blklab_sim::Machine;
use blklab_workload::library;

use crate::args::{ShowArgs, Shown};
use crate::failure::Failure;
use crate::output;

pub(crate) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let name = args.name.as_str();
    let text = match args.what {
        Shown::Scheduler => scheduler(name)?,
        Shown::Drive => known(name, "drive", registry::text(name), registry::names())?,
        Shown::Machine => known(name, "machine", Machine::text(name), Machine::names())?,
        Shown::Job => known(name, "job", library::find(name), library::names())?,
    };
    output::print(&text)
}

fn scheduler(name: &str) -> Result<String, Failure> {
    let kind = SchedulerChoice::named(name).map_err(Failure::mistake)?.kind;
    let mut text = format!("{}: {}\nAfter {}.\n", kind.name, kind.help, kind.source);
    if kind.tunables.is_empty() {
        text.push_str("It has no tunables.\n");
        return Ok(text);
    }
    text.push_str("\nTunables:\n");
    let width = kind.tunables.iter().map(|t| t.name.len()).max();
    for tunable in kind.tunables {
        text.push_str(&row(tunable, width.unwrap_or(0)));
    }
    text.push_str(&attributes(kind.attributes));
    Ok(text)
}

/// What is more than one number.
fn attributes(attributes: &[Attribute]) -> String {
    let Some(width) = attributes.iter().map(|a| a.name.len()).max() else {
        return String::new();
    };
    let rows = attributes.iter().map(|a| {
        let (name, help, legal) = (a.name, a.help, a.legal());
        format!("  {name:width$}  {help}; {legal}\n")
    });
    format!("\nOther attributes:\n{}", rows.collect::<String>())
}

fn row(t: &Tunable, width: usize) -> String {
    let unit = t.unit.symbol();
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(" {unit}")
    };
    format!(
        "  {:width$}  {}; {} to {}{unit}, {} by default\n",
        t.name, t.help, t.min, t.max, t.default
    )
}

fn known(
    name: &str,
    kind: &str,
    text: Option<&'static str>,
    names: impl Iterator<Item = &'static str>,
) -> Result<String, Failure> {
    if let Some(text) = text {
        return Ok(text.to_string());
    }
    let names: Vec<&str> = names.collect();
    let hint = hint(name, names.iter().copied());
    let list = names.join(", ");
    Err(Failure::mistake(format!(
        "there is no {kind} called {name}; there are {list}{hint}"
    )))
}
