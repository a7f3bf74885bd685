//! Write frontiers: where each stream writes in a plane, its pages until they are
//! programmed, and its blocks from their first page to their erase.

use super::Ftl;
use crate::ssd::flash::transaction::{FlashPage, NONE};
use crate::ssd::ftl::blocks::{BlockState, NO_BLOCK, NO_SLOT};
use crate::ssd::ftl::page_map::MapEntry;
use strength_reduce::StrengthReducedU32;

/// A stream of writes, with a frontier of its own in every plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Host,
    Collection,
    /// The host's data in the SLC cache.
    Slc,
    /// Data that static wear levelling moves.
    Wear,
    /// The host's data in a sequential log of this number (see
    /// [`crate::ssd::ftl::hybrid`]).
    Sequential(u8),
}

/// Most sequential logs of a plane.
const MOST_SEQUENTIAL: usize = 16;
/// Number of streams.
pub(crate) const STREAMS: usize = 4 + MOST_SEQUENTIAL;

impl Stream {
    /// All streams.
    pub(crate) fn all() -> impl Iterator<Item = Stream> {
        let sequential = (0..MOST_SEQUENTIAL as u8).map(Stream::Sequential);
        [Stream::Host, Stream::Collection, Stream::Slc, Stream::Wear]
            .into_iter()
            .chain(sequential)
    }

    /// Its index among all.
    #[inline]
    pub(crate) fn index(self) -> usize {
        match self {
            Stream::Host => 0,
            Stream::Collection => 1,
            Stream::Slc => 2,
            Stream::Wear => 3,
            Stream::Sequential(number) => 4 + number as usize,
        }
    }

    /// Whether it writes host data from DRAM.
    #[inline]
    pub(crate) fn is_of_host(self) -> bool {
        !matches!(self, Stream::Collection | Stream::Wear)
    }
}

/// A page between its first slot and the end of its program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRecord {
    pub(crate) plane: u32,
    pub(crate) block: u32,
    pub(crate) page: u32,
    /// Slots allocated.
    pub(crate) slots: u32,
    /// Bytes of host data that it keeps in the write cache.
    pub(crate) dirty_bytes: u32,
    pub(crate) stream: Stream,
    /// It takes no further slots and is queued for its program.
    pub(crate) closed: bool,
    /// Copyback: the page of the plane that it is a copy of, or [`NONE`].
    pub(crate) copy_of: u32,
    /// Some of its slots name the older copies that they replace.
    pub(crate) replaces: bool,
    /// The transaction that programs it, once closed.
    pub(crate) op: u32,
    /// Reads that must end before the program starts.
    pub(crate) reads: u32,
    /// The flush epoch it belongs to.
    pub(crate) epoch: u32,
    /// The first plane whose collection may have data in it, and as bits, which of the
    /// planes from there on have.
    pub(crate) jobs_from: u32,
    pub(crate) jobs: u64,
    /// First of its incomplete units (see [`crate::ssd::ftl::partial`]).
    pub(crate) partial: u32,
    /// First of the commands that wait for it.
    pub(crate) waiters: u32,
    /// The record before it of those that one program writes, or [`NONE`].
    pub(crate) before: u32,
}

impl PageRecord {
    /// Where it will be programmed.
    pub(crate) fn at(&self) -> FlashPage {
        FlashPage {
            plane: self.plane,
            block: self.block,
            page: self.page,
        }
    }
}

/// Where a stream writes next in a plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frontier {
    pub(crate) block: u32,
    pub(crate) page: u32,
    /// The record of the page being filled.
    pub(crate) record: u32,
    /// The record of the host page before it, where one program writes both.
    pub(crate) before: u32,
}

pub(crate) const CLOSED: Frontier = Frontier {
    block: NO_BLOCK,
    page: 0,
    record: NONE,
    before: NONE,
};

