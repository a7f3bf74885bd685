//! PREFLUSH and FUA (`block/blk-flush.c`).
//!
//! A write that must be durable, or follow what is, becomes a sequence: flush
//! the drive's cache, write the data, flush again. Which steps are needed
//! depends on the drive. Flushes of several sequences share one command: those
//! that wait while one is running are all served by the next.

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

/// A waiting flush goes, even while data is under way, after this long.
const PENDING_TIMEOUT: Nanos = Nanos::from_secs(5);

/// A hardware context's flush machinery.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    /// Sequences that wait for a flush, and those that the running one serves.
    queue: [RqList; 2],
    pending: usize,
    running: usize,
    pending_since: Nanos,
    data_in_flight: u32,
}

/// How many flushes are under way in all hardware contexts, and for how many sequences.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    commands: u32,
    /// Sequences that wait for a flush, of those or of one to come.
    waiting: u32,
}

impl Flushing {
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.commands > 0
    }

    /// Time that others than those who asked for a flush spent beside one.
    pub(crate) fn stalls_ns(&self, in_flight: [u32; 2], span: Nanos) -> u64 {
        if !self.is_under_way() {
            return 0;
        }
        let others = (in_flight[0] + in_flight[1]).saturating_sub(self.waiting);
        span.0 * u64::from(others)
    }
}

/// The step a sequence is at: the first that is not done.
fn current(seq: u8) -> u8 {
    1 << seq.trailing_ones()
}

impl RequestQueue {
    /// Takes a request with PREFLUSH or FUA (`blk_insert_flush`). Returns false
    /// where it is to be treated as any other.
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

    /// Marks steps as done and starts the next (`blk_flush_complete_seq`).
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
                // Its data, if any, was traced already: such a write ends twice.
                self.trace
                    .request(now, TraceKind::RqComplete(status), &self.rqs, id);
                self.end_request(now, id, status);
            }
        }
        self.kick_flush(now, hctx);
    }

    /// Issues a flush if one may go (`blk_kick_flush`): one at a time, and only
    /// while no data is under way, so that it serves as many as it can.
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

    /// The drive's flush command. It borrows the tag of the first request that
    /// it serves, which cannot be in flight at the same time.
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

    /// The flush command ended: every sequence it served takes its next step.
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

    /// The data of a sequence is written.
    pub(crate) fn flush_data_ended(&mut self, now: Nanos, id: RequestId, status: IoStatus) {
        let hctx = self.rqs[id].hctx as usize;
        self.rqs[id].rq_flags.clear(RqFlags::IN_FLIGHT);
        // The scheduler hears of it now and again when the sequence ends, as
        // from `__blk_mq_end_request`. One that waits for what is in the drive
        // must not wait for a flush, which itself waits for other data.
        self.notify_completed(now, id);
        self.put_driver_tag(id);
        self.hctxs[hctx].flush.data_in_flight -= 1;
        self.flush_step_done(now, id, DATA, status);
        self.restart(now, hctx);
    }
}
