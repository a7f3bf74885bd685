//! Merges: how logs become data blocks.
//!
//! A sequential log that holds all the data of its data block becomes the data
//! block (*switch*). One that holds the first part of it copies the rest (*partial
//! merge*). For all others, and for every logical block with pages in the oldest
//! random log, a new data block is written from wherever the newest pages are (*full
//! merge*); then the log is erased.
//!
//! A merge takes effect at its end. Until then all copied slots also remain in their
//! old places, so after a loss of power it is as if the merge had never begun.

use alloc::vec::Vec;

use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::blocks::{BlockState, NO_BLOCK};
use crate::ssd::ftl::copies::Holds;
use crate::ssd::ftl::hybrid::{LogicalPlace, RandomLog, SequentialLog};
use crate::ssd::ftl::page_map::MapEntry;
use crate::ssd::ftl::{CLOSED, Ftl, Located, Stream};

/// A logical block's merge under way.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    pub(crate) logical: u32,
    /// The sequential log that it copies from or adds to.
    sequential: Option<usize>,
    /// The block that will be the data block.
    target: u32,
    pub(crate) next_page: u32,
    pub(crate) end_page: u32,
    /// Logical slots, and the physical ones that they were copied from.
    moved: Vec<(u32, u32)>,
}

/// The next step of a plane's merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeStep {
    /// Nothing is to be done, or a transaction has to end first.
    None,
    /// A sequential log became the data block.
    Switched,
    /// The oldest random log is empty, or a sequential log was its own data
    /// block.
    Released,
    /// The rest of a sequential log's block is to be copied to it.
    Partial,
    /// A logical block is to be copied to a new data block.
    Full,
    /// This sequential log has to be closed first.
    Close(usize),
}

impl Ftl {
    /// Closes a sequential log. Returns the record of its open page.
    pub(crate) fn close_sequential(&mut self, plane: u32, number: usize) -> Option<u32> {
        self.logs_mut(plane).sequential[number].closing = true;
        self.filling(plane, Stream::Sequential(number as u8))
    }

    /// Begins to reclaim the oldest random log. Returns the record of its open page.
    pub(crate) fn reclaim(&mut self, plane: u32) -> Option<u32> {
        let logs = self.logs_mut(plane);
        logs.reclaiming = true;
        let oldest = logs.random.front()?.block;
        let record = self.filling(plane, Stream::Host)?;
        (self.record(record).block == oldest).then_some(record)
    }

    pub(crate) fn merge_of(&self, plane: u32) -> Option<&Merge> {
        self.logs(plane).merge.as_ref()
    }

    /// The next block of a plane to be erased.
    pub(crate) fn dead_block(&self, plane: u32) -> Option<u32> {
        self.logs(plane).dead.front().copied()
    }

    /// The block of [`Ftl::dead_block`] is erased.
    pub(crate) fn dead_block_erased(&mut self, plane: u32) {
        if let Some(block) = self.logs_mut(plane).dead.pop_front() {
            self.erased(plane, block);
        }
    }

    fn add_dead_block(&mut self, plane: u32, block: u32) {
        debug_assert_eq!(self.blocks.valid[block as usize], 0);
        self.blocks.states[block as usize] = BlockState::Victim;
        self.logs_mut(plane).dead.push_back(block);
    }

    /// Takes the next step of a plane without a merge in progress.
    pub(crate) fn next_merge(&mut self, plane: u32) -> MergeStep {
        for number in 0..self.logs(plane).sequential.len() {
            if self.is_closed_sequential(plane, number) {
                return self.finish_sequential(plane, number);
            }
        }
        let logs = self.logs(plane);
        let Some(oldest) = logs.random.front().filter(|_| logs.reclaiming) else {
            return MergeStep::None;
        };
        let oldest = oldest.block;
        if self.frontier(plane, Stream::Host).block == oldest
            && self.suspend_random_log(plane).is_err()
            || !self.is_written_random(plane)
        {
            return MergeStep::None;
        }
        let Some(logical) = self.first_logical_in(oldest) else {
            self.logs_mut(plane).reclaiming = false;
            self.logs_mut(plane).random.pop_front();
            self.add_dead_block(plane, oldest);
            return MergeStep::Released;
        };
        match self.sequential_of(plane, logical) {
            Some(number) if self.logs(plane).sequential[number].closing => MergeStep::None,
            Some(number) => MergeStep::Close(number),
            None => self.begin_full(plane, logical, None),
        }
    }

    /// Whether a sequential log is full or closing, and all of its pages are programmed.
    fn is_closed_sequential(&self, plane: u32, number: usize) -> bool {
        let log = self.logs(plane).sequential[number];
        let frontier = self.frontier(plane, Stream::Sequential(number as u8));
        let pages = match frontier.block {
            NO_BLOCK => self.pages_per_block,
            _ if !log.closing || frontier.record != NONE => return false,
            _ => frontier.page,
        };
        log.is_used() && self.blocks.programmed[log.block as usize] as u32 == pages
    }

