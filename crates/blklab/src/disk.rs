//! A simulated disk without data.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use blklab_blk::{
    Bio, BioEnd, BioFlags, IoStatus, Nanos, Op, QueueConfig, RequestQueue, Sector, Submit,
    SubmitterId, Waiter,
};
use blklab_device::{Completion, DataFault, DriveSpec, Faults, registry};
use blklab_driver::{Driver, request_end};
use blklab_elevator::SchedulerChoice;

/// Configuration of a disk.
#[derive(Clone)]
pub struct Setup {
    /// The drive.
    pub drive: DriveSpec,
    /// The scheduler in front of the drive.
    pub scheduler: SchedulerChoice,
    /// Number of CPUs that submit.
    pub cpus: u32,
}

/// The reason why a disk cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(String);

impl Setup {
    /// Returns a setup of a drive (a name of `blklab list drives`, or a file) and a scheduler (a
    /// name of `blklab list schedulers`), with one CPU.
    ///
    /// # Errors
    /// If there is no such drive or scheduler; the message names the most similar one.
    pub fn named(drive: &str, scheduler: &str) -> Result<Setup, SetupError> {
        let (drive, _) = registry::load(drive).map_err(SetupError)?;
        let scheduler = SchedulerChoice::named(scheduler);
        Ok(Setup {
            drive,
            scheduler: scheduler.map_err(|error| SetupError(error.to_string()))?,
            cpus: 1,
        })
    }

    /// Returns the setup with faults in the drive.
    pub fn with_faults(self, faults: Faults) -> Setup {
        Setup {
            drive: self.drive.with_faults(faults),
            ..self
        }
    }
}

/// A request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub op: Op,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; zero only for a flush.
    pub sectors: u32,
    /// Whether a write completes only when it is on stable storage.
    pub fua: bool,
    /// The submitting process, by which schedulers tell submitters apart.
    pub submitter: u32,
    /// The submitting CPU.
    pub cpu: u32,
    /// The caller's handle, returned with the completion.
    pub handle: u64,
}

impl Call {
    /// Returns a call of one range, from submitter 0 on CPU 0.
    pub fn new(op: Op, sector: u64, sectors: u32, handle: u64) -> Call {
        Call {
            op,
            sector: Sector(sector),
            sectors,
            fua: false,
            submitter: 0,
            cpu: 0,
            handle,
        }
    }
}

/// Completion of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The caller's handle.
    pub handle: u64,
    /// Time of the completion.
    pub at: Nanos,
    /// The result.
    pub status: IoStatus,
}

/// A simulated disk without data: request queue, scheduler, driver and drive.
///
/// The caller passes the time, which must not decrease from one call to the next.
pub struct SimulatedDisk {
    scheduler: SchedulerChoice,
    config: QueueConfig,
    queue: RequestQueue,
    driver: Driver,
    /// Calls that wait for a tag.
    waiting: BTreeMap<u64, Waiter>,
    completions: Vec<Completion>,
    ended: Vec<BioEnd>,
    woken: Vec<u64>,
    /// By the handle of the call.
    data_faults: Vec<(u64, (Range<u64>, DataFault))>,
}

impl SimulatedDisk {
    /// Returns a disk; `seed` determines all random behaviour of the drive.
    ///
    /// # Errors
    /// If the queue refuses the scheduler's settings.
    pub fn new(setup: &Setup, seed: u64) -> Result<SimulatedDisk, SetupError> {
        if setup.drive.identity().zones.is_some() {
            return Err(SetupError(format!(
                "{}: a drive with zones is not written anywhere, as callers do here; right is one \
                 without",
                setup.drive.name
            )));
        }
        let driver = Driver::new(&setup.drive, seed);
        let config = QueueConfig {
            seed,
            ..driver.queue_config(setup.cpus.max(1) as usize)
        };
        let mut disk = SimulatedDisk {
            scheduler: setup.scheduler.clone(),
            queue: RequestQueue::new(&config),
            config,
            driver,
            waiting: BTreeMap::new(),
            completions: Vec::new(),
            ended: Vec::new(),
            woken: Vec::new(),
            data_faults: Vec::new(),
        };
        let put_on = disk.scheduler.put_on(&mut disk.queue);
        put_on.map_err(SetupError)?;
        Ok(disk)
    }

    /// Size in sectors.
    pub fn capacity_sectors(&self) -> u64 {
        self.config.limits.capacity_sectors
    }

