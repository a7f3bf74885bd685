//! Hybrid mapping with log blocks, for small controllers without memory for a page
//! map: FAST (Lee, Park, Chung, Lee, Park and Song, "A log buffer-based flash
//! translation layer using fully-associative sector translation", ACM TECS 6(3),
//! 2007).
//!
//! The address space of a plane is cut into *logical blocks*. Each has a *data
//! block*, where a page lies at its own offset, so that one entry maps all of
//! it. What is written anew goes to a log first: to a *sequential log*, a block
//! that takes a logical block's pages at their offsets from the first one on,
//! or to the *random logs*, which take any page of the plane and are the only
//! ones mapped page by page. Making room is a *merge* (see [`merge`]).
//!
//! It differs from the paper where the paper is silent or its flash another:
//! - There may be several sequential logs, as cards keep several allocation
//!   units open; for a new one the one used longest ago is merged.
//! - Pages of a block are programmed in order, so a data block takes a page
//!   directly only where the pages before it end; it is a sequential log then.
//! - A random log may be held to pages of this many logical blocks: K-associative
//!   sector translation (Cho, Shin and Eom, "KAST: K-associative sector
//!   translation for NAND flash memory in real-time systems", DATE 2009), which
//!   bounds how long a write can wait for the merges of one log. With one logical
//!   block a log it is BAST (Kim et al., "A space-efficient flash translation
//!   layer for CompactFlash systems", IEEE TCE 48(2), 2002). Several logs are
//!   filled by turns then; the one used longest ago is merged.
//! - A page out of order goes to the random logs and leaves the sequential log
//!   of its block as it is.
//! - Every plane has its own logs, and logical blocks of a plane's pages: work
//!   in order of address fills a block of every plane at once.

pub(crate) mod merge;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::blocks::{BlockState, NO_BLOCK};
use crate::ssd::ftl::page_map::MapEntry;
use crate::ssd::ftl::placement::Home;
use crate::ssd::ftl::{CLOSED, Frontier, Ftl, Stream};
use crate::ssd::spec::Mapping;
use crate::ssd::spec::{InitialState, SsdSpec};
use merge::Merge;
use strength_reduce::StrengthReducedU32;

/// The logs of all planes.
#[derive(Clone, Debug)]
pub(crate) struct Hybrid {
    sequential_logs: u32,
    random_logs: u32,
    /// Logical blocks that a random log may have pages of; `None`: any.
    associativity: Option<u32>,
    pages_per_block: StrengthReducedU32,
    planes: Vec<PlaneLogs>,
    logical_slots: u64,
    /// Uses of sequential logs so far.
    uses: u64,
}

#[derive(Clone, Debug)]
struct PlaneLogs {
    /// The data block of every logical block.
    data: Vec<u32>,
    sequential: Vec<SequentialLog>,
    /// Blocks that take pages of any offset, the one used longest ago first.
    random: VecDeque<RandomLog>,
    /// Blocks without valid data, to be erased.
    dead: VecDeque<u32>,
    merge: Option<Merge>,
    /// The oldest random log is to be emptied.
    reclaiming: bool,
}

#[derive(Clone, Debug)]
struct RandomLog {
    block: u32,
    /// The page where it continues after another log has been filled.
    next_page: u32,
    /// The logical blocks that it may have pages of, where these are limited.
    logicals: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct SequentialLog {
    block: u32,
    logical: u32,
    last_use: u64,
    /// It takes no further slots and becomes a data block.
    closing: bool,
}

impl SequentialLog {
    const NONE: SequentialLog = SequentialLog {
        block: NO_BLOCK,
        logical: 0,
        last_use: 0,
        closing: false,
    };

    fn is_used(&self) -> bool {
        self.block != NO_BLOCK
    }
}

/// Where a slot belongs: its plane, its logical block there, and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogicalPlace {
    plane: u32,
    logical: u32,
    offset: u32,
}

