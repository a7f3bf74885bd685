//! A map of which only a part is in DRAM, and its flash traffic.
//!
//! A page of the map is read before the first use of any of its entries, and
//! read, merged and programmed when a changed entry is evicted. A discard changes
//! entries, too; one that covers a whole map page leaves that page unmapped, which
//! costs nothing.
//!
//! Only the codewords of a map page that hold wanted lines cross the channel. Until
//! the array has read the page, the same read can be extended by the codewords of
//! further lines; after that a line that is not among them needs another read.

pub(crate) mod blocks;
mod cmt;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use blklab_stats::DeviceStats;

use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{FlashPage, NONE, Operation, Source, Transaction};
use crate::ssd::ftl::placement::Placement;
use crate::ssd::spec::{InitialState, SsdSpec};
use blocks::{CollectionStep, MapBlocks};
use cmt::Cmt;

/// Who waits for lines of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapWaiter {
    /// A read or a discard, by its command.
    Command(u32),
    /// A page to be programmed, by its record.
    Record(u32),
    /// Slots that are read ahead, by their fetch.
    ReadAhead(u32),
    /// Collection, which does not wait.
    Nobody,
}

/// A read of a page of the map, or a free place for one.
#[derive(Clone, Debug)]
struct MapRead {
    page: u32,
    /// The codewords that are read, as bits: a page has at most 128.
    codewords: u128,
    /// The lines that are wanted: half-open ranges.
    lines: Vec<(u32, u32)>,
    op: u32,
    /// Empty where the place is free.
    waiters: Vec<MapWaiter>,
}

impl MapRead {
    const IDLE: MapRead = MapRead {
        page: 0,
        codewords: 0,
        lines: Vec::new(),
        op: NONE,
        waiters: Vec::new(),
    };

    fn brings(&self, line: u32) -> bool {
        !self.waiters.is_empty() && self.wants(line)
    }

    fn wants(&self, line: u32) -> bool {
        let mut runs = self.lines.iter();
        runs.any(|(first, end)| (*first..*end).contains(&line))
    }

    fn want(&mut self, line: u32) {
        if self.wants(line) {
            return;
        }
        match self.lines.last_mut() {
            Some((_, end)) if *end == line => *end += 1,
            _ => self.lines.push((line, line + 1)),
        }
    }
}

/// The cached map of a drive: the cached entries, where the map's pages are on the
/// flash, and the transfers between the two.
#[derive(Clone, Debug)]
pub(crate) struct CachedMap {
    table: Cmt,
    blocks: MapBlocks,
    reads: Vec<MapRead>,
    /// Planes in the order of allocation, which the map's pages visit.
    planes: Vec<u32>,
    blocks_per_plane: u32,
    pages_per_block: u32,
    page_bytes: u32,
    codeword_bytes: u32,
    line_entries: u32,
    entries_per_page: u32,
    logical_slots: u64,
}

impl CachedMap {
    /// `None` where DRAM holds all of the map; `seed` decides which entries were
    /// used before the start.
    pub(crate) fn new(spec: &SsdSpec, placement: &Placement, seed: u64) -> Option<CachedMap> {
        let entries = spec.ftl.map_cache_entries?;
        let (page, line) = (spec.ftl.entries_per_map_page, spec.ftl.map_line_entries);
        let mut table = Cmt::new(entries, spec.logical_slots(), page, line);
        if spec.state != InitialState::Fresh {
            table.warm_up(seed);
        }
        let written = spec.state != InitialState::Fresh || spec.ftl.read_unwritten;
        let planes = spec.geometry.planes();
        let ranges = planes / placement.planes_per_range();
        let visited = (0..planes).map(|at| placement.plane_at(at % ranges, at / ranges));
        Some(CachedMap {
            table,
            blocks: MapBlocks::new(spec, written),
            reads: Vec::new(),
            planes: visited.collect(),
            blocks_per_plane: spec.geometry.blocks_per_plane,
            pages_per_block: spec.geometry.pages_per_block,
            page_bytes: spec.geometry.page_bytes,
            codeword_bytes: spec.channel.codeword_bytes,
            line_entries: line,
            entries_per_page: page,
            logical_slots: spec.logical_slots(),
        })
    }

