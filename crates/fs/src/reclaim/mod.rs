//! Reclaim: which cached pages are evicted when memory is short.
//!
//! Every folio of the cache is on an LRU list, or in a batch that will be put on one: as
//! each CPU of Linux does, lists are changed for up to [`FOLIO_BATCH`] folios at once
//! (`mm/swap.c`). [`Policy`] chooses the kind of lists, [`Memory`] the limit.

mod active_inactive;
mod generations;
mod kswapd;
mod list;
mod scan;

use crate::page_cache::{FOLIO_BATCH, FolioId, PageCache, flag};
use crate::vfs::{Host, Vfs};
use active_inactive::ActiveInactive;
use generations::Generations;
use list::{Lists, state};

pub use active_inactive::LruStatistics;
pub use kswapd::{NodePages, Watermarks};

/// The policy of reclaim (`/sys/kernel/mm/lru_gen/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// An active and an inactive list.
    ActiveInactive,
    /// Generations (MGLRU).
    Generations,
}

/// The limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// That of a memory cgroup (`memory.max`), which decides by its statistics as of the
    /// last [`Vfs::flush_memory_statistics`].
    Cgroup {
        /// Pages.
        max_pages: u64,
    },
    /// The machine's memory: below its watermarks `kswapd` runs, and then tasks that need a
    /// page reclaim themselves. Pages are taken from the node near to the CPU, and from the
    /// next one if it has none free ([`Host::node`]).
    Machine {
        /// Pages of the machine.
        pages: u64,
        /// Memory nodes, of which each has as many of them.
        nodes: u8,
    },
}

/// What adds a page to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A read, or readahead.
    Read,
    /// A write, which does not count as a refault.
    Write,
    /// A fault in a mapping without advice.
    Fault,
}

/// The state of the policy.
#[derive(Debug)]
enum PolicyState {
    ActiveInactive(ActiveInactive),
    Generations(Box<Generations>),
}

/// Folios to be put on a list, at the end of one, or on the active one (`lru_add`,
/// `lru_move_tail`, `lru_activate`).
#[derive(Debug, Default)]
struct Batches {
    added: Vec<FolioId>,
    rotated: Vec<FolioId>,
    activated: Vec<FolioId>,
}

impl Batches {
    fn forget(&mut self, id: FolioId) {
        for batch in [&mut self.added, &mut self.rotated, &mut self.activated] {
            batch.retain(|&other| other != id);
        }
    }
}

/// The LRU lists of all cached folios, and the memory charged for them.
#[derive(Debug)]
pub(crate) struct Lru {
    lists: Lists,
    policy: PolicyState,
    batches: Batches,
    charge: kswapd::Charge,
    /// A cgroup's statistics at their last flush.
    flushed: LruStatistics,
}

impl Lru {
    pub(crate) fn new(policy: Policy, memory: Memory) -> Lru {
        Lru {
            lists: Lists::default(),
            policy: match policy {
                Policy::ActiveInactive => PolicyState::ActiveInactive(ActiveInactive::default()),
                Policy::Generations => PolicyState::Generations(Box::default()),
            },
            batches: Batches::default(),
            charge: kswapd::Charge::new(memory),
            flushed: LruStatistics::default(),
        }
    }

    /// Sizes of the lists; all zero with generations.
    fn statistics(&self) -> LruStatistics {
        match &self.policy {
            PolicyState::ActiveInactive(policy) => policy.statistics(&self.lists),
            PolicyState::Generations(_) => LruStatistics::default(),
        }
    }

    /// The statistics for decisions: a cgroup's lag behind until they are flushed.
    fn seen(&self) -> LruStatistics {
        if self.charge.is_cgroup() {
            self.flushed
        } else {
            self.statistics()
        }
    }

