//! Replays a block trace: at its own times, faster or slower, or as fast as
//! earlier I/Os end.

mod pace;
mod scripts;

use std::path::Path;

use blklab_blk::{
    Bio, BioEnd, BioFlags, IoClass, IoPrio, Nanos, Op, SECTOR_SIZE, Submit, SubmitterId, Waiter,
};
use blklab_stats::{DEFAULT_PERCENTILES, GroupResults, JobResults, JobSetup, Results, World};
use blklab_workload::fio::Direction;
use blklab_workload::generate::SyncKind;
use blklab_workload::trace::{self, TraceRecord};

use crate::cpu::Cpus;
use crate::disk::Disk;
use crate::drives::drive_seed;
use crate::machine::Machine;
use crate::progress::{LOST, Progress};
use crate::recorder::Recorder;
use crate::recording::Recording;
use crate::setup::{ReplayMode, Setup, SetupError, check_power_loss, loop_note};
use crate::waiting::Waiting;
use pace::Pace;

/// fio's default `bwavgtime`.
const WINDOW: Nanos = Nanos::from_millis(500);

/// Replays a trace once.
///
/// # Errors
/// Where the trace cannot be read, or has no I/O; the message has file and line.
pub(crate) fn replay(
    setup: &Setup<'_>,
    file: &str,
    mode: ReplayMode,
) -> Result<Results, SetupError> {
    check_power_loss(setup.drive, setup.power_loss_at)?;
    let reader = trace::open(Path::new(file), None).map_err(SetupError::trace)?;
    let pace = Pace::new(mode, reader, file)?;
    let mut run = Replay::new(setup, file, (mode, pace));
    while run.advance()? {}
    if run.devices.is_empty() {
        return Err(SetupError::Trace(format!(
            "{file}: there is no I/O in it; a trace to replay has one at least"
        )));
    }
    Ok(run.results(setup, file))
}

/// An I/O of the trace that is under way.
#[derive(Clone, Copy, Debug)]
struct Io {
    dir: Option<Direction>,
    bytes: u64,
    started: Nanos,
    /// Its number in the trace, and its process.
    number: u64,
    pid: u32,
}

struct Replay<'a> {
    setup: &'a Setup<'a>,
    now: Nanos,
    pace: Pace,
    /// The trace's drives, by its numbers, in order of appearance.
    devices: Vec<u32>,
    disks: Vec<Disk>,
    ios: Vec<Io>,
    free: Vec<u32>,
    in_flight: u32,
    /// By disk, threads that sleep in the block layer; each I/O has one of its own.
    asleep: Vec<Waiting<Waiter>>,
    recorder: Recorder,
    ended: Vec<BioEnd>,
    woken: Vec<u64>,
    /// A trace's processes are not simulated: these CPUs do nothing.
    cpus: Cpus,
    recording: Option<Recording>,
    /// When the drives lose their power; [`Nanos::MAX`] where that has been, or
    /// does not happen.
    power_loss_at: Nanos,
    progress: Progress,
}

