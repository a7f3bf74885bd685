//! Scanning the lists: rounds of rising priority, each over a larger part of the lists,
//! until enough pages are free (`mm/vmscan.c` of Linux 6.12).

use crate::event::Event;
use crate::fault::Mapping;
use crate::page_cache::{FolioId, PageCache, flag};
use crate::reclaim::list::NO_GENERATION;
use crate::reclaim::{Lru, Lruvec, PolicyState, active_inactive, generations};
use crate::vfs::{Host, Vfs};

/// The first round scans one page in `1 << PRIORITY_FIRST` (`DEF_PRIORITY`).
pub(super) const PRIORITY_FIRST: u32 = 12;

/// Pages that are scanned at once, and the least number to free (`SWAP_CLUSTER_MAX`).
pub(super) const CLUSTER_PAGES: u64 = 32;
/// Reclaims before a page is charged in spite of a limit (`MAX_RECLAIM_RETRIES`).
pub(super) const RECLAIM_RETRIES_MAX: u32 = 16;

/// Who reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaimer {
    /// A task of a memory cgroup that is at its limit.
    Cgroup,
    /// A task that finds no free page (direct reclaim).
    Direct,
    /// The thread `kswapd`.
    Kswapd,
}

/// The state of one reclaim (`struct scan_control`).
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) reclaimer: Reclaimer,
    /// The memory cgroup whose limit is the reason; the root for the machine's memory.
    target: u16,
    /// Pages to free.
    pub(super) wanted: u64,
    /// Pages freed.
    pub(super) reclaimed: u64,
    /// Pages scanned in this round.
    pub(super) scanned: u64,
    pub(super) priority: u32,
    may_deactivate: bool,
    force_deactivate: bool,
    skipped_deactivate: bool,
    /// Whether a scan found only dirty pages whose write-back has not begun.
    pub(super) needs_flusher: bool,
}

impl Scan {
    pub(super) fn new((reclaimer, target): (Reclaimer, u16), wanted: u64) -> Scan {
        Scan {
            reclaimer,
            target,
            wanted,
            reclaimed: 0,
            scanned: 0,
            priority: PRIORITY_FIRST,
            may_deactivate: false,
            force_deactivate: false,
            skipped_deactivate: false,
            needs_flusher: false,
        }
    }

    fn is_done(&self) -> bool {
        self.reclaimed >= self.wanted
    }
}

/// What is done with an isolated folio.
enum FolioAction {
    Evict,
    Activate,
    Keep,
}

impl<H: Host> Vfs<H> {
    /// Frees at least `wanted` pages of a memory cgroup and those below it, if it can.
    /// Returns the number of pages freed (`try_to_free_pages`,
    /// `try_to_free_mem_cgroup_pages`).
    pub(super) fn try_to_free_pages(&self, who: (Reclaimer, u16), wanted: u64) -> u64 {
        self.trace(Event::Reclaim { pages: wanted });
        let mut scan = Scan::new(who, wanted.max(CLUSTER_PAGES));
        loop {
            self.scan_rounds(&mut scan);
            // The inactive pages did not suffice: active ones are deactivated.
            if scan.reclaimed > 0 || !scan.skipped_deactivate {
                break;
            }
            scan.priority = PRIORITY_FIRST;
            scan.force_deactivate = true;
            scan.skipped_deactivate = false;
        }
        if scan.needs_flusher {
            self.start_flushers();
        }
        scan.reclaimed
    }

    /// Rounds over all nodes, from the one near to the CPU on (`do_try_to_free_pages`).
    fn scan_rounds(&self, scan: &mut Scan) {
        let (lruvecs, near) = (self.with_lru(|lru, _| lru.lruvecs), self.host().node());
        loop {
            scan.scanned = 0;
            for of in lruvecs.of_group(scan.target, near) {
                self.shrink_node(scan, of.node);
            }
            if scan.is_done() || scan.priority == 0 {
                break;
            }
            scan.priority -= 1;
        }
        self.with_lru(|lru, _| {
            for of in lruvecs.of_group(scan.target, near) {
                let seen = lru.seen(of);
                if let PolicyState::ActiveInactive(policy) = &mut lru.policies[of] {
                    policy.snapshot_refaults(&seen);
                }
            }
        });
    }

