//! A process of a job takes completions: fio's `wait_for_completions`.

use blklab_blk::{IoStatus, Nanos};
use blklab_stats::LogEntry;
use blklab_workload::calls::Errno;
use blklab_workload::fio::{Direction, JobSpec};

use super::{Io, JobProcess, PauseReason, Phase, TaskState};
use crate::cpu::Mode;
use crate::system::System;

impl JobProcess {
    /// Takes completions: at least `iodepth_batch_complete_min`, and on until
    /// no more than `iodepth_low` are left.
    #[inline]
    pub(super) fn reap(&mut self, now: Nanos, system: &mut System) {
        if self.offloads {
            return self.await_thread(now, system);
        }
        let outstanding = self.in_flight + self.done.len() as u32;
        let min = self.spec.batch_complete_min.clamp(1, outstanding.max(1));
        if !self.take_completions(now, min, system) {
            return;
        }
        if self.takes_lowered_depth() {
            self.phase = Phase::Quiesce(PauseReason::Depth);
            return;
        }
        let left = self.in_flight + self.done.len() as u32;
        if self.polls || left <= self.spec.io_depth_low {
            self.phase = Phase::Fill;
        }
    }

    /// Takes at least `min` completions and at most
    /// `iodepth_batch_complete_max`. Returns false where it waits for them.
    #[inline(always)]
    pub(super) fn take_completions(&mut self, now: Nanos, min: u32, system: &mut System) -> bool {
        let enough = self.done.len() as u32 >= min;
        match enough {
            true => self.take_done(now, min, system),
            false => {
                self.await_completions(now, min, system);
            }
        }
        enough
    }

    /// Waits for this many completions: asleep, or looking for them over and over.
    #[inline]
    fn await_completions(&mut self, now: Nanos, min: u32, system: &mut System) {
        let spins = self.polls_for_ends || self.ring.is_some();
        if !spins || self.costs.free {
            self.waited = true;
            return self.sleep(now, TaskState::AwaitsCompletions(min), system);
        }
        self.spins_since = Some(now);
        self.state = TaskState::AwaitsCompletions(min);
    }

    /// It has what it has looked for over and over since then.
    #[inline(never)]
    pub(super) fn stop_spinning(&mut self, now: Nanos, since: Nanos, system: &mut System) {
        let mode = match self.polls_for_ends {
            true => Mode::System,
            false => Mode::User,
        };
        let from = system.cpus.free_at(self.cpu).max(since);
        self.occupy(from, now.saturating_sub(from), mode, system);
    }

    /// Takes completions, of which there are at least `min`.
    #[inline(always)]
    fn take_done(&mut self, now: Nanos, min: u32, system: &mut System) {
        let max = self.spec.batch_complete_max.max(min);
        let (mut taken, mut verify_cost) = (0, Nanos::ZERO);
        while taken < max
            && let Some(slot) = self.done.pop_front()
        {
            taken += 1;
            if self.polls_for_ends && !self.costs.free {
                self.finish_polled(now, slot, system);
            }
            verify_cost += self.take(now, slot, system);
        }
        self.recorder.reaped(taken);
        if let Some(rate) = &mut self.min_rate
            && let Some(option) = rate.missed(now)
        {
            self.miss(option, Errno::EIO.0);
        }
        let call = match std::mem::take(&mut self.waited) {
            true => self.costs.wait,
            false => self.costs.reap_call,
        };
        let mut poll = Nanos::ZERO;
        if self.polls_for_ends {
            let each = self.costs.polled_end + self.costs.drive_distance(self.cpu);
            poll = self.costs.poll + Nanos(each.0 * taken as u64);
        }
        let user = Nanos(self.costs.user_reap.0 * taken as u64) + verify_cost;
        let costs = [
            (call, Mode::System),
            (poll, Mode::System),
            (user, Mode::User),
        ];
        self.spend_each(now, costs, system);
    }

