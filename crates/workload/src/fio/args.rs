//! fio's command line: `--name=job1 --rw=randread ...`, with job files among it.

use super::error::{Fault, JobError, Note, Position};
use super::job_file::{Environment, OptionLine, Section, include_file, read};
use super::loader::Loader;
use super::options::{self, NO_SUCH_OPTION, Values, unknown};
use super::spec::JobFile;
use blklab_description::nearest;

/// The file name in messages about jobs that are given as options.
const COMMAND_LINE: &str = "command line";

/// The options of fio itself rather than of jobs, and whether they take a value.
const COMMAND_OPTIONS: &[(&str, bool)] = &[
    ("output", true),
    ("output-format", true),
    ("bandwidth-log", false),
    ("minimal", false),
    ("append-terse", false),
    ("readonly", false),
    ("eta", true),
    ("eta-interval", true),
    ("eta-newline", true),
    ("debug", true),
    ("parse-only", false),
    ("section", true),
    ("alloc-size", true),
    ("warnings-fatal", false),
    ("max-jobs", true),
    ("terse-version", true),
    ("idle-prof", true),
    ("status-interval", true),
    ("aux-path", true),
];

/// A parsed argument.
struct Argument<'a> {
    /// The argument as written.
    written: &'a str,
    /// The option's full name.
    name: &'static str,
    value: Option<&'a str>,
}

/// Reads fio's command line, without the command's name.
///
/// Options before the first `--name` apply to all jobs. As with fio's use of getopt, a name may be
/// abbreviated if it is unambiguous, and `-name` means `--name`. All other words are job files; the
/// first of them begins with the global options of the command line.
pub fn parse_args(args: &[String], environment: Environment<'_>) -> Result<JobFile, JobError> {
    load(args, Loader::new(environment), &read)
}

/// Reads the command line with a prepared loader; `read` returns the text of a job file.
pub(super) fn load(
    args: &[String],
    mut loader: Loader<'_>,
    read: &dyn Fn(&str) -> Result<String, JobError>,
) -> Result<JobFile, JobError> {
    let mut files = Vec::new();
    // The sections of jobs; the first has no name and holds the global options.
    let mut jobs: Vec<Section> = Vec::new();
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        if arg == "--" {
            files.extend(rest.by_ref());
        } else if !arg.starts_with('-') || arg == "-" {
            files.push(arg);
        } else {
            let argument = take_apart(arg, &mut rest)?;
            apply(&mut loader, &mut jobs, argument)?;
        }
    }
    for job in &jobs {
        match job.is_global() {
            true => loader.add_global(&job.entries, false)?,
            false => loader.add_job(job, false, false)?,
        }
    }
    for file in &files {
        let text = read(file)?;
        loader.add_file(file, &text, &include_file)?;
    }
    let named = jobs.iter().any(|job| !job.is_global());
    let name = match files[..] {
        [file] if !named => file,
        _ => COMMAND_LINE,
    };
    loader.finish(name)
}

fn here() -> Position {
    Position {
        file: COMMAND_LINE.to_string(),
        line: 0,
    }
}

fn fail(written: &str, fault: Fault) -> JobError {
    JobError::at(&here(), written, fault)
}

fn take_apart<'a>(
    arg: &'a str,
    rest: &mut impl Iterator<Item = &'a str>,
) -> Result<Argument<'a>, JobError> {
    let body = arg.strip_prefix("--").unwrap_or(&arg[1..]);
    let (typed, mut value) = match body.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (body, None),
    };
    let name = full_name(typed).map_err(|fault| fail(arg, fault))?;
    if value.is_none() && takes_value(name) {
        value = rest.next();
    }
    if takes_value(name) && value.is_none_or(str::is_empty) {
        return Err(fail(
            arg,
            Fault::new("needs a value").help(format!("--{name}=VALUE")),
        ));
    }
    Ok(Argument {
        written: arg,
        name,
        value,
    })
}

fn takes_value(name: &str) -> bool {
    match COMMAND_OPTIONS.iter().find(|(option, _)| *option == name) {
        Some((_, takes)) => *takes,
        None => {
            options::find(name).is_some_and(|option| !matches!(option.values, Values::Switch(_)))
        }
    }
}

fn all_names() -> impl Iterator<Item = &'static str> {
    COMMAND_OPTIONS
        .iter()
        .map(|(name, _)| *name)
        .chain(options::names())
}

fn full_name(typed: &str) -> Result<&'static str, Fault> {
    if let Some(name) = all_names().find(|name| *name == typed) {
        return Ok(name);
    }
    let candidates: Vec<_> = all_names()
        .filter(|name| !typed.is_empty() && name.starts_with(typed))
        .collect();
    match candidates[..] {
        [only] => Ok(only),
        [] => match nearest(typed, COMMAND_OPTIONS.iter().map(|(name, _)| *name)) {
            Some(close) if nearest(typed, all_names()) == Some(close) => {
                Err(Fault::new(NO_SUCH_OPTION).help(format!("did you mean {close}?")))
            }
            _ => Err(unknown(typed)),
        },
        _ => Err(Fault::new("could be several options").help(candidates.join(", "))),
    }
}

fn apply(
    loader: &mut Loader<'_>,
    jobs: &mut Vec<Section>,
    argument: Argument<'_>,
) -> Result<(), JobError> {
    let Argument {
        written,
        name,
        value,
    } = argument;
    if COMMAND_OPTIONS.iter().any(|(option, _)| *option == name) {
        return apply_to_fio(loader, written, name, value);
    }
    let starts_job = name == "name";
    if starts_job || jobs.is_empty() {
        let section = match value {
            Some(job) if starts_job => job,
            _ => "global",
        };
        jobs.push(Section {
            name: section.to_string(),
            position: here(),
            entries: Vec::new(),
        });
    }
    let text = match value {
        Some(value) => format!("{name}={value}"),
        None => name.to_string(),
    };
    if let Some(job) = jobs.last_mut()
        && !(starts_job && job.is_global())
    {
        job.entries.push(OptionLine {
            position: here(),
            text,
        });
    }
    Ok(())
}

fn apply_to_fio(
    loader: &mut Loader<'_>,
    written: &str,
    name: &str,
    value: Option<&str>,
) -> Result<(), JobError> {
    match (name, value) {
        ("section", Some(value)) if value.starts_with("global") => {
            return Err(fail(
                written,
                Fault::new("global sections always apply").help("name a job's section"),
            ));
        }
        ("section", Some(value)) => loader.only.push(value.to_string()),
        ("readonly", _) => loader.read_only = true,
        _ => loader.notes.push(Note {
            job: None,
            text: format!("{written} is for fio itself and has no effect here"),
        }),
    }
    Ok(())
}
