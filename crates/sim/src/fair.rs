//! Which of a CPU's processes runs: Linux' completely fair scheduler
//! (`kernel/sched/fair.c` of 6.3), for processes of equal weight.
//!
//! A process that never sleeps keeps its CPU for a slice of milliseconds, and
//! whoever shares the CPU with it finds its completions that much later.
//!
//! Where more can run than there are CPUs, those that may run on several move: to
//! an idle one when they wake (`select_idle_sibling`), to one that has become idle
//! (`newidle_balance`), and now and then to one that has fewer to run
//! (`load_balance`). Left out is that the kernel leaves a process alone for half a
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

/// How long a CPU that is at work lets others have more to run than it has: it
/// looks every 16 ms for each CPU (`busy_factor`), and takes somebody over after
/// two looks that brought nothing (`nr_balance_failed`), as one process is more
/// than half of what it has too little.
const BALANCE_NS_PER_CPU: u64 = 3 * 16 * 1_000_000;

#[derive(Clone, Debug, Default)]
struct RunQueue {
    running: Option<usize>,
    /// How long the running one had run when it was picked.
    picked_ns: u64,
    /// Those that could run.
    ready: Vec<usize>,
    /// No process of this CPU that can run has run for less; it only grows.
    floor_ns: u64,
    /// When it last looked at what others have to run.
    balanced_ns: u64,
}

/// The CPUs that a process may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// The one that it is on.
    One,
    /// Any.
    All,
    /// These.
    These(Box<[usize]>),
}

