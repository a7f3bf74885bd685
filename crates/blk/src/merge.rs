//! Merging of bios into requests, and of requests into each other (`block/blk-merge.c`,
//! `block/elevator.c`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::bio::{Bio, Op};
use crate::elevator::{Elevator, SchedCtx};
use crate::limits::{NoMerges, QueueLimits};
use crate::request::{Link, NOMERGE_FLAGS, RequestId, Requests, RqFlags};
use crate::trace::{Trace, TraceKind};
use crate::units::{Nanos, Sector};

/// Position of a bio relative to the request that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeKind {
    /// After the request.
    Back,
    /// Before the request.
    Front,
    /// Anywhere: discards of several ranges need not be adjacent.
    Discard,
}

/// Number of buckets of the hash of end sectors, a power of two.
const HASH_BUCKETS: usize = 2048;

/// Hash of requests by end sector (`elv_rqhash_*`), which finds the request that a bio continues.
#[derive(Debug)]
struct EndHash {
    heads: Box<[Option<RequestId>; HASH_BUCKETS]>,
}

impl EndHash {
    fn bucket(end: Sector) -> usize {
        // Fibonacci hashing, like the kernel's `hash_64`.
        (end.0.wrapping_mul(0x61c8_8646_80b5_83eb) >> (64 - HASH_BUCKETS.trailing_zeros())) as usize
    }

    /// Adds a request at the front, so that of two with the same end the younger is found.
    fn add(&mut self, rqs: &mut Requests, id: RequestId) {
        let head = &mut self.heads[Self::bucket(rqs[id].end())];
        rqs[id].hash = Link {
            prev: None,
            next: *head,
        };
        if let Some(old) = *head {
            rqs[old].hash.prev = Some(id);
        }
        *head = Some(id);
    }

    /// Removes a request that ended at `hashed_end` when it was added.
    fn remove(&mut self, rqs: &mut Requests, id: RequestId, hashed_end: Sector) {
        let Link { prev, next } = rqs[id].hash;
        match prev {
            Some(prev) => rqs[prev].hash.next = next,
            None => self.heads[Self::bucket(hashed_end)] = next,
        }
        if let Some(next) = next {
            rqs[next].hash.prev = prev;
        }
        rqs[id].hash = Link::default();
    }

    fn find(&self, rqs: &Requests, end: Sector) -> Option<RequestId> {
        let mut at = self.heads[Self::bucket(end)];
        while let Some(id) = at {
            if rqs[id].end() == end && rqs[id].is_mergeable() {
                return Some(id);
            }
            at = rqs[id].hash.next;
        }
        None
    }
}

/// State for merging: the limits of the queue, the request merged last, and the hash of end
/// sectors.
#[derive(Debug)]
pub struct MergeState {
    /// The queue's limits.
    pub limits: QueueLimits,
    /// The hash; `None` if the kernel itself keeps one.
    hash: Option<EndHash>,
    last_merge: Option<RequestId>,
    /// Requests that were merged into another, which the queue frees.
    pub(crate) merged_away: Vec<RequestId>,
    /// Number of merges by kind of operation, in the order of `stat`.
    pub(crate) merges: [u64; 4],
}

impl MergeState {
    /// Returns an empty state with its own hash.
    pub fn new(limits: QueueLimits) -> MergeState {
        let heads = Box::new([None; HASH_BUCKETS]);
        MergeState {
            hash: Some(EndHash { heads }),
            ..MergeState::of_kernel(limits)
        }
    }

    /// Returns a state for a scheduler inside a kernel that merges by itself: requests are only
    /// flagged as hashed.
    pub fn of_kernel(limits: QueueLimits) -> MergeState {
        MergeState {
            limits,
            hash: None,
            last_merge: None,
            merged_away: Vec::with_capacity(64),
            merges: [0; 4],
        }
    }

