//! The device's side of a split virtqueue (section 2.7 of the specification).

use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use crate::Memory;

/// A queue's size, at most.
const MAX_SIZE: u32 = 32768;
/// Descriptors in a table of their own, at most, where the queue is smaller: QEMU
/// takes as many.
const MAX_INDIRECT: u32 = 1024;
/// Bytes of a descriptor, and of an entry of the used ring.
const DESCRIPTOR_BYTES: u64 = 16;
const USED_BYTES: u64 = 8;
/// Bytes before the entries of both rings: flags and index.
const RING_HEADER_BYTES: u64 = 4;

/// `VIRTQ_DESC_F_NEXT`, `_WRITE` and `_INDIRECT`.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`.
const NO_EVENTS: u16 = 1;

/// A ring that breaks the specification; nothing further can be read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// The number of entries.
    #[error("a queue of {0} entries; a power of two up to {MAX_SIZE} may be one")]
    Size(u32),
    /// Where a part of the ring is.
    #[error("a part of a ring at {0:#x}, which is not aligned")]
    Alignment(u64),
    /// A ring or a buffer.
    #[error("{length} bytes at {address:#x} are not in the guest's memory")]
    OutsideMemory {
        /// Where.
        address: u64,
        /// How much.
        length: u64,
    },
    /// The driver's index is further ahead than the ring is long.
    #[error("{0} requests are available at once in a smaller queue")]
    AvailableIndex(u16),
    /// A descriptor outside its table.
    #[error("descriptor {0} is outside its table")]
    Descriptor(u16),
    /// A descriptor is used by a request that is not answered yet.
    #[error("descriptor {0} is in use")]
    InUse(u16),
    /// A chain that loops, or is too long.
    #[error("a chain of more descriptors than its table has")]
    Loop,
    /// A table in a table.
    #[error("an indirect table has an indirect table")]
    NestedTable,
    /// A table's length.
    #[error("an indirect table of {0} bytes")]
    TableLength(u32),
    /// A chain's length.
    #[error("a chain of 4 GiB or more")]
    TooLong,
    /// What the device reads comes first.
    #[error("a readable descriptor behind a writable one")]
    Order,
    /// What new requests are announced by.
    #[error("a kick descriptor that is no eventfd")]
    NoKick,
    /// There is no room for a status.
    #[error("a request without room for its status")]
    NoStatus,
}

/// Where a ring's parts are, in the guest's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    /// The table of descriptors.
    pub descriptors: u64,
    /// What the driver makes available.
    pub available: u64,
    /// What the device has used.
    pub used: u64,
}

/// A piece of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    address: u64,
    length: u32,
}

/// A request's buffers, all of them inside the guest's memory. It is kept for reuse.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    readable: Vec<Span>,
    writable: Vec<Span>,
    readable_bytes: u32,
    writable_bytes: u32,
}

impl Chain {
    /// What the driver gives.
    pub fn readable_bytes(&self) -> u32 {
        self.readable_bytes
    }

    /// What the driver takes, with the status.
    pub fn writable_bytes(&self) -> u32 {
        self.writable_bytes
    }

    /// Copies what the driver gives, behind the first `skip` bytes.
    ///
    /// # Errors
    /// Where there is less.
    pub fn read(&self, memory: &Memory, skip: u32, into: &mut [u8]) -> Result<(), RingFault> {
        let mut filled = 0;
        for span in pieces(&self.readable, skip, into.len()) {
            let part = &mut into[filled..filled + span.length as usize];
            let read = memory.read_slice(part, GuestAddress(span.address));
            read.map_err(|_| span.outside())?;
            filled += span.length as usize;
        }
        if filled == into.len() {
            Ok(())
        } else {
            Err(RingFault::TooLong)
        }
    }

