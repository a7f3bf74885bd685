//! AC, the Alleviate Conflict scheduler: K. Okumura's master's thesis (Tokyo
//! Institute of Technology, January 2016), chapter 4.
//!
//! The drive's address space is cut into one sub-group per channel. Reads are spread: a sub-group
//! that has been served is skipped (END) until all sub-groups with reads have been served. Writes
//! are gathered: the sub-group served last (PROC) is served until it has no writes, and reads avoid
//! it, because a channel that writes is slow to read. Every request has a deadline that depends on
//! its kind. It is in two queues: the sub-queue of its sub-group for its kind, and the deadline
//! queue of its kind for the whole drive, whose head is the oldest.
//!
//! Requests are counted and flagged for each sub-group in a read and a write matrix (section
//! 4.5.3). Here a matrix is a few words with one bit per sub-group, so a decision is a mask and a
//! count of trailing zeroes, however many requests are queued.
//!
//! The thesis leaves the following questions open. The author's module for Linux 4.1 is public;
//! where it answers a question, its answer is used.
//!
//! - *Which of several PEND sub-groups is served?* Algorithm 3 walks all indices and dispatches on
//!   the way. A call here dispatches one request, so the position is kept between calls: the search
//!   for reads starts after the sub-group served last. That also separates two reads of one sub-group
//!   where the flags alone would not (section 4.7.2.1).
//! - *Which sub-group becomes PROC?* The example in 4.7.2.2 allows any. The search starts at the
//!   one that wrote last. Algorithm 1 sets PEND on every insert, PROC or not; with this start the
//!   sub-group is still drained before another is chosen, as 4.7.2.2 requires.
//! - *What if all PEND reads are in sub-groups that are PROC for writes?* Algorithm 3 finds none
//!   then, and its rule never resets the flags to PEND. Such a read is dispatched anyway, as in the
//!   author's module: PROC lowers a priority but does not forbid, and reads go before writes.
//! - *What if the preferred direction has no request?* The other is served.
//! - *Sync and async requests share a sub-group's flag.* Algorithm 3 is run for sync requests
//!   first: a sync read waits if its sub-group is END and an async read of a PEND sub-group exists.
//!   Several sub-groups may be PROC, if the one being drained has no write of the kind in question.
//! - *What is "a certain number"?* The limits have the module's values, 8 and 4. The count of
//!   dispatches starts again at each check, whatever the check finds ("each time a certain number was
//!   dispatched", 4.7.1), so each batch has at most one late request. One write ends a run of reads
//!   (4.7.2); section 4.1 would switch for longer, which `write_run` allows.
//! - *A late request taken from the middle* changes the matrices like any other.
//! - *A request merged into another* is removed from the matrices; the flag stays unless the
//!   sub-group is empty. The remaining request takes over an earlier deadline and its place. Only
//!   neighbours in a sub-queue merge, so both are of one kind.
//! - *Merging* is done behind a request through the block layer's hash, and with the neighbour in
//!   the sub-queue, as in noop. There are no front merges: the module has none, and they would need a
//!   sorted list.
//! - *Flush data and requeued requests* go first, outside the matrices.
//! - *The last sub-group* also contains the remainder of the division of the capacity.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::{
    Elevator, ElevatorQueue, Nanos, QueueInfo, RequestId, Requests, RqList, SchedCtx, Tunable,
    TunableError, Tunables, Unit, jiffies, msecs_to_jiffies,
};
use strength_reduce::StrengthReducedU64;

use crate::sio::{DEADLINES, KINDS, kind_of};
use crate::{ElevatorType, StepCosts};

const CHANNELS: usize = 0;
const STRIPE_KB: usize = 1;
const BATCH_LIMIT: usize = 2;
const WRITES_STARVED: usize = 3;
const WRITE_RUN: usize = 4;
const SYNC_FIRST: usize = 5;
/// Index of the first of four deadlines, in the order of [`kind_of`].
const EXPIRE: usize = 6;

/// The most sub-groups: one bit each.
const GROUPS: usize = 64;

