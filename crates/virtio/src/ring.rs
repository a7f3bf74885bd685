//! The device's side of a split virtqueue (section 2.7 of the specification).

use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use crate::Memory;

/// The largest queue size.
const MAX_SIZE: u32 = 32768;
/// The most descriptors in an indirect table of a smaller queue, which is also QEMU's limit.
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
    /// A wrong number of entries.
    #[error("a queue of {0} entries; a power of two up to {MAX_SIZE} may be one")]
    Size(u32),
    /// A wrong address of one of its parts.
    #[error("a part of a ring at {0:#x}, which is not aligned")]
    Alignment(u64),
    /// A ring or a buffer outside the guest's memory.
    #[error("{length} bytes at {address:#x} are not in the guest's memory")]
    OutsideMemory {
        /// The address.
        address: u64,
        /// The length.
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
    /// An indirect table in an indirect table.
    #[error("an indirect table has an indirect table")]
    NestedTable,
    /// A wrong length of an indirect table.
    #[error("an indirect table of {0} bytes")]
    TableLength(u32),
    /// A chain whose length does not fit into 32 bits.
    #[error("a chain of 4 GiB or more")]
    TooLong,
    /// A descriptor to read after one to write.
    #[error("a readable descriptor behind a writable one")]
    Order,
    /// A kick descriptor that cannot be read as an eventfd.
    #[error("a kick descriptor that is no eventfd")]
    NoKick,
    /// No room for a status.
    #[error("a request without room for its status")]
    NoStatus,
}

/// The guest's addresses of a ring's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    /// The descriptor table.
    pub descriptors: u64,
    /// The available ring.
    pub available: u64,
    /// The used ring.
    pub used: u64,
}

/// A buffer in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Buffer {
    address: u64,
    length: u32,
}

/// The buffers of one request, all inside the guest's memory. It is reused for the next
/// request in the same place.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    readable: Vec<Buffer>,
    writable: Vec<Buffer>,
    readable_bytes: u32,
    writable_bytes: u32,
}

impl Chain {
    /// Bytes that the device reads.
    pub fn readable_bytes(&self) -> u32 {
        self.readable_bytes
    }

    /// Bytes that the device writes, including the status.
    pub fn writable_bytes(&self) -> u32 {
        self.writable_bytes
    }

    /// Fills `into` from the readable buffers, after their first `skip` bytes.
    ///
    /// # Errors
    /// If they hold less.
    pub fn read(&self, memory: &Memory, skip: u32, into: &mut [u8]) -> Result<(), RingFault> {
        let mut filled = 0;
        for buffer in parts(&self.readable, skip, into.len()) {
            let part = &mut into[filled..filled + buffer.length as usize];
            let read = memory.read_slice(part, GuestAddress(buffer.address));
            read.map_err(|_| buffer.outside())?;
            filled += buffer.length as usize;
        }
        if filled == into.len() {
            Ok(())
        } else {
            Err(RingFault::TooLong)
        }
    }