    /// Runs `f` on the lists and the cache.
    ///
    /// # Panics
    /// If memory is not limited, in which case nothing calls reclaim.
    fn with_lru<T>(&self, f: impl FnOnce(&mut Lru, &mut PageCache) -> T) -> T {
        let lru = self.lru.as_ref().expect("only limited memory is reclaimed");
        f(&mut lru.borrow_mut(), &mut self.cache.borrow_mut())
    }

    /// One round over the lists of all groups below the one that is reclaimed from, on one
    /// node. A task ends it when enough is freed, and the next goes on from there
    /// (`shrink_node`, `shrink_node_memcgs`). With generations Linux has a list of groups for
    /// memory pressure on the machine, which gives the same turns (`shrink_many`).
    pub(super) fn shrink_node(&self, scan: &mut Scan, node: u8) {
        let target = Lruvec {
            node,
            group: scan.target,
        };
        self.set_initial_priority(scan, node);
        let groups = self.with_lru(|lru, _| {
            if scan.reclaimer != Reclaimer::Cgroup {
                lru.pressure.add_round(scan.priority);
            }
            let seen = lru.seen(target);
            if let PolicyState::ActiveInactive(policy) = &lru.policies[target] {
                scan.may_deactivate = scan.force_deactivate || policy.may_deactivate(&seen);
            }
            lru.groups.subtree(scan.target).len()
        });
        for _ in 0..groups {
            let of = self.with_lru(|lru, _| lru.groups.next_to_scan(target));
            self.shrink_lruvec(scan, of);
            let is_done = match self.with_lru(|lru, _| lru.has_generations()) {
                true if scan.reclaimer != Reclaimer::Cgroup => self.may_stop(scan, node),
                _ => scan.is_done() && scan.reclaimer != Reclaimer::Kswapd,
            };
            if is_done {
                break;
            }
        }
    }

    /// With generations `kswapd` begins with the priority at which one round is to free enough,
    /// but not below half of the usual one (`set_initial_priority`).
    fn set_initial_priority(&self, scan: &mut Scan, node: u8) {
        let is_first = scan.priority == PRIORITY_FIRST && scan.wanted >= generations::BATCH;
        if scan.reclaimer != Reclaimer::Kswapd || !is_first {
            return;
        }
        if let Some(inactive) = self.with_lru(|lru, _| lru.inactive_pages(node)) {
            scan.priority = initial_priority(inactive, scan.wanted);
        }
    }

    /// Whether a round over generations for the machine's memory need not go on: enough is
    /// freed, or, for `kswapd`, free for a while (`should_abort_scan`).
    fn may_stop(&self, scan: &Scan, node: u8) -> bool {
        if scan.is_done() || scan.reclaimer != Reclaimer::Kswapd {
            return scan.is_done();
        }
        let others = self.host().other_pages();
        self.with_lru(|lru, _| lru.charge.has_spare(node, generations::BATCH, others))
    }

    /// One round over the lists of a memory cgroup on a node.
    fn shrink_lruvec(&self, scan: &mut Scan, of: Lruvec) {
        if self.with_lru(|lru, _| lru.has_generations()) {
            self.shrink_generations(scan, of);
        } else {
            self.shrink_lists(scan, of);
        }
    }

