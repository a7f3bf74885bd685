//! Reclaim: which cached pages are evicted when memory is short.
//!
//! Every folio of the cache is on an LRU list, or in a batch that will be put on one: as
//! each CPU of Linux does, lists are changed for up to [`FOLIO_BATCH`] folios at once
//! (`mm/swap.c`). [`Policy`] chooses the kind of lists, [`Memory`] the limit.

mod active_inactive;
mod generations;
mod kswapd;
mod list;
mod lruvec;
mod memcg;
mod node;
mod pressure;
mod scan;
mod shadow;

use crate::page_cache::{FOLIO_BATCH, FolioId, PageCache, flag};
use crate::vfs::{Host, Vfs};
use crate::write_back::Settings;
use active_inactive::ActiveInactive;
use generations::Generations;
use list::Lists;
use lruvec::{ByLruvec, Lruvecs};
use shadow::Shadow;

pub use active_inactive::LruStatistics;
pub(crate) use lruvec::Lruvec;
pub use node::{NodePages, Watermarks};
pub(crate) use pressure::Shrinker;

pub use memcg::{MEMORY_FILES, MemoryFile, MemoryGroup, MemoryGroupCounts, OverHigh};
pub use pressure::Pressure;

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
    /// The machine's memory. Pages are taken from the node near to the CPU ([`Host::node`]),
    /// and from the next one if that has none free, or if they are going to be dirty and it
    /// has its share of dirty pages. Where no node has any, those below their watermarks are
    /// reclaimed by a `kswapd` each, and then tasks that need a page reclaim themselves.
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
    policy: Policy,
    lruvecs: Lruvecs,
    lists: Lists,
    policies: ByLruvec<PolicyState>,
    batches: Batches,
    /// What the caches of names and inodes have not been shrunk for yet.
    pressure: Pressure,
    charge: kswapd::Charge,
    groups: memcg::Groups,
    /// Statistics at their last flush.
    flushed: ByLruvec<LruStatistics>,
}

impl Lru {
    pub(crate) fn new(
        policy: Policy,
        memory: Memory,
        groups: &[MemoryGroup],
        settings: &Settings,
    ) -> Lru {
        let charge = kswapd::Charge::new(memory, settings);
        let nodes = charge.count_nodes();
        let groups = memcg::Groups::new(groups, nodes);
        let lruvecs = Lruvecs {
            nodes,
            groups: groups.count() as u16,
        };
        let policies = ByLruvec::new(lruvecs, |of| match policy {
            Policy::ActiveInactive => PolicyState::ActiveInactive(ActiveInactive::default()),
            Policy::Generations => PolicyState::Generations(Box::new(Generations::new(of))),
        });
        Lru {
            policy,
            lruvecs,
            lists: Lists::new(lruvecs),
            policies,
            batches: Batches::default(),
            pressure: Pressure::on_nodes(nodes),
            charge,
            groups,
            flushed: ByLruvec::new(lruvecs, |_| LruStatistics::default()),
        }
    }

    fn has_generations(&self) -> bool {
        self.policy == Policy::Generations
    }

    /// Sizes of the lists of a memory cgroup on a node and of those below it; all zero with
    /// generations.
    fn statistics(&self, of: Lruvec) -> LruStatistics {
        let mut sum = LruStatistics::default();
        for &group in self.groups.subtree(of.group) {
            let below = Lruvec { group, ..of };
            if let PolicyState::ActiveInactive(policy) = &self.policies[below] {
                sum.add(&policy.statistics(below, &self.lists));
            }
        }
        sum
    }

    /// The statistics for decisions: those of memory cgroups lag behind until they are
    /// flushed.
    fn seen(&self, of: Lruvec) -> LruStatistics {
        match of.group {
            0 if !self.charge.is_cgroup() => self.statistics(of),
            _ => self.flushed[of],
        }
    }

    /// Brings the statistics of memory cgroups up to date.
    fn flush_statistics(&mut self) {
        for of in self.lruvecs.all() {
            self.flushed[of] = self.statistics(of);
        }
        self.groups.flush_statistics();
    }

    /// Ages the lists of a memory cgroup on a node and of those above it, for pages that
    /// become active or are evicted (`workingset_age_nonresident`).
    fn age_nonresident(&mut self, of: Lruvec, pages: u64) {
        for group in std::iter::once(of.group).chain(self.groups.above(of.group)) {
            let above = Lruvec { group, ..of };
            if let PolicyState::ActiveInactive(policy) = &mut self.policies[above] {
                policy.age += pages;
            }
        }
    }