impl Ftl {
    /// Gives a slot the next place of a stream in `plane`, and returns the page's record.
    ///
    /// A slot that is already in the page being filled keeps its place, and its data in
    /// DRAM is overwritten. The caller has checked [`Ftl::stream_with_room`].
    pub(crate) fn write(&mut self, plane: u32, slot: u32, stream: Stream, epoch: u32) -> u32 {
        let record = self.open_record(plane, stream, epoch);
        let PageRecord {
            block, page, slots, ..
        } = self.records[record];
        let first = self.page_start(block, page);
        let place = self.map.get(slot);
        if let MapEntry::At(at) = place
            && (first..first + slots).contains(&at)
        {
            self.rewritten_in_dram += 1;
            return record;
        }
        self.replace_at(record, slot, place);
        record
    }

    /// Writes a slot while preconditioning, and programs its page once that is full.
    pub(crate) fn write_at_once(&mut self, plane: u32, slot: u32, stream: Stream) {
        let record = self.write(plane, slot, stream, 0);
        if self.is_full(record) {
            self.program_at_once(record);
        }
    }

    /// Programs a page while preconditioning, full or not.
    pub(crate) fn program_at_once(&mut self, record: u32) {
        self.close(record);
        self.programmed(record);
    }

    /// Moves a slot to a page's next place.
    #[inline]
    pub(crate) fn replace(&mut self, record: u32, slot: u32) {
        self.replace_at(record, slot, self.map.get(slot));
    }

    #[inline]
    fn replace_at(&mut self, record: u32, slot: u32, place: MapEntry) {
        let older = self.supersede(slot, place);
        let at = self.take_slot(record, slot);
        self.map.set(slot, at);
        let (block, within) = StrengthReducedU32::div_rem(at, self.slots_per_block);
        self.blocks.valid[block as usize] += 1;
        if older != NO_SLOT {
            self.blocks.set_older(block, within, older);
            self.records[record].replaces = true;
        }
    }

    /// Allocates a page's next place for a slot.
    #[inline]
    pub(crate) fn take_slot(&mut self, record: u32, slot: u32) -> u32 {
        let page = &mut self.records[record];
        let within = page.page * self.slots_per_page.get() + page.slots;
        page.slots += 1;
        self.blocks.set_owner(page.block, within, slot);
        page.block * self.slots_per_block.get() + within
    }

    /// The record of the page being filled, a new one if need be.
    pub(crate) fn open_record(&mut self, plane: u32, stream: Stream, epoch: u32) -> u32 {
        let frontier = self.planes[plane as usize].frontiers[stream.index()];
        if frontier.record != NONE {
            return frontier.record;
        }
        let frontier = match frontier.block {
            NO_BLOCK => Frontier {
                block: self.open_block(plane, stream),
                ..CLOSED
            },
            _ => frontier,
        };
        let record = self.records.insert(PageRecord {
            plane,
            block: frontier.block,
            page: frontier.page,
            slots: 0,
            dirty_bytes: 0,
            stream,
            closed: false,
            copy_of: NONE,
            replaces: false,
            op: NONE,
            reads: 0,
            epoch,
            jobs_from: NONE,
            jobs: 0,
            partial: NONE,
            waiters: NONE,
            before: frontier.before,
        });
        self.planes[plane as usize].frontiers[stream.index()] = Frontier { record, ..frontier };
        record
    }

    /// Closes a page and advances its frontier.
    #[inline(always)]
    pub(crate) fn close(&mut self, record: u32) {
        let page = &mut self.records[record];
        page.closed = true;
        let (plane, block, stream) = (page.plane, page.block, page.stream);
        let pages = self.pages_of(block);
        let is_last = self.completes_program(record);
        let frontier = &mut self.planes[plane as usize].frontiers[stream.index()];
        frontier.record = NONE;
        frontier.before = if is_last { NONE } else { record };
        frontier.page += 1;
        if frontier.page == pages {
            *frontier = CLOSED;
            self.fill(plane, block, stream);
        }
    }