/// What has to happen before a slot can be written to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogNeed {
    /// This sequential log has to be merged.
    Sequential(usize),
    /// The oldest random log has to be merged.
    Random,
    /// The page of the random logs that is being filled has to be programmed,
    /// since another log is to be filled.
    Page,
    /// A block has to be erased, or a merge under way has to end.
    Wait,
}

impl Hybrid {
    /// `None` where the drive maps pages. The planes' blocks are laid out.
    pub(crate) fn new(spec: &SsdSpec, ftl: &Ftl) -> Option<Hybrid> {
        let Mapping::Hybrid(logs) = spec.ftl.mapping else {
            return None;
        };
        let pages = spec.geometry.pages_per_block;
        let planes = (0..spec.geometry.planes()).map(|plane| {
            let first = plane * spec.geometry.blocks_per_plane;
            let logical = ftl.placement.pages_of(plane).div_ceil(pages);
            let data = match spec.state {
                InitialState::Fresh => vec![NO_BLOCK; logical as usize],
                // Filled in order: the n-th block holds the n-th logical block.
                _ => (first..first + logical).collect(),
            };
            PlaneLogs {
                data,
                sequential: vec![SequentialLog::NONE; logs.sequential as usize],
                random: VecDeque::with_capacity(logs.random as usize),
                dead: VecDeque::new(),
                merge: None,
                reclaiming: false,
            }
        });
        Some(Hybrid {
            sequential_logs: logs.sequential,
            random_logs: logs.random,
            associativity: logs.associativity,
            pages_per_block: StrengthReducedU32::new(pages),
            planes: planes.collect(),
            logical_slots: spec.logical_slots(),
            uses: 0,
        })
    }

    /// Sequential logs of a plane.
    pub(crate) fn sequential_logs(&self) -> u32 {
        self.sequential_logs
    }

    /// Blocks of the drive that can be random logs at once.
    pub(crate) fn all_random_logs(&self) -> u64 {
        self.random_logs as u64 * self.planes.len() as u64
    }
}

/// Free blocks that opening a log leaves for a merge.
const MERGE_RESERVE: usize = 1;

impl Ftl {
    fn hybrid(&self) -> &Hybrid {
        self.hybrid.as_ref().expect("hybrid mapping")
    }

    fn logs(&self, plane: u32) -> &PlaneLogs {
        &self.hybrid().planes[plane as usize]
    }

    fn logs_mut(&mut self, plane: u32) -> &mut PlaneLogs {
        let hybrid = self.hybrid.as_mut().expect("hybrid mapping");
        &mut hybrid.planes[plane as usize]
    }

    fn logical_place(&self, slot: u32) -> LogicalPlace {
        let per_page = self.slots_per_page();
        let (page, in_page) = (slot / per_page, slot % per_page);
        let home = self.placement.home(page);
        let (logical, page) = StrengthReducedU32::div_rem(home.rank, self.hybrid().pages_per_block);
        LogicalPlace {
            plane: home.plane,
            logical,
            offset: page * per_page + in_page,
        }
    }

    /// The slot that belongs to a place; `None` where the address space ends
    /// before.
    fn slot_of(&self, place: LogicalPlace) -> Option<u32> {
        let per_page = self.slots_per_page();
        let rank = place.logical * self.pages_per_block + place.offset / per_page;
        let page = self.placement.page_at(Home {
            plane: place.plane,
            rank,
        })?;
        let slot = page as u64 * per_page as u64 + (place.offset % per_page) as u64;
        (slot < self.hybrid().logical_slots).then_some(slot as u32)
    }

    /// Plane and log that take a host slot now, or what has to happen first in that plane.
    pub(crate) fn log_for(&mut self, slot: u32) -> Result<(u32, Stream), (u32, LogNeed)> {
        let place = self.logical_place(slot);
        let plane = place.plane;
        let found = match self.sequential_of(plane, place.logical) {
            Some(number) => match self.fits_sequential(number, place, slot) {
                true => Ok(self.use_sequential(plane, number)),
                // The logical block is written from its start again.
                false if place.offset == 0 => Err(LogNeed::Sequential(number)),
                false => self.random_log(place),
            },
            None if place.offset == 0 || self.continues_data(place) => self.new_sequential(place),
            None => self.random_log(place),
        };
        found
            .map(|stream| (plane, stream))
            .map_err(|want| (plane, want))
    }

