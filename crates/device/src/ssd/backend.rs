//! The flash behind its channels: who gets which die and which bus when.
//!
//! A *unit* is the smallest part that executes a command of its own (a
//! package, a die or a plane, as the drive says). A read takes its channel for
//! the command, its unit for the array time, and the channel again for the
//! data; a program takes the channel for command and data, then the unit. A
//! bus that becomes free first carries data out that is ready, then commands to
//! idle units in turn, as MQSim does (Tavakkol et al., FAST 2018, section 4).

use std::collections::VecDeque;

use blklab_stats::{ChannelStats, DeviceStats, DieStats, Work};

use super::clocks::{HoldClock, QueueClock};
use super::divide::Divisor;
use super::lanes::{Lane, Lanes};
use super::op::{List, NONE, Op, OpKind, Ops, Source};
use super::paq;
use super::recorder::Recorder;
use super::spec::{FlashSpec, Interleave, MultiPlane, Scheduling, SsdSpec};
use super::timing::Timing;

/// What a unit is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Command or data on their way, or the array at work.
    Busy,
    /// Data waits for the bus or is on it.
    Output,
}

/// An operation that was stopped for a read.
#[derive(Clone, Copy, Debug)]
struct Suspended {
    group: List,
    kind: OpKind,
    remaining_ns: u64,
}

/// What a unit programs next.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    group: List,
    /// When its data has left the bus.
    at_ns: u64,
    array_ns: u64,
}

impl Loaded {
    const NOTHING: Loaded = Loaded {
        group: List::EMPTY,
        at_ns: 0,
        array_ns: 0,
    };
}

#[derive(Clone, Debug)]
struct Unit {
    channel: u32,
    /// Its bit in the channel's masks.
    bit: u64,
    phase: Phase,
    kind: OpKind,
    /// What is being executed; several under a multi-plane command.
    group: List,
    /// When the array will be done.
    done_ns: u64,
    reads: List,
    programs: List,
    erases: List,
    background: List,
    /// Operations in all of these.
    queued: u32,
    /// Reads started since the last program or erase.
    reads_in_a_row: u32,
    suspended: Option<Suspended>,
    /// Cache reads: what is in the cache register and goes out, while the array
    /// may be at the next.
    outgoing: List,
    /// Cache programs: what is in the cache register or on its way there, while
    /// the array is at the last program.
    loaded: Loaded,
    /// How often its oldest read was passed over.
    passed_over: u32,
    /// Programs and erases that hold it.
    writing: HoldClock,
    /// Collection that holds it.
    collecting: HoldClock,
    /// When the array began what it is at.
    began_ns: u64,
    busy_ns: u64,
    commands: u64,
    queue: QueueClock,
}

#[derive(Clone, Debug)]
struct Channel {
    free_ns: u64,
    /// An event at `free_ns` is on its way.
    scheduled: bool,
    output: VecDeque<u32>,
    /// Units that could start something.
    ready: u64,
    turn: u32,
    units: u32,
    first_unit: u32,
    /// Units at work, and since when at least one is.
    active: u32,
    active_since_ns: u64,
    queue: QueueClock,
    stats: ChannelStats,
}

/// Counts of the whole flash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    erases: u64,
    behind_writes: u64,
    behind_writes_ns: u64,
    behind_collection: u64,
    behind_collection_ns: u64,
    longest_behind_collection_ns: u64,
    programmed_bytes: u64,
    channel_conflicts: u64,
    die_conflicts: u64,
    multi_plane: u64,
    suspensions: u64,
    copybacks: u64,
    cache_reads: u64,
    cache_programs: u64,
    pub(crate) paq: paq::Counts,
}

/// The flash and its channels.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) ops: Ops,
    pub(crate) lanes: Lanes,
    units: Vec<Unit>,
    channels: Vec<Channel>,
    unit_of_plane: Vec<u32>,
    plane_busy_ns: Vec<u64>,
    /// Block and physical page in each plane's page register, where pages are
    /// parts of physical ones.
    sensed: Vec<Option<(u32, u32)>>,
    partners: Partners,
    flash: FlashSpec,
    timing: Timing,
    scheduling: Scheduling,
    reads_in_a_row: u32,
    /// Under strict first-come order: what has not started yet, oldest first.
    in_order: VecDeque<u64>,
    pub(crate) counts: Counts,
    /// Writes down what happens, where somebody asked for it.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// Operations that ended, for whoever started them.
    pub(crate) finished: Vec<u32>,
}

impl Backend {
    pub(crate) fn new(spec: &SsdSpec) -> Backend {
        let geometry = &spec.geometry;
        let planes_per_unit = match spec.flash.interleave {
            Interleave::Package => geometry.dies_per_package * geometry.planes_per_die,
            Interleave::Die => geometry.planes_per_die,
            Interleave::Plane => 1,
        };
        let units_per_channel = geometry.planes_per_channel() / planes_per_unit;
        let units = (0..geometry.channels * units_per_channel)
            .map(|unit| Unit::new(unit / units_per_channel, 1 << (unit % units_per_channel)))
            .collect();
        let channels = (0..geometry.channels)
            .map(|channel| Channel::new(channel * units_per_channel, units_per_channel))
            .collect();
        Backend {
            ops: Ops::new(),
            lanes: Lanes::new(),
            units,
            channels,
            unit_of_plane: (0..geometry.planes())
                .map(|p| p / planes_per_unit)
                .collect(),
            plane_busy_ns: vec![0; geometry.planes() as usize],
            sensed: vec![None; geometry.planes() as usize],
            partners: Partners {
                planes_per_unit: Divisor::new(planes_per_unit),
                planes_per_die: Divisor::new(geometry.planes_per_die),
                same_page: spec.flash.multi_plane == MultiPlane::SamePage,
                reach: match spec.flash.multi_plane {
                    MultiPlane::None => 0,
                    _ => spec.flash.multi_plane_reach,
                },
                superpage: spec.flash.superpage,
            },
            flash: spec.flash.clone(),
            timing: Timing::new(spec),
            scheduling: spec.controller.scheduling,
            reads_in_a_row: spec.controller.reads_in_a_row,
            in_order: VecDeque::new(),
            counts: Counts::default(),
            recorder: None,
            finished: Vec::with_capacity(64),
        }
    }

