//! Runs every row of an experiment several times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use blklab_stats::Results;

use crate::error::Error;
use crate::run_queue::RunQueue;
use crate::world::{Event, Finished, Order, Plan, Row, Watch, World};

/// Runs every row of a world as planned. The n-th runs of all rows have the same seed,
/// so that they get the same work.
///
/// Order and content of the results depend neither on the number of threads nor on which
/// runs start first.
///
/// # Errors
///
/// If a run fails or a signal ends it, or the world cannot be prepared or cleaned up.
pub fn run<W: World>(world: &W, plan: &Plan, watch: Watch<'_>) -> Result<Vec<Row>, Error> {
    let never = AtomicBool::new(false);
    run_until(world, plan, watch, &never)?.all()
}

/// Runs every row as [`run`] does, but starts no run once `stop` is set or a signal has ended
/// a run; other started ones finish.
///
/// # Errors
/// If a run fails, or a signal ends it before any row has one, or the world cannot be
/// prepared or cleaned up.
pub fn run_until<W: World>(
    world: &W,
    plan: &Plan,
    watch: Watch<'_>,
    stop: &AtomicBool,
) -> Result<Finished, Error> {
    let ready = world.prepare(watch)?;
    let done = run_all(world, &ready, plan, watch, stop);
    let finished = match (done, world.clean_up(ready)) {
        (Ok(finished), Ok(())) => finished,
        (Err(error), Ok(())) | (Ok(_), Err(error)) => return Err(error),
        (Err(error), Err(clean_up)) => return Err(error.with_failed_clean_up(clean_up)),
    };
    if finished.missing_repeats == 0 {
        world.check(&finished.rows)?;
    }
    Ok(finished)
}

fn run_all<W: World>(
    world: &W,
    ready: &W::Ready<'_>,
    plan: &Plan,
    watch: Watch<'_>,
    stop: &AtomicBool,
) -> Result<Finished, Error> {
    let labels = world.labels();
    let until = plan.max_time.map(|max_time| Instant::now() + max_time);
    // With a time limit, rows take turns, so that all of them have as many runs.
    let order = until.map_or(W::ORDER, |_| Order::Interleaved);
    let shared = Mutex::new(Shared {
        queue: RunQueue::new(order, labels.len(), plan),
        results: labels.iter().map(|_| empty_results(plan.repeats)).collect(),
        failure: None,
        interruption: None,
    });
    let work = || {
        // A lock taken in the loop's head would be held through its body.
        let next = || {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            let mut shared = locked(&shared);
            if is_over || stop.load(Ordering::Relaxed) {
                shared.queue.stop();
            }
            shared.queue.next()
        };
        while let Some(begun) = next() {
            let planned = begun.planned;
            let mut done = 0.0;
            let mut reached = |share: f64| {
                if share > done {
                    watch(Event::Advanced(share - done));
                    done = share;
                }
            };
            let result = world.run(ready, planned, &mut reached);
            reached(1.0);
            watch(Event::RunEnded);
            let mut shared = locked(&shared);
            shared.queue.ended(&begun);
            shared.take(
                planned.row,
                planned.repeat,
                result.map(|results| Results {
                    scheduler: labels[planned.row].clone(),
                    seed: planned.seed,
                    ..results
                }),
            );
        }
    };
    match W::ORDER {
        Order::Interleaved => work(),
        Order::Parallel => with_threads(plan.threads, || {
            rayon::broadcast(|_| work());
        })?,
    }
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, error)) = shared.failure {
        return Err(error);
    }
    let finished = finished(labels, shared.results, plan.repeats);
    match shared.interruption {
        Some(error) if finished.rows.is_empty() => Err(error),
        interruption => Ok(Finished {
            interruption,
            ..finished
        }),
    }
}

/// Returns the repeats that all rows have; if there are none, the first run of each row
/// that has one.
fn finished(
    labels: Vec<String>,
    mut results: Vec<Vec<Option<Results>>>,
    repeats: usize,
) -> Finished {
    let of_all = (0..repeats).filter(|at| results.iter().all(|row| row[*at].is_some()));
    let mut kept: Vec<usize> = of_all.collect();
    if kept.is_empty() {
        kept.push(0);
    }
    let rows = labels
        .into_iter()
        .zip(&mut results)
        .map(|(label, row)| Row {
            label,
            runs: kept.iter().filter_map(|at| row[*at].take()).collect(),
        });
    Finished {
        rows: rows.filter(|row| !row.runs.is_empty()).collect(),
        missing_repeats: repeats - kept.len(),
        interruption: None,
    }
}

impl Finished {
    /// Returns the rows.
    ///
    /// # Errors
    /// If a signal ended a run.
    pub fn all(self) -> Result<Vec<Row>, Error> {
        match self.interruption {
            Some(error) => Err(error),
            None => Ok(self.rows),
        }
    }
}

/// The state that an experiment's threads share.
struct Shared {
    queue: RunQueue,
    results: Vec<Vec<Option<Results>>>,
    /// The failure of the first row that failed, whichever failed first in time.
    failure: Option<(usize, Error)>,
    /// The signal that ended a run.
    interruption: Option<Error>,
}

