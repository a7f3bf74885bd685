//! `blklab sweep`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use blklab_description::read_text;
use blklab_experiment::{Error, Shard, Store, Sweep, SweepSpec, WorkloadSource};
use blklab_workload::trace;

use crate::args::SweepFileArgs;
use crate::failure::Failure;
use crate::progress::Observer;
use crate::{output, progress};

/// The identity of this build by its sources: other builds' figures may differ, and those of
/// the same sources, in Python's package too, do not.
pub(crate) const PROGRAM: &str = concat!(
    "blklab ",
    env!("CARGO_PKG_VERSION"),
    " (sources ",
    env!("BLKLAB_SOURCES"),
    ", ",
    env!("BLKLAB_PROFILE"),
    ")"
);

/// The table's name in a sweep's folder.
const TABLE: &str = "results.parquet";

pub(crate) fn sweep(args: &SweepFileArgs) -> Result<(), Failure> {
    let file = SweepFile::read(&args.spec)?;
    let sweep = &file.sweep;
    let folder = args.output.clone();
    let folder = folder.unwrap_or_else(|| args.spec.with_extension("sweep"));
    let mut store = Store::open(&folder, PROGRAM)?;
    for other in &args.merge {
        store.merge(other)?;
    }
    let shard = args.shard.unwrap_or(Shard { at: 0, of: 1 });
    let mut missing = file.missing_of(&store)?;
    let (all, lacking) = (sweep.runs(), missing.len());
    missing.retain(|number| shard.has(*number));
    let (done, interrupted) = progress::runs_until_interrupted(|ended, stop| {
        file.run_those(&mut store, &missing, args.threads, ended, stop)
    })?;
    let table = write_table(sweep, &store)?;
    output::print(format!(
        "{all} runs: {done} done now, {} were there, {} missing\n{}\n",
        all - lacking,
        lacking - done,
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
    files: Vec<PathBuf>,
    sweep: Sweep,
    /// The folder that was last used, since reading a large one takes long.
    store: Mutex<Option<Store>>,
}

impl SweepFile {
    /// Reads a sweep and its job, and checks its axes and their values.
    ///
    /// # Errors
    /// If the file has a mistake, or a run with one of the values cannot be simulated.
    pub fn read(path: &Path) -> Result<SweepFile, Failure> {
        let name = path.display().to_string();
        let text = read_text(path)
            .map_err(|error| Failure::Mistake(format!("{name}: cannot be read: {error}")))?;
        let spec = SweepSpec::parse(&name, &text)?;
        let in_file = |error: Error| at_file(&name, error);
        let work = work(path, &spec.job).map_err(in_file)?;
        let bar = progress::status_line();
        bar.set_message(format!("checking what varies in {name}"));
        let checked = spec.settings(&work).and_then(|settings| {
            bar.set_message(format!("checking {} settings of {name}", settings.len()));
            Sweep::new(&spec, work, settings, PROGRAM)
        });
        bar.finish_and_clear();
        Ok(SweepFile {
            sweep: checked.map_err(in_file)?,
            name,
            files: files(path, &spec.job),
            store: Mutex::new(None),
        })
    }

    /// Returns the numbers of the runs whose results a store lacks, and tells on standard error
    /// how far it is.
    fn missing_of(&self, store: &Store) -> Result<Vec<usize>, Failure> {
        let (all, known) = (self.sweep.settings(), AtomicUsize::new(0));
        let bar = progress::status_line();
        let told = |settings| {
            let known = known.fetch_add(settings, Ordering::Relaxed) + settings;
            bar.set_message(format!("looking for the runs of setting {known} of {all}"));
        };
        let missing = self.sweep.missing(store, &told);
        bar.finish_and_clear();
        missing.map_err(|error| at_file(&self.name, error))
    }

    fn run_those(
        &self,
        store: &mut Store,
        missing: &[usize],
        threads: Option<usize>,
        ended: &(dyn Fn(usize) + Sync),
        stop: &AtomicBool,
    ) -> Result<usize, Failure> {
        let done = self.sweep.run(store, missing, threads, ended, stop);
        done.map_err(|error| at_file(&self.name, error))
    }

    /// Returns the identity of the program's build; other builds' figures may differ.
    pub fn program(&self) -> &'static str {
        PROGRAM
    }

    /// Returns the files of the job, a set's all of them, as from the folder of the sweep's file;
    /// none if the job comes with this program.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the numbers of the runs whose results a folder lacks.
    ///
    /// # Errors
    /// If the folder cannot be read, or has runs of another program.
    pub fn missing(&self, folder: &Path) -> Result<Vec<usize>, Failure> {
        self.with_store(folder, |store| self.missing_of(store))
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.sweep.runs()
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
        self.with_store(folder, |store| {
            let mut missing = self.missing_of(store)?;
            missing.retain(|number| numbers.binary_search(number).is_ok());
            self.run_those(store, &missing, threads, &ended, observer.stop)
        })
    }

    /// Writes the table of all runs that a folder has, and returns its file.
    ///
    /// # Errors
    /// As [`SweepFile::missing`], or if the table cannot be written.
    pub fn write_table(&self, folder: &Path) -> Result<PathBuf, Failure> {
        self.with_store(folder, |store| write_table(&self.sweep, store))
    }

    /// Calls `work` with what a folder has now.
    fn with_store<T>(
        &self,
        folder: &Path,
        work: impl FnOnce(&mut Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut kept = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut store = match kept.take().filter(|store| store.folder() == folder) {
            Some(mut store) => {
                store.update()?;
                store
            }
            None => Store::open(folder, PROGRAM)?,
        };
        let done = work(&mut store);
        *kept = Some(store);
        done
    }
}

fn at_file(name: &str, error: Error) -> Failure {
    match error.is_mistake() {
        true => Failure::Mistake(format!("{name}: {error}")),
        false => Failure::from(error),
    }
}

/// Writes the table of the store's runs.
fn write_table(sweep: &Sweep, store: &Store) -> Result<PathBuf, Failure> {
    let path = store.folder().join(TABLE);
    output::write_new_file(&path, |file| Ok(sweep.write_table(store, file)?))?;
    Ok(path)
}

/// Returns the files of a job that is a file.
fn files(spec: &Path, job: &str) -> Vec<PathBuf> {
    let beside = spec.with_file_name(job);
    if !beside.exists() {
        return Vec::new();
    }
    let folder = spec.parent().unwrap_or(Path::new(""));
    let from_folder = |path: &PathBuf| path.strip_prefix(folder).unwrap_or(path).to_path_buf();
    trace::files(&beside).iter().map(from_folder).collect()
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
