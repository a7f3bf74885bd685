//! Which of a CPU's processes runs: Linux' fair class as CFS
//! (`kernel/sched/fair.c` of 6.3).
//!
//! A process that never sleeps keeps its CPU for a slice of milliseconds, and
//! whoever shares the CPU with it finds its completions that much later.
//!
//! Where more processes are runnable than there are CPUs, those that may run on
//! several move: to an idle CPU when they wake (`select_idle_sibling`), to one that
//! becomes idle (`newidle_balance`), and now and then to one with fewer runnable
//! processes (`load_balance`). Left out is that the kernel leaves a process alone for half a
//! millisecond after it ran (`sysctl_sched_migration_cost`).

use blklab_blk::Nanos;

/// `CONFIG_HZ=250`: a slice ends with a tick.
const TICK_NS: u64 = 4_000_000;
/// `sysctl_sched_latency`, `sysctl_sched_min_granularity` and
/// `sysctl_sched_wakeup_granularity` of one CPU. More CPUs scale them by
/// 1 + log2 of their number, which counts up to eight.
const LATENCY_NS: u64 = 6_000_000;
const GRANULARITY_NS: u64 = 750_000;
const WAKEUP_NS: u64 = 1_000_000;

/// How long a busy CPU leaves others with more runnable processes than it has: it
/// balances every 16 ms for each CPU (`busy_factor`), and pulls a process after two
/// failures (`nr_balance_failed`), as one process is more than half of the
/// imbalance.
const BALANCE_NS_PER_CPU: u64 = 3 * 16 * 1_000_000;

/// How much of a CPU a process gets beside others (`sched_prio_to_weight`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight(u64);

impl Weight {
    /// Nice 0.
    pub(crate) const NORMAL: Weight = Weight(1024);
    /// Nice -20.
    pub(crate) const MIN_NICE: Weight = Weight(88_761);

    /// How far the virtual runtime goes in `time_ns` (`calc_delta_fair`).
    #[inline]
    fn virtual_ns(self, time_ns: u64) -> u64 {
        match self {
            Weight::NORMAL => time_ns,
            Weight(weight) => time_ns * Weight::NORMAL.0 / weight,
        }
    }

    /// The time in which it goes so far.
    #[inline]
    fn real_ns(self, virtual_ns: u64) -> u64 {
        virtual_ns * self.0 / Weight::NORMAL.0
    }
}

#[derive(Clone, Debug, Default)]
struct RunQueue {
    /// The process that runs (`curr`).
    current: Option<usize>,
    /// Its virtual runtime when it was picked (`prev_sum_exec_runtime`).
    picked_vruntime_ns: u64,
    /// Processes that wait for the CPU.
    runnable: Vec<usize>,
    /// No process on this queue has a lesser virtual runtime (`min_vruntime`); it only
    /// grows.
    min_vruntime_ns: u64,
    /// When it last balanced.
    balanced_ns: u64,
}

/// The CPUs that a process may run on (`sched_setaffinity(2)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    /// The one that it is on.
    One,
    /// Any.
    All,
    /// These.
    These(Box<[usize]>),
}

impl Affinity {
    /// Whether a process of another CPU may move to this one.
    fn allows(&self, cpu: usize) -> bool {
        match self {
            Affinity::One => false,
            Affinity::All => true,
            Affinity::These(cpus) => cpus.contains(&cpu),
        }
    }
}

/// The run queues of all CPUs.
#[derive(Debug)]
pub(crate) struct FairClass {
    queues: Vec<RunQueue>,
    /// By process, how long it has run; sleepers are brought up to the others.
    vruntime_ns: Vec<u64>,
    /// By process, the CPU that it ran on last.
    last_cpu: Vec<usize>,
    affinity: Vec<Affinity>,
    weight: Vec<Weight>,
    /// A process may run on several CPUs.
    any_migrates: bool,
    balance_ns: u64,
    latency_ns: u64,
    granularity_ns: u64,
    wakeup_ns: u64,
}

impl FairClass {
    /// Empty run queues of so many CPUs.
    pub(crate) fn new(cpus: u32) -> FairClass {
        let scale = 1 + u64::from(cpus.clamp(1, 8).ilog2());
        FairClass {
            queues: vec![RunQueue::default(); cpus as usize],
            vruntime_ns: Vec::new(),
            last_cpu: Vec::new(),
            affinity: Vec::new(),
            weight: Vec::new(),
            any_migrates: false,
            balance_ns: BALANCE_NS_PER_CPU * u64::from(cpus),
            latency_ns: LATENCY_NS * scale,
            granularity_ns: GRANULARITY_NS * scale,
            wakeup_ns: WAKEUP_NS * scale,
        }
    }

