//! Transactions on the flash: a page read, a page program, a block erase.

use alloc::vec::Vec;

use blklab_stats::{Cause, Waits};

use crate::ssd::slab::Slab;

/// "No such transaction" in a link.
pub(crate) const NONE: u32 = u32::MAX;

/// What the array does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Program,
    Erase,
}

/// Who wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A host command; the owner is its index.
    Host,
    /// A page that a sequential reader will want; the owner is its fetch.
    ReadAhead,
    /// The rest of a map unit that a write covers in part; the owner is the record of
    /// the page that waits for it.
    Rewrite,
    /// A program of a page of data; the owner is the page's record.
    Program,
    /// Garbage collection; the owner is the plane.
    Gc,
    /// A page that collection reads into its plane's page register, to be copied
    /// from there, no data on the channel; the owner is the plane.
    Copyback,
    /// A page of the map that commands or programs wait for; the owner is the fetch.
    MapFetch,
    /// A page of the map that will be changed; the owner is that page.
    MapMerge,
    /// A page of the map that goes out; the owner is that page.
    MapWrite,
    /// Collection of the map's blocks; the owner is the page of the map that is
    /// programmed, for reads and erases the plane in order of allocation.
    MapMove,
    /// A merge of logs; the owner of a read is the page of the merge that it is for, that
    /// of an erase the plane.
    Merge,
    /// The log of discards; the owner is the epoch of the flush.
    DiscardLog,
    /// The firmware's records, of which one page is programmed at a time.
    Record,
}

/// The priority of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// After all others: background collection.
    Background,
    /// As the drive's scheduling says.
    Normal,
    /// Before all others: collection that host writes wait for.
    Urgent,
}

/// A page of the flash, or a block where the page does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlashPage {
    pub(crate) plane: u32,
    /// The global block.
    pub(crate) block: u32,
    /// The page within its block.
    pub(crate) page: u32,
}

/// A transaction, from its queue to its end. One cache line, since the next command of
/// a unit is searched for among many.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Transaction {
    /// The next in whatever list holds it.
    pub(crate) next: u32,
    /// Whom its end concerns; its meaning depends on `source`.
    pub(crate) owner: u32,
    /// The global plane.
    pub(crate) plane: u32,
    /// The plane within its unit.
    pub(crate) place: u8,
    /// The die within its unit.
    pub(crate) die: u8,
    /// The global block.
    pub(crate) block: u32,
    /// The page within its block; zero for an erase.
    pub(crate) page: u32,
    /// Bytes of data, on the channel except in a copyback.
    pub(crate) bytes: u32,
    /// Of a copyback program: the page of its plane that it takes its data from;
    /// [`NONE`] where data comes over the channel.
    pub(crate) copies: u32,
    pub(crate) kind: Operation,
    pub(crate) source: Source,
    pub(crate) priority: Priority,
    /// It serves garbage collection.
    pub(crate) collects: bool,
    /// Its block is written with one bit a cell.
    pub(crate) slc: bool,
    /// It may start; a program may have to wait for a read.
    pub(crate) ready: bool,
    /// Order of arrival, for first-come scheduling.
    pub(crate) arrival: u64,
    /// The reading of [`crate::ssd::flash::unit::Unit::writing`] when it was queued.
    pub(crate) write_clock_ns: u64,
    /// The reading of [`crate::ssd::flash::unit::Unit::collecting`] when it was queued.
    pub(crate) collection_clock_ns: u64,
    /// The number of the host's command in a recorded timeline.
    pub(crate) command: u32,
}

const _: () = assert!(
    size_of::<Transaction>() == 64,
    "a transaction is one cache line"
);

impl Transaction {
    /// What a place holds before its first transaction.
    const NONE: Transaction = Transaction {
        next: NONE,
        owner: NONE,
        plane: 0,
        place: 0,
        die: 0,
        block: 0,
        page: 0,
        bytes: 0,
        copies: NONE,
        kind: Operation::Read,
        source: Source::Host,
        priority: Priority::Normal,
        collects: false,
        slc: false,
        ready: false,
        arrival: 0,
        write_clock_ns: 0,
        collection_clock_ns: 0,
        command: NONE,
    };

