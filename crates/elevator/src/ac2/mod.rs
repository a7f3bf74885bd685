//! ac2: our own scheduler, going on from the thesis's AC (see `ac`).
//!
//! AC's idea is kept: know the drive's parallel parts, spread reads over them,
//! gather writes, and bound what anybody waits. Its weaknesses are that it takes
//! a channel to be one contiguous range and to be all there is, that it knows one
//! bit of its load, that it spends itself on sequential streams, which are spread
//! already, and that a reader with one request waits behind one with a hundred.
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
//!   `reads_run` of them that writes had to watch it is the writes' turn. Then
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

mod choice;
mod layout;
mod loads;
mod mark;
#[cfg(test)]
mod tests;
mod tunables;

use blklab_blk::{
    Bio, MergeKind, Nanos, QueueInfo, Request, RequestId, Requests, RqList, SchedCtx, SubmitterId,
    Tunables,
};

use crate::bundles::Bundles;
use crate::id_map::IdMap;
use crate::single_queue::Policy;
use layout::Layout;
use loads::Loads;
use mark::{Class, Mark};
use tunables::{BATCH_LIMIT, BLOCK_KB, EXPIRE, LIGHT_DEPTH, MAX_DIES, TAG_SHARE, WRITE_WEIGHT};

pub use tunables::TUNABLES;

const READ: usize = 0;
const WRITE: usize = 1;
/// Of each direction, synchronous first.
const KINDS: usize = 2;
/// Requests in a row where the last one ended, after which the next is of a
/// stream.
const STREAM_RUN: u32 = 2;
/// After a request with more than `light_depth` outstanding, so many with no more
/// make its submitter light again. One that gets few tags has little outstanding
/// at times without being light.
const DEEP_RUN: u32 = 16;
/// How long reads count as seen of late.
const READS_RECENT: Nanos = Nanos::from_millis(10);
/// How long light submitters do: they think between their reads.
const LIGHT_RECENT: Nanos = Nanos::from_millis(100);

/// `elv[1]` of a read of a deep submitter: how many of those came before it. A
/// write's is its bundle's.
const ELV_CAME: usize = 1;

/// Who submits: how much it has outstanding, for how many more requests it counts
/// as deep, and where its last request of each direction ended.
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

/// The scheduler's state.
pub struct Ac2 {
    tunables: Tunables,
    info: QueueInfo,
    layout: Layout,
    submitters: IdMap<Submitter>,
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
    /// The hardware queues are to be run.
    kick: Option<Nanos>,
    light: u64,
    streamed: u64,
    bundles: u64,
    expired: u64,
    held_back: u64,
}

impl Ac2 {
    /// A fresh one.
    pub fn new(info: &QueueInfo) -> Ac2 {
        let tunables = Tunables::new(TUNABLES);
        Ac2 {
            layout: Layout::new(&tunables, info.capacity_sectors),
            tunables,
            info: info.clone(),
            submitters: IdMap::default(),
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
            kick: None,
            light: 0,
            streamed: 0,
            bundles: 0,
            expired: 0,
            held_back: 0,
        }
    }

    fn has_more_than_its_share(&self, submitter: SubmitterId) -> bool {
        let submitter = self.submitters.get(&(submitter.0 as u64));
        submitter.is_some_and(|s| s.outstanding * self.active > self.info.nr_requests)
    }

    fn leaves_tags_to_light_ones(&self, submitter: SubmitterId) -> bool {
        let submitter = self.submitters.get(&(submitter.0 as u64));
        submitter.is_some_and(|s| s.deep_for > 0) && self.light_may_come(self.last_enqueue)
    }

    /// Whether a light submitter has read of late.
    fn light_may_come(&self, now: Nanos) -> bool {
        is_recent(self.last_light, now, LIGHT_RECENT)
    }

