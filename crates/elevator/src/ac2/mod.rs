//! ac2: our own scheduler, going on from the thesis's AC (see `ac`).
//!
//! AC's idea is kept: know the drive's parallel parts, spread reads over them,
//! gather writes, and bound every wait. Its weaknesses are that it takes channels
//! for contiguous ranges and for the only parallel parts, that it knows one bit of
//! their load, that it spreads sequential streams, which drives spread already, and
//! that a reader with one request waits behind one with a hundred.
//!
//! - *Striping.* A request's die follows from `stripe_kb`, page by page, as
//!   drives stripe. Where channels hold contiguous ranges, as AC takes them to,
//!   `ranges` says how many, and pages are striped over a range's dies.
//! - *Balance.* It is dies that reads queue up on: a channel moves a page in a
//!   fraction of the time its dies take to read it. Each die's requests in the
//!   drive are counted, and a read goes to the die that has fewest. A write
//!   counts `write_weight` times, so that reads keep away from dies that write
//!   without being forbidden.
//! - *A bound on that.* Reads go in the order of arrival, in which each request
//!   that a read's die has in the drive puts it back by `overtake` places: the
//!   longer one has waited, the more load it may add to. So who comes later goes
//!   before it only while that is worth it, and the tail stays near that of the
//!   order of arrival.
//! - *Light submitters first.* A read of a submitter that has had no more than
//!   `light_depth` requests outstanding at its last 16 goes before those of deeper
//!   ones: it costs them one place, and spares it their whole queue. While there
//!   are such, deeper ones' reads wait in the scheduler, where they can be passed,
//!   rather than in a drive that has `die_depth` requests for their die and is
//!   kept busy by them: one at work and one to follow.
//! - *Streams.* A submitter's third request in a row where the last one ended is
//!   a stream. Its requests go in order of arrival: that keeps the drive's own
//!   striping, its read-ahead and its erase blocks as they would be.
//! - *Writes by erase block.* Other writes are sent block by block
//!   (`block_kb`), the block of the oldest write first.
//! - *Turns.* A deep submitter's read goes before a write that came no more
//!   than `read_lead` requests before it; light ones' go first, but after
//!   `reads_run` of them while writes wait it is the writes' turn. Then
//!   `write_run` writes go. While there are reads, writes take no more than
//!   `write_share` of the drive's queue. That is all of it by default: a drive
//!   with a write cache keeps a read waiting for what it has cached, not for what
//!   it has queued, and writes held back only cost.
//! - *Tags.* Where there are reads, and where their submitter has more than an
//!   even share of the scheduler's tags, writes take no more than `tag_share` of
//!   them, so that others find one; and so do deep submitters' reads while there
//!   are light ones, which would wait for a tag as long as for the drive.
//! - *Deadlines.* As AC: four kinds, each in order of arrival; every
//!   `batch_limit` dispatches the heads are looked at, and the first that is late
//!   goes.
//!
//! Every decision looks at the head of a list or of at most 64 dies' lists, so it
//! takes the same time whatever is queued.

#[cfg(test)]
mod tests;
mod tunables;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::{
    Bio, Elevator, ElevatorQueue, MergeKind, Nanos, QueueInfo, Request, RequestId, RqList,
    SchedCtx, SubmitterId, TunableError, Tunables,
};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use strength_reduce::StrengthReducedU64;

use crate::ElevatorType;
use crate::fifos::Bundles;
use tunables::{
    BATCH_LIMIT, BLOCK_KB, DIE_DEPTH, DIES, EXPIRE, LIGHT_DEPTH, MAX_DIES, OVERTAKE, RANGES,
    READ_LEAD, READS_RUN, STRIPE_KB, TAG_SHARE, TUNABLES, WRITE_RUN, WRITE_SHARE, WRITE_WEIGHT,
};

const READ: usize = 0;
const WRITE: usize = 1;
/// Of each direction, synchronous first.
const KINDS: usize = 2;
/// Requests in a row where the last one ended, after which the next is of a
/// stream.
const STREAM_RUN: u32 = 2;
/// A request that finds more than `light_depth` outstanding makes its submitter deep;
/// this many requests in a row that find fewer make it light again. A submitter that
/// gets few tags has little outstanding at times without being light.
const DEEP_RUN: u32 = 16;
/// How long a read counts as recent.
const READS_RECENT: Nanos = Nanos::from_millis(10);
/// How long a light submitter's read does: they think between their reads.
const LIGHT_RECENT: Nanos = Nanos::from_millis(100);

