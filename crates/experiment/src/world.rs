//! What an experiment needs of a world.

use std::time::Duration;

use blklab_stats::Results;

use crate::error::Error;

/// How the runs of an experiment may follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Several at once: they do not disturb each other.
    Parallel,
    /// One at a time, all rows once and then again, so that a drift of the drive
    /// or the machine favours none of them.
    Interleaved,
}

/// How often rows run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Runs of each row that count.
    pub repeats: usize,
    /// Decides everything left to chance in the first repeat; the others have the
    /// numbers that follow, the same for every row.
    pub seed: u64,
    /// Whether a run of the first row goes before, which is not counted.
    pub warm_up: bool,
    /// Threads for runs in parallel; one a processor if not given.
    pub threads: Option<usize>,
    /// After this time no run begins any more.
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

/// One row of an experiment, run.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is called: what varies between rows.
    pub label: String,
    /// Its runs, in the order of their seeds.
    pub runs: Vec<Results>,
}

/// What ran of an experiment.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The rows, each with the same repeats; where it was stopped before every row ran
    /// once, those that did.
    pub rows: Vec<Row>,
    /// How many runs of each row are missing; zero where it was not stopped.
    pub missing_repeats: usize,
}

/// One run of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// Which row.
    pub row: usize,
    /// Which of its repeats, from 0; `None` for a warm-up, which is not counted.
    pub repeat: Option<usize>,
    /// Decides everything left to chance.
    pub seed: u64,
}

/// An event of a running experiment.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Something the user should know before it begins.
    Warning(&'a str),
    /// A run has progressed by this share of its length; the shares add up to one where
    /// the length is known before its end.
    Advanced(f64),
    /// A run has ended, a warm-up too.
    RunEnded,
}

/// Called with every event, from any thread.
pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// Where the rows of an experiment run: a simulation, a served drive, a real one.
///
/// A world is made from the settings of all rows, and has checked then whatever
/// can be known before anything runs.
pub trait World: Sync {
    /// What is made ready for all runs.
    type Ready<'w>: Sync
    where
        Self: 'w;

    /// How runs may follow each other.
    const ORDER: Order;

    /// What each row is called, in order.
    fn labels(&self) -> Vec<String>;

    /// Gets ready for the runs.
    ///
    /// # Errors
    /// Where it cannot; nothing is changed then.
    fn prepare(&self, watch: Watch<'_>) -> Result<Self::Ready<'_>, Error>;

    /// Does one run. `reached` may be told now and then which share of it is done.
    ///
    /// # Errors
    /// Where the run fails; no other begins then.
    fn run(
        &self,
        ready: &Self::Ready<'_>,
        planned: PlannedRun,
        reached: &mut dyn FnMut(f64),
    ) -> Result<Results, Error>;

    /// Puts everything back, whether the runs went well or not.
    ///
    /// # Errors
    /// Where something could not be put back; the message says what.
    fn clean_up(&self, ready: Self::Ready<'_>) -> Result<(), Error> {
        drop(ready);
        Ok(())
    }

    /// Checks that the results show what was asked for.
    ///
    /// # Errors
    /// Where they do not; the message says what would be right.
    fn check(&self, rows: &[Row]) -> Result<(), Error> {
        let _ = rows;
        Ok(())
    }
}