    /// Copies to what the driver takes, behind the first `skip` bytes.
    ///
    /// # Errors
    /// Where there is less room.
    pub fn write(&self, memory: &Memory, skip: u32, data: &[u8]) -> Result<(), RingFault> {
        let mut written = 0;
        for span in pieces(&self.writable, skip, data.len()) {
            let part = &data[written..written + span.length as usize];
            let wrote = memory.write_slice(part, GuestAddress(span.address));
            wrote.map_err(|_| span.outside())?;
            written += span.length as usize;
        }
        if written == data.len() {
            Ok(())
        } else {
            Err(RingFault::TooLong)
        }
    }

    fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
        (self.readable_bytes, self.writable_bytes) = (0, 0);
    }

    fn push(&mut self, memory: &Memory, span: Span, is_writable: bool) -> Result<(), RingFault> {
        let total = self.readable_bytes.checked_add(self.writable_bytes);
        let total = total.and_then(|total| total.checked_add(span.length));
        total.ok_or(RingFault::TooLong)?;
        if !memory.check_range(GuestAddress(span.address), span.length as usize) {
            return Err(span.outside());
        }
        match is_writable {
            true => {
                self.writable.push(span);
                self.writable_bytes += span.length;
            }
            false if !self.writable.is_empty() => return Err(RingFault::Order),
            false => {
                self.readable.push(span);
                self.readable_bytes += span.length;
            }
        }
        Ok(())
    }
}

impl Span {
    fn outside(self) -> RingFault {
        RingFault::OutsideMemory {
            address: self.address,
            length: self.length.into(),
        }
    }
}

/// The pieces of `spans` that hold `length` bytes behind the first `skip`.
fn pieces(spans: &[Span], skip: u32, length: usize) -> impl Iterator<Item = Span> {
    let (mut skip, mut left) = (skip, length);
    spans.iter().filter_map(move |span| {
        let skipped = skip.min(span.length);
        skip -= skipped;
        let length = ((span.length - skipped) as usize).min(left);
        left -= length;
        (length > 0).then_some(Span {
            address: span.address + u64::from(skipped),
            length: length as u32,
        })
    })
}

/// A descriptor, copied out of its table.
struct Descriptor {
    span: Span,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn decode(bytes: [u8; DESCRIPTOR_BYTES as usize]) -> Descriptor {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Descriptor {
            span: Span {
                address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                length: u32::from_le_bytes([i, j, k, l]),
            },
            flags: u16::from_le_bytes([m, n]),
            next: u16::from_le_bytes([o, p]),
        }
    }
}

/// The device's side of a ring.
#[derive(Debug)]
pub struct Ring {
    size: u16,
    at: RingAddresses,
    has_event_index: bool,
    next_available: u16,
    /// The driver's index as it was last read.
    seen_available: u16,
    next_used: u16,
    /// What was used when the driver was last asked whether it wants to know.
    asked_used: Option<u16>,
}

