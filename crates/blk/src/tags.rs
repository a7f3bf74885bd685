//! Tags: a bitmap of a fixed number of slots (`lib/sbitmap.c`).
//!
//! The bitmap has the kernel's words and the kernel's search order. A scheduler's depth limit is
//! spread over the words, so the tags in use decide who has to wait.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// Number of wait queues of a bitmap (`SBQ_WAIT_QUEUES`), and the most waiters woken together.
const WAIT_QUEUES: u32 = 8;
const WAKE_BATCH: u32 = 8;

/// A word of up to 64 tags.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// Tags in use, or freed and not yet swept.
    taken: u64,
    /// Freed tags, which can be taken again once the others are used up.
    cleared: u64,
    /// The tags that exist in this word.
    all: u64,
}

impl Word {
    /// Takes one of the `usable` tags, preferably the first at or after `from`
    /// (`sbitmap_find_bit_in_word`).
    #[inline]
    fn take(&mut self, usable: u64, from: u32) -> Option<u32> {
        if !self.taken & usable == 0 {
            self.taken &= !core::mem::take(&mut self.cleared);
        }
        let free = !self.taken & usable;
        if free == 0 {
            return None;
        }
        let bit = match free & u64::MAX << from {
            0 => free,
            behind => behind,
        }
        .trailing_zeros();
        self.taken |= 1 << bit;
        Some(bit)
    }
}

/// How a bitmap is searched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// Number of CPUs, each with its own start of the search.
    pub(crate) nr_cpus: usize,
    /// Whether tags are taken round robin (`BLK_TAG_ALLOC_RR`).
    pub(crate) round_robin: bool,
    /// Seed of the random starts, which are used unless the search is round robin.
    pub(crate) seed: u64,
}

/// A set of tags.
#[derive(Clone, Debug)]
pub struct Tags {
    words: Vec<Word>,
    depth: u32,
    /// Number of words for this depth; after shrinking there may be more.
    nr_words: u32,
    shift: u32,
    /// Where each CPU's search starts (`alloc_hint`): at the tag that the CPU freed last, or after
    /// the one it took last if the search had started there.
    hints: Vec<u32>,
    round_robin: bool,
    starts: Starts,
    in_use: u32,
    wake_batch: u32,
    /// The smallest depth that it is searched with, if there is a limit.
    min_shallow: Option<u32>,
    freed: u32,
}

impl Tags {
    /// Returns `depth` free tags for one CPU, whose search starts at the first.
    pub fn new(depth: u32) -> Tags {
        let mut tags = Tags {
            words: Vec::new(),
            depth: 0,
            nr_words: 0,
            shift: word_shift(depth),
            hints: vec![0],
            round_robin: false,
            starts: Starts::new(0),
            in_use: 0,
            wake_batch: 0,
            min_shallow: None,
            freed: 0,
        };
        tags.resize(depth);
        tags
    }

    /// Returns `depth` free tags, searched as `search` says (`sbitmap_init_node`).
    pub(crate) fn searched_by(depth: u32, search: &Search) -> Tags {
        let mut tags = Tags::new(depth);
        tags.round_robin = search.round_robin;
        tags.starts = Starts::new(search.seed);
        let start = |_| match search.round_robin {
            true => 0,
            false => tags.starts.draw(depth),
        };
        tags.hints = (0..search.nr_cpus).map(start).collect();
        tags
    }

    /// Number of tags.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Number of tags in use.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Changes the number of tags (`sbitmap_queue_resize`). The size of a word stays the same. Tags
    /// beyond the new depth stay in use until they are freed.
    pub fn resize(&mut self, depth: u32) {
        self.nr_words = depth.div_ceil(1 << self.shift);
        let words = self.words.len().max(self.nr_words as usize);
        self.words.resize(words, Word::default());
        self.depth = depth;
        for (number, word) in self.words.iter_mut().enumerate() {
            let behind = depth.saturating_sub((number as u32) << self.shift);
            word.all = first_bits(behind.min(1 << self.shift));
        }
        self.wake_batch = wake_batch(depth, None);
    }

