//! Reclaim: which cached pages go when memory is short.
//!
//! Every folio in the cache is in a list, or in a batch on its way there: lists are
//! changed for up to [`BATCH_FOLIOS`] folios at once, as each CPU does in Linux
//! (`mm/swap.c`). [`Policy`] says how lists are kept, [`Memory`] when pages must go.

mod active_inactive;
mod generations;
mod kswapd;
mod list;
mod scan;

use crate::page_cache::{FolioId, PageCache, flag};
use crate::vfs::{Host, Vfs};
use active_inactive::ActiveInactive;
use generations::Generations;
use list::{Lists, state};

pub use active_inactive::LruStatistics;
pub use kswapd::Watermarks;

/// Folios of a batch (`PAGEVEC_SIZE`).
const BATCH_FOLIOS: usize = 31;

/// How pages are chosen (`/sys/kernel/mm/lru_gen/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// An active and an inactive list.
    ActiveInactive,
    /// Generations (MGLRU).
    Generations,
}

/// When pages must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A memory cgroup holds at most so many pages (`memory.max`); it knows its
    /// statistics as of [`Vfs::flush_memory_statistics`].
    Cgroup {
        /// Pages.
        max_pages: u64,
    },
    /// The machine's memory: below its watermarks `kswapd` runs, and then whoever
    /// wants a page reclaims.
    Machine {
        /// Pages that the cache may have while no page is free.
        pages: u64,
    },
}

/// What adds a page to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A read, or readahead.
    Read,
    /// A write: the page's old contents do not count as missed.
    Write,
    /// A fault in a mapping that is used neither in order nor at random.
    Fault,
}

/// The lists of a policy.
#[derive(Debug)]
enum Order {
    ActiveInactive(ActiveInactive),
    Generations(Box<Generations>),
}

/// Folios on their way into a list, to the end of one, or to the active one.
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

/// Lists of all cached folios, and how much memory they take.
#[derive(Debug)]
pub(crate) struct Lru {
    lists: Lists,
    order: Order,
    batches: Batches,
    charge: kswapd::Charge,
    /// A cgroup's statistics as they were flushed last.
    flushed: LruStatistics,
}

impl Lru {
    pub(crate) fn new(policy: Policy, memory: Memory) -> Lru {
        Lru {
            lists: Lists::default(),
            order: match policy {
                Policy::ActiveInactive => Order::ActiveInactive(ActiveInactive::default()),
                Policy::Generations => Order::Generations(Box::default()),
            },
            batches: Batches::default(),
            charge: kswapd::Charge::new(memory),
            flushed: LruStatistics::default(),
        }
    }

    /// Sizes of the lists; generations have none.
    fn statistics(&self) -> LruStatistics {
        match &self.order {
            Order::ActiveInactive(order) => order.statistics(&self.lists),
            Order::Generations(_) => LruStatistics::default(),
        }
    }

    /// The statistics that decisions are made by.
    fn seen(&self) -> LruStatistics {
        if self.charge.is_cgroup() {
            self.flushed
        } else {
            self.statistics()
        }
    }

    /// A folio has come into the cache; `shadow` is what was left when its page was
    /// evicted. Whether it came back active (`filemap_add_folio`).
    fn add(
        &mut self,
        cache: &mut PageCache,
        id: FolioId,
        origin: Origin,
        shadow: Option<u32>,
    ) -> bool {
        self.lists.begin(id, cache.order(id) as u8);
        let mut active = false;
        if let Some(shadow) = shadow.filter(|_| origin != Origin::Write) {
            let seen = self.seen();
            let by_fault = origin == Origin::Fault;
            match &mut self.order {
                Order::ActiveInactive(order) => {
                    active = order.refault(cache, &mut self.lists, id, shadow, &seen);
                }
                Order::Generations(order) => {
                    order.refault(cache, &mut self.lists, id, shadow, by_fault);
                }
            }
        }
        if origin == Origin::Fault && matches!(self.order, Order::Generations(_)) {
            self.lists.set(id, state::ACTIVE);
        }
        self.batches.added.push(id);
        if self.batches.added.len() == BATCH_FOLIOS || cache.order(id) > 0 {
            self.drain_added(cache);
        }
        active
    }