    /// How much there is to do before a plane's die could begin something:
    /// operations of the die before those of its channel.
    #[inline]
    pub(crate) fn load(&self, plane: u32) -> u64 {
        let unit = &self.units[self.unit_of_plane[plane as usize] as usize];
        let channel = &self.channels[unit.channel as usize];
        let at_work = unit.phase != Phase::Idle || unit.suspended.is_some();
        (unit.queued as u64 + at_work as u64) << 32 | channel.waiting() as u64
    }

    /// Queues an operation.
    #[inline]
    pub(crate) fn enqueue(&mut self, now_ns: u64, mut op: Op) -> u32 {
        let unit_index = self.unit_of_plane[op.plane as usize];
        let unit = &mut self.units[unit_index as usize];
        op.write_clock_ns = unit.writing.read(now_ns);
        op.collection_clock_ns = unit.collecting.read(now_ns);
        if unit.phase != Phase::Idle {
            self.counts.die_conflicts += 1;
            let behind = unit.collecting.holds && op.source == Source::Host;
            self.counts.behind_collection += behind as u64;
        }
        let ready = op.ready;
        let (kind, background) = (op.kind, op.background);
        let index = self.ops.insert(op);
        let channel = &self.channels[unit.channel as usize];
        if unit.is_free()
            && kind == OpKind::Read
            && channel.is_free(now_ns)
            && self.scheduling != Scheduling::Fcfs
        {
            // Nobody is in the way: the most common case needs no queue.
            unit.group.push(&mut self.ops, index);
            self.execute(now_ns, unit_index, 0);
            return index;
        }
        unit.count_queued(now_ns, 1);
        let list = match (background, kind) {
            (true, _) => &mut unit.background,
            (_, OpKind::Read) => &mut unit.reads,
            (_, OpKind::Program) => &mut unit.programs,
            (_, OpKind::Erase) => &mut unit.erases,
        };
        match op.source {
            // Whole commands wait for a page of the map.
            Source::MapFetch | Source::MapMerge if self.scheduling != Scheduling::Fcfs => {
                // It counts as no younger than what it goes before, else an
                // erase could pass that and take its page.
                if !list.is_empty() {
                    self.ops[index].arrival = self.ops[list.head()].arrival;
                }
                list.push_front(&mut self.ops, index)
            }
            _ => list.push(&mut self.ops, index),
        }
        if self.scheduling == Scheduling::Fcfs && !background {
            self.in_order.push_back(self.ops[index].arrival);
        }
        if ready {
            self.wake(now_ns, unit_index);
        }
        index
    }

    /// Whether a program is the last of its word line.
    pub(crate) fn completes_word_line(&self, op: &Op) -> bool {
        self.timing.completes_word_line(op)
    }

    /// A program whose data is complete may start.
    pub(crate) fn make_ready(&mut self, now_ns: u64, index: u32) {
        self.ops[index].ready = true;
        let unit = self.unit_of_plane[self.ops[index].plane as usize];
        self.wake(now_ns, unit);
    }

    /// A unit may have something to start: now, or when its bus is free.
    #[inline]
    fn wake(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &self.units[unit_index as usize];
        if !self.may_start(now_ns, unit) {
            return;
        }
        let (channel_index, bit) = (unit.channel, unit.bit);
        let channel = &mut self.channels[channel_index as usize];
        channel.set_ready(now_ns, bit);
        if channel.is_free(now_ns) {
            self.arbitrate(now_ns, channel_index);
        } else {
            self.counts.channel_conflicts += 1;
            self.schedule_bus(channel_index);
        }
    }

    #[inline]
    fn may_start(&self, now_ns: u64, unit: &Unit) -> bool {
        match unit.phase {
            Phase::Idle => unit.queued > 0,
            Phase::Busy => self.can_suspend(now_ns, unit) || self.can_load(unit),
            Phase::Output => false,
        }
    }

    /// Whether a read may stop what the unit is doing.
    #[inline]
    fn can_suspend(&self, now_ns: u64, unit: &Unit) -> bool {
        let cost_ns = match unit.kind {
            OpKind::Read => None,
            OpKind::Program => self.flash.program_suspend_ns,
            OpKind::Erase => self.flash.erase_suspend_ns,
        };
        let Some(cost_ns) = cost_ns else {
            return false;
        };
        !unit.reads.is_empty()
            && unit.suspended.is_none()
            && unit.loaded.group.is_empty()
            // Still on the bus: the array has not begun.
            && unit.began_ns <= now_ns
            && unit.done_ns.saturating_sub(now_ns) > cost_ns + self.flash.suspend_above_ns
    }

    /// Whether the data of a unit's next program may go over the bus while its
    /// array is at the last one: ONFI's page cache program. (While that one's own
    /// data is on the bus, the bus is not free.)
    #[inline]
    fn can_load(&self, unit: &Unit) -> bool {
        self.flash.cache_program
            && unit.kind == OpKind::Program
            && unit.suspended.is_none()
            && unit.loaded.group.is_empty()
            && !unit.programs.is_empty()
            && self.ops[unit.programs.head()].copies == NONE
            && self.choose(unit, false) == Some(Queue::Programs)
    }

    #[inline]
    fn schedule_bus(&mut self, channel_index: u32) {
        let channel = &mut self.channels[channel_index as usize];
        if !channel.scheduled {
            channel.scheduled = true;
            self.lanes.push(Lane::BUS, channel.free_ns, channel_index);
        }
    }

