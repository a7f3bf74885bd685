//! `blklab study`.

use std::path::Path;

use blklab_experiment::{
    Assumption, Plan, Row, Scale, Setting, Simulated, Study, StudyDrive, WorkloadSource,
};
use blklab_report::{SchedulerRuns, html, study_text};
use blklab_sim::FileSystemKind;

use crate::args::StudyArgs;
use crate::compared::style;
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Caller};

pub(crate) fn study(args: &StudyArgs) -> Result<(), Failure> {
    let (page, file) = (args.html.as_deref(), args.output.as_deref());
    let no_inputs: [&Path; 0] = [];
    output::check(&[("--html", page), ("--output", file)], &no_inputs)?;
    let study = Study::find(&args.name)?;
    let caller = Caller::terminal();
    let asked = Asked {
        study,
        args,
        caller: &caller,
        files: study
            .jobs
            .iter()
            .map(|job| JobOfStudy::find(study, job, args))
            .collect::<Result<_, _>>()?,
    };
    let ran = asked.run()?;
    let mut shown = asked.shown(&ran, args.repeats);
    asked.try_assumptions(&ran, &mut shown)?;
    if let Some(page) = page {
        output::write_file(page, html::render_study(&shown).as_bytes())?;
    }
    output::deliver(study_text::render(&shown, style(file)), file)
}

/// A job file of a study, of which every job is a pattern.
struct JobOfStudy {
    work: WorkloadSource,
    settings: Vec<Setting>,
    patterns: Vec<String>,
    /// The assumed values on which a row can depend.
    assumptions: Vec<Assumption>,
}

impl JobOfStudy {
    fn find(study: &Study, job: &str, args: &StudyArgs) -> Result<JobOfStudy, Failure> {
        let work = WorkloadSource::find(&[job.to_string()], &[])?;
        let (settings, patterns) = study.settings(&work, scale(args), args.fs)?;
        let assumptions = Simulated::new(&work, &settings)?.assumptions(&settings);
        Ok(JobOfStudy {
            assumptions,
            work,
            settings,
            patterns,
        })
    }
}

/// A study that is asked for.
struct Asked<'a> {
    study: &'static Study,
    args: &'a StudyArgs,
    caller: &'a Caller<'a>,
    files: Vec<JobOfStudy>,
}

/// The rows of each file, in the order of its settings.
type Ran = Vec<Vec<Row>>;

