//! `blklab sweep`.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use blklab_description::read_text;
use blklab_experiment::{Error, Setting, Shard, Store, Sweep, SweepSpec, WorkloadSource};
use blklab_tables::Format;

use crate::args::SweepFileArgs;
use crate::failure::Failure;
use crate::progress::Observer;
use crate::{output, progress};

/// The table's name in a sweep's folder.
const TABLE: &str = "results.parquet";

pub(crate) fn sweep(args: &SweepFileArgs) -> Result<(), Failure> {
    let broken = |error| Failure::Broken(format!("the program cannot be found: {error}"));
    let program = std::env::current_exe().map_err(broken)?;
    let file = SweepFile::parse(&args.spec, &program)?;
    let sweep = file.checked()?;
    let folder = args.output.clone();
    let folder = folder.unwrap_or_else(|| args.spec.with_extension("sweep"));
    let mut store = Store::open(&folder, &file.program)?;
    for other in &args.merge {
        store.merge(other)?;
    }
    let shard = args.shard.unwrap_or(Shard { at: 0, of: 1 });
    let (swept, interrupted) = progress::runs_until_interrupted(|ended, stop| {
        let is_in_part = |number| shard.has(number);
        Ok(sweep.run(&mut store, is_in_part, args.threads, ended, stop)?)
    })?;
    let table = write_table(&sweep, &store, &folder)?;
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

/// A sweep's file, for programs that distribute its runs.
pub struct SweepFile {
    name: String,
    spec: SweepSpec,
    work: WorkloadSource,
    settings: Vec<Setting>,
    program: String,
}

impl SweepFile {
    /// Reads a sweep and its job, and checks all its runs. `program` is the calling
    /// program's executable: results of different builds are never mixed.
    ///
    /// # Errors
    /// If the file has a mistake, or one of its runs cannot be simulated.
    pub fn read(path: &Path, program: &Path) -> Result<SweepFile, Failure> {
        let file = SweepFile::parse(path, program)?;
        file.checked()?;
        Ok(file)
    }

    /// Reads the file without checking its runs.
    fn parse(path: &Path, program: &Path) -> Result<SweepFile, Failure> {
        let name = path.display().to_string();
        let text = read_text(path)
            .map_err(|error| Failure::Mistake(format!("{name}: cannot be read: {error}")))?;
        let spec = SweepSpec::parse(&name, &text)?;
        let in_file = |error: Error| at_file(&name, error);
        let work = work(path, &spec.job).map_err(in_file)?;
        if let WorkloadSource::Trace(trace) = &work {
            return Err(Failure::Mistake(format!(
                "{name}: {trace} is a trace, and a sweep is over fio jobs"
            )));
        }
        let settings = spec.settings(&work).map_err(in_file)?;
        Ok(SweepFile {
            spec,
            work,
            settings,
            program: identity(program)?,
            name,
        })
    }

    /// Returns the identity of the program's build; other builds' figures may differ.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Returns the job as the sweep's file names it.
    pub fn job(&self) -> &str {
        &self.spec.job
    }

    /// Returns the numbers of the runs whose results a folder lacks.
    ///
    /// # Errors
    /// If the folder cannot be read, or has runs of another program.
    pub fn missing(&self, folder: &Path) -> Result<Vec<usize>, Failure> {
        let store = Store::open(folder, &self.program)?;
        Ok(self.checked()?.missing(&store))
    }

    /// Returns the number of runs.
    ///
    /// # Errors
    /// As [`SweepFile::read`].
    pub fn runs(&self) -> Result<usize, Failure> {
        Ok(self.checked()?.runs())
    }

    /// Runs those of the given runs whose results a folder lacks, and returns how many
    /// it ran.
    ///
    /// # Errors
    /// If a run fails, or the folder cannot be written.
    pub fn run(
        &self,
        folder: &Path,
        numbers: &[usize],
        threads: Option<usize>,
        observer: &Observer<'_>,
    ) -> Result<usize, Failure> {
        let mut store = Store::open(folder, &self.program)?;
        let (done, all) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ended = |runs: usize| {
            match runs {
                0 => done.fetch_add(1, Ordering::Relaxed),
                runs => all.swap(runs, Ordering::Relaxed),
            };
            let done = done.load(Ordering::Relaxed) as f64;
            (observer.progress)(done, all.load(Ordering::Relaxed));
        };
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        let is_in_part = |number| numbers.binary_search(&number).is_ok();
        let sweep = self.checked()?;
        let swept = sweep.run(&mut store, is_in_part, threads, &ended, observer.stop)?;
        Ok(swept.done)
    }

    /// Writes the table of all runs that a folder has, and returns its file.
    ///
    /// # Errors
    /// As [`SweepFile::missing`], or if the table cannot be written.
    pub fn write_table(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let store = Store::open(folder, &self.program)?;
        write_table(&self.checked()?, &store, folder)
    }

    fn checked(&self) -> Result<Sweep<'_>, Failure> {
        let sweep = Sweep::new(&self.spec, &self.work, &self.settings, &self.program);
        sweep.map_err(|error| at_file(&self.name, error))
    }
}

fn at_file(name: &str, error: Error) -> Failure {
    match error.is_mistake() {
        true => Failure::Mistake(format!("{name}: {error}")),
        false => Failure::from(error),
    }
}

/// Writes the table of the store's runs.
fn write_table(sweep: &Sweep<'_>, store: &Store, folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join(TABLE);
    let bytes = output::table_bytes(&sweep.table(store), Format::Parquet)?;
    output::write_file(&path, &bytes)?;
    Ok(path)
}

/// Finds the job, which may be a file beside the sweep's own.
fn work(spec: &Path, job: &str) -> Result<WorkloadSource, Error> {
    let beside: PathBuf = spec.with_file_name(job);
    let name = match beside.exists() {
        true => beside.display().to_string(),
        false => job.to_string(),
    };
    WorkloadSource::find(&[name], &[])
}

/// Identifies a build of a program by the bytes of its file.
fn identity(program: &Path) -> Result<String, Failure> {
    let broken = |error| Failure::Broken(format!("the program cannot be read: {error}"));
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(program).map_err(broken)?);
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!("blklab {version} (build {:016x})", hasher.finish()))
}
