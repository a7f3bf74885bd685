//! Garbage collection at work: its reads, programs and erases.

use super::victim::choose_victim;
use super::{Collector, Job, Media, Progress};
use crate::ssd::flash::transaction::{FlashPage, Operation, Priority, Source, Transaction};
use crate::ssd::ftl::copies::Holds;
use crate::ssd::ftl::{PageRecord, Stream, Victim};
use crate::ssd::spec::Copyback;

/// Most pages that a background collection has in progress, since host programs wait
/// for its queued ones.
const BACKGROUND_DEPTH: u32 = 4;
/// How many slots ahead of a collection map entries are prefetched. Much earlier they
/// would be evicted again, as all planes may be collected at once.
const PREFETCH_SLOTS: u32 = 16;

impl Collector {
    /// Starts to collect a plane; `false` where nothing could be freed there.
    pub(crate) fn collect(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) -> bool {
        if self.jobs[plane as usize].is_running() {
            self.raise_priority(ctx, now_ns, plane);
            if self.jobs[plane as usize].is_paused {
                self.resume_collections(ctx, now_ns);
            }
            return true;
        }
        let is_at_work = self.begin_collection(ctx, now_ns, plane);
        if self.superpage.is_some() && self.jobs[plane as usize].is_running() {
            self.collect_superblock(ctx, now_ns);
        }
        is_at_work
    }

    /// Where planes are written as superblocks, collection empties a superblock: all planes
    /// without room to spare begin together with the first that runs short.
    fn collect_superblock(&mut self, ctx: &mut Media, now_ns: u64) {
        for plane in 0..ctx.spec.geometry.planes() {
            let room = ctx.ftl.free_blocks(plane);
            if !self.jobs[plane as usize].is_running() && room <= ctx.spec.gc.start_blocks {
                self.begin_collection(ctx, now_ns, plane);
            }
        }
    }

    /// Chooses a victim in a plane and begins its collection; `false` where nothing could
    /// be freed there.
    fn begin_collection(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) -> bool {
        if let Some(block) = ctx.ftl.cold_block(plane) {
            self.begin_job(ctx, now_ns, plane, block, (plane, Stream::Wear));
            return true;
        }
        let Some(to) = ctx.ftl.destination(plane) else {
            // Another plane's collection writes to this one, and will end.
            return true;
        };
        let most = ctx.ftl.most_to_move(plane, to);
        let folded = self.block_to_fold(ctx, now_ns, plane).filter(|block| {
            let valid = ctx.ftl.valid(*block);
            to == plane && (!ctx.ftl.has_rows() || valid <= most)
        });
        let victim =
            folded.or_else(|| choose_victim(&ctx.ftl, plane, most, &ctx.spec.gc, &mut self.rng));
        let Some(victim) = victim else {
            // Queued programs will fill a block that can be collected, or other
            // collections of the row will leave room.
            return self.programs_queued > 0 || self.row_collects(ctx, plane);
        };
        self.begin_job(ctx, now_ns, plane, victim, (to, Stream::Collection));
        true
    }

    /// Resumes the paused collections of all planes: in the steady state that the drive
    /// starts in, all of them run at once.
    fn resume_collections(&mut self, ctx: &mut Media, now_ns: u64) {
        for plane in 0..ctx.spec.geometry.planes() {
            let job = &mut self.jobs[plane as usize];
            if core::mem::take(&mut job.is_paused) {
                job.since_ns = now_ns;
                self.continue_collection(ctx, now_ns, plane);
            }
        }
    }

    fn begin_job(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        plane: u32,
        victim: u32,
        to: (u32, Stream),
    ) {
        self.set_up_job(ctx, now_ns, plane, victim, to);
        self.raise_priority(ctx, now_ns, plane);
        self.continue_collection(ctx, now_ns, plane);
    }

    /// Sets up the collection of a block, without starting any transaction.
    pub(crate) fn set_up_job(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        plane: u32,
        victim: u32,
        (to, stream): (u32, Stream),
    ) {
        let Victim {
            initially_valid, ..
        } = ctx.ftl.begin_collection(plane, victim, (to, stream));
        self.jobs[plane as usize] = Job {
            victim,
            pages: ctx.ftl.pages_of(victim),
            initially_valid,
            slc: ctx.ftl.is_slc(victim),
            to,
            stream,
            since_ns: now_ns,
            ..Job::NONE
        };
    }

    /// Whether background collection has to become urgent: the host can open no further
    /// block in the plane.
    fn is_at_hard_limit(&self, ctx: &Media, plane: u32) -> bool {
        ctx.spec.gc.preemptible && !ctx.ftl.has_spare_block(plane)
    }

