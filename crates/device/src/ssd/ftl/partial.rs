//! Map units in DRAM of which the host has written only a part.
//!
//! What else the host writes of such a unit joins what is there, as long as its
//! page is open. The rest is read from the flash only when that page is to be
//! programmed and the unit is still not whole, or before the block that has the
//! rest is erased. So a page with such units is not programmed for being full:
//! it stays open until its stream needs the next one, or a flush, a write that
//! is to be durable or a full cache closes it.

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::{NONE, Operation, Source};
use crate::ssd::ftl::Located;
use crate::ssd::spec::MOST_MAP_UNIT_BYTES;

/// Sectors of a map unit: one bit each, and no unit has more.
type Sectors = u128;

const _: () = assert!(MOST_MAP_UNIT_BYTES / 512 <= Sectors::BITS);

/// The sectors of one unit that a write covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    first: u32,
    sectors: u32,
}

impl Span {
    /// Bytes of a unit from `from` to before `to`, whole sectors.
    #[inline]
    pub(crate) fn of_bytes(from: u64, to: u64) -> Span {
        Span {
            first: (from / 512) as u32,
            sectors: ((to - from) / 512) as u32,
        }
    }

    #[inline]
    pub(crate) fn bytes(self) -> u32 {
        self.sectors * 512
    }

    fn bits(self) -> Sectors {
        Sectors::MAX >> (Sectors::BITS - self.sectors) << self.first
    }
}

/// A unit that is not whole.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// The page that it belongs to, [`NONE`] where this place is free.
    record: u32,
    slot: u32,
    /// What the host has written of it.
    written: Sectors,
    /// The physical slot that the rest has to be read from, or [`NONE`].
    rest: u32,
    /// The next of its page, or the next free place.
    next: u32,
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    units: Vec<Unit>,
    free: u32,
    used: u32,
}

impl Partial {
    pub(crate) fn new() -> Partial {
        Partial {
            units: Vec::with_capacity(64),
            free: NONE,
            used: 0,
        }
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(crate) fn clear(&mut self) {
        *self = Partial::new();
    }

    fn insert(&mut self, unit: Unit) -> u32 {
        self.used += 1;
        if self.free == NONE {
            self.units.push(unit);
            return self.units.len() as u32 - 1;
        }
        let index = self.free;
        self.free = self.units[index as usize].next;
        self.units[index as usize] = unit;
        index
    }

    /// Takes a unit out. Returns it as it was.
    fn remove(&mut self, index: u32) -> Unit {
        self.used -= 1;
        let place = &mut self.units[index as usize];
        let unit = *place;
        (place.record, place.next) = (NONE, self.free);
        self.free = index;
        unit
    }

    /// The places that are in use.
    fn all(&self) -> impl Iterator<Item = u32> + use<> {
        let places = match self.used {
            0 => 0,
            _ => self.units.len() as u32,
        };
        0..places
    }

    /// A slot's place in the list that begins at `first`, with the one before it.
    fn find(&self, first: u32, slot: u32) -> Option<(u32, u32)> {
        let (mut before, mut index) = (NONE, first);
        while index != NONE {
            let unit = &self.units[index as usize];
            if unit.slot == slot {
                return Some((before, index));
            }
            (before, index) = (index, unit.next);
        }
        None
    }
}

impl Ssd {
    /// The open page of a slot that a write joins whatever page would be next.
    #[inline]
    pub(crate) fn joined_page(&self, slot: u32) -> Option<u32> {
        match self.partial.is_empty() {
            true => None,
            false => self.ftl.open_page_of(slot),
        }
    }

    /// Whether a page stays open although it takes no further units, for the rest
    /// of those that are not whole. One that holds a single unit is programmed as
    /// it comes, as MQSim has it.
    #[inline]
    pub(crate) fn stays_open(&self, record: u32) -> bool {
        self.ftl.record(record).partial != NONE && self.ftl.slots_per_page() > 1
    }

    /// A page has a new unit, of which the host has written a part; what was
    /// there before is at `rest`.
    pub(crate) fn begin_partial(&mut self, record: u32, slot: u32, span: Span, rest: Located) {
        let next = self.ftl.record(record).partial;
        let unit = Unit {
            record,
            slot,
            written: span.bits(),
            rest: match rest {
                Located::Flash(at) => at,
                // In DRAM as well, or nothing but zeros.
                Located::Buffered(_) | Located::Nowhere => NONE,
            },
            next,
        };
        self.ftl.record_mut(record).partial = self.partial.insert(unit);
    }

