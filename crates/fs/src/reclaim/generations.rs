//! The multi-generational LRU (MGLRU, `CONFIG_LRU_GEN`). Pages are evicted from the oldest
//! generation. Pages accessed through a page table move to younger ones. Within a
//! generation, tiers count accesses by read calls, and a tier that refaults more often than
//! the first is protected (`mm/vmscan.c` and `mm/workingset.c` of Linux 6.12).

use std::collections::BTreeSet;

use crate::page_cache::{FolioId, PageCache, flag};
use crate::reclaim::list::{LISTS, Lists, NO_GENERATION};
use crate::reclaim::lruvec::Lruvec;
use crate::reclaim::shadow::Shadow;

/// The least number of generations: eviction stops there until there is a younger one
/// (`MIN_NR_GENS`).
pub(super) const MIN_GENERATIONS: u64 = 2;
/// The most generations (`MAX_NR_GENS`).
const MAX_GENERATIONS: u64 = LISTS as u64;
/// Tiers, each for a power of two of accesses (`MAX_NR_TIERS`).
const TIERS: usize = 4;
/// Bits of the count of a folio's read calls (`LRU_REFS_WIDTH`).
const REFS_BITS: u32 = 2;
/// The largest count.
const REFS_MAX: u8 = (1 << REFS_BITS) - 1;

/// Pages of a batch (`MIN_LRU_BATCH`).
pub(super) const BATCH: u64 = 64;
/// Folios that are scanned for one batch at most (`MAX_LRU_BATCH`).
pub(super) const SCANNED_MAX: u64 = 64 * BATCH;

/// How many pages of a tier were evicted, were protected and refaulted.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    refaulted: u64,
    evicted: u64,
    protected: u64,
    /// Sums over earlier generations, halved with each generation.
    past_refaulted: u64,
    past_total: u64,
}

impl Tier {
    fn position(&self, gain: u64) -> ControlPosition {
        ControlPosition {
            refaulted: self.past_refaulted + self.refaulted,
            total: self.past_total + self.evicted + self.protected,
            gain,
        }
    }

    /// Carries the counts over when the oldest generation ends (`reset_ctrl_pos`).
    fn carry_over(&mut self) {
        *self = Tier {
            past_refaulted: (self.past_refaulted + self.refaulted) / 2,
            past_total: (self.past_total + self.evicted + self.protected) / 2,
            ..Tier::default()
        };
    }
}

/// A tier's refaults in proportion to its evictions, for comparison (`struct ctrl_pos`).
#[derive(Clone, Copy, Debug)]
struct ControlPosition {
    refaulted: u64,
    total: u64,
    gain: u64,
}

impl ControlPosition {
    /// Whether this tier refaults too seldom, compared with `set_point`, to be protected
    /// (`positive_ctrl_err`).
    fn may_evict(&self, set_point: &ControlPosition) -> bool {
        self.refaulted < BATCH
            || self.refaulted * (set_point.total + BATCH) * set_point.gain
                <= (set_point.refaulted + 1) * self.total * self.gain
    }
}

/// Page tables with many accessed pages, which the next aging walk visits (a Bloom filter
/// in the kernel): mapping and page table.
type PageTables = BTreeSet<(usize, u64)>;

/// Generations and their tiers, of a memory cgroup on a node.
#[derive(Debug)]
pub(super) struct Generations {
    of: Lruvec,
    min_seq: u64,
    max_seq: u64,
    /// The youngest generation at the last aging walk.
    walked_seq: u64,
    /// Pages by generation. A folio may still be on the list of an older one.
    pages: [u64; LISTS],
    tiers: [Tier; TIERS],
    /// The page tables to visit, for odd and even generations; `None` for all.
    worth_walking: [Option<PageTables>; 2],
}

fn slot(seq: u64) -> u8 {
    (seq % MAX_GENERATIONS) as u8
}

/// The tier of a folio with `refs` reads after the first (`lru_tier_from_refs`).
fn tier_of(refs: u8) -> usize {
    (u32::from(refs) + 1).next_power_of_two().ilog2() as usize
}