    /// Raises the priority of a collection in progress, for queued transactions and those
    /// to follow: to normal where the host waits for it, to urgent at the hard limit.
    fn raise_priority(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) {
        if self.jobs[plane as usize].in_background && self.is_behind(ctx, plane) {
            self.jobs[plane as usize].in_background = false;
            ctx.flash.raise_collection(now_ns, plane);
        }
        if !self.jobs[plane as usize].urgent && self.is_at_hard_limit(ctx, plane) {
            self.jobs[plane as usize].urgent = true;
            let to = self.jobs[plane as usize].to;
            ctx.flash
                .promote_collection(now_ns, plane, ctx.ftl.row_of(to));
        }
    }

    /// The priority of a plane's collection.
    fn collection_priority(&self, ctx: &Media, plane: u32) -> Priority {
        match self.jobs[plane as usize].urgent {
            true => Priority::Urgent,
            false if ctx.spec.gc.preemptible && self.may_run_in_background(ctx, plane) => {
                Priority::Background
            }
            false => Priority::Normal,
        }
    }

    /// Whether the host does not wait for a plane's collection.
    fn may_run_in_background(&self, ctx: &Media, plane: u32) -> bool {
        ctx.ftl.stream_with_room(plane).is_some() && !self.is_behind(ctx, plane)
    }

    /// Starts the next reads of a plane's collection, its last program or its erase.
    pub(crate) fn continue_collection(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) {
        let mut job = self.jobs[plane as usize];
        if !job.is_running() || job.erasing {
            return;
        }
        let priority = self.collection_priority(ctx, plane);
        let ahead = (PREFETCH_SLOTS / ctx.ftl.slots_per_page()).max(1);
        while job.has_pages_left() && self.may_read_on(ctx, &job, priority) {
            let page = job.next_page;
            let on_chip = self.copies_on_chip(ctx, plane, &job, page);
            if on_chip && job.reads + job.programs > 0 {
                break;
            }
            job.next_page += 1;
            if page + ahead < job.pages {
                ctx.ftl.owners(job.victim, page + ahead).for_each(drop);
            }
            let bytes_to_move = self.bytes_to_move(ctx, job.victim, page);
            if bytes_to_move > 0 {
                let at = FlashPage {
                    plane,
                    block: job.victim,
                    page,
                };
                match on_chip {
                    true => self.enqueue_copyback(ctx, now_ns, at, priority),
                    false => self.enqueue_collection(
                        ctx,
                        now_ns,
                        Operation::Read,
                        at,
                        bytes_to_move,
                        priority,
                    ),
                }
                job.reads += 1;
                job.in_background |= priority == Priority::Background;
                job.copies = on_chip;
            }
        }
        self.jobs[plane as usize] = job;
        if !job.has_pages_left() && job.reads == 0 {
            self.finish_collection(ctx, now_ns, plane, priority);
        }
    }

    /// Programs the last page of a plane's collection, all of whose data has been read, and
    /// erases the victim once everything is programmed.
    fn finish_collection(&mut self, ctx: &mut Media, now_ns: u64, plane: u32, priority: Priority) {
        let job = self.jobs[plane as usize];
        let last = match job.stream {
            Stream::Collection => ctx.ftl.in_turn(job.to, job.stream),
            _ => job.to,
        };
        if let Some(record) = ctx.ftl.filling(last, job.stream)
            && !self.goes_on_filling(ctx, &job, plane, record)
        {
            self.program(ctx, now_ns, record);
        }
        if self.jobs[plane as usize].programs == 0 {
            let job = &mut self.jobs[plane as usize];
            job.erasing = true;
            job.in_background |= priority == Priority::Background;
            let job = *job;
            self.earn_rest(ctx, &job);
            ctx.ftl.rescue_rests(&mut ctx.flash, now_ns, job.victim);
            let at = FlashPage {
                plane,
                block: job.victim,
                page: 0,
            };
            self.enqueue_collection(ctx, now_ns, Operation::Erase, at, 0, priority);
            self.program_full_superpage(ctx, now_ns);
        }
    }

    /// Whether a collection may read another page. One more page than its depth may be
    /// unprogrammed: the one that it is filling. During a copyback it may read no other,
    /// which would take the page register.
    fn may_read_on(&self, ctx: &Media, job: &Job, priority: Priority) -> bool {
        if job.copies {
            return false;
        }
        let depth = match priority {
            Priority::Background => ctx.spec.gc.depth.min(BACKGROUND_DEPTH),
            _ => ctx.spec.gc.depth,
        };
        // The programs of a superpage are bounded by its size instead.
        let programs = match self.superpage {
            None => job.programs,
            Some(_) => 0,
        };
        job.reads < depth && job.reads + programs <= depth && !self.has_filled_superpage(job.to)
    }

    pub(crate) fn enqueue_collection(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        kind: Operation,
        at: FlashPage,
        bytes: u32,
        priority: Priority,
    ) {
        let mut op = ctx.ftl.transaction(kind, Source::Gc, at.plane, at, bytes);
        op.priority = priority;
        ctx.flash.enqueue(now_ns, op);
    }

