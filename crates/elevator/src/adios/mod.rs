//! ADIOS, the adaptive deadline scheduler that CachyOS and other distributions
//! ship: M. Suzuki's patch, version 3.1.9 for Linux 6.12 (github
//! firelzrd/adios, README and patch).
//!
//! For reads, writes and discards separately, a model learns how long a request takes: a base for
//! small requests, and a slope per KiB beyond 4 KiB. The deadline of a request with the SYNC flag
//! is its time of allocation, so these go by age. The deadline of any other request, including
//! plain reads, is that time plus a target for its kind plus its predicted time. Deadlines are
//! truncated to about a millisecond, and requests with equal ones go by arrival. Reads and all
//! others wait in separate queues; if both have requests, a bias decides. Each choice against the
//! earlier deadline changes the bias in proportion to the predicted time, less so for reads, by
//! `read_priority`.
//!
//! Requests reach the drive through two batch pages. While one is emptied the other is filled, as
//! soon as the predicted time in flight falls below `bq_refill_below_ratio` of
//! `global_latency_window`, with as much as fits into that window. Within a page reads go first,
//! then writes, then discards.
//!
//! Until a read and a write have been measured, all requests go by arrival. Requests inserted at
//! the head go next, in order.
//!
//! Some behaviour of the shipped scheduler looks like a mistake; it is kept:
//! - A discard is a barrier: it waits until all earlier requests have been dispatched, and later
//!   ones wait for it (see [`is_barrier`]).
//! - Samples of all kinds are gathered in one place. Samples that are too few for one model go into
//!   another kind's model (see `model`).
//! - Requests left over from the order of arrival go before head inserts.
//! - With `batch_order` 1 a batch is sorted only if it contains two writes.
//! - A sample far beyond its prediction may count as a fast one.
//!
//! Two details differ: in the source a requeued request counts as in flight twice for ever, and
//! samples are gathered for each CPU, which has no effect. Version 3.2.0, which its author calls a
//! test version, distinguishes flushes from discards, limits predictions to
//! `lat_model_latency_limit`, sorts far samples correctly, and measures from the last completion on
//! the same CPU.

mod model;
mod settings;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::{
    Attribute, Bio, BioFlags, Elevator, ElevatorQueue, InsertAt, MergeKind, Nanos, Op, QueueInfo,
    Request, RequestId, RqFlags, RqList, SchedCtx, Sector, Tunable, TunableError, jiffies,
    jiffy_start, msecs_to_jiffies, op_is_sync, sched_try_insert_merge, sched_try_merge,
};

use crate::{ElevatorType, StepCosts};
use model::{Model, Samples};
use settings::{
    ATTRIBUTES, BATCH_LIMIT, BATCH_ORDER, COMPLIANCE, DAY_NS, LATENCY_LIMIT, MS, READ_PRIORITY,
    REFILL_BELOW, TARGET, TUNABLES, WINDOW,
};

/// Number of kinds: reads, writes, discards, and others, which have no model.
const KINDS: usize = 4;
const READ: usize = 0;
const WRITE: usize = 1;
const DISCARD: usize = 2;
const OTHER: usize = 3;

/// A bit of `compliance_flags`: predicted times do not change the order.
const FIXED_ORDER: i64 = 1;

fn kind_of(op: Op) -> usize {
    match op {
        Op::Read => READ,
        Op::Write => WRITE,
        Op::Discard => DISCARD,
        Op::Flush | Op::WriteZeroes | Op::Zone(_) => OTHER,
    }
}

/// State of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RqState {
    #[default]
    NotQueued,
    /// In a deadline queue.
    Queued,
    /// In a batch, in the order of arrival or in the drive; its predicted time counts as in flight.
    InFlight,
}

/// The scheduler's data of a request.
#[derive(Clone, Copy, Debug, Default)]
struct RqData {
    state: RqState,
    predicted_ns: u64,
    bytes: u32,
}

/// Whether an operation is a barrier. The source tests the bit of the flush operation. Flushes
/// never reach a scheduler of blk-mq, but the number of a discard also has that bit.
fn is_barrier(op: Op) -> bool {
    matches!(op, Op::Flush | Op::Discard)
}

/// Delay after a completion until the models may be updated, in milliseconds.
const UPDATE_CHECK_MS: i64 = 100;

