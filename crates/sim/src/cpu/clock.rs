//! The clock of CPUs under Linux' governor `ondemand` (`drivers/cpufreq/cpufreq_ondemand.c`,
//! `cpufreq_governor.c`): it looks from time to time how much of the time the busiest CPU had
//! work for, and sets one clock for all.

use blklab_blk::Nanos;
use blklab_description::{keys, whole};

const MAX_MHZ: u32 = 100_000;

keys! {
    /// How Linux' governor `ondemand` sets the clock that all CPUs share. Waiting for I/O is
    /// idling to it (`io_is_busy` of 0). `[costs]` are those at `max_mhz`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Ondemand(table) {
        /// The lowest clock, where a run begins.
        pub min_mhz: u32 = whole(1..=MAX_MHZ);
        /// The highest.
        pub max_mhz: u32 = whole(min_mhz..=MAX_MHZ)
            .documented("at least `min_mhz`");
        /// From one clock to the next.
        pub step_mhz: u32 = whole(1..=MAX_MHZ);
        /// Above this load of the busiest CPU the clock is the highest; below it it is in
        /// proportion to the load.
        pub up_threshold: u32 = whole(1..=100);
        /// How often it looks.
        pub sampling_rate_us: u64 = whole(1..=60_000_000);
        /// How many times as seldom it looks at the highest clock.
        pub sampling_down_factor: u32 = whole(1..=100_000);
        /// How much of a step waits for memory at the highest clock, which does not get
        /// slower with the clock, in hundredths.
        pub memory_percent: u32 = whole(0..=100).or(0);
    }
}

impl Ondemand {
    /// The clock nearest to `mhz` that there is, the lower of two that are as near
    /// (`CPUFREQ_RELATION_C`).
    fn nearest(&self, mhz: u32) -> u32 {
        let below = self.min_mhz + (mhz - self.min_mhz) / self.step_mhz * self.step_mhz;
        let above = (below + self.step_mhz).min(self.max_mhz);
        match above - mhz < mhz - below {
            true => above,
            false => below,
        }
    }
}

/// What the governor knows of a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    busy: Nanos,
    busy_before: Nanos,
    /// The load that it found last, unless that has stood in for another since.
    load_before: u64,
}

/// The clock and who sets it.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    governor: Ondemand,
    mhz: u32,
    /// How many times as seldom it looks now.
    rate_mult: u32,
    looked: Nanos,
    cpus: Vec<Watched>,
}

impl Clock {
    pub(super) fn new(governor: Ondemand, cpus: usize) -> Clock {
        Clock {
            governor,
            mhz: governor.min_mhz,
            rate_mult: 1,
            looked: Nanos::ZERO,
            cpus: vec![Watched::default(); cpus],
        }
    }

    /// How much longer a step takes than at the highest clock, in hundredths.
    #[inline]
    pub(super) fn more_percent(&self) -> f64 {
        let Ondemand { max_mhz, .. } = self.governor;
        let scales = f64::from(100 - self.governor.memory_percent);
        scales * (f64::from(max_mhz) / f64::from(self.mhz) - 1.0)
    }

    /// A CPU works for so long. The governor looks where it is time for that: it is called
    /// when something happens on a CPU.
    #[inline]
    pub(super) fn worked(&mut self, cpu: usize, now: Nanos, time: Nanos) {
        if now >= self.looked + self.interval() {
            self.look(now);
        }
        self.cpus[cpu].busy += time;
    }

    fn interval(&self) -> Nanos {
        Nanos::from_micros(self.governor.sampling_rate_us * u64::from(self.rate_mult))
    }

    #[cold]
    fn look(&mut self, now: Nanos) {
        let load = self.load(now);
        self.looked = now;
        let Ondemand {
            min_mhz, max_mhz, ..
        } = self.governor;
        if load > u64::from(self.governor.up_threshold) {
            if self.mhz < max_mhz {
                self.rate_mult = self.governor.sampling_down_factor;
            }
            self.mhz = max_mhz;
            return;
        }
        self.rate_mult = 1;
        let wanted = u64::from(min_mhz) + load * u64::from(max_mhz - min_mhz) / 100;
        self.mhz = self.governor.nearest(wanted as u32);
    }