/// A folio's reads after the first: a flag for the second, and a count of those after it
/// (`folio_lru_refs`).
fn refs(cache: &PageCache, lists: &Lists, id: FolioId) -> u8 {
    lists.entry(id).refs + u8::from(cache.has(id, flag::WORKINGSET))
}

/// Resets a folio's count of reads.
fn reset_reads(cache: &mut PageCache, lists: &mut Lists, id: FolioId) {
    lists.entry_mut(id).refs = 0;
    cache.clear(id, flag::REFERENCED | flag::WORKINGSET);
}

/// Counts a read of a folio (`folio_inc_refs`).
pub(super) fn count_read(cache: &mut PageCache, lists: &mut Lists, id: FolioId) {
    if !cache.has(id, flag::REFERENCED) {
        cache.set(id, flag::REFERENCED);
    } else if !cache.has(id, flag::WORKINGSET) {
        cache.set(id, flag::WORKINGSET);
    } else {
        let refs = &mut lists.entry_mut(id).refs;
        *refs = (*refs + 1).min(REFS_MAX);
    }
}

impl Generations {
    /// The empty generations of a memory cgroup on a node.
    pub(super) fn new(of: Lruvec) -> Generations {
        Generations {
            of,
            min_seq: 0,
            max_seq: MIN_GENERATIONS + 1,
            walked_seq: MIN_GENERATIONS,
            pages: [0; LISTS],
            tiers: [Tier::default(); TIERS],
            worth_walking: [None, None],
        }
    }

    /// The number of generations.
    pub(super) fn count(&self) -> u64 {
        self.max_seq - self.min_seq + 1
    }

    /// The youngest one.
    pub(super) fn youngest(&self) -> u8 {
        slot(self.max_seq)
    }

    /// All pages.
    pub(super) fn total_pages(&self) -> u64 {
        self.pages.iter().sum()
    }

    /// Pages of all but the two youngest generations, which count as inactive
    /// (`lru_gen_is_active`).
    pub(super) fn inactive_pages(&self) -> u64 {
        let active = [self.max_seq, self.max_seq - 1].map(|seq| self.pages[slot(seq) as usize]);
        self.total_pages() - active.iter().sum::<u64>()
    }

    /// Adds a folio (`lru_gen_add_folio`): one accessed through a page table to the
    /// youngest generation, one that waits for write-back to the one before, others to the
    /// second oldest, or to the oldest if there are only three.
    pub(super) fn add(&mut self, cache: &mut PageCache, lists: &mut Lists, id: FolioId) {
        let waits_for_write =
            cache.has(id, flag::READAHEAD) && cache.has(id, flag::DIRTY | flag::WRITEBACK);
        let seq = if cache.has(id, flag::ACTIVE) {
            self.max_seq
        } else if waits_for_write {
            self.max_seq - 1
        } else if self.min_seq + MIN_GENERATIONS >= self.max_seq {
            self.min_seq
        } else {
            self.min_seq + 1
        };
        cache.clear(id, flag::ACTIVE);
        self.enter(lists, id, slot(seq));
        lists.push_newest(slot(seq) as usize, id);
    }

    /// Adds a folio as the next one to evict.
    pub(super) fn add_oldest(&mut self, cache: &mut PageCache, lists: &mut Lists, id: FolioId) {
        let oldest = slot(self.min_seq);
        cache.clear(id, flag::ACTIVE);
        self.enter(lists, id, oldest);
        lists.push_oldest(oldest as usize, id);
    }

    fn enter(&mut self, lists: &mut Lists, id: FolioId, generation: u8) {
        let entry = lists.entry_mut(id);
        entry.generation = generation;
        self.pages[generation as usize] += entry.pages();
    }

    /// Removes a folio from its generation and its list.
    pub(super) fn remove(&mut self, lists: &mut Lists, id: FolioId) {
        let entry = lists.entry_mut(id);
        self.pages[entry.generation as usize] -= entry.pages();
        entry.generation = NO_GENERATION;
        lists.remove(id);
    }

    fn change(&mut self, lists: &mut Lists, id: FolioId, generation: u8) {
        let entry = lists.entry_mut(id);
        let pages = entry.pages();
        self.pages[entry.generation as usize] -= pages;
        self.pages[generation as usize] += pages;
        entry.generation = generation;
    }

