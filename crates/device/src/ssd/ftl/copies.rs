//! Copies of one slot: which of them count, and which is left after a loss of
//! power.
//!
//! A slot that is written again exists more than once for a while: the new
//! copy is in DRAM until its page is programmed, and would be gone with the
//! power. So a drive without capacitors keeps the last programmed copy until a
//! newer one is programmed; collection has to move it like any valid data.
//! Every copy that is not programmed names the copy it replaces, so the copies
//! of a slot form a chain from the current one down to a programmed one. At
//! start-up a real drive finds that one by the sequence numbers that it writes
//! beside every page (Gupta, Kim and Urgaonkar, ASPLOS 2009, section 4, call
//! that area OOB).
//!
//! With capacitors DRAM is as good as flash, and no old copy is kept.

use crate::ssd::ftl::blocks::{BlockState, NO_BLOCK, NO_SLOT};
use crate::ssd::ftl::page_map::MapEntry;
use crate::ssd::ftl::{CLOSED, Frontier, Ftl, Located, PageRecord, Stream};
use strength_reduce::StrengthReducedU32;

/// What a physical slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A slot's current data.
    Current(u32),
    /// What is left of a slot if its current data is lost with the power.
    Kept(u32),
    /// Nothing that anybody needs.
    Nothing,
}

impl Ftl {
    /// What a physical slot of a block written to its end holds.
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

    /// The links from an unprogrammed copy down: pairs of copy and older copy.
    fn chain(&self, from: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut at = from;
        std::iter::from_fn(move || {
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

    /// A slot's current copy, at `place`, is about to be replaced. Returns the
    /// copy that the new one has to name as older.
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

    /// Forgets a slot with all its copies.
    #[inline]
    pub(crate) fn invalidate(&mut self, slot: u32) {
        if let Located::Flash(at) | Located::Buffered(at) = self.locate(slot) {
            self.uncount_valid(at);
            if self.blocks.keeps_older() {
                self.release(at);
            }
        }
    }

    /// Lets go of everything older than `at`.
    fn release(&mut self, at: u32) {
        let mut newer = at;
        while newer != NO_SLOT && !self.was_cut(newer) {
            let older = self.older(newer);
            self.set_older(newer, NO_SLOT);
            if older != NO_SLOT && self.is_programmed(older) {
                self.uncount_valid(older);
                return;
            }
            newer = older;
        }
    }

    fn was_cut(&self, at: u32) -> bool {
        self.older(at) == NO_SLOT
    }

    /// Collection moves a kept copy to the page that it is filling in `plane`,
    /// whose record is returned.
    pub(crate) fn write_kept(&mut self, plane: u32, slot: u32, stream: Stream, from: u32) -> u32 {
        let record = self.open_record(plane, stream, 0);
        self.replace_kept(record, slot, from);
        record
    }

    /// Gives a slot's kept copy a page's next place instead of `from`.
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

    /// A page's slots have reached the flash: older copies of them are not
    /// needed any more.
    #[inline]
    pub(crate) fn release_older_copies(&mut self, record: u32) {
        let PageRecord {
            block,
            page,
            slots,
            replaces,
            ..
        } = self.records[record];
        // Where no copy was replaced before it was programmed, all that name an
        // older one are current: their slots need not be looked for in the map,
        // which takes longer than everything else about a write.
        let all_are_current = !self.blocks.replaced[block as usize];
        if all_are_current && !replaces {
            return;
        }
        let first = self.page_start(block, page);
        // A slot can be in a page twice, with a copy elsewhere in between. The
        // newest goes first: it lets go of the other.
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
                // Newer data is still in DRAM: this copy takes over.
                self.release(at);
                self.count_valid(at);
            }
        }
    }

    /// Everything in DRAM is gone. Slots go back to their last programmed
    /// copies, and blocks to what was programmed; `spoiled` are the records of
    /// pages whose program was under way. Returns the host's slots that went
    /// back.
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
                let frontier = std::mem::replace(&mut state.frontiers[stream.index()], CLOSED);
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

    /// A page's program was interrupted, and that of all pages that the array
    /// programs with it. One that was only on its way to the array spoils nothing.
    fn spoil(&mut self, record: u32) {
        if !self.completes_program(record) {
            return;
        }
        let PageRecord { block, page, .. } = self.records[record];
        for page in self.blocks.programmed[block as usize] as u32..=page {
            self.blocks.program(block, page, self.pages_of(block));
        }
    }

    /// Capacitors last until all of DRAM is on the flash.
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

    /// Pages between their first slot and the end of their program.
    pub(crate) fn live_records(&self) -> Vec<PageRecord> {
        let live = self.records.indices().into_iter();
        live.map(|record| self.records[record]).collect()
    }

    /// The page in DRAM that a slot belongs to.
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

    /// A block that was being written goes on where its programs ended. Since a
    /// stream's programs keep their order, there is one such block a stream.
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

    /// A block that was to be emptied is full as before.
    pub(super) fn put_back(&mut self, plane: u32, block: u32) {
        self.blocks.states[block as usize] = BlockState::Full;
        if self.is_slc(block)
            && let Some(slc) = &mut self.slc
        {
            slc.put_back(plane, block, &self.blocks.filled);
        }
    }
}
