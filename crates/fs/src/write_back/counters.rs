//! The kernel's per-CPU counters: a CPU adds to the shared value in batches, so that
//! what is read lags behind (`lib/percpu_counter.c`, `mm/vmstat.c`).

use super::HZ;

/// A counter as one CPU has it, which keeps back what it adds until that is a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PercpuCounter {
    shared: i64,
    pending: i64,
    batch: i64,
}

impl PercpuCounter {
    pub(crate) const fn new(batch: i64) -> PercpuCounter {
        PercpuCounter {
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

    /// Sets the shared value; the rest of the sum is what the CPU has not added yet.
    pub(crate) const fn set_shared(&mut self, shared: u64) {
        self.pending += self.shared - shared.cast_signed();
        self.shared = shared.cast_signed();
    }

    /// The shared value (`percpu_counter_read_positive`).
    pub(crate) fn read(&self) -> u64 {
        self.shared.max(0).cast_unsigned()
    }

    /// The exact value (`percpu_counter_sum_positive`).
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

/// After each period of 3 s, earlier writes count half (`VM_COMPLETIONS_PERIOD_LEN`).
const PERIOD: u64 = 3 * HZ;

/// Pages written by all devices, of which each has its proportion
/// (`lib/flex_proportions.c`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proportions {
    events: PercpuCounter,
    period: u64,
    /// When the period ends; `None` while nothing is written.
    ends: Option<u64>,
}

/// A device's proportion of [`Proportions`] (`struct fprop_local_percpu`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceProportion {
    events: PercpuCounter,
    period: u64,
}

impl Default for Proportions {
    fn default() -> Proportions {
        let mut events = PercpuCounter::new(32);
        events.shared = 1;
        Proportions {
            events,
            period: 0,
            ends: None,
        }
    }
}

impl Default for DeviceProportion {
    fn default() -> DeviceProportion {
        DeviceProportion {
            events: PercpuCounter::new(DEVICE_BATCH),
            period: 0,
        }
    }
}

impl Proportions {
    /// Halves the count for each period that is over (`fprop_new_period`).
    fn end_periods(&mut self, now: u64) {
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

    /// A device has written pages.
    pub(crate) fn add(&mut self, device: &mut DeviceProportion, pages: u64, now: u64) {
        self.end_periods(now);
        device.reflect(self.period);
        device.events.add(pages.cast_signed());
        self.events.add(pages.cast_signed());
        self.ends.get_or_insert(now + PERIOD);
    }

    /// The device's proportion as numerator and denominator.
    pub(crate) fn fraction(&mut self, device: &mut DeviceProportion, now: u64) -> (u64, u64) {
        self.end_periods(now);
        device.reflect(self.period);
        let (of, all) = (device.events.read(), self.events.read());
        (of, all.max(of).max(1))
    }
}

impl DeviceProportion {
    /// Halves its count for each period that ended since (`fprop_reflect_period_percpu`).
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
    use super::{DeviceProportion, PERIOD, PercpuCounter, Proportions, system_batch};

    #[test]
    fn what_is_read_lags_behind_by_less_than_a_batch() {
        let mut counter = PercpuCounter::new(system_batch(505_354));
        for pages in 1..=100 {
            counter.add(1);
            assert_eq!(counter.read(), pages / 11 * 11);
            assert_eq!(counter.sum(), pages);
        }
    }

    #[test]
    fn a_share_follows_those_who_write_and_ages() {
        let (mut all, mut old, mut new) = (
            Proportions::default(),
            DeviceProportion::default(),
            DeviceProportion::default(),
        );
        for _ in 0..1024 {
            all.add(&mut old, 1, 0);
        }
        let (of, total) = all.fraction(&mut old, 0);
        assert_eq!((of, total), (1024, 1025));
        for _ in 0..1024 {
            all.add(&mut new, 1, PERIOD);
        }
        let percent = |(of, total): (u64, u64)| of * 100 / total;
        assert_eq!(percent(all.fraction(&mut old, PERIOD)), 33);
        assert_eq!(percent(all.fraction(&mut new, PERIOD)), 66);
    }
}