    /// A read's data has left the bus: the read is over.
    #[inline]
    pub(crate) fn data_out(&mut self, now_ns: u64, index: u32) -> Op {
        let op = self.ops[index];
        let unit_index = self.unit_of_plane[op.plane as usize];
        let unit = &mut self.units[unit_index as usize];
        let channel_index = unit.channel;
        if !unit.outgoing.is_empty() {
            self.leave_cache_register(now_ns, unit_index);
            self.ops.remove(index);
            self.bus_free(now_ns, channel_index);
            return op;
        }
        // The group's reads leave in order: the head is the one that left.
        unit.group.pop(&self.ops);
        if unit.group.is_empty() {
            self.release(now_ns, unit_index);
        }
        self.ops.remove(index);
        self.bus_free(now_ns, channel_index);
        op
    }

    /// A bus is free that somebody waits for.
    pub(crate) fn bus_free(&mut self, now_ns: u64, channel_index: u32) {
        let channel = &mut self.channels[channel_index as usize];
        channel.scheduled = false;
        if channel.ready != 0 || !channel.output.is_empty() {
            self.arbitrate(now_ns, channel_index);
        }
    }

    /// The unit has nothing in hand any more; it goes on with what was stopped
    /// or says that it could start something.
    fn release(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        let channel_index = unit.channel;
        unit.phase = Phase::Idle;
        unit.writing.end(now_ns);
        unit.collecting.end(now_ns);
        if unit.suspended.is_some() && unit.reads.is_empty() {
            self.resume(now_ns, unit_index);
            return;
        }
        let channel = &mut self.channels[channel_index as usize];
        channel.leave(now_ns);
        if unit.queued > 0 {
            channel.set_ready(now_ns, unit.bit);
        }
    }

    fn resume(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        let Some(stopped) = unit.suspended.take() else {
            return;
        };
        unit.phase = Phase::Busy;
        unit.kind = stopped.kind;
        unit.group = stopped.group;
        unit.began_ns = now_ns;
        unit.done_ns = now_ns + stopped.remaining_ns;
        unit.writing.begin(now_ns);
        if self.ops[unit.group.head()].collects {
            unit.collecting.begin(now_ns);
        }
        self.lanes.push(Lane::CHANGE, unit.done_ns, unit_index);
    }

    /// A unit's array is done, unless it was stopped meanwhile.
    pub(crate) fn array_done(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        if unit.phase != Phase::Busy || unit.done_ns != now_ns {
            return;
        }
        let channel_index = unit.channel;
        if self.recorder.is_some() {
            self.record_array(now_ns, unit_index);
        }
        let unit = &mut self.units[unit_index as usize];
        if unit.kind == OpKind::Read && self.flash.cache_read && unit.suspended.is_none() {
            unit.phase = Phase::Output;
            if unit.outgoing.is_empty() {
                self.fill_cache_register(now_ns, unit_index);
            }
        } else if unit.kind == OpKind::Read {
            unit.phase = Phase::Output;
            let channel = &mut self.channels[channel_index as usize];
            let mut index = unit.group.head();
            if channel.is_free(now_ns) && self.scheduling != Scheduling::Paq {
                let first = index;
                index = self.ops[index].next;
                self.carry(now_ns, channel_index, first);
            }
            let channel = &mut self.channels[channel_index as usize];
            while index != NONE {
                channel.put_output(now_ns, index);
                index = self.ops[index].next;
            }
        } else {
            while let Some(index) = unit.group.pop(&self.ops) {
                self.finished.push(index);
            }
            if unit.loaded.group.is_empty() {
                self.release(now_ns, unit_index);
            } else {
                self.program_loaded(now_ns, unit_index);
            }
        }
        let channel = &self.channels[channel_index as usize];
        if channel.is_free(now_ns) {
            self.arbitrate(now_ns, channel_index);
        } else if !channel.output.is_empty() || channel.ready != 0 {
            self.counts.channel_conflicts += 1;
            self.schedule_bus(channel_index);
        }
    }

    /// What the array has read goes to the cache register, and out from there;
    /// the array may go on.
    fn fill_cache_register(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        unit.outgoing = std::mem::replace(&mut unit.group, List::EMPTY);
        let (channel_index, mut index) = (unit.channel, unit.outgoing.head());
        self.release(now_ns, unit_index);
        let channel = &mut self.channels[channel_index as usize];
        while index != NONE {
            channel.put_output(now_ns, index);
            index = self.ops[index].next;
        }
    }

    /// Starts the next read of a die whose cache register is full, before that
    /// goes out: ONFI's read cache command does both at once.
    fn read_on(&mut self, now_ns: u64, channel_index: u32) -> bool {
        let mut waiting = self.ready_units(channel_index);
        while waiting != 0 {
            let place = waiting.trailing_zeros();
            waiting &= waiting - 1;
            let unit_index = self.channels[channel_index as usize].first_unit + place;
            let is_full = !self.units[unit_index as usize].outgoing.is_empty();
            if is_full && self.start_read(now_ns, channel_index, place) {
                return true;
            }
        }
        false
    }

    /// A read's data has left the cache register.
    fn leave_cache_register(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        unit.outgoing.pop(&self.ops);
        if !unit.outgoing.is_empty() {
            return;
        }
        match unit.phase {
            Phase::Output => self.fill_cache_register(now_ns, unit_index),
            Phase::Idle if unit.queued > 0 => {
                let (channel_index, bit) = (unit.channel, unit.bit);
                self.channels[channel_index as usize].set_ready(now_ns, bit);
            }
            _ => {}
        }
    }

    /// Puts a read's data on the free bus.
    #[inline]
    fn carry(&mut self, now_ns: u64, channel_index: u32, index: u32) {
        let channel = &mut self.channels[channel_index as usize];
        channel.occupy(now_ns, self.timing.data_ns(self.ops[index].bytes));
        channel.scheduled = true;
        let span_ns = (now_ns, channel.free_ns);
        self.lanes.push(Lane::DATA_OUT, channel.free_ns, index);
        if let Some(recorder) = &mut self.recorder {
            recorder.on_channel(channel_index, Work::DataOut, span_ns, &self.ops[index]);
        }
    }

