//! Writes that have room: from their place through the cache to page programs,
//! and what flush and force-unit-access make of them.

use blklab_blk::Op as HostOp;
use blklab_stats::Wait;

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::{NONE, Operation, Priority, Source};
use crate::ssd::ftl::cached_map::fetch::MapWaiter;
use crate::ssd::ftl::partial::Span;
use crate::ssd::ftl::{Located, PageRecord, Stream};
use crate::ssd::spec::Allocation;

impl Ssd {
    /// Plane and stream whose open page, or next one, takes a slot of the host's
    /// now; `None` where it has to wait.
    #[inline]
    pub(crate) fn allocate_page(&mut self, now_ns: u64, slot: u32) -> Option<(u32, Stream)> {
        let (plane, stream) = self.allocate(now_ns, slot)?;
        match self.full_page(plane, stream) {
            None => Some((plane, stream)),
            Some(record) => self.allocate_next_page(now_ns, slot, plane, record),
        }
    }

    /// The same where the open page takes no more: it is one with units that are
    /// not whole.
    #[inline(never)]
    fn allocate_next_page(
        &mut self,
        now_ns: u64,
        slot: u32,
        mut plane: u32,
        mut record: u32,
    ) -> Option<(u32, Stream)> {
        loop {
            // Its program may use up what room there was for the next.
            self.program(now_ns, record);
            let stream;
            (plane, stream) = match self.host_stream(plane) {
                Some(stream) if self.spec.ftl.allocation != Allocation::Static => (plane, stream),
                _ => self.allocate(now_ns, slot)?,
            };
            match self.full_page(plane, stream) {
                None => return Some((plane, stream)),
                Some(full) => record = full,
            }
        }
    }

    /// The open page of a stream in a plane that takes no further units.
    #[inline]
    fn full_page(&self, plane: u32, stream: Stream) -> Option<u32> {
        let open = self.ftl.filling(plane, stream);
        open.filter(|record| self.ftl.is_full(*record))
    }

    /// Gives one slot its place.
    pub(crate) fn place_slot(
        &mut self,
        now_ns: u64,
        index: u32,
        (plane, stream): (u32, Stream),
        slot: u32,
        span: Span,
    ) {
        let is_whole = span.bytes() == self.spec.ftl.map_unit_bytes;
        let rest = match is_whole {
            true => Located::Nowhere,
            false => self.ftl.locate(slot),
        };
        #[cfg(test)]
        let whole_rest = self.ftl.locate(slot);
        let epoch = self.epochs.now();
        let before = self.ftl.filling(plane, stream);
        let slots_before = before.map_or(0, |record| self.ftl.record(record).slots);
        let rewritten = self.ftl.rewritten_in_dram;
        let record = self.ftl.write(plane, slot, stream, epoch);
        if self.ftl.rewritten_in_dram != rewritten {
            self.commands[index as usize].rewrites = true;
        }
        if before != Some(record) {
            self.epochs.begin_page();
        }
        #[cfg(test)]
        self.witness_write(index, slot, record, whole_rest);
        let mut new_bytes = 0;
        if self.ftl.record(record).slots > slots_before {
            new_bytes = span.bytes();
            self.spend_credit();
            if !is_whole {
                self.begin_partial(record, slot, span, rest);
            }
            if let Located::Buffered(at) = rest {
                self.follow(at, record);
            }
        }
        self.slot_written(now_ns, index, slot, record, (span, new_bytes));
    }

    /// Puts what a command writes of one slot to what is in an open page of it.
    #[inline(never)]
    pub(crate) fn join_slot(
        &mut self,
        now_ns: u64,
        index: u32,
        record: u32,
        slot: u32,
        span: Span,
    ) {
        self.commands[index as usize].rewrites = true;
        #[cfg(test)]
        self.witness_write(index, slot, record, self.ftl.locate(slot));
        let new_bytes = self.join(record, slot, span);
        self.slot_written(now_ns, index, slot, record, (span, new_bytes));
    }

