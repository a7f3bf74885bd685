//! Slots scattered over partly valid blocks, computed in both directions instead of
//! stored.

use alloc::vec::Vec;

use crate::Rng;

/// What a block holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockContent {
    /// Valid slots of those that are overwritten often.
    pub(crate) hot: u16,
    pub(crate) cold: u16,
    /// The slots of the block that these are spread over.
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// Blocks of the plane that were filled since it was.
    pub(crate) age: u32,
}

impl BlockContent {
    /// Reduces it to `valid` slots, hot and cold ones in proportion.
    pub(crate) fn keep(&mut self, valid: u32) {
        let all = (self.hot + self.cold).max(1) as u32;
        self.hot = (self.hot as u32 * valid / all) as u16;
        self.cold = valid as u16 - self.hot;
        self.from = self.from.min(self.to - valid as u16);
    }
}

/// A plane at one moment of steady overwriting; its valid slots add up to its data.
#[derive(Clone, Debug)]
pub(crate) struct PlaneState {
    /// Full blocks, in the order in which they were filled.
    pub(crate) full: Vec<BlockContent>,
    /// The block being collected, and the valid slots that it had at first.
    pub(crate) victim: Option<(BlockContent, u32)>,
    /// The open blocks for host data and for data that collection moves.
    pub(crate) open: [Option<BlockContent>; 2],
}

/// Which slots of a plane hold data, alike in all planes of a range of
/// addresses.
#[derive(Clone, Debug)]
pub(crate) struct Occupied {
    slots: u32,
    /// Slots below this are hot, and lie apart from cold ones.
    hot_slots: u32,
    hot: Shuffle,
    cold: Shuffle,
}

/// A permutation of slots by multiplication modulo their number; the first ones in its
/// order hold data.
#[derive(Clone, Copy, Debug)]
struct Shuffle {
    slots: u64,
    live: u64,
    factor: u64,
    inverse: u64,
}

/// What a plane's blocks hold after long overwriting.
#[derive(Clone, Debug)]
pub(crate) struct Scattered {
    occupied: Occupied,
    slots_per_block: u32,
    hot: Option<Spread>,
    cold: Option<Spread>,
    /// Valid slots of every used block.
    valid: Vec<u16>,
    /// Blocks filled since it was.
    age: Vec<u32>,
    /// The victim and the open blocks, which come after the full ones, each with the
    /// slots that its valid ones are spread over.
    others: Vec<(u32, u32)>,
    /// Valid slots that the victim had at first.
    victim_initially_valid: Option<u32>,
    /// Whether there is an open block for host data, and one for data that collection
    /// moves.
    is_open: [bool; 2],
}

/// Slots of one kind, spread over the blocks.
#[derive(Clone, Debug)]
struct Spread {
    shuffle: Shuffle,
    /// How many every block holds, and the prefix sums.
    valid: Vec<u16>,
    before: Vec<u32>,
    /// For equal parts of the slots, the block where each part begins: a lookup starts
    /// there.
    guide: Vec<u32>,
}

impl Occupied {
    /// `live` of the slots hold data; the first ones of both are hot.
    pub(crate) fn new((slots, hot_slots): (u32, u32), (live, hot_live): (u32, u32)) -> Occupied {
        Occupied {
            slots,
            hot_slots,
            hot: Shuffle::new(hot_slots, hot_live),
            cold: Shuffle::new(slots - hot_slots, live - hot_live),
        }
    }

    /// Whether a slot of the plane holds data.
    pub(crate) fn holds(&self, rank: u32) -> bool {
        match rank.checked_sub(self.hot_slots) {
            None => self.hot.live_rank(rank).is_some(),
            Some(rank) => self.cold.live_rank(rank).is_some(),
        }
    }
}

impl Shuffle {
    fn new(slots: u32, live: u32) -> Shuffle {
        // A modulus of zero is avoided.
        let slots = slots.max(1) as u64;
        // Steps of the golden ratio scatter neighbours evenly.
        let mut factor = (slots as f64 * 0.618_033_988_749_895) as u64 | 1;
        while greatest_common_divisor(factor, slots) != 1 {
            factor += 2;
        }
        Shuffle {
            slots,
            live: live as u64,
            factor: factor % slots,
            inverse: inverse(factor, slots),
        }
    }

    /// The rank of a slot among those that hold data.
    fn live_rank(&self, slot: u32) -> Option<u64> {
        let rank = slot as u64 * self.factor % self.slots;
        (rank < self.live).then_some(rank)
    }

    fn slot(&self, rank: u64) -> u32 {
        // Both are less than 2^32.
        (rank * self.inverse % self.slots) as u32
    }
}

impl Scattered {
    /// A plane in this state, its full blocks in random order.
    pub(crate) fn new(
        occupied: &Occupied,
        state: &PlaneState,
        slots_per_block: u32,
        rng: &mut Rng,
    ) -> Scattered {
        let mut blocks = state.full.clone();
        for place in (1..blocks.len()).rev() {
            blocks.swap(place, rng.below(place as u32 + 1) as usize);
        }
        let others = state.victim.iter().map(|victim| &victim.0);
        let open = state.open.iter().flatten();
        let others: Vec<BlockContent> = others.chain(open).copied().collect();
        blocks.extend(&others);
        let of =
            |count: fn(&BlockContent) -> u16| -> Vec<u16> { blocks.iter().map(count).collect() };
        Scattered {
            hot: Spread::new(occupied.hot, of(|block| block.hot)),
            cold: Spread::new(occupied.cold, of(|block| block.cold)),
            occupied: occupied.clone(),
            slots_per_block,
            valid: of(|block| block.hot + block.cold),
            age: blocks.iter().map(|block| block.age).collect(),
            others: others
                .iter()
                .map(|b| (b.from as u32, b.to as u32))
                .collect(),
            victim_initially_valid: state.victim.map(|victim| victim.1),
            is_open: state.open.map(|open| open.is_some()),
        }
    }

