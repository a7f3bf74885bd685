//! A sweep: many runs, each stored under a key of everything that determines it, so that
//! none is done twice.

mod store;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use blklab_description::{array, flag, keys, number, parsed, read, text, time_ns, whole, word};
use blklab_sim::{Machine, Replay};
use blklab_stats::{Results, World};
use blklab_tables::{ParquetWriter, Table};
use blklab_workload::trace;
use rayon::prelude::*;

use crate::error::Error;
use crate::hash::StableHash;
use crate::pace::{Pace, SPEED_MAX, SPEED_MIN, Timing};
use crate::rows::{Request, SettingProduct};
use crate::run::with_threads;
use crate::schedulers::NamedScheduler;
use crate::setting::{NamedFaults, Setting};
use crate::simulated::Simulated;
use crate::work::WorkloadSource;
use crate::world::{PlannedRun, World as _};
use store::Row;
pub use store::{Key, Store};

/// Limit on the runs of a setting.
const REPEATS_MAX: usize = 10_000;

/// Settings that are in memory at once with their jobs, some ten kilobytes each.
const SETTINGS_AT_ONCE: usize = 1024;

/// Limit on the runs of a sweep, whose keys and numbers take 24 bytes each.
const RUNS_MAX: usize = 100_000_000;

/// Rows of a row group of the table: some 20 MB, as a row has about two hundred columns.
const GROUP_ROWS: usize = 1 << 14;

keys! {
    /// The specification of a sweep.
    #[derive(Debug)]
    pub struct SweepSpec(root) {
        /// The fio job, list of calls or trace: a name from `blklab list jobs`, or a file beside
        /// this one.
        pub job: String = text();
        /// The drive, as in `--drive`.
        pub drive: String = text().or("nvme".to_string());
        /// The machine, as in `--machine`.
        pub machine: String = text().or(Machine::DEFAULT.to_string());
        /// The axes, each as in `--vary`: `iodepth=1..64*2`.
        pub vary: Vec<String> =
            array(text(), "an array of axes, as [\"scheduler=none,bfq\", \"iodepth=1..64*2\"]");
        /// Tunables for all settings, as in `--set`.
        pub set: Vec<String> =
            array(text(), "an array of tunables, as [\"bfq.low_latency=0\"]")
                .or_derived(Vec::new(), "none");
        /// Options of fio's for all jobs, as in `--override`.
        pub overrides: Vec<String> as "override" =
            array(text(), "an array of options, as [\"runtime=1\"]").or_derived(Vec::new(), "none");
        /// Faults of the drive, as in `--faults`.
        pub faults: Option<NamedFaults> = parsed(
            "faults as \"read_error=1e-4,slow=2\"",
            |faults| faults.parse().ok(),
        ).optional();
        /// When the drives' power is cut, as in `--power-loss-at`.
        pub power_loss_at: Option<u64> =
            parsed("a time with its unit, as \"3ms\"", |time| time_ns(time).ok()).optional();
        /// How a trace's I/Os arrive, as in `--replay`.
        pub replay: Option<Timing> = word().optional();
        /// The I/Os in flight of a trace that is replayed closed, as in `--depth`.
        pub depth: Option<u32> = whole(1..=u32::MAX).optional();
        /// How many times as fast as recorded a trace is replayed, as in `--speed`.
        pub speed: Option<f64> = number(SPEED_MIN..=SPEED_MAX).optional();
        /// Whether a trace's sectors beyond the drive's end continue at its start, as in `--wrap`.
        pub wrap: bool = flag().or(false);
        /// Runs of each setting; the n-th runs of all settings have one seed.
        pub repeats: usize = whole(1..=REPEATS_MAX).or(1);
        /// The seed of the first run.
        pub seed: u64 = whole(0..=u64::MAX).or(1);
    }
}

impl SweepSpec {
    /// Parses a sweep's file.
    ///
    /// # Errors
    /// If it has a mistake; the message names its line.
    pub fn parse(file: &str, text: &str) -> Result<SweepSpec, Error> {
        read(file, text, |root| {
            let spec = SweepSpec::read(root)?;
            root.finish()?;
            Ok(spec)
        })
        .map_err(Error::mistake)
    }

