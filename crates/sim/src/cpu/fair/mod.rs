//! Which of a CPU's processes runs: Linux' fair class (`kernel/sched/fair.c`).
//!
//! A process that never sleeps keeps its CPU for milliseconds, and whoever shares the CPU
//! with it finds its completions that much later. How long it keeps the CPU, and which process
//! may preempt it on waking, is what CFS (before Linux 6.6) and EEVDF (since) decide
//! differently; each has a file. Which CPU a process is on is decided alike by both ([`balance`]).
//!
//! Left out are groups of processes with a share of their own, which cgroups and sessions
//! (`sched_autogroup_enabled`) make; the load of the past (PELT), by which the kernel chooses
//! between CPUs that are all busy, and here a process stays where it was; and what the caches
//! of a CPU lose to whoever else runs on it.

mod balance;
mod cfs;
mod eevdf;

use blklab_blk::Nanos;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use strum::{Display, EnumMessage, VariantArray};

use balance::Balancing;

use super::Topology;

/// `CONFIG_HZ=250`: a tick finds that a process has used up its slice.
const TICK_NS: u64 = 4_000_000;

/// Who of a CPU's processes runs, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CpuScheduler {
    /// The one with the earliest virtual deadline of those that are owed time: Linux since
    /// 6.6, with sleepers staying on their queue until they are (`DELAY_DEQUEUE`, 6.12).
    #[default]
    Eevdf,
    /// The one that has run least: Linux before 6.6.
    Cfs,
}

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
    fn virtual_ns(self, time_ns: u64) -> i64 {
        match self {
            Weight::NORMAL => time_ns as i64,
            Weight(weight) => (time_ns * Weight::NORMAL.0 / weight) as i64,
        }
    }

    /// The time in which it goes so far.
    #[inline]
    fn real_ns(self, virtual_ns: i64) -> u64 {
        virtual_ns.max(0) as u64 * self.0 / Weight::NORMAL.0
    }
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

/// A process or thread.
#[derive(Clone, Debug)]
struct Task {
    affinity: Affinity,
    weight: Weight,
    /// The CPU whose queue it is on, or was on last.
    cpu: usize,
    /// How long it has run, by its weight. On another queue it counts from there.
    vruntime_ns: i64,
    /// EEVDF: when its request for a slice is due, in virtual time.
    deadline_ns: i64,
    /// EEVDF: how much time it was owed when it left its queue (`vlag`).
    lag_ns: i64,
    /// EEVDF: it sleeps, and is on its queue until it has paid for what it ran too long
    /// (`sched_delayed`).
    is_delayed: bool,
    /// When it last had a CPU (`exec_start`).
    ran_at: Nanos,
}

#[derive(Clone, Debug, Default)]
struct RunQueue {
    /// The process that runs (`curr`).
    current: Option<usize>,
    /// Processes that wait for the CPU.
    runnable: Vec<usize>,
    /// EEVDF: those that sleep and still owe time.
    delayed: Vec<usize>,
    /// The current one's virtual runtime when it was picked (`prev_sum_exec_runtime`).
    picked_vruntime_ns: i64,
    /// EEVDF: the current one has not used up the slice that it was picked for
    /// (`protect_slice`).
    is_protected: bool,
    /// Another has its turn as soon as the current one can be stopped (`need_resched`).
    needs_resched: bool,
    /// CFS: no process on this queue has a lesser virtual runtime; it only grows. EEVDF:
    /// where the queue's virtual time was when it became empty.
    min_vruntime_ns: i64,
    /// When the next tick comes that finds a process here.
    next_tick_ns: u64,
    balancing: Balancing,
}

/// The run queues of all CPUs.
#[derive(Debug)]
pub(crate) struct FairClass {
    scheduler: CpuScheduler,
    queues: Vec<RunQueue>,
    /// By number of the process.
    tasks: Vec<Task>,
    topology: Topology,
    /// A process may run on several CPUs.
    any_migrates: bool,
    /// When ticks come, which all CPUs have at the same time (`skew_tick=0`).
    tick_phase_ns: u64,
    /// By how much the kernel lengthens slices on this many CPUs
    /// (`get_update_sysctl_factor`).
    scale: u64,
}

/// Keeps the tick's phase apart from what else is drawn from a run's seed.
const PHASE_STREAM: u64 = 0xbb67_ae85_84ca_a73b;

