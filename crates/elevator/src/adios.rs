//! ADIOS, the adaptive deadline scheduler that CachyOS and other distributions
//! ship: M. Suzuki's patch, version 3.1.9 for Linux 6.12 (github
//! firelzrd/adios, README and patch).
//!
//! For reads, writes and discards apart, a model learns what a request takes: a
//! base for small ones and a slope a KiB beyond 4 KiB. The deadline of a
//! request that is flagged as synchronous is the time it was made, so those go
//! by age; another's, which a plain read is too, is that, a target for its
//! kind, and what it is predicted to take. Deadlines are cut to about a
//! millisecond and requests of one such moment go by arrival. Reads and the rest wait apart; where both have some, a bias
//! decides, which each choice against the earlier deadline moves, in proportion
//! to the predicted time and less for reads by `read_priority`.
//!
//! Requests go to the drive by way of two batch pages. While one is emptied the
//! other is filled, once what is predicted to be under way falls below
//! `bq_refill_below_ratio` of `global_latency_window`, and with as much as fits
//! into that window. Inside a page reads go first, then writes, then discards.
//!
//! Until a read and a write have been measured everything goes by arrival.
//! Head inserts go before all else, in order.
//!
//! The source takes a request for a barrier where the bit of the flush
//! operation is set in its operation. Flushes themselves never reach a
//! scheduler of blk-mq, but a discard's number has that bit too: it waits until
//! all that came before has been sent, and what comes later waits for it. That
//! is what the shipped scheduler does, so it is done here.
//!
//! Left out: writing the model through sysfs (`lat_model_*`,
//! `reset_lat_model`), which takes pairs of numbers, and `compliance_flags`.

use std::collections::VecDeque;

use blklab_blk::{
    Bio, BioFlags, Elevator, InsertAt, MergeKind, Nanos, Op, QueueInfo, Request, RequestId,
    RqFlags, RqList, SchedCtx, Tunable, TunableError, Tunables, Unit, op_is_sync,
    sched_try_insert_merge, sched_try_merge,
};

use crate::jiffies::{jiffies, msecs_to_jiffies, start_of};

const WINDOW: usize = 0;
const REFILL_BELOW: usize = 1;
const LATENCY_LIMIT: usize = 2;
const BATCH_ORDER: usize = 3;
/// The first of three, by kind.
const BATCH_LIMIT: usize = 4;
/// The first of three, by kind.
const TARGET: usize = 7;
const SHRINK_KREQS: usize = 10;
const SHRINK_GBYTES: usize = 11;
const SHRINK_RESIST: usize = 12;
const READ_PRIORITY: usize = 13;

/// A day: longer than any window or target that means something.
const DAY_NS: i64 = 86_400_000_000_000;
const BATCH_RANGE: (i64, i64) = (1, u32::MAX as i64);
const TARGET_RANGE: (i64, i64) = (0, DAY_NS);
const MS: i64 = 1_000_000;

/// What a user can set, by sysfs's names and units.
pub const TUNABLES: &[Tunable] = &[
    Tunable::new(
        "global_latency_window",
        Unit::Nanoseconds,
        (0, DAY_NS),
        16 * MS,
        "predicted time that the drive is given work for; 22 ms on a drive with moving parts",
    ),
    Tunable::new(
        "bq_refill_below_ratio",
        Unit::Percent,
        (0, 100),
        20,
        "part of the window below which the next batch is made",
    ),
    Tunable::new(
        "lat_model_latency_limit",
        Unit::Nanoseconds,
        (0, 2_000_000_000),
        500 * MS,
        "longest time that the models learn from",
    ),
    Tunable::new(
        "batch_order",
        Unit::Bool,
        (0, 1),
        0,
        "1: asynchronous requests of a batch by sector; the kernel allows it on drives with moving parts",
    ),
    Tunable::new(
        "batch_limit_read",
        Unit::Count,
        BATCH_RANGE,
        36,
        "reads of a batch",
    ),
    Tunable::new(
        "batch_limit_write",
        Unit::Count,
        BATCH_RANGE,
        72,
        "writes of a batch",
    ),
    Tunable::new(
        "batch_limit_discard",
        Unit::Count,
        BATCH_RANGE,
        1,
        "discards of a batch",
    ),
    Tunable::new(
        "lat_target_read",
        Unit::Nanoseconds,
        TARGET_RANGE,
        2 * MS,
        "how far off an asynchronous read's deadline is",
    ),
    Tunable::new(
        "lat_target_write",
        Unit::Nanoseconds,
        TARGET_RANGE,
        2_000 * MS,
        "how far off an asynchronous write's deadline is",
    ),
    Tunable::new(
        "lat_target_discard",
        Unit::Nanoseconds,
        TARGET_RANGE,
        8_000 * MS,
        "how far off a discard's deadline is",
    ),
    Tunable::new(
        "shrink_at_kreqs",
        Unit::Count,
        (1, 100_000),
        5_000,
        "thousands of small requests at which a model forgets a part",
    ),
    Tunable::new(
        "shrink_at_gbytes",
        Unit::Count,
        (1, 1_000),
        50,
        "GiB of large requests at which a model forgets a part",
    ),
    Tunable::new(
        "shrink_resist",
        Unit::Count,
        (1, 3),
        2,
        "how little it forgets: half to this power",
    ),
    Tunable::new(
        "read_priority",
        Unit::Count,
        (-20, 19),
        8,
        "how much reads are preferred at about the same deadline",
    ),
];