    /// Copies `data` to the writable buffers, after their first `skip` bytes.
    ///
    /// # Errors
    /// If they have less room.
    pub fn write(&self, memory: &Memory, skip: u32, data: &[u8]) -> Result<(), RingFault> {
        let mut written = 0;
        for buffer in parts(&self.writable, skip, data.len()) {
            let part = &data[written..written + buffer.length as usize];
            let wrote = memory.write_slice(part, GuestAddress(buffer.address));
            wrote.map_err(|_| buffer.outside())?;
            written += buffer.length as usize;
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

    fn push(
        &mut self,
        memory: &Memory,
        buffer: Buffer,
        is_writable: bool,
    ) -> Result<(), RingFault> {
        let total = self.readable_bytes.checked_add(self.writable_bytes);
        let total = total.and_then(|total| total.checked_add(buffer.length));
        total.ok_or(RingFault::TooLong)?;
        if !memory.check_range(GuestAddress(buffer.address), buffer.length as usize) {
            return Err(buffer.outside());
        }
        match is_writable {
            true => {
                self.writable.push(buffer);
                self.writable_bytes += buffer.length;
            }
            false if !self.writable.is_empty() => return Err(RingFault::Order),
            false => {
                self.readable.push(buffer);
                self.readable_bytes += buffer.length;
            }
        }
        Ok(())
    }
}

impl Buffer {
    fn outside(self) -> RingFault {
        RingFault::OutsideMemory {
            address: self.address,
            length: self.length.into(),
        }
    }
}

/// The parts of `buffers` with `length` bytes after the first `skip`.
fn parts(buffers: &[Buffer], skip: u32, length: usize) -> impl Iterator<Item = Buffer> {
    let (mut skip, mut left) = (skip, length);
    buffers.iter().filter_map(move |buffer| {
        let skipped = skip.min(buffer.length);
        skip -= skipped;
        let length = ((buffer.length - skipped) as usize).min(left);
        left -= length;
        (length > 0).then_some(Buffer {
            address: buffer.address + u64::from(skipped),
            length: length as u32,
        })
    })
}

/// A copy of a descriptor.
struct Descriptor {
    buffer: Buffer,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn decode(bytes: [u8; DESCRIPTOR_BYTES as usize]) -> Descriptor {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Descriptor {
            buffer: Buffer {
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
    /// The used index at the last check whether the driver needs an interrupt.
    asked_used: Option<u16>,
}

impl Ring {
    /// A ring whose first `next_available` requests were taken before.
    ///
    /// # Errors
    /// If it breaks the specification or is outside the memory.
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
            // In one region, so that every field can be accessed.
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

    /// The number of its entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The index of the request that is taken next.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Continues after the requests that a predecessor answered, and the `unanswered` ones
    /// that it only took.
    pub fn skip_to_unanswered(&mut self, unanswered: u16) {
        self.next_available = self.next_used.wrapping_add(unanswered);
        self.seen_available = self.next_available;
    }

    /// The used ring's index.
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// Takes the next request. Returns its first descriptor.
    ///
    /// # Errors
    /// If the driver broke the ring.
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

    /// Whether a request is available.
    ///
    /// # Errors
    /// If the ring is outside the memory.
    pub fn has_more(&self, memory: &Memory) -> Result<bool, RingFault> {
        Ok(self.load(memory, self.at.available + 2)? != self.next_available)
    }

    /// Reads the chain of descriptors that begins at `head`.
    ///
    /// # Errors
    /// If it breaks the specification or is outside the memory.
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
                (table, next, left, is_indirect) = (descriptor.buffer.address, 0, entries, true);
                continue;
            }
            chain.push(memory, descriptor.buffer, descriptor.flags & WRITE != 0)?;
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
        let Buffer { address, length } = table.buffer;
        let entries = length / DESCRIPTOR_BYTES as u32;
        let most = u32::from(self.size).max(MAX_INDIRECT);
        let is_whole = length.is_multiple_of(DESCRIPTOR_BYTES as u32);
        if !is_whole || !(1..=most).contains(&entries) || table.flags & NEXT != 0 {
            return Err(RingFault::TableLength(length));
        }
        match memory.check_range(GuestAddress(address), length as usize) {
            true => Ok(entries),
            false => Err(table.buffer.outside()),
        }
    }

    /// Puts the request that begins at `head` into the used ring; `written` bytes were written
    /// to its buffers.
    ///
    /// # Errors
    /// If the ring is outside the memory.
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

    /// Whether the driver needs an interrupt for the requests answered since the last call.
    ///
    /// # Errors
    /// If the ring is outside the memory.
    pub fn needs_interrupt(&mut self, memory: &Memory) -> Result<bool, RingFault> {
        let used = self.next_used;
        let asked = self.asked_used.replace(used);
        if asked == Some(used) {
            return Ok(false);
        }
        // The driver's event index must be read after the used ring is visible to it.
        fence(Ordering::SeqCst);
        if !self.has_event_index {
            return Ok(self.load(memory, self.at.available)? & NO_EVENTS == 0);
        }
        let entries = u64::from(self.size);
        let event = self.load(memory, self.at.available + RING_HEADER_BYTES + 2 * entries)?;
        // The first answer always interrupts, as it is not known when the predecessor did.
        Ok(asked.is_none_or(|asked| passed(event, used, asked)))
    }

    /// Asks the driver to kick for the next request. Whether one came meanwhile.
    ///
    /// # Errors
    /// If the ring is outside the memory.
    pub fn enable_notifications(&mut self, memory: &Memory) -> Result<bool, RingFault> {
        let entries = u64::from(self.size);
        match self.has_event_index {
            true => {
                let at = self.at.used + RING_HEADER_BYTES + USED_BYTES * entries;
                self.store(memory, at, self.next_available, Ordering::Relaxed)?;
            }
            false => self.store(memory, self.at.used, 0, Ordering::Relaxed)?,
        }
        // The driver's index must be read after the event index is visible to it.
        fence(Ordering::SeqCst);
        self.has_more(memory)
    }

    /// Asks the driver not to kick. With an event index there is nothing to do, because the
    /// driver kicks only once each time it was asked.
    ///
    /// # Errors
    /// If the ring is outside the memory.
    pub fn disable_notifications(&mut self, memory: &Memory) -> Result<(), RingFault> {
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

/// Whether an index passed the one after `event` on its way from `before` to `now`
/// (`vring_need_event`).
pub(crate) fn passed(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
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
