//! Map units in DRAM of which the host has written only a part.
//!
//! As long as the page of such a unit is open, further writes to the unit join it.
//! The rest is read from the flash only when the page is to be programmed and the
//! unit is still incomplete, or before the block that has the rest is erased. So a
//! page with such units is not programmed as soon as it is full: it stays open until
//! its stream needs the next page, or until a flush, a FUA write or a full cache
//! closes it.

use alloc::vec::Vec;

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

/// A map unit that is incomplete.
#[derive(Clone, Copy, Debug)]
struct PartialUnit {
    /// The record of its page, [`NONE`] once it is complete.
    record: u32,
    slot: u32,
    /// The sectors that the host has written.
    written: Sectors,
    /// The physical slot that the rest has to be read from, or [`NONE`].
    rest: u32,
    /// The next unit of its page, or [`NONE`].
    next: u32,
}

/// All incomplete units.
#[derive(Clone, Debug)]
pub(super) struct PartialUnits {
    units: Slab<PartialUnit>,
    unit_bytes: u32,
    codeword_bytes: u32,
    /// Pairs of pages, leader and follower: the follower is complete only when the leader
    /// is.
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

    /// A slot's unit in the list that begins at `first`, and the unit before it.
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

    /// Bytes of a unit that have to be read over the channel: whole codewords.
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
    /// The open page of a slot, which a write to the slot joins instead of taking a new
    /// place.
    #[inline]
    pub(crate) fn joined_page(&self, slot: u32) -> Option<u32> {
        match self.partial_units.units.is_empty() {
            true => None,
            false => self.open_page_of(slot),
        }
    }

    /// Whether a full page stays open for the rest of its incomplete units. A page that
    /// holds a single unit is programmed at once, as in MQSim.
    #[inline]
    pub(crate) fn stays_open(&self, record: u32) -> bool {
        self.record(record).partial != NONE && self.slots_per_page() > 1
    }

    /// Adds a unit to a page of which the host has written a part; the data before that
    /// is at `rest`.
    pub(crate) fn begin_partial(&mut self, record: u32, slot: u32, span: Span, rest: Located) {
        let next = self.record(record).partial;
        let unit = PartialUnit {
            record,
            slot,
            written: span.bits(),
            rest: match rest {
                Located::Flash(at) => at,
                // The rest is in DRAM as well, or zeros.
                Located::Buffered(_) | Located::Nowhere => NONE,
            },
            next,
        };
        self.record_mut(record).partial = self.partial_units.units.insert(unit);
    }

    /// Adds what the host has written of a unit in an open page. Returns how many of the
    /// bytes were not written there before.
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

    /// Removes a unit from its page's incomplete ones.
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

    /// Slots from `start` to before `end` are discarded: their rests need not be read.
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

    /// Reads the rests of a page's units before its program.
    pub(crate) fn read_rests(&mut self, flash: &mut Flash, now_ns: u64, record: u32) {
        while self.record(record).partial != NONE {
            let first = self.record(record).partial;
            let unit = self.end_partial(record, NONE, first);
            self.read_rest(flash, now_ns, &unit);
        }
    }

    /// Reads the rests that incomplete units still have in a block before its erase.
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

    /// Reads the rest of a unit; its page waits for it.
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

    /// The physical slot with the rest of a unit in DRAM, if bytes `from..to` of the
    /// address space need it; `None` where the host has written all of them.
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

    /// A page takes over a unit that is in DRAM at `at`, whose rest may still be being
    /// read for that page.
    pub(crate) fn follow(&mut self, at: u32, record: u32) {
        if self.static_allocation && self.has_one_host_stream() && !self.has_rows() {
            // All pages that a slot can be in are programmed in order anyway.
            return;
        }
        let page = self.record(record);
        if self.same_page(at, self.page_start(page.block, page.page)) {
            return;
        }
        let Some(leader) = self.record_of(at) else {
            return;
        };
        // It follows all leaders of its leader as well, so that pages never wait for each
        // other in a cycle.
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

    /// Has a page wait for the reads of another, if it does not yet.
    fn begin_to_follow(&mut self, leader: u32, record: u32) {
        let pair = (leader, record);
        if leader != record && !self.partial_units.followers.contains(&pair) {
            self.partial_units.followers.push(pair);
            self.record_mut(record).reads += 1;
        }
    }

    /// A leader of a page that is still open.
    #[inline]
    pub(crate) fn open_leader_of(&self, record: u32) -> Option<u32> {
        if self.partial_units.followers.is_empty() {
            return None;
        }
        let mut leaders = self.partial_units.leaders_of(record);
        leaders.find(|leader| !self.record(*leader).closed)
    }

    /// Reads that a page waits for, without those of its leaders.
    fn own_reads(&self, record: u32) -> u32 {
        self.record(record).reads - self.partial_units.leaders_of(record).count() as u32
    }

    /// The rest of a unit has been read for a page.
    pub(crate) fn rest_read(&mut self, flash: &mut Flash, now_ns: u64, record: u32) {
        self.end_read(flash, now_ns, record);
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
            self.end_read(flash, now_ns, follower);
        }
    }

    /// One of the reads that a page waits for has ended.
    fn end_read(&mut self, flash: &mut Flash, now_ns: u64, record: u32) {
        let page = self.record_mut(record);
        page.reads -= 1;
        if page.reads == 0 && page.closed {
            let op = page.op;
            flash.make_ready(now_ns, op);
        }
    }
}
