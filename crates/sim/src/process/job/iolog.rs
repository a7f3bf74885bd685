//! How far a process is in the log of fio's that it replays (`read_iolog_get` in fio's `iolog.c`).

use std::sync::Arc;

use blklab_blk::Nanos;
use blklab_workload::fio::{Iolog, IologEntry};

/// How far a process is in its log.
pub(super) struct LogCursor {
    log: Arc<Iolog>,
    next: usize,
    /// When it did what came last; [`None`] before the first.
    last: Option<Nanos>,
}

impl LogCursor {
    pub(super) fn new(log: &Arc<Iolog>) -> LogCursor {
        LogCursor {
            log: Arc::clone(log),
            next: 0,
            last: None,
        }
    }

    /// What comes next, and when at the earliest.
    pub(super) fn peek(&self) -> Option<(IologEntry, Nanos)> {
        let entry = *self.log.entries.get(self.next)?;
        let due = |last: Nanos| last.saturating_add(Nanos(entry.delay_ns));
        let after_last = self.last.map_or(Nanos::ZERO, due);
        Some((entry, after_last.max(Nanos(entry.not_before_ns))))
    }

    /// What came next is done now.
    pub(super) fn advance(&mut self, now: Nanos) {
        self.next += 1;
        self.last = Some(now);
    }
}
