//! PREFLUSH and FUA (`block/blk-flush.c`).
//!
//! A write with PREFLUSH or FUA becomes a sequence: flush the drive's cache, write the data, flush
//! again. The drive decides which steps are needed. Several sequences share one flush command: all
//! those that wait while one runs are served by the next.

use crate::bio::{BioFlags, Op};
use crate::list::RqList;
use crate::queue::RequestQueue;
use crate::request::{IoStatus, Request, RequestId, RqFlags};
use crate::trace::TraceKind;
use crate::units::Nanos;

/// Steps of a sequence (`REQ_FSEQ_*`).
const PREFLUSH: u8 = 1 << 0;
const DATA: u8 = 1 << 1;
const POSTFLUSH: u8 = 1 << 2;
const ACTIONS: u8 = PREFLUSH | DATA | POSTFLUSH;
const DONE: u8 = 1 << 3;

/// A pending flush is issued after this time even while data is in flight.
const PENDING_TIMEOUT: Nanos = Nanos::from_secs(5);

/// The flush state of a hardware context (`struct blk_flush_queue`).
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    /// Sequences that wait for a flush, and those that the running flush serves, by turns.
    queue: [RqList; 2],
    pending: usize,
    running: usize,
    pending_since: Nanos,
    data_in_flight: u32,
}

/// Counts of flushes in flight and of the sequences that need one, over all hardware contexts.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    commands: u32,
    /// Sequences that wait for a flush, running or pending.
    waiting: u32,
}

impl Flushing {
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.commands > 0
    }

    /// The time, summed over requests, that a span of flushing added to requests that did not ask
    /// for a flush, in nanoseconds.
    pub(crate) fn stalls_ns(&self, in_flight: [u32; 2], span: Nanos) -> u64 {
        if !self.is_under_way() {
            return 0;
        }
        let others = (in_flight[0] + in_flight[1]).saturating_sub(self.waiting);
        span.0 * u64::from(others)
    }
}

/// The current step of a sequence: the first that is not done.
fn current(seq: u8) -> u8 {
    1 << seq.trailing_ones()
}

impl RequestQueue {
    /// Inserts a request with PREFLUSH or FUA (`blk_insert_flush`). Returns false if it needs no
    /// flush and is to be treated as any other.
    pub(crate) fn insert_flush(&mut self, now: Nanos, id: RequestId) -> bool {
        let (write_cache, fua) = (self.merge.limits.write_cache, self.merge.limits.fua);
        let rq = &mut self.rqs[id];
        let mut policy = if rq.sectors > 0 { DATA } else { 0 };
        if write_cache && rq.flags.has(BioFlags::PREFLUSH) {
            policy |= PREFLUSH;
        }
        if write_cache && rq.flags.has(BioFlags::FUA) && !fua {
            policy |= POSTFLUSH;
        }
        rq.flags = rq.flags.without(BioFlags::PREFLUSH).with(BioFlags::SYNC);
        if !fua {
            rq.flags = rq.flags.without(BioFlags::FUA);
        }
        match policy {
            0 => self.end_request(now, id, IoStatus::Ok),
            DATA => return false,
            p if p == DATA | POSTFLUSH => {
                rq.rq_flags.set(RqFlags::FLUSH_SEQ);
                rq.flush_seq = PREFLUSH;
                let hctx = rq.hctx as usize;
                self.hctxs[hctx].flush.data_in_flight += 1;
                return false;
            }
            _ => {
                rq.rq_flags.set(RqFlags::FLUSH_SEQ);
                rq.flush_seq = 0;
                self.flush_step_done(now, id, ACTIONS & !policy, IoStatus::Ok);
            }
        }
        true
    }

