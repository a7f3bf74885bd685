//! Requests in flight, recorded in memory that outlives a server: the section
//! "Inflight I/O tracking" of QEMU's vhost-user specification, for split rings.
//!
//! The driver's side keeps the memory. From it, the successor of a killed server learns which
//! requests were taken and not answered, and their order.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::{cannot_shrink_below, shared_file};

/// The layout's version.
const VERSION: u16 = 1;
/// The alignment of each queue's part.
const ALIGN: usize = 64;
/// Bytes of a queue's header: features, version, size, last batch and used index.
const HEADER: usize = 16;
const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
/// Bytes of a descriptor's state: in flight, next of its batch, counter.
const STATE: usize = 16;
const COUNTER_AT: usize = 8;

/// The records of all queues of a device.
#[derive(Debug)]
pub struct InFlightArea {
    region: MmapRegion<()>,
    queues: u16,
    queue_size: u16,
}

impl InFlightArea {
    /// Bytes for `queues` queues of this size.
    pub fn size_bytes(queues: u16, queue_size: u16) -> u64 {
        queue_bytes(queue_size) as u64 * u64::from(queues)
    }

    /// Memory in which nothing is in flight.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn create(queues: u16, queue_size: u16) -> std::io::Result<File> {
        shared_file("blklab-in-flight", Self::size_bytes(queues, queue_size))
    }

    /// Opens memory that the driver's side kept.
    ///
    /// # Errors
    /// If it is too short, could be shortened, or cannot be mapped.
    pub fn open(
        file: File,
        offset: u64,
        queues: u16,
        queue_size: u16,
    ) -> Result<Arc<InFlightArea>, String> {
        let bytes = Self::size_bytes(queues, queue_size);
        let end = offset.checked_add(bytes).filter(|_| bytes > 0);
        if !end.is_some_and(|end| cannot_shrink_below(&file, end)) {
            return Err("memory for requests in flight that is too short or may shrink".into());
        }
        let region = MmapRegion::from_file(FileOffset::new(file, offset), bytes as usize);
        Ok(Arc::new(InFlightArea {
            region: region.map_err(|e| e.to_string())?,
            queues,
            queue_size,
        }))
    }

    /// The record of one queue; `None` if the memory has no place for a queue of this size.
    pub fn queue(self: &Arc<InFlightArea>, index: u16, size: u16) -> Option<InFlight> {
        let fits = index < self.queues && size <= self.queue_size;
        fits.then(|| InFlight {
            start: usize::from(index) * queue_bytes(self.queue_size),
            area: Arc::clone(self),
            size,
            counter: 0,
        })
    }
}

fn queue_bytes(queue_size: u16) -> usize {
    (HEADER + STATE * usize::from(queue_size)).next_multiple_of(ALIGN)
}

/// The record of one queue.
#[derive(Debug)]
pub struct InFlight {
    area: Arc<InFlightArea>,
    start: usize,
    size: u16,
    /// Numbers requests in the order in which they were taken.
    counter: u64,
}

impl InFlight {
    /// The requests that were taken and not answered, in their order; `next_used` is the
    /// used ring's index. Completes a step during which the server was killed.
    pub fn recover(&mut self, next_used: u16) -> Vec<u16> {
        if self.load_u16(VERSION_AT) != VERSION {
            self.store_u16(VERSION_AT, VERSION);
            self.store_u16(SIZE_AT, self.size);
            self.store_u16(USED_AT, next_used);
            return Vec::new();
        }
        // The server was killed after it had answered and before it recorded that.
        if self.load_u16(USED_AT) != next_used {
            let head = self.load_u16(LAST_HEAD_AT);
            if head < self.size {
                self.set_in_flight(head, false);
            }
            self.store_u16(USED_AT, next_used);
        }
        let heads = (0..self.size).filter(|head| self.is_in_flight(*head));
        let mut heads: Vec<(u64, u16)> = heads.map(|head| (self.counter_of(head), head)).collect();
        heads.sort_unstable();
        self.counter = heads
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        heads.into_iter().map(|(_, head)| head).collect()
    }

    /// Records a request that is taken.
    pub fn begin(&mut self, head: u16) {
        let counter = self.counter.to_le();
        self.counter = self.counter.wrapping_add(1);
        let at = self.state(head) + COUNTER_AT;
        let _ = self.memory().store(counter, at, Ordering::Relaxed);
        self.set_in_flight(head, true);
    }

    /// Records which request is answered next.
    pub fn prepare_end(&self, head: u16) {
        self.store_u16(LAST_HEAD_AT, head);
    }

    /// Records that it was answered; `next_used` is the used ring's new index.
    pub fn end(&self, head: u16, next_used: u16) {
        self.set_in_flight(head, false);
        self.store_u16(USED_AT, next_used);
    }

    fn is_in_flight(&self, head: u16) -> bool {
        let value: Result<u8, _> = self.memory().load(self.state(head), Ordering::Acquire);
        value.is_ok_and(|value| value == 1)
    }

    fn set_in_flight(&self, head: u16, value: bool) {
        // Release keeps the order of these fields, which the successor relies on. An error
        // is not possible, because the mapped memory lives as long as this.
        let _ = self
            .memory()
            .store(u8::from(value), self.state(head), Ordering::Release);
    }

    fn counter_of(&self, head: u16) -> u64 {
        let at = self.state(head) + COUNTER_AT;
        let value: Result<u64, _> = self.memory().load(at, Ordering::Relaxed);
        value.map_or(0, u64::from_le)
    }

    fn load_u16(&self, at: usize) -> u16 {
        let value: Result<u16, _> = self.memory().load(at, Ordering::Acquire);
        value.map_or(0, u16::from_le)
    }

    fn store_u16(&self, at: usize, value: u16) {
        let _ = self.memory().store(value.to_le(), at, Ordering::Release);
    }

    fn state(&self, head: u16) -> usize {
        HEADER + STATE * usize::from(head)
    }

    fn memory(&self) -> VolatileSlice<'_, ()> {
        let whole = self.area.region.as_volatile_slice();
        whole.offset(self.start).unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(file: &File) -> InFlight {
        let file = file.try_clone().expect("a second descriptor");
        let area = InFlightArea::open(file, 0, 2, 8).expect("it was made so");
        area.queue(1, 8).expect("the second queue")
    }

    #[test]
    fn what_a_killed_server_left_is_found_in_order() {
        let file = InFlightArea::create(2, 8).expect("memory");
        let mut first = opened(&file);
        assert!(first.recover(5).is_empty());
        for head in [6, 2, 3, 0] {
            first.begin(head);
        }
        first.prepare_end(2);
        first.end(2, 6);
        // Killed between the answer, which made 7, and its record.
        first.prepare_end(3);
        let mut second = opened(&file);
        assert_eq!(second.recover(7), [6, 0]);
        second.begin(1);
        assert_eq!(opened(&file).recover(7), [6, 0, 1]);
        // Killed before the answer.
        second.prepare_end(6);
        assert_eq!(opened(&file).recover(7), [6, 0, 1]);
    }

    #[test]
    fn memory_that_may_shrink_is_refused() {
        let file = InFlightArea::create(1, 8).expect("memory");
        assert!(InFlightArea::open(file, 0, 2, 8).is_err());
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let unsealed = rustix::fs::memfd_create("unsealed", flags).expect("memory");
        let unsealed = File::from(unsealed);
        unsealed.set_len(1 << 20).expect("grown");
        assert!(InFlightArea::open(unsealed, 0, 1, 8).is_err());
    }
}
