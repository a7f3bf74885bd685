//! Data structures of the schedulers that do not sort: queues in order of arrival, and writes
//! grouped by erase block.

use alloc::vec::Vec;

use blklab_blk::{RequestId, Requests, RqList, SchedCtx};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// `elv[0]`: the request's kind plus one; zero if it is not queued.
const ELV_KIND: usize = 0;

/// Queued requests by kind, each kind in order of arrival.
pub struct Fifos<const KINDS: usize>([RqList; KINDS]);

impl<const KINDS: usize> Default for Fifos<KINDS> {
    fn default() -> Self {
        Fifos([RqList::new(); KINDS])
    }
}

impl<const KINDS: usize> Fifos<KINDS> {
    /// Appends a request to the queue of its kind.
    #[inline(always)]
    pub fn push_back(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, kind: usize) {
        ctx.rqs[id].elv[ELV_KIND] = kind as u32 + 1;
        self.0[kind].push_back(ctx.rqs, id);
        ctx.merge.add(ctx.rqs, id);
    }

    /// The kind of a request, if it is queued.
    #[inline]
    pub fn kind_of(&self, rqs: &Requests, id: RequestId) -> Option<usize> {
        let kind = rqs[id].elv[ELV_KIND].checked_sub(1)?;
        Some(kind as usize)
    }

    /// Removes a request. One that is merged during its insertion is in no queue yet.
    #[inline(always)]
    pub fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        if let Some(kind) = self.kind_of(ctx.rqs, id) {
            ctx.rqs[id].elv[ELV_KIND] = 0;
            self.0[kind].remove(ctx.rqs, id);
            ctx.merge.remove(ctx.rqs, id);
        }
    }

    /// Handles the merge of `next` into `id`, which takes over an earlier deadline and its place if
    /// both are of one kind.
    #[inline]
    pub fn merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        let kind = self.kind_of(ctx.rqs, id);
        if let Some(kind) = kind
            && self.kind_of(ctx.rqs, next) == Some(kind)
        {
            self.0[kind].inherit_deadline(ctx.rqs, id, next);
        }
    }

    /// Whether nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(RqList::is_empty)
    }

    /// The oldest request of a kind.
    #[inline]
    pub fn front(&self, kind: usize) -> Option<RequestId> {
        self.0[kind].front()
    }

    /// The oldest request of each kind that has any.
    #[inline]
    pub fn fronts(&self) -> impl Iterator<Item = RequestId> {
        self.0.iter().filter_map(RqList::front)
    }

    /// The request queued before this one, if it is queued.
    #[inline]
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        self.0[self.kind_of(rqs, id)?].prev(rqs, id)
    }

    /// The request queued after this one, if it is queued.
    #[inline]
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        self.0[self.kind_of(rqs, id)?].next(rqs, id)
    }
}

/// `elv[1]`: the request's bundle plus one; zero for none.
const ELV_BUNDLE: usize = 1;

/// Writes of one block that are sent together, linked by their second link.
#[derive(Default)]
struct Bundle {
    block: u64,
    open: bool,
    writes: RqList<1>,
}

/// Index of a bundle.
pub type BundleId = u32;

/// Queued writes by erase block, for the schedulers that send the writes of one block together.
///
/// A drive benefits from the grouping, not from an order inside the block, so a bundle is an
/// unsorted list.
#[derive(Default)]
pub struct Bundles {
    bundles: Vec<Bundle>,
    free: Vec<BundleId>,
    /// The bundle of each block that still accepts writes.
    open: HashMap<u64, BundleId, FxBuildHasher>,
    /// The bundle that is being sent, while it has writes.
    current: Option<BundleId>,
}

impl Bundles {
    /// Adds a write to the open bundle of `block`, creating one if necessary.
    #[inline]
    pub fn add(&mut self, rqs: &mut Requests, id: RequestId, block: u64) {
        let bundle = match self.open.get(&block) {
            Some(&bundle) => bundle,
            None => self.make(block),
        };
        self.bundles[bundle as usize].writes.push_back(rqs, id);
        rqs[id].elv[ELV_BUNDLE] = bundle + 1;
    }

    fn make(&mut self, block: u64) -> BundleId {
        let bundle = self.free.pop().unwrap_or_else(|| {
            self.bundles.push(Bundle::default());
            self.bundles.len() as BundleId - 1
        });
        self.bundles[bundle as usize] = Bundle {
            block,
            open: true,
            writes: RqList::new(),
        };
        self.open.insert(block, bundle);
        bundle
    }

    /// Removes a write. A bundle ends with its last write.
    #[inline]
    pub fn remove(&mut self, rqs: &mut Requests, id: RequestId) {
        let Some(bundle) = rqs[id].elv[ELV_BUNDLE].checked_sub(1) else {
            return;
        };
        rqs[id].elv[ELV_BUNDLE] = 0;
        self.bundles[bundle as usize].writes.remove(rqs, id);
        if self.bundles[bundle as usize].writes.is_empty() {
            self.close(bundle);
            self.free.push(bundle);
            self.current = self.current.filter(|&current| current != bundle);
        }
    }

    /// Makes the bundle of a queued write the one that is being sent. Returns the bundle, unless it
    /// already was.
    #[inline]
    pub fn start(&mut self, rqs: &Requests, id: RequestId) -> Option<BundleId> {
        let bundle = self.of(rqs, id)?;
        (self.current.replace(bundle) != Some(bundle)).then_some(bundle)
    }

    /// Stops sending the current bundle.
    pub fn stop(&mut self) {
        self.current = None;
    }