    /// Number of tags in a word.
    pub fn per_word(&self) -> u32 {
        1 << self.shift
    }

    /// Takes a free tag for a CPU; `shallow` limits the number of tags that can be in use this way.
    #[inline(always)]
    pub fn get(&mut self, cpu: usize, shallow: Option<u32>) -> Option<u32> {
        match self.search(cpu, shallow) {
            // A round-robin search can miss free tags; the kernel searches again from the start
            // before it waits (`blk_mq_get_tag`).
            None if self.round_robin => self.search(cpu, shallow),
            found => found,
        }
    }

    /// Searches for a free tag (`sbitmap_find_bit` and its callers).
    #[inline(always)]
    fn search(&mut self, cpu: usize, shallow: Option<u32>) -> Option<u32> {
        if self.hints[cpu] >= self.depth {
            self.hints[cpu] = self.starts.draw(self.depth);
        }
        let (hint, mask) = (self.hints[cpu], (1 << self.shift) - 1);
        let mut word = hint >> self.shift;
        let within = self.round_robin || shallow.is_some();
        let mut from = if within { hint & mask } else { 0 };
        // Without a limit a round-robin search does not wrap around inside a word.
        let wraps = !self.round_robin || shallow.is_some();
        for _ in 0..self.nr_words {
            let usable = match shallow {
                None => self.words[word as usize].all,
                Some(shallow) => first_bits(self.word_depth(word, shallow)),
            };
            let behind = if wraps { u64::MAX } else { u64::MAX << from };
            // A word without a share of the limit is passed over, and its freed tags stay unswept.
            if usable != 0
                && let Some(bit) = self.words[word as usize].take(usable & behind, from)
            {
                let tag = (word << self.shift) + bit;
                if tag == hint || self.round_robin {
                    self.hints[cpu] = if tag + 2 < self.depth { tag + 1 } else { 0 };
                }
                self.in_use += 1;
                return Some(tag);
            }
            from = 0;
            word = if word + 1 < self.nr_words {
                word + 1
            } else {
                0
            };
        }
        self.hints[cpu] = 0;
        None
    }

    /// Whether [`Tags::get`] would find a tag.
    pub fn has_free(&self, shallow: Option<u32>) -> bool {
        (0..self.nr_words).any(|number| {
            let word = self.words[number as usize];
            let usable = match shallow {
                None => word.all,
                Some(shallow) => first_bits(self.word_depth(number, shallow)),
            };
            (!word.taken | word.cleared) & usable != 0
        })
    }

    /// Sets the tag at which a CPU's next search starts.
    pub(crate) fn start_at(&mut self, cpu: usize, tag: u32) {
        self.hints[cpu] = tag;
    }

    /// Frees a tag that a CPU took (`sbitmap_queue_clear`).
    #[inline]
    pub fn put(&mut self, cpu: usize, tag: u32) {
        let bit = 1u64 << (tag & ((1 << self.shift) - 1));
        let word = &mut self.words[(tag >> self.shift) as usize];
        debug_assert!(
            word.taken & !word.cleared & bit != 0,
            "tag {tag} is not taken"
        );
        word.cleared |= bit;
        if !self.round_robin && tag < self.depth {
            self.hints[cpu] = tag;
        }
        self.in_use -= 1;
    }

    /// Declares the smallest depth that `get` will be called with, which reduces the wake batch
    /// (`sbitmap_queue_min_shallow_depth`).
    pub fn set_min_shallow_depth(&mut self, shallow: Option<u32>) {
        self.min_shallow = shallow;
        self.wake_batch = wake_batch(self.depth, shallow);
    }

    /// Whether tags are taken round robin.
    pub(crate) fn is_round_robin(&self) -> bool {
        self.round_robin
    }