/// `elv[1]` of a read of a deep submitter: how many of those came before it. A
/// write's is its bundle's.
const ELV_CAME: usize = 1;

/// A submitter: how much it has outstanding, for how many more requests it counts as
/// deep, and where its last request of each direction ended.
#[derive(Clone, Copy, Debug, Default)]
struct Submitter {
    outstanding: u32,
    deep_for: u32,
    last_end: [u64; 2],
    in_a_row: [u32; 2],
    exited: bool,
}

fn is_recent(at: Option<Nanos>, now: Nanos, span: Nanos) -> bool {
    at.is_some_and(|at| now.saturating_sub(at) < span)
}

/// Which list a queued request is in, beside the one of its deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A read of a light submitter, and one of another, by die.
    Light = 0,
    Deep = 1,
    /// Part of a sequential stream.
    Stream = 2,
    /// A write, by erase block.
    Block = 3,
}

/// What `elv[0]` says of a request.
#[derive(Clone, Copy)]
struct ElvWord(u32);

impl ElvWord {
    const QUEUED: u32 = 1;
    /// It is in its die's load.
    const IN_DRIVE: u32 = 2;
    /// It is one of its submitter's outstanding requests.
    const COUNTED: u32 = 4;

    fn of(rq: &Request) -> ElvWord {
        ElvWord(rq.elv[0])
    }

    fn new(class: Class, kind: usize, die: usize) -> ElvWord {
        ElvWord((class as u32) << 3 | (kind as u32) << 5 | (die as u32) << 8)
    }

    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    fn class(self) -> Class {
        match self.0 >> 3 & 3 {
            0 => Class::Light,
            1 => Class::Deep,
            2 => Class::Stream,
            _ => Class::Block,
        }
    }

    fn kind(self) -> usize {
        (self.0 >> 5 & 1) as usize
    }

    fn die(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    /// Its weight in its die's load, kept because the tunable may change while the
    /// drive has it.
    fn weight(self) -> u32 {
        self.0 >> 16
    }
}

/// Levels of load that are distinguished.
const LEVELS: usize = 32;

/// The load of each die, and the dies of each level.
struct Loads {
    load: [u32; MAX_DIES],
    levels: [u64; LEVELS],
}

impl Loads {
    fn new() -> Loads {
        let mut levels = [0; LEVELS];
        levels[0] = u64::MAX;
        Loads {
            load: [0; MAX_DIES],
            levels,
        }
    }

    fn level(load: u32) -> usize {
        (load as usize).min(LEVELS - 1)
    }

    fn set(&mut self, die: usize, load: u32) {
        let before = core::mem::replace(&mut self.load[die], load);
        self.levels[Self::level(before)] &= !(1 << die);
        self.levels[Self::level(load)] |= 1 << die;
    }

    /// Of `dies`, one of the least loaded: the first at or behind `from`.
    fn least(&self, dies: u64, from: usize) -> Option<usize> {
        if dies == 0 {
            return None;
        }
        let level = self.levels.iter().find(|&&level| level & dies != 0)?;
        let set = level & dies;
        let ahead = set & (u64::MAX << from);
        let die = if ahead != 0 { ahead } else { set }.trailing_zeros();
        Some(die as usize)
    }
}

/// Ranges of whole pages, each over dies of its own, page by page.
#[derive(Clone, Copy)]
struct Layout {
    sectors_per_page: StrengthReducedU64,
    pages_per_range: StrengthReducedU64,
    dies_per_range: StrengthReducedU64,
}

impl Layout {
    fn new(tunables: &Tunables, capacity_sectors: u64) -> Layout {
        let dies = tunables.at(DIES) as u64;
        let ranges = (tunables.at(RANGES) as u64).min(dies);
        let page = tunables.at(STRIPE_KB) as u64 * 2;
        let pages = capacity_sectors.div_ceil(page);
        Layout {
            sectors_per_page: StrengthReducedU64::new(page),
            pages_per_range: StrengthReducedU64::new(pages.div_ceil(ranges).max(1)),
            dies_per_range: StrengthReducedU64::new(dies / ranges),
        }
    }