    /// Returns how a trace is replayed; of other work the default.
    fn replay(&self, work: &WorkloadSource) -> Result<Replay, Error> {
        let pace = Pace {
            replay: self.replay,
            depth: self.depth,
            speed: self.speed,
            wrap: self.wrap,
        };
        match work {
            WorkloadSource::Trace(_) => pace.replay(),
            WorkloadSource::Job(_) | WorkloadSource::Calls { .. } => {
                pace.refuse()?;
                Ok(Replay::default())
            }
        }
    }

    /// Returns the settings of all runs.
    ///
    /// # Errors
    /// If something cannot be varied or set so; the message says what can.
    pub fn settings(&self, work: &WorkloadSource) -> Result<SettingProduct, Error> {
        let mut base = Setting {
            drive: self.drive.clone(),
            machine: self.machine.clone(),
            faults: self.faults.clone(),
            power_loss_at_ns: self.power_loss_at,
            ..Setting::default()
        };
        for option in &self.overrides {
            base.override_option("override", option)?;
        }
        let own = work.scheduler(&base.options)?;
        base.scheduler = NamedScheduler::new(own.unwrap_or_else(|| "none".to_string()));
        SettingProduct::new(&Request {
            world: World::Sim,
            base,
            schedulers: None,
            default_schedulers: vec!["none".to_string()],
            all_schedulers: Vec::new(),
            sets: &self.set,
            vary: &self.vary,
        })
    }
}

/// One of several parts of a sweep, each for one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The part's number, from 0.
    pub at: usize,
    /// The number of parts.
    pub of: usize,
}

impl Shard {
    /// Returns whether a run belongs to this part.
    pub fn has(self, run: usize) -> bool {
        run % self.of == self.at
    }
}

/// A sweep that is ready to run. Its settings are made when they are needed, and of each run the
/// key alone is kept: there may be millions.
pub struct Sweep {
    work: WorkloadSource,
    settings: SettingProduct,
    repeats: usize,
    seed: u64,
    replay: Replay,
    /// The hash of what determines all runs alike: the program, and of a trace its content, since
    /// machines have it in different places.
    common: StableHash,
    /// The keys of all runs in order, those of a setting one after the other, by groups of
    /// [`SETTINGS_AT_ONCE`] settings, once they are known.
    keys: Vec<OnceLock<Vec<Key>>>,
}

impl Sweep {
    /// Checks every combination of the values that vary, or of more than [`SETTINGS_AT_ONCE`]
    /// combinations those with each value of each axis. `program` identifies the build of this
    /// program.
    ///
    /// # Errors
    /// If a run cannot be simulated; the message says what is right.
    pub fn new(
        spec: &SweepSpec,
        work: WorkloadSource,
        settings: SettingProduct,
        program: &str,
    ) -> Result<Sweep, Error> {
        let runs = settings.len().checked_mul(spec.repeats);
        if runs.is_none_or(|runs| runs > RUNS_MAX) {
            let (settings, repeats) = (settings.len(), spec.repeats);
            return Err(Error::Mistake(format!(
                "vary: {settings} combinations with {repeats} runs each are more than the \
                 {RUNS_MAX} runs that a sweep may have; put them into several files"
            )));
        }
        let groups = settings.len().div_ceil(SETTINGS_AT_ONCE);
        let sweep = Sweep {
            replay: spec.replay(&work)?,
            common: common_hash(program, &work)?,
            work,
            settings,
            repeats: spec.repeats,
            seed: spec.seed,
            keys: (0..groups).map(|_| OnceLock::new()).collect(),
        };
        match groups {
            1 => sweep.keys_of(0).map(drop)?,
            _ => sweep.check_each_value()?,
        }
        Ok(sweep)
    }