    /// Closes a bundle; later writes go to a new one.
    pub fn close(&mut self, bundle: BundleId) {
        let b = &mut self.bundles[bundle as usize];
        if core::mem::take(&mut b.open) {
            let block = b.block;
            self.open.remove(&block);
        }
    }

    /// The bundle of a queued write.
    fn of(&self, rqs: &Requests, id: RequestId) -> Option<BundleId> {
        rqs[id].elv[ELV_BUNDLE].checked_sub(1)
    }

    /// The oldest write of the bundle that is being sent, if there is one.
    #[inline]
    pub fn front(&self) -> Option<RequestId> {
        self.bundles[self.current? as usize].writes.front()
    }

    /// The write queued before this one in its bundle.
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let bundle = self.of(rqs, id)?;
        self.bundles[bundle as usize].writes.prev(rqs, id)
    }

    /// The write queued after this one in its bundle.
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        let bundle = self.of(rqs, id)?;
        self.bundles[bundle as usize].writes.next(rqs, id)
    }
}

/// Queued requests by kind in order of arrival, some of them writes in bundles by erase block.
#[derive(Default)]
pub struct BundledFifos<const KINDS: usize> {
    fifos: Fifos<KINDS>,
    bundles: Bundles,
}

impl<const KINDS: usize> BundledFifos<KINDS> {
    /// Appends a request to the queue of its kind, and to the bundle of `block`, if any.
    #[inline(always)]
    pub fn push_back(
        &mut self,
        ctx: &mut SchedCtx<'_>,
        id: RequestId,
        kind: usize,
        block: Option<u64>,
    ) {
        if let Some(block) = block {
            self.bundles.add(ctx.rqs, id, block);
        }
        self.fifos.push_back(ctx, id, kind);
    }

    /// Removes a request. One that is merged during its insertion is in no queue yet.
    #[inline(always)]
    pub fn remove(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        self.fifos.remove(ctx, id);
        self.bundles.remove(ctx.rqs, id);
    }

    /// Handles the merge of `next` into `id`, which takes over an earlier deadline and its place.
    pub fn merged(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId, next: RequestId) {
        self.fifos.merged(ctx, id, next);
        self.remove(ctx, next);
    }

    /// The queues in order of arrival.
    #[inline]
    pub fn fifos(&self) -> &Fifos<KINDS> {
        &self.fifos
    }

    /// The request before this one in its bundle, or in its queue if it is in none.
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        match self.bundles.of(rqs, id) {
            Some(_) => self.bundles.prev(rqs, id),
            None => self.fifos.prev(rqs, id),
        }
    }

    /// The request after this one in its bundle, or in its queue if it is in none.
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        match self.bundles.of(rqs, id) {
            Some(_) => self.bundles.next(rqs, id),
            None => self.fifos.next(rqs, id),
        }
    }

    /// The oldest write of the bundle that is being sent, if there is one.
    #[inline]
    pub fn bundle_front(&self) -> Option<RequestId> {
        self.bundles.front()
    }

    /// Makes the bundle of a request, if it is in one, the bundle that is being sent.
    #[inline]
    pub fn start_bundle(&mut self, rqs: &Requests, id: RequestId) {
        self.bundles.start(rqs, id);
    }

    /// As [`BundledFifos::start_bundle`], but later writes of the block go to a new bundle.
    /// Returns whether the bundle is another one than before.
    pub fn start_closed_bundle(&mut self, rqs: &Requests, id: RequestId) -> bool {
        let started = self.bundles.start(rqs, id);
        if let Some(bundle) = started {
            self.bundles.close(bundle);
        }
        started.is_some()
    }

    /// Stops sending the current bundle.
    pub fn stop_bundle(&mut self) {
        self.bundles.stop();
    }
}

/// The hooks of every scheduler with a [`BundledFifos`] `queued` beside its `queue`, whose `choose`
/// returns the request to dispatch. Nothing happens at the end of a request.
macro_rules! bundled_hooks {
    () => {
        fn queue(&self) -> &ElevatorQueue {
            &self.queue
        }

        fn queue_mut(&mut self) -> &mut ElevatorQueue {
            &mut self.queue
        }

        fn former_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
            self.queued.prev(ctx.rqs, id)
        }

        fn next_request(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) -> Option<RequestId> {
            self.queued.next(ctx.rqs, id)
        }

        fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, _: usize) -> Option<RequestId> {
            if let Some(id) = self.queue.pop_head(ctx) {
                return Some(id);
            }
            let id = self.choose(ctx)?;
            self.queued.remove(ctx, id);
            self.queue.send(ctx, id)
        }

        fn has_work(&self, _: usize) -> bool {
            !self.queue.head.is_empty() || !self.queued.fifos().is_empty()
        }

        fn ends_can_wait(&self) -> bool {
            true
        }
    };
}

pub(crate) use bundled_hooks;

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Bio, Nanos, Op, Request, Sector};

    #[test]
    fn a_block_is_left_with_its_own_last_write_only() {
        let mut rqs = Requests::default();
        let mut bundles = Bundles::default();
        let ids = [7, 7, 2].map(|block| {
            let bio = Bio::new(Op::Write, Sector(0), 8);
            let id = rqs.insert(Request::for_bio(&bio, Nanos::ZERO));
            bundles.add(&mut rqs, id, block);
            id
        });
        assert!(bundles.start(&rqs, ids[0]).is_some());
        bundles.remove(&mut rqs, ids[2]);
        assert_eq!(bundles.front(), Some(ids[0]));
        bundles.remove(&mut rqs, ids[0]);
        assert_eq!(bundles.front(), Some(ids[1]));
        bundles.remove(&mut rqs, ids[1]);
        assert_eq!(bundles.front(), None);
    }
}
