//! The machine's CPUs: what they spend time on, what that costs, and which process
//! runs.

mod clock;
mod cost;
mod fair;
mod history;
mod lock;
mod task_log;
mod topology;

pub use clock::Ondemand;
pub(crate) use cost::CostTable;
pub use fair::CpuScheduler;
pub(crate) use fair::{Affinity, FairClass, Weight};
pub(crate) use lock::SchedulerLock;
pub use topology::{Numbering, Topology};

use blklab_blk::Nanos;
use blklab_stats::{CpuSlice, CpuTimes, Timeline};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use clock::Clock;
use history::CpuHistory;
use task_log::TaskLog;

/// What CPU time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The program.
    User,
    /// The kernel on its behalf.
    System,
    /// Interrupts.
    Interrupt,
    /// What they leave to softirqs.
    SoftInterrupt,
}

impl Mode {
    /// The part of a CPU's time that it counts in.
    #[inline]
    fn part_of(self, times: &mut CpuTimes) -> &mut u64 {
        match self {
            Mode::User => &mut times.user_ns,
            Mode::System => &mut times.system_ns,
            Mode::Interrupt => &mut times.irq_ns,
            Mode::SoftInterrupt => &mut times.softirq_ns,
        }
    }
}

/// How much slower a CPU is that has been idle: caches and branch predictors
/// have gone cold, and cores that idle run at a low frequency at first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coldness {
    /// How much longer work takes after a long time of idling, in hundredths.
    pub(crate) percent: u64,
    /// After idling for this long it is half of that, and after working for as long
    /// half of what it was. Zero for a CPU that does not grow cold.
    pub(crate) half: Nanos,
    /// How much longer work takes while all other CPUs work too, in hundredths.
    pub(crate) crowded_percent: u64,
    /// With this many other CPUs at work it is half of the most that it comes to. Zero where it
    /// grows in proportion to them.
    pub(crate) crowded_half: u32,
    /// How much longer work takes while the core's other threads work all the time, in
    /// hundredths.
    pub(crate) sibling_percent: u64,
    /// Up to how much longer or shorter work takes by chance, in hundredths.
    pub(crate) jitter_percent: u64,
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    free_at: Nanos,
    /// When it last had something to do after having had nothing.
    busy_from: Nanos,
    /// How long it had been idle then.
    idled: Nanos,
    /// The handler of that drive's interrupts runs until then, and handles what comes
    /// from it meanwhile too.
    irq_until: (usize, Nanos),
    /// How much of the last [`LOAD_LOOKS_BACK`] it worked, 0 to 1, when it became free.
    load: f64,
    /// Processes of this CPU that wait for I/O.
    waiting: u32,
    idle_since: Nanos,
    booked: CpuTimes,
}

impl Cpu {
    /// How cold it is at `start`, between zero and one, from its last time of idling.
    #[inline]
    fn cold(&self, start: Nanos, half: Nanos) -> f64 {
        let (idled, worked) = match start > self.free_at {
            true => (start - self.free_at, Nanos::ZERO),
            false => (self.idled, start.saturating_sub(self.busy_from)),
        };
        let (idled, worked, half) = (idled.0 as f64, worked.0 as f64, half.0 as f64);
        idled / (idled + half) * half / (half + worked)
    }

    /// How much it works at `now`.
    #[inline]
    fn load_at(&self, now: Nanos) -> f64 {
        let window = LOAD_LOOKS_BACK.0 as f64;
        self.load * window / (window + now.saturating_sub(self.free_at).0 as f64)
    }

    /// Counts work from `start` on.
    #[inline]
    fn count_load(&mut self, start: Nanos, work: Nanos) {
        let (window, work) = (LOAD_LOOKS_BACK.0 as f64, work.0 as f64);
        self.load = (self.load_at(start) * window + work) / (window + work);
    }

    /// Books the time in which it did nothing before `until`.
    #[inline]
    fn book_gap(&mut self, cpu: usize, until: Nanos, history: &mut CpuHistory) {
        let from = self.idle_since.max(self.free_at);
        let gap_ns = until.saturating_sub(from).0;
        if self.waiting == 0 {
            self.booked.idle_ns += gap_ns;
        } else if gap_ns > 0 {
            self.booked.iowait_ns += gap_ns;
            history.book(cpu, from, until, |t: &mut CpuTimes| &mut t.iowait_ns);
        }
    }
}

/// How long a CPU's load remembers, about.
const LOAD_LOOKS_BACK: Nanos = Nanos::from_micros(50);