    /// Forgets all requests, when the scheduler is changed.
    pub(crate) fn forget_requests(&mut self) {
        if let Some(hash) = &mut self.hash {
            hash.heads.fill(None);
        }
        self.last_merge = None;
    }

    /// Makes a queued request available for back merges, as schedulers do on insert: adds it to the
    /// hash, and makes it the last merge if there is none.
    #[inline]
    pub fn add(&mut self, rqs: &mut Requests, id: RequestId) {
        if rqs[id].is_mergeable() {
            self.enter_hash(rqs, id);
            self.last_merge = self.last_merge.or(Some(id));
        }
    }

    /// Removes a request that leaves the scheduler.
    #[inline]
    pub fn remove(&mut self, rqs: &mut Requests, id: RequestId) {
        let end = rqs[id].end();
        self.leave_hash(rqs, id, end);
        if self.last_merge == Some(id) {
            self.last_merge = None;
        }
    }

    #[inline]
    fn enter_hash(&mut self, rqs: &mut Requests, id: RequestId) {
        rqs[id].rq_flags.set(RqFlags::HASHED);
        if let Some(hash) = &mut self.hash {
            hash.add(rqs, id);
        }
    }

    /// Removes a request that ended at `end` when it was hashed.
    #[inline]
    fn leave_hash(&mut self, rqs: &mut Requests, id: RequestId, end: Sector) {
        if rqs[id].rq_flags.has(RqFlags::HASHED) {
            rqs[id].rq_flags.clear(RqFlags::HASHED);
            if let Some(hash) = &mut self.hash {
                hash.remove(rqs, id, end);
            }
        }
    }

    /// The request that ends at the sector `end`.
    pub fn find_end(&self, rqs: &Requests, end: Sector) -> Option<RequestId> {
        self.hash.as_ref()?.find(rqs, end)
    }

    /// The request merged last, if it is still queued.
    pub fn last_merge(&self) -> Option<RequestId> {
        self.last_merge
    }

    /// Moves the requests merged since the last call to `out`, so that a caller without a queue (a
    /// test of a scheduler alone) can free them.
    pub fn take_merged_away(&mut self, out: &mut Vec<RequestId>) {
        out.append(&mut self.merged_away);
    }

    /// Whether two discards can share a command, because the drive takes more than one range
    /// (`blk_discard_mergable`).
    fn discards_mergeable(&self, op: Op) -> bool {
        op == Op::Discard && self.limits.max_discard_segments > 1
    }

    /// The largest request that starts at `first`, in sectors (`blk_rq_get_max_sectors`).
    fn max_sectors(&self, op: Op, first: Sector) -> u32 {
        let max = match op {
            Op::Discard => self.limits.max_discard_sectors,
            Op::WriteZeroes => self.limits.max_write_zeroes_sectors,
            _ => self.limits.max_sectors,
        };
        self.limits.within_zone(op, first, max)
    }

    fn max_segments(&self, op: Op) -> u16 {
        match op {
            Op::Discard => self.limits.max_discard_segments,
            _ => self.limits.max_segments,
        }
    }

    /// Marks a request that has reached its limits, so that no further merge is tried
    /// (`req_set_nomerge`).
    fn set_nomerge(&mut self, rqs: &mut Requests, id: RequestId) {
        let rq = &mut rqs[id];
        rq.flags = rq.flags.with(crate::bio::BioFlags::NOMERGE);
        if self.last_merge == Some(id) {
            self.last_merge = None;
        }
    }

    /// Whether bio and request agree in operation, priority and control group (`blk_rq_merge_ok`).
    fn merge_ok(&self, rqs: &Requests, id: RequestId, bio: &Bio) -> bool {
        let rq = &rqs[id];
        rq.is_mergeable()
            && !bio.flags.has(NOMERGE_FLAGS)
            && (rq.op, rq.prio, rq.cgroup) == (bio.op, bio.prio, bio.cgroup)
    }