    /// Gives the free bus to data that is ready, else to an idle unit.
    fn arbitrate(&mut self, now_ns: u64, channel_index: u32) {
        if self.scheduling == Scheduling::Paq
            && !self.channels[channel_index as usize].output.is_empty()
            && self.clump(now_ns, channel_index)
        {
            return self.schedule_bus(channel_index);
        }
        if self.flash.cache_read && self.read_on(now_ns, channel_index) {
            return self.schedule_bus(channel_index);
        }
        let channel = &mut self.channels[channel_index as usize];
        if let Some(index) = channel.take_output(now_ns) {
            return self.carry(now_ns, channel_index, index);
        }
        while self.channels[channel_index as usize].ready != 0 {
            let unit_index = self.channels[channel_index as usize].next_ready();
            let started = self.start(now_ns, unit_index);
            let channel = &mut self.channels[channel_index as usize];
            if !started {
                continue;
            }
            channel.turn = unit_index - channel.first_unit + 1;
            if channel.ready != 0 {
                self.schedule_bus(channel_index);
            }
            return;
        }
    }

    /// Units of a channel that could start something.
    pub(crate) fn ready_units(&self, channel_index: u32) -> u64 {
        self.channels[channel_index as usize].ready
    }

    /// Starts a read on a unit, by its place on the channel, if it is idle and
    /// has one.
    pub(crate) fn start_read(&mut self, now_ns: u64, channel_index: u32, place: u32) -> bool {
        let unit_index = self.channels[channel_index as usize].first_unit + place;
        let unit = &self.units[unit_index as usize];
        if unit.phase != Phase::Idle || unit.reads.is_empty() {
            return false;
        }
        let queue = self.choose(unit, unit.suspended.is_some());
        queue == Some(Queue::Reads) && self.start(now_ns, unit_index)
    }

    /// Starts the unit's next command if it has one that may start.
    fn start(&mut self, now_ns: u64, unit_index: u32) -> bool {
        let unit = &self.units[unit_index as usize];
        let channel_index = unit.channel;
        self.channels[channel_index as usize].clear_ready(now_ns, unit.bit);
        if !self.may_start(now_ns, unit) {
            return false;
        }
        let suspending = unit.phase == Phase::Busy;
        if suspending && !self.can_suspend(now_ns, unit) {
            return self.load_next(now_ns, unit_index);
        }
        let only_reads = suspending || unit.suspended.is_some();
        // Anything else would overwrite what is in the cache register.
        if !unit.outgoing.is_empty() && self.choose(unit, only_reads) != Some(Queue::Reads) {
            return false;
        }
        let group = self.pick(now_ns, unit_index, only_reads);
        if group.is_empty() {
            return false;
        }
        let delay_ns = if suspending {
            self.suspend(now_ns, unit_index)
        } else {
            0
        };
        self.units[unit_index as usize].group = group;
        self.execute(now_ns, unit_index, delay_ns);
        true
    }

    /// Stops what the array is doing and returns what that costs.
    fn suspend(&mut self, now_ns: u64, unit_index: u32) -> u64 {
        if self.recorder.is_some() {
            self.record_array(now_ns, unit_index);
        }
        let unit = &mut self.units[unit_index as usize];
        let cost_ns = match unit.kind {
            OpKind::Erase => self.flash.erase_suspend_ns,
            _ => self.flash.program_suspend_ns,
        };
        unit.writing.end(now_ns);
        unit.collecting.end(now_ns);
        unit.suspended = Some(Suspended {
            group: unit.group,
            kind: unit.kind,
            remaining_ns: unit.done_ns.saturating_sub(now_ns),
        });
        self.counts.suspensions += 1;
        self.channels[unit.channel as usize].leave(now_ns);
        cost_ns.unwrap_or(0)
    }

    /// Takes the next command's operations out of their queue.
    fn pick(&mut self, now_ns: u64, unit_index: u32, only_reads: bool) -> List {
        let Some(choice) = self.choose(&self.units[unit_index as usize], only_reads) else {
            return List::EMPTY;
        };
        let closed = match choice {
            Queue::Erases => self.planes_with_reads_before_erases(unit_index),
            _ => 0,
        };
        let unit = &mut self.units[unit_index as usize];
        if self.scheduling == Scheduling::Paq && choice == Queue::Reads {
            let passed = &mut unit.passed_over;
            let packed = paq::pack(&mut self.ops, &mut unit.reads, &self.partners, passed);
            self.counts.paq.packed += packed as u64;
        }
        let list = match choice {
            Queue::Reads => &mut unit.reads,
            Queue::Programs => &mut unit.programs,
            Queue::Erases => &mut unit.erases,
            Queue::Background => &mut unit.background,
        };
        let (group, taken) = take_group(&mut self.ops, list, &self.partners, closed);
        unit.count_queued(now_ns, -(taken as i32));
        if self.scheduling == Scheduling::Fcfs {
            self.note_started(group);
        }
        group
    }

    /// Planes of a unit where a read waits for a page of a block that is to be
    /// erased: that erase must not run early as a partner of another.
    fn planes_with_reads_before_erases(&self, unit_index: u32) -> u64 {
        let unit = &self.units[unit_index as usize];
        if unit.reads.is_empty() || unit.erases.is_single() {
            return 0;
        }
        let bit = |op: &Op| 1u64 << self.partners.planes_per_unit.split(op.plane).1;
        let mut closed = 0;
        for erase in self.ops.of(unit.erases).skip(1) {
            if (self.ops.of(unit.reads)).any(|read| read.block == erase.block) {
                closed |= bit(erase);
            }
        }
        // The oldest has been found to be due.
        closed & !bit(&self.ops[unit.erases.head()])
    }

