//! The interface between an experiment and a world.

use std::time::Duration;

use blklab_stats::Results;

use crate::error::Error;

/// The order in which an experiment's runs may follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Several runs at once: they do not disturb each other.
    Parallel,
    /// One run at a time, all rows once and then again, so that a drift of the drive or
    /// the machine favours none of them.
    Interleaved,
}

/// The number and order of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of counted runs of each row.
    pub repeats: usize,
    /// The seed of the first repeat; the others use the numbers that follow, the same
    /// for every row.
    pub seed: u64,
    /// Whether an uncounted run of the first row comes first.
    pub warm_up: bool,
    /// Threads for parallel runs; one for each processor if not given.
    pub threads: Option<usize>,
    /// The time after which no run starts.
    pub max_time: Option<Duration>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            repeats: 1,
            seed: 1,
            warm_up: false,
            threads: None,
            max_time: None,
        }
    }
}

/// The runs of one row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The row's label, made from what varies between rows.
    pub label: String,
    /// The row's runs, in the order of their seeds.
    pub runs: Vec<Results>,
}

/// The finished runs of an experiment.
#[derive(Debug)]
pub struct Finished {
    /// The rows, each with the same repeats; if the experiment was stopped before every
    /// row ran once, only the rows that did.
    pub rows: Vec<Row>,
    /// The number of runs that each row lacks; zero if the experiment was not stopped.
    pub missing_repeats: usize,
    /// What ended the experiment, if a signal ended a run of it.
    pub interruption: Option<Error>,
}

/// One planned run of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// The index of the row.
    pub row: usize,
    /// The number of the repeat, from 0; `None` for a warm-up, which is not counted.
    pub repeat: Option<usize>,
    /// The seed of all random choices.
    pub seed: u64,
}

/// An event of a running experiment.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A warning for the user, before the first run.
    Warning(&'a str),
    /// A run has progressed by this share of its length; the shares add up to one.
    Advanced(f64),
    /// A run has ended; warm-ups count too.
    RunEnded,
}

/// A callback that receives every event, from any thread.
pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// The place where an experiment's rows run: a simulation, a served drive, a real drive
/// or a guest.
///
/// A world is made from the settings of all rows, and its constructor has checked
/// everything that can be known before a run.
pub trait World: Sync {
    /// The state that is prepared for all runs.
    type Ready<'w>: Sync
    where
        Self: 'w;

    /// How runs may follow each other.
    const ORDER: Order;

    /// Returns the rows' labels, in order.
    fn labels(&self) -> Vec<String>;

    /// Prepares the runs.
    ///
    /// # Errors
    /// If it cannot prepare them; then nothing is changed.
    fn prepare(&self, watch: Watch<'_>) -> Result<Self::Ready<'_>, Error>;

    /// Does one run. `reached` may be called with the share of it that is done.
    ///
    /// # Errors
    /// If the run fails; then no other run starts.
    fn run(
        &self,
        ready: &Self::Ready<'_>,
        planned: PlannedRun,
        reached: &mut dyn FnMut(f64),
    ) -> Result<Results, Error>;

    /// Restores everything, whether the runs succeeded or not.
    ///
    /// # Errors
    /// If something could not be restored; the message says what.
    fn clean_up(&self, ready: Self::Ready<'_>) -> Result<(), Error> {
        drop(ready);
        Ok(())
    }

    /// Checks that the results show what was requested.
    ///
    /// # Errors
    /// If they do not; the message says what would be right.
    fn check(&self, rows: &[Row]) -> Result<(), Error> {
        let _ = rows;
        Ok(())
    }
}