    /// The streams that may write host data from DRAM.
    pub(crate) fn host_streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let logs = self.hybrid.as_ref().map_or(0, |h| h.sequential_logs());
        let sequential = (0..logs as u8).map(Stream::Sequential);
        [Stream::Host, Stream::Slc].into_iter().chain(sequential)
    }

    /// Whether host data goes to one page of a plane at a time.
    pub(crate) fn has_one_host_stream(&self) -> bool {
        self.slc.is_none() && self.hybrid.is_none()
    }

    /// The page that a stream begins next in a plane; `None` where it is
    /// filling one.
    pub(crate) fn next_page(&self, plane: u32, stream: Stream) -> Option<u32> {
        let frontier = self.planes[plane as usize].frontiers[stream.index()];
        (frontier.record == NONE).then_some(frontier.page)
    }

    /// The page that a stream is filling in a plane.
    pub(crate) fn filling(&self, plane: u32, stream: Stream) -> Option<u32> {
        let record = self.planes[plane as usize].frontiers[stream.index()].record;
        (record != NONE).then_some(record)
    }

    /// The record of the host page that a slot's current copy is in, if that is open.
    pub(crate) fn open_page_of(&self, slot: u32) -> Option<u32> {
        let MapEntry::At(at) = self.map.get(slot) else {
            return None;
        };
        let page = self.parts(at);
        let frontiers = &self.planes[page.plane as usize].frontiers;
        self.host_streams()
            .map(|stream| &frontiers[stream.index()])
            .find(|frontier| (frontier.block, frontier.page) == (page.block, page.page))
            .map(|frontier| frontier.record)
            .filter(|record| *record != NONE)
    }

    #[inline]
    pub(crate) fn is_full(&self, record: u32) -> bool {
        self.records[record].slots == self.slots_per_page.get()
    }

    #[inline]
    pub(crate) fn record(&self, record: u32) -> &PageRecord {
        &self.records[record]
    }

    #[inline]
    pub(crate) fn record_mut(&mut self, record: u32) -> &mut PageRecord {
        &mut self.records[record]
    }

    /// A page is programmed: its record is removed.
    pub(crate) fn programmed(&mut self, record: u32) {
        if self.blocks.keeps_older() {
            self.release_older_copies(record);
        }
        let PageRecord { block, page, .. } = self.records[record];
        self.blocks.program(block, page, self.pages_of(block));
        self.records[record].block = NO_BLOCK;
        self.records.remove(record);
    }

    /// Whether a page is the last of its program, which the array executes once it has the
    /// page's data. Data that collection moves is treated as programmed page by page,
    /// since its old copies remain until their block is erased.
    #[inline]
    pub(crate) fn completes_program(&self, record: u32) -> bool {
        if self.pages_per_program == 1 {
            return true;
        }
        let page = &self.records[record];
        !page.stream.is_of_host()
            || page.stream == Stream::Slc
            || (page.page + 1).is_multiple_of(self.pages_per_program)
    }

    /// Whether a stream's last page in a plane waits for further pages of its program.
    pub(crate) fn is_amid_program(&self, plane: u32, stream: Stream) -> bool {
        self.planes[plane as usize].frontiers[stream.index()].before != NONE
    }

    /// No page waits for the rest of its program any more: all are programmed.
    pub(crate) fn forget_programs(&mut self) {
        for plane in &mut self.planes {
            plane.frontiers.iter_mut().for_each(|f| f.before = NONE);
        }
    }

    /// The host's pages of a plane that are open or wait for the rest of their program,
    /// from the last to the first.
    pub(crate) fn pages_under_way(&self, plane: u32, stream: Stream) -> impl Iterator<Item = u32> {
        let frontier = self.planes[plane as usize].frontiers[stream.index()];
        let last = match frontier.record {
            NONE => frontier.before,
            record => record,
        };
        let known = |record: u32| (record != NONE).then_some(record);
        core::iter::successors(known(last), move |record| {
            known(self.records[*record].before)
        })
    }
}