    /// Whether all pages of the oldest random log are programmed.
    fn is_written_random(&self, plane: u32) -> bool {
        let is_written = |log: &RandomLog| {
            let programmed = self.blocks.programmed[log.block as usize] as u32;
            let is_open = self.blocks.states[log.block as usize] == BlockState::Open;
            self.is_written(log.block) || is_open && programmed == log.next_page
        };
        self.logs(plane).random.front().is_some_and(is_written)
    }

    /// The logical block of the first valid slot of a log.
    fn first_logical_in(&self, log: u32) -> Option<u32> {
        let first = self.page_start(log, 0);
        (first..first + self.slots_per_block()).find_map(|at| match self.holds(at) {
            Holds::Current(slot) | Holds::Kept(slot) => Some(self.logical_place(slot).logical),
            Holds::Nothing => None,
        })
    }

    fn finish_sequential(&mut self, plane: u32, number: usize) -> MergeStep {
        let stream = Stream::Sequential(number as u8);
        let log = self.logs(plane).sequential[number];
        let old = self.logs(plane).data[log.logical as usize];
        let holds = |at: u32| self.holds(at) != Holds::Nothing;
        let needed = |from: u32| {
            let first = self.page_start(old, 0);
            (first + from..first + self.slots_per_block())
                .rev()
                .find(|at| holds(*at))
        };
        if old == log.block || old == NO_BLOCK || self.blocks.valid[old as usize] == 0 {
            self.close_stream(plane, stream);
            let logs = self.logs_mut(plane);
            logs.sequential[number] = SequentialLog::NONE;
            logs.data[log.logical as usize] = log.block;
            if old == log.block {
                return MergeStep::Released;
            }
            if old != NO_BLOCK {
                self.add_dead_block(plane, old);
            }
            return MergeStep::Switched;
        }
        let pages = self.blocks.programmed[log.block as usize] as u32;
        let first = self.page_start(old, 0);
        let below = first..first + pages * self.slots_per_page();
        if below.into_iter().any(holds) {
            return self.begin_full(plane, log.logical, Some(number));
        }
        let Some(last) = needed(pages * self.slots_per_page()) else {
            return MergeStep::None;
        };
        let last_page = self.parts(last).page;
        let frontier = self.frontier(plane, stream);
        self.set_frontier(plane, stream, CLOSED);
        self.set_frontier(plane, Stream::Collection, frontier);
        self.logs_mut(plane).merge = Some(Merge {
            logical: log.logical,
            sequential: Some(number),
            target: log.block,
            next_page: pages,
            end_page: last_page + 1,
            moved: Vec::new(),
        });
        MergeStep::Partial
    }

    /// Begins a full merge, if there is a free block for it.
    fn begin_full(&mut self, plane: u32, logical: u32, sequential: Option<usize>) -> MergeStep {
        if self.planes[plane as usize].free.len() == 0 {
            return MergeStep::None;
        }
        let per_page = self.slots_per_page();
        let is_there = |page: &u32| {
            (0..per_page).any(|in_page| {
                let offset = page * per_page + in_page;
                self.source(plane, logical, offset, sequential).is_some()
            })
        };
        let last = (0..self.pages_per_block).rev().find(is_there);
        let target = self.open_block(plane, Stream::Collection);
        self.begin_at(plane, Stream::Collection, target, 0);
        self.logs_mut(plane).merge = Some(Merge {
            logical,
            sequential,
            target,
            next_page: 0,
            end_page: last.map_or(0, |page| page + 1),
            moved: Vec::new(),
        });
        MergeStep::Full
    }

    /// The slot at an offset of a logical block, and where a merge copies it from: its
    /// newest programmed copy, unless that is in a sequential log that is not part of the
    /// merge.
    fn source(
        &self,
        plane: u32,
        logical: u32,
        offset: u32,
        sequential: Option<usize>,
    ) -> Option<(u32, u32)> {
        let slot = self.slot_of(LogicalPlace {
            plane,
            logical,
            offset,
        })?;
        let at = match self.locate(slot) {
            Located::Flash(at) => at,
            Located::Buffered(_) => self.kept(slot)?,
            Located::Nowhere => return None,
        };
        let block = self.parts(at).block;
        let logs = &self.logs(plane).sequential;
        let apart = |(number, log): (usize, &SequentialLog)| {
            log.block == block && sequential != Some(number)
        };
        let is_elsewhere = logs.iter().enumerate().any(apart);
        (!is_elsewhere || self.logs(plane).data[logical as usize] == block).then_some((slot, at))
    }

    /// Takes the next page of a plane's merge; `sources` gets its slots in order, each with
    /// the physical slot to copy it from. `None` after the last page.
    pub(crate) fn next_merge_page(
        &mut self,
        plane: u32,
        sources: &mut Vec<(u32, u32)>,
    ) -> Option<u32> {
        let merge = self.logs(plane).merge.as_ref()?;
        if merge.next_page == merge.end_page {
            return None;
        }
        let page = merge.next_page;
        let per_page = self.slots_per_page();
        let offsets = page * per_page..(page + 1) * per_page;
        let found = offsets.filter_map(|o| self.source(plane, merge.logical, o, merge.sequential));
        sources.extend(found);
        self.logs_mut(plane).merge.as_mut()?.next_page += 1;
        Some(page)
    }

