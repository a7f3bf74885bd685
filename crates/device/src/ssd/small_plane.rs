//! A plane reduced to counts, overwritten until it is steady: which block holds
//! a slot, and how many each holds.
//!
//! It keeps what a real plane keeps: a block that takes the host's data and one
//! that takes what collection moves, the block being emptied, and as much room
//! as collection leaves under writes without pause.

use super::rng::Rng;
use super::spec::{AgedSpec, GcPolicy};
use super::steady::{PlaneShape, Room};

/// Its slots a block and blocks, at most.
const SLOTS: u32 = 128;
const BLOCKS: u32 = 1024;
/// How often its whole content is overwritten, by when even a tight plane is
/// steady.
const PASSES: u32 = 12;
/// No slot is anywhere.
const NOWHERE: u32 = u32::MAX;

/// What a block holds, in parts of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    pub(super) hot: f64,
    pub(super) cold: f64,
    /// How far it is written; of a block being emptied, how far it has been
    /// looked through.
    pub(super) reached: f64,
    /// What was valid when its collection began.
    pub(super) collected: f64,
    /// Blocks filled since it was, in parts of the plane's blocks.
    pub(super) age: f64,
}

/// The plane at one moment.
pub(super) struct Snapshot {
    /// Full blocks, in the order in which they were filled.
    pub(super) full: Vec<Shares>,
    /// The blocks that take the host's data and what collection moves.
    pub(super) open: [Option<Shares>; 2],
    /// The block being emptied.
    pub(super) victim: Option<Shares>,
    /// Blocks, those of them that are erased, and what should be free.
    pub(super) blocks: u32,
    pub(super) free: u32,
    pub(super) room: Room,
}

/// The block being emptied.
#[derive(Clone, Copy)]
struct Victim {
    block: u32,
    /// Valid slots that it had.
    valid: u32,
    /// The next place to look at.
    next: u32,
}

pub(super) struct SmallPlane {
    slots: u32,
    blocks: u32,
    policy: GcPolicy,
    room: Room,
    /// Free blocks that the host may not open.
    reserve: usize,
    planes: u64,
    valid: Vec<u32>,
    filled_at: Vec<u32>,
    full: Vec<bool>,
    holder: Vec<u32>,
    /// Slots written to a block so far, in order, to find what to move.
    content: Vec<u32>,
    free: Vec<u32>,
    /// Block and slots written, of the host's data and of what is moved.
    open: [Option<(u32, u32)>; 2],
    victim: Option<Victim>,
    fills: u32,
}

impl SmallPlane {
    /// A plane of the real one's proportions, after long overwriting.
    pub(super) fn overwritten(
        shape: PlaneShape,
        policy: GcPolicy,
        aged: &AgedSpec,
        rng: &mut Rng,
    ) -> SmallPlane {
        let slots = shape.slots_per_block.min(SLOTS);
        let blocks = shape.blocks.clamp(8, BLOCKS);
        let share = shape.live as f64 / (shape.blocks as f64 * shape.slots_per_block as f64);
        let scale = |real: u32| (real as f64 * blocks as f64 / shape.blocks as f64).round() as u32;
        let reserve = scale(shape.reserve).max(1);
        let room = shape.room.of(|real| scale(real).max(reserve + 1));
        let most = (blocks - room.blocks() - 2) * slots;
        let live = ((share * (blocks * slots) as f64).round() as u32).clamp(1, most);
        let mut small = SmallPlane {
            slots,
            blocks,
            policy,
            room,
            reserve: reserve as usize,
            planes: shape.planes as u64,
            valid: vec![0; blocks as usize],
            filled_at: vec![0; blocks as usize],
            full: vec![false; blocks as usize],
            holder: vec![NOWHERE; live as usize],
            content: vec![NOWHERE; (blocks * slots) as usize],
            free: (0..blocks).rev().collect(),
            open: [None; 2],
            victim: None,
            fills: 0,
        };
        (0..live).for_each(|slot| small.put(slot, 0));
        small.overwrite(live as u64 * PASSES as u64, aged, rng);
        small
    }

    /// Slots that hold data.
    fn live(&self) -> u32 {
        self.holder.len() as u32
    }

    /// Slots of all blocks.
    pub(super) fn all_slots(&self) -> u32 {
        self.blocks * self.slots
    }

    /// Slots of a block.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// So many writes, and the collection that they cause.
    pub(super) fn overwrite(&mut self, writes: u64, aged: &AgedSpec, rng: &mut Rng) {
        for _ in 0..writes {
            while self.lacks_room() && self.move_one(rng) {}
            self.put(aged.draw(self.live(), rng), 0);
        }
        while self.lacks_room() && self.move_one(rng) {}
    }

