//! The process that replays a block trace. The programs that made the trace are not
//! simulated: each of its I/Os has a thread of its own, which costs no CPU time.

mod arrivals;
mod dependencies;

use std::path::Path;

use blklab_blk::{
    Bio, BioFlags, IoClass, IoPrio, IoStatus, Nanos, Op, SECTOR_SIZE, Submit, SubmitterId, Waiter,
};
use blklab_stats::{DEFAULT_PERCENTILES, JobResults, LatencyTarget};
use blklab_workload::fio::{Direction, SyncKind};
use blklab_workload::trace::tracefs::Dev;
use blklab_workload::trace::{self, DriveSize, TraceRecord};
use slab::Slab;

use crate::machine::Machine;
use crate::process::recorder::Recorder;
use crate::setup::{Replay, ReplayMode, SetupError};
use crate::system::{System, TagWaiters};
use crate::timers::user_data;
use arrivals::Arrivals;

/// fio's default `bwavgtime`.
const WINDOW: Nanos = Nanos::from_millis(500);

/// Said where flushes go at their recorded times: the write that one is for may have ended before
/// it in the recording and not yet here.
const FREE_FLUSHES: &str = "flushes go at their recorded times, and find other data to write than \
                            they did: --replay dependencies keeps them behind the writes of their \
                            process";

/// The name of a drive of the trace, which tells drives as the kernel does or by numbers of its own.
fn drive_name(device: u32) -> String {
    match Dev::of_number(device) {
        Dev { major: 0, minor } => format!("drive{minor}"),
        dev => dev.to_string(),
    }
}

/// An I/O of the trace that is under way.
#[derive(Clone, Copy, Debug)]
struct Io {
    /// `None` for a flush.
    dir: Option<Direction>,
    bytes: u64,
    started: Nanos,
    /// Its number in the trace.
    number: u64,
    /// The process that submitted it in the trace.
    trace_pid: u32,
}

pub(crate) struct TraceProcess {
    id: usize,
    file: String,
    arrivals: Arrivals,
    /// CPUs that the I/Os of the trace's processes are submitted on.
    cpus: u32,
    drive: DriveSize,
    /// The trace's numbers of drives, by disk, in order of appearance.
    devices: Vec<u32>,
    /// Those in flight, by slot.
    ios: Slab<Io>,
    /// By disk, the threads of I/Os that sleep in the block layer.
    asleep: Vec<TagWaiters<Waiter>>,
    /// It will be called for the next arrival.
    is_called: bool,
    recorder: Recorder,
    /// What its results should say of the machine.
    machine_notes: Vec<String>,
    is_over: bool,
    /// Whether flushes came at times of their own.
    has_free_flushes: bool,
    /// What ended it before its time.
    failure: Option<SetupError>,
}

impl TraceProcess {
    /// Opens a trace. `machine_notes` are added to what there is to say of it.
    ///
    /// # Errors
    /// Where the trace cannot be read; the message has file and line.
    pub(crate) fn open(
        id: usize,
        (file, replay): (&str, Replay),
        (machine, drive): (&Machine, DriveSize),
        machine_notes: Vec<String>,
    ) -> Result<TraceProcess, SetupError> {
        let reader = trace::open(Path::new(file), None).map_err(SetupError::trace)?;
        let reader = reader.on_drive(drive.clone());
        let results = JobResults {
            name: file.to_string(),
            members: 1,
            latency_target: LatencyTarget::none(match replay.mode {
                ReplayMode::Open { .. } | ReplayMode::Dependencies => 1,
                ReplayMode::Closed { depth } => depth,
            }),
            percentiles: DEFAULT_PERCENTILES.to_vec(),
            ..JobResults::default()
        };
        Ok(TraceProcess {
            id,
            file: file.to_string(),
            arrivals: Arrivals::new(replay, reader, file)?,
            cpus: machine.cpus(),
            drive,
            devices: Vec::new(),
            ios: Slab::new(),
            asleep: Vec::new(),
            is_called: false,
            recorder: Recorder::new(results, WINDOW, Nanos::ZERO),
            machine_notes,
            is_over: false,
            has_free_flushes: false,
            failure: None,
        })
    }

    /// It starts with the trace.
    pub(crate) fn start(&mut self, now: Nanos, system: &mut System) {
        self.recorder.start(now);
        self.call_for_next(now, system);
    }

    /// Whether all I/Os of the trace have ended, or an error ended it.
    pub(crate) fn has_exited(&self) -> bool {
        self.is_over
    }

    /// It was called for the next arrival. One I/O is submitted at a time, so that
    /// the block layer and drives come to what is due in between.
    pub(crate) fn go_on(&mut self, now: Nanos, system: &mut System) {
        if self.is_over {
            return;
        }
        self.is_called = false;
        match self.submit_due(now, system) {
            Ok(()) => self.call_for_next(now, system),
            Err(error) => self.fail(error),
        }
    }

    /// Has it issue nothing more. It ends with the I/Os that are under way.
    pub(crate) fn stop(&mut self, now: Nanos, system: &mut System) {
        self.arrivals.stop();
        system.timers.set(now, self.id);
        self.is_called = true;
    }

    fn in_flight(&self) -> u32 {
        self.ios.len() as u32
    }

    fn fail(&mut self, error: SetupError) {
        self.failure = Some(error);
        self.is_over = true;
    }

