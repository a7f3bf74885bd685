//! What a process decides on, and its way into the block layer: `io_submit` and
//! what fio does before it.

use blklab_blk::{IoStatus, Nanos, Sector, Span, Steps, Submit, Waiter};

use super::bio::io_prio;
use super::{Idle, Io, Phase, Process, State};
use crate::cpu::Mode;
use crate::disk::Disk;
use crate::plan::{Next, NextIo};
use crate::world::World;

/// The kernel plugs for a submission of more requests than this
/// (`AIO_PLUG_THRESHOLD`, `IO_PLUG_THRESHOLD`).
const PLUG_THRESHOLD: usize = 2;

impl Process {
    /// Decides on the next I/O, or on what to do instead.
    #[inline(always)]
    pub(super) fn fill(&mut self, now: Nanos, world: &mut World) {
        let next = self.plan.next(now);
        match next {
            Next::Io(io) => {
                self.prepare(now, &io);
                let full = self.outstanding() >= self.depth;
                if full || self.waiting() >= self.spec.batch_submit {
                    self.phase = Phase::Commit;
                }
            }
            // The engine cannot queue a flush behind what it holds.
            Next::Flush(_) if !self.batch.is_empty() => self.phase = Phase::Commit,
            Next::Flush(kind) => {
                self.plan.flushed();
                self.flush(now, Some(kind), world);
            }
            Next::Pause(until) => self.phase = Phase::Quiesce(Idle::Rate(until)),
            Next::Think => self.phase = Phase::Quiesce(Idle::Think),
            Next::PassOver => self.phase = Phase::Drain,
        }
    }

