//! What an operation has waited for.
//!
//! An operation waits for its die as long as that has other work in hand, and
//! for its channel when it could go on and the bus is taken. A read's command
//! and its data may both wait. Pages of one read that wait for nobody but each
//! other do not count: the request as a whole was not held up.

use blklab_stats::{Wait, Waits};

use crate::ssd::flash::Flash;
use crate::ssd::flash::channel::Channel;
use crate::ssd::flash::transaction::{List, NONE, Operation, Source, Transaction, Transactions};
use crate::ssd::flash::unit::Unit;

impl Flash {
    /// The command of the host that all of a group are reads of, if there is one.
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
    /// Whether a request may wait for it.
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
    /// An operation starts that could since `ready_ns`, on a unit that is idle or
    /// stopped for it: what has it waited for?
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
    /// A read's data gets the bus: did it wait?
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
