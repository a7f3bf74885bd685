//! Garbage collection: blocks are emptied and erased.
//!
//! One block a plane is collected at a time: its valid slots are read, written
//! to a collection page, and when all of them are programmed the block is
//! erased. Which block that is says [`victim`], when the host waits for it
//! [`throttle`]; where the data goes is the translation layer's to say. Emptying
//! the SLC cache and merging logs are collection, too.
//!
//! A program may take the last free block of a plane, so whoever programs a page
//! has the collector do that.

mod collect;
mod fold;
mod merging;
mod superpage;
pub(crate) mod throttle;
pub(crate) mod victim;

use blklab_stats::DeviceStats;

use crate::Rng;
use crate::ssd::flash::Flash;
use crate::ssd::flash::codewords::Codewords;
use crate::ssd::flash::transaction::{Operation, Priority, Source};
use crate::ssd::ftl::blocks::NO_BLOCK;
use crate::ssd::ftl::{Ftl, Stream, Victim};
use crate::ssd::spec::Mapping;
use crate::ssd::spec::SsdSpec;
pub(crate) use fold::IDLE_CHECK;
use merging::Merging;
use superpage::Superpage;
use throttle::Pace;

/// What is below the collector: the translation layer and the flash.
#[derive(Clone, Debug)]
pub(crate) struct Media {
    pub(crate) spec: SsdSpec,
    pub(crate) flash: Flash,
    pub(crate) ftl: Ftl,
    pub(crate) stats: DeviceStats,
    /// Writes wait for room, as the write cache says.
    pub(crate) writes_wait: bool,
}

/// What a collection's transaction has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    None,
    /// A page was moved.
    Moved,
    /// A block is free.
    Erased,
}

/// A plane's collection under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) victim: u32,
    /// Pages of the victim.
    pub(crate) pages: u32,
    /// Valid slots that it had.
    pub(crate) valid: u32,
    /// It belongs to the SLC cache.
    pub(crate) slc: bool,
    /// The plane that its data goes to, and in which stream.
    pub(crate) to: u32,
    pub(crate) stream: Stream,
    /// It has found something to move.
    pub(crate) moves: bool,
    /// Slots that it has moved.
    pub(crate) moved: u32,
    /// The first page of the victim that it has not looked at.
    pub(crate) next_page: u32,
    pub(crate) reads: u32,
    pub(crate) programs: u32,
    /// The plane's page register holds a page that will be copied, or soon will.
    pub(crate) copies: bool,
    pub(crate) erasing: bool,
    /// The drive was in the midst of it at the start; it goes on when a plane is
    /// written.
    pub(crate) is_paused: bool,
    /// Something of it may be queued behind all else.
    pub(crate) in_background: bool,
    /// The host waits for it or soon will: it goes before all else.
    pub(crate) urgent: bool,
    pub(crate) since_ns: u64,
}

impl Job {
    pub(crate) const NONE: Job = Job {
        victim: NO_BLOCK,
        pages: 0,
        valid: 0,
        slc: false,
        to: 0,
        stream: Stream::Collection,
        moves: false,
        moved: 0,
        next_page: 0,
        reads: 0,
        programs: 0,
        copies: false,
        erasing: false,
        is_paused: false,
        in_background: false,
        urgent: false,
        since_ns: 0,
    };

    pub(crate) fn is_running(&self) -> bool {
        self.victim != NO_BLOCK
    }

    /// Whether it has not looked at all pages of the victim.
    pub(crate) fn has_pages_left(&self) -> bool {
        self.next_page < self.pages
    }

    /// Something of it is under way, so that it can be waited for.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_running() && !self.is_paused
    }
}

/// The collections of all planes.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    rng: Rng,
    jobs: Vec<Job>,
    /// Places and owners of a page that collection looks at, and of one that it
    /// moves, which may have it look at others.
    page_owners: Vec<(u32, u32)>,
    moving: Vec<(u32, u32)>,
    codewords: Codewords,
    /// What merges of logs do, plane by plane; empty where pages are mapped.
    merging: Vec<Merging>,
    /// Where the host is kept in step with collection.
    pace: Option<Pace>,
    /// Boxed, so that a drive without it only asks whether it is there.
    superpage: Option<Box<Superpage>>,
    /// Host pages queued for their program.
    programs_queued: u32,
    /// When the host's last command came or ended.
    host_ns: u64,
    /// An idle check is scheduled.
    idle_check: bool,
}

impl Collector {
    /// `rng` decides what is left to chance. See [`Collector::start`].
    pub(crate) fn new(spec: &SsdSpec, rng: Rng) -> Collector {
        let planes = spec.geometry.planes();
        Collector {
            rng,
            jobs: vec![Job::NONE; planes as usize],
            page_owners: Vec::new(),
            moving: Vec::new(),
            codewords: Codewords::new(spec),
            merging: match spec.ftl.mapping {
                Mapping::Page => Vec::new(),
                Mapping::Hybrid(_) => vec![Merging::default(); planes as usize],
            },
            pace: (spec.gc.pace_bytes > 0)
                .then(|| Pace::new(spec.gc.pace_bytes / spec.ftl.map_unit_bytes as u64)),
            superpage: (spec.flash.superpage).then(|| Box::new(Superpage::new(planes))),
            programs_queued: 0,
            host_ns: 0,
            idle_check: false,
        }
    }

