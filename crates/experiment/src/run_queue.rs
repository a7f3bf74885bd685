//! The order of an experiment's runs.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use crate::world::{Order, Plan, PlannedRun};

/// The runs of an experiment that have not started.
///
/// Parallel runs start with the slowest. Runs of one row take about as long as each
/// other, while rows may differ: the row that is likely to take longest goes first, so
/// that no thread waits long at the end.
pub(crate) struct RunQueue {
    order: Order,
    repeats: usize,
    seed: u64,
    warm_up: bool,
    /// Runs of each row that have started.
    begun: Vec<usize>,
    /// The time of each row's longest run, once one has ended.
    took: Vec<Option<Duration>>,
    is_stopped: bool,
}

/// A run that has started.
pub(crate) struct StartedRun {
    pub(crate) planned: PlannedRun,
    since: Instant,
}

impl RunQueue {
    pub(crate) fn new(order: Order, rows: usize, plan: &Plan) -> RunQueue {
        RunQueue {
            order,
            repeats: plan.repeats,
            seed: plan.seed,
            warm_up: plan.warm_up,
            begun: vec![0; rows],
            took: vec![None; rows],
            is_stopped: false,
        }
    }

    /// Returns the next run; `None` after [`RunQueue::stop`].
    pub(crate) fn next(&mut self) -> Option<StartedRun> {
        if self.is_stopped {
            return None;
        }
        let planned = self.next_planned()?;
        Some(StartedRun {
            planned,
            since: Instant::now(),
        })
    }

    fn next_planned(&mut self) -> Option<PlannedRun> {
        if std::mem::take(&mut self.warm_up) {
            return Some(PlannedRun {
                row: 0,
                repeat: None,
                seed: self.seed,
            });
        }
        let rows = (0..self.begun.len()).filter(|&row| self.begun[row] < self.repeats);
        let row = match self.order {
            Order::Interleaved => rows.min_by_key(|&row| self.begun[row]),
            // A row whose first run has not ended has already taken longer than others.
            Order::Parallel => rows.min_by_key(|&row| {
                let took = self.took[row];
                (self.begun[row] > 0, took.is_some(), Reverse(took))
            }),
        }?;
        let repeat = self.begun[row];
        self.begun[row] += 1;
        Some(PlannedRun {
            row,
            repeat: Some(repeat),
            seed: self.seed.wrapping_add(repeat as u64),
        })
    }

    /// Records how long a run took.
    pub(crate) fn ended(&mut self, begun: &StartedRun) {
        self.took(begun.planned.row, begun.since.elapsed());
    }

    fn took(&mut self, row: usize, time: Duration) {
        self.took[row] = self.took[row].max(Some(time));
    }

    /// Prevents further runs from starting.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }
}

/// Returns all runs in order, one at a time.
pub(crate) fn interleaved(rows: usize, plan: &Plan) -> Vec<PlannedRun> {
    let mut queue = RunQueue::new(Order::Interleaved, rows, plan);
    std::iter::from_fn(|| queue.next_planned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(repeats: usize, warm_up: bool) -> Plan {
        Plan {
            repeats,
            warm_up,
            ..Plan::default()
        }
    }

    /// Simulates two threads where each row's runs have a fixed length. Returns the
    /// order of the rows and the end of the last run.
    fn on_two_threads(takes: &[u64], repeats: usize) -> (Vec<usize>, u64) {
        let mut queue = RunQueue::new(Order::Parallel, takes.len(), &plan(repeats, false));
        let mut order = Vec::new();
        let mut working: Vec<(u64, usize)> = Vec::new();
        let mut now = 0;
        loop {
            while working.len() < 2
                && let Some(planned) = queue.next_planned()
            {
                order.push(planned.row);
                working.push((now + takes[planned.row], planned.row));
            }
            let Some(first) = (0..working.len()).min_by_key(|&at| working[at].0) else {
                return (order, now);
            };
            let (at, row) = working.remove(first);
            now = at;
            queue.took(row, Duration::from_secs(takes[row]));
        }
    }

    #[test]
    fn in_parallel_the_longest_go_first() {
        assert_eq!(on_two_threads(&[10, 16], 2), (vec![0, 1, 1, 0], 26));
        let order = vec![0, 1, 2, 2, 1, 0];
        assert_eq!(on_two_threads(&[10, 30, 25], 2), (order, 65));
    }

    #[test]
    fn repeats_are_interleaved_behind_a_warm_up() {
        let queue = interleaved(2, &plan(2, true));
        let queue: Vec<_> = queue.iter().map(|t| (t.row, t.repeat, t.seed)).collect();
        let expected = [
            (0, None, 1),
            (0, Some(0), 1),
            (1, Some(0), 1),
            (0, Some(1), 2),
            (1, Some(1), 2),
        ];
        assert_eq!(queue, expected);
    }

    #[test]
    fn nothing_begins_once_stopped() {
        let mut queue = RunQueue::new(Order::Parallel, 2, &plan(2, false));
        assert!(queue.next().is_some());
        queue.stop();
        assert!(queue.next().is_none());
    }
}
