//! `Hctx`: one hardware queue of the driver and its state in blk-mq (`struct blk_mq_hw_ctx`).

use alloc::vec;
use alloc::vec::Vec;

use crate::flush::FlushQueue;
use crate::list::RqList;
use crate::tags::{Search, Tags};
use crate::units::Nanos;

/// Buckets of the `dispatched` histogram: 0, 1, 2, 4, 8, 16, 32 and more.
pub const DISPATCH_BUCKETS: usize = 7;

/// Weight and factor of the busy average (`BLK_MQ_DISPATCH_BUSY_EWMA_*`).
const BUSY_WEIGHT: u32 = 8;
const BUSY_FACTOR: u32 = 4;

/// Statistics of a hardware context, as debugfs shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HctxStats {
    /// Number of runs.
    pub run: u64,
    /// Runs by how many requests the driver took: 0, 1, 2, 4, 8, 16, 32 and more.
    pub dispatched: [u64; DISPATCH_BUCKETS],
}

#[derive(Debug)]
pub(crate) struct Hctx {
    /// Requests that have left the scheduler but not reached the driver.
    pub(crate) dispatch: RqList,
    /// Software queues mapped to it.
    pub(crate) ctxs: Vec<u16>,
    /// Bitmap of software queues that hold requests, by index in `ctxs`.
    pub(crate) ctx_map: Vec<u64>,
    /// Index in `ctxs` of the software queue to be served next.
    pub(crate) dispatch_from: usize,
    pub(crate) dispatch_busy: u32,
    /// Whether the next completion runs it again (`BLK_MQ_S_SCHED_RESTART`).
    pub(crate) restart: bool,
    pub(crate) stopped: bool,
    pub(crate) run_work: DelayedWork,
    /// Whether kblockd was asked to run it while it slept in the driver.
    pub(crate) run_again: bool,
    pub(crate) tags: Tags,
    pub(crate) sched_tags: Option<Tags>,
    /// How tags are searched in both bitmaps.
    search: Search,
    pub(crate) flush: FlushQueue,
    pub(crate) stats: HctxStats,
}

impl Hctx {
    pub(crate) fn new(depth: u32, ctxs: Vec<u16>, search: Search) -> Hctx {
        let map_words = ctxs.len().div_ceil(64);
        Hctx {
            dispatch: RqList::new(),
            ctxs,
            ctx_map: vec![0; map_words],
            dispatch_from: 0,
            dispatch_busy: 0,
            restart: false,
            stopped: false,
            run_work: DelayedWork::default(),
            run_again: false,
            tags: Tags::searched_by(depth, &search),
            sched_tags: None,
            search,
            flush: FlushQueue::default(),
            stats: HctxStats::default(),
        }
    }

    /// Updates the busy average: seven eighths old, one eighth new (`blk_mq_update_dispatch_busy`).
    #[inline]
    pub(crate) fn update_busy(&mut self, busy: bool) {
        if self.dispatch_busy == 0 && !busy {
            return;
        }
        let new = if busy { 1 << BUSY_FACTOR } else { 0 };
        self.dispatch_busy = (self.dispatch_busy * (BUSY_WEIGHT - 1) + new) / BUSY_WEIGHT;
    }

    pub(crate) fn count_dispatched(&mut self, queued: u32) {
        let bucket = match queued {
            0 => 0,
            n => (n.ilog2() as usize + 1).min(DISPATCH_BUCKETS - 1),
        };
        self.stats.dispatched[bucket] += 1;
    }

    pub(crate) fn mark_pending(&mut self, place: usize) {
        self.ctx_map[place / 64] |= 1 << (place % 64);
    }

    pub(crate) fn clear_pending(&mut self, place: usize) {
        self.ctx_map[place / 64] &= !(1 << (place % 64));
    }

    #[inline]
    pub(crate) fn any_ctx_pending(&self) -> bool {
        self.ctx_map.iter().any(|&word| word != 0)
    }

    /// The first non-empty software queue at or after `from`, wrapping around.
    pub(crate) fn next_pending(&self, from: usize) -> Option<usize> {
        let pending = |&place: &usize| self.ctx_map[place / 64] & (1 << (place % 64)) != 0;
        (from..self.ctxs.len())
            .find(pending)
            .or_else(|| (0..from.min(self.ctxs.len())).find(pending))
    }

