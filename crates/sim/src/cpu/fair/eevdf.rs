//! EEVDF (Linux since 6.6; Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline First",
//! 1995): each process asks for a slice at a time. It may run while it has not run more than
//! its share, and of those that may, the one whose slice is due first has its turn.

use super::{FairClass, TICK_NS, Task};

/// `sysctl_sched_base_slice` of one CPU.
const SLICE_NS: u64 = 750_000;

/// All that is on a queue, which has a virtual time: the mean of the virtual runtimes by
/// weight, at which nobody owes or is owed anything.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    weight: i128,
    /// Weight times virtual runtime.
    moment: i128,
}

impl Load {
    fn add(&mut self, task: &Task) {
        let weight = i128::from(task.weight.0);
        self.weight += weight;
        self.moment += weight * i128::from(task.vruntime_ns);
    }

    /// Whether one of that virtual runtime has not run more than its share
    /// (`entity_eligible`).
    fn owes(&self, vruntime_ns: i64) -> bool {
        self.moment >= i128::from(vruntime_ns) * self.weight
    }

    /// The virtual time (`avg_vruntime`).
    fn virtual_ns(&self) -> Option<i64> {
        (self.weight > 0).then(|| self.moment.div_euclid(self.weight) as i64)
    }
}

impl FairClass {
    fn load(&self, cpu: usize) -> Load {
        let queue = &self.queues[cpu];
        let waiting = queue.runnable.iter().chain(&queue.delayed);
        let mut load = Load::default();
        for &pid in waiting.chain(&queue.current) {
            load.add(&self.tasks[pid]);
        }
        load
    }

    fn slice_ns(&self) -> u64 {
        SLICE_NS * self.scale
    }

    /// A process comes to a CPU, or one wakes that is still on its queue.
    pub(super) fn place_by_eevdf(&mut self, cpu: usize, pid: usize) {
        if self.tasks[pid].is_delayed && self.is_still_in_debt(cpu, pid) {
            return;
        }
        self.place(cpu, pid);
        let slice_ns = self.tasks[pid].weight.virtual_ns(self.slice_ns());
        let task = &mut self.tasks[pid];
        task.deadline_ns = task.vruntime_ns + slice_ns;
    }

    /// A process that waits comes from another CPU: its slice is due as much later as it was
    /// there (`PLACE_REL_DEADLINE`).
    pub(super) fn place_with_deadline(&mut self, cpu: usize, pid: usize) {
        let due_ns = self.tasks[pid].deadline_ns - self.tasks[pid].vruntime_ns;
        self.place(cpu, pid);
        self.tasks[pid].deadline_ns = self.tasks[pid].vruntime_ns + due_ns;
    }

    /// A process that sleeps and is still on its queue leaves the list of such processes
    /// (`requeue_delayed_entity`). Returns whether it keeps its place, as it still owes time; one
    /// that has paid all of its debt is owed nothing.
    fn is_still_in_debt(&mut self, cpu: usize, pid: usize) -> bool {
        let is_owed = self.load(cpu).owes(self.tasks[pid].vruntime_ns);
        self.tasks[pid].is_delayed = false;
        self.tasks[pid].lag_ns = 0;
        self.queues[cpu].delayed.retain(|&other| other != pid);
        !is_owed
    }

    /// It begins as far from the queue's virtual time as it was when it left its queue. By
    /// coming it moves that time, so that it is put further off (`place_entity`).
    fn place(&mut self, cpu: usize, pid: usize) {
        let load = self.load(cpu);
        let task = &mut self.tasks[pid];
        task.cpu = cpu;
        task.vruntime_ns = match load.virtual_ns() {
            None => self.queues[cpu].min_vruntime_ns,
            Some(virtual_ns) => {
                let with_it = load.weight + i128::from(task.weight.0);
                let lag_ns = i128::from(task.lag_ns) * with_it / load.weight;
                virtual_ns - lag_ns as i64
            }
        };
    }

