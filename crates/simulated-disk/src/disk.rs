//! A disk that only takes time.

use std::collections::BTreeMap;

use blklab_blk::{
    Bio, BioEnd, BioFlags, IoStatus, Nanos, Op, QueueConfig, RequestQueue, Sector, Submit,
    SubmitterId, Waiter,
};
use blklab_device::{Completion, DataFault, DriveSpec, Faults, registry};
use blklab_driver::{Driver, request_end};
use blklab_elevator::SchedulerChoice;

/// What a disk is made of.
#[derive(Clone)]
pub struct Setup {
    /// The drive.
    pub drive: DriveSpec,
    /// The scheduler before it.
    pub scheduler: SchedulerChoice,
    /// CPUs that submit.
    pub cpus: u32,
}

/// Why there is no such disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(String);

impl Setup {
    /// A drive (a name of `blklab list drives`, or a file) and a scheduler (a name of
    /// `blklab list schedulers`), with one CPU.
    ///
    /// # Errors
    /// Where there is no such drive or scheduler; the message names the nearest.
    pub fn named(drive: &str, scheduler: &str) -> Result<Setup, SetupError> {
        let (drive, _) = registry::load(drive).map_err(SetupError)?;
        let scheduler = SchedulerChoice::named(scheduler);
        Ok(Setup {
            drive,
            scheduler: scheduler.map_err(|error| SetupError(error.to_string()))?,
            cpus: 1,
        })
    }

    /// The same with faults in the drive.
    pub fn with_faults(self, faults: Faults) -> Setup {
        Setup {
            drive: self.drive.with_faults(faults),
            ..self
        }
    }
}

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What to do.
    pub op: Op,
    /// Where it starts.
    pub sector: Sector,
    /// How much, in sectors; zero only for a flush.
    pub sectors: u32,
    /// Complete a write only when it is on stable storage.
    pub fua: bool,
    /// Who asks: schedulers tell processes apart by it.
    pub submitter: u32,
    /// The CPU that asks.
    pub cpu: u32,
    /// The caller's handle; it comes back with the end.
    pub handle: u64,
}

impl Call {
    /// A call of one range, of submitter and CPU 0.
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

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The caller's handle.
    pub handle: u64,
    /// When it ended.
    pub at: Nanos,
    /// How.
    pub status: IoStatus,
}

/// A disk that only takes time: request queue, scheduler, driver and drive.
///
/// Time is the caller's: it must not go back from one call to the next.
pub struct SimulatedDisk {
    scheduler: SchedulerChoice,
    config: QueueConfig,
    queue: RequestQueue,
    driver: Driver,
    /// Calls that wait for room in the queue.
    waiting: BTreeMap<u64, Waiter>,
    completions: Vec<Completion>,
    ended: Vec<BioEnd>,
    woken: Vec<u64>,
    data_faults: Vec<(u64, DataFault)>,
}

impl SimulatedDisk {
    /// A disk; `seed` decides whatever is left to chance in the drive.
    ///
    /// # Errors
    /// Where the queue does not take what the scheduler's choice says.
    pub fn new(setup: &Setup, seed: u64) -> Result<SimulatedDisk, SetupError> {
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

    /// Its size, in sectors.
    pub fn capacity_sectors(&self) -> u64 {
        self.config.limits.capacity_sectors
    }

    /// The unit it addresses, in sectors.
    pub fn logical_block_sectors(&self) -> u32 {
        self.config.limits.logical_block_sectors
    }

    /// Whether it acknowledges writes that are not on stable storage yet.
    pub fn has_volatile_cache(&self) -> bool {
        self.config.limits.write_cache
    }

    /// Whether it has a command that makes a range read as zeroes.
    pub fn has_write_zeroes(&self) -> bool {
        self.config.limits.max_write_zeroes_sectors > 0
    }

    /// Takes a call. One out of the drive's range, or that does not consist of whole
    /// logical blocks, ends with an error.
    ///
    /// # Panics
    /// Where the CPU is not one of the setup's.
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

    /// When [`SimulatedDisk::advance`] should be called next; [`Nanos::MAX`] while
    /// nothing goes on.
    pub fn next_event(&self) -> Nanos {
        if self.queue.has_ended() {
            return Nanos::ZERO;
        }
        self.driver.next_event().min(self.queue.next_event())
    }

    /// Lets time pass up to `now`; appends the calls that ended.
    pub fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.data_faults.clear();
        loop {
            self.complete(now);
            if self.queue.next_event() <= now {
                self.queue.process(now, &mut self.driver);
            }
            self.queue.take_ended(&mut self.ended);
            self.queue.take_woken(&mut self.woken);
            for ticket in std::mem::take(&mut self.woken) {
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

    /// Ends the requests that the drive has completed.
    fn complete(&mut self, now: Nanos) {
        if self.driver.next_event() > now {
            return;
        }
        self.driver.advance(now, &mut self.completions);
        for completion in self.completions.drain(..) {
            let (id, status) = request_end(&completion);
            if let Some(fault) = self.driver.device_mut().take_data_fault(completion.tag) {
                let start = self.queue.request(id).sector;
                for bio in self.queue.bios_of(id) {
                    let fault = fault_of_bio(fault, start, bio);
                    self.data_faults
                        .extend(fault.map(|fault| (bio.user_data, fault)));
                }
            }
            self.queue.complete(now, id, status, &mut self.driver);
        }
    }

    /// The machine loses its power at `now`, up to which the disk has been advanced,
    /// and gets it back: no call in flight ever ends, and the block layer is empty.
    /// Returns when the drive takes commands again.
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

    /// What is wrong with the data of reads that ended in the last
    /// [`SimulatedDisk::advance`], by their handles.
    pub(crate) fn data_faults(&self) -> &[(u64, DataFault)] {
        &self.data_faults
    }
}

/// What a fault in the data of a request that starts at `start` means for one of its
/// bios.
fn fault_of_bio(fault: DataFault, start: Sector, bio: &Bio) -> Option<DataFault> {
    match fault {
        DataFault::BitRot { sector, .. } => (bio.sector.0..bio.end().0)
            .contains(&sector)
            .then_some(fault),
        DataFault::Stale => Some(fault),
        DataFault::Misdirected { sector } => Some(DataFault::Misdirected {
            sector: sector + (bio.sector.0 - start.0),
        }),
    }
}