impl Ring {
    /// A ring whose first `next_available` requests were taken.
    ///
    /// # Errors
    /// Where it is not as the specification has it, or outside the memory.
    pub fn new(
        memory: &Memory,
        size: u32,
        at: RingAddresses,
        next_available: u16,
        has_event_index: bool,
    ) -> Result<Ring, RingFault> {
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(RingFault::Size(size));
        }
        let entries = u64::from(size);
        let parts = [
            (at.descriptors, 16, DESCRIPTOR_BYTES * entries),
            (at.available, 2, RING_HEADER_BYTES + 2 * entries + 2),
            (at.used, 4, RING_HEADER_BYTES + USED_BYTES * entries + 2),
        ];
        for (address, alignment, length) in parts {
            if !address.is_multiple_of(alignment) {
                return Err(RingFault::Alignment(address));
            }
            // In one piece, so that every field of it is.
            if memory
                .get_slice(GuestAddress(address), length as usize)
                .is_err()
            {
                return Err(RingFault::OutsideMemory { address, length });
            }
        }
        let mut ring = Ring {
            size: size as u16,
            at,
            has_event_index,
            next_available,
            seen_available: next_available,
            next_used: 0,
            asked_used: None,
        };
        ring.next_used = ring.load(memory, at.used + 2)?;
        Ok(ring)
    }

    /// Its entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The number of the request that is taken next.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Continues after the requests that were answered and those that a former
    /// server took and did not answer.
    pub fn skip_to_unanswered(&mut self, unanswered: u16) {
        self.next_available = self.next_used.wrapping_add(unanswered);
        self.seen_available = self.next_available;
    }

    /// The number of requests that were answered.
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// The first descriptor of the next request.
    ///
    /// # Errors
    /// Where the driver broke the ring.
    pub fn pop(&mut self, memory: &Memory) -> Result<Option<u16>, RingFault> {
        if self.seen_available == self.next_available {
            self.seen_available =
                self.load_with(memory, self.at.available + 2, Ordering::Acquire)?;
            let ahead = self.seen_available.wrapping_sub(self.next_available);
            if ahead > self.size {
                return Err(RingFault::AvailableIndex(ahead));
            }
            if ahead == 0 {
                return Ok(None);
            }
        }
        let entry = u64::from(self.next_available % self.size);
        let head = self.load(memory, self.at.available + RING_HEADER_BYTES + 2 * entry)?;
        if head >= self.size {
            return Err(RingFault::Descriptor(head));
        }
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    /// Whether a request waits to be taken.
    ///
    /// # Errors
    /// Where the ring is outside the memory.
    pub fn has_more(&self, memory: &Memory) -> Result<bool, RingFault> {
        Ok(self.load(memory, self.at.available + 2)? != self.next_available)
    }

    /// Follows the chain of descriptors that starts at `head`.
    ///
    /// # Errors
    /// Where it is not as the specification has it, or outside the memory.
    pub fn read_chain(
        &self,
        memory: &Memory,
        head: u16,
        chain: &mut Chain,
    ) -> Result<(), RingFault> {
        chain.clear();
        let (mut table, mut entries) = (self.at.descriptors, u32::from(self.size));
        let (mut next, mut left, mut is_indirect) = (head, entries, false);
        loop {
            if u32::from(next) >= entries {
                return Err(RingFault::Descriptor(next));
            }
            left = left.checked_sub(1).ok_or(RingFault::Loop)?;
            let descriptor = read_descriptor(memory, table, next)?;
            if descriptor.flags & INDIRECT != 0 {
                if is_indirect {
                    return Err(RingFault::NestedTable);
                }
                entries = self.indirect_entries(memory, &descriptor)?;
                (table, next, left, is_indirect) = (descriptor.span.address, 0, entries, true);
                continue;
            }
            chain.push(memory, descriptor.span, descriptor.flags & WRITE != 0)?;
            if descriptor.flags & NEXT == 0 {
                break;
            }
            next = descriptor.next;
        }
        if chain.writable_bytes == 0 {
            Err(RingFault::NoStatus)
        } else {
            Ok(())
        }
    }

    fn indirect_entries(&self, memory: &Memory, table: &Descriptor) -> Result<u32, RingFault> {
        let Span { address, length } = table.span;
        let entries = length / DESCRIPTOR_BYTES as u32;
        let most = u32::from(self.size).max(MAX_INDIRECT);
        let is_whole = length.is_multiple_of(DESCRIPTOR_BYTES as u32);
        if !is_whole || !(1..=most).contains(&entries) || table.flags & NEXT != 0 {
            return Err(RingFault::TableLength(length));
        }
        match memory.check_range(GuestAddress(address), length as usize) {
            true => Ok(entries),
            false => Err(table.span.outside()),
        }
    }

    /// Answers the request that starts at `head`, with so many bytes written to it.
    ///
    /// # Errors
    /// Where the ring is outside the memory.
    pub fn push(&mut self, memory: &Memory, head: u16, written: u32) -> Result<(), RingFault> {
        let entry = u64::from(self.next_used % self.size);
        let at = self.at.used + RING_HEADER_BYTES + USED_BYTES * entry;
        let mut used = [0; USED_BYTES as usize];
        used[..2].copy_from_slice(&head.to_le_bytes());
        used[4..].copy_from_slice(&written.to_le_bytes());
        let wrote = memory.write_slice(&used, GuestAddress(at));
        wrote.map_err(|_| outside(at))?;
        self.next_used = self.next_used.wrapping_add(1);
        self.store(memory, self.at.used + 2, self.next_used, Ordering::Release)
    }

    /// Whether the driver wants to be told of what was used since the last call.
    ///
    /// # Errors
    /// Where the ring is outside the memory.
    pub fn wants_signal(&mut self, memory: &Memory) -> Result<bool, RingFault> {
        let used = self.next_used;
        let asked = self.asked_used.replace(used);
        if asked == Some(used) {
            return Ok(false);
        }
        // The driver's wish must be read behind what was used.
        fence(Ordering::SeqCst);
        if !self.has_event_index {
            return Ok(self.load(memory, self.at.available)? & NO_EVENTS == 0);
        }
        let entries = u64::from(self.size);
        let wish = self.load(memory, self.at.available + RING_HEADER_BYTES + 2 * entries)?;
        // A first answer is always told: what was told before is not known.
        Ok(asked.is_none_or(|asked| passed(wish, used, asked)))
    }

    /// Asks the driver to kick for each new request from now on. Returns whether
    /// some came meanwhile.
    ///
    /// # Errors
    /// Where the ring is outside the memory.
    pub fn want_kicks(&mut self, memory: &Memory) -> Result<bool, RingFault> {
        let entries = u64::from(self.size);
        match self.has_event_index {
            true => {
                let at = self.at.used + RING_HEADER_BYTES + USED_BYTES * entries;
                self.store(memory, at, self.next_available, Ordering::Relaxed)?;
            }
            false => self.store(memory, self.at.used, 0, Ordering::Relaxed)?,
        }
        // The driver's index must be read behind the wish.
        fence(Ordering::SeqCst);
        self.has_more(memory)
    }

    /// Asks the driver not to kick. With an event index, it kicks once for each
    /// time that it was asked to.
    ///
    /// # Errors
    /// Where the ring is outside the memory.
    pub fn refuse_kicks(&mut self, memory: &Memory) -> Result<(), RingFault> {
        match self.has_event_index {
            true => Ok(()),
            false => self.store(memory, self.at.used, NO_EVENTS, Ordering::Relaxed),
        }
    }

    fn load(&self, memory: &Memory, at: u64) -> Result<u16, RingFault> {
        self.load_with(memory, at, Ordering::Relaxed)
    }

    fn load_with(&self, memory: &Memory, at: u64, order: Ordering) -> Result<u16, RingFault> {
        let value: Result<u16, _> = memory.load(GuestAddress(at), order);
        value.map(u16::from_le).map_err(|_| outside(at))
    }

    fn store(
        &self,
        memory: &Memory,
        at: u64,
        value: u16,
        order: Ordering,
    ) -> Result<(), RingFault> {
        let stored = memory.store(value.to_le(), GuestAddress(at), order);
        stored.map_err(|_| outside(at))
    }
}

/// Whether counting from `before` to `now` passed the value after `wish`
/// (`vring_need_event`).
pub(crate) fn passed(wish: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(wish).wrapping_sub(1) < now.wrapping_sub(before)
}

fn outside(address: u64) -> RingFault {
    RingFault::OutsideMemory { address, length: 2 }
}

fn read_descriptor(memory: &Memory, table: u64, index: u16) -> Result<Descriptor, RingFault> {
    let address = table + DESCRIPTOR_BYTES * u64::from(index);
    let mut bytes = [0; DESCRIPTOR_BYTES as usize];
    let read = memory.read_slice(&mut bytes, GuestAddress(address));
    read.map_err(|_| outside(address))?;
    Ok(Descriptor::decode(bytes))
}