    /// One round over the inactive and the active list in turn, [`CLUSTER_PAGES`] at a time.
    fn shrink_lists(&self, scan: &mut Scan, of: Lruvec) {
        let mut targets = self.with_lru(|lru, _| {
            [active_inactive::INACTIVE, active_inactive::ACTIVE]
                .map(|list| lru.lists.pages(of, list) >> scan.priority)
        });
        let reclaimed_before = scan.reclaimed;
        // The first round of direct reclaim is not cut short (`proportional_reclaim`).
        let is_whole = scan.reclaimer == Reclaimer::Direct && scan.priority == PRIORITY_FIRST;
        while targets.iter().any(|&pages| pages > 0) {
            for (list, target) in targets.iter_mut().enumerate() {
                let pages = (*target).min(CLUSTER_PAGES);
                *target -= pages;
                match list {
                    _ if pages == 0 => {}
                    active_inactive::INACTIVE => self.shrink_inactive_list(scan, of, pages),
                    _ if scan.may_deactivate => self.shrink_active_list(of, pages),
                    _ => scan.skipped_deactivate = true,
                }
            }
            if scan.reclaimed - reclaimed_before >= scan.wanted && !is_whole {
                break;
            }
        }
    }

    /// Takes the oldest folios off a list (`isolate_lru_folios`).
    fn isolate(&self, (of, list): (Lruvec, usize), pages: u64) -> Vec<FolioId> {
        let folios = self.with_lru(|lru, cache| {
            lru.drain(cache);
            let mut folios = Vec::with_capacity(pages as usize);
            let mut taken = 0;
            while taken < pages
                && let Some(id) = lru.lists.oldest(of, list)
            {
                taken += lru.lists.entry(id).pages();
                lru.lists.remove(id);
                folios.push(id);
            }
            folios
        });
        let taken = self.pages_of(&folios);
        self.trace(Event::Isolate {
            active: list == active_inactive::ACTIVE,
            requested: pages,
            scanned: taken,
            taken,
        });
        folios
    }

    fn pages_of(&self, folios: &[FolioId]) -> u64 {
        let cache = self.cache.borrow();
        folios.iter().map(|&id| 1 << cache.order(id)).sum()
    }

    fn shrink_inactive_list(&self, scan: &mut Scan, of: Lruvec, pages: u64) {
        let folios = self.isolate((of, active_inactive::INACTIVE), pages);
        let kept = self.shrink_folios(scan, folios);
        self.with_lru(|lru, cache| {
            for id in kept {
                lru.insert(cache, id);
            }
        });
    }

    /// Deactivates the oldest active folios, accessed or not; in Linux only folios of
    /// programs' code stay active (`shrink_active_list`).
    fn shrink_active_list(&self, of: Lruvec, pages: u64) {
        let folios = self.isolate((of, active_inactive::ACTIVE), pages);
        for &id in &folios {
            self.folio_referenced(id);
        }
        self.with_lru(|lru, cache| {
            for id in folios {
                cache.clear(id, flag::ACTIVE);
                cache.set(id, flag::WORKINGSET);
                lru.insert(cache, id);
            }
        });
    }

    /// Evicts those of the isolated folios that it can. Returns the others, marked active
    /// if they were accessed (`shrink_folio_list`).
    fn shrink_folios(&self, scan: &mut Scan, mut folios: Vec<FolioId>) -> Vec<FolioId> {
        let taken = self.pages_of(&folios);
        scan.scanned += taken;
        let mut unqueued_dirty = 0;
        folios.retain(|&id| {
            let pages = 1 << self.cache.borrow().order(id);
            let is_dirty = self.cache.borrow().has(id, flag::DIRTY);
            if is_dirty && !self.cache.borrow().has(id, flag::WRITEBACK) {
                unqueued_dirty += pages;
            }
            match self.folio_action(id) {
                FolioAction::Evict => {
                    self.evict_folio(id, scan.target);
                    scan.reclaimed += pages;
                    return false;
                }
                FolioAction::Activate => self.cache.borrow_mut().set(id, flag::ACTIVE),
                FolioAction::Keep => {}
            }
            true
        });
        scan.needs_flusher |= taken > 0 && unqueued_dirty == taken;
        folios
    }