    /// The host has written more of a unit in an open page. Returns the bytes of
    /// it that it had not written there before.
    pub(crate) fn join(&mut self, record: u32, slot: u32, span: Span) -> u32 {
        let first = self.ftl.record(record).partial;
        let Some((before, index)) = self.partial.find(first, slot) else {
            return 0;
        };
        let unit = &mut self.partial.units[index as usize];
        let new = span.bits() & !unit.written;
        unit.written |= new;
        if unit.written.count_ones() * 512 == self.spec.ftl.map_unit_bytes {
            self.end_partial(record, before, index);
        }
        new.count_ones() * 512
    }

    /// A unit of a page is not partial any more.
    fn end_partial(&mut self, record: u32, before: u32, index: u32) -> Unit {
        let unit = self.partial.remove(index);
        match before {
            NONE => self.ftl.record_mut(record).partial = unit.next,
            before => self.partial.units[before as usize].next = unit.next,
        }
        unit
    }

    /// Slots from `start` to before `end` are discarded: what there is of them
    /// need not become whole.
    pub(crate) fn forget_partial(&mut self, start: u32, end: u64) {
        for index in self.partial.all() {
            let Unit { record, slot, .. } = self.partial.units[index as usize];
            if record == NONE || slot < start || slot as u64 >= end {
                continue;
            }
            let first = self.ftl.record(record).partial;
            if let Some((before, index)) = self.partial.find(first, slot) {
                self.end_partial(record, before, index);
            }
            #[cfg(test)]
            self.witness_forget(slot);
        }
    }

    /// A page is to be programmed: reads what its units lack.
    pub(crate) fn read_rests(&mut self, now_ns: u64, record: u32) {
        while self.ftl.record(record).partial != NONE {
            let first = self.ftl.record(record).partial;
            let unit = self.end_partial(record, NONE, first);
            self.read_rest(now_ns, &unit);
        }
    }

    /// A block is to be erased: reads what units in DRAM still lack of it.
    pub(crate) fn rescue_rests(&mut self, now_ns: u64, block: u32) {
        for index in self.partial.all() {
            let unit = self.partial.units[index as usize];
            if unit.record != NONE && unit.rest != NONE && self.ftl.parts(unit.rest).block == block
            {
                self.partial.units[index as usize].rest = NONE;
                self.read_rest(now_ns, &unit);
            }
        }
    }

    /// Reads what a unit lacks; its page waits for it.
    fn read_rest(&mut self, now_ns: u64, unit: &Unit) {
        if unit.rest == NONE {
            return;
        }
        let bytes = self.missing_bytes(unit.written);
        let page = self.ftl.parts(unit.rest);
        let op = self.flash_op(Operation::Read, Source::Rewrite, unit.record, page, bytes);
        self.flash.enqueue(now_ns, op);
        self.ftl.record_mut(unit.record).reads += 1;
    }

    /// Bytes of a unit that have to come over the channel: whole codewords.
    fn missing_bytes(&self, written: Sectors) -> u32 {
        let codeword = self.spec.channel.codeword_bytes;
        let unit = self.spec.ftl.map_unit_bytes;
        let is_missing = |from: &u32| {
            let to = (from + codeword).min(unit);
            Span::of_bytes(*from as u64, to as u64).bits() & !written != 0
        };
        let codewords = (0..unit).step_by(codeword as usize);
        codewords.filter(is_missing).count() as u32 * codeword
    }

    /// The physical slot that has what of `from..to` of the address space, bytes
    /// of one unit in DRAM, was not written there; `None` where all of it was.
    #[inline]
    pub(crate) fn rest_of(&self, slot: u32, (from, to): (u64, u64)) -> Option<u32> {
        let record = self.joined_page(slot)?;
        let first = self.ftl.record(record).partial;
        let (_, index) = self.partial.find(first, slot)?;
        let unit = &self.partial.units[index as usize];
        let first_byte = from & (self.spec.ftl.map_unit_bytes as u64 - 1);
        let span = Span::of_bytes(first_byte, first_byte + to - from);
        (span.bits() & !unit.written != 0 && unit.rest != NONE).then_some(unit.rest)
    }
}
