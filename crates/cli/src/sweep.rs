//! `blklab sweep`.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use blklab_description::read_text;
use blklab_experiment::{Shard, Store, Sweep, SweepSpec, WorkloadSource};
use blklab_tables::Format;

use crate::args::SweepFileArgs;
use crate::failure::Failure;
use crate::{output, progress};

/// The data set in a sweep's folder.
const TABLE: &str = "results.parquet";

pub(crate) fn sweep(args: &SweepFileArgs) -> Result<(), Failure> {
    let name = args.spec.display().to_string();
    let text = read_text(&args.spec)
        .map_err(|error| Failure::Mistake(format!("{name}: cannot be read: {error}")))?;
    let spec = SweepSpec::parse(&name, &text)?;
    let at_line = |error: blklab_experiment::Error| match error.is_mistake() {
        true => Failure::Mistake(format!("{name}: {error}")),
        false => Failure::from(error),
    };
    let work = work(&args.spec, &spec.job).map_err(at_line)?;
    if let WorkloadSource::Trace(trace) = &work {
        return Err(Failure::Mistake(format!(
            "{name}: {trace} is a trace, and a sweep is over fio jobs"
        )));
    }
    let settings = spec.settings(&work).map_err(at_line)?;
    let program = program()?;
    let sweep = Sweep::new(&spec, &work, &settings, &program).map_err(at_line)?;
    let folder = args.output.clone();
    let folder = folder.unwrap_or_else(|| args.spec.with_extension("sweep"));
    let mut store = Store::open(&folder, &program)?;
    for other in &args.merge {
        store.merge(other)?;
    }
    let shard = args.shard.unwrap_or(Shard { at: 0, of: 1 });
    let (swept, interrupted) = progress::runs_until_interrupted(|ended, stop| {
        Ok(sweep.run(&mut store, shard, args.threads, ended, stop)?)
    })?;
    let table = folder.join(TABLE);
    let bytes = output::table_bytes(&sweep.table(&store), Format::Parquet)?;
    output::write_file(&table, &bytes)?;
    let missing = swept.all - swept.reused - swept.done;
    output::print(format!(
        "{} runs: {} done now, {} were there, {missing} missing\n{}\n",
        swept.all,
        swept.done,
        swept.reused,
        table.display()
    ))?;
    match interrupted {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

/// The job, which may be a file beside the sweep's own.
fn work(spec: &Path, job: &str) -> Result<WorkloadSource, blklab_experiment::Error> {
    let beside: PathBuf = spec.with_file_name(job);
    let name = match beside.exists() {
        true => beside.display().to_string(),
        false => job.to_string(),
    };
    WorkloadSource::find(&[name], &[])
}

/// What tells this build of the program from all others, whose figures may differ.
fn program() -> Result<String, Failure> {
    let broken = |error| Failure::Broken(format!("the program cannot be read: {error}"));
    let path = std::env::current_exe().map_err(broken)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(path).map_err(broken)?);
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!("blklab {version} (build {:016x})", hasher.finish()))
}
