//! The driver's side of a split virtqueue, for clients of a device. Each request has a slot
//! with three descriptors (header, data, status) and their buffers.

use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress};

use crate::ring::{NEXT, RingAddresses, WRITE, passed};
use crate::{HEADER_BYTES, Memory, Operation, encode_header};

/// Descriptors of a request.
const DESCRIPTORS: u16 = 3;
/// The distance between the headers of two slots.
const HEADER_STRIDE: u64 = 32;

/// The layout of a ring and its slots' buffers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// The number of slots.
    pub depth: u16,
    /// Bytes of a slot's data.
    pub data_bytes: u32,
    /// The first address.
    pub start: u64,
}

impl RingLayout {
    /// The number of the ring's entries.
    pub fn size(&self) -> u16 {
        (self.depth * DESCRIPTORS).next_power_of_two()
    }

    /// The addresses of the ring's parts.
    pub fn addresses(&self) -> RingAddresses {
        let entries = u64::from(self.size());
        let available = self.start + 16 * entries;
        RingAddresses {
            descriptors: self.start,
            available,
            used: (available + 6 + 2 * entries).next_multiple_of(64),
        }
    }

    fn headers(&self) -> u64 {
        let entries = u64::from(self.size());
        (self.addresses().used + 6 + 8 * entries).next_multiple_of(64)
    }

    /// The address of a slot's data.
    pub fn data(&self, slot: u16) -> u64 {
        let headers = HEADER_STRIDE * u64::from(self.depth);
        let data = (self.headers() + headers).next_multiple_of(4096);
        data + u64::from(slot) * u64::from(self.data_bytes)
    }

    /// The address after it.
    pub fn end(&self) -> u64 {
        self.data(self.depth).next_multiple_of(4096)
    }
}

/// A request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its slot.
    pub slot: u16,
    /// Its status on the ring.
    pub status: u8,
}

/// The driver's side of a ring with an event index.
#[derive(Debug)]
pub struct DriverRing {
    layout: RingLayout,
    next_available: u16,
    kicked_available: u16,
    next_used: u16,
}

impl DriverRing {
    /// A ring in memory that is all zeroes.
    pub fn new(layout: RingLayout) -> DriverRing {
        DriverRing {
            layout,
            next_available: 0,
            kicked_available: 0,
            next_used: 0,
        }
    }

    /// Its layout.
    pub fn layout(&self) -> &RingLayout {
        &self.layout
    }

    /// Makes a request available, with `length` bytes of the slot's data.
    ///
    /// # Errors
    /// If the memory is smaller than the layout.
    pub fn submit(
        &mut self,
        memory: &Memory,
        slot: u16,
        operation: Operation,
        sector: u64,
        length: u32,
    ) -> Result<(), vm_memory::GuestMemoryError> {
        let first = slot * DESCRIPTORS;
        let header = self.layout.headers() + HEADER_STRIDE * u64::from(slot);
        memory.write_slice(&encode_header(operation, sector), GuestAddress(header))?;
        let data_flags = match operation {
            Operation::Read | Operation::GetId => NEXT | WRITE,
            _ => NEXT,
        };
        // Without data, the header's descriptor is chained to that of the status.
        let second = if length == 0 { first + 2 } else { first + 1 };
        self.write_descriptor(memory, first, header, HEADER_BYTES, NEXT, second)?;
        let data = self.layout.data(slot);
        self.write_descriptor(memory, first + 1, data, length, data_flags, first + 2)?;
        let status = header + u64::from(HEADER_BYTES);
        self.write_descriptor(memory, first + 2, status, 1, WRITE, 0)?;
        let entry = u64::from(self.next_available % self.layout.size());
        let available = self.layout.addresses().available;
        memory.write_obj(first.to_le(), GuestAddress(available + 4 + 2 * entry))?;
        self.next_available = self.next_available.wrapping_add(1);
        let index = self.next_available.to_le();
        memory.store(index, GuestAddress(available + 2), Ordering::Release)
    }

    fn write_descriptor(
        &self,
        memory: &Memory,
        index: u16,
        address: u64,
        length: u32,
        flags: u16,
        next: u16,
    ) -> Result<(), vm_memory::GuestMemoryError> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        let at = self.layout.addresses().descriptors + 16 * u64::from(index);
        memory.write_slice(&bytes, GuestAddress(at))
    }

    /// Whether the device must be kicked for the requests submitted since the last call
    /// (`virtqueue_kick_prepare`).
    ///
    /// # Errors
    /// As [`DriverRing::submit`].
    pub fn needs_kick(&mut self, memory: &Memory) -> Result<bool, vm_memory::GuestMemoryError> {
        // The device's event index must be read after the requests are visible to it.
        fence(Ordering::SeqCst);
        let used = self.layout.addresses().used;
        let at = used + 4 + 8 * u64::from(self.layout.size());
        let event: u16 = memory.load(GuestAddress(at), Ordering::Relaxed)?;
        let before = std::mem::replace(&mut self.kicked_available, self.next_available);
        Ok(passed(u16::from_le(event), self.next_available, before))
    }

    /// The next request that ended.
    ///
    /// # Errors
    /// As [`DriverRing::submit`].
    pub fn take_ended(
        &mut self,
        memory: &Memory,
    ) -> Result<Option<Ended>, vm_memory::GuestMemoryError> {
        let used = self.layout.addresses().used;
        let index: u16 = memory.load(GuestAddress(used + 2), Ordering::Acquire)?;
        if u16::from_le(index) == self.next_used {
            return Ok(None);
        }
        let entry = u64::from(self.next_used % self.layout.size());
        let head: u32 = memory.read_obj(GuestAddress(used + 4 + 8 * entry))?;
        self.next_used = self.next_used.wrapping_add(1);
        let slot = (u32::from_le(head) as u16 / DESCRIPTORS).min(self.layout.depth - 1);
        let header = self.layout.headers() + HEADER_STRIDE * u64::from(slot);
        let status = memory.read_obj(GuestAddress(header + u64::from(HEADER_BYTES)))?;
        Ok(Some(Ended { slot, status }))
    }

    /// Asks for an interrupt at the next request that ends. Whether one ended meanwhile
    /// (`virtqueue_enable_cb`).
    ///
    /// # Errors
    /// As [`DriverRing::submit`].
    pub fn enable_interrupt(
        &mut self,
        memory: &Memory,
    ) -> Result<bool, vm_memory::GuestMemoryError> {
        let RingAddresses {
            available, used, ..
        } = self.layout.addresses();
        let at = available + 4 + 2 * u64::from(self.layout.size());
        memory.store(self.next_used.to_le(), GuestAddress(at), Ordering::Relaxed)?;
        // The device's index must be read after the event index is visible to it.
        fence(Ordering::SeqCst);
        let index: u16 = memory.load(GuestAddress(used + 2), Ordering::Relaxed)?;
        Ok(u16::from_le(index) != self.next_used)
    }
}
