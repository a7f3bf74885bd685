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

/// Valid slots of every block that is not free in the steady state; their sum
/// is `shape.live`.
pub(crate) fn valid_counts(
    shape: PlaneShape,
    policy: GcPolicy,
    aged: &AgedSpec,
    rng: &mut Rng,
) -> Vec<u16> {
    let small = Small::overwritten(shape, policy, aged, rng);
    let used = (shape.blocks - shape.free) as usize;
    let mut counts: Vec<u16> = (0..used)
        .map(|block| {
            let at = (block as f64 + 0.5) / used as f64 * small.len() as f64;
            let share = small[(at as usize).min(small.len() - 1)];
            (share * shape.slots_per_block as f64).round() as u16
        })
        .collect();
    settle_sum(&mut counts, shape);
    // Where in the plane a block with much or little valid data is, is chance.
    for place in (1..counts.len()).rev() {
        counts.swap(place, rng.below(place as u32 + 1) as usize);
    }
    counts
}

/// Corrects what rounding has done to the sum, a slot a block at a time.
fn settle_sum(counts: &mut [u16], shape: PlaneShape) {
    let mut sum: u64 = counts.iter().map(|count| *count as u64).sum();
    let most = shape.slots_per_block as u16;
    while sum != shape.live as u64 {
        for count in counts.iter_mut() {
            if sum < shape.live as u64 && *count < most {
                *count += 1;
                sum += 1;
            } else if sum > shape.live as u64 && *count > 0 {
                *count -= 1;
                sum -= 1;
            }
        }
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
    /// shares of valid slots of its used blocks, least first.
    fn overwritten(
        shape: PlaneShape,
        policy: GcPolicy,
        aged: &AgedSpec,
        rng: &mut Rng,
    ) -> Vec<f64> {
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
        let mut shares: Vec<u32> = (0..blocks as usize)
            .filter(|block| small.full[*block])
            .map(|block| small.valid[block])
            .collect();
        shares.sort_unstable();
        shares
            .iter()
            .map(|valid| *valid as f64 / slots as f64)
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
        let full = |block: &u32| self.full[*block as usize];
        let valid = |block: &u32| self.valid[*block as usize];
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
