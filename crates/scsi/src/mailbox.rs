//! The memory in which target_core_user hands commands to a process (the kernel's "TCM
//! Userspace Design" and its header `target_core_user.h`): a mailbox, a ring of commands and
//! an area of data.
//!
//! What the kernel's side wrote is copied once, and the copy is checked.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileSlice};

use crate::DataOut;
use crate::command::CDB_BYTES;
use crate::sense::{SENSE_BYTES, Sense};

/// The layout that this is.
const VERSION: u16 = 2;
/// `TCMU_MAILBOX_FLAG_CAP_OOOC`: commands may be answered in any order.
const ANY_ORDER: u16 = 1;
/// Places in the mailbox.
const FLAGS_AT: usize = 2;
const RING_OFFSET_AT: usize = 4;
const RING_SIZE_AT: usize = 8;
const HEAD_AT: usize = 12;
const TAIL_AT: usize = 64;
const MAILBOX_BYTES: usize = 68;

/// The low bits of an entry's length are its operation.
const OPERATION_MASK: u32 = 7;
const PAD: u32 = 0;
const COMMAND: u32 = 1;
/// Places in an entry.
const ID_AT: usize = 4;
const USER_FLAGS_AT: usize = 7;
const HEADER_BYTES: usize = 8;
/// In a command.
const BUFFERS_AT: usize = 8;
const CDB_AT: usize = 24;
const FIRST_BUFFER_AT: usize = 48;
const BUFFER_BYTES: usize = 16;
/// In an answer.
const STATUS_AT: usize = 8;
const READ_LENGTH_AT: usize = 12;
const SENSE_AT: usize = 16;
const ANSWER_BYTES: usize = 112;

/// `TCMU_UFLAG_UNKNOWN_OP` and `TCMU_UFLAG_READ_LEN`.
const UNKNOWN_OPERATION: u8 = 1;
const HAS_READ_LENGTH: u8 = 2;

/// Statuses of commands.
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;

/// A mailbox that breaks its layout; nothing further can be read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxFault {
    /// A mailbox of another layout.
    #[error("a mailbox of version {0}; {VERSION} is known")]
    Version(u16),
    /// One whose commands must be answered in their order.
    #[error("the kernel takes no answers out of order: Linux 4.15 does")]
    Ordered,
    /// A ring that is not in the memory.
    #[error("a ring of {bytes} bytes at {at}, in a memory of {memory}")]
    Ring {
        /// Where it is.
        at: u32,
        /// How long it is.
        bytes: u32,
        /// How much memory there is.
        memory: usize,
    },
    /// An index that is not in the ring.
    #[error("index {0} is not in the ring")]
    Index(u32),
    /// An entry of a length that none has.
    #[error("an entry of {0} bytes")]
    Length(u32),
    /// Buffers or a command outside the memory.
    #[error("{length} bytes at {at} are not in the memory")]
    Outside {
        /// Where.
        at: u64,
        /// How many.
        length: u64,
    },
    /// An answer for which no command waits.
    #[error("more answers than commands")]
    NoEntry,
}

/// A piece of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Buffer {
    at: usize,
    length: usize,
}

/// The buffers of one command, all of them in the memory. They are either what the initiator
/// sends or what it gets.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    parts: Vec<Buffer>,
    length_bytes: u64,
}

impl Buffers {
    /// How many bytes they hold.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// The parts of the buffers with `length` bytes behind the first `skip`.
    fn parts(&self, skip: u64, length: usize) -> impl Iterator<Item = Buffer> {
        let (mut skip, mut left) = (skip, length);
        self.parts.iter().filter_map(move |part| {
            let skipped = usize::try_from(skip).map_or(part.length, |skip| skip.min(part.length));
            skip -= skipped as u64;
            let length = (part.length - skipped).min(left);
            left -= length;
            (length > 0).then_some(Buffer {
                at: part.at + skipped,
                length,
            })
        })
    }
}

/// A command taken from the ring.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The kernel's number for it.
    pub id: u16,
    /// Its descriptor block, and what is behind it.
    pub cdb: [u8; CDB_BYTES],
    /// Its buffers.
    pub buffers: Buffers,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Good,
    /// Well, with so many bytes for the initiator, which has more room.
    Short(u32),
    /// Not well.
    Failed(Sense),
}

/// An entry of the ring that was read and is not given back.
#[derive(Clone, Copy, Debug)]
struct Entry {
    length: u32,
    /// A command's; its place is used for an answer.
    is_command: bool,
}

/// A mailbox with its ring.
#[derive(Debug)]
pub struct Mailbox {
    memory: MmapRegion,
    ring_at: usize,
    ring_bytes: u32,
    /// Where the next entry is read, and where the next answer goes.
    next: u32,
    tail: u32,
    entries: VecDeque<Entry>,
    /// Bytes of the entries.
    entries_bytes: u32,
}