    /// The busiest CPU's load since it last looked, in hundredths. One that slept for more than
    /// two intervals has the load once more that it had before (`dbs_update`).
    fn load(&mut self, now: Nanos) -> u64 {
        let (elapsed, interval) = ((now - self.looked).0, self.interval().0);
        let of_cpu = |cpu: &mut Watched| {
            let busy = (cpu.busy - cpu.busy_before).0.min(elapsed);
            cpu.busy_before = cpu.busy;
            if elapsed - busy > 2 * interval && cpu.load_before > 0 {
                return std::mem::take(&mut cpu.load_before);
            }
            cpu.load_before = busy * 100 / elapsed.max(1);
            cpu.load_before
        };
        self.cpus.iter_mut().map(of_cpu).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PI: Ondemand = Ondemand {
        min_mhz: 600,
        max_mhz: 1500,
        step_mhz: 100,
        up_threshold: 50,
        sampling_rate_us: 100_000,
        sampling_down_factor: 50,
        memory_percent: 0,
    };

    fn ms(ms: u64) -> Nanos {
        Nanos::from_micros(ms * 1000)
    }

    /// A CPU works for this many of every 10 ms; the clock at the end of each interval of 100.
    fn clocks(clock: &mut Clock, from: u64, busy: impl Fn(u64) -> u64) -> Vec<u32> {
        let mut seen = Vec::new();
        for at in (from..from + 1000).step_by(10) {
            clock.worked(0, ms(at), ms(busy(at)));
            if at % 100 == 90 {
                seen.push(clock.mhz);
            }
        }
        seen
    }

    #[test]
    fn below_the_threshold_the_clock_is_in_proportion_to_the_load() {
        let mut clock = Clock::new(PI, 2);
        // 40 % of 900 above 600 is 960, and the nearest is 1000.
        assert_eq!(clocks(&mut clock, 0, |_| 4)[..3], [600, 1000, 1000]);
        assert_eq!(clock.more_percent(), 50.0);
        // A quarter of 900 is between 800 and 900: 825.
        let mut governor = PI;
        governor.memory_percent = 60;
        let mut clock = Clock::new(governor, 2);
        for at in 0..=100 {
            clock.worked(1, ms(at), Nanos::from_micros(250));
        }
        assert_eq!((clock.mhz, clock.more_percent()), (800, 35.0));
    }

    #[test]
    fn above_the_threshold_it_is_the_highest_and_stays_so_for_long() {
        let mut clock = Clock::new(PI, 2);
        let busy = |at| if at < 100 { 6 } else { 0 };
        assert_eq!(clocks(&mut clock, 0, busy)[..3], [600, 1500, 1500]);
        assert_eq!(clock.more_percent(), 0.0);
        for second in 1..5 {
            assert_eq!(clocks(&mut clock, second * 1000, |_| 1)[9], 1500);
        }
        // The 5 s that began at 100 ms had a load below the threshold.
        assert_eq!(clocks(&mut clock, 5000, |_| 1)[..2], [1500, 700]);
    }

    #[test]
    fn who_slept_for_long_has_its_old_load_once() {
        let mut clock = Clock::new(PI, 1);
        assert_eq!(clocks(&mut clock, 0, |_| 4)[9], 1000);
        clock.worked(0, ms(3000), ms(1));
        assert_eq!(clock.mhz, 1000);
        clock.worked(0, ms(6000), ms(1));
        assert_eq!(clock.mhz, 600);
    }

    #[test]
    fn the_nearest_clock_is_one_that_there_is() {
        assert_eq!(
            [600, 649, 650, 651, 1499].map(|mhz| PI.nearest(mhz)),
            [600, 600, 600, 700, 1500]
        );
        let odd = Ondemand {
            step_mhz: 400,
            ..PI
        };
        assert_eq!(
            [1399, 1450, 1451, 1500].map(|mhz| odd.nearest(mhz)),
            [1400, 1400, 1500, 1500]
        );
    }
}