    /// Slots of the plane.
    pub(crate) fn slots(&self) -> u64 {
        self.occupied.slots as u64
    }

    /// Valid slots of every used block.
    pub(crate) fn valid(&self) -> &[u16] {
        &self.valid
    }

    /// How many blocks were filled since a block was.
    pub(crate) fn age(&self, block: u32) -> u32 {
        self.age.get(block as usize).copied().unwrap_or(0)
    }

    /// The open blocks, the host's first, and how many slots of each are written.
    pub(crate) fn open(&self) -> [Option<(u32, u32)>; 2] {
        let mut block = self.full_blocks() + self.victim_initially_valid.is_some() as u32;
        self.is_open.map(|is_open| {
            is_open.then(|| {
                block += 1;
                (block - 1, self.span(block - 1).1)
            })
        })
    }

    /// The block being collected, and the valid slots that it had at first.
    pub(crate) fn victim(&self) -> Option<(u32, u32)> {
        self.victim_initially_valid
            .map(|valid| (self.full_blocks(), valid))
    }

    /// The number of full blocks, which come first.
    fn full_blocks(&self) -> u32 {
        (self.valid.len() - self.others.len()) as u32
    }

    /// The slots of a block that its valid ones are spread over.
    fn span(&self, block: u32) -> (u32, u32) {
        match block.checked_sub(self.full_blocks()) {
            None => (0, self.slots_per_block),
            Some(other) => self.others[other as usize],
        }
    }

    fn hot_in(&self, block: usize) -> u32 {
        self.hot.as_ref().map_or(0, |hot| hot.valid[block] as u32)
    }

    /// Block and place of a plane's slot.
    pub(crate) fn place(&self, rank: u32) -> Option<(u32, u32)> {
        let (block, within) = match rank.checked_sub(self.occupied.hot_slots) {
            None => self.hot.as_ref()?.place(rank)?,
            Some(rank) => {
                let (block, within) = self.cold.as_ref()?.place(rank)?;
                (block, self.hot_in(block as usize) + within)
            }
        };
        // Valid slots are spread evenly over the written part of the block.
        let (from, to) = self.span(block);
        let place = from + within * (to - from) / self.valid[block as usize] as u32;
        Some((block, place))
    }

    /// The plane's slot at a block and place.
    pub(crate) fn rank(&self, block: u32, place: u32) -> Option<u32> {
        let valid = *self.valid.get(block as usize)? as u32;
        let (from, to) = self.span(block);
        let place = place.checked_sub(from).filter(|_| place < to)?;
        let within = (place * valid).div_ceil(to - from);
        if within >= valid || within * (to - from) / valid != place {
            return None;
        }
        match within.checked_sub(self.hot_in(block as usize)) {
            None => Some(self.hot.as_ref()?.rank(block, within)),
            Some(within) => Some(self.occupied.hot_slots + self.cold.as_ref()?.rank(block, within)),
        }
    }
}

impl Spread {
    /// `None` where none of the slots holds anything.
    fn new(shuffle: Shuffle, valid: Vec<u16>) -> Option<Spread> {
        let mut sum = 0;
        let before: Vec<u32> = valid
            .iter()
            .map(|count| {
                sum += *count as u32;
                sum - *count as u32
            })
            .collect();
        let live = sum as u64;
        debug_assert_eq!(live, shuffle.live);
        if live == 0 {
            return None;
        }
        let mut guide = Vec::with_capacity(valid.len() + 1);
        for part in 0..=valid.len() as u64 {
            let rank = (part * live / valid.len() as u64) as u32;
            guide.push(before.partition_point(|sum| *sum <= rank).saturating_sub(1) as u32);
        }
        Some(Spread {
            shuffle,
            valid,
            before,
            guide,
        })
    }

    /// The block of a slot, and its rank among the valid ones there.
    fn place(&self, rank: u32) -> Option<(u32, u32)> {
        let rank = self.shuffle.live_rank(rank)?;
        let part = rank * self.valid.len() as u64 / self.shuffle.live;
        let mut block = self.guide[part as usize] as usize;
        while block + 1 < self.before.len() && self.before[block + 1] as u64 <= rank {
            block += 1;
        }
        Some((block as u32, rank as u32 - self.before[block]))
    }

    /// The slot with this rank among the valid ones of a block.
    fn rank(&self, block: u32, within: u32) -> u32 {
        self.shuffle
            .slot(self.before[block as usize] as u64 + within as u64)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

/// `factor * inverse = 1` modulo `modulus`, by the extended Euclidean algorithm.
fn inverse(factor: u64, modulus: u64) -> u64 {
    let (mut old_rest, mut rest) = (factor as i128, modulus as i128);
    let (mut old_share, mut share) = (1i128, 0i128);
    while rest != 0 {
        let quotient = old_rest / rest;
        (old_rest, rest) = (rest, old_rest - quotient * rest);
        (old_share, share) = (share, old_share - quotient * share);
    }
    old_share.rem_euclid(modulus as i128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hot and cold slots are kept in proportion, and all fit where they are spread.
    #[test]
    fn a_block_keeps_hot_and_cold_slots_in_proportion() {
        for (hot, cold, valid, kept) in
            [(30, 70, 50, (15, 35)), (8, 0, 3, (3, 0)), (5, 5, 3, (1, 2))]
        {
            let mut content = BlockContent {
                hot,
                cold,
                from: 90,
                to: 128,
                age: 0,
            };
            content.keep(valid);
            assert_eq!((content.hot, content.cold), kept);
            assert_eq!(u32::from(content.from), (128 - valid).min(90));
        }
    }
}