    /// Notes a submitter's request; its class.
    fn classify(&mut self, rq: &Request) -> Class {
        let dir = rq.is_write() as usize;
        let submitter = self.submitters.entry(rq.submitter.0 as u64).or_default();
        self.active += (submitter.outstanding == 0) as u32;
        submitter.outstanding += 1;
        submitter.deep_for = match submitter.outstanding as i64 > self.tunables.at(LIGHT_DEPTH) {
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
}

impl Policy for Ac2 {
    const NAME: &'static str = "ac2";

    fn depth_updated(&mut self, info: &QueueInfo) {
        self.info = info.clone();
        self.layout = Layout::new(&self.tunables, info.capacity_sectors);
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
        let share = self.tunables.at(TAG_SHARE) as u32;
        Some((self.info.nr_requests * share / 100).max(1))
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        Some(1)
    }

    fn add(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &ctx.rqs[id];
        let (dir, kind) = (rq.is_write() as usize, !rq.is_sync() as usize);
        let (class, die) = (self.classify(rq), self.layout.die_of(rq.sector.0));
        self.last_enqueue = ctx.now;
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

    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let mut late = None;
        if self.batched >= self.tunables.at(BATCH_LIMIT) {
            self.batched = 0;
            late = self.late_request(ctx);
            self.expired += late.is_some() as u64;
        }
        late.or_else(|| self.next_in_turn(ctx))
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

    fn sent(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
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
        self.run[dir] += 1;
        self.run[1 - dir] = 0;
        self.batched += 1;
        if mark.class() == Class::Light {
            self.light += 1;
            self.last_light = Some(ctx.now);
        }
        self.streamed += (mark.class() == Class::Stream) as u64;
    }

    /// A stream goes on behind what merged.
    fn grown(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: MergeKind) {
        let rq = &ctx.rqs[id];
        if kind == MergeKind::Back
            && let Some(submitter) = self.submitters.get_mut(&(rq.submitter.0 as u64))
        {
            submitter.last_end[rq.is_write() as usize] = rq.end().0;
        }
    }

    fn former(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let mark = Mark::of(&rqs[id]);
        match (mark.class(), rqs[id].is_write()) {
            (Class::Stream, false) => self.read_stream.prev(rqs, id),
            (Class::Stream, true) => self.write_stream.prev(rqs, id),
            (_, true) => self.blocks.prev(rqs, id),
            (class, false) => self.dies[mark.die()][class as usize].prev(rqs, id),
        }
    }

    fn latter(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let mark = Mark::of(&rqs[id]);
        match (mark.class(), rqs[id].is_write()) {
            (Class::Stream, false) => self.read_stream.next(rqs, id),
            (Class::Stream, true) => self.write_stream.next(rqs, id),
            (_, true) => self.blocks.next(rqs, id),
            (class, false) => self.dies[mark.die()][class as usize].next(rqs, id),
        }
    }

    fn is_empty(&self) -> bool {
        !self.has_reads() && !self.has_writes()
    }

    fn completed(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.left_drive(ctx, id);
    }

    fn requeued(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.left_drive(ctx, id);
    }

    fn finished(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let counted = Mark::of(rq).has(Mark::COUNTED);
        rq.elv[0] = 0;
        if counted && let Some(submitter) = self.submitters.get_mut(&(rq.submitter.0 as u64)) {
            submitter.outstanding -= 1;
            let (done, exited) = (submitter.outstanding == 0, submitter.exited);
            self.active -= done as u32;
            if done && exited {
                self.submitters.remove(&(ctx.rqs[id].submitter.0 as u64));
            }
        }
    }

    /// It is forgotten with the last of its requests.
    fn submitter_exited(&mut self, submitter: SubmitterId) {
        let id = submitter.0 as u64;
        if let Some(known) = self.submitters.get_mut(&id) {
            known.exited = true;
            if known.outstanding == 0 {
                self.submitters.remove(&id);
            }
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.kick
    }

    fn timer(&mut self, now: Nanos) -> bool {
        self.kick.take_if(|at| *at <= now).is_some()
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    fn tunables_mut(&mut self) -> &mut Tunables {
        &mut self.tunables
    }

    /// Requests stay on the die that they were put on.
    fn tunable_set(&mut self) {
        self.layout = Layout::new(&self.tunables, self.info.capacity_sectors);
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
            ("expired deadlines", self.expired),
            ("reads of light submitters", self.light),
            ("requests of streams", self.streamed),
            ("bundles", self.bundles),
            ("times writes were held", self.held_back),
        ]
    }
}
