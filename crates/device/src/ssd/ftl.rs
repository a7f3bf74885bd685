//! The flash translation layer: where logical slots are, and which page of
//! which block is written next.
//!
//! Every plane has a block that takes the host's data and one that takes what
//! garbage collection moves, so that the two do not mix. A page is a *record*
//! from its first slot until it is programmed; until then its data is in DRAM.
//! A drive with an SLC cache has a third block, which the host's data goes to
//! first (see [`super::slc`]).

use super::aging;
use super::blocks::{Blocks, NO_BLOCK, NO_OWNER, NO_SLOT, Use};
#[cfg(test)]
use super::copies::Holds;
use super::divide::Divisor;
use super::free::FreeBlocks;
use super::geometry::Placement;
use super::hybrid::Hybrid;
use super::hybrid::spec::Mapping;
use super::map::{Map, Place};
use super::map_blocks;
use super::op::NONE;
use super::rng::Rng;
use super::slc::Slc;
use super::spec::{GcSpec, InitialState, SsdSpec, WearSpec};
use super::start::Start;

/// Where a logical slot's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// Never written, or discarded.
    Nowhere,
    /// In DRAM, on its way to this physical slot.
    Buffered(u32),
    /// In this physical slot.
    Flash(u32),
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

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Host,
    Collection,
    /// The host's data in the SLC cache.
    Slc,
    /// Data that static wear levelling moves.
    Wear,
    /// The host's data in a sequential log of this number (see
    /// [`super::hybrid`]).
    Sequential(u8),
}

/// Sequential logs that a plane may have.
pub(super) const MOST_SEQUENTIAL: usize = 8;
/// Streams there are.
pub(super) const STREAMS: usize = 4 + MOST_SEQUENTIAL;

impl Stream {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Stream> {
        let sequential = (0..MOST_SEQUENTIAL as u8).map(Stream::Sequential);
        [Stream::Host, Stream::Collection, Stream::Slc, Stream::Wear]
            .into_iter()
            .chain(sequential)
    }

    /// Its place among all.
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

    /// Whether it carries data of the host's from DRAM.
    #[inline]
    pub(crate) fn is_of_host(self) -> bool {
        !matches!(self, Stream::Collection | Stream::Wear)
    }
}

/// A block that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) plane: u32,
    pub(crate) block: u32,
    /// Valid slots that it had when its collection began.
    pub(crate) had: u32,
}

/// A page between its first slot and the end of its program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRecord {
    pub(crate) plane: u32,
    pub(crate) block: u32,
    pub(crate) page: u32,
    /// Slots handed out.
    pub(crate) slots: u32,
    /// Bytes of the host's that it keeps in DRAM.
    pub(crate) dirty_bytes: u32,
    pub(crate) stream: Stream,
    /// No further slots: it is queued for its program.
    pub(crate) closed: bool,
    /// Copyback: the page of the plane that it is a copy of, or [`NONE`].
    pub(crate) copy_of: u32,
    /// Some of its slots name the older copies that they replace.
    pub(super) replaces: bool,
    /// The program in the backend, once closed.
    pub(crate) op: u32,
    /// Reads that must end before the program starts.
    pub(crate) reads: u32,
    /// The flush epoch it belongs to.
    pub(crate) epoch: u32,
    /// The first plane whose collection may have data in it, and which of the
    /// planes from there on have.
    pub(crate) jobs_from: u32,
    pub(crate) jobs: u64,
    /// First of the commands that wait for it.
    pub(crate) waiters: u32,
    /// The page before it of those that the array programs at once, or [`NONE`].
    pub(crate) before: u32,
    next_free: u32,
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

/// Where a stream writes in a plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frontier {
    pub(super) block: u32,
    pub(super) page: u32,
    /// The record of the page being filled.
    pub(super) record: u32,
    /// That of the host's page before it, where the array programs both at once.
    pub(super) before: u32,
}

pub(super) const CLOSED: Frontier = Frontier {
    block: NO_BLOCK,
    page: 0,
    record: NONE,
    before: NONE,
};

