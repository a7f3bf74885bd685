//! Submitting bios (`blk_mq_submit_bio`): splitting, merging, plugging, and waiting for a tag.
//!
//! Functions that every request passes through are inlined whatever their size, because the calls
//! cost as much as some of the functions.

use crate::bio::{Bio, BioFlags, Op};
use crate::elevator::InsertAt;
use crate::limits::NoMerges;
use crate::list::RqList;
use crate::merge::{BioMergeStatus, MERGE_SEARCH_DEPTH, attempt_bio_merge};
use crate::queue::{BlkDriver, BlkStatus, RequestQueue, Rest, RunPoint, Submit, WaitFor, Waiter};
use crate::request::{BioId, IoStatus, NOMERGE_FLAGS, RequestId, RqFlags, Tag, request_of};
use crate::rq_qos::{HeldAt, Worker};
use crate::trace::TraceKind;
use crate::units::{Nanos, SECTOR_SIZE, SECTORS_PER_PAGE};

/// A plug with this many requests is flushed (`BLK_MAX_REQUEST_COUNT`).
const MAX_REQUEST_COUNT: u32 = 32;
/// A plug whose first request is this large is flushed (`BLK_PLUG_FLUSH_SIZE`).
const FLUSH_SIZE_BYTES: u64 = 128 * 1024;

/// Flags of bios that need a flush sequence (`op_is_flush`).
const FLUSH_FLAGS: BioFlags = BioFlags::FUA.with(BioFlags::PREFLUSH);

/// A submitter's plug: requests held back for a moment, so that following bios can be merged into
/// them (`blk_start_plug`).
#[derive(Debug, Default)]
pub struct Plug {
    pub(crate) list: RqList,
}

impl Plug {
    /// Returns an empty plug.
    pub fn new() -> Plug {
        Plug::default()
    }

