//! A process that replays a log of fio's (`read_iolog_get` in fio's `iolog.c`).

use std::sync::Arc;

use blklab_blk::Nanos;
use blklab_workload::fio::{Iolog, IologAction, IologEntry};
use blklab_workload::generate::Io;

use super::plan::{NextAction, Plan};

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
    fn peek(&self) -> Option<(IologEntry, Nanos)> {
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

impl Plan {
    /// The next thing to do of a process that replays a log. fio sleeps until it is due, and reaps
    /// nothing meanwhile.
    pub(super) fn next_in_log(&mut self, now: Nanos) -> NextAction {
        loop {
            if self.is_over(now) {
                return NextAction::PassOver;
            }
            if self.takes_think_due() {
                return NextAction::Think;
            }
            if let Some(file) = self.open_files().close_done() {
                return NextAction::Close(file);
            }
            let Some((entry, due)) = self.log.as_ref().and_then(|log| log.peek()) else {
                self.complete();
                return NextAction::PassOver;
            };
            if due > now {
                return NextAction::Sleep(due.min(self.deadline()));
            }
            if let Some(action) = self.do_entry(now, entry) {
                return action;
            }
        }
    }

    /// Does what an entry says; `None` where that is nothing.
    fn do_entry(&mut self, now: Nanos, entry: IologEntry) -> Option<NextAction> {
        let file = entry.file;
        let is_open = self.open_files().is_open(file);
        // An I/O to a file that no line opens has it opened first.
        let opens = match entry.action {
            IologAction::Add | IologAction::Close => false,
            IologAction::Open | IologAction::Io { .. } | IologAction::Flush(_) => !is_open,
        };
        if opens {
            self.open_files().open(file);
            return Some(NextAction::Open(file));
        }
        match entry.action {
            IologAction::Flush(kind) => return Some(NextAction::Flush(kind, file)),
            IologAction::Open if self.open_files().closes(file) => {
                // It closes first.
                return Some(NextAction::AwaitFile);
            }
            _ => {}
        }
        if let Some(log) = &mut self.log {
            log.advance(now);
        }
        match entry.action {
            IologAction::Close => {
                self.open_files().done(file);
                None
            }
            IologAction::Io {
                direction,
                offset_bytes,
                length_bytes,
            } => {
                self.open_files().issued(file);
                let io = Io {
                    direction,
                    file,
                    offset_bytes,
                    length_bytes,
                };
                Some(NextAction::Io(self.issue(now, &io, false)))
            }
            _ => None,
        }
    }
}