    /// Marks steps as done and starts the next step (`blk_flush_complete_seq`).
    fn flush_step_done(&mut self, now: Nanos, id: RequestId, steps: u8, status: IoStatus) {
        let hctx = self.rqs[id].hctx as usize;
        self.rqs[id].flush_seq |= steps;
        let next = match status {
            IoStatus::Ok => current(self.rqs[id].flush_seq),
            _ => DONE,
        };
        let fq = &mut self.hctxs[hctx].flush;
        match next {
            PREFLUSH | POSTFLUSH => {
                if fq.queue[fq.pending].is_empty() {
                    fq.pending_since = now;
                }
                fq.queue[fq.pending].push_back(&mut self.rqs, id);
                self.account_in_flight(now);
                self.flushing.waiting += 1;
            }
            DATA => {
                fq.data_in_flight += 1;
                self.requeue_list.push_front(&mut self.rqs, id);
                self.kick_requeue_list(now);
            }
            _ => {
                self.rqs[id].rq_flags.clear(RqFlags::FLUSH_SEQ);
                // Its data, if it had any, has already been traced, so such a write ends twice in
                // the trace.
                self.trace
                    .request(now, TraceKind::RqComplete(status), &self.rqs, id);
                self.end_request(now, id, status);
            }
        }
        self.kick_flush(now, hctx);
    }

    /// Issues a flush if possible (`blk_kick_flush`): one at a time, and only while no data is in
    /// flight, so that it serves as many sequences as it can.
    fn kick_flush(&mut self, now: Nanos, hctx: usize) {
        let fq = &mut self.hctxs[hctx].flush;
        let Some(first) = fq.queue[fq.pending].front() else {
            return;
        };
        let waited_long = now >= fq.pending_since + PENDING_TIMEOUT;
        if fq.pending != fq.running || (fq.data_in_flight > 0 && !waited_long) {
            return;
        }
        fq.pending ^= 1;
        self.account_in_flight(now);
        self.flushing.commands += 1;
        let flush = self.flush_request(now, first);
        let id = self.rqs.insert(flush);
        self.flush_list.push_back(&mut self.rqs, id);
        self.kick_requeue_list(now);
    }

    /// Builds the flush command. It borrows the tag of the first request that it serves, which
    /// cannot be in flight at the same time.
    fn flush_request(&self, now: Nanos, first: RequestId) -> Request {
        let first = &self.rqs[first];
        let mut rq = first.clone();
        rq.op = Op::Flush;
        rq.flags = BioFlags::PREFLUSH;
        rq.sector = crate::units::Sector(0);
        rq.sectors = 0;
        rq.segments = 0;
        rq.rq_flags = RqFlags::default();
        rq.rq_flags.set(RqFlags::FLUSH_RQ);
        rq.rq_flags.set(RqFlags::FLUSH_SEQ);
        if self.elevator.is_some() {
            rq.rq_flags.set(RqFlags::SCHED_TAGS);
            rq.tag = None;
        }
        rq.internal_tag = None;
        rq.start = now;
        rq.bios = None;
        rq.links = Default::default();
        rq
    }

    /// Ends the flush command, and starts the next step of every sequence that it served.
    pub(crate) fn flush_rq_ended(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        let hctx = self.rqs[id].hctx as usize;
        self.counters.ios[Op::Flush.stat_group()] += 1;
        self.counters.ticks_ns[Op::Flush.stat_group()] += (now - self.rqs[id].start).0;
        self.put_driver_tag(id);
        self.rqs.remove(id);
        self.account_in_flight(now);
        self.flushing.commands -= 1;
        let fq = &mut self.hctxs[hctx].flush;
        let mut served = core::mem::take(&mut fq.queue[fq.running]);
        fq.running ^= 1;
        while let Some(rq) = served.pop_front(&mut self.rqs) {
            self.flushing.waiting -= 1;
            let step = current(self.rqs[rq].flush_seq);
            self.flush_step_done(now, rq, step, status);
        }
    }

    /// Ends the data step of a sequence.
    pub(crate) fn flush_data_ended(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        let hctx = self.rqs[id].hctx as usize;
        self.rqs[id].rq_flags.clear(RqFlags::IN_FLIGHT);
        // The scheduler is notified now, and again when the sequence ends, as by
        // `__blk_mq_end_request`. A scheduler that waits for requests in flight must not wait for a
        // flush, which itself waits for other data.
        self.notify_completed(now, id);
        self.put_driver_tag(id);
        self.hctxs[hctx].flush.data_in_flight -= 1;
        self.flush_step_done(now, id, DATA, status);
        self.restart(now, hctx);
    }
}
