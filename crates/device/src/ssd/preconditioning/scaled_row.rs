//! A small model of the planes of a row (see [`crate::ssd::ftl::rows`]), overwritten until
//! it is steady: only the block of each slot, and the number of slots of each block.
//!
//! Like real planes these have open blocks for host data and for data that collection
//! moves, a victim, and as much free room as collection keeps under sustained writes.
//! Planes in step share all writes: data that one's collection moves goes to all of them
//! in turn. So a block of moved data mixes hot and cold data of as many victims as there
//! are planes, and write amplification is higher than that of a plane on its own.
//!
//! Collection is repeated here on counts alone ([`crate::ssd::ftl::Ftl::begin_collection`],
//! `move_slot` and `end_collection`), since an aged drive needs millions of writes: each
//! takes 910 instructions here, and 2145 through the translation layer in
//! [`crate::ssd::preconditioning::ageing`]. The choice of victims and the turns of planes
//! are shared ([`victim::choose`], [`first_place`]).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::Rng;
use crate::ssd::ftl::rows::first_place;
use crate::ssd::gc::victim;
use crate::ssd::preconditioning::ageing::{FreeTarget, draw};
use crate::ssd::spec::{AgedSpec, GcPolicy};

/// Most slots of a block, and blocks of a plane.
const MAX_SLOTS: u32 = 128;
const MAX_BLOCKS: u32 = 1024;
/// How often all data is overwritten, after which even a plane with little spare space is
/// steady.
const PASSES: u32 = 12;
/// The block of a slot that was not written.
const NOWHERE: u32 = u32::MAX;

/// The size of a plane of the drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneShape {
    pub(crate) blocks: u32,
    pub(crate) slots_per_block: u32,
    /// Slots of one program, which is written as a whole.
    pub(crate) slots_per_step: u32,
    /// Its slots that hold data.
    pub(crate) live: u32,
    pub(crate) room: FreeTarget,
    /// Free blocks that the host may not open.
    pub(crate) reserve: u32,
    /// Planes of the drive, over which ages are counted in blocks filled.
    pub(crate) planes: u32,
    /// Planes that are filled in step with each other.
    pub(crate) planes_per_row: u32,
}

/// The content of a block, as shares of its slots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shares {
    pub(crate) hot: f64,
    pub(crate) cold: f64,
    /// How far it is written; of a victim, how far it has been examined.
    pub(crate) reached: f64,
    /// Of a victim: its valid slots when its collection began.
    pub(crate) collected: f64,
    /// Blocks of its plane filled since it was, as a share of the plane's blocks.
    pub(crate) age: f64,
}

/// A plane at one moment.
pub(crate) struct Snapshot {
    /// Full blocks, in the order in which they were filled.
    pub(crate) full: Vec<Shares>,
    /// The open blocks for host data and for data that collection moves.
    pub(crate) open: [Option<Shares>; 2],
    pub(crate) victim: Option<Shares>,
    /// Blocks of the plane, its free ones, and its free target.
    pub(crate) blocks: u32,
    pub(crate) free: u32,
    pub(crate) room: FreeTarget,
    /// Free room beyond the target, in blocks, as far as it makes up for the lack of other
    /// planes of the row.
    pub(crate) ahead: f64,
}

/// The streams: host data, and data that collection moves.
const HOST: usize = 0;
const COLLECTION: usize = 1;

/// The block being collected.
#[derive(Clone, Copy)]
struct Victim {
    block: u32,
    /// Valid slots that it had when its collection began.
    initially_valid: u32,
    /// The first of its slots that has not been examined.
    next: u32,
}

/// One plane of the row. Blocks are numbered over all planes.
#[derive(Clone)]
struct SmallPlane {
    free: Vec<u32>,
    /// The open block of each stream, and its written slots.
    open: [Option<(u32, u32)>; 2],
    victim: Option<Victim>,
}

/// A small row of planes.
pub(crate) struct SmallRow {
    /// Slots of a block.
    slots: u32,
    /// Blocks of a plane.
    blocks: u32,
    policy: GcPolicy,
    room: FreeTarget,
    /// Free blocks that the host may not open.
    reserve: usize,
    /// Rows of the drive.
    rows: u64,
    planes: Vec<SmallPlane>,
    /// By block: valid slots, when it was filled, and whether it is full.
    valid: Vec<u32>,
    filled_at: Vec<u32>,
    full: Vec<bool>,
    /// By slot: its block.
    holder: Vec<u32>,
    /// The slots written to each block, in order.
    content: Vec<u32>,
    fills: u32,
}