    /// Logical block size in sectors.
    pub fn logical_block_sectors(&self) -> u32 {
        self.config.limits.logical_block_sectors
    }

    /// Whether it acknowledges writes before they are on stable storage.
    pub fn has_volatile_cache(&self) -> bool {
        self.config.limits.write_cache
    }

    /// Whether it supports writing zeroes without data.
    pub fn has_write_zeroes(&self) -> bool {
        self.config.limits.max_write_zeroes_sectors > 0
    }

    /// Submits a call. One outside the drive's range or not in whole logical blocks completes with
    /// an error.
    ///
    /// # Panics
    /// If the CPU is not one of the setup's.
    pub fn submit(&mut self, now: Nanos, call: Call) {
        let fua = if call.fua {
            BioFlags::FUA
        } else {
            BioFlags::NONE
        };
        let bio = Bio {
            flags: fua,
            submitter: SubmitterId(call.submitter),
            user_data: call.handle,
            ..Bio::new(call.op, call.sector, call.sectors)
        };
        let cpu = call.cpu as usize;
        let submitted = self.queue.submit_bio(now, cpu, None, bio, &mut self.driver);
        self.keep_waiting(submitted);
    }

    fn keep_waiting(&mut self, submitted: Submit) {
        if let Submit::Blocked(waiter) = submitted {
            self.waiting.insert(waiter.ticket, waiter);
        }
    }

    /// The time at which [`SimulatedDisk::advance`] should be called next; [`Nanos::MAX`] while the
    /// disk is idle.
    pub fn next_event(&self) -> Nanos {
        if self.queue.has_ended() {
            return Nanos::ZERO;
        }
        self.driver.next_event().min(self.queue.next_event())
    }

    /// Advances time to `now` and appends the completed calls.
    pub fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.data_faults.clear();
        loop {
            self.complete(now);
            if self.queue.next_event() <= now {
                self.queue.process(now, &mut self.driver);
            }
            self.queue.take_ended(&mut self.ended);
            self.queue.take_woken(&mut self.woken);
            for ticket in core::mem::take(&mut self.woken) {
                if let Some(waiter) = self.waiting.remove(&ticket) {
                    let resumed = self.queue.resume(now, None, waiter, &mut self.driver);
                    self.keep_waiting(resumed);
                }
            }
            if self.next_event() > now {
                break;
            }
        }
        done.extend(self.ended.drain(..).map(|bio| Done {
            handle: bio.user_data,
            at: now,
            status: bio.status,
        }));
    }

    /// Completes the requests that the drive has completed.
    fn complete(&mut self, now: Nanos) {
        if self.driver.next_event() > now {
            return;
        }
        self.driver.advance(now, &mut self.completions);
        for completion in self.completions.drain(..) {
            let (id, status) = request_end(&completion);
            if let Some(fault) = self.driver.device_mut().take_data_fault(completion.tag) {
                let start = self.queue.request(id).sector.0;
                for bio in self.queue.bios_of(id) {
                    let part = bio.sector.0..bio.end().0;
                    let fault = fault.of_part(start, part.clone());
                    let of_call = fault.map(|fault| (bio.user_data, (part, fault)));
                    self.data_faults.extend(of_call);
                }
            }
            self.queue.complete(now, id, status, &mut self.driver);
        }
    }

    /// Cuts the machine's power at `now`, up to which the disk must have been advanced, and
    /// restores it: no call in flight completes, and the block layer is empty. Returns the time at
    /// which the drive accepts commands again.
    pub fn cut_power(&mut self, now: Nanos) -> Nanos {
        self.waiting.clear();
        self.ended.clear();
        self.woken.clear();
        self.data_faults.clear();
        self.queue = RequestQueue::new(&self.config);
        let put_on = self.scheduler.put_on(&mut self.queue);
        put_on.expect("it was put on such a queue before");
        self.driver.lose_power(now)
    }

    /// The faults in the data of a call that completed in the last [`SimulatedDisk::advance`], for
    /// each part that the block layer made of it: the part's sectors, and what is wrong there.
    pub(crate) fn data_faults(
        &self,
        handle: u64,
    ) -> impl Iterator<Item = &(Range<u64>, DataFault)> {
        let own = move |fault: &&(u64, (Range<u64>, DataFault))| fault.0 == handle;
        self.data_faults.iter().filter(own).map(|(_, fault)| fault)
    }
}