/// Reads, writes, discards, and the rest, which has no model.
const KINDS: usize = 4;
const READ: usize = 0;
const WRITE: usize = 1;
const DISCARD: usize = 2;
const OTHER: usize = 3;

fn kind_of(op: Op) -> usize {
    match op {
        Op::Read => READ,
        Op::Write => WRITE,
        Op::Discard => DISCARD,
        Op::Flush | Op::WriteZeroes => OTHER,
    }
}

fn is_barrier(op: Op) -> bool {
    matches!(op, Op::Flush | Op::Discard)
}

/// Weights of -20 to 19, as the kernel's CPU scheduler has them for niceness,
/// in 1024ths; a step is about a quarter.
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// Requests up to this size are small.
const SMALL_BYTES: u32 = 4096;
const BUCKETS: usize = 64;
/// Samples that a model is brought up to date for.
const ENOUGH_SAMPLES: u64 = 1024;
/// Time after which it is, whatever came.
const UPDATE_MS: i64 = 1_500;
/// Time after a completion at which models are looked at.
const LOOK_MS: i64 = 100;
/// Samples above this part are outliers.
const OUTLIER_PERCENT: u64 = 99;

/// Samples of about the same ratio to what was predicted.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    latency: u64,
    bytes: u64,
    weight: u64,
}

/// Which bucket a measured time belongs into.
fn bucket_of(measured: u64, predicted: u64) -> usize {
    let predicted = predicted.max(1);
    let times = |n: u64| measured.saturating_mul(n) / predicted;
    let index = if measured < predicted.saturating_mul(2) {
        times(20)
    } else if measured < predicted.saturating_mul(5) {
        times(10).saturating_add(20)
    } else {
        times(3).saturating_add(40)
    };
    index.min(BUCKETS as u64 - 1) as usize
}

/// The sum of all samples but the slowest.
fn sum_without_outliers(buckets: &[Bucket; BUCKETS], all: bool) -> Bucket {
    let total: u64 = buckets.iter().map(|b| b.weight).sum();
    let mut left = total * if all { 100 } else { OUTLIER_PERCENT } / 100;
    let mut sum = Bucket::default();
    for b in buckets.iter().filter(|b| b.weight > 0) {
        let taken = b.weight.min(left);
        let part = |of: u64| (of as u128 * taken as u128 / b.weight as u128) as u64;
        sum.latency += part(b.latency);
        sum.bytes += part(b.bytes);
        sum.weight += taken;
        left -= taken;
    }
    sum
}

/// What is known of one kind of request.
#[derive(Debug)]
struct Model {
    base_ns: u64,
    slope_ns_per_kib: u64,
    small: [Bucket; BUCKETS],
    large: [Bucket; BUCKETS],
    small_latency: u64,
    small_count: u64,
    large_latency: u64,
    large_bytes: u64,
    updated: i64,
}

impl Model {
    fn new() -> Model {
        Model {
            base_ns: 0,
            slope_ns_per_kib: 0,
            small: [Bucket::default(); BUCKETS],
            large: [Bucket::default(); BUCKETS],
            small_latency: 0,
            small_count: 0,
            large_latency: 0,
            large_bytes: 0,
            updated: 0,
        }
    }

    fn predict(&self, bytes: u32) -> u64 {
        let beyond_kib = bytes.saturating_sub(SMALL_BYTES).div_ceil(1024) as u64;
        self.base_ns + self.slope_ns_per_kib.saturating_mul(beyond_kib)
    }

