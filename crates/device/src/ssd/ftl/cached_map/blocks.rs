//! Where the pages of a cached map are on the flash: DFTL's translation blocks
//! (Gupta, Kim and Urgaonkar, ASPLOS 2009, section 3).
//!
//! Every plane has blocks of its own for them, written as logs. A page's new
//! copy takes the next place of its plane; the old one is valid until the new
//! one is programmed. When a plane runs short of erased pages, the block with
//! least valid pages is emptied into what is left and erased. There are enough
//! blocks that one always has something to gain.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::ssd::spec::SsdSpec;

/// No place, or no page.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A plane's collection under way.
#[derive(Clone, Copy, Debug)]
struct MapCollection {
    victim: u32,
    next_page: u32,
    /// Pages being moved: read or to be programmed.
    moving: u32,
    erasing: bool,
}

/// The map's blocks of a plane. Block numbers and places count from the first of them.
#[derive(Clone, Debug)]
struct PlaneMapBlocks {
    /// The page of the map in every place.
    owners: Vec<u32>,
    /// Current pages of every block.
    valid: Vec<u32>,
    /// Programs of every block that have not ended.
    pending: Vec<u32>,
    erases: Vec<u32>,
    free: Vec<u32>,
    /// The block being written, and its next page.
    open: u32,
    next_page: u32,
    collection: Option<MapCollection>,
    /// Pages of the map that wait for a place.
    waiting: VecDeque<u32>,
}

/// The program of a map page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    None,
    InProgress,
    /// It is in progress, and the page has changed since: it will be programmed again.
    Again,
}

/// What a plane's collection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectionStep {
    /// Reads the page at this place of the plane.
    Read(u32),
    /// Erases this block of the plane.
    Erase(u32),
}

/// The map's blocks of all planes.
#[derive(Clone, Debug)]
pub(crate) struct MapBlocks {
    planes: Vec<PlaneMapBlocks>,
    /// The place of every page of the map in its plane.
    places: Vec<u32>,
    /// The place of its newest copy, programmed or not.
    newest: Vec<u32>,
    /// Its old content is being read, to be changed.
    merging: Vec<bool>,
    programs: Vec<Program>,
    pages_per_block: u32,
    depth: u32,
}

impl MapBlocks {
    /// The map of a drive; `written` where the state at the start has it on the
    /// flash.
    pub(crate) fn new(spec: &SsdSpec, written: bool) -> MapBlocks {
        let blocks = spec.map_blocks_per_plane();
        let pages_per_block = spec.geometry.pages_per_block;
        let plane = PlaneMapBlocks {
            owners: vec![NOWHERE; (blocks * pages_per_block) as usize],
            valid: vec![0; blocks as usize],
            pending: vec![0; blocks as usize],
            erases: vec![0; blocks as usize],
            free: (0..blocks).rev().collect(),
            open: NOWHERE,
            next_page: 0,
            collection: None,
            waiting: VecDeque::new(),
        };
        let per_page = spec.ftl.entries_per_map_page as u64;
        let pages = spec.logical_slots().div_ceil(per_page) as u32;
        let mut map = MapBlocks {
            planes: vec![plane; spec.geometry.planes() as usize],
            places: vec![NOWHERE; pages as usize],
            newest: vec![NOWHERE; pages as usize],
            merging: vec![false; pages as usize],
            programs: vec![Program::None; pages as usize],
            pages_per_block,
            depth: spec.gc.depth,
        };
        if written {
            for page in 0..pages {
                if let Some(place) = map.take_place(page) {
                    map.programmed(page, place);
                }
            }
        }
        map
    }

    /// Blocks of a plane.
    pub(crate) fn blocks(&self) -> u32 {
        self.planes[0].valid.len() as u32
    }

    /// Which plane, in the order of allocation, keeps a page of the map.
    #[inline]
    pub(crate) fn plane_of(&self, page: u32) -> usize {
        page as usize % self.planes.len()
    }

