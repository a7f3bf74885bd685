//! What is kept of a queued request in its own words.

use blklab_blk::Request;

/// Which list a queued request is in, beside the one of its deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A read of a light submitter, and one of another, by die.
    Light = 0,
    Deep = 1,
    /// Part of a sequential stream.
    Stream = 2,
    /// A write, by erase block.
    Block = 3,
}

/// What `elv[0]` says of a request.
#[derive(Clone, Copy)]
pub(super) struct Mark(pub(super) u32);

impl Mark {
    pub(super) const QUEUED: u32 = 1;
    /// It is in its die's load.
    pub(super) const IN_DRIVE: u32 = 2;
    /// It is one of its submitter's outstanding requests.
    pub(super) const COUNTED: u32 = 4;

    pub(super) fn of(rq: &Request) -> Mark {
        Mark(rq.elv[0])
    }

    pub(super) fn new(class: Class, kind: usize, die: usize) -> Mark {
        Mark((class as u32) << 3 | (kind as u32) << 5 | (die as u32) << 8)
    }

    pub(super) fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    pub(super) fn class(self) -> Class {
        match self.0 >> 3 & 3 {
            0 => Class::Light,
            1 => Class::Deep,
            2 => Class::Stream,
            _ => Class::Block,
        }
    }

    pub(super) fn kind(self) -> usize {
        (self.0 >> 5 & 1) as usize
    }

    pub(super) fn die(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    /// What it counts for in its die's load: the tunable may change while
    /// the drive has it.
    pub(super) fn weight(self) -> u32 {
        self.0 >> 16
    }
}
