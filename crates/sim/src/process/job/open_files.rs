//! When a process opens and closes its files: `td_io_open_file` and `put_file` of fio, and what it
//! does with each file at the end of a pass (`fio_file_fsync`) and of the job
//! (`close_and_free_files`).
//!
//! A drive is open all the time, and its part without a call; what a file of it costs is the flush
//! of `fsync_on_close`.

use blklab_blk::Nanos;
use blklab_workload::fio::Direction;

use super::{FlushFor, JobProcess};
use crate::system::System;

/// How far a process is with the last flush of each file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastFlush {
    file: u32,
    /// The file was opened for it.
    opened: bool,
    synced: bool,
}

impl JobProcess {
    /// Whether there is anything to flush (`should_fsync`).
    fn should_flush(&self) -> bool {
        !self.last_was_sync && self.spec.pattern.does(Direction::Write)
    }

    /// Opens a file that counts as open already.
    pub(super) fn open_file(&mut self, now: Nanos, file: u32, system: &mut System) {
        if self.cached.is_some() {
            self.call_open(now, file as usize, system);
        }
    }

    /// Closes a file that counts as closed already.
    pub(super) fn close_file(&mut self, now: Nanos, file: u32, system: &mut System) {
        let flushes = self.spec.fsync_on_close && self.should_flush();
        if self.cached.is_some() {
            self.call_close(now, (file as usize, flushes), system);
        } else if flushes {
            self.flush(now, (FlushFor::Close, file), system);
        }
    }

    /// Flushes each file for the last time in a pass, and opens for that what is closed; whether
    /// there is something left to do.
    pub(super) fn flush_last(&mut self, now: Nanos, system: &mut System) -> bool {
        let Some(mut next) = self.last_flush else {
            return false;
        };
        let begins = next.file == 0 && !next.opened && !next.synced;
        if next.file as usize >= self.plan.files() || (begins && !self.should_flush()) {
            self.last_flush = None;
            return false;
        }
        let file = next.file;
        if next.synced {
            let closes = next.opened;
            next = LastFlush {
                file: file + 1,
                ..LastFlush::default()
            };
            self.last_flush = Some(next);
            if closes {
                self.plan.open_files().close(file);
                self.close_file(now, file, system);
            }
            return true;
        }
        if !self.plan.open_files().is_open(file) {
            next.opened = true;
            self.last_flush = Some(next);
            self.plan.open_files().open(file);
            self.open_file(now, file, system);
            return true;
        }
        next.synced = true;
        self.last_flush = Some(next);
        self.flush(now, (FlushFor::End, file), system);
        true
    }

    /// Closes the next open file, where all are to be closed; whether there is something to do.
    pub(super) fn close_open(&mut self, now: Nanos, system: &mut System) -> bool {
        if !self.closes_all {
            return false;
        }
        match self.plan.open_files().close_any() {
            Some(file) => self.close_file(now, file, system),
            None if self.unlink_next(system) => {}
            None => {
                self.closes_all = false;
                self.phase = super::Phase::Fill;
            }
        }
        true
    }

    /// Removes the next file between two passes, if the job has it so; whether there is one
    /// left (`unlink_all_files`).
    fn unlink_next(&mut self, system: &mut System) -> bool {
        while let Some(file) = self.unlinks.take() {
            let next = file + 1;
            self.unlinks = ((next as usize) < self.plan.files()).then_some(next);
            if self.call_unlink(file as usize, system) {
                return true;
            }
        }
        false
    }

    /// At the end of its work it removes each file, if the job has it so, and closes it; whether
    /// there is one left.
    pub(super) fn end_file(&mut self, now: Nanos, system: &mut System) -> bool {
        let Some(file) = self
            .ending
            .filter(|file| (*file as usize) < self.plan.files())
        else {
            return false;
        };
        if !std::mem::replace(&mut self.removed, true)
            && self.spec.unlink
            && self.call_unlink(file as usize, system)
        {
            return true;
        }
        (self.ending, self.removed) = (Some(file + 1), false);
        if self.plan.open_files().is_open(file) {
            self.plan.open_files().close(file);
            self.close_file(now, file, system);
        }
        true
    }
}
