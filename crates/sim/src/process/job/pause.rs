//! When a process issues nothing: pauses, the end of a pass, flushes.

use blklab_blk::{Bio, BioFlags, IoStatus, Nanos, Op, Sector};

use blklab_workload::fio::Engine;

use super::open_files::LastFlush;
use super::{FLUSH_SLOT, FlushFor, JobProcess, PauseReason, Phase, TaskState};
use crate::cpu::Mode;
use crate::system::System;
use crate::timers::user_data;

/// How long a program that spins keeps its CPU before an interrupt or another
/// process may have it.
pub(super) const SPIN_SLICE: Nanos = Nanos::from_micros(10);

impl JobProcess {
    /// Whether nothing is issued for a while.
    #[inline]
    pub(super) fn is_pausing(&self) -> bool {
        !matches!(self.phase, Phase::Fill | Phase::Commit | Phase::Reap)
    }

    #[inline(never)]
    pub(super) fn pause(&mut self, now: Nanos, system: &mut System) {
        match self.phase {
            Phase::Fill | Phase::Commit | Phase::Reap => {}
            Phase::Quiesce(reason) => self.quiesce(now, reason, system),
            Phase::ReapFirst => self.reap_first(now, system),
            Phase::Spin(spun, until) => self.spin(now, spun, until, system),
            Phase::Drain => self.drain(now, system),
            Phase::Call => self.go_on_in_call(now, system),
        }
    }

    /// Before a pause everything in flight is awaited (`io_u_quiesce`), so that
    /// its latency does not hold the pause.
    #[inline(never)]
    fn quiesce(&mut self, now: Nanos, reason: PauseReason, system: &mut System) {
        if self.is_committing() {
            self.commit(now, system);
            if self.state == TaskState::Running {
                self.phase = Phase::Quiesce(reason);
            }
            return;
        }
        let outstanding = self.in_flight + self.done.len() as u32;
        if outstanding > 0 && !self.pauses_at_once(reason) {
            self.take_completions(now, 1, system);
            return;
        }
        let (spun, until) = match reason {
            PauseReason::Rate(until) => (now, until),
            PauseReason::Think => self.plan.think(now),
            PauseReason::Zone | PauseReason::Depth => (now, now),
            PauseReason::LastWindow => {
                self.start_last_window(now);
                (now, now)
            }
            PauseReason::Flow => {
                let sleep = Nanos::from_micros(self.spec.flow.sleep_us.into());
                (now, now.saturating_add(sleep))
            }
        };
        self.spin(now, spun, until, system);
    }

    /// As many files are open as may be, or an I/O overlaps another: before the next try fio takes a
    /// completion.
    #[inline(never)]
    fn reap_first(&mut self, now: Nanos, system: &mut System) {
        if self.is_committing() {
            self.commit(now, system);
            if self.state == TaskState::Running {
                self.phase = Phase::ReapFirst;
            }
            return;
        }
        let outstanding = self.in_flight + self.done.len() as u32;
        let min = self.spec.batch_complete_min.clamp(1, outstanding.max(1));
        if outstanding == 0 || self.take_completions(now, min, system) {
            self.phase = Phase::Fill;
        }
    }

    /// Spins until the clock says `spun` (`usec_spin`), then sleeps until `until`.
    fn spin(&mut self, now: Nanos, spun: Nanos, until: Nanos, system: &mut System) {
        let left = spun.saturating_sub(now);
        if !self.costs.free && left > Nanos::ZERO && !self.plan.is_over(now) {
            self.phase = Phase::Spin(spun, until);
            self.occupy(now, left.min(SPIN_SLICE), Mode::User, system);
            return;
        }
        self.phase = Phase::Fill;
        if until > now && !self.plan.is_over(now) {
            self.sleep_until(now, until, system);
        }
    }

    /// Sleeps until then, whatever is in flight.
    pub(super) fn sleep_until(&mut self, now: Nanos, until: Nanos, system: &mut System) {
        self.recorder.context_switch();
        self.state = TaskState::Sleeping(until);
        system.timers.set(until, self.id);
        self.schedule_out(now, system);
    }