    /// Where a page of the map is on the flash; `None` for one of which nothing
    /// was ever written.
    #[inline]
    pub(crate) fn place(&self, page: u32) -> Option<u32> {
        Some(self.places[page as usize]).filter(|place| *place != NOWHERE)
    }

    /// Whether a page needs no read of the flash: it is unmapped, or its newest copy is
    /// in DRAM until it is programmed.
    #[inline]
    pub(crate) fn needs_no_read(&self, page: u32) -> bool {
        let newest = self.newest[page as usize];
        newest == NOWHERE || newest != self.places[page as usize]
    }

    /// Begins the merge of a page with its old content. `false` where one is in progress.
    pub(crate) fn begin_merge(&mut self, page: u32) -> bool {
        !core::mem::replace(&mut self.merging[page as usize], true)
    }

    /// Ends a merge: the old content has been read. `false` where the page was discarded
    /// meanwhile.
    pub(crate) fn end_merge(&mut self, page: u32) -> bool {
        core::mem::take(&mut self.merging[page as usize])
    }

    /// The next place for a page of the map. `None` where it has to wait for an erase, or
    /// for its own program in progress: all changes until then go with one further
    /// program, and an older copy never replaces a newer one.
    pub(crate) fn take_place(&mut self, page: u32) -> Option<u32> {
        if self.programs[page as usize] != Program::None {
            self.programs[page as usize] = Program::Again;
            return None;
        }
        let plane = self.plane_of(page);
        if !self.planes[plane].waiting.is_empty() || !self.has_place(plane) {
            let waiting = &mut self.planes[plane].waiting;
            if !waiting.contains(&page) {
                waiting.push_back(page);
            }
            return None;
        }
        self.put(plane, page)
    }

    /// The next waiting page and its place, if there is room.
    pub(crate) fn take_waiting(&mut self, plane: usize) -> Option<(u32, u32)> {
        while self.has_place(plane) {
            let page = self.planes[plane].waiting.pop_front()?;
            if self.programs[page as usize] == Program::None {
                return Some((page, self.put(plane, page)?));
            }
            // Collection has moved it meanwhile.
            self.programs[page as usize] = Program::Again;
        }
        None
    }

    /// Erased pages of a plane.
    fn room(&self, plane: usize) -> u32 {
        let state = &self.planes[plane];
        let in_open = match state.open {
            NOWHERE => 0,
            _ => self.pages_per_block - state.next_page,
        };
        in_open + state.free.len() as u32 * self.pages_per_block
    }

    /// Whether there is a page to spare beyond the block that collection needs.
    fn has_place(&self, plane: usize) -> bool {
        self.room(plane) > self.pages_per_block
    }

    fn put(&mut self, plane: usize, page: u32) -> Option<u32> {
        let state = &mut self.planes[plane];
        if state.open == NOWHERE {
            // Wear levelling: the least worn one.
            let least =
                (0..state.free.len()).min_by_key(|at| state.erases[state.free[*at] as usize]);
            state.open = state.free.remove(least?);
            state.next_page = 0;
        }
        let block = state.open;
        let place = block * self.pages_per_block + state.next_page;
        state.next_page += 1;
        if state.next_page == self.pages_per_block {
            state.open = NOWHERE;
        }
        debug_assert_eq!(self.programs[page as usize], Program::None);
        self.programs[page as usize] = Program::InProgress;
        state.owners[place as usize] = page;
        state.pending[block as usize] += 1;
        self.newest[page as usize] = place;
        Some(place)
    }

    /// A page of the map is programmed at its place. Returns whether it has
    /// changed since and has to be programmed again.
    pub(crate) fn programmed(&mut self, page: u32, place: u32) -> bool {
        let plane = self.plane_of(page);
        let block = (place / self.pages_per_block) as usize;
        self.planes[plane].pending[block] -= 1;
        // The page may have been discarded meanwhile.
        if self.newest[page as usize] == place {
            self.uncount_valid(page);
            self.places[page as usize] = place;
            self.planes[plane].valid[block] += 1;
        }
        core::mem::replace(&mut self.programs[page as usize], Program::None) == Program::Again
    }

