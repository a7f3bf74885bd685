//! The planes of a row (see [`crate::ssd::ftl::rows`]) reduced to counts, overwritten until
//! they are steady: which block holds a slot, and how many each holds.
//!
//! It keeps what real planes keep: a block that takes the host's data and one
//! that takes what collection moves, the block being emptied, and as much room
//! as collection leaves under writes without pause. Planes in step share all
//! that is written: what one's collection moves goes to all of them in turn. So
//! each block of moved data mixes what as many victims held as there are planes,
//! hot and cold, and amplification is higher than that of a plane on its own.
//!
//! It takes the steps of [`crate::ssd::ftl::Ftl::begin_collection`], `move_slot` and
//! `end_collection` itself, on counts alone: an aged drive needs millions of writes,
//! and each takes 910 instructions here and 2145 through the translation layer, as
//! [`crate::ssd::preconditioning::ageing`] has it. Victims and turns of planes are the
//! layer's own ([`victim::choose`], [`first_place`]).

use std::ops::Range;

use crate::Rng;
use crate::ssd::ftl::rows::first_place;
use crate::ssd::gc::victim;
use crate::ssd::preconditioning::ageing::draw;
use crate::ssd::preconditioning::steady::{FreeTarget, PlaneShape};
use crate::ssd::spec::{AgedSpec, GcPolicy};

/// Its slots a block and blocks a plane, at most.
const SLOTS: u32 = 128;
const BLOCKS: u32 = 1024;
/// How often its whole content is overwritten, by when even a tight plane is
/// steady.
const PASSES: u32 = 12;
/// No slot is anywhere.
const NOWHERE: u32 = u32::MAX;

/// What a block holds, in parts of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    pub(crate) hot: f64,
    pub(crate) cold: f64,
    /// How far it is written; of a block being emptied, how far it has been
    /// looked through.
    pub(crate) reached: f64,
    /// What was valid when its collection began.
    pub(crate) collected: f64,
    /// Blocks of its plane filled since it was, in parts of the plane's blocks.
    pub(crate) age: f64,
}

/// A plane at one moment.
pub(crate) struct Snapshot {
    /// Full blocks, in the order in which they were filled.
    pub(crate) full: Vec<Shares>,
    /// The blocks that take the host's data and what collection moves.
    pub(crate) open: [Option<Shares>; 2],
    /// The block being emptied.
    pub(crate) victim: Option<Shares>,
    /// Blocks, those of them that are erased, and what should be free.
    pub(crate) blocks: u32,
    pub(crate) free: u32,
    pub(crate) room: FreeTarget,
    /// Room beyond that, in blocks, as far as it makes up for what other planes
    /// of the row lack.
    pub(crate) ahead: f64,
}

/// The streams: the host's data, and what collection moves.
const HOST: usize = 0;
const COLLECTION: usize = 1;

/// The block being emptied.
#[derive(Clone, Copy)]
struct Victim {
    block: u32,
    /// Valid slots that it had.
    valid: u32,
    /// The next place to look at.
    next: u32,
}

/// One plane of the row. Blocks are counted over all of them.
#[derive(Clone)]
struct SmallPlane {
    free: Vec<u32>,
    /// Block and slots written, of each stream.
    open: [Option<(u32, u32)>; 2],
    victim: Option<Victim>,
}

pub(crate) struct SmallRow {
    slots: u32,
    /// Of a plane.
    blocks: u32,
    policy: GcPolicy,
    room: FreeTarget,
    /// Free blocks that the host may not open.
    reserve: usize,
    /// Rows of the drive.
    rows: u64,
    planes: Vec<SmallPlane>,
    valid: Vec<u32>,
    filled_at: Vec<u32>,
    full: Vec<bool>,
    holder: Vec<u32>,
    /// Slots written to a block so far, in order, to find what to move.
    content: Vec<u32>,
    fills: u32,
}

