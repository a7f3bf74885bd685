//! `zonemode=strided`: I/O stays within a zone until `zonesize` bytes are transferred, then goes on
//! in the next (fio's `setup_strided_zone_mode`).

use super::file::File;
use crate::fio::{Direction, JobSpec, ZoneMode};
use crate::generate::layout::FileExtent;
use crate::generate::random::Random;

/// The zone that a process is in.
#[derive(Clone, Debug)]
pub(crate) struct Strides {
    zone_bytes: u64,
    range_bytes: u64,
    skip_bytes: u64,
    /// The start of the first zone.
    first_bytes: u64,
    /// Bytes transferred in this zone.
    transferred: u64,
}

impl Strides {
    pub fn new(spec: &JobSpec, files: &[FileExtent]) -> Option<Strides> {
        let [file] = files else { return None };
        let zones = &spec.zones;
        (zones.mode == ZoneMode::Strided).then(|| Strides {
            zone_bytes: zones.size_bytes,
            range_bytes: zones.range_bytes,
            skip_bytes: zones.skip_bytes(),
            first_bytes: file.offset_bytes,
            transferred: 0,
        })
    }

    /// A pass begins in the first zone.
    pub fn start_pass(&mut self, file: &mut File) {
        self.transferred = 0;
        file.extent.offset_bytes = self.first_bytes;
    }

    pub fn issued(&mut self, bytes: u64) {
        self.transferred += bytes;
    }

    /// Before an I/O: goes on to the next zone if this one has had its share, and back to the start
    /// of a zone that was gone through.
    pub fn enter(&mut self, file: &mut File, direction: Direction, random: &mut Random) {
        if self.transferred >= self.zone_bytes {
            self.transferred = 0;
            let step = self.range_bytes.saturating_add(self.skip_bytes);
            let next = file.extent.offset_bytes.saturating_add(step);
            file.extent.offset_bytes = match next < file.extent.file_bytes {
                true => next,
                false => self.first_bytes,
            };
            file.end[direction] = 0;
        }
        if file.end[direction] >= self.range_bytes {
            file.end[direction] = 0;
        }
        if self.transferred.is_multiple_of(self.range_bytes) {
            file.restart(random);
        }
    }
}