/// A CPU that worked within this time is thought to go on working.
const CROWD_LOOKS_BACK: Nanos = Nanos::from_micros(20);
/// Working CPUs are counted once in this many times, as counting takes its time.
const CROWD_COUNT_EVERY: u32 = 64;

/// CPUs that work beside another: they share its last level of cache, its memory and
/// its clock.
#[derive(Clone, Copy, Debug, Default)]
struct Crowd {
    others: usize,
    counted_ago: u32,
}

/// How much slower a CPU works that was idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slowdown {
    /// How much longer work takes on a wholly cold CPU, in hundredths.
    percent: u64,
    /// How cold it is, 0 to 1.
    cold: f64,
    /// After so much work it is half of that, in ns.
    half_ns: f64,
    /// How much longer it takes for others' sake and by chance, in hundredths.
    more_percent: f64,
    /// How much longer all that takes at the clock that CPUs have, in hundredths.
    clock_percent: f64,
}

impl Slowdown {
    /// How long what takes `cost` on a warm CPU takes.
    #[inline]
    pub(crate) fn of(self, cost: Nanos) -> Nanos {
        let is_slowed = self.cold != 0.0 || self.more_percent != 0.0 || self.clock_percent != 0.0;
        if !is_slowed || cost == Nanos::ZERO {
            return cost;
        }
        let cost_ns = cost.0 as f64;
        let cold_ns = self.cold_part_ns(cost_ns) * self.percent as f64 / 100.0 * self.cold;
        let more_ns = cost_ns * self.more_percent / 100.0;
        let more_ns = cold_ns + more_ns;
        let clock_ns = (cost_ns + more_ns) * self.clock_percent / 100.0;
        Nanos(cost.0.saturating_add_signed((more_ns + clock_ns) as i64))
    }

    /// How much of a step is as slow as its beginning. Steps of I/O are, all of them;
    /// one that lasts for longer than coldness does, as a program's own computing,
    /// warms its CPU as it goes on.
    #[inline]
    fn cold_part_ns(&self, cost_ns: f64) -> f64 {
        match self.half_ns > 0.0 && cost_ns > self.half_ns {
            true => self.half_ns * (1.0 + (cost_ns / self.half_ns).ln()),
            false => cost_ns,
        }
    }
}

/// Keeps the numbers that CPUs draw apart from those that a drive draws from the run's
/// seed.
const JITTER_STREAM: u64 = 0x6a09_e667_f3bc_c908;

/// All CPUs. Each does one thing at a time, and its time is booked as mpstat would
/// book it.
#[derive(Debug)]
pub(crate) struct Cpus {
    cpus: Vec<Cpu>,
    coldness: Coldness,
    topology: Topology,
    /// Their clock, where it changes.
    clock: Option<Clock>,
    crowd: Crowd,
    /// What jitter is drawn from.
    jitter: SplitMix64,
    history: CpuHistory,
    /// Who did what when, while that is recorded.
    log: Option<Box<TaskLog>>,
}

impl Cpus {
    /// CPUs of a run with this seed.
    pub(crate) fn new(count: u32, coldness: Coldness, seed: u64) -> Cpus {
        Cpus {
            cpus: vec![Cpu::default(); count as usize],
            coldness,
            topology: Topology::of_cores(count),
            clock: None,
            crowd: Crowd::default(),
            jitter: SplitMix64::seed_from_u64(seed ^ JITTER_STREAM),
            history: CpuHistory::new(count as usize),
            log: None,
        }
    }

    /// The same with a clock that a governor sets.
    pub(crate) fn with_clock(self, governor: Option<Ondemand>) -> Cpus {
        let clock = governor.map(|governor| Clock::new(governor, self.cpus.len()));
        Cpus { clock, ..self }
    }

    /// The same in these cores and sockets.
    pub(crate) fn with_topology(self, topology: Topology) -> Cpus {
        Cpus { topology, ..self }
    }

    /// How long what takes `cost` at the highest clock takes at the one that CPUs have.
    #[inline]
    pub(crate) fn at_clock(&self, cost: Nanos) -> Nanos {
        match &self.clock {
            None => cost,
            Some(clock) => cost + Nanos((cost.0 as f64 * clock.more_percent() / 100.0) as u64),
        }
    }

    /// When the CPU is free.
    #[inline]
    pub(crate) fn free_at(&self, cpu: usize) -> Nanos {
        self.cpus[cpu].free_at
    }

