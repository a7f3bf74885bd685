//! `blklab list` and `blklab show` for what is shipped with the program, and completions
//! and the manual, which are made from the declarations of the options.

use blklab_blk::{Attribute, Tunable};
use blklab_description::hint;
use blklab_device::{DriveState, registry};
use blklab_elevator::SchedulerChoice;
use blklab_experiment::AXES;
use blklab_report::Question;
use blklab_sim::Machine;
use blklab_workload::library;
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ListArgs, Listed, ManArgs, ShowArgs, Shown};
use crate::failure::Failure;
use crate::output;

/// `blklab list`: prints one line for each item.
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
            .map(|name| (name, job_help(name)))
            .collect(),
    };
    output::print(table(&rows))
}

/// Returns a job's question, or its description.
fn job_help(name: &str) -> String {
    match Question::shipped(name) {
        Some(Ok(question)) => question.question,
        _ => library::help(name).to_string(),
    }
}

fn drive_help(name: &str) -> String {
    match registry::find(name) {
        Some(Ok(spec)) => {
            let state = match spec.state() {
                DriveState::Fresh => None,
                written => Some(format!("starts {written}")),
            };
            described(&spec.description, state, spec.assumed.len())
        }
        _ => String::new(),
    }
}

fn machine_help(name: &str) -> String {
    match Machine::find(name) {
        Some(Ok(machine)) => described(&machine.description, None, machine.assumed.len()),
        _ => String::new(),
    }
}

/// Returns a description with the state that a drive starts in, if it is not fresh, and the
/// number of assumed values, on which an answer may depend.
fn described(description: &str, state: Option<String>, assumed: usize) -> String {
    let assumed = match assumed {
        0 => None,
        1 => Some("1 value assumed".to_string()),
        n => Some(format!("{n} values assumed")),
    };
    let more: Vec<String> = state.into_iter().chain(assumed).collect();
    match more.is_empty() {
        true => description.to_string(),
        false => format!("{description} ({})", more.join("; ")),
    }
}

fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter()
        .map(|(name, help)| format!("{name:width$}  {help}\n"))
        .collect()
}

/// `blklab show`: one scheduler, drive, machine or job.
pub(crate) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let name = args.name.as_str();
    let text = match args.what {
        Shown::Scheduler => scheduler(name)?,
        Shown::Drive => known(name, "drive", registry::text(name), registry::names())?,
        Shown::Machine => known(name, "machine", Machine::text(name), Machine::names())?,
        Shown::Question => {
            let names: Vec<String> = Question::names().collect();
            let names = names.iter().map(String::as_str);
            known(name, "question", Question::text(name), names)?
        }
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

/// Lists the attributes that are more than one number.
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
    names: impl Iterator<Item = impl AsRef<str>>,
) -> Result<String, Failure> {
    if let Some(text) = text {
        return Ok(text.to_string());
    }
    let names: Vec<_> = names.collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let hint = hint(name, names.iter().copied());
    let list = names.join(", ");
    Err(Failure::mistake(format!(
        "there is no {kind} called {name}; there are {list}{hint}"
    )))
}

/// `blklab completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "blklab", &mut text);
    output::print(text)
}

/// `blklab man`.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut program = Cli::command();
    // `build` gives the subcommands their full names.
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name);
            found.cloned().ok_or_else(|| {
                let known = program.get_subcommands().map(|c| c.get_name());
                let hint = hint(name, known);
                Failure::mistake(format!("there is no command {name}{hint}"))
            })?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut text)
        .map_err(|e| Failure::Broken(format!("cannot make the manual page: {e}")))?;
    output::print(text)
}
