//! ac2: our own scheduler, going on from the thesis's AC (see `ac`).
//!
//! AC's idea is kept: know the drive's parallel parts, spread reads over them,
//! gather writes, and bound what anybody waits. Its weaknesses are that it takes
//! a channel to be one contiguous range and to be all there is, that it knows one
//! bit of its load, that it spends itself on sequential streams, which are spread
//! already, and that a reader with one request waits behind one with a hundred.
//!
//! - *Striping.* A request's die follows from `stripe_kb`, page by page and
//!   channels first, as drives stripe; 0 makes contiguous ranges, as AC.
//! - *Balance.* It is dies that reads queue up on: a channel moves a page in a
//!   fraction of the time its dies take to read it. Each die's requests in the
//!   drive are counted, and a read goes to the die that has fewest. A write
//!   counts `write_weight` times, so that reads keep away from dies that write
//!   without being forbidden.
//! - *A bound on that.* No more than `overtake` younger reads go before one of a
//!   loaded die: then it goes, wherever it has to. Who is overtaken is known by
//!   counting who came and who left.
//! - *Light submitters first.* A read of a submitter that has no more than
//!   `light_depth` requests outstanding goes before those of deeper ones: it
//!   costs them one place, and spares it their whole queue. While there are such,
//!   deeper ones' reads wait in the scheduler, where they can be passed, rather
//!   than on a die that has `die_depth` requests in the drive and works anyway.
//! - *Streams.* A submitter's third request in a row where the last one ended is
//!   a stream. Its requests go in order of arrival: that keeps the drive's own
//!   striping, its read-ahead and its erase blocks as they would be.
//! - *Writes by erase block.* Other writes are sent block by block
//!   (`block_kb`), the block of the oldest write first.
//! - *Turns.* Reads go first; after `reads_run` of them that writes had to
//!   watch, `write_run` writes go. While there are reads, writes take no more
//!   than `tag_share` of the scheduler's tags, so that a read always finds one,
//!   and no more than `write_share` of the drive's queue. That one is all by
//!   default: a drive with a write cache keeps a read waiting for what it has
//!   cached, not for what it has queued, and writes held back only cost.
//! - *Deadlines.* As AC: four kinds, each in order of arrival; every
//!   `batch_limit` dispatches the heads are looked at, and the first that is late
//!   goes.
//!
//! Every decision is a mask over at most 64 dies or the head of a list, so
//! it takes the same time whatever is queued.

use blklab_blk::{
    BioFlags, Elevator, InsertAt, MergeKind, Nanos, Op, QueueInfo, Request, RequestId, RqFlags,
    RqList, SchedCtx, Tunable, TunableError, Tunables, Unit, op_is_sync,
};

use crate::admit::admit;
use crate::bundles::Bundles;
use crate::id_map::IdMap;

const DIES: usize = 0;
const STRIPE_KB: usize = 1;
const BLOCK_KB: usize = 2;
const WRITE_WEIGHT: usize = 3;
const LIGHT_DEPTH: usize = 4;
const READS_RUN: usize = 5;
const WRITE_RUN: usize = 6;
const WRITE_SHARE: usize = 7;
const TAG_SHARE: usize = 8;
const DIE_DEPTH: usize = 9;
const BATCH_LIMIT: usize = 10;
/// The first of four, by kind.
const EXPIRE: usize = 11;
const OVERTAKE: usize = 15;

const MAX_DIES: usize = 64;

const COUNT: (i64, i64) = (0, i32::MAX as i64);
const AT_LEAST_ONE: (i64, i64) = (1, i32::MAX as i64);