/// Deadlines are truncated by this many bits, about a millisecond.
const QUANTUM_SHIFT: u32 = 20;

/// Requests grouped by the quantum of their deadline; groups are in order, and requests of a group
/// are in order of arrival. A new group is mostly the last, so a sorted ring is faster than a tree.
#[derive(Debug, Default)]
struct DeadlineQueue {
    groups: VecDeque<(u64, RqList)>,
}

impl DeadlineQueue {
    /// The index at which the group of a quantum is or belongs. New groups are mostly the last and
    /// removed ones the first, so both ends are tried before the binary search.
    fn place_of(&self, quantum: u64) -> usize {
        match (self.groups.front(), self.groups.back()) {
            (Some(&(first, _)), _) if first >= quantum => 0,
            (_, Some(&(last, _))) if last == quantum => self.groups.len() - 1,
            (_, Some(&(last, _))) if last < quantum => self.groups.len(),
            _ => self.groups.partition_point(|&(m, _)| m < quantum),
        }
    }

    fn insert(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let quantum = ctx.rqs[id].fifo_time.0 >> QUANTUM_SHIFT;
        let at = self.place_of(quantum);
        if self.groups.get(at).is_none_or(|&(m, _)| m != quantum) {
            self.groups.insert(at, (quantum, RqList::new()));
        }
        self.groups[at].1.push_back(ctx.rqs, id);
    }

    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let at = self.place_of(ctx.rqs[id].fifo_time.0 >> QUANTUM_SHIFT);
        self.groups[at].1.remove(ctx.rqs, id);
        if self.groups[at].1.is_empty() {
            self.groups.remove(at);
        }
    }

    fn first(&self) -> Option<RequestId> {
        self.groups.front()?.1.front()
    }
}

/// Weights of nice levels -20 to 19 in the kernel's CPU scheduler, in 1024ths; neighbours differ by
/// about a quarter.
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The list of a page that is sorted if `batch_order` is set.
const SORTED: usize = 1;

/// A batch: lists in the order in which they are dispatched.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    lists: [RqList; KINDS],
    by_sector: bool,
}

impl Page {
    fn is_empty(&self) -> bool {
        self.lists.iter().all(RqList::is_empty)
    }

    /// Removes the next request: the first of the first non-empty list, or the last of the sorted
    /// list if `backwards` is set.
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

    /// Whether `head` is in the upper half of the sorted list's range.
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
    queue: ElevatorQueue,
    rotational: bool,
    async_depth: u32,
    models: [Model; KINDS],
    /// Samples that no model has taken yet.
    gathered: Samples,
    stable: bool,
    data: Vec<RqData>,
    /// Head inserts, and requests that go by arrival.
    fifo: [RqList; 2],
    /// Waiting reads, and all other waiting requests.
    waiting: [DeadlineQueue; 2],
    /// Below zero other requests are preferred, otherwise reads.
    bias: i64,
    pages: [Page; 2],
    front: usize,
    /// Whether the front page's sorted list is dispatched from its end.
    backwards: bool,
    /// Sector after the last dispatched request.
    head_end: u64,
    sorter: Vec<(Sector, u32, RequestId)>,
    /// A discard and all requests that came after it.
    behind_barrier: RqList,
    in_flight: u64,
    in_flight_ns: u64,
    last_completed: Nanos,
    last_completed_end: u64,
    update_models_at: Option<i64>,
    batches: u64,
    largest_batch: u64,
    largest_by_kind: [u64; KINDS],
    merged: u64,
    dispatched: u64,
}

impl Adios {
    /// Returns a scheduler without requests and with default tunables.
    pub fn new(info: &QueueInfo) -> Adios {
        let mut queue = ADIOS.queue();
        if info.rotational {
            // The value is always in range.
            let _ = queue.tunables.set("global_latency_window", 22 * MS);
        }
        Adios {
            queue,
            rotational: info.rotational,
            async_depth: info.nr_requests,
            models: Default::default(),
            gathered: Samples::default(),
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
            in_flight: 0,
            in_flight_ns: 0,
            last_completed: Nanos::ZERO,
            last_completed_end: 0,
            update_models_at: None,
            batches: 0,
            largest_batch: 0,
            largest_by_kind: [0; KINDS],
            merged: 0,
            dispatched: 0,
        }
    }