#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub(super) free: FreeBlocks,
    pub(super) frontiers: [Frontier; STREAMS],
    /// The plane whose collection writes to this one, if any.
    pub(super) collector: u32,
    /// Free blocks that jobs under way may still need beside the reserve.
    pub(super) promised: u32,
    /// Slots that its collection may still use up.
    pub(super) owed: u32,
    /// Its collection empties a block that does not become free.
    pub(super) gives_nothing: bool,
}

/// The translation layer.
#[derive(Clone, Debug)]
pub(crate) struct Ftl {
    pub(crate) blocks: Blocks,
    pub(super) map: Map,
    pub(super) placement: Placement,
    pub(super) planes: Vec<Plane>,
    /// Boxed, so that a drive without it only asks whether it is there.
    pub(crate) slc: Option<Box<Slc>>,
    /// Likewise: where blocks are mapped as a whole, and pages only in logs.
    pub(crate) hybrid: Option<Box<Hybrid>>,
    pub(super) records: Vec<PageRecord>,
    pub(super) free_record: u32,
    start: Start,
    /// What an aged drive is emptying before the first command.
    pub(super) victims_at_start: Vec<Victim>,
    /// How often a slot was written whose last copy was still in DRAM, in a
    /// drive that would lose that with its power.
    pub(crate) rewritten_in_dram: u64,
    pub(super) gc: GcSpec,
    pub(super) wear: WearSpec,
    slots_per_page: Divisor,
    pub(super) pages_per_block: u32,
    /// Pages that the array programs at once.
    pub(super) pages_per_program: u32,
    pub(super) slots_per_block: Divisor,
    pub(super) blocks_per_plane: Divisor,
    /// The first of them, which are neither the SLC cache's alone nor the map's.
    data_blocks_per_plane: u32,
    pub(super) planes_per_package: u32,
    /// Planes that are filled in step.
    pub(super) planes_per_row: Divisor,
}

impl Ftl {
    pub(crate) fn new(spec: &SsdSpec, rng: &mut Rng) -> Ftl {
        let geometry = &spec.geometry;
        let slots_per_page = spec.slots_per_page();
        let logical_slots = spec.logical_slots();
        let pages = logical_slots.div_ceil(slots_per_page as u64) as u32;
        let slots_per_block = slots_per_page * geometry.pages_per_block;
        let placement = Placement::new(geometry, spec.ftl.layout, spec.ftl.order, pages);
        let mut ftl = Ftl {
            start: Start::new(spec, &placement, rng),
            blocks: Blocks::new(geometry.blocks(), slots_per_block),
            map: Map::new(logical_slots),
            placement,
            planes: Vec::with_capacity(geometry.planes() as usize),
            slc: Slc::new(spec).map(Box::new),
            hybrid: None,
            records: Vec::with_capacity(256),
            free_record: NONE,
            victims_at_start: Vec::new(),
            rewritten_in_dram: 0,
            gc: spec.gc,
            wear: spec.wear,
            slots_per_page: Divisor::new(slots_per_page),
            pages_per_block: geometry.pages_per_block,
            // A log's pages have their places, so nothing is filled up there.
            pages_per_program: match spec.ftl.mapping {
                Mapping::Page => spec.pages_per_program(),
                Mapping::Hybrid(_) => 1,
            },
            slots_per_block: Divisor::new(slots_per_block),
            blocks_per_plane: Divisor::new(geometry.blocks_per_plane),
            data_blocks_per_plane: spec.data_blocks_per_plane(),
            planes_per_package: geometry.planes_per_package(),
            planes_per_row: Divisor::new(spec.planes_per_row()),
        };
        for plane in 0..geometry.planes() {
            ftl.lay_out(plane, geometry.planes());
        }
        for plane in 0..geometry.planes() {
            let map_blocks = map_blocks::blocks_per_plane(spec);
            let blocks = ftl.plane_blocks(plane);
            for block in blocks.end - map_blocks..blocks.end {
                ftl.blocks.uses[block as usize] = Use::Map;
            }
        }
        ftl.hybrid = Hybrid::new(spec, &ftl).map(Box::new);
        if let InitialState::Aged(aged) = &spec.state
            && aged.simulate
        {
            aging::overwrite(&mut ftl, spec, aged, rng);
        }
        if !spec.write_cache.power_loss_protection {
            ftl.blocks.keep_older();
        }
        ftl
    }

