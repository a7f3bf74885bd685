//! Copies of one slot: which of them are valid, and which survives a loss of power.
//!
//! A slot that is written again exists more than once for a while: the new copy is
//! in DRAM until its page is programmed, and would be lost with the power. So a
//! drive without capacitors keeps the last programmed copy until a newer one is
//! programmed; collection has to move it like any valid data. Every unprogrammed
//! copy links to the copy that it replaces, so the copies of a slot form a chain
//! from the current one to a programmed one. A real drive finds that one at
//! start-up by the sequence numbers in the spare area of every page (OOB in Gupta,
//! Kim and Urgaonkar, ASPLOS 2009, section 4).
//!
//! With capacitors DRAM is as good as flash, and no old copy is kept.

use alloc::vec::Vec;

use crate::ssd::ftl::blocks::{BlockState, NO_BLOCK, NO_SLOT};
use crate::ssd::ftl::page_map::MapEntry;
use crate::ssd::ftl::{CLOSED, Frontier, Ftl, Located, PageRecord, Stream};
use strength_reduce::StrengthReducedU32;

/// What a physical slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A slot's current data.
    Current(u32),
    /// The programmed copy of a slot that is kept while its current one is in DRAM.
    Kept(u32),
    /// Nothing valid.
    Nothing,
}

impl Ftl {
    /// What a physical slot of a full block holds.
    pub(crate) fn holds(&self, at: u32) -> Holds {
        self.owner(at)
            .map_or(Holds::Nothing, |slot| self.holds_of(at, slot))
    }

    /// The same of a physical slot whose owner is `slot`.
    pub(crate) fn holds_of(&self, at: u32, slot: u32) -> Holds {
        match self.locate(slot) {
            Located::Flash(found) | Located::Buffered(found) if found == at => Holds::Current(slot),
            Located::Buffered(found) if self.blocks.keeps_older() => {
                match self.chain(found).last() {
                    Some((_, last)) if last == at => Holds::Kept(slot),
                    _ => Holds::Nothing,
                }
            }
            _ => Holds::Nothing,
        }
    }

    /// The programmed copy that is kept while a slot's current one is not.
    pub(crate) fn kept(&self, slot: u32) -> Option<u32> {
        let at = match self.locate(slot) {
            Located::Buffered(at) if self.blocks.keeps_older() => at,
            _ => return None,
        };
        let last = self.chain(at).last()?.1;
        self.is_programmed(last).then_some(last)
    }

    /// The chain from an unprogrammed copy: pairs of a copy and the one it replaces.
    fn chain(&self, from: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut at = from;
        core::iter::from_fn(move || {
            if at == NO_SLOT || self.is_programmed(at) {
                return None;
            }
            let older = self.older(at);
            let link = (at, older);
            at = older;
            (older != NO_SLOT).then_some(link)
        })
    }

    fn older(&self, at: u32) -> u32 {
        let (block, within) = StrengthReducedU32::div_rem(at, self.slots_per_block);
        self.blocks.older(block, within)
    }

    fn set_older(&mut self, at: u32, older: u32) {
        let (block, within) = StrengthReducedU32::div_rem(at, self.slots_per_block);
        self.blocks.set_older(block, within, older);
    }

    pub(crate) fn is_programmed(&self, at: u32) -> bool {
        let page = self.parts(at);
        page.page < self.blocks.programmed[page.block as usize] as u32
    }

    pub(crate) fn count_valid(&mut self, at: u32) {
        self.blocks.valid[(at / self.slots_per_block) as usize] += 1;
    }

    pub(crate) fn uncount_valid(&mut self, at: u32) {
        self.blocks.valid[(at / self.slots_per_block) as usize] -= 1;
    }

    /// Invalidates a slot's current copy, at `place`, before it is replaced. Returns the
    /// copy that the new one has to link to.
    #[inline]
    pub(crate) fn supersede(&mut self, slot: u32, place: MapEntry) -> u32 {
        match self.locate_in(slot, place) {
            Located::Nowhere => NO_SLOT,
            Located::Flash(at) if self.blocks.keeps_older() => at,
            Located::Buffered(at) if self.blocks.keeps_older() => {
                self.uncount_valid(at);
                self.note_replaced(at);
                self.rewritten_in_dram += 1;
                at
            }
            Located::Flash(at) | Located::Buffered(at) => {
                self.uncount_valid(at);
                NO_SLOT
            }
        }
    }

