//! The part of the map that is in DRAM: the cached mapping table of DFTL
//! (Gupta, Kim and Urgaonkar, ASPLOS 2009), with least recently used eviction.
//!
//! It is cached in *lines*: entries of consecutive slots that one read of the map
//! brings in. DFTL's have one entry. Longer ones serve sequential work, for which
//! other FTLs prefetch (TPFTL: Zhou et al., EuroSys 2015).

use alloc::vec;
use alloc::vec::Vec;

use crate::ssd::lru::Lru;
use blklab_permutation::{Digits, Permutation};

/// "No entry".
const NONE: u32 = u32::MAX;

/// The cache.
#[derive(Clone, Debug)]
pub(crate) struct Cmt {
    lines: Lru,
    /// By a line's index in `lines`: the next dirty line of the same map page. A clean
    /// line is its own next.
    next_dirty: Vec<u32>,
    /// First dirty line of every page of the map.
    dirty: Vec<u32>,
    /// Slots of a line, as a binary logarithm.
    line_bits: u32,
    lines_per_map_page: u32,
    /// Lines of the whole map.
    all_lines: u32,
    /// Lines that were used before the start and neither used nor evicted since.
    warm: Option<Warm>,
}

impl Cmt {
    /// Room for `capacity` entries, or for the whole map if that has fewer; `line` of them, a
    /// power of two that divides a page of the map, come and go together.
    pub(crate) fn new(capacity: u32, slots: u64, slots_per_map_page: u32, line: u32) -> Cmt {
        let pages = slots.div_ceil(slots_per_map_page as u64) as usize;
        let all_lines = slots.div_ceil(line as u64) as u32;
        Cmt {
            // The list takes memory for all of its room.
            lines: Lru::new((capacity / line).min(all_lines).max(1)),
            next_dirty: Vec::new(),
            dirty: vec![NONE; pages],
            line_bits: line.trailing_zeros(),
            lines_per_map_page: slots_per_map_page / line,
            all_lines,
            warm: None,
        }
    }

    /// Fills it with lines that were used before the start, drawn at random from the whole
    /// map. Until they are used again they are not in `lines` and cost no memory.
    pub(crate) fn warm_up(&mut self, seed: u64) {
        self.warm = Some(Warm::new(seed, self.lines.room(), self.all_lines));
    }

    /// Adds a line that is not in `lines`. If it is not a warm line either, it evicts one.
    fn add_line(&mut self, line: u32) -> u32 {
        if let Some(warm) = &mut self.warm
            && !warm.holds(line)
        {
            warm.evict(|line| self.lines.find(line).is_some());
        }
        let index = self.lines.insert(line);
        if self.lines.room() == 0 {
            // A line that `lines` evicts from here on must not count as warm.
            self.warm = None;
        }
        index
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.warm = None;
        self.next_dirty.clear();
        self.dirty.fill(NONE);
    }

    /// The page of the map that holds a slot's entry.
    pub(crate) fn map_page(&self, slot: u32) -> u32 {
        self.page_of_line(slot >> self.line_bits)
    }

    fn page_of_line(&self, line: u32) -> u32 {
        line / self.lines_per_map_page
    }

    /// Whether a line has several entries.
    pub(crate) fn has_lines(&self) -> bool {
        self.line_bits > 0
    }

    /// Whether a slot's entry is cached; if so its line is now the most recently used.
    pub(crate) fn touch(&mut self, slot: u32) -> bool {
        let line = slot >> self.line_bits;
        let index = self.lines.find(line);
        if let Some(index) = index {
            self.lines.touch(index);
        } else if self.warm.as_ref().is_some_and(|warm| warm.holds(line)) {
            self.insert(slot, false);
            return true;
        }
        index.is_some()
    }

    /// Inserts a slot's line if it is not cached, and marks it dirty if the entry was
    /// changed. Returns the page of the map that has to be written because a dirty line
    /// was evicted.
    pub(crate) fn insert(&mut self, slot: u32, changed: bool) -> Option<u32> {
        let mut evicted = None;
        let line = slot >> self.line_bits;
        let index = match self.lines.find(line) {
            Some(index) => {
                self.lines.touch(index);
                index
            }
            None => {
                evicted = self.clean_victim();
                self.add_line(line)
            }
        };
        if index as usize == self.next_dirty.len() {
            self.next_dirty.push(index);
        }
        if changed {
            self.mark_dirty(index);
        }
        evicted
    }