/// The tunables. The deadlines of table 4.3 are multiples of HZ, that is, of a second.
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "channels",
        unit: Unit::Count,
        min: 1,
        max: GROUPS as i64,
        default: 8,
        help: "the drive's channels: sub-groups that requests are sorted into",
    },
    Tunable {
        name: "stripe_kb",
        unit: Unit::Kib,
        min: 0,
        max: 1 << 30,
        default: 0,
        help: "KiB after which the next channel follows; 0: one contiguous range a channel, as the thesis has it",
    },
    Tunable {
        name: "batch_limit",
        unit: Unit::Count,
        min: 0,
        max: i32::MAX as i64,
        default: 8,
        help: "dispatches between two checks for late requests",
    },
    Tunable {
        name: "writes_starved",
        unit: Unit::Count,
        min: 0,
        max: i32::MAX as i64,
        default: 4,
        help: "reads in a row after which writes go first",
    },
    Tunable {
        name: "write_run",
        unit: Unit::Count,
        min: 1,
        max: i32::MAX as i64,
        default: 1,
        help: "writes in a row after which reads go first again",
    },
    Tunable {
        name: "sync_first",
        unit: Unit::Bool,
        min: 0,
        max: 1,
        default: 1,
        help: "of one direction, synchronous requests go before asynchronous ones",
    },
    DEADLINES[0],
    DEADLINES[1],
    DEADLINES[2],
    DEADLINES[3],
];

const READ: usize = 0;
const WRITE: usize = 1;

fn expire_jiffies(tunables: &Tunables) -> [i64; KINDS] {
    core::array::from_fn(|kind| msecs_to_jiffies(tunables.at(EXPIRE + kind)))
}

/// `elv[0]`: sub-group and kind, plus one; zero if the request is not queued.
const ELV_PLACE: usize = 0;
/// `elv[1]`: sub-group and kind of a request that has left the queues.
const ELV_LEFT: usize = 1;

/// A mask of all sub-groups if the direction is writes, else zero. Reads and writes alternate at
/// random, so a branch would be mispredicted as often as not.
fn if_write(dir: usize) -> u64 {
    (dir as u64).wrapping_neg()
}

/// The lowest sub-group of `set` at or after `from`, wrapping around.
fn first_from(set: u64, from: usize) -> Option<usize> {
    if set == 0 {
        return None;
    }
    let ahead = set & (u64::MAX << from);
    let group = if ahead != 0 { ahead } else { set }.trailing_zeros();
    Some(group as usize)
}

/// The position of the sub-groups on the drive.
#[derive(Clone, Copy)]
struct Layout {
    channels: u64,
    /// Contiguous sectors of a sub-group before the next one begins.
    span: StrengthReducedU64,
    striped: bool,
}

impl Layout {
    fn new(tunables: &Tunables, capacity_sectors: u64) -> Layout {
        let channels = tunables.at(CHANNELS) as u64;
        let stripe = tunables.at(STRIPE_KB) as u64 * 2;
        let span = match stripe {
            0 => capacity_sectors / channels,
            stripe => stripe,
        };
        Layout {
            channels,
            span: StrengthReducedU64::new(span.max(1)),
            striped: stripe > 0,
        }
    }

    /// The sub-group that contains an address.
    fn group_of(&self, sector: u64) -> usize {
        let index = sector / self.span;
        let group = if self.striped {
            index % self.channels
        } else {
            index.min(self.channels - 1)
        };
        group as usize
    }
}

/// The scheduler's state.
pub struct Ac {
    queue: ElevatorQueue,
    capacity_sectors: u64,
    layout: Layout,
    /// Deadlines in jiffies.
    expire: [i64; KINDS],
    sub_queues: Box<[[RqList; KINDS]; GROUPS]>,
    /// All requests of each kind in the order of their deadlines.
    deadlines: [RqList<1>; KINDS],
    /// Sub-groups with requests of each kind; a sub-group without requests of a direction is ZERO
    /// in its matrix.
    held: [u64; KINDS],
    /// Sub-groups that are PEND. In the read matrix the others with reads are END.
    pend: [u64; 2],
    /// Sub-groups that are PROC in the write matrix.
    proc: u64,
    /// The sub-group served last in each direction.
    last_group: [usize; 2],
    /// Dispatches since the last check of the deadlines.
    batched: i64,
    /// Number of consecutive reads and of consecutive writes.
    run: [i64; 2],
    starvation_switches: u64,
    expired: u64,
    rounds: u64,
    collisions: u64,
    drained: u64,
}

impl Ac {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(info: &QueueInfo) -> Ac {
        let queue = AC.queue();
        let layout = Layout::new(&queue.tunables, info.capacity_sectors);
        Ac {
            capacity_sectors: info.capacity_sectors,
            layout,
            expire: expire_jiffies(&queue.tunables),
            queue,
            sub_queues: Box::new([[RqList::new(); KINDS]; GROUPS]),
            deadlines: [RqList::new(); KINDS],
            held: [0; KINDS],
            pend: [0; 2],
            proc: 0,
            last_group: [0; 2],
            batched: 0,
            run: [0; 2],
            starvation_switches: 0,
            expired: 0,
            rounds: 0,
            collisions: 0,
            drained: 0,
        }
    }