    /// Which queue is next, by the drive's scheduling.
    #[inline]
    fn choose(&self, unit: &Unit, only_reads: bool) -> Option<Queue> {
        if only_reads {
            // Only reads may run while something is stopped.
            return (!unit.reads.is_empty()).then_some(Queue::Reads);
        }
        let heads = [
            (Queue::Reads, unit.reads.head()),
            (Queue::Programs, unit.programs.head()),
            (Queue::Erases, unit.erases.head()),
        ];
        let startable = |(queue, head): &(Queue, u32)| {
            *head != NONE && (*queue != Queue::Programs || self.any_startable(*head))
        };
        let mut waiting = heads.into_iter().filter(startable);
        let chosen = match self.scheduling {
            Scheduling::ReadPriority if unit.reads_in_a_row >= self.reads_in_a_row => waiting
                .clone()
                .find(|(queue, _)| *queue != Queue::Reads)
                .or_else(|| waiting.next()),
            Scheduling::ReadPriority => waiting.next(),
            Scheduling::OutOfOrder | Scheduling::Paq => {
                waiting.min_by_key(|(_, head)| self.ops[*head].arrival)
            }
            Scheduling::Fcfs => waiting
                .min_by_key(|(_, head)| self.ops[*head].arrival)
                .filter(|(_, head)| self.in_order.front() == Some(&self.ops[*head].arrival)),
        };
        match chosen {
            Some((queue, _)) => Some(queue),
            // A background erase must not take the page of a read that waits
            // for its turn.
            None => {
                (unit.reads.is_empty() && !unit.background.is_empty()).then_some(Queue::Background)
            }
        }
    }

    /// Whether one of a list's programs may start: its data is complete, and no
    /// older program of its plane has to go first.
    #[inline]
    fn any_startable(&self, mut index: u32) -> bool {
        let mut closed = 0u64;
        while index != NONE {
            let op = &self.ops[index];
            let bit = 1u64 << self.partners.planes_per_unit.split(op.plane).1;
            if op.ready && closed & bit == 0 {
                return true;
            }
            closed |= bit;
            index = op.next;
        }
        false
    }

    /// Under first-come order: the group has started, others may follow.
    fn note_started(&mut self, group: List) {
        let mut index = group.head();
        while index != NONE {
            let arrival = self.ops[index].arrival;
            if let Some(place) = self.in_order.iter().position(|a| *a == arrival) {
                self.in_order.remove(place);
            }
            index = self.ops[index].next;
        }
    }

    /// Puts the unit's group on the bus and sets the array's end.
    fn execute(&mut self, now_ns: u64, unit_index: u32, delay_ns: u64) {
        let group = self.units[unit_index as usize].group;
        let kind = self.ops[group.head()].kind;
        let (bus_ns, array_ns) = self.transfer(unit_index, kind, group);
        let unit = &mut self.units[unit_index as usize];
        let channel = &mut self.channels[unit.channel as usize];
        if self.ops[group.head()].collects {
            unit.collecting.begin(now_ns);
        }
        channel.occupy(now_ns, delay_ns + bus_ns);
        channel.enter(now_ns);
        self.counts.cache_reads += !unit.outgoing.is_empty() as u64;
        unit.phase = Phase::Busy;
        unit.kind = kind;
        match kind {
            OpKind::Read => unit.reads_in_a_row = unit.reads_in_a_row.saturating_add(1),
            // Parts of a page that is not complete cost no turn.
            _ if array_ns > 0 => unit.reads_in_a_row = 0,
            _ => {}
        }
        unit.began_ns = channel.free_ns;
        unit.done_ns = channel.free_ns + array_ns;
        unit.busy_ns += array_ns;
        unit.commands += 1;
        if kind != OpKind::Read {
            unit.writing.begin(now_ns);
        }
        let (channel_index, span_ns) = (unit.channel, (now_ns, channel.free_ns));
        let lane = match kind {
            OpKind::Read => Lane::READ,
            _ => Lane::CHANGE,
        };
        self.lanes.push(lane, unit.done_ns, unit_index);
        if self.flash.cache_program {
            self.offer_next_program(now_ns, unit_index);
        }
        if let Some(recorder) = &mut self.recorder {
            let work = match kind {
                OpKind::Program => Work::DataIn,
                _ => Work::Command,
            };
            recorder.on_channel(channel_index, work, span_ns, &self.ops[group.head()]);
        }
        if self.scheduling == Scheduling::Fcfs {
            self.wake_next_in_order(now_ns);
        }
    }

    /// How long a command takes the bus, and then the array. Counts what it
    /// does.
    #[inline]
    fn transfer(&mut self, unit_index: u32, kind: OpKind, group: List) -> (u64, u64) {
        let unit = &self.units[unit_index as usize];
        let channel = &mut self.channels[unit.channel as usize];
        let (mut bus_ns, mut array_ns) = (self.timing.command_ns(kind), 0);
        let mut index = group.head();
        let (first, mut multi_plane) = (index, 0);
        while index != NONE {
            let op = &self.ops[index];
            let mut op_ns = self.timing.array_ns(op);
            if let Some(page) = self.timing.physical_page(op) {
                let sensed = (kind == OpKind::Read).then_some((op.block, page));
                let before = std::mem::replace(&mut self.sensed[op.plane as usize], sensed);
                if sensed.is_some() && sensed == before {
                    // Another part of it is asked for while it is in the
                    // plane's page register.
                    op_ns = 0;
                }
            }
            array_ns = op_ns.max(array_ns);
            self.plane_busy_ns[op.plane as usize] += op_ns;
            if index != first {
                bus_ns += self.timing.plane_command_ns;
                multi_plane = 1;
            }
            match kind {
                OpKind::Read => {
                    channel.stats.reads += 1;
                    if op.source == Source::Host {
                        let lost_ns = unit.writing.held_ns - op.write_clock_ns;
                        self.counts.behind_writes += (lost_ns > 0) as u64;
                        self.counts.behind_writes_ns += lost_ns;
                        self.counts.waited_for_collection(
                            unit.collecting.held_ns - op.collection_clock_ns,
                        );
                    }
                }
                OpKind::Program => {
                    bus_ns += self.timing.program_data_ns(op);
                    self.counts.copybacks += (op.copies != NONE) as u64;
                    channel.stats.writes += 1;
                    self.counts.programmed_bytes += op.bytes as u64;
                }
                OpKind::Erase => self.counts.erases += 1,
            }
            index = op.next;
        }
        self.counts.multi_plane += multi_plane;
        (bus_ns, array_ns)
    }

