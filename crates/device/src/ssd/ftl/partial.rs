//! Map units in DRAM of which the host has written only a part.
//!
//! What else the host writes of such a unit joins what is there, as long as its
//! page is open. The rest is read from the flash only when that page is to be
//! programmed and the unit is still not whole, or before the block that has the
//! rest is erased. So a page with such units is not programmed for being full:
//! it stays open until its stream needs the next one, or a flush, a write that
//! is to be durable or a full cache closes it.

use super::{Ftl, Located};
use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{NONE, Operation, Source};
use crate::ssd::slab::Slab;
use crate::ssd::spec::{MOST_MAP_UNIT_BYTES, SsdSpec};

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
struct PartialUnit {
    /// The page that it belongs to, [`NONE`] once it is whole.
    record: u32,
    slot: u32,
    /// What the host has written of it.
    written: Sectors,
    /// The physical slot that the rest has to be read from, or [`NONE`].
    rest: u32,
    /// The next of its page.
    next: u32,
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct PartialUnits {
    units: Slab<PartialUnit>,
    unit_bytes: u32,
    codeword_bytes: u32,
    /// Pairs of pages whose second is complete only when the first is.
    followers: Vec<(u32, u32)>,
}

impl PartialUnits {
    pub(super) fn new(spec: &SsdSpec) -> PartialUnits {
        PartialUnits {
            units: Slab::with_capacity(64),
            unit_bytes: spec.ftl.map_unit_bytes,
            codeword_bytes: spec.channel.codeword_bytes,
            followers: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.units.clear();
        self.followers.clear();
    }

    /// A slot's place in the list that begins at `first`, with the one before it.
    fn find(&self, first: u32, slot: u32) -> Option<(u32, u32)> {
        let (mut before, mut index) = (NONE, first);
        while index != NONE {
            let unit = &self.units[index];
            if unit.slot == slot {
                return Some((before, index));
            }
            (before, index) = (index, unit.next);
        }
        None
    }

    /// Bytes of a unit that have to come over the channel: whole codewords.
    fn missing_bytes(&self, written: Sectors) -> u32 {
        let (codeword, unit) = (self.codeword_bytes, self.unit_bytes);
        let is_missing = |from: &u32| {
            let to = (from + codeword).min(unit);
            Span::of_bytes(*from as u64, to as u64).bits() & !written != 0
        };
        let codewords = (0..unit).step_by(codeword as usize);
        codewords.filter(is_missing).count() as u32 * codeword
    }

    /// The pages that a page follows.
    fn leaders_of(&self, record: u32) -> impl Iterator<Item = u32> {
        let of = move |pair: &&(u32, u32)| pair.1 == record;
        self.followers.iter().filter(of).map(|pair| pair.0)
    }
}

impl Ftl {
    /// The open page of a slot that a write joins whatever page would be next.
    #[inline]
    pub(crate) fn joined_page(&self, slot: u32) -> Option<u32> {
        match self.partial_units.units.is_empty() {
            true => None,
            false => self.open_page_of(slot),
        }
    }

    /// Whether a page stays open although it takes no further units, for the rest
    /// of those that are not whole. One that holds a single unit is programmed as
    /// it comes, as MQSim has it.
    #[inline]
    pub(crate) fn stays_open(&self, record: u32) -> bool {
        self.record(record).partial != NONE && self.slots_per_page() > 1
    }

