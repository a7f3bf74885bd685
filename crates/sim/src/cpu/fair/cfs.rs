//! CFS (Linux before 6.6): the process that has run least has its turn, for a share of a
//! period that grows with nothing but the number of CPUs.

use blklab_blk::Nanos;

use super::{FairClass, TICK_NS};

/// `sysctl_sched_latency`, `sysctl_sched_min_granularity` and
/// `sysctl_sched_wakeup_granularity` of one CPU.
const LATENCY_NS: u64 = 6_000_000;
const GRANULARITY_NS: u64 = 750_000;
const WAKEUP_NS: u64 = 1_000_000;

impl FairClass {
    /// A process comes to a CPU (`place_entity`). Its virtual runtime keeps its distance to that
    /// of the others where it moves (`migrate_task_rq_fair`), and a sleeper's is brought up to
    /// half a period before theirs.
    pub(super) fn place_by_cfs(&mut self, cpu: usize, pid: usize) {
        let task = &mut self.tasks[pid];
        let from = std::mem::replace(&mut task.cpu, cpu);
        let to_ns = self.queues[cpu].min_vruntime_ns;
        if from != cpu {
            let lag_ns = task.vruntime_ns - self.queues[from].min_vruntime_ns;
            task.vruntime_ns = to_ns + lag_ns.max(0);
        }
        let half_ns = (LATENCY_NS * self.scale / 2) as i64;
        task.vruntime_ns = task.vruntime_ns.max((to_ns - half_ns).max(0));
    }

    /// The current process sleeps.
    pub(super) fn leave_by_cfs(&mut self, cpu: usize, pid: usize) {
        if self.queues[cpu].current == Some(pid) {
            self.advance_by_cfs(cpu, pid);
        }
    }

    /// No process on this queue has a lesser virtual runtime than this one
    /// (`update_min_vruntime`).
    pub(super) fn advance_by_cfs(&mut self, cpu: usize, pid: usize) {
        let queue = &mut self.queues[cpu];
        queue.min_vruntime_ns = queue.min_vruntime_ns.max(self.tasks[pid].vruntime_ns);
    }

    /// Whether one that wakes is so far behind the current process that it runs before it
    /// (`wakeup_preempt_entity`).
    pub(super) fn is_preempted_by_cfs(&self, cpu: usize, pid: usize) -> bool {
        let current = self.queues[cpu].current.expect("somebody runs");
        let ahead_ns = self.tasks[current].vruntime_ns - self.tasks[pid].vruntime_ns;
        ahead_ns > self.tasks[pid].weight.virtual_ns(WAKEUP_NS * self.scale)
    }

    /// Who runs after the current process where its share of the period was over at the last
    /// tick (`check_preempt_tick`).
    pub(super) fn next_by_cfs(&mut self, cpu: usize, pid: usize, now: Nanos) -> Option<usize> {
        let queue = &self.queues[cpu];
        let task = &self.tasks[pid];
        let waiting = queue.runnable.iter().map(|&pid| self.tasks[pid].weight.0);
        let all = task.weight.0 + waiting.sum::<u64>();
        let share_ns = LATENCY_NS * self.scale * task.weight.0 / all;
        let slice_ns = share_ns.max(GRANULARITY_NS * self.scale);
        let ran_ns = (task.weight).real_ns(task.vruntime_ns - queue.picked_vruntime_ns);
        let since_tick_ns = (now.0 + self.tick_phase_ns) % TICK_NS;
        if ran_ns < slice_ns + since_tick_ns {
            return None;
        }
        let next = self.pick_by_cfs(cpu)?;
        let goes_on = task.vruntime_ns < self.tasks[next].vruntime_ns;
        if goes_on {
            // It begins another slice.
            self.queues[cpu].picked_vruntime_ns = self.tasks[pid].vruntime_ns;
            return None;
        }
        Some(next)
    }

    /// Of those that wait, the one with the least virtual runtime.
    pub(super) fn pick_by_cfs(&self, cpu: usize) -> Option<usize> {
        let waiting = self.queues[cpu].runnable.iter().copied();
        waiting.min_by_key(|&pid| self.tasks[pid].vruntime_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fair_class, spin};
    use super::super::{Affinity, CpuScheduler, Weight};
    use super::*;

    const START: Nanos = Nanos::ZERO;

    fn fair(cpus: u32, processes: usize) -> FairClass {
        fair_class(CpuScheduler::Cfs, cpus, &vec![Affinity::One; processes])
    }

    #[test]
    fn two_that_never_sleep_take_turns_of_milliseconds() {
        let mut fair = fair(10, 2);
        assert!(fair.enqueue(0, 0, START));
        assert!(!fair.enqueue(0, 1, START));
        for cpu in 1..10 {
            fair.add(Affinity::One);
            assert!(fair.enqueue(cpu, cpu + 1, START));
        }
        let turns = spin(&mut fair, (0, 60));
        // Half of 24 ms, which is a tick.
        let at: Vec<u64> = turns.iter().map(|turn| turn.0).collect();
        assert_eq!(at, [12_000, 24_000, 36_000, 48_000, 60_000]);
    }

    #[test]
    fn who_slept_comes_before_who_did_not() {
        let mut fair = fair(1, 2);
        let ms = Nanos::from_millis;
        assert!(fair.enqueue(0, 0, START));
        fair.account(0, ms(2));
        assert!(fair.enqueue(0, 1, ms(2)), "the first has had enough");
        fair.account(1, Nanos::from_micros(10));
        assert_eq!(fair.dequeue(0, 1, ms(3)), Some(0));
        // The first has run for more, but a wake-up alone does not show that
        // the second sleeps much: it comes again where it is 1 ms behind.
        assert!(fair.enqueue(0, 1, ms(3)));
        fair.account(1, ms(2));
        assert_eq!(fair.dequeue(0, 1, ms(5)), Some(0));
        assert!(!fair.enqueue(0, 1, ms(5)));
        assert_eq!(fair.dequeue(0, 0, ms(5)), Some(1));
    }

    #[test]
    fn who_has_the_highest_priority_need_not_wait() {
        let mut fair = fair(1, 1);
        fair.add_weighted(Affinity::One, Weight::MIN_NICE);
        assert!(fair.enqueue(0, 0, START));
        let ms = Nanos::from_millis;
        fair.account(0, ms(1));
        for round in 0..100 {
            // One of the weight of all would have to wait from the second time on.
            fair.account(0, Nanos::from_micros(100));
            assert!(fair.enqueue(0, 1, ms(3)), "round {round}");
            fair.account(1, ms(5));
            assert_eq!(fair.check_preempt(0, 1, ms(8)), None, "most of a slice");
            assert_eq!(fair.dequeue(0, 1, ms(8)), Some(0));
        }
    }
}