    /// What a command writes of one slot is in a page, `new_bytes` of which the
    /// host had not written there before.
    #[inline(always)]
    fn slot_written(
        &mut self,
        now_ns: u64,
        index: u32,
        slot: u32,
        record: u32,
        (span, new_bytes): (Span, u32),
    ) {
        if let Some(cache) = &mut self.read_cache {
            cache.remove(slot);
        }
        let page = self.ftl.record_mut(record);
        page.dirty_bytes += new_bytes;
        self.dirty_bytes += new_bytes as u64;
        self.stats.host_sectors_absorbed += (span.bytes() - new_bytes) as u64 / 512;
        if self.spec.slc_cache.is_some() {
            self.stats
                .slc
                .count_write(page.stream == Stream::Slc, new_bytes as u64 / 512);
        }
        let mut fetches = 0;
        if self.cmt.is_some() {
            let waiter = MapWaiter::Record(record);
            fetches = self.fetch_map(now_ns, slot, slot, true, waiter);
            self.ftl.record_mut(record).reads += fetches;
        }
        let command = &self.commands[index as usize];
        self.flash.note_writer(record, command.number);
        if command.op == HostOp::Write && !self.is_cached(command.fua) {
            let command = &mut self.commands[index as usize];
            command.waits.note(Wait::Map, fetches > 0);
            self.await_page(record, index);
        }
        if self.ftl.is_full(record) && !self.stays_open(record) {
            self.program(now_ns, record);
        }
    }

    /// A page takes over what is at `at` in DRAM, of which a part may still be
    /// on its way.
    fn follow(&mut self, at: u32, record: u32) {
        if self.spec.ftl.allocation == Allocation::Static
            && self.ftl.has_one_host_stream()
            && !self.ftl.has_rows()
        {
            // All pages that a slot can be in are programmed one after the other.
            return;
        }
        let page = self.ftl.record(record);
        if self
            .ftl
            .same_page(at, self.ftl.page_start(page.block, page.page))
        {
            return;
        }
        let Some(leader) = self.ftl.record_of(at) else {
            return;
        };
        // What the leader itself follows, this page has to follow too: pages
        // that waited for each other would do so for ever.
        for place in 0..self.followers.len() {
            let (leads, follows) = self.followers[place];
            if follows == leader {
                self.begin_to_follow(leads, record);
            }
        }
        if self.own_reads(leader) > 0 {
            self.begin_to_follow(leader, record);
        }
    }

    /// A page waits for the reads of another, if it does not yet.
    fn begin_to_follow(&mut self, leader: u32, record: u32) {
        let pair = (leader, record);
        if leader != record && !self.followers.contains(&pair) {
            self.followers.push(pair);
            self.ftl.record_mut(record).reads += 1;
        }
    }

    /// The pages that a page follows.
    fn leaders_of(&self, record: u32) -> impl Iterator<Item = u32> {
        let of = move |pair: &&(u32, u32)| pair.1 == record;
        self.followers.iter().filter(of).map(|pair| pair.0)
    }

    /// One of them that is still being filled.
    fn open_leader_of(&self, record: u32) -> Option<u32> {
        let mut leaders = self.leaders_of(record);
        leaders.find(|leader| !self.ftl.record(*leader).closed)
    }

    /// Reads that a page waits for without those of pages that it follows.
    fn own_reads(&self, record: u32) -> u32 {
        self.ftl.record(record).reads - self.leaders_of(record).count() as u32
    }

    /// Has a command wait for a page's program.
    fn await_page(&mut self, record: u32, index: u32) {
        let first = self.ftl.record(record).waiters;
        if first != NONE && self.waiters[first as usize].0 == index {
            return; // It waits for this page already.
        }
        let waiter = match self.free_waiter {
            NONE => {
                self.waiters.push((index, first));
                self.waiters.len() as u32 - 1
            }
            free => {
                self.free_waiter = self.waiters[free as usize].1;
                self.waiters[free as usize] = (index, first);
                free
            }
        };
        self.ftl.record_mut(record).waiters = waiter;
        self.commands[index as usize].parts += 1;
    }