    /// Sub-groups with requests of a direction.
    fn groups_held(&self, dir: usize) -> u64 {
        self.held[kind_of(dir, true)] | self.held[kind_of(dir, false)]
    }

    fn sub_queue_of(&self, rqs: &Requests, id: RequestId) -> Option<&RqList> {
        let place = rqs[id].elv[ELV_PLACE].checked_sub(1)? as usize;
        Some(&self.sub_queues[place / KINDS][place % KINDS])
    }

    /// Resets all END sub-groups to PEND when no PEND one is left (4.7.2.1).
    fn start_round_if_done(&mut self) {
        let reads = self.groups_held(READ);
        if self.pend[READ] == 0 && reads != 0 {
            self.pend[READ] = reads;
            self.rounds += 1;
        }
    }

    /// Updates a matrix when a request is dispatched.
    fn flag_served(&mut self, group: usize, dir: usize) {
        let bit = 1 << group;
        self.last_group[dir] = group;
        self.pend[dir] &= !bit;
        self.proc |= bit & if_write(dir) & self.groups_held(WRITE);
        self.start_round_if_done();
    }

    /// The kinds of a direction in the order in which they are tried.
    fn kinds(&self, dir: usize) -> [usize; 2] {
        let sync_first = self.queue.tunables.at(SYNC_FIRST) == 1;
        [kind_of(dir, sync_first), kind_of(dir, !sync_first)]
    }

    /// Chooses a sub-group for a read (algorithm 3).
    fn choose_read(&mut self, kind: usize) -> Option<usize> {
        let candidates = self.pend[READ] & self.held[kind];
        let from = (self.last_group[READ] + 1) % GROUPS;
        first_from(candidates & !self.proc, from).or_else(|| {
            let group = first_from(candidates, from)?;
            self.collisions += 1;
            Some(group)
        })
    }

    /// Chooses a sub-group for a write (algorithm 4).
    fn choose_write(&self, kind: usize) -> Option<usize> {
        let from = self.last_group[WRITE];
        let held = self.held[kind];
        first_from(held & self.proc, from).or_else(|| first_from(held & self.pend[WRITE], from))
    }

    /// The head of the sub-queue that the matrices select.
    fn choose_of(&mut self, dir: usize) -> Option<RequestId> {
        self.kinds(dir).into_iter().find_map(|kind| {
            let group = match dir {
                READ => self.choose_read(kind),
                _ => self.choose_write(kind),
            }?;
            self.sub_queues[group][kind].front()
        })
    }

    /// The first late request among the heads of the deadline queues.
    fn find_late(&self, ctx: &SchedCtx<'_>, first_dir: usize) -> Option<RequestId> {
        let now = jiffies(ctx.now);
        [first_dir, 1 - first_dir]
            .into_iter()
            .flat_map(|dir| self.kinds(dir))
            .find_map(|kind| {
                let oldest = self.deadlines[kind].front()?;
                (ctx.rqs[oldest].fifo_time.0 as i64 <= now).then_some(oldest)
            })
    }

    /// The direction to serve first: reads, unless they have starved writes or a run of writes is
    /// not complete.
    fn first_direction(&self) -> usize {
        let reads_ran = self.run[READ] >= self.queue.tunables.at(WRITES_STARVED);
        let writes_run = self.run[WRITE] > 0 && self.run[WRITE] < self.queue.tunables.at(WRITE_RUN);
        if (reads_ran && self.run[WRITE] == 0) || writes_run {
            WRITE
        } else {
            READ
        }
    }

    /// Chooses the next request (algorithm 2).
    fn choose(&mut self, ctx: &SchedCtx<'_>) -> Option<RequestId> {
        let first_dir = self.first_direction();
        let mut late = None;
        if self.batched >= self.queue.tunables.at(BATCH_LIMIT) {
            self.batched = 0;
            late = self.find_late(ctx, first_dir);
            self.expired += late.is_some() as u64;
        }
        let id = late
            .or_else(|| self.choose_of(first_dir))
            .or_else(|| self.choose_of(1 - first_dir))?;
        let overtaken = first_dir == WRITE && self.groups_held(READ) != 0;
        self.starvation_switches += (overtaken && ctx.rqs[id].is_write()) as u64;
        Some(id)
    }