    /// Adds a folio to the page cache, on a memory node and charged to a memory cgroup;
    /// `shadow` is the shadow entry of its page. Whether a refault made it active
    /// (`filemap_add_folio`).
    fn add(
        &mut self,
        cache: &mut PageCache,
        (id, of): (FolioId, Lruvec),
        origin: Origin,
        shadow: Option<u32>,
    ) -> bool {
        self.lists.begin(id, cache.order(id) as u8, of);
        let active = match shadow {
            Some(shadow) if origin != Origin::Write => self.refault(cache, id, origin, shadow),
            _ => false,
        };
        if origin == Origin::Fault && self.has_generations() {
            cache.set(id, flag::ACTIVE);
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
        let of = self.lists.entry(id).lruvec();
        let shadow = Shadow::unpack(shadow, self.lruvecs);
        if self.has_generations() {
            let by_fault = origin == Origin::Fault;
            // A page that comes back in another group, or on another node, counts in none.
            if let PolicyState::Generations(policy) = &mut self.policies[of]
                && shadow.of == of
            {
                policy.refault(cache, &mut self.lists, id, &shadow, by_fault);
            }
            return false;
        }
        self.refault_by_distance(cache, id, &shadow)
    }

    /// Handles a refault with active and inactive lists (`workingset_refault`).
    fn refault_by_distance(&mut self, cache: &mut PageCache, id: FolioId, shadow: &Shadow) -> bool {
        let active_pages = self.seen(shadow.of).active;
        let evicted_from = &self.policies[shadow.of];
        if let PolicyState::ActiveInactive(policy) = evicted_from
            && policy.refault_distance(shadow) > active_pages
        {
            return false;
        }
        let (of, pages) = (self.lists.entry(id).lruvec(), self.lists.entry(id).pages());
        cache.set(id, flag::ACTIVE);
        self.age_nonresident(of, pages);
        if let PolicyState::ActiveInactive(policy) = &mut self.policies[of] {
            policy.activated_refaults += pages;
        }
        if shadow.flag {
            cache.set(id, flag::WORKINGSET);
        }
        true
    }

    /// The shadow entry of a folio that is evicted for the limit of `target`.
    fn eviction(&mut self, cache: &PageCache, id: FolioId, target: u16) -> u32 {
        let own = self.lists.entry(id).lruvec();
        let target = Lruvec {
            group: target,
            ..own
        };
        let generations = match &mut self.policies[own] {
            PolicyState::Generations(policy) => Some(policy.eviction(cache, &self.lists, id)),
            PolicyState::ActiveInactive(_) => None,
        };
        let shadow = generations.unwrap_or_else(|| {
            let age = match &self.policies[target] {
                PolicyState::ActiveInactive(policy) => policy.age,
                PolicyState::Generations(_) => 0,
            };
            self.age_nonresident(target, self.lists.entry(id).pages());
            Shadow::new(age as u32, cache.has(id, flag::WORKINGSET), target)
        });
        shadow.pack(self.lruvecs)
    }

    /// Counts a read of a folio (`folio_mark_accessed`).
    #[inline]
    pub(crate) fn mark_accessed(&mut self, cache: &mut PageCache, id: FolioId) {
        if self.has_generations() {
            return generations::count_read(cache, &mut self.lists, id);
        }
        if !cache.has(id, flag::REFERENCED) {
            cache.set(id, flag::REFERENCED);
        } else if !cache.has(id, flag::ACTIVE) {
            self.accessed_again(cache, id);
        }
    }

    #[inline(never)]
    fn accessed_again(&mut self, cache: &mut PageCache, id: FolioId) {
        let (of, pages) = (self.lists.entry(id).lruvec(), self.lists.entry(id).pages());
        self.age_nonresident(of, pages);
        cache.clear(id, flag::REFERENCED);
        self.activate(cache, id);
    }

    /// Has a folio moved to the active list; one that is still in a batch goes there from
    /// it (`folio_activate`).
    fn activate(&mut self, cache: &mut PageCache, id: FolioId) {
        if cache.has(id, flag::ACTIVE) {
            return;
        }
        if !self.lists.is_listed(id) {
            if self.batches.added.contains(&id) {
                cache.set(id, flag::ACTIVE);
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
        if cache.has(id, flag::LOCKED | flag::DIRTY) || !self.lists.is_listed(id) {
            return;
        }
        self.batches.rotated.push(id);
        if self.batches.rotated.len() == FOLIO_BATCH {
            self.drain_rotated(cache);
        }
    }

    /// Empties all batches (`lru_add_drain`).
    fn drain(&mut self, cache: &mut PageCache) {
        self.drain_added(cache);
        self.drain_rotated(cache);
        self.drain_activated(cache);
    }

    fn drain_added(&mut self, cache: &mut PageCache) {
        let mut added = std::mem::take(&mut self.batches.added);
        for id in added.drain(..) {
            self.insert(cache, id);
        }
        self.batches.added = added;
    }

    fn drain_rotated(&mut self, cache: &mut PageCache) {
        let mut rotated = std::mem::take(&mut self.batches.rotated);
        for id in rotated.drain(..) {
            if self.lists.is_listed(id) {
                self.take(id);
                cache.clear(id, flag::ACTIVE);
                match &mut self.policies[self.lists.entry(id).lruvec()] {
                    PolicyState::ActiveInactive(_) => {
                        self.lists.push_oldest(active_inactive::INACTIVE, id);
                    }
                    PolicyState::Generations(policy) => {
                        policy.add_oldest(cache, &mut self.lists, id)
                    }
                }
            }
        }
        self.batches.rotated = rotated;
    }

    fn drain_activated(&mut self, cache: &mut PageCache) {
        let mut activated = std::mem::take(&mut self.batches.activated);
        for id in activated.drain(..) {
            if self.lists.is_listed(id) && !cache.has(id, flag::ACTIVE) {
                self.take(id);
                cache.set(id, flag::ACTIVE);
                self.insert(cache, id);
            }
        }
        self.batches.activated = activated;
    }

    /// Puts a folio on the list where it belongs (`lruvec_add_folio`).
    fn insert(&mut self, cache: &mut PageCache, id: FolioId) {
        match &mut self.policies[self.lists.entry(id).lruvec()] {
            PolicyState::ActiveInactive(_) => {
                let list = ActiveInactive::list_of(cache, id);
                self.lists.push_newest(list, id);
            }
            PolicyState::Generations(policy) => policy.add(cache, &mut self.lists, id),
        }
    }

    /// Removes a folio from its list.
    fn take(&mut self, id: FolioId) {
        match &mut self.policies[self.lists.entry(id).lruvec()] {
            PolicyState::ActiveInactive(_) => self.lists.remove(id),
            PolicyState::Generations(policy) => policy.remove(&mut self.lists, id),
        }
    }

    /// Removes a folio that leaves the page cache.
    fn forget(&mut self, id: FolioId) {
        if self.lists.is_listed(id) {
            self.take(id);
        }
        self.batches.forget(id);
        let entry = self.lists.entry(id);
        self.charge.uncharge(entry.pages(), entry.node);
        self.groups.uncharge(entry.group, entry.pages());
    }
}

impl<H: Host> Vfs<H> {
    /// How many memory nodes there are, of which each has a [`Vfs::kswapd`].
    pub fn memory_nodes(&self) -> u8 {
        let lru = self.lru.as_ref();
        lru.map_or(1, |lru| lru.borrow().lruvecs.nodes)
    }

    /// Sizes of the lists; `None` if memory is not limited.
    pub fn lru_statistics(&self) -> Option<LruStatistics> {
        let lru = self.lru.as_ref()?.borrow();
        let mut sum = LruStatistics::default();
        for of in lru.lruvecs.of_group(0, 0) {
            sum.add(&lru.statistics(of));
        }
        Some(sum)
    }

    /// Brings the statistics of memory cgroups up to date, which Linux does every 2 s
    /// (`flush_memcg_stats_dwork`).
    pub fn flush_memory_statistics(&self) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().flush_statistics();
            self.write_back.borrow_mut().flush_group_statistics();
        }
    }

    /// Puts the folios of all batches on their lists (`lru_add_drain`).
    pub fn drain_lru_batches(&self) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().drain(&mut self.cache.borrow_mut());
        }
    }

    /// The same with a `vfs_cache_pressure` of so many percent; 0 keeps all names and inodes.
    pub fn with_cache_pressure(self, percent: u64) -> Vfs<H> {
        if let Some(lru) = &self.lru {
            let pressure = &mut lru.borrow_mut().pressure;
            *pressure = pressure.at_percent(percent);
        }
        self
    }

    /// Takes what the caches of names and inodes are to be shrunk for
    /// ([`Namespace::shrink`](crate::Namespace::shrink)).
    pub fn take_pressure(&self) -> Pressure {
        let lru = self.lru.as_ref();
        lru.map_or_else(Pressure::default, |lru| lru.borrow_mut().pressure.take())
    }

    /// Counts a read of a folio (`folio_mark_accessed`).
    #[inline]
    pub(crate) fn mark_accessed(&self, cache: &mut PageCache, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().mark_accessed(cache, id);
        }
    }

    /// Write-back of a folio has ended.
    pub(crate) fn lru_written(&self, id: FolioId) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().written(&mut self.cache.borrow_mut(), id);
        }
    }

    /// Adds a folio that was added to the page cache. If that is a refault, whether the folio
    /// became active.
    pub(crate) fn lru_added(&self, (id, of): (FolioId, Lruvec), origin: Origin) -> Option<bool> {
        let mut lru = self.lru.as_ref()?.borrow_mut();
        let mut cache = self.cache.borrow_mut();
        let shadow = cache.take_shadow(id);
        let active = lru.add(&mut cache, (id, of), origin, shadow);
        shadow.filter(|_| origin != Origin::Write)?;
        Some(active)
    }

    /// The running task has written to pages of a folio, which takes longer on a remote node.
    #[inline]
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