    fn sequential_of(&self, plane: u32, logical: u32) -> Option<usize> {
        let is_its = |log: &SequentialLog| log.is_used() && log.logical == logical;
        self.logs(plane).sequential.iter().position(is_its)
    }

    fn frontier(&self, plane: u32, stream: Stream) -> Frontier {
        self.planes[plane as usize].frontiers[stream.index()]
    }

    fn set_frontier(&mut self, plane: u32, stream: Stream, frontier: Frontier) {
        self.planes[plane as usize].frontiers[stream.index()] = frontier;
    }

    /// Whether a slot is the next of its sequential log, or in its last page
    /// while that is in DRAM.
    fn fits_sequential(&self, number: usize, place: LogicalPlace, slot: u32) -> bool {
        let log = self.logs(place.plane).sequential[number];
        let frontier = self.frontier(place.plane, Stream::Sequential(number as u8));
        if log.closing || frontier.block == NO_BLOCK {
            return false;
        }
        let taken = match frontier.record {
            NONE => 0,
            record => self.record(record).slots,
        };
        let first = self.page_start(frontier.block, frontier.page);
        let is_next = place.offset == frontier.page * self.slots_per_page() + taken;
        let here = |at| (first..first + taken).contains(&at);
        is_next || matches!(self.map.get(slot), MapEntry::At(at) if here(at))
    }