    /// Decides on an isolated folio. One that is dirty or under write-back is marked to be
    /// evicted as soon as it is clean.
    fn folio_action(&self, id: FolioId) -> FolioAction {
        if self.cache.borrow().has(id, flag::LOCKED) {
            return FolioAction::Keep;
        }
        let mapped = self.cache.borrow().mapped(id);
        let was_promoted =
            self.with_lru(|lru, cache| lru.has_generations() && cache.has(id, flag::REFERENCED));
        if mapped && was_promoted {
            return FolioAction::Keep;
        }
        if self.cache.borrow().has(id, flag::WRITEBACK) {
            self.cache.borrow_mut().set(id, flag::READAHEAD);
            return FolioAction::Activate;
        }
        let entries_used = self.folio_referenced(id);
        let was_referenced = {
            let mut cache = self.cache.borrow_mut();
            let was = cache.has(id, flag::REFERENCED);
            cache.clear(id, flag::REFERENCED);
            was
        };
        if entries_used > 0 {
            // A page is mapped with the accessed bit set, so one access is no evidence.
            self.cache.borrow_mut().set(id, flag::REFERENCED);
            return if was_referenced || entries_used > 1 {
                FolioAction::Activate
            } else {
                FolioAction::Keep
            };
        }
        if self.cache.borrow().has(id, flag::DIRTY) {
            self.cache.borrow_mut().set(id, flag::READAHEAD);
            return FolioAction::Activate;
        }
        FolioAction::Evict
    }

    /// Removes a folio from the page cache and leaves a shadow entry in its place.
    fn evict_folio(&self, id: FolioId, target: u16) {
        self.with_lru(|lru, cache| {
            let shadow = lru.eviction(cache, id, target);
            cache.put_shadow(id, shadow);
            let entry = lru.lists.entry(id);
            lru.groups.reclaimed(entry.group, entry.pages());
        });
        self.counts.borrow_mut().evicted += 1 << self.cache.borrow().order(id);
        self.delete_folio(id);
    }

    /// The number of a folio's page table entries with the accessed bit, which is cleared.
    /// With generations, the entries around each are checked as well
    /// (`lru_gen_look_around`).
    fn folio_referenced(&self, id: FolioId) -> u32 {
        if !self.cache.borrow().mapped(id) {
            return 0;
        }
        let (inode, serial, first, last) = {
            let cache = self.cache.borrow();
            let last = cache.next_index(id) - 1;
            (cache.inode_of(id), cache.serial(id), cache.index(id), last)
        };
        let (has_generations, of) =
            self.with_lru(|lru, _| (lru.has_generations(), lru.lists.entry(id).lruvec()));
        let mut used = 0;
        for (number, mapping) in self.live_mappings() {
            if mapping.file().inode != inode || !mapping.has_recency() {
                continue;
            }
            for index in first..=last {
                if !mapping.is_young(index, serial) {
                    continue;
                }
                used += 1;
                if has_generations {
                    let (from, to) = mapping.look_around(index, generations::BATCH);
                    let young = self.take_young(&mapping, (from, to), of, Lru::accessed_nearby);
                    if is_dense(young, to - from + 1) {
                        let table = mapping.table_of(index);
                        self.with_generations(of, |policy| policy.note_table(number, table, 0));
                    }
                }
                mapping.clear_young(index);
            }
        }
        used
    }

