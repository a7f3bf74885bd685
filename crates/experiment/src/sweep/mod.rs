//! A sweep: many runs, each stored under a key of everything that determines it, so that
//! none is done twice.

mod store;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use blklab_description::{array, keys, parsed, read, text, time_ns, whole};
use blklab_sim::Machine;
use blklab_stats::World;
use blklab_tables::{ParquetWriter, Table};
use rayon::prelude::*;

use crate::error::Error;
use crate::rows::{Request, settings};
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

/// Settings whose jobs are in memory at once, some ten kilobytes each.
const SETTINGS_AT_ONCE: usize = 1024;

/// Rows of a row group of the table: some 20 MB, as a row has about two hundred columns.
const GROUP_ROWS: usize = 1 << 14;

keys! {
    /// The specification of a sweep.
    #[derive(Debug)]
    pub struct SweepSpec(root) {
        /// The fio job: a name from `blklab list jobs`, or a file beside this one.
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

    /// Returns the settings of all runs.
    ///
    /// # Errors
    /// If something cannot be varied or set so; the message says what can.
    pub fn settings(&self, work: &WorkloadSource) -> Result<Vec<Setting>, Error> {
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
        settings(&Request {
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

/// The outcome of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOutcome {
    /// The number of runs in the whole sweep.
    pub all: usize,
    /// The number of runs whose results were stored before.
    pub reused: usize,
    /// The number of runs done now.
    pub done: usize,
}

/// A sweep that is ready to run, after all its runs have been checked.
pub struct Sweep {
    work: WorkloadSource,
    settings: Vec<Setting>,
    repeats: usize,
    seed: u64,
    /// The keys of all runs in order: those of a setting follow one another.
    keys: Vec<Key>,
}

impl Sweep {
    /// Checks all runs of a sweep. `program` identifies the build of this program.
    ///
    /// # Errors
    /// If a run cannot be simulated; the message says what is right.
    pub fn new(
        spec: &SweepSpec,
        work: WorkloadSource,
        settings: Vec<Setting>,
        program: &str,
    ) -> Result<Sweep, Error> {
        let mut keys = Vec::with_capacity(settings.len() * spec.repeats);
        for settings in settings.chunks(SETTINGS_AT_ONCE) {
            let world = Simulated::new(&work, settings)?;
            world.check_modelled()?;
            for row in 0..settings.len() {
                let of_setting = KeyHash::default().with(program).with(&world.identity(row));
                let seeds = (0..spec.repeats).map(|repeat| seed_of(spec.seed, repeat));
                keys.extend(seeds.map(|seed| of_setting.with(&seed.to_string()).key()));
            }
        }
        Ok(Sweep {
            work,
            settings,
            repeats: spec.repeats,
            seed: spec.seed,
            keys,
        })
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.keys.len()
    }

    /// Returns the numbers of the runs whose results a store lacks.
    pub fn missing(&self, store: &Store) -> Vec<usize> {
        let runs = 0..self.keys.len();
        runs.filter(|run| !store.has(self.keys[*run])).collect()
    }

    /// Does those runs of a part whose results the store lacks, and starts none once
    /// `stop` is set. `ended` is called first with the number of runs to do, then with 0
    /// after each run.
    ///
    /// # Errors
    /// If a run fails, or the store cannot be written.
    pub fn run(
        &self,
        store: &mut Store,
        is_in_part: impl Fn(usize) -> bool,
        threads: Option<usize>,
        ended: &(dyn Fn(usize) + Sync),
        stop: &AtomicBool,
    ) -> Result<SweepOutcome, Error> {
        let mut missing = self.missing(store);
        let reused = self.keys.len() - missing.len();
        missing.retain(|number| is_in_part(*number));
        ended(missing.len());
        let store = Mutex::new(store);
        let first_of = |run: &usize| run / self.repeats / SETTINGS_AT_ONCE * SETTINGS_AT_ONCE;
        let all = || {
            let groups = missing.chunk_by(|a, b| first_of(a) == first_of(b));
            let done = groups
                .map(|runs| self.run_group(first_of(&runs[0]), runs, &store, &|| ended(0), stop));
            done.sum::<Result<usize, Error>>()
        };
        let done = with_threads(threads, all)??;
        Ok(SweepOutcome {
            all: self.keys.len(),
            reused,
            done,
        })
    }

    /// Does runs of the settings from `first` on, [`SETTINGS_AT_ONCE`] at most, and returns
    /// how many it did.
    fn run_group(
        &self,
        first: usize,
        runs: &[usize],
        store: &Mutex<&mut Store>,
        ended: &(dyn Fn() + Sync),
        stop: &AtomicBool,
    ) -> Result<usize, Error> {
        let end = self.settings.len().min(first + SETTINGS_AT_ONCE);
        let settings = &self.settings[first..end];
        let world = Simulated::new(&self.work, settings)?;
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
            let table = blklab_tables::results([(label.as_str(), &[results][..])]);
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.add(self.keys[*number], &table)?;
            ended();
            Ok(1)
        };
        // Each thread takes one run at a time, because runs differ in length.
        runs.par_iter()
            .with_max_len(1)
            .map(one)
            .try_reduce(|| 0, |a, b| Ok(a + b))
    }

    /// Writes the stored results of all jobs as one Parquet table, in the order of the sweep
    /// whatever the order of the runs, with the columns of the axes first. It reads a row
    /// group at a time, since the whole table need not fit in memory.
    ///
    /// # Errors
    /// If the store can no longer be read, or `out` fails.
    pub fn write_table(&self, store: &Store, out: impl Write + Send) -> Result<(), Error> {
        let axes = self.axes();
        let empty = blklab_tables::results([]);
        let mut group = TableGroup::new(self, &axes, &empty);
        let mut writer = ParquetWriter::new(&group.taken(), out)?;
        let mut reader = store.reader();
        for (number, key) in self.keys.iter().enumerate() {
            for row in reader.rows(*key)? {
                group.push(number, row);
                if group.settings.len() == GROUP_ROWS {
                    writer.write(&group.taken())?;
                }
            }
        }
        writer.write(&group.taken())?;
        Ok(writer.finish()?)
    }

    /// Returns the keys of all axes, each once.
    fn axes(&self) -> Vec<&str> {
        let mut axes: Vec<&str> = Vec::new();
        for (key, _) in self.settings.iter().flat_map(|setting| &setting.axes) {
            if !axes.contains(&key.as_str()) {
                axes.push(key);
            }
        }
        axes
    }
}

/// Rows of a sweep's table that are written at once.
struct TableGroup<'a> {
    sweep: &'a Sweep,
    axes: &'a [&'a str],
    /// A table without rows.
    empty: &'a Table,
    table: Table,
    /// The setting of each row.
    settings: Vec<usize>,
}

impl<'a> TableGroup<'a> {
    fn new(sweep: &'a Sweep, axes: &'a [&'a str], empty: &'a Table) -> TableGroup<'a> {
        TableGroup {
            sweep,
            axes,
            empty,
            table: empty.clone(),
            settings: Vec::new(),
        }
    }

    /// Adds a row of a run.
    fn push(&mut self, run: usize, mut row: Row) {
        let setting = run / self.sweep.repeats;
        row.insert("repeat".to_string(), (run % self.sweep.repeats).into());
        // Another sweep may have stored the same run under another label.
        let label = self.sweep.settings[setting].label.clone();
        row.insert("setting".to_string(), label.into());
        self.table.push_json(&row);
        self.settings.push(setting);
    }

    /// Returns the rows with the columns of the axes, and begins anew.
    fn taken(&mut self) -> Table {
        let mut table = std::mem::replace(&mut self.table, self.empty.clone());
        for axis in self.axes.iter().rev() {
            let values = self.settings.iter().map(|setting| {
                let mut axes = self.sweep.settings[*setting].axes.iter();
                let found = axes.find(|(key, _)| key == axis);
                found.map(|(_, value)| value.as_str())
            });
            table.prepend_texts(format!("axis_{axis}"), values);
        }
        self.settings.clear();
        table
    }
}

/// Returns the seed of a repeat, the same for all settings.
fn seed_of(first: u64, repeat: usize) -> u64 {
    first.wrapping_add(repeat as u64)
}

/// The hash of what determines a run: FNV-1a with 128 bits, because the standard library's
/// may differ between compilers, and machines share a data set.
#[derive(Clone, Copy)]
struct KeyHash(u128);

impl Default for KeyHash {
    fn default() -> KeyHash {
        KeyHash(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl KeyHash {
    const PRIME: u128 = (1 << 88) + 0x13b;

    /// Returns the hash with a text added; its end is marked with a byte that no text has.
    fn with(self, text: &str) -> KeyHash {
        let bytes = text.bytes().chain([0xff]);
        let step = |hash: u128, byte| (hash ^ u128::from(byte)).wrapping_mul(Self::PRIME);
        KeyHash(bytes.fold(self.0, step))
    }

    fn key(self) -> Key {
        Key(self.0)
    }
}
