//! ac2: this project's own scheduler, developed from the thesis's AC (see `ac`).
//!
//! It keeps AC's idea: know the drive's parallel parts, spread reads over them, gather writes, and
//! bound every wait. It removes AC's weaknesses: AC assumes that channels are contiguous ranges and
//! the only parallel parts, it knows only one bit of their load, it spreads sequential streams,
//! which drives already spread, and a reader with one request waits behind a reader with a hundred.
//!
//! - *Striping.* The die of a request follows from `stripe_kb`, page by page, as drives stripe. If
//!   channels hold contiguous ranges, as AC assumes, `ranges` gives their number, and pages are
//!   striped over the dies of a range.
//! - *Balance.* Reads queue up on dies: a channel transfers a page in a fraction of the time that a
//!   die takes to read it. The requests in the drive are counted for each die, and a read goes to the
//!   least loaded die. A write counts `write_weight` times, so that reads avoid dies that write
//!   without being forbidden there.
//! - *A bound on reordering.* Reads go in the order of arrival, but each request in the drive on a
//!   read's die moves it back by `overtake` places. The longer a read has waited, the less load can
//!   hold it back, so a later read overtakes it only while that is worthwhile, and tail latency stays
//!   near that of the order of arrival.
//! - *Light submitters first.* A read of a submitter that had at most `light_depth` requests
//!   outstanding at each of its last 16 requests goes before those of deeper submitters: it costs
//!   them one place and saves it their whole queue. While there are light submitters, deeper ones'
//!   reads wait in the scheduler, where they can be overtaken, instead of in a drive that already has
//!   `die_depth` requests for their die: one being served and one to follow.
//! - *Streams.* The third request in a row of a submitter that continues the previous one belongs
//!   to a stream. Requests of streams go in order of arrival, which preserves the drive's own
//!   striping, read-ahead and erase blocks.
//! - *Writes by erase block.* Other writes are sent block by block (`block_kb`), beginning with the
//!   block of the oldest write.
//! - *Turns.* A deep submitter's read goes before a write that came at most `read_lead` requests
//!   earlier. Light submitters' reads go first, but after `reads_run` of them it is the turn of
//!   waiting writes, of which `write_run` go. While there are reads, writes take at most
//!   `write_share` of the drive's queue. The default is the whole queue: with a write cache a read
//!   waits for cached writes, not for queued ones, so delaying writes only costs throughput.
//! - *Tags.* While there are reads, or if their submitter has more than an even share of the
//!   scheduler's tags, writes take at most `tag_share` of the tags, so that others find one. The same
//!   limit applies to deep submitters' reads while there are light ones, which would otherwise wait
//!   for a tag as long as for the drive.
//! - *Deadlines.* As in AC there are four kinds, each in order of arrival; after every
//!   `batch_limit` dispatches the heads are checked, and the first late one goes.
//!
//! Every decision looks at the head of a list or of at most 64 dies' lists, so its time does not
//! depend on the number of queued requests.

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

use crate::fifos::Bundles;
use crate::{ElevatorType, StepCosts};
use tunables::{
    BATCH_LIMIT, BLOCK_KB, DIE_DEPTH, DIES, EXPIRE, LIGHT_DEPTH, MAX_DIES, OVERTAKE, RANGES,
    READ_LEAD, READS_RUN, STRIPE_KB, TAG_SHARE, TUNABLES, WRITE_RUN, WRITE_SHARE, WRITE_WEIGHT,
};

const READ: usize = 0;
const WRITE: usize = 1;
/// Kinds of each direction: synchronous, then asynchronous.
const KINDS: usize = 2;
/// A request belongs to a stream after this many requests in a row that continued the previous one.
const STREAM_RUN: u32 = 2;
/// A request that finds more than `light_depth` outstanding makes its submitter deep; this many
/// requests in a row with fewer make it light again. A submitter that gets few tags sometimes has
/// few requests outstanding without being light.
const DEEP_RUN: u32 = 16;
/// How long a completed read counts as recent.
const READS_RECENT: Nanos = Nanos::from_millis(10);
/// How long a light submitter's read counts as recent; such submitters think between reads.
const LIGHT_RECENT: Nanos = Nanos::from_millis(100);

/// `elv[1]` of a deep submitter's read: the number of such reads that came before it. For a write
/// it is the index of its bundle.
const ELV_CAME: usize = 1;

/// A submitter: its outstanding requests, the number of further requests for which it counts as
/// deep, and the end of its last request in each direction.
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

/// The list that a queued request is in besides its deadline list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A read of a light submitter, by die.
    Light = 0,
    Deep = 1,
    /// A request of a sequential stream.
    Stream = 2,
    /// A write, by erase block.
    Block = 3,
}