    /// Adds a process or thread, whose number is the next.
    pub(crate) fn add(&mut self, affinity: Affinity) {
        self.add_weighted(affinity, Weight::NORMAL);
    }

    /// The same with a weight that need not be that of all.
    pub(crate) fn add_weighted(&mut self, affinity: Affinity, weight: Weight) {
        self.any_migrates |= affinity != Affinity::One;
        self.affinity.push(affinity);
        self.weight.push(weight);
        self.vruntime_ns.push(0);
        self.last_cpu.push(0);
    }

    /// A process has used its CPU for `time`.
    #[inline]
    pub(crate) fn account(&mut self, pid: usize, time: Nanos) {
        self.vruntime_ns[pid] += self.weight[pid].virtual_ns(time.0);
    }

    /// Whether the CPU runs this process.
    #[inline]
    pub(crate) fn is_current(&self, cpu: usize, pid: usize) -> bool {
        self.queues[cpu].current == Some(pid)
    }

    /// The process that a CPU runs.
    #[inline]
    pub(crate) fn current(&self, cpu: usize) -> Option<usize> {
        self.queues[cpu].current
    }

    /// The CPU that runs the process, if one does.
    pub(crate) fn cpu_of_current(&self, pid: usize) -> Option<usize> {
        self.queues.iter().position(|q| q.current == Some(pid))
    }

    /// The CPU on which to wake a process: its last one if that is idle, else an idle
    /// one, else that with the fewest runnable processes.
    #[inline]
    pub(crate) fn select_cpu(&self, pid: usize, last: usize) -> usize {
        match self.queues[last].current.is_none() || self.affinity[pid] == Affinity::One {
            true => last,
            false => self.select_other_cpu(pid, last),
        }
    }

    #[inline(never)]
    fn select_other_cpu(&self, pid: usize, last: usize) -> usize {
        let is_idle = |&cpu: &usize| self.queues[cpu].current.is_none();
        let others = (0..self.queues.len()).filter(|&cpu| self.affinity[pid].allows(cpu));
        let cpus = || std::iter::once(last).chain(others.clone());
        let least = || cpus().min_by_key(|&cpu| self.queues[cpu].runnable.len());
        cpus().find(is_idle).or_else(least).unwrap_or(last)
    }

    /// A process wakes on a CPU. Returns whether it runs at once: where the CPU is
    /// idle, or where it preempts the current process, which is ahead of it.
    pub(crate) fn enqueue(&mut self, cpu: usize, pid: usize) -> bool {
        self.migrate(pid, cpu);
        let queue = &mut self.queues[cpu];
        let least_ns = queue.min_vruntime_ns.saturating_sub(self.latency_ns / 2);
        self.vruntime_ns[pid] = self.vruntime_ns[pid].max(least_ns);
        if let Some(current) = queue.current {
            let ahead_ns = self.vruntime_ns[current].saturating_sub(self.vruntime_ns[pid]);
            if ahead_ns <= self.weight[pid].virtual_ns(self.wakeup_ns) {
                queue.runnable.push(pid);
                return false;
            }
            queue.runnable.push(current);
        }
        queue.current = Some(pid);
        queue.picked_vruntime_ns = self.vruntime_ns[pid];
        true
    }

    /// The current process sleeps or ends. Returns the next one to run.
    pub(crate) fn dequeue(&mut self, cpu: usize, pid: usize) -> Option<usize> {
        let queue = &mut self.queues[cpu];
        if queue.current != Some(pid) {
            // It was preempted, and had still to finish what its CPU did for it.
            queue.runnable.retain(|&other| other != pid);
            return None;
        }
        queue.min_vruntime_ns = queue.min_vruntime_ns.max(self.vruntime_ns[pid]);
        queue.current = None;
        self.pick_next(cpu)
    }

