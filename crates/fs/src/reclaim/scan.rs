//! The scan: rounds with rising priority, each looking at a part of the lists, until
//! enough pages are free (`mm/vmscan.c` of Linux 6.12).

use crate::event::Event;
use crate::fault::{Mapping, TABLE_PAGES};
use crate::page_cache::{FolioId, PageCache, flag};
use crate::reclaim::list::{NO_GENERATION, state};
use crate::reclaim::{Lru, Order, active_inactive, generations};
use crate::vfs::{Host, Vfs};

/// The first round looks at one page in `1 << PRIORITY_FIRST` (`DEF_PRIORITY`).
pub(super) const PRIORITY_FIRST: u32 = 12;

/// Pages that are looked at in one go, and that a reclaim frees at least
/// (`SWAP_CLUSTER_MAX`).
pub(super) const CLUSTER_PAGES: u64 = 32;

/// Who reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaimer {
    /// A cgroup is at its limit.
    Cgroup,
    /// A task of a machine that has no page left for it.
    Direct,
    /// The machine's own thread.
    Kswapd,
}

/// How a reclaim goes (`struct scan_control`).
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) reclaimer: Reclaimer,
    pub(super) wanted: u64,
    pub(super) reclaimed: u64,
    pub(super) scanned: u64,
    pub(super) priority: u32,
    may_deactivate: bool,
    force_deactivate: bool,
    skipped_deactivate: bool,
    /// Whether a scan met nothing but dirty pages that nobody writes.
    pub(super) needs_flusher: bool,
}