impl SmallRow {
    /// A row of the real one's proportions, after long overwriting.
    pub(crate) fn overwritten(
        shape: PlaneShape,
        policy: GcPolicy,
        aged: &AgedSpec,
        rng: &mut Rng,
    ) -> SmallRow {
        let slots = shape.slots_per_block.min(SLOTS);
        let blocks = shape.blocks.clamp(8, BLOCKS);
        let share = shape.live as f64 / (shape.blocks as f64 * shape.slots_per_block as f64);
        let scale = |real: u32| (real as f64 * blocks as f64 / shape.blocks as f64).round() as u32;
        let reserve = scale(shape.reserve).max(1);
        let room = shape.room.of(|real| scale(real).max(reserve + 1));
        let most = (blocks - room.blocks() - 2) * slots;
        let live = ((share * (blocks * slots) as f64).round() as u32).clamp(1, most);
        let planes = shape.planes_per_row;
        let plane = |number: u32| SmallPlane {
            free: (number * blocks..(number + 1) * blocks).rev().collect(),
            open: [None; 2],
            victim: None,
        };
        let all = (blocks * planes) as usize;
        let mut small = SmallRow {
            slots,
            blocks,
            policy,
            room,
            reserve: reserve as usize,
            rows: (shape.planes / planes) as u64,
            planes: (0..planes).map(plane).collect(),
            valid: vec![0; all],
            filled_at: vec![0; all],
            full: vec![false; all],
            holder: vec![NOWHERE; (live * planes) as usize],
            content: vec![NOWHERE; all * slots as usize],
            fills: 0,
        };
        (0..small.live()).for_each(|slot| small.put(slot, HOST));
        let writes = small.live() as u64 * PASSES as u64;
        small.overwrite(writes, aged, rng);
        small
    }

    /// Slots that hold data.
    fn live(&self) -> u32 {
        self.holder.len() as u32
    }

    /// Slots of all blocks.
    pub(crate) fn all_slots(&self) -> u32 {
        self.content.len() as u32
    }

    /// Slots of a block of every plane.
    pub(crate) fn slots(&self) -> u32 {
        self.slots * self.planes.len() as u32
    }

    /// Carries out writes, and the collection that they cause.
    pub(crate) fn overwrite(&mut self, writes: u64, aged: &AgedSpec, rng: &mut Rng) {
        for _ in 0..writes {
            self.make_room(rng);
            self.put(draw(aged, self.live(), rng), HOST);
        }
        self.make_room(rng);
    }

    fn make_room(&mut self, rng: &mut Rng) {
        while let Some(plane) = self.plane_that_lacks_room()
            && self.collect(plane, rng)
        {}
    }

    /// The plane that should be collected first, where the host has to wait for
    /// collection.
    fn plane_that_lacks_room(&self) -> Option<usize> {
        let first = self.in_turn(HOST);
        let state = &self.planes[first];
        if state.open[HOST].is_none() && state.free.len() <= self.reserve {
            return Some(first);
        }
        let mut row = 0..self.planes.len();
        match self.room {
            // A block that was begun is emptied to its end.
            FreeTarget::Blocks(blocks) => row.find(|plane| {
                let state = &self.planes[*plane];
                (state.free.len() as u32) < blocks || state.victim.is_some()
            }),
            FreeTarget::Slots(blocks) => {
                let room: u32 = row.clone().map(|plane| self.free_slots(plane)).sum();
                let emptiest = row.min_by_key(|plane| self.free_slots(*plane));
                emptiest.filter(|_| room < blocks * self.slots())
            }
        }
    }

    /// Slots of a plane that can be written, with what the block being emptied
    /// has gained.
    fn free_slots(&self, plane: usize) -> u32 {
        let state = &self.planes[plane];
        let open = state.open.iter().flatten();
        let open: u32 = open.map(|open| self.slots - open.1).sum();
        state.free.len() as u32 * self.slots + open + state.victim.map_or(0, |v| self.gained(v))
    }

    /// As [`crate::ssd::gc::throttle`] counts it.
    fn gained(&self, victim: Victim) -> u32 {
        let left = self.valid[victim.block as usize];
        let all = victim.valid.max(1);
        self.slots * (all - left) / all
    }

