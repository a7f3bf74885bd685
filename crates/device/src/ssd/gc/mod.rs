//! Garbage collection: blocks are emptied and erased.
//!
//! One block a plane is collected at a time: its valid slots are read and written to
//! a collection page, and when all of them are programmed the block is erased.
//! [`victim`] chooses the block, [`throttle`] decides when the host waits, and the
//! translation layer decides where the data goes. Folding the SLC cache and merging
//! logs are collection, too.
//!
//! A program may take the last free block of a plane, so all pages are programmed
//! through the collector.

mod collect;
mod fold;
mod merging;
mod superpage;
pub(crate) mod throttle;
pub(crate) mod victim;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

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
    /// Whether host writes wait for room in the write cache.
    pub(crate) writes_wait: bool,
}

/// What the end of a collection's transaction has achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    None,
    /// A page was moved.
    Moved,
    /// A block is free.
    Erased,
}

/// A plane's collection in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) victim: u32,
    /// Pages of the victim.
    pub(crate) pages: u32,
    /// Valid slots that the victim had at first.
    pub(crate) initially_valid: u32,
    /// The victim belongs to the SLC cache.
    pub(crate) slc: bool,
    /// The plane and stream that its data goes to.
    pub(crate) to: u32,
    pub(crate) stream: Stream,
    /// It has read a page with valid slots.
    pub(crate) moves: bool,
    /// Slots that it has moved.
    pub(crate) moved: u32,
    /// The first page of the victim that has not been examined.
    pub(crate) next_page: u32,
    pub(crate) reads: u32,
    pub(crate) programs: u32,
    /// A copyback is in progress, for which the plane's page register is taken.
    pub(crate) copies: bool,
    pub(crate) erasing: bool,
    /// It was in progress at the start, and resumes with the first collection.
    pub(crate) is_paused: bool,
    /// Some of its transactions may be queued with background priority.
    pub(crate) in_background: bool,
    /// The host waits for it, or is about to: its transactions are urgent.
    pub(crate) urgent: bool,
    pub(crate) since_ns: u64,
}

impl Job {
    pub(crate) const NONE: Job = Job {
        victim: NO_BLOCK,
        pages: 0,
        initially_valid: 0,
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

    /// Whether pages of the victim have not been examined.
    pub(crate) fn has_pages_left(&self) -> bool {
        self.next_page < self.pages
    }

    /// Whether it is running and not paused, so that the host may wait for it.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_running() && !self.is_paused
    }
}

/// The collections of all planes.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    rng: Rng,
    jobs: Vec<Job>,
    /// Buffers for the physical and logical slots of a page that is examined, and of one
    /// that is moved, during which others may be examined.
    page_owners: Vec<(u32, u32)>,
    moving: Vec<(u32, u32)>,
    codewords: Codewords,
    /// Merges of logs by plane; empty where pages are mapped.
    merging: Vec<Merging>,
    /// Where host writes are throttled to the pace of collection.
    pace: Option<Pace>,
    /// Boxed, to keep this small on drives without it.
    superpage: Option<Box<Superpage>>,
    /// Host pages queued for their program.
    programs_queued: u32,
    /// When the host's last command was submitted or completed.
    host_ns: u64,
    /// An idle check is scheduled.
    idle_check: bool,
}

impl Collector {
    /// A collector without collections; `rng` is for random choices of victims. See
    /// [`Collector::start`].
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

    /// Sets up the collections that were in progress before the first command.
    pub(crate) fn start(&mut self, ctx: &mut Media) {
        for Victim {
            plane,
            block,
            initially_valid,
        } in ctx.ftl.take_victims_at_start()
        {
            // Rounding can have left less room than the victim needs: it stays full.
            let valid = ctx.ftl.valid(block);
            if valid > ctx.ftl.room_in_row(plane) {
                continue;
            }
            self.set_up_job(ctx, 0, plane, block, (plane, Stream::Collection));
            let job = &mut self.jobs[plane as usize];
            (job.initially_valid, job.is_paused) = (initially_valid, true);
        }
        self.schedule_idle_check(ctx, 0);
    }

    /// A host command was submitted or completed.
    #[inline]
    pub(crate) fn host_is_active(&mut self, now_ns: u64) {
        self.host_ns = now_ns;
    }

    /// When the host's last command was submitted or completed.
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

    /// A host page is programmed.
    pub(crate) fn host_page_programmed(&mut self) {
        self.programs_queued -= 1;
    }

    /// Counts collections in progress from `now_ns` on.
    pub(crate) fn count_from(&mut self, now_ns: u64) {
        self.jobs.iter_mut().for_each(|job| job.since_ns = now_ns);
        self.merging.iter_mut().for_each(|m| m.count_from(now_ns));
    }

    /// Closes a page and queues its program.
    pub(crate) fn program(&mut self, ctx: &mut Media, now_ns: u64, record: u32) {
        ctx.ftl.close(record);
        // Its program waits for the reads of its leaders, so these are closed first: reads
        // that began later would queue behind the program.
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
        // Programs of one block must not overtake each other, so those of collection have
        // normal priority, like the host's, or are urgent; only its reads and erases
        // can run in the background.
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

    /// Abandons all collections; returns them with their planes.
    fn abandon_collections(&mut self, ctx: &mut Media) -> Vec<(u32, Job)> {
        let mut running = Vec::new();
        for plane in 0..self.jobs.len() {
            let job = core::mem::replace(&mut self.jobs[plane], Job::NONE);
            if job.is_running() {
                ctx.ftl.abandon_collection(plane as u32, job.victim, job.to);
                running.push((plane as u32, job));
            }
        }
        running
    }

    /// Sets an ordinary collection up again, paused as on an aged drive, so that its
    /// progress is not lost. Folds, wear levelling and moves to other planes are chosen
    /// anew.
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
            (found.initially_valid, found.is_paused) = (job.initially_valid.max(valid), true);
        }
    }

    /// Drops all transactions with the power, and sets collections up again where they
    /// were.
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
        self.recheck_when_idle(ctx, ready_ns);
    }
}
