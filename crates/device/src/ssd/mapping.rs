//! The flash traffic of a map that is not whole in DRAM.
//!
//! A page of the map is read before the first use of any of its entries, and
//! read, merged and programmed when a changed entry is pushed out. A discard
//! changes entries, too; one that covers a whole page of the map leaves that page
//! nowhere, which costs nothing. Where the pages are is in [`super::map_blocks`].

use super::Ssd;
use super::ftl::FlashPage;
use super::map_blocks::Step;
use super::op::{Op, OpKind, Source};
use blklab_blk::Op as HostOp;

/// Who waits for a page of the map.
#[derive(Clone, Copy, Debug)]
pub(super) enum MapWaiter {
    /// A read or a discard, by its command.
    Command(u32),
    /// A page to be programmed, by its record.
    Record(u32),
    /// Slots that are read ahead, by their fetch.
    ReadAhead(u32),
    /// Collection, which does not wait.
    Nobody,
}

/// A page of the map on its way into DRAM.
#[derive(Clone, Debug)]
pub(super) struct MapRead {
    page: u32,
    waiters: Vec<MapWaiter>,
}

impl Ssd {
    /// Whether the map's entries for slots `first..=last` are in DRAM; those
    /// that are not are fetched for `waiter`. Returns how many pages it has to
    /// wait for.
    pub(super) fn fetch_map(
        &mut self,
        now_ns: u64,
        first: u32,
        last: u32,
        changed: bool,
        waiter: MapWaiter,
    ) -> u32 {
        if self.cmt.is_none() {
            return 0;
        }
        let mut fetches = 0;
        let mut fetched = None;
        for slot in first..=last {
            let Some(cmt) = &mut self.cmt else { break };
            let here = cmt.touch(slot);
            let page = cmt.map_page(slot);
            self.stats.map_lookups += 1;
            self.stats.map_hits += here as u64;
            if !here || changed {
                let evicted = cmt.insert(slot, changed);
                if let Some(evicted) = evicted {
                    self.write_map_page(now_ns, evicted);
                }
            }
            // One fetch brings all entries of a page that the command needs.
            let is_missing = !here || self.is_fetching(page);
            if is_missing && !self.map_needs_no_read(page) && fetched != Some(page) {
                fetched = Some(page);
                fetches += 1;
                self.fetch_map_page(now_ns, page, waiter);
            }
        }
        fetches
    }

    fn map_needs_no_read(&self, page: u32) -> bool {
        let map = self.map_blocks.as_ref();
        map.is_some_and(|map| map.needs_no_read(page))
    }

    fn is_fetching(&self, page: u32) -> bool {
        self.map_reads
            .iter()
            .any(|read| read.page == page && !read.waiters.is_empty())
    }

    /// Reads a page of the map, or joins whoever does so already.
    fn fetch_map_page(&mut self, now_ns: u64, page: u32, waiter: MapWaiter) {
        let underway = self
            .map_reads
            .iter_mut()
            .find(|read| read.page == page && !read.waiters.is_empty());
        if let Some(read) = underway {
            read.waiters.push(waiter);
            return;
        }
        let free = self
            .map_reads
            .iter()
            .position(|read| read.waiters.is_empty());
        let index = free.unwrap_or_else(|| {
            self.map_reads.push(MapRead {
                page,
                waiters: Vec::new(),
            });
            self.map_reads.len() - 1
        });
        self.map_reads[index].page = page;
        self.map_reads[index].waiters.push(waiter);
        let codeword = self.spec.channel.codeword_bytes;
        let line_bytes = self.spec.geometry.page_bytes / self.spec.ftl.entries_per_map_page
            * self.spec.ftl.map_line_entries;
        let bytes = line_bytes.next_multiple_of(codeword);
        self.read_map_page(now_ns, page, Source::MapFetch, index as u32, bytes);
    }

    /// Reads a page of the map where it is.
    fn read_map_page(&mut self, now_ns: u64, page: u32, source: Source, owner: u32, bytes: u32) {
        let Some(map) = &self.map_blocks else { return };
        let plane = map.plane_of(page);
        if let Some(place) = map.place(page) {
            self.map_op(now_ns, OpKind::Read, source, owner, (plane, place), bytes);
        }
    }

