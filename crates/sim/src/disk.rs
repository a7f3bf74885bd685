//! A drive with its driver and the request queue before it.

use blklab_blk::{
    BioEnd, CgroupId, CostCounts, HeldBios, Nanos, Op, QueueConfig, RequestId, RequestQueue, Span,
    TraceEvent,
};
use blklab_device::{CommandStatus, Completion, DataFault, DriveSpec};
use blklab_driver::{Attachment, Driver, disk_stats, request_end};
use blklab_elevator::SchedulerChoice;
use blklab_stats::{
    CgroupStats, CostTimes, DiskStats, DriveTimeline, HeldIos, PowerLoss, RequestStep, StepKind,
};
use blklab_workload::fio::JobFile;

use crate::cgroups::Cgroups;
use crate::contents::FaultyPart;
use crate::cpu::{CostTable, Mode, SchedulerLock};
use crate::setup::SetupError;

pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) queue: RequestQueue,
    pub(crate) driver: Driver,
    /// The CPU that its interrupt goes to, where it has but one.
    irq_cpu: usize,
    pub(crate) lock: SchedulerLock,
    /// Runs of hardware contexts by kblockd since it was last charged, and their
    /// steps.
    pub(crate) kblockd_runs: Vec<(usize, CostCounts)>,
    done: Vec<Completion>,
    /// When the drive, run ahead, ended those; zero where it was not run ahead.
    ran_to: Nanos,
    /// Since when it counts.
    counts_from: Nanos,
    power_loss: Option<PowerLoss>,
    /// What is wrong with the data of reads that have ended, by the mark of their bios;
    /// `None` where nobody looks at data.
    data_faults: Option<Vec<(u64, FaultyPart)>>,
    /// Names of control groups, where something is written to files of theirs; the
    /// first is number one.
    cgroups: Vec<String>,
}

impl Disk {
    /// A disk of this kind with this scheduler, behind a bridge if there is one.
    ///
    /// # Errors
    /// As [`SchedulerChoice::put_on`].
    pub(crate) fn new(
        name: &str,
        (spec, attachment): (&DriveSpec, Attachment),
        scheduler: &SchedulerChoice,
        cpus: u32,
        seed: u64,
    ) -> Result<Disk, SetupError> {
        let driver = Driver::attached(spec, attachment, seed);
        let mut queue = RequestQueue::new(&QueueConfig {
            seed,
            ..driver.queue_config(cpus as usize)
        });
        scheduler.put_on(&mut queue).map_err(SetupError::Queue)?;
        Ok(Disk {
            name: name.to_string(),
            queue,
            driver,
            irq_cpu: 0,
            lock: SchedulerLock::default(),
            kblockd_runs: Vec::new(),
            done: Vec::new(),
            ran_to: Nanos::ZERO,
            counts_from: Nanos::ZERO,
            power_loss: None,
            data_faults: None,
            cgroups: Vec::new(),
        })
    }

    /// Gives the control groups of jobs their places in the tree, and writes what is
    /// written to their files of this drive, the n-th of this many.
    ///
    /// # Errors
    /// Where the kernel refuses what is written.
    pub(crate) fn set_cgroups(
        &mut self,
        groups: &Cgroups,
        job: &JobFile,
        place: (usize, usize),
    ) -> Result<(), SetupError> {
        let written = (groups.tree()).put_on(&mut self.queue, &job.cgroup_writes, place);
        written.map_err(|mistake| SetupError::Mistake(Box::new(mistake)))?;
        for spec in &job.jobs {
            let (id, Some(weight)) = (groups.of_job(spec), spec.cgroup_weight) else {
                continue;
            };
            if id == CgroupId::ROOT {
                continue;
            }
            if let Some(elevator) = self.queue.elevator_mut() {
                elevator.set_cgroup_weight(id, weight);
            }
            if self.queue.io_cost().is_some() {
                self.queue.set_io_weight(Nanos::ZERO, id, weight);
            }
        }
        if !job.cgroup_writes.is_empty() {
            self.cgroups = groups.tree().names().to_vec();
        }
        Ok(())
    }

    /// When something happens in the queue or the drive.
    #[inline]
    pub(crate) fn next_event(&self) -> Nanos {
        self.driver.next_event().min(self.queue.next_event())
    }

