//! The memory in which target_core_user hands commands to a process (the kernel's "TCM
//! Userspace Design" and its header `target_core_user.h`): a mailbox, a ring of commands and
//! an area of data.
//!
//! Whatever the kernel wrote is copied once, and the copy is checked.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileSlice};

use crate::DataOut;
use crate::command::CDB_BYTES;
use crate::sense::{SENSE_BYTES, Sense};

/// The supported version of the layout.
const VERSION: u16 = 2;
/// `TCMU_MAILBOX_FLAG_CAP_OOOC`: commands may be answered in any order.
const ANY_ORDER: u16 = 1;
/// Offsets of fields in the mailbox, in bytes.
const FLAGS_AT: usize = 2;
const RING_OFFSET_AT: usize = 4;
const RING_SIZE_AT: usize = 8;
const HEAD_AT: usize = 12;
const TAIL_AT: usize = 64;
const MAILBOX_BYTES: usize = 68;

/// The bits of an entry's first word that are its operation; the others are its length.
const OPERATION_MASK: u32 = 7;
const PAD: u32 = 0;
const COMMAND: u32 = 1;
/// Offsets of fields in an entry, in bytes.
const ID_AT: usize = 4;
const USER_FLAGS_AT: usize = 7;
const HEADER_BYTES: usize = 8;
/// Offsets and sizes in a command.
const BUFFERS_AT: usize = 8;
const CDB_AT: usize = 24;
const FIRST_BUFFER_AT: usize = 48;
const BUFFER_BYTES: usize = 16;
/// Offsets and sizes in an answer.
const STATUS_AT: usize = 8;
const READ_LENGTH_AT: usize = 12;
const SENSE_AT: usize = 16;
const ANSWER_BYTES: usize = 112;

/// `TCMU_UFLAG_UNKNOWN_OP` and `TCMU_UFLAG_READ_LEN`.
const UNKNOWN_OPERATION: u8 = 1;
const HAS_READ_LENGTH: u8 = 2;

/// SCSI status codes.
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;

/// A violation of the layout; nothing more can be read from the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxFault {
    /// An unknown version.
    #[error("a mailbox of version {0}; {VERSION} is known")]
    Version(u16),
    /// The kernel requires answers in order.
    #[error("the kernel takes no answers out of order: Linux 4.15 does")]
    Ordered,
    /// The ring is outside the memory.
    #[error("a ring of {bytes} bytes at {at}, in a memory of {memory}")]
    Ring {
        /// Its offset in bytes.
        at: u32,
        /// Its length in bytes.
        bytes: u32,
        /// The size of the memory in bytes.
        memory: usize,
    },
    /// An index is outside the ring.
    #[error("index {0} is not in the ring")]
    Index(u32),
    /// An entry has an impossible length.
    #[error("an entry of {0} bytes")]
    Length(u32),
    /// A buffer or a command is outside the memory.
    #[error("{length} bytes at {at} are not in the memory")]
    Outside {
        /// Its offset in bytes.
        at: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// There are more answers than commands.
    #[error("more answers than commands")]
    NoEntry,
}

/// A range of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Buffer {
    at: usize,
    length: usize,
}

/// The buffers of one command, checked to be inside the memory. They hold either the data
/// from the initiator or the data for it.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    parts: Vec<Buffer>,
    length_bytes: u64,
}

impl Buffers {
    /// Returns their size in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Returns the parts of the buffers that hold `length` bytes after the first `skip`.
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
    /// The kernel's number of the command.
    pub id: u16,
    /// Its descriptor block, followed by other bytes if it is shorter.
    pub cdb: [u8; CDB_BYTES],
    /// Its buffers.
    pub buffers: Buffers,
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Good,
    /// Success with this many bytes of data, fewer than the initiator's buffers hold.
    Short(u32),
    /// Failure.
    Failed(Sense),
}

/// An entry that was read from the ring and not yet returned to the kernel.
#[derive(Clone, Copy, Debug)]
struct Entry {
    length: u32,
    /// Whether it is a command, whose entry is reused for an answer.
    is_command: bool,
}

/// A mailbox with its ring.
#[derive(Debug)]
pub struct Mailbox {
    memory: MmapRegion,
    ring_at: usize,
    ring_bytes: u32,
    /// The index of the next entry to be read.
    next: u32,
    /// The index where the next answer is written.
    tail: u32,
    entries: VecDeque<Entry>,
    /// The size of the entries in bytes.
    entries_bytes: u32,
}

impl Mailbox {
    /// Opens the mailbox at the start of a memory.
    ///
    /// # Errors
    /// If its version or its contents are invalid.
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

    /// Returns whether the ring may have another command.
    ///
    /// # Errors
    /// If the kernel's index is outside the ring.
    pub fn has_more(&self) -> Result<bool, MailboxFault> {
        Ok(self.index(HEAD_AT)? != self.next)
    }

    /// Takes the next command. Returns whether there was one.
    ///
    /// # Errors
    /// If the ring violates the layout.
    pub fn pop(&mut self, request: &mut Request) -> Result<bool, MailboxFault> {
        let head = self.index(HEAD_AT)?;
        while self.next != head {
            let at = self.ring_at + self.next as usize;
            let word = self.number_32(at)?;
            let (length, operation) = (word & !OPERATION_MASK, word & OPERATION_MASK);
            // An entry reaches neither over the end of the ring nor into entries in progress.
            let fits = u64::from(self.next) + u64::from(length) <= u64::from(self.ring_bytes)
                && u64::from(self.entries_bytes) + u64::from(length) <= self.ring_bytes.into();
            if (length as usize) < HEADER_BYTES || !fits {
                return Err(MailboxFault::Length(word));
            }
            if operation == COMMAND {
                self.read_command(at, length as usize, request)?;
            } else if operation != PAD {
                // With this flag the kernel skips the entry. It may report an aborted command,
                // which completes normally.
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
        // The answer is written over the command.
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

    /// Answers a command, in the oldest entry that is in progress. The kernel reads the answer
    /// after its next notification.
    ///
    /// # Errors
    /// If no command is in progress.
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

    /// Skips entries that are not commands.
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

    /// Returns the data that the initiator sent with a command.
    pub fn data_out<'a>(&'a self, buffers: &'a Buffers) -> impl DataOut + 'a {
        Sent {
            mailbox: self,
            buffers,
        }
    }

    /// Writes data into a command's buffers from byte `at` on; what does not fit is dropped.
    ///
    /// # Errors
    /// Never for buffers of a [`Request`] from this mailbox.
    pub fn put(&self, buffers: &Buffers, at: u64, data: &[u8]) -> Result<(), MailboxFault> {
        let mut done = 0;
        for part in buffers.parts(at, data.len()) {
            self.write(part.at, &data[done..done + part.length])?;
            done += part.length;
        }
        Ok(())
    }

    /// Reads an index, which the kernel or an earlier server wrote.
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

/// The data from the initiator in a command's buffers.
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