    /// How much longer than on a warm CPU work takes on this one as soon as it is
    /// free.
    #[inline]
    pub(crate) fn slowdown(&mut self, cpu: usize, now: Nanos) -> Slowdown {
        let Coldness { percent, half, .. } = self.coldness;
        let more_percent =
            self.crowded_percent(now) + self.sibling_percent(cpu, now) + self.jitter_percent();
        let mut slowdown = Slowdown {
            percent,
            cold: 0.0,
            half_ns: half.0 as f64,
            more_percent,
            clock_percent: self.clock.as_ref().map_or(0.0, Clock::more_percent),
        };
        if percent > 0 && half > Nanos::ZERO {
            let c = &self.cpus[cpu];
            slowdown.cold = c.cold(c.free_at.max(now), half);
        }
        slowdown
    }

    /// Whether the threads of a core slow each other down.
    #[inline]
    fn has_siblings(&self) -> bool {
        self.coldness.sibling_percent > 0 && self.topology.threads_per_core > 1
    }

    /// How much longer work takes for the other threads of the core, in hundredths.
    #[inline]
    fn sibling_percent(&self, cpu: usize, now: Nanos) -> f64 {
        if !self.has_siblings() {
            return 0.0;
        }
        let siblings = self.topology.siblings_of(cpu);
        let loads = siblings
            .map(|sibling| self.cpus[sibling].load_at(now))
            .sum::<f64>();
        self.coldness.sibling_percent as f64 * loads
    }