    /// The first of a plane's blocks that are the map's.
    fn first_block(&self, plane: u32) -> u32 {
        (plane + 1) * self.blocks_per_plane - self.blocks.blocks()
    }

    /// The place of a page of the map within the map's blocks of a plane, which
    /// is counted in the order of allocation.
    fn page_at(&self, plane: usize, place: u32) -> FlashPage {
        let plane = self.planes[plane];
        FlashPage {
            plane,
            block: self.first_block(plane) + place / self.pages_per_block,
            page: place % self.pages_per_block,
        }
    }

    /// Where a transaction is within its plane's map blocks.
    fn place_of(&self, op: &Transaction) -> u32 {
        (op.block - self.first_block(op.plane)) * self.pages_per_block + op.page
    }

    /// Drops what was in DRAM when the power was lost. `interrupted` are the programs of
    /// map pages that were in progress.
    pub(crate) fn power_off(&mut self, interrupted: &[Transaction]) {
        let spoiled = interrupted.iter().map(|op| (op.owner, self.place_of(op)));
        self.blocks.power_off(&spoiled.collect::<Vec<(u32, u32)>>());
        self.reads.clear();
        self.table.clear();
    }

    /// Checks, in tests, what must be true of a drive at rest.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.blocks.check();
    }

    /// Where a page of the map is on the flash.
    #[cfg(test)]
    pub(crate) fn place(&self, page: u32) -> Option<u32> {
        self.blocks.place(page)
    }

    /// Looks up the entries of `slots`, to be `changed` or not, and fetches those that are
    /// not in DRAM for `waiter`. Returns how many reads of the map it has to wait for.
    pub(crate) fn fetch(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        slots: RangeInclusive<u32>,
        changed: bool,
        waiter: MapWaiter,
    ) -> u32 {
        let of_command = matches!(waiter, MapWaiter::Command(_) | MapWaiter::Record(_));
        let mut fetches = 0;
        for slot in slots {
            let here = self.table.touch(slot);
            let page = self.table.map_page(slot);
            let line = slot / self.line_entries;
            if (!here || changed)
                && let Some(evicted) = self.table.insert(slot, changed)
            {
                self.write_page(flash, stats, now_ns, evicted);
            }
            let is_missing = !here || self.reads.iter().any(|read| read.brings(line));
            if of_command {
                stats.map_lookups += 1;
                stats.map_hits += !is_missing as u64;
            }
            if is_missing && !self.blocks.needs_no_read(page) {
                fetches += self.fetch_line(flash, stats, now_ns, page, line, waiter) as u32;
            }
        }
        fetches
    }

    /// Reads a line, by a read of its page that is in progress if that is possible.
    /// Returns whether `waiter` was not waiting for that read before.
    fn fetch_line(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        page: u32,
        line: u32,
        waiter: MapWaiter,
    ) -> bool {
        let codewords = self.codewords_of_line(line);
        let serves = |read: &MapRead| {
            read.page == page
                && !read.waiters.is_empty()
                && (read.codewords & codewords == codewords || !flash.is_sensed(read.op))
        };
        let index = match self.reads.iter().position(serves) {
            Some(index) => index,
            None => self.begin_read(flash, stats, now_ns, page),
        };
        let read = &mut self.reads[index];
        let more = (codewords & !read.codewords).count_ones();
        read.codewords |= codewords;
        read.want(line);
        flash.lengthen_read(read.op, more * self.codeword_bytes);
        if read.waiters.last() == Some(&waiter) {
            return false;
        }
        read.waiters.push(waiter);
        true
    }

    /// The codewords of its page that a line is in, as bits.
    fn codewords_of_line(&self, line: u32) -> u128 {
        let codeword = self.codeword_bytes;
        let line_bytes = self.page_bytes / self.entries_per_page * self.line_entries;
        let from = line % (self.entries_per_page / self.line_entries) * line_bytes;
        let first = from / codeword;
        let count = (from + line_bytes).div_ceil(codeword) - first;
        u128::MAX >> (128 - count) << first
    }

    /// Queues a read of a page of the map, without any codewords yet.
    fn begin_read(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        page: u32,
    ) -> usize {
        let mut reads = self.reads.iter();
        let index = match reads.position(|read| read.waiters.is_empty()) {
            Some(index) => index,
            None => {
                self.reads.push(MapRead::IDLE);
                self.reads.len() - 1
            }
        };
        let op = self.read_page(
            flash,
            stats,
            now_ns,
            (Source::MapFetch, index as u32),
            page,
            0,
        );
        let read = &mut self.reads[index];
        (read.page, read.op, read.codewords) = (page, op, 0);
        read.lines.clear();
        index
    }

    /// A page of the map has been read. Returns who waited for it.
    pub(crate) fn fetched(&mut self, read: u32) -> Vec<MapWaiter> {
        core::mem::take(&mut self.reads[read as usize].waiters)
    }

    /// Gives the list of waiters back, so that its memory is used again.
    pub(crate) fn reuse(&mut self, read: u32, mut waiters: Vec<MapWaiter>) {
        waiters.clear();
        // A waiter may have begun another read in the same place.
        let kept = &mut self.reads[read as usize].waiters;
        if kept.is_empty() {
            *kept = waiters;
        }
    }

    /// Queues a read of a page of the map; returns the transaction.
    fn read_page(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        from: (Source, u32),
        page: u32,
        bytes: u32,
    ) -> u32 {
        match self.blocks.place(page) {
            Some(place) => {
                let at = (self.blocks.plane_of(page), place);
                self.enqueue(flash, stats, now_ns, (Operation::Read, from), at, bytes)
            }
            None => NONE,
        }
    }

    /// Queues a transaction at a place of a plane's map blocks.
    fn enqueue(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        (kind, (source, owner)): (Operation, (Source, u32)),
        (plane, place): (usize, u32),
        bytes: u32,
    ) -> u32 {
        match kind {
            Operation::Read => stats.map_reads += 1,
            Operation::Program => stats.map_programs += 1,
            Operation::Erase => stats.map_erases += 1,
        }
        let at = self.page_at(plane, place);
        flash.enqueue(now_ns, Transaction::new(kind, source, owner, at, bytes))
    }

    /// Queues the program of a whole page of the map at its place.
    fn enqueue_program(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        (source, page): (Source, u32),
        to: (usize, u32),
    ) {
        let what = (Operation::Program, (source, page));
        self.enqueue(flash, stats, now_ns, what, to, self.page_bytes);
    }

    /// Writes a page of the map, after a read of the unchanged entries unless these are
    /// unmapped or still in DRAM.
    fn write_page(&mut self, flash: &mut Flash, stats: &mut DeviceStats, now_ns: u64, page: u32) {
        if self.blocks.needs_no_read(page) {
            self.program_page(flash, stats, now_ns, page);
        } else if self.blocks.begin_merge(page) {
            let bytes = self.page_bytes;
            self.read_page(flash, stats, now_ns, (Source::MapMerge, page), page, bytes);
        }
    }

    /// The old content of a page of the map has been read: programs the new one.
    pub(crate) fn merged(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        page: u32,
    ) {
        if self.blocks.end_merge(page) {
            self.program_page(flash, stats, now_ns, page);
        }
    }

    fn program_page(&mut self, flash: &mut Flash, stats: &mut DeviceStats, now_ns: u64, page: u32) {
        let plane = self.blocks.plane_of(page);
        if let Some(place) = self.blocks.take_place(page) {
            let what = (Source::MapWrite, page);
            self.enqueue_program(flash, stats, now_ns, what, (plane, place));
        }
        self.collect(flash, stats, now_ns, plane);
    }

    /// A page of the map is programmed.
    pub(crate) fn written(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        op: &Transaction,
    ) {
        let plane = self.programmed(flash, stats, now_ns, op);
        self.collect(flash, stats, now_ns, plane);
    }

    /// Handles the end of a program; returns its plane in order of allocation.
    fn programmed(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        op: &Transaction,
    ) -> usize {
        if self.blocks.programmed(op.owner, self.place_of(op)) {
            self.program_page(flash, stats, now_ns, op.owner);
        }
        self.blocks.plane_of(op.owner)
    }

    /// Starts the next reads or the erase of a plane's collection of map blocks.
    fn collect(&mut self, flash: &mut Flash, stats: &mut DeviceStats, now_ns: u64, plane: usize) {
        while let Some(step) = self.blocks.next_step(plane) {
            let (kind, place, bytes) = match step {
                CollectionStep::Read(place) => (Operation::Read, place, self.page_bytes),
                CollectionStep::Erase(block) => (Operation::Erase, block * self.pages_per_block, 0),
            };
            let what = (kind, (Source::MapMove, plane as u32));
            self.enqueue(flash, stats, now_ns, what, (plane, place), bytes);
        }
    }

    /// A transaction of the collection of map blocks has ended.
    pub(crate) fn collected(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        op: &Transaction,
    ) {
        let place = self.place_of(op);
        let plane = match op.kind {
            Operation::Program => self.programmed(flash, stats, now_ns, op),
            _ => op.owner as usize,
        };
        match op.kind {
            Operation::Read => {
                if let Some((page, to)) = self.blocks.move_page(plane, place) {
                    stats.map_pages_moved += 1;
                    let what = (Source::MapMove, page);
                    self.enqueue_program(flash, stats, now_ns, what, (plane, to));
                }
            }
            Operation::Program => self.blocks.moved(plane),
            Operation::Erase => {
                self.blocks.erased(plane, place / self.pages_per_block);
                while let Some((page, place)) = self.blocks.take_waiting(plane) {
                    let what = (Source::MapWrite, page);
                    self.enqueue_program(flash, stats, now_ns, what, (plane, place));
                }
            }
        }
        self.collect(flash, stats, now_ns, plane);
    }

    /// Slots from `start` to before `end` are discarded by a command. Returns how
    /// many pages of the map it has to wait for.
    pub(crate) fn discard(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        command: u32,
        (start, end): (u64, u64),
    ) -> u32 {
        let per_page = self.entries_per_page as u64;
        // Pages of the map all of whose entries are discarded.
        let first = start.div_ceil(per_page);
        let last = match end >= self.logical_slots {
            true => end.div_ceil(per_page),
            false => end / per_page,
        };
        for page in first..last {
            self.table.clean(page as u32);
            self.blocks.discard(page as u32);
        }
        let waiter = MapWaiter::Command(command);
        let mut changed = |from: u64, to: u64| match from < to {
            true => self.fetch(
                flash,
                stats,
                now_ns,
                from as u32..=to as u32 - 1,
                true,
                waiter,
            ),
            false => 0,
        };
        match first < last {
            true => changed(start, first * per_page) + changed(last * per_page, end),
            false => changed(start, end),
        }
    }

    /// Garbage collection moved a slot: its entry has changed.
    pub(crate) fn moved(
        &mut self,
        flash: &mut Flash,
        stats: &mut DeviceStats,
        now_ns: u64,
        slot: u32,
    ) {
        if self.table.has_lines() {
            // The rest of the entry's line has to be in DRAM, too.
            self.fetch(flash, stats, now_ns, slot..=slot, true, MapWaiter::Nobody);
        } else if let Some(page) = self.table.insert(slot, true) {
            self.write_page(flash, stats, now_ns, page);
        }
    }
}
