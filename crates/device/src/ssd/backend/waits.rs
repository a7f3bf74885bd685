//! What an operation has waited for.
//!
//! An operation waits for its die as long as that has other work in hand, and
//! for its channel when it could go on and the bus is taken. A read's command
//! and its data may both wait. Pages of one read that wait for nobody but each
//! other do not count: the request as a whole was not held up.

use blklab_stats::{Wait, Waits};

use super::super::op::{List, NONE, OpKind, Ops, Source};
use super::Backend;
use super::channel::Channel;

impl Backend {
    /// The command of the host that all of a group are reads of, if there is one.
    #[inline(always)]
    pub(super) fn reader_of(&self, group: List) -> u32 {
        let reader = self.ops[group.head()].reader();
        match group.is_single() || self.ops.of(group).all(|op| op.reader() == reader) {
            true => reader,
            false => NONE,
        }
    }

    /// An operation that requests wait for starts, on an idle unit or one that is
    /// stopped for it: what has it waited for?
    #[inline(always)]
    pub(super) fn note_start_wait(&mut self, now_ns: u64, unit_index: u32, index: u32) {
        let op = &self.ops[index];
        let is_awaited = match op.kind {
            OpKind::Read => op.source == Source::Host,
            OpKind::Program => !op.collects,
            OpKind::Erase => false,
        };
        if !is_awaited {
            return;
        }
        let unit = &self.units[unit_index as usize];
        let channel = &self.channels[unit.channel as usize];
        let reader = op.reader();
        let ready_ns = self.ops.waiting[index as usize].ready_ns;
        let by_others = |last: u32| reader == NONE || last != reader;
        let mut waits = Waits::NONE;
        let for_die = unit.freed_ns > ready_ns && by_others(unit.reader);
        waits.note(Wait::Die, for_die);
        let for_channel = now_ns > ready_ns.max(unit.freed_ns) && by_others(channel.reader);
        waits.note(Wait::Channel, for_channel);
        let for_collection = unit.collecting.held_ns > op.collection_clock_ns;
        waits.note(Wait::Collection, for_collection);
        self.ops.waiting[index as usize].waits = waits;
    }
}

impl Channel {
    /// A read's data gets the bus: did it wait?
    #[inline(always)]
    pub(super) fn note_output_wait(&self, now_ns: u64, ops: &mut Ops, index: u32) {
        let reader = ops[index].reader();
        let waiting = &mut ops.waiting[index as usize];
        let waited = now_ns > waiting.ready_ns && reader != self.reader;
        waiting.waits.note(Wait::Channel, waited);
    }
}