    /// The bitmap's state as debugfs shows it (`sbitmap_queue_show`), with so many waiters.
    pub fn debug_text(&self, waiters: usize) -> String {
        let words = &self.words[..self.nr_words as usize];
        let cleared: u32 = words.iter().map(|word| word.cleared.count_ones()).sum();
        let hints: Vec<String> = self.hints.iter().map(|hint| hint.to_string()).collect();
        let queues: String = (0..WAIT_QUEUES as usize)
            .map(|queue| match queue < waiters {
                true => "\t{.wait=active},\n",
                false => "\t{.wait=inactive},\n",
            })
            .collect();
        format!(
            "depth={}\nbusy={}\ncleared={cleared}\nbits_per_word={}\nmap_nr={}\n\
             alloc_hint={{{}}}\nwake_batch={}\nwake_index=0\nws_active={waiters}\nws={{\n{queues}}}\n\
             round_robin={}\nmin_shallow_depth={}",
            self.depth,
            self.in_use,
            self.per_word(),
            self.nr_words,
            hints.join(", "),
            self.wake_batch,
            u8::from(self.round_robin),
            self.min_shallow.unwrap_or(u32::MAX),
        )
    }

    /// The tags in use as debugfs shows them, tag 0 in the first byte's lowest bit
    /// (`sbitmap_bitmap_show`).
    pub(crate) fn debug_bitmap(&self) -> String {
        let mut bits = vec![0_u64; self.depth.div_ceil(64) as usize];
        for tag in 0..self.depth {
            let word = self.words[(tag >> self.shift) as usize];
            let bit = word.taken & !word.cleared & 1 << (tag & ((1 << self.shift) - 1));
            if bit != 0 {
                bits[tag as usize / 64] |= 1 << (tag % 64);
            }
        }
        hex_dump(&bits, self.depth as usize)
    }

    /// Counts a tag freed while there are waiters; returns the number of waiters to wake now
    /// (`sbitmap_queue_wake_up`).
    pub fn freed_with_waiters(&mut self) -> u32 {
        self.freed += 1;
        if self.freed < self.wake_batch {
            return 0;
        }
        self.freed = 0;
        self.wake_batch
    }

    /// Number of usable tags in a word: its share of `shallow`, with the remainder in the first
    /// words (`__map_depth_with_shallow`).
    fn word_depth(&self, word: u32, shallow: u32) -> u32 {
        let all = (self.depth - (word << self.shift)).min(1 << self.shift);
        if shallow >= self.depth {
            return all;
        }
        let (share, depth) = (all as u64 * shallow as u64, self.depth as u64);
        let extra = share % depth >= (word as u64 + 1) * all as u64;
        (share / depth) as u32 + extra as u32
    }
}

/// Random tags at which searches start.
#[derive(Clone, Debug)]
struct Starts(SplitMix64);

impl Starts {
    fn new(seed: u64) -> Starts {
        Starts(SplitMix64::seed_from_u64(seed))
    }

    /// Returns a random number below `depth`.
    fn draw(&mut self, depth: u32) -> u32 {
        (self.0.next_u64() % u64::from(depth.max(1))) as u32
    }
}

/// Returns a word with the first `n` bits set.
#[inline]
fn first_bits(n: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - n).unwrap_or(0)
}

/// The base-2 logarithm of the tags in a word; the kernel aims at four words or more
/// (`sbitmap_calculate_shift`).
fn word_shift(depth: u32) -> u32 {
    let mut shift = 6;
    if depth >= 4 {
        while (4u64 << shift) > depth as u64 && shift > 0 {
            shift -= 1;
        }
    }
    shift
}

/// The number of waiters to wake together (`sbq_calc_wake_batch`).
fn wake_batch(depth: u32, min_shallow: Option<u32>) -> u32 {
    let usable = min_shallow.unwrap_or(u32::MAX).min(depth);
    (usable / WAIT_QUEUES).clamp(1, WAKE_BATCH)
}

