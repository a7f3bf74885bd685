//! Ages a drive by carrying out every write, in no simulated time: the reference that
//! the short way ([`crate::ssd::preconditioning::steady`]) is checked against.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::occupied_slots;
use crate::Rng;
use crate::ssd::ftl::{Ftl, Stream, Victim};
use crate::ssd::gc::victim::choose_victim;
use crate::ssd::spec::{AgedSpec, SsdSpec};

/// How often the whole address space is overwritten.
const PASSES: u64 = 12;

/// How much of a plane collection keeps free, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FreeTarget {
    /// Free blocks: a collection that has begun is carried to its end.
    Blocks(u32),
    /// Slots worth this many blocks, including those of open blocks and the gain of the
    /// collection in progress (see the working point of [`crate::ssd::gc::throttle`]).
    Slots(u32),
}

impl FreeTarget {
    /// How much of a plane is free at the start of an aged drive: as much as collection
    /// keeps free under sustained writes.
    pub(crate) fn at_start(spec: &SsdSpec) -> FreeTarget {
        match spec.gc.preemptible {
            true => FreeTarget::Slots(spec.gc.working_point(1)),
            // The host writes no more than collection frees.
            false if spec.gc.pace_bytes > 0 => FreeTarget::Blocks(spec.gc.start_blocks),
            // The host writes ahead down to the reserve, and waits there for each block.
            false => FreeTarget::Slots(spec.gc.reserve_blocks + 1),
        }
    }

    pub(crate) fn blocks(self) -> u32 {
        match self {
            FreeTarget::Blocks(blocks) | FreeTarget::Slots(blocks) => blocks,
        }
    }

    /// The target of a plane of another size.
    pub(crate) fn of(self, scale: impl Fn(u32) -> u32) -> FreeTarget {
        match self {
            FreeTarget::Blocks(blocks) => FreeTarget::Blocks(scale(blocks)),
            FreeTarget::Slots(blocks) => FreeTarget::Slots(scale(blocks)),
        }
    }
}

/// Overwrites a drive until it is steady.
pub(crate) fn overwrite(ftl: &mut Ftl, spec: &SsdSpec, aged: &AgedSpec, rng: &mut Rng) {
    if ftl.has_logs() {
        overwrite_logs(ftl, spec, aged, rng);
    } else {
        let collections = vec![None; ftl.plane_count() as usize];
        let room = FreeTarget::at_start(spec);
        let mut ageing = Ageing {
            ftl,
            spec,
            room,
            collections,
        };
        ageing.overwrite(aged, rng);
        let victims: Vec<Victim> = (ageing.collections.iter().flatten())
            .map(|collection| collection.victim)
            .collect();
        for Victim { plane, block, .. } in &victims {
            ftl.abandon_collection(*plane, *block, *plane);
        }
        ftl.set_victims_at_start(victims);
    }
    // Before the first command DRAM is empty.
    for plane in 0..ftl.plane_count() {
        for stream in Stream::all() {
            if let Some(record) = ftl.filling(plane, stream) {
                ftl.program_at_once(record);
            }
        }
    }
    ftl.forget_programs();
    ftl.forget_wear();
}

/// Draws which of `live` slots is overwritten next.
pub(crate) fn draw(aged: &AgedSpec, live: u32, rng: &mut Rng) -> u32 {
    let hot = aged.hot_of(live);
    let is_hot = (rng.below(1 << 24) as f64) < aged.hot_writes * (1 << 24) as f64;
    match is_hot && hot > 0 {
        true => rng.below(hot),
        false => hot + rng.below((live - hot).max(1)).min(live - hot - 1),
    }
}

/// Overwrites a drive with hybrid mapping: data blocks stay full, so only the content of
/// the logs becomes steady.
fn overwrite_logs(ftl: &mut Ftl, spec: &SsdSpec, aged: &AgedSpec, rng: &mut Rng) {
    let logs = ftl.all_random_logs();
    for _ in 0..logs * ftl.slots_per_block() as u64 * PASSES {
        let slot = draw(aged, spec.logical_slots() as u32, rng);
        ftl.write_to_logs(slot);
    }
}