    /// The position at which the bio can be merged (`blk_try_merge`).
    fn fit(&self, rqs: &Requests, id: RequestId, bio: &Bio) -> Option<MergeKind> {
        let rq = &rqs[id];
        if self.discards_mergeable(rq.op) {
            Some(MergeKind::Discard)
        } else if rq.end() == bio.sector {
            Some(MergeKind::Back)
        } else if bio.end() == rq.sector {
            Some(MergeKind::Front)
        } else {
            None
        }
    }

    /// Adds the bio's segments to the request; returns false and marks the request as full if it
    /// would exceed its limits.
    fn grow(&mut self, rqs: &mut Requests, id: RequestId, bio: &Bio) -> bool {
        let (op, sectors, segments) = (rqs[id].op, rqs[id].sectors, rqs[id].segments);
        let first = rqs[id].sector.min(bio.sector);
        let added = match op {
            Op::Discard if self.discards_mergeable(op) => 1,
            Op::Discard => 0,
            _ => self.limits.segments_of(bio.sectors),
        };
        if sectors.saturating_add(bio.sectors) > self.max_sectors(op, first)
            || (added > 0 && segments.saturating_add(added) > self.max_segments(op))
        {
            self.set_nomerge(rqs, id);
            return false;
        }
        rqs[id].segments += added;
        true
    }

    /// Merges the bio into the request. Returns false if limits forbid it.
    fn attach(
        &mut self,
        now: Nanos,
        rqs: &mut Requests,
        trace: &mut Trace,
        id: RequestId,
        bio: &Bio,
        kind: MergeKind,
    ) -> bool {
        let hashed_end = rqs[id].end();
        // Writes in front of a zone's write came out of order and must fail
        // (`bio_attempt_front_merge`).
        if kind == MergeKind::Front && rqs[id].rq_flags.has(RqFlags::ZONE_WRITE) {
            return false;
        }
        if !self.grow(rqs, id, bio) {
            return false;
        }
        let hashed = rqs[id].rq_flags.has(RqFlags::HASHED);
        if hashed && kind != MergeKind::Front {
            self.leave_hash(rqs, id, hashed_end);
        }
        let rq = &mut rqs[id];
        rq.sectors += bio.sectors;
        if kind == MergeKind::Front {
            rq.sector = bio.sector;
        }
        if hashed && kind != MergeKind::Front {
            self.enter_hash(rqs, id);
        }
        let event = match kind {
            MergeKind::Front => TraceKind::BioFrontMerge,
            _ => TraceKind::BioBackMerge,
        };
        trace.bio(now, event, bio);
        self.merges[bio.op.stat_group()] += 1;
        true
    }
}

/// Result of merging a bio with one request (`enum bio_merge_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BioMergeStatus {
    /// They cannot be merged.
    Unfit,
    /// They could be merged, but limits forbid it.
    Full,
    /// The bio is part of the request.
    Merged,
}

/// Tries to merge a bio into one request of a plug list or software queue, without asking a
/// scheduler (`blk_attempt_bio_merge`).
pub(crate) fn attempt_bio_merge(
    now: Nanos,
    rqs: &mut Requests,
    state: &mut MergeState,
    trace: &mut Trace,
    id: RequestId,
    bio: &Bio,
) -> BioMergeStatus {
    if !state.merge_ok(rqs, id, bio) {
        return BioMergeStatus::Unfit;
    }
    match state.fit(rqs, id, bio) {
        None => BioMergeStatus::Unfit,
        Some(kind) if state.attach(now, rqs, trace, id, bio, kind) => BioMergeStatus::Merged,
        Some(_) => BioMergeStatus::Full,
    }
}

/// How many of the youngest requests of a list or software queue are tried (`blk_bio_list_merge`).
pub(crate) const MERGE_SEARCH_DEPTH: usize = 8;