impl<'a> Replay<'a> {
    fn new(setup: &'a Setup<'a>, file: &str, (mode, pace): (ReplayMode, Pace)) -> Replay<'a> {
        let depth = match mode {
            ReplayMode::Open { .. } | ReplayMode::Dependencies => 1,
            ReplayMode::Closed { depth } => depth,
        };
        let results = JobResults {
            name: file.to_string(),
            members: 1,
            iodepth: depth,
            percentiles: DEFAULT_PERCENTILES.to_vec(),
            setup: JobSetup {
                rw: "rw".to_string(),
                ioengine: "replay".to_string(),
                ..JobSetup::default()
            },
            ..JobResults::default()
        };
        let mut run = Replay {
            setup,
            now: Nanos::ZERO,
            pace,
            devices: Vec::new(),
            disks: Vec::new(),
            ios: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            asleep: Vec::new(),
            recorder: Recorder::new(results, WINDOW, Nanos::ZERO),
            ended: Vec::new(),
            woken: Vec::new(),
            cpus: Cpus::new(setup.machine.cpus, setup.machine.costs.coldness()),
            recording: setup.record.map(Recording::new),
            power_loss_at: setup.power_loss_at.unwrap_or(Nanos::MAX),
            progress: Progress::default(),
        };
        run.recorder.start(Nanos::ZERO);
        run
    }

    /// Lets time pass to the next event. Returns false when all is over.
    fn advance(&mut self) -> Result<bool, SetupError> {
        let disks = self.disks.iter().map(Disk::next_event).min();
        let disks = disks.unwrap_or(Nanos::MAX);
        let arrival = self.pace.next_arrival(self.now, self.in_flight)?;
        let next = arrival.min(disks);
        if next == Nanos::MAX {
            return match self.in_flight {
                0 => Ok(false),
                _ => Err(SetupError::stuck(self.now, LOST)),
            };
        }
        let next = next.min(self.power_loss_at);
        self.now = self.now.max(next);
        self.progress.step(self.now)?;
        self.record();
        for disk in 0..self.disks.len() {
            if self.disks[disk].next_event() <= self.now {
                self.advance_disk(disk);
            }
        }
        if self.now >= self.power_loss_at {
            self.lose_power();
        }
        if arrival <= self.now
            && let Some((record, number)) = self.pace.take()?
        {
            let disk = self.disk_of(record.device)?;
            self.submit(disk, &record, number);
        }
        Ok(true)
    }

    fn record(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.step(self.now, &mut self.disks, &mut self.cpus);
        }
    }

    /// Every drive loses its power, and what is in it ends with an error.
    fn lose_power(&mut self) {
        self.power_loss_at = Nanos::MAX;
        for disk in 0..self.disks.len() {
            self.disks[disk].lose_power(self.now);
            self.advance_disk(disk);
        }
    }

    fn advance_disk(&mut self, disk: usize) {
        let (mut ended, mut woken) = (
            std::mem::take(&mut self.ended),
            std::mem::take(&mut self.woken),
        );
        self.disks[disk].advance(self.now, &mut ended, &mut woken);
        ended.drain(..).for_each(|end| self.on_end(end));
        for ticket in woken.drain(..) {
            self.on_woken(disk, ticket);
        }
        self.ended = ended;
        self.woken = woken;
    }

    fn on_end(&mut self, end: BioEnd) {
        let slot = end.user_data as u32;
        let io = self.ios[slot as usize];
        self.free.push(slot);
        self.in_flight -= 1;
        self.pace.ended(io.number, io.pid);
        match io.dir {
            Some(dir) => {
                self.recorder.completed(
                    self.now, dir, io.bytes, io.started, io.started, true, end.status,
                );
            }
            None => self
                .recorder
                .synced(Some(SyncKind::Fsync), io.started, self.now, end.status),
        }
    }

    fn on_woken(&mut self, disk: usize, ticket: u64) {
        let Some(waiter) = self.asleep[disk].take(ticket) else {
            return;
        };
        let d = &mut self.disks[disk];
        if let Submit::Blocked(waiter) = d.queue.resume(self.now, None, waiter, &mut d.driver) {
            self.asleep[disk].push(waiter.ticket, waiter);
        }
    }

    fn submit(&mut self, disk: usize, record: &TraceRecord, number: u64) {
        let io = Io {
            dir: match record.op {
                Op::Read => Some(Direction::Read),
                Op::Write | Op::WriteZeroes => Some(Direction::Write),
                Op::Discard => Some(Direction::Trim),
                Op::Flush => None,
            },
            bytes: record.sectors as u64 * SECTOR_SIZE,
            started: self.now,
            number,
            pid: record.pid,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.ios[slot as usize] = io;
                slot
            }
            None => {
                self.ios.push(io);
                self.ios.len() as u32 - 1
            }
        };
        self.in_flight += 1;
        self.recorder.submitted(self.in_flight, 1);
        let bio = Bio {
            flags: record.flags.without(BioFlags::NOWAIT),
            prio: IoPrio {
                class: IoClass::Be,
                level: 4,
            },
            submitter: SubmitterId(record.pid),
            user_data: slot as u64,
            ..Bio::new(record.op, record.sector, record.sectors)
        };
        let cpu = (record.pid % self.setup.machine.cpus) as usize;
        let d = &mut self.disks[disk];
        if let Submit::Blocked(waiter) = d.queue.submit_bio(self.now, cpu, None, bio, &mut d.driver)
        {
            self.asleep[disk].push(waiter.ticket, waiter);
        }
        if self.disks[disk].queue.has_ended() {
            self.advance_disk(disk);
        }
    }

    fn disk_of(&mut self, device: u32) -> Result<usize, SetupError> {
        if let Some(at) = self.devices.iter().position(|&d| d == device) {
            return Ok(at);
        }
        let n = self.devices.len();
        self.devices.push(device);
        self.asleep.push(Waiting::new());
        let s = self.setup;
        let name = format!("drive{device}");
        let seed = drive_seed(s.seed, n);
        let disk = Disk::new(&name, s.drive, s.scheduler, s.machine.cpus, seed)?;
        self.disks.push(disk);
        self.record();
        Ok(n)
    }

    fn results(mut self, setup: &Setup<'_>, file: &str) -> Results {
        self.recorder.end(self.now);
        let recording = self.recording.take();
        let timeline = recording.and_then(|r| r.finish(self.now, &mut self.disks, &mut self.cpus));
        let loop_note = loop_note(setup.drive, setup.machine);
        let disks = self.disks.iter().map(|d| d.stats(self.now)).collect();
        let job = self.recorder.into_results(0);
        let group = GroupResults {
            group_id: 0,
            read: job.read.clone(),
            write: job.write.clone(),
            trim: job.trim.clone(),
        };
        Results {
            world: World::Sim,
            scheduler: setup.scheduler.label(),
            drive: setup.drive.name.clone(),
            machine: setup.machine.name.clone(),
            seed: setup.seed,
            job: file.to_string(),
            elapsed_ns: self.now.0,
            jobs: vec![job],
            groups: vec![group],
            disks,
            timeline,
            notes: [
                self.pace.notes(),
                loop_note.into_iter().collect(),
                cost_note(setup.machine).into_iter().collect(),
            ]
            .concat(),
            ..Results::default()
        }
    }
}
/// What to say of a machine whose CPUs a replay does not use.
fn cost_note(machine: &Machine) -> Option<String> {
    (!machine.costs.are_zero()).then(|| {
        format!(
            "a trace has no programs: the CPUs and locks of {} cost nothing in its replay",
            machine.name
        )
    })
}