    /// Carries the data of a unit's next program to its cache register.
    fn load_next(&mut self, now_ns: u64, unit_index: u32) -> bool {
        let group = self.pick(now_ns, unit_index, false);
        if group.is_empty() {
            return false;
        }
        let (bus_ns, array_ns) = self.transfer(unit_index, OpKind::Program, group);
        let unit = &mut self.units[unit_index as usize];
        let channel = &mut self.channels[unit.channel as usize];
        channel.occupy(now_ns, bus_ns);
        unit.loaded = Loaded {
            group,
            at_ns: channel.free_ns,
            array_ns,
        };
        unit.commands += 1;
        self.counts.cache_programs += 1;
        let (channel_index, span_ns) = (unit.channel, (now_ns, channel.free_ns));
        if let Some(recorder) = &mut self.recorder {
            recorder.on_channel(
                channel_index,
                Work::DataIn,
                span_ns,
                &self.ops[group.head()],
            );
        }
        if self.scheduling == Scheduling::Fcfs {
            self.wake_next_in_order(now_ns);
        }
        true
    }

    /// The array goes on with what is in the cache register, or will be.
    fn program_loaded(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        let loaded = std::mem::replace(&mut unit.loaded, Loaded::NOTHING);
        unit.group = loaded.group;
        unit.began_ns = now_ns.max(loaded.at_ns);
        unit.done_ns = unit.began_ns + loaded.array_ns;
        unit.busy_ns += loaded.array_ns;
        unit.collecting.end(now_ns);
        if self.ops[unit.group.head()].collects {
            unit.collecting.begin(now_ns);
        }
        self.lanes.push(Lane::CHANGE, unit.done_ns, unit_index);
        self.offer_next_program(now_ns, unit_index);
    }

    /// A unit whose array begins to program may take the next data as soon as
    /// the bus is free.
    fn offer_next_program(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &self.units[unit_index as usize];
        if unit.kind == OpKind::Program && !unit.programs.is_empty() {
            let (channel_index, bit) = (unit.channel, unit.bit);
            self.channels[channel_index as usize].set_ready(now_ns, bit);
        }
    }