    fn uncount_valid(&mut self, page: u32) {
        let place = core::mem::replace(&mut self.places[page as usize], NOWHERE);
        if place != NOWHERE {
            let plane = self.plane_of(page);
            let block = (place / self.pages_per_block) as usize;
            self.planes[plane].valid[block] -= 1;
        }
    }

    /// Unmaps a page of the map all of whose entries were discarded.
    pub(crate) fn discard(&mut self, page: u32) {
        self.uncount_valid(page);
        self.newest[page as usize] = NOWHERE;
        self.merging[page as usize] = false;
        if self.programs[page as usize] == Program::Again {
            self.programs[page as usize] = Program::InProgress;
        }
        let plane = self.plane_of(page);
        self.planes[plane]
            .waiting
            .retain(|waiting| *waiting != page);
    }

    /// What a plane's collection does next, if it has to do anything now.
    pub(crate) fn next_step(&mut self, plane: usize) -> Option<CollectionStep> {
        if self.planes[plane].collection.is_none() {
            self.begin_collection(plane)?;
        }
        let depth = self.depth;
        let pages = self.pages_per_block;
        let state = &mut self.planes[plane];
        let collection = state
            .collection
            .as_mut()
            .filter(|collection| !collection.erasing)?;
        while collection.next_page < pages && collection.moving < depth {
            let place = collection.victim * pages + collection.next_page;
            collection.next_page += 1;
            let page = state.owners[place as usize];
            // A page with a newer copy under way need not be moved.
            let is_current = page != NOWHERE
                && self.places[page as usize] == place
                && self.newest[page as usize] == place;
            if is_current {
                collection.moving += 1;
                return Some(CollectionStep::Read(place));
            }
        }
        let is_empty = state.valid[collection.victim as usize] == 0;
        if collection.next_page == pages && collection.moving == 0 && is_empty {
            collection.erasing = true;
            return Some(CollectionStep::Erase(collection.victim));
        }
        None
    }

    fn begin_collection(&mut self, plane: usize) -> Option<()> {
        let pages = self.pages_per_block;
        let room = self.room(plane);
        let state = &mut self.planes[plane];
        // Collection starts a block before writes would have to wait.
        if room >= 2 * pages {
            return None;
        }
        let closed = (0..state.valid.len() as u32).filter(|block| {
            let at = *block as usize;
            *block != state.open && !state.free.contains(block) && state.pending[at] == 0
        });
        let least = closed.min_by_key(|block| state.valid[*block as usize])?;
        if state.valid[least as usize] == pages {
            return None;
        }
        state.collection = Some(MapCollection {
            victim: least,
            next_page: 0,
            moving: 0,
            erasing: false,
        });
        Some(())
    }

    /// Collection has read the page at a place. Returns the page and its new place, unless
    /// it was written meanwhile.
    pub(crate) fn move_page(&mut self, plane: usize, place: u32) -> Option<(u32, u32)> {
        let page = self.planes[plane].owners[place as usize];
        let is_current = self.places[page as usize] == place && self.newest[page as usize] == place;
        let to = match is_current {
            true => self.put(plane, page),
            false => None,
        };
        if to.is_none()
            && let Some(collection) = &mut self.planes[plane].collection
        {
            collection.moving -= 1;
        }
        Some((page, to?))
    }

    /// A page that collection moved is programmed.
    pub(crate) fn moved(&mut self, plane: usize) {
        if let Some(collection) = &mut self.planes[plane].collection {
            collection.moving -= 1;
        }
    }

    /// A block is erased.
    pub(crate) fn erased(&mut self, plane: usize, block: u32) {
        let state = &mut self.planes[plane];
        debug_assert_eq!(state.valid[block as usize], 0);
        let first = (block * self.pages_per_block) as usize;
        state.owners[first..first + self.pages_per_block as usize].fill(NOWHERE);
        state.erases[block as usize] += 1;
        state.free.push(block);
        state.collection = None;
    }