/// What a user can set.
pub const TUNABLES: &[Tunable] = &[
    Tunable::new(
        "dies",
        Unit::Count,
        (1, MAX_DIES as i64),
        16,
        "parts of the drive that work at once: its dies times the dies on each",
    ),
    Tunable::new(
        "stripe_kb",
        Unit::Kib,
        (0, 1 << 30),
        16,
        "KiB after which the next die follows; 0: one contiguous range a die",
    ),
    Tunable::new(
        "block_kb",
        Unit::Kib,
        (4, 1 << 20),
        1024,
        "the drive's erase block, whose writes go together",
    ),
    Tunable::new(
        "write_weight",
        Unit::Count,
        (0, 31),
        4,
        "reads that a write in the drive counts for on its die",
    ),
    Tunable::new(
        "light_depth",
        Unit::Count,
        COUNT,
        1,
        "requests outstanding up to which a submitter's reads go first",
    ),
    Tunable::new(
        "reads_run",
        Unit::Count,
        COUNT,
        4,
        "reads in a row that waiting writes have to watch",
    ),
    Tunable::new(
        "write_run",
        Unit::Count,
        AT_LEAST_ONE,
        1,
        "writes that then go in a row",
    ),
    Tunable::new(
        "write_share",
        Unit::Percent,
        (1, 100),
        100,
        "part of the drive's queue that writes may take while there are reads",
    ),
    Tunable::new(
        "tag_share",
        Unit::Percent,
        (1, 100),
        75,
        "part of the scheduler's tags that writes may take while there are reads",
    ),
    Tunable::new(
        "die_depth",
        Unit::Count,
        COUNT,
        4,
        "requests on a die in the drive with which deep submitters' reads wait while there are light ones; 0: never",
    ),
    Tunable::new(
        "batch_limit",
        Unit::Count,
        COUNT,
        8,
        "dispatches between two looks for requests that are late",
    ),
    Tunable::new(
        "sync_read_expire",
        Unit::Milliseconds,
        COUNT,
        100,
        "a synchronous read's deadline",
    ),
    Tunable::new(
        "async_read_expire",
        Unit::Milliseconds,
        COUNT,
        400,
        "an asynchronous read's deadline",
    ),
    Tunable::new(
        "sync_write_expire",
        Unit::Milliseconds,
        COUNT,
        400,
        "a synchronous write's deadline",
    ),
    Tunable::new(
        "async_write_expire",
        Unit::Milliseconds,
        COUNT,
        4_000,
        "an asynchronous write's deadline",
    ),
    Tunable::new(
        "overtake",
        Unit::Count,
        COUNT,
        64,
        "younger reads that may go before a deep submitter's whose die is loaded",
    ),
];

const READ: usize = 0;
const WRITE: usize = 1;
/// Of each direction, synchronous first.
const KINDS: usize = 2;
/// Requests in a row where the last one ended, after which the next is of a
/// stream.
const STREAM_RUN: u32 = 2;
/// How long reads count as seen of late.
const READS_RECENT: Nanos = Nanos::from_millis(10);
/// How long light submitters do: they think between their reads.
const LIGHT_RECENT: Nanos = Nanos::from_millis(100);

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
struct Mark(u32);

impl Mark {
    const QUEUED: u32 = 1;
    /// It is in its die's load.
    const IN_DRIVE: u32 = 2;
    /// It is one of its submitter's outstanding requests.
    const COUNTED: u32 = 4;

    fn of(rq: &Request) -> Mark {
        Mark(rq.elv[0])
    }