    /// A transaction of normal priority as it enters the flash.
    #[inline]
    pub(crate) fn new(
        kind: Operation,
        source: Source,
        owner: u32,
        at: FlashPage,
        bytes: u32,
    ) -> Transaction {
        Transaction {
            owner,
            plane: at.plane,
            block: at.block,
            page: at.page,
            bytes,
            kind,
            source,
            collects: matches!(
                source,
                Source::Gc | Source::Copyback | Source::Merge | Source::MapMove
            ),
            ready: true,
            ..Transaction::NONE
        }
    }

    /// The page that it is for.
    pub(crate) fn at(&self) -> FlashPage {
        FlashPage {
            plane: self.plane,
            block: self.block,
            page: self.page,
        }
    }

    /// Copies a transaction field by field. A copy of the whole would load wide words
    /// over fields that were just stored one by one, which the processor cannot forward
    /// from its store buffer.
    #[inline(always)]
    fn replace_with(&mut self, op: Transaction) {
        let Transaction {
            next,
            owner,
            plane,
            place,
            die,
            block,
            page,
            bytes,
            copies,
            kind,
            source,
            priority,
            collects,
            slc,
            ready,
            arrival,
            write_clock_ns,
            collection_clock_ns,
            command,
        } = op;
        self.next = next;
        self.owner = owner;
        self.plane = plane;
        self.place = place;
        self.die = die;
        self.block = block;
        self.page = page;
        self.bytes = bytes;
        self.copies = copies;
        self.kind = kind;
        self.source = source;
        self.priority = priority;
        self.collects = collects;
        self.slc = slc;
        self.ready = ready;
        self.arrival = arrival;
        self.write_clock_ns = write_clock_ns;
        self.collection_clock_ns = collection_clock_ns;
        self.command = command;
    }

    /// Why it is done, for timelines.
    pub(crate) fn cause(&self) -> Cause {
        match self.source {
            _ if self.collects => Cause::Collection,
            Source::Gc | Source::Copyback | Source::Merge => Cause::Collection,
            Source::Host | Source::ReadAhead | Source::Rewrite | Source::Program => Cause::Host,
            Source::MapFetch
            | Source::MapMerge
            | Source::MapWrite
            | Source::MapMove
            | Source::DiscardLog
            | Source::Record => Cause::Map,
        }
    }

    /// The host's command that it is a read of; [`NONE`] for any other.
    #[inline]
    pub(crate) fn reader(&self) -> u32 {
        match self.source {
            Source::Host => self.owner,
            _ => NONE,
        }
    }

    /// The record of the page that it programs or completes.
    pub(crate) fn page_record(&self) -> Option<u32> {
        matches!(self.source, Source::Program | Source::Rewrite).then_some(self.owner)
    }
}

/// What a transaction waits and has waited for, and a field that its cache line has no
/// room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Since when it could proceed: since it was queued or became ready, or since its
    /// data is ready for the channel.
    pub(crate) ready_ns: u64,
    /// What it has waited for.
    pub(crate) waits: Waits,
    /// Of a host read: its bytes that go over the link.
    pub(crate) host_bytes: u32,
}

impl Waiting {
    const NOT: Waiting = Waiting {
        ready_ns: 0,
        waits: Waits::NONE,
        host_bytes: 0,
    };
}

/// All transactions, linked by index.
#[derive(Clone, Debug)]
pub(crate) struct Transactions {
    slots: Slab<Transaction>,
    /// By index; beside the transactions, which fill a cache line each.
    pub(crate) waiting: Vec<Waiting>,
    arrivals: u64,
}

impl Transactions {
    pub(crate) fn new() -> Transactions {
        Transactions {
            slots: Slab::with_capacity(256),
            waiting: Vec::with_capacity(256),
            arrivals: 0,
        }
    }

    /// Gives a transaction a new arrival number, as if it had arrived only now.
    pub(crate) fn renumber(&mut self, index: u32) {
        self.arrivals += 1;
        self[index].arrival = self.arrivals;
    }