    /// Preempts the current process where its slice is over and another is runnable.
    /// Returns that one.
    pub(crate) fn check_preempt(&mut self, cpu: usize, pid: usize, now: Nanos) -> Option<usize> {
        if self.any_migrates && now.0 >= self.queues[cpu].balanced_ns + self.balance_ns {
            self.load_balance(cpu, now);
        }
        let queue = &self.queues[cpu];
        if queue.runnable.is_empty() || queue.current != Some(pid) {
            return None;
        }
        let weight = self.weight[pid];
        let waiting = queue.runnable.iter().map(|&pid| self.weight[pid].0);
        let share_ns = self.latency_ns * weight.0 / (weight.0 + waiting.sum::<u64>());
        let slice_ns = share_ns.max(self.granularity_ns);
        let ran_ns = weight.real_ns(self.vruntime_ns[pid] - queue.picked_vruntime_ns);
        if ran_ns < slice_ns + now.0 % TICK_NS {
            return None;
        }
        let queue = &mut self.queues[cpu];
        queue.runnable.push(pid);
        queue.current = None;
        self.pick_next(cpu)
    }

    /// A process comes to a CPU: its virtual runtime keeps its distance to that of
    /// the others there (`migrate_task_rq_fair`).
    fn migrate(&mut self, pid: usize, cpu: usize) {
        let from = std::mem::replace(&mut self.last_cpu[pid], cpu);
        if from != cpu {
            let lag_ns = self.vruntime_ns[pid].saturating_sub(self.queues[from].min_vruntime_ns);
            self.vruntime_ns[pid] = self.queues[cpu].min_vruntime_ns + lag_ns;
        }
    }

    /// A busy CPU pulls a process from one with more runnable ones.
    #[cold]
    fn load_balance(&mut self, cpu: usize, now: Nanos) {
        self.queues[cpu].balanced_ns = now.0;
        let own = self.queues[cpu].runnable.len();
        if self.queues.iter().any(|queue| queue.runnable.len() > own)
            && let Some(from) = self.pull(cpu)
        {
            // That one was not short of processes until now.
            self.queues[from].balanced_ns = now.0;
        }
    }

    /// Pulls a process that may run here from the CPU with the most runnable ones.
    /// Returns that CPU.
    fn pull(&mut self, cpu: usize) -> Option<usize> {
        let affinity = &self.affinity;
        let may_run_here = |pid: &usize| affinity[*pid].allows(cpu);
        let waiter = |queue: &RunQueue| queue.runnable.iter().position(may_run_here);
        let others = (0..self.queues.len()).filter(|&from| from != cpu);
        let found = others.filter_map(|from| Some((from, waiter(&self.queues[from])?)));
        // Of CPUs with as many, the first.
        let found = found
            .rev()
            .max_by_key(|(from, _)| self.queues[*from].runnable.len());
        let (from, at) = found?;
        let pid = self.queues[from].runnable.remove(at);
        self.migrate(pid, cpu);
        self.queues[cpu].runnable.push(pid);
        Some(from)
    }

