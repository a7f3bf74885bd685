//! How processes come to other CPUs than the one that they woke on: one that has nothing to do
//! takes one over (`newidle_balance`), and now and then one with less to do than others
//! (`load_balance`). All CPUs are one scheduling domain. Left out is that an idle CPU is woken to
//! take over from a busy one whose tick finds a process waiting (`nohz_balancer_kick`).

use std::cmp::Reverse;

use blklab_blk::Nanos;

use super::{FairClass, TICK_NS};

/// A busy CPU balances less often by this factor (`busy_factor`).
const BUSY_FACTOR: u64 = 16;
/// A process that ran less than this ago has its data in the caches, and stays
/// (`sysctl_sched_migration_cost`).
const MIGRATION_COST: Nanos = Nanos::from_micros(500);
/// After more failures than this such a process is moved, too (`cache_nice_tries`).
const CACHE_NICE_TRIES: u32 = 1;
/// Between CPUs on which processes wait, loads count as different from here on, in
/// hundredths (`imbalance_pct`).
const IMBALANCE_PERCENT: u64 = 117;

/// When a CPU looks for one with more to do.
#[derive(Clone, Debug, Default)]
pub(super) struct Balancing {
    /// The least time between two looks of an idle CPU, in ms (`min_interval`): the
    /// number of CPUs.
    least_ms: u64,
    /// The present one (`balance_interval`).
    interval_ms: u64,
    due_ns: u64,
    /// How often in a row no process could be moved (`nr_balance_failed`).
    failed: u32,
}

impl Balancing {
    /// That of a CPU which has been balancing for long, at a time of its own.
    pub(super) fn new(cpus: u32, chance: u64) -> Balancing {
        let least_ms = u64::from(cpus);
        let mut balancing = Balancing {
            least_ms,
            interval_ms: least_ms,
            due_ns: 0,
            failed: 0,
        };
        balancing.due_ns = chance % balancing.interval_ns();
        balancing
    }

    /// The time between two looks of a busy CPU (`get_sd_balance_interval`): a tick less, so that
    /// CPUs do not look at the same time.
    fn interval_ns(&self) -> u64 {
        let ticks = (self.interval_ms * BUSY_FACTOR * 1_000_000).div_ceil(TICK_NS);
        (ticks - 1).max(1) * TICK_NS
    }

    /// No other CPU has more to do: the next look comes later.
    fn found_balance(&mut self) {
        self.failed = 0;
        self.interval_ms = (self.interval_ms * 2).min(self.least_ms * 2);
    }

    /// Another had, and this many of its processes were moved.
    fn moved(&mut self, processes: usize) {
        self.failed = match processes {
            0 => self.failed + 1,
            _ => 0,
        };
        self.interval_ms = self.least_ms;
    }
}

impl FairClass {
    /// A tick of a busy CPU, which takes over a process from a busier one if it is time.
    pub(super) fn balance(&mut self, cpu: usize, now: Nanos) {
        if now.0 < self.queues[cpu].balancing.due_ns {
            return;
        }
        match self.find_busiest(cpu) {
            None => self.queues[cpu].balancing.found_balance(),
            Some((from, imbalance)) => {
                let moved = self.take_over((from, cpu), imbalance, now);
                self.queues[cpu].balancing.moved(moved);
            }
        }
        let balancing = &mut self.queues[cpu].balancing;
        balancing.due_ns = now.0 + balancing.interval_ns();
    }

    /// The CPU with the most to do and how much this one has too little, both by weight
    /// (`sched_balance_find_src_group`, `calculate_imbalance`).
    fn find_busiest(&self, cpu: usize) -> Option<(usize, u64)> {
        let loads = || (0..self.queues.len()).map(|cpu| self.load_of(cpu));
        let is_overloaded = |cpu: usize| !self.queues[cpu].runnable.is_empty();
        let others = (0..self.queues.len()).filter(|&from| from != cpu && is_overloaded(from));
        // Of CPUs with as much, the first.
        let from = others.min_by_key(|&from| Reverse(self.load_of(from)))?;
        let (local, busiest) = (self.load_of(cpu), self.load_of(from));
        let mean = loads().sum::<u64>() / self.queues.len() as u64;
        let is_close = busiest * 100 <= local * IMBALANCE_PERCENT;
        if local >= mean || (is_overloaded(cpu) && is_close) {
            return None;
        }
        Some((from, (busiest - mean).min(mean - local)))
    }

    /// How much is on a CPU, by weight.
    fn load_of(&self, cpu: usize) -> u64 {
        let queue = &self.queues[cpu];
        let awake = queue.runnable.iter().chain(&queue.current);
        awake.map(|&pid| self.tasks[pid].weight.0).sum()
    }