    /// Inserts a transaction and numbers its arrival.
    #[inline(always)]
    pub(crate) fn insert(&mut self, op: Transaction) -> u32 {
        self.arrivals += 1;
        let index = self.slots.take(|| Transaction::NONE);
        if index as usize == self.waiting.len() {
            self.waiting.push(Waiting::NOT);
        }
        let place = &mut self.slots[index];
        place.replace_with(op);
        place.arrival = self.arrivals;
        self.waiting[index as usize] = Waiting::NOT;
        index
    }

    /// Sets since when a transaction could proceed.
    #[inline]
    pub(crate) fn set_ready_since(&mut self, index: u32, now_ns: u64) {
        self.waiting[index as usize].ready_ns = now_ns;
    }

    /// A transaction, and what it waits and has waited for.
    #[inline(always)]
    pub(crate) fn with_waiting(&mut self, index: u32) -> (&Transaction, &mut Waiting) {
        (&self.slots[index], &mut self.waiting[index as usize])
    }

    /// The transactions in a list.
    pub(crate) fn of(&self, list: List) -> impl Iterator<Item = &Transaction> {
        let first = (list.head != NONE).then_some(list.head);
        core::iter::successors(first, |index| {
            Some(self[*index].next).filter(|next| *next != NONE)
        })
        .map(|index| &self[index])
    }

    /// Owners of the page programs in a list.
    pub(crate) fn programs_of(&self, list: List) -> impl Iterator<Item = u32> {
        self.of(list)
            .filter(|op| op.source == Source::Program)
            .map(|op| op.owner)
    }

    /// The programs of pages of the map in a list.
    pub(crate) fn map_programs_of(&self, list: List) -> impl Iterator<Item = Transaction> {
        let of_map = |op: &&Transaction| matches!(op.source, Source::MapWrite | Source::MapMove);
        self.of(list)
            .filter(of_map)
            .filter(|op| op.kind == Operation::Program)
            .copied()
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        self.slots.remove(index);
    }
}

impl core::ops::Index<u32> for Transactions {
    type Output = Transaction;
    #[inline]
    fn index(&self, index: u32) -> &Transaction {
        &self.slots[index]
    }
}

impl core::ops::IndexMut<u32> for Transactions {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Transaction {
        &mut self.slots[index]
    }
}

/// A queue of transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: List = List {
        head: NONE,
        tail: NONE,
    };

    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Whether it has exactly one transaction.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.head == self.tail && self.head != NONE
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(crate) fn push(&mut self, transactions: &mut Transactions, index: u32) {
        transactions[index].next = NONE;
        match self.tail {
            NONE => self.head = index,
            tail => transactions[tail].next = index,
        }
        self.tail = index;
    }

    /// Puts a transaction before all others.
    pub(crate) fn push_front(&mut self, transactions: &mut Transactions, index: u32) {
        transactions[index].next = self.head;
        self.head = index;
        if self.tail == NONE {
            self.tail = index;
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self, transactions: &Transactions) -> Option<u32> {
        let index = self.head;
        if index == NONE {
            return None;
        }
        self.unlink(transactions, NONE, index);
        Some(index)
    }

    /// Takes out all transactions that `belong`, in their order.
    pub(crate) fn sift(
        &mut self,
        transactions: &mut Transactions,
        belongs: impl Fn(&Transaction) -> bool,
    ) -> List {
        let (mut rest, mut taken) = (core::mem::replace(self, List::EMPTY), List::EMPTY);
        while let Some(index) = rest.pop(transactions) {
            match belongs(&transactions[index]) {
                true => taken.push(transactions, index),
                false => self.push(transactions, index),
            }
        }
        taken
    }

    /// Takes out `index`, which follows `before` ([`NONE`] at the head).
    #[inline]
    pub(crate) fn unlink(&mut self, transactions: &Transactions, before: u32, index: u32) -> u32 {
        let next = transactions[index].next;
        if before == NONE {
            self.head = next;
        }
        if next == NONE {
            self.tail = before;
        }
        next
    }
}