    /// Returns to what was programmed when the power was lost; open blocks continue
    /// behind that. `spoiled` are map pages whose program was interrupted, and their
    /// places, which are lost.
    pub(crate) fn power_off(&mut self, spoiled: &[(u32, u32)]) {
        self.newest.copy_from_slice(&self.places);
        self.merging.fill(false);
        self.programs.fill(Program::None);
        let planes = self.planes.len();
        for (plane, state) in self.planes.iter_mut().enumerate() {
            state.collection = None;
            state.waiting.clear();
            let lost_in = |block: u32| {
                let is_here = |&&(page, place): &&(u32, u32)| {
                    page as usize % planes == plane && place / self.pages_per_block == block
                };
                spoiled.iter().filter(is_here).count() as u32
            };
            // Programs end in order: what is pending is at the end of its block.
            for block in 0..state.pending.len() as u32 {
                let pending = core::mem::take(&mut state.pending[block as usize]);
                if pending == 0 {
                    continue;
                }
                let end = match block == state.open {
                    true => state.next_page,
                    false => self.pages_per_block,
                };
                let next = end - pending + lost_in(block).min(pending);
                let first = block * self.pages_per_block;
                state.owners[(first + next) as usize..(first + end) as usize].fill(NOWHERE);
                if block == state.open {
                    state.next_page = next;
                    if next == self.pages_per_block {
                        state.open = NOWHERE;
                    }
                }
            }
        }
    }