    /// Takes a sample in. Returns whether it is the very first.
    fn learn(&mut self, bytes: u32, latency: u64, predicted: u64, weight: u64) -> bool {
        let bucket = if bytes <= SMALL_BYTES {
            &mut self.small[bucket_of(latency, self.base_ns)]
        } else if self.base_ns == 0 || predicted == 0 {
            return false;
        } else {
            &mut self.large[bucket_of(latency, predicted)]
        };
        bucket.latency += latency * weight;
        bucket.bytes += bytes as u64 * weight;
        bucket.weight += weight;
        bytes <= SMALL_BYTES && self.base_ns == 0
    }

    fn update(&mut self, tunables: &Tunables, now: i64) {
        let weight = |buckets: &[Bucket; BUCKETS]| buckets.iter().map(|b| b.weight).sum::<u64>();
        let (small, large) = (weight(&self.small), weight(&self.large));
        let due = self.base_ns == 0 || now >= self.updated + msecs_to_jiffies(UPDATE_MS);
        let small_due = small > 0 && (due || small >= ENOUGH_SAMPLES);
        let large_due = large > 0 && (due || large >= ENOUGH_SAMPLES || self.slope_ns_per_kib == 0);
        if small_due {
            self.update_base(tunables);
        }
        if large_due {
            self.update_slope(tunables);
        }
        if small_due || large_due || due {
            self.updated = now;
        }
    }

    fn update_base(&mut self, tunables: &Tunables) {
        let sum = sum_without_outliers(&self.small, self.base_ns == 0);
        self.small = [Bucket::default(); BUCKETS];
        if self.small_count >= 1000 * tunables.at(SHRINK_KREQS) as u64 {
            let by = tunables.at(SHRINK_RESIST) as u32;
            self.small_latency -= self.small_latency >> by;
            self.small_count -= self.small_count >> by;
        }
        self.small_latency += sum.latency;
        self.small_count += sum.weight;
        if let Some(base) = self.small_latency.checked_div(self.small_count) {
            self.base_ns = base;
        }
    }

    fn update_slope(&mut self, tunables: &Tunables) {
        let sum = sum_without_outliers(&self.large, self.slope_ns_per_kib == 0);
        self.large = [Bucket::default(); BUCKETS];
        if sum.weight == 0 {
            return;
        }
        if self.large_bytes >= tunables.at(SHRINK_GBYTES) as u64 * (1 << 30) {
            let by = tunables.at(SHRINK_RESIST) as u32;
            self.large_latency -= self.large_latency >> by;
            self.large_bytes -= self.large_bytes >> by;
        }
        // As the source has it: one base is taken off the whole sum.
        let base = self.base_ns;
        self.large_latency += sum.latency - if sum.latency > base { base } else { 0 };
        self.large_bytes += sum.bytes;
        let kib = self.large_bytes.div_ceil(1024);
        if let Some(slope) = self.large_latency.checked_div(kib) {
            self.slope_ns_per_kib = slope;
        }
    }
}

/// Deadlines are cut by this many bits: about a millisecond.
const QUANTUM_SHIFT: u32 = 20;

/// Requests in order of their deadlines' moments, and in one moment by arrival.
/// New moments are mostly the last, so a sorted ring is cheaper than a tree.
#[derive(Debug, Default)]
struct DeadlineQueue {
    moments: VecDeque<(u64, RqList)>,
}

impl DeadlineQueue {
    /// Where a moment is or belongs. New ones are mostly the last, and those
    /// taken out the first, so both ends are looked at before the rest.
    fn place_of(&self, moment: u64) -> usize {
        match (self.moments.front(), self.moments.back()) {
            (Some(&(first, _)), _) if first >= moment => 0,
            (_, Some(&(last, _))) if last == moment => self.moments.len() - 1,
            (_, Some(&(last, _))) if last < moment => self.moments.len(),
            _ => self.moments.partition_point(|&(m, _)| m < moment),
        }
    }