impl FairClass {
    /// Empty run queues of this many CPUs. A run begins somewhere between two ticks, and each
    /// CPU balanced last at another time.
    pub(crate) fn new(cpus: u32, scheduler: CpuScheduler, seed: u64) -> FairClass {
        let mut phases = SplitMix64::seed_from_u64(seed ^ PHASE_STREAM);
        let tick_phase_ns = phases.next_u64() % TICK_NS;
        let queue = |_| RunQueue {
            balancing: Balancing::new(cpus, phases.next_u64()),
            ..RunQueue::default()
        };
        FairClass {
            scheduler,
            queues: (0..cpus).map(queue).collect(),
            tasks: Vec::new(),
            topology: Topology::of_cores(cpus),
            any_migrates: false,
            tick_phase_ns,
            scale: 1 + u64::from(cpus.clamp(1, 8).ilog2()),
        }
    }

    /// The same on CPUs in these cores.
    pub(crate) fn with_topology(self, topology: Topology) -> FairClass {
        FairClass { topology, ..self }
    }

    /// Adds a process or thread, whose number is the next.
    pub(crate) fn add(&mut self, affinity: Affinity) {
        self.add_weighted(affinity, Weight::NORMAL);
    }

    /// The same with a weight that need not be that of all.
    pub(crate) fn add_weighted(&mut self, affinity: Affinity, weight: Weight) {
        self.any_migrates |= affinity != Affinity::One;
        self.tasks.push(Task {
            affinity,
            weight,
            cpu: 0,
            vruntime_ns: 0,
            deadline_ns: 0,
            lag_ns: 0,
            is_delayed: false,
            ran_at: Nanos::ZERO,
        });
    }

