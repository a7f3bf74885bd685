//! The flash traffic of a map that is not whole in DRAM.
//!
//! A page of the map is read before the first use of any of its entries, and
//! read, merged and programmed when a changed entry is pushed out. These pages
//! have blocks of their own, which are rewritten so often that they hold no
//! valid data when their turn comes: one erase for every block's worth of
//! programs, and no copying.

use super::Ssd;
use super::op::{OpKind, Source};

/// Who waits for a page of the map.
#[derive(Clone, Copy, Debug)]
pub(super) enum MapWaiter {
    /// A read, by its command.
    Command(u32),
    /// A page to be programmed, by its record.
    Record(u32),
    /// Slots that are read ahead, by their fetch.
    ReadAhead(u32),
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
            let on_its_way = here && !self.is_fetching(page);
            if !on_its_way && fetched != Some(page) {
                fetched = Some(page);
                fetches += 1;
                self.fetch_map_page(now_ns, page, waiter);
            }
        }
        fetches
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
        let bytes = self.spec.channel.codeword_bytes;
        self.map_op(
            now_ns,
            OpKind::Read,
            Source::MapFetch,
            page,
            index as u32,
            bytes,
        );
    }

    fn map_op(
        &mut self,
        now_ns: u64,
        kind: OpKind,
        source: Source,
        page: u32,
        owner: u32,
        bytes: u32,
    ) {
        match kind {
            OpKind::Read => self.stats.map_reads += 1,
            OpKind::Program => self.stats.map_programs += 1,
            OpKind::Erase => {}
        }
        let op = self.flash_op(kind, source, owner, self.ftl.map_page_home(page), bytes);
        self.backend.enqueue(now_ns, op);
    }

    /// A page of the map has arrived: whoever needed it goes on.
    pub(super) fn map_fetched(&mut self, now_ns: u64, index: u32) {
        let mut waiters = std::mem::take(&mut self.map_reads[index as usize].waiters);
        for waiter in waiters.drain(..) {
            match waiter {
                MapWaiter::Record(record) => self.rewrite_read_done(now_ns, record),
                MapWaiter::ReadAhead(fetch) => self.read_ahead_map_fetched(now_ns, fetch),
                MapWaiter::Command(command) => {
                    let active = &mut self.commands[command as usize];
                    active.parts -= 1;
                    if active.parts == 0 {
                        self.read_mapped(now_ns, command);
                    }
                }
            }
        }
        // Its room is used again, unless a waiter has fetched into its place.
        if self.map_reads[index as usize].waiters.is_empty() {
            self.map_reads[index as usize].waiters = waiters;
        }
    }

    /// Writes a page of the map: first the entries that did not change are read.
    fn write_map_page(&mut self, now_ns: u64, page: u32) {
        let bytes = self.spec.geometry.page_bytes;
        self.map_op(now_ns, OpKind::Read, Source::MapMerge, page, page, bytes);
    }

    /// The old content of a page of the map is here: now the new one goes out.
    pub(super) fn map_merged(&mut self, now_ns: u64, page: u32) {
        let bytes = self.spec.geometry.page_bytes;
        self.map_op(now_ns, OpKind::Program, Source::MapWrite, page, page, bytes);
        let plane = self.ftl.map_page_home(page).plane;
        let programs = &mut self.map_programs[plane as usize];
        *programs += 1;
        if *programs == self.spec.geometry.pages_per_block {
            *programs = 0;
            self.map_op(now_ns, OpKind::Erase, Source::MapWrite, page, page, 0);
        }
    }

    /// Garbage collection moved a slot: its entry has changed.
    pub(super) fn map_moved(&mut self, now_ns: u64, slot: u32) {
        if let Some(cmt) = &mut self.cmt {
            let evicted = cmt.insert(slot, true);
            if let Some(page) = evicted {
                self.write_map_page(now_ns, page);
            }
        }
    }
}