    fn insert(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let moment = ctx.rqs[id].fifo_time.0 >> QUANTUM_SHIFT;
        let at = self.place_of(moment);
        if self.moments.get(at).is_none_or(|&(m, _)| m != moment) {
            self.moments.insert(at, (moment, RqList::new()));
        }
        self.moments[at].1.push_back(ctx.rqs, id);
    }

    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let at = self.place_of(ctx.rqs[id].fifo_time.0 >> QUANTUM_SHIFT);
        self.moments[at].1.remove(ctx.rqs, id);
        if self.moments[at].1.is_empty() {
            self.moments.remove(at);
        }
    }

    fn first(&self) -> Option<RequestId> {
        self.moments.front()?.1.front()
    }
}

/// Where a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    /// In a deadline queue.
    Waiting,
    /// Chosen, dispatched or past choosing: its predicted time is under way.
    Chosen,
}

/// What is kept of a request.
#[derive(Clone, Copy, Debug, Default)]
struct RqData {
    place: Place,
    predicted_ns: u64,
    bytes: u32,
}

/// The list of a page that is sorted where `batch_order` says so.
const SORTED: usize = 1;

/// A batch: lists in the order in which they are sent.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    lists: [RqList; KINDS],
    by_sector: bool,
}

impl Page {
    fn is_empty(&self) -> bool {
        self.lists.iter().all(RqList::is_empty)
    }

    /// The next to go: the first of the first list that has any, or from the
    /// end of the sorted one where the head is nearer to that.
    fn pop(&mut self, ctx: &mut SchedCtx<'_>, backwards: bool) -> Option<RequestId> {
        let at = self.lists.iter().position(|list| !list.is_empty())?;
        let list = &mut self.lists[at];
        if at != SORTED || !self.by_sector || !backwards {
            return list.pop_front(ctx.rqs);
        }
        let last = list.back()?;
        list.remove(ctx.rqs, last);
        Some(last)
    }

    /// Whether `head` is in the upper half of what the sorted list spans.
    fn lies_below(&self, ctx: &SchedCtx<'_>, head: u64) -> bool {
        let list = &self.lists[SORTED];
        let (Some(first), Some(last)) = (list.front(), list.back()) else {
            return false;
        };
        head > ctx.rqs[first].sector.0.midpoint(ctx.rqs[last].sector.0)
    }
}

/// The scheduler's state.
pub struct Adios {
    tunables: Tunables,
    rotational: bool,
    async_depth: u32,
    models: [Model; KINDS],
    stable: bool,
    data: Vec<RqData>,
    /// Head inserts, and what goes by arrival.
    fifo: [RqList; 2],
    /// Reads, and the rest.
    waiting: [DeadlineQueue; 2],
    /// Below zero the rest is preferred, else reads are.
    bias: i64,
    pages: [Page; 2],
    front: usize,
    /// The sorted list of the front page is sent from its end.
    backwards: bool,
    /// Where the last request sent ends.
    head_end: u64,
    sorter: Vec<RequestId>,
    /// A discard and all that came behind it.
    behind_barrier: RqList,
    under_way: u64,
    under_way_ns: u64,
    last_completed: Nanos,
    last_completed_end: u64,
    look_at: Option<i64>,
    batches: u64,
    largest_batch: u64,
    merged: u64,
    dispatched: u64,
}

impl Adios {
    /// A fresh one.
    pub fn new(info: &QueueInfo) -> Adios {
        let mut tunables = Tunables::new(TUNABLES);
        if info.rotational {
            // In range by construction.
            let _ = tunables.set("global_latency_window", 22 * MS);
        }
        Adios {
            tunables,
            rotational: info.rotational,
            async_depth: info.nr_requests,
            models: std::array::from_fn(|_| Model::new()),
            stable: false,
            data: Vec::new(),
            fifo: [RqList::new(); 2],
            waiting: Default::default(),
            bias: 0,
            pages: Default::default(),
            front: 0,
            backwards: false,
            head_end: 0,
            sorter: Vec::new(),
            behind_barrier: RqList::new(),
            under_way: 0,
            under_way_ns: 0,
            last_completed: Nanos::ZERO,
            last_completed_end: 0,
            look_at: None,
            batches: 0,
            largest_batch: 0,
            merged: 0,
            dispatched: 0,
        }
    }

    fn start_way(&mut self, id: RequestId) {
        let data = &mut self.data[id.index()];
        data.place = Place::Chosen;
        self.under_way += 1;
        self.under_way_ns += data.predicted_ns;
    }

    fn end_way(&mut self, id: RequestId) {
        let data = &mut self.data[id.index()];
        if std::mem::take(&mut data.place) == Place::Chosen {
            self.under_way -= 1;
            self.under_way_ns -= data.predicted_ns;
        }
    }