    /// Which die an address is on.
    fn die_of(&self, sector: u64) -> usize {
        let page = sector / self.sectors_per_page;
        let (range, page) = StrengthReducedU64::div_rem(page, self.pages_per_range);
        let die = page % self.dies_per_range;
        (range * self.dies_per_range.get() + die) as usize
    }
}

/// The scheduler's state.
pub struct Ac2 {
    queue: ElevatorQueue,
    info: QueueInfo,
    layout: Layout,
    submitters: HashMap<SubmitterId, Submitter, FxBuildHasher>,
    /// Those of them that have requests outstanding.
    active: u32,
    /// Reads of light and of deep submitters, by die.
    dies: Box<[[RqList; 2]; MAX_DIES]>,
    /// Dies that have any of either.
    held: [u64; 2],
    read_stream: RqList,
    read_deadlines: [RqList<1>; KINDS],
    /// Writes by age, which is by deadline.
    writes: [RqList; KINDS],
    write_stream: RqList<1>,
    blocks: Bundles,
    loads: Loads,
    next_die: usize,
    in_drive: [u32; 2],
    /// Reads of deep submitters that came, and that left, so far.
    deep_came: u32,
    deep_left: u32,
    last_enqueue: Nanos,
    last_read: Option<Nanos>,
    last_light: Option<Nanos>,
    /// Reads and writes in a row.
    run: [i64; 2],
    batched: i64,
    /// When the hardware queues are to be run.
    run_at: Option<Nanos>,
    light: u64,
    streamed: u64,
    bundles: u64,
    expired: u64,
    held_back: u64,
}

impl Ac2 {
    /// One without requests, its tunables at their defaults.
    pub fn new(info: &QueueInfo) -> Ac2 {
        let queue = AC2.queue();
        Ac2 {
            layout: Layout::new(&queue.tunables, info.capacity_sectors),
            queue,
            info: info.clone(),
            submitters: HashMap::default(),
            active: 0,
            dies: Box::new([[RqList::new(); 2]; MAX_DIES]),
            held: [0; 2],
            read_stream: RqList::new(),
            read_deadlines: [RqList::new(); KINDS],
            writes: [RqList::new(); KINDS],
            write_stream: RqList::new(),
            blocks: Bundles::default(),
            loads: Loads::new(),
            next_die: 0,
            in_drive: [0; 2],
            deep_came: 0,
            deep_left: 0,
            last_enqueue: Nanos::ZERO,
            last_read: None,
            last_light: None,
            run: [0; 2],
            batched: 0,
            run_at: None,
            light: 0,
            streamed: 0,
            bundles: 0,
            expired: 0,
            held_back: 0,
        }
    }

    fn has_more_than_its_share(&self, submitter: SubmitterId) -> bool {
        let submitter = self.submitters.get(&submitter);
        submitter.is_some_and(|s| s.outstanding * self.active > self.info.nr_requests)
    }

    fn leaves_tags_to_light_ones(&self, submitter: SubmitterId) -> bool {
        let submitter = self.submitters.get(&submitter);
        submitter.is_some_and(|s| s.deep_for > 0) && self.light_may_come(self.last_enqueue)
    }

    /// Whether a light submitter has read of late.
    fn light_may_come(&self, now: Nanos) -> bool {
        is_recent(self.last_light, now, LIGHT_RECENT)
    }

    /// Records a submitter's request and classifies it.
    fn classify(&mut self, rq: &Request) -> Class {
        let dir = rq.is_write() as usize;
        let submitter = self.submitters.entry(rq.submitter).or_default();
        self.active += (submitter.outstanding == 0) as u32;
        submitter.outstanding += 1;
        submitter.deep_for =
            match submitter.outstanding as i64 > self.queue.tunables.at(LIGHT_DEPTH) {
                true => DEEP_RUN,
                false => submitter.deep_for.saturating_sub(1),
            };
        let follows = submitter.last_end[dir] == rq.sector.0;
        submitter.last_end[dir] = rq.end().0;
        submitter.in_a_row[dir] = if follows {
            submitter.in_a_row[dir].saturating_add(1)
        } else {
            0
        };
        if submitter.in_a_row[dir] >= STREAM_RUN {
            Class::Stream
        } else if dir == WRITE {
            Class::Block
        } else if submitter.deep_for == 0 {
            Class::Light
        } else {
            Class::Deep
        }
    }

    fn has_reads(&self) -> bool {
        self.held != [0; 2] || !self.read_stream.is_empty()
    }

    fn has_writes(&self) -> bool {
        self.writes.iter().any(|fifo| !fifo.is_empty())
    }

