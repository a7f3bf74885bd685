//! Slots scattered over blocks that are partly valid, by formula in both
//! directions.

use super::rng::Rng;
use super::steady::BlockShare;

/// What a plane's blocks hold after long overwriting, alike in all planes of a
/// range of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Scattered {
    slots: u32,
    slots_per_block: u32,
    /// Slots below this are hot; they lie with their like.
    hot_slots: u32,
    hot: Option<Spread>,
    cold: Option<Spread>,
    /// Valid slots of every used block.
    valid: Vec<u16>,
    /// Its place in the order in which blocks were filled.
    order: Vec<u32>,
}

/// Slots of one kind, spread over the blocks.
#[derive(Clone, Debug)]
struct Spread {
    slots: u64,
    /// Those of them that hold data.
    live: u64,
    /// A permutation of the slots: multiplication modulo `slots`.
    factor: u64,
    inverse: u64,
    /// How many every block holds, and the sums before each.
    valid: Vec<u16>,
    before: Vec<u32>,
    /// First block whose sum reaches so many parts of `live`.
    guide: Vec<u32>,
}

impl Scattered {
    /// `blocks` are in the order in which they were filled; where they are in
    /// the plane is chance.
    pub(crate) fn new(
        slots: u32,
        hot_slots: u32,
        blocks: Vec<BlockShare>,
        slots_per_block: u32,
        rng: &mut Rng,
    ) -> Scattered {
        let mut order: Vec<u32> = (0..blocks.len() as u32).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, rng.below(place as u32 + 1) as usize);
        }
        let of = |count: fn(&BlockShare) -> u16| -> Vec<u16> {
            order
                .iter()
                .map(|at| count(&blocks[*at as usize]))
                .collect()
        };
        Scattered {
            slots,
            slots_per_block,
            hot_slots,
            hot: Spread::new(hot_slots as u64, of(|block| block.hot)),
            cold: Spread::new((slots - hot_slots) as u64, of(|block| block.cold)),
            valid: of(|block| block.hot + block.cold),
            order,
        }
    }

    /// Slots of the plane.
    pub(crate) fn slots(&self) -> u64 {
        self.slots as u64
    }

    /// Valid slots of every used block.
    pub(crate) fn valid(&self) -> &[u16] {
        &self.valid
    }

    /// How many blocks were filled before a block.
    pub(crate) fn filled_before(&self, block: u32) -> u32 {
        self.order.get(block as usize).copied().unwrap_or(0)
    }

    fn hot_in(&self, block: usize) -> u32 {
        self.hot.as_ref().map_or(0, |hot| hot.valid[block] as u32)
    }

    /// Block and place of a plane's slot.
    pub(crate) fn place(&self, rank: u32) -> Option<(u32, u32)> {
        let (block, within) = match rank.checked_sub(self.hot_slots) {
            None => self.hot.as_ref()?.place(rank)?,
            Some(rank) => {
                let (block, within) = self.cold.as_ref()?.place(rank)?;
                (block, self.hot_in(block as usize) + within)
            }
        };
        // Valid slots are spread evenly over the block.
        let place = within * self.slots_per_block / self.valid[block as usize] as u32;
        Some((block, place))
    }

    /// The plane's slot that is there.
    pub(crate) fn rank(&self, block: u32, place: u32) -> Option<u32> {
        let valid = *self.valid.get(block as usize)? as u32;
        let within = (place * valid).div_ceil(self.slots_per_block);
        if within >= valid || within * self.slots_per_block / valid != place {
            return None;
        }
        match within.checked_sub(self.hot_in(block as usize)) {
            None => Some(self.hot.as_ref()?.rank(block, within)),
            Some(within) => Some(self.hot_slots + self.cold.as_ref()?.rank(block, within)),
        }
    }
}

impl Spread {
    /// `None` where none of the slots holds anything.
    fn new(slots: u64, valid: Vec<u16>) -> Option<Spread> {
        let mut sum = 0;
        let before: Vec<u32> = valid
            .iter()
            .map(|count| {
                sum += *count as u32;
                sum - *count as u32
            })
            .collect();
        let live = sum as u64;
        if live == 0 {
            return None;
        }
        let mut guide = Vec::with_capacity(valid.len() + 1);
        for part in 0..=valid.len() as u64 {
            let rank = (part * live / valid.len() as u64) as u32;
            guide.push(before.partition_point(|sum| *sum <= rank).saturating_sub(1) as u32);
        }
        // The golden ratio's part of the whole scatters neighbours evenly.
        let mut factor = (slots as f64 * 0.618_033_988_749_895) as u64 | 1;
        while greatest_common_divisor(factor, slots) != 1 {
            factor += 2;
        }
        Some(Spread {
            slots,
            live,
            factor: factor % slots.max(1),
            inverse: inverse(factor, slots),
            valid,
            before,
            guide,
        })
    }

    /// The block of a slot, and the how-many-th there.
    fn place(&self, rank: u32) -> Option<(u32, u32)> {
        let rank = rank as u64 * self.factor % self.slots;
        if rank >= self.live {
            return None;
        }
        let part = rank * self.valid.len() as u64 / self.live;
        let mut block = self.guide[part as usize] as usize;
        while block + 1 < self.before.len() && self.before[block + 1] as u64 <= rank {
            block += 1;
        }
        Some((block as u32, rank as u32 - self.before[block]))
    }

    /// The slot that is there.
    fn rank(&self, block: u32, within: u32) -> u32 {
        let rank = self.before[block as usize] as u64 + within as u64;
        (rank as u128 * self.inverse as u128 % self.slots as u128) as u32
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