    fn add_in_flight(&mut self, id: RequestId) {
        let data = &mut self.data[id.index()];
        data.state = RqState::InFlight;
        self.in_flight += 1;
        self.in_flight_ns = self.in_flight_ns.saturating_add(data.predicted_ns);
    }

    fn remove_in_flight(&mut self, id: RequestId) {
        let data = &mut self.data[id.index()];
        if core::mem::take(&mut data.state) == RqState::InFlight {
            self.in_flight -= 1;
            self.in_flight_ns = self.in_flight_ns.saturating_sub(data.predicted_ns);
        }
    }

    /// The deadline: the time of allocation for a request with SYNC, otherwise later by its target
    /// and predicted time.
    fn deadline(&self, id: RequestId, rq: &Request) -> Nanos {
        if rq.flags.has(BioFlags::SYNC) {
            return rq.start;
        }
        let kind = kind_of(rq.op);
        let target = match kind {
            OTHER => 0,
            kind => self.queue.tunables.at(TARGET + kind) as u64,
        };
        let predicted = match self.queue.tunables.at(COMPLIANCE) & FIXED_ORDER {
            0 => self.data[id.index()].predicted_ns,
            _ => 0,
        };
        let beyond = target.saturating_add(predicted);
        rq.start.saturating_add(Nanos(beyond))
    }

    fn wait(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        ctx.rqs[id].fifo_time = self.deadline(id, &ctx.rqs[id]);
        self.data[id.index()].state = RqState::Queued;
        self.waiting[ctx.rqs[id].is_write() as usize].insert(ctx, id);
    }

    /// Merges or queues a request. Returns whether it was queued.
    fn merge_or_wait(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> bool {
        let merged = sched_try_insert_merge(self, ctx, id);
        if !merged {
            self.wait(ctx, id);
            ctx.merge.add(ctx.rqs, id);
        }
        !merged
    }

    /// Takes the next request by arrival, then the head inserts.
    fn next_by_arrival(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let [heads, arrivals] = &mut self.fifo;
        let fifo = if arrivals.is_empty() { heads } else { arrivals };
        let id = fifo.pop_front(ctx.rqs)?;
        if fifo.is_empty() {
            self.update_direction(ctx);
        }
        Some(id)
    }

    /// Removes a waiting request. One that is merged during its insertion is not waiting yet.
    fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let data = &mut self.data[id.index()];
        if data.state == RqState::Queued {
            data.state = RqState::NotQueued;
            self.waiting[ctx.rqs[id].is_write() as usize].remove(ctx, id);
        }
        ctx.merge.remove(ctx.rqs, id);
    }

