//! Two pages of requests that were chosen: one is sent while the other is
//! filled.

use blklab_blk::{RequestId, RqList, SchedCtx};

use super::tunables::{BATCH_LIMIT, BATCH_ORDER, READ_PRIORITY, REFILL_BELOW, WINDOW};
use super::{Adios, DAY_NS, KINDS, OTHER, Place, READ, WRITE, kind_of};

/// Weights of -20 to 19, as the kernel's CPU scheduler has them for niceness,
/// in 1024ths; a step is about a quarter.
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The list of a page that is sorted where `batch_order` says so.
const SORTED: usize = 1;

/// A batch: lists in the order in which they are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page {
    lists: [RqList; KINDS],
    by_sector: bool,
}

impl Page {
    pub(super) fn is_empty(&self) -> bool {
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

impl Adios {
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
        let (mut counts, mut batch_ns) = ([0; KINDS], 0_u64);
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
            batch_ns = batch_ns.saturating_add(ns);
        }
        self.book_batch(&counts, batch_ns);
        // The source asks for the number of writes, not of the list.
        if by_sector && counts[WRITE] > 1 {
            self.sort(ctx, page);
        }
    }

    fn book_batch(&mut self, counts: &[u64; KINDS], batch_ns: u64) {
        let count = counts.iter().sum();
        self.under_way += count;
        self.under_way_ns = self.under_way_ns.saturating_add(batch_ns);
        self.batches += (count > 0) as u64;
        self.largest_batch = self.largest_batch.max(count);
        for (largest, &count) in self.largest_by_kind.iter_mut().zip(counts) {
            *largest = count.max(*largest);
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

    /// From which end of the sorted list the front page is sent.
    pub(super) fn turn_head(&mut self, ctx: &SchedCtx<'_>) {
        let page = &self.pages[self.front];
        self.backwards = self.rotational && page.by_sector && page.lies_below(ctx, self.head_end);
    }

    pub(super) fn dispatch_from_batch(&mut self, ctx: &mut SchedCtx<'_>) -> Option<RequestId> {
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
            self.turn_head(ctx);
        }
        self.pages[self.front].pop(ctx, self.backwards)
    }
}