    /// Lets the drive run on until something ends in it, at most up to `limit`,
    /// before which nothing comes from outside. Returns the time reached; what
    /// ended is reported by [`Disk::advance`] to that time.
    #[inline]
    pub(crate) fn run_ahead(&mut self, limit: Nanos) -> Nanos {
        let limit = limit.min(self.queue.next_event());
        let reached = self.driver.advance_to_completion(limit, &mut self.done);
        if !self.done.is_empty() {
            self.ran_to = reached;
        }
        reached
    }

    /// Whether [`Disk::advance`] has anything to do at `now`.
    #[inline]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        !self.done.is_empty() || self.next_event() <= now
    }

    /// Lets time pass up to `now`; appends the bios that ended and the waiters
    /// that may go on.
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: Nanos, ended: &mut Vec<BioEnd>, woken: &mut Vec<u64>) {
        if self.ran_to < now && self.driver.next_event() <= now {
            self.driver.advance(now, &mut self.done);
        }
        self.ran_to = Nanos::ZERO;
        for completion in &self.done {
            let (id, status) = request_end(completion);
            if let Some(faults) = &mut self.data_faults {
                let fault = self.driver.device_mut().take_data_fault(completion.tag);
                add_data_faults(fault, &self.queue, id, faults);
            }
            self.queue.complete(now, id, status, &mut self.driver);
        }
        self.done.clear();
        if self.queue.next_event() <= now {
            let runs = &mut self.kblockd_runs;
            self.queue
                .process_each(now, &mut self.driver, &mut |hctx, steps| {
                    runs.push((hctx, steps));
                });
        }
        self.queue.take_ended(ended);
        self.queue.take_woken(woken);
    }

    /// Has it keep what is wrong with the data of commands.
    pub(crate) fn keep_data_faults(&mut self) {
        self.data_faults = Some(Vec::new());
    }

    /// What is wrong with the data of the I/O of that mark, which has ended.
    pub(crate) fn take_data_faults(&mut self, user_data: u64) -> Vec<FaultyPart> {
        let Some(faults) = &mut self.data_faults else {
            return Vec::new();
        };
        let own = faults.extract_if(.., |(mark, _)| *mark == user_data);
        own.map(|(_, part)| part).collect()
    }

    /// Cuts the drive's power at `now`, up to which it has been advanced. What
    /// was in it ends with an error, which [`Disk::advance`] reports.
    pub(crate) fn lose_power(&mut self, now: Nanos) {
        let counters = self.queue.counters(now);
        let before = self.driver.device().stats(now);
        let ready = self.driver.lose_power(now);
        let after = self.driver.device().stats(now);
        let mut loss = PowerLoss {
            at_ns: now.0,
            ready_ns: ready.0,
            failed: [0; 4],
            acknowledged_sectors: counters.sectors[1],
            flushes: counters.ios[3],
            lost_sectors: after.power_loss_sectors - before.power_loss_sectors,
            lost_acknowledged_sectors: after.power_loss_acknowledged_sectors
                - before.power_loss_acknowledged_sectors,
        };
        for id in self.queue.busy_requests() {
            loss.failed[self.queue.request(id).op.stat_group()] += 1;
            self.done.push(Completion {
                tag: id.index() as u32,
                at: now,
                status: CommandStatus::IoError,
            });
        }
        self.power_loss = Some(loss);
    }

    /// Spreads the events that the queue traced since the last call over `span`, in
    /// which a CPU did what they are about.
    #[inline]
    pub(crate) fn set_trace_times(&mut self, costs: &CostTable, span: Span) {
        if self.queue.is_traced() {
            let weight = |kind| costs.weight(kind);
            self.queue.spread_trace(None, &span, weight);
        }
    }

    /// The same of one hardware context. Times can be given again until
    /// [`RequestQueue::keep_trace_times`] is called.
    #[inline]
    pub(crate) fn spread_trace_times(&mut self, costs: &CostTable, hctx: usize, span: Span) {
        if self.queue.is_traced() {
            let weight = |kind| costs.weight(kind);
            self.queue.spread_trace(Some(hctx), &span, weight);
        }
    }

    /// What the driver was given reaches the drive at `at`, when its CPU has done its
    /// part.
    #[inline]
    pub(crate) fn release(&mut self, at: Nanos) {
        self.driver.release(at);
    }

    /// Sends its one interrupt to this CPU.
    pub(crate) fn set_irq_cpu(&mut self, cpu: usize) {
        self.irq_cpu = cpu;
    }

    /// The CPU that takes the interrupt for a request of another: its own queue's,
    /// or where there is but one queue, the one that its one interrupt goes to.
    pub(crate) fn interrupted_cpu(&self, submitter: usize) -> usize {
        match self.queue.nr_hw_queues() {
            1 => self.irq_cpu,
            _ => self.queue.cpu_of(self.queue.hctx_of(submitter)),
        }
    }

    /// Where requests are ended: with one queue in a softirq, with a queue for
    /// each CPU in the interrupt itself (`blk_mq_complete_request_remote`).
    pub(crate) fn ends_in(&self) -> Mode {
        match self.queue.nr_hw_queues() {
            1 => Mode::SoftInterrupt,
            _ => Mode::Interrupt,
        }
    }

    /// Starts or stops recording what happens to requests, and in the drive.
    pub(crate) fn record(&mut self, requests: bool, in_drive: bool) {
        self.queue.enable_trace(requests);
        self.driver.device_mut().record(in_drive);
    }

    /// Whether its driver sends the drive nothing beside a flush.
    pub(crate) fn flushes_hold_others(&self) -> bool {
        self.driver.flushes_hold_others()
    }

    /// Requests that the driver has and the drive has not yet, as steps: each reaches
    /// the drive at `now` or later.
    pub(crate) fn on_the_way(&self, now: Nanos) -> Vec<RequestStep> {
        let step = |(at, id): (Nanos, RequestId)| {
            let rq = self.queue.request(id);
            let at = if at == Nanos::MAX { now } else { at.max(now) };
            RequestStep {
                at_ns: at.0,
                kind: StepKind::Issued,
                request: rq.serial,
                op: letter(rq.op),
                flags: rq.flags.0,
                sector: rq.sector.0,
                sectors: rq.sectors,
                cpu: rq.ctx as u32,
                submitter: rq.submitter.0,
                errno: 0,
            }
        };
        self.driver.on_the_way().into_iter().map(step).collect()
    }

    /// Appends what was recorded since the last time.
    pub(crate) fn take_record(&mut self, events: &mut Vec<TraceEvent>, drive: &mut DriveTimeline) {
        self.queue.take_trace(events);
        self.driver.device_mut().take_record(drive);
    }

    pub(crate) fn reset_counters(&mut self, now: Nanos) {
        self.counts_from = now;
        self.queue.reset_counters(now);
        self.driver.device_mut().reset_stats(now);
    }

    /// What throttling did to each control group, the root first, in which all is where no
    /// other group was made.
    fn cgroup_stats(&self) -> Vec<CgroupStats> {
        let names = std::iter::once("").chain(self.cgroups.iter().map(String::as_str));
        let stats = names.zip(0..).map(|(name, id)| {
            let stats = self.queue.cgroup_stats(CgroupId(id));
            let held = |held: HeldBios| HeldIos {
                ios: held.bios,
                ns: held.ns,
            };
            CgroupStats {
                name: name.to_string(),
                io_max: held(stats.io_max),
                wbt: held(stats.wbt),
                io_latency: held(stats.io_latency),
                io_cost: held(stats.io_cost),
                cost: stats.cost.map(|cost| CostTimes {
                    usage_us: cost.usage_us,
                    wait_us: cost.wait_us,
                    debt_us: cost.debt_us,
                    delay_us: cost.delay_us,
                }),
                max_depth: stats.max_depth,
            }
        });
        stats.collect()
    }

    pub(crate) fn stats(&self, now: Nanos) -> DiskStats {
        DiskStats {
            counted_ns: now.saturating_sub(self.counts_from).0,
            power_loss: self.power_loss.clone(),
            cgroups: self.cgroup_stats(),
            ..disk_stats(&self.name, &self.queue, &self.driver, now)
        }
    }
}

/// Adds what a fault in a request's data is to each of its bios.
#[cold]
fn add_data_faults(
    fault: Option<DataFault>,
    queue: &RequestQueue,
    id: RequestId,
    faults: &mut Vec<(u64, FaultyPart)>,
) {
    let Some(fault) = fault else { return };
    let start = queue.request(id).sector.0;
    for bio in queue.bios_of(id) {
        let part = fault.of_part(start, bio.sector.0..bio.end().0);
        let range = bio.sector.bytes()..bio.end().bytes();
        faults.extend(part.map(|fault| (bio.user_data, FaultyPart { range, fault })));
    }
}

/// What a request does, as blkparse has it.
pub(crate) fn letter(op: Op) -> char {
    match op {
        Op::Read => 'R',
        Op::Write | Op::WriteZeroes | Op::Zone(_) => 'W',
        Op::Discard => 'D',
        Op::Flush => 'F',
    }
}
