//! Writes that wait for room, in the order in which they came.
//!
//! Only the first of them is ever held up by something; the others wait for
//! whatever it waits for. So *stops* are numbered, and a write that is admitted
//! has waited for everything that stopped somebody after it came.

use std::collections::VecDeque;

use blklab_stats::{Wait, Waits};

/// The queue, and what stopped it.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    commands: VecDeque<u32>,
    /// Stops so far.
    stops: u64,
    /// What stops the first one now.
    stopped_by: Option<Wait>,
    /// The last stop for want of room in the cache, and of free blocks.
    last_for_cache: u64,
    last_for_collection: u64,
}

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting {
            commands: VecDeque::with_capacity(64),
            stops: 0,
            stopped_by: None,
            last_for_cache: 0,
            last_for_collection: 0,
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

    /// How many wait.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.commands.len() as u32
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

    /// The first one is admitted; returns what it has waited for.
    #[inline]
    pub(crate) fn pop(&mut self, stops_before: u64) -> Waits {
        self.commands.pop_front();
        self.stopped_by = None;
        let mut waits = Waits::NONE;
        waits.note(Wait::Cache, self.last_for_cache > stops_before);
        waits.note(Wait::Collection, self.last_for_collection > stops_before);
        waits
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        *self = Waiting::new();
    }
}
