//! Several schedulers, several times each.

use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use blklab_elevator::SchedulerChoice;
use blklab_stats::Results;

use crate::setup::{Setup, SetupError};

/// Has sweeps use so many threads instead of one a processor. Once a program.
///
/// # Errors
/// Where they cannot be had, or it was called before.
pub fn set_threads(threads: usize) -> Result<(), String> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|e| e.to_string())
}

/// Runs a job under each scheduler `repeats` times. The n-th run of every
/// scheduler has the same seed, so that they meet the same work. `each_done` is
/// called after every run.
///
/// The order and content of the results do not depend on how many threads work,
/// nor on which runs begin first.
///
/// # Errors
/// Where the job cannot be run.
pub fn sweep<R>(
    schedulers: &[SchedulerChoice],
    repeats: usize,
    seed: u64,
    run: R,
    each_done: &(dyn Fn() + Sync),
) -> Result<Vec<Vec<Results>>, SetupError>
where
    R: Fn(&SchedulerChoice, u64) -> Result<Results, SetupError> + Sync,
{
    let deal = Mutex::new(Deal::new(schedulers.len(), repeats));
    rayon::broadcast(|_| {
        // A lock taken in the loop's head would be held through its body.
        let next = || locked(&deal).next();
        while let Some(dealt) = next() {
            let result = run(
                &schedulers[dealt.scheduler],
                seed.wrapping_add(dealt.repeat as u64),
            );
            each_done();
            locked(&deal).ended(&dealt, result);
        }
    });
    let deal = deal.into_inner().unwrap_or_else(PoisonError::into_inner);
    let of_scheduler =
        |results: Vec<Option<Result<Results, SetupError>>>| results.into_iter().flatten().collect();
    deal.results.into_iter().map(of_scheduler).collect()
}

fn locked(deal: &Mutex<Deal>) -> MutexGuard<'_, Deal> {
    deal.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who runs next. Runs of one scheduler take about as long as each other, those
/// of two may not: whatever is likely to take longest goes first, so that at the
/// end no thread waits long for the last one.
struct Deal {
    repeats: usize,
    /// By scheduler, runs that have begun.
    begun: Vec<usize>,
    /// How long the longest of its runs took, once one has ended.
    took: Vec<Option<Duration>>,
    results: Vec<Vec<Option<Result<Results, SetupError>>>>,
    failed: bool,
}

/// A run that was given to a thread.
struct Dealt {
    scheduler: usize,
    repeat: usize,
    since: Instant,
}

impl Deal {
    fn new(schedulers: usize, repeats: usize) -> Deal {
        let none_yet = || (0..repeats).map(|_| None).collect();
        Deal {
            repeats,
            begun: vec![0; schedulers],
            took: vec![None; schedulers],
            results: (0..schedulers).map(|_| none_yet()).collect(),
            failed: false,
        }
    }

    /// The next run: of the scheduler of which least is known, else of the
    /// slowest. One whose first run is still under way has already taken longer
    /// than others. After a failure there is no next.
    fn next(&mut self) -> Option<Dealt> {
        let waits = |&s: &usize| self.begun[s] < self.repeats && !self.failed;
        let first = |s: usize| self.begun[s] > 0;
        let known = |s: usize| (self.took[s].is_some(), Reverse(self.took[s]));
        let waiting = (0..self.begun.len()).filter(waits);
        let scheduler = waiting.min_by_key(|&s| (first(s), known(s)))?;
        self.begun[scheduler] += 1;
        Some(Dealt {
            scheduler,
            repeat: self.begun[scheduler] - 1,
            since: Instant::now(),
        })
    }

    fn ended(&mut self, dealt: &Dealt, result: Result<Results, SetupError>) {
        let took = &mut self.took[dealt.scheduler];
        *took = (*took).max(Some(dealt.since.elapsed()));
        self.failed |= result.is_err();
        self.results[dealt.scheduler][dealt.repeat] = Some(result);
    }
}

/// [`sweep`] of a simulated workload.
///
/// # Errors
/// Where it cannot be simulated.
pub fn sweep_job(
    base: &Setup<'_>,
    schedulers: &[SchedulerChoice],
    repeats: usize,
    each_done: &(dyn Fn() + Sync),
) -> Result<Vec<Vec<Results>>, SetupError> {
    let run = |scheduler: &SchedulerChoice, seed: u64| {
        crate::run(&Setup {
            scheduler,
            seed,
            // The first run of each scheduler is enough to look at.
            record: base.record.filter(|_| seed == base.seed),
            ..base.clone()
        })
    };
    sweep(schedulers, repeats, base.seed, run, each_done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deals to two threads, where a run of each scheduler takes so long, and
    /// says in which order schedulers came and when all was done.
    fn dealt(takes: &[u64], repeats: usize) -> (Vec<usize>, u64) {
        let mut deal = Deal::new(takes.len(), repeats);
        let mut order = Vec::new();
        let mut working: Vec<(u64, Dealt)> = Vec::new();
        let mut now = 0;
        loop {
            while working.len() < 2
                && let Some(run) = deal.next()
            {
                order.push(run.scheduler);
                working.push((now + takes[run.scheduler], run));
            }
            let Some(first) = (0..working.len()).min_by_key(|&at| working[at].0) else {
                return (order, now);
            };
            let (at, run) = working.remove(first);
            now = at;
            deal.took[run.scheduler] = Some(Duration::from_secs(takes[run.scheduler]));
        }
    }

    #[test]
    fn the_longest_go_first() {
        assert_eq!(dealt(&[10, 16], 2), (vec![0, 1, 1, 0], 26));
        assert_eq!(dealt(&[10, 30, 25], 2), (vec![0, 1, 2, 2, 1, 0], 65));
    }

    #[test]
    fn results_are_in_order_whoever_ran_them() {
        let schedulers = ["none", "noop"].map(|name| SchedulerChoice::named(name).expect(name));
        let run = |scheduler: &SchedulerChoice, seed| {
            Ok(Results {
                scheduler: scheduler.label(),
                seed,
                ..Results::default()
            })
        };
        let results = sweep(&schedulers, 3, 7, run, &|| {}).expect("no run fails");
        for (scheduler, of_one) in schedulers.iter().zip(&results) {
            let seeds: Vec<u64> = of_one.iter().map(|r| r.seed).collect();
            assert_eq!(seeds, [7, 8, 9]);
            assert!(of_one.iter().all(|r| r.scheduler == scheduler.label()));
        }
    }

    #[test]
    fn nothing_is_dealt_after_a_failure() {
        let mut deal = Deal::new(2, 2);
        let run = deal.next().expect("there are four");
        deal.ended(&run, Err(SetupError::Queue("no such value".into())));
        assert!(deal.next().is_none());
    }
}