    /// Cleans the line that is evicted next; returns its page of the map if that has to be
    /// written.
    fn clean_victim(&mut self) -> Option<u32> {
        let index = self.lines.victim()?;
        let page = self.page_of_line(self.lines.key(index));
        self.is_dirty(index).then(|| {
            // Writing a page of the map cleans all of its lines.
            self.clean(page);
            page
        })
    }

    fn is_dirty(&self, index: u32) -> bool {
        self.next_dirty[index as usize] != index
    }

    fn mark_dirty(&mut self, index: u32) {
        if self.is_dirty(index) {
            return;
        }
        let page = self.page_of_line(self.lines.key(index));
        let next = core::mem::replace(&mut self.dirty[page as usize], index);
        self.next_dirty[index as usize] = next;
    }

    /// Marks all lines of a page of the map clean.
    pub(crate) fn clean(&mut self, page: u32) {
        let mut index = core::mem::replace(&mut self.dirty[page as usize], NONE);
        while index != NONE {
            index = core::mem::replace(&mut self.next_dirty[index as usize], index);
        }
    }
}

/// The content of a full cache at the start, computed instead of stored.
///
/// A permutation gives the order in which keys were used before the start, and can be
/// evaluated in both directions: the keys that are left are the first `left` of that
/// order, and the last of these was used longest ago. Keys used since remain among them
/// and are skipped.
#[derive(Clone, Debug)]
struct Warm {
    /// From keys to their rank, most recently used first.
    order: Permutation<Digits>,
    left: u32,
}

impl Warm {
    /// `held` of `all` keys, or all if there are no more, drawn from a seed.
    fn new(seed: u64, held: u32, all: u32) -> Warm {
        Warm {
            order: Permutation::new(all.into(), Digits::covering(all, seed)),
            left: held.min(all),
        }
    }

    /// Whether a key that was not used since the start is still cached.
    fn holds(&self, key: u32) -> bool {
        self.left > 0 && self.order.shuffled(key.into()) < u64::from(self.left)
    }