impl SmallRow {
    /// A small row with the proportions of the real one, after long overwriting.
    pub(crate) fn overwritten(
        shape: PlaneShape,
        policy: GcPolicy,
        aged: &AgedSpec,
        rng: &mut Rng,
    ) -> SmallRow {
        let slots = shape.slots_per_block.min(MAX_SLOTS);
        let blocks = shape.blocks.clamp(8, MAX_BLOCKS);
        let share = shape.live as f64 / (shape.blocks as f64 * shape.slots_per_block as f64);
        let scale =
            |real: u32| libm::round(real as f64 * blocks as f64 / shape.blocks as f64) as u32;
        let reserve = scale(shape.reserve).max(1);
        let room = shape.room.of(|real| scale(real).max(reserve + 1));
        let most = (blocks - room.blocks() - 2) * slots;
        let live = (libm::round(share * (blocks * slots) as f64) as u32).clamp(1, most);
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

    /// Slots of one block in every plane.
    pub(crate) fn slots(&self) -> u32 {
        self.slots * self.planes.len() as u32
    }

    /// Carries out random writes, and the collection that they cause.
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

    /// The plane that should be collected first; `None` while the row meets its free target.
    fn plane_that_lacks_room(&self) -> Option<usize> {
        let first = self.in_turn(HOST);
        let state = &self.planes[first];
        if state.open[HOST].is_none() && state.free.len() <= self.reserve {
            return Some(first);
        }
        let mut row = 0..self.planes.len();
        match self.room {
            // A collection that has begun is carried to its end.
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

    /// Free slots of a plane, including the gain of its collection.
    fn free_slots(&self, plane: usize) -> u32 {
        let state = &self.planes[plane];
        let open = state.open.iter().flatten();
        let open: u32 = open.map(|open| self.slots - open.1).sum();
        state.free.len() as u32 * self.slots + open + state.victim.map_or(0, |v| self.gained(v))
    }

    /// The gain of a collection, as in [`crate::ssd::ftl::Ftl::room`].
    fn gained(&self, victim: Victim) -> u32 {
        let left = self.valid[victim.block as usize];
        let all = victim.initially_valid.max(1);
        self.slots * (all - left) / all
    }

    /// The plane that takes a stream's next slot, as [`crate::ssd::ftl::Ftl::in_turn`].
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

    /// The same without planes that have no block left.
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

    /// Moves one slot of a plane's victim, or erases the victim if it has none left.
    /// `false` where there is no block worth collecting.
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
            initially_valid: self.valid[block as usize],
            next: 0,
        }
    }

    /// Moves the next valid slot of a victim.
    fn move_slot(&mut self, plane: usize, victim: Victim) {
        let first = victim.block * self.slots;
        let mut place = victim.next;
        loop {
            let slot = self.content[(first + place) as usize];
            place += 1;
            // A slot that was written to the block twice is moved only once.
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
            // The reserve keeps one for collection.
            None => (
                state.free.pop().expect("a free block is kept in reserve"),
                0,
            ),
        };
        let is_full = used + 1 == self.slots;
        state.open[stream] = (!is_full).then_some((block, used + 1));
        let before = core::mem::replace(&mut self.holder[slot as usize], block);
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

    /// Room for moved slots in the row's open blocks and its reserve, less what is still to
    /// be moved of victims.
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

    /// The next victim of a plane.
    fn choose(&self, plane: usize, rng: &mut Rng) -> Option<u32> {
        let most = self.room_to_move().min(self.slots - 1);
        let blocks = BlocksOf { row: self, plane };
        victim::choose(&blocks, self.policy, most, rng)
    }

    /// By how many blocks a plane's free room exceeds its target, less its share of what the
    /// whole row exceeds it by.
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
                collected: part(victim.initially_valid),
                ..shares(victim.block)
            }),
        }
    }
}

/// The blocks of a plane of the row.
struct BlocksOf<'a> {
    row: &'a SmallRow,
    plane: usize,
}

impl victim::Candidates for BlocksOf<'_> {
    fn blocks(&self) -> Range<u32> {
        let first = self.plane as u32 * self.row.blocks;
        first..first + self.row.blocks
    }

    fn drawable(&self) -> u32 {
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

    /// Erases are not counted here.
    fn wear(&self, _: u32) -> u32 {
        0
    }
}