    /// How much longer work takes by chance, in hundredths.
    #[inline]
    fn jitter_percent(&mut self) -> f64 {
        let most = self.coldness.jitter_percent;
        if most == 0 {
            return 0.0;
        }
        let share = (self.jitter.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        most as f64 * (2.0 * share - 1.0)
    }

    /// How much longer work takes for those that work beside it, in hundredths.
    #[inline]
    fn crowded_percent(&mut self, now: Nanos) -> f64 {
        let most = self.coldness.crowded_percent;
        if most == 0 || self.cpus.len() == 1 {
            return 0.0;
        }
        if self.crowd.counted_ago == 0 {
            let works = |c: &&Cpu| c.free_at + CROWD_LOOKS_BACK > now;
            self.crowd.others = self.cpus.iter().filter(works).count().saturating_sub(1);
        }
        self.crowd.counted_ago = (self.crowd.counted_ago + 1) % CROWD_COUNT_EVERY;
        let others = self.crowd.others as f64;
        let all = match self.coldness.crowded_half {
            0 => (self.cpus.len() - 1) as f64,
            half => others + f64::from(half),
        };
        most as f64 * others / all
    }

    /// Runs something for `cost` as soon as the CPU is free; when it is done.
    pub(crate) fn run(&mut self, cpu: usize, now: Nanos, cost: Nanos, mode: Mode) -> Nanos {
        if let Some(clock) = &mut self.clock {
            clock.worked(cpu, now, cost);
        }
        let has_siblings = self.has_siblings();
        let c = &mut self.cpus[cpu];
        let start = c.free_at.max(now);
        if has_siblings {
            c.count_load(start, cost);
        }
        c.book_gap(cpu, start, &mut self.history);
        if start > c.free_at {
            c.idled = start - c.free_at;
            c.busy_from = start;
        }
        let end = start + cost;
        *mode.part_of(&mut c.booked) += cost.0;
        self.history.book(cpu, start, end, |t| mode.part_of(t));
        c.free_at = end;
        c.idle_since = end;
        if let Some(log) = &mut self.log {
            log.ran(cpu, mode, start, end);
        }
        end
    }

    /// Runs the kernel for `cost` as soon as the CPU is free, `waited` of it to wait for a
    /// scheduler's lock; when it is done.
    fn run_under_lock(&mut self, cpu: usize, now: Nanos, (cost, waited): (Nanos, Nanos)) -> Nanos {
        let end = self.run(cpu, now, cost, Mode::System);
        if let Some(log) = &mut self.log
            && cost > Nanos::ZERO
        {
            log.waited_for_lock(waited);
        }
        end
    }

    /// An interrupt of a drive comes in on a CPU. Where its handler still runs, what it
    /// brings is handled without another entry: each drive has its own vector. `mode` is where the work is
    /// done: in the handler itself or in a softirq after it.
    pub(crate) fn interrupt(
        &mut self,
        cpu: usize,
        now: Nanos,
        (drive, entry): (usize, Nanos),
        work: (Nanos, Mode),
    ) -> Nanos {
        let (handled, until) = self.cpus[cpu].irq_until;
        let entered = handled == drive && until > now;
        let entry = if entered { Nanos::ZERO } else { entry };
        let (work, mode) = work;
        let end = match mode {
            Mode::Interrupt => self.run(cpu, now, entry + work, mode),
            _ => {
                self.run(cpu, now, entry, Mode::Interrupt);
                self.run(cpu, now, work, mode)
            }
        };
        self.cpus[cpu].irq_until = (drive, end);
        end
    }

    /// A process of this CPU begins (or ends, with -1) to wait for I/O.
    pub(crate) fn count_io_wait(&mut self, cpu: usize, now: Nanos, change: i32) {
        let c = &mut self.cpus[cpu];
        c.book_gap(cpu, now, &mut self.history);
        c.idle_since = c.idle_since.max(now);
        c.waiting = c.waiting.wrapping_add_signed(change);
    }

    /// Starts booking afresh, at the end of a ramp.
    pub(crate) fn reset(&mut self, now: Nanos) {
        for (cpu, c) in self.cpus.iter_mut().enumerate() {
            c.book_gap(cpu, now, &mut self.history);
            c.booked = CpuTimes::default();
            c.idle_since = c.idle_since.max(now);
        }
    }

    /// What each CPU's time went to, up to `now`.
    pub(crate) fn stats(&self, now: Nanos) -> Vec<CpuTimes> {
        let up_to_now = |c: &Cpu| {
            let gap = now.saturating_sub(c.idle_since.max(c.free_at)).0;
            let mut booked = c.booked;
            match c.waiting {
                0 => booked.idle_ns += gap,
                _ => booked.iowait_ns += gap,
            }
            booked
        };
        self.cpus.iter().map(up_to_now).collect()
    }

    /// What each CPU's time went to slice by slice, the ramp included.
    pub(crate) fn slices(&self, now: Nanos) -> Vec<CpuSlice> {
        let mut history = self.history.clone();
        for (cpu, c) in self.cpus.iter().enumerate() {
            c.clone().book_gap(cpu, now, &mut history);
        }
        history.slices(now)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// Starts or stops recording what CPUs do.
    pub(crate) fn record(&mut self, on: bool) {
        self.log = on.then(Box::default);
    }

    /// Appends what was recorded since the last time to a timeline.
    pub(crate) fn take_log(&mut self, out: &mut Timeline) {
        if let Some(log) = &mut self.log {
            log.take(out);
        }
    }

    /// The log of tasks, where one is kept.
    #[inline]
    pub(crate) fn log(&mut self) -> Option<&mut TaskLog> {
        self.log.as_deref_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that computes for milliseconds is slow at first, not for all of it.
    #[test]
    fn a_long_step_warms_its_cpu() {
        let slowdown = Slowdown {
            percent: 200,
            cold: 1.0,
            half_ns: 40_000.0,
            more_percent: 0.0,
            clock_percent: 0.0,
        };
        let took = |us| slowdown.of(Nanos::from_micros(us)).0 / 1000;
        assert_eq!((took(10), took(40)), (30, 120));
        assert!((2_300..2_500).contains(&took(2_000)), "{}", took(2_000));
    }

    /// Chance and coldness are shares of what a step takes at the clock that there is.
    #[test]
    fn a_step_takes_longer_at_a_low_clock() {
        let slowdown = Slowdown {
            percent: 0,
            cold: 0.0,
            half_ns: 0.0,
            more_percent: 10.0,
            clock_percent: 150.0,
        };
        assert_eq!(slowdown.of(Nanos(100)), Nanos(275));
    }

    #[test]
    fn all_time_is_booked_once() {
        let mut cpus = Cpus::new(1, Coldness::default(), 1);
        let ns = Nanos;
        assert_eq!(cpus.run(0, ns(100), ns(50), Mode::User), ns(150));
        cpus.count_io_wait(0, ns(150), 1);
        assert_eq!(
            cpus.interrupt(0, ns(400), (0, ns(30)), (ns(20), Mode::Interrupt)),
            ns(450)
        );
        // The second comes while the handler runs: no second entry.
        assert_eq!(
            cpus.interrupt(0, ns(420), (0, ns(30)), (ns(20), Mode::SoftInterrupt)),
            ns(470)
        );
        cpus.count_io_wait(0, ns(470), -1);
        assert_eq!(cpus.run(0, ns(470), ns(30), Mode::System), ns(500));
        let booked = cpus.stats(ns(600))[0];
        let want = CpuTimes {
            user_ns: 50,
            system_ns: 30,
            irq_ns: 50,
            softirq_ns: 20,
            iowait_ns: 250,
            idle_ns: 200,
            ..CpuTimes::default()
        };
        assert_eq!(booked, want);
    }

    #[test]
    fn each_drive_has_its_own_interrupt() {
        let mut cpus = Cpus::new(1, Coldness::default(), 1);
        let ns = Nanos;
        let mut interrupt = |at, drive| {
            let work = (ns(20), Mode::Interrupt);
            cpus.interrupt(0, ns(at), (drive, ns(30)), work)
        };
        assert_eq!(interrupt(100, 0), ns(150));
        assert_eq!(interrupt(120, 0), ns(170), "its handler is there");
        assert_eq!(interrupt(130, 1), ns(220), "another's is not");
    }

    #[test]
    fn work_takes_sometimes_more_and_sometimes_less() {
        let coldness = Coldness {
            jitter_percent: 30,
            ..Coldness::default()
        };
        let took = |seed| -> Vec<u64> {
            let mut cpus = Cpus::new(1, coldness, seed);
            (0..1000)
                .map(|_| cpus.slowdown(0, Nanos(0)).of(Nanos(1000)).0)
                .collect()
        };
        assert_eq!(took(1), took(1));
        assert_ne!(took(1), took(2), "each repeat has its own");
        let took = took(1);
        assert!(took.iter().all(|ns| (700..=1300).contains(ns)));
        let mean = took.iter().sum::<u64>() / 1000;
        assert!((985..1015).contains(&mean), "{mean}");
        assert!(took.iter().any(|&ns| ns < 750) && took.iter().any(|&ns| ns > 1250));
    }

    #[test]
    fn who_works_beside_others_is_slower() {
        let coldness = Coldness {
            crowded_percent: 60,
            ..Coldness::default()
        };
        let (ns, us) = (Nanos, Nanos::from_micros);
        let mut cpus = Cpus::new(4, coldness, 1);
        assert_eq!(cpus.slowdown(0, us(100)).of(ns(100)), ns(100));
        let mut cpus = Cpus::new(4, coldness, 1);
        for cpu in 0..3 {
            cpus.run(cpu, us(90), us(15), Mode::User);
        }
        assert_eq!(cpus.slowdown(0, us(100)).of(ns(100)), ns(140));
        // Two others are as many as make it half of the most.
        cpus.coldness.crowded_half = 2;
        assert_eq!(cpus.slowdown(0, us(100)).of(ns(100)), ns(130));
    }

    #[test]
    fn a_thread_is_slower_the_busier_its_core_is() {
        let coldness = Coldness {
            sibling_percent: 60,
            ..Coldness::default()
        };
        let topology = Topology {
            cpus: 4,
            sockets: 1,
            threads_per_core: 2,
            numbering: Numbering::CoresFirst,
        };
        let took = |worker: usize, work_us: u64| {
            let mut cpus = Cpus::new(4, coldness, 1).with_topology(topology);
            let us = Nanos::from_micros;
            (0..1000).for_each(|n| _ = cpus.run(worker, us(n * 10), us(work_us), Mode::User));
            cpus.slowdown(0, us(10_000)).of(Nanos(10_000)).0
        };
        assert_eq!([took(1, 10), took(3, 10)], [10_000; 2], "another core");
        assert!((15_900..=16_000).contains(&took(2, 10)), "{}", took(2, 10));
        // A sibling that works a fifth of the time takes a fifth of that.
        assert!((11_000..11_500).contains(&took(2, 2)), "{}", took(2, 2));
        assert_eq!(took(2, 0), 10_000);
    }

    #[test]
    fn a_cpu_that_idled_is_slower_until_it_has_worked_as_long() {
        let us = Nanos::from_micros;
        let coldness = Coldness {
            percent: 200,
            half: us(30),
            ..Coldness::default()
        };
        let mut cpus = Cpus::new(1, coldness, 1);
        assert_eq!(cpus.run(0, us(0), us(10), Mode::User), us(10));
        // It goes on without idling, and then idles for 30 us.
        assert_eq!(cpus.slowdown(0, us(5)).of(us(10)), us(10));
        assert_eq!(cpus.slowdown(0, us(40)).of(us(10)), us(20));
        assert_eq!(cpus.run(0, us(40), us(30), Mode::User), us(70));
        assert_eq!(cpus.slowdown(0, us(50)).of(us(10)), us(15));
        let mut warm = Cpus::new(1, Coldness::default(), 1);
        assert_eq!(warm.slowdown(0, us(1000)).of(us(10)), us(10));
    }
}