    /// Adds a folio on a memory node that was added to the page cache; `shadow` is the shadow
    /// entry of its page. Whether a refault made it active (`filemap_add_folio`).
    fn add(
        &mut self,
        cache: &mut PageCache,
        (id, node): (FolioId, u8),
        origin: Origin,
        shadow: Option<u32>,
    ) -> bool {
        self.lists.begin(id, cache.order(id) as u8, node);
        let active = match shadow {
            Some(shadow) if origin != Origin::Write => self.refault(cache, id, origin, shadow),
            _ => false,
        };
        if origin == Origin::Fault && matches!(self.policy, PolicyState::Generations(_)) {
            self.lists.set(id, state::ACTIVE);
        }
        self.batches.added.push(id);
        if self.batches.added.len() == FOLIO_BATCH || cache.order(id) > 0 {
            self.drain_added(cache);
        }
        active
    }

    /// Handles a refault; whether it made the folio active.
    #[inline(never)]
    fn refault(&mut self, cache: &mut PageCache, id: FolioId, origin: Origin, shadow: u32) -> bool {
        let seen = self.seen();
        match &mut self.policy {
            PolicyState::ActiveInactive(policy) => {
                policy.refault(cache, &mut self.lists, id, shadow, &seen)
            }
            PolicyState::Generations(policy) => {
                let by_fault = origin == Origin::Fault;
                policy.refault(cache, &mut self.lists, id, shadow, by_fault);
                false
            }
        }
    }

    /// Counts a read of a folio (`folio_mark_accessed`).
    pub(crate) fn mark_accessed(&mut self, cache: &mut PageCache, id: FolioId) {
        let PolicyState::ActiveInactive(policy) = &mut self.policy else {
            return generations::count_read(cache, &mut self.lists, id);
        };
        if !self.lists.has(id, state::REFERENCED) {
            self.lists.set(id, state::REFERENCED);
        } else if !self.lists.has(id, state::ACTIVE) {
            policy.activation(&self.lists, id);
            self.lists.clear(id, state::REFERENCED);
            self.activate(cache, id);
        }
    }

    /// Has a folio moved to the active list; one that is still in a batch goes there from
    /// it (`folio_activate`).
    fn activate(&mut self, cache: &mut PageCache, id: FolioId) {
        if self.lists.has(id, state::ACTIVE) {
            return;
        }
        if !self.lists.has(id, state::LRU) {
            if self.batches.added.contains(&id) {
                self.lists.set(id, state::ACTIVE);
            }
            return;
        }
        self.batches.activated.push(id);
        if self.batches.activated.len() == FOLIO_BATCH {
            self.drain_activated(cache);
        }
    }

    /// Write-back of a folio has ended: if reclaim wanted it, it is evicted next
    /// (`folio_rotate_reclaimable`).
    pub(crate) fn written(&mut self, cache: &mut PageCache, id: FolioId) {
        if !cache.has(id, flag::READAHEAD) {
            return;
        }
        cache.clear(id, flag::READAHEAD);
        if cache.has(id, flag::LOCKED | flag::DIRTY) || !self.lists.has(id, state::LRU) {
            return;
        }
        self.batches.rotated.push(id);
        if self.batches.rotated.len() == FOLIO_BATCH {
            self.drain_rotated();
        }
    }

    /// Empties all batches (`lru_add_drain`).
    fn drain(&mut self, cache: &mut PageCache) {
        self.drain_added(cache);
        self.drain_rotated();
        self.drain_activated(cache);
    }

    fn drain_added(&mut self, cache: &mut PageCache) {
        let mut added = std::mem::take(&mut self.batches.added);
        for id in added.drain(..) {
            self.insert(cache, id);
        }
        self.batches.added = added;
    }

    fn drain_rotated(&mut self) {
        let mut rotated = std::mem::take(&mut self.batches.rotated);
        for id in rotated.drain(..) {
            if self.lists.has(id, state::LRU) {
                self.take(id);
                self.lists.clear(id, state::ACTIVE);
                match &mut self.policy {
                    PolicyState::ActiveInactive(_) => {
                        self.lists.push_oldest(active_inactive::INACTIVE, id);
                    }
                    PolicyState::Generations(policy) => policy.add_oldest(&mut self.lists, id),
                }
            }
        }
        self.batches.rotated = rotated;
    }