    fn use_sequential(&mut self, plane: u32, number: usize) -> Stream {
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.uses += 1;
            hybrid.planes[plane as usize].sequential[number].last_use = hybrid.uses;
        }
        Stream::Sequential(number as u8)
    }

    /// Whether a slot is the next that its partly written data block takes.
    fn continues_data(&self, place: LogicalPlace) -> bool {
        let logs = self.logs(place.plane);
        let block = logs.data[place.logical as usize];
        if block == NO_BLOCK
            || logs
                .merge
                .as_ref()
                .is_some_and(|m| m.logical == place.logical)
        {
            return false;
        }
        let programmed = self.blocks.programmed[block as usize] as u32;
        programmed < self.pages_per_block && place.offset == programmed * self.slots_per_page()
    }

    /// Opens a sequential log for the first slot of a block, or for one that continues its
    /// data block.
    fn new_sequential(&mut self, place: LogicalPlace) -> Result<Stream, LogNeed> {
        let plane = place.plane;
        let logs = self.logs(plane);
        let Some(number) = logs.sequential.iter().position(|log| !log.is_used()) else {
            let open = logs.sequential.iter().enumerate();
            let oldest = open
                .filter(|(_, log)| !log.closing)
                .min_by_key(|(_, log)| log.last_use);
            return Err(oldest.map_or(LogNeed::Wait, |(number, _)| LogNeed::Sequential(number)));
        };
        let stream = Stream::Sequential(number as u8);
        let (block, page) = match self.continues_data(place) {
            true => {
                let block = logs.data[place.logical as usize];
                self.blocks.states[block as usize] = BlockState::Open;
                (block, self.blocks.programmed[block as usize] as u32)
            }
            false if !self.has_block_for_log(plane) => return Err(LogNeed::Wait),
            false => (self.open_block(plane, stream), 0),
        };
        self.begin_at(plane, stream, block, page);
        self.logs_mut(plane).sequential[number] = SequentialLog {
            block,
            logical: place.logical,
            last_use: 0,
            closing: false,
        };
        Ok(self.use_sequential(plane, number))
    }

    /// Has a random log that takes pages of a logical block, a new one if need be, filled
    /// from now on.
    fn random_log(&mut self, place: LogicalPlace) -> Result<Stream, LogNeed> {
        let plane = place.plane;
        let has_room_for_new = (self.logs(plane).random.len() as u32) < self.hybrid().random_logs;
        match self.open_random_log(place, has_room_for_new) {
            Some(number) => self.switch_to(plane, number)?,
            None if !has_room_for_new => return Err(LogNeed::Random),
            None if !self.has_block_for_log(plane) => return Err(LogNeed::Wait),
            None => {
                self.suspend_random_log(plane)?;
                let block = self.open_block(plane, Stream::Host);
                self.begin_at(plane, Stream::Host, block, 0);
                self.logs_mut(plane).random.push_back(RandomLog {
                    block,
                    next_page: 0,
                    logicals: Vec::new(),
                });
            }
        }
        if self.hybrid().associativity.is_some()
            && let Some(log) = self.logs_mut(plane).random.back_mut()
            && !log.logicals.contains(&place.logical)
        {
            log.logicals.push(place.logical);
        }
        Ok(Stream::Host)
    }

    /// The index of an open random log that a logical block's pages may go to: the one that
    /// has such pages already, or, if no new log can be opened, the one with pages of the
    /// fewest other blocks.
    fn open_random_log(&self, place: LogicalPlace, has_room_for_new: bool) -> Option<usize> {
        let logs = self.logs(place.plane);
        let Some(most) = self.hybrid().associativity else {
            // They are filled one after the other: only the last one can be open.
            let block = self.frontier(place.plane, Stream::Host).block;
            return logs
                .random
                .len()
                .checked_sub(1)
                .filter(|_| block != NO_BLOCK);
        };
        let open = logs
            .random
            .iter()
            .enumerate()
            .skip(logs.reclaiming as usize);
        let open =
            open.filter(|(_, log)| self.blocks.states[log.block as usize] == BlockState::Open);
        let own = open
            .clone()
            .find(|(_, log)| log.logicals.contains(&place.logical));
        let shared = || {
            open.filter(|(_, log)| !has_room_for_new && (log.logicals.len() as u32) < most)
                .min_by_key(|(_, log)| log.logicals.len())
        };
        own.or_else(shared).map(|(number, _)| number)
    }

    /// Makes an open random log the one that is filled.
    fn switch_to(&mut self, plane: u32, number: usize) -> Result<(), LogNeed> {
        let RandomLog {
            block, next_page, ..
        } = self.logs(plane).random[number];
        if self.frontier(plane, Stream::Host).block != block {
            self.suspend_random_log(plane)?;
            self.begin_at(plane, Stream::Host, block, next_page);
        }
        let random = &mut self.logs_mut(plane).random;
        if let Some(log) = random.remove(number) {
            random.push_back(log);
        }
        Ok(())
    }

    /// Suspends the random log that is being filled, to be continued later.
    fn suspend_random_log(&mut self, plane: u32) -> Result<(), LogNeed> {
        let frontier = self.frontier(plane, Stream::Host);
        if frontier.record != NONE {
            return Err(LogNeed::Page);
        }
        self.set_frontier(plane, Stream::Host, CLOSED);
        let mut random = self.logs_mut(plane).random.iter_mut();
        if let Some(log) = random.find(|log| log.block == frontier.block) {
            log.next_page = frontier.page;
        }
        Ok(())
    }

    fn has_block_for_log(&self, plane: u32) -> bool {
        self.planes[plane as usize].free.len() > MERGE_RESERVE
    }

    fn begin_at(&mut self, plane: u32, stream: Stream, block: u32, page: u32) {
        let frontier = Frontier {
            block,
            page,
            ..CLOSED
        };
        self.set_frontier(plane, stream, frontier);
    }

    /// Pages that a start-up has to scan to rebuild the map: those of a plane's logs.
    pub(crate) fn pages_in_logs(&self, plane: u32) -> u32 {
        let Some(hybrid) = &self.hybrid else {
            return 0;
        };
        let logs = &hybrid.planes[plane as usize];
        let sequential = logs.sequential.iter().filter(|log| log.is_used());
        let blocks = sequential
            .map(|log| log.block)
            .chain(logs.random.iter().map(|log| log.block));
        blocks
            .map(|block| self.blocks.programmed[block as usize] as u32)
            .sum()
    }

    /// Checks, in tests, that every block in use has one role and its data in place.
    #[cfg(test)]
    pub(crate) fn check_logs(&self) {
        let Some(hybrid) = &self.hybrid else { return };
        for (plane, logs) in hybrid.planes.iter().enumerate() {
            let plane = plane as u32;
            let mut roles: Vec<u32> = logs
                .data
                .iter()
                .copied()
                .filter(|b| *b != NO_BLOCK)
                .collect();
            let own = |log: &&SequentialLog| {
                log.is_used() && logs.data[log.logical as usize] != log.block
            };
            roles.extend(logs.sequential.iter().filter(own).map(|log| log.block));
            roles.extend(logs.random.iter().map(|log| log.block));
            roles.extend(&logs.dead);
            roles.sort_unstable();
            let used: Vec<u32> = self
                .plane_blocks(plane)
                .filter(|block| self.blocks.states[*block as usize] != BlockState::Free)
                .collect();
            assert_eq!(
                roles, used,
                "every block of plane {plane} in use has one role"
            );
            assert!(logs.random.len() as u32 <= hybrid.random_logs);
            if let Some(most) = hybrid.associativity {
                self.check_associativity(logs, most);
            }
            for (logical, block) in logs.data.iter().enumerate() {
                if *block != NO_BLOCK {
                    self.check_in_place(plane, logical as u32, *block);
                }
            }
            for log in logs.sequential.iter().filter(|log| log.is_used()) {
                self.check_in_place(plane, log.logical, log.block);
            }
        }
    }

    #[cfg(test)]
    fn check_associativity(&self, logs: &PlaneLogs, most: u32) {
        use crate::ssd::ftl::copies::Holds;
        for log in &logs.random {
            assert!(log.logicals.len() as u32 <= most);
            let first = self.page_start(log.block, 0);
            for at in first..first + self.slots_per_block() {
                if let Holds::Current(slot) | Holds::Kept(slot) = self.holds(at) {
                    let logical = self.logical_place(slot).logical;
                    assert!(log.logicals.contains(&logical), "a page in another's log");
                }
            }
        }
    }

    #[cfg(test)]
    fn check_in_place(&self, plane: u32, logical: u32, block: u32) {
        use crate::ssd::ftl::copies::Holds;
        let first = self.page_start(block, 0);
        for offset in 0..self.slots_per_block() {
            if let Holds::Current(slot) | Holds::Kept(slot) = self.holds(first + offset) {
                let place = LogicalPlace {
                    plane,
                    logical,
                    offset,
                };
                assert_eq!(self.logical_place(slot), place, "a page out of its place");
            }
        }
    }

    /// Writes a slot while preconditioning, and merges where that is needed.
    pub(crate) fn write_to_logs(&mut self, slot: u32) {
        loop {
            match self.log_for(slot) {
                Ok((plane, stream)) => return self.write_at_once(plane, slot, stream),
                Err((plane, LogNeed::Sequential(number))) => {
                    self.close_at_once(plane, number);
                    self.merge_at_once(plane);
                }
                Err((plane, want)) => {
                    let record = match want {
                        LogNeed::Random => self.reclaim(plane),
                        _ => self.filling(plane, Stream::Host),
                    };
                    if let Some(record) = record {
                        self.program_at_once(record);
                    }
                    self.merge_at_once(plane);
                }
            }
        }
    }

    /// Closes the block that a stream was filling in a plane.
    fn close_stream(&mut self, plane: u32, stream: Stream) {
        let frontier = self.frontier(plane, stream);
        if frontier.block != NO_BLOCK {
            self.blocks.fill(frontier.block);
            self.set_frontier(plane, stream, CLOSED);
        }
    }
}