    /// Clears the accessed bit of the page table entries from page `from` to `to` for folios
    /// of a memory cgroup on a node, and calls `f` for each that had it. Returns how many had
    /// it.
    fn take_young(
        &self,
        mapping: &Mapping,
        (from, to): (u64, u64),
        of: Lruvec,
        f: fn(&mut Lru, &mut PageCache, FolioId),
    ) -> u64 {
        let inode = mapping.file().inode;
        let mut young = 0;
        for (index, serial) in mapping.young_entries(from, to) {
            let folio = self.cache.borrow().find(inode, index);
            let Some(id) = folio.filter(|&id| self.cache.borrow().serial(id) == serial) else {
                continue;
            };
            if self.with_lru(|lru, _| lru.lists.entry(id).lruvec()) != of {
                continue;
            }
            mapping.clear_young(index);
            young += 1;
            self.with_lru(|lru, cache| f(lru, cache, id));
        }
        young
    }

    fn with_generations<T>(
        &self,
        of: Lruvec,
        f: impl FnOnce(&mut generations::Generations) -> T,
    ) -> Option<T> {
        self.with_lru(|lru, _| match &mut lru.policies[of] {
            PolicyState::Generations(policy) => Some(f(policy)),
            PolicyState::ActiveInactive(_) => None,
        })
    }

    /// One round over the generations (`lru_gen_shrink_lruvec`).
    fn shrink_generations(&self, scan: &mut Scan, of: Lruvec) {
        self.with_lru(|lru, cache| lru.drain(cache));
        let mut scanned = 0;
        loop {
            let Some((should_age, total)) =
                self.with_generations(of, |policy| (policy.should_age(), policy.total_pages()))
            else {
                return;
            };
            if should_age && scan.priority != PRIORITY_FIRST {
                self.age(of);
                return;
            }
            let to_scan = total >> scan.priority;
            if to_scan == 0 {
                return;
            }
            let step = self.evict_folios(scan, of);
            scanned += step;
            let enough = scan.reclaimer != Reclaimer::Cgroup && self.may_stop(scan, of.node);
            if step == 0 || scanned >= to_scan || enough {
                return;
            }
        }
    }

    /// Evicts one batch of the oldest generation. Returns the number of pages scanned.
    fn evict_folios(&self, scan: &mut Scan, of: Lruvec) -> u64 {
        let (folios, mut scanned) = self.scan_folios(of);
        let ended = self.with_lru(|lru, _| match &mut lru.policies[of] {
            PolicyState::Generations(policy) => {
                let ended = policy.end_empty(&lru.lists);
                (ended, policy.count() == generations::MIN_GENERATIONS)
            }
            PolicyState::ActiveInactive(_) => (false, true),
        });
        scanned += u64::from(ended.0);
        if ended.1 {
            scanned = 0;
        }
        if folios.is_empty() {
            return scanned;
        }
        let kept = self.shrink_folios(scan, folios);
        self.with_lru(|lru, cache| {
            if let PolicyState::Generations(policy) = &mut lru.policies[of] {
                for id in kept {
                    policy.put_back(cache, &mut lru.lists, id);
                }
            }
        });
        scanned
    }

    /// Isolates folios of the oldest generation for a batch, and moves those that belong to
    /// another generation there. Returns the batch and the number of pages scanned.
    fn scan_folios(&self, of: Lruvec) -> (Vec<FolioId>, u64) {
        let result = self.with_lru(|lru, cache| {
            let PolicyState::Generations(policy) = &mut lru.policies[of] else {
                return None;
            };
            if policy.count() == generations::MIN_GENERATIONS {
                return None;
            }
            let last_tier = policy.last_evictable_tier();
            let (mut folios, mut scanned, mut taken) = (Vec::new(), 0, 0);
            let mut left = generations::SCANNED_MAX;
            while left > 0 {
                let Some(id) = policy
                    .oldest(&lru.lists)
                    .filter(|_| taken < generations::BATCH)
                else {
                    break;
                };
                let pages = lru.lists.entry(id).pages();
                scanned += pages;
                left -= 1;
                if let Some(id) = policy.isolate(cache, &mut lru.lists, id, last_tier) {
                    taken += pages;
                    folios.push(id);
                }
            }
            Some((folios, scanned, taken, left == 0))
        });
        let Some((folios, scanned, taken, is_full)) = result else {
            return (Vec::new(), 0);
        };
        self.trace(Event::Isolate {
            active: false,
            requested: generations::SCANNED_MAX,
            scanned,
            taken,
        });
        let counted = if taken > 0 || is_full { scanned } else { 0 };
        (folios, counted)
    }