    /// Bytes on the channel of the valid slots of a page.
    pub(crate) fn bytes_to_move(&mut self, ctx: &mut Media, block: u32, page: u32) -> u32 {
        self.page_owners.clear();
        self.page_owners.extend(ctx.ftl.owners(block, page));
        let is_valid = |&&(at, slot): &&(u32, u32)| ctx.ftl.holds_of(at, slot) != Holds::Nothing;
        let valid = self.page_owners.iter().filter(is_valid);
        self.codewords.of_units(valid.map(|(at, _)| *at))
    }

    /// A read or the erase of a collection has ended. Returns what that has achieved.
    pub(crate) fn collection_done(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        op: &Transaction,
    ) -> Progress {
        let plane = op.plane;
        if op.kind == Operation::Erase {
            let job = &mut self.jobs[plane as usize];
            let ended = core::mem::replace(job, Job::NONE);
            self.count_collection(ctx, now_ns, &ended);
            ctx.ftl.end_collection(plane, op.block, ended.to);
            if ctx.ftl.wants_collection(plane)
                || self.block_to_fold(ctx, now_ns, plane).is_some()
                || ctx.ftl.cold_block(plane).is_some()
            {
                self.collect(ctx, now_ns, plane);
            } else {
                self.recheck_when_idle(ctx, now_ns);
            }
            return Progress::Erased;
        }
        let on_chip = op.source == Source::Copyback;
        if on_chip && !self.copies_on_chip(ctx, plane, &self.jobs[plane as usize], op.page) {
            self.read_instead_of_copying(ctx, now_ns, op);
            return Progress::None;
        }
        self.jobs[plane as usize].reads -= 1;
        self.move_page(ctx, now_ns, op, on_chip);
        self.continue_collection(ctx, now_ns, plane);
        Progress::Moved
    }

    /// Whether a collection runs in the row of a plane.
    pub(crate) fn row_collects(&self, ctx: &Media, plane: u32) -> bool {
        let mut row = ctx.ftl.row_of(plane);
        row.any(|other| self.jobs[other as usize].is_running())
    }

    /// Whether other collections of the row will fill a page further, so that it is not
    /// programmed partly empty. The last page of an urgent collection is programmed at
    /// once; it is the only one that a collection leaves partly empty (see
    /// [`crate::ssd::ftl::Ftl::reserve_room`]).
    fn goes_on_filling(&self, ctx: &Media, job: &Job, plane: u32, record: u32) -> bool {
        let mut jobs = self.jobs_of(ctx.ftl.record(record));
        let is_awaited = job.urgent && jobs.any(|other| other == plane);
        job.stream == Stream::Collection && self.row_moves(ctx, plane) && !is_awaited
    }

    /// Whether another collection of the row has more to move.
    fn row_moves(&self, ctx: &Media, plane: u32) -> bool {
        let mut row = ctx.ftl.row_of(plane);
        row.any(|other| {
            let job = &self.jobs[other as usize];
            let moves = job.has_pages_left() || job.reads > 0;
            other != plane && job.is_under_way() && job.stream == Stream::Collection && moves
        })
    }

    /// Whether an urgent collection writes to the row of a page. (Not only to the page
    /// itself, since pages of a block are programmed in order.)
    pub(crate) fn has_urgent_job(&self, ctx: &Media, page: &PageRecord) -> bool {
        let mut row = ctx.ftl.row_of(page.jobs_from);
        row.any(|plane| self.jobs[plane as usize].urgent)
    }

    /// The planes whose collection has data in a page.
    fn jobs_of(&self, page: &PageRecord) -> impl Iterator<Item = u32> + use<> {
        let (from, jobs) = (page.jobs_from, page.jobs);
        (0..u64::BITS - jobs.leading_zeros())
            .filter(move |bit| jobs >> bit & 1 != 0)
            .map(move |bit| from + bit)
    }

    /// A page of moved data is programmed.
    pub(crate) fn page_done(&mut self, ctx: &mut Media, now_ns: u64, record: u32) {
        let page = *ctx.ftl.record(record);
        #[cfg(test)]
        ctx.ftl.shadow_programmed(record);
        ctx.ftl.programmed(record);
        if ctx.ftl.has_logs() {
            return self.merge_page_done(ctx, now_ns, page.plane);
        }
        for plane in self.jobs_of(&page) {
            let job = &mut self.jobs[plane as usize];
            job.programs -= 1;
            job.copies &= job.programs > 0;
            self.continue_collection(ctx, now_ns, plane);
        }
    }

