//! When a process issues nothing: pauses, the end of a pass, flushes.

use blklab_blk::{Bio, BioFlags, IoStatus, Nanos, Op, Sector, SubmitterId};

use blklab_workload::generate::SyncKind;

use super::{FLUSH_SLOT, Idle, Phase, Process, State};
use crate::cpu::Mode;
use crate::world::World;

/// How long a program that looks at the clock all the time keeps its CPU before
/// an interrupt or another process may have it.
const SPIN_SLICE: Nanos = Nanos::from_micros(10);

impl Process {
    /// Whether nothing is issued for a while.
    #[inline]
    pub(super) fn is_pausing(&self) -> bool {
        !matches!(self.phase, Phase::Fill | Phase::Commit | Phase::Reap)
    }

    #[inline(never)]
    pub(super) fn pause(&mut self, now: Nanos, world: &mut World) {
        match self.phase {
            Phase::Fill | Phase::Commit | Phase::Reap => {}
            Phase::Quiesce(idle) => self.quiesce(now, idle, world),
            Phase::Spin(spun, until) => self.spin(now, spun, until, world),
            Phase::Drain => self.drain(now, world),
        }
    }

    /// Before a pause everything in flight is awaited (`io_u_quiesce`), so that
    /// its latency does not hold the pause.
    #[inline(never)]
    fn quiesce(&mut self, now: Nanos, idle: Idle, world: &mut World) {
        if self.is_committing() {
            self.commit(now, world);
            if self.state == State::Running {
                self.phase = Phase::Quiesce(idle);
            }
            return;
        }
        if self.in_flight + self.done.len() as u32 > 0 {
            self.take_completions(now, 1, world);
            return;
        }
        let (spun, until) = match idle {
            Idle::Rate(until) => (now, until),
            Idle::Think => self.plan.think(now),
        };
        self.spin(now, spun, until, world);
    }

    /// Spins until the clock says `spun` (`usec_spin`), then sleeps until `until`.
    fn spin(&mut self, now: Nanos, spun: Nanos, until: Nanos, world: &mut World) {
        let left = spun.saturating_sub(now);
        if !self.costs.free && left > Nanos::ZERO && !self.plan.is_over(now) {
            self.phase = Phase::Spin(spun, until);
            self.occupy(now, left.min(SPIN_SLICE), Mode::User, world);
            return;
        }
        self.phase = Phase::Fill;
        if until > now && !self.plan.is_over(now) {
            self.state = State::Paused(until);
            world.timers.set(until, self.id);
            self.leaves_cpu(now, world);
        }
    }

    /// Nothing more is issued in this pass; what is under way is awaited. Then
    /// comes another pass, or the last flush and the end.
    #[inline(never)]
    fn drain(&mut self, now: Nanos, world: &mut World) {
        if self.is_committing() {
            self.commit(now, world);
            if self.state == State::Running {
                self.phase = Phase::Drain;
            }
            return;
        }
        if self.in_flight + self.done.len() as u32 > 0 {
            self.take_completions(now, 1, world);
            return;
        }
        if self.plan.start_pass(now) {
            if let Some(rate) = &mut self.min_rate {
                rate.start_pass();
            }
            self.phase = Phase::Fill;
            return;
        }
        if (self.spec.end_fsync || self.spec.fsync_on_close) && !self.flushed {
            self.flushed = true;
            return self.flush(now, None, world);
        }
        self.ended = now;
        self.finished = !self.plan.is_over(now);
        self.recorder.end(now);
        self.state = State::Over;
        self.leaves_cpu(now, world);
    }

    /// `fsync`: a call for a flush that the process waits for.
    #[inline(never)]
    pub(super) fn flush(&mut self, now: Nanos, kind: Option<SyncKind>, world: &mut World) {
        (self.flush_started, self.flush_kind) = (now, kind);
        let disk = self.plan.flush_disk();
        let bio = Bio {
            flags: BioFlags::SYNC,
            prio: self.prio,
            submitter: SubmitterId(self.id as u32),
            cgroup: self.cgroup,
            user_data: (self.id as u64) << 32 | FLUSH_SLOT as u64,
            ..Bio::new(Op::Flush, Sector(0), 0)
        };
        self.state = State::Flush;
        let call = world.cpus.stretch(self.cpu, now).of(self.costs.syscall);
        self.submit_to_wait(now, (disk, FLUSH_SLOT), (bio, call), world);
        self.sleep(now, State::Flush, world);
    }

    #[inline(never)]
    pub(super) fn on_flushed(&mut self, now: Nanos, status: IoStatus, world: &mut World) {
        self.recorder
            .synced(self.flush_kind, self.flush_started, now, status);
        if status != IoStatus::Ok {
            self.fail();
        }
        self.wake(now, world);
    }
}