    fn new(class: Class, kind: usize, die: usize) -> Mark {
        Mark((class as u32) << 3 | (kind as u32) << 5 | (die as u32) << 8)
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

    /// What it counts for in its die's load: the tunable may change while
    /// the drive has it.
    fn weight(self) -> u32 {
        self.0 >> 16
    }
}

/// `elv[1]` of a read of a deep submitter: how many of those came before it. A
/// write's is its bundle's.
const ELV_CAME: usize = 1;

/// Who submits: how much it has outstanding, and where its last request of each
/// direction ended.
#[derive(Clone, Copy, Debug, Default)]
struct Submitter {
    outstanding: u32,
    last_end: [u64; 2],
    in_a_row: [u32; 2],
}

/// Levels of load that are told apart.
const LEVELS: usize = 32;

/// How much each die has in the drive, and the dies of each level.
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
        let before = std::mem::replace(&mut self.load[die], load);
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

fn is_recent(at: Option<Nanos>, now: Nanos, span: Nanos) -> bool {
    at.is_some_and(|at| now.saturating_sub(at) < span)
}

/// The scheduler's state.
pub struct Ac2 {
    tunables: Tunables,
    info: QueueInfo,
    submitters: IdMap<Submitter>,
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
    /// Head inserts: requeues and the data of flush sequences.
    dispatch: RqList,
    in_drive: [u32; 2],
    /// Reads of deep submitters that came, and that left, so far.
    deep_came: u32,
    deep_left: u32,
    last_read: Option<Nanos>,
    last_light: Option<Nanos>,
    /// Reads and writes in a row.
    run: [i64; 2],
    batched: i64,
    /// The hardware queues are to be run.
    kick: Option<Nanos>,
    light: u64,
    streamed: u64,
    bundles: u64,
    switches: u64,
    expired: u64,
    held_back: u64,
    merged: u64,
    dispatched: u64,
}

impl Ac2 {
    /// A fresh one.
    pub fn new(info: &QueueInfo) -> Ac2 {
        Ac2 {
            tunables: Tunables::new(TUNABLES),
            info: info.clone(),
            submitters: IdMap::default(),
            dies: Box::new([[RqList::new(); 2]; MAX_DIES]),
            held: [0; 2],
            read_stream: RqList::new(),
            read_deadlines: [RqList::new(); KINDS],
            writes: [RqList::new(); KINDS],
            write_stream: RqList::new(),
            blocks: Bundles::default(),
            loads: Loads::new(),
            next_die: 0,
            dispatch: RqList::new(),
            in_drive: [0; 2],
            deep_came: 0,
            deep_left: 0,
            last_read: None,
            last_light: None,
            run: [0; 2],
            batched: 0,
            kick: None,
            light: 0,
            streamed: 0,
            bundles: 0,
            switches: 0,
            expired: 0,
            held_back: 0,
            merged: 0,
            dispatched: 0,
        }
    }

    fn die_of(&self, sector: u64) -> usize {
        let dies = self.tunables.at(DIES) as u64;
        let stripe = self.tunables.at(STRIPE_KB) as u64 * 2;
        let die = match stripe {
            0 => (sector / (self.info.capacity_sectors / dies).max(1)).min(dies - 1),
            _ => sector / stripe % dies,
        };
        die as usize
    }

    /// Notes a submitter's request; its class.
    fn classify(&mut self, rq: &Request) -> Class {
        let dir = rq.is_write() as usize;
        let submitter = self.submitters.entry(rq.submitter.0 as u64).or_default();
        submitter.outstanding += 1;
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
        } else if submitter.outstanding as i64 <= self.tunables.at(LIGHT_DEPTH) {
            Class::Light
        } else {
            Class::Deep
        }
    }

    fn enqueue(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (dir, kind) = (rq.is_write() as usize, !rq.is_sync() as usize);
        let (class, die) = (self.classify(rq), self.die_of(rq.sector.0));
        let expire = Nanos::from_millis(self.tunables.at(EXPIRE + 2 * dir + kind) as u64);
        let block = rq.sector.0 / (self.tunables.at(BLOCK_KB) as u64 * 2);
        ctx.rqs[id].fifo_time = ctx.now.saturating_add(expire);
        let mark = Mark::new(class, kind, die);
        ctx.rqs[id].elv[0] = mark.0 | Mark::QUEUED | Mark::COUNTED;
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

    /// Takes a request out; one that merges while it is being inserted is in
    /// nothing yet.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let mark = Mark::of(&ctx.rqs[id]);
        if !mark.has(Mark::QUEUED) {
            return;
        }
        ctx.rqs[id].elv[0] &= !Mark::QUEUED;
        ctx.merge.remove(ctx.rqs, id);
        let (class, kind) = (mark.class(), mark.kind());
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
        let queue = &mut self.dies[mark.die()][class as usize];
        queue.remove(ctx.rqs, id);
        if queue.is_empty() {
            self.held[class as usize] &= !(1 << mark.die());
        }
    }

