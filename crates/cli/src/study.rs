//! `blklab study`.

use std::path::Path;

use blklab_experiment::{Plan, Scale, Simulated, Study, WorkloadSource};
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
    let mut cases = Vec::new();
    for (file, job) in study.jobs.iter().enumerate() {
        cases.extend(run(study, (file, job), args, &caller)?);
    }
    // By drive, then by file; patterns stay in the order of their file.
    cases.sort_by_key(|(place, ..)| *place);
    let cases = cases.into_iter().map(|((drive, _), pattern, runs)| {
        let (name, _) = study.drives[drive];
        (name.to_string(), pattern, runs)
    });
    let shown = blklab_report::Study::new(
        study.name,
        about(study, args),
        caller.command.clone(),
        (args.fs != FileSystemKind::Raw).then(|| args.fs.name()),
        cases.collect(),
    );
    if let Some(page) = page {
        output::write_file(page, html::render_study(&shown).as_bytes())?;
    }
    output::deliver(study_text::render(&shown, style(file)), file)
}

/// A pattern's runs on a drive, with the places of drive and file.
type Ran = ((usize, usize), String, Vec<SchedulerRuns>);

/// Runs the patterns of one of the study's files.
fn run(
    study: &Study,
    (file, job): (usize, &str),
    args: &StudyArgs,
    caller: &Caller<'_>,
) -> Result<Vec<Ran>, Failure> {
    let work = WorkloadSource::find(&[job.to_string()], &[])?;
    let (settings, patterns) = study.settings(&work, scale(args), args.fs)?;
    let mut world = Simulated::new(&work, &settings)?;
    world.times_requests = true;
    world.abandon = caller.abandon();
    let plan = Plan {
        repeats: args.repeats,
        threads: args.threads,
        ..Plan::default()
    };
    let mut rows = progress::run(&world, &plan, caller)?.into_iter();
    let mut ran = Vec::new();
    for pattern in &patterns {
        for drive in 0..study.drives.len() {
            let of_case = rows.by_ref().take(study.rows_of_pattern());
            let runs = of_case.map(|row| SchedulerRuns {
                name: row.label,
                runs: row.runs,
            });
            ran.push(((drive, file), pattern.clone(), runs.collect()));
        }
    }
    Ok(ran)
}

fn scale(args: &StudyArgs) -> Scale {
    match args.full {
        true => Scale::Full,
        false => Scale::Small(args.size),
    }
}

fn about(study: &Study, args: &StudyArgs) -> String {
    let drives = study
        .drives
        .iter()
        .map(|(name, drive)| format!("{name} {drive}"));
    let drives = drives.collect::<Vec<_>>().join(", ");
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