    /// Puts a plane's blocks into the state at the start.
    fn lay_out(&mut self, plane: u32, planes: u32) {
        let first = plane * self.blocks_per_plane.get();
        let used = self.start.used_blocks(&self.placement, plane);
        for (block, valid) in used.iter().enumerate() {
            let index = first as usize + block;
            self.blocks.valid[index] = *valid;
            self.blocks.programmed[index] = self.pages_per_block as u16;
            self.blocks.uses[index] = Use::Full;
            let before = self
                .start
                .filled_before(&self.placement, plane, block as u32);
            // Planes have filled their blocks side by side.
            self.blocks
                .filled_at_start(first + block as u32, (before as u64 + 1) * planes as u64);
        }
        let untouched = first + used.len() as u32..first + self.data_blocks_per_plane;
        let mut free = FreeBlocks::new(untouched, self.wear.dynamic);
        if let Some(slc) = &mut self.slc {
            for (block, valid) in self.start.cached_blocks(&self.placement, plane) {
                let (is_static, block) = (slc.is_static(block), first + block);
                match is_static {
                    true => slc.free_static(plane).retain(|other| *other != block),
                    false => free.remove(block),
                }
                self.blocks.valid[block as usize] = valid;
                self.blocks.programmed[block as usize] = slc.pages_per_block() as u16;
                self.blocks.uses[block as usize] = Use::Full;
                // As if they had been written last.
                let fills = self.blocks.fills() as u64;
                self.blocks.filled_at_start(block, fills + 1);
                slc.open(plane, block, is_static);
                slc.fill(plane, block);
            }
        }
        self.planes.push(Plane {
            free,
            frontiers: [CLOSED; STREAMS],
            collector: NONE,
            promised: 0,
            owed: 0,
            gives_nothing: false,
        });
        self.go_on(plane);
    }

    /// Goes on where a plane of an aged drive is: opens the blocks that it is
    /// writing.
    fn go_on(&mut self, plane: u32) {
        let Some(scattered) = self.start.scattered(&self.placement, plane) else {
            return;
        };
        let first = plane * self.blocks_per_plane.get();
        let (open, victim) = (scattered.open(), scattered.victim());
        for (stream, open) in [Stream::Host, Stream::Collection].into_iter().zip(open) {
            let Some((block, slots)) = open else { continue };
            let (block, page) = (first + block, self.slots_per_page.split(slots).0);
            self.blocks.go_on(block, page);
            self.planes[plane as usize].frontiers[stream.index()] = Frontier {
                block,
                page,
                ..CLOSED
            };
        }
        self.victims_at_start.extend(victim.map(|(block, had)| {
            let block = first + block;
            Victim { plane, block, had }
        }));
    }

    /// The page of a physical slot.
    #[inline]
    pub(crate) fn parts(&self, at: u32) -> FlashPage {
        let (block, within) = self.slots_per_block.split(at);
        FlashPage {
            plane: self.blocks_per_plane.split(block).0,
            block,
            page: self.slots_per_page.split(within).0,
        }
    }

    /// Where a slot is.
    #[inline]
    pub(crate) fn locate(&self, slot: u32) -> Located {
        self.locate_in(slot, self.map.get(slot))
    }