    /// Gives the CPU to the process with the least virtual runtime.
    fn pick_next(&mut self, cpu: usize) -> Option<usize> {
        if self.queues[cpu].runnable.is_empty() && self.any_migrates {
            self.pull(cpu);
        }
        let queue = &mut self.queues[cpu];
        let vruntime_ns = |at: &usize| self.vruntime_ns[queue.runnable[*at]];
        let at = (0..queue.runnable.len()).min_by_key(vruntime_ns)?;
        let pid = queue.runnable.remove(at);
        queue.current = Some(pid);
        queue.picked_vruntime_ns = self.vruntime_ns[pid];
        queue.min_vruntime_ns = queue.min_vruntime_ns.max(self.vruntime_ns[pid]);
        Some(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fair_class(cpus: u32, processes: &[Affinity]) -> FairClass {
        let mut fair = FairClass::new(cpus);
        processes.iter().for_each(|a| fair.add(a.clone()));
        fair
    }

    #[test]
    fn two_that_never_sleep_take_turns_of_milliseconds() {
        let mut fair = fair_class(10, &[Affinity::One, Affinity::One]);
        assert!(fair.enqueue(0, 0));
        assert!(!fair.enqueue(0, 1));
        let (mut now, mut turns) = (Nanos::ZERO, Vec::new());
        for _ in 0..60_000 {
            let running = (0..2).find(|&pid| fair.is_current(0, pid)).unwrap();
            let step = Nanos::from_micros(1);
            now += step;
            fair.account(running, step);
            if fair.check_preempt(0, running, now).is_some() {
                turns.push(now);
            }
        }
        // Half of 24 ms, which is a tick.
        assert_eq!(turns.len(), 5);
        assert_eq!(turns[1] - turns[0], Nanos::from_millis(12));
    }

    #[test]
    fn who_was_preempted_at_work_takes_nothing_from_the_next() {
        let mut fair = fair_class(1, &[Affinity::One, Affinity::One]);
        assert!(fair.enqueue(0, 0));
        fair.account(0, Nanos::from_millis(40));
        assert!(fair.enqueue(0, 1));
        assert_eq!(fair.check_preempt(0, 0, Nanos::from_millis(40)), None);
        assert!(fair.is_current(0, 1));
        assert_eq!(fair.dequeue(0, 1), Some(0));
        assert_eq!(fair.dequeue(0, 0), None);
    }

    #[test]
    fn who_slept_comes_before_who_did_not() {
        let mut fair = fair_class(1, &[Affinity::One, Affinity::One]);
        assert!(fair.enqueue(0, 0));
        fair.account(0, Nanos::from_millis(2));
        assert!(fair.enqueue(0, 1), "the first has had enough");
        assert!(fair.is_current(0, 1));
        fair.account(1, Nanos::from_micros(10));
        assert_eq!(fair.dequeue(0, 1), Some(0));
        // The first has run for more, but a wake-up alone does not show that
        // the second sleeps much: it comes again where it is 1 ms behind.
        assert!(fair.enqueue(0, 1));
        fair.account(1, Nanos::from_millis(2));
        assert_eq!(fair.dequeue(0, 1), Some(0));
        assert!(!fair.enqueue(0, 1));
        assert_eq!(fair.dequeue(0, 0), Some(1));
    }

    #[test]
    fn who_has_the_highest_priority_need_not_wait() {
        let mut fair = FairClass::new(1);
        fair.add(Affinity::One);
        fair.add_weighted(Affinity::One, Weight::MIN_NICE);
        assert!(fair.enqueue(0, 0));
        let ms = Nanos::from_millis;
        fair.account(0, ms(1));
        for round in 0..100 {
            // One of the weight of all would have to wait from the second time on.
            fair.account(0, Nanos::from_micros(100));
            assert!(fair.enqueue(0, 1), "round {round}");
            fair.account(1, ms(5));
            assert_eq!(fair.check_preempt(0, 1, ms(8)), None, "most of a slice");
            assert_eq!(fair.dequeue(0, 1), Some(0));
        }
    }

    #[test]
    fn a_floating_thread_runs_where_there_is_room() {
        let mut fair = fair_class(2, &[Affinity::One, Affinity::One, Affinity::All]);
        assert!(fair.enqueue(0, 0));
        assert_eq!(fair.select_cpu(2, 0), 1);
        assert!(fair.enqueue(1, 1));
        let at = fair.select_cpu(2, 0);
        assert!(!fair.enqueue(at, 2), "both CPUs run somebody");
        assert_eq!(at, 0);
        assert_eq!(fair.dequeue(1, 1), Some(2), "the idle one takes it");
        assert_eq!(fair.cpu_of_current(2), Some(1));
    }

    #[test]
    fn who_has_fewer_to_run_takes_one_over() {
        // Three that never sleep, of which two share the first CPU.
        let mut fair = fair_class(2, &[const { Affinity::All }; 3]);
        assert!(fair.enqueue(0, 0) && fair.enqueue(1, 1));
        assert!(!fair.enqueue(0, 2));
        let mut moves = 0;
        for step in 1..2_000_000 {
            for cpu in 0..2 {
                let running = fair.current(cpu).unwrap();
                fair.account(running, Nanos::from_micros(1));
                fair.check_preempt(cpu, running, Nanos::from_micros(step));
            }
            let waits = fair.queues.iter().position(|q| !q.runnable.is_empty());
            if waits != Some(moves % 2) {
                moves += 1;
            }
        }
        assert!(moves > 5, "moved {moves} times in two seconds");
        let (most, least) = (fair.vruntime_ns.iter().max(), fair.vruntime_ns.iter().min());
        assert!(most.unwrap() * 2 < least.unwrap() * 3);
    }

    #[test]
    fn nobody_moves_to_a_cpu_that_is_not_allowed() {
        let own = Affinity::These(Box::new([0, 1]));
        let mut fair = fair_class(3, &[own.clone(), own.clone(), own]);
        assert!(fair.enqueue(0, 0) && fair.enqueue(1, 1));
        assert_ne!(fair.select_cpu(2, 0), 2);
        assert!(!fair.enqueue(0, 2));
        assert_eq!(fair.pick_next(2), None);
    }
}