    /// A deadline: the time it was made for a synchronous request, later by
    /// its target and what it takes for others.
    fn deadline(&self, id: RequestId, rq: &Request) -> Nanos {
        if rq.flags.has(BioFlags::SYNC) {
            return rq.start;
        }
        let kind = kind_of(rq.op);
        let target = match kind {
            OTHER => 0,
            kind => self.tunables.at(TARGET + kind) as u64,
        };
        let predicted = self.data[id.index()].predicted_ns;
        rq.start.saturating_add(Nanos(target + predicted))
    }

    fn wait(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.rqs[id].fifo_time = self.deadline(id, &ctx.rqs[id]);
        self.data[id.index()].place = Place::Waiting;
        self.waiting[ctx.rqs[id].is_write() as usize].insert(ctx, id);
    }

    /// Returns whether it waits on its own.
    fn merge_or_wait(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> bool {
        let merged = sched_try_insert_merge(self, ctx, id);
        if !merged {
            self.wait(ctx, id);
            ctx.merge.add(ctx.rqs, id);
        }
        !merged
    }

    fn insert(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, at: InsertAt) {
        let rq = &ctx.rqs[id];
        let (op, bytes) = (rq.op, rq.sectors.saturating_mul(512));
        // A requeued request is under way already.
        self.end_way(id);
        self.data[id.index()] = RqData {
            place: Place::Nowhere,
            predicted_ns: self.models[kind_of(op)].predict(bytes),
            bytes,
        };
        if at == InsertAt::Head || !self.stable {
            ctx.trace_insert(id);
            self.fifo[(at == InsertAt::Tail) as usize].push_back(ctx.rqs, id);
            self.start_way(id);
            self.stable |= self.models[READ].base_ns > 0 && self.models[WRITE].base_ns > 0;
        } else if is_barrier(op) || !self.behind_barrier.is_empty() {
            ctx.trace_insert(id);
            self.behind_barrier.push_back(ctx.rqs, id);
        } else if self.merge_or_wait(ctx, id) {
            ctx.trace_insert(id);
        }
    }

    /// Takes a waiting request out; one that merges while it is being inserted
    /// waits nowhere.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let data = &mut self.data[id.index()];
        if data.place == Place::Waiting {
            data.place = Place::Nowhere;
            self.waiting[ctx.rqs[id].is_write() as usize].remove(ctx, id);
        }
        ctx.merge.remove(ctx.rqs, id);
    }

    /// The next request for a batch, and how the bias moves if it is taken.
    fn next_waiting(&self, ctx: &SchedCtx<'_>) -> Option<(RequestId, i64)> {
        let preferred = (self.bias < 0) as usize;
        let other = 1 - preferred;
        let (id, moves) = match (self.waiting[preferred].first(), self.waiting[other].first()) {
            (None, None) => return None,
            (Some(id), None) => (id, true),
            (None, Some(id)) => (id, false),
            (Some(id), Some(passed)) => (id, ctx.rqs[id].fifo_time > ctx.rqs[passed].fifo_time),
        };
        let sign = 2 * preferred as i64 - 1;
        let step = match self.data[id.index()].predicted_ns {
            _ if !moves => 0,
            0 => return Some((id, sign - self.bias)),
            ns => (ns.saturating_mul(self.weight(preferred)) >> 10).min(DAY_NS as u64) as i64,
        };
        Some((id, sign * step))
    }

    fn weight(&self, side: usize) -> u64 {
        let priority = match side {
            READ => self.tunables.at(READ_PRIORITY),
            _ => 0,
        };
        WEIGHTS[(priority + 20) as usize]
    }

    /// Whether a batch may take one more request.
    fn fits(&self, counts: &[u64; KINDS], kind: usize, batch_ns: u64, ns: u64) -> bool {
        let limit = match kind {
            OTHER => 1,
            kind => self.tunables.at(BATCH_LIMIT + kind) as u64,
        };
        let total = self.under_way_ns.saturating_add(batch_ns);
        self.models[kind].base_ns > 0
            && counts[kind] < limit
            && total.saturating_add(ns) <= self.tunables.at(WINDOW) as u64
    }

