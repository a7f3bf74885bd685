//! Lines of the map on their way into DRAM.
//!
//! Of a page of the map only the codewords cross the channel that hold the lines
//! which are wanted. Whoever wants another line of it has the same read bring its
//! codewords, too, until the array has read the page. After that who wants what
//! comes waits for it, and for anything else the page is read once more.

use blklab_blk::Op as HostOp;

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::{NONE, Source};

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

/// A read of a page of the map, or room for one.
#[derive(Clone, Debug)]
pub(crate) struct MapRead {
    page: u32,
    /// What comes of the page, as bits: it has 128 codewords at most.
    codewords: u128,
    /// The lines that are wanted of it: runs of them, from the first to before
    /// the last.
    lines: Vec<(u32, u32)>,
    op: u32,
    /// None where nothing is on its way.
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

impl Ssd {
    /// Whether the map's entries for slots `first..=last` are in DRAM; those
    /// that are not are fetched for `waiter`. Returns how many reads of the map
    /// it has to wait for.
    pub(crate) fn fetch_map(
        &mut self,
        now_ns: u64,
        first: u32,
        last: u32,
        changed: bool,
        waiter: MapWaiter,
    ) -> u32 {
        let of_command = matches!(waiter, MapWaiter::Command(_) | MapWaiter::Record(_));
        let mut fetches = 0;
        for slot in first..=last {
            let Some(cmt) = &mut self.cmt else { break };
            let here = cmt.touch(slot);
            let page = cmt.map_page(slot);
            let line = slot / self.spec.ftl.map_line_entries;
            if (!here || changed)
                && let Some(evicted) = cmt.insert(slot, changed)
            {
                self.write_map_page(now_ns, evicted);
            }
            let is_missing = !here || self.map_reads.iter().any(|read| read.brings(line));
            if of_command {
                self.stats.map_lookups += 1;
                self.stats.map_hits += !is_missing as u64;
            }
            if is_missing && !self.map_needs_no_read(page) {
                fetches += self.fetch_line(now_ns, page, line, waiter) as u32;
            }
        }
        fetches
    }

    fn map_needs_no_read(&self, page: u32) -> bool {
        let map = self.map_blocks.as_ref();
        map.is_some_and(|map| map.needs_no_read(page))
    }

    /// Has a line brought by a read of its page, by one that is under way if
    /// that is possible. Returns whether `waiter` waits for it only from now on.
    fn fetch_line(&mut self, now_ns: u64, page: u32, line: u32, waiter: MapWaiter) -> bool {
        let codewords = self.codewords_of_line(line);
        let serves = |read: &MapRead| {
            read.page == page
                && !read.waiters.is_empty()
                && (read.codewords & codewords == codewords || !self.flash.is_sensed(read.op))
        };
        let index = match self.map_reads.iter().position(serves) {
            Some(index) => index,
            None => self.begin_map_read(now_ns, page),
        };
        let read = &mut self.map_reads[index];
        let more = (codewords & !read.codewords).count_ones();
        read.codewords |= codewords;
        read.want(line);
        self.flash.transactions[read.op].bytes += more * self.spec.channel.codeword_bytes;
        if read.waiters.last() == Some(&waiter) {
            return false;
        }
        read.waiters.push(waiter);
        true
    }

    /// The codewords of its page that a line is in, as bits.
    fn codewords_of_line(&self, line: u32) -> u128 {
        let (ftl, codeword) = (&self.spec.ftl, self.spec.channel.codeword_bytes);
        let entry_bytes = self.spec.geometry.page_bytes / ftl.entries_per_map_page;
        let line_bytes = entry_bytes * ftl.map_line_entries;
        let from = line % (ftl.entries_per_map_page / ftl.map_line_entries) * line_bytes;
        let first = from / codeword;
        let count = (from + line_bytes).div_ceil(codeword) - first;
        u128::MAX >> (128 - count) << first
    }

    /// Queues a read of a page of the map, of which nothing is wanted yet.
    fn begin_map_read(&mut self, now_ns: u64, page: u32) -> usize {
        let mut reads = self.map_reads.iter();
        let index = match reads.position(|read| read.waiters.is_empty()) {
            Some(index) => index,
            None => {
                self.map_reads.push(MapRead::IDLE);
                self.map_reads.len() - 1
            }
        };
        let op = self.read_map_page(now_ns, page, Source::MapFetch, index as u32, 0);
        let read = &mut self.map_reads[index];
        (read.page, read.op, read.codewords) = (page, op, 0);
        read.lines.clear();
        index
    }

    /// A page of the map has arrived: whoever needed it goes on.
    pub(crate) fn map_fetched(&mut self, now_ns: u64, index: u32) {
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
}