    /// The next request for a batch, and the change of the bias if it is taken.
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
            READ => self.queue.tunables.at(READ_PRIORITY),
            _ => 0,
        };
        WEIGHTS[(priority + 20) as usize]
    }

    /// Whether a batch may take one more request.
    fn fits(&self, counts: &[u64; KINDS], kind: usize, batch_ns: u64, ns: u64) -> bool {
        let limit = match kind {
            OTHER => 1,
            kind => self.queue.tunables.at(BATCH_LIMIT + kind) as u64,
        };
        let total = self.in_flight_ns.saturating_add(batch_ns);
        self.models[kind].base_ns > 0
            && counts[kind] < limit
            && total.saturating_add(ns) <= self.queue.tunables.at(WINDOW) as u64
    }

    /// Fills the back page with at least one request.
    fn fill_batch(&mut self, ctx: &mut SchedCtx<'_>) {
        let page = 1 - self.front;
        let by_sector = self.queue.tunables.at(BATCH_ORDER) == 1;
        self.pages[page].by_sector = by_sector;
        let (mut counts, mut batch_ns) = ([0; KINDS], 0_u64);
        while let Some((id, bias)) = self.next_waiting(ctx) {
            let kind = kind_of(ctx.rqs[id].op);
            let ns = self.data[id.index()].predicted_ns;
            if counts != [0; KINDS] && !self.fits(&counts, kind, batch_ns, ns) {
                break;
            }
            self.bias = self.bias.saturating_add(bias);
            self.remove(ctx, id);
            self.data[id.index()].state = RqState::InFlight;
            let list = match kind {
                OTHER => OTHER,
                kind if !by_sector => kind,
                _ if ctx.rqs[id].fifo_time == ctx.rqs[id].start => 0,
                _ => SORTED,
            };
            self.pages[page].lists[list].push_back(ctx.rqs, id);
            counts[kind] += 1;
            batch_ns = batch_ns.saturating_add(ns);
        }
        self.count_batch(&counts, batch_ns);
        // The source tests the number of writes, not the length of the sorted list.
        if by_sector && counts[WRITE] > 1 {
            self.sort(ctx, page);
        }
    }

    fn count_batch(&mut self, counts: &[u64; KINDS], batch_ns: u64) {
        let count = counts.iter().sum();
        self.in_flight += count;
        self.in_flight_ns = self.in_flight_ns.saturating_add(batch_ns);
        self.batches += (count > 0) as u64;
        self.largest_batch = self.largest_batch.max(count);
        for (largest, &count) in self.largest_by_kind.iter_mut().zip(counts) {
            *largest = count.max(*largest);
        }
    }

    /// Sorts a batch's asynchronous requests by sector.
    fn sort(&mut self, ctx: &mut SchedCtx<'_>, page: usize) {
        let list = &mut self.pages[page].lists[SORTED];
        while let Some(id) = list.pop_front(ctx.rqs) {
            let arrived = self.sorter.len() as u32;
            self.sorter.push((ctx.rqs[id].sector, arrived, id));
        }
        // Sorted in place, like `list_sort`; the library's stable sort would allocate.
        self.sorter
            .sort_unstable_by_key(|&(sector, arrived, _)| (sector, arrived));
        for (_, _, id) in self.sorter.drain(..) {
            list.push_back(ctx.rqs, id);
        }
    }

    /// Chooses the end from which the front page's sorted list is dispatched.
    fn update_direction(&mut self, ctx: &SchedCtx<'_>) {
        let page = &self.pages[self.front];
        self.backwards = self.rotational && page.by_sector && page.lies_below(ctx, self.head_end);
    }

    fn dispatch_from_batch(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let (front_empty, back_empty) = (
            self.pages[self.front].is_empty(),
            self.pages[1 - self.front].is_empty(),
        );
        let threshold = self.queue.tunables.at(WINDOW) * self.queue.tunables.at(REFILL_BELOW) / 100;
        let low = self.in_flight_ns == 0 || self.in_flight_ns < threshold as u64;
        if back_empty && (front_empty || low) {
            self.fill_batch(ctx);
        }
        if front_empty {
            self.front = 1 - self.front;
            self.update_direction(ctx);
        }
        self.pages[self.front].pop(ctx, self.backwards)
    }

    /// Dispatches a barrier after all earlier requests have gone, and queues the requests up to the
    /// next barrier.
    fn release_barrier(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let barrier = self.behind_barrier.pop_front(ctx.rqs)?;
        self.add_in_flight(barrier);
        while let Some(id) = self.behind_barrier.front() {
            if is_barrier(ctx.rqs[id].op) {
                break;
            }
            self.behind_barrier.remove(ctx.rqs, id);
            self.merge_or_wait(ctx, id);
        }
        self.update_direction(ctx);
        Some(barrier)
    }

    /// The weight of a sample: on a drive with moving parts it grows with the length of the seek.
    fn sample_weight(&mut self, rq: &Request) -> u64 {
        if !self.rotational {
            return 1;
        }
        let last = core::mem::replace(&mut self.last_completed_end, rq.end().0);
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
        // A request's time is measured from the previous completion.
        let since = match self.last_completed {
            Nanos::ZERO => rq.io_start,
            last => last,
        };
        let busy = self.in_flight > 0;
        self.last_completed = if busy { ctx.now } else { Nanos::ZERO };
        if rq.io_start == Nanos::ZERO || data.bytes == 0 || ctx.now < since {
            return;
        }
        let latency = (ctx.now - since).0;
        if latency > self.queue.tunables.at(LATENCY_LIMIT) as u64 {
            return;
        }
        let (weight, now) = (self.sample_weight(rq), jiffies(ctx.now));
        let model = &mut self.models[kind];
        if model.learn(data.bytes, latency, data.predicted_ns, weight) {
            model.update(&mut self.gathered, &self.queue.tunables, now);
        }
        let check = now + msecs_to_jiffies(UPDATE_CHECK_MS);
        self.update_models_at = Some(self.update_models_at.map_or(check, |at| at.min(check)));
    }

    /// Updates all models in the order of their kinds.
    fn update_models(&mut self, now: i64) {
        for model in &mut self.models {
            model.update(&mut self.gathered, &self.queue.tunables, now);
        }
    }
}

