//! The flash behind its channels: who gets which die and which bus when.
//!
//! A *unit* is the smallest part that executes a command of its own: a package,
//! a die or a plane (`flash.interleave`). A read takes its channel for the command,
//! its unit for the array time, and the channel again for the data; a program takes
//! the channel for command and data, then the unit. A bus that becomes free first
//! transfers data that is ready, then commands to idle units in turn, as MQSim does
//! (Tavakkol et al., FAST 2018, section 4).

mod cache_commands;
mod channel;
pub(crate) mod codewords;
mod counts;
mod execute;
mod multi_plane;
mod paq;
mod program_queues;
mod recorder;
mod scheduling;
mod timing;
pub(crate) mod transaction;
mod unit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use blklab_stats::DriveWork;

use crate::ssd::events::{EventKind, EventQueue};
use crate::ssd::flash::recorder::{FlashPart, Recorder};
use crate::ssd::flash::timing::Timing;
use crate::ssd::flash::transaction::{
    List, NONE, Operation, Priority, Source, Transaction, Transactions, Waiting,
};
use crate::ssd::spec::{FlashSpec, Interleave, Scheduling, SsdSpec};
use channel::Channel;
use counts::FlashCounts;
use multi_plane::{Partners, QueuedReads};
use program_queues::Programs;
use scheduling::Queue;
use unit::{Phase, PlaneAddress, Unit};

/// The flash and its channels.
#[derive(Clone, Debug)]
pub(crate) struct Flash {
    transactions: Transactions,
    events: EventQueue,
    units: Vec<Unit>,
    channels: Vec<Channel>,
    /// By plane.
    planes: Vec<PlaneAddress>,
    plane_busy_ns: Vec<u64>,
    /// Block and physical page in each plane's page register, where that makes a
    /// difference (see [`Timing::physical_page`]).
    page_registers: Vec<Option<(u32, u32)>>,
    queued_reads: QueuedReads,
    programs: Programs,
    partners: Partners,
    flash: FlashSpec,
    timing: Timing,
    scheduling: Scheduling,
    /// Idle dies get the commands of their reads before data that is ready goes out.
    commands_first: bool,
    reads_in_a_row: u32,
    /// Under [`Scheduling::Fcfs`]: arrival numbers of what has not started, oldest first.
    fcfs_order: VecDeque<u64>,
    /// Depth of [`Flash::gather`] calls: while it is above 0, nothing starts.
    gathering: u32,
    /// The units of transactions that were queued meanwhile.
    gathered: Vec<u32>,
    counts: FlashCounts,
    /// Records the timeline, where that is asked for.
    recorder: Option<Box<Recorder>>,
    /// Transactions that ended in the array and have not been handled.
    finished: Vec<u32>,
}

/// Programs that were in the array when the power was lost.
#[derive(Debug, Default)]
pub(crate) struct InterruptedPrograms {
    /// The records of pages.
    pub(crate) records: Vec<u32>,
    /// Programs of pages of the map.
    pub(crate) map_programs: Vec<Transaction>,
}

impl InterruptedPrograms {
    fn add(&mut self, transactions: &Transactions, group: List) {
        self.records.extend(transactions.programs_of(group));
        self.map_programs
            .extend(transactions.map_programs_of(group));
    }
}