    /// A request is no longer in the drive.
    fn left_drive(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let word = ElvWord::of(rq);
        if !word.has(ElvWord::IN_DRIVE) {
            return;
        }
        rq.elv[0] &= ElvWord::COUNTED;
        let dir = rq.is_write() as usize;
        self.in_drive[dir] -= 1;
        let die = word.die();
        self.loads.set(die, self.loads.load[die] - word.weight());
        if dir == READ {
            self.last_read = Some(ctx.now);
        }
        if self.has_reads() || self.has_writes() {
            self.run_at = Some(ctx.now);
        }
    }

    /// Chooses the next request to dispatch.
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let mut late = None;
        if self.batched >= self.queue.tunables.at(BATCH_LIMIT) {
            self.batched = 0;
            late = self.late_request(ctx);
            self.expired += late.is_some() as u64;
        }
        late.or_else(|| self.next_in_turn(ctx))
    }

    /// Removes a request; one that merges while it is inserted is in no list yet.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let word = ElvWord::of(&ctx.rqs[id]);
        if !word.has(ElvWord::QUEUED) {
            return;
        }
        ctx.rqs[id].elv[0] &= !ElvWord::QUEUED;
        ctx.merge.remove(ctx.rqs, id);
        let (class, kind) = (word.class(), word.kind());
        if ctx.rqs[id].is_write() {
            self.writes[kind].remove(ctx.rqs, id);
            return match class {
                Class::Stream => self.write_stream.remove(ctx.rqs, id),
                _ => self.blocks.remove(ctx.rqs, id),
            };
        }
        self.read_deadlines[kind].remove(ctx.rqs, id);
        if class != Class::Light {
            self.deep_left = self.deep_left.wrapping_add(1);
        }
        if class == Class::Stream {
            return self.read_stream.remove(ctx.rqs, id);
        }
        let queue = &mut self.dies[word.die()][class as usize];
        queue.remove(ctx.rqs, id);
        if queue.is_empty() {
            self.held[class as usize] &= !(1 << word.die());
        }
    }

    /// A request that was taken out goes to the drive.
    fn enter_drive(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let (dir, word) = (rq.is_write() as usize, ElvWord::of(rq));
        let weight = match dir {
            READ => 1,
            _ => self.queue.tunables.at(WRITE_WEIGHT) as u32,
        };
        rq.elv[0] |= ElvWord::IN_DRIVE | weight << 16;
        let die = word.die();
        self.loads.set(die, self.loads.load[die] + weight);
        self.next_die = (die + 1) % MAX_DIES;
        self.in_drive[dir] += 1;
        self.run[dir] += 1;
        self.run[1 - dir] = 0;
        self.batched += 1;
        if word.class() == Class::Light {
            self.light += 1;
            self.last_light = Some(ctx.now);
        }
        self.streamed += (word.class() == Class::Stream) as u64;
    }

    /// The first of each kind's oldest that is late.
    fn late_request(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let reads = self.read_deadlines.iter().filter_map(RqList::front);
        let writes = self.writes.iter().filter_map(RqList::front);
        reads
            .chain(writes)
            .find(|&id| ctx.rqs[id].fifo_time <= ctx.now)
    }

    /// Whether the oldest write goes before this read. A light submitter's read
    /// it lets pass, but no more than `reads_run` in a row; a deep one's that came
    /// no more than `read_lead` requests after it.
    fn write_goes_before(&self, ctx: &SchedCtx<'_>, read: RequestId) -> bool {
        if self.run[WRITE] > 0 && self.run[WRITE] < self.queue.tunables.at(WRITE_RUN) {
            return true;
        }
        let rq = &ctx.rqs[read];
        if ElvWord::of(rq).class() == Class::Light {
            return self.run[READ] >= self.queue.tunables.at(READS_RUN);
        }
        let lead = self.queue.tunables.at(READ_LEAD) as u64;
        let oldest = self.writes.iter().find_map(RqList::front);
        oldest.is_some_and(|write| ctx.rqs[write].serial + lead < rq.serial)
    }

    /// The place of a deep submitter's read in the order of arrival, put back by
    /// `overtake` for each request that its die has in the drive.
    fn place(&self, ctx: &SchedCtx<'_>, id: RequestId) -> i64 {
        let rq = &ctx.rqs[id];
        let waiting_before = rq.elv[ELV_CAME].wrapping_sub(self.deep_left) as i32 as i64;
        let load = self.loads.load[ElvWord::of(rq).die()] as i64;
        waiting_before + load * self.queue.tunables.at(OVERTAKE)
    }

    /// The read of the least loaded die, light submitters' before others. Of a
    /// deep submitter's, none where its die has `die_depth` in the drive and a
    /// light one may come: what is in the drive already cannot be passed.
    fn choose_read(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let light = self
            .loads
            .least(self.held[Class::Light as usize], self.next_die);
        if let Some(die) = light {
            return self.dies[die][Class::Light as usize].front();
        }
        let most = self.queue.tunables.at(DIE_DEPTH);
        let light_may_come = most > 0 && self.light_may_come(ctx.now);
        let may_go = |id: &RequestId| {
            !light_may_come || (self.loads.load[ElvWord::of(&ctx.rqs[*id]).die()] as i64) < most
        };
        let mut left = self.held[Class::Deep as usize];
        let heads = core::iter::from_fn(|| {
            let die = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(die)
        });
        heads
            .filter_map(|die| self.dies[die][Class::Deep as usize].front())
            .chain(self.read_stream.front())
            .filter(may_go)
            .min_by_key(|&id| self.place(ctx, id))
    }

    /// The next write of the present block; with none left, the older of the
    /// streams' next and the oldest of all, whose block becomes the present one.
    fn choose_write(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        if let Some(id) = self.blocks.front() {
            return Some(id);
        }
        let oldest = self.writes.iter().find_map(RqList::front)?;
        let stream = self.write_stream.front();
        if let Some(stream) = stream
            && (ctx.rqs[stream].serial <= ctx.rqs[oldest].serial)
        {
            return Some(stream);
        }
        if ElvWord::of(&ctx.rqs[oldest]).class() == Class::Block {
            self.blocks.start(ctx.rqs, oldest);
            self.bundles += 1;
        }
        Some(oldest)
    }

    /// Whether writes have their share of the drive while reads need theirs.
    fn writes_have_their_share(&self, now: Nanos) -> bool {
        let recent = self.in_drive[READ] > 0 || is_recent(self.last_read, now, READS_RECENT);
        let depth = self.info.queue_depth as i64;
        let most = (depth * self.queue.tunables.at(WRITE_SHARE) / 100).max(1);
        recent && self.in_drive[WRITE] as i64 >= most
    }

    fn next_in_turn(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let read = self.choose_read(ctx);
        let may_write = self.has_writes() && !self.writes_have_their_share(ctx.now);
        let write_first = read.is_none_or(|read| self.write_goes_before(ctx, read));
        if may_write && write_first {
            return self.choose_write(ctx);
        }
        self.held_back += (read.is_none() && self.has_writes()) as u64;
        read
    }
}