    /// Fills the back page, with one request at least.
    fn fill_batch(&mut self, ctx: &mut SchedCtx<'_>) {
        let page = 1 - self.front;
        let by_sector = self.tunables.at(BATCH_ORDER) == 1;
        self.pages[page].by_sector = by_sector;
        let (mut counts, mut batch_ns) = ([0; KINDS], 0);
        while let Some((id, bias)) = self.next_waiting(ctx) {
            let kind = kind_of(ctx.rqs[id].op);
            let ns = self.data[id.index()].predicted_ns;
            if counts != [0; KINDS] && !self.fits(&counts, kind, batch_ns, ns) {
                break;
            }
            self.bias = self.bias.saturating_add(bias);
            self.remove(ctx, id);
            self.data[id.index()].place = Place::Chosen;
            let list = match kind {
                OTHER => OTHER,
                kind if !by_sector => kind,
                _ if ctx.rqs[id].fifo_time == ctx.rqs[id].start => 0,
                _ => SORTED,
            };
            self.pages[page].lists[list].push_back(ctx.rqs, id);
            counts[kind] += 1;
            batch_ns += ns;
        }
        let count = counts.iter().sum();
        self.under_way += count;
        self.under_way_ns += batch_ns;
        self.batches += (count > 0) as u64;
        self.largest_batch = self.largest_batch.max(count);
        if by_sector {
            self.sort(ctx, page);
        }
    }

    /// Puts a batch's asynchronous requests in sector order.
    fn sort(&mut self, ctx: &mut SchedCtx<'_>, page: usize) {
        let list = &mut self.pages[page].lists[SORTED];
        while let Some(id) = list.pop_front(ctx.rqs) {
            self.sorter.push(id);
        }
        self.sorter.sort_by_key(|&id| ctx.rqs[id].sector);
        for id in self.sorter.drain(..) {
            list.push_back(ctx.rqs, id);
        }
    }

    fn dispatch_from_batch(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let (front_empty, back_empty) = (
            self.pages[self.front].is_empty(),
            self.pages[1 - self.front].is_empty(),
        );
        let threshold = self.tunables.at(WINDOW) * self.tunables.at(REFILL_BELOW) / 100;
        let low = self.under_way_ns == 0 || self.under_way_ns < threshold as u64;
        if back_empty && (front_empty || low) {
            self.fill_batch(ctx);
        }
        if front_empty {
            self.front = 1 - self.front;
            self.backwards =
                self.rotational && self.pages[self.front].lies_below(ctx, self.head_end);
        }
        self.pages[self.front].pop(ctx, self.backwards)
    }

    /// All before a barrier has been sent: it goes, and what came behind it, up
    /// to the next barrier, may wait for its turn.
    fn release_barrier(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let barrier = self.behind_barrier.pop_front(ctx.rqs)?;
        self.start_way(barrier);
        while let Some(id) = self.behind_barrier.front() {
            if is_barrier(ctx.rqs[id].op) {
                break;
            }
            self.behind_barrier.remove(ctx.rqs, id);
            self.merge_or_wait(ctx, id);
        }
        Some(barrier)
    }

    /// What a seek costs, as a weight of a sample on a drive with moving parts.
    fn sample_weight(&mut self, rq: &Request) -> u64 {
        if !self.rotational {
            return 1;
        }
        let last = std::mem::replace(&mut self.last_completed_end, rq.end().0);
        match last {
            0 => 1,
            last => 65 - last.abs_diff(rq.sector.0).leading_zeros() as u64,
        }
    }

    fn learn(&mut self, ctx: &SchedCtx<'_>, id: RequestId) {
        let (rq, data) = (&ctx.rqs[id], self.data[id.index()]);
        let kind = kind_of(rq.op);
        if kind == OTHER {
            self.last_completed_end = 0;
            return;
        }
        // What a request took counts from the completion before it.
        let since = match self.last_completed {
            Nanos::ZERO => rq.io_start,
            last => last,
        };
        let busy = self.under_way > 0;
        self.last_completed = if busy { ctx.now } else { Nanos::ZERO };
        if rq.io_start == Nanos::ZERO || data.bytes == 0 || ctx.now < since {
            return;
        }
        let latency = (ctx.now - since).0;
        if latency > self.tunables.at(LATENCY_LIMIT) as u64 {
            return;
        }
        let (weight, now) = (self.sample_weight(rq), jiffies(ctx.now));
        let model = &mut self.models[kind];
        if model.learn(data.bytes, latency, data.predicted_ns, weight) {
            model.update(&self.tunables, now);
        }
        let look = now + msecs_to_jiffies(LOOK_MS);
        self.look_at = Some(self.look_at.map_or(look, |at| at.min(look)));
    }
}