    fn has_reads(&self) -> bool {
        self.held != [0; 2] || !self.read_stream.is_empty()
    }

    fn has_writes(&self) -> bool {
        self.writes.iter().any(|fifo| !fifo.is_empty())
    }

    /// The first of each kind's oldest that is late.
    fn late_request(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let reads = self.read_deadlines.iter().filter_map(RqList::front);
        let writes = self.writes.iter().filter_map(RqList::front);
        reads
            .chain(writes)
            .find(|&id| ctx.rqs[id].fifo_time <= ctx.now)
    }

    fn first_direction(&self) -> usize {
        let watched = self.run[READ] >= self.tunables.at(READS_RUN);
        let running = self.run[WRITE] > 0 && self.run[WRITE] < self.tunables.at(WRITE_RUN);
        (watched || running) as usize
    }

    /// The oldest read, where all are deep submitters', once as many younger ones
    /// have gone before it as may.
    fn overtaken_read(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let oldest = self.read_deadlines.iter().find_map(RqList::front)?;
        let came = ctx.rqs[oldest].elv[ELV_CAME];
        // Those that came before it have all left.
        let overtaken = self.deep_left.wrapping_sub(came) as i64;
        (overtaken >= self.tunables.at(OVERTAKE)).then_some(oldest)
    }

    /// The read of the least loaded die, light submitters' before others; a
    /// stream's next where its die is no more loaded than that. Of a deep
    /// submitter's, none where even that die has `die_depth` in the drive and a
    /// light one may come: what is in the drive already cannot be passed.
    fn choose_read(&self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let first = |class: Class| {
            let die = self.loads.least(self.held[class as usize], self.next_die)?;
            self.dies[die][class as usize].front()
        };
        if let Some(light) = first(Class::Light) {
            return Some(light);
        }
        let key = |id: &RequestId| {
            let rq = &ctx.rqs[*id];
            (self.loads.load[Mark::of(rq).die()], rq.serial)
        };
        let candidates = [first(Class::Deep), self.read_stream.front()];
        let least = candidates.into_iter().flatten().min_by_key(key)?;
        let most = self.tunables.at(DIE_DEPTH);
        let light_may_come = most > 0 && is_recent(self.last_light, ctx.now, LIGHT_RECENT);
        let may_go = |id: &RequestId| !light_may_come || (key(id).0 as i64) < most;
        let overtaken = self.overtaken_read(ctx).filter(may_go);
        overtaken.or_else(|| Some(least).filter(may_go))
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
        if Mark::of(&ctx.rqs[oldest]).class() == Class::Block {
            self.blocks.start(ctx.rqs, oldest);
            self.bundles += 1;
        }
        Some(oldest)
    }

    fn choose(&mut self, ctx: &SchedCtx<'_>, dir: usize) -> Option<RequestId> {
        match dir {
            READ => self.choose_read(ctx),
            _ => self.choose_write(ctx),
        }
    }

    /// Whether writes have their share of the drive while reads need theirs.
    fn writes_have_their_share(&self, now: Nanos) -> bool {
        let recent = self.in_drive[READ] > 0 || is_recent(self.last_read, now, READS_RECENT);
        let depth = self.info.queue_depth as i64;
        let most = (depth * self.tunables.at(WRITE_SHARE) / 100).max(1);
        recent && self.in_drive[WRITE] as i64 >= most
    }

    fn give_to_drive(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.remove(ctx, id);
        let rq = &mut ctx.rqs[id];
        let (dir, mark) = (rq.is_write() as usize, Mark::of(rq));
        let weight = match dir {
            READ => 1,
            _ => self.tunables.at(WRITE_WEIGHT) as u32,
        };
        rq.elv[0] |= Mark::IN_DRIVE | weight << 16;
        let die = mark.die();
        self.loads.set(die, self.loads.load[die] + weight);
        self.next_die = (die + 1) % MAX_DIES;
        self.in_drive[dir] += 1;
        self.switches += (self.run[dir] == 0) as u64;
        self.run[dir] += 1;
        self.run[1 - dir] = 0;
        self.batched += 1;
        if mark.class() == Class::Light {
            self.light += 1;
            self.last_light = Some(ctx.now);
        }
        self.streamed += (mark.class() == Class::Stream) as u64;
    }