    /// Takes up what the drive was in the midst of before its first command.
    pub(crate) fn start(&mut self, ctx: &mut Media) {
        for Victim { plane, block, had } in ctx.ftl.take_victims_at_start() {
            // Rounding can have left less room than a block needs: it waits.
            let valid = ctx.ftl.valid(block);
            if valid > ctx.ftl.room_in_row(plane) {
                continue;
            }
            self.set_up_job(ctx, 0, plane, block, (plane, Stream::Collection));
            let job = &mut self.jobs[plane as usize];
            (job.valid, job.is_paused) = (had, true);
        }
        self.slc_written(ctx, 0);
    }

    /// A command of the host's came or ended.
    #[inline]
    pub(crate) fn host_is_active(&mut self, now_ns: u64) {
        self.host_ns = now_ns;
    }

    /// When the host's last command came or ended.
    #[cfg(test)]
    pub(crate) fn host_ns(&self) -> u64 {
        self.host_ns
    }

    /// The collections of all planes.
    #[cfg(test)]
    pub(crate) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Whether pages of the host's are queued for their program.
    pub(crate) fn has_programs_queued(&self) -> bool {
        self.programs_queued > 0
    }

    /// A page of the host's is on the flash.
    pub(crate) fn host_page_programmed(&mut self) {
        self.programs_queued -= 1;
    }

    /// What is under way counts from `now_ns` on.
    pub(crate) fn count_from(&mut self, now_ns: u64) {
        self.jobs.iter_mut().for_each(|job| job.since_ns = now_ns);
        self.merging.iter_mut().for_each(|m| m.count_from(now_ns));
    }

    /// Closes a page and queues its program.
    pub(crate) fn program(&mut self, ctx: &mut Media, now_ns: u64, record: u32) {
        ctx.ftl.close(record);
        // Reads that the pages which it follows began later would be behind its
        // program, which waits for them.
        while let Some(leader) = ctx.ftl.open_leader_of(record) {
            self.program(ctx, now_ns, leader);
        }
        ctx.ftl.read_rests(&mut ctx.flash, now_ns, record);
        let page = ctx.ftl.record(record);
        let (plane, of_host) = (page.plane, page.stream.is_of_host());
        let cached = (page.stream == Stream::Slc).then_some(page.page);
        let bytes = ctx.spec.geometry.page_bytes;
        let mut op = ctx.ftl.transaction(
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
        if op.collects && !ctx.ftl.has_logs() && self.has_urgent_job(ctx, page) {
            op.priority = Priority::Urgent;
        }
        self.programs_queued += of_host as u32;
        let waits = self.waits_for_superpage(ctx, &op);
        op.ready &= !waits;
        let op = ctx.flash.enqueue(now_ns, op);
        ctx.ftl.record_mut(record).op = op;
        if waits {
            self.join_superpage(ctx, now_ns, op);
        }
        if ctx.ftl.wants_collection(plane) {
            self.collect(ctx, now_ns, plane);
        }
        if let Some(page) = cached {
            self.fold_ahead(ctx, now_ns, plane, page);
        }
    }

    /// Ends all collections where they are; returns them with their planes.
    fn abandon_collections(&mut self, ctx: &mut Media) -> Vec<(u32, Job)> {
        let mut running = Vec::new();
        for plane in 0..self.jobs.len() {
            let job = std::mem::replace(&mut self.jobs[plane], Job::NONE);
            if job.is_running() {
                ctx.ftl.abandon_collection(plane as u32, job.victim, job.to);
                running.push((plane as u32, job));
            }
        }
        running
    }

    /// A collection that the drive was at goes on when a plane is written, as one
    /// of an aged drive: what it has gained of its block is not lost. Others are
    /// chosen anew.
    fn restore_collection(&mut self, ctx: &mut Media, now_ns: u64, plane: u32, job: &Job) {
        let is_usual = job.stream == Stream::Collection && job.to == plane && !job.slc;
        let valid = ctx.ftl.valid(job.victim);
        if is_usual
            && valid > 0
            && ctx.ftl.is_written(job.victim)
            && ctx.ftl.destination(plane) == Some(plane)
            && valid <= ctx.ftl.most_to_move(plane, plane)
        {
            self.set_up_job(ctx, now_ns, plane, job.victim, (plane, Stream::Collection));
            let found = &mut self.jobs[plane as usize];
            (found.valid, found.is_paused) = (job.valid.max(valid), true);
        }
    }

    /// The power is gone: all that was under way is forgotten, and collections are
    /// taken up where they were.
    pub(crate) fn power_off(&mut self, ctx: &mut Media, now_ns: u64) {
        let jobs = self.abandon_collections(ctx);
        if ctx.ftl.has_logs() {
            ctx.ftl.abandon_merges();
            self.merging.iter_mut().for_each(Merging::power_off);
        }
        self.programs_queued = 0;
        if let Some(superpage) = &mut self.superpage {
            superpage.clear();
        }
        for (plane, job) in jobs {
            self.restore_collection(ctx, now_ns, plane, &job);
        }
    }

    /// The power is back, and the drive takes commands from `ready_ns` on.
    pub(crate) fn power_on(&mut self, ctx: &mut Media, ready_ns: u64) {
        self.host_ns = ready_ns;
        self.idle_check = false;
        self.fold_later(ctx, ready_ns);
    }
}