/// Tries to merge a bio into one of the youngest requests of a list, for schedulers that keep plain
/// lists (`blk_bio_list_merge`). The search ends at the first that fits, even if it is full.
/// Returns the request that took the bio.
pub fn bio_list_merge<const L: usize>(
    ctx: &mut SchedCtx<'_>,
    list: &crate::list::RqList<L>,
    bio: &Bio,
) -> Option<RequestId> {
    let mut at = list.back();
    for _ in 0..MERGE_SEARCH_DEPTH {
        let id = at?;
        if ctx.merge.merge_ok(ctx.rqs, id, bio)
            && let Some(kind) = ctx.merge.fit(ctx.rqs, id, bio)
        {
            let (now, merge) = (ctx.now, &mut *ctx.merge);
            let took = merge.attach(now, ctx.rqs, ctx.trace, id, bio, kind);
            return took.then_some(id);
        }
        at = list.prev(ctx.rqs, id);
    }
    None
}

/// Whether queue and scheduler allow the bio to be merged into the request (`elv_bio_merge_ok`).
pub fn elv_bio_merge_ok<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    id: RequestId,
    bio: &Bio,
) -> bool {
    ctx.merge.merge_ok(ctx.rqs, id, bio) && elevator.allow_merge(ctx, id, bio)
}

/// Finds a queued request for a bio (`elv_merge`): first the last merge, then the hash, then the
/// scheduler's own search.
fn elv_merge<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    bio: &Bio,
) -> Option<(RequestId, MergeKind)> {
    if ctx.merge.limits.nomerges == NoMerges::Never || bio.flags.has(NOMERGE_FLAGS) {
        return None;
    }
    if let Some(last) = ctx.merge.last_merge
        && elv_bio_merge_ok(elevator, ctx, last, bio)
        && let Some(kind) = ctx.merge.fit(ctx.rqs, last, bio)
    {
        return Some((last, kind));
    }
    if ctx.merge.limits.nomerges == NoMerges::OneHit {
        return None;
    }
    if let Some(found) = ctx.merge.find_end(ctx.rqs, bio.sector)
        && elv_bio_merge_ok(elevator, ctx, found, bio)
    {
        let discard = ctx.merge.discards_mergeable(bio.op);
        let kind = if discard {
            MergeKind::Discard
        } else {
            MergeKind::Back
        };
        return Some((found, kind));
    }
    elevator.request_merge(ctx, bio)
}

/// Tries to merge a bio into a queued request, and then that request with its new neighbour
/// (`blk_mq_sched_try_merge`). Returns the request that contains the bio; the caller appends the
/// bio to it.
pub fn sched_try_merge<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    bio: &Bio,
) -> Option<RequestId> {
    let (id, kind) = elv_merge(elevator, ctx, bio)?;
    if kind != MergeKind::Discard && !elevator.allow_merge(ctx, id, bio) {
        return None;
    }
    let SchedCtx { now, rqs, .. } = ctx;
    if !ctx.merge.attach(*now, rqs, ctx.trace, id, bio, kind) {
        return None;
    }
    if kind == MergeKind::Discard {
        return Some(id);
    }
    Some(merge_with_neighbour(elevator, ctx, id, kind))
}

/// Merges a request with the neighbour that it may now touch. Returns the remaining request.
fn merge_with_neighbour<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    id: RequestId,
    kind: MergeKind,
) -> RequestId {
    let pair = match kind {
        MergeKind::Front => elevator.former_request(ctx, id).map(|prev| (prev, id)),
        _ => elevator.next_request(ctx, id).map(|next| (id, next)),
    };
    if let Some((first, second)) = pair
        && attempt_merge(elevator, ctx, first, second)
    {
        ctx.merge.merged_away.push(second);
        return first;
    }
    elevator.request_merged(ctx, id, kind);
    ctx.merge.last_merge = Some(id);
    id
}

