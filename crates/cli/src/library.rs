//! The commands for programs: the same words in, what was found out.

use blklab_description::{read_text, with_value};
use blklab_device::registry;
use blklab_report::{Comparison, SchedulerRuns, compare, failed_units, fio_text, html, json, text};
use blklab_sim::Machine;
use blklab_tables::Table;
use clap::Parser;

use crate::args::{Cli, Command, RunFormat};
use crate::compare::{ask, compared, replayed};
use crate::compared::{Compared, results_table};
use crate::failure::Failure;
use crate::progress::{Caller, Observer};
use crate::{calibrate, conform, output, probe, run};

/// A command to call.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Its words, without the program's name.
    pub words: Vec<String>,
    /// A job file's text, which is read where the words say `-`.
    pub job_text: Option<String>,
    /// Whether the requests of the first runs are kept one by one.
    pub keep_requests: bool,
}

/// What a command found.
pub struct Found {
    /// What it prints.
    pub text: String,
    /// Whether the command would end with exit status 0.
    pub holds: bool,
    /// What ran; `None` for commands that run no job.
    pub ran: Option<Ran>,
}

/// What ran for a command.
pub struct Ran {
    /// What the command prints with `--output-format json`.
    pub json: String,
    /// The settings, and the runs of each.
    pub settings: Vec<SchedulerRuns>,
    comparison: Comparison,
}

impl Ran {
    /// What each job got in each run.
    pub fn results(&self) -> Table {
        results_table(&self.settings)
    }

    /// The requests of each setting's first run, where they were kept.
    pub fn requests(&self) -> Table {
        blklab_tables::requests(self.settings.iter().flat_map(|setting| {
            let run = setting.runs.first()?;
            Some((setting.name.as_str(), run))
        }))
    }

    /// What was going on over time in each setting's first run.
    pub fn series(&self) -> Table {
        blklab_tables::series(self.settings.iter().flat_map(|setting| {
            let run = setting.runs.first()?;
            Some((setting.name.as_str(), run))
        }))
    }

    /// All of it as a page of its own.
    pub fn page(&self) -> String {
        html::render(&self.comparison)
    }

    /// Who is best, in a sentence.
    pub fn headline(&self) -> &str {
        match &self.comparison.judgement {
            Some(judgement) => &judgement.sentence,
            None => &self.comparison.headline,
        }
    }
}

/// Calls a command.
///
/// # Errors
/// As the command fails; where the words are none of a command that runs, measures or
/// checks.
pub fn call(call: Call, observer: Observer<'_>) -> Result<Found, Failure> {
    let words = std::iter::once("blklab".to_string()).chain(call.words.iter().cloned());
    let cli = Cli::try_parse_from(words).map_err(|error| {
        let message = error.to_string();
        Failure::mistake(message.trim_start_matches("error: ").trim_end())
    })?;
    let caller = Caller {
        command: output::command_of(&call.words),
        observer: Some(observer),
    };
    match cli.command {
        Command::Run(mut args) => {
            args.work.job_text = call.job_text;
            args.tables.keep_requests |= call.keep_requests;
            let inputs = run::prepare(&mut args)?;
            ran_once(run::simulate(&args, &inputs, &caller)?)
        }
        Command::Compare(mut args) => {
            args.work.job_text = call.job_text;
            args.sweep.tables.keep_requests |= call.keep_requests;
            let question = ask(&mut args)?;
            Ok(of_comparison(compared(&args, question, &caller)?))
        }
        Command::Replay(mut args) => {
            args.sweep.tables.keep_requests |= call.keep_requests;
            Ok(of_comparison(replayed(&args, &caller)?))
        }
        Command::Conform(args) => {
            let (text, holds) = conform::checked(&args)?;
            let ran = None;
            Ok(Found { text, holds, ran })
        }
        Command::Probe(mut args) => with_text(&mut args, |args| &mut args.output, probe::probe),
        Command::Calibrate(mut args) => {
            with_text(&mut args, |args| &mut args.output, calibrate::calibrate)
        }
        _ => Err(Failure::mistake(
            "a program can call run, compare, replay, conform, calibrate and probe",
        )),
    }
}

/// The text of a `drive`'s or `machine`'s description, some of its keys with values in the
/// place of their own.
///
/// # Errors
/// Where there is no such description or key, or a value is out of its range.
pub fn description(kind: &str, name: &str, values: &[(String, String)]) -> Result<String, Failure> {
    match kind {
        "drive" => {
            let (_, text) = registry::load_with(name, values).map_err(Failure::Mistake)?;
            Ok(text)
        }
        "machine" => {
            let (_, mut text) = Machine::load(name).map_err(Failure::Mistake)?;
            for (key, value) in values {
                text = with_value(&text, key, value)
                    .map_err(|problem| Failure::Mistake(format!("{name}: {problem}")))?;
            }
            Machine::parse(name, &text).map_err(Failure::mistake)?;
            Ok(text)
        }
        _ => Err(Failure::mistake(format!(
            "{kind}: there are descriptions of a drive and of a machine"
        ))),
    }
}

fn ran_once(
    (results, origin): (blklab_stats::Results, blklab_report::Origin),
) -> Result<Found, Failure> {
    let holds = failed_units(&results).0 == 0;
    let (text, json) = (
        fio_text::render(&results, None),
        run::printed(RunFormat::Json, &results),
    );
    let settings = vec![SchedulerRuns {
        name: results.scheduler.clone(),
        runs: vec![results],
    }];
    let mut comparison = compare(&settings);
    comparison.origin = origin;
    let ran = Some(Ran {
        json,
        settings,
        comparison,
    });
    Ok(Found { text, holds, ran })
}

fn of_comparison(compared: Compared) -> Found {
    let comparison = compared.comparison;
    Found {
        text: text::render_with(&comparison, text::Style::PLAIN),
        holds: comparison.failed.is_empty() && !comparison.interrupted,
        ran: Some(Ran {
            json: json::render(&comparison),
            settings: compared.settings,
            comparison,
        }),
    }
}

/// Has a command write its text to a file, and reads it.
fn with_text<A>(
    args: &mut A,
    output: impl Fn(&mut A) -> &mut Option<std::path::PathBuf>,
    command: impl Fn(&A) -> Result<(), Failure>,
) -> Result<Found, Failure> {
    let broken = |error: std::io::Error| Failure::Broken(format!("a temporary file: {error}"));
    let folder = tempfile::tempdir().map_err(broken)?;
    let file = folder.path().join("text");
    *output(args) = Some(file.clone());
    command(args)?;
    Ok(Found {
        text: read_text(&file).map_err(broken)?,
        holds: true,
        ran: None,
    })
}
