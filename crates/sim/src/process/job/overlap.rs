//! `serialize_overlap`: an I/O waits while one that overlaps it is in flight (`in_flight_overlap`
//! in fio's `backend.c`).

use super::plan::NextIo;

/// Where a process's I/Os are that have not been reaped.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// By slot, first byte and end in its file; an empty range where there is none.
    ranges: Vec<(u64, u64)>,
    /// The I/O that waits.
    held: Option<NextIo>,
}

impl Overlaps {
    /// Whether an I/O at `(start, end)` waits, as one in flight overlaps it. As in fio, it does so
    /// where the other is at these bytes of another file too.
    pub(super) fn hold(&mut self, io: &NextIo, (start, end): (u64, u64)) -> bool {
        let mut in_flight = self.ranges.iter().filter(|(first, past)| first < past);
        let waits = in_flight.any(|&(first, past)| start < past && first < end);
        self.held = waits.then_some(*io);
        waits
    }

    /// The I/O that waited, to be tried again.
    pub(super) fn take_held(&mut self) -> Option<NextIo> {
        self.held.take()
    }

    /// An I/O is issued.
    pub(super) fn issued(&mut self, slot: u32, range: (u64, u64)) {
        let slot = slot as usize;
        if self.ranges.len() <= slot {
            self.ranges.resize(slot + 1, (0, 0));
        }
        self.ranges[slot] = range;
    }

    /// It is reaped.
    pub(super) fn reaped(&mut self, slot: u32) {
        self.ranges[slot as usize] = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::fio::Direction;

    fn io(offset_bytes: u64) -> NextIo {
        NextIo {
            dir: Direction::Write,
            disk: 0,
            file: 0,
            offset_bytes,
            bytes: 4096,
            prio: None,
            holds_zone: false,
        }
    }

    #[test]
    fn an_io_waits_for_those_that_it_overlaps() {
        let mut overlaps = Overlaps::default();
        overlaps.issued(0, (0, 4096));
        overlaps.issued(1, (8192, 12288));
        assert!(overlaps.hold(&io(2048), (2048, 6144)));
        assert_eq!(overlaps.take_held(), Some(io(2048)));
        assert!(!overlaps.hold(&io(4096), (4096, 8192)));
        assert_eq!(overlaps.take_held(), None);
        overlaps.reaped(0);
        overlaps.issued(2, (20480, 24576));
        assert!(!overlaps.hold(&io(2048), (2048, 6144)));
    }
}
