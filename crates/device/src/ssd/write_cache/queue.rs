//! Writes that wait for room, in the order in which they came.
//!
//! The first of the queue is held up by want of room for anybody; the others wait
//! for whatever it waits for. So *stops* are numbered, and a write that leaves the
//! queue has waited for everything that stopped somebody after it came.
//!
//! What waits for a block of certain planes is not in the queue but in these
//! planes' *line*, slot by slot.

use std::collections::VecDeque;

use blklab_stats::{Wait, Waits};

use crate::ssd::flash::transaction::NONE;

/// A slot of a write that waits for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    pub(crate) command: u32,
    pub(crate) slot: u32,
}

/// A slot in a line, with the next one.
#[derive(Clone, Copy, Debug)]
struct Link {
    parked: Parked,
    next: u32,
}

/// Slots that wait for the same planes.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
}

impl Line {
    const EMPTY: Line = Line {
        first: NONE,
        last: NONE,
    };
}

/// The queue with what stopped it, and the lines.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionQueue {
    commands: VecDeque<u32>,
    /// Stops so far.
    stops: u64,
    /// What stops the first one now.
    stopped_by: Option<Wait>,
    /// The last stop for want of room in the cache, and of free blocks.
    last_for_cache: u64,
    last_for_collection: u64,
    links: Vec<Link>,
    free_link: u32,
    lines: Vec<Line>,
    /// Those with somebody in them, the oldest first.
    used_lines: Vec<u32>,
    /// Writes that only parked slots keep waiting.
    parked: u32,
}

impl AdmissionQueue {
    /// Nobody waits, with so many lines to wait in.
    pub(crate) fn new(lines: u32) -> AdmissionQueue {
        AdmissionQueue {
            commands: VecDeque::with_capacity(64),
            stops: 0,
            stopped_by: None,
            last_for_cache: 0,
            last_for_collection: 0,
            links: Vec::new(),
            free_link: NONE,
            lines: vec![Line::EMPTY; lines as usize],
            used_lines: Vec::with_capacity(lines as usize),
            parked: 0,
        }
    }

    /// A write joins; returns how many stops it has nothing to do with.
    #[inline]
    pub(crate) fn push(&mut self, command: u32) -> u64 {
        self.commands.push_back(command);
        self.stops - self.stopped_by.is_some() as u64
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        self.commands.front().copied()
    }

    /// How many writes wait.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.commands.len() as u32 + self.parked
    }

    /// The first one cannot go on for want of something.
    pub(crate) fn stop(&mut self, wait: Wait) {
        if self.stopped_by == Some(wait) {
            return;
        }
        self.stopped_by = Some(wait);
        self.stops += 1;
        match wait {
            Wait::Cache => self.last_for_cache = self.stops,
            _ => self.last_for_collection = self.stops,
        }
    }

    /// The first one leaves the queue; returns what it has waited for there.
    #[inline]
    pub(crate) fn pop(&mut self, stops_before: u64) -> Waits {
        self.commands.pop_front();
        self.stopped_by = None;
        let mut waits = Waits::NONE;
        waits.note(Wait::Cache, self.last_for_cache > stops_before);
        waits.note(Wait::Collection, self.last_for_collection > stops_before);
        waits
    }

    /// One that has left the queue has slots parked.
    pub(crate) fn leave_parked(&mut self) {
        self.parked += 1;
    }

    /// Such a one has none any more.
    pub(crate) fn end_parked(&mut self) {
        self.parked -= 1;
    }

    /// Whether any slot is parked.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        !self.used_lines.is_empty()
    }

    /// Whether there is somebody in every line.
    pub(crate) fn all_wait(&self) -> bool {
        self.used_lines.len() == self.lines.len()
    }

    /// Whether there is somebody in a line.
    pub(crate) fn has_line(&self, line: u32) -> bool {
        self.lines[line as usize].first != NONE
    }

    /// The so-manyth line that has somebody in it, the oldest first.
    pub(crate) fn line(&self, place: usize) -> Option<u32> {
        self.used_lines.get(place).copied()
    }

    /// That line is empty.
    pub(crate) fn end_line(&mut self, place: usize) {
        self.used_lines.remove(place);
    }

    /// A slot joins a line.
    pub(crate) fn park(&mut self, line: u32, parked: Parked) {
        let link = Link { parked, next: NONE };
        let index = match self.free_link {
            NONE => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
            free => {
                self.free_link = self.links[free as usize].next;
                self.links[free as usize] = link;
                free
            }
        };
        let ends = &mut self.lines[line as usize];
        match std::mem::replace(&mut ends.last, index) {
            NONE => {
                ends.first = index;
                self.used_lines.push(line);
            }
            last => self.links[last as usize].next = index,
        }
    }

    /// The first slot of a line.
    pub(crate) fn first_in(&self, line: u32) -> Option<Parked> {
        match self.lines[line as usize].first {
            NONE => None,
            first => Some(self.links[first as usize].parked),
        }
    }

    /// It leaves.
    pub(crate) fn take_first(&mut self, line: u32) {
        let ends = &mut self.lines[line as usize];
        let first = ends.first;
        let link = &mut self.links[first as usize];
        ends.first = std::mem::replace(&mut link.next, self.free_link);
        self.free_link = first;
        if ends.first == NONE {
            ends.last = NONE;
        }
    }

    /// All parked slots, in no order.
    pub(crate) fn all_parked(&self) -> impl Iterator<Item = Parked> {
        let firsts = self
            .used_lines
            .iter()
            .map(|line| self.lines[*line as usize].first);
        firsts.flat_map(|first| {
            let next = |link: &u32| Some(self.links[*link as usize].next).filter(|n| *n != NONE);
            std::iter::successors(Some(first).filter(|f| *f != NONE), next)
                .map(|link| self.links[link as usize].parked)
        })
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        *self = AdmissionQueue::new(self.lines.len() as u32);
    }
}