    /// The plane that takes a stream's next slot, as [`crate::ssd::ftl::rows`] has it.
    fn in_turn(&self, stream: usize) -> usize {
        if self.planes.len() == 1 {
            return 0;
        }
        let open = |plane: &usize| self.planes[*plane].open[stream];
        let row = 0..self.planes.len();
        let farthest = row.clone().filter_map(|plane| open(&plane));
        let farthest = farthest.map(|open| open.1).max().unwrap_or(0);
        let closed = match farthest * 2 > self.slots {
            true => self.slots,
            false => 0,
        };
        let planes = self.planes.len() as u32;
        let turn = |plane: usize| {
            let place = open(&plane).map_or(0, |open| open.1);
            (plane as u32 + planes - first_place(place, planes)) % planes
        };
        row.min_by_key(|plane| (open(plane).map_or(closed, |open| open.1), turn(*plane)))
            .unwrap_or(0)
    }

    /// The same where a plane without a block left is passed over.
    fn plane_for(&self, stream: usize) -> usize {
        let first = self.in_turn(stream);
        let has_place = |plane: &usize| {
            let state = &self.planes[*plane];
            state.open[stream].is_some() || !state.free.is_empty()
        };
        match has_place(&first) {
            true => first,
            false => (0..self.planes.len()).find(has_place).unwrap_or(first),
        }
    }

    /// Moves one slot of a plane, or erases its block that has none left. `false`
    /// where nothing could be gained.
    fn collect(&mut self, plane: usize, rng: &mut Rng) -> bool {
        let victim = match self.planes[plane].victim {
            Some(victim) => victim,
            None => match self.choose(plane, rng) {
                Some(block) => self.begin_collection(block),
                None => return false,
            },
        };
        match self.valid[victim.block as usize] {
            0 => self.end_collection(plane, victim),
            _ => self.move_slot(plane, victim),
        }
        true
    }

    fn begin_collection(&mut self, block: u32) -> Victim {
        self.full[block as usize] = false;
        Victim {
            block,
            valid: self.valid[block as usize],
            next: 0,
        }
    }

    /// Gives the next slot that is valid a new place.
    fn move_slot(&mut self, plane: usize, victim: Victim) {
        let first = victim.block * self.slots;
        let mut place = victim.next;
        loop {
            let slot = self.content[(first + place) as usize];
            place += 1;
            // A slot that was written twice to the block is there twice; the
            // first move takes it away.
            if self.holder[slot as usize] == victim.block {
                self.put(slot, COLLECTION);
                break;
            }
        }
        self.planes[plane].victim = Some(Victim {
            next: place,
            ..victim
        });
    }

    fn end_collection(&mut self, plane: usize, victim: Victim) {
        let state = &mut self.planes[plane];
        state.free.insert(0, victim.block);
        state.victim = None;
    }

    fn put(&mut self, slot: u32, stream: usize) {
        let plane = self.plane_for(stream);
        let state = &mut self.planes[plane];
        let (block, used) = match state.open[stream] {
            Some(open) => open,
            // The reserve keeps one for what is moved.
            None => (
                state.free.pop().expect("a free block is kept in reserve"),
                0,
            ),
        };
        let is_full = used + 1 == self.slots;
        state.open[stream] = (!is_full).then_some((block, used + 1));
        let before = std::mem::replace(&mut self.holder[slot as usize], block);
        if before != NOWHERE {
            self.valid[before as usize] -= 1;
        }
        self.valid[block as usize] += 1;
        self.content[(block * self.slots + used) as usize] = slot;
        if is_full {
            self.fills += 1;
            self.filled_at[block as usize] = self.fills;
            self.full[block as usize] = true;
        }
    }