    /// Submits the next I/O if it has arrived.
    fn submit_due(&mut self, now: Nanos, system: &mut System) -> Result<(), SetupError> {
        if self.arrivals.next(now, self.in_flight())? > now {
            return Ok(());
        }
        let due = self.arrivals.next_due();
        if let Some(due) = due {
            self.recorder.arrived(due);
        }
        let Some((record, number)) = self.arrivals.take()? else {
            return Ok(());
        };
        self.has_free_flushes |= due.is_some() && record.op == Op::Flush;
        let disk = self.disk_of(now, record.device, system)?;
        self.submit(now, disk, (&record, number), system);
        Ok(())
    }

    /// Has itself called when the next I/O arrives, if that is known. It ends with the
    /// last I/O.
    fn call_for_next(&mut self, now: Nanos, system: &mut System) {
        match self.arrivals.next(now, self.in_flight()) {
            Ok(Nanos::MAX) if !self.ios.is_empty() => {}
            Ok(Nanos::MAX) => {
                self.recorder.end(now);
                self.is_over = true;
            }
            Ok(at) if at > now => {
                system.timers.set(at, self.id);
                self.is_called = true;
            }
            Ok(_) => self.call_next_turn(system),
            Err(error) => self.fail(error),
        }
    }

    fn call_next_turn(&mut self, system: &mut System) {
        system.next_turn.push_back(self.id);
        self.is_called = true;
    }

    /// The disk of a drive of the trace, which is added where it is new.
    fn disk_of(
        &mut self,
        now: Nanos,
        device: u32,
        system: &mut System,
    ) -> Result<usize, SetupError> {
        if let Some(disk) = self.devices.iter().position(|&d| d == device) {
            return Ok(disk);
        }
        self.devices.push(device);
        self.asleep.push(TagWaiters::new());
        system.add_disk(now, &drive_name(device))
    }

    fn submit(
        &mut self,
        now: Nanos,
        disk: usize,
        (record, number): (&TraceRecord, u64),
        system: &mut System,
    ) {
        let slot = self.ios.insert(Io {
            dir: match record.op {
                Op::Read => Some(Direction::Read),
                Op::Write | Op::WriteZeroes => Some(Direction::Write),
                Op::Discard => Some(Direction::Trim),
                Op::Flush | Op::Zone(_) => None,
            },
            bytes: u64::from(record.sectors) * SECTOR_SIZE,
            started: now,
            number,
            trace_pid: record.pid,
        });
        self.recorder.submitted(self.in_flight(), 1);
        let sector = self.drive.place(record.sector, record.sectors);
        let bio = Bio {
            flags: record.flags.without(BioFlags::NOWAIT),
            prio: IoPrio {
                class: IoClass::Be,
                level: 4,
            },
            submitter: SubmitterId(record.pid),
            user_data: user_data(self.id, slot as u32),
            ..Bio::new(record.op, sector, record.sectors)
        };
        let cpu = (record.pid % self.cpus) as usize;
        let d = &mut system.disks[disk];
        let done = d.queue.submit_bio(now, cpu, None, bio, &mut d.driver);
        self.sleep_if_blocked(disk, done, system);
    }

    fn sleep_if_blocked(&mut self, disk: usize, done: Submit, system: &mut System) {
        if let Submit::Blocked(waiter) = done {
            system.tag_waiters[disk].push(waiter.ticket, self.id);
            self.asleep[disk].push(waiter.ticket, waiter);
        }
    }

    /// The block layer lets the I/O of that ticket try again.
    pub(crate) fn on_tag(&mut self, now: Nanos, (disk, ticket): (usize, u64), system: &mut System) {
        if let Some(waiter) = self.asleep[disk].take(ticket) {
            let d = &mut system.disks[disk];
            let done = d.queue.resume(now, None, waiter, &mut d.driver);
            self.sleep_if_blocked(disk, done, system);
        }
    }

    /// An I/O ended.
    #[inline(never)]
    pub(crate) fn on_end(&mut self, now: Nanos, slot: u32, status: IoStatus, system: &mut System) {
        let io = self.ios.remove(slot as usize);
        self.arrivals.ended(io.number, io.trace_pid);
        match io.dir {
            Some(dir) => {
                self.recorder
                    .completed(now, dir, io.bytes, io.started, io.started, true, status);
            }
            None => self
                .recorder
                .synced(Some(SyncKind::Fsync), io.started, now, status),
        }
        if !self.is_called {
            // Another I/O may have waited for this one.
            self.call_next_turn(system);
        }
    }

    /// Checks that it could do its work.
    ///
    /// # Errors
    /// Where the trace could not be read to its end, or has no I/O.
    pub(crate) fn check(&mut self) -> Result<(), SetupError> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.devices.is_empty() {
            return Err(SetupError::Trace(format!(
                "{}: there is no I/O in it; a trace to replay has one at least",
                self.file
            )));
        }
        Ok(())
    }

    /// What a reader of its results should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = [self.arrivals.notes(), self.machine_notes.clone()].concat();
        notes.extend(self.has_free_flushes.then(|| FREE_FLUSHES.to_string()));
        notes
    }

    /// What it recorded.
    pub(crate) fn into_results(self) -> JobResults {
        self.recorder.into_results(self.id as u32)
    }
}
