//! A client's request on its way through the block layer.

use blklab_blk::{Bio, BioFlags, Nanos, Op, SECTOR_SIZE, Sector, SubmitterId};
use blklab_nbd::Request;
use blklab_nbd::wire::{Command, CommandFlags};

use crate::buffers::Buffer;

/// The name of an [`Io`].
pub(crate) type IoId = u32;

/// A client's request.
#[derive(Debug)]
pub(crate) struct Io {
    /// The connection it came on.
    pub(crate) conn: u32,
    /// What it does.
    pub(crate) command: Command,
    /// The request as it came.
    pub(crate) request: Request,
    /// When all of it was there.
    pub(crate) start: Nanos,
    /// Its data, cut as the block layer cuts a bio that is too large for one
    /// request.
    first: Buffer,
    more: Vec<Buffer>,
}

/// A piece of an [`Io`], as a bio covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) part: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Io {
    pub(crate) fn new(conn: u32, command: Command, request: Request, start: Nanos) -> Io {
        Io {
            conn,
            command,
            request,
            start,
            first: Buffer::empty(),
            more: Vec::new(),
        }
    }

    /// The part's buffer.
    pub(crate) fn part(&self, part: u32) -> &Buffer {
        match part {
            0 => &self.first,
            n => &self.more[n as usize - 1],
        }
    }

    /// The place of the part's buffer.
    pub(crate) fn part_mut(&mut self, part: u32) -> &mut Buffer {
        if part == 0 {
            return &mut self.first;
        }
        let index = part as usize - 1;
        if self.more.len() <= index {
            self.more.resize_with(index + 1, Buffer::empty);
        }
        &mut self.more[index]
    }

    /// All buffers, in order of place.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Buffer> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Takes all buffers out.
    pub(crate) fn take_parts(&mut self) -> impl Iterator<Item = Buffer> {
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
    pub(crate) fn piece(&self, bio: &Bio, part_sectors: u32) -> Piece {
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
    pub(crate) fn part_bytes(&self, part: u32, part_sectors: u32) -> usize {
        let size = u64::from(part_sectors) * SECTOR_SIZE;
        let start = self.first_sector() * SECTOR_SIZE + u64::from(part) * size;
        let from = start.max(self.request.offset);
        let to = (start + size).min(self.end_bytes());
        to.saturating_sub(from) as usize
    }

    /// What the block layer gets of it. `zeroes_are_writes` where it has no
    /// command for zeroes.
    pub(crate) fn bio(&self, id: IoId, submitter: SubmitterId, zeroes_are_writes: bool) -> Bio {
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
            if self.request.flags.has(CommandFlags::FUA) {
                flags = flags.with(BioFlags::FUA);
            }
        }
        let (sector, sectors) = match op {
            Op::Flush => (0, 0),
            _ => (self.first_sector(), self.sectors()),
        };
        Bio {
            flags,
            submitter,
            user_data: u64::from(id),
            ..Bio::new(op, Sector(sector), sectors)
        }
    }
}