    /// Checks what must be true of a drive at rest, in tests.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (plane, state) in self.planes.iter().enumerate() {
            let mut valid = vec![0; state.valid.len()];
            for (page, place) in self.places.iter().enumerate() {
                if self.plane_of(page as u32) == plane && *place != NOWHERE {
                    assert_eq!(state.owners[*place as usize], page as u32);
                    valid[(*place / self.pages_per_block) as usize] += 1;
                }
            }
            assert_eq!(valid, state.valid, "valid pages of plane {plane}");
            assert!(state.free.iter().all(|block| valid[*block as usize] == 0));
            assert!(state.waiting.is_empty(), "a page of the map waits for ever");
            assert!(state.pending.iter().all(|pending| *pending == 0));
        }
        assert_eq!(self.places, self.newest);
        assert!(
            self.programs
                .iter()
                .all(|under_way| *under_way == Program::None)
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::ssd::tests::small;

    /// What a plane is doing, oldest first.
    #[derive(Clone, Copy, Debug)]
    enum Doing {
        Program { page: u32, place: u32, moves: bool },
        Read { place: u32 },
        Erase { block: u32 },
    }

    /// A drive's map and its flash, where every place is programmed in order and
    /// once after each erase.
    struct Flash {
        map: MapBlocks,
        doing: Vec<VecDeque<Doing>>,
        programmed: Vec<Vec<u32>>,
        moved: u32,
    }

    const CACHED: (&str, &str) = (
        "map_unit_bytes = 4096",
        "map_unit_bytes = 4096\nmap_cache_kb = 1\nmap_entry_bytes = 64",
    );

    impl Flash {
        fn new() -> Flash {
            let spec = small(&[CACHED]);
            let map = MapBlocks::new(&spec, false);
            Flash {
                doing: vec![VecDeque::new(); map.planes.len()],
                programmed: vec![vec![0; map.blocks() as usize]; map.planes.len()],
                map,
                moved: 0,
            }
        }

        fn write(&mut self, page: u32) {
            let plane = self.map.plane_of(page);
            if let Some(place) = self.map.take_place(page) {
                let moves = false;
                self.doing[plane].push_back(Doing::Program { page, place, moves });
            }
            self.collect(plane);
        }

        fn collect(&mut self, plane: usize) {
            while let Some(step) = self.map.next_step(plane) {
                self.doing[plane].push_back(match step {
                    CollectionStep::Read(place) => Doing::Read { place },
                    CollectionStep::Erase(block) => Doing::Erase { block },
                });
            }
        }

        fn end_oldest(&mut self, plane: usize) -> bool {
            let Some(doing) = self.doing[plane].pop_front() else {
                return false;
            };
            match doing {
                Doing::Program { page, place, moves } => {
                    let block = (place / self.map.pages_per_block) as usize;
                    let next = &mut self.programmed[plane][block];
                    assert_eq!(*next, place % self.map.pages_per_block, "in order and once");
                    *next += 1;
                    let is_doing = |other: &Doing| matches!(other, Doing::Program { page: of, .. } if *of == page);
                    assert!(!self.doing[plane].iter().any(is_doing), "one at a time");
                    if self.map.programmed(page, place) {
                        self.write(page);
                    }
                    if moves {
                        self.map.moved(plane);
                    }
                }
                Doing::Read { place } => {
                    if let Some((page, place)) = self.map.move_page(plane, place) {
                        self.moved += 1;
                        let moves = true;
                        self.doing[plane].push_back(Doing::Program { page, place, moves });
                    }
                }
                Doing::Erase { block } => {
                    self.programmed[plane][block as usize] = 0;
                    self.map.erased(plane, block);
                    while let Some((page, place)) = self.map.take_waiting(plane) {
                        let moves = false;
                        self.doing[plane].push_back(Doing::Program { page, place, moves });
                    }
                }
            }
            self.collect(plane);
            true
        }

        /// Cuts the power; the oldest program of each plane is spoiled where
        /// `spoils` says so.
        fn power_off(&mut self, spoils: bool) {
            let mut spoiled = Vec::new();
            for (plane, doing) in self.doing.iter_mut().enumerate() {
                let first = doing.drain(..).next();
                if let (true, Some(Doing::Program { page, place, .. })) = (spoils, first) {
                    self.programmed[plane][(place / self.map.pages_per_block) as usize] += 1;
                    spoiled.push((page, place));
                }
            }
            self.map.power_off(&spoiled);
        }

        fn drain(&mut self) {
            for plane in 0..self.doing.len() {
                while self.end_oldest(plane) {}
            }
            self.map.check();
        }
    }

    proptest! {
        #[test]
        fn every_page_of_the_map_is_in_one_place(
            steps in prop::collection::vec((0u8..100, any::<u32>()), 1..6000),
        ) {
            let mut flash = Flash::new();
            let pages = flash.map.places.len() as u32;
            let mut written = vec![false; pages as usize];
            for (kind, place) in steps {
                // Half of all writes go to a tenth of the map.
                let page = if kind % 2 == 0 { place % pages } else { place % (pages / 10) };
                match kind {
                    0 => {
                        flash.map.discard(page);
                        written[page as usize] = false;
                    }
                    1 => {
                        flash.power_off(place % 2 == 0);
                        // What was on its way may be as it was before.
                        for (page, written) in written.iter_mut().enumerate() {
                            *written = flash.map.place(page as u32).is_some();
                        }
                    }
                    2..50 => {
                        flash.end_oldest(place as usize % flash.doing.len());
                    }
                    _ => {
                        flash.write(page);
                        written[page as usize] = true;
                    }
                }
            }
            flash.drain();
            for (page, written) in written.iter().enumerate() {
                prop_assert_eq!(flash.map.place(page as u32).is_some(), *written, "page {}", page);
            }
        }
    }

    #[test]
    fn what_stays_is_moved_and_a_block_of_stale_pages_is_not() {
        let mut flash = Flash::new();
        let pages = flash.map.places.len() as u32;
        (0..pages).for_each(|page| flash.write(page));
        flash.drain();
        // The same pages again and again, in order: blocks turn stale as a whole.
        for page in (0..20).flat_map(|_| 0..pages) {
            flash.write(page);
            flash.drain();
        }
        let in_order = flash.moved;
        for round in 0..20 * pages {
            flash.write(round * 7919 % 1009 % pages);
            flash.drain();
        }
        println!("{in_order} {}", flash.moved);
        assert!(in_order < pages && flash.moved > 10 * in_order.max(1));
    }
}