impl Flash {
    pub(crate) fn new(spec: &SsdSpec) -> Flash {
        let geometry = &spec.geometry;
        let planes_per_unit = match spec.flash.interleave {
            Interleave::Package => geometry.dies_per_package * geometry.planes_per_die,
            Interleave::Die => geometry.planes_per_die,
            Interleave::Plane => 1,
        };
        let units_per_channel = geometry.planes_per_channel() / planes_per_unit;
        let units = (0..geometry.channels * units_per_channel)
            .map(|unit| {
                let bit = 1 << (unit % units_per_channel);
                Unit::new(unit / units_per_channel, bit, unit * planes_per_unit)
            })
            .collect();
        let partners = Partners::new(spec, planes_per_unit);
        let channels = (0..geometry.channels)
            .map(|channel| Channel::new(channel * units_per_channel, units_per_channel))
            .collect();
        Flash {
            transactions: Transactions::new(),
            events: EventQueue::new(),
            units,
            channels,
            planes: (0..geometry.planes())
                .map(|plane| PlaneAddress::new(plane, planes_per_unit, geometry.planes_per_die))
                .collect(),
            plane_busy_ns: vec![0; geometry.planes() as usize],
            page_registers: vec![None; geometry.planes() as usize],
            queued_reads: QueuedReads::new(geometry.planes()),
            programs: Programs::new(geometry.planes(), &partners),
            partners,
            flash: spec.flash.clone(),
            timing: Timing::new(spec),
            scheduling: spec.controller.scheduling,
            commands_first: spec.channel.commands_first
                || spec.controller.scheduling == Scheduling::Paq,
            reads_in_a_row: spec.controller.reads_in_a_row,
            fcfs_order: VecDeque::new(),
            gathering: 0,
            gathered: Vec::with_capacity(64),
            counts: FlashCounts::default(),
            recorder: None,
            finished: Vec::with_capacity(64),
        }
    }

    /// The drive's event queue.
    #[inline(always)]
    pub(crate) fn events(&mut self) -> &mut EventQueue {
        &mut self.events
    }

    /// When the next event is due; `u64::MAX` when there is none.
    #[inline(always)]
    pub(crate) fn next_event_ns(&self) -> u64 {
        self.events.next_ns()
    }

    /// A transaction that was queued and has not been forgotten.
    #[inline(always)]
    pub(crate) fn transaction(&self, index: u32) -> &Transaction {
        &self.transactions[index]
    }

    /// Removes a transaction that has ended.
    #[inline(always)]
    pub(crate) fn forget(&mut self, index: u32) {
        self.transactions.remove(index);
    }

    /// What a transaction waits and has waited for.
    #[inline(always)]
    pub(crate) fn waiting(&self, index: u32) -> &Waiting {
        &self.transactions.waiting[index as usize]
    }

    /// How many bytes of a read go on over the link.
    #[inline(always)]
    pub(crate) fn set_host_bytes(&mut self, index: u32, bytes: u32) {
        self.transactions.waiting[index as usize].host_bytes = bytes;
    }

    /// A read that has not begun brings `bytes` more.
    pub(crate) fn lengthen_read(&mut self, index: u32, bytes: u32) {
        self.transactions[index].bytes += bytes;
    }

    /// The transaction at this place, from 0, of those that have ended in the
    /// array since [`Flash::clear_finished`].
    #[inline(always)]
    pub(crate) fn finished(&self, place: usize) -> Option<u32> {
        self.finished.get(place).copied()
    }

    /// Clears that list, once all on it have been handled.
    #[inline(always)]
    pub(crate) fn clear_finished(&mut self) {
        self.finished.clear();
    }

    /// Drops all events.
    pub(crate) fn stop(&mut self) {
        self.events = EventQueue::new();
    }

    /// Queues transactions without starting any until [`Flash::start_gathered`]: a
    /// controller knows all pages of a command before it issues the first, so that
    /// pages on several planes of an idle die become one multi-plane command. (MQSim
    /// also hands all transactions of a request to its scheduling unit before that
    /// looks at any chip.)
    ///
    /// Calls may be nested; the outermost end starts.
    #[inline]
    pub(crate) fn gather(&mut self) {
        self.gathering += 1;
    }

    /// Starts what may start of the transactions gathered.
    #[inline]
    pub(crate) fn start_gathered(&mut self, now_ns: u64) {
        self.gathering -= 1;
        if self.gathering == 0 && !self.gathered.is_empty() {
            self.wake_gathered(now_ns);
        }
    }

    fn wake_gathered(&mut self, now_ns: u64) {
        for place in 0..self.gathered.len() {
            self.wake(now_ns, self.gathered[place]);
        }
        self.gathered.clear();
    }

