//! What a process decides on, and its way into the block layer: `io_submit` and
//! what fio does before it.

use blklab_blk::{
    Bio, BioFlags, CostCounts, IoClass, IoPrio, IoStatus, Nanos, Op, SECTOR_SIZE, Sector, Span,
    Submit, Waiter,
};
use blklab_workload::fio::{Direction, Engine, JobSpec, Priority, SyncMode};

use super::plan::{NextAction, NextIo};
use super::{FlushFor, Io, JobProcess, PauseReason, Phase, TaskState};
use crate::cpu::Mode;
use crate::disk::Disk;
use crate::system::System;
use crate::timers::user_data;

/// The kernel plugs for a submission of more requests than this
/// (`AIO_PLUG_THRESHOLD`, `IO_PLUG_THRESHOLD`).
const PLUG_THRESHOLD: usize = 2;

impl JobProcess {
    /// The bio of an I/O.
    #[inline]
    pub(super) fn bio(&self, slot: u32, nowait: bool) -> Bio {
        let io = &self.ios[slot as usize];
        let (op, mut flags) = match io.dir {
            Direction::Read => (Op::Read, self.read_flags),
            Direction::Write => (Op::Write, self.write_flags),
            Direction::Trim => (Op::Discard, BioFlags::NONE),
        };
        if self.spec.engine == Engine::IoUringCmd {
            flags = flags.with(BioFlags::PASSTHROUGH);
        }
        if nowait && op != Op::Discard {
            flags = flags.with(BioFlags::NOWAIT);
        }
        Bio {
            flags,
            prio: io.prio,
            submitter: self.submitter(),
            cgroup: self.cgroup,
            user_data: user_data(self.id, slot),
            ..Bio::new(
                op,
                Sector::from_bytes(io.at_bytes),
                (io.bytes / SECTOR_SIZE) as u32,
            )
        }
    }