    /// A slot will be written soon.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        self.map.prefetch(slot);
    }

    /// Whose the data of a page is will be asked soon.
    #[inline]
    pub(crate) fn prefetch_owners(&self, block: u32, page: u32) {
        let first = page * self.slots_per_page.get();
        for within in first..first + self.slots_per_page.get() {
            if let Some(slot) = self.blocks.owner(block, within)
                && slot != NO_OWNER
            {
                self.map.prefetch(slot);
            }
        }
    }

    /// Where a slot is whose entry in the map is known.
    #[inline(always)]
    pub(super) fn locate_in(&self, slot: u32, place: Place) -> Located {
        match place {
            Place::Discarded => Located::Nowhere,
            Place::Initial => self.initial(slot),
            Place::At(at) => {
                let (block, within) = self.slots_per_block.split(at);
                let page = self.slots_per_page.split(within).0;
                if page < self.blocks.programmed[block as usize] as u32 {
                    Located::Flash(at)
                } else {
                    Located::Buffered(at)
                }
            }
        }
    }

    /// Where the state at the start has a slot.
    #[inline]
    fn initial(&self, slot: u32) -> Located {
        match self.start.place(&self.placement, slot) {
            Some(at) => Located::Flash(at),
            None => Located::Nowhere,
        }
    }

    /// Where a slot would be had the drive been written once in order.
    #[inline(always)]
    pub(crate) fn home_of(&self, slot: u32) -> u32 {
        let (page, in_page) = self.slots_per_page.split(slot);
        self.start.in_order(self.placement.home(page), in_page)
    }

    /// The plane that a write of `slot` goes to.
    #[inline]
    pub(crate) fn target(&self, slot: u32) -> u32 {
        self.placement.home(self.slots_per_page.split(slot).0).plane
    }

    /// The stream that takes a slot of the host's in a plane now; `None` where
    /// the host has to wait.
    #[inline]
    pub(crate) fn host_stream(&self, plane: u32) -> Option<Stream> {
        if self.slc.is_some() {
            if self.takes_cached(plane) {
                return Some(Stream::Slc);
            }
            if self.waits_for_cache(plane) {
                return None;
            }
        }
        self.takes_direct(plane).then_some(Stream::Host)
    }

    /// Whether the SLC cache takes a slot in a plane now.
    pub(super) fn takes_cached(&self, plane: u32) -> bool {
        let free = match self.has_spare_block(plane) {
            true => self.planes[plane as usize].free.len(),
            false => 0,
        };
        let has_room = |slc: &Slc| slc.has_room(plane, free);
        self.is_open(plane, Stream::Slc) || self.slc.as_deref().is_some_and(has_room)
    }

    /// Whether the host waits for room in the SLC cache of a plane where there
    /// is none.
    pub(super) fn waits_for_cache(&self, plane: u32) -> bool {
        self.slc.as_ref().is_some_and(|slc| slc.waits(plane))
    }

    /// Whether a plane takes a slot past the SLC cache now.
    #[inline]
    pub(super) fn takes_direct(&self, plane: u32) -> bool {
        self.is_open(plane, Stream::Host) || self.has_spare_block(plane)
    }

    /// Whether a stream has a block that it is writing in a plane.
    #[inline]
    pub(super) fn is_open(&self, plane: u32, stream: Stream) -> bool {
        self.planes[plane as usize].frontiers[stream.index()].block != NO_BLOCK
    }

    /// Whether a block is written with one bit a cell.
    #[inline]
    pub(crate) fn is_slc(&self, block: u32) -> bool {
        match &self.slc {
            None => false,
            Some(slc) => slc.holds(block),
        }
    }

    /// Whether a block is the SLC cache's alone.
    pub(crate) fn is_static_slc(&self, block: u32) -> bool {
        match &self.slc {
            None => false,
            Some(slc) => slc.is_static(self.blocks_per_plane.split(block).1),
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
    pub(super) fn pages_for(&self, stream: Stream) -> u32 {
        match &self.slc {
            Some(slc) if stream == Stream::Slc => slc.pages_per_block(),
            _ => self.pages_per_block,
        }
    }

    /// Whether the plane should be collected.
    #[inline]
    pub(crate) fn wants_collection(&self, plane: u32) -> bool {
        self.free_blocks(plane) < self.gc.start_blocks
    }

    /// Erased blocks of a plane.
    #[inline]
    pub(crate) fn free_blocks(&self, plane: u32) -> u32 {
        self.planes[plane as usize].free.len() as u32
    }

    /// Gives a slot its next place in `plane` and returns the page's record.
    ///
    /// A slot that is in the page being filled already keeps its place: the
    /// data in DRAM is overwritten. The caller has asked [`Ftl::host_stream`].
    pub(crate) fn write(&mut self, plane: u32, slot: u32, stream: Stream, epoch: u32) -> u32 {
        let record = self.open_record(plane, stream, epoch);
        let PageRecord {
            block, page, slots, ..
        } = self.records[record as usize];
        let first = self.page_start(block, page);
        let place = self.map.get(slot);
        if let Place::At(at) = place
            && (first..first + slots).contains(&at)
        {
            self.rewritten_in_dram += 1;
            return record;
        }
        self.replace_at(record, slot, place);
        record
    }

    /// Gives a slot a page's next place instead of the one it has.
    #[inline]
    pub(super) fn replace(&mut self, record: u32, slot: u32) {
        self.replace_at(record, slot, self.map.get(slot));
    }

    #[inline]
    fn replace_at(&mut self, record: u32, slot: u32, place: Place) {
        let older = self.supersede(slot, place);
        let at = self.take_slot(record, slot);
        self.map.set(slot, at);
        let (block, within) = self.slots_per_block.split(at);
        self.blocks.valid[block as usize] += 1;
        if older != NO_SLOT {
            self.blocks.set_older(block, within, older);
            self.records[record as usize].replaces = true;
        }
    }

    /// Hands out a page's next place.
    #[inline]
    pub(super) fn take_slot(&mut self, record: u32, slot: u32) -> u32 {
        let page = &mut self.records[record as usize];
        let within = page.page * self.slots_per_page.get() + page.slots;
        page.slots += 1;
        self.blocks.set_owner(page.block, within, slot);
        page.block * self.slots_per_block.get() + within
    }

    /// The record of the page being filled, a new one if need be.
    pub(super) fn open_record(&mut self, plane: u32, stream: Stream, epoch: u32) -> u32 {
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
        let record = self.new_record(PageRecord {
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
            waiters: NONE,
            before: frontier.before,
            next_free: NONE,
        });
        self.planes[plane as usize].frontiers[stream.index()] = Frontier { record, ..frontier };
        record
    }

    /// The least worn free block: dynamic wear levelling.
    pub(super) fn open_block(&mut self, plane: u32, stream: Stream) -> u32 {
        let erases = &self.blocks.erases;
        let free = &mut self.planes[plane as usize].free;
        let of_cache = match (&mut self.slc, stream) {
            (Some(slc), Stream::Slc) => slc.take_static(plane, erases),
            _ => None,
        };
        let block = of_cache.or_else(|| match stream {
            // What hardly changes goes where there is least wear left.
            Stream::Wear => free.take_most_worn(erases),
            _ => free.take(),
        });
        // The reserve keeps one for every stream (see `host_stream`).
        let block = block.expect("a free block is kept in reserve");
        if stream == Stream::Wear {
            // That was the block for what it moves.
            self.planes[plane as usize].promised = 0;
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

    /// Ends the filling of a page; its place in the block is used up.
    #[inline]
    pub(crate) fn close(&mut self, record: u32) {
        let page = &mut self.records[record as usize];
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

    /// Whether the array programs a page, and what is before it of the same
    /// program, once it has its data. What collection moves is held to be
    /// programmed page by page: what it replaces is there until its block is
    /// erased.
    #[inline]
    pub(crate) fn completes_program(&self, record: u32) -> bool {
        if self.pages_per_program == 1 {
            return true;
        }
        let page = &self.records[record as usize];
        !page.stream.is_of_host()
            || page.stream == Stream::Slc
            || (page.page + 1).is_multiple_of(self.pages_per_program)
    }

    /// The host's pages of a plane that are not complete, or that wait for the
    /// rest of what the array programs at once: from the last to the first.
    pub(crate) fn pages_under_way(&self, plane: u32, stream: Stream) -> impl Iterator<Item = u32> {
        let frontier = self.planes[plane as usize].frontiers[stream.index()];
        let last = match frontier.record {
            NONE => frontier.before,
            record => record,
        };
        let known = |record: u32| (record != NONE).then_some(record);
        std::iter::successors(known(last), move |record| {
            known(self.records[*record as usize].before)
        })
    }

    /// Whether the array waits for more before it programs what a plane has of a
    /// stream.
    pub(crate) fn is_amid_program(&self, plane: u32, stream: Stream) -> bool {
        self.planes[plane as usize].frontiers[stream.index()].before != NONE
    }

    /// Nothing waits for the rest of its program: all is on the flash.
    pub(super) fn forget_programs(&mut self) {
        for plane in &mut self.planes {
            plane.frontiers.iter_mut().for_each(|f| f.before = NONE);
        }
    }

    /// A block is written to the end.
    pub(super) fn fill(&mut self, plane: u32, block: u32, stream: Stream) {
        self.blocks.fill(block);
        if let (Stream::Slc, Some(slc)) = (stream, &mut self.slc) {
            slc.fill(plane, block);
        }
    }

    /// The streams that may carry data of the host's from DRAM.
    pub(crate) fn host_streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let logs = self.hybrid.as_ref().map_or(0, |h| h.sequential_logs());
        let sequential = (0..logs as u8).map(Stream::Sequential);
        [Stream::Host, Stream::Slc].into_iter().chain(sequential)
    }

    /// Whether the host's data goes to one page of a plane at a time.
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

    #[inline]
    pub(crate) fn is_full(&self, record: u32) -> bool {
        self.records[record as usize].slots == self.slots_per_page.get()
    }

    #[inline]
    pub(crate) fn record(&self, record: u32) -> &PageRecord {
        &self.records[record as usize]
    }

    #[inline]
    pub(crate) fn record_mut(&mut self, record: u32) -> &mut PageRecord {
        &mut self.records[record as usize]
    }

    /// Its page is on the flash.
    pub(crate) fn programmed(&mut self, record: u32) {
        if self.blocks.keeps_older() {
            self.settle_copies(record);
        }
        let PageRecord { block, page, .. } = self.records[record as usize];
        self.blocks.program(block, page, self.pages_of(block));
        let page = &mut self.records[record as usize];
        page.block = NO_BLOCK;
        page.next_free = self.free_record;
        self.free_record = record;
    }

    fn new_record(&mut self, record: PageRecord) -> u32 {
        if self.free_record == NONE {
            self.records.push(record);
            return self.records.len() as u32 - 1;
        }
        let index = self.free_record;
        self.free_record = self.records[index as usize].next_free;
        self.records[index as usize] = record;
        index
    }

    /// Discards slots from `start` up to `end`.
    pub(crate) fn discard(&mut self, start: u32, end: u64) {
        let mut slot = start as u64;
        while slot < end {
            match self.discardable_region(slot as u32, end) {
                Some(region_end) => slot = region_end,
                None => {
                    self.invalidate(slot as u32);
                    self.map.discard(slot as u32);
                    slot += 1;
                }
            }
        }
    }

    fn discardable_region(&mut self, slot: u32, end: u64) -> Option<u64> {
        if !self.map.is_region(slot, end) {
            return None;
        }
        let region_end = self.map.region_end(slot);
        for slot in slot as u64..region_end {
            self.invalidate(slot as u32);
        }
        self.map.discard_region(slot);
        Some(region_end)
    }

    /// The slot whose data was last put in a physical place.
    pub(super) fn owner(&self, at: u32) -> Option<u32> {
        let (block, within) = self.slots_per_block.split(at);
        match self.blocks.owner(block, within) {
            // It was being written at the start, and has not been erased since.
            Some(NO_OWNER) if self.blocks.erases[block as usize] == 0 => {
                self.start.owner(&self.placement, at)
            }
            Some(NO_OWNER) => None,
            Some(slot) => Some(slot),
            None => self.start.owner(&self.placement, at),
        }
    }

    /// Where discards are written down.
    pub(crate) fn discard_log(&self) -> FlashPage {
        FlashPage {
            plane: self.placement.home(0).plane,
            block: NO_BLOCK,
            // The last of a program, which takes the array's time.
            page: self.pages_per_program - 1,
        }
    }

    /// The place of a page of the map, counted within the last `blocks` blocks
    /// of the so-manyth plane in the order of allocation.
    pub(crate) fn map_page(&self, plane: usize, place: u32, blocks: u32) -> FlashPage {
        let ranges = self.plane_count() / self.placement.planes_per_range();
        let number = plane as u32;
        let plane = self.placement.plane_at(number % ranges, number / ranges);
        FlashPage {
            plane,
            block: self.plane_blocks(plane).end - blocks + place / self.pages_per_block,
            page: place % self.pages_per_block,
        }
    }

    /// The place of such a page.
    pub(crate) fn map_place(&self, page: FlashPage, blocks: u32) -> u32 {
        let first = self.plane_blocks(page.plane).end - blocks;
        (page.block - first) * self.pages_per_block + page.page
    }

    /// Whether two physical slots lie in one page.
    #[inline]
    pub(crate) fn same_page(&self, a: u32, b: u32) -> bool {
        self.slots_per_page.split(a).0 == self.slots_per_page.split(b).0
    }

    /// First physical slot of a page.
    #[inline]
    pub(crate) fn page_start(&self, block: u32, page: u32) -> u32 {
        block * self.slots_per_block.get() + page * self.slots_per_page.get()
    }

    /// Blocks of a plane.
    pub(crate) fn plane_blocks(&self, plane: u32) -> std::ops::Range<u32> {
        let first = plane * self.blocks_per_plane.get();
        first..first + self.blocks_per_plane.get()
    }

    /// How many of them, the first ones, are neither the SLC cache's alone nor the
    /// map's.
    pub(crate) fn data_blocks_per_plane(&self) -> u32 {
        self.data_blocks_per_plane
    }

    /// A block will be emptied and erased.
    pub(crate) fn begin_collection(&mut self, block: u32) {
        self.blocks.uses[block as usize] = Use::Victim;
        let plane = self.blocks_per_plane.split(block).0;
        if let Some(slc) = &mut self.slc
            && slc.holds(block)
        {
            slc.begin_fold(plane, block);
        }
    }

    /// Whether every page of a block is on the flash.
    pub(crate) fn is_written(&self, block: u32) -> bool {
        self.blocks.uses[block as usize] == Use::Full
            && self.blocks.programmed[block as usize] as u32 == self.pages_of(block)
    }

    /// Checks what must be true of a drive at rest, in tests: every slot of the
    /// address space is valid in at most one place, and counted there.
    #[cfg(test)]
    pub(crate) fn check(&self, logical_slots: u64) {
        let mut valid = vec![0u16; self.blocks.valid.len()];
        for slot in 0..logical_slots as u32 {
            if let Located::Flash(at) | Located::Buffered(at) = self.locate(slot) {
                assert_eq!(self.holds(at), Holds::Current(slot), "slot {slot} at {at}");
                valid[self.slots_per_block.split(at).0 as usize] += 1;
            }
            if let Some(at) = self.kept(slot) {
                assert_eq!(self.holds(at), Holds::Kept(slot), "slot {slot} at {at}");
                valid[self.slots_per_block.split(at).0 as usize] += 1;
            }
        }
        assert_eq!(valid, self.blocks.valid, "valid slots of every block");
        self.check_logs();
        for (plane, state) in self.planes.iter().enumerate() {
            let mut free: Vec<u32> = state.free.iter().collect();
            if let Some(slc) = &self.slc {
                free.extend(slc.clone().free_static(plane as u32).iter());
            }
            free.sort_unstable();
            let erased: Vec<u32> = self
                .plane_blocks(plane as u32)
                .filter(|block| self.blocks.uses[*block as usize] == Use::Free)
                .collect();
            assert_eq!(free, erased, "free blocks of plane {plane}");
            assert!(free.iter().all(|block| valid[*block as usize] == 0));
            assert!(
                free.iter()
                    .all(|block| self.blocks.programmed[*block as usize] == 0)
            );
        }
    }

    /// An erased block is free again.
    pub(crate) fn erased(&mut self, plane: u32, block: u32) {
        self.blocks.erase(block);
        self.set_free(plane, block);
    }

    /// A block can be opened again.
    pub(super) fn set_free(&mut self, plane: u32, block: u32) {
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

    /// Erase counts over all blocks.
    pub(crate) fn wear(&self) -> blklab_stats::WearStats {
        let erases = &self.blocks.erases;
        let sum: u64 = erases.iter().map(|count| *count as u64).sum();
        blklab_stats::WearStats {
            min_erases: erases.iter().copied().min().unwrap_or(0),
            max_erases: erases.iter().copied().max().unwrap_or(0),
            mean_erases: sum as f64 / erases.len().max(1) as f64,
        }
    }

    /// Planes of the drive.
    pub(crate) fn plane_count(&self) -> u32 {
        self.planes.len() as u32
    }

    /// Wear is counted from the first command on.
    pub(crate) fn forget_wear(&mut self) {
        self.blocks.erases.fill(0);
        for plane in &mut self.planes {
            plane.free.forget_wear();
        }
    }

    /// Slots of a block.
    pub(crate) fn slots_per_block(&self) -> u32 {
        self.slots_per_block.get()
    }

    /// Slots of a page.
    pub(crate) fn slots_per_page(&self) -> u32 {
        self.slots_per_page.get()
    }
}