impl Ftl {
    /// Whether a block is written with one bit a cell.
    #[inline]
    pub(crate) fn is_slc(&self, block: u32) -> bool {
        match &self.slc {
            None => false,
            Some(slc) => slc.holds(block),
        }
    }

    /// Whether a block belongs to the static SLC cache.
    pub(crate) fn is_static_slc(&self, block: u32) -> bool {
        match &self.slc {
            None => false,
            Some(slc) => slc.is_static(block % self.blocks_per_plane),
        }
    }

    /// Pages of a block as it is written now.
    #[inline]
    pub(crate) fn pages_of(&self, block: u32) -> u32 {
        match &self.slc {
            Some(slc) if slc.holds(block) => slc.pages_per_block(),
            _ => self.pages_per_block,
        }
    }

    /// Pages of a block as a stream writes it.
    #[inline]
    pub(in crate::ssd) fn pages_for(&self, stream: Stream) -> u32 {
        match &self.slc {
            Some(slc) if stream == Stream::Slc => slc.pages_per_block(),
            _ => self.pages_per_block,
        }
    }

    /// Opens the free block that a stream writes next: for cold data the most worn one,
    /// else the first by [`FreeBlocks`](crate::ssd::ftl::blocks::FreeBlocks).
    pub(in crate::ssd) fn open_block(&mut self, plane: u32, stream: Stream) -> u32 {
        let erases = &self.blocks.erases;
        let free = &mut self.planes[plane as usize].free;
        let of_cache = match (&mut self.slc, stream) {
            (Some(slc), Stream::Slc) => slc.take_static(plane, erases),
            _ => None,
        };
        let block = of_cache.or_else(|| match stream {
            // Cold data goes to the most worn block, which it then spares.
            Stream::Wear => free.take_most_worn(erases),
            _ => free.take(),
        });
        // The reserve keeps one for every stream (see `stream_with_room`).
        let block = block.expect("a free block is kept in reserve");
        if stream == Stream::Wear {
            // This was the block reserved for the move.
            self.planes[plane as usize].reserved_blocks = 0;
        }
        self.blocks.open(block);
        if stream == Stream::Slc {
            let is_static = self.is_static_slc(block);
            if let Some(slc) = &mut self.slc {
                slc.open(plane, block, is_static);
            }
        }
        block
    }

    /// A block is written to the end.
    pub(in crate::ssd) fn fill(&mut self, plane: u32, block: u32, stream: Stream) {
        self.blocks.fill(block);
        if let (Stream::Slc, Some(slc)) = (stream, &mut self.slc) {
            slc.fill(plane, block);
        }
    }

    /// Makes a block a victim.
    pub(super) fn take_victim(&mut self, block: u32) {
        self.blocks.states[block as usize] = BlockState::Victim;
        let plane = block / self.blocks_per_plane;
        if let Some(slc) = &mut self.slc
            && slc.holds(block)
        {
            slc.begin_fold(plane, block);
        }
    }

    /// Whether a block is full and all of its pages are programmed.
    pub(crate) fn is_written(&self, block: u32) -> bool {
        self.blocks.states[block as usize] == BlockState::Full
            && self.blocks.programmed[block as usize] as u32 == self.pages_of(block)
    }

    /// An erased block is free again.
    pub(crate) fn erased(&mut self, plane: u32, block: u32) {
        self.blocks.erase(block);
        self.set_free(plane, block);
    }

    /// A block can be opened again.
    pub(in crate::ssd) fn set_free(&mut self, plane: u32, block: u32) {
        if self.is_slc(block) {
            let is_static = self.is_static_slc(block);
            if let Some(slc) = &mut self.slc
                && !slc.erased(plane, block, is_static)
            {
                return;
            }
        }
        let erases = self.blocks.erases[block as usize];
        self.planes[plane as usize].free.push(block, erases);
    }
}