impl Elevator for Adios {
    fn name(&self) -> &'static str {
        "adios"
    }

    fn depth_updated(&mut self, info: &QueueInfo) {
        self.async_depth = info.nr_requests;
    }

    fn limit_depth(&mut self, op: Op, flags: BioFlags) -> Option<u32> {
        let sync_read = !op.is_write() && op_is_sync(op, flags);
        (!sync_read).then_some(self.async_depth)
    }

    fn min_shallow_depth(&self) -> Option<u32> {
        Some(1)
    }

    fn bio_merge(&mut self, ctx: &mut SchedCtx<'_>, _cpu: usize, bio: &Bio) -> Option<RequestId> {
        if !self.behind_barrier.is_empty() {
            return None;
        }
        sched_try_merge(self, ctx, bio)
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, _kind: MergeKind) {
        if self.data[id.index()].place == Place::Waiting {
            self.waiting[ctx.rqs[id].is_write() as usize].remove(ctx, id);
            self.wait(ctx, id);
        }
    }

    fn requests_merged(&mut self, ctx: &mut SchedCtx<'_>, _id: RequestId, next: RequestId) {
        self.merged += 1;
        self.remove(ctx, next);
    }

    fn prepare_request(&mut self, _ctx: &mut SchedCtx<'_>, id: RequestId) {
        if self.data.len() <= id.index() {
            self.data.resize(id.index() + 1, RqData::default());
        }
        self.data[id.index()] = RqData::default();
    }

    #[inline(always)]
    fn insert_request(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        _hctx: usize,
        id: RequestId,
        at: InsertAt,
    ) {
        self.insert(ctx, id, at);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        let first = self.fifo.iter_mut().find(|fifo| !fifo.is_empty());
        let id = first
            .and_then(|fifo| fifo.pop_front(ctx.rqs))
            .or_else(|| self.dispatch_from_batch(ctx))
            .or_else(|| self.release_barrier(ctx))?;
        self.dispatched += 1;
        self.head_end = ctx.rqs[id].end().0;
        ctx.rqs[id].rq_flags.set(RqFlags::STARTED);
        Some(id)
    }

    fn has_work(&self, _hctx: usize) -> bool {
        let lists = self.fifo.iter().chain([&self.behind_barrier]);
        lists.into_iter().any(|list| !list.is_empty())
            || self.waiting.iter().any(|w| !w.moments.is_empty())
            || self.pages.iter().any(|page| !page.is_empty())
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.end_way(id);
        self.learn(ctx, id);
    }

    fn finish_request(&mut self, _ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.end_way(id);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.look_at.map(start_of)
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        let now = jiffies(ctx.now);
        if self.look_at.take_if(|at| *at <= now).is_some() {
            for model in &mut self.models {
                model.update(&self.tunables, now);
            }
        }
        false
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// A new target makes its model start anew, a new priority the bias.
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.tunables.set(name, value)?;
        match name {
            "lat_target_read" => self.models[READ] = Model::new(),
            "lat_target_write" => self.models[WRITE] = Model::new(),
            "lat_target_discard" => self.models[DISCARD] = Model::new(),
            "read_priority" => self.bias = 0,
            _ => {}
        }
        Ok(())
    }

    fn debug_state(&self) -> Vec<(&'static str, i64)> {
        vec![
            ("lat_model_read_base", self.models[READ].base_ns as i64),
            (
                "lat_model_read_slope",
                self.models[READ].slope_ns_per_kib as i64,
            ),
            ("lat_model_write_base", self.models[WRITE].base_ns as i64),
            (
                "lat_model_write_slope",
                self.models[WRITE].slope_ns_per_kib as i64,
            ),
            ("total_pred_lat", self.under_way_ns as i64),
            ("dl_bias", self.bias),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("batches", self.batches),
            ("largest batch", self.largest_batch),
            ("requests merged", self.merged),
            ("dispatched", self.dispatched),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Rig, queue_info};
    use blklab_blk::Sector;

    fn bio(op: Op, flags: BioFlags, sector: u64, sectors: u32) -> Bio {
        Bio {
            flags,
            ..Bio::new(op, Sector(sector), sectors)
        }
    }

    fn serve(rig: &mut Rig, bio: &Bio, us: u64) {
        rig.insert(bio);
        let id = rig.dispatch().expect("has one");
        rig.now += Nanos::from_micros(us);
        rig.complete(id);
        rig.run_timer();
    }

    fn state(rig: &Rig, name: &str) -> i64 {
        let state = rig.elevator.debug_state();
        state.iter().find(|(n, _)| *n == name).unwrap().1
    }

    /// A read takes 100 us and a write 1 ms, and a while has gone by.
    fn taught() -> Rig {
        let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
        rig.pass_ms(1);
        for i in 0..20 {
            serve(
                &mut rig,
                &bio(Op::Read, BioFlags::NONE, 8000 + i * 100, 8),
                100,
            );
            serve(
                &mut rig,
                &bio(Op::Write, BioFlags::NONE, 8000 + i * 100, 8),
                1000,
            );
        }
        rig.pass_ms(2000);
        rig.run_timer();
        // The last request that still goes by arrival turns the models on.
        serve(&mut rig, &bio(Op::Read, BioFlags::NONE, 4, 8), 100);
        rig
    }

    #[test]
    fn learns_the_base_of_each_kind_and_the_slope() {
        let mut rig = taught();
        assert!(state(&rig, "lat_model_read_base").abs_diff(100_000) < 2_000);
        assert!(state(&rig, "lat_model_write_base").abs_diff(1_000_000) < 20_000);
        for i in 0..200 {
            serve(&mut rig, &bio(Op::Read, BioFlags::NONE, i * 1000, 136), 740);
        }
        rig.pass_ms(2000);
        rig.run_timer();
        serve(&mut rig, &bio(Op::Read, BioFlags::NONE, 4, 136), 740);
        // 640 us more for 64 KiB more; the base counts into the sum but once.
        let slope = state(&rig, "lat_model_read_slope");
        assert!((9_000..=11_500).contains(&slope), "{slope}");
    }

    #[test]
    fn goes_by_arrival_until_reads_and_writes_are_known() {
        let mut rig = Rig::new(Box::new(Adios::new(&queue_info())));
        for (i, op) in [Op::Write, Op::Read, Op::Write, Op::Read]
            .into_iter()
            .enumerate()
        {
            rig.insert(&bio(op, BioFlags::NONE, 1000 * i as u64, 8));
        }
        assert_eq!(rig.drain_sectors(), [0, 1000, 2000, 3000]);
    }

    #[test]
    fn a_batch_fits_the_window_and_its_limits() {
        let mut rig = taught();
        for i in 0..100 {
            rig.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
        }
        rig.drain();
        // 16 ms hold 15 or 16 writes of a millisecond.
        assert!((15..=16).contains(&rig.count("largest batch")));
        let mut rig = taught();
        for i in 0..100 {
            rig.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
        }
        rig.dispatch();
        assert_eq!(rig.count("largest batch"), 36);
    }

    #[test]
    fn synchronous_writes_go_by_age_before_asynchronous_ones() {
        let mut rig = taught();
        for i in 0..5 {
            rig.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
        }
        rig.pass_ms(5);
        let sync = rig.insert(&bio(Op::Write, BioFlags::SYNC, 90_000, 8));
        assert_eq!(rig.dispatch(), sync);
    }

    #[test]
    fn reads_go_first_in_a_batch_and_writes_are_not_starved() {
        let mut rig = taught();
        rig.insert(&bio(Op::Write, BioFlags::NONE, 0, 8));
        for i in 1..10 {
            rig.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
        }
        let ids = rig.drain();
        assert!(rig.rq(ids[9]).is_write());

        let mut rig = taught();
        let write = rig.insert(&bio(Op::Write, BioFlags::SYNC, 0, 8));
        let mut sent = 0;
        for i in 1.. {
            rig.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
            rig.now += Nanos::from_micros(100);
            let id = rig.dispatch().unwrap();
            rig.complete(id);
            if Some(id) == write {
                break;
            }
            sent += 1;
        }
        assert!(sent < 500, "the write waited for {sent} reads");
    }

    #[test]
    fn a_discard_waits_for_what_came_before_and_is_waited_for() {
        let mut rig = taught();
        let before = rig.insert(&bio(Op::Write, BioFlags::NONE, 0, 8));
        let discard = rig.insert(&bio(Op::Discard, BioFlags::NONE, 5000, 8));
        let behind = rig.insert(&bio(Op::Read, BioFlags::SYNC, 9000, 8));
        let ids: Vec<_> = rig.drain().into_iter().map(Some).collect();
        assert_eq!(ids, [before, discard, behind]);
    }
}