    /// Writes down what a unit's array has just ended or is stopped at.
    fn record_array(&mut self, now_ns: u64, unit_index: u32) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let unit = &self.units[unit_index as usize];
        let work = match unit.kind {
            OpKind::Read => Work::Sense,
            OpKind::Program => Work::Program,
            OpKind::Erase => Work::Erase,
        };
        let mut index = unit.group.head();
        while index != NONE {
            recorder.on_unit(unit_index, work, (unit.began_ns, now_ns), &self.ops[index]);
            index = self.ops[index].next;
        }
    }

    /// Starts or stops writing down what happens.
    pub(crate) fn record(&mut self, on: bool) {
        let channel_of_unit: Vec<u32> = self.units.iter().map(|unit| unit.channel).collect();
        let name = match self.flash.interleave {
            Interleave::Package => "package",
            Interleave::Die => "die",
            Interleave::Plane => "plane",
        };
        self.recorder =
            on.then(|| Box::new(Recorder::new(self.channels.len(), &channel_of_unit, name)));
    }

    /// The number of the command that comes in, where that is recorded.
    #[inline]
    pub(crate) fn next_command(&mut self) -> u32 {
        match &mut self.recorder {
            Some(recorder) => recorder.next_command(),
            None => NONE,
        }
    }

    /// A command's data is in a page.
    #[inline]
    pub(crate) fn note_writer(&mut self, record: u32, command: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.wrote(record, command);
        }
    }

    /// A page's record will mean another page.
    #[inline]
    pub(crate) fn forget_writers(&mut self, record: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget(record);
        }
    }

    /// Under first-come order: whoever holds the oldest operation may go.
    fn wake_next_in_order(&mut self, now_ns: u64) {
        let Some(&arrival) = self.in_order.front() else {
            return;
        };
        let holder = self.units.iter().position(|unit| {
            [&unit.reads, &unit.programs, &unit.erases]
                .iter()
                .any(|list| !list.is_empty() && self.ops[list.head()].arrival == arrival)
        });
        let Some(holder) = holder else { return };
        let unit = &self.units[holder];
        if unit.phase == Phase::Idle && unit.queued > 0 {
            let channel_index = unit.channel;
            let channel = &mut self.channels[channel_index as usize];
            channel.set_ready(now_ns, unit.bit);
            // Its bus may be free, but a start within a start would nest
            // without bound: an event at once does the same.
            channel.free_ns = channel.free_ns.max(now_ns);
            self.schedule_bus(channel_index);
        }
    }

    /// Stops everything at once. Returns the owners of page programs that were
    /// changing the array.
    pub(crate) fn power_off(&mut self, now_ns: u64) -> Vec<u32> {
        let mut interrupted = Vec::new();
        for unit in &mut self.units {
            if unit.phase != Phase::Idle {
                let channel = &mut self.channels[unit.channel as usize];
                // What was going to arrive at an idle drive may have started.
                channel.leave(now_ns.max(channel.active_since_ns));
            }
            if let Some(stopped) = unit.suspended {
                interrupted.extend(self.ops.programs_of(stopped.group));
            }
            // Before that its data was still on the bus.
            if unit.phase == Phase::Busy && unit.began_ns <= now_ns {
                interrupted.extend(self.ops.programs_of(unit.group));
            }
            *unit = unit.powered_off(now_ns);
        }
        for channel in &mut self.channels {
            *channel = channel.powered_off(now_ns);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_all();
        }
        self.ops = Ops::new();
        self.lanes = Lanes::new();
        self.in_order.clear();
        self.finished.clear();
        interrupted
    }

    /// The time of a read of the slowest page.
    pub(crate) fn slowest_read_ns(&self) -> u64 {
        self.flash.read_ns.iter().copied().max().unwrap_or(0)
    }

    /// Adds what was counted until `now_ns` to `stats`.
    pub(crate) fn report(&self, now_ns: u64, stats: &mut DeviceStats) {
        stats.channels = self.channels.iter().map(|c| c.stats(now_ns)).collect();
        stats.flash_reads = stats.channels.iter().map(|c| c.reads).sum();
        stats.flash_programs = stats.channels.iter().map(|c| c.writes).sum();
        stats.flash_erases = self.counts.erases;
        stats.reads_behind_writes = self.counts.behind_writes;
        stats.reads_behind_writes_ns = self.counts.behind_writes_ns;
        stats.channel_conflicts = self.counts.channel_conflicts;
        stats.die_conflicts = self.counts.die_conflicts;
        stats.flash_sectors_programmed = self.counts.programmed_bytes / 512;
        stats.multi_plane_commands = self.counts.multi_plane;
        stats.suspensions = self.counts.suspensions;
        stats.copybacks = self.counts.copybacks;
        stats.cache_reads = self.counts.cache_reads;
        stats.cache_programs = self.counts.cache_programs;
        stats.reads_packed = self.counts.paq.packed;
        stats.reads_clumped = self.counts.paq.clumped;
        stats.collection.reads_behind = self.counts.behind_collection;
        stats.collection.reads_behind_ns = self.counts.behind_collection_ns;
        stats.collection.longest_read_wait_ns = self.counts.longest_behind_collection_ns;
        let planes = self.partners.planes_per_unit.get() as usize;
        stats.dies = self
            .units
            .iter()
            .zip(self.plane_busy_ns.chunks(planes))
            .map(|(unit, planes)| {
                let queue = unit.queue.until(now_ns, unit.queued);
                DieStats {
                    channel: unit.channel,
                    commands: unit.commands,
                    busy_ns: unit.busy_ns,
                    queue_ns: queue.sum_ns,
                    longest_queue: queue.longest,
                    plane_busy_ns: planes.to_vec(),
                }
            })
            .collect();
    }

    pub(crate) fn reset_stats(&mut self, now_ns: u64) {
        self.counts = Counts::default();
        self.plane_busy_ns.fill(0);
        for channel in &mut self.channels {
            channel.stats = ChannelStats::default();
            channel.queue.reset(now_ns);
            channel.active_since_ns = channel.active_since_ns.max(now_ns);
        }
        for unit in &mut self.units {
            unit.queue.reset(now_ns);
            unit.busy_ns = 0;
            unit.commands = 0;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Reads,
    Programs,
    Erases,
    Background,
}

/// Which operations may run as one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partners {
    planes_per_unit: Divisor,
    planes_per_die: Divisor,
    same_page: bool,
    /// How far behind the first partners are looked for.
    reach: u32,
    superpage: bool,
}

impl Partners {
    /// How far behind the first partners are looked for. Programs of a stripe
    /// are laid out so that planes work together.
    #[inline]
    fn reach_of(&self, kind: OpKind) -> u32 {
        match kind == OpKind::Program && self.superpage {
            true => u32::MAX,
            false => self.reach,
        }
    }

    /// The plane of an operation as a bit within its unit.
    #[inline]
    pub(crate) fn bit(&self, op: &Op) -> u64 {
        1 << self.planes_per_unit.split(op.plane).1
    }

    /// The unit's planes that are in another die than that of an operation.
    #[inline]
    fn other_dies(&self, op: &Op) -> u64 {
        let per_die = self.planes_per_die.get();
        let within = self.planes_per_unit.split(op.plane).1;
        let first = within - self.planes_per_die.split(within).1;
        self.all_planes() & !((u64::MAX >> (64 - per_die)) << first)
    }

    /// The bits of all planes of a unit.
    #[inline]
    fn all_planes(&self) -> u64 {
        u64::MAX >> (64 - self.planes_per_unit.get())
    }

    /// Whether two operations on different planes may run as one command.
    #[inline]
    pub(crate) fn fit(&self, lead: &Op, other: &Op) -> bool {
        let die = |op: &Op| self.planes_per_die.split(op.plane).0;
        self.reach > 0
            && lead.kind == other.kind
            && lead.slc == other.slc
            && (lead.copies == NONE) == (other.copies == NONE)
            && die(lead) == die(other)
            && (!self.same_page || lead.page == other.page)
    }
}

/// Takes the first operation that may start, and partners for it on other
/// planes of its die. Programs of one plane keep their order, since the pages
/// of a block are programmed in order.
///
/// `closed` are planes of the unit that nothing may be taken from.
fn take_group(ops: &mut Ops, list: &mut List, partners: &Partners, mut closed: u64) -> (List, u32) {
    if list.is_single() && ops[list.head()].ready {
        return (std::mem::replace(list, List::EMPTY), 1);
    }
    let mut group = List::EMPTY;
    let (mut before, mut index) = (NONE, list.head());
    let (mut lead, mut taken, mut looked) = (NONE, 0, 0);
    // Closed are also planes taken, or where an older program must wait. With
    // all of them closed there is nothing more to be found.
    while index != NONE && closed != partners.all_planes() {
        let op = &ops[index];
        let bit = partners.bit(op);
        let is_open = op.ready && closed & bit == 0;
        if is_open && (taken == 0 || partners.fit(&ops[lead], op)) {
            if taken == 0 {
                closed |= partners.other_dies(op);
            }
            lead = index;
            let next = list.unlink(ops, before, index);
            if before != NONE {
                ops[before].next = next;
            }
            group.push(ops, index);
            taken += 1;
            closed |= bit;
            if partners.reach == 0 || taken == partners.planes_per_die.get() {
                break;
            }
            index = next;
        } else {
            if op.kind == OpKind::Program {
                closed |= bit;
            }
            before = index;
            index = op.next;
        }
        looked += 1;
        if taken > 0 && looked > partners.reach_of(ops[lead].kind) {
            break;
        }
    }
    (group, taken)
}