/// The contents of a request's `elv[0]`.
#[derive(Clone, Copy)]
struct ElvWord(u32);

impl ElvWord {
    const QUEUED: u32 = 1;
    /// Whether it counts in the load of its die.
    const IN_DRIVE: u32 = 2;
    /// Whether it counts in its submitter's outstanding requests.
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

    /// The request's weight in its die's load, stored because the tunable may change while the
    /// drive has it.
    fn weight(self) -> u32 {
        self.0 >> 16
    }
}

/// Number of load levels that are distinguished.
const LEVELS: usize = 32;

/// The load of each die, and the dies at each level.
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

    /// The first of the least loaded dies in `dies`, at or after `from`.
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

/// Contiguous ranges, each striped page by page over dies of its own.
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

    /// The die that contains an address.
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
    /// Number of submitters with requests outstanding.
    active: u32,
    /// Reads of light and of deep submitters, by die.
    dies: Box<[[RqList; 2]; MAX_DIES]>,
    /// Dies with reads of light and of deep submitters.
    held: [u64; 2],
    read_stream: RqList,
    read_deadlines: [RqList<1>; KINDS],
    /// Writes by age, which is the order of their deadlines.
    writes: [RqList; KINDS],
    write_stream: RqList<1>,
    blocks: Bundles,
    loads: Loads,
    next_die: usize,
    in_drive: [u32; 2],
    /// Number of deep submitters' reads that have come, and that have left.
    deep_came: u32,
    deep_left: u32,
    last_enqueue: Nanos,
    last_read: Option<Nanos>,
    last_light: Option<Nanos>,
    /// Number of consecutive reads and of consecutive writes.
    run: [i64; 2],
    batched: i64,
    /// Time at which the hardware queues should be run.
    run_at: Option<Nanos>,
    light: u64,
    streamed: u64,
    bundles: u64,
    expired: u64,
    held_back: u64,
}

impl Ac2 {
    /// Returns a scheduler without requests and with default tunables.
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

    /// Whether a light submitter has read recently.
    fn light_may_come(&self, now: Nanos) -> bool {
        is_recent(self.last_light, now, LIGHT_RECENT)
    }

    /// Counts a submitter's request and determines its class.
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

    /// Records that a request has left the drive.
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

    /// Removes a request. One that is merged during its insertion is in no list yet.
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

    /// Records the dispatch of a request.
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

    /// The first late request among the oldest of each kind.
    fn late_request(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let reads = self.read_deadlines.iter().filter_map(RqList::front);
        let writes = self.writes.iter().filter_map(RqList::front);
        reads
            .chain(writes)
            .find(|&id| ctx.rqs[id].fifo_time <= ctx.now)
    }

    /// Whether the oldest write goes before this read. Up to `reads_run` reads of light submitters
    /// in a row go before it, and deep submitters' reads that came at most `read_lead` requests
    /// after it.
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

    /// The place of a deep submitter's read in the order of arrival, moved back by `overtake` for
    /// each request in the drive on its die.
    fn place(&self, ctx: &SchedCtx<'_>, id: RequestId) -> i64 {
        let rq = &ctx.rqs[id];
        let waiting_before = rq.elv[ELV_CAME].wrapping_sub(self.deep_left) as i32 as i64;
        let load = self.loads.load[ElvWord::of(rq).die()] as i64;
        waiting_before + load * self.queue.tunables.at(OVERTAKE)
    }

    /// The read of the least loaded die, light submitters' before others. A deep submitter's read
    /// is not chosen if its die has `die_depth` requests in the drive and a light submitter may
    /// come, because requests in the drive cannot be overtaken.
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

    /// The next write of the current block; if there is none, the older of the next write of
    /// streams and the oldest write, whose block becomes current.
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

    /// Whether writes have used up their share of the drive while there are reads.
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

    /// Limits writes to a part of the tags while there are reads or if their submitter has more
    /// than an even share, and limits deep submitters' reads while there are light ones.
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

    /// A merged bio extends the position at which a stream continues.
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

    /// A submitter is forgotten with the last of its requests.
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

    /// Requests stay on the die that they were assigned to.
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

/// Entry in the registry of schedulers.
pub const AC2: ElevatorType = ElevatorType {
    name: "ac2",
    help: "reads to the least loaded channel, light submitters first, writes by erase block",
    source: "this project; goes on from ac",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 61,
        insert: 98,
        dispatch: 148,
        finish: 36,
    }),
    build: Some(&|info| Box::new(Ac2::new(info))),
};