impl Mailbox {
    /// A mailbox at the begin of a memory.
    ///
    /// # Errors
    /// If it has another layout, or says what cannot be.
    pub fn new(memory: MmapRegion) -> Result<Mailbox, MailboxFault> {
        let size = memory.size();
        if size < MAILBOX_BYTES {
            return Err(outside(0, MAILBOX_BYTES as u64));
        }
        let mut mailbox = Mailbox {
            memory,
            ring_at: 0,
            ring_bytes: 0,
            next: 0,
            tail: 0,
            entries: VecDeque::new(),
            entries_bytes: 0,
        };
        let version = mailbox.number_16(0)?;
        if version != VERSION {
            return Err(MailboxFault::Version(version));
        }
        if mailbox.number_16(FLAGS_AT)? & ANY_ORDER == 0 {
            return Err(MailboxFault::Ordered);
        }
        let (at, bytes) = (
            mailbox.number_32(RING_OFFSET_AT)?,
            mailbox.number_32(RING_SIZE_AT)?,
        );
        let end = u64::from(at) + u64::from(bytes);
        let is_aligned = at.is_multiple_of(8) && bytes.is_multiple_of(8);
        let is_behind = at as usize >= MAILBOX_BYTES;
        if !is_aligned || !is_behind || bytes == 0 || end > size as u64 {
            return Err(MailboxFault::Ring {
                at,
                bytes,
                memory: size,
            });
        }
        (mailbox.ring_at, mailbox.ring_bytes) = (at as usize, bytes);
        mailbox.tail = mailbox.index(TAIL_AT)?;
        mailbox.next = mailbox.tail;
        Ok(mailbox)
    }

    /// Whether a command may be there.
    ///
    /// # Errors
    /// If the kernel's index is not in the ring.
    pub fn has_more(&self) -> Result<bool, MailboxFault> {
        Ok(self.index(HEAD_AT)? != self.next)
    }

    /// Takes the next command. Returns whether there was one.
    ///
    /// # Errors
    /// If it breaks the layout.
    pub fn pop(&mut self, request: &mut Request) -> Result<bool, MailboxFault> {
        let head = self.index(HEAD_AT)?;
        while self.next != head {
            let at = self.ring_at + self.next as usize;
            let word = self.number_32(at)?;
            let (length, operation) = (word & !OPERATION_MASK, word & OPERATION_MASK);
            // No entry reaches over the end of the ring or over those that are under way.
            let fits = u64::from(self.next) + u64::from(length) <= u64::from(self.ring_bytes)
                && u64::from(self.entries_bytes) + u64::from(length) <= self.ring_bytes.into();
            if (length as usize) < HEADER_BYTES || !fits {
                return Err(MailboxFault::Length(word));
            }
            if operation == COMMAND {
                self.read_command(at, length as usize, request)?;
            } else if operation != PAD {
                // The kernel goes on behind an entry that is not understood, such as one that
                // tells of an aborted command: that one is finished all the same.
                self.write(at + USER_FLAGS_AT, &[UNKNOWN_OPERATION])?;
            }
            self.entries.push_back(Entry {
                length,
                is_command: operation == COMMAND,
            });
            self.entries_bytes += length;
            self.next = (self.next + length) % self.ring_bytes;
            if operation == COMMAND {
                return Ok(true);
            }
        }
        self.give_back_others()?;
        Ok(false)
    }

    fn read_command(
        &self,
        at: usize,
        length: usize,
        request: &mut Request,
    ) -> Result<(), MailboxFault> {
        // The answer is put into the same place.
        if length < ANSWER_BYTES {
            return Err(MailboxFault::Length(length as u32));
        }
        let mut entry = [0; FIRST_BUFFER_AT];
        self.read(at, &mut entry)?;
        let word = |at: usize| {
            u32::from_ne_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
        };
        request.id = u16::from_ne_bytes([entry[ID_AT], entry[ID_AT + 1]]);
        let buffers = word(BUFFERS_AT) as usize;
        let most = (length - FIRST_BUFFER_AT) / BUFFER_BYTES;
        if buffers > most {
            return Err(MailboxFault::Length(length as u32));
        }
        let mut cdb_at = [0; 8];
        cdb_at.copy_from_slice(&entry[CDB_AT..CDB_AT + 8]);
        let cdb_at = u64::from_ne_bytes(cdb_at);
        let cdb = self.checked(cdb_at, CDB_BYTES as u64)?;
        self.read(cdb.at, &mut request.cdb)?;
        self.read_buffers(at + FIRST_BUFFER_AT, buffers, &mut request.buffers)
    }

    fn read_buffers(
        &self,
        at: usize,
        count: usize,
        into: &mut Buffers,
    ) -> Result<(), MailboxFault> {
        into.parts.clear();
        into.length_bytes = 0;
        for index in 0..count {
            let (mut place, mut length) = ([0; 8], [0; 8]);
            self.read(at + index * BUFFER_BYTES, &mut place)?;
            self.read(at + index * BUFFER_BYTES + 8, &mut length)?;
            let buffer = self.checked(u64::from_ne_bytes(place), u64::from_ne_bytes(length))?;
            into.parts.push(buffer);
            into.length_bytes += buffer.length as u64;
        }
        Ok(())
    }

