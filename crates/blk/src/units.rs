//! The two quantities everything is counted in: time and place.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point or span of time in nanoseconds.
///
/// Nothing below the simulator or the server owns a clock; the caller of a
/// state machine passes the present in as `now`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The start of time.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than anything that happens: "never".
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

    /// `self - earlier`, or zero where `earlier` is in fact later.
    pub const fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self + span`, or [`Nanos::MAX`] where that overflows.
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

/// Ticks a second, as Debian's and Ubuntu's kernels have it.
pub const HZ: i64 = 250;

/// How long a tick is.
pub const JIFFY_NS: u64 = 1_000_000_000 / HZ as u64;

/// The kernel's tick that `now` is in. Schedulers that count in jiffies compare a
/// deadline with the tick, not with the exact time, and what they decide follows
/// from that.
pub fn jiffies(now: Nanos) -> i64 {
    (now.0 / JIFFY_NS) as i64
}

/// When a tick starts.
pub fn jiffy_start(tick: i64) -> Nanos {
    Nanos((tick.max(0) as u64).saturating_mul(JIFFY_NS))
}

/// `msecs_to_jiffies`: rounded up.
pub fn msecs_to_jiffies(ms: i64) -> i64 {
    (ms.max(0) as u64)
        .saturating_mul(1_000_000)
        .div_ceil(JIFFY_NS) as i64
}

/// Bytes in a sector: the block layer always counts in 512, whatever the
/// drive's own block size is.
pub const SECTOR_SIZE: u64 = 512;

/// Sectors in a page of memory.
pub const SECTORS_PER_PAGE: u32 = 8;

/// A place on a drive, in sectors of 512 bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

impl Sector {
    /// The sector that holds byte `offset`.
    pub const fn from_bytes(offset: u64) -> Sector {
        Sector(offset / SECTOR_SIZE)
    }

    /// The byte at which this sector starts.
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
