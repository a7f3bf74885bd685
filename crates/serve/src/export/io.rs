//! A client's request on its way through the block layer, cut into parts as
//! the block layer cuts a bio that is too large for one request.

use std::fmt::Debug;
use std::sync::Arc;

use blklab_blk::{Bio, BioFlags, Nanos, Op, SECTOR_SIZE, Sector};
use blklab_nbd::wire::{Command, CommandFlags};
use blklab_nbd::{Extent, Request};

use super::shared::{Client, ExportThread};
use crate::backend::Buffer;

/// An [`Io`]'s key among those of its export.
pub(crate) type IoId = u32;

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The mailbox of the thread that answers it.
    pub(super) mailbox: u32,
    /// The thread's own number for it, or for its connection.
    pub(crate) index: u32,
}

/// A write's data where its front end has it: in memory that it shares with its client.
pub(crate) trait Source: Debug + Send + Sync {
    /// Fills `into` with what comes behind the first `at` bytes. Returns whether it could
    /// be had.
    fn copy(&self, at: u32, into: &mut [u8]) -> bool;
}

/// A client's request.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) origin: Origin,
    pub(super) command: Command,
    /// The request as it came.
    pub(super) request: Request,
    /// When all of it was received.
    pub(super) start: Nanos,
    /// What BLOCK_STATUS found.
    pub(super) extents: Vec<Extent>,
    /// Where the data of a write is, if not in its parts.
    pub(super) source: Option<Arc<dyn Source>>,
    /// The data of its parts.
    first: Buffer,
    more: Vec<Buffer>,
}

/// A piece of an [`Io`], as a bio covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) part: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Io {
    /// `index` is the thread's own number for it.
    pub(crate) fn new(
        thread: &ExportThread,
        index: u32,
        command: Command,
        request: Request,
        start: Nanos,
    ) -> Io {
        Io {
            origin: Origin {
                mailbox: thread.id,
                index,
            },
            command,
            request,
            start,
            extents: Vec::new(),
            source: None,
            first: Buffer::empty(),
            more: Vec::new(),
        }
    }

    /// The part's buffer.
    pub(super) fn part(&self, part: u32) -> &Buffer {
        match part {
            0 => &self.first,
            n => &self.more[n as usize - 1],
        }
    }

    /// The part's buffer, for it to be filled or replaced.
    pub(super) fn part_mut(&mut self, part: u32) -> &mut Buffer {
        if part == 0 {
            return &mut self.first;
        }
        let index = part as usize - 1;
        if self.more.len() <= index {
            self.more.resize_with(index + 1, Buffer::empty);
        }
        &mut self.more[index]
    }

    /// The part with what comes behind the first `at` bytes, and how much of it is before.
    pub(super) fn part_at(&self, at: usize) -> (u32, usize) {
        let (mut part, mut skip) = (0, at);
        loop {
            let len = self.part(part).len();
            if skip < len {
                return (part, skip);
            }
            skip -= len;
            part += 1;
        }
    }

    /// Fills `into` with a write's data behind the first `at` bytes, which one part has.
    /// Returns whether it could be had.
    pub(super) fn copy_data(&self, at: u32, into: &mut [u8]) -> bool {
        if let Some(source) = &self.source {
            return source.copy(at, into);
        }
        let (part, skip) = self.part_at(at as usize);
        into.copy_from_slice(&self.part(part)[skip..skip + into.len()]);
        true
    }

    /// All buffers, in order of their offsets.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Buffer> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Takes all buffers out.
    pub(super) fn take_parts(&mut self) -> impl Iterator<Item = Buffer> {
        std::iter::once(std::mem::take(&mut self.first)).chain(self.more.drain(..))
    }

    fn end_bytes(&self) -> u64 {
        self.request.offset + u64::from(self.request.length)
    }

    fn first_sector(&self) -> u64 {
        self.request.offset / SECTOR_SIZE
    }

    /// The sectors it touches.
    fn sectors(&self) -> u32 {
        (self.end_bytes().div_ceil(SECTOR_SIZE) - self.first_sector()) as u32
    }

    /// The bytes of it that lie in a bio, and which part they are, where parts
    /// have `part_sectors`.
    pub(super) fn piece(&self, bio: &Bio, part_sectors: u32) -> Piece {
        let offset = bio.sector.bytes().max(self.request.offset);
        let end = bio.end().bytes().min(self.end_bytes());
        let part = (bio.sector.0 - self.first_sector()) / u64::from(part_sectors);
        Piece {
            part: part as u32,
            offset,
            length: end - offset,
        }
    }

    /// The bytes of each part, where parts have `part_sectors`.
    pub(super) fn part_bytes(&self, part: u32, part_sectors: u32) -> usize {
        let size = u64::from(part_sectors) * SECTOR_SIZE;
        let start = self.first_sector() * SECTOR_SIZE + u64::from(part) * size;
        let from = start.max(self.request.offset);
        let to = (start + size).min(self.end_bytes());
        to.saturating_sub(from) as usize
    }

    /// The bio for it. `zeroes_are_writes` where the device has no command for
    /// zeroes.
    pub(super) fn bio(&self, id: IoId, client: Client, zeroes_are_writes: bool) -> Bio {
        let mut flags = BioFlags::NONE;
        let op = match self.command {
            Command::Write => Op::Write,
            Command::Flush => Op::Flush,
            Command::Trim => Op::Discard,
            Command::WriteZeroes if zeroes_are_writes => {
                // Data and zeroes are carried out differently.
                flags = BioFlags::NOMERGE;
                Op::Write
            }
            Command::WriteZeroes => Op::WriteZeroes,
            _ => Op::Read,
        };
        if self.command.modifies() {
            // A client waits for each of its requests, as with direct I/O.
            flags = flags.with(BioFlags::SYNC).with(BioFlags::IDLE);
            if self.request.flags.contains(CommandFlags::FUA) {
                flags = flags.with(BioFlags::FUA);
            }
        }
        let (sector, sectors) = match op {
            Op::Flush => (0, 0),
            _ => (self.first_sector(), self.sectors()),
        };
        Bio {
            flags,
            submitter: client.submitter,
            cgroup: client.cgroup,
            user_data: u64::from(id),
            ..Bio::new(op, Sector(sector), sectors)
        }
    }
}
