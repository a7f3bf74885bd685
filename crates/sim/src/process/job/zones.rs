//! `zonemode=zbd`: processes of jobs share what fio knows of a drive's zones, wait for one another
//! there, and reset zones.

use blklab_blk::{Bio, BioFlags, IoStatus, Nanos, Op, SECTOR_SIZE, Sector, ZoneAction};
use blklab_device::DriveSpec;
use blklab_workload::fio::{Direction, JobError, JobFile, JobSpec, ZoneMode};
use blklab_workload::generate::{DriveZones, FileExtent, ZoneCursor, ZonedFile};

use super::files::PlacedFile;
use super::{JobProcess, RESET_SLOT, TaskState};
use crate::system::System;
use crate::timers::user_data;

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

    fn take_waiting(&mut self, process: &InZones) -> Vec<usize> {
        std::mem::take(&mut self.files[process.file].waiting)
    }

    fn await_release(&mut self, process: &InZones, pid: usize) {
        self.files[process.file].waiting.push(pid);
    }
}

impl JobProcess {
    /// Sleeps until another process releases a zone.
    #[cold]
    pub(super) fn await_zone(&mut self, now: Nanos, system: &mut System) {
        if let Some(in_zones) = self.plan.in_zones() {
            system.zones.await_release(in_zones, self.id);
            self.state = TaskState::AwaitsZone;
            self.schedule_out(now, system);
        }
    }

    /// An I/O that holds its zone has ended.
    #[cold]
    pub(super) fn release_zone(
        &mut self,
        now: Nanos,
        direction: Direction,
        end_bytes: u64,
        system: &mut System,
    ) {
        let end_bytes = self.plan.offset_in_file(0, end_bytes);
        if let Some(InZones { file, cursor }) = self.plan.in_zones_mut() {
            let zones = &mut system.zones.files[*file].zones;
            if zones.release(cursor, direction, end_bytes) {
                self.wake_waiting(now, system);
            }
        }
    }

    /// Gives up the I/O that waits for its place in the zones.
    pub(super) fn leave_zones(&mut self, now: Nanos, system: &mut System) {
        if let Some(InZones { file, cursor }) = self.plan.in_zones_mut() {
            cursor.give_up(&mut system.zones.files[*file].zones);
            self.wake_waiting(now, system);
        }
    }

    fn wake_waiting(&self, now: Nanos, system: &mut System) {
        if let Some(in_zones) = self.plan.in_zones() {
            for pid in system.zones.take_waiting(in_zones) {
                system.timers.set(now, pid);
            }
        }
    }

    /// Resets a zone (`BLKRESETZONE`) and waits for it.
    #[cold]
    pub(super) fn reset_zone(
        &mut self,
        now: Nanos,
        (disk, offset_bytes): (usize, u64),
        system: &mut System,
    ) {
        let bio = Bio {
            flags: BioFlags::SYNC,
            prio: self.prio,
            submitter: self.submitter(),
            cgroup: self.cgroup,
            user_data: user_data(self.id, RESET_SLOT),
            ..Bio::new(
                Op::Zone(ZoneAction::Reset),
                Sector::from_bytes(offset_bytes),
                0,
            )
        };
        let call = system.cpus.slowdown(self.cpu, now).of(self.costs.syscall);
        self.state = TaskState::AwaitsFlush;
        self.submit_to_wait(now, (disk, RESET_SLOT), (bio, call), system);
        self.sleep(now, TaskState::AwaitsFlush, system);
    }

    /// The zone was reset.
    #[cold]
    pub(super) fn on_zone_reset(&mut self, now: Nanos, status: IoStatus, system: &mut System) {
        self.recorder.reset_zone();
        if status != IoStatus::Ok {
            self.recorder.failed(status.errno());
            self.fail();
        }
        self.wake_up(now, system);
    }
}