    /// Returns the models of these settings, whose runs can be simulated.
    fn world(&self, settings: &[Setting]) -> Result<Simulated<'_>, Error> {
        let mut world = Simulated::new(&self.work, settings)?;
        world.check_modelled()?;
        world.replay = self.replay;
        world.varies_arrivals = self.repeats > 1;
        Ok(world)
    }

    fn check_each_value(&self) -> Result<(), Error> {
        for settings in self.settings.of_each_value()?.chunks(SETTINGS_AT_ONCE) {
            self.world(settings)?;
        }
        Ok(())
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.settings.len() * self.repeats
    }

    /// Returns the number of settings.
    pub fn settings(&self) -> usize {
        self.settings.len()
    }

    /// Returns the settings of a group.
    fn group(&self, group: usize) -> Result<Vec<Setting>, Error> {
        let first = group * SETTINGS_AT_ONCE;
        let end = self.settings.len().min(first + SETTINGS_AT_ONCE);
        (first..end)
            .map(|number| self.settings.get(number))
            .collect()
    }

    /// Returns the keys of a group's runs.
    fn keys_of(&self, group: usize) -> Result<&[Key], Error> {
        if let Some(keys) = self.keys[group].get() {
            return Ok(keys);
        }
        let settings = self.group(group)?;
        let world = self.world(&settings)?;
        Ok(self.keep_keys(group, &world, settings.len()))
    }

    fn keep_keys(&self, group: usize, world: &Simulated<'_>, settings: usize) -> &[Key] {
        let (first, repeats) = (self.seed, self.repeats);
        let of_setting = |row| {
            let of_setting = self.common.with(&world.identity(row));
            let seeds = (0..repeats).map(move |repeat| seed_of(first, repeat));
            seeds.map(move |seed| Key(of_setting.with(&seed.to_string()).bits()))
        };
        self.keys[group].get_or_init(|| (0..settings).flat_map(of_setting).collect())
    }

    /// Finds the keys of all runs. `known` is called with the number of settings whose keys were
    /// found.
    fn find_keys(&self, known: &(dyn Fn(usize) + Sync)) -> Result<(), Error> {
        let groups = (0..self.keys.len()).into_par_iter();
        groups.try_for_each(|group| {
            let keys = self.keys_of(group)?;
            known(keys.len() / self.repeats);
            Ok(())
        })
    }

    /// Returns the numbers of the runs whose results a store lacks. `known` is called with the
    /// number of settings that were looked at since it was last called.
    ///
    /// # Errors
    /// If a run cannot be simulated.
    pub fn missing(
        &self,
        store: &Store,
        known: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<usize>, Error> {
        let runs = 0..self.runs();
        if store.is_empty() {
            return Ok(runs.collect());
        }
        self.find_keys(known)?;
        let keys = self.keys.iter().filter_map(OnceLock::get).flatten();
        let lacking = runs.zip(keys).filter(|(_, key)| !store.has(**key));
        Ok(lacking.map(|(run, _)| run).collect())
    }

    /// Does those of the `missing` runs that the store still lacks, and starts none once `stop` is
    /// set. `ended` is called first with the number of runs to do, then with 0 after each run.
    ///
    /// # Errors
    /// If a run fails, or the store cannot be written.
    pub fn run(
        &self,
        store: &mut Store,
        missing: &[usize],
        threads: Option<usize>,
        ended: &(dyn Fn(usize) + Sync),
        stop: &AtomicBool,
    ) -> Result<usize, Error> {
        ended(missing.len());
        let store = Mutex::new(store);
        let group_of = |run: &usize| run / self.repeats / SETTINGS_AT_ONCE;
        let all = || {
            let groups = missing.chunk_by(|a, b| group_of(a) == group_of(b));
            let done = groups
                .map(|runs| self.run_group(group_of(&runs[0]), runs, &store, &|| ended(0), stop));
            done.sum::<Result<usize, Error>>()
        };
        with_threads(threads, all)?
    }

    /// Does runs of a group, and returns how many it did.
    fn run_group(
        &self,
        group: usize,
        runs: &[usize],
        store: &Mutex<&mut Store>,
        ended: &(dyn Fn() + Sync),
        stop: &AtomicBool,
    ) -> Result<usize, Error> {
        if stop.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let first = group * SETTINGS_AT_ONCE;
        let settings = self.group(group)?;
        let world = self.world(&settings)?;
        let keys = self.keep_keys(group, &world, settings.len());
        let one = |number: &usize| -> Result<usize, Error> {
            if stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let repeat = number % self.repeats;
            let run = PlannedRun {
                row: number / self.repeats - first,
                repeat: Some(repeat),
                seed: seed_of(self.seed, repeat),
            };
            let mut results = world.run(&(), run, &mut |_| {})?;
            results.seed = run.seed;
            let label = &settings[run.row].label;
            if settings[run.row].power_loss_at_ns.is_some() && !results.lost_power() {
                return Err(Error::Mistake(format!(
                    "power_loss_at: the run of {label} was over after {:.3} ms; right is a time \
                     before",
                    results.elapsed_ns as f64 / 1e6
                )));
            }
            self.without_place(&mut results);
            let table = blklab_tables::results([(label.as_str(), &[results][..])]);
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.add(keys[number - first * self.repeats], &table)?;
            ended();
            Ok(1)
        };
        // Each thread takes one run at a time, because runs differ in length.
        runs.par_iter()
            .with_max_len(1)
            .map(one)
            .try_reduce(|| 0, |a, b| Ok(a + b))
    }

    /// Calls a trace by its file's name alone, since machines have it in different places.
    fn without_place(&self, results: &mut Results) {
        let WorkloadSource::Trace(file) = &self.work else {
            return;
        };
        let name = Path::new(file).file_name().unwrap_or_default();
        for job in results.jobs.iter_mut().filter(|job| job.name == *file) {
            job.name = name.to_string_lossy().into_owned();
        }
    }

    /// Writes the stored results of all jobs as one Parquet table, in the order of the sweep
    /// whatever the order of the runs, with the columns of the axes first. It reads a row
    /// group at a time, since the whole table need not fit in memory.
    ///
    /// # Errors
    /// If the store can no longer be read, or `out` fails.
    pub fn write_table(&self, store: &Store, out: impl Write + Send) -> Result<(), Error> {
        let known = self.keys.iter().filter_map(OnceLock::get).flatten();
        // What is beyond the known keys may be this sweep's, too, where others write to the store.
        if known.filter(|key| store.has(**key)).count() < store.len() {
            self.find_keys(&|_| {})?;
        }
        let axes: Vec<&str> = self.settings.keys().collect();
        let empty = blklab_tables::results([]);
        let mut rows = TableGroup::new(&axes, &empty);
        let mut writer = ParquetWriter::new(&rows.taken(), out)?;
        let mut reader = store.reader();
        for (group, keys) in self.keys.iter().enumerate() {
            let first = group * SETTINGS_AT_ONCE * self.repeats;
            for (at, key) in keys.get().into_iter().flatten().enumerate() {
                let found = reader.rows(*key)?;
                if found.is_empty() {
                    continue;
                }
                let number = first + at;
                let setting = self.settings.get(number / self.repeats)?;
                for row in found {
                    rows.push(&setting, number % self.repeats, row);
                    if rows.is_full() {
                        writer.write(&rows.taken())?;
                    }
                }
            }
        }
        writer.write(&rows.taken())?;
        Ok(writer.finish()?)
    }
}