struct Ageing<'a> {
    ftl: &'a mut Ftl,
    spec: &'a SsdSpec,
    room: FreeTarget,
    /// The collection of each plane.
    collections: Vec<Option<Collection>>,
}

/// A collection in progress.
#[derive(Clone, Copy)]
struct Collection {
    victim: Victim,
    /// The first slot of the victim that has not been examined.
    next: u32,
}

impl Ageing<'_> {
    /// Data is written once in order, then overwritten.
    fn overwrite(&mut self, aged: &AgedSpec, rng: &mut Rng) {
        let live = occupied_slots(self.spec, aged, self.ftl.placement());
        let count = live.len() as u32;
        // A random number more, so that first-in first-out ends at a random block.
        let round =
            self.spec.data_blocks_per_plane() * self.ftl.plane_count() * self.ftl.slots_per_block();
        let overwrites = count as u64 * PASSES + rng.below(round) as u64;
        for slot in &live {
            self.write(*slot, rng);
        }
        for _ in 0..overwrites {
            self.write(live[draw(aged, count, rng) as usize], rng);
        }
        // The last write may have left its plane below its free target.
        for plane in 0..self.ftl.plane_count() {
            let row = self.ftl.row_of(plane);
            while self.collect_towards_target(row.clone(), rng) {}
        }
    }

    fn write(&mut self, slot: u32, rng: &mut Rng) {
        let row = self.ftl.row_of(self.ftl.target(slot));
        self.plane_in_turn(row.clone(), rng);
        while self.collect_towards_target(row.clone(), rng) {}
        // Checked descriptions always leave room in some plane.
        if let Some(plane) = self.plane_in_turn(row, rng) {
            self.ftl.write_at_once(plane, slot, Stream::Host);
        }
    }

    /// The plane of a row whose turn it is, once it has room for a host slot; another one
    /// while nothing can be freed there.
    fn plane_in_turn(&mut self, row: Range<u32>, rng: &mut Rng) -> Option<u32> {
        let first = self.ftl.in_turn(row.start, Stream::Host);
        loop {
            if self.ftl.has_room_for_host(first) {
                return Some(first);
            }
            if self.move_one(first, rng) {
                continue;
            }
            let other = row.clone().find(|plane| self.ftl.has_room_for_host(*plane));
            let mut others = row.clone().filter(|plane| *plane != first);
            if other.is_some() || !others.any(|plane| self.move_one(plane, rng)) {
                return other;
            }
        }
    }

    /// Collects one slot in a row that is below its free target, in another plane if the
    /// first cannot be collected. `false` where nothing has to be, or can be, gained.
    fn collect_towards_target(&mut self, row: Range<u32>, rng: &mut Rng) -> bool {
        let Some(first) = self.plane_that_lacks_room(row.clone()) else {
            return false;
        };
        let mut others = row.filter(|plane| *plane != first);
        self.move_one(first, rng)
            || others.any(|plane| self.lacks_room(plane) && self.move_one(plane, rng))
    }

    /// The plane of a row that should be collected first; `None` while the row meets its
    /// free target.
    fn plane_that_lacks_room(&self, mut row: Range<u32>) -> Option<u32> {
        match self.room {
            FreeTarget::Blocks(_) => row.find(|plane| self.lacks_room(*plane)),
            FreeTarget::Slots(blocks) => {
                let least = blocks * self.ftl.slots_per_block() * row.len() as u32;
                let room: u32 = row.clone().map(|plane| self.room_of(plane)).sum();
                let emptiest = row.min_by_key(|plane| self.room_of(*plane));
                emptiest.filter(|_| room < least)
            }
        }
    }

    /// Whether a plane of a row that lacks room should be collected.
    fn lacks_room(&self, plane: u32) -> bool {
        match self.room {
            // A collection that has begun is carried to its end.
            FreeTarget::Blocks(blocks) => {
                self.collections[plane as usize].is_some() || self.ftl.free_blocks(plane) < blocks
            }
            FreeTarget::Slots(_) => true,
        }
    }

    fn room_of(&self, plane: u32) -> u32 {
        let collection = self.collections[plane as usize];
        self.ftl.room(plane, collection.map(|it| it.victim))
    }

    /// Moves one slot of a plane's victim, or erases the victim if it has none left.
    /// `false` where there is no block worth collecting.
    fn move_one(&mut self, plane: u32, rng: &mut Rng) -> bool {
        let Some(Collection { victim, mut next }) = self.collections[plane as usize]
            .take()
            .or_else(|| self.begin(plane, rng))
        else {
            return false;
        };
        let first = self.ftl.page_start(victim.block, 0);
        while next < self.ftl.slots_per_block() {
            let at = first + next;
            next += 1;
            let Some(slot) = self.ftl.owner(at) else {
                continue;
            };
            let to = (plane, Stream::Collection);
            if let Some((record, _)) = self.ftl.move_slot(plane, to, (at, slot)) {
                if self.ftl.is_full(record) {
                    self.ftl.program_at_once(record);
                }
                self.collections[plane as usize] = Some(Collection { victim, next });
                return true;
            }
        }
        self.ftl.end_collection(plane, victim.block, plane);
        true
    }

    fn begin(&mut self, plane: u32, rng: &mut Rng) -> Option<Collection> {
        let most = self.ftl.most_to_move(plane, plane);
        let block = choose_victim(self.ftl, plane, most, &self.spec.gc, rng)?;
        let to = (plane, Stream::Collection);
        let victim = self.ftl.begin_collection(plane, block, to);
        Some(Collection { victim, next: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::ftl::placement::Placement;
    use crate::ssd::tests::small;

    /// Two planes of a die that are filled in step, so that one takes what the other cannot.
    #[test]
    fn the_plane_in_turn_is_written_once_it_has_room_and_another_if_it_can_have_none() {
        let spec = small(&[
            ("multi_plane = \"any\"", "multi_plane = \"same_page\""),
            ("state = \"filled\"", "state = \"fresh\""),
        ]);
        let mut ftl = Ftl::new(&spec, Placement::of(&spec), None, 1);
        let (row, block, mut rng) = (0..2, ftl.slots_per_block(), Rng::new(1));
        assert_eq!(ftl.row_of(0), row);
        // Plane 0 gets the first slots and plane 1 those behind.
        let mut slots = 0..;
        let mut ends = Vec::new();
        for plane in row.clone() {
            while ftl.has_room_for_host(plane) {
                ftl.write_at_once(plane, slots.next().expect("endless"), Stream::Host);
            }
            ends.push(slots.start);
        }
        let starts = [0, ends[0]];
        let first = ftl.in_turn(0, Stream::Host);
        let other = 1 - first;
        let mut ageing = Ageing {
            ftl: &mut ftl,
            spec: &spec,
            room: FreeTarget::Slots(3),
            collections: vec![None; 4],
        };
        let mut in_turn = |ageing: &mut Ageing<'_>| ageing.plane_in_turn(row.clone(), &mut rng);
        assert_eq!(in_turn(&mut ageing), None, "every block is all valid");
        let start = starts[other as usize];
        ageing.ftl.discard(start, u64::from(start + block));
        assert_eq!(in_turn(&mut ageing), Some(other), "a block is freed there");
        let free = ageing.ftl.free_blocks(other);
        assert_eq!(in_turn(&mut ageing), Some(other));
        assert_eq!(ageing.ftl.free_blocks(other), free, "one is enough");
        let start = starts[first as usize];
        ageing.ftl.discard(start, u64::from(start + block));
        assert_eq!(in_turn(&mut ageing), Some(first), "it is freed first");
    }
}
