//! The execution of a flash command, over the bus and in the array, and what it has
//! waited for.
//!
//! A transaction waits for its die while that is busy with others, and for its channel
//! when it could proceed and the bus is taken. A read's command and its data may both
//! wait. Pages of one read that wait only for each other do not count, since the
//! request as a whole was not delayed.

use blklab_stats::{DriveWork, Wait, Waits};

use crate::ssd::events::EventKind;
use crate::ssd::flash::Flash;
use crate::ssd::flash::channel::Channel;
use crate::ssd::flash::transaction::{List, NONE, Operation, Source, Transaction, Transactions};
use crate::ssd::flash::unit::{Phase, Unit};
use crate::ssd::spec::Scheduling;

/// In place of a block, in a page register: collection will copy the page.
const TO_BE_COPIED: u32 = u32::MAX;

impl Flash {
    /// Puts the unit's group on the bus and sets the array's end.
    pub(crate) fn execute(&mut self, now_ns: u64, unit_index: u32, delay_ns: u64) {
        let group = self.units[unit_index as usize].group;
        let (bus_ns, array_ns) = self.transfer(now_ns, unit_index, group);
        let reader = self.reader_of(group);
        let Transaction { kind, collects, .. } = self.transactions[group.head()];
        let unit = &mut self.units[unit_index as usize];
        unit.reader = reader;
        let channel = &mut self.channels[unit.channel as usize];
        if collects {
            unit.collecting.begin(now_ns);
        }
        channel.occupy(now_ns, bus_ns);
        channel.reader = reader;
        channel.enter(now_ns);
        self.counts.cache_reads += !unit.outgoing.is_empty() as u64;
        unit.phase = Phase::Busy;
        unit.kind = kind;
        match kind {
            Operation::Read => unit.reads_in_a_row = unit.reads_in_a_row.saturating_add(1),
            // A part of a page that is not yet complete takes no array time.
            _ if array_ns > 0 => unit.reads_in_a_row = 0,
            _ => {}
        }
        // `delay_ns` is the time to suspend: the die is busy then, the bus is not.
        unit.began_ns = channel.free_ns + delay_ns;
        unit.done_ns = unit.began_ns + array_ns;
        unit.busy_ns += delay_ns + array_ns;
        unit.commands += 1;
        if kind != Operation::Read {
            unit.writing.begin(now_ns);
        }
        let channel_index = unit.channel;
        let event = match kind {
            Operation::Read => EventKind::ARRAY_READ,
            _ => EventKind::ARRAY_CHANGED,
        };
        self.events.push(event, unit.done_ns, unit_index);
        if self.flash.cache_program {
            self.offer_next_program(now_ns, unit_index);
        }
        let work = match kind {
            Operation::Program => DriveWork::DataIn,
            _ => DriveWork::Command,
        };
        self.record_channel(now_ns, channel_index, work, group);
        if self.scheduling == Scheduling::Fcfs {
            self.wake_next_in_order(now_ns);
        }
    }

    /// Bus time and array time of a command, which is counted.
    #[inline(always)]
    pub(crate) fn transfer(&mut self, now_ns: u64, unit_index: u32, group: List) -> (u64, u64) {
        let command_ns = self.timing.command_ns(self.transactions[group.head()].kind);
        let (data_ns, array_ns) = self.count_op(now_ns, unit_index, group.head());
        match group.is_single() {
            true => (command_ns + data_ns, array_ns),
            false => {
                let (further_ns, longest_ns) = self.transfer_others(now_ns, unit_index, group);
                let bus_ns = command_ns + data_ns + further_ns;
                (bus_ns, array_ns.max(longest_ns))
            }
        }
    }

    /// What the further planes of a multi-plane command add to its bus time, and the
    /// longest of their array times.
    fn transfer_others(&mut self, now_ns: u64, unit_index: u32, group: List) -> (u64, u64) {
        self.counts.multi_plane += 1;
        let (mut bus_ns, mut array_ns) = (0, 0);
        let mut index = self.transactions[group.head()].next;
        while index != NONE {
            let (data_ns, op_ns) = self.count_op(now_ns, unit_index, index);
            bus_ns += self.timing.plane_command_ns + data_ns;
            array_ns = op_ns.max(array_ns);
            index = self.transactions[index].next;
        }
        (bus_ns, array_ns)
    }

