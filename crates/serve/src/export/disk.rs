//! One export's block layer: request queue, scheduler, driver and back end.
//!
//! It knows neither sockets nor what time it is: whoever owns those calls it.

use blklab_blk::{
    BioEnd, BioFlags, CgroupId, CgroupStats, IoStatus, Nanos, NoMerges, Op, Plug, QueueConfig,
    QueueCounters, QueueLimits, RequestId, RequestQueue, Submit, SubmitterId, Waiter, Wbt,
};
use blklab_device::DriveSpec;
use blklab_driver::Driver;
use blklab_elevator::SchedulerChoice;
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_stats::Histogram;
use blklab_workload::cgroup::{CgroupConfig, CgroupTree};
use slab::Slab;

use super::io::{Io, IoId, Piece};
use super::pacing::PacedDriver;
use super::shared::Client;
use super::trace::Recorder;
use crate::backend::{
    Backend, BackendInfo, BackendRequest, Buffer, Buffers, Completed, Operation, Owner, Segment,
};

/// To complete a request when a drive's model says, threads wake this much earlier
/// and poll.
const POLL_BEFORE_NS: u64 = 60_000;

/// What a disk is made of.
pub(crate) struct DiskSetup<'a> {
    pub(crate) backend: Box<dyn Backend>,
    /// The back end's size and abilities, less what the drive does not have.
    pub(crate) info: BackendInfo,
    pub(crate) scheduler: &'a SchedulerChoice,
    /// Requests that the back end gets at once, where no model says.
    pub(crate) depth: u32,
    /// Software queues: connections share them in turn.
    pub(crate) software_queues: usize,
    /// The drive that it is as slow as.
    pub(crate) drive: Option<&'a DriveSpec>,
    pub(crate) cgroups: Option<CgroupConfig>,
    pub(crate) seed: u64,
}

/// What can be changed only while nothing is in the queue.
#[derive(Clone)]
pub(crate) enum Change {
    /// `queue/scheduler`.
    Scheduler(SchedulerChoice),
    /// `queue/nr_requests`.
    NrRequests(u32),
}

/// Gets the result of a change.
pub(crate) type ChangeDone = Box<dyn FnOnce(Result<(), String>) + Send>;

/// A client's request that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) io: IoId,
    pub(crate) status: IoStatus,
}

/// An export's block layer.
pub(crate) struct Disk {
    queue: RequestQueue,
    cgroups: Option<CgroupConfig>,
    driver: PacedDriver,
    backend: Box<dyn Backend>,
    /// [`BackendInfo::in_place`].
    in_place: bool,
    read_only: bool,
    /// Clients' requests under way.
    ios: Slab<Io>,
    buffers: Buffers,
    /// Where the block layer cuts reads and writes.
    part_sectors: u32,
    zeroes_are_writes: bool,
    changes: Vec<(Change, ChangeDone)>,
    recorder: Option<Recorder>,
    issued: Vec<RequestId>,
    paced: Vec<(RequestId, IoStatus)>,
    completed: Vec<Completed>,
    bios: Vec<BioEnd>,
    /// Requests that ended without the block layer.
    ended: Vec<Ended>,
    /// Emptied lists of segments, for reuse.
    spare: Vec<Vec<Segment>>,
}

