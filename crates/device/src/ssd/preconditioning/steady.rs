//! The state of planes after long random overwriting.
//!
//! How valid data is distributed over blocks in the steady state depends on the
//! spare space, the choice of victims and the pattern of writes, and hardly on the
//! size or number of blocks (Van Houdt, "A mean field model for a class of garbage
//! collection algorithms in flash-based solid state drives", SIGMETRICS 2013). So a
//! small plane, or a row of them where planes are filled in step, is overwritten
//! until it is steady, which takes milliseconds, and its state is scaled up to the
//! real size: full blocks in the order in which they were filled, the two open blocks
//! and the victim.
//!
//! Rows of a drive are at different moments of the steady state, so several snapshots
//! of the small one are taken.

use alloc::vec::Vec;

use crate::Rng;
use crate::ssd::ftl::scattered::{BlockContent, PlaneState};
use crate::ssd::preconditioning::ageing::FreeTarget;
use crate::ssd::preconditioning::scaled_row::{PlaneShape, Shares, SmallRow, Snapshot};
use crate::ssd::spec::{AgedSpec, GcPolicy};

/// The planes of `count` rows in the steady state, each row at another moment.
pub(crate) fn planes(
    shape: PlaneShape,
    policy: GcPolicy,
    aged: &AgedSpec,
    count: u32,
    rng: &mut Rng,
) -> Vec<PlaneState> {
    let mut small = SmallRow::overwritten(shape, policy, aged, rng);
    // First-in first-out goes through its blocks in a fixed round: the start is random in
    // that, and in how far blocks are written.
    let begin = rng.below(small.all_slots());
    small.overwrite(begin as u64, aged, rng);
    (0..count)
        .flat_map(|_| {
            let writes = small.all_slots() / count + rng.below(small.slots());
            small.overwrite(writes as u64, aged, rng);
            let planes = small.snapshots(aged).into_iter();
            planes.map(|plane| scaled_up(&plane, shape, aged))
        })
        .collect()
}

/// A plane of the real size in the state of a small one.
fn scaled_up(small: &Snapshot, shape: PlaneShape, aged: &AgedSpec) -> PlaneState {
    let victim = small
        .victim
        .as_ref()
        .map(|victim| (shape.victim(victim), shape.slots(victim.collected).max(1)));
    let open = small.open.map(|open| open.map(|open| shape.open(&open)));
    // Free blocks below the target are as many as in the small plane; those above it,
    // where little was written, are scaled.
    let room = shape.room.blocks();
    let free = match small.free.checked_sub(small.room.blocks()) {
        Some(more) => room + (more as u64 * shape.blocks as u64 / small.blocks as u64) as u32,
        None => room.saturating_sub(small.room.blocks() - small.free),
    };
    let others = open.iter().flatten().count() + victim.iter().count();
    let full = shape.blocks.saturating_sub(free + others as u32);
    let quantile = |block: u32| {
        let at = (block as f64 + 0.5) / full as f64 * small.full.len() as f64;
        let shares = small.full.get(at as usize).or(small.full.last());
        shares.copied().unwrap_or_default()
    };
    let mut state = PlaneState {
        full: (0..full).map(|b| shape.full(&quantile(b))).collect(),
        victim,
        open,
    };
    balance(&mut state, shape, free, small.ahead);
    correct_sums(&mut state, shape, aged.hot_of(shape.live));
    state
}

/// Corrects the rounding error in the room of a plane with `free` free blocks, by how much
/// of its victim is still to be moved.
fn balance(state: &mut PlaneState, shape: PlaneShape, free: u32, ahead: f64) {
    let (FreeTarget::Slots(blocks), Some((victim, initially_valid))) =
        (shape.room, &mut state.victim)
    else {
        return;
    };
    let slots = f64::from(shape.slots_per_block);
    let left = |open: &BlockContent| slots - f64::from(open.to);
    let open: f64 = state.open.iter().flatten().map(left).sum();
    let gained = (f64::from(blocks) + ahead - f64::from(free)) * slots - open;
    let moved = libm::ceil(gained * f64::from(*initially_valid) / slots);
    victim.keep(*initially_valid - moved.clamp(0.0, f64::from(*initially_valid)) as u32);
}

