//! Write-back: how dirty pages are counted, when they are written, and how those
//! who dirty pages are slowed down to the speed of the drive.
//!
//! The rules are those of Linux 6.12's `mm/page-writeback.c` and
//! `fs/fs-writeback.c`; times are in jiffies, rates in pages a second.

mod bandwidth;
mod throttle;

pub use bandwidth::{Bandwidth, Counted};
pub use throttle::{Dirtier, DirtyState, Pass, Verdict};

/// Jiffies of a second: the timer interrupts of most distributions' kernels.
pub const HZ: u64 = 250;
