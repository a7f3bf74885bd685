//! What a plane looks like after long random overwriting.
//!
//! How valid data spreads over blocks in the steady state depends on the spare
//! space, the choice of victims and the pattern of writes, and hardly on the
//! size of a block or on how many there are (Van Houdt, "A mean field model for
//! a class of garbage collection algorithms in flash-based solid state drives",
//! SIGMETRICS 2013). So a small plane is overwritten until it is steady, which
//! takes milliseconds, and its distribution is stretched to the real one.

use super::rng::Rng;
use super::spec::{AgedSpec, GcPolicy};

/// The small plane: slots a block and blocks.
const SLOTS: u32 = 128;
const BLOCKS: u32 = 1024;
/// How often its whole content is overwritten, by when even a tight plane is
/// steady.
const PASSES: u32 = 12;

/// The real plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneShape {
    pub(crate) blocks: u32,
    pub(crate) slots_per_block: u32,
    /// Slots of it that hold data.
    pub(crate) live: u32,
    /// Blocks that are kept free.
    pub(crate) free: u32,
}

/// Valid slots of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockShare {
    /// Of those that are overwritten often.
    pub(crate) hot: u16,
    pub(crate) cold: u16,
}

/// Every block that is not free in the steady state, in the order in which they
/// were filled; their sum is `shape.live`.
pub(crate) fn blocks_by_age(
    shape: PlaneShape,
    policy: GcPolicy,
    aged: &AgedSpec,
    rng: &mut Rng,
) -> Vec<BlockShare> {
    let small = Small::overwritten(shape, policy, aged, rng);
    let used = (shape.blocks - shape.free) as usize;
    let slots = shape.slots_per_block as f64;
    let mut blocks: Vec<BlockShare> = (0..used)
        .map(|block| {
            let at = (block as f64 + 0.5) / used as f64 * small.len() as f64;
            let (hot, cold) = small[(at as usize).min(small.len() - 1)];
            let hot = (hot * slots).round();
            BlockShare {
                hot: hot as u16,
                cold: (cold * slots).round().min(slots - hot) as u16,
            }
        })
        .collect();
    let hot = aged.hot_of(shape.live);
    settle_sum(&mut blocks, shape.slots_per_block, hot, |block| {
        (&mut block.hot, block.cold)
    });
    let cold = shape.live - hot;
    settle_sum(&mut blocks, shape.slots_per_block, cold, |block| {
        (&mut block.cold, block.hot)
    });
    blocks
}

/// Corrects what rounding has done to the sum of one kind, a slot a block at a
/// time, where there is some of that kind if that will do. `kind` gives its
/// count in a block, and that of the other.
fn settle_sum(
    blocks: &mut [BlockShare],
    most: u32,
    live: u32,
    kind: impl Fn(&mut BlockShare) -> (&mut u16, u16),
) {
    let mut sum: u32 = blocks.iter_mut().map(|block| *kind(block).0 as u32).sum();
    let mut anywhere = false;
    while sum != live {
        let before = sum;
        for block in blocks.iter_mut() {
            let (count, other) = kind(block);
            if sum < live && ((*count + other) as u32) < most && (*count > 0 || anywhere) {
                *count += 1;
                sum += 1;
            } else if sum > live && *count > 0 {
                *count -= 1;
                sum -= 1;
            }
        }
        anywhere = sum == before;
    }
}

/// A plane reduced to counts: which block holds a slot, and how many each holds.
struct Small {
    slots: u32,
    blocks: u32,
    valid: Vec<u32>,
    filled_at: Vec<u32>,
    full: Vec<bool>,
    holder: Vec<u32>,
    /// Slots written to a block so far, in order, to find what to move.
    content: Vec<u32>,
    free: Vec<u32>,
    open: [(u32, u32); 2],
    fills: u32,
}

