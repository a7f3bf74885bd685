//! One export's block layer: request queue, scheduler, driver and store.
//!
//! It knows neither sockets nor what time it is: whoever owns those calls it.

use blklab_blk::{
    BioEnd, BioFlags, IoStatus, Nanos, NoMerges, Op, Plug, QueueConfig, QueueCounters, QueueLimits,
    RequestId, RequestQueue, Submit, SubmitterId, Waiter,
};
use blklab_device::DriveSpec;
use blklab_driver::Driver;
use blklab_elevator::SchedulerChoice;
use blklab_nbd::Extent;
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_stats::Histogram;

use crate::buffers::{Buffer, Buffers};
use crate::gate::Gate;
use crate::io::{Io, IoId};
use crate::recorder::Recorder;
use crate::store::{Action, Done, Nature, Owner, Segment, Store, Work};

/// What a disk is made of.
pub(crate) struct DiskSetup<'a> {
    pub(crate) store: Store,
    pub(crate) nature: Nature,
    pub(crate) scheduler: &'a SchedulerChoice,
    /// Requests the store gets at once, where no model says.
    pub(crate) depth: u32,
    /// Software queues: connections share them in turn.
    pub(crate) software_queues: usize,
    /// The drive that it is to be as slow as.
    pub(crate) drive: Option<&'a DriveSpec>,
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

/// Told how a change went.
pub(crate) type ChangeDone = Box<dyn FnOnce(Result<(), String>) + Send>;

/// An export's block layer.
pub(crate) struct Disk {
    queue: RequestQueue,
    gate: Gate,
    store: Store,
    ios: Ios,
    buffers: Buffers,
    /// Where the block layer cuts reads and writes.
    part_sectors: u32,
    zeroes_are_writes: bool,
    read_only: bool,
    changes: Vec<(Change, ChangeDone)>,
    issued: Vec<RequestId>,
    ended: Vec<(RequestId, IoStatus)>,
    done: Vec<Done>,
    /// Whoever gets the block layer's events.
    recorder: Option<Recorder>,
    /// Extents that the store found.
    extents: Vec<(IoId, IoStatus, Vec<Extent>)>,
    /// Emptied lists of segments.
    spare: Vec<Vec<Segment>>,
}

/// Client requests by name.
#[derive(Default)]
struct Ios {
    slots: Vec<Option<Io>>,
    free: Vec<IoId>,
}

