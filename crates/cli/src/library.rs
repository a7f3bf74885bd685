//! The commands for calling programs: the same arguments, with structured results.

use blklab_calibrate::Model;
use blklab_description::{Reference, Value, with_value};
use blklab_device::{DriveSpec, registry};
use blklab_report::{Comparison, SchedulerRuns, compare, failed_units, fio_text, html, json, text};
use blklab_sim::Machine;
use blklab_tables::Table;

use crate::args::{Cli, Command, RunFormat};
use crate::compare::{ask, compared, replayed};
use crate::compared::{Compared, results_table};
use crate::failure::Failure;
use crate::progress::{Caller, Observer};
use crate::{calibrate, conform, output, probe, run, sweep, tune};

/// A command with its arguments.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The command line, without the program's name.
    pub words: Vec<String>,
    /// A job file's text, which is read where the command line says `-`.
    pub job_text: Option<String>,
    /// Whether the requests of the first runs are kept one by one.
    pub keep_requests: bool,
    /// The settings that `tune` tries, the one to compare with first, if not those of the command
    /// line: the label of each, and its keys with their values, as `--vary` has them.
    pub rows: Vec<(String, Vec<(String, String)>)>,
}

/// The outcome of a command.
pub struct CommandOutput {
    /// The command's printed text.
    pub text: String,
    /// Whether the command would exit with status 0.
    pub holds: bool,
    /// The runs; `None` for commands that run no job.
    pub ran: Option<RunOutput>,
    /// The drive that was fitted or probed.
    pub drive: Option<NamedText>,
    /// The machine that was fitted.
    pub machine: Option<NamedText>,
    /// Of `conform` how many events agree, and of how many.
    pub agreement: Option<(u64, u64)>,
}

/// A description's name and its text.
pub type NamedText = (String, String);

impl CommandOutput {
    fn new(text: String, holds: bool, ran: Option<RunOutput>) -> CommandOutput {
        CommandOutput {
            text,
            holds,
            ran,
            drive: None,
            machine: None,
            agreement: None,
        }
    }
}

/// The runs of a command.
pub struct RunOutput {
    /// The output of the command with `--output-format json`.
    pub json: String,
    /// The settings, with the runs of each.
    pub settings: Vec<SchedulerRuns>,
    /// The number of runs, those of settings that were left out among them.
    pub runs: usize,
    comparison: Comparison,
}

impl RunOutput {
    /// Returns the table of each job's results in each run.
    pub fn results(&self) -> Table {
        results_table(&self.settings)
    }

    /// Returns the requests of each setting's first run, where they were kept.
    pub fn requests(&self) -> Table {
        blklab_tables::requests(self.settings.iter().flat_map(|setting| {
            let run = setting.runs.first()?;
            Some((setting.name.as_str(), run))
        }))
    }

    /// Returns what of the requests is missing, a sentence for each setting.
    pub fn notes_on_requests(&self) -> Vec<String> {
        output::notes_on_requests(&self.settings)
    }

    /// Returns the time series of each setting's first run.
    pub fn series(&self) -> Table {
        blklab_tables::series(self.settings.iter().flat_map(|setting| {
            let run = setting.runs.first()?;
            Some((setting.name.as_str(), run))
        }))
    }

    /// Returns a self-contained HTML page.
    pub fn page(&self) -> String {
        html::render(&self.comparison)
    }

    /// Returns what to do in the command's words; empty if there is no advice.
    pub fn advice(&self) -> String {
        text::advice(&self.comparison)
    }

    /// Returns the verdict in a sentence.
    pub fn headline(&self) -> &str {
        match &self.comparison.judgement {
            Some(judgement) => &judgement.sentence,
            None => &self.comparison.headline,
        }
    }
}