    /// Nothing more is issued in this pass; what is under way is awaited. Then
    /// comes another pass, or the last flush and the end.
    #[inline(never)]
    fn drain(&mut self, now: Nanos, system: &mut System) {
        self.leave_zones(now, system);
        if self.is_committing() {
            self.commit(now, system);
            if self.state == TaskState::Running {
                self.phase = Phase::Drain;
            }
            return;
        }
        if self.in_flight + self.done.len() as u32 > 0 {
            self.take_completions(now, 1, system);
            return;
        }
        if let Some(file) = self.plan.open_files().close_done() {
            return self.close_file(now, file, system);
        }
        if self.flush_last(now, system) || self.close_open(now, system) {
            return;
        }
        if self.ending.is_none() && self.goes_on(now, system) {
            return;
        }
        if self.end_file(now, system) {
            return;
        }
        self.leave_flow(now, system);
        self.state = TaskState::Exited;
        self.schedule_out(now, system);
    }

    /// Goes on to read what was written, or to the next pass; whether it does.
    fn goes_on(&mut self, now: Nanos, system: &mut System) -> bool {
        if self.start_verify(now) || self.start_pass(now, system) {
            // As fio resets its counters between two passes (`reset_io_counters`).
            self.last_was_sync = false;
            self.phase = match self.closes_all {
                true => Phase::Drain,
                false => Phase::Fill,
            };
            return true;
        }
        self.ending = Some(0);
        self.finished = self.plan.is_complete(now);
        self.recorder.end(now);
        false
    }

    /// Begins another pass, if there is one.
    fn start_pass(&mut self, now: Nanos, system: &mut System) -> bool {
        if !self.plan.start_pass(now, &mut system.zones) {
            return false;
        }
        if let Some(rate) = &mut self.min_rate {
            rate.start_pass();
        }
        if self.has_begun {
            self.start_depth_search(now);
        }
        let flushes = self.spec.end_fsync || self.spec.fsync_on_close;
        self.last_flush = flushes.then(LastFlush::default);
        if self.has_begun && self.spec.unlink_each_loop && self.cached.is_some() {
            (self.closes_all, self.unlinks) = (true, Some(0));
        }
        self.has_begun = true;
        true
    }

    /// `fsync`: a call for a flush that the process waits for.
    #[inline(never)]
    pub(super) fn flush(&mut self, now: Nanos, (why, file): (FlushFor, u32), system: &mut System) {
        (self.flush_started, self.flush_for) = (now, why);
        if self.cached.is_some() {
            return self.sync_cached(now, file, system);
        }
        let disk = self.plan.disk_of(file);
        let (flags, worker) = match self.spec.engine {
            Engine::IoUringCmd => (BioFlags::SYNC.with(BioFlags::PASSTHROUGH), Nanos::ZERO),
            // It leaves a sync to a worker, as it may wait (`io_fsync_prep`).
            Engine::IoUring => (BioFlags::SYNC, self.costs.context_switch),
            _ => (BioFlags::SYNC, Nanos::ZERO),
        };
        let bio = Bio {
            flags,
            prio: self.prio,
            submitter: self.submitter(),
            cgroup: self.cgroup,
            user_data: user_data(self.id, FLUSH_SLOT),
            ..Bio::new(Op::Flush, Sector(0), 0)
        };
        self.state = TaskState::AwaitsFlush;
        let call = system.cpus.slowdown(self.cpu, now);
        let call = call.of(self.costs.syscall + worker);
        self.submit_to_wait(now, (disk, FLUSH_SLOT), (bio, call), system);
        self.sleep(now, TaskState::AwaitsFlush, system);
    }

    #[inline(never)]
    pub(super) fn on_flushed(&mut self, now: Nanos, status: IoStatus, system: &mut System) {
        self.synced(now, status);
        self.wake_up(now, system);
    }

    /// The call for a flush is over.
    pub(super) fn synced(&mut self, now: Nanos, status: IoStatus) {
        let kind = match self.flush_for {
            FlushFor::Call(kind) => Some(kind),
            FlushFor::End | FlushFor::Close => None,
        };
        self.recorder.synced(kind, self.flush_started, now, status);
        self.last_was_sync |= self.flush_for != FlushFor::Close;
        if status != IoStatus::Ok {
            self.fail();
        }
    }
}
