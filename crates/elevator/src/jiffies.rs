//! The kernel's tick. Schedulers that count in jiffies compare a deadline with
//! the tick the present is in, not with the exact time, and what they decide
//! follows from that.

use blklab_blk::Nanos;

/// Ticks a second, as Debian's and Ubuntu's kernels have it.
pub const HZ: i64 = 250;

const JIFFY_NS: u64 = 1_000_000_000 / HZ as u64;

/// The tick that `now` is in.
pub fn jiffies(now: Nanos) -> i64 {
    (now.0 / JIFFY_NS) as i64
}

/// When a tick starts.
pub fn start_of(tick: i64) -> Nanos {
    Nanos((tick.max(0) as u64).saturating_mul(JIFFY_NS))
}

/// `msecs_to_jiffies`: rounded up.
pub fn msecs_to_jiffies(ms: i64) -> i64 {
    (ms.max(0) as u64)
        .saturating_mul(1_000_000)
        .div_ceil(JIFFY_NS) as i64
}