    /// Puts a folio accessed through a page table into the youngest generation; its list is
    /// changed when eviction reaches it. An isolated one is only marked
    /// (`folio_update_gen`).
    pub(super) fn promote(&mut self, cache: &mut PageCache, lists: &mut Lists, id: FolioId) {
        if lists.entry(id).generation == NO_GENERATION {
            cache.set(id, flag::REFERENCED);
            return;
        }
        self.change(lists, id, self.youngest());
        reset_reads(cache, lists, id);
    }

    /// The last tier that may be evicted (`get_tier_idx`). A higher one is protected if it
    /// refaults more than twice as often as the first.
    pub(super) fn last_evictable_tier(&self) -> usize {
        let first = self.tiers[0].position(1);
        let above = (1..TIERS).take_while(|&tier| self.tiers[tier].position(2).may_evict(&first));
        above.count()
    }

    /// Isolates a folio of the oldest generation for eviction, or moves it to the generation
    /// where it belongs and returns `None` (`sort_folio`, `isolate_folio`).
    pub(super) fn isolate(
        &mut self,
        cache: &mut PageCache,
        lists: &mut Lists,
        id: FolioId,
        last_tier: usize,
    ) -> Option<FolioId> {
        let generation = lists.entry(id).generation;
        if generation != slot(self.min_seq) {
            lists.remove(id);
            lists.push_newest(generation as usize, id);
            return None;
        }
        let refs = refs(cache, lists, id);
        let tier = tier_of(refs);
        if tier > last_tier || refs == REFS_MAX + 1 {
            let next = slot(self.min_seq + 1);
            self.change(lists, id, next);
            reset_reads(cache, lists, id);
            lists.remove(id);
            lists.push_oldest(next as usize, id);
            self.tiers[tier].protected += lists.entry(id).pages();
            return None;
        }
        if !cache.has(id, flag::REFERENCED) {
            reset_reads(cache, lists, id);
        }
        cache.clear(id, flag::REFERENCED);
        self.remove(lists, id);
        Some(id)
    }

    /// The next folio of the oldest generation.
    pub(super) fn oldest(&self, lists: &Lists) -> Option<FolioId> {
        lists.oldest(self.of, slot(self.min_seq) as usize)
    }

    /// Ends the oldest generations that are empty. Whether one was (`try_to_inc_min_seq`).
    pub(super) fn end_empty(&mut self, lists: &Lists) -> bool {
        let before = self.min_seq;
        let mut seq = before;
        while seq + MIN_GENERATIONS <= self.max_seq
            && lists.oldest(self.of, slot(seq) as usize).is_none()
        {
            seq += 1;
        }
        if seq != before {
            self.tiers.iter_mut().for_each(Tier::carry_over);
        }
        self.min_seq = seq;
        seq != before
    }

    /// Puts back a folio that could not be evicted, to the youngest generation unless it
    /// waits for write-back.
    pub(super) fn put_back(&mut self, cache: &mut PageCache, lists: &mut Lists, id: FolioId) {
        let waits_for_write =
            cache.has(id, flag::READAHEAD) && cache.has(id, flag::DIRTY | flag::WRITEBACK);
        if waits_for_write {
            if cache.has(id, flag::WORKINGSET) {
                cache.set(id, flag::REFERENCED);
            }
        } else {
            reset_reads(cache, lists, id);
            cache.set(id, flag::ACTIVE);
        }
        self.add(cache, lists, id);
    }

    /// The shadow entry of a folio that is evicted (`lru_gen_eviction`): the generation, the
    /// count of reads, and whether there was a second one.
    pub(super) fn eviction(&mut self, cache: &PageCache, lists: &Lists, id: FolioId) -> Shadow {
        let refs = refs(cache, lists, id);
        self.tiers[tier_of(refs)].evicted += lists.entry(id).pages();
        let token = (self.min_seq as u32) << REFS_BITS | u32::from(refs.saturating_sub(1));
        Shadow::new(token, refs > 0, self.of)
    }