    /// A process leaves its queue. One that sleeps while it owes time stays until it has paid, if
    /// there are others (`DELAY_DEQUEUE`).
    pub(super) fn leave_by_eevdf(&mut self, cpu: usize, pid: usize) {
        let load = self.load(cpu);
        let queue = &mut self.queues[cpu];
        let sleeps = queue.current == Some(pid);
        let is_alone = queue.runnable.is_empty() && queue.delayed.is_empty();
        if sleeps && !is_alone && !load.owes(self.tasks[pid].vruntime_ns) {
            self.tasks[pid].is_delayed = true;
            queue.delayed.push(pid);
            return;
        }
        queue.min_vruntime_ns = load.virtual_ns().unwrap_or(queue.min_vruntime_ns);
        self.update_lag(pid, load);
    }

    /// How much a process is owed, up to two slices or a tick (`update_entity_lag`).
    fn update_lag(&mut self, pid: usize, load: Load) {
        let most_ns = (2 * self.slice_ns()).max(TICK_NS);
        let task = &mut self.tasks[pid];
        let most_ns = task.weight.virtual_ns(most_ns);
        let virtual_ns = load.virtual_ns().unwrap_or(task.vruntime_ns);
        task.lag_ns = (virtual_ns - task.vruntime_ns).clamp(-most_ns, most_ns);
    }

    /// Gives the current process its next slice where it has used up the last. Another may
    /// then have its turn (`update_deadline`).
    pub(super) fn renew_deadline(&mut self, cpu: usize) {
        let slice_ns = self.slice_ns();
        let queue = &mut self.queues[cpu];
        let Some(current) = queue.current else {
            return;
        };
        let task = &mut self.tasks[current];
        if task.vruntime_ns >= task.deadline_ns {
            task.deadline_ns = task.vruntime_ns + task.weight.virtual_ns(slice_ns);
            queue.is_protected = false;
            queue.needs_resched = !queue.runnable.is_empty() || !queue.delayed.is_empty();
        }
    }

    /// Whether one that wakes has its turn before the current process
    /// (`check_preempt_wakeup_fair`).
    pub(super) fn is_preempted_by_eevdf(&mut self, cpu: usize, pid: usize) -> bool {
        self.renew_deadline(cpu);
        self.pick_by_eevdf(cpu) == Some(pid)
    }

    /// Returns the process that runs after the current one where that has to stop.
    pub(super) fn next_by_eevdf(&mut self, cpu: usize, pid: usize) -> Option<usize> {
        if !std::mem::take(&mut self.queues[cpu].needs_resched) {
            return None;
        }
        self.pick_awake_by_eevdf(cpu).filter(|&next| next != pid)
    }

    /// Returns the process whose turn it is, if any is awake. Sleeping processes whose turn comes
    /// first leave the queue.
    pub(super) fn pick_awake_by_eevdf(&mut self, cpu: usize) -> Option<usize> {
        loop {
            let pid = self.pick_by_eevdf(cpu)?;
            if !self.tasks[pid].is_delayed {
                return Some(pid);
            }
            self.end_delay(cpu, pid);
        }
    }

    /// A sleeping process has paid what it owed, and is owed nothing (`DELAY_ZERO`).
    fn end_delay(&mut self, cpu: usize, pid: usize) {
        let load = self.load(cpu);
        self.update_lag(pid, load);
        let task = &mut self.tasks[pid];
        task.lag_ns = task.lag_ns.min(0);
        task.is_delayed = false;
        let queue = &mut self.queues[cpu];
        queue.min_vruntime_ns = load.virtual_ns().unwrap_or(queue.min_vruntime_ns);
        queue.delayed.retain(|&other| other != pid);
    }