    /// Closes a page and queues its program.
    pub(crate) fn program(&mut self, now_ns: u64, record: u32) {
        self.ftl.close(record);
        if !self.followers.is_empty() {
            self.close_leaders(now_ns, record);
        }
        self.read_rests(now_ns, record);
        let page = self.ftl.record(record);
        let (plane, of_host) = (page.plane, page.stream.is_of_host());
        let cached = (page.stream == Stream::Slc).then_some(page.page);
        let bytes = self.spec.geometry.page_bytes;
        let mut op = self.flash_op(
            Operation::Program,
            Source::Program,
            record,
            page.at(),
            bytes,
        );
        // Programs of one block must not overtake each other, so they wait in
        // one queue with the host's unless the host waits for them; collection
        // yields with its reads and erases.
        op.ready = page.reads == 0;
        op.copies = page.copy_of;
        op.collects = !of_host;
        if op.collects && self.ftl.hybrid.is_none() && self.has_urgent_job(page) {
            op.priority = Priority::Urgent;
        }
        self.programs_queued += of_host as u32;
        let waits = self.waits_for_stripe(&op);
        op.ready &= !waits;
        let op = self.flash.enqueue(now_ns, op);
        self.ftl.record_mut(record).op = op;
        if waits {
            self.join_stripe(now_ns, op);
        }
        if self.ftl.wants_collection(plane) {
            self.collect(now_ns, plane);
        }
        if let Some(page) = cached {
            self.fold_ahead(now_ns, plane, page);
        }
    }

    /// Closes the pages that a page follows: reads that they began later would
    /// be behind its program, which waits for them.
    fn close_leaders(&mut self, now_ns: u64, record: u32) {
        while let Some(leader) = self.open_leader_of(record) {
            self.program(now_ns, leader);
        }
    }

    /// Programs every page that holds data of the host's, full or not.
    pub(crate) fn close_all(&mut self, now_ns: u64) {
        for plane in 0..self.spec.geometry.planes() {
            for stream in self.ftl.host_streams() {
                self.close_pages(now_ns, plane, stream);
            }
        }
        self.program_stripe(now_ns);
    }

    /// Programs the pages of the host's that take no further units. Returns
    /// whether there were any.
    pub(crate) fn close_full_pages(&mut self, now_ns: u64) -> bool {
        let mut were_any = false;
        for plane in 0..self.spec.geometry.planes() {
            for stream in self.ftl.host_streams() {
                if let Some(record) = self.full_page(plane, stream) {
                    self.program(now_ns, record);
                    were_any = true;
                }
            }
        }
        were_any
    }

    /// Programs the pages that a command waits for, full or not.
    pub(crate) fn close_awaited(&mut self, now_ns: u64) {
        for plane in 0..self.spec.geometry.planes() {
            for stream in self.ftl.host_streams() {
                let mut pages = self.ftl.pages_under_way(plane, stream);
                if pages.any(|record| self.ftl.record(record).waiters != NONE) {
                    drop(pages);
                    self.close_pages(now_ns, plane, stream);
                }
            }
        }
        self.program_stripe(now_ns);
    }

    /// Programs the page that a stream is filling in a plane. Where the array
    /// programs several at once, it gets the rest of them as well, empty.
    fn close_pages(&mut self, now_ns: u64, plane: u32, stream: Stream) {
        if let Some(record) = self.ftl.filling(plane, stream) {
            self.program(now_ns, record);
        }
        while self.ftl.is_amid_program(plane, stream) {
            let record = self.ftl.open_record(plane, stream, self.epochs.now());
            self.epochs.begin_page();
            self.program(now_ns, record);
        }
    }

    /// The rest of a map unit has been read for a page.
    pub(crate) fn rewrite_read_done(&mut self, now_ns: u64, record: u32) {
        self.read_for(now_ns, record);
        if self.followers.is_empty() || self.own_reads(record) > 0 {
            return;
        }
        while let Some(place) = self.followers.iter().position(|pair| pair.0 == record) {
            let (_, follower) = self.followers.swap_remove(place);
            self.read_for(now_ns, follower);
        }
    }

    /// A page waits for one read less.
    fn read_for(&mut self, now_ns: u64, record: u32) {
        let page = self.ftl.record_mut(record);
        page.reads -= 1;
        if page.reads == 0 && page.closed {
            let op = page.op;
            self.flash.make_ready(now_ns, op);
        }
    }

