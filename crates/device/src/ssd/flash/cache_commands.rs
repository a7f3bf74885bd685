//! ONFI's cache commands: a die takes the data of its next program while its array
//! executes the one before, and reads the next page while the data of the one before
//! goes out.

use blklab_stats::DriveWork;

use crate::ssd::events::EventKind;
use crate::ssd::flash::Flash;
use crate::ssd::flash::scheduling::Queue;
use crate::ssd::flash::transaction::{List, NONE, Operation};
use crate::ssd::flash::unit::{Loaded, Phase, Unit};
use crate::ssd::spec::Scheduling;

impl Flash {
    /// Whether the data of a unit's next program may go over the bus while its array
    /// executes the one before: ONFI's page cache program.
    #[inline]
    pub(crate) fn can_load(&self, unit: &Unit) -> bool {
        self.flash.cache_program
            && unit.kind == Operation::Program
            && unit.suspended.is_none()
            && unit.loaded.group.is_empty()
            && (self.programs.oldest(&self.transactions, unit))
                .is_some_and(|program| self.transactions[program].copies == NONE)
            && self.choose(unit, false) == Some(Queue::Programs)
    }

    /// Transfers the data of a unit's next program to its cache register.
    #[inline(never)]
    pub(crate) fn load_next(&mut self, now_ns: u64, unit_index: u32) -> bool {
        let group = self.pick(now_ns, unit_index, false);
        if group.is_empty() {
            return false;
        }
        let (bus_ns, array_ns) = self.transfer(now_ns, unit_index, group);
        let unit = &mut self.units[unit_index as usize];
        let channel = &mut self.channels[unit.channel as usize];
        channel.occupy(now_ns, bus_ns);
        channel.reader = NONE;
        unit.loaded = Loaded {
            group,
            at_ns: channel.free_ns,
            array_ns,
        };
        unit.commands += 1;
        self.counts.cache_programs += 1;
        let channel_index = unit.channel;
        self.record_channel(now_ns, channel_index, DriveWork::DataIn, group);
        if self.scheduling == Scheduling::Fcfs {
            self.wake_next_in_order(now_ns);
        }
        true
    }

    /// The array begins the program whose data is in the cache register or on its way
    /// there.
    #[inline(never)]
    pub(crate) fn program_loaded(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        let loaded = core::mem::replace(&mut unit.loaded, Loaded::NOTHING);
        unit.group = loaded.group;
        unit.began_ns = now_ns.max(loaded.at_ns);
        unit.done_ns = unit.began_ns + loaded.array_ns;
        unit.busy_ns += loaded.array_ns;
        unit.collecting.end(now_ns);
        if self.transactions[unit.group.head()].collects {
            unit.collecting.begin(now_ns);
        }
        self.events
            .push(EventKind::ARRAY_CHANGED, unit.done_ns, unit_index);
        let unit = &self.units[unit_index as usize];
        if self.will_suspend(now_ns, unit) {
            // Reads could not suspend the program before while the register was full.
            let (channel_index, bit) = (unit.channel, unit.bit);
            self.channels[channel_index as usize].set_ready(now_ns, bit);
        }
        self.offer_next_program(now_ns, unit_index);
    }

    /// A unit whose array begins to program may take the next data as soon as
    /// the bus is free.
    #[inline(never)]
    pub(crate) fn offer_next_program(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &self.units[unit_index as usize];
        if unit.kind == Operation::Program && unit.program_planes != 0 {
            let (channel_index, bit) = (unit.channel, unit.bit);
            self.channels[channel_index as usize].set_ready(now_ns, bit);
        }
    }
}

impl Flash {
    /// Moves what the array has read to the cache register, from where it goes out; the
    /// array is free for the next read.
    #[inline(never)]
    pub(crate) fn fill_cache_register(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        unit.outgoing = core::mem::replace(&mut unit.group, List::EMPTY);
        let (channel_index, mut index) = (unit.channel, unit.outgoing.head());
        self.release(now_ns, unit_index);
        let channel = &mut self.channels[channel_index as usize];
        while index != NONE {
            channel.put_output(now_ns, index);
            self.transactions.set_ready_since(index, now_ns);
            index = self.transactions[index].next;
        }
    }

    /// Starts the next read of a die whose cache register is full before that data goes
    /// out: ONFI's read cache command overlaps the two.
    #[inline(never)]
    pub(crate) fn read_on(&mut self, now_ns: u64, channel_index: u32) -> bool {
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
    #[inline(never)]
    pub(crate) fn leave_cache_register(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        unit.outgoing.pop(&self.transactions);
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
}
