//! ADIOS, the adaptive deadline scheduler that CachyOS and other distributions
//! ship: M. Suzuki's patch, version 3.1.9 for Linux 6.12 (github
//! firelzrd/adios, README and patch).
//!
//! For reads, writes and discards apart, a model learns what a request takes: a
//! base for small ones and a slope a KiB beyond 4 KiB. The deadline of a
//! request that is flagged as synchronous is the time it was made, so those go
//! by age; another's, which a plain read is too, is that, a target for its
//! kind, and what it is predicted to take. Deadlines are cut to about a
//! millisecond and requests of one such moment go by arrival. Reads and the
//! rest wait apart; where both have some, a bias decides, which each choice
//! against the earlier deadline moves, in proportion to the predicted time and
//! less for reads by `read_priority`.
//!
//! Requests go to the drive by way of two batch pages. While one is emptied the
//! other is filled, once what is predicted to be under way falls below
//! `bq_refill_below_ratio` of `global_latency_window`, and with as much as fits
//! into that window. Inside a page reads go first, then writes, then discards.
//!
//! Until a read and a write have been measured everything goes by arrival.
//! Head inserts go before all but that, in order.
//!
//! Some of what the shipped scheduler does looks unmeant. It is done here too:
//! - A discard is a barrier: it waits until all that came before has been sent,
//!   and what comes later waits for it (see `barrier`).
//! - Samples are gathered in one place for all kinds. Those that a model leaves
//!   there for lack of number go into another kind's model (see `model`).
//! - What is left of requests by arrival goes before head inserts.
//! - With `batch_order` 1 a batch is sorted only if it has two writes.
//! - A sample far beyond what was predicted may count as a fast one.
//!
//! Not done: a request that the driver gives back counts as under way twice in
//! the source, for good. Samples are gathered for each CPU there, which changes
//! nothing. Version 3.2.0, which its author calls a test, tells a flush from a
//! discard, limits what is predicted to `lat_model_latency_limit`, puts far
//! samples where they belong, and counts from the last completion on the same
//! CPU.

mod attributes;
mod barrier;
mod batches;
mod completion;
mod deadlines;
mod model;
#[cfg(test)]
mod tests;
mod tunables;

use blklab_blk::{
    Attribute, Bio, BioFlags, Elevator, InsertAt, MergeKind, Nanos, Op, QueueInfo, Request,
    RequestId, RqFlags, RqList, SchedCtx, Tunable, TunableError, Tunables, op_is_sync,
    sched_try_insert_merge, sched_try_merge,
};

use crate::jiffies::{jiffies, start_of};
use barrier::is_barrier;
use batches::Page;
use deadlines::DeadlineQueue;
use model::{Model, Samples};
use tunables::{BATCH_ORDER, COMPLIANCE, DAY_NS, MS, TARGET};

pub use attributes::ATTRIBUTES;
pub use tunables::TUNABLES;

/// Reads, writes, discards, and the rest, which has no model.
const KINDS: usize = 4;
const READ: usize = 0;
const WRITE: usize = 1;
const DISCARD: usize = 2;
const OTHER: usize = 3;

/// A bit of `compliance_flags`: what a request takes does not change the order.
const FIXED_ORDER: i64 = 1;

fn kind_of(op: Op) -> usize {
    match op {
        Op::Read => READ,
        Op::Write => WRITE,
        Op::Discard => DISCARD,
        Op::Flush | Op::WriteZeroes => OTHER,
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

/// The scheduler's state.
pub struct Adios {
    tunables: Tunables,
    rotational: bool,
    async_depth: u32,
    models: [Model; KINDS],
    /// Samples that no model has taken in yet.
    gathered: Samples,
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
    largest_by_kind: [u64; KINDS],
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
            models: [Model::UNKNOWN; KINDS],
            gathered: Samples::EMPTY,
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
            largest_by_kind: [0; KINDS],
            merged: 0,
            dispatched: 0,
        }
    }

    fn start_way(&mut self, id: RequestId) {
        let data = &mut self.data[id.index()];
        data.place = Place::Chosen;
        self.under_way += 1;
        self.under_way_ns = self.under_way_ns.saturating_add(data.predicted_ns);
    }

    fn end_way(&mut self, id: RequestId) {
        let data = &mut self.data[id.index()];
        if std::mem::take(&mut data.place) == Place::Chosen {
            self.under_way -= 1;
            self.under_way_ns = self.under_way_ns.saturating_sub(data.predicted_ns);
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
        let predicted = match self.tunables.at(COMPLIANCE) & FIXED_ORDER {
            0 => self.data[id.index()].predicted_ns,
            _ => 0,
        };
        let beyond = target.saturating_add(predicted);
        rq.start.saturating_add(Nanos(beyond))
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

    /// What goes by arrival goes before head inserts.
    fn next_by_arrival(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
        let [heads, arrivals] = &mut self.fifo;
        let fifo = if arrivals.is_empty() { heads } else { arrivals };
        let id = fifo.pop_front(ctx.rqs)?;
        if fifo.is_empty() {
            self.turn_head(ctx);
        }
        Some(id)
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
            self.update_models(now);
        }
        false
    }

    fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// A new target makes its model start anew, a new priority the bias. Only a
    /// drive with moving parts can have its batches sorted.
    fn set_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        if name == TUNABLES[BATCH_ORDER].name && value > 0 && !self.rotational {
            let max = 0;
            let none = Tunable {
                max,
                ..TUNABLES[BATCH_ORDER]
            };
            return Err(TunableError::Range(none, value));
        }
        self.tunables.set(name, value)?;
        match name {
            "lat_target_read" => self.models[READ] = Model::UNKNOWN,
            "lat_target_write" => self.models[WRITE] = Model::UNKNOWN,
            "lat_target_discard" => self.models[DISCARD] = Model::UNKNOWN,
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
            ("total_pred_lat", self.under_way_ns as i64),
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