impl Allowed {
    /// Whether somebody who is on another CPU may come to this one.
    fn has(&self, cpu: usize) -> bool {
        match self {
            Allowed::One => false,
            Allowed::All => true,
            Allowed::These(cpus) => cpus.contains(&cpu),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Fair {
    queues: Vec<RunQueue>,
    /// How long each process has run, sleepers being brought up to the others.
    ran_ns: Vec<u64>,
    /// The CPU that each process ran on last.
    last_cpu: Vec<usize>,
    /// The CPUs that each may run on.
    allowed: Vec<Allowed>,
    /// Any of them may run on several.
    any_moves: bool,
    balance_ns: u64,
    latency_ns: u64,
    granularity_ns: u64,
    wakeup_ns: u64,
}

impl Fair {
    /// For processes and threads that may run on these CPUs each.
    pub(crate) fn new(cpus: u32, allowed: Vec<Allowed>) -> Fair {
        let scale = 1 + u64::from(cpus.clamp(1, 8).ilog2());
        Fair {
            queues: vec![RunQueue::default(); cpus as usize],
            ran_ns: vec![0; allowed.len()],
            last_cpu: vec![0; allowed.len()],
            any_moves: allowed.iter().any(|a| *a != Allowed::One),
            allowed,
            balance_ns: BALANCE_NS_PER_CPU * u64::from(cpus),
            latency_ns: LATENCY_NS * scale,
            granularity_ns: GRANULARITY_NS * scale,
            wakeup_ns: WAKEUP_NS * scale,
        }
    }

    /// A process has used its CPU.
    #[inline]
    pub(crate) fn ran(&mut self, pid: usize, time: Nanos) {
        self.ran_ns[pid] += time.0;
    }

    /// Whether the CPU is this process's.
    #[inline]
    pub(crate) fn is_running(&self, cpu: usize, pid: usize) -> bool {
        self.queues[cpu].running == Some(pid)
    }

    /// What a CPU runs.
    #[inline]
    pub(crate) fn running(&self, cpu: usize) -> Option<usize> {
        self.queues[cpu].running
    }

    /// The CPU that runs it, if any does.
    pub(crate) fn runs_on(&self, pid: usize) -> Option<usize> {
        self.queues.iter().position(|q| q.running == Some(pid))
    }

    /// Where somebody should wake: where it ran last if that is idle, else where
    /// it is idle, else where fewest wait.
    #[inline]
    pub(crate) fn place(&self, pid: usize, last: usize) -> usize {
        match self.queues[last].running.is_none() || self.allowed[pid] == Allowed::One {
            true => last,
            false => self.place_elsewhere(pid, last),
        }
    }

    #[inline(never)]
    fn place_elsewhere(&self, pid: usize, last: usize) -> usize {
        let is_idle = |&cpu: &usize| self.queues[cpu].running.is_none();
        let others = (0..self.queues.len()).filter(|&cpu| self.allowed[pid].has(cpu));
        let cpus = || std::iter::once(last).chain(others.clone());
        let least = || cpus().min_by_key(|&cpu| self.queues[cpu].ready.len());
        cpus().find(is_idle).or_else(least).unwrap_or(last)
    }

    /// A process wakes. Returns whether it gets the CPU: where that is free, or
    /// where the running one has run so much more that it has to yield.
    pub(crate) fn wakes(&mut self, cpu: usize, pid: usize) -> bool {
        self.moves(pid, cpu);
        let queue = &mut self.queues[cpu];
        let earliest_ns = queue.floor_ns.saturating_sub(self.latency_ns / 2);
        self.ran_ns[pid] = self.ran_ns[pid].max(earliest_ns);
        if let Some(running) = queue.running {
            let ahead_ns = self.ran_ns[running].saturating_sub(self.ran_ns[pid]);
            if ahead_ns <= self.wakeup_ns {
                queue.ready.push(pid);
                return false;
            }
            queue.ready.push(running);
        }
        queue.running = Some(pid);
        queue.picked_ns = self.ran_ns[pid];
        true
    }

    /// The running process sleeps or ends. Returns who comes next.
    pub(crate) fn sleeps(&mut self, cpu: usize, pid: usize) -> Option<usize> {
        let queue = &mut self.queues[cpu];
        if queue.running != Some(pid) {
            // It was put aside in its last step, which it had still to finish.
            queue.ready.retain(|&ready| ready != pid);
            return None;
        }
        queue.floor_ns = queue.floor_ns.max(self.ran_ns[pid]);
        queue.running = None;
        self.pick(cpu)
    }

    /// At a step's end: where the running process's slice is over and somebody
    /// else can run, that one comes next.
    pub(crate) fn ends_step(&mut self, cpu: usize, pid: usize, now: Nanos) -> Option<usize> {
        if self.any_moves && now.0 >= self.queues[cpu].balanced_ns + self.balance_ns {
            self.balance(cpu, now);
        }
        let queue = &self.queues[cpu];
        if queue.ready.is_empty() || queue.running != Some(pid) {
            return None;
        }
        let sharers = queue.ready.len() as u64 + 1;
        let slice_ns = (self.latency_ns / sharers).max(self.granularity_ns);
        let ran_ns = self.ran_ns[pid] - queue.picked_ns;
        if ran_ns < slice_ns + now.0 % TICK_NS {
            return None;
        }
        let queue = &mut self.queues[cpu];
        queue.ready.push(pid);
        queue.running = None;
        self.pick(cpu)
    }

    /// What a thread has run for counts by the others of its CPU.
    fn moves(&mut self, pid: usize, cpu: usize) {
        let from = std::mem::replace(&mut self.last_cpu[pid], cpu);
        if from != cpu {
            let lag_ns = self.ran_ns[pid].saturating_sub(self.queues[from].floor_ns);
            self.ran_ns[pid] = self.queues[cpu].floor_ns + lag_ns;
        }
    }

    /// A CPU that is at work takes somebody over from one that has more to run.
    #[cold]
    fn balance(&mut self, cpu: usize, now: Nanos) {
        self.queues[cpu].balanced_ns = now.0;
        let own = self.queues[cpu].ready.len();
        if self.queues.iter().any(|queue| queue.ready.len() > own)
            && let Some(from) = self.pull(cpu)
        {
            // That one had enough until now.
            self.queues[from].balanced_ns = now.0;
        }
    }

    /// Takes one that waits for another CPU, where most wait of those that may
    /// run here. Returns from where.
    fn pull(&mut self, cpu: usize) -> Option<usize> {
        let allowed = &self.allowed;
        let moves = |pid: &usize| allowed[*pid].has(cpu);
        let waits = |queue: &RunQueue| queue.ready.iter().position(moves);
        let others = (0..self.queues.len()).filter(|&from| from != cpu);
        let found = others.filter_map(|from| Some((from, waits(&self.queues[from])?)));
        // The first of those with as many.
        let found = found
            .rev()
            .max_by_key(|(from, _)| self.queues[*from].ready.len());
        let (from, at) = found?;
        let pid = self.queues[from].ready.remove(at);
        self.moves(pid, cpu);
        self.queues[cpu].ready.push(pid);
        Some(from)
    }

    /// Gives the CPU to who has run least.
    fn pick(&mut self, cpu: usize) -> Option<usize> {
        if self.queues[cpu].ready.is_empty() && self.any_moves {
            self.pull(cpu);
        }
        let queue = &mut self.queues[cpu];
        let ran_ns = |at: &usize| self.ran_ns[queue.ready[*at]];
        let at = (0..queue.ready.len()).min_by_key(ran_ns)?;
        let pid = queue.ready.remove(at);
        queue.running = Some(pid);
        queue.picked_ns = self.ran_ns[pid];
        queue.floor_ns = queue.floor_ns.max(self.ran_ns[pid]);
        Some(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_never_sleep_take_turns_of_milliseconds() {
        let mut fair = Fair::new(10, vec![Allowed::One; 2]);
        assert!(fair.wakes(0, 0));
        assert!(!fair.wakes(0, 1));
        let (mut now, mut turns) = (Nanos::ZERO, Vec::new());
        for _ in 0..60_000 {
            let running = (0..2).find(|&pid| fair.is_running(0, pid)).unwrap();
            let step = Nanos::from_micros(1);
            now += step;
            fair.ran(running, step);
            if fair.ends_step(0, running, now).is_some() {
                turns.push(now);
            }
        }
        // Half of 24 ms, which is a tick.
        assert_eq!(turns.len(), 5);
        assert_eq!(turns[1] - turns[0], Nanos::from_millis(12));
    }

    #[test]
    fn who_was_put_aside_in_a_step_takes_nothing_from_the_next() {
        let mut fair = Fair::new(1, vec![Allowed::One; 2]);
        assert!(fair.wakes(0, 0));
        fair.ran(0, Nanos::from_millis(40));
        assert!(fair.wakes(0, 1));
        assert_eq!(fair.ends_step(0, 0, Nanos::from_millis(40)), None);
        assert!(fair.is_running(0, 1));
        assert_eq!(fair.sleeps(0, 1), Some(0));
        assert_eq!(fair.sleeps(0, 0), None);
    }

    #[test]
    fn who_slept_comes_before_who_did_not() {
        let mut fair = Fair::new(1, vec![Allowed::One; 2]);
        assert!(fair.wakes(0, 0));
        fair.ran(0, Nanos::from_millis(2));
        assert!(fair.wakes(0, 1), "the first has had enough");
        assert!(fair.is_running(0, 1));
        fair.ran(1, Nanos::from_micros(10));
        assert_eq!(fair.sleeps(0, 1), Some(0));
        // The first has run for more, but a wake-up alone does not show that
        // the second sleeps much: it comes again where it is 1 ms behind.
        assert!(fair.wakes(0, 1));
        fair.ran(1, Nanos::from_millis(2));
        assert_eq!(fair.sleeps(0, 1), Some(0));
        assert!(!fair.wakes(0, 1));
        assert_eq!(fair.sleeps(0, 0), Some(1));
    }

    #[test]
    fn a_floating_thread_runs_where_there_is_room() {
        let mut fair = Fair::new(2, vec![Allowed::One, Allowed::One, Allowed::All]);
        assert!(fair.wakes(0, 0));
        assert_eq!(fair.place(2, 0), 1);
        assert!(fair.wakes(1, 1));
        let at = fair.place(2, 0);
        assert!(!fair.wakes(at, 2), "both CPUs run somebody");
        assert_eq!(at, 0);
        assert_eq!(fair.sleeps(1, 1), Some(2), "the idle one takes it");
        assert_eq!(fair.runs_on(2), Some(1));
    }

    #[test]
    fn who_has_fewer_to_run_takes_one_over() {
        // Three that never sleep, of which two share the first CPU.
        let mut fair = Fair::new(2, vec![Allowed::All; 3]);
        assert!(fair.wakes(0, 0) && fair.wakes(1, 1));
        assert!(!fair.wakes(0, 2));
        let mut moves = 0;
        for step in 1..2_000_000 {
            for cpu in 0..2 {
                let running = fair.running(cpu).unwrap();
                fair.ran(running, Nanos::from_micros(1));
                fair.ends_step(cpu, running, Nanos::from_micros(step));
            }
            let waits = fair.queues.iter().position(|q| !q.ready.is_empty());
            if waits != Some(moves % 2) {
                moves += 1;
            }
        }
        assert!(moves > 5, "moved {moves} times in two seconds");
        let (most, least) = (fair.ran_ns.iter().max(), fair.ran_ns.iter().min());
        assert!(most.unwrap() * 2 < least.unwrap() * 3);
    }

    #[test]
    fn nobody_comes_to_a_cpu_that_is_not_his() {
        let own = Allowed::These(Box::new([0, 1]));
        let mut fair = Fair::new(3, vec![own; 3]);
        assert!(fair.wakes(0, 0) && fair.wakes(1, 1));
        assert_ne!(fair.place(2, 0), 2);
        assert!(!fair.wakes(0, 2));
        assert_eq!(fair.pick(2), None);
    }
}