/// Rows of a sweep's table that are written at once.
struct TableGroup<'a> {
    axes: &'a [&'a str],
    /// A table without rows.
    empty: &'a Table,
    table: Table,
    /// The values of the axes in each row, in the order of the axes.
    values: Vec<Vec<Option<String>>>,
}

impl<'a> TableGroup<'a> {
    fn new(axes: &'a [&'a str], empty: &'a Table) -> TableGroup<'a> {
        TableGroup {
            axes,
            empty,
            table: empty.clone(),
            values: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.values.len() == GROUP_ROWS
    }

    /// Adds a row of a setting's run.
    fn push(&mut self, setting: &Setting, repeat: usize, mut row: Row) {
        row.insert("repeat".to_string(), repeat.into());
        // Another sweep may have stored the same run under another label.
        row.insert("setting".to_string(), setting.label.clone().into());
        self.table.push_json(&row);
        let values = self.axes.iter().map(|axis| {
            let found = setting.axes.iter().find(|(key, _)| key == axis);
            found.map(|(_, value)| value.clone())
        });
        self.values.push(values.collect());
    }

    /// Returns the rows with the columns of the axes, and begins anew.
    fn taken(&mut self) -> Table {
        let mut table = std::mem::replace(&mut self.table, self.empty.clone());
        for (at, axis) in self.axes.iter().enumerate().rev() {
            let values = self.values.iter().map(|of_row| of_row[at].as_deref());
            table.prepend_texts(format!("axis_{axis}"), values);
        }
        self.values.clear();
        table
    }
}

/// Returns the hash of a program and, of a trace, of its files.
fn common_hash(program: &str, work: &WorkloadSource) -> Result<StableHash, Error> {
    let mut hash = StableHash::default().with(program);
    if let WorkloadSource::Trace(file) = work {
        for path in trace::files(Path::new(file)) {
            let of_file = StableHash::of_file(&path)
                .map_err(|error| Error::mistake(format!("{}: {error}", path.display())))?;
            hash = hash.with(&format!("{:x}", of_file.bits()));
        }
    }
    Ok(hash)
}

/// Returns the seed of a repeat, the same for all settings.
fn seed_of(first: u64, repeat: usize) -> u64 {
    first.wrapping_add(repeat as u64)
}