    /// Handles a refault (`lru_gen_refault`). It counts only while the generation that the
    /// page was evicted from is the oldest. A page that was read often, or faults, keeps
    /// its count of reads.
    pub(super) fn refault(
        &mut self,
        cache: &mut PageCache,
        lists: &mut Lists,
        id: FolioId,
        shadow: &Shadow,
        by_fault: bool,
    ) {
        let seq_mask = (1_u32 << (shadow.token_bits - REFS_BITS)) - 1;
        let token = shadow.token;
        if token >> REFS_BITS != self.min_seq as u32 & seq_mask {
            return;
        }
        let refs = (token as u8 & REFS_MAX) + u8::from(shadow.flag);
        self.tiers[tier_of(refs)].refaulted += lists.entry(id).pages();
        if by_fault || refs >= REFS_MAX {
            lists.entry_mut(id).refs = REFS_MAX;
            cache.set(id, flag::WORKINGSET);
        }
    }

    /// Whether a younger generation is needed (`should_run_aging`): if eviction has nothing
    /// left, or pages are not spread evenly over the generations.
    pub(super) fn should_age(&self) -> bool {
        if self.min_seq + MIN_GENERATIONS > self.max_seq {
            return true;
        }
        if self.min_seq + MIN_GENERATIONS < self.max_seq {
            return false;
        }
        let total = self.total_pages();
        let young = self.pages[self.youngest() as usize];
        let old = self.pages[slot(self.max_seq - MIN_GENERATIONS) as usize];
        young * MIN_GENERATIONS > total || old * (MIN_GENERATIONS + 2) < total
    }

    /// Begins an aging walk over page tables; `false` if this generation had its walk
    /// (`iterate_mm_list`).
    pub(super) fn begin_walk(&mut self) -> bool {
        if self.max_seq <= self.walked_seq {
            return false;
        }
        self.walked_seq = self.max_seq;
        self.worth_walking[(self.max_seq + 1) as usize % 2] = Some(PageTables::new());
        true
    }

    /// Whether an aging walk visits a page table (`test_bloom_filter`).
    pub(super) fn is_worth_walking(&self, mapping: usize, table: u64) -> bool {
        let known = &self.worth_walking[self.max_seq as usize % 2];
        known
            .as_ref()
            .is_none_or(|known| known.contains(&(mapping, table)))
    }

    /// Has the aging walk of `ahead` generations later visit a page table, which has many
    /// accessed pages (`update_bloom_filter`).
    pub(super) fn note_table(&mut self, mapping: usize, table: u64, ahead: u64) {
        let known = &mut self.worth_walking[(self.max_seq + ahead) as usize % 2];
        if let Some(known) = known {
            known.insert((mapping, table));
        }
    }

    /// Begins a younger generation. If there are as many as can be, the oldest is merged
    /// into the next (`inc_max_seq`).
    pub(super) fn begin_generation(&mut self, cache: &mut PageCache, lists: &mut Lists) {
        if self.count() == MAX_GENERATIONS {
            let (oldest, next) = (slot(self.min_seq), slot(self.min_seq + 1));
            while let Some(id) = lists.oldest(self.of, oldest as usize) {
                let mut to = lists.entry(id).generation;
                if to == oldest {
                    self.change(lists, id, next);
                    reset_reads(cache, lists, id);
                    to = next;
                }
                lists.remove(id);
                lists.push_oldest(to as usize, id);
            }
            self.tiers.iter_mut().for_each(Tier::carry_over);
            self.min_seq += 1;
        }
        self.max_seq += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{ControlPosition, tier_of};

    #[test]
    fn tiers_are_powers_of_two_of_reads() {
        assert_eq!([0, 1, 2, 3, 4].map(tier_of), [0, 1, 2, 2, 3]);
    }

    #[test]
    fn a_tier_is_protected_if_it_comes_back_more_often() {
        let of = |refaulted, total, gain| ControlPosition {
            refaulted,
            total,
            gain,
        };
        let first = of(100, 1000, 1);
        assert!(of(63, 63, 2).may_evict(&first), "too few to tell");
        assert!(of(64, 500, 2).may_evict(&first));
        assert!(!of(300, 1000, 2).may_evict(&first));
    }
}