    /// Begins a younger generation, after a walk over the page tables that puts accessed
    /// pages into the youngest until then (`try_to_inc_max_seq`).
    fn age(&self, of: Lruvec) {
        if self.with_generations(of, generations::Generations::begin_walk) != Some(true) {
            return;
        }
        for (number, mapping) in self.live_mappings() {
            if !mapping.has_recency() {
                continue;
            }
            for (table, from, to) in mapping.tables() {
                let worth =
                    self.with_generations(of, |policy| policy.is_worth_walking(number, table));
                if worth != Some(true) {
                    continue;
                }
                let young = self.take_young(&mapping, (from, to), of, Lru::accessed_in_walk);
                if is_dense(young, to - from + 1) {
                    self.with_generations(of, |policy| policy.note_table(number, table, 1));
                }
            }
        }
        self.with_lru(|lru, cache| {
            if let PolicyState::Generations(policy) = &mut lru.policies[of] {
                policy.begin_generation(cache, &mut lru.lists);
            }
        });
    }
}

/// The priority at which one round over so many inactive pages frees those that are wanted, as
/// far as a power of two tells, and at least half of the usual one.
fn initial_priority(inactive: u64, wanted: u64) -> u32 {
    let log2_inactive = inactive.checked_ilog2().unwrap_or(0);
    let log2_wanted = wanted.next_power_of_two().ilog2();
    let priority = log2_inactive.saturating_sub(log2_wanted);
    priority.clamp(PRIORITY_FIRST / 2, PRIORITY_FIRST)
}

/// Whether so many of these page table entries have the accessed bit that their page table
/// is worth a walk: one in each cache line of 8 (`suitable_to_scan`).
fn is_dense(young: u64, entries: u64) -> bool {
    young * 8 >= entries
}

impl Lru {
    /// Pages of a node that count as inactive with generations; `None` without.
    fn inactive_pages(&self, node: u8) -> Option<u64> {
        let groups = self.groups.subtree(0).iter();
        let of_groups = groups.map(|&group| match &self.policies[Lruvec { node, group }] {
            PolicyState::Generations(policy) => Some(policy.inactive_pages()),
            PolicyState::ActiveInactive(_) => None,
        });
        of_groups.sum()
    }

    /// Handles a folio that an aging walk found accessed.
    fn accessed_in_walk(&mut self, cache: &mut PageCache, id: FolioId) {
        let of = self.lists.entry(id).lruvec();
        if let PolicyState::Generations(policy) = &mut self.policies[of] {
            policy.promote(cache, &mut self.lists, id);
        }
    }

    /// Handles a folio that eviction found accessed near another one.
    fn accessed_nearby(&mut self, cache: &mut PageCache, id: FolioId) {
        let of = self.lists.entry(id).lruvec();
        let PolicyState::Generations(policy) = &self.policies[of] else {
            return;
        };
        let generation = self.lists.entry(id).generation;
        if generation == NO_GENERATION {
            cache.set(id, flag::REFERENCED);
        } else if generation != policy.youngest() {
            self.activate(cache, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::initial_priority;

    #[test]
    fn kswapd_begins_where_one_round_frees_enough() {
        // A million pages, of which a 64th is 16,384.
        assert_eq!(initial_priority(1 << 20, 1 << 14), 6);
        assert_eq!(initial_priority((1 << 20) - 1, 1 << 11), 8);
        assert_eq!(initial_priority(1 << 20, (1 << 11) + 1), 8);
        assert_eq!(initial_priority(1 << 30, 64), 12, "the usual one");
        assert_eq!(initial_priority(0, 64), 6);
    }
}