    /// A process has used its CPU for `time`.
    #[inline]
    pub(crate) fn account(&mut self, pid: usize, time: Nanos) {
        let task = &mut self.tasks[pid];
        task.vruntime_ns += task.weight.virtual_ns(time.0);
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

    /// The CPU on which to wake a process: its last one if that is idle, else one of a core
    /// that is idle, else an idle one (`select_idle_sibling`), else its last one again. A
    /// process that is still on its queue wakes there (`ttwu_runnable`).
    #[inline]
    pub(crate) fn select_cpu(&self, pid: usize, last: usize) -> usize {
        let task = &self.tasks[pid];
        let stays = self.queues[last].current.is_none() || task.affinity == Affinity::One;
        match stays || task.is_delayed {
            true => last,
            false => self.find_idle_cpu(pid).unwrap_or(last),
        }
    }

    #[inline(never)]
    fn find_idle_cpu(&self, pid: usize) -> Option<usize> {
        let is_idle = |cpu: usize| self.queues[cpu].current.is_none();
        let is_core_idle = |&cpu: &usize| self.topology.siblings_of(cpu).all(is_idle);
        let all = 0..self.queues.len();
        let idle = || {
            all.clone()
                .filter(|&cpu| is_idle(cpu) && self.tasks[pid].affinity.allows(cpu))
        };
        idle().find(is_core_idle).or_else(|| idle().next())
    }

    /// A process wakes on a CPU. Returns whether it runs at once: where the CPU is
    /// idle, or where it preempts the current process.
    pub(crate) fn enqueue(&mut self, cpu: usize, pid: usize, now: Nanos) -> bool {
        match self.scheduler {
            CpuScheduler::Cfs => self.place_by_cfs(cpu, pid),
            CpuScheduler::Eevdf => self.place_by_eevdf(cpu, pid),
        }
        if self.queues[cpu].current.is_none() {
            self.set_current(cpu, pid);
            return true;
        }
        self.queues[cpu].runnable.push(pid);
        let preempts = match self.scheduler {
            CpuScheduler::Cfs => self.is_preempted_by_cfs(cpu, pid),
            CpuScheduler::Eevdf => self.is_preempted_by_eevdf(cpu, pid),
        };
        if preempts {
            self.stop_current(cpu, now);
            self.start(cpu, pid);
        }
        preempts
    }

    /// The current process sleeps or ends. Returns the next one to run.
    pub(crate) fn dequeue(&mut self, cpu: usize, pid: usize, now: Nanos) -> Option<usize> {
        match self.scheduler {
            CpuScheduler::Cfs => self.leave_by_cfs(cpu, pid),
            CpuScheduler::Eevdf => self.leave_by_eevdf(cpu, pid),
        }
        self.tasks[pid].ran_at = now;
        let queue = &mut self.queues[cpu];
        if queue.current != Some(pid) {
            // It was preempted, and had still to finish what its CPU did for it.
            queue.runnable.retain(|&other| other != pid);
            return None;
        }
        queue.current = None;
        self.pick_next(cpu, now)
    }

    /// Preempts the current process where its slice is over and another has its turn.
    /// Returns that one.
    #[inline]
    pub(crate) fn check_preempt(&mut self, cpu: usize, pid: usize, now: Nanos) -> Option<usize> {
        if now.0 >= self.queues[cpu].next_tick_ns {
            self.tick(cpu, now);
        }
        let queue = &self.queues[cpu];
        if queue.runnable.is_empty() || queue.current != Some(pid) {
            return None;
        }
        let next = match self.scheduler {
            CpuScheduler::Cfs => self.next_by_cfs(cpu, pid, now),
            CpuScheduler::Eevdf => self.next_by_eevdf(cpu, pid),
        }?;
        self.stop_current(cpu, now);
        self.start(cpu, next);
        Some(next)
    }

    /// The first moment since the last tick at which a process can be stopped.
    #[cold]
    fn tick(&mut self, cpu: usize, now: Nanos) {
        let since_ns = (now.0 + self.tick_phase_ns) % TICK_NS;
        self.queues[cpu].next_tick_ns = now.0 + TICK_NS - since_ns;
        if self.any_migrates {
            self.balance(cpu, now);
        }
        if self.scheduler == CpuScheduler::Eevdf {
            self.renew_deadline(cpu);
        }
    }

    /// The current process waits for its CPU from now on.
    fn stop_current(&mut self, cpu: usize, now: Nanos) {
        let queue = &mut self.queues[cpu];
        if let Some(pid) = queue.current.take() {
            queue.runnable.push(pid);
            self.tasks[pid].ran_at = now;
        }
    }

    /// A process that waited begins to run on an idle CPU.
    fn start(&mut self, cpu: usize, pid: usize) {
        self.queues[cpu].runnable.retain(|&other| other != pid);
        self.set_current(cpu, pid);
    }

    fn set_current(&mut self, cpu: usize, pid: usize) {
        let queue = &mut self.queues[cpu];
        queue.current = Some(pid);
        queue.picked_vruntime_ns = self.tasks[pid].vruntime_ns;
        queue.is_protected = true;
        queue.needs_resched = false;
    }

    /// Gives an idle CPU to the next of the processes that wait for it, or else to one that waits
    /// for another CPU.
    fn pick_next(&mut self, cpu: usize, now: Nanos) -> Option<usize> {
        let next = self.pick(cpu).or_else(|| {
            let pulled = self.any_migrates && self.pull(cpu, now);
            pulled.then(|| self.pick(cpu)).flatten()
        })?;
        self.start(cpu, next);
        if self.scheduler == CpuScheduler::Cfs {
            self.advance_by_cfs(cpu, next);
        }
        Some(next)
    }

    /// Returns the next of the processes that wait for the CPU.
    fn pick(&mut self, cpu: usize) -> Option<usize> {
        match self.scheduler {
            CpuScheduler::Cfs => self.pick_by_cfs(cpu),
            CpuScheduler::Eevdf => self.pick_awake_by_eevdf(cpu),
        }
    }

    /// A process that waits for one CPU waits for another from now on.
    fn migrate(&mut self, pid: usize, to: usize) {
        let from = self.tasks[pid].cpu;
        match self.scheduler {
            CpuScheduler::Cfs => self.place_by_cfs(to, pid),
            CpuScheduler::Eevdf => {
                self.leave_by_eevdf(from, pid);
                self.place_with_deadline(to, pid);
            }
        }
        self.queues[from].runnable.retain(|&other| other != pid);
        self.queues[to].runnable.push(pid);
        let is_busy = self.queues[to].current.is_some();
        if is_busy && self.scheduler == CpuScheduler::Eevdf && self.is_preempted_by_eevdf(to, pid) {
            self.queues[to].needs_resched = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Numbering;
    use super::*;

    pub(super) fn fair_class(
        scheduler: CpuScheduler,
        cpus: u32,
        processes: &[Affinity],
    ) -> FairClass {
        let mut fair = FairClass::new(cpus, scheduler, 1);
        // Ticks come at whole multiples of 4 ms.
        fair.tick_phase_ns = 0;
        processes.iter().for_each(|a| fair.add(a.clone()));
        fair
    }

    /// Processes that never sleep run from `from` to `to`, both in ms, on all CPUs. Returns
    /// which process had which CPU at each change, with the time in us.
    pub(super) fn spin(fair: &mut FairClass, (from, to): (u64, u64)) -> Vec<(u64, usize, usize)> {
        let mut turns = Vec::new();
        for us in (from * 1000 + 10..=to * 1000).step_by(10) {
            for cpu in 0..fair.queues.len() {
                let running = fair.current(cpu).expect("somebody runs");
                fair.account(running, Nanos::from_micros(10));
                if let Some(next) = fair.check_preempt(cpu, running, Nanos::from_micros(us)) {
                    turns.push((us, cpu, next));
                }
            }
        }
        turns
    }

    const BOTH: [CpuScheduler; 2] = [CpuScheduler::Cfs, CpuScheduler::Eevdf];
    const START: Nanos = Nanos::ZERO;

    #[test]
    fn who_was_preempted_at_work_takes_nothing_from_the_next() {
        for scheduler in BOTH {
            let mut fair = fair_class(scheduler, 1, &[Affinity::One, Affinity::One]);
            assert!(fair.enqueue(0, 0, START));
            let now = Nanos::from_millis(40);
            fair.account(0, now);
            assert!(fair.enqueue(0, 1, now), "the first has had enough");
            assert_eq!(fair.check_preempt(0, 0, Nanos::from_millis(45)), None);
            assert!(fair.is_current(0, 1));
            assert_eq!(fair.dequeue(0, 1, Nanos::from_millis(46)), Some(0));
            assert_eq!(fair.dequeue(0, 0, Nanos::from_millis(47)), None);
        }
    }

    #[test]
    fn a_floating_thread_runs_where_there_is_room() {
        for scheduler in BOTH {
            let floating = [Affinity::One, Affinity::One, Affinity::All];
            let mut fair = fair_class(scheduler, 2, &floating);
            assert!(fair.enqueue(0, 0, START));
            assert_eq!(fair.select_cpu(2, 0), 1);
            assert!(fair.enqueue(1, 1, START));
            let at = fair.select_cpu(2, 0);
            assert!(!fair.enqueue(at, 2, START), "both CPUs run somebody");
            assert_eq!(at, 0);
            let now = Nanos::from_millis(1);
            assert_eq!(fair.dequeue(1, 1, now), Some(2), "the idle one takes it");
            assert_eq!(fair.cpu_of_current(2), Some(1));
        }
    }

    #[test]
    fn a_core_of_its_own_goes_before_a_busy_ones_second_thread() {
        let topology = Topology {
            cpus: 4,
            sockets: 1,
            threads_per_core: 2,
            numbering: Numbering::CoreByCore,
        };
        let tasks = [Affinity::One, Affinity::All, Affinity::All];
        let mut fair = fair_class(CpuScheduler::Eevdf, 4, &tasks).with_topology(topology);
        assert!(fair.enqueue(0, 0, START));
        assert_eq!(
            fair.select_cpu(1, 0),
            2,
            "CPU 1 is a thread of the busy core"
        );
        assert!(fair.enqueue(2, 1, START));
        assert_eq!(fair.select_cpu(2, 0), 1);
    }

    #[test]
    fn nobody_moves_to_a_cpu_that_is_not_allowed() {
        for scheduler in BOTH {
            let own = Affinity::These(Box::new([0, 1]));
            let mut fair = fair_class(scheduler, 3, &[own.clone(), own.clone(), own]);
            assert!(fair.enqueue(0, 0, START) && fair.enqueue(1, 1, START));
            assert_ne!(fair.select_cpu(2, 0), 2);
            assert!(!fair.enqueue(0, 2, START));
            assert_eq!(fair.pick_next(2, Nanos::from_millis(9)), None);
        }
    }

    /// Two programs that never sleep differ from run to run in where their slices end.
    #[test]
    fn ticks_come_when_the_seed_says() {
        let first_turn = |seed| {
            let mut fair = FairClass::new(1, CpuScheduler::Eevdf, seed);
            (0..2).for_each(|_| fair.add(Affinity::One));
            assert!(fair.enqueue(0, 0, START) && !fair.enqueue(0, 1, START));
            spin(&mut fair, (0, 8))[0]
        };
        assert_eq!(first_turn(1), first_turn(1));
        assert_ne!(first_turn(1), first_turn(2));
    }
}