    /// The scheduler learns of an end that this process has found, on its CPU.
    fn finish_polled(&mut self, now: Nanos, slot: u32, system: &mut System) {
        let disk = &mut system.disks[self.ios[slot as usize].disk];
        let cpus = &mut system.cpus;
        let slowdown = cpus.slowdown(self.cpu, now);
        let took = (self.costs).finish((cpus, &mut disk.lock), self.cpu, now, slowdown);
        if took > Nanos::ZERO {
            self.occupy(now, took, Mode::System, system);
        }
    }

    /// Takes one completion. Returns what verifying it costs.
    #[inline(always)]
    pub(super) fn take(&mut self, now: Nanos, slot: u32, system: &mut System) -> Nanos {
        let mut verify_cost = Nanos::ZERO;
        let Io {
            dir,
            file,
            disk,
            bytes,
            started,
            issued,
            status,
            holds_zone,
            ..
        } = self.ios[slot as usize];
        self.free.push(slot);
        if let Some(overlaps) = &mut self.overlaps {
            overlaps.reaped(slot);
        }
        if self.recorder.has_log() && status == IoStatus::Ok {
            self.log(now, slot);
        }
        if let Some(log) = system.cpus.log() {
            log.taken((self.id, slot), (started, now), disk);
        }
        if let Some(errno) = self.fails_after_one.take() {
            self.recorder.failed(errno);
            self.fail();
        }
        if status == IoStatus::NoSpace && self.spec.fill_device {
            // The drive or the file system is full, which is what the job is for.
            self.plan.open_files().reaped(file);
            self.plan.complete();
            return verify_cost;
        }
        self.recorder.completed(
            now,
            dir,
            bytes,
            started,
            issued,
            self.is_synchronous,
            status,
        );
        self.plan.completed(now, dir);
        self.plan.open_files().reaped(file);
        self.last_was_sync = false;
        if self.keeps_contents {
            verify_cost = self.verify_taken(slot, status);
        }
        if holds_zone {
            let end = self.ios[slot as usize].at_bytes + bytes;
            self.release_zone(now, dir, end, system);
        }
        if status != IoStatus::Ok {
            self.ended_badly(dir, status);
            return verify_cost;
        }
        if now.saturating_sub(started) > self.max_latency[dir as usize]
            && self.recorder.is_measuring(now)
        {
            self.miss("max_latency", Errno::ETIMEDOUT.0);
        }
        if self.depth_search.is_some() {
            self.hold_against_target(now, now.saturating_sub(started));
        }
        if let Some(rate) = &mut self.min_rate {
            rate.completed(now, dir, bytes);
        }
        verify_cost
    }

    #[cold]
    fn ended_badly(&mut self, dir: Direction, status: IoStatus) {
        if ends_job(&self.spec, dir, status) {
            self.fail();
        }
    }

    /// Logs an I/O that ended well.
    #[cold]
    fn log(&mut self, now: Nanos, slot: u32) {
        let io = &self.ios[slot as usize];
        let has_priority = self.spec.priority.is_some() || io.prio != self.prio;
        let submission_ns = io.issued.saturating_sub(io.started).0;
        let entry = LogEntry {
            at_ns: 0,
            direction: io.dir as u8,
            priority: if has_priority { io.prio.value() } else { 0 },
            bytes: io.bytes,
            offset_bytes: self.plan.offset_in_file(io.file, io.at_bytes),
            slat_ns: (!self.is_synchronous).then_some(submission_ns),
            clat_ns: now.saturating_sub(io.issued).0,
        };
        self.recorder.log(now, entry);
    }
}

/// Whether fio ends a job for this error: `continue_on_error` lets it go on after
/// an EIO (`td_non_fatal_error`), and after nothing else.
fn ends_job(spec: &JobSpec, dir: Direction, status: IoStatus) -> bool {
    let goes_on = match dir {
        Direction::Read => spec.continue_on_error.read,
        Direction::Write => spec.continue_on_error.write,
        Direction::Trim => spec.continue_on_error.trim,
    };
    !(goes_on && status == IoStatus::IoError)
}