impl Disk {
    /// # Errors
    /// Where the queue does not take what the scheduler's choice says.
    pub(crate) fn new(setup: DiskSetup<'_>) -> Result<Disk, String> {
        let model = setup.drive.map(|spec| Driver::new(spec, setup.seed));
        let config = queue_config(&setup, model.as_ref());
        let limits = &config.limits;
        let (unit, max) = (limits.logical_block_sectors, limits.max_rw_sectors());
        let part_sectors = (max - max % unit).max(unit);
        let zeroes_are_writes = limits.max_write_zeroes_sectors == 0;
        let mut queue = RequestQueue::new(&config);
        setup.scheduler.put_on(&mut queue)?;
        if let Some(cgroups) = &setup.cgroups {
            let written = cgroups.put_on_queue(&mut queue);
            written.map_err(|error| error.to_string())?;
        }
        Ok(Disk {
            queue,
            cgroups: setup.cgroups,
            driver: PacedDriver::new(model, setup.drive.is_some_and(has_data_faults)),
            backend: setup.backend,
            in_place: setup.info.in_place,
            read_only: setup.info.read_only,
            ios: Slab::new(),
            buffers: Buffers::default(),
            part_sectors,
            zeroes_are_writes,
            changes: Vec::new(),
            recorder: None,
            issued: Vec::new(),
            paced: Vec::new(),
            completed: Vec::new(),
            bios: Vec::new(),
            ended: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Whether a write's data may stay where its front end has it.
    pub(super) fn takes_sources(&self) -> bool {
        self.in_place
    }

    /// Makes room for a request and the data it brings.
    pub(crate) fn begin(&mut self, mut io: Io) -> IoId {
        if io.command == Command::Write && io.source.is_none() {
            for part in 0.. {
                match io.part_bytes(part, self.part_sectors) {
                    0 => break,
                    len => *io.part_mut(part) = self.buffers.get(len),
                }
            }
        }
        self.ios.insert(io) as IoId
    }

    /// Where the data of a write goes that comes behind the first `at` bytes.
    pub(crate) fn payload_mut(&mut self, id: IoId, at: usize) -> &mut [u8] {
        let io = &mut self.ios[id as usize];
        let (part, skip) = io.part_at(at);
        &mut io.part_mut(part)[skip..]
    }

    /// What a request under way asks for.
    pub(super) fn request_of(&self, id: IoId) -> (Command, blklab_nbd::Request) {
        let io = self.io(id);
        (io.command, io.request)
    }

    /// A request under way.
    pub(super) fn io(&self, id: IoId) -> &Io {
        &self.ios[id as usize]
    }

    /// Gives a request to the block layer. Where that has no room, the waiter
    /// says so, and the connection sleeps.
    pub(super) fn submit(
        &mut self,
        now: Nanos,
        client: Client,
        plug: &mut Plug,
        id: IoId,
    ) -> Option<Waiter> {
        let io = &mut self.ios[id as usize];
        io.start = now;
        let bio = io.bio(id, client, self.zeroes_are_writes);
        let submitted = self
            .queue
            .submit_bio(now, client.cpu, Some(plug), bio, &mut self.driver);
        waiter_of(submitted)
    }

    /// Goes on with a submission that slept.
    pub(super) fn resume(&mut self, now: Nanos, plug: &mut Plug, waiter: Waiter) -> Option<Waiter> {
        waiter_of(self.queue.resume(now, Some(plug), waiter, &mut self.driver))
    }

    /// Gives what was held back for merging to the scheduler.
    pub(crate) fn unplug(&mut self, now: Nanos, plug: &mut Plug) {
        if !plug.is_empty() {
            self.queue.flush_plug(now, plug, &mut self.driver);
        }
    }

    /// Has the back end tell data from holes in a request's range. This passes
    /// the block layer by, as no drive has such a command.
    pub(super) fn find_extents(&mut self, now: Nanos, id: IoId, max: usize) {
        let request = self.ios[id as usize].request;
        let range = Segment {
            io: id,
            part: 0,
            offset: request.offset,
            length: u64::from(request.length),
            data: Buffer::empty(),
        };
        let request = BackendRequest {
            operation: Operation::Extents { max },
            segments: vec![range],
            ..BackendRequest::flush(Owner::Client(id))
        };
        self.backend.submit(request, &mut self.completed);
        self.complete(now);
    }

    /// Does everything that is due, and appends the requests that ended and
    /// the waiters that may go on.
    pub(super) fn run(&mut self, now: Nanos, ended: &mut Vec<Ended>, woken: &mut Vec<u64>) {
        loop {
            if self.driver.next_event() <= now {
                let mut paced = std::mem::take(&mut self.paced);
                self.driver.advance(now, &mut paced);
                for (id, status) in paced.drain(..) {
                    self.queue.complete(now, id, status, &mut self.driver);
                }
                self.paced = paced;
            }
            if self.queue.next_event() <= now {
                self.queue.process(now, &mut self.driver);
            }
            let mut issued = std::mem::take(&mut self.issued);
            self.driver.take_issued(&mut issued);
            let any = !issued.is_empty();
            for id in issued.drain(..) {
                self.execute(now, id);
                // At once, while what it touches is in the CPU's cache.
                if !self.completed.is_empty() {
                    self.complete(now);
                }
            }
            self.issued = issued;
            if !any && self.queue.next_event() > now && self.driver.next_event() > now {
                break;
            }
        }
        self.backend.kick();
        self.apply_changes();
        if self.recorder.is_some() {
            self.record_events();
        }
        ended.append(&mut self.ended);
        self.queue.take_ended(&mut self.bios);
        ended.extend(self.bios.drain(..).map(|bio| Ended {
            io: bio.user_data as IoId,
            status: bio.status,
        }));
        self.queue.take_woken(woken);
    }

    /// Takes what the back end has completed since.
    pub(super) fn reap(&mut self, now: Nanos) {
        self.backend.reap(&mut self.completed);
        self.complete(now);
    }

    /// Cuts the power: requests in flight fail, and of the writes that were not flushed the seed
    /// decides which are lost.
    ///
    /// # Errors
    /// Where the export's power cannot be cut.
    pub(crate) fn cut_power(&mut self, now: Nanos) -> Result<(), String> {
        self.backend.cut_power()?;
        self.driver.fail_in_flight();
        self.reap(now);
        Ok(())
    }

    /// What power cuts did so far, in words; `None` where there can be none.
    pub(crate) fn power_cuts(&self) -> Option<String> {
        let cuts = self.backend.power_cuts()?;
        Some(format!(
            "{} cuts, {} writes lost, {} torn",
            cuts.cuts, cuts.lost_writes, cuts.torn_writes
        ))
    }

    fn complete(&mut self, now: Nanos) {
        let mut completed = std::mem::take(&mut self.completed);
        for Completed {
            mut request,
            status,
        } in completed.drain(..)
        {
            let id = match request.owner {
                Owner::BlockLayer(id) => id,
                Owner::Client(io) => {
                    self.ios[io as usize].extents = request.extents;
                    self.ended.push(Ended { io, status });
                    continue;
                }
                Owner::InnerIo(_) | Owner::Close => continue,
            };
            let is_read = request.operation == Operation::Read;
            for segment in request.segments.drain(..) {
                if is_read {
                    *self.ios[segment.io as usize].part_mut(segment.part) = segment.data;
                } else {
                    self.buffers.put(segment.data);
                }
            }
            self.spare.push(request.segments);
            self.backend_completed(now, id, status);
        }
        self.completed = completed;
    }

    fn backend_completed(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        if let Some(status) = self.driver.backend_completed(id, status) {
            self.queue.complete(now, id, status, &mut self.driver);
        }
    }

    /// Carries out a request that the block layer issued.
    fn execute(&mut self, now: Nanos, id: RequestId) {
        let (op, flags) = {
            let rq = self.queue.request(id);
            (rq.op, rq.flags)
        };
        if let Some(status) = self.execute_in_place(op, id) {
            return self.backend_completed(now, id, status);
        }
        let mut request = BackendRequest {
            fua: flags.has(BioFlags::FUA),
            segments: self.spare.pop().unwrap_or_default(),
            fault: self.driver.take_data_fault(id),
            ..BackendRequest::flush(Owner::BlockLayer(id))
        };
        for bio in self.queue.bios_of(id) {
            let io_id = bio.user_data as IoId;
            let io = &mut self.ios[io_id as usize];
            let piece = io.piece(bio, self.part_sectors);
            request.operation = operation_of(op, io);
            let data = match request.operation {
                Operation::Read => self.buffers.get(piece.length as usize),
                Operation::Write => std::mem::replace(io.part_mut(piece.part), Buffer::empty()),
                _ => Buffer::empty(),
            };
            request.segments.push(Segment {
                io: io_id,
                part: piece.part,
                offset: piece.offset,
                length: piece.length,
                data,
            });
        }
        // A bio that was merged in front comes last in the list.
        request.segments.sort_by_key(|segment| segment.offset);
        self.backend.submit(request, &mut self.completed);
    }

    /// Carries out a read or write where the data stays in its place. Returns its status.
    fn execute_in_place(&mut self, op: Op, id: RequestId) -> Option<IoStatus> {
        match op {
            _ if !self.in_place => return None,
            Op::Read => return Some(IoStatus::Ok),
            Op::Write => {}
            _ => return None,
        }
        let mut status = IoStatus::Ok;
        for bio in self.queue.bios_of(id) {
            let io = &self.ios[bio.user_data as usize];
            if io.command != Command::Write {
                // Zeroes, which are never merged with data.
                return None;
            }
            let Piece { offset, length, .. } = io.piece(bio, self.part_sectors);
            let mut at = (offset - io.request.offset) as u32;
            self.backend.write_in_place(offset, length, &mut |room| {
                if !io.copy_data(at, room) {
                    status = IoStatus::IoError;
                }
                at += room.len() as u32;
            });
        }
        Some(status)
    }

    /// Gives a finished read's data to `take`, piece after piece.
    pub(crate) fn read_data(&self, id: IoId, take: &mut dyn FnMut(&[u8])) {
        let io = self.io(id);
        if self.in_place {
            let (offset, length) = (io.request.offset, u64::from(io.request.length));
            self.backend.read_in_place(offset, length, take);
        } else {
            io.parts().for_each(|part| take(part));
        }
    }

    /// Whether a range is known to be a hole without looking further.
    pub(super) fn is_known_hole(&self, offset: u64, length: u32) -> bool {
        self.backend.is_hole(offset, u64::from(length))
    }

    /// Forgets a request.
    pub(crate) fn release(&mut self, id: IoId) {
        let mut io = self.ios.remove(id as usize);
        for part in io.take_parts() {
            self.buffers.put(part);
        }
    }

    /// When [`Disk::run`] should be called next.
    pub(crate) fn next_event(&self) -> Nanos {
        self.queue.next_event().min(self.driver.next_event())
    }

    /// How much earlier than [`Disk::next_event`] says its thread wakes, and polls.
    pub(crate) fn wake_early(&self) -> Nanos {
        match self.driver.model() {
            Some(_) => Nanos(POLL_BEFORE_NS),
            None => Nanos::ZERO,
        }
    }

    /// A connection is gone.
    pub(crate) fn exit_submitter(&mut self, now: Nanos, submitter: SubmitterId) {
        self.queue.exit_submitter(now, submitter);
    }

    /// Has the block layer's events recorded from now on.
    ///
    /// # Errors
    /// Where they are being recorded.
    pub(crate) fn start_recording(&mut self, recorder: Recorder) -> Result<(), String> {
        // Whether the present recorder is still read shows only when something is sent
        // to it.
        if let Some(present) = &mut self.recorder
            && present.record(Vec::new())
        {
            return Err("this export is being recorded already".to_string());
        }
        self.recorder = Some(recorder);
        self.queue.enable_trace(true);
        Ok(())
    }

    fn record_events(&mut self) {
        let mut events = Vec::new();
        self.queue.take_trace(&mut events);
        if !events.is_empty()
            && let Some(recorder) = &mut self.recorder
            && !recorder.record(events)
        {
            self.recorder = None;
            self.queue.enable_trace(false);
        }
    }

    /// Makes a change that needs the queue empty: it is frozen, drained, changed
    /// and thawed. Nothing in it is lost.
    pub(super) fn change(&mut self, change: Change, done: ChangeDone) {
        self.queue.freeze();
        self.changes.push((change, done));
    }

    fn apply_changes(&mut self) {
        if self.changes.is_empty() || !self.queue.is_idle() {
            return;
        }
        for (change, done) in std::mem::take(&mut self.changes) {
            done(match change {
                Change::Scheduler(choice) => self.put_scheduler(&choice),
                Change::NrRequests(nr) => self.queue.set_nr_requests(nr),
            });
        }
        self.queue.unfreeze();
    }

    fn put_scheduler(&mut self, choice: &SchedulerChoice) -> Result<(), String> {
        choice.put_on(&mut self.queue)?;
        let Some(cgroups) = &self.cgroups else {
            return Ok(());
        };
        let written = cgroups.put_on_scheduler(&mut self.queue);
        written.map_err(|error| error.to_string())
    }

    /// What throttling did to the bios of each control group.
    pub(crate) fn cgroup_stats(&self) -> Vec<(String, CgroupStats)> {
        let tree = self.cgroups.as_ref().map(CgroupConfig::tree);
        let names = tree.as_ref().map_or(&[][..], CgroupTree::names);
        let groups = (1..).map(CgroupId).zip(names);
        let stats = groups.map(|(id, name)| (name.clone(), self.queue.cgroup_stats(id)));
        stats.collect()
    }

    /// Sets a tunable of the scheduler, or another of its attributes.
    pub(crate) fn set_iosched(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(elevator) = self.queue.elevator_mut() else {
            return Err("there is no scheduler, and so no tunables".to_string());
        };
        let attributes = elevator.attributes();
        if let Some(attribute) = attributes.iter().find(|a| a.name == name) {
            elevator.set_attribute(name, &attribute.parse(value)?);
            return Ok(());
        }
        let number = value.parse();
        let number = number.map_err(|_| format!("{value:?} is no number"))?;
        let set = elevator.store_tunable(name, number);
        set.map_err(|e| format!("{}: {e}", elevator.name()))
    }

    /// Sets `queue/nomerges`.
    pub(crate) fn set_nomerges(&mut self, nomerges: NoMerges) {
        self.queue.limits_mut().nomerges = nomerges;
    }

    /// Sets `queue/wbt_lat_usec`.
    pub(crate) fn set_wbt_latency(&mut self, now: Nanos, latency_us: Option<u64>) {
        let rotational = self.queue.limits().rotational;
        let latency_us = latency_us.unwrap_or_else(|| Wbt::default_latency_us(rotational));
        self.queue.set_wbt_latency(now, latency_us);
    }

    /// Whether writes are refused.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn queue(&self) -> &RequestQueue {
        &self.queue
    }

    pub(crate) fn counters(&self, now: Nanos) -> QueueCounters {
        self.queue.counters(now)
    }

    /// The drive's model.
    pub(crate) fn model(&self) -> Option<&Driver> {
        self.driver.model()
    }

    /// How much later than the drive's model said requests ended.
    pub(crate) fn lateness(&self) -> &Histogram {
        self.driver.lateness()
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(crate) fn backend_mut(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }
}

/// Whether a drive damages its data.
fn has_data_faults(drive: &DriveSpec) -> bool {
    drive.faults().is_some_and(|faults| faults.in_data())
}

fn waiter_of(submitted: Submit) -> Option<Waiter> {
    match submitted {
        Submit::Done => None,
        Submit::Blocked(waiter) => Some(waiter),
    }
}

fn operation_of(op: Op, io: &Io) -> Operation {
    match (op, io.command) {
        (Op::Read, _) => Operation::Read,
        // No export has zones.
        (Op::Flush | Op::Zone(_), _) => Operation::Flush,
        (Op::Discard, _) => Operation::Discard,
        (Op::WriteZeroes, _) | (Op::Write, Command::WriteZeroes) => Operation::Zero {
            may_punch: !io.request.flags.contains(CommandFlags::NO_HOLE),
            only_fast: io.request.flags.contains(CommandFlags::FAST_ZERO),
        },
        (Op::Write, _) => Operation::Write,
    }
}

/// The queue's limits: the drive's where there is a model, else room for the
/// largest request.
fn queue_config(setup: &DiskSetup<'_>, model: Option<&Driver>) -> QueueConfig {
    let info = &setup.info;
    let capacity_sectors = info.size_bytes.div_ceil(512);
    let unit = info.block_sizes.minimum.div_ceil(512).max(1);
    if let Some(model) = model {
        let mut config = model.queue_config(setup.software_queues);
        config.seed = setup.seed;
        config.limits.capacity_sectors = capacity_sectors;
        config.limits.logical_block_sectors = config.limits.logical_block_sectors.max(unit);
        // The back end gets the flushes that it needs, whatever the drive does.
        config.limits.write_cache |= info.write_cache;
        return config;
    }
    let max_sectors = info.block_sizes.maximum.div_ceil(512) + 1;
    QueueConfig {
        nr_cpus: setup.software_queues,
        nr_hw_queues: 1,
        queue_depth: setup.depth,
        round_robin_tags: false,
        seed: setup.seed,
        limits: QueueLimits {
            capacity_sectors,
            logical_block_sectors: unit,
            max_sectors: max_sectors.next_multiple_of(unit),
            max_segments: u16::MAX,
            max_write_zeroes_sectors: u32::MAX >> 9,
            write_cache: info.write_cache,
            fua: info.write_cache,
            ..QueueLimits::default()
        },
    }
}