    /// Of all on the queue the one with the earliest deadline of those that have not run more
    /// than their share, be it asleep. The current process keeps its turn until it has used up
    /// its slice or has run more than that (`pick_eevdf`, `RUN_TO_PARITY`).
    fn pick_by_eevdf(&self, cpu: usize) -> Option<usize> {
        let queue = &self.queues[cpu];
        let load = self.load(cpu);
        let is_eligible = |pid: &usize| load.owes(self.tasks[*pid].vruntime_ns);
        let current = queue.current.filter(is_eligible);
        if queue.is_protected && current.is_some() {
            return current;
        }
        let waiting = queue.runnable.iter().chain(&queue.delayed).copied();
        // Of those with the same deadline the one that came first.
        let eligible = waiting.filter(is_eligible).chain(current);
        eligible.min_by_key(|&pid| self.tasks[pid].deadline_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fair_class, spin};
    use super::super::{Affinity, CpuScheduler, Weight};
    use super::*;
    use blklab_blk::Nanos;

    const START: Nanos = Nanos::ZERO;
    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn fair(processes: usize) -> FairClass {
        fair_class(CpuScheduler::Eevdf, 1, &vec![Affinity::One; processes])
    }

    /// A slice of 0.75 ms is found to be over at the next tick.
    #[test]
    fn those_that_never_sleep_take_turns_at_ticks() {
        let mut fair = fair(3);
        assert!(fair.enqueue(0, 0, START));
        assert!(!fair.enqueue(0, 1, START) && !fair.enqueue(0, 2, START));
        let turns = spin(&mut fair, (0, 24));
        let next: Vec<(u64, usize)> = turns.iter().map(|turn| (turn.0, turn.2)).collect();
        let want = [(4, 1), (8, 2), (12, 0), (16, 1), (20, 2), (24, 0)];
        assert_eq!(next, want.map(|(ms, pid)| (ms * 1000, pid)));
    }

    /// One that slept and is owed nothing waits for the other's slice, be it done in a moment.
    #[test]
    fn a_slice_is_not_broken_off_for_one_that_is_owed_nothing() {
        let mut fair = fair(2);
        assert!(fair.enqueue(0, 0, START));
        fair.account(0, Nanos::from_micros(300));
        assert!(!fair.enqueue(0, 1, Nanos::from_micros(300)));
        // At the next tick the slice is over.
        assert_eq!(fair.check_preempt(0, 0, Nanos::from_micros(300)), None);
        fair.account(0, MS(4) - Nanos::from_micros(300));
        assert_eq!(fair.check_preempt(0, 0, MS(4)), Some(1));
    }

    /// A process that is owed time when it falls asleep is still owed it on waking, and runs first.
    #[test]
    fn who_is_owed_time_preempts() {
        let mut fair = fair(2);
        assert!(fair.enqueue(0, 0, START) && !fair.enqueue(0, 1, START));
        fair.account(0, MS(4));
        assert_eq!(fair.check_preempt(0, 0, MS(4)), Some(1));
        fair.account(1, Nanos::from_micros(50));
        assert_eq!(fair.dequeue(0, 1, MS(5)), Some(0), "it sleeps again");
        assert_eq!(
            fair.tasks[1].lag_ns, 1_975_000,
            "half of what the other had more"
        );
        fair.account(0, MS(20));
        let now = MS(25);
        assert!(fair.enqueue(0, 1, now));
        // With it on the queue it is owed what it was.
        let load = fair.load(0);
        let lag_ns = load.virtual_ns().expect("two run") - fair.tasks[1].vruntime_ns;
        assert!((lag_ns - 1_975_000).abs() <= 1, "{lag_ns}");
    }

    /// Lag is kept up to a tick or two slices, the longer of which is a tick on one CPU.
    #[test]
    fn nobody_is_owed_more_than_a_tick() {
        let mut fair = fair(2);
        assert!(fair.enqueue(0, 0, START) && !fair.enqueue(0, 1, START));
        fair.account(0, MS(100));
        assert_eq!(fair.dequeue(0, 0, MS(100)), Some(1));
        assert!(fair.tasks[0].is_delayed, "it owes 50 ms");
        assert_eq!(fair.dequeue(0, 1, MS(100)), None);
        assert_eq!(fair.tasks[1].lag_ns, 4_000_000);
        assert_eq!(
            fair.tasks[0].lag_ns, 0,
            "its debt ended with the other's sleep"
        );
    }

    /// A process that sleeps in debt stays on its queue, and is gone when the others have run as
    /// much.
    #[test]
    fn debts_are_paid_by_sleeping() {
        let mut fair = fair(3);
        assert!(fair.enqueue(0, 0, START));
        assert!(!fair.enqueue(0, 1, START) && !fair.enqueue(0, 2, START));
        fair.account(0, MS(3));
        assert_eq!(fair.dequeue(0, 0, MS(3)), Some(1));
        assert!(fair.tasks[0].is_delayed);
        assert_eq!(fair.select_cpu(0, 0), 0, "it would wake where it is");
        // Woken meanwhile it has its old debt and waits.
        assert!(!fair.enqueue(0, 0, MS(3)));
        assert_eq!(fair.tasks[0].vruntime_ns, 3_000_000);
        // It sleeps again; the others run as much as it did.
        fair.queues[0].runnable.retain(|&pid| pid != 0);
        fair.tasks[0].is_delayed = true;
        fair.queues[0].delayed.push(0);
        spin(&mut fair, (4, 16));
        assert!(!fair.tasks[0].is_delayed, "it has paid");
        assert!(fair.queues[0].delayed.is_empty());
    }

    /// Weight makes virtual time go slower, and slices come sooner.
    #[test]
    fn who_has_the_highest_priority_runs_most() {
        let mut fair = fair(1);
        fair.add_weighted(Affinity::One, Weight::MIN_NICE);
        assert!(fair.enqueue(0, 0, START));
        fair.enqueue(0, 1, START);
        let mut ran = [0; 2];
        let mut since = 0;
        let mut running = fair.current(0).expect("one runs");
        for (us, _, next) in spin(&mut fair, (0, 2000)) {
            ran[running] += us - since;
            (running, since) = (next, us);
        }
        assert!(ran[1] > 50 * ran[0].max(1), "{ran:?}");
    }

    /// A move keeps what is owed and how long before its slice is due.
    #[test]
    fn who_moves_keeps_lag_and_deadline() {
        let all = vec![Affinity::All; 3];
        let mut fair = fair_class(CpuScheduler::Eevdf, 2, &all);
        assert!(fair.enqueue(0, 0, START) && fair.enqueue(1, 1, START));
        assert!(!fair.enqueue(0, 2, START));
        fair.account(0, MS(2));
        fair.account(1, MS(9));
        let due_ns = fair.tasks[2].deadline_ns - fair.tasks[2].vruntime_ns;
        fair.migrate(2, 1);
        let load = fair.load(1);
        let lag_ns = load.virtual_ns().expect("two run") - fair.tasks[2].vruntime_ns;
        assert!((lag_ns - 1_000_000).abs() <= 1, "{lag_ns}");
        assert_eq!(
            fair.tasks[2].deadline_ns - fair.tasks[2].vruntime_ns,
            due_ns
        );
    }

    proptest::proptest! {
        /// However processes wake and sleep, each is on one queue at most, no CPU is idle where
        /// one waits, and those that never sleep get equal shares.
        #[test]
        fn queues_stay_whole(
            steps in proptest::collection::vec((0..6usize, 1..900u64), 1..400),
        ) {
            let mut fair = fair_class(CpuScheduler::Eevdf, 2, &vec![Affinity::All; 6]);
            let mut cpu_of = [0usize; 6];
            let mut is_awake = [false; 6];
            let mut us = 0;
            for (pid, took) in steps {
                us += took;
                let now = Nanos::from_micros(us);
                for cpu in 0..2 {
                    if let Some(running) = fair.current(cpu) {
                        fair.account(running, Nanos::from_micros(took));
                        fair.check_preempt(cpu, running, now);
                    }
                }
                let runs_on = fair.cpu_of_current(pid);
                match runs_on {
                    Some(cpu) => {
                        fair.dequeue(cpu, pid, now);
                        (is_awake[pid], cpu_of[pid]) = (false, cpu);
                    }
                    None if !is_awake[pid] => {
                        cpu_of[pid] = fair.select_cpu(pid, cpu_of[pid]);
                        fair.enqueue(cpu_of[pid], pid, now);
                        is_awake[pid] = true;
                    }
                    None => {}
                }
                for (pid, &awake) in is_awake.iter().enumerate() {
                    let count = |f: fn(&super::super::RunQueue) -> &Vec<usize>| {
                        let all = fair.queues.iter().flat_map(f);
                        all.filter(|&&other| other == pid).count()
                    };
                    let runs = fair.cpu_of_current(pid).is_some() as usize;
                    proptest::prop_assert_eq!(runs + count(|q| &q.runnable), awake as usize);
                    proptest::prop_assert_eq!(count(|q| &q.delayed), fair.tasks[pid].is_delayed as usize);
                }
                for queue in &fair.queues {
                    proptest::prop_assert!(queue.current.is_some() || queue.runnable.is_empty());
                }
            }
        }
    }
}
