//! Garbage collection at work: its reads, programs and erases.

use super::victim::choose_victim;
use super::{Collector, Job, Media, Progress};
use crate::ssd::flash::transaction::{FlashPage, Operation, Priority, Source, Transaction};
use crate::ssd::ftl::copies::Holds;
use crate::ssd::ftl::{PageRecord, Stream, Victim};
use crate::ssd::spec::Copyback;

/// Most pages that a collection in the background has under way: the host's programs
/// wait for those that it has queued.
const BACKGROUND_DEPTH: u32 = 4;
/// How many slots before a collection comes to a page its entries of the map are
/// fetched into the processor's cache. Much earlier they would be pushed out again, as
/// all planes may be collected at once.
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

    /// Where planes are written as superblocks, collection empties one of them:
    /// all planes that have no room to spare begin with the first that runs short.
    fn collect_superblock(&mut self, ctx: &mut Media, now_ns: u64) {
        for plane in 0..ctx.spec.geometry.planes() {
            let room = ctx.ftl.free_blocks(plane);
            if !self.jobs[plane as usize].is_running() && room <= ctx.spec.gc.start_blocks {
                self.begin_collection(ctx, now_ns, plane);
            }
        }
    }

    /// Chooses what to collect of a plane, and begins with it.
    fn begin_collection(&mut self, ctx: &mut Media, now_ns: u64, plane: u32) -> bool {
        if let Some(block) = ctx.ftl.cold_block(plane) {
            self.begin_job(ctx, now_ns, plane, block, (plane, Stream::Wear));
            return true;
        }
        let Some(to) = ctx.ftl.destination(plane) else {
            // Another plane's collection uses this one's block; it will end.
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
            // Pages on their way will fill a block that can be collected, or
            // others of the row leave room.
            return self.programs_queued > 0 || self.row_collects(ctx, plane);
        };
        self.begin_job(ctx, now_ns, plane, victim, (to, Stream::Collection));
        true
    }

    /// Goes on with what the drive was emptying at the start, in all planes: in
    /// a run without pause all of them are at it.
    fn resume_collections(&mut self, ctx: &mut Media, now_ns: u64) {
        for plane in 0..ctx.spec.geometry.planes() {
            let job = &mut self.jobs[plane as usize];
            if std::mem::take(&mut job.is_paused) {
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

    /// A block is to be emptied; nothing of it is under way yet.
    pub(crate) fn set_up_job(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        plane: u32,
        victim: u32,
        (to, stream): (u32, Stream),
    ) {
        let Victim { had, .. } = ctx.ftl.begin_collection(plane, victim, (to, stream));
        self.jobs[plane as usize] = Job {
            victim,
            pages: ctx.ftl.pages_of(victim),
            valid: had,
            slc: ctx.ftl.is_slc(victim),
            to,
            stream,
            since_ns: now_ns,
            ..Job::NONE
        };
    }

    /// Whether collection that stepped aside so far must not any more: the host
    /// can open no further block in the plane.
    fn is_at_hard_limit(&self, ctx: &Media, plane: u32) -> bool {
        ctx.spec.gc.preemptible && !ctx.ftl.has_spare_block(plane)
    }

    /// Has a collection under way step aside no more where the host has to wait
    /// for it, and go before all else if the host needs its block: what is
    /// queued for it, and what follows until its end.
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

    /// What the operations of a plane's collection go before.
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

    /// Takes the next steps of a plane's collection.
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
        if job.has_pages_left() || job.reads > 0 {
            return;
        }
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

    /// Whether a collection may have another page under way. One more than its
    /// depth may be unprogrammed: the one that it is filling. A page that is
    /// copied on the chip is alone: another read would take its place in the
    /// page register.
    fn may_read_on(&self, ctx: &Media, job: &Job, priority: Priority) -> bool {
        if job.copies {
            return false;
        }
        let depth = match priority {
            Priority::Background => ctx.spec.gc.depth.min(BACKGROUND_DEPTH),
            _ => ctx.spec.gc.depth,
        };
        // A superpage has bounds of its own.
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

    /// Bytes on the channel of what is valid in a page.
    pub(crate) fn bytes_to_move(&mut self, ctx: &mut Media, block: u32, page: u32) -> u32 {
        self.page_owners.clear();
        self.page_owners.extend(ctx.ftl.owners(block, page));
        let is_valid = |&&(at, slot): &&(u32, u32)| ctx.ftl.holds_of(at, slot) != Holds::Nothing;
        let valid = self.page_owners.iter().filter(is_valid);
        self.codewords.of_units(valid.map(|(at, _)| *at))
    }

    /// A read or the erase of a collection is over. Returns what it has come to.
    pub(crate) fn collection_done(
        &mut self,
        ctx: &mut Media,
        now_ns: u64,
        op: &Transaction,
    ) -> Progress {
        let plane = op.plane;
        if op.kind == Operation::Erase {
            let job = &mut self.jobs[plane as usize];
            let ended = std::mem::replace(job, Job::NONE);
            self.count_collection(ctx, now_ns, &ended);
            ctx.ftl.end_collection(plane, op.block, ended.to);
            if ctx.ftl.wants_collection(plane)
                || self.block_to_fold(ctx, now_ns, plane).is_some()
                || ctx.ftl.cold_block(plane).is_some()
            {
                self.collect(ctx, now_ns, plane);
            } else {
                self.fold_later(ctx, now_ns);
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

    /// Whether collection is at work in the row of a plane.
    pub(crate) fn row_collects(&self, ctx: &Media, plane: u32) -> bool {
        let mut row = ctx.ftl.row_of(plane);
        row.any(|other| self.jobs[other as usize].is_running())
    }

    /// Whether others of the row go on to fill a page, so that it is not
    /// programmed half empty. Where the host waits for a job, its own last page
    /// is; a job leaves no more than that one partly empty (see
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

    /// Whether the host waits for a job that writes where a page is. (Not only
    /// to that page: none may pass another of its block.)
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

    /// A page of data that was moved is on the flash.
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

    /// A collection has put something into a page.
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

    /// Gives what is still needed of a page its new place.
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
    /// Whether a page can be copied within its plane as it is: all of it is
    /// wanted, and it becomes a page of its own there. The array reads it into the
    /// plane's page register, in its turn like all that collection reads, and
    /// programs it from there. (Until the copy is programmed, its slots are read as
    /// if they were in DRAM.)
    fn copies_on_chip(&self, ctx: &Media, plane: u32, job: &Job, page: u32) -> bool {
        if ctx.spec.flash.copyback == Copyback::None || job.slc || job.to != plane {
            return false;
        }
        let first = ctx.ftl.page_start(job.victim, page);
        let mut slots = first..first + ctx.ftl.slots_per_page();
        ctx.ftl.next_page(plane, job.stream).is_some()
            && slots.all(|at| ctx.ftl.holds(at) != Holds::Nothing)
    }

    /// A page is read into its plane's page register, no data on the channel.
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

    /// A page that was to be copied on the chip is not whole any more, or its
    /// place has been taken: what is left of it goes over the channel.
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
