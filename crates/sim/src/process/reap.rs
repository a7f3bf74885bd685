//! A process takes completions: fio's `wait_for_completions`.

use blklab_blk::{IoStatus, Nanos};
use blklab_workload::fio::{Direction, JobSpec};

use super::{Io, Phase, Process, State};
use crate::cpu::Mode;
use crate::world::World;

/// What fio ends a job with that was slower than its `max_latency`.
const ETIMEDOUT: i32 = 110;

/// What fio ends a job with that missed its `rate_min`.
const EIO: i32 = 5;

impl Process {
    /// Takes completions: at least `iodepth_batch_complete_min`, and on until
    /// no more than `iodepth_low` are left.
    #[inline]
    pub(super) fn reap(&mut self, now: Nanos, world: &mut World) {
        let outstanding = self.in_flight + self.done.len() as u32;
        let min = self.spec.batch_complete_min.clamp(1, outstanding.max(1));
        if !self.take_completions(now, min, world) {
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
    pub(super) fn take_completions(&mut self, now: Nanos, min: u32, world: &mut World) -> bool {
        let enough = self.done.len() as u32 >= min;
        match enough {
            true => self.take_done(now, min, world),
            false => {
                self.waited = true;
                self.sleep(now, State::Completions(min), world);
            }
        }
        enough
    }

    /// Takes completions, of which there are at least `min`.
    #[inline(always)]
    fn take_done(&mut self, now: Nanos, min: u32, world: &mut World) {
        let max = self.spec.batch_complete_max.max(min);
        let mut taken = 0;
        while taken < max
            && let Some(slot) = self.done.pop_front()
        {
            taken += 1;
            let Io {
                dir,
                bytes,
                started,
                issued,
                status,
                ..
            } = self.ios[slot as usize];
            self.free.push(slot);
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
            if status != IoStatus::Ok {
                self.ended_badly(dir, status);
                continue;
            }
            if now.saturating_sub(started) > self.max_latency[dir as usize]
                && self.recorder.is_measuring(now)
            {
                self.miss("max_latency", ETIMEDOUT);
            }
            if let Some(rate) = &mut self.min_rate {
                rate.completed(now, dir, bytes);
            }
        }
        self.recorder.reaped(taken);
        if let Some(rate) = &mut self.min_rate
            && let Some(option) = rate.missed(now)
        {
            self.miss(option, EIO);
        }
        if !std::mem::take(&mut self.waited) {
            self.spend(now, self.costs.reap_call, Mode::System, world);
        }
        let cost = Nanos(self.costs.user_reap.0 * taken as u64);
        self.spend(now, cost, Mode::User, world);
    }

    #[cold]
    fn ended_badly(&mut self, dir: Direction, status: IoStatus) {
        if ends_job(&self.spec, dir, status) {
            self.fail();
        }
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