    /// An operation at a place of a plane's map blocks.
    fn map_op(
        &mut self,
        now_ns: u64,
        kind: OpKind,
        source: Source,
        owner: u32,
        (plane, place): (usize, u32),
        bytes: u32,
    ) {
        let Some(map) = &self.map_blocks else { return };
        match kind {
            OpKind::Read => self.stats.map_reads += 1,
            OpKind::Program => self.stats.map_programs += 1,
            OpKind::Erase => self.stats.map_erases += 1,
        }
        let at = self.ftl.map_page(plane, place, map.blocks());
        let op = self.flash_op(kind, source, owner, at, bytes);
        self.backend.enqueue(now_ns, op);
    }

    /// A page of the map has arrived: whoever needed it goes on.
    pub(super) fn map_fetched(&mut self, now_ns: u64, index: u32) {
        let mut waiters = std::mem::take(&mut self.map_reads[index as usize].waiters);
        for waiter in waiters.drain(..) {
            match waiter {
                MapWaiter::Record(record) => self.rewrite_read_done(now_ns, record),
                MapWaiter::Nobody => {}
                MapWaiter::ReadAhead(fetch) => self.read_ahead_map_fetched(now_ns, fetch),
                MapWaiter::Command(command) => {
                    let active = &mut self.commands[command as usize];
                    active.parts -= 1;
                    if active.parts == 0 {
                        self.go_on_mapped(now_ns, command);
                    }
                }
            }
        }
        // Its room is used again, unless a waiter has fetched into its place.
        if self.map_reads[index as usize].waiters.is_empty() {
            self.map_reads[index as usize].waiters = waiters;
        }
    }

    /// A command has all entries of the map that it waited for.
    fn go_on_mapped(&mut self, now_ns: u64, command: u32) {
        match self.commands[command as usize].op {
            HostOp::Discard => self.finish(now_ns, command),
            HostOp::WriteZeroes => self.start_write(now_ns, command),
            _ => self.read_mapped(now_ns, command),
        }
    }

    /// Writes a page of the map: first the entries that did not change are read,
    /// unless they are nowhere or still in DRAM.
    fn write_map_page(&mut self, now_ns: u64, page: u32) {
        let Some(map) = &mut self.map_blocks else {
            return;
        };
        if map.needs_no_read(page) {
            self.program_map_page(now_ns, page);
        } else if map.begin_merge(page) {
            let bytes = self.spec.geometry.page_bytes;
            self.read_map_page(now_ns, page, Source::MapMerge, page, bytes);
        }
    }

    /// The old content of a page of the map is here: now the new one goes out.
    pub(super) fn map_merged(&mut self, now_ns: u64, page: u32) {
        if let Some(map) = &mut self.map_blocks
            && map.end_merge(page)
        {
            self.program_map_page(now_ns, page);
        }
    }

    fn program_map_page(&mut self, now_ns: u64, page: u32) {
        let Some(map) = &mut self.map_blocks else {
            return;
        };
        let plane = map.plane_of(page);
        if let Some(place) = map.take_place(page) {
            let (to, bytes) = ((plane, place), self.spec.geometry.page_bytes);
            self.map_op(now_ns, OpKind::Program, Source::MapWrite, page, to, bytes);
        }
        self.collect_map(now_ns, plane);
    }

    /// A page of the map is on the flash.
    pub(super) fn map_written(&mut self, now_ns: u64, op: Op) {
        let plane = self.map_programmed(now_ns, &op);
        self.collect_map(now_ns, plane);
    }

    /// Notes a program's end; returns its plane in order of allocation.
    fn map_programmed(&mut self, now_ns: u64, op: &Op) -> usize {
        let place = self.map_place_of(op);
        let Some(map) = &mut self.map_blocks else {
            return 0;
        };
        let plane = map.plane_of(op.owner);
        if map.programmed(op.owner, place) {
            self.program_map_page(now_ns, op.owner);
        }
        plane
    }