    /// Slots that may be moved: what there is for them in the row's blocks and
    /// in its reserve, less what is still to be moved of blocks being emptied.
    fn room_to_move(&self) -> u32 {
        let room = |state: &SmallPlane| {
            let open = state.open[COLLECTION].map_or(0, |(_, written)| self.slots - written);
            open + state.free.len().min(self.reserve) as u32 * self.slots
        };
        let room: u32 = self.planes.iter().map(room).sum();
        let victims = self.planes.iter().filter_map(|state| state.victim);
        let reserved_slots: u32 = victims
            .map(|victim| self.valid[victim.block as usize])
            .sum();
        room.saturating_sub(reserved_slots)
    }

    /// The block to empty next.
    fn choose(&self, plane: usize, rng: &mut Rng) -> Option<u32> {
        let most = self.room_to_move().min(self.slots - 1);
        let blocks = BlocksOf { row: self, plane };
        victim::choose(&blocks, self.policy, most, rng)
    }

    /// How much more room a plane has than it should, in blocks, less its part
    /// of what the row has more: that is but for the size of a slot.
    fn ahead(&self, plane: usize) -> f64 {
        let point = (self.room.blocks() * self.slots) as f64;
        let all: u32 = (0..self.planes.len()).map(|p| self.free_slots(p)).sum();
        let more = (all as f64 / self.planes.len() as f64 - point).max(0.0);
        (self.free_slots(plane) as f64 - point - more) / self.slots as f64
    }

    /// The planes as they are now.
    pub(crate) fn snapshots(&self, aged: &AgedSpec) -> Vec<Snapshot> {
        let mut hot = vec![0u32; self.valid.len()];
        for holder in &self.holder[..aged.hot_of(self.live()) as usize] {
            hot[*holder as usize] += 1;
        }
        (0..self.planes.len())
            .map(|plane| self.snapshot(plane, &hot))
            .collect()
    }

    /// A plane; `hot` are the hot slots of every block.
    fn snapshot(&self, plane: usize, hot: &[u32]) -> Snapshot {
        let state = &self.planes[plane];
        let part = |count: u32| count as f64 / self.slots as f64;
        let all_blocks = self.valid.len() as f64;
        let shares = |block: u32| Shares {
            hot: part(hot[block as usize]),
            cold: part(self.valid[block as usize] - hot[block as usize]),
            reached: 1.0,
            collected: 0.0,
            age: (self.fills - self.filled_at[block as usize]) as f64 / all_blocks,
        };
        let first = plane as u32 * self.blocks;
        let mut full: Vec<u32> = (first..first + self.blocks)
            .filter(|block| self.full[*block as usize])
            .collect();
        full.sort_unstable_by_key(|block| self.filled_at[*block as usize]);
        Snapshot {
            full: full.into_iter().map(shares).collect(),
            open: state.open.map(|open| {
                open.map(|(block, written)| Shares {
                    reached: part(written),
                    ..shares(block)
                })
            }),
            blocks: self.blocks,
            free: state.free.len() as u32,
            room: self.room,
            ahead: self.ahead(plane),
            victim: state.victim.map(|victim| Shares {
                reached: part(victim.next),
                collected: part(victim.valid),
                ..shares(victim.block)
            }),
        }
    }
}

/// What a plane of the row has to choose from.
struct BlocksOf<'a> {
    row: &'a SmallRow,
    plane: usize,
}

impl victim::Candidates for BlocksOf<'_> {
    fn blocks(&self) -> Range<u32> {
        let first = self.plane as u32 * self.row.blocks;
        first..first + self.row.blocks
    }

    fn drawn(&self) -> u32 {
        self.row.blocks
    }

    fn is_collectable(&self, block: u32) -> bool {
        self.row.full[block as usize]
    }

    fn valid(&self, block: u32) -> u32 {
        self.row.valid[block as usize]
    }

    fn slots(&self) -> u32 {
        self.row.slots
    }

    fn filled(&self, block: u32) -> u32 {
        self.row.filled_at[block as usize]
    }

    fn age(&self, block: u32) -> u64 {
        (self.row.fills - self.filled(block)) as u64 * self.row.rows
    }

    /// It counts no erases.
    fn wear(&self, _: u32) -> u32 {
        0
    }
}
