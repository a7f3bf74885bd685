//! A sweep: many runs, each stored under a key of everything that determines it, so that
//! none is done twice.

mod store;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use blklab_description::{array, keys, read, text, whole};
use blklab_sim::Machine;
use blklab_stats::World;
use blklab_tables::Table;
use rayon::prelude::*;

use crate::error::Error;
use crate::rows::{Request, settings};
use crate::run::with_threads;
use crate::schedulers::NamedScheduler;
use crate::setting::Setting;
use crate::simulated::Simulated;
use crate::work::WorkloadSource;
use crate::world::{PlannedRun, World as _};
pub use store::{Key, Store};

/// Limit on the runs of a setting.
const REPEATS_MAX: usize = 10_000;

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
pub struct Sweep<'a> {
    world: Simulated<'a>,
    settings: &'a [Setting],
    /// All runs in order, each with its key.
    planned: Vec<(PlannedRun, Key)>,
}

impl<'a> Sweep<'a> {
    /// Checks all runs of a sweep. `program` identifies the build of this program.
    ///
    /// # Errors
    /// If a run cannot be simulated; the message says what is right.
    pub fn new(
        spec: &SweepSpec,
        work: &'a WorkloadSource,
        settings: &'a [Setting],
        program: &str,
    ) -> Result<Sweep<'a>, Error> {
        let world = Simulated::new(work, settings)?;
        world.check_modelled()?;
        let mut planned = Vec::with_capacity(settings.len() * spec.repeats);
        for row in 0..settings.len() {
            let identity = (program, world.identity(row));
            for repeat in 0..spec.repeats {
                let seed = spec.seed.wrapping_add(repeat as u64);
                let run = PlannedRun {
                    row,
                    repeat: Some(repeat),
                    seed,
                };
                planned.push((run, key_of(&(&identity, seed))));
            }
        }
        Ok(Sweep {
            world,
            settings,
            planned,
        })
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.planned.len()
    }

    /// Returns the numbers of the runs whose results a store lacks.
    pub fn missing(&self, store: &Store) -> Vec<usize> {
        let planned = self.planned.iter().enumerate();
        let missing = planned.filter(|(_, (_, key))| !store.has(*key));
        missing.map(|(number, _)| number).collect()
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
        let reused = self.planned.len() - missing.len();
        missing.retain(|number| is_in_part(*number));
        ended(missing.len());
        let store = Mutex::new(store);
        let one = |number: &usize| -> Result<usize, Error> {
            let (run, key) = &self.planned[*number];
            if stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let mut results = self.world.run(&(), *run, &mut |_| {})?;
            results.seed = run.seed;
            let label = &self.settings[run.row].label;
            let table = blklab_tables::results([(label.as_str(), &[results][..])]);
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.add(*key, &table)?;
            ended(0);
            Ok(1)
        };
        // Each thread takes one run at a time, because runs differ in length.
        let all = || {
            missing
                .par_iter()
                .with_max_len(1)
                .map(one)
                .try_reduce(|| 0, |a, b| Ok(a + b))
        };
        let done = with_threads(threads, all)??;
        Ok(SweepOutcome {
            all: self.planned.len(),
            reused,
            done,
        })
    }

    /// Returns the stored results of all jobs, in the order of the sweep whatever the
    /// order of the runs, with the columns of the axes first.
    pub fn table(&self, store: &Store) -> Table {
        let mut table = blklab_tables::results([]);
        let mut rows = Vec::new();
        for (run, key) in &self.planned {
            for row in store.rows(*key) {
                let mut row = row.clone();
                row.insert("repeat".to_string(), run.repeat.into());
                // Another sweep may have stored the same run under another label.
                let label = self.settings[run.row].label.clone();
                row.insert("setting".to_string(), label.into());
                table.push_json(&row);
                rows.push(run.row);
            }
        }
        let mut axes: Vec<&str> = Vec::new();
        for (key, _) in self.settings.iter().flat_map(|setting| &setting.axes) {
            if !axes.contains(&key.as_str()) {
                axes.push(key);
            }
        }
        for axis in axes.iter().rev() {
            let values = rows.iter().map(|row| {
                let mut axes = self.settings[*row].axes.iter();
                let found = axes.find(|(key, _)| key == axis);
                found.map(|(_, value)| value.as_str())
            });
            table.prepend_texts(format!("axis_{axis}"), values.collect::<Vec<_>>());
        }
        table
    }
}

/// Combines two halves of the standard library's hash. The hash need only be stable
/// within one build of the program, since stores are never shared between builds.
fn key_of(what: &impl Hash) -> Key {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, what).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    Key(half(1) << 64 | half(2))
}
