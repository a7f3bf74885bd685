//! The options of fio 3.33, each declared once with its name, alias, help, default, type of values
//! and effect.
//!
//! Names, aliases and ranges are those that `fio --cmdhelp` and `fio --enghelp=ENGINE` print; a
//! test compares them where fio is installed.

mod declaration;
mod engines;
mod jobs;
mod parse;

pub(crate) use declaration::{FioOption, Order, Outcome, Values};

use blklab_description::nearest;

use declaration::Unmodelled;

use super::engine::Engine;
use super::error::{Fault, JobError};
use super::section::SectionOptions;
use super::spec::{JobSpec, WrittenOption};

/// Returns the options that fio lists, in its order.
pub(crate) fn listed() -> impl Iterator<Item = &'static FioOption> {
    jobs::OPTIONS.iter().chain(engines::OPTIONS)
}

/// Returns the option with this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static FioOption> {
    listed()
        .chain(engines::PROFILE_OPTIONS)
        .find(|option| option.name == name || option.alias == Some(name))
}

/// Returns all names and aliases, in fio's order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    listed()
        .flat_map(|option| [Some(option.name), option.alias])
        .flatten()
}

/// Whether fio has a job option `name`.
pub fn has_option(name: &str) -> bool {
    find(name).is_some()
}

/// Returns the name of fio's job option that has this name or alias.
pub(crate) fn option_name(name: &str) -> Option<&'static str> {
    find(name).map(|option| option.name)
}

/// Whether fio's job option of this name or alias changes what is read and written, and not only
/// the way in which it is done. An engine or a batch is a way: work done in two ways is comparable.
pub fn is_work(name: &str) -> bool {
    find(name).is_some_and(|option| option.is_work)
}

/// Whether fio's job option of this name or alias takes whole numbers, with or without a unit.
pub fn takes_whole_numbers(name: &str) -> bool {
    find(name).is_some_and(|option| option.values.are_whole_numbers())
}

/// Returns the names and aliases of fio's job options.
pub fn option_names() -> impl Iterator<Item = &'static str> {
    names()
}

/// Refuses a job if one of its options changes its work and is not simulated.
pub(crate) fn check_modelled(spec: &JobSpec) -> Result<(), JobError> {
    for written in &spec.written {
        let name = written.name;
        let unmodelled = find(name).and_then(|option| option.unmodelled.as_ref());
        // The last setting of an option counts.
        let is_off = spec.written(name).is_some_and(WrittenOption::is_off);
        let Some(Unmodelled::Work {
            would,
            instead,
            applies,
        }) = unmodelled
        else {
            continue;
        };
        if is_off || !applies(spec) {
            continue;
        }
        let fault = Fault::new(format!("fio 3.33 would {would}, which is not simulated"));
        let help = format!("{instead}, or have it left out with --lenient");
        return Err(spec.refuse(&[name], fault.help(help)));
    }
    Ok(())
}

/// Returns the options that a job sets and that the simulation ignores.
pub(crate) fn left_out(spec: &JobSpec) -> impl Iterator<Item = &'static str> {
    let set = listed().filter(|option| option.kept() == Outcome::Used);
    let left_out = |option: &&FioOption| {
        let unmodelled = option.unmodelled.as_ref();
        unmodelled.is_some_and(|unmodelled| unmodelled.applies(spec))
    };
    set.filter(left_out).map(|option| option.name)
}

/// What is said of an option that only a later fio may have.
pub(crate) const NO_SUCH_OPTION: &str = "fio 3.33, as which jobs are read, has no such option";

/// Returns the error for an option that fio does not know.
pub(crate) fn unknown(name: &str) -> Fault {
    let fault = Fault::new(NO_SUCH_OPTION);
    match nearest(name, names()) {
        Some(close) => fault.help(format!("did you mean {close}?")),
        None => fault.help("fio --cmdhelp lists them"),
    }
}

/// Returns the options as Markdown tables, by their treatment, without those of engines that are
/// not simulated.
pub fn option_tables() -> String {
    let mut text = String::new();
    for (title, is_here) in TABLES {
        text.push_str(&format!(
            "## {title}\n\n| option | default | |\n| --- | --- | --- |\n"
        ));
        let has_engine = |option: &&FioOption| {
            let mut engines = option.engines.iter();
            option.engines.is_empty() || engines.any(|name| Engine::named(name).is_simulated())
        };
        for option in listed().filter(has_engine).filter(|o| is_here(o)) {
            let alias = option.alias.map(|alias| format!(", `{alias}`"));
            let default = option.default.map(|value| format!("`{value}`"));
            text.push_str(&format!(
                "| `{}`{} | {} | {} |\n",
                option.name,
                alias.unwrap_or_default(),
                default.unwrap_or_default(),
                described(option),
            ));
        }
        text.push('\n');
    }
    text
}

/// A table's title, and whether an option is in it.
type OptionTable = (&'static str, fn(&FioOption) -> bool);

const TABLES: [OptionTable; 5] = [
    ("Simulated", is_simulated),
    (
        "Changes the work and is not simulated: refused; left out with a note by --lenient",
        |option| !is_simulated(option) && option.outcome() == Outcome::Refused,
    ),
    (
        "Not simulated, and the work is the same: left out, and a note says so",
        |option| !is_simulated(option) && option.outcome() == Outcome::NotSimulated,
    ),
    (
        "Without meaning in a simulation: a note says so",
        |option| option.outcome() == Outcome::Meaningless,
    ),
    ("Without effect in fio, or gone from it", |option| {
        option.outcome() == Outcome::Obsolete
    }),
];

/// Whether some jobs at least have the option simulated.
fn is_simulated(option: &FioOption) -> bool {
    match option.unmodelled {
        Some(Unmodelled::Setting { but, .. }) => !but.is_empty(),
        _ => option.kept() == Outcome::Used,
    }
}

/// Returns an option's help, with the jobs that it is not simulated in.
fn described(option: &FioOption) -> String {
    let help = option.help;
    match &option.unmodelled {
        // Some helps say so themselves.
        Some(Unmodelled::Work { would, .. })
            if is_simulated(option) && !help.contains("refused") =>
        {
            format!("{help} Refused where fio would {would}.")
        }
        Some(Unmodelled::Setting { but, .. }) if !but.is_empty() => {
            format!("{help} Left out with a note but for {but}.")
        }
        _ => help.to_string(),
    }
}

/// Returns a section with fio's defaults.
pub(crate) fn defaults() -> SectionOptions {
    let mut section = SectionOptions::default();
    for order in [Order::First, Order::Written, Order::Last] {
        for option in listed().filter(|option| option.order == order) {
            if let Some(default) = option.default {
                let set = option.set(Some(default), &mut section);
                debug_assert!(set.is_ok(), "{}: {set:?}", option.name);
            }
        }
    }
    section
}

#[cfg(test)]
mod tests;