impl Ios {
    fn insert(&mut self, io: Io) -> IoId {
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(io);
                id
            }
            None => {
                self.slots.push(Some(io));
                self.slots.len() as IoId - 1
            }
        }
    }

    fn get(&self, id: IoId) -> &Io {
        self.slots[id as usize].as_ref().expect("a request in use")
    }

    fn get_mut(&mut self, id: IoId) -> &mut Io {
        self.slots[id as usize].as_mut().expect("a request in use")
    }

    fn remove(&mut self, id: IoId) -> Io {
        self.free.push(id);
        self.slots[id as usize].take().expect("a request in use")
    }
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
        Ok(Disk {
            queue,
            gate: Gate::new(model),
            store: setup.store,
            ios: Ios::default(),
            buffers: Buffers::default(),
            part_sectors,
            zeroes_are_writes,
            read_only: setup.nature.read_only,
            changes: Vec::new(),
            issued: Vec::new(),
            ended: Vec::new(),
            done: Vec::new(),
            recorder: None,
            extents: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Makes room for a request and the data it brings.
    pub(crate) fn begin(&mut self, io: Io) -> IoId {
        let brings_data = io.command == Command::Write;
        let id = self.ios.insert(io);
        if brings_data {
            let io = self.ios.get_mut(id);
            let mut part = 0;
            loop {
                let len = io.part_bytes(part, self.part_sectors);
                if len == 0 {
                    break;
                }
                *io.part_mut(part) = self.buffers.get(len);
                part += 1;
            }
        }
        id
    }

    /// Where the data of a write goes that comes behind the first `at` bytes.
    pub(crate) fn payload_mut(&mut self, id: IoId, at: usize) -> &mut [u8] {
        let io = self.ios.get_mut(id);
        let (mut part, mut skip) = (0, at);
        loop {
            let len = io.part(part).len();
            if skip < len {
                return &mut io.part_mut(part)[skip..];
            }
            skip -= len;
            part += 1;
        }
    }

    /// A request in use.
    pub(crate) fn io(&self, id: IoId) -> &Io {
        self.ios.get(id)
    }

    /// Gives a request to the block layer. Where that has no room, the waiter
    /// says so, and the connection sleeps.
    pub(crate) fn submit(
        &mut self,
        now: Nanos,
        cpu: usize,
        submitter: SubmitterId,
        plug: &mut Plug,
        id: IoId,
    ) -> Option<Waiter> {
        let io = self.ios.get_mut(id);
        io.start = now;
        let bio = io.bio(id, submitter, self.zeroes_are_writes);
        let submitted = self
            .queue
            .submit_bio(now, cpu, Some(plug), bio, &mut self.gate);
        waiter_of(submitted)
    }

    /// Goes on with a submission that slept.
    pub(crate) fn resume(&mut self, now: Nanos, plug: &mut Plug, waiter: Waiter) -> Option<Waiter> {
        waiter_of(self.queue.resume(now, Some(plug), waiter, &mut self.gate))
    }

    /// Lets go what was held back for merging.
    pub(crate) fn unplug(&mut self, now: Nanos, plug: &mut Plug) {
        if !plug.is_empty() {
            self.queue.flush_plug(now, plug, &mut self.gate);
        }
    }

    /// Does everything that is due, and appends the requests that ended and
    /// the waiters that may go on.
    pub(crate) fn run(&mut self, now: Nanos, ended: &mut Vec<BioEnd>, woken: &mut Vec<u64>) {
        loop {
            if self.gate.next_event() <= now {
                let mut done = std::mem::take(&mut self.ended);
                self.gate.advance(now, &mut done);
                for (id, status) in done.drain(..) {
                    self.queue.complete(now, id, status, &mut self.gate);
                }
                self.ended = done;
            }
            if self.queue.next_event() <= now {
                self.queue.process(now, &mut self.gate);
            }
            let mut issued = std::mem::take(&mut self.issued);
            self.gate.take_issued(&mut issued);
            let any = !issued.is_empty();
            for id in issued.drain(..) {
                self.execute(now, id);
            }
            self.issued = issued;
            if !any && self.queue.next_event() > now && self.gate.next_event() > now {
                break;
            }
        }
        self.store.kick();
        self.apply_changes();
        if self.recorder.is_some() {
            self.hand_on_events();
        }
        self.queue.take_ended(ended);
        self.queue.take_woken(woken);
    }

    /// Has the block layer's events recorded from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) -> Result<(), String> {
        // One that has gone away is not known to be gone before it is tried.
        if let Some(present) = &mut self.recorder
            && present.take(Vec::new())
        {
            return Err("this export is being recorded already".to_string());
        }
        self.recorder = Some(recorder);
        self.queue.enable_trace(true);
        Ok(())
    }

    fn hand_on_events(&mut self) {
        let mut events = Vec::new();
        self.queue.take_trace(&mut events);
        if !events.is_empty()
            && let Some(recorder) = &mut self.recorder
            && !recorder.take(events)
        {
            self.recorder = None;
            self.queue.enable_trace(false);
        }
    }

    /// Takes what the store's threads have done.
    pub(crate) fn collect(&mut self, now: Nanos) {
        let mut done = std::mem::take(&mut self.done);
        self.store.take_done(&mut done);
        for Done { mut work, status } in done.drain(..) {
            let id = match work.owner {
                Owner::Request(id) => id,
                Owner::Client(io) => {
                    self.extents.push((io, status, work.extents));
                    continue;
                }
                Owner::Closing => continue,
            };
            let is_read = work.action == Action::Read;
            for segment in work.segments.drain(..) {
                if is_read {
                    *self.ios.get_mut(segment.io).part_mut(segment.part) = segment.data;
                } else {
                    self.buffers.put(segment.data);
                }
            }
            self.spare.push(work.segments);
            self.store_done(now, id, status);
        }
        self.done = done;
    }

    /// Has the store find out what is data in a request's range.
    pub(crate) fn ask_extents(&mut self, id: IoId, max: usize) {
        let request = self.ios.get(id).request;
        let segment = Segment {
            io: id,
            part: 0,
            offset: request.offset,
            length: u64::from(request.length),
            data: Buffer::empty(),
        };
        self.store.submit(Work {
            action: Action::Extents { max },
            segments: vec![segment],
            ..Work::flush(Owner::Client(id))
        });
    }

    /// An answer to [`Disk::ask_extents`].
    pub(crate) fn take_extents(&mut self) -> Option<(IoId, IoStatus, Vec<Extent>)> {
        self.extents.pop()
    }

    /// When [`Disk::run`] should be called next.
    pub(crate) fn next_event(&self) -> Nanos {
        self.queue.next_event().min(self.gate.next_event())
    }

    /// Appends a finished read's data.
    pub(crate) fn append_data(&self, id: IoId, out: &mut Vec<u8>) {
        let io = self.ios.get(id);
        match &self.store {
            Store::Memory(memory) => {
                memory.read(io.request.offset, u64::from(io.request.length), out);
            }
            _ => io.parts().for_each(|part| out.extend_from_slice(part)),
        }
    }

    /// Whether a range is known to be a hole without looking further.
    pub(crate) fn is_known_hole(&self, offset: u64, length: u32) -> bool {
        match &self.store {
            Store::Memory(memory) => memory.is_hole(offset, u64::from(length)),
            _ => false,
        }
    }

    /// Forgets a request.
    pub(crate) fn release(&mut self, id: IoId) {
        let mut io = self.ios.remove(id);
        for part in io.take_parts() {
            self.buffers.put(part);
        }
    }

    /// A connection is gone.
    pub(crate) fn exit_submitter(&mut self, now: Nanos, submitter: SubmitterId) {
        self.queue.exit_submitter(now, submitter);
    }

    /// Asks for a change that needs the queue empty: it is frozen, runs dry, is
    /// changed and goes on. Nothing in it is lost.
    pub(crate) fn change(&mut self, change: Change, done: ChangeDone) {
        self.queue.freeze();
        self.changes.push((change, done));
    }

    fn apply_changes(&mut self) {
        if self.changes.is_empty() || !self.queue.is_idle() {
            return;
        }
        for (change, done) in std::mem::take(&mut self.changes) {
            done(match change {
                Change::Scheduler(choice) => choice.put_on(&mut self.queue),
                Change::NrRequests(nr) => self.queue.set_nr_requests(nr),
            });
        }
        self.queue.unfreeze();
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

    pub(crate) fn model(&self) -> Option<&Driver> {
        self.gate.model()
    }

    pub(crate) fn lateness(&self) -> &Histogram {
        self.gate.lateness()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Carries out a request that the block layer issued.
    fn execute(&mut self, now: Nanos, id: RequestId) {
        let (op, flags) = {
            let rq = self.queue.request(id);
            (rq.op, rq.flags)
        };
        if let Store::Memory(_) = self.store {
            self.execute_in_memory(op, id);
            return self.store_done(now, id, IoStatus::Ok);
        }
        let mut work = Work {
            fua: flags.has(BioFlags::FUA),
            segments: self.spare.pop().unwrap_or_default(),
            ..Work::flush(Owner::Request(id))
        };
        for bio in self.queue.bios_of(id) {
            let io_id = bio.user_data as IoId;
            let io = self.ios.get_mut(io_id);
            let piece = io.piece(bio, self.part_sectors);
            work.action = action_of(op, io);
            let data = match work.action {
                Action::Read => self.buffers.get(piece.length as usize),
                Action::Write => std::mem::replace(io.part_mut(piece.part), Buffer::empty()),
                _ => Buffer::empty(),
            };
            work.segments.push(Segment {
                io: io_id,
                part: piece.part,
                offset: piece.offset,
                length: piece.length,
                data,
            });
        }
        // A bio that joined in front comes last in the list.
        work.segments.sort_by_key(|segment| segment.offset);
        self.store.submit(work);
    }

    fn execute_in_memory(&mut self, op: Op, id: RequestId) {
        let Store::Memory(memory) = &mut self.store else {
            return;
        };
        if matches!(op, Op::Read | Op::Flush) {
            // A read is carried out as its reply is written: one copy less.
            return;
        }
        for bio in self.queue.bios_of(id) {
            let io = self.ios.get(bio.user_data as IoId);
            let piece = io.piece(bio, self.part_sectors);
            match action_of(op, io) {
                Action::Write => memory.write(piece.offset, io.part(piece.part)),
                Action::Zero {
                    may_punch: false, ..
                } => memory.zero(piece.offset, piece.length),
                _ => memory.punch(piece.offset, piece.length),
            }
        }
    }

    fn store_done(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        if let Some(status) = self.gate.store_done(id, status) {
            self.queue.complete(now, id, status, &mut self.gate);
        }
    }
}

fn waiter_of(submitted: Submit) -> Option<Waiter> {
    match submitted {
        Submit::Done => None,
        Submit::Blocked(waiter) => Some(waiter),
    }
}

fn action_of(op: Op, io: &Io) -> Action {
    match (op, io.command) {
        (Op::Read, _) => Action::Read,
        (Op::Flush, _) => Action::Flush,
        (Op::Discard, _) => Action::Discard,
        (Op::WriteZeroes, _) | (Op::Write, Command::WriteZeroes) => Action::Zero {
            may_punch: !io.request.flags.has(CommandFlags::NO_HOLE),
            only_fast: io.request.flags.has(CommandFlags::FAST_ZERO),
        },
        (Op::Write, _) => Action::Write,
    }
}

/// The queue for a store: with the drive's limits where there is a model, else
/// with room for the largest request.
fn queue_config(setup: &DiskSetup<'_>, model: Option<&Driver>) -> QueueConfig {
    let nature = &setup.nature;
    let capacity_sectors = nature.size_bytes.div_ceil(512);
    let unit = nature.block_sizes.minimum.div_ceil(512).max(1);
    if let Some(model) = model {
        let mut config = model.queue_config(setup.software_queues);
        config.limits.capacity_sectors = capacity_sectors;
        config.limits.logical_block_sectors = config.limits.logical_block_sectors.max(unit);
        // What a store needs to be durable it gets, whatever the drive does.
        config.limits.write_cache |= nature.write_cache;
        return config;
    }
    let max_sectors = nature.block_sizes.maximum.div_ceil(512) + 1;
    QueueConfig {
        nr_cpus: setup.software_queues,
        nr_hw_queues: 1,
        queue_depth: setup.depth,
        limits: QueueLimits {
            capacity_sectors,
            logical_block_sectors: unit,
            max_sectors: max_sectors.next_multiple_of(unit),
            max_segments: u16::MAX,
            max_write_zeroes_sectors: u32::MAX >> 9,
            write_cache: nature.write_cache,
            fua: nature.write_cache,
            ..QueueLimits::default()
        },
    }
}