    /// Removes a request from its queues and from the matrices.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let left = core::mem::take(&mut ctx.rqs[id].elv[ELV_PLACE]);
        let Some(place) = left.checked_sub(1) else {
            return;
        };
        ctx.rqs[id].elv[ELV_LEFT] = place;
        let (group, kind) = (place as usize / KINDS, place as usize % KINDS);
        self.deadlines[kind].remove(ctx.rqs, id);
        self.sub_queues[group][kind].remove(ctx.rqs, id);
        ctx.merge.remove(ctx.rqs, id);
        let dir = kind / 2;
        let left = (self.sub_queues[group][kind].is_empty() as u64) << group;
        self.held[kind] &= !left;
        let zero = left & !self.groups_held(dir);
        self.pend[dir] &= !zero;
        self.drained += (self.proc & zero & if_write(dir) != 0) as u64;
        self.proc &= !(zero & if_write(dir));
        self.start_round_if_done();
    }

    /// Records the dispatch of a request.
    fn enter_drive(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let place = ctx.rqs[id].elv[ELV_LEFT] as usize;
        let (group, dir) = (place / KINDS, place % KINDS / 2);
        self.flag_served(group, dir);
        self.run[dir] += 1;
        self.run[1 - dir] = 0;
        self.batched += 1;
    }
}

impl Elevator for Ac {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn depth_updated(&mut self, info: &QueueInfo) {
        self.capacity_sectors = info.capacity_sectors;
        self.layout = Layout::new(&self.queue.tunables, self.capacity_sectors);
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.queue.count_merge();
        // A request that is merged during its insertion is not queued yet. Others are neighbours in
        // a sub-queue.
        if let Some(place) = ctx.rqs[next].elv[ELV_PLACE].checked_sub(1) {
            self.deadlines[place as usize % KINDS].inherit_deadline(ctx.rqs, id, next);
        }
        self.remove(ctx, next);
    }

    fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.sub_queue_of(ctx.rqs, id)?.prev(ctx.rqs, id)
    }

    fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
        self.sub_queue_of(ctx.rqs, id)?.next(ctx.rqs, id)
    }

    /// Queues a request (algorithm 1).
    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let group = self.layout.group_of(rq.sector.0);
        let dir = rq.is_write() as usize;
        let kind = kind_of(dir, rq.is_sync());
        rq.fifo_time = Nanos((jiffies(ctx.now) + self.expire[kind]) as u64);
        rq.elv[ELV_PLACE] = (group * KINDS + kind) as u32 + 1;
        self.deadlines[kind].push_back(ctx.rqs, id);
        self.sub_queues[group][kind].push_back(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
        let bit = 1 << group;
        self.held[kind] |= bit;
        self.pend[dir] |= bit;
        self.proc &= !(bit & if_write(dir));
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
        !self.queue.head.is_empty() || self.held != [0; KINDS]
    }

    /// Nothing happens at an end.
    fn ends_can_wait(&self) -> bool {
        true
    }

    /// Requests stay in the sub-group that they were queued in.
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.queue.tunables.set(name, value)?;
        self.layout = Layout::new(&self.queue.tunables, self.capacity_sectors);
        self.expire = expire_jiffies(&self.queue.tunables);
        Ok(())
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        vec![
            ("read_pend", self.pend[READ] as i64),
            ("read_held", self.groups_held(READ) as i64),
            ("write_proc", self.proc as i64),
            ("write_held", self.groups_held(WRITE) as i64),
            ("batched", self.batched),
            ("starved", self.run[READ]),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.queue.counters([
            ("writes put first", self.starvation_switches),
            ("expired deadlines", self.expired),
            ("rounds of reads", self.rounds),
            ("reads beside writes", self.collisions),
            ("write groups drained", self.drained),
        ])
    }
}

/// Entry in the registry of schedulers.
pub const AC: ElevatorType = ElevatorType {
    name: "ac",
    help: "reads spread over an SSD's channels, writes gathered by channel, deadlines",
    source: "K. Okumura, master's thesis, Tokyo Institute of Technology 2016, chapter 4",
    tunables: TUNABLES,
    attributes: &[],
    costs: Some(StepCosts {
        merge: 56,
        insert: 65,
        dispatch: 117,
        finish: 0,
    }),
    build: Some(&|info| Box::new(Ac::new(info))),
};