    /// Whether it has no requests.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl RequestQueue {
    /// Submits a bio of a process that runs on `cpu`. With a plug its request stays there until the
    /// plug is full or flushed.
    pub fn submit_bio<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        plug: Option<&mut Plug>,
        mut bio: Bio,
        driver: &mut D,
    ) -> Submit {
        if self.frozen {
            return self.wait_for_unfreeze(cpu, bio);
        }
        self.count_submit(&bio);
        if bio.flags.has(BioFlags::PASSTHROUGH) {
            return self.execute(now, cpu, plug, &bio, driver);
        }
        let op = bio.op;
        if let Err(status) = self.check_bio(&mut bio) {
            self.push_end(&Bio { op, ..bio }, status);
            return Submit::Done;
        }
        if self.throttle.is_some() && !self.enter_cgroup(now, &mut bio) {
            return Submit::Done;
        }
        self.submit_within_limits(now, cpu, plug, bio, driver)
    }

    /// Counts a bio that comes: whoever made it has pinned its pages by then.
    #[inline]
    fn count_submit(&mut self, bio: &Bio) {
        let counts = &mut self.cost_counts;
        counts.submits += 1;
        let pages = u64::from(bio.sectors.saturating_sub(1) / SECTORS_PER_PAGE);
        match bio.op {
            Op::Read => counts.submitted_pages += pages,
            Op::Write => {
                counts.submitted_pages += pages;
                counts.written_pages += pages;
            }
            _ => {}
        }
    }

    /// Submits a passthrough command (`blk_mq_alloc_request`, `blk_execute_rq_nowait`). It is not
    /// checked, split, merged or throttled like other I/O: only a command too large for a request
    /// is refused (`blk_rq_map_user_io`), and a flush also goes to a drive without a cache.
    #[inline(never)]
    fn execute<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        plug: Option<&mut Plug>,
        bio: &Bio,
        driver: &mut D,
    ) -> Submit {
        if bio.sectors > self.merge.limits.max_request_sectors(bio.op) {
            self.push_end(bio, IoStatus::Invalid);
            return Submit::Done;
        }
        self.cost_counts.bios += 1;
        let part = self.rqs.insert_bio(bio, None);
        self.make_request(now, cpu, plug, (part, bio), None, driver)
    }

    /// Applies the priority policy and the limits of a bio's control group; `false` if the limits
    /// delay it.
    #[cold]
    fn enter_cgroup(&mut self, now: Nanos, bio: &mut Bio) -> bool {
        let Some(throttled) = &mut self.throttle else {
            return true;
        };
        if let Some(policy) = throttled.policies.get(bio.cgroup.0 as usize) {
            bio.prio = policy.apply(bio.prio);
        }
        let passes = throttled.limits.submit(now, bio);
        self.work_hint = self.work_hint.min(throttled.limits.next_timer());
        passes
    }

    /// Submits a bio that has passed the limits of its control groups.
    #[inline(always)]
    fn submit_within_limits<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        plug: Option<&mut Plug>,
        bio: Bio,
        driver: &mut D,
    ) -> Submit {
        self.trace.bio(now, TraceKind::BioQueue, &bio);
        if bio.sectors <= self.merge.limits.max_sectors_of(&bio) {
            let whole = self.rqs.insert_bio(&bio, None);
            return self.submit_part(now, cpu, plug, (whole, &bio), None, driver);
        }
        if bio.flags.has(BioFlags::NOWAIT) {
            // Some parts would already be in flight when another had to wait.
            self.push_end(&bio, IoStatus::WouldBlock);
            return Submit::Done;
        }
        let rest = Rest {
            bio,
            parent: self.rqs.insert_bio(&bio, None),
        };
        self.submit_rest(now, cpu, plug, rest, driver)
    }

    /// Continues a submission that slept.
    pub fn resume<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: Option<&mut Plug>,
        waiter: Waiter,
        driver: &mut D,
    ) -> Submit {
        match waiter.state {
            WaitFor::Unfreeze(bio) => self.submit_bio(now, waiter.cpu, plug, bio, driver),
            WaitFor::Qos { part, rest, at } => {
                let bio = self.rqs.bios[part].bio;
                if let Some(at) = self.still_held(now, (&bio, part), waiter.ticket, at) {
                    return Submit::Blocked(Waiter {
                        state: WaitFor::Qos { part, rest, at },
                        ..waiter
                    });
                }
                let (cpu, mut plug) = (waiter.cpu, plug);
                let held = plug.as_deref_mut();
                match (
                    self.make_request(now, cpu, held, (part, &bio), rest, driver),
                    rest,
                ) {
                    (Submit::Done, Some(rest)) => self.submit_rest(now, cpu, plug, rest, driver),
                    (submit, _) => submit,
                }
            }
            WaitFor::Tag {
                part,
                shallow,
                rest,
            } => {
                let bio = self.rqs.bios[part].bio;
                // Each iteration of the loop in `blk_mq_get_tag` starts with a run of the queue.
                let hctx = self.cpu_map[waiter.cpu].0 as usize;
                self.run_hw_queue(now, hctx, driver);
                let _ = self.take_interrupts(RunPoint::Request, driver);
                match self.alloc_request(now, waiter.cpu, (part, &bio), shallow) {
                    Some(id) => {
                        let mut plug = plug;
                        self.start_request(now, plug.as_deref_mut(), id, driver);
                        match rest {
                            Some(rest) => self.submit_rest(now, waiter.cpu, plug, rest, driver),
                            None => Submit::Done,
                        }
                    }
                    None => self.wait_for_tag(waiter.cpu, part, shallow, rest),
                }
            }
        }
    }

    /// Submits the requests of a plug (`blk_finish_plug`).
    pub fn flush_plug<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        driver: &mut D,
    ) {
        self.flush_plug_list(now, plug, false, driver);
    }

    /// Submits the requests of a process that goes to sleep, with kblockd running the queue.
    pub fn flush_plug_from_schedule<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        driver: &mut D,
    ) {
        self.flush_plug_list(now, plug, true, driver);
    }

    /// Checks a bio (`submit_bio_noacct`) and turns a flush into an empty write with PREFLUSH, as
    /// the following code expects. `Err` is the status, which may be `Ok`, with which the bio ends
    /// at once.
    #[inline]
    fn check_bio(&self, bio: &mut Bio) -> Result<(), IoStatus> {
        if bio.op == Op::Flush {
            bio.op = Op::Write;
            bio.flags = bio.flags.with(BioFlags::PREFLUSH);
            bio.sectors = 0;
        }
        let limits = &self.merge.limits;
        let is_flush = bio.flags.has(FLUSH_FLAGS);
        if is_flush && !limits.write_cache {
            bio.flags = bio.flags.without(FLUSH_FLAGS);
            if bio.sectors == 0 {
                return Err(IoStatus::Ok);
            }
        }
        let aligned = limits.is_whole_blocks(bio.sector.0 | bio.sectors as u64);
        let end = bio.sector.0.checked_add(bio.sectors as u64);
        let inside = end.is_some_and(|end| end <= limits.capacity_sectors);
        let supported = match bio.op {
            Op::Discard => limits.max_discard_sectors > 0,
            Op::WriteZeroes => limits.max_write_zeroes_sectors > 0,
            Op::Zone(_) => limits.zones.is_some(),
            _ => true,
        };
        let empty = bio.sectors == 0 && !is_flush && !matches!(bio.op, Op::Zone(_));
        if !supported {
            Err(IoStatus::NotSupported)
        } else if !inside || !aligned || empty {
            Err(IoStatus::IoError)
        } else {
            Ok(())
        }
    }

    /// Submits the rest of a large bio part by part.
    fn submit_rest<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        mut plug: Option<&mut Plug>,
        rest: Rest,
        driver: &mut D,
    ) -> Submit {
        let Rest {
            bio: mut left,
            parent,
        } = rest;
        while left.sectors > 0 {
            let limit = self.merge.limits.max_sectors_of(&left);
            let mut part = left;
            part.sectors = left.sectors.min(limit);
            left.sector = part.end();
            left.sectors -= part.sectors;
            self.rqs.bios[parent].pending += 1;
            let id = self.rqs.insert_bio(&part, Some(parent));
            let rest = Some(Rest { bio: left, parent });
            match self.submit_part(now, cpu, plug.as_deref_mut(), (id, &part), rest, driver) {
                Submit::Done => {}
                blocked => return blocked,
            }
        }
        // Drops the reference that the submission itself held on the parent.
        self.end_bio(now, parent, IoStatus::Ok);
        Submit::Done
    }

    /// Merges a bio that fits into one request, or makes a request for it.
    #[inline(always)]
    fn submit_part<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        mut plug: Option<&mut Plug>,
        (part, bio): (BioId, &Bio),
        rest: Option<Rest>,
        driver: &mut D,
    ) -> Submit {
        self.cost_counts.bios += 1;
        if self.try_merge(now, cpu, plug.as_deref_mut(), part, bio) {
            return Submit::Done;
        }
        if self.zones.is_some() && self.plug_zone_write(now, cpu, part, bio) {
            return Submit::Done;
        }
        self.submit_unmerged(now, cpu, plug, (part, bio), rest, driver)
    }

    /// Submits a bio that was merged with no request and that its zone, if any, lets pass.
    #[inline(always)]
    pub(crate) fn submit_unmerged<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        plug: Option<&mut Plug>,
        (part, bio): (BioId, &Bio),
        rest: Option<Rest>,
        driver: &mut D,
    ) -> Submit {
        if self.rq_qos.is_some()
            && let Some(waiter) = self.throttle(now, cpu, part, bio, rest)
        {
            // A task flushes its plug before it sleeps (`io_schedule`).
            if let Some(plug) = plug {
                self.flush_plug_list(now, plug, true, driver);
            }
            return Submit::Blocked(waiter);
        }
        self.make_request(now, cpu, plug, (part, bio), rest, driver)
    }

    /// Makes a request for a bio that could not be merged.
    #[inline(always)]
    fn make_request<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        plug: Option<&mut Plug>,
        (part, bio): (BioId, &Bio),
        rest: Option<Rest>,
        driver: &mut D,
    ) -> Submit {
        let shallow = self.limit_depth(bio);
        match self.alloc_or_run(now, cpu, (part, bio), shallow, driver) {
            Some(id) => {
                self.start_request(now, plug, id, driver);
                Submit::Done
            }
            None if bio.flags.has(BioFlags::NOWAIT) => {
                if let Some(qos) = &mut self.rq_qos {
                    qos.cleanup(now, bio, &mut self.woken);
                }
                self.end_bio(now, part, IoStatus::WouldBlock);
                Submit::Done
            }
            None => {
                // A task waits first, and flushes its plug before it sleeps (`io_schedule`).
                let blocked = self.wait_for_tag(cpu, part, shallow, rest);
                if let Some(plug) = plug {
                    self.flush_plug_list(now, plug, true, driver);
                }
                blocked
            }
        }
    }

    /// Asks the rq_qos policies whether a bio may get a request; returns the waiter if one delays
    /// it.
    #[cold]
    fn throttle(
        &mut self,
        now: Nanos,
        cpu: usize,
        part: BioId,
        bio: &Bio,
        rest: Option<Rest>,
    ) -> Option<Waiter> {
        let ticket = self.new_ticket();
        let qos = self.rq_qos.as_mut()?;
        let held = qos.throttle(now, (bio, part), ticket, &mut self.woken);
        self.work_hint = self.work_hint.min(qos.next_timer());
        let state = WaitFor::Qos {
            part,
            rest,
            at: held?,
        };
        Some(Waiter { ticket, cpu, state })
    }

    /// Continues a submission that an rq_qos policy delayed. Returns where it waits if it is still
    /// delayed.
    fn still_held(
        &mut self,
        now: Nanos,
        bio: (&Bio, BioId),
        ticket: u64,
        at: HeldAt,
    ) -> Option<HeldAt> {
        let qos = self.rq_qos.as_mut()?;
        if qos.is_held(ticket) {
            return Some(at);
        }
        let held = qos.resume(now, bio, ticket, at, &mut self.woken);
        self.work_hint = self.work_hint.min(qos.next_timer());
        held
    }

    /// Tries to merge a bio with the plug's last request, then with the queued ones
    /// (`blk_mq_attempt_bio_merge`).
    #[inline(always)]
    fn try_merge(
        &mut self,
        now: Nanos,
        cpu: usize,
        plug: Option<&mut Plug>,
        part: BioId,
        bio: &Bio,
    ) -> bool {
        if self.merge.limits.nomerges == NoMerges::Never || bio.flags.has(NOMERGE_FLAGS) {
            return false;
        }
        let held = plug.and_then(|plug| plug.list.back());
        if held.is_none() && self.elevator.is_none() && self.ctxs[cpu].is_empty() {
            return false;
        }
        self.merge_with_any(now, cpu, held, part, bio)
    }

    /// Tries to merge a bio when there is at least one candidate.
    fn merge_with_any(
        &mut self,
        now: Nanos,
        cpu: usize,
        held: Option<RequestId>,
        part: BioId,
        bio: &Bio,
    ) -> bool {
        let merged = held
            .filter(|&id| self.attempt_merge_with(now, id, bio) == BioMergeStatus::Merged)
            .or_else(|| self.merge_into_queue(now, cpu, bio));
        let Some(id) = merged else {
            return false;
        };
        self.join_request(now, id, part, bio);
        self.free_merged_away(now);
        true
    }

    /// Adds a bio to the request that has been made large enough for it.
    pub(crate) fn join_request(&mut self, now: Nanos, id: RequestId, part: BioId, bio: &Bio) {
        if let (Some(qos), Some((first, _))) = (&mut self.rq_qos, self.rqs[id].bios) {
            qos.merge(now, (bio, part), first, &self.rqs[id]);
        }
        if self.rqs[id].rq_flags.has(RqFlags::ZONE_WRITE) {
            self.merged_zone_write(bio);
        }
        self.append_bio(id, part);
    }

    pub(crate) fn attempt_merge_with(
        &mut self,
        now: Nanos,
        id: RequestId,
        bio: &Bio,
    ) -> BioMergeStatus {
        attempt_bio_merge(
            now,
            &mut self.rqs,
            &mut self.merge,
            &mut self.trace,
            id,
            bio,
        )
    }

    #[inline]
    fn merge_into_queue(&mut self, now: Nanos, cpu: usize, bio: &Bio) -> Option<RequestId> {
        if let Some((elevator, mut ctx)) = self.sched(now) {
            let merged = elevator.bio_merge(&mut ctx, cpu, bio);
            self.cost_counts.merge_attempts += 1;
            return merged;
        }
        // Without a scheduler, only the youngest requests of the CPU's own software queue are
        // tried.
        let mut at = self.ctxs[cpu].back();
        for _ in 0..MERGE_SEARCH_DEPTH {
            let id = at?;
            match self.attempt_merge_with(now, id, bio) {
                BioMergeStatus::Merged => return Some(id),
                BioMergeStatus::Full => return None,
                BioMergeStatus::Unfit => {}
            }
            at = self.ctxs[cpu].prev(&self.rqs, id);
        }
        None
    }

    fn append_bio(&mut self, id: RequestId, bio: BioId) {
        match self.rqs[id].bios {
            Some((first, last)) => {
                self.rqs.bios[last].next = Some(bio);
                self.rqs[id].bios = Some((first, bio));
            }
            None => self.rqs[id].bios = Some((bio, bio)),
        }
    }

    /// Frees requests that were merged into others.
    pub(crate) fn free_merged_away(&mut self, now: Nanos) {
        if self.merge.merged_away.is_empty() {
            return;
        }
        let mut gone = core::mem::take(&mut self.scratch);
        gone.append(&mut self.merge.merged_away);
        for &id in &gone {
            let is_write = self.rqs[id].is_write();
            self.count_in_flight(now, is_write, -1);
            self.free_request(now, id);
        }
        gone.clear();
        self.scratch = gone;
    }

    /// Allocates a request; runs the hardware queue once if there is no tag (`blk_mq_get_tag`).
    #[inline]
    fn alloc_or_run<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        part: (BioId, &Bio),
        shallow: Option<u32>,
        driver: &mut D,
    ) -> Option<RequestId> {
        match self.alloc_request(now, cpu, part, shallow) {
            None => self.run_and_alloc(now, cpu, part, shallow, driver),
            some => some,
        }
    }

    #[cold]
    fn run_and_alloc<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        cpu: usize,
        part: (BioId, &Bio),
        shallow: Option<u32>,
        driver: &mut D,
    ) -> Option<RequestId> {
        if part.1.flags.has(BioFlags::NOWAIT) {
            return None;
        }
        let hctx = self.cpu_map[cpu].0 as usize;
        self.run_hw_queue(now, hctx, driver);
        let _ = self.take_interrupts(RunPoint::Request, driver);
        self.alloc_request(now, cpu, part, shallow)
    }

    /// Whether a request for this bio could be allocated at once.
    pub fn has_free_tag(&mut self, cpu: usize, bio: &Bio) -> bool {
        let hctx = self.cpu_map[cpu].0 as usize;
        let shallow = self.limit_depth(bio);
        self.hctxs[hctx].alloc_tags().has_free(shallow)
    }

    /// Whether a submitter that sleeps would go on if it were woken now; `bio` is the one that it
    /// submits. The limit of its depth is the one that it was given first.
    pub fn would_go_on(&mut self, waiter: &Waiter, bio: &Bio) -> bool {
        let hctx = self.cpu_map[waiter.cpu].0 as usize;
        match waiter.state {
            WaitFor::Tag { shallow, .. } => self.hctxs[hctx].alloc_tags().has_free(shallow),
            WaitFor::Unfreeze(_) | WaitFor::Qos { .. } => self.has_free_tag(waiter.cpu, bio),
        }
    }

    /// The tag that a bio would get on a CPU now if these waiters had tried in vain before it: a
    /// search sweeps freed tags and starts the next one at the first tag.
    ///
    /// For comparisons with a recorded queue, in which such a try leaves no trace.
    pub fn tag_behind<'a>(
        &mut self,
        cpu: usize,
        bio: &Bio,
        tried: impl Iterator<Item = &'a Waiter>,
    ) -> Option<u32> {
        let hctx = self.cpu_map[cpu].0 as usize;
        let shallow = self.limit_depth(bio);
        let mut tags = self.hctxs[hctx].alloc_tags().clone();
        for waiter in tried {
            if let WaitFor::Tag { shallow, .. } = waiter.state {
                tags.get(waiter.cpu, shallow);
            }
        }
        tags.get(cpu, shallow)
    }

    /// The tag that a submitter that sleeps for one would get now. For comparisons with a recorded
    /// queue.
    pub fn tag_for(&mut self, waiter: &Waiter) -> Option<u32> {
        let WaitFor::Tag { shallow, .. } = waiter.state else {
            return None;
        };
        let hctx = self.cpu_map[waiter.cpu].0 as usize;
        let mut tags = self.hctxs[hctx].alloc_tags().clone();
        tags.get(waiter.cpu, shallow)
    }

    /// The number of tags that a bio may use. It is computed once for each request, even if that
    /// then sleeps for a tag (`blk_mq_alloc_data`). 0 is no limit (`__blk_mq_get_tag`).
    #[inline(always)]
    fn limit_depth(&mut self, bio: &Bio) -> Option<u32> {
        let elevator = self.elevator.as_deref_mut()?;
        match bio.flags.has(BioFlags::PASSTHROUGH) {
            true => None,
            false => elevator.limit_depth_for(bio).filter(|depth| *depth > 0),
        }
    }

    /// Allocates a request with a tag, if one is free.
    #[inline(always)]
    fn alloc_request(
        &mut self,
        now: Nanos,
        cpu: usize,
        (part, bio): (BioId, &Bio),
        shallow: Option<u32>,
    ) -> Option<RequestId> {
        let hctx = self.cpu_map[cpu].0;
        let has_sched = self.elevator.is_some();
        let tag = self.hctxs[hctx as usize].alloc_tags().get(cpu, shallow)?;
        let tag = Tag::from_index(tag as usize);
        let segments = match bio.op {
            Op::Discard => 1,
            _ => self.merge.limits.segments_of(bio.sectors),
        };
        let mut rq = request_of(bio, segments, now);
        rq.ctx = cpu as u16;
        rq.hctx = hctx;
        rq.bios = Some((part, part));
        if has_sched {
            rq.internal_tag = Some(tag);
            rq.rq_flags.set(RqFlags::SCHED_TAGS);
            if !rq.is_passthrough() {
                rq.rq_flags.set(RqFlags::USE_SCHED);
            }
        } else {
            rq.tag = Some(tag);
        }
        let id = self.rqs.insert(rq);
        if let Some(qos) = &mut self.rq_qos {
            let flags = qos.track(id, (bio, part));
            self.rqs[id].rq_flags.set(flags);
        }
        if self.rqs[id].rq_flags.has(RqFlags::USE_SCHED)
            && let Some((elevator, mut ctx)) = self.sched(now)
        {
            elevator.prepare_request(&mut ctx, id);
        }
        Some(id)
    }

    /// Passes a new request on to the flush sequence, the plug, the scheduler or the driver.
    #[inline(always)]
    fn start_request<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: Option<&mut Plug>,
        id: RequestId,
        driver: &mut D,
    ) {
        self.trace.request(now, TraceKind::GetRq, &self.rqs, id);
        if self.zones.is_some() {
            self.init_zone_write(now, id);
        }
        let rq = &self.rqs[id];
        let (hctx, use_sched) = (rq.hctx as usize, rq.rq_flags.has(RqFlags::USE_SCHED));
        let (is_write, is_flush) = (rq.is_write(), rq.flags.has(FLUSH_FLAGS));
        let is_passthrough = rq.is_passthrough();
        self.count_in_flight(now, is_write, 1);
        if is_flush && !is_passthrough && self.insert_flush(now, id) {
            return;
        }
        if let Some(plug) = plug {
            return self.add_to_plug(now, plug, id, driver);
        }
        if is_passthrough {
            self.insert_request(now, id, InsertAt::Tail);
            return self.run_hw_queue(now, hctx, driver);
        }
        let busy = self.hctxs[hctx].dispatch_busy > 0
            && (self.hctxs.len() == 1 || !self.rqs[id].is_sync());
        if use_sched || busy || driver.would_sleep() {
            self.insert_request(now, id, InsertAt::Tail);
            self.run_after_insert(now, hctx, driver);
        } else {
            self.try_issue_directly(now, hctx, id, driver);
        }
    }

    fn add_to_plug<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        id: RequestId,
        driver: &mut D,
    ) {
        // The size of the first request counts: `rq_list_peek()` returns the head, and plugs are in
        // order since Linux 6.12.
        let large = plug.list.front().is_some_and(|first| {
            self.merge.limits.nomerges != NoMerges::Never
                && self.rqs[first].sectors as u64 * SECTOR_SIZE >= FLUSH_SIZE_BYTES
        });
        if plug.list.len() >= MAX_REQUEST_COUNT || large {
            self.flush_plug_list(now, plug, false, driver);
        }
        if plug.list.is_empty() {
            self.trace.plug(now, TraceKind::Plug, &self.rqs, id);
        }
        plug.list.push_back(&mut self.rqs, id);
    }

    /// Submits the requests of a plug (`blk_mq_flush_plug_list`).
    fn flush_plug_list<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        from_schedule: bool,
        driver: &mut D,
    ) {
        if plug.is_empty() {
            return;
        }
        if let Some(first) = plug.list.front()
            && self.elevator.is_none()
            && !from_schedule
        {
            let unplug = TraceKind::Unplug(plug.list.len());
            self.trace.plug(now, unplug, &self.rqs, first);
            self.issue_plug_directly(now, plug, driver);
        }
        while let Some(first) = plug.list.front() {
            self.dispatch_plug_list(now, plug, first, from_schedule, driver);
        }
    }

    /// Inserts the plug's requests for one software queue together (`blk_mq_dispatch_plug_list`).
    fn dispatch_plug_list<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        first: RequestId,
        from_schedule: bool,
        driver: &mut D,
    ) {
        let (cpu, hctx) = (self.rqs[first].ctx, self.rqs[first].hctx as usize);
        let is_passthrough = self.rqs[first].is_passthrough();
        let (mut list, mut others) = (RqList::new(), RqList::new());
        while let Some(id) = plug.list.pop_front(&mut self.rqs) {
            let rq = &self.rqs[id];
            let same =
                rq.ctx == cpu && rq.hctx as usize == hctx && rq.is_passthrough() == is_passthrough;
            let to = if same { &mut list } else { &mut others };
            to.push_back(&mut self.rqs, id);
        }
        plug.list = others;
        let unplug = TraceKind::Unplug(list.len());
        self.trace.plug(now, unplug, &self.rqs, first);
        self.cost_counts.inserts += list.len() as u64;
        if is_passthrough {
            while let Some(id) = list.pop_front(&mut self.rqs) {
                self.bypass_insert(id, InsertAt::Tail);
            }
        } else if self.elevator.is_some() {
            let _ = self.take_interrupts(RunPoint::Insert, driver);
            if let Some((elevator, mut ctx)) = self.sched(now) {
                elevator.insert_requests(&mut ctx, hctx, &mut list, InsertAt::Tail);
            }
            self.free_merged_away(now);
        } else {
            self.insert_into_ctx(now, hctx, cpu as usize, list, from_schedule, driver);
        }
        if from_schedule {
            self.run_after_insert(now, hctx, driver);
        } else {
            self.run_hw_queue(now, hctx, driver);
        }
    }

    /// Inserts requests without a scheduler, after trying the driver (`blk_mq_insert_requests`).
    fn insert_into_ctx<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        cpu: usize,
        mut list: RqList,
        from_schedule: bool,
        driver: &mut D,
    ) {
        if self.hctxs[hctx].dispatch_busy == 0 && !from_schedule {
            self.issue_list_directly(now, hctx, &mut list, driver);
        }
        if list.is_empty() {
            return;
        }
        let mut at = list.front();
        while let Some(id) = at {
            self.rqs[id].inserted = now;
            self.trace.request(now, TraceKind::RqInsert, &self.rqs, id);
            at = list.next(&self.rqs, id);
        }
        self.ctxs[cpu].append(&mut self.rqs, &mut list);
        let place = self.cpu_map[cpu].1 as usize;
        self.hctxs[hctx].mark_pending(place);
    }

    /// Inserts one request without a plug (`blk_mq_insert_request`).
    pub(crate) fn insert_request(&mut self, now: Nanos, id: RequestId, at: InsertAt) {
        let (hctx, cpu) = (self.rqs[id].hctx as usize, self.rqs[id].ctx as usize);
        if self.rqs[id].is_passthrough() {
            // The drive may need this command to continue, and schedulers do not know it.
            return self.bypass_insert(id, InsertAt::Tail);
        }
        if self.rqs[id].op == Op::Flush {
            // At most one flush is in flight, and NCQ cannot mix it with other commands: at the
            // head it waits least and serves the most sequences.
            return self.bypass_insert(id, InsertAt::Head);
        }
        if let Some((elevator, mut ctx)) = self.sched(now) {
            let mut list = RqList::new();
            list.push_back(ctx.rqs, id);
            elevator.insert_requests(&mut ctx, hctx, &mut list, at);
            self.cost_counts.inserts += 1;
            return self.free_merged_away(now);
        }
        self.rqs[id].inserted = now;
        self.trace.request(now, TraceKind::RqInsert, &self.rqs, id);
        match at {
            InsertAt::Head => self.ctxs[cpu].push_front(&mut self.rqs, id),
            InsertAt::Tail => self.ctxs[cpu].push_back(&mut self.rqs, id),
        }
        let place = self.cpu_map[cpu].1 as usize;
        self.hctxs[hctx].mark_pending(place);
    }

    /// Puts a request on the dispatch list, bypassing the scheduler
    /// (`blk_mq_request_bypass_insert`).
    pub(crate) fn bypass_insert(&mut self, id: RequestId, at: InsertAt) {
        let hctx = self.rqs[id].hctx as usize;
        let dispatch = &mut self.hctxs[hctx].dispatch;
        match at {
            InsertAt::Head => dispatch.push_front(&mut self.rqs, id),
            InsertAt::Tail => dispatch.push_back(&mut self.rqs, id),
        }
    }

    /// Issues one request without scheduler and plug (`blk_mq_try_issue_directly`).
    #[inline(always)]
    fn try_issue_directly<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        id: RequestId,
        driver: &mut D,
    ) {
        match self.issue_directly(now, id, true, driver) {
            Issue::Issued => {}
            Issue::Stopped | Issue::NoBudget => {
                self.insert_request(now, id, InsertAt::Tail);
                self.run_hw_queue(now, hctx, driver);
            }
            Issue::Busy => {
                self.bypass_insert(id, InsertAt::Tail);
                self.run_hw_queue(now, hctx, driver);
            }
        }
    }

    fn issue_plug_directly<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        driver: &mut D,
    ) {
        let Some(first) = plug.list.front() else {
            return;
        };
        let mut hctx = self.rqs[first].hctx as usize;
        let mut list = core::mem::take(&mut plug.list);
        while let Some(id) = list.front()
            && !driver.would_sleep()
        {
            let this = self.rqs[id].hctx as usize;
            if this != hctx {
                driver.commit_rqs(now, hctx);
                hctx = this;
            }
            if !self.issue_first_directly(now, hctx, &mut list, driver) {
                break;
            }
        }
        plug.list = list;
    }

    /// Issues requests from the front of a list until the driver is busy.
    fn issue_list_directly<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        list: &mut RqList,
        driver: &mut D,
    ) {
        while !list.is_empty()
            && !driver.would_sleep()
            && self.issue_first_directly(now, hctx, list, driver)
        {}
    }

    /// Issues the first request of a list. Returns whether the driver may take more
    /// (`blk_mq_plug_issue_direct` and `blk_mq_try_issue_list_directly` end at the first request
    /// that finds no budget or a busy driver).
    fn issue_first_directly<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        hctx: usize,
        list: &mut RqList,
        driver: &mut D,
    ) -> bool {
        let Some(id) = list.pop_front(&mut self.rqs) else {
            return false;
        };
        match self.issue_directly(now, id, list.is_empty(), driver) {
            Issue::Issued => true,
            Issue::Stopped => {
                self.insert_request(now, id, InsertAt::Tail);
                true
            }
            Issue::NoBudget | Issue::Busy => {
                driver.commit_rqs(now, hctx);
                self.bypass_insert(id, InsertAt::Tail);
                self.run_hw_queue(now, hctx, driver);
                false
            }
        }
    }

    /// Gives a request to the driver without queueing it.
    #[inline(always)]
    fn issue_directly<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        id: RequestId,
        last: bool,
        driver: &mut D,
    ) -> Issue {
        let hctx = self.rqs[id].hctx as usize;
        if self.hctxs[hctx].stopped {
            return Issue::Stopped;
        }
        if !self.get_budget(driver) {
            return Issue::NoBudget;
        }
        self.rqs[id].rq_flags.set(RqFlags::BUDGET);
        if !self.get_driver_tag(id) {
            self.put_budget(id, driver);
            return Issue::NoBudget;
        }
        let status = self.queue_rq(now, id, last, driver);
        let busy = matches!(
            status,
            BlkStatus::Resource | BlkStatus::DevResource | BlkStatus::ZoneResource
        );
        self.hctxs[hctx].update_busy(busy);
        match status {
            BlkStatus::Failed(error) => {
                self.put_budget(id, driver);
                self.end_failed(now, id, error);
            }
            _ if busy => {
                self.requeued_by_driver(now, id, driver);
                return Issue::Busy;
            }
            _ => {}
        }
        Issue::Issued
    }

    /// Hides the ticket of the `io.max` worker, which sleeps under a ticket of its own, from
    /// callers.
    pub(crate) fn wake_throttle_worker(&mut self) {
        let throttled = self.throttle.as_mut();
        let Some(worker) = throttled.and_then(|t| t.worker.as_mut()) else {
            return;
        };
        let ticket = worker.waiter.ticket;
        let before = self.woken.len();
        self.woken.retain(|&woken| woken != ticket);
        if self.woken.len() < before {
            worker.woken = true;
            self.work_hint = Nanos::ZERO;
        }
    }

    /// Runs the timers of `io.max`, and its worker, which submits released bios
    /// (`blk_throtl_dispatch_work_fn`).
    #[cold]
    pub(crate) fn run_throttle<D: BlkDriver + ?Sized>(&mut self, now: Nanos, driver: &mut D) {
        self.wake_throttle_worker();
        let Some(mut throttled) = self.throttle.take() else {
            return;
        };
        throttled.limits.timer(now);
        let mut plug = core::mem::take(&mut throttled.plug);
        let mut blocked = None;
        if let Some(worker) = throttled.worker.take() {
            blocked = match (worker.woken, worker.waiter) {
                (false, waiter) => Some(waiter),
                (true, waiter) => self.resume_worker(now, &mut plug, waiter, driver),
            };
        }
        while blocked.is_none() {
            let Some(bio) = throttled.limits.take_released() else {
                break;
            };
            blocked = self.submit_from_worker(now, &mut plug, bio, driver);
        }
        self.flush_plug_list(now, &mut plug, false, driver);
        throttled.plug = plug;
        throttled.worker = blocked.map(|waiter| Worker {
            waiter,
            woken: false,
        });
        self.work_hint = self.work_hint.min(throttled.limits.next_timer());
        self.throttle = Some(throttled);
        // The worker's own submissions may have woken it.
        self.wake_throttle_worker();
    }

    fn submit_from_worker<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        bio: Bio,
        driver: &mut D,
    ) -> Option<Waiter> {
        let submit = match self.frozen {
            true => self.wait_for_unfreeze(0, bio),
            false => self.submit_within_limits(now, 0, Some(plug), bio, driver),
        };
        match submit {
            Submit::Done => None,
            Submit::Blocked(waiter) => Some(waiter),
        }
    }

    fn resume_worker<D: BlkDriver + ?Sized>(
        &mut self,
        now: Nanos,
        plug: &mut Plug,
        waiter: Waiter,
        driver: &mut D,
    ) -> Option<Waiter> {
        if let WaitFor::Unfreeze(bio) = waiter.state {
            return self.submit_from_worker(now, plug, bio, driver);
        }
        match self.resume(now, Some(plug), waiter, driver) {
            Submit::Done => None,
            Submit::Blocked(waiter) => Some(waiter),
        }
    }

    fn wait_for_unfreeze(&mut self, cpu: usize, bio: Bio) -> Submit {
        let ticket = self.new_ticket();
        self.entering.push_back(ticket);
        Submit::Blocked(Waiter {
            ticket,
            cpu,
            state: WaitFor::Unfreeze(bio),
        })
    }

    fn wait_for_tag(
        &mut self,
        cpu: usize,
        part: BioId,
        shallow: Option<u32>,
        rest: Option<Rest>,
    ) -> Submit {
        let ticket = self.new_ticket();
        let hctx = self.cpu_map[cpu].0 as usize;
        self.waiting[hctx].push_back(ticket);
        let state = WaitFor::Tag {
            part,
            shallow,
            rest,
        };
        Submit::Blocked(Waiter { ticket, cpu, state })
    }

    fn new_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

/// Result of issuing a request directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Issue {
    /// The driver took the request, or failed it.
    Issued,
    /// The queue is stopped: the request must be inserted.
    Stopped,
    /// There is no budget or tag.
    NoBudget,
    /// The driver is busy: the request goes to the dispatch list.
    Busy,
}