    /// Invalidates a slot with all its copies.
    #[inline]
    pub(crate) fn invalidate(&mut self, slot: u32) {
        if let Located::Flash(at) | Located::Buffered(at) = self.locate(slot) {
            self.uncount_valid(at);
            if self.blocks.keeps_older() {
                self.release(at);
            }
        }
    }

    /// Invalidates all copies older than `at`.
    fn release(&mut self, at: u32) {
        let mut newer = at;
        while newer != NO_SLOT && !self.has_no_older(newer) {
            let older = self.older(newer);
            self.set_older(newer, NO_SLOT);
            if older != NO_SLOT && self.is_programmed(older) {
                self.uncount_valid(older);
                return;
            }
            newer = older;
        }
    }

    fn has_no_older(&self, at: u32) -> bool {
        self.older(at) == NO_SLOT
    }

    /// Moves a kept copy to the page that collection is filling in `plane`, whose record
    /// is returned.
    pub(crate) fn write_kept(&mut self, plane: u32, slot: u32, stream: Stream, from: u32) -> u32 {
        let record = self.open_record(plane, stream, 0);
        self.replace_kept(record, slot, from);
        record
    }

    /// Moves a slot's kept copy from `from` to a page's next place.
    pub(crate) fn replace_kept(&mut self, record: u32, slot: u32, from: u32) {
        if let Located::Buffered(current) = self.locate(slot)
            && let Some((newer, _)) = self.chain(current).last()
        {
            let to = self.take_slot(record, slot);
            self.set_older(newer, to);
            self.set_older(to, from);
            self.records[record].replaces = true;
            self.note_replaced(to);
        }
    }

    fn note_replaced(&mut self, at: u32) {
        self.blocks.replaced[(at / self.slots_per_block) as usize] = true;
    }

    /// Invalidates the older copies of a page's slots, which are programmed now.
    #[inline]
    pub(crate) fn release_older_copies(&mut self, record: u32) {
        let PageRecord {
            block,
            page,
            slots,
            replaces,
            ..
        } = self.records[record];
        // Where no copy was replaced before it was programmed, all copies that link to an
        // older one are current. That saves the look-ups in the map, which take longer
        // than everything else about a write.
        let all_are_current = !self.blocks.replaced[block as usize];
        if all_are_current && !replaces {
            return;
        }
        let first = self.page_start(block, page);
        // A slot can be in a page twice, with a copy elsewhere in between. The newest goes
        // first, since it invalidates the other.
        for at in (first..first + slots).rev() {
            if all_are_current {
                self.release(at);
                continue;
            }
            let Some(slot) = self.owner(at) else { continue };
            let MapEntry::At(current) = self.map.get(slot) else {
                continue;
            };
            if current == at {
                self.release(at);
            } else if self.chain(current).any(|(_, older)| older == at) {
                // Newer data is still in DRAM: this copy is now the one to keep.
                self.release(at);
                self.count_valid(at);
            }
        }
    }

    /// Drops everything in DRAM. Slots return to their last programmed copies, and
    /// blocks to what was programmed; `spoiled` are the records of pages whose program
    /// was interrupted. Returns the host slots that lost their current copy.
    pub(crate) fn lose_dram(&mut self, spoiled: &[u32]) -> Vec<u32> {
        let live = self.live_records();
        let mut lost = Vec::new();
        live.iter().for_each(|page| self.roll_back(page, &mut lost));
        for record in spoiled {
            self.spoil(*record);
        }
        let mut open: Vec<(u32, Stream, u32)> = live
            .iter()
            .map(|page| (page.plane, page.stream, page.block))
            .collect();
        for (plane, state) in self.planes.iter_mut().enumerate() {
            for stream in Stream::all() {
                let frontier = core::mem::replace(&mut state.frontiers[stream.index()], CLOSED);
                if frontier.block != NO_BLOCK {
                    open.push((plane as u32, stream, frontier.block));
                }
            }
        }
        for (plane, stream, block) in open {
            self.reopen(plane, stream, block);
        }
        self.records.clear();
        lost
    }