/// Makes `next` part of `id` (`attempt_merge`). The sectors are compared first: adjacent requests
/// are rare, and the other tests are branches that the processor cannot predict.
#[inline(always)]
fn attempt_merge<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    id: RequestId,
    next: RequestId,
) -> bool {
    let (rq, nx) = (&ctx.rqs[id], &ctx.rqs[next]);
    let discard = ctx.merge.discards_mergeable(rq.op);
    (discard || rq.end() == nx.sector) && merge_adjacent(elevator, ctx, id, next, discard)
}

/// Makes `next` part of `id` if they are alike and the limits allow it.
#[inline(never)]
fn merge_adjacent<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    id: RequestId,
    next: RequestId,
    discard: bool,
) -> bool {
    let (rq, nx) = (&ctx.rqs[id], &ctx.rqs[next]);
    let same_kind = (rq.op, rq.prio, rq.cgroup) == (nx.op, nx.prio, nx.cgroup);
    if !rq.is_mergeable() || !nx.is_mergeable() || !same_kind {
        return false;
    }
    let sectors = rq.sectors.saturating_add(nx.sectors);
    let segments = rq.segments.saturating_add(nx.segments);
    let too_many = !discard && segments > ctx.merge.max_segments(rq.op);
    let full = discard && rq.segments >= ctx.merge.limits.max_discard_segments;
    if sectors > ctx.merge.max_sectors(rq.op, rq.sector) || too_many || full {
        if discard {
            ctx.merge.set_nomerge(ctx.rqs, id);
        }
        return false;
    }
    merge_requests(elevator, ctx, id, next, discard);
    true
}

/// Merges `next` into `id` (the second half of `attempt_merge`).
fn merge_requests<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    id: RequestId,
    next: RequestId,
    discard: bool,
) {
    let hashed_end = ctx.rqs[id].end();
    let was_hashed = ctx.rqs[id].rq_flags.has(RqFlags::HASHED);
    if was_hashed {
        ctx.merge.leave_hash(ctx.rqs, id, hashed_end);
    }
    let (start, sectors, segments) = {
        let nx = &ctx.rqs[next];
        (nx.start, nx.sectors, nx.segments)
    };
    let rq = &mut ctx.rqs[id];
    rq.start = rq.start.min(start);
    rq.segments += segments;
    rq.sectors += sectors;
    ctx.rqs.append_bios(id, next);
    if !discard {
        // The scheduler removes `next` from its own lists and from the hash.
        elevator.requests_merged(ctx, id, next);
    }
    if was_hashed || !discard {
        ctx.merge.enter_hash(ctx.rqs, id);
    }
    if !discard {
        ctx.merge.last_merge = Some(id);
    }
    ctx.merge.merges[ctx.rqs[next].op.stat_group()] += 1;
    ctx.trace
        .request(ctx.now, TraceKind::RqMerge, ctx.rqs, next);
}

/// Tries to merge a request that is being inserted into a queued one
/// (`blk_mq_sched_try_insert_merge`). If it returns true, the scheduler must not queue the request.
#[inline(always)]
pub fn sched_try_insert_merge<E: Elevator + ?Sized>(
    elevator: &mut E,
    ctx: &mut SchedCtx<'_>,
    id: RequestId,
) -> bool {
    if ctx.merge.limits.nomerges == NoMerges::Never || !ctx.rqs[id].is_mergeable() {
        return false;
    }
    if let Some(last) = ctx.merge.last_merge
        && attempt_merge(elevator, ctx, last, id)
    {
        ctx.merge.merged_away.push(id);
        return true;
    }
    if ctx.merge.limits.nomerges == NoMerges::OneHit {
        return false;
    }
    let (mut id, mut merged) = (id, false);
    // The grown request may now continue yet another one.
    while let Some(found) = ctx.merge.find_end(ctx.rqs, ctx.rqs[id].sector) {
        if found == id || !attempt_merge(elevator, ctx, found, id) {
            break;
        }
        ctx.merge.merged_away.push(id);
        merged = true;
        id = found;
    }
    merged
}