    /// Whether the host has to wait for collection.
    fn lacks_room(&self) -> bool {
        if self.open[0].is_none() && self.free.len() <= self.reserve {
            return true;
        }
        match self.room {
            // A block that was begun is emptied to its end.
            Room::Blocks(blocks) => (self.free.len() as u32) < blocks || self.victim.is_some(),
            Room::Slots(blocks) => self.free_slots() < blocks * self.slots,
        }
    }

    /// Slots that can be written, with what the block being emptied has gained.
    fn free_slots(&self) -> u32 {
        let open = self.open.iter().flatten();
        let open: u32 = open.map(|open| self.slots - open.1).sum();
        self.free.len() as u32 * self.slots + open + self.victim.map_or(0, |v| self.gained(v))
    }

    /// As [`super::balance`] counts it.
    fn gained(&self, victim: Victim) -> u32 {
        let left = self.valid[victim.block as usize];
        let all = victim.valid.max(1);
        self.slots * (all - left) / all
    }

    /// Moves one slot, or erases the block that has none left. `false` where
    /// nothing could be gained.
    fn move_one(&mut self, rng: &mut Rng) -> bool {
        let victim = match self.victim {
            Some(victim) => victim,
            None => match self.choose(rng) {
                Some(block) => self.begin(block),
                None => return false,
            },
        };
        if self.valid[victim.block as usize] == 0 {
            self.free.insert(0, victim.block);
            self.victim = None;
            return true;
        }
        let first = victim.block * self.slots;
        let mut place = victim.next;
        loop {
            let slot = self.content[(first + place) as usize];
            place += 1;
            // A slot that was written twice to the block is there twice; the
            // first move takes it away.
            if self.holder[slot as usize] == victim.block {
                self.put(slot, 1);
                break;
            }
        }
        self.victim = Some(Victim {
            next: place,
            ..victim
        });
        true
    }

    fn begin(&mut self, block: u32) -> Victim {
        self.full[block as usize] = false;
        Victim {
            block,
            valid: self.valid[block as usize],
            next: 0,
        }
    }

    fn put(&mut self, slot: u32, stream: usize) {
        let (block, used) = match self.open[stream] {
            Some(open) => open,
            // The reserve keeps one for what is moved.
            None => (self.free.pop().expect("a free block is kept in reserve"), 0),
        };
        let before = std::mem::replace(&mut self.holder[slot as usize], block);
        if before != NOWHERE {
            self.valid[before as usize] -= 1;
        }
        self.valid[block as usize] += 1;
        self.content[(block * self.slots + used) as usize] = slot;
        self.open[stream] = Some((block, used + 1));
        if used + 1 == self.slots {
            self.fills += 1;
            self.filled_at[block as usize] = self.fills;
            self.full[block as usize] = true;
            self.open[stream] = None;
        }
    }

    /// The block to empty next, as [`super::gc::choose_victim`] has it.
    fn choose(&self, rng: &mut Rng) -> Option<u32> {
        let valid = |block: &u32| self.valid[*block as usize];
        // What is moved has room in what is left of the block for it and in the
        // reserve.
        let open = self.open[1].map_or(0, |(_, written)| self.slots - written);
        let reserve = self.free.len().min(self.reserve) as u32;
        let most = (open + reserve * self.slots).min(self.slots - 1);
        let full = |block: &u32| self.full[*block as usize] && valid(block) <= most;
        let least = || (0..self.blocks).filter(full).min_by_key(valid);
        match self.policy {
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
                let age = (self.fills - self.filled_at[*block as usize]) as u64 * self.planes + 1;
                ((freed * age) << 16) / (2 * valid(block) as u64).max(1)
            }),
        }
    }

    /// The plane as it is now.
    pub(super) fn snapshot(&self, aged: &AgedSpec) -> Snapshot {
        let mut hot = vec![0u32; self.blocks as usize];
        for holder in &self.holder[..aged.hot_of(self.live()) as usize] {
            hot[*holder as usize] += 1;
        }
        let part = |count: u32| count as f64 / self.slots as f64;
        let shares = |block: u32| Shares {
            hot: part(hot[block as usize]),
            cold: part(self.valid[block as usize] - hot[block as usize]),
            reached: 1.0,
            collected: 0.0,
            age: (self.fills - self.filled_at[block as usize]) as f64 / self.blocks as f64,
        };
        let mut full: Vec<u32> = (0..self.blocks)
            .filter(|block| self.full[*block as usize])
            .collect();
        full.sort_unstable_by_key(|block| self.filled_at[*block as usize]);
        Snapshot {
            full: full.into_iter().map(shares).collect(),
            open: self.open.map(|open| {
                open.map(|(block, written)| Shares {
                    reached: part(written),
                    ..shares(block)
                })
            }),
            blocks: self.blocks,
            free: self.free.len() as u32,
            room: self.room,
            victim: self.victim.map(|victim| Shares {
                reached: part(victim.next),
                collected: part(victim.valid),
                ..shares(victim.block)
            }),
        }
    }
}
