//! A sweep: many runs, each kept by what decides it, so that none is done twice.

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

/// Runs of a setting at most.
const REPEATS_MAX: usize = 10_000;

keys! {
    /// What is swept over.
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
    /// Reads a sweep's file.
    ///
    /// # Errors
    /// Where it has a mistake, with its line.
    pub fn parse(file: &str, text: &str) -> Result<SweepSpec, Error> {
        read(file, text, |root| {
            let spec = SweepSpec::read(root)?;
            root.finish()?;
            Ok(spec)
        })
        .map_err(Error::mistake)
    }

    /// The settings of all runs.
    ///
    /// # Errors
    /// Where something cannot be varied or set so; the message says what can.
    pub fn settings(&self, work: &WorkloadSource) -> Result<Vec<Setting>, Error> {
        let own = work.scheduler()?.unwrap_or_else(|| "none".to_string());
        let mut base = Setting {
            scheduler: NamedScheduler::new(own),
            drive: self.drive.clone(),
            machine: self.machine.clone(),
            ..Setting::default()
        };
        for option in &self.overrides {
            base.override_option("override", option)?;
        }
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

/// One of several parts of a sweep, for one of several machines: from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which.
    pub at: usize,
    /// Of how many.
    pub of: usize,
}

impl Shard {
    /// Whether a run belongs to it.
    pub fn has(self, run: usize) -> bool {
        run % self.of == self.at
    }
}

/// What became of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Runs of the whole sweep.
    pub all: usize,
    /// Those that were there before.
    pub reused: usize,
    /// Those that were done now.
    pub done: usize,
}

/// A sweep that is ready to run: everything in it has been checked.
pub struct Sweep<'a> {
    world: Simulated<'a>,
    settings: &'a [Setting],
    /// All runs in their order, each with its key.
    turns: Vec<(PlannedRun, Key)>,
}

impl<'a> Sweep<'a> {
    /// Checks all runs of a sweep. `program` tells one build of this program from another.
    ///
    /// # Errors
    /// Where one of them cannot be simulated; the message says what is right.
    pub fn new(
        spec: &SweepSpec,
        work: &'a WorkloadSource,
        settings: &'a [Setting],
        program: &str,
    ) -> Result<Sweep<'a>, Error> {
        let world = Simulated::new(work, settings)?;
        world.check_modelled()?;
        let mut turns = Vec::with_capacity(settings.len() * spec.repeats);
        for row in 0..settings.len() {
            let identity = (program, world.identity(row));
            for repeat in 0..spec.repeats {
                let seed = spec.seed.wrapping_add(repeat as u64);
                let turn = PlannedRun {
                    row,
                    repeat: Some(repeat),
                    seed,
                };
                turns.push((turn, key_of(&(&identity, seed))));
            }
        }
        Ok(Sweep {
            world,
            settings,
            turns,
        })
    }

    /// How many runs it has.
    pub fn runs(&self) -> usize {
        self.turns.len()
    }

    /// The runs that a store does not have, by their numbers.
    pub fn missing(&self, store: &Store) -> Vec<usize> {
        let turns = self.turns.iter().enumerate();
        let missing = turns.filter(|(_, (_, key))| !store.has(*key));
        missing.map(|(number, _)| number).collect()
    }

    /// Does the runs of a part that the store does not have. None begins once `stop` is
    /// set. `ended` is called after each run, and how many there are to do before all.
    ///
    /// # Errors
    /// Where a run fails, or the store cannot take it.
    pub fn run(
        &self,
        store: &mut Store,
        is_in_part: impl Fn(usize) -> bool,
        threads: Option<usize>,
        ended: &(dyn Fn(usize) + Sync),
        stop: &AtomicBool,
    ) -> Result<Swept, Error> {
        let mut missing = self.missing(store);
        let reused = self.turns.len() - missing.len();
        missing.retain(|number| is_in_part(*number));
        ended(missing.len());
        let store = Mutex::new(store);
        let one = |number: &usize| -> Result<usize, Error> {
            let (turn, key) = &self.turns[*number];
            if stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let mut results = self.world.run(&(), *turn, &mut |_| {})?;
            results.seed = turn.seed;
            let label = &self.settings[turn.row].label;
            let table = blklab_tables::results([(label.as_str(), &[results][..])]);
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.add(*key, &table)?;
            ended(0);
            Ok(1)
        };
        // One run at a time to each thread: they differ in length.
        let all = || {
            missing
                .par_iter()
                .with_max_len(1)
                .map(one)
                .try_reduce(|| 0, |a, b| Ok(a + b))
        };
        let done = with_threads(threads, all)??;
        Ok(Swept {
            all: self.turns.len(),
            reused,
            done,
        })
    }

    /// What the jobs of all runs got that the store has, in the order of the sweep
    /// whatever the order in which they ran, with what varies before the other columns.
    pub fn table(&self, store: &Store) -> Table {
        let mut table = blklab_tables::results([]);
        let mut rows = Vec::new();
        for (turn, key) in &self.turns {
            for row in store.rows(*key) {
                let mut row = row.clone();
                row.insert("repeat".to_string(), turn.repeat.into());
                // One setting may be reached by another sweep's name for it.
                let label = self.settings[turn.row].label.clone();
                row.insert("setting".to_string(), label.into());
                table.push_json(&row);
                rows.push(turn.row);
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

/// Two halves of the standard library's hash: what hashes and what compares are one and
/// the same program.
fn key_of(what: &impl Hash) -> Key {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, what).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    Key(half(1) << 64 | half(2))
}
