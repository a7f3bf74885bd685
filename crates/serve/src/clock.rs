//! The real clock, read here and nowhere else.

use std::time::Instant;

use blklab_blk::Nanos;

/// Nanoseconds since the server started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            start: Instant::now(),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }
}