impl Unit {
    fn new(channel: u32, bit: u64) -> Unit {
        Unit {
            channel,
            bit,
            phase: Phase::Idle,
            kind: OpKind::Read,
            group: List::EMPTY,
            done_ns: 0,
            reads: List::EMPTY,
            programs: List::EMPTY,
            erases: List::EMPTY,
            background: List::EMPTY,
            queued: 0,
            reads_in_a_row: 0,
            suspended: None,
            outgoing: List::EMPTY,
            loaded: Loaded::NOTHING,
            passed_over: 0,
            writing: HoldClock::default(),
            collecting: HoldClock::default(),
            began_ns: 0,
            busy_ns: 0,
            commands: 0,
            queue: QueueClock::default(),
        }
    }

    /// As after a loss of power: nothing in hand, nothing queued.
    fn powered_off(&self, now_ns: u64) -> Unit {
        Unit {
            writing: self.writing.stopped(now_ns),
            collecting: self.collecting.stopped(now_ns),
            queue: self.queue.stopped(now_ns, self.queued),
            busy_ns: self.busy_ns,
            commands: self.commands,
            ..Unit::new(self.channel, self.bit)
        }
    }

    #[inline]
    fn is_free(&self) -> bool {
        self.phase == Phase::Idle && self.queued == 0 && self.suspended.is_none()
    }

    /// More (or, below zero, fewer) operations wait for it.
    #[inline]
    fn count_queued(&mut self, now_ns: u64, change: i32) {
        self.queue.was(now_ns, || self.queued);
        self.queued = self.queued.wrapping_add_signed(change);
    }
}

impl Counts {
    #[inline]
    fn waited_for_collection(&mut self, lost_ns: u64) {
        self.behind_collection_ns += lost_ns;
        self.longest_behind_collection_ns = self.longest_behind_collection_ns.max(lost_ns);
    }
}

impl Channel {
    fn new(first_unit: u32, units: u32) -> Channel {
        Channel {
            free_ns: 0,
            scheduled: false,
            output: VecDeque::with_capacity(units as usize),
            ready: 0,
            turn: 0,
            units,
            first_unit,
            active: 0,
            active_since_ns: 0,
            queue: QueueClock::default(),
            stats: ChannelStats::default(),
        }
    }

    /// Who waits for the bus is about to change.
    #[inline]
    fn note_queue(&mut self, now_ns: u64) {
        let (output, ready) = (&self.output, self.ready);
        self.queue
            .was(now_ns, || output.len() as u32 + ready.count_ones());
    }

    /// Whoever waits for the bus: data that is ready, units that could start.
    #[inline]
    fn waiting(&self) -> u32 {
        self.output.len() as u32 + self.ready.count_ones()
    }

    #[inline]
    fn set_ready(&mut self, now_ns: u64, bit: u64) {
        self.note_queue(now_ns);
        self.ready |= bit;
    }

    #[inline]
    fn clear_ready(&mut self, now_ns: u64, bit: u64) {
        self.note_queue(now_ns);
        self.ready &= !bit;
    }

    #[inline]
    fn put_output(&mut self, now_ns: u64, index: u32) {
        self.note_queue(now_ns);
        self.output.push_back(index);
    }

    #[inline]
    fn take_output(&mut self, now_ns: u64) -> Option<u32> {
        self.note_queue(now_ns);
        self.output.pop_front()
    }

    /// As after a loss of power: nobody uses it or waits for it.
    fn powered_off(&self, now_ns: u64) -> Channel {
        Channel {
            queue: self.queue.stopped(now_ns, self.waiting()),
            stats: self.stats.clone(),
            ..Channel::new(self.first_unit, self.units)
        }
    }

    /// The next unit in turn among those that could start something.
    #[inline]
    fn next_ready(&self) -> u32 {
        let turn = self.turn % self.units;
        let later = self.ready >> turn;
        let place = match later {
            0 => self.ready.trailing_zeros(),
            _ => turn + later.trailing_zeros(),
        };
        self.first_unit + place
    }

    /// Neither taken nor promised to anybody.
    #[inline]
    fn is_free(&self, now_ns: u64) -> bool {
        self.free_ns <= now_ns && !self.scheduled
    }

    #[inline]
    fn occupy(&mut self, now_ns: u64, ns: u64) {
        self.free_ns = now_ns + ns;
        self.stats.bus_busy_ns += ns;
    }

    #[inline]
    fn enter(&mut self, now_ns: u64) {
        if self.active == 0 {
            self.active_since_ns = now_ns;
        }
        self.active += 1;
    }

    #[inline]
    fn leave(&mut self, now_ns: u64) {
        self.active -= 1;
        if self.active == 0 {
            self.stats.die_busy_ns += now_ns - self.active_since_ns;
        }
    }

    /// What was counted until `now_ns`, the work in progress included: under
    /// steady writes a channel is never idle.
    fn stats(&self, now_ns: u64) -> ChannelStats {
        let mut stats = self.stats.clone();
        if self.active > 0 {
            stats.die_busy_ns += now_ns.saturating_sub(self.active_since_ns);
        }
        let queue = self.queue.until(now_ns, self.waiting());
        (stats.queue_ns, stats.longest_queue) = (queue.sum_ns, queue.longest);
        stats
    }
}
