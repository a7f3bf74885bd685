//! The units of time and place: nanoseconds and sectors.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point or span of time in nanoseconds.
///
/// Only the simulator and the server own a clock; they pass the current time to state machines as
/// `now`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero.
    pub const ZERO: Nanos = Nanos(0);
    /// The latest time, which stands for "never".
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    /// Returns `self - earlier`, or zero if `earlier` is later.
    pub const fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns `self + span`, or [`Nanos::MAX`] if that overflows.
    pub const fn saturating_add(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, span: Nanos) -> Nanos {
        Nanos(self.0 + span.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, span: Nanos) {
        self.0 += span.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0 - earlier.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 10_000 => write!(f, "{ns} ns"),
            ns if ns < 10_000_000 => write!(f, "{:.1} us", ns as f64 / 1e3),
            ns if ns < 10_000_000_000 => write!(f, "{:.1} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.2} s", ns as f64 / 1e9),
        }
    }
}

/// Ticks per second, as in the kernels of Debian and Ubuntu.
pub const HZ: i64 = 250;

/// Length of a tick in nanoseconds.
pub const JIFFY_NS: u64 = 1_000_000_000 / HZ as u64;

/// The kernel's tick at `now`. Schedulers that count in jiffies compare deadlines with the tick,
/// not with the exact time, so their decisions depend on it.
pub fn jiffies(now: Nanos) -> i64 {
    (now.0 / JIFFY_NS) as i64
}

/// The time at which a tick starts.
pub fn jiffy_start(tick: i64) -> Nanos {
    Nanos((tick.max(0) as u64).saturating_mul(JIFFY_NS))
}

/// The tick at which a kernel timer runs that was set `delta` ticks ahead at tick `now`. The timer
/// wheel counts whole ticks and never runs early, so it is at least one tick late, and its slots
/// are coarser the further off they are (`calc_wheel_index`).
pub fn timer_end(now: i64, delta: i64) -> i64 {
    const SLOTS_OF_LEVEL: i64 = 63;
    const LAST_LEVEL: u32 = 8;
    let is_further = |level: &u32| delta >= SLOTS_OF_LEVEL << (3 * level);
    let shift = 3 * (0..LAST_LEVEL).take_while(is_further).count();
    (((now + delta) >> shift) + 1) << shift
}

/// Converts milliseconds to ticks, rounding up (`msecs_to_jiffies`).
pub fn msecs_to_jiffies(ms: i64) -> i64 {
    (ms.max(0) as u64)
        .saturating_mul(1_000_000)
        .div_ceil(JIFFY_NS) as i64
}

/// Bytes in a sector: the block layer always counts in 512 bytes, whatever the drive's own block
/// size.
pub const SECTOR_SIZE: u64 = 512;

/// Sectors in a page of memory.
pub const SECTORS_PER_PAGE: u32 = 8;

/// A position on a drive, in sectors of 512 bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

impl Sector {
    /// The sector that contains the byte `offset`.
    pub const fn from_bytes(offset: u64) -> Sector {
        Sector(offset / SECTOR_SIZE)
    }

    /// The byte offset at which this sector starts.
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_SIZE
    }
}

impl Add<u32> for Sector {
    type Output = Sector;
    fn add(self, sectors: u32) -> Sector {
        Sector(self.0 + sectors as u64)
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Nanos, timer_end};

    #[test]
    fn later_timers_run_in_coarser_slots() {
        assert_eq!(timer_end(1000, 1), 1002);
        assert_eq!(timer_end(1000, 62), 1063);
        assert_eq!(timer_end(1000, 63), 1064);
        assert_eq!(timer_end(1001, 125), 1128);
        assert_eq!(timer_end(1003, 125), 1136);
        assert_eq!(timer_end(1000, 1250), 2304);
        assert_eq!(timer_end(1000, 4032), 5120);
    }

    #[test]
    fn times_are_shown_in_the_unit_that_fits() {
        for (ns, shown) in [
            (9_999, "9999 ns"),
            (10_000, "10.0 us"),
            (9_999_900, "9999.9 us"),
            (10_000_000, "10.0 ms"),
            (10_000_000_000, "10.00 s"),
        ] {
            assert_eq!(alloc::format!("{}", Nanos(ns)), shown);
        }
    }
}