    /// A folio was read (`folio_mark_accessed`).
    pub(crate) fn mark_accessed(&mut self, cache: &mut PageCache, id: FolioId) {
        let Order::ActiveInactive(order) = &mut self.order else {
            return generations::count_read(cache, &mut self.lists, id);
        };
        if !self.lists.has(id, state::REFERENCED) {
            self.lists.set(id, state::REFERENCED);
        } else if !self.lists.has(id, state::ACTIVE) {
            order.activation(&self.lists, id);
            self.lists.clear(id, state::REFERENCED);
            self.activate(cache, id);
        }
    }

    /// A folio will be moved to the active list; one that is still in a batch goes
    /// there from it (`folio_activate`).
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
        if self.batches.activated.len() == BATCH_FOLIOS {
            self.drain_activated(cache);
        }
    }

    /// A folio that reclaim wanted to evict has been written: it goes next
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
        if self.batches.rotated.len() == BATCH_FOLIOS {
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
                match &mut self.order {
                    Order::ActiveInactive(_) => {
                        self.lists.push_oldest(active_inactive::INACTIVE, id);
                    }
                    Order::Generations(order) => order.add_oldest(&mut self.lists, id),
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

    /// Links a folio where its state says (`lruvec_add_folio`).
    fn insert(&mut self, cache: &PageCache, id: FolioId) {
        match &mut self.order {
            Order::ActiveInactive(_) => {
                let list = ActiveInactive::list_of(&self.lists, id);
                self.lists.push_newest(list, id);
            }
            Order::Generations(order) => order.add(cache, &mut self.lists, id),
        }
    }

    /// Takes a folio out of its list.
    fn take(&mut self, id: FolioId) {
        match &mut self.order {
            Order::ActiveInactive(_) => self.lists.remove(id),
            Order::Generations(order) => order.remove(&mut self.lists, id),
        }
    }

    /// A folio leaves the cache.
    fn forget(&mut self, id: FolioId) {
        if self.lists.has(id, state::LRU) {
            self.take(id);
        }
        self.batches.forget(id);
        self.charge.uncharge(self.lists.entry(id).pages());
    }
}

impl<H: Host> Vfs<H> {
    /// Sizes of the lists, while memory is limited.
    pub fn lru_statistics(&self) -> Option<LruStatistics> {
        self.lru.as_ref().map(|lru| lru.borrow().statistics())
    }

    /// A cgroup's statistics are brought up to date: every 2 s in Linux
    /// (`flush_memcg_stats_dwork`).
    pub fn flush_memory_statistics(&self) {
        if let Some(lru) = &self.lru {
            let lru = &mut *lru.borrow_mut();
            lru.flushed = lru.statistics();
        }
    }

    /// Moves what waits in batches to its lists, as whoever lets go of a batch of
    /// folios does (`lru_add_drain`).
    pub fn drain_lru_batches(&self) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().drain(&mut self.cache.borrow_mut());
        }
    }

    /// A read uses a folio.
    pub(crate) fn mark_accessed(&self, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut()
                .mark_accessed(&mut self.cache.borrow_mut(), id);
        }
    }

    /// A folio has been written to its device.
    pub(crate) fn lru_written(&self, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().written(&mut self.cache.borrow_mut(), id);
        }
    }

    /// A folio has come into the cache: it is put into a list, by what is known of its
    /// page. Whether that was evicted before, and comes back active.
    pub(crate) fn lru_added(&self, id: FolioId, origin: Origin) -> Option<bool> {
        let mut lru = self.lru.as_ref()?.borrow_mut();
        let mut cache = self.cache.borrow_mut();
        let shadow = cache.take_shadow(id);
        let active = lru.add(&mut cache, id, origin, shadow);
        shadow.filter(|_| origin != Origin::Write)?;
        Some(active)
    }

    /// A folio leaves the cache.
    pub(crate) fn lru_deleted(&self, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().forget(id);
        }
    }
}