/// Corrects the rounding errors in the sums of hot and cold slots.
fn correct_sums(state: &mut PlaneState, shape: PlaneShape, hot: u32) {
    let (mut hot, mut cold) = (hot, shape.live - hot);
    let victim = state.victim.iter_mut().map(|victim| &mut victim.0);
    for block in state.open.iter_mut().flatten().chain(victim) {
        block.hot = block.hot.min(hot.min(u16::MAX as u32) as u16);
        block.cold = block.cold.min(cold.min(u16::MAX as u32) as u16);
        hot -= block.hot as u32;
        cold -= block.cold as u32;
    }
    let most = shape.slots_per_block;
    correct_sum(&mut state.full, most, hot, |b| (&mut b.hot, b.cold));
    correct_sum(&mut state.full, most, cold, |b| (&mut b.cold, b.hot));
}

impl PlaneShape {
    fn slots(&self, part: f64) -> u32 {
        libm::round(part * self.slots_per_block as f64) as u32
    }

    fn block(&self, shares: &Shares, from: u32, to: u32) -> BlockContent {
        let hot = self.slots(shares.hot).min(to - from);
        BlockContent {
            hot: hot as u16,
            cold: self.slots(shares.cold).min(to - from - hot) as u16,
            from: from as u16,
            to: to as u16,
            age: (shares.age * self.blocks as f64) as u32,
        }
    }

    fn full(&self, shares: &Shares) -> BlockContent {
        self.block(shares, 0, self.slots_per_block)
    }

    fn open(&self, shares: &Shares) -> BlockContent {
        let written = self.slots(shares.reached);
        let written = written - written % self.slots_per_step;
        // An open block has at least one program left.
        let most = self.slots_per_block - self.slots_per_step;
        self.block(shares, 0, written.min(most))
    }

    fn victim(&self, shares: &Shares) -> BlockContent {
        // The valid slots must fit behind the part that was examined.
        let valid = self.slots(shares.hot) + self.slots(shares.cold);
        let from = self.slots(shares.reached);
        let from = from.min(self.slots_per_block.saturating_sub(valid));
        self.block(shares, from, self.slots_per_block)
    }
}

/// Brings the sum of one kind of slots to `wanted`, one slot a block at a time: in blocks
/// that have some of that kind, or in any block if these do not suffice. `kind` gives the
/// count of the kind in a block, and that of the other.
fn correct_sum(
    blocks: &mut [BlockContent],
    most: u32,
    wanted: u32,
    kind: impl Fn(&mut BlockContent) -> (&mut u16, u16),
) {
    let mut sum: u32 = blocks.iter_mut().map(|block| *kind(block).0 as u32).sum();
    let mut anywhere = false;
    while sum != wanted {
        let before = sum;
        for block in blocks.iter_mut() {
            let (count, other) = kind(block);
            if sum < wanted && ((*count + other) as u32) < most && (*count > 0 || anywhere) {
                *count += 1;
                sum += 1;
            } else if sum > wanted && *count > 0 {
                *count -= 1;
                sum -= 1;
            }
        }
        anywhere = sum == before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An open block is written up to the end of a program, and not to its own end, where it would
    /// be closed.
    #[test]
    fn an_open_block_ends_with_a_program_and_has_one_left() {
        let shape = PlaneShape {
            blocks: 100,
            slots_per_block: 60,
            slots_per_step: 6,
            live: 4_000,
            room: FreeTarget::Blocks(4),
            reserve: 1,
            planes: 4,
            planes_per_row: 1,
        };
        for (reached, to) in [
            (0.0, 0),
            (0.09, 0),
            (0.11, 6),
            (0.5, 30),
            (0.98, 54),
            (1.0, 54),
        ] {
            let shares = Shares {
                hot: 0.75,
                cold: 0.5,
                reached,
                ..Shares::default()
            };
            let open = shape.open(&shares);
            assert_eq!((open.from, open.to), (0, to), "{reached}");
            assert!(open.hot + open.cold <= to, "{open:?}");
        }
    }
}