impl Small {
    /// Overwrites a small plane of the real one's proportions and returns the
    /// shares of hot and cold valid slots of its used blocks, as they were
    /// filled.
    fn overwritten(
        shape: PlaneShape,
        policy: GcPolicy,
        aged: &AgedSpec,
        rng: &mut Rng,
    ) -> Vec<(f64, f64)> {
        let slots = shape.slots_per_block.min(SLOTS);
        let blocks = shape.blocks.clamp(8, BLOCKS);
        let share = shape.live as f64 / (shape.blocks as f64 * shape.slots_per_block as f64);
        let spare = (shape.free as f64 * blocks as f64 / shape.blocks as f64).round() as u32;
        let free = spare.max(3);
        let most = (blocks - free - 2) * slots;
        let live = ((share * (blocks * slots) as f64).round() as u32).clamp(1, most);
        let mut small = Small {
            slots,
            blocks,
            valid: vec![0; blocks as usize],
            filled_at: vec![0; blocks as usize],
            full: vec![false; blocks as usize],
            holder: vec![u32::MAX; live as usize],
            content: vec![u32::MAX; (blocks * slots) as usize],
            free: (2..blocks).rev().collect(),
            open: [(0, 0), (1, 0)],
            fills: 0,
        };
        for slot in 0..live {
            small.write(slot, 0);
        }
        for _ in 0..live as u64 * PASSES as u64 {
            small.write(aged.draw(live, rng), 0);
            while (small.free.len() as u32) < free {
                if !small.collect(policy, rng) {
                    break;
                }
            }
        }
        small.shares(aged.hot_of(live))
    }

    fn shares(&self, hot_slots: u32) -> Vec<(f64, f64)> {
        let mut hot = vec![0u32; self.blocks as usize];
        for holder in &self.holder[..hot_slots as usize] {
            hot[*holder as usize] += 1;
        }
        let mut full: Vec<usize> = (0..self.blocks as usize)
            .filter(|block| self.full[*block])
            .collect();
        full.sort_unstable_by_key(|block| self.filled_at[*block]);
        // What is in the open blocks belongs to blocks of the same kind.
        let in_full = |of: &dyn Fn(usize) -> u32| full.iter().map(|b| of(*b)).sum::<u32>() as f64;
        let hot_in_full = in_full(&|block| hot[block]).max(1.0);
        let cold_in_full = in_full(&|block| self.valid[block] - hot[block]).max(1.0);
        let cold_slots = self.holder.len() as f64 - hot_slots as f64;
        let hot_unit = hot_slots as f64 / hot_in_full / self.slots as f64;
        let cold_unit = cold_slots / cold_in_full / self.slots as f64;
        full.iter()
            .map(|block| {
                let hot_share = (hot[*block] as f64 * hot_unit).min(1.0);
                let cold_share = (self.valid[*block] - hot[*block]) as f64 * cold_unit;
                (hot_share, cold_share.min(1.0 - hot_share))
            })
            .collect()
    }

    fn write(&mut self, slot: u32, stream: usize) {
        let (block, used) = self.open[stream];
        let before = std::mem::replace(&mut self.holder[slot as usize], block);
        if before != u32::MAX {
            self.valid[before as usize] -= 1;
        }
        self.valid[block as usize] += 1;
        self.content[(block * self.slots + used) as usize] = slot;
        self.open[stream].1 += 1;
        if used + 1 == self.slots {
            self.fills += 1;
            self.filled_at[block as usize] = self.fills;
            self.full[block as usize] = true;
            if let Some(next) = self.free.pop() {
                self.open[stream] = (next, 0);
            }
        }
    }

    /// Empties one block; `false` where that would free nothing.
    fn collect(&mut self, policy: GcPolicy, rng: &mut Rng) -> bool {
        let Some(victim) = self.victim(policy, rng) else {
            return false;
        };
        self.full[victim as usize] = false;
        for place in 0..self.slots {
            let slot = self.content[(victim * self.slots + place) as usize];
            // A slot that was written twice to the block is there twice; the
            // first move takes it away.
            if self.holder[slot as usize] == victim {
                self.write(slot, 1);
            }
        }
        self.free.insert(0, victim);
        true
    }

    fn victim(&self, policy: GcPolicy, rng: &mut Rng) -> Option<u32> {
        let valid = |block: &u32| self.valid[*block as usize];
        let full = |block: &u32| self.full[*block as usize] && valid(block) < self.slots;
        let least = || (0..self.blocks).filter(full).min_by_key(valid);
        let chosen = match policy {
            GcPolicy::Greedy => least(),
            GcPolicy::Choices(count) => (0..count)
                .map(|_| rng.below(self.blocks))
                .filter(full)
                .min_by_key(valid)
                .or_else(least),
            GcPolicy::Fifo => (0..self.blocks)
                .filter(full)
                .min_by_key(|block| self.filled_at[*block as usize]),
            GcPolicy::CostBenefit => (0..self.blocks).filter(full).max_by_key(|block| {
                let freed = (self.slots - valid(block)) as u64;
                let age = (self.fills - self.filled_at[*block as usize]) as u64 + 1;
                ((freed * age) << 16) / (2 * valid(block) as u64).max(1)
            }),
        }?;
        (valid(&chosen) < self.slots).then_some(chosen)
    }
}