    fn drain_activated(&mut self, cache: &mut PageCache) {
        let mut activated = std::mem::take(&mut self.batches.activated);
        for id in activated.drain(..) {
            if self.lists.has(id, state::LRU) && !self.lists.has(id, state::ACTIVE) {
                self.take(id);
                self.lists.set(id, state::ACTIVE);
                self.insert(cache, id);
            }
        }
        self.batches.activated = activated;
    }

    /// Puts a folio on the list where it belongs (`lruvec_add_folio`).
    fn insert(&mut self, cache: &PageCache, id: FolioId) {
        match &mut self.policy {
            PolicyState::ActiveInactive(_) => {
                let list = ActiveInactive::list_of(&self.lists, id);
                self.lists.push_newest(list, id);
            }
            PolicyState::Generations(policy) => policy.add(cache, &mut self.lists, id),
        }
    }

    /// Removes a folio from its list.
    fn take(&mut self, id: FolioId) {
        match &mut self.policy {
            PolicyState::ActiveInactive(_) => self.lists.remove(id),
            PolicyState::Generations(policy) => policy.remove(&mut self.lists, id),
        }
    }

    /// Removes a folio that leaves the page cache.
    fn forget(&mut self, id: FolioId) {
        if self.lists.has(id, state::LRU) {
            self.take(id);
        }
        self.batches.forget(id);
        let entry = self.lists.entry(id);
        self.charge.uncharge(entry.pages(), entry.node);
    }
}

impl<H: Host> Vfs<H> {
    /// Sizes of the lists; `None` if memory is not limited.
    pub fn lru_statistics(&self) -> Option<LruStatistics> {
        self.lru.as_ref().map(|lru| lru.borrow().statistics())
    }

    /// Brings a cgroup's statistics up to date, which Linux does every 2 s
    /// (`flush_memcg_stats_dwork`).
    pub fn flush_memory_statistics(&self) {
        if let Some(lru) = &self.lru {
            let lru = &mut *lru.borrow_mut();
            lru.flushed = lru.statistics();
        }
    }

    /// Puts the folios of all batches on their lists (`lru_add_drain`).
    pub fn drain_lru_batches(&self) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().drain(&mut self.cache.borrow_mut());
        }
    }

    /// Counts a read of a folio (`folio_mark_accessed`).
    pub(crate) fn mark_accessed(&self, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut()
                .mark_accessed(&mut self.cache.borrow_mut(), id);
        }
    }

    /// Write-back of a folio has ended.
    pub(crate) fn lru_written(&self, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().written(&mut self.cache.borrow_mut(), id);
        }
    }

    /// Adds a folio that was added to the page cache, with its memory node. If that is a
    /// refault, whether the folio became active.
    pub(crate) fn lru_added(&self, (id, node): (FolioId, u8), origin: Origin) -> Option<bool> {
        let mut lru = self.lru.as_ref()?.borrow_mut();
        let mut cache = self.cache.borrow_mut();
        let shadow = cache.take_shadow(id);
        let active = lru.add(&mut cache, (id, node), origin, shadow);
        shadow.filter(|_| origin != Origin::Write)?;
        Some(active)
    }

    /// The running task has written to pages of a folio, which takes longer on a remote node.
    pub(crate) fn wrote_pages(&self, id: FolioId, pages: u64) {
        let Some(lru) = &self.lru else { return };
        let lru = lru.borrow();
        if lru.charge.has_remote_nodes() && lru.lists.entry(id).node != self.host().node() {
            self.host().wrote_remote_pages(pages);
        }
    }

    /// Removes a folio that leaves the page cache.
    pub(crate) fn lru_deleted(&self, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().forget(id);
        }
    }
}