    /// A request is no longer in the drive.
    fn left_drive(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let mark = Mark::of(rq);
        if !mark.has(Mark::IN_DRIVE) {
            return;
        }
        rq.elv[0] &= Mark::COUNTED;
        let dir = rq.is_write() as usize;
        self.in_drive[dir] -= 1;
        let die = mark.die();
        self.loads.set(die, self.loads.load[die] - mark.weight());
        if dir == READ {
            self.last_read = Some(ctx.now);
        }
        if self.has_reads() || self.has_writes() {
            self.kick = Some(ctx.now);
        }
    }

    fn next_in_turn(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let first = self.first_direction();
        let no_writes = self.writes_have_their_share(ctx.now);
        let dirs = [first, 1 - first];
        let allowed = dirs.into_iter().filter(|&dir| dir == READ || !no_writes);
        for dir in allowed {
            if let Some(id) = self.choose(ctx, dir) {
                return Some(id);
            }
        }
        self.held_back += self.has_writes() as u64;
        None
    }
}

impl Elevator for Ac2 {
    fn name(&self) -> &'static str {
        "ac2"
    }

    fn depth_updated(&mut self, info: &QueueInfo) {
        self.info = info.clone();
    }

    /// While there are reads, writes leave them a part of the tags.
    fn limit_depth(&mut self, op: Op, flags: BioFlags) -> Option<u32> {
        let reads = self.in_drive[READ] > 0 || self.has_reads();
        if !op.is_write() || (op_is_sync(op, flags) && !reads) {
            return None;
        }
        let share = self.tunables.at(TAG_SHARE) as u32;
        Some((self.info.nr_requests * share / 100).max(1))
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        Some(1)
    }

    /// A stream goes on behind what merged.
    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        let rq = &ctx.rqs[id];
        if kind == MergeKind::Back
            && let Some(submitter) = self.submitters.get_mut(&(rq.submitter.0 as u64))
        {
            submitter.last_end[rq.is_write() as usize] = rq.end().0;
        }
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, _id: RequestId, next: RequestId) {
        self.merged += 1;
        self.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let mark = Mark::of(&ctx.rqs[id]);
        match (mark.class(), ctx.rqs[id].is_write()) {
            (Class::Stream, false) => self.read_stream.prev(ctx.rqs, id),
            (Class::Stream, true) => self.write_stream.prev(ctx.rqs, id),
            (_, true) => self.blocks.prev(ctx.rqs, id),
            (class, false) => self.dies[mark.die()][class as usize].prev(ctx.rqs, id),
        }
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        let mark = Mark::of(&ctx.rqs[id]);
        match (mark.class(), ctx.rqs[id].is_write()) {
            (Class::Stream, false) => self.read_stream.next(ctx.rqs, id),
            (Class::Stream, true) => self.write_stream.next(ctx.rqs, id),
            (_, true) => self.blocks.next(ctx.rqs, id),
            (class, false) => self.dies[mark.die()][class as usize].next(ctx.rqs, id),
        }
    }

    #[inline(always)]
    fn insert_request(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        _hctx: usize,
        id: RequestId,
        at: InsertAt,
    ) {
        if admit(self, |own| &mut own.dispatch, ctx, id, at) {
            self.enqueue(ctx, id);
        }
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        if let Some(id) = self.dispatch.pop_front(ctx.rqs) {
            ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
            return Some(id);
        }
        let mut late = None;
        if self.batched >= self.tunables.at(BATCH_LIMIT) {
            self.batched = 0;
            late = self.late_request(ctx);
            self.expired += late.is_some() as u64;
        }
        let id = late.or_else(|| self.next_in_turn(ctx))?;
        self.give_to_drive(ctx, id);
        self.dispatched += 1;
        ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
        Some(id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        !self.dispatch.is_empty() || self.has_reads() || self.has_writes()
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.left_drive(ctx, id);
    }

    fn requeue_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.left_drive(ctx, id);
    }

    fn finish_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let counted = Mark::of(rq).has(Mark::COUNTED);
        rq.elv[0] = 0;
        if counted && let Some(submitter) = self.submitters.get_mut(&(rq.submitter.0 as u64)) {
            submitter.outstanding -= 1;
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.kick
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        self.kick.take_if(|at| *at <= ctx.now).is_some()
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.tunables.set(name, value)
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        vec![
            ("reads_in_drive", self.in_drive[READ] as i64),
            ("writes_in_drive", self.in_drive[WRITE] as i64),
            ("reads_in_a_row", self.run[READ]),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("direction switches", self.switches),
            ("expired deadlines", self.expired),
            ("reads of light submitters", self.light),
            ("requests of streams", self.streamed),
            ("bundles", self.bundles),
            ("times writes were held", self.held_back),
            ("requests merged", self.merged),
            ("dispatched", self.dispatched),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Rig, queue_info};
    use blklab_blk::{Bio, Sector, SubmitterId};

    /// Eight dies, a page of 32 sectors each.
    fn rig() -> Rig {
        let mut rig = Rig::new(Box::new(Ac2::new(&queue_info())));
        rig.set("dies", 8);
        rig
    }

    fn bio(submitter: u32, op: Op, sector: u64) -> Bio {
        Bio {
            submitter: SubmitterId(submitter),
            ..Bio::new(op, Sector(sector), 8)
        }
    }

    /// A read on a die, in the `row`-th stripe, which touches no other.
    fn read(submitter: u32, die: u64, row: u64) -> Bio {
        bio(submitter, Op::Read, (row * 8 + die) * 32)
    }

    #[test]
    fn reads_go_to_the_least_loaded_die() {
        let mut rig = rig();
        rig.set("light_depth", 0);
        for row in 0..3 {
            rig.insert(&read(0, 2, row));
        }
        for die in [5, 2, 7] {
            rig.insert(&read(0, die, 9));
        }
        let dies: Vec<_> = rig.drain_sectors().iter().map(|s| s / 32 % 8).collect();
        assert_eq!(dies, [2, 5, 7, 2, 2, 2]);
    }

    #[test]
    fn a_read_is_overtaken_by_so_many_younger_ones() {
        let mut rig = rig();
        rig.set("overtake", 5);
        rig.set("light_depth", 0);
        // Three on one die, and many on the others.
        let slow: Vec<_> = (0..3)
            .map(|row| rig.insert(&read(1, 0, row)).unwrap())
            .collect();
        for at in 0..20 {
            rig.insert(&read(1, 1 + at % 7, at)).unwrap();
        }
        let ids = rig.drain();
        let places: Vec<_> = slow
            .iter()
            .map(|id| ids.iter().position(|other| other == id).unwrap())
            .collect();
        // Each goes when five that came later have gone before it.
        assert_eq!(places, [0, 6, 7]);
    }

    #[test]
    fn what_completes_lightens_its_die() {
        let mut rig = rig();
        rig.set("light_depth", 0);
        let first = rig.insert(&read(0, 2, 0)).unwrap();
        rig.insert(&read(0, 3, 0));
        rig.drain();
        rig.complete(first);
        let three = rig.insert(&read(0, 3, 1)).unwrap();
        let two = rig.insert(&read(0, 2, 1)).unwrap();
        assert_eq!(rig.drain(), [two, three]);
    }

    #[test]
    fn reads_keep_away_from_dies_that_write() {
        let mut rig = rig();
        rig.set("light_depth", 0);
        rig.insert(&bio(0, Op::Write, 32));
        rig.dispatch();
        for (die, row) in [(1, 5), (2, 5), (2, 6), (2, 7), (2, 8)] {
            rig.insert(&read(0, die, row));
        }
        let dies: Vec<_> = rig.drain_sectors().iter().map(|s| s / 32 % 8).collect();
        assert_eq!(dies, [2, 2, 2, 2, 1]);
    }

    #[test]
    fn a_light_submitter_s_read_goes_before_a_deep_one_s() {
        let mut rig = rig();
        for row in 0..20 {
            rig.insert(&read(0, row % 8, row));
        }
        rig.dispatch();
        let light = rig.insert(&read(1, 0, 99));
        assert_eq!(rig.dispatch(), light);
    }

    #[test]
    fn deep_submitters_do_not_fill_dies_that_light_ones_read_from() {
        let mut rig = rig();
        rig.insert(&read(1, 0, 50));
        rig.dispatch();
        for row in 0..80 {
            rig.insert(&read(0, row % 8, 100 + row));
        }
        // One went, and four go to each other die and three to that one.
        let sent = rig.drain();
        assert_eq!(sent.len(), 31);
        let light = rig.insert(&read(2, 0, 51));
        assert_eq!(rig.dispatch(), light);
        rig.pass_ms(100);
        assert_eq!(rig.drain().len(), 80 - 31);
    }

    #[test]
    fn a_stream_goes_in_order() {
        let mut rig = rig();
        let ids: Vec<_> = (0..6)
            .map(|i| {
                let bio = Bio::new(Op::Read, Sector(100 + i * 640), 640);
                let id = rig.make(&bio);
                rig.insert_request(id, InsertAt::Tail);
                id
            })
            .collect();
        let swallowed = rig.swallowed();
        assert!(swallowed.len() < 6);
        let order = rig.drain();
        assert!(
            order.is_sorted_by_key(|id| id.index()),
            "{order:?} of {ids:?}"
        );
    }

    #[test]
    fn writes_go_block_by_block_and_have_their_turn() {
        let mut rig = rig();
        rig.set("write_run", 2);
        // Blocks of 2048 sectors.
        for block in [3, 1, 3, 1] {
            let place = rig.in_use() as u64 * 16;
            rig.insert(&bio(0, Op::Write, block * 2048 + place));
        }
        for row in 0..8 {
            rig.insert(&read(0, row, row));
        }
        let ids = rig.drain();
        let writes: Vec<_> = (0..ids.len())
            .filter(|&i| rig.rq(ids[i]).is_write())
            .collect();
        assert_eq!(writes, [4, 5, 10, 11]);
        let blocks: Vec<_> = writes
            .iter()
            .map(|&i| rig.rq(ids[i]).sector.0 / 2048)
            .collect();
        assert_eq!(blocks, [3, 3, 1, 1]);
    }

    #[test]
    fn writes_leave_reads_a_part_of_the_drive() {
        let info = QueueInfo {
            queue_depth: 32,
            ..queue_info()
        };
        let mut rig = Rig::new(Box::new(Ac2::new(&info)));
        rig.set("write_share", 75);
        for i in 0..100 {
            rig.insert(&bio(0, Op::Write, i * 4096));
        }
        let read = rig.insert(&bio(1, Op::Read, 16)).unwrap();
        assert_eq!(rig.dispatch(), Some(read));
        let mut writes = rig.drain();
        assert_eq!(writes.len(), 24);
        rig.complete(writes.pop().unwrap());
        assert!(rig.run_timer());
        assert_eq!(rig.drain().len(), 1);
        // Nobody has read for long: writes may have it all.
        rig.complete(read);
        rig.pass_ms(20);
        assert_eq!(rig.drain().len(), 75);
    }

    #[test]
    fn nobody_waits_much_longer_than_its_deadline() {
        let mut rig = rig();
        let deep = rig.insert(&read(0, 0, 1)).unwrap();
        let other = rig.insert(&read(0, 0, 2)).unwrap();
        rig.pass_ms(100);
        let sent: Vec<_> = (0..18)
            .filter_map(|i| {
                rig.insert(&read(2 + i, 1, 10 + i as u64));
                rig.dispatch()
            })
            .collect();
        assert!(sent.contains(&deep) && sent.contains(&other));
        assert!(rig.count("expired deadlines") > 0);
    }
}