impl Elevator for Adios {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
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

    fn sees_bios() -> bool {
        true
    }

    fn bio_merge(&mut self, ctx: &mut SchedCtx<'_>, _cpu: usize, bio: &Bio) -> Option<RequestId> {
        if !self.behind_barrier.is_empty() {
            return None;
        }
        sched_try_merge(self, ctx, bio)
    }

    fn request_merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, _kind: MergeKind) {
        if self.data[id.index()].state == RqState::Queued {
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

    #[inline]
    fn insert_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId, at: InsertAt) {
        let rq = &ctx.rqs[id];
        let (op, bytes) = (rq.op, rq.sectors.saturating_mul(512));
        // A requeued request already counts as in flight.
        self.remove_in_flight(id);
        self.data[id.index()] = RqData {
            state: RqState::NotQueued,
            predicted_ns: self.models[kind_of(op)].predict(bytes),
            bytes,
        };
        if at == InsertAt::Tail && self.stable {
            self.add_request(ctx, hctx, id);
        } else {
            ctx.trace_insert(id);
            self.fifo[(at == InsertAt::Tail) as usize].push_back(ctx.rqs, id);
            self.add_in_flight(id);
            self.stable |= self.models[READ].base_ns > 0 && self.models[WRITE].base_ns > 0;
        }
    }

    #[inline(always)]
    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize, id: RequestId) {
        if is_barrier(ctx.rqs[id].op) || !self.behind_barrier.is_empty() {
            ctx.trace_insert(id);
            self.behind_barrier.push_back(ctx.rqs, id);
        } else if self.merge_or_wait(ctx, id) {
            ctx.trace_insert(id);
        }
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _hctx: usize) -> Option<RequestId> {
        let id = self
            .next_by_arrival(ctx)
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
            || self.waiting.iter().any(|w| w.first().is_some())
            || self.pages.iter().any(|page| !page.is_empty())
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.remove_in_flight(id);
        self.learn(ctx, id);
    }

    fn finish_request(&mut self, _ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.remove_in_flight(id);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.update_models_at.map(jiffy_start)
    }

    fn timer(&mut self, ctx: &mut SchedCtx<'_>) -> bool {
        let now = jiffies(ctx.now);
        if self.update_models_at.take_if(|at| *at <= now).is_some() {
            self.update_models(now);
        }
        false
    }

    /// A new target resets its model, and a new priority resets the bias. Batches can be sorted
    /// only on a drive with moving parts.
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        if name == TUNABLES[BATCH_ORDER].name && value > 0 && !self.rotational {
            let max = 0;
            let none = Tunable {
                max,
                ..TUNABLES[BATCH_ORDER]
            };
            return Err(TunableError::Range(none, value));
        }
        self.queue.tunables.set(name, value)?;
        match name {
            "lat_target_read" => self.models[READ] = Model::default(),
            "lat_target_write" => self.models[WRITE] = Model::default(),
            "lat_target_discard" => self.models[DISCARD] = Model::default(),
            "read_priority" => self.bias = 0,
            _ => {}
        }
        Ok(())
    }

    fn attributes(&self) -> &'static [Attribute] {
        ATTRIBUTES
    }

    fn attribute(&self, name: &str) -> Option<String> {
        self.show(name)
    }

    fn set_attribute(&mut self, name: &str, numbers: &[u64]) {
        self.store(name, numbers);
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
            ("total_pred_lat", self.in_flight_ns as i64),
            ("dl_bias", self.bias),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("batches", self.batches),
            ("requests merged", self.merged),
            ("dispatched", self.dispatched),
        ]
    }
}

/// Entry in the registry of schedulers.
pub const ADIOS: ElevatorType = ElevatorType {
    name: "adios",
    help: "deadlines from a learned model of what requests take, in batches",
    source: "M. Suzuki, ADIOS 3.1.9 for Linux 6.12",
    tunables: TUNABLES,
    attributes: ATTRIBUTES,
    costs: Some(StepCosts {
        merge: 28,
        insert: 67,
        dispatch: 87,
        finish: 35,
    }),
    build: Some(&|info| Box::new(Adios::new(info))),
};