    /// Where an operation is within its plane's map blocks.
    pub(super) fn map_place_of(&self, op: &Op) -> u32 {
        let at = FlashPage {
            plane: op.plane,
            block: op.block,
            page: op.page,
        };
        let blocks = self.map_blocks.as_ref().map_or(0, |map| map.blocks());
        self.ftl.map_place(at, blocks)
    }

    /// Takes the next steps of a plane's collection of map blocks.
    fn collect_map(&mut self, now_ns: u64, plane: usize) {
        while let Some(map) = &mut self.map_blocks
            && let Some(step) = map.next_step(plane)
        {
            let (kind, place, bytes) = match step {
                Step::Read(place) => (OpKind::Read, place, self.spec.geometry.page_bytes),
                Step::Erase(block) => {
                    let place = block * self.spec.geometry.pages_per_block;
                    (OpKind::Erase, place, 0)
                }
            };
            let (at, owner) = ((plane, place), plane as u32);
            self.map_op(now_ns, kind, Source::MapMove, owner, at, bytes);
        }
    }

    /// A step of the collection of map blocks is over.
    pub(super) fn map_collected(&mut self, now_ns: u64, op: Op) {
        let place = self.map_place_of(&op);
        let plane = match op.kind {
            OpKind::Program => self.map_programmed(now_ns, &op),
            _ => op.owner as usize,
        };
        let Some(map) = &mut self.map_blocks else {
            return;
        };
        let bytes = self.spec.geometry.page_bytes;
        match op.kind {
            OpKind::Read => {
                if let Some((page, to)) = map.move_page(plane, place) {
                    self.stats.map_pages_moved += 1;
                    let to = (plane, to);
                    self.map_op(now_ns, OpKind::Program, Source::MapMove, page, to, bytes);
                }
            }
            OpKind::Program => map.moved(plane),
            OpKind::Erase => {
                map.erased(plane, place / self.spec.geometry.pages_per_block);
                self.ftl.blocks.erases[op.block as usize] += 1;
                self.write_waiting_map_pages(now_ns, plane);
            }
        }
        self.collect_map(now_ns, plane);
    }

    fn write_waiting_map_pages(&mut self, now_ns: u64, plane: usize) {
        let bytes = self.spec.geometry.page_bytes;
        while let Some(map) = &mut self.map_blocks
            && let Some((page, place)) = map.take_waiting(plane)
        {
            let to = (plane, place);
            self.map_op(now_ns, OpKind::Program, Source::MapWrite, page, to, bytes);
        }
    }

    /// Slots from `start` to before `end` are discarded by a command. Returns how
    /// many pages of the map it has to wait for.
    pub(super) fn discard_map(&mut self, now_ns: u64, index: u32, start: u64, end: u64) -> u32 {
        let (Some(cmt), Some(map)) = (&mut self.cmt, &mut self.map_blocks) else {
            return 0;
        };
        let per_page = self.spec.ftl.entries_per_map_page as u64;
        let all = self.spec.logical_slots();
        // Pages of the map all of whose entries are discarded.
        let first = start.div_ceil(per_page);
        let last = match end >= all {
            true => end.div_ceil(per_page),
            false => end / per_page,
        };
        for page in first..last {
            cmt.clean(page as u32);
            map.discard(page as u32);
        }
        let waiter = MapWaiter::Command(index);
        let mut changed = |from: u64, to: u64| match from < to {
            true => self.fetch_map(now_ns, from as u32, to as u32 - 1, true, waiter),
            false => 0,
        };
        match first < last {
            true => changed(start, first * per_page) + changed(last * per_page, end),
            false => changed(start, end),
        }
    }

    /// Garbage collection moved a slot: its entry has changed.
    pub(super) fn map_moved(&mut self, now_ns: u64, slot: u32) {
        let Some(cmt) = &mut self.cmt else { return };
        if cmt.has_lines() {
            // What surrounds the entry has to be known.
            self.fetch_map(now_ns, slot, slot, true, MapWaiter::Nobody);
        } else {
            let evicted = cmt.insert(slot, true);
            if let Some(page) = evicted {
                self.write_map_page(now_ns, page);
            }
        }
    }
}