impl Asked<'_> {
    fn run(&self) -> Result<Ran, Failure> {
        let each = self.files.iter().map(|file| {
            let world = Simulated::new(&file.work, &file.settings)?;
            self.rows(world, self.args.repeats)
        });
        each.collect()
    }

    fn rows<'w>(&'w self, mut world: Simulated<'w>, repeats: usize) -> Result<Vec<Row>, Failure> {
        world.times_requests = true;
        world.abandon = self.caller.abandon();
        let plan = Plan {
            repeats,
            threads: self.args.threads,
            ..Plan::default()
        };
        progress::run(&world, &plan, self.caller)
    }

    /// Returns the report on the first so many runs of each row.
    fn shown(&self, ran: &Ran, repeats: usize) -> blklab_report::Study {
        let (args, study) = (self.args, self.study);
        let mut cases = Vec::new();
        for (place, (file, rows)) in self.files.iter().zip(ran).enumerate() {
            let mut rows = rows.iter();
            for pattern in &file.patterns {
                for (at, drive) in study.drives.iter().enumerate() {
                    let of_case = rows.by_ref().take(study.rows_of_pattern());
                    let runs: Vec<SchedulerRuns> = of_case
                        .map(|row| SchedulerRuns {
                            name: row.label.clone(),
                            runs: row.runs.iter().take(repeats).cloned().collect(),
                        })
                        .collect();
                    let case = (drive.name.to_string(), pattern.clone(), runs);
                    cases.push(((at, place), case));
                }
            }
        }
        // By drive, then by file; patterns stay in the order of their file.
        cases.sort_by_key(|(place, _)| *place);
        blklab_report::Study::new(
            study.name,
            about(study, args),
            self.caller.command.clone(),
            (args.fs != FileSystemKind::Raw).then(|| args.fs.name()),
            cases.into_iter().map(|(_, case)| case).collect(),
        )
    }

    /// Runs what can depend on an assumed value with each of its plausible ends, and adds
    /// to the findings which of the values they hang on.
    fn try_assumptions(&self, ran: &Ran, shown: &mut blklab_report::Study) -> Result<(), Failure> {
        let all = self.assumptions();
        let tried = &all[..self.args.assumed.min(all.len())];
        let repeats = match tried.is_empty() {
            true => 0,
            false => self.repeats_needed(ran, shown),
        };
        for assumption in tried {
            let value = &assumption.value;
            for end in value.other_ends() {
                let other = self.run_assuming(ran, (assumption, end), repeats)?;
                let other = self.shown(&other, repeats);
                let changed = format!(
                    "{} of {} {end} in place of {}",
                    value.key, assumption.of, value.value
                );
                shown.add_trial(&changed, &other);
            }
        }
        let keys = tried.iter().map(|tried| tried.value.key.as_str());
        shown.note_trials(&keys.collect::<Vec<_>>(), all.len(), repeats);
        Ok(())
    }

    /// Returns the assumed values on which a row of any file can depend.
    fn assumptions(&self) -> Vec<&Assumption> {
        let mut all: Vec<&Assumption> = Vec::new();
        for assumption in self.files.iter().flat_map(|file| &file.assumptions) {
            if !all.contains(&assumption) {
                all.push(assumption);
            }
        }
        all
    }

    /// Returns the fewest runs of each row that find the same.
    fn repeats_needed(&self, ran: &Ran, shown: &blklab_report::Study) -> usize {
        let finds_same = |repeats: &usize| self.shown(ran, *repeats).finds_as(shown);
        let all = self.args.repeats;
        (1..all).find(finds_same).unwrap_or(all)
    }

    /// Returns the rows with an assumed value at one of its ends; those that it does not
    /// concern are as they were.
    fn run_assuming(
        &self,
        ran: &Ran,
        (assumption, end): (&Assumption, &str),
        repeats: usize,
    ) -> Result<Ran, Failure> {
        let each = self.files.iter().zip(ran).map(|(file, rows)| {
            if !file.assumptions.contains(assumption) {
                return Ok(rows.clone());
            }
            let concerned = |setting: &&Setting| assumption.concerns(setting);
            let settings: Vec<Setting> = file.settings.iter().filter(concerned).cloned().collect();
            let world = Simulated::assuming(&file.work, &settings, assumption, end)?;
            let mut others = self.rows(world, repeats)?.into_iter();
            let merged = file.settings.iter().zip(rows).map(|(setting, row)| {
                let other = assumption.concerns(setting).then(|| others.next());
                other.flatten().unwrap_or_else(|| row.clone())
            });
            Ok(merged.collect())
        });
        each.collect()
    }
}

fn scale(args: &StudyArgs) -> Scale {
    match args.full {
        true => Scale::Full,
        false => Scale::Small(args.size),
    }
}

fn about(study: &Study, args: &StudyArgs) -> String {
    let of = |drive: &StudyDrive| match drive.state {
        None => format!("{} {}", drive.name, drive.drive),
        Some(state) => format!("{} {}, {state}", drive.name, drive.drive),
    };
    let drives = study.drives.iter().map(of).collect::<Vec<_>>().join("; ");
    let sizes = study.sizes(scale(args));
    let runs = match args.repeats {
        1 => "one run".to_string(),
        repeats => format!("{repeats} runs"),
    };
    let files = match args.fs {
        FileSystemKind::Raw => String::new(),
        kind => format!("files on {}; ", kind.name()),
    };
    format!(
        "{drives}; {files}{sizes}; {runs} of each pattern, which runs by itself; changes are against the first"
    )
}