/// Calls a command.
///
/// As the command fails; a mistake if it is not a command that runs, measures or checks.
pub fn call(call: Call, observer: Observer<'_>) -> Result<CommandOutput, Failure> {
    let words = std::iter::once("blklab".to_string()).chain(call.words.iter().cloned());
    let cli = Cli::read(words).map_err(|error| {
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
            output_of_run(run::simulate(&args, &inputs, &caller)?)
        }
        Command::Compare(mut args) => {
            args.work.job_text = call.job_text;
            args.sweep.tables.keep_requests |= call.keep_requests;
            let question = ask(&mut args)?;
            Ok(output_of_comparison(compared(&args, question, &caller)?))
        }
        Command::Replay(mut args) => {
            args.sweep.tables.keep_requests |= call.keep_requests;
            Ok(output_of_comparison(replayed(&args, &caller)?))
        }
        Command::Tune(mut args) => {
            args.work.job_text = call.job_text;
            args.rows = call.rows;
            let tuned = tune::called(*args, &caller)?;
            let mut output = output_of_comparison(tuned.compared);
            if let Some(ran) = &mut output.ran {
                ran.runs = tuned.runs;
            }
            Ok(output)
        }
        Command::Conform(args) => {
            let (report, holds) = conform::checked(&args)?;
            Ok(CommandOutput {
                agreement: Some((report.agreed(), report.compared())),
                ..CommandOutput::new(report.to_string(), holds, None)
            })
        }
        Command::Probe(args) => {
            let findings = probe::probed(&args)?;
            let description = findings.description();
            Ok(CommandOutput {
                drive: description.map(|text| (findings.name.clone(), text)),
                ..CommandOutput::new(findings.text(), true, None)
            })
        }
        Command::Calibrate(args) => {
            let calibrated = calibrate::calibrated(&args)?;
            calibrated.write(&args)?;
            let model = calibrated.fit.map(|(fitted, _)| fitted.model);
            let named = |model: Model| {
                let drive = (model.drive_name, model.drive.text());
                (drive, (model.machine_name, model.machine.text()))
            };
            let (drive, machine) = model.map(named).unzip();
            Ok(CommandOutput {
                drive,
                machine,
                ..CommandOutput::new(calibrated.text, true, None)
            })
        }
        _ => Err(Failure::mistake(
            "a program can call run, compare, replay, tune, conform, calibrate and probe",
        )),
    }
}

/// The source of a description: a name or file, or a text with the name that messages have.
#[derive(Clone, Copy, Debug)]
pub struct DescriptionSource<'a> {
    /// `drive` or `machine`.
    pub kind: &'a str,
    /// A name or file.
    pub name: &'a str,
    /// The text, if it is not that of the name.
    pub text: Option<&'a str>,
}

/// Returns the text of a description, with the given keys set to the given values.
///
/// # Errors
/// If there is no such description or key, or a value is out of its range.
pub fn description(
    source: DescriptionSource<'_>,
    values: &[(String, String)],
) -> Result<String, Failure> {
    read_description(source, values).map(|(text, _)| text)
}

/// Returns all keys of a description with their values.
///
/// # Errors
/// As [`description`].
pub fn description_values(source: DescriptionSource<'_>) -> Result<Vec<(String, Value)>, Failure> {
    let (text, reference) = read_description(source, &[])?;
    blklab_description::values(&text, &reference).map_err(Failure::Mistake)
}

fn read_description(
    DescriptionSource { kind, name, text }: DescriptionSource<'_>,
    values: &[(String, String)],
) -> Result<(String, Reference), Failure> {
    let is_drive = match kind {
        "drive" => true,
        "machine" => false,
        _ => {
            return Err(Failure::mistake(format!(
                "{kind}: there are descriptions of a drive and of a machine"
            )));
        }
    };
    let loaded = || match is_drive {
        true => registry::load(name).map(|(_, text)| text),
        false => Machine::load(name).map(|(_, text)| text),
    };
    let mut text = match text {
        Some(text) => text.to_string(),
        None => loaded().map_err(Failure::Mistake)?,
    };
    for (key, value) in values {
        text = with_value(&text, key, value)
            .map_err(|problem| Failure::Mistake(format!("{name}: {problem}")))?;
    }
    let reference = match is_drive {
        true => DriveSpec::parse_with_reference(name, &text).map(|(_, keys)| keys),
        false => Machine::parse_with_reference(name, &text).map(|(_, keys)| keys),
    };
    Ok((text, reference.map_err(Failure::mistake)?))
}

/// Returns the identity of the program's build, as [`crate::SweepFile`] has it.
pub fn program() -> &'static str {
    sweep::PROGRAM
}

fn output_of_run(ran: run::Ran) -> Result<CommandOutput, Failure> {
    let run::Ran {
        results, origin, ..
    } = ran;
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
    let ran = Some(RunOutput {
        json,
        runs: 1,
        settings,
        comparison,
    });
    Ok(CommandOutput::new(text, holds, ran))
}

fn output_of_comparison(compared: Compared) -> CommandOutput {
    let comparison = compared.comparison;
    let holds = comparison.failed.is_empty() && !comparison.interrupted;
    let text = text::render_with(&comparison, text::Style::PLAIN);
    let ran = RunOutput {
        json: json::render(&comparison),
        runs: compared.settings.iter().map(|of| of.runs.len()).sum(),
        settings: compared.settings,
        comparison,
    };
    CommandOutput::new(text, holds, Some(ran))
}