/// The first bits of a map, byte by byte, sixteen in a line (`sbitmap_bitmap_show`).
pub(crate) fn hex_dump(words: &[u64], bits: usize) -> String {
    let mut text = String::new();
    for byte in 0..bits.div_ceil(8) {
        if byte % 16 == 0 {
            let new_line = if byte > 0 { "\n" } else { "" };
            text.push_str(&format!("{new_line}{byte:08x}:"));
        }
        if byte % 2 == 0 {
            text.push(' ');
        }
        let value = words[byte / 8] >> (byte % 8 * 8) & 0xff;
        text.push_str(&format!("{value:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_cut_as_the_kernel_cuts_them() {
        // hctx0/sched_tags_bitmap and tags_bitmap of the recorded runs: 128 tags are 4 words of 32,
        // and 4 tags are 4 words of 1.
        assert_eq!(Tags::new(128).per_word(), 32);
        assert_eq!(Tags::new(4).per_word(), 1);
        assert_eq!(Tags::new(1023).per_word(), 64);
    }

    #[test]
    fn a_shallow_depth_is_spread_over_the_words() {
        // The recorded v_nr32 and v_async8: eight writes, then the ninth waits.
        for (depth, shallow) in [(32, 8), (128, 8), (128, 127), (10, 3)] {
            let mut tags = Tags::new(depth);
            let taken = std::iter::from_fn(|| tags.get(0, Some(shallow))).count();
            assert!(taken as u32 <= shallow, "{taken} of {shallow}");
            assert!(tags.get(0, None).is_some());
        }
        let mut tags = Tags::new(32);
        assert_eq!(std::iter::from_fn(|| tags.get(0, Some(8))).count(), 8);
    }

    #[test]
    fn a_freed_tag_is_taken_last() {
        let mut tags = Tags::new(128);
        let first = tags.get(0, None);
        tags.get(0, None);
        tags.put(0, first.unwrap());
        assert_eq!(tags.get(0, None), Some(2));
    }

    /// All tags that can be taken with `shallow`, in order.
    fn all(depth: u32, shallow: Option<u32>) -> Vec<u32> {
        let mut tags = Tags::new(depth);
        let mut all: Vec<u32> = std::iter::from_fn(|| tags.get(0, shallow)).collect();
        all.sort_unstable();
        all
    }

    /// Each word gets its share, and the first words the remainder (`__map_depth_with_shallow`).
    #[test]
    fn a_shallow_depth_is_the_first_tags_of_each_word() {
        assert_eq!(all(32, Some(8)), [0, 1, 8, 9, 16, 17, 24, 25]);
        assert_eq!(all(32, Some(6)), [0, 1, 8, 9, 16, 24]);
        assert_eq!(all(128, Some(127)), (0..127).collect::<Vec<u32>>());
        assert_eq!(all(10, None).len(), 10);
        assert_eq!(all(10, Some(10)).len(), 10);
    }

    /// With a limit of one the last words have no share: a search in vain sweeps nothing there.
    #[test]
    fn a_search_passes_over_words_without_a_share() {
        // Four words of two tags.
        let mut tags = Tags::new(8);
        while tags.get(0, None).is_some() {}
        tags.put(0, 6);
        tags.put(0, 7);
        tags.put(0, 1);
        assert_eq!(tags.get(0, Some(1)), None);
        // The first word was swept, so it is found first; the last is swept when it is reached.
        assert_eq!((tags.get(0, None), tags.words[3].cleared), (Some(1), 3));
    }

    #[test]
    fn the_search_starts_at_the_tag_freed_last() {
        // Four words of two tags.
        let mut tags = Tags::new(8);
        while tags.get(0, None).is_some() {}
        tags.put(0, 6);
        tags.put(0, 1);
        assert_eq!((tags.get(0, None), tags.get(0, None)), (Some(1), Some(6)));
        tags.put(0, 1);
        tags.put(0, 6);
        assert_eq!((tags.get(0, None), tags.get(0, None)), (Some(6), Some(1)));
        // The search starts over after the last tag but one.
        [7, 1, 6].iter().for_each(|&tag| tags.put(0, tag));
        assert_eq!((tags.get(0, None), tags.get(0, None)), (Some(6), Some(1)));
        assert_eq!(tags.get(0, None), Some(7));
        assert_eq!(tags.get(0, None), None);
    }

    /// A tag beyond the new depth is no place to search from (`sbitmap_queue_clear`).
    #[test]
    fn the_search_does_not_start_at_a_tag_beyond_a_smaller_depth() {
        for beyond in [4, 7] {
            let mut tags = Tags::new(8);
            while tags.get(0, None).is_some() {}
            tags.resize(4);
            tags.put(0, 2);
            tags.put(0, beyond);
            assert_eq!(tags.hints, [2], "{beyond}");
            assert_eq!((tags.get(0, None), tags.get(0, None)), (Some(2), None));
        }
    }

    const FOUR_CPUS: Search = Search {
        nr_cpus: 4,
        round_robin: false,
        seed: 7,
    };

    /// The words from which four CPUs take their first tags, in 64 words of one.
    fn first_tags(search: &Search) -> Vec<Option<u32>> {
        let mut tags = Tags::searched_by(1_024, search);
        (0..4).map(|cpu| tags.get(cpu, None)).collect()
    }

    /// The starts differ by CPU and seed (`init_alloc_hint`).
    #[test]
    fn each_cpu_starts_somewhere_else_by_the_seed() {
        let of_seven = first_tags(&FOUR_CPUS);
        assert_eq!(of_seven, first_tags(&FOUR_CPUS));
        let other = Search {
            seed: 8,
            ..FOUR_CPUS
        };
        assert_ne!(of_seven, first_tags(&other));
        let mut words: Vec<u32> = of_seven.iter().flatten().map(|tag| tag / 64).collect();
        words.dedup();
        assert!(words.len() > 1, "{of_seven:?}");
    }

    /// Freeing a tag does not change other CPUs' hints (`sbitmap_update_cpu_hint`).
    #[test]
    fn a_freed_tag_moves_the_search_of_the_cpu_that_had_it() {
        // Four words of eight tags.
        let mut tags = Tags::searched_by(32, &FOUR_CPUS);
        for (cpu, tag) in [(0, 8), (1, 24)] {
            tags.start_at(cpu, tag);
            assert_eq!(tags.get(cpu, None), Some(tag));
        }
        tags.start_at(0, 16);
        tags.put(1, 24);
        assert_eq!(tags.get(0, None), Some(16));
        assert_eq!(tags.get(1, None), Some(25));
    }

    /// With a limit of one only the first tag is usable; other CPUs leave it free for longer than
    /// if all searched where it was freed.
    #[test]
    fn one_cpu_frees_the_first_tag_and_another_still_searches_elsewhere() {
        let mut tags = Tags::searched_by(32, &FOUR_CPUS);
        tags.start_at(1, 24);
        assert_eq!(tags.get(0, Some(1)), Some(0));
        tags.put(0, 0);
        let last_word: Vec<_> = (0..7).map(|_| tags.get(1, None)).collect();
        assert_eq!(last_word, (24..31).map(Some).collect::<Vec<_>>());
        assert_eq!(tags.get(0, Some(1)), Some(0));
    }

    /// A round-robin search continues after the last tag (`update_alloc_hint_after_get`).
    #[test]
    fn in_turn_a_freed_tag_waits_until_its_turn() {
        let search = Search {
            round_robin: true,
            ..FOUR_CPUS
        };
        let mut tags = Tags::searched_by(8, &search);
        let mut turn = Vec::new();
        for _ in 0..8 {
            let tag = tags.get(0, None).expect("all others are free");
            tags.put(0, tag);
            turn.push(tag);
        }
        // The search never starts at the last tag.
        assert_eq!(turn, [0, 1, 2, 3, 4, 5, 6, 0]);
    }

    #[test]
    fn in_turn_each_cpu_has_its_own() {
        let search = Search {
            round_robin: true,
            ..FOUR_CPUS
        };
        let mut tags = Tags::searched_by(8, &search);
        for tag in [0, 1] {
            assert_eq!(tags.get(0, None), Some(tag));
            tags.put(0, tag);
        }
        assert_eq!((tags.get(1, None), tags.get(0, None)), (Some(0), Some(2)));
    }

    /// A word's first tag is missed by a search that starts after it.
    #[test]
    fn in_turn_what_was_left_out_is_found_all_the_same() {
        let search = Search {
            round_robin: true,
            ..FOUR_CPUS
        };
        let mut tags = Tags::searched_by(8, &search);
        while tags.get(0, None).is_some() {}
        tags.put(0, 2);
        tags.start_at(0, 3);
        assert_eq!(tags.get(0, None), Some(2));
        assert_eq!(tags.get(0, None), None);
    }

    #[test]
    fn wake_batches_are_an_eighth_of_the_usable_tags() {
        let batch = |depth, shallow| {
            let mut tags = Tags::new(depth);
            tags.set_min_shallow_depth(shallow);
            let freed = (1..).find(|_| tags.freed_with_waiters() > 0);
            let woken = (1..).map(|_| tags.freed_with_waiters()).find(|n| *n > 0);
            assert_eq!(freed, woken, "as many are woken as were freed");
            woken
        };
        assert_eq!(batch(7, None), Some(1));
        assert_eq!(batch(40, None), Some(5));
        assert_eq!(batch(1_000, None), Some(8));
        assert_eq!(batch(128, Some(24)), Some(3));
        assert_eq!(batch(8, Some(64)), Some(1));
    }

    #[test]
    fn min_shallow_depth_makes_wake_ups_prompt() {
        let mut tags = Tags::new(128);
        assert_eq!((0..8).map(|_| tags.freed_with_waiters()).sum::<u32>(), 8);
        tags.set_min_shallow_depth(Some(1));
        assert_eq!(tags.freed_with_waiters(), 1);
    }

    #[test]
    fn a_shrunk_bitmap_waits_for_the_tags_beyond_its_end() {
        let mut tags = Tags::new(128);
        let taken: Vec<u32> = (0..40).filter_map(|_| tags.get(0, None)).collect();
        tags.resize(8);
        assert_eq!(tags.get(0, None), None);
        tags.put(0, taken[39]);
        assert_eq!(tags.get(0, None), None);
        tags.put(0, taken[3]);
        assert_eq!(tags.get(0, None), Some(3));
        tags.resize(128);
        assert_eq!(tags.in_use(), 39);
        assert!(tags.get(0, None).is_some());
    }

    proptest! {
        #[test]
        fn has_free_says_what_get_would_find(
            depth in 1u32..200,
            shallow in prop::option::of(1u32..200),
            ops in prop::collection::vec(any::<Option<u8>>(), 0..300),
        ) {
            let mut tags = Tags::new(depth);
            let mut taken = Vec::new();
            for op in ops {
                let found = tags.clone().get(0, shallow).is_some();
                prop_assert_eq!(tags.has_free(shallow), found);
                match op {
                    Some(pick) if !taken.is_empty() => {
                        tags.put(0, taken.swap_remove(pick as usize % taken.len()));
                    }
                    _ => taken.extend(tags.get(0, shallow)),
                }
            }
        }

        #[test]
        fn a_tag_is_taken_once(depth in 1u32..300, ops in prop::collection::vec(any::<Option<u8>>(), 0..600)) {
            let mut tags = Tags::new(depth);
            let mut taken = Vec::new();
            for op in ops {
                prop_assert_eq!(tags.has_free(None), (taken.len() as u32) < depth);
                match op {
                    Some(pick) if !taken.is_empty() => {
                        let tag = taken.swap_remove(pick as usize % taken.len());
                        tags.put(0, tag);
                    }
                    _ => match tags.get(0, None) {
                        Some(tag) => {
                            prop_assert!(tag < depth && !taken.contains(&tag));
                            taken.push(tag);
                        }
                        None => prop_assert_eq!(taken.len() as u32, depth),
                    },
                }
                prop_assert_eq!(tags.in_use() as usize, taken.len());
            }
        }
    }

    /// The first numbers of a SplitMix64 that starts at 1234567, as other implementations have them.
    #[test]
    fn starts_are_the_numbers_of_splitmix64() {
        let mut starts = Starts::new(1_234_567);
        let drawn = [0; 4].map(|_| starts.draw(1_000_000_007));
        let numbers = [
            6_457_827_717_110_365_317_u64,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        assert_eq!(drawn, numbers.map(|n| (n % 1_000_000_007) as u32));
        assert_eq!([starts.draw(1), starts.draw(0)], [0, 0]);
    }

    /// The shares of all words, added up, are no more than the limit and less than it by under one
    /// tag a word; the first words have what does not divide evenly.
    #[test]
    fn shares_of_words_add_up_to_the_limit() {
        for depth in [1, 4, 10, 31, 32, 100, 128, 256, 1000] {
            let tags = Tags::new(depth);
            let words = depth.div_ceil(tags.per_word());
            for shallow in 1..=depth {
                let shares: Vec<u32> = (0..words).map(|w| tags.word_depth(w, shallow)).collect();
                let sum: u32 = shares.iter().sum();
                let size = |w: u32| (depth - w * tags.per_word()).min(tags.per_word());
                for (word, share) in (0..).zip(&shares) {
                    let exact = f64::from(size(word)) * f64::from(shallow) / f64::from(depth);
                    assert!(
                        (f64::from(*share) - exact).abs() < 1.0,
                        "{shallow} of {depth}: {shares:?}"
                    );
                }
                assert!(
                    shares.is_sorted_by(|a, b| a >= b),
                    "{shallow} of {depth}: {shares:?}"
                );
                assert!(sum <= shallow + words, "{shallow} of {depth}: {shares:?}");
                if shallow == depth {
                    assert_eq!(sum, depth);
                }
            }
        }
    }

    /// Tags against a plain set: what is taken is in it once, `in_use` is its size, and a set that
    /// shrinks and grows keeps what is taken.
    #[test]
    fn tags_are_as_a_plain_set() {
        let mut random = Starts::new(5);
        for round_robin in [false, true] {
            let search = Search {
                nr_cpus: 3,
                round_robin,
                seed: 9,
            };
            let mut tags = Tags::searched_by(100, &search);
            let mut taken = std::collections::BTreeSet::new();
            for step in 0..20_000 {
                let cpu = random.draw(3) as usize;
                let shallow = (random.draw(3) == 0).then(|| 1 + random.draw(100));
                match random.draw(100) {
                    0 => tags.resize(20 + random.draw(81)),
                    1..=55 => {
                        let expected = tags.has_free(shallow);
                        let got = tags.get(cpu, shallow);
                        assert_eq!(got.is_some(), expected, "step {step}");
                        if let Some(tag) = got {
                            assert!(tag < tags.depth() && taken.insert(tag), "step {step}");
                        } else if shallow.is_none() {
                            let usable = taken.range(..tags.depth()).count();
                            assert_eq!(usable as u32, tags.depth(), "step {step}");
                        }
                    }
                    _ => {
                        let nth = random.draw(taken.len() as u32) as usize;
                        if let Some(&tag) = taken.iter().nth(nth) {
                            taken.remove(&tag);
                            tags.put(cpu, tag);
                        }
                    }
                }
                assert_eq!(tags.in_use() as usize, taken.len(), "step {step}");
            }
        }
    }

    #[test]
    fn waiters_are_counted_anew_after_each_batch() {
        let mut tags = Tags::new(64);
        let woken: Vec<u32> = (0..24).map(|_| tags.freed_with_waiters()).collect();
        let mut expected = vec![0; 24];
        (expected[7], expected[15], expected[23]) = (8, 8, 8);
        assert_eq!(woken, expected);
    }
}