    /// Stops everything at once. Returns the programs that were in the array.
    pub(crate) fn power_off(&mut self, now_ns: u64) -> InterruptedPrograms {
        let mut interrupted = InterruptedPrograms::default();
        self.plane_busy_ns = self.planes_busy_until(now_ns);
        for unit in &mut self.units {
            if unit.phase != Phase::Idle {
                let channel = &mut self.channels[unit.channel as usize];
                // A command to an idle drive may have begun ahead of `now_ns`.
                channel.leave(now_ns.max(channel.active_since_ns));
            }
            if let Some(stopped) = unit.suspended {
                interrupted.add(&self.transactions, stopped.group);
            }
            // Before `began_ns` its data was still on the bus.
            if unit.phase == Phase::Busy && unit.began_ns <= now_ns {
                interrupted.add(&self.transactions, unit.group);
            }
            *unit = unit.powered_off(now_ns);
        }
        for channel in &mut self.channels {
            *channel = channel.powered_off(now_ns);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_all();
        }
        self.transactions = Transactions::new();
        self.events = EventQueue::new();
        self.queued_reads.clear();
        self.programs.clear();
        self.fcfs_order.clear();
        self.finished.clear();
        interrupted
    }

    /// How much is queued before a plane's die could begin something new: primarily by
    /// the die's transactions, then by those waiting for its channel.
    #[inline]
    pub(crate) fn backlog(&self, plane: u32) -> u64 {
        let unit = &self.units[self.planes[plane as usize].unit as usize];
        let channel = &self.channels[unit.channel as usize];
        let at_work = unit.phase != Phase::Idle || unit.suspended.is_some();
        (unit.queued as u64 + at_work as u64) << 32 | channel.waiting() as u64
    }