    /// A page is on the flash.
    pub(crate) fn program_done(&mut self, now_ns: u64, record: u32) {
        self.flash.forget_writers(record);
        let page = self.ftl.record(record);
        if !page.stream.is_of_host() {
            let page = *page;
            #[cfg(test)]
            if let Some(witness) = &mut self.witness {
                witness.programmed(&page);
            }
            self.ftl.programmed(record);
            return match self.ftl.hybrid.is_some() {
                true => self.merge_page_done(now_ns, page.plane),
                false => self.collected_page_done(now_ns, &page),
            };
        }
        let plane = page.plane;
        self.programs_queued -= 1;
        self.note_program_waits(record);
        if !self.ftl.completes_program(record) {
            // Its data is where the array takes it from, with the rest.
            return;
        }
        self.pages_durable(now_ns, record);
        if self.ftl.hybrid.is_some() {
            self.go_on_merging(now_ns, plane);
        }
        self.admit(now_ns);
    }

    /// Whoever waits for a page has waited for what its program waited for.
    fn note_program_waits(&mut self, record: u32) {
        let PageRecord { op, waiters, .. } = *self.ftl.record(record);
        let mut waiter = waiters;
        while waiter != NONE {
            let (index, next) = self.waiters[waiter as usize];
            let waits = self.flash.transactions.waiting[op as usize].waits;
            self.commands[index as usize].waits.add(waits);
            waiter = next;
        }
    }

    /// A page of the host's is on the flash, with all that was programmed at
    /// once, in their order.
    fn pages_durable(&mut self, now_ns: u64, record: u32) {
        let before = self.ftl.record(record).before;
        if before != NONE {
            self.pages_durable(now_ns, before);
        }
        self.page_durable(now_ns, record);
    }

    fn page_durable(&mut self, now_ns: u64, record: u32) {
        let page = self.ftl.record(record);
        #[cfg(test)]
        if let Some(witness) = &mut self.witness {
            witness.programmed(page);
        }
        let PageRecord {
            dirty_bytes,
            stream,
            epoch,
            waiters: mut waiter,
            ..
        } = *page;
        self.ftl.programmed(record);
        if stream == Stream::Slc {
            self.slc_written(now_ns);
        }
        self.dirty_bytes -= dirty_bytes as u64;
        self.stats.host_sectors_programmed += dirty_bytes as u64 / 512;
        while waiter != NONE {
            let (index, next) = self.waiters[waiter as usize];
            self.waiters[waiter as usize].1 = self.free_waiter;
            self.free_waiter = waiter;
            self.part_sent(now_ns, index);
            waiter = next;
        }
        self.epoch_page_done(now_ns, epoch);
    }

    /// A page that belongs to a flush epoch is on the flash.
    #[inline]
    pub(crate) fn epoch_page_done(&mut self, now_ns: u64, epoch: u32) {
        self.epochs.end_page(epoch);
        while let Some(flush) = self.epochs.pop_durable() {
            self.finish(now_ns, flush);
        }
    }

    /// A flush: everything acknowledged so far has to reach the flash.
    pub(crate) fn start_flush(&mut self, now_ns: u64, index: u32) {
        if self.spec.write_cache.power_loss_protection {
            return self.finish(now_ns, index);
        }
        self.flash.gather();
        self.close_all(now_ns);
        if std::mem::take(&mut self.log_is_dirty) {
            self.program_discard_log(now_ns);
        }
        self.flash.start_gathered(now_ns);
        self.epochs.flush(index);
        while let Some(flush) = self.epochs.pop_durable() {
            self.finish(now_ns, flush);
        }
    }

    /// The flash cannot tell a discarded slot from one that was never
    /// overwritten, so discards are written down: a page of a log.
    fn program_discard_log(&mut self, now_ns: u64) {
        self.epochs.begin_page();
        let page = self.ftl.discard_log();
        let bytes = self.spec.geometry.page_bytes;
        let epoch = self.epochs.now();
        let op = self.flash_op(Operation::Program, Source::DiscardLog, epoch, page, bytes);
        self.flash.enqueue(now_ns, op);
    }
}