    /// A page has a new unit, of which the host has written a part; what was
    /// there before is at `rest`.
    pub(crate) fn begin_partial(&mut self, record: u32, slot: u32, span: Span, rest: Located) {
        let next = self.record(record).partial;
        let unit = PartialUnit {
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
        self.record_mut(record).partial = self.partial_units.units.insert(unit);
    }

    /// The host has written more of a unit in an open page. Returns the bytes of
    /// it that it had not written there before.
    pub(crate) fn join(&mut self, record: u32, slot: u32, span: Span) -> u32 {
        let first = self.record(record).partial;
        let Some((before, index)) = self.partial_units.find(first, slot) else {
            return 0;
        };
        let unit = &mut self.partial_units.units[index];
        let new = span.bits() & !unit.written;
        unit.written |= new;
        if unit.written.count_ones() * 512 == self.partial_units.unit_bytes {
            self.end_partial(record, before, index);
        }
        new.count_ones() * 512
    }

    /// A unit of a page is not partial any more.
    fn end_partial(&mut self, record: u32, before: u32, index: u32) -> PartialUnit {
        let unit = self.partial_units.units[index];
        self.partial_units.units[index].record = NONE;
        self.partial_units.units.remove(index);
        match before {
            NONE => self.record_mut(record).partial = unit.next,
            before => self.partial_units.units[before].next = unit.next,
        }
        unit
    }

    /// Slots from `start` to before `end` are discarded: what there is of them
    /// need not become whole.
    pub(crate) fn discard_partial(&mut self, start: u32, end: u64) {
        if self.partial_units.units.is_empty() {
            return;
        }
        for index in self.partial_units.units.indices() {
            let PartialUnit { record, slot, .. } = self.partial_units.units[index];
            if record == NONE || slot < start || slot as u64 >= end {
                continue;
            }
            let first = self.record(record).partial;
            if let Some((before, index)) = self.partial_units.find(first, slot) {
                self.end_partial(record, before, index);
            }
            #[cfg(test)]
            self.shadow_forget(slot);
        }
    }

    /// A page is to be programmed: reads what its units lack.
    pub(crate) fn read_rests(&mut self, flash: &mut Flash, now_ns: u64, record: u32) {
        while self.record(record).partial != NONE {
            let first = self.record(record).partial;
            let unit = self.end_partial(record, NONE, first);
            self.read_rest(flash, now_ns, &unit);
        }
    }

    /// A block is to be erased: reads what units in DRAM still lack of it.
    pub(crate) fn rescue_rests(&mut self, flash: &mut Flash, now_ns: u64, block: u32) {
        if self.partial_units.units.is_empty() {
            return;
        }
        for index in self.partial_units.units.indices() {
            let unit = self.partial_units.units[index];
            if unit.record != NONE && unit.rest != NONE && self.parts(unit.rest).block == block {
                self.partial_units.units[index].rest = NONE;
                self.read_rest(flash, now_ns, &unit);
            }
        }
    }

    /// Reads what a unit lacks; its page waits for it.
    fn read_rest(&mut self, flash: &mut Flash, now_ns: u64, unit: &PartialUnit) {
        if unit.rest == NONE {
            return;
        }
        let bytes = self.partial_units.missing_bytes(unit.written);
        let page = self.parts(unit.rest);
        let op = self.transaction(Operation::Read, Source::Rewrite, unit.record, page, bytes);
        flash.enqueue(now_ns, op);
        self.record_mut(unit.record).reads += 1;
    }

    /// The physical slot that has what of `from..to` of the address space, bytes
    /// of one unit in DRAM, was not written there; `None` where all of it was.
    #[inline]
    pub(crate) fn rest_of(&self, slot: u32, (from, to): (u64, u64)) -> Option<u32> {
        let record = self.joined_page(slot)?;
        let first = self.record(record).partial;
        let (_, index) = self.partial_units.find(first, slot)?;
        let unit = &self.partial_units.units[index];
        let first_byte = from & (self.partial_units.unit_bytes as u64 - 1);
        let span = Span::of_bytes(first_byte, first_byte + to - from);
        (span.bits() & !unit.written != 0 && unit.rest != NONE).then_some(unit.rest)
    }

    /// A page takes over what is at `at` in DRAM, of which a part may still be
    /// on its way.
    pub(crate) fn follow(&mut self, at: u32, record: u32) {
        if self.static_allocation && self.has_one_host_stream() && !self.has_rows() {
            // All pages that a slot can be in are programmed one after the other.
            return;
        }
        let page = self.record(record);
        if self.same_page(at, self.page_start(page.block, page.page)) {
            return;
        }
        let Some(leader) = self.record_of(at) else {
            return;
        };
        // What the leader itself follows, this page has to follow too: pages
        // that waited for each other would do so for ever.
        for place in 0..self.partial_units.followers.len() {
            let (leads, follows) = self.partial_units.followers[place];
            if follows == leader {
                self.begin_to_follow(leads, record);
            }
        }
        if self.own_reads(leader) > 0 {
            self.begin_to_follow(leader, record);
        }
    }

    /// A page waits for the reads of another, if it does not yet.
    fn begin_to_follow(&mut self, leader: u32, record: u32) {
        let pair = (leader, record);
        if leader != record && !self.partial_units.followers.contains(&pair) {
            self.partial_units.followers.push(pair);
            self.record_mut(record).reads += 1;
        }
    }

    /// A page that a page follows and that is still being filled.
    #[inline]
    pub(crate) fn open_leader_of(&self, record: u32) -> Option<u32> {
        if self.partial_units.followers.is_empty() {
            return None;
        }
        let mut leaders = self.partial_units.leaders_of(record);
        leaders.find(|leader| !self.record(*leader).closed)
    }

    /// Reads that a page waits for without those of pages that it follows.
    fn own_reads(&self, record: u32) -> u32 {
        self.record(record).reads - self.partial_units.leaders_of(record).count() as u32
    }

    /// The rest of a map unit has been read for a page.
    pub(crate) fn rest_read(&mut self, flash: &mut Flash, now_ns: u64, record: u32) {
        self.read_for(flash, now_ns, record);
        if self.partial_units.followers.is_empty() || self.own_reads(record) > 0 {
            return;
        }
        while let Some(place) = self
            .partial_units
            .followers
            .iter()
            .position(|pair| pair.0 == record)
        {
            let (_, follower) = self.partial_units.followers.swap_remove(place);
            self.read_for(flash, now_ns, follower);
        }
    }

    /// A page waits for one read less.
    fn read_for(&mut self, flash: &mut Flash, now_ns: u64, record: u32) {
        let page = self.record_mut(record);
        page.reads -= 1;
        if page.reads == 0 && page.closed {
            let op = page.op;
            flash.make_ready(now_ns, op);
        }
    }
}