impl Scan {
    pub(super) fn new(reclaimer: Reclaimer, wanted: u64) -> Scan {
        Scan {
            reclaimer,
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

/// What becomes of a folio that was taken out of its list.
enum Fate {
    Evict,
    Activate,
    Keep,
}

impl<H: Host> Vfs<H> {
    /// Frees at least `wanted` pages, or as many as can be had; returns how many
    /// (`try_to_free_pages`, `try_to_free_mem_cgroup_pages`).
    pub(super) fn try_to_free_pages(&self, reclaimer: Reclaimer, wanted: u64) -> u64 {
        self.trace(Event::Reclaim { pages: wanted });
        let mut scan = Scan::new(reclaimer, wanted.max(CLUSTER_PAGES));
        loop {
            self.scan_rounds(&mut scan);
            // With too few inactive pages, active ones have to go.
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

    fn scan_rounds(&self, scan: &mut Scan) {
        loop {
            scan.scanned = 0;
            self.shrink_lruvec(scan);
            if scan.is_done() || scan.priority == 0 {
                break;
            }
            scan.priority -= 1;
        }
        self.with_lru(|lru, _| {
            let seen = lru.seen();
            if let Order::ActiveInactive(order) = &mut lru.order {
                order.ran(&seen);
            }
        });
    }

    /// Runs `f` on the lists and the cache.
    ///
    /// # Panics
    /// Where memory is not limited; then nothing reclaims.
    fn with_lru<T>(&self, f: impl FnOnce(&mut Lru, &mut PageCache) -> T) -> T {
        let lru = self.lru.as_ref().expect("only limited memory is reclaimed");
        f(&mut lru.borrow_mut(), &mut self.cache.borrow_mut())
    }

    /// One round.
    pub(super) fn shrink_lruvec(&self, scan: &mut Scan) {
        let has_generations = self.with_lru(|lru, _| matches!(lru.order, Order::Generations(_)));
        if has_generations {
            self.shrink_generations(scan);
        } else {
            self.shrink_lists(scan);
        }
    }

    /// One round over both lists, in turns of [`CLUSTER_PAGES`].
    fn shrink_lists(&self, scan: &mut Scan) {
        let mut targets = self.with_lru(|lru, _| {
            let seen = lru.seen();
            if let Order::ActiveInactive(order) = &lru.order {
                scan.may_deactivate = scan.force_deactivate || order.may_deactivate(&seen);
            }
            [active_inactive::INACTIVE, active_inactive::ACTIVE]
                .map(|list| lru.lists.pages(list) >> scan.priority)
        });
        let reclaimed_before = scan.reclaimed;
        // The first round of a task that waits for the machine's memory is not cut off.
        let is_whole = scan.reclaimer == Reclaimer::Direct && scan.priority == PRIORITY_FIRST;
        while targets.iter().any(|&pages| pages > 0) {
            for (list, target) in targets.iter_mut().enumerate() {
                let pages = (*target).min(CLUSTER_PAGES);
                *target -= pages;
                match list {
                    _ if pages == 0 => {}
                    active_inactive::INACTIVE => self.shrink_inactive_list(scan, pages),
                    _ if scan.may_deactivate => self.shrink_active_list(pages),
                    _ => scan.skipped_deactivate = true,
                }
            }
            if scan.reclaimed - reclaimed_before >= scan.wanted && !is_whole {
                break;
            }
        }
    }

    /// Takes the oldest folios out of a list.
    fn isolate(&self, list: usize, pages: u64) -> Vec<FolioId> {
        let folios = self.with_lru(|lru, cache| {
            lru.drain(cache);
            let mut folios = Vec::with_capacity(pages as usize);
            let mut taken = 0;
            while taken < pages
                && let Some(id) = lru.lists.oldest(list)
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

    fn shrink_inactive_list(&self, scan: &mut Scan, pages: u64) {
        let folios = self.isolate(active_inactive::INACTIVE, pages);
        let kept = self.shrink_folios(scan, folios);
        self.with_lru(|lru, cache| {
            for id in kept {
                lru.insert(cache, id);
            }
        });
    }

    /// Active folios become inactive in their order; that they were used does not
    /// matter, unless programs are run from them (`shrink_active_list`).
    fn shrink_active_list(&self, pages: u64) {
        let folios = self.isolate(active_inactive::ACTIVE, pages);
        for &id in &folios {
            self.references(id);
        }
        self.with_lru(|lru, cache| {
            for id in folios {
                lru.lists.clear(id, state::ACTIVE);
                cache.set(id, flag::WORKINGSET);
                lru.insert(cache, id);
            }
        });
    }

    /// Evicts those of the isolated folios that can go; returns the others, those that
    /// were used marked active (`shrink_folio_list`).
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
            match self.fate(id) {
                Fate::Evict => {
                    self.evict_folio(id);
                    scan.reclaimed += pages;
                    return false;
                }
                Fate::Activate => self.with_lru(|lru, _| lru.lists.set(id, state::ACTIVE)),
                Fate::Keep => {}
            }
            true
        });
        scan.needs_flusher |= taken > 0 && unqueued_dirty == taken;
        folios
    }

    /// Whether a folio can go. A dirty one, or one that is being written, is marked to
    /// go as soon as it is clean.
    fn fate(&self, id: FolioId) -> Fate {
        if self.cache.borrow().has(id, flag::LOCKED) {
            return Fate::Keep;
        }
        let mapped = self.cache.borrow().mapped(id);
        let was_promoted = self.with_lru(|lru, _| {
            matches!(lru.order, Order::Generations(_)) && lru.lists.has(id, state::REFERENCED)
        });
        if mapped && was_promoted {
            return Fate::Keep;
        }
        if self.cache.borrow().has(id, flag::WRITEBACK) {
            self.cache.borrow_mut().set(id, flag::READAHEAD);
            return Fate::Activate;
        }
        let entries_used = self.references(id);
        let was_referenced = self.with_lru(|lru, _| {
            let was = lru.lists.has(id, state::REFERENCED);
            lru.lists.clear(id, state::REFERENCED);
            was
        });
        if entries_used > 0 {
            // A mapped page begins as used, so it has to be seen twice.
            self.with_lru(|lru, _| lru.lists.set(id, state::REFERENCED));
            return if was_referenced || entries_used > 1 {
                Fate::Activate
            } else {
                Fate::Keep
            };
        }
        if self.cache.borrow().has(id, flag::DIRTY) {
            self.cache.borrow_mut().set(id, flag::READAHEAD);
            return Fate::Activate;
        }
        Fate::Evict
    }

    /// Takes a folio out of the cache, and leaves there what tells when it comes back
    /// too soon.
    fn evict_folio(&self, id: FolioId) {
        self.with_lru(|lru, cache| {
            let shadow = match &mut lru.order {
                Order::ActiveInactive(order) => order.eviction(cache, &lru.lists, id),
                Order::Generations(order) => order.eviction(cache, &lru.lists, id),
            };
            cache.put_shadow(id, shadow);
        });
        self.counts.borrow_mut().evicted += 1 << self.cache.borrow().order(id);
        self.delete_folio(id);
    }

    /// How many page table entries of a folio were used since this was asked last
    /// (`folio_referenced`). Generations also look at the entries around each
    /// (`lru_gen_look_around`).
    fn references(&self, id: FolioId) -> u32 {
        if !self.cache.borrow().mapped(id) {
            return 0;
        }
        let (inode, serial, first, last) = {
            let cache = self.cache.borrow();
            let last = cache.next_index(id) - 1;
            (cache.inode_of(id), cache.serial(id), cache.index(id), last)
        };
        let has_generations = self.with_lru(|lru, _| matches!(lru.order, Order::Generations(_)));
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
                    let young = self.take_young(&mapping, from, to, Lru::used_nearby);
                    if young * 8 >= generations::BATCH {
                        let table = mapping.table_of(index);
                        self.with_generations(|order| order.note_table(number, table, 0));
                    }
                }
                mapping.clear_young(index);
            }
        }
        used
    }

    /// Clears the marks of the used page table entries from page `from` to `to`, and
    /// calls `f` for the folio of each; returns how many there were.
    fn take_young(
        &self,
        mapping: &Mapping,
        from: u64,
        to: u64,
        f: fn(&mut Lru, &mut PageCache, FolioId),
    ) -> u64 {
        let inode = mapping.file().inode;
        let mut young = 0;
        for (index, serial) in mapping.young_entries(from, to) {
            let folio = self.cache.borrow().find(inode, index);
            let Some(id) = folio.filter(|&id| self.cache.borrow().serial(id) == serial) else {
                continue;
            };
            mapping.clear_young(index);
            young += 1;
            self.with_lru(|lru, cache| f(lru, cache, id));
        }
        young
    }

    fn with_generations<T>(&self, f: impl FnOnce(&mut generations::Generations) -> T) -> Option<T> {
        self.with_lru(|lru, _| match &mut lru.order {
            Order::Generations(order) => Some(f(order)),
            Order::ActiveInactive(_) => None,
        })
    }

    /// One round over the generations (`lru_gen_shrink_lruvec`).
    fn shrink_generations(&self, scan: &mut Scan) {
        self.with_lru(|lru, cache| lru.drain(cache));
        let mut scanned = 0;
        loop {
            let Some((should_age, total)) =
                self.with_generations(|order| (order.should_age(), order.total_pages()))
            else {
                return;
            };
            if should_age && scan.priority != PRIORITY_FIRST {
                self.age();
                return;
            }
            let to_scan = total >> scan.priority;
            if to_scan == 0 {
                return;
            }
            let step = self.evict_batch(scan);
            scanned += step;
            let enough = scan.reclaimer != Reclaimer::Cgroup && scan.is_done();
            if step == 0 || scanned >= to_scan || enough {
                return;
            }
        }
    }

    /// Evicts one batch of the oldest generation; returns how much was looked at
    /// (`evict_folios`).
    fn evict_batch(&self, scan: &mut Scan) -> u64 {
        let (folios, mut scanned) = self.isolate_batch();
        let ended = self.with_lru(|lru, _| match &mut lru.order {
            Order::Generations(order) => {
                let ended = order.end_empty(&lru.lists);
                (ended, order.count() == generations::MIN_GENERATIONS)
            }
            Order::ActiveInactive(_) => (false, true),
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
            if let Order::Generations(order) = &mut lru.order {
                for id in kept {
                    order.put_back(cache, &mut lru.lists, id);
                }
            }
        });
        scanned
    }

    /// Takes folios for a batch, and sorts those on the way that belong elsewhere
    /// (`scan_folios`).
    fn isolate_batch(&self) -> (Vec<FolioId>, u64) {
        let result = self.with_lru(|lru, cache| {
            let Order::Generations(order) = &mut lru.order else {
                return None;
            };
            if order.count() == generations::MIN_GENERATIONS {
                return None;
            }
            let last_tier = order.last_evictable_tier();
            let (mut folios, mut scanned, mut taken) = (Vec::new(), 0, 0);
            for _ in 0..generations::LOOKED_AT_MAX {
                let Some(id) = order
                    .oldest(&lru.lists)
                    .filter(|_| taken < generations::BATCH)
                else {
                    break;
                };
                let pages = lru.lists.entry(id).pages();
                scanned += pages;
                if let Some(id) = order.isolate(cache, &mut lru.lists, id, last_tier) {
                    taken += pages;
                    folios.push(id);
                }
            }
            Some((folios, scanned, taken))
        });
        let Some((folios, scanned, taken)) = result else {
            return (Vec::new(), 0);
        };
        self.trace(Event::Isolate {
            active: false,
            requested: generations::LOOKED_AT_MAX,
            scanned,
            taken,
        });
        let looked_at_all = scanned >= generations::LOOKED_AT_MAX;
        let counted = if taken > 0 || looked_at_all {
            scanned
        } else {
            0
        };
        (folios, counted)
    }

    /// Begins a younger generation, after a walk over the page tables: pages that were
    /// used go to the one that was youngest until now (`try_to_inc_max_seq`).
    fn age(&self) {
        if self.with_generations(generations::Generations::begin_walk) != Some(true) {
            return;
        }
        for (number, mapping) in self.live_mappings() {
            if !mapping.has_recency() {
                continue;
            }
            for (table, from, to) in mapping.tables() {
                let worth = self.with_generations(|order| order.is_worth_walking(number, table));
                if worth != Some(true) {
                    continue;
                }
                let young = self.take_young(&mapping, from, to, Lru::used);
                if young * 8 >= TABLE_PAGES {
                    self.with_generations(|order| order.note_table(number, table, 1));
                }
            }
        }
        self.with_lru(|lru, cache| {
            if let Order::Generations(order) = &mut lru.order {
                order.begin_generation(cache, &mut lru.lists);
            }
        });
    }
}

impl Lru {
    /// An aging walk has found a folio used through a page table.
    fn used(&mut self, cache: &mut PageCache, id: FolioId) {
        if let Order::Generations(order) = &mut self.order {
            order.promote(cache, &mut self.lists, id);
        }
    }

    /// Eviction has found a folio used through a page table near another one.
    fn used_nearby(&mut self, cache: &mut PageCache, id: FolioId) {
        let Order::Generations(order) = &self.order else {
            return;
        };
        let generation = self.lists.entry(id).generation;
        if generation == NO_GENERATION {
            self.lists.set(id, state::REFERENCED);
        } else if generation != order.youngest() {
            self.activate(cache, id);
        }
    }
}