impl Shared {
    fn take(&mut self, row: usize, repeat: Option<usize>, result: Result<Results, Error>) {
        match (result, repeat) {
            (Ok(results), Some(repeat)) => self.results[row][repeat] = Some(results),
            // A warm-up's results are not counted.
            (Ok(_), None) => {}
            (Err(error), _) if error.is_interruption() => {
                self.queue.stop();
                self.interruption = Some(error);
            }
            (Err(error), _) => {
                self.queue.stop();
                if self.failure.as_ref().is_none_or(|(first, _)| row < *first) {
                    self.failure = Some((row, error));
                }
            }
        }
    }
}

fn empty_results(repeats: usize) -> Vec<Option<Results>> {
    (0..repeats).map(|_| None).collect()
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on this many threads; one for each core if not given.
///
/// # Errors
/// If the kernel cannot start the threads.
pub(crate) fn with_threads<T: Send>(
    threads: Option<usize>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    let Some(threads) = threads else {
        return Ok(work());
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| Error::Threads(format!("--threads {threads}: {e}")))?;
    Ok(pool.install(work))
}

#[cfg(test)]
mod tests {
    use blklab_host::HostError;

    use super::*;
    use crate::world::PlannedRun;

    /// Rows that do nothing, one of which may fail, and runs of which one may be interrupted.
    #[derive(Default)]
    struct Idle {
        rows: usize,
        fails: Option<usize>,
        interrupted: Option<(usize, usize)>,
    }

    impl World for Idle {
        type Ready<'w> = ();
        const ORDER: Order = Order::Parallel;

        fn labels(&self) -> Vec<String> {
            (0..self.rows).map(|row| format!("row {row}")).collect()
        }
        fn prepare(&self, _: Watch<'_>) -> Result<(), Error> {
            Ok(())
        }
        fn run(
            &self,
            (): &(),
            planned: PlannedRun,
            _: &mut dyn FnMut(f64),
        ) -> Result<Results, Error> {
            let repeat = planned.repeat.unwrap_or(0);
            if self.interrupted == Some((planned.row, repeat)) {
                return Err(HostError::Interrupted("Ctrl-C").into());
            }
            match self.fails == Some(planned.row) {
                true => Err(Error::mistake("as asked")),
                false => Ok(Results::default()),
            }
        }
    }

    fn plan() -> Plan {
        Plan {
            repeats: 3,
            seed: 7,
            warm_up: true,
            threads: Some(2),
            max_time: None,
        }
    }

    #[test]
    fn what_is_stopped_keeps_what_all_rows_have() {
        let world = Idle {
            rows: 2,
            ..Idle::default()
        };
        let stop = AtomicBool::new(true);
        let none = run_until(&world, &plan(), &|_| {}, &stop).expect("no run fails");
        assert_eq!((none.rows.len(), none.missing_repeats), (0, 2));
        // The third run to end stops the experiment.
        let ended = std::sync::atomic::AtomicUsize::new(0);
        let one = Plan {
            threads: Some(1),
            warm_up: false,
            max_time: Some(std::time::Duration::from_secs(3600)),
            ..plan()
        };
        let stop = AtomicBool::new(false);
        let watch = |event: Event<'_>| {
            if matches!(event, Event::RunEnded) && ended.fetch_add(1, Ordering::Relaxed) == 2 {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let some = run_until(&world, &one, &watch, &stop).expect("no run fails");
        let seeds = some
            .rows
            .iter()
            .flat_map(|row| &row.runs)
            .map(|run| run.seed);
        assert_eq!(seeds.collect::<Vec<_>>(), [7, 7]);
        assert_eq!(some.missing_repeats, 2);
    }

    #[test]
    fn results_are_in_order_whoever_ran_them() {
        let world = Idle {
            rows: 2,
            ..Idle::default()
        };
        let rows = run(&world, &plan(), &|_| {}).expect("no run fails");
        for (n, row) in rows.iter().enumerate() {
            let seeds: Vec<u64> = row.runs.iter().map(|r| r.seed).collect();
            assert_eq!(seeds, [7, 8, 9]);
            assert_eq!(row.label, format!("row {n}"));
            assert!(row.runs.iter().all(|r| r.scheduler == row.label));
        }
    }

    #[test]
    fn an_interruption_keeps_what_all_rows_have() {
        let in_order = Plan {
            threads: Some(1),
            warm_up: false,
            max_time: Some(std::time::Duration::from_secs(3600)),
            ..plan()
        };
        let interrupted_at = |row, repeat| Idle {
            rows: 2,
            interrupted: Some((row, repeat)),
            ..Idle::default()
        };
        let never = AtomicBool::new(false);
        let ended = |world: &Idle| run_until(world, &in_order, &|_| {}, &never);
        let second = ended(&interrupted_at(1, 1)).expect("runs have ended");
        assert_eq!((second.rows.len(), second.missing_repeats), (2, 2));
        let error = second.all().expect_err("not all have");
        assert!(error.to_string().contains("Ctrl-C"), "{error}");
        let none = ended(&interrupted_at(0, 0)).expect_err("no run has ended");
        assert!(none.is_interruption(), "{none}");
    }

    #[test]
    fn a_failure_ends_all() {
        let world = Idle {
            rows: 3,
            fails: Some(1),
            ..Idle::default()
        };
        let error = run(&world, &plan(), &|_| {}).expect_err("a run fails");
        assert!(error.is_mistake());
    }
}
