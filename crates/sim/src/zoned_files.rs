//! `zonemode=zbd`: what the processes of a run share of the zones of files and drives.

use blklab_blk::SECTOR_SIZE;
use blklab_device::DriveSpec;
use blklab_workload::fio::{Direction, JobError, JobFile, JobSpec, ZoneMode};
use blklab_workload::generate::{DriveZones, FileExtent, ZoneCursor, ZonedFile};

use crate::process::job::PlacedFile;

/// The zones that a drive has of its own.
pub(crate) fn zones_of(drive: &DriveSpec) -> Option<DriveZones> {
    let limits = drive.identity().zones?;
    Some(DriveZones {
        zone_bytes: u64::from(limits.zone_sectors) * SECTOR_SIZE,
        capacity_bytes: u64::from(limits.capacity_sectors) * SECTOR_SIZE,
        conventional: u64::from(limits.conventional),
        max_open: limits.max_open,
        are_full: drive.starts_written(),
    })
}

/// The jobs with sizes in bytes that are given in zones of the drive.
pub(crate) fn sized_in_zones(job: &JobFile, drive: Option<DriveZones>) -> JobFile {
    let mut job = job.clone();
    for spec in &mut job.jobs {
        if let (ZoneMode::Zoned, 0, Some(drive)) = (spec.zones.mode, spec.zones.size_bytes, drive) {
            spec.set_zone_bytes(drive.zone_bytes);
        }
    }
    job
}

/// The zones of all files that are used with `zonemode=zbd`.
#[derive(Default)]
pub(crate) struct ZonedFiles {
    files: Vec<SharedZones>,
}

/// The zones of a file, for all processes that use it.
struct SharedZones {
    /// The drive, and where the file begins on it.
    place: (usize, u64),
    zones: ZonedFile,
    /// Processes that sleep until a zone is released.
    waiting: Vec<usize>,
}

/// The place of a process in the zones of its file.
pub(crate) struct InZones {
    /// The index of the file in [`ZonedFiles`].
    file: usize,
    pub(crate) cursor: ZoneCursor,
}

impl ZonedFiles {
    /// Adds a process of a job, whose part of its file is cut down to whole zones. `None` where the
    /// job does not keep to zones.
    pub(crate) fn add(
        &mut self,
        (spec, process): (&JobSpec, usize),
        (placed, part): (&PlacedFile, &mut FileExtent),
        drive: Option<DriveZones>,
    ) -> Result<Option<InZones>, JobError> {
        if spec.zones.mode != ZoneMode::Zoned {
            return Ok(None);
        }
        let place = (placed.disk, placed.base_bytes);
        let known = self.files.iter().position(|file| file.place == place);
        let file = match known {
            Some(file) => file,
            None => {
                let drive = drive.filter(|_| placed.is_device);
                self.files.push(SharedZones {
                    place,
                    zones: ZonedFile::new(spec, placed.size_bytes, drive)?,
                    waiting: Vec::new(),
                });
                self.files.len() - 1
            }
        };
        let zones = &self.files[file].zones;
        zones.check(spec)?;
        zones.fit(spec, part)?;
        let cursor = ZoneCursor::new(spec, process as u32, part, zones);
        Ok(Some(InZones { file, cursor }))
    }

    /// The zones of a process's file.
    pub(crate) fn of(&mut self, process: &InZones) -> &mut ZonedFile {
        &mut self.files[process.file].zones
    }

    /// Releases the zone of an I/O that has ended. Returns whether that lets others go on.
    pub(crate) fn release(
        &mut self,
        process: &mut InZones,
        direction: Direction,
        end_bytes: u64,
    ) -> bool {
        let zones = &mut self.files[process.file].zones;
        zones.release(&mut process.cursor, direction, end_bytes)
    }

    /// Gives up the I/O of a process that waits for its place in the zones.
    pub(crate) fn give_up(&mut self, process: &mut InZones) {
        process.cursor.give_up(&mut self.files[process.file].zones);
    }

    /// Removes the processes that sleep until a zone is released, and returns them.
    pub(crate) fn take_waiting(&mut self, process: &InZones) -> Vec<usize> {
        std::mem::take(&mut self.files[process.file].waiting)
    }

    /// Has a process sleep until a zone is released.
    pub(crate) fn await_release(&mut self, process: &InZones, pid: usize) {
        self.files[process.file].waiting.push(pid);
    }
}