    /// Bus time of a transaction's data, and its array time.
    #[inline(always)]
    fn count_op(&mut self, now_ns: u64, unit_index: u32, index: u32) -> (u64, u64) {
        let op = &self.transactions[index];
        let (mut data_ns, mut array_ns) = (0, self.timing.array_ns(op));
        if let Some(page) = self.timing.physical_page(op) {
            (data_ns, array_ns) = self.use_register(index, page, array_ns);
        }
        let unit = &self.units[unit_index as usize];
        let channel = &mut self.channels[unit.channel as usize];
        let (op, waiting) = self.transactions.with_waiting(index);
        if op.is_awaited() {
            waiting.waits = unit.start_waits(now_ns, channel, op, waiting.ready_ns);
        }
        self.plane_busy_ns[op.plane as usize] += array_ns;
        match op.kind {
            Operation::Read => {
                channel.stats.reads += 1;
                if op.source == Source::Host {
                    let lost_ns = unit.writing.held_ns - op.write_clock_ns;
                    self.counts.behind_writes += (lost_ns > 0) as u64;
                    self.counts.behind_writes_ns += lost_ns;
                    self.counts
                        .waited_for_collection(unit.collecting.held_ns - op.collection_clock_ns);
                }
            }
            Operation::Program => {
                match op.copies {
                    NONE => data_ns += self.timing.data_ns(op.bytes),
                    _ => self.counts.copybacks += 1,
                }
                channel.stats.writes += 1;
            }
            Operation::Erase => self.counts.erases += 1,
        }
        (data_ns, array_ns)
    }

    /// Updates the plane's page register for a transaction. Returns the bus time that
    /// this needs, and the array time with the register taken into account.
    #[inline(never)]
    fn use_register(&mut self, index: u32, page: u32, array_ns: u64) -> (u64, u64) {
        let op = &self.transactions[index];
        let holds = match op.kind {
            Operation::Read if op.source == Source::Copyback => Some((TO_BE_COPIED, op.page)),
            Operation::Read if !op.slc => Some((op.block, page)),
            _ => None,
        };
        let held = core::mem::replace(&mut self.page_registers[op.plane as usize], holds);
        // Another part of a physical page that is in the register needs no array time.
        let is_there = holds.is_some() && holds == held && self.timing.has_parts();
        if op.kind == Operation::Read && is_there {
            return (0, 0);
        }
        if op.copies != NONE && held != Some((TO_BE_COPIED, op.copies)) {
            let (bus_ns, sense_ns) = self.timing.sense_again_ns(op.copies);
            return (bus_ns, sense_ns + array_ns);
        }
        (0, array_ns)
    }
}

impl Flash {
    /// The host command that all of a group are reads of, if there is one.
    #[inline(always)]
    pub(crate) fn reader_of(&self, group: List) -> u32 {
        let reader = self.transactions[group.head()].reader();
        match group.is_single() || self.transactions.of(group).all(|op| op.reader() == reader) {
            true => reader,
            false => NONE,
        }
    }
}

impl Transaction {
    /// Whether a host command may wait for it.
    #[inline(always)]
    pub(crate) fn is_awaited(&self) -> bool {
        match self.kind {
            Operation::Read => self.source == Source::Host,
            Operation::Program => !self.collects,
            Operation::Erase => false,
        }
    }
}

impl Unit {
    /// What a transaction has waited for that starts now and could have started at
    /// `ready_ns`, on a unit that is idle or was suspended for it.
    #[inline(always)]
    pub(crate) fn start_waits(
        &self,
        now_ns: u64,
        channel: &Channel,
        op: &Transaction,
        ready_ns: u64,
    ) -> Waits {
        let reader = op.reader();
        let by_others = |last: u32| reader == NONE || last != reader;
        let mut waits = Waits::NONE;
        let for_die = self.freed_ns > ready_ns && by_others(self.reader);
        waits.note(Wait::Die, for_die);
        let for_channel = now_ns > ready_ns.max(self.freed_ns) && by_others(channel.reader);
        waits.note(Wait::Channel, for_channel);
        let for_collection = self.collecting.held_ns > op.collection_clock_ns;
        waits.note(Wait::Collection, for_collection);
        waits
    }
}

impl Channel {
    /// A read's data gets the bus: notes whether it waited for that.
    #[inline(always)]
    pub(crate) fn note_output_wait(
        &self,
        now_ns: u64,
        transactions: &mut Transactions,
        index: u32,
    ) {
        let reader = transactions[index].reader();
        let waiting = &mut transactions.waiting[index as usize];
        let waited = now_ns > waiting.ready_ns && reader != self.reader;
        waiting.waits.note(Wait::Channel, waited);
    }
}