    /// Marks a page whose program was interrupted as used, and with it the pages of the
    /// same program. A page that was only transferred to the array spoils nothing.
    fn spoil(&mut self, record: u32) {
        if !self.completes_program(record) {
            return;
        }
        let PageRecord { block, page, .. } = self.records[record];
        for page in self.blocks.programmed[block as usize] as u32..=page {
            self.blocks.program(block, page, self.pages_of(block));
        }
    }

    /// Programs all pages in DRAM, for which the capacitors last.
    pub(crate) fn save_dram(&mut self) {
        let at = |record: u32| {
            (
                self.records[record].block,
                self.records[record].page,
                record,
            )
        };
        let mut live: Vec<(u32, u32, u32)> = self.records.indices().into_iter().map(at).collect();
        live.sort_unstable();
        for (_, _, record) in live {
            if !self.records[record].closed {
                self.close(record);
            }
            self.programmed(record);
        }
        self.forget_programs();
    }

    /// The records of all pages that are not programmed.
    pub(crate) fn live_records(&self) -> Vec<PageRecord> {
        let live = self.records.indices().into_iter();
        live.map(|record| self.records[record]).collect()
    }

    /// The record of the page that a physical slot belongs to, if it is in DRAM.
    pub(crate) fn record_of(&self, at: u32) -> Option<u32> {
        let page = self.parts(at);
        let of = |record: &PageRecord| record.at() == page;
        self.records
            .as_slice()
            .iter()
            .position(of)
            .map(|place| place as u32)
    }

    fn roll_back(&mut self, page: &PageRecord, lost: &mut Vec<u32>) {
        let first = self.page_start(page.block, page.page);
        for at in first..first + page.slots {
            let Some(slot) = self.owner(at) else { continue };
            if self.map.get(slot) != MapEntry::At(at) {
                continue;
            }
            match self.chain(at).last() {
                Some((_, kept)) if self.is_programmed(kept) => self.map.set(slot, kept),
                _ => self.map.discard(slot),
            }
            self.uncount_valid(at);
            if page.stream.is_of_host() {
                lost.push(slot);
            }
        }
    }

    /// Has a stream continue an open block where its programs ended. Since a stream's
    /// programs keep their order, it has at most one such block.
    fn reopen(&mut self, plane: u32, stream: Stream, block: u32) {
        let programmed = self.blocks.programmed[block as usize] as u32;
        let was = self.blocks.states[block as usize];
        if was == BlockState::Free {
            return;
        }
        let is_whole = programmed == self.pages_of(block);
        if was == BlockState::Full
            && !is_whole
            && let Some(slc) = &mut self.slc
        {
            slc.begin_fold(plane, block);
        }
        if programmed == 0 {
            self.blocks.close_unwritten(block);
            self.set_free(plane, block);
        } else if !is_whole {
            self.blocks.states[block as usize] = BlockState::Open;
            self.blocks.forget_older(block);
            self.planes[plane as usize].frontiers[stream.index()] = Frontier {
                block,
                page: programmed,
                ..CLOSED
            };
        } else if was == BlockState::Open {
            self.fill(plane, block, stream);
        }
    }

    /// Pages programmed in the blocks that a plane is writing.
    pub(crate) fn pages_in_open_blocks(&self, plane: u32) -> u32 {
        self.planes[plane as usize]
            .frontiers
            .iter()
            .filter(|frontier| frontier.block != NO_BLOCK)
            .map(|frontier| frontier.page)
            .sum()
    }

    /// Makes a victim a full block again.
    pub(super) fn put_back(&mut self, plane: u32, block: u32) {
        self.blocks.states[block as usize] = BlockState::Full;
        if self.is_slc(block)
            && let Some(slc) = &mut self.slc
        {
            slc.put_back(plane, block, &self.blocks.filled);
        }
    }
}