    /// Returns a bitmap of `depth` free tags for this hardware context.
    pub(crate) fn new_tags(&self, depth: u32) -> Tags {
        Tags::searched_by(depth, &self.search)
    }

    /// The tags that a new request takes: scheduler tags if there is a scheduler.
    #[inline]
    pub(crate) fn alloc_tags(&mut self) -> &mut Tags {
        self.sched_tags.as_mut().unwrap_or(&mut self.tags)
    }
}

/// A work item of kblockd with the time at which it runs (`struct delayed_work`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DelayedWork(Option<Nanos>);

impl DelayedWork {
    /// Sets the time at which it runs, replacing an earlier one (`mod_delayed_work`).
    pub(crate) fn schedule(&mut self, at: Nanos) {
        self.0 = Some(at);
    }

    /// Whether it is waiting to run.
    pub(crate) fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    /// The time at which it runs; [`Nanos::MAX`] if it is not pending.
    pub(crate) fn at(&self) -> Nanos {
        self.0.unwrap_or(Nanos::MAX)
    }

    /// Whether it is due; if so, it is no longer pending.
    pub(crate) fn take_due(&mut self, now: Nanos) -> bool {
        let due = self.0.is_some_and(|at| at <= now);
        if due {
            self.0 = None;
        }
        due
    }

    /// Cancels it (`cancel_delayed_work`).
    pub(crate) fn cancel(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hctx() -> Hctx {
        let search = Search {
            nr_cpus: 1,
            round_robin: false,
            seed: 0,
        };
        Hctx::new(4, vec![0], search)
    }

    #[test]
    fn busy_average_is_the_kernels() {
        let mut hctx = hctx();
        let mut seen = Vec::new();
        for busy in [true, true, true, false, false, false] {
            hctx.update_busy(busy);
            seen.push(hctx.dispatch_busy);
        }
        assert_eq!(seen, [2, 3, 4, 3, 2, 1]);
    }

    #[test]
    fn dispatched_buckets_are_powers_of_two() {
        let mut hctx = hctx();
        for n in [0, 1, 2, 3, 4, 31, 32, 500] {
            hctx.count_dispatched(n);
        }
        assert_eq!(hctx.stats.dispatched, [1, 1, 2, 1, 0, 1, 2]);
    }

    #[test]
    fn delayed_work_is_pending_until_it_is_due_or_cancelled() {
        let mut work = DelayedWork::default();
        assert!(!work.is_pending());
        work.schedule(Nanos(5));
        assert!(!work.take_due(Nanos(4)) && work.is_pending());
        assert!(work.take_due(Nanos(5)) && !work.is_pending());
        work.schedule(Nanos(9));
        assert_eq!(work.at(), Nanos(9));
        work.cancel();
        assert!(!work.is_pending() && work.at() == Nanos::MAX);
    }

    /// Software queues are searched from a place on and around, each bit of the map for one of
    /// them, however many CPUs there are.
    #[test]
    fn a_pending_software_queue_is_found_from_everywhere() {
        let search = Search {
            nr_cpus: 1,
            round_robin: false,
            seed: 0,
        };
        let mut hctx = Hctx::new(4, (0..130).collect(), search);
        assert_eq!(hctx.next_pending(0), None);
        for place in [0, 1, 63, 64, 127, 128, 129] {
            hctx.mark_pending(place);
            for from in [0, 1, 62, 63, 64, 65, 128, 129, 130] {
                assert_eq!(hctx.next_pending(from), Some(place), "from {from}");
            }
            hctx.clear_pending(place);
            assert!(!hctx.any_ctx_pending());
        }
        for place in [5, 70, 128] {
            hctx.mark_pending(place);
        }
        let found = [0, 5, 6, 70, 71, 128, 129].map(|from| hctx.next_pending(from));
        assert_eq!(found, [5, 5, 70, 70, 128, 128, 5].map(Some));
        hctx.clear_pending(70);
        assert_eq!(hctx.next_pending(6), Some(128));
    }
}