    /// Decides on the next I/O, or on what to do instead.
    #[inline(always)]
    pub(super) fn fill(&mut self, now: Nanos, system: &mut System) {
        if self.flow.is_some() && self.waits_for_flow(now, system) {
            return;
        }
        if self.depth_search.is_some() && self.window_interrupts(now) {
            return;
        }
        let held = self.overlaps.as_mut().and_then(|o| o.take_held());
        let next = match (held, self.plan.in_zones()) {
            (Some(io), _) => NextAction::Io(io),
            (None, None) => self.plan.next(now),
            (None, Some(_)) => {
                let is_idle = self.outstanding() == 0;
                self.plan.next_in_zones(now, &mut system.zones, is_idle)
            }
        };
        match next {
            NextAction::Io(io) if self.overlaps.is_some() && self.waits_for_overlap(&io) => {
                self.phase = Phase::ReapFirst;
            }
            NextAction::Io(io) => {
                self.prepare(now, &io);
                self.count_in_flow(now, system);
                let full = self.outstanding() >= self.depth;
                if full || self.waiting() >= self.spec.batch_submit {
                    self.phase = Phase::Commit;
                }
            }
            NextAction::Open(file) => self.open_file(now, file, system),
            NextAction::Close(file) => self.close_file(now, file, system),
            // With nothing to reap another file is tried at once.
            NextAction::AwaitFile if self.outstanding() > 0 => self.phase = Phase::ReapFirst,
            NextAction::AwaitFile => {}
            // The engine cannot queue a flush behind what it holds.
            NextAction::Flush(..) if !self.batch.is_empty() => self.phase = Phase::Commit,
            NextAction::Flush(kind, file) => {
                self.plan.flushed(now);
                self.count_in_flow(now, system);
                if self.until_forced > 0 {
                    // A worker calls for a flush in any case.
                    self.is_next_forced();
                }
                self.flush(now, (FlushFor::Call(kind), file), system);
            }
            NextAction::Pause(until) => self.phase = Phase::Quiesce(PauseReason::Rate(until)),
            NextAction::Sleep(until) => self.sleep_until(now, until, system),
            NextAction::Think => self.phase = Phase::Quiesce(PauseReason::Think),
            NextAction::AwaitIdle => self.phase = Phase::Quiesce(PauseReason::Zone),
            NextAction::AwaitZone => self.await_zone(now, system),
            NextAction::ResetZone(disk, at_bytes) => self.reset_zone(now, (disk, at_bytes), system),
            NextAction::PassOver => self.phase = Phase::Drain,
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
        io.at_bytes = next.offset_bytes;
        io.bytes = next.bytes;
        io.prio = next.prio.map_or(self.prio, |p| io_prio(Some(p)));
        io.started = now;
        io.issued = now;
        io.status = IoStatus::Ok;
        io.holds_zone = next.holds_zone;
        if self.until_forced > 0 {
            self.ios[slot as usize].is_forced = self.is_next_forced();
        }
        self.batch.push(slot);
        if let Some(overlaps) = &mut self.overlaps {
            overlaps.issued(slot, self.plan.range_in_file(next));
        }
        if self.keeps_contents {
            self.set_role(slot);
        }
    }

    /// Counts an I/O or a flush for `force_async`; whether it is the one that a worker gets
    /// (`fio_ioring_prep`).
    #[cold]
    fn is_next_forced(&mut self) -> bool {
        self.until_forced -= 1;
        let is_forced = self.until_forced == 0;
        if is_forced {
            self.until_forced = self.spec.force_async_every;
        }
        is_forced
    }

    /// Whether an I/O is held back, as it overlaps one in flight.
    #[cold]
    fn waits_for_overlap(&mut self, io: &NextIo) -> bool {
        let range = self.plan.range_in_file(io);
        let overlaps = self.overlaps.as_mut();
        overlaps.is_some_and(|overlaps| overlaps.hold(io, range))
    }

    /// Adds a slot, as it has more in flight than ever before.
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
    pub(super) fn outstanding(&self) -> u32 {
        self.in_flight + self.waiting() + self.done.len() as u32
    }

    /// Whether a call into the kernel is under way or due.
    pub(super) fn is_committing(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Gives the batch to the kernel, bio by bio.
    #[inline(always)]
    pub(super) fn commit(&mut self, now: Nanos, system: &mut System) {
        if self.submitted == 0 && !self.has_paid && !self.batch.is_empty() {
            self.plugging = self.batch.len() > PLUG_THRESHOLD && !self.submits_through_ring();
            // fio counts all that it has not reaped, once a call, for each of the call's I/Os.
            let (depth, size) = (self.outstanding(), self.batch.len() as u32);
            self.recorder.submitted(depth, size);
        }
        while let Some(&slot) = self.batch.get(self.submitted) {
            if !self.costs.free && !self.has_paid && self.pay_ahead(now, system) {
                return;
            }
            self.has_paid = false;
            self.submitted += 1;
            self.in_flight += 1;
            self.submit(now, slot, system);
            if self.state != TaskState::Running {
                return;
            }
        }
        if self.plugging {
            self.unplug_all(now, system);
            if self.state != TaskState::Running {
                // The CPU is still at it; the call returns after that.
                return;
            }
            self.plugging = false;
        }
        if !self.is_synchronous && !self.offloads {
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
    fn pay_ahead(&mut self, now: Nanos, system: &mut System) -> bool {
        self.has_paid = true;
        let user = self.costs.user_submit + self.fill_next(now, system);
        let enters_kernel = self.ring.is_none() && !self.is_mapped();
        let call = if self.submitted == 0 && enters_kernel {
            self.costs.syscall
        } else {
            Nanos::ZERO
        };
        self.spend_each(now, [(user, Mode::User), (call, Mode::System)], system)
    }

    /// What filling the buffer of the next submission takes, where the program verifies.
    #[inline]
    fn fill_next(&mut self, now: Nanos, system: &mut System) -> Nanos {
        if !self.keeps_contents {
            return Nanos::ZERO;
        }
        let slot = self.batch[self.submitted];
        let cost = self.stamp_cost(slot);
        if self.is_synchronous {
            // fio takes the time of issue after that.
            let filled = system.cpus.slowdown(self.cpu, now).of(cost);
            self.ios[slot as usize].issued += filled;
        }
        cost
    }

    /// Submits one I/O.
    #[inline(always)]
    fn submit(&mut self, now: Nanos, slot: u32, system: &mut System) {
        if self.has_detour && self.submit_otherwise(now, slot, system) {
            return;
        }
        self.submit_directly(now, slot, self.plugging, system);
    }

    /// Submits one I/O to the block layer.
    #[inline(always)]
    pub(super) fn submit_directly(
        &mut self,
        now: Nanos,
        slot: u32,
        plugging: bool,
        system: &mut System,
    ) {
        let disk = self.ios[slot as usize].disk;
        let bio = self.bio(slot, self.nowait);
        let cpu = self.submit_cpu();
        let d = &mut system.disks[disk];
        let before = self.steps_to_charge(d);
        let plug = plugging.then_some(&mut self.plugs[disk]);
        let first = d.queue.requests_made();
        d.queue.set_runs_inline(self.runs_inline);
        if self.polls_for_ends {
            let delay = self.costs.kblockd_delay_of_call(self.last_call);
            d.queue.set_kblockd_delay(delay);
        }
        let done = d.queue.submit_bio(now, cpu, plug, bio, &mut d.driver);
        if let Submit::Blocked(waiter) = done {
            self.sleep_for_tag(now, disk, waiter, system);
        }
        self.charge(now, disk, before, system);
        if self.polls_for_ends {
            self.last_call = system.cpus.free_at(cpu).saturating_sub(now);
            let delay = self.costs.kblockd_delay();
            system.disks[disk].queue.set_kblockd_delay(delay);
        }
        let made = first..system.disks[disk].queue.requests_made();
        if let Some(log) = system.cpus.log() {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
    }

    #[inline(never)]
    pub(super) fn sleep_for_tag(
        &mut self,
        now: Nanos,
        disk: usize,
        waiter: Waiter,
        system: &mut System,
    ) {
        self.waits_for_tag(disk, waiter, system);
        self.sleep(now, TaskState::AwaitsTag, system);
    }

    pub(super) fn waits_for_tag(&mut self, disk: usize, waiter: Waiter, system: &mut System) {
        system.tag_waiters[disk].push(waiter.ticket, self.id);
        self.waiter = Some((disk, waiter));
    }

    /// The block layer lets it, or one of its workers, try again to get a tag.
    pub(crate) fn on_tag(&mut self, now: Nanos, (disk, ticket): (usize, u64), system: &mut System) {
        let is_own = |own: &mut (usize, Waiter)| own.0 == disk && own.1.ticket == ticket;
        match self.waiter.take_if(is_own) {
            Some((_, waiter)) => self.resume(now, disk, waiter, system),
            None => self.on_worker_tag(now, (disk, ticket), system),
        }
    }

    /// Goes on in the block layer from where it slept.
    fn resume(&mut self, now: Nanos, disk: usize, waiter: Waiter, system: &mut System) {
        if self.phase == Phase::Call {
            return self.resume_call(now, disk, waiter, system);
        }
        let d = &mut system.disks[disk];
        let before = self.steps_to_charge(d);
        let plug = self.plugging.then_some(&mut self.plugs[disk]);
        let first = d.queue.requests_made();
        let resumed = d.queue.resume(now, plug, waiter, &mut d.driver);
        let made = first..d.queue.requests_made();
        if let Some(before) = before {
            // It goes on when its CPU has switched to it.
            let later = self.costs.context_switch;
            self.book_steps(now, disk, (&before, later), system);
        }
        let last = self.batch[..self.submitted].last();
        if let (Some(log), Some(&slot)) = (system.cpus.log(), last) {
            log.submitted((self.id, slot), (self.cpu, now), disk, made);
        }
        self.resumed(disk, resumed, system);
    }

    pub(super) fn resumed(&mut self, disk: usize, resumed: Submit, system: &mut System) {
        match resumed {
            Submit::Done => self.has_tag = true,
            Submit::Blocked(waiter) => self.waits_for_tag(disk, waiter, system),
        }
    }

    /// All that were woken together have tried: it goes on, if it has its tag.
    pub(crate) fn on_all_tried(&mut self, now: Nanos, system: &mut System) {
        if std::mem::take(&mut self.has_tag) {
            self.wake_up(now, system);
        }
    }

    #[inline(never)]
    fn unplug_all(&mut self, now: Nanos, system: &mut System) {
        for disk in 0..self.plugs.len() {
            if !self.plugs[disk].is_empty() {
                self.unplug(now, disk, system);
            }
        }
    }

    pub(super) fn unplug(&mut self, now: Nanos, disk: usize, system: &mut System) {
        let d = &mut system.disks[disk];
        let before = self.steps_to_charge(d);
        d.queue.set_runs_inline(self.runs_inline);
        d.queue
            .flush_plug(now, &mut self.plugs[disk], &mut d.driver);
        self.charge(now, disk, before, system);
        if let Some(log) = system.cpus.log() {
            log.was_for(self.id);
        }
    }

    /// The block layer's steps so far, where more of them will be charged.
    #[inline]
    pub(super) fn steps_to_charge(&self, disk: &Disk) -> Option<CostCounts> {
        (!self.costs.free).then(|| disk.queue.cost_counts())
    }

    /// Charges what the block layer did for this process since `before`.
    #[inline]
    pub(super) fn charge(
        &mut self,
        now: Nanos,
        disk: usize,
        before: Option<CostCounts>,
        system: &mut System,
    ) {
        if let Some(before) = before {
            self.charge_steps(now, disk, &before, system);
        }
    }

    #[inline(never)]
    fn charge_steps(&mut self, now: Nanos, disk: usize, before: &CostCounts, system: &mut System) {
        let end = self.book_steps(now, disk, (before, Nanos::ZERO), system);
        if self.ring.is_some() {
            // It goes on while the kernel's thread is at it.
            return;
        }
        if self.state == TaskState::Running && end > now {
            self.go_on_at(end, system);
        }
    }

    /// Books the block layer's steps since `before` to its CPU. Returns when
    /// they are done; what they gave to the driver reaches the drive `later`.
    fn book_steps(
        &mut self,
        now: Nanos,
        disk: usize,
        (before, later): (&CostCounts, Nanos),
        system: &mut System,
    ) -> Nanos {
        let d = &mut system.disks[disk];
        let steps = d.queue.cost_counts().since(before);
        let cpu = self.submit_cpu();
        let start = system.cpus.free_at(cpu).max(now);
        let end = self
            .costs
            .charge(&mut system.cpus, &mut d.lock, cpu, now, &steps);
        let reached = end + later;
        let span = Span {
            start,
            end,
            reached,
        };
        d.set_trace_times(&self.costs, span);
        d.release(reached);
        if self.ring.is_some() {
            return end;
        }
        self.recorder.spent(Mode::System, (end - start).0);
        system.fair.account(self.id, end - start);
        end
    }
}

/// The flags of a direct read. Pages that the kernel has just given out for a buffer follow each
/// other mostly; those of a registered buffer are a segment each all the same
/// (`io_import_fixed`).
pub(super) fn read_flags(spec: &JobSpec) -> BioFlags {
    match spec.untouched_buffers && !spec.registered_buffers {
        true => BioFlags::CONTIGUOUS,
        false => BioFlags::NONE,
    }
}

/// The flags of a direct write (`dio_bio_write_op`).
pub(super) fn write_flags(spec: &JobSpec) -> BioFlags {
    let flags = BioFlags::SYNC.with(BioFlags::IDLE);
    match spec.sync {
        SyncMode::None => flags,
        _ => flags.with(BioFlags::FUA),
    }
}

/// The block layer's priority for a job's. A process that never set one has best
/// effort, level 4 (`IOPRIO_BE_NORM`).
pub(super) fn io_prio(priority: Option<Priority>) -> IoPrio {
    match priority {
        Some(Priority { class: 1, level }) => IoPrio {
            class: IoClass::Rt,
            level,
        },
        Some(Priority { class: 2, level }) => IoPrio {
            class: IoClass::Be,
            level,
        },
        Some(Priority { class: 3, level }) => IoPrio {
            class: IoClass::Idle,
            level,
        },
        _ => IoPrio {
            class: IoClass::Be,
            level: 4,
        },
    }
}