    /// Moves processes that wait until the imbalance is gone, those first that have not run for
    /// longest. One that is more than the imbalance goes after failures, with each of which it
    /// counts half (`detach_tasks`). Returns how many went.
    fn take_over(&mut self, (from, to): (usize, usize), imbalance: u64, now: Nanos) -> usize {
        let failed = self.queues[to].balancing.failed;
        let mut waiting = self.queues[from].runnable.clone();
        waiting.sort_by_key(|&pid| self.tasks[pid].ran_at);
        let (mut left, mut moved) = (imbalance, 0);
        for pid in waiting {
            let weight = self.tasks[pid].weight.0;
            let stays = self.is_hot(pid, now) && failed <= CACHE_NICE_TRIES;
            if stays || !self.tasks[pid].affinity.allows(to) || weight >> failed.min(63) > left {
                continue;
            }
            self.migrate(pid, to);
            moved += 1;
            left = left.saturating_sub(weight);
            if left == 0 {
                break;
            }
        }
        moved
    }

    /// An idle CPU takes over a process that waits for the CPU for which most wait.
    /// Returns whether it found one.
    pub(super) fn pull(&mut self, cpu: usize, now: Nanos) -> bool {
        let may_come = |pid: usize| self.tasks[pid].affinity.allows(cpu);
        let may_any_come =
            |from: usize| self.queues[from].runnable.iter().any(|&pid| may_come(pid));
        let others = (0..self.queues.len()).filter(|&from| from != cpu && may_any_come(from));
        let Some(from) = others.min_by_key(|&from| Reverse(self.queues[from].runnable.len()))
        else {
            return false;
        };
        let waiting = self.queues[from].runnable.iter().copied();
        let cold = waiting.filter(|&pid| may_come(pid) && !self.is_hot(pid, now));
        let Some(pid) = cold.min_by_key(|&pid| self.tasks[pid].ran_at) else {
            return false;
        };
        self.migrate(pid, cpu);
        true
    }

    /// Whether what a process uses is still in the caches of its CPU (`task_hot`).
    fn is_hot(&self, pid: usize, now: Nanos) -> bool {
        now < self.tasks[pid].ran_at + MIGRATION_COST
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fair_class, spin};
    use super::super::{Affinity, CpuScheduler};
    use super::*;

    const START: Nanos = Nanos::ZERO;

    fn fair(scheduler: CpuScheduler, cpus: u32, processes: usize) -> FairClass {
        fair_class(scheduler, cpus, &vec![Affinity::All; processes])
    }

    /// Three that never sleep on two CPUs: the second failure in a row lets one go, as it
    /// then counts half, and over time all run as much.
    #[test]
    fn who_has_fewer_to_run_takes_one_over() {
        for scheduler in [CpuScheduler::Cfs, CpuScheduler::Eevdf] {
            let mut fair = fair(scheduler, 2, 3);
            assert!(fair.enqueue(0, 0, START) && fair.enqueue(1, 1, START));
            assert!(!fair.enqueue(0, 2, START));
            let (mut ran, mut moves, mut had) = ([0u64; 3], 0, 0);
            for ms in 0..6000 {
                spin(&mut fair, (ms, ms + 1));
                for cpu in 0..2 {
                    ran[fair.current(cpu).expect("both run one")] += 1;
                }
                let waits = fair.queues.iter().position(|q| !q.runnable.is_empty());
                let has = waits.expect("three are awake");
                moves += (std::mem::replace(&mut had, has) != has) as u64;
            }
            // A look each 28 ms, of which each second moves one.
            assert!(
                (70..=140).contains(&moves),
                "moved {moves} times in six seconds"
            );
            let (most, least) = (ran.iter().max().unwrap(), ran.iter().min().unwrap());
            assert!(most * 4 < least * 5, "{ran:?}");
        }
    }

    #[test]
    fn who_has_just_run_stays_where_his_data_is() {
        let mut fair = fair(CpuScheduler::Eevdf, 2, 3);
        let us = Nanos::from_micros;
        assert!(fair.enqueue(0, 0, START) && fair.enqueue(1, 1, START));
        fair.account(0, us(500));
        assert!(!fair.enqueue(0, 2, us(500)));
        fair.account(0, us(3500));
        assert_eq!(
            fair.check_preempt(0, 0, us(4000)),
            Some(2),
            "the first waits"
        );
        assert_eq!(fair.dequeue(1, 1, us(4499)), None, "it has run 0.5 ms ago");
        assert!(fair.enqueue(1, 1, us(4499)));
        assert_eq!(fair.dequeue(1, 1, us(4500)), Some(0));
    }

    #[test]
    fn an_even_machine_is_looked_at_less_often() {
        let mut fair = fair(CpuScheduler::Eevdf, 2, 2);
        assert!(fair.enqueue(0, 0, START) && fair.enqueue(1, 1, START));
        assert_eq!(fair.queues[0].balancing.interval_ns(), 7 * TICK_NS);
        spin(&mut fair, (0, 200));
        assert_eq!(fair.queues[0].balancing.interval_ns(), 15 * TICK_NS);
    }
}
