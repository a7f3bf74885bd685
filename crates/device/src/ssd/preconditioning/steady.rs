//! What planes look like after long random overwriting.
//!
//! How valid data spreads over blocks in the steady state depends on the spare
//! space, the choice of victims and the pattern of writes, and hardly on the
//! size of a block or on how many there are (Van Houdt, "A mean field model for
//! a class of garbage collection algorithms in flash-based solid state drives",
//! SIGMETRICS 2013). So a small plane, or a row of them where planes are filled
//! in step, is overwritten until it is steady, which takes milliseconds, and what
//! it then looks like is stretched to the real one: full blocks in their order,
//! the two blocks that are being written as far as they are, and the one that is
//! being emptied.
//!
//! No two rows are at the same point of that, so the small one is looked at
//! several times.

use crate::Rng;
use crate::ssd::ftl::scattered::{BlockContent, PlaneState};
use crate::ssd::preconditioning::scaled_row::{Shares, SmallRow, Snapshot};
use crate::ssd::spec::{AgedSpec, GcPolicy, SsdSpec};

/// How much of a plane collection leaves free, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FreeTarget {
    /// Erased blocks: a collection that is begun ends at once.
    Blocks(u32),
    /// Blocks' worth of slots, open blocks and what has been gained of the block
    /// being emptied included (see the working point of [`crate::ssd::gc::throttle`]).
    Slots(u32),
}

impl FreeTarget {
    /// How much of a plane is free at the start of an aged drive: as much as
    /// collection leaves under writes without pause.
    pub(crate) fn at_start(spec: &SsdSpec) -> FreeTarget {
        match spec.gc.preemptible {
            true => FreeTarget::Slots(spec.gc.working_point(1)),
            // The host stays as far ahead as it is.
            false if spec.gc.pace_bytes > 0 => FreeTarget::Blocks(spec.gc.start_blocks),
            // It runs ahead up to the reserve, and waits there for each block.
            false => FreeTarget::Slots(spec.gc.reserve_blocks + 1),
        }
    }

    pub(crate) fn blocks(self) -> u32 {
        match self {
            FreeTarget::Blocks(blocks) | FreeTarget::Slots(blocks) => blocks,
        }
    }

    /// The same of a plane of another size.
    pub(crate) fn of(self, scale: impl Fn(u32) -> u32) -> FreeTarget {
        match self {
            FreeTarget::Blocks(blocks) => FreeTarget::Blocks(scale(blocks)),
            FreeTarget::Slots(blocks) => FreeTarget::Slots(scale(blocks)),
        }
    }
}

/// The real plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneShape {
    pub(crate) blocks: u32,
    pub(crate) slots_per_block: u32,
    /// Slots that are programmed one after the other or not at all.
    pub(crate) slots_per_step: u32,
    /// Slots of it that hold data.
    pub(crate) live: u32,
    pub(crate) room: FreeTarget,
    /// Free blocks that the host may not open.
    pub(crate) reserve: u32,
    /// Planes of the drive, which count the blocks that they fill together.
    pub(crate) planes: u32,
    /// Those of them that are filled in step with each other.
    pub(crate) planes_per_row: u32,
}

/// The planes of `count` rows in the steady state, each row at another moment.
pub(crate) fn planes(
    shape: PlaneShape,
    policy: GcPolicy,
    aged: &AgedSpec,
    count: u32,
    rng: &mut Rng,
) -> Vec<PlaneState> {
    let mut small = SmallRow::overwritten(shape, policy, aged, rng);
    // First-in first-out never leaves the round that it goes through its blocks;
    // where it is in that is chance, and so is how far blocks are written.
    let begin = rng.below(small.all_slots());
    small.overwrite(begin as u64, aged, rng);
    (0..count)
        .flat_map(|_| {
            let writes = small.all_slots() / count + rng.below(small.slots());
            small.overwrite(writes as u64, aged, rng);
            let planes = small.snapshots(aged).into_iter();
            planes.map(|plane| stretched(&plane, shape, aged))
        })
        .collect()
}

/// A plane of the real size in the state of a small one.
fn stretched(small: &Snapshot, shape: PlaneShape, aged: &AgedSpec) -> PlaneState {
    let victim = small
        .victim
        .as_ref()
        .map(|victim| (shape.victim(victim), shape.slots(victim.collected).max(1)));
    let open = small.open.map(|open| open.map(|open| shape.open(&open)));
    // As many less than the room as the small plane has; where little was
    // written, in proportion more.
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

/// Corrects what rounding has done to the room that a plane with so many
/// free blocks has: by how much of its victim is still to be moved.
fn balance(state: &mut PlaneState, shape: PlaneShape, free: u32, ahead: f64) {
    let (FreeTarget::Slots(blocks), Some((victim, had))) = (shape.room, &mut state.victim) else {
        return;
    };
    let slots = f64::from(shape.slots_per_block);
    let left = |open: &BlockContent| slots - f64::from(open.to);
    let open: f64 = state.open.iter().flatten().map(left).sum();
    let gained = (f64::from(blocks) + ahead - f64::from(free)) * slots - open;
    let moved = (gained * f64::from(*had) / slots).ceil();
    victim.keep(*had - moved.clamp(0.0, f64::from(*had)) as u32);
}

/// Corrects what rounding has done to the sums of hot and cold slots.
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
        (part * self.slots_per_block as f64).round() as u32
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
        // A block that is written to its end is none that is being written.
        let most = self.slots_per_block - self.slots_per_step;
        self.block(shares, 0, written.min(most))
    }

    fn victim(&self, shares: &Shares) -> BlockContent {
        // What is left has room after what was looked through.
        let valid = self.slots(shares.hot) + self.slots(shares.cold);
        let from = self.slots(shares.reached);
        let from = from.min(self.slots_per_block.saturating_sub(valid));
        self.block(shares, from, self.slots_per_block)
    }
}

/// Brings the sum of one kind to `wanted`, a slot a block at a time, where there
/// is some of that kind if that will do. `kind` gives its count in a block, and
/// that of the other.
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