    /// Notes that a plane's collection has data in a page.
    fn join_page(&mut self, ctx: &mut Media, plane: u32, record: u32) {
        let from = ctx.ftl.row_of(plane).start;
        let page = ctx.ftl.record_mut(record);
        let bit = 1 << (plane - from);
        if page.jobs & bit == 0 {
            page.jobs_from = from;
            page.jobs |= bit;
            self.jobs[plane as usize].programs += 1;
        }
    }

    fn count_collection(&mut self, ctx: &mut Media, now_ns: u64, ended: &Job) {
        if ended.stream == Stream::Wear {
            ctx.stats.wear.levelled_blocks += 1;
            return;
        }
        if ended.slc {
            ctx.stats.slc.blocks_folded += 1;
            return;
        }
        let took_ns = now_ns - ended.since_ns;
        let counts = &mut ctx.stats.collection;
        counts.blocks += 1;
        counts.blocks_partly_valid += ended.moves as u64;
        counts.busy_ns += took_ns;
        counts.longest_ns = counts.longest_ns.max(took_ns);
    }

    /// Moves the slots of a page that are still valid.
    fn move_page(&mut self, ctx: &mut Media, now_ns: u64, op: &Transaction, on_chip: bool) {
        let plane = op.plane;
        self.jobs[plane as usize].moves = true;
        let job = self.jobs[plane as usize];
        self.moving.clear();
        self.moving.extend(ctx.ftl.owners(op.block, op.page));
        for place in 0..self.moving.len() {
            let (at, slot) = self.moving[place];
            let to = (job.to, job.stream);
            let Some((record, current)) = ctx.ftl.move_slot(plane, to, (at, slot)) else {
                continue;
            };
            if let (Some(slot), Some(map)) = (current, ctx.ftl.cached_map()) {
                map.moved(&mut ctx.flash, &mut ctx.stats, now_ns, slot);
            }
            self.join_page(ctx, plane, record);
            #[cfg(test)]
            ctx.ftl.shadow_move(at, record);
            self.count_moved(ctx, plane, &job);
            self.jobs[plane as usize].moved += 1;
            self.earn_credit(ctx, &job);
            if ctx.ftl.is_full(record) {
                if on_chip {
                    ctx.ftl.record_mut(record).copy_of = op.page;
                }
                self.program(ctx, now_ns, record);
            }
        }
    }

    fn count_moved(&mut self, ctx: &mut Media, plane: u32, job: &Job) {
        let sectors = ctx.spec.ftl.map_unit_bytes as u64 / 512;
        let moved = match (job.stream, job.slc) {
            (Stream::Wear, _) => &mut ctx.stats.wear.levelled_sectors,
            (_, true) => &mut ctx.stats.slc.sectors_folded,
            (_, false) => &mut ctx.stats.collection.sectors_moved,
        };
        *moved += sectors;
        if job.to != plane {
            let counts = &mut ctx.stats.collection;
            counts.sectors_off_plane += sectors;
            let is_off_chip = !ctx.spec.geometry.same_package(plane, job.to);
            counts.sectors_off_chip += sectors * is_off_chip as u64;
        }
    }
}

/// Copyback: collection moves whole pages within their plane, without the channel.
impl Collector {
    /// Whether a page can be moved by copyback: all of it is valid, and it becomes a whole
    /// page of its own plane. The array reads it into the page register and programs it
    /// from there. (Until the copy is programmed, its slots are read as if they were in
    /// DRAM.)
    fn copies_on_chip(&self, ctx: &Media, plane: u32, job: &Job, page: u32) -> bool {
        if ctx.spec.flash.copyback == Copyback::None || job.slc || job.to != plane {
            return false;
        }
        let first = ctx.ftl.page_start(job.victim, page);
        let mut slots = first..first + ctx.ftl.slots_per_page();
        ctx.ftl.next_page(plane, job.stream).is_some()
            && slots.all(|at| ctx.ftl.holds(at) != Holds::Nothing)
    }

    /// Queues the read of a page into its plane's page register, without data on the
    /// channel.
    fn enqueue_copyback(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        at: FlashPage,
        priority: Priority,
    ) {
        let mut op = ctx
            .ftl
            .transaction(Operation::Read, Source::Copyback, at.plane, at, 0);
        op.priority = priority;
        ctx.flash.enqueue(now_ns, op);
    }

    /// Reads a page over the channel that was to be moved by copyback, since it is not all
    /// valid any more, or the page that it would become has been begun.
    fn read_instead_of_copying(&mut self, ctx: &mut Media, now_ns: u64, op: &Transaction) {
        let bytes = self.bytes_to_move(ctx, op.block, op.page);
        let job = &mut self.jobs[op.plane as usize];
        job.copies = false;
        if bytes == 0 {
            job.reads -= 1;
            return self.continue_collection(ctx, now_ns, op.plane);
        }
        self.enqueue_collection(ctx, now_ns, Operation::Read, op.at(), bytes, op.priority);
    }
}