    /// Answers a command that was taken, in the first place that is free. The kernel sees it
    /// once it is told.
    ///
    /// # Errors
    /// If no command waits.
    pub fn answer(&mut self, id: u16, outcome: Outcome) -> Result<(), MailboxFault> {
        self.skip_others();
        let entry = self.entries.pop_front().ok_or(MailboxFault::NoEntry)?;
        let mut answer = [0; SENSE_AT + SENSE_BYTES];
        let mut flags = 0;
        answer[STATUS_AT] = GOOD;
        match outcome {
            Outcome::Good => {}
            Outcome::Short(bytes) => {
                flags = HAS_READ_LENGTH;
                answer[READ_LENGTH_AT..SENSE_AT].copy_from_slice(&bytes.to_ne_bytes());
            }
            Outcome::Failed(sense) => {
                answer[STATUS_AT] = CHECK_CONDITION;
                answer[SENSE_AT..].copy_from_slice(&sense.fixed());
            }
        }
        let at = self.ring_at + self.tail as usize;
        self.write(at + ID_AT, &id.to_ne_bytes())?;
        self.write(at + USER_FLAGS_AT, &[flags])?;
        self.write(at + STATUS_AT, &answer[STATUS_AT..])?;
        self.advance(entry);
        self.give_back_others()
    }

    /// Goes on behind entries that are no commands.
    fn skip_others(&mut self) {
        while let Some(entry) = self.entries.front().copied()
            && !entry.is_command
        {
            self.entries.pop_front();
            self.advance(entry);
        }
    }

    fn give_back_others(&mut self) -> Result<(), MailboxFault> {
        self.skip_others();
        let slice = self.slice(TAIL_AT, 4)?;
        let stored = slice.store(self.tail, 0, Ordering::Release);
        stored.map_err(|_| outside(TAIL_AT as u64, 4))
    }

    fn advance(&mut self, entry: Entry) {
        self.tail = (self.tail + entry.length) % self.ring_bytes;
        self.entries_bytes -= entry.length;
    }

    /// What the initiator sends with a command.
    pub fn data_out<'a>(&'a self, buffers: &'a Buffers) -> impl DataOut + 'a {
        Sent {
            mailbox: self,
            buffers,
        }
    }

    /// Puts data into a command's buffers, behind the first `at` bytes, as far as there is
    /// room.
    ///
    /// # Errors
    /// Never for buffers that were taken from here.
    pub fn put(&self, buffers: &Buffers, at: u64, data: &[u8]) -> Result<(), MailboxFault> {
        let mut done = 0;
        for part in buffers.parts(at, data.len()) {
            self.write(part.at, &data[done..done + part.length])?;
            done += part.length;
        }
        Ok(())
    }

    /// An index of the ring, which the kernel or a predecessor wrote.
    fn index(&self, at: usize) -> Result<u32, MailboxFault> {
        let loaded = self.slice(at, 4)?.load(0, Ordering::Acquire);
        let index = loaded.map_err(|_| outside(at as u64, 4))?;
        match index < self.ring_bytes && u32::is_multiple_of(index, 8) {
            true => Ok(index),
            false => Err(MailboxFault::Index(index)),
        }
    }

    fn checked(&self, at: u64, length: u64) -> Result<Buffer, MailboxFault> {
        let end = at.checked_add(length);
        match end {
            Some(end) if end <= self.memory.size() as u64 => Ok(Buffer {
                at: at as usize,
                length: length as usize,
            }),
            _ => Err(outside(at, length)),
        }
    }

    fn slice(&self, at: usize, length: usize) -> Result<VolatileSlice<'_>, MailboxFault> {
        let slice = self.memory.get_slice(at, length);
        slice.map_err(|_| outside(at as u64, length as u64))
    }

    fn read(&self, at: usize, into: &mut [u8]) -> Result<(), MailboxFault> {
        let length = into.len();
        self.slice(at, length)?.copy_to(into);
        Ok(())
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), MailboxFault> {
        self.slice(at, bytes.len())?.copy_from(bytes);
        Ok(())
    }

    fn number_16(&self, at: usize) -> Result<u16, MailboxFault> {
        let mut bytes = [0; 2];
        self.read(at, &mut bytes)?;
        Ok(u16::from_ne_bytes(bytes))
    }

    fn number_32(&self, at: usize) -> Result<u32, MailboxFault> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }
}

fn outside(at: u64, length: u64) -> MailboxFault {
    MailboxFault::Outside { at, length }
}

/// What an initiator sends, in a command's buffers.
struct Sent<'a> {
    mailbox: &'a Mailbox,
    buffers: &'a Buffers,
}

impl DataOut for Sent<'_> {
    fn length_bytes(&self) -> u64 {
        self.buffers.length_bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let mut filled = 0;
        for part in self.buffers.parts(at, into.len()) {
            let piece = &mut into[filled..filled + part.length];
            if self.mailbox.read(part.at, piece).is_err() {
                return false;
            }
            filled += part.length;
        }
        filled == into.len()
    }
}
