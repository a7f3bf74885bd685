//! Counters as kernels keep them: a CPU adds to the shared figure in batches, and
//! what is read lags behind.

use super::HZ;

/// A counter with one CPU's share that has not been added yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batched {
    shared: i64,
    pending: i64,
    batch: i64,
}

impl Batched {
    pub(crate) const fn new(batch: i64) -> Batched {
        Batched {
            shared: 0,
            pending: 0,
            batch,
        }
    }

    pub(crate) const fn add(&mut self, more: i64) {
        self.pending += more;
        if self.pending.abs() >= self.batch {
            self.shared += self.pending;
            self.pending = 0;
        }
    }

    /// Everybody sees so much; the rest is the CPU's.
    pub(crate) const fn show(&mut self, shared: u64) {
        self.pending += self.shared - shared.cast_signed();
        self.shared = shared.cast_signed();
    }

    /// What everybody sees.
    pub(crate) fn read(&self) -> u64 {
        self.shared.max(0).cast_unsigned()
    }

    /// What it really is.
    pub(crate) fn sum(&self) -> u64 {
        (self.shared + self.pending).max(0).cast_unsigned()
    }
}

/// Pages that a CPU adds to a device's counters at once (`WB_STAT_BATCH`).
pub(crate) const DEVICE_BATCH: i64 = 8;

/// Pages that a CPU adds to the system's counters at once; more with more memory
/// (`calculate_normal_threshold`).
pub(crate) fn system_batch(memory_pages: u64) -> i64 {
    const PAGES_OF_128_MIB: u64 = (128 << 20) / crate::PAGE_BYTES;
    let units = memory_pages / PAGES_OF_128_MIB;
    let width = i64::from(u64::BITS - units.leading_zeros());
    2 * (1 + width) + 1
}

/// How long writes count in full: each 3 s older ones count half
/// (`VM_COMPLETIONS_PERIOD_LEN`).
const PERIOD: u64 = 3 * HZ;

/// Written pages of all devices, of which each has its share
/// (`lib/flex_proportions.c`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proportions {
    events: Batched,
    period: u64,
    /// When the period ends; none while nothing is written.
    ends: Option<u64>,
}

/// A device's part of [`Proportions`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    events: Batched,
    period: u64,
}

impl Default for Proportions {
    fn default() -> Proportions {
        let mut events = Batched::new(32);
        events.shared = 1;
        Proportions {
            events,
            period: 0,
            ends: None,
        }
    }
}

impl Default for Part {
    fn default() -> Part {
        Part {
            events: Batched::new(DEVICE_BATCH),
            period: 0,
        }
    }
}

impl Proportions {
    /// Ends the periods that are over.
    fn turn(&mut self, now: u64) {
        let Some(ends) = self.ends.filter(|&ends| now >= ends) else {
            return;
        };
        let periods = (now - ends) / PERIOD + 1;
        let events = self.events.sum() as i64;
        if events <= 1 {
            self.ends = None;
            return;
        }
        let left = events.checked_shr(periods.min(63) as u32).unwrap_or(0);
        self.events.add(left - events);
        self.period += periods;
        self.ends = Some(ends + periods * PERIOD);
    }

    /// A device has written a page.
    pub(crate) fn add(&mut self, part: &mut Part, now: u64) {
        self.turn(now);
        part.reflect(self.period);
        part.events.add(1);
        self.events.add(1);
        self.ends.get_or_insert(now + PERIOD);
    }

    /// The device's share as numerator and denominator.
    pub(crate) fn fraction(&mut self, part: &mut Part, now: u64) -> (u64, u64) {
        self.turn(now);
        part.reflect(self.period);
        let (of, all) = (part.events.read(), self.events.read());
        (of, all.max(of).max(1))
    }
}

impl Part {
    fn reflect(&mut self, period: u64) {
        let passed = period - self.period;
        if passed == 0 {
            return;
        }
        let events = match self.events.read() as i64 {
            few @ ..DEVICE_BATCH => few.max(self.events.sum() as i64),
            many => many,
        };
        let left = if passed < 64 { events >> passed } else { 0 };
        self.events.add(left - events);
        self.period = period;
    }
}

#[cfg(test)]
mod tests {
    use super::{Batched, PERIOD, Part, Proportions, system_batch};

    #[test]
    fn what_is_read_lags_behind_by_less_than_a_batch() {
        let mut counter = Batched::new(system_batch(505_354));
        for pages in 1..=100 {
            counter.add(1);
            assert_eq!(counter.read(), pages / 11 * 11);
            assert_eq!(counter.sum(), pages);
        }
    }

    #[test]
    fn a_share_follows_those_who_write_and_ages() {
        let (mut all, mut old, mut new) =
            (Proportions::default(), Part::default(), Part::default());
        for _ in 0..1024 {
            all.add(&mut old, 0);
        }
        let (of, total) = all.fraction(&mut old, 0);
        assert_eq!((of, total), (1024, 1025));
        for _ in 0..1024 {
            all.add(&mut new, PERIOD);
        }
        let percent = |(of, total): (u64, u64)| of * 100 / total;
        assert_eq!(percent(all.fraction(&mut old, PERIOD)), 33);
        assert_eq!(percent(all.fraction(&mut new, PERIOD)), 66);
    }
}
