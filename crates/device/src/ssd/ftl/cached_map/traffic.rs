//! The flash traffic of a map that is not whole in DRAM.
//!
//! A page of the map is read before the first use of any of its entries, and
//! read, merged and programmed when a changed entry is pushed out. A discard
//! changes entries, too; one that covers a whole page of the map leaves that page
//! nowhere, which costs nothing. Where the pages are is in [`crate::ssd::ftl::cached_map::blocks`],
//! what is on its way from them in [`crate::ssd::ftl::cached_map::fetch`].

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::{NONE, Operation, Source, Transaction};
use crate::ssd::ftl::FlashPage;
use crate::ssd::ftl::cached_map::blocks::Step;
use crate::ssd::ftl::cached_map::fetch::MapWaiter;

impl Ssd {
    /// Reads a page of the map where it is, and returns the operation.
    pub(crate) fn read_map_page(
        &mut self,
        now_ns: u64,
        page: u32,
        source: Source,
        owner: u32,
        bytes: u32,
    ) -> u32 {
        let place = self.map_blocks.as_ref().and_then(|map| {
            let place = map.place(page)?;
            Some((map.plane_of(page), place))
        });
        match place {
            Some(place) => self.map_op(now_ns, Operation::Read, source, owner, place, bytes),
            None => NONE,
        }
    }

    /// An operation at a place of a plane's map blocks.
    fn map_op(
        &mut self,
        now_ns: u64,
        kind: Operation,
        source: Source,
        owner: u32,
        (plane, place): (usize, u32),
        bytes: u32,
    ) -> u32 {
        let Some(map) = &self.map_blocks else {
            return NONE;
        };
        match kind {
            Operation::Read => self.stats.map_reads += 1,
            Operation::Program => self.stats.map_programs += 1,
            Operation::Erase => self.stats.map_erases += 1,
        }
        let at = self.ftl.map_page(plane, place, map.blocks());
        let op = self.flash_op(kind, source, owner, at, bytes);
        self.flash.enqueue(now_ns, op)
    }

    /// Writes a page of the map: first the entries that did not change are read,
    /// unless they are nowhere or still in DRAM.
    pub(crate) fn write_map_page(&mut self, now_ns: u64, page: u32) {
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
    pub(crate) fn map_merged(&mut self, now_ns: u64, page: u32) {
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
            self.map_op(
                now_ns,
                Operation::Program,
                Source::MapWrite,
                page,
                to,
                bytes,
            );
        }
        self.collect_map(now_ns, plane);
    }

    /// A page of the map is on the flash.
    pub(crate) fn map_written(&mut self, now_ns: u64, op: Transaction) {
        let plane = self.map_programmed(now_ns, &op);
        self.collect_map(now_ns, plane);
    }

    /// Notes a program's end; returns its plane in order of allocation.
    fn map_programmed(&mut self, now_ns: u64, op: &Transaction) -> usize {
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
    pub(crate) fn map_place_of(&self, op: &Transaction) -> u32 {
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
                Step::Read(place) => (Operation::Read, place, self.spec.geometry.page_bytes),
                Step::Erase(block) => {
                    let place = block * self.spec.geometry.pages_per_block;
                    (Operation::Erase, place, 0)
                }
            };
            let (at, owner) = ((plane, place), plane as u32);
            self.map_op(now_ns, kind, Source::MapMove, owner, at, bytes);
        }
    }

    /// A step of the collection of map blocks is over.
    pub(crate) fn map_collected(&mut self, now_ns: u64, op: Transaction) {
        let place = self.map_place_of(&op);
        let plane = match op.kind {
            Operation::Program => self.map_programmed(now_ns, &op),
            _ => op.owner as usize,
        };
        let Some(map) = &mut self.map_blocks else {
            return;
        };
        let bytes = self.spec.geometry.page_bytes;
        match op.kind {
            Operation::Read => {
                if let Some((page, to)) = map.move_page(plane, place) {
                    self.stats.map_pages_moved += 1;
                    let to = (plane, to);
                    self.map_op(now_ns, Operation::Program, Source::MapMove, page, to, bytes);
                }
            }
            Operation::Program => map.moved(plane),
            Operation::Erase => {
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
            self.map_op(
                now_ns,
                Operation::Program,
                Source::MapWrite,
                page,
                to,
                bytes,
            );
        }
    }

    /// Slots from `start` to before `end` are discarded by a command. Returns how
    /// many pages of the map it has to wait for.
    pub(crate) fn discard_map(&mut self, now_ns: u64, index: u32, start: u64, end: u64) -> u32 {
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
    pub(crate) fn map_moved(&mut self, now_ns: u64, slot: u32) {
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