    /// Queues a transaction. Inlined this far so that it is built in place.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, now_ns: u64, op: Transaction) -> u32 {
        let index = self.transactions.insert(op);
        self.enqueue_inserted(now_ns, index);
        index
    }

    fn enqueue_inserted(&mut self, now_ns: u64, index: u32) {
        self.transactions.set_ready_since(index, now_ns);
        let op = &mut self.transactions[index];
        let address = self.planes[op.plane as usize];
        (op.place, op.die) = (address.place, address.die);
        let unit_index = address.unit;
        let unit = &mut self.units[unit_index as usize];
        op.write_clock_ns = unit.writing.read(now_ns);
        op.collection_clock_ns = unit.collecting.read(now_ns);
        let ready = op.ready;
        if self.scheduling == Scheduling::Fcfs && op.priority == Priority::Urgent {
            op.priority = Priority::Normal;
        }
        let (plane, kind, priority, source) = (op.plane, op.kind, op.priority, op.source);
        let channel = &self.channels[unit.channel as usize];
        if unit.is_free()
            && kind == Operation::Read
            && channel.is_free(now_ns)
            && self.scheduling != Scheduling::Fcfs
            && self.gathering == 0
        {
            // The unit and its channel are free: the most common case needs no queue.
            unit.group.push(&mut self.transactions, index);
            self.execute(now_ns, unit_index, 0);
            return;
        }
        unit.count_queued(now_ns, 1);
        if kind == Operation::Read {
            self.queued_reads.put(plane);
        }
        let list = match (priority, kind) {
            (Priority::Background, _) => Some(&mut unit.background),
            (Priority::Urgent, _) => Some(&mut unit.urgent),
            (_, Operation::Read) => Some(&mut unit.reads),
            (_, Operation::Program) => None,
            (_, Operation::Erase) => Some(&mut unit.erases),
        };
        match (list, source) {
            (None, _) => self.programs.push(&mut self.transactions, unit, index),
            // Whole commands wait for a page of the map, so it goes first.
            (Some(list), Source::MapFetch | Source::MapMerge)
                if self.scheduling != Scheduling::Fcfs =>
            {
                // It takes the arrival number of the read that it passes: with a later
                // one an erase could go before that read and destroy its page.
                if !list.is_empty() {
                    self.transactions[index].arrival = self.transactions[list.head()].arrival;
                }
                list.push_front(&mut self.transactions, index)
            }
            (Some(list), _) => list.push(&mut self.transactions, index),
        }
        if self.scheduling == Scheduling::Fcfs && priority != Priority::Background {
            self.fcfs_order.push_back(self.transactions[index].arrival);
        }
        if ready {
            self.wake(now_ns, unit_index);
        }
    }

    /// Whether a program is the last of its word line.
    pub(crate) fn completes_word_line(&self, op: &Transaction) -> bool {
        self.timing.completes_word_line(op)
    }

    /// A program whose data is complete may start.
    pub(crate) fn make_ready(&mut self, now_ns: u64, index: u32) {
        let op = &mut self.transactions[index];
        let unit_index = self.planes[op.plane as usize].unit;
        let unit = &self.units[unit_index as usize];
        op.ready = true;
        op.collection_clock_ns = unit.collecting.read(now_ns);
        self.transactions.set_ready_since(index, now_ns);
        self.wake(now_ns, unit_index);
    }

    /// Whether the array has done its part of a read.
    pub(crate) fn is_sensed(&self, index: u32) -> bool {
        let op = &self.transactions[index];
        let unit = &self.units[self.planes[op.plane as usize].unit as usize];
        let is_among = |list| {
            self.transactions
                .of(list)
                .any(|other| core::ptr::eq(other, op))
        };
        is_among(unit.outgoing) || unit.phase == Phase::Output && is_among(unit.group)
    }

    /// The time of a read of the slowest page.
    pub(crate) fn slowest_read_ns(&self) -> u64 {
        self.flash.read_ns.iter().copied().max().unwrap_or(0)
    }

    /// Starts what a unit may have to start, now or when its bus is free.
    #[inline]
    fn wake(&mut self, now_ns: u64, unit_index: u32) {
        if self.gathering > 0 {
            return self.gathered.push(unit_index);
        }
        let unit = &self.units[unit_index as usize];
        // A unit whose data is on the bus can be suspended once the data is there,
        // which is when the bus is free.
        let has_reason = match unit.phase {
            Phase::Busy => self.will_suspend(now_ns, unit) || self.can_load(unit),
            _ => self.may_start(now_ns, unit),
        };
        if !has_reason {
            return;
        }
        let (channel_index, bit) = (unit.channel, unit.bit);
        let channel = &mut self.channels[channel_index as usize];
        channel.set_ready(now_ns, bit);
        if channel.is_free(now_ns) {
            self.arbitrate(now_ns, channel_index);
        } else {
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

    #[inline]
    fn schedule_bus(&mut self, channel_index: u32) {
        let channel = &mut self.channels[channel_index as usize];
        if !channel.scheduled {
            channel.scheduled = true;
            self.events
                .push(EventKind::CHANNEL_FREE, channel.free_ns, channel_index);
        }
    }

    /// A read's data has left the bus: the read is over.
    #[inline(always)]
    pub(crate) fn data_out(&mut self, now_ns: u64, index: u32) {
        let unit_index = self.planes[self.transactions[index].plane as usize].unit;
        let unit = &mut self.units[unit_index as usize];
        let channel_index = unit.channel;
        if !unit.outgoing.is_empty() {
            self.leave_cache_register(now_ns, unit_index);
            return self.bus_free(now_ns, channel_index);
        }
        // The group's reads leave in order: the head is the one that left.
        unit.group.pop(&self.transactions);
        if unit.group.is_empty() {
            self.release(now_ns, unit_index);
        }
        self.bus_free(now_ns, channel_index);
    }

    /// A bus is free for whoever waits for it.
    #[inline]
    pub(crate) fn bus_free(&mut self, now_ns: u64, channel_index: u32) {
        let channel = &mut self.channels[channel_index as usize];
        channel.scheduled = false;
        if channel.waiting() > 0 {
            self.arbitrate(now_ns, channel_index);
        }
    }

    /// The unit has finished its command: it resumes what was suspended, or is ready to
    /// start something else.
    #[inline(always)]
    fn release(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        let channel_index = unit.channel;
        unit.phase = Phase::Idle;
        unit.freed_ns = now_ns;
        unit.writing.end(now_ns);
        unit.collecting.end(now_ns);
        let may_read_on = unit.reads_in_a_row < self.reads_in_a_row && unit.urgent.is_empty();
        if unit.suspended.is_some() && (unit.reads.is_empty() || !may_read_on) {
            self.resume(now_ns, unit_index);
            return;
        }
        let channel = &mut self.channels[channel_index as usize];
        channel.leave(now_ns);
        if unit.queued > 0 {
            channel.set_ready(now_ns, unit.bit);
        }
    }

    /// A unit's array is done, unless it was suspended meanwhile.
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
        if unit.kind == Operation::Read && self.flash.cache_read && unit.suspended.is_none() {
            unit.phase = Phase::Output;
            if unit.outgoing.is_empty() {
                self.fill_cache_register(now_ns, unit_index);
            }
        } else if unit.kind == Operation::Read {
            unit.phase = Phase::Output;
            let channel = &mut self.channels[channel_index as usize];
            let mut index = unit.group.head();
            if channel.is_free(now_ns) && !self.commands_first {
                let first = index;
                index = self.transactions[index].next;
                self.transfer_out(now_ns, channel_index, first);
            }
            let channel = &mut self.channels[channel_index as usize];
            while index != NONE {
                channel.put_output(now_ns, index);
                self.transactions.set_ready_since(index, now_ns);
                index = self.transactions[index].next;
            }
        } else {
            if unit.done_ns > unit.began_ns {
                // A suspension for reads has not ended its turn; its end does.
                unit.reads_in_a_row = 0;
            }
            while let Some(index) = unit.group.pop(&self.transactions) {
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
        } else if channel.waiting() > 0 {
            self.schedule_bus(channel_index);
        }
    }

    /// Transfers a read's data over the free bus.
    #[inline(always)]
    fn transfer_out(&mut self, now_ns: u64, channel_index: u32, index: u32) {
        let channel = &mut self.channels[channel_index as usize];
        let op = &self.transactions[index];
        channel.occupy(now_ns, self.timing.data_ns(op.bytes));
        channel.reader = op.reader();
        channel.scheduled = true;
        let span_ns = (now_ns, channel.free_ns);
        self.events
            .push(EventKind::DATA_OUT, channel.free_ns, index);
        if let Some(recorder) = &mut self.recorder {
            let carried = core::iter::once(&self.transactions[index]);
            recorder.worked(
                FlashPart::Channel(channel_index),
                DriveWork::DataOut,
                span_ns,
                carried,
            );
        }
    }

    /// Gives the free bus to data that is ready, else to an idle unit; where commands
    /// go first, to an idle unit that has reads.
    fn arbitrate(&mut self, now_ns: u64, channel_index: u32) {
        if self.commands_first
            && self.channels[channel_index as usize].has_output()
            && self.clump(now_ns, channel_index)
        {
            return self.schedule_bus(channel_index);
        }
        if self.flash.cache_read && self.read_on(now_ns, channel_index) {
            return self.schedule_bus(channel_index);
        }
        let channel = &mut self.channels[channel_index as usize];
        if let Some(index) = channel.take_output(now_ns) {
            channel.note_output_wait(now_ns, &mut self.transactions, index);
            return self.transfer_out(now_ns, channel_index, index);
        }
        while self.channels[channel_index as usize].ready() != 0 {
            let unit_index = self.channels[channel_index as usize].next_ready();
            if !self.start(now_ns, unit_index) {
                continue;
            }
            let channel = &mut self.channels[channel_index as usize];
            channel.had_turn(unit_index);
            if channel.ready() != 0 {
                self.schedule_bus(channel_index);
            }
            return;
        }
    }

    /// Units of a channel that could start an operation, as bits.
    pub(crate) fn ready_units(&self, channel_index: u32) -> u64 {
        self.channels[channel_index as usize].ready()
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
    #[inline(always)]
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
}

#[cfg(test)]
mod scheduling_tests;