    /// Evicts the key used longest ago; keys that were used since are skipped.
    fn evict(&mut self, was_used: impl Fn(u32) -> bool) {
        while self.left > 0 {
            self.left -= 1;
            if !was_used(self.order.unshuffled(self.left.into()) as u32) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use proptest::prelude::*;

    #[test]
    fn a_line_comes_and_goes_as_a_whole() {
        // Lines of four, eight to a page of the map; room for two.
        let mut cmt = Cmt::new(8, 320, 32, 4);
        assert_eq!(cmt.insert(5, true), None);
        assert!([4, 5, 6, 7].into_iter().all(|slot| cmt.touch(slot)));
        assert!(!cmt.touch(3) && !cmt.touch(8));
        assert_eq!(cmt.insert(40, false), None);
        assert_eq!(cmt.insert(70, false), Some(0));
        assert!(!cmt.touch(5) && cmt.touch(43));
    }

    #[test]
    fn room_is_for_no_more_than_the_whole_map() {
        let room = |capacity| Cmt::new(capacity, 1002, 32, 4).lines.room();
        assert_eq!([999, 1003, 1004, 5000].map(room), [249, 250, 251, 251]);
        let mut cmt = Cmt::new(5000, 1002, 32, 4);
        assert!((0..1002).all(|slot| cmt.insert(slot, true).is_none()));
        assert!((0..1002).all(|slot| cmt.touch(slot)));
    }

    /// Hits among each of `intervals` times this many look-ups of lines that `draw`
    /// gives, of a full cache and of one that has all its lines in a list.
    fn hits_of_both(
        (held, all): (u32, u32),
        (intervals, lookups): (usize, usize),
        mut draw: impl FnMut(&mut Rng) -> u32,
    ) -> Vec<(usize, usize)> {
        let mut cmt = Cmt::new(held, u64::from(all), 64, 1);
        cmt.warm_up(1);
        let mut rng = Rng::new(2);
        let mut list = Lru::new(held);
        while list.room() > 0 {
            let line = rng.below(all);
            if list.find(line).is_none() {
                list.insert(line);
            }
        }
        let mut look_up = |line| {
            let (here, listed) = (cmt.touch(line), list.find(line));
            if !here {
                cmt.insert(line, false);
            }
            match listed {
                Some(index) => list.touch(index),
                None => _ = list.insert(line),
            }
            (here, listed.is_some())
        };
        let mut interval = || {
            let both: Vec<_> = (0..lookups).map(|_| look_up(draw(&mut rng))).collect();
            let (ours, listed) = both.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
            let hits = |found: Vec<bool>| found.into_iter().filter(|here| *here).count();
            (hits(ours), hits(listed))
        };
        (0..intervals).map(|_| interval()).collect()
    }

    #[test]
    fn it_starts_like_a_cache_that_was_used_before() {
        const LINES: u32 = 1 << 18;
        let lookups = 1 << 16;
        for held in [10, 27, 50, 90].map(|percent| LINES / 100 * percent) {
            let uniform = |rng: &mut Rng| rng.below(LINES);
            // Nine of ten to a tenth of the lines.
            let skewed = |rng: &mut Rng| match rng.below(10) {
                0 => rng.below(LINES),
                _ => rng.below(LINES / 10),
            };
            let mut next = 0;
            let in_order = |_: &mut Rng| {
                next += 1;
                next % LINES
            };
            for both in [
                hits_of_both((held, LINES), (16, lookups), uniform),
                hits_of_both((held, LINES), (16, lookups), skewed),
                hits_of_both((held, LINES), (4, lookups), in_order),
            ] {
                let near = |(ours, listed): &(usize, usize)| ours.abs_diff(*listed) < lookups / 100;
                assert!(both.iter().all(near), "{held} lines: {both:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn each_line_that_was_not_here_takes_the_place_of_one(
            uses in prop::collection::vec((0u32..60, any::<bool>()), 1..200),
            held in 1u32..70,
            seed: u64,
        ) {
            let here = |cmt: &Cmt| -> Vec<u32> {
                (0..60).filter(|line| cmt.clone().touch(*line)).collect()
            };
            let mut cmt = Cmt::new(held, 60, 7, 1);
            cmt.warm_up(seed);
            let mut before = here(&cmt);
            prop_assert_eq!(before.len(), held.min(60) as usize);
            for (line, insert) in uses {
                let found = before.contains(&line);
                // Collection brings lines in without looking them up.
                if insert || !cmt.touch(line) {
                    cmt.insert(line, insert);
                }
                let after = here(&cmt);
                let gone = before.iter().filter(|line| !after.contains(line)).count();
                let new = after.iter().filter(|line| !before.contains(line)).count();
                prop_assert!(after.contains(&line));
                prop_assert_eq!((gone, new), if found { (0, 0) } else { (1, 1) });
                before = after;
            }
        }

        #[test]
        fn it_is_a_least_recently_used_cache(
            uses in prop::collection::vec((0u32..300, any::<bool>(), any::<bool>()), 1..2000),
            capacity in 1u32..64,
        ) {
            const PER_PAGE: u32 = 7;
            let mut cmt = Cmt::new(capacity, 300, PER_PAGE, 1);
            // Oldest first: (slot, dirty).
            let mut plain: Vec<(u32, bool)> = Vec::new();
            for (slot, insert, changed) in uses {
                let here = plain.iter().position(|e| e.0 == slot);
                if !insert {
                    prop_assert_eq!(cmt.touch(slot), here.is_some());
                    if let Some(at) = here {
                        let entry = plain.remove(at);
                        plain.push(entry);
                    }
                    continue;
                }
                let written = cmt.insert(slot, changed);
                let mut want = None;
                let was_dirty = match here {
                    Some(at) => plain.remove(at).1,
                    None => {
                        if plain.len() == capacity as usize {
                            let (out, dirty) = plain.remove(0);
                            if dirty {
                                want = Some(out / PER_PAGE);
                                plain.iter_mut().filter(|e| e.0 / PER_PAGE == out / PER_PAGE)
                                    .for_each(|e| e.1 = false);
                            }
                        }
                        false
                    }
                };
                plain.push((slot, changed || was_dirty));
                prop_assert_eq!(written, want);
            }
        }
    }

    /// Each eviction drops one line that is still as at the start, until none is left.
    #[test]
    fn what_was_cached_at_the_start_goes_one_by_one() {
        let mut warm = Warm::new(7, 5, 20);
        let held = |warm: &Warm| (0..20).filter(|key| warm.holds(*key)).collect::<Vec<_>>();
        let at_start = held(&warm);
        assert_eq!(at_start.len(), 5);
        for left in (0..5).rev() {
            warm.evict(|_| false);
            assert_eq!(held(&warm).len(), left);
        }
        warm.evict(|_| false);
        assert_eq!(held(&warm), []);
        // Those used since are passed over.
        let mut warm = Warm::new(7, 5, 20);
        warm.evict(|key| key != at_start[0]);
        assert!(!warm.holds(at_start[0]));
        let mut used = Warm::new(7, 5, 20);
        used.evict(|_| true);
        assert_eq!(held(&used), []);
    }
}