    #[inline]
    fn prepare(&mut self, now: Nanos, next: &NextIo) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.add_slot(),
        };
        // Field by field: a copy of the whole would wait until what has just
        // been written in small pieces is in the processor's cache.
        let io = &mut self.ios[slot as usize];
        io.dir = next.dir;
        io.disk = next.disk;
        io.file = next.file;
        io.sector = Sector::from_bytes(next.offset_bytes);
        io.bytes = next.bytes;
        io.prio = next.prio.map_or(self.prio, |p| io_prio(Some(p)));
        io.started = now;
        io.issued = now;
        io.status = IoStatus::Ok;
        self.batch.push(slot);
    }

    /// It has more in flight than ever before.
    #[cold]
    fn add_slot(&mut self) -> u32 {
        self.ios.push(Io::NONE);
        self.ios.len() as u32 - 1
    }

    /// I/Os decided on and not submitted.
    #[inline]
    fn waiting(&self) -> u32 {
        (self.batch.len() - self.submitted) as u32
    }

    #[inline]
    fn outstanding(&self) -> u32 {
        self.in_flight + self.waiting() + self.done.len() as u32
    }

    /// Whether a call into the kernel is under way or due.
    pub(super) fn is_committing(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Gives the batch to the kernel, bio by bio.
    #[inline(always)]
    pub(super) fn commit(&mut self, now: Nanos, world: &mut World) {
        if self.submitted == 0 && !self.paid && !self.batch.is_empty() {
            self.plugging = self.batch.len() > PLUG_THRESHOLD;
            // fio counts all that it has not reaped, once a call, for each of the call's I/Os.
            let (depth, size) = (self.outstanding(), self.batch.len() as u32);
            self.recorder.submitted(depth, size);
        }
        while let Some(&slot) = self.batch.get(self.submitted) {
            if !self.costs.free && !self.paid && self.pay_ahead(now, world) {
                return;
            }
            self.paid = false;
            self.submitted += 1;
            self.in_flight += 1;
            self.submit(now, slot, world);
            if self.state != State::Running {
                return;
            }
        }
        if self.plugging {
            self.unplug_all(now, world);
            if self.state != State::Running {
                // The CPU is still at it; the call returns after that.
                return;
            }
            self.plugging = false;
        }
        if !self.is_synchronous {
            for &slot in &self.batch {
                self.ios[slot as usize].issued = now;
            }
        }
        self.batch.clear();
        self.submitted = 0;
        self.phase = if self.polls || self.outstanding() >= self.depth {
            Phase::Reap
        } else {
            Phase::Fill
        };
    }

    /// Pays for what comes before a submission: the program's decision, and the
    /// call into the kernel. Returns true where that takes time.
    #[inline(never)]
    fn pay_ahead(&mut self, now: Nanos, world: &mut World) -> bool {
        self.paid = true;
        let user = self.costs.user_submit;
        let call = if self.submitted == 0 {
            self.costs.syscall
        } else {
            Nanos::ZERO
        };
        let user_takes = self.spend(now, user, Mode::User, world);
        self.spend(now, call, Mode::System, world) || user_takes
    }

    /// Submits one I/O.
    #[inline(always)]
    fn submit(&mut self, now: Nanos, slot: u32, world: &mut World) {
        let disk = self.ios[slot as usize].disk;
        if self.has_threads {
            return self.submit_by_thread(now, slot, world);
        }
        let bio = self.bio(slot, self.nowait);
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        let plug = self.plugging.then_some(&mut self.plugs[disk]);
        let first = d.queue.requests_made();
        let done = d.queue.submit_bio(now, self.cpu, plug, bio, &mut d.driver);
        if let Submit::Blocked(waiter) = done {
            self.sleep_for_tag(now, disk, waiter, world);
        }
        self.charge(now, disk, before, world);
        let made = first..world.disks[disk].queue.requests_made();
        if let Some(log) = world.cpus.log() {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
    }

    #[inline(never)]
    fn sleep_for_tag(&mut self, now: Nanos, disk: usize, waiter: Waiter, world: &mut World) {
        self.waits_for_tag(disk, waiter, world);
        self.sleep(now, State::Tag, world);
    }

    fn waits_for_tag(&mut self, disk: usize, waiter: Waiter, world: &mut World) {
        world.waiting[disk].push(waiter.ticket, self.id);
        self.waiter = Some((disk, waiter));
    }

    /// The block layer lets it, or one of its workers, try again.
    pub(crate) fn on_woken(&mut self, now: Nanos, (disk, ticket): (usize, u64), world: &mut World) {
        let is_own = |own: &mut (usize, Waiter)| own.0 == disk && own.1.ticket == ticket;
        match self.waiter.take_if(is_own) {
            Some((_, waiter)) => self.resume(now, disk, waiter, world),
            None => self.on_worker_woken(now, (disk, ticket), world),
        }
    }

    /// Goes on in the block layer from where it slept.
    fn resume(&mut self, now: Nanos, disk: usize, waiter: Waiter, world: &mut World) {
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        let plug = self.plugging.then_some(&mut self.plugs[disk]);
        let first = d.queue.requests_made();
        let resumed = d.queue.resume(now, plug, waiter, &mut d.driver);
        let made = first..d.queue.requests_made();
        match before {
            // It goes on when it has been switched to.
            Some(before) => {
                let later = self.costs.context_switch;
                self.book_steps(now, disk, (&before, later), world);
            }
            None => world.disks[disk].release(now),
        }
        let last = self.batch[..self.submitted].last();
        if let (Some(log), Some(&slot)) = (world.cpus.log(), last) {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
        match resumed {
            Submit::Done => self.has_tag = true,
            Submit::Blocked(waiter) => self.waits_for_tag(disk, waiter, world),
        }
    }

    /// It goes on, if it slept for a tag and has it.
    pub(crate) fn on_resumed(&mut self, now: Nanos, world: &mut World) {
        if std::mem::take(&mut self.has_tag) {
            self.wake(now, world);
        }
    }

    #[inline(never)]
    fn unplug_all(&mut self, now: Nanos, world: &mut World) {
        for disk in 0..self.plugs.len() {
            if !self.plugs[disk].is_empty() {
                self.unplug(now, disk, world);
            }
        }
    }

    fn unplug(&mut self, now: Nanos, disk: usize, world: &mut World) {
        let d = &mut world.disks[disk];
        let before = self.steps_to_charge(d);
        d.queue
            .flush_plug(now, &mut self.plugs[disk], &mut d.driver);
        self.charge(now, disk, before, world);
        if let Some(log) = world.cpus.log() {
            log.was_for(self.id);
        }
    }

    /// The block layer's steps so far, where more of them will be charged.
    #[inline]
    pub(super) fn steps_to_charge(&self, disk: &Disk) -> Option<Steps> {
        (!self.costs.free).then(|| disk.queue.steps())
    }

    /// Charges what the block layer did for this process since `before`.
    #[inline]
    pub(super) fn charge(
        &mut self,
        now: Nanos,
        disk: usize,
        before: Option<Steps>,
        world: &mut World,
    ) {
        if let Some(before) = before {
            self.charge_steps(now, disk, &before, world);
        }
    }

    #[inline(never)]
    fn charge_steps(&mut self, now: Nanos, disk: usize, before: &Steps, world: &mut World) {
        let end = self.book_steps(now, disk, (before, Nanos::ZERO), world);
        if self.state == State::Running && end > now {
            self.go_on_at(end, world);
        }
    }

    /// Books the block layer's steps since `before` to its CPU. Returns when
    /// they are done; what they gave to the driver reaches the drive `later`.
    fn book_steps(
        &mut self,
        now: Nanos,
        disk: usize,
        (before, later): (&Steps, Nanos),
        world: &mut World,
    ) -> Nanos {
        let d = &mut world.disks[disk];
        let steps = d.queue.steps().since(before);
        let start = world.cpus.free_at(self.cpu).max(now);
        let end = self
            .costs
            .charge(&mut world.cpus, &mut d.lock, self.cpu, now, &steps);
        let reached = end + later;
        let span = Span {
            start,
            end,
            reached,
        };
        d.was_done(&self.costs, None, span);
        d.release(reached);
        self.recorder.spent(Mode::System, (end - start).0);
        world.fair.ran(self.id, end - start);
        end
    }
}