impl Elevator for Ac2 {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn depth_updated(&mut self, info: &QueueInfo) {
        self.info = info.clone();
        self.layout = Layout::new(&self.queue.tunables, info.capacity_sectors);
    }

    /// Writes leave a part of the tags to reads where there are any, and to the
    /// others where their submitter has more than an even share. Deep submitters'
    /// reads leave it to light ones.
    fn limit_depth_for(&mut self, bio: &Bio) -> Option<u32> {
        let may_have_all = match bio.op.is_write() {
            false => !self.leaves_tags_to_light_ones(bio.submitter),
            true => {
                let reads = self.in_drive[READ] > 0 || self.has_reads();
                bio.is_sync() && !reads && !self.has_more_than_its_share(bio.submitter)
            }
        };
        if may_have_all {
            return None;
        }
        let share = self.queue.tunables.at(TAG_SHARE) as u32;
        Some((self.info.nr_requests * share / 100).max(1))
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        Some(1)
    }

    /// A stream goes on behind what merged.
    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        let rq = &ctx.rqs[id];
        if kind == MergeKind::Back
            && let Some(submitter) = self.submitters.get_mut(&rq.submitter)
        {
            submitter.last_end[rq.is_write() as usize] = rq.end().0;
        }
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, _id: RequestId, next: RequestId) {
        self.queue.count_merge();
        self.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let word = ElvWord::of(&ctx.rqs[id]);
        match (word.class(), ctx.rqs[id].is_write()) {
            (Class::Stream, false) => self.read_stream.prev(ctx.rqs, id),
            (Class::Stream, true) => self.write_stream.prev(ctx.rqs, id),
            (_, true) => self.blocks.prev(ctx.rqs, id),
            (class, false) => self.dies[word.die()][class as usize].prev(ctx.rqs, id),
        }
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let word = ElvWord::of(&ctx.rqs[id]);
        match (word.class(), ctx.rqs[id].is_write()) {
            (Class::Stream, false) => self.read_stream.next(ctx.rqs, id),
            (Class::Stream, true) => self.write_stream.next(ctx.rqs, id),
            (_, true) => self.blocks.next(ctx.rqs, id),
            (class, false) => self.dies[word.die()][class as usize].next(ctx.rqs, id),
        }
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (dir, kind) = (rq.is_write() as usize, !rq.is_sync() as usize);
        let (class, die) = (self.classify(rq), self.layout.die_of(rq.sector.0));
        self.last_enqueue = ctx.now;
        let expire = Nanos::from_millis(self.queue.tunables.at(EXPIRE + 2 * dir + kind) as u64);
        let block = rq.sector.0 / (self.queue.tunables.at(BLOCK_KB) as u64 * 2);
        ctx.rqs[id].fifo_time = ctx.now.saturating_add(expire);
        let word = ElvWord::new(class, kind, die);
        ctx.rqs[id].elv[0] = word.0 | ElvWord::QUEUED | ElvWord::COUNTED;
        if dir == READ {
            if class != Class::Light {
                ctx.rqs[id].elv[ELV_CAME] = self.deep_came;
                self.deep_came = self.deep_came.wrapping_add(1);
            }
            self.read_deadlines[kind].push_back(ctx.rqs, id);
        } else {
            self.writes[kind].push_back(ctx.rqs, id);
        }
        match (class, dir) {
            (Class::Stream, READ) => self.read_stream.push_back(ctx.rqs, id),
            (Class::Stream, _) => self.write_stream.push_back(ctx.rqs, id),
            (Class::Block, _) => self.blocks.add(ctx.rqs, id, block),
            (Class::Light | Class::Deep, _) => {
                self.dies[die][class as usize].push_back(ctx.rqs, id);
                self.held[class as usize] |= 1 << die;
            }
        }
        ctx.merge.add(ctx.rqs, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.queue.pop_head(ctx) {
            return Some(id);
        }
        let id = self.choose(ctx)?;
        self.remove(ctx, id);
        self.enter_drive(ctx, id);
        self.queue.send(ctx, id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.queue.head.is_empty() || self.has_reads() || self.has_writes()
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.left_drive(ctx, id);
    }

    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.left_drive(ctx, id);
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let counted = ElvWord::of(rq).has(ElvWord::COUNTED);
        rq.elv[0] = 0;
        if counted && let Some(submitter) = self.submitters.get_mut(&rq.submitter) {
            submitter.outstanding -= 1;
            let (done, exited) = (submitter.outstanding == 0, submitter.exited);
            self.active -= done as u32;
            if done && exited {
                self.submitters.remove(&ctx.rqs[id].submitter);
            }
        }
    }

    /// It is forgotten with the last of its requests.
    fn has_submitters() -> bool {
        true
    }

    fn exit_submitter(&mut self, _ctx: &mut SchedCtx<'_>, submitter: SubmitterId) {
        if let Some(known) = self.submitters.get_mut(&submitter) {
            known.exited = true;
            if known.outstanding == 0 {
                self.submitters.remove(&submitter);
            }
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.run_at
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        self.run_at.take_if(|at| *at <= ctx.now).is_some()
    }

    /// Requests stay on the die that they were put on.
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.queue.tunables.set(name, value)?;
        self.layout = Layout::new(&self.queue.tunables, self.info.capacity_sectors);
        Ok(())
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        vec![
            ("reads_in_drive", self.in_drive[READ] as i64),
            ("writes_in_drive", self.in_drive[WRITE] as i64),
            ("reads_in_a_row", self.run[READ]),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([
            ("expired deadlines", self.expired),
            ("reads of light submitters", self.light),
            ("requests of streams", self.streamed),
            ("bundles", self.bundles),
            ("times writes were held", self.held_back),
        ])
    }
}

/// Its entry in the registry.
pub const AC2: ElevatorType = ElevatorType {
    name: "ac2",
    help: "reads to the least loaded channel, light submitters first, writes by erase block",
    source: "this project; goes on from ac",
    tunables: TUNABLES,
    attributes: &[],
    costs_like: Some("mq-deadline"),
    build: Some(&|info| Box::new(Ac2::new(info))),
};