    /// Begins the next page of a plane's merge. Returns its record.
    pub(crate) fn begin_merge_page(&mut self, plane: u32) -> u32 {
        self.open_record(plane, Stream::Collection, 0)
    }

    /// Moves a slot that was read at `from` to its place in a merge's page, unless that
    /// copy is not valid any more. Returns whether it did.
    pub(crate) fn merge_slot(&mut self, record: u32, slot: u32, from: u32) -> bool {
        let holds = self.holds(from);
        if holds == Holds::Nothing {
            return false;
        }
        let place = self.logical_place(slot);
        self.record_mut(record).slots = place.offset % self.slots_per_page();
        match holds {
            Holds::Kept(_) => self.replace_kept(record, slot, from),
            _ => self.replace(record, slot),
        }
        if let Some(merge) = &mut self.logs_mut(place.plane).merge {
            merge.moved.push((slot, from));
        }
        true
    }

    /// Ends a merge all of whose pages are programmed: its target becomes the data block.
    pub(crate) fn end_merge(&mut self, plane: u32) {
        let Some(merge) = self.logs_mut(plane).merge.take() else {
            return;
        };
        self.close_stream(plane, Stream::Collection);
        let logs = self.logs_mut(plane);
        let old = core::mem::replace(&mut logs.data[merge.logical as usize], merge.target);
        let mut log = SequentialLog::NONE;
        if let Some(number) = merge.sequential {
            core::mem::swap(&mut log, &mut logs.sequential[number]);
            self.close_stream(plane, Stream::Sequential(number as u8));
        }
        let mut done_with = [old, log.block];
        if old == log.block {
            done_with[1] = NO_BLOCK;
        }
        for block in done_with {
            if block != NO_BLOCK && block != merge.target {
                self.add_dead_block(plane, block);
            }
        }
    }

    /// Closes a sequential log while preconditioning.
    pub(crate) fn close_at_once(&mut self, plane: u32, number: usize) {
        if let Some(record) = self.close_sequential(plane, number) {
            self.program_at_once(record);
        }
    }

    /// Carries out the merges that a plane needs while preconditioning.
    pub(crate) fn merge_at_once(&mut self, plane: u32) {
        let mut sources = Vec::new();
        loop {
            while self.dead_block(plane).is_some() {
                self.dead_block_erased(plane);
            }
            match self.next_merge(plane) {
                MergeStep::None => return,
                MergeStep::Close(number) => self.close_at_once(plane, number),
                MergeStep::Switched | MergeStep::Released => {}
                MergeStep::Partial | MergeStep::Full => {
                    while self.next_merge_page(plane, &mut sources).is_some() {
                        let record = self.begin_merge_page(plane);
                        for (slot, from) in sources.drain(..) {
                            self.merge_slot(record, slot, from);
                        }
                        self.program_at_once(record);
                    }
                    self.end_merge(plane);
                }
            }
        }
    }

    /// After a loss of power: undoes merges in progress, and sets logs to what was
    /// programmed of them.
    pub(crate) fn abandon_merges(&mut self) {
        for plane in 0..self.plane_count() {
            if let Some(merge) = self.logs_mut(plane).merge.take() {
                self.undo(plane, merge);
            }
            self.logs_mut(plane).reclaiming = false;
            let (states, programmed) = (&self.blocks.states, &self.blocks.programmed);
            let is_free = |block: u32| states[block as usize] == BlockState::Free;
            let hybrid = self.hybrid.as_mut().expect("hybrid mapping");
            let logs = &mut hybrid.planes[plane as usize];
            logs.random.retain(|log| !is_free(log.block));
            for log in &mut logs.random {
                log.next_page = programmed[log.block as usize] as u32;
            }
            for log in logs.sequential.iter_mut().filter(|log| log.is_used()) {
                log.closing = false;
                if is_free(log.block) {
                    *log = SequentialLog::NONE;
                }
            }
        }
    }

    /// Undoes a merge: copied slots are where they were before.
    fn undo(&mut self, plane: u32, merge: Merge) {
        for (slot, from) in merge.moved {
            if let MapEntry::At(at) = self.map.get(slot)
                && self.parts(at).block == merge.target
            {
                self.map.set(slot, from);
                self.uncount_valid(at);
                self.count_valid(from);
            }
        }
        let frontier = self.frontier(plane, Stream::Collection);
        self.set_frontier(plane, Stream::Collection, CLOSED);
        let is_log = |number: &usize| self.logs(plane).sequential[*number].block == merge.target;
        match merge.sequential.filter(is_log) {
            // The log continues behind the copies, which are invalid now.
            Some(number) => self.set_frontier(plane, Stream::Sequential(number as u8), frontier),
            None if self.blocks.states[merge.target as usize] != BlockState::Free => {
                self.add_dead_block(plane, merge.target);
            }
            None => {}
        }
    }
}
