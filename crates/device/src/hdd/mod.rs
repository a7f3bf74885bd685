//! A disk: one arm, which serves one command at a time, and a buffer.
//!
//! Platters hold whole physical blocks: reads take all blocks that they touch,
//! and a write of a part of a block has to read the rest first.
//!
//! Commands that the buffer cannot answer queue for the arm; it takes the one
//! that it reaches soonest (or the oldest), reads ahead when nothing else waits,
//! and destages dirty data when reads leave it time, when the buffer is half
//! full, for a flush, or when the data is old (US patent 7,310,707, "Adaptive
//! resource controlled write-back aging for a data storage device").

mod blocks;
mod buffer;
mod bus;
mod counters;
mod mechanics;
mod read_buffer;
mod recorder;
mod spec;

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use blklab_blk::{Nanos, Op};
use blklab_stats::{DeviceStats, DriveTimeline, DriveWork};

use crate::spec::{Model, ModelType};
use crate::{Command, CommandStatus, Completion, Device, Identity};
use blocks::{Pass, PhysicalBlocks};
use buffer::{Dirty, FlushEstimate, SectorRun};
use counters::Counters;
use mechanics::Mechanics;
use read_buffer::ReadBuffer;
use recorder::Recorder;

use spec::{DiskScheduling, HddSpec};

/// Platters under an arm.
pub(crate) const MODEL: ModelType = ModelType {
    name: "hdd",
    about: "Platters under an arm.",
    read: |root, _| Ok(Arc::new(HddSpec::read(root)?)),
    complete: &[(
        "disk",
        concat!(
            include_str!("../../complete/disk.toml"),
            include_str!("../../complete/host.toml"),
            include_str!("../../complete/published.toml"),
        ),
    )],
};

impl Model for HddSpec {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn build(&self, _seed: u64) -> Box<dyn Device> {
        Box::new(Hdd::new(self.clone()))
    }
}

/// Most sectors that are destaged at once, so that reads get their turn.
const DESTAGE_SECTORS: u64 = 1024;

/// Dirty runs on either side of the arm that are candidates for destaging, a bound on the
/// search.
const NEAR_RUNS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The arm has finished its task.
    ArmDone,
    /// The arm has read ahead far enough to turn to another task.
    ReadAheadDone,
    /// A command has arrived, with its data unless that crosses the link while the arm
    /// moves.
    Arrived(u32),
    /// The firmware's overhead of a command is over.
    Start(u32),
    /// A command's completion has reached the host.
    Completed(u32),
}

#[derive(Clone, Copy, Debug)]
struct ActiveCommand {
    tag: u32,
    op: Op,
    fua: bool,
    run: SectorRun,
    arrived_ns: u64,
    /// When the firmware started it.
    started_ns: u64,
    /// Of a write past the buffer: when enough data is there for the heads to begin,
    /// and when all of it is.
    data_ns: [u64; 2],
    status: CommandStatus,
    /// Its number, where a timeline is recorded.
    number: Option<u32>,
}

/// What the arm is doing.
#[derive(Clone, Copy, Debug)]
enum ArmTask {
    Read(u32),
    Write(u32),
    Destage(SectorRun),
}

/// Reading on after a read, until another task needs the arm.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    /// The sectors to read.
    from: u64,
    until: u64,
    since_ns: u64,
    /// Up to here the heads read on even if other tasks wait.
    min_until: u64,
    /// [`Event::ReadAheadDone`] is scheduled.
    has_event: bool,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: HddSpec,
    mechanics: Mechanics,
    blocks: PhysicalBlocks,
    /// By time, then by when they were scheduled.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_scheduled: u64,
    commands: Vec<ActiveCommand>,
    free: Vec<u32>,
    /// When the link is free.
    link_free_ns: u64,
    /// Whether the command that completed last was a write.
    after_write: bool,
    /// Commands that need the arm.
    queue: Vec<u32>,
    arm_task: Option<ArmTask>,
    /// Where the arm will be after its task.
    arm_sector: u64,
    read_ahead: Option<ReadAhead>,
    /// [`ReadAhead::min_until`] of the read-ahead that follows the arm's task.
    min_read_ahead_until: u64,
    read_buffer: ReadBuffer,
    dirty: Dirty,
    /// Where the controller's sweep over the dirty runs is.
    destage_from: u64,
    flush_estimate: FlushEstimate,
    /// Writes that wait for room in the buffer, oldest first.
    waiting_writes: VecDeque<u32>,
    /// Flushes, oldest first; they wait until the buffer holds no dirty data.
    flushes: VecDeque<u32>,
    stats: DeviceStats,
    counters: Counters,
    recorder: Option<Box<Recorder>>,
}

impl Hdd {
    /// A disk as described.
    pub fn new(spec: HddSpec) -> Hdd {
        Hdd {
            mechanics: Mechanics::new(&spec.mechanics),
            blocks: PhysicalBlocks::new(spec.identity.physical_block_bytes),
            events: BinaryHeap::new(),
            events_scheduled: 0,
            commands: Vec::new(),
            free: Vec::new(),
            link_free_ns: 0,
            after_write: false,
            queue: Vec::new(),
            arm_task: None,
            arm_sector: 0,
            read_ahead: None,
            min_read_ahead_until: 0,
            read_buffer: ReadBuffer::new(&spec.cache),
            dirty: Dirty::new(spec.cache.line_sectors),
            destage_from: 0,
            flush_estimate: FlushEstimate::new(&spec),
            waiting_writes: VecDeque::new(),
            flushes: VecDeque::new(),
            stats: DeviceStats::default(),
            counters: Counters::default(),
            recorder: None,
            spec,
        }
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.events_scheduled += 1;
        self.events
            .push(Reverse((at_ns, self.events_scheduled, event)));
    }

    fn arrived(&mut self, now_ns: u64, index: u32) {
        match self.overhead_ns(now_ns, index) {
            0 => self.start(now_ns, index),
            overhead_ns => self.schedule(now_ns + overhead_ns, Event::Start(index)),
        }
    }

    fn start(&mut self, now_ns: u64, index: u32) {
        self.commands[index as usize].started_ns = now_ns;
        let command = self.commands[index as usize];
        match command.op {
            _ if command.status != CommandStatus::Ok => self.finish(now_ns, index),
            Op::Read => self.start_read(now_ns, index),
            Op::Flush => {
                self.flushes.push_back(index);
                self.end_flushes(now_ns);
            }
            Op::Write | Op::WriteZeroes => self.start_write(now_ns, index),
            // A discard changes nothing on a disk, and it has no zones to be written in order.
            Op::Discard | Op::Zone(_) => self.finish(now_ns, index),
        }
        self.start_arm(now_ns);
    }

    fn start_read(&mut self, now_ns: u64, index: u32) {
        let run = self.commands[index as usize].run;
        self.note_read_ahead(now_ns);
        let was_read = self.read_buffer.hit(run);
        if was_read || self.dirty.covers(run) {
            self.stats.cache_read_hits += 1;
            if was_read {
                self.read_on(now_ns, run);
            }
            return self.finish(now_ns, index);
        }
        self.queue.push(index);
    }

    fn start_write(&mut self, now_ns: u64, index: u32) {
        let command = self.commands[index as usize];
        self.note_read_ahead(now_ns);
        // The read-ahead would bring the overwritten data back into the buffer.
        self.read_ahead =
            (self.read_ahead).filter(|ahead| !command.run.overlaps(ahead.from, ahead.until));
        self.read_buffer.forget(command.run);
        if !self.spec.cache.write_back || command.fua {
            // Overwritten data in the buffer must not reach the platters after it.
            self.dirty.remove(command.run);
            if let Some(recorder) = &mut self.recorder {
                recorder.forget(command.run);
            }
            self.take_data(now_ns, index);
            self.queue.push(index);
            return;
        }
        self.waiting_writes.push_back(index);
        self.counters.done.writes_buffered += 1;
        self.admit(now_ns);
        self.counters.done.writes_waited += !self.waiting_writes.is_empty() as u64;
    }

    /// Admits waiting writes to the buffer as long as there is room.
    fn admit(&mut self, now_ns: u64) {
        while let Some(&index) = self.waiting_writes.front() {
            let ActiveCommand { run, number, .. } = self.commands[index as usize];
            if self.is_filled(Some(run), 1) && !self.dirty.is_empty() {
                return;
            }
            self.waiting_writes.pop_front();
            self.dirty.add(now_ns, run);
            if let (Some(recorder), Some(number)) = (&mut self.recorder, number) {
                recorder.wrote(run, number);
            }
            self.finish(now_ns, index);
        }
    }

    /// Whether dirty data, with another run, exceeds one `parts`-th of what the buffer may
    /// hold of it: its share, and no more than can be flushed in time.
    fn is_filled(&self, more: Option<SectorRun>, parts: u64) -> bool {
        let room = self.dirty.room() + more.map_or(0, |run| self.dirty.room_of(run));
        let sectors = self.dirty.sectors() + more.map_or(0, |run| run.end - run.start);
        let runs = self.dirty.runs() + more.is_some() as u64;
        let transfer_ns = sectors * self.mechanics.sector_ps(self.arm_sector) / 1000;
        let cache = &self.spec.cache;
        room * parts > (cache.sectors as f64 * cache.dirty_share) as u64
            || self.flush_estimate.exceeds(runs, transfer_ns, parts)
    }

    /// Writes that are in the buffer and whose completion has not reached the host.
    fn unanswered_writes(&self) -> Vec<SectorRun> {
        let leaving = self
            .events
            .iter()
            .filter_map(|Reverse((_, _, event))| match event {
                Event::Completed(index) => Some(self.commands[*index as usize]),
                _ => None,
            });
        leaving
            .filter(|command| matches!(command.op, Op::Write | Op::WriteZeroes))
            .map(|command| command.run)
            .collect()
    }

    fn end_flushes(&mut self, now_ns: u64) {
        if self.dirty.is_empty() && !matches!(self.arm_task, Some(ArmTask::Destage(_))) {
            while let Some(flush) = self.flushes.pop_front() {
                self.counters.done.flushes += 1;
                self.counters.done.flush_ns += now_ns - self.commands[flush as usize].arrived_ns;
                self.finish(now_ns, flush);
            }
        }
    }

    /// Puts what was read ahead so far into the buffer, and the heads where it ends.
    fn note_read_ahead(&mut self, now_ns: u64) {
        let Some(ahead) = self.read_ahead else { return };
        let read = self.sectors_read_ahead(now_ns, &ahead);
        if read > 0 {
            let end = ahead.from + read;
            // The buffer keeps only the end of a long run.
            let start = ahead
                .from
                .max(end.saturating_sub(self.read_buffer.longest_run()));
            self.read_buffer.keep(SectorRun { start, end });
            self.mechanics.move_to(end - 1);
        }
    }

    fn sectors_read_ahead(&self, now_ns: u64, ahead: &ReadAhead) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(ahead.since_ns);
        let sector_ps = self.mechanics.sector_ps(ahead.from).max(1);
        let passed = u128::from(elapsed_ns) * 1000 / u128::from(sector_ps);
        let most = passed.min(u128::from(ahead.until - ahead.from)) as u64;
        // Head switches and track seeks on the way take time, too.
        let takes_ns = self.mechanics.transfer_ns(ahead.from, most).max(1);
        match takes_ns > elapsed_ns {
            true => (most as u128 * elapsed_ns as u128 / takes_ns as u128) as u64,
            false => most,
        }
    }

    /// Up to which sector the heads read on after a run, in whole physical blocks.
    fn read_ahead_until(&self, run: SectorRun) -> u64 {
        let end = self.blocks.around(run).end;
        let distance = self.blocks.round_up(self.spec.cache.read_ahead_sectors);
        let until = (end + distance).min(self.spec.identity.capacity_sectors.max(end));
        match self.spec.cache.read_ahead_tracks {
            Some(tracks) => until.min(self.mechanics.track_end(end - 1, tracks)),
            None => until,
        }
    }

    /// Ends the queued reads whose data another read has brought into the buffer.
    fn answer_queued(&mut self, now_ns: u64) {
        let mut queue = core::mem::take(&mut self.queue);
        queue.retain(|&index| {
            let command = self.commands[index as usize];
            let found = command.op == Op::Read && self.read_buffer.hit(command.run);
            if found {
                self.stats.cache_read_hits += 1;
                self.finish(now_ns, index);
            }
            !found
        });
        self.queue = queue;
    }

    /// Extends the read-ahead after a reader has found a run in it, so that the idle heads
    /// stay ahead of the reader. Once they have stopped they wait until half of the
    /// read-ahead is used, since resuming costs a wait for rotation.
    fn read_on(&mut self, now_ns: u64, run: SectorRun) {
        let Some(ahead) = self.read_ahead else { return };
        let until = self.read_ahead_until(run);
        if until <= ahead.until || run.end > ahead.until {
            return;
        }
        let read = self.sectors_read_ahead(now_ns, &ahead);
        if ahead.from + read < ahead.until {
            self.read_ahead = Some(ReadAhead { until, ..ahead });
        } else if run.end + self.spec.cache.read_ahead_sectors / 2 >= ahead.until {
            self.mechanics.move_to(ahead.until - 1);
            let access = self.mechanics.access(now_ns, ahead.until, 1, false, 0);
            self.read_ahead = Some(ReadAhead {
                from: ahead.until,
                since_ns: now_ns + access.positioning_ns(),
                until,
                min_until: ahead.until,
                has_event: false,
            });
        }
    }

    /// Up to where the heads read on after a read even if other tasks wait: for a
    /// sequential reader that they have just moved to, the least read-ahead, which its
    /// further reads do not extend.
    fn min_read_ahead_sector(&self, now_ns: u64, run: SectorRun) -> u64 {
        let is_read_ahead = self
            .read_ahead_end_ns(now_ns, self.not_in_buffer(run))
            .is_some();
        match self.read_ahead {
            Some(ahead) if is_read_ahead => ahead.min_until,
            _ if self.read_buffer.ends_before(run.start) => (run.end
                + self.spec.cache.read_ahead_min_sectors)
                .min(self.spec.identity.capacity_sectors),
            _ => 0,
        }
    }

    /// When the heads will have read ahead the least that they do even if other tasks
    /// wait; `None` where they have.
    fn min_read_ahead_end_ns(&self, now_ns: u64) -> Option<u64> {
        let ahead = self.read_ahead?;
        let sectors = ahead.min_until.checked_sub(ahead.from)?;
        let end_ns = ahead.since_ns + self.mechanics.transfer_ns(ahead.from, sectors);
        (sectors > 0 && end_ns > now_ns).then_some(end_ns)
    }

    /// Schedules the choice of the arm's next task for when it has read ahead far enough.
    fn await_read_ahead(&mut self, now_ns: u64) {
        if self.queue.is_empty() && self.dirty.is_empty() {
            return;
        }
        let end_ns = self.min_read_ahead_end_ns(now_ns);
        if let (Some(end_ns), Some(ahead)) = (end_ns, &mut self.read_ahead)
            && !ahead.has_event
        {
            ahead.has_event = true;
            self.schedule(end_ns, Event::ReadAheadDone);
        }
    }

    /// Gives the idle arm its next task.
    fn start_arm(&mut self, now_ns: u64) {
        if self.arm_task.is_some() {
            return;
        }
        self.note_read_ahead(now_ns);
        let Some(task) = self.choose(now_ns) else {
            return self.await_read_ahead(now_ns);
        };
        let (run, write) = match task {
            ArmTask::Read(index) => (self.commands[index as usize].run, false),
            ArmTask::Write(index) => (self.commands[index as usize].run, true),
            ArmTask::Destage(run) => (run, true),
        };
        if let ArmTask::Read(index) | ArmTask::Write(index) = task {
            self.queue.retain(|queued| *queued != index);
            let since_ns = self.commands[index as usize].arrived_ns;
            self.counters.done.overdue += u64::from(self.is_overdue(now_ns, since_ns));
        }
        if let ArmTask::Destage(run) = task {
            self.dirty.destage(now_ns, run);
            self.counters.done.destages += 1;
            self.counters.done.sectors_destaged += run.end - run.start;
        }
        self.record_task(task);
        self.min_read_ahead_until = match write {
            true => 0,
            false => self.min_read_ahead_sector(now_ns, run),
        };
        let data_ns = match task {
            ArmTask::Write(index) => self.may_write_from_ns(index),
            _ => 0,
        };
        let done_ns = self.serve(now_ns, run, write, data_ns);
        if let ArmTask::Destage(run) = task {
            let transfer_ns = self.mechanics.transfer_ns(run.start, run.end - run.start);
            let took_ns = done_ns - now_ns;
            let positioning_ns = took_ns.saturating_sub(transfer_ns);
            self.flush_estimate
                .reached(positioning_ns, self.dirty.runs());
            self.destage_from = self.dirty.first_from(self.destage_from);
        }
        self.read_ahead = None;
        self.arm_sector = run.end;
        match write {
            true => self.counters.done.writes += 1,
            false => self.counters.done.reads += 1,
        }
        self.arm_task = Some(task);
        self.schedule(done_ns, Event::ArmDone);
    }

    /// Tells the recorder which commands the arm's next task serves.
    fn record_task(&mut self, task: ArmTask) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        match task {
            ArmTask::Read(index) | ArmTask::Write(index) => {
                if let Some(number) = self.commands[index as usize].number {
                    recorder.serves(number);
                }
            }
            ArmTask::Destage(run) => recorder.destages(run),
        }
    }

    /// Moves the heads over a run, of which a write's data is there at `data_ns`. Returns
    /// when they are at its end.
    fn serve(&mut self, now_ns: u64, run: SectorRun, write: bool, data_ns: u64) -> u64 {
        let run = match write {
            true => run,
            false => self.not_in_buffer(run),
        };
        if !write && let Some(end_ns) = self.read_ahead_end_ns(now_ns, run) {
            if let Some(recorder) = &mut self.recorder {
                recorder.arm(now_ns, &[(DriveWork::Transfer, end_ns - now_ns)]);
            }
            self.counters.read_ahead_hit(now_ns, run, end_ns - now_ns);
            self.mechanics.move_to(run.end - 1);
            return end_ns;
        }
        let mut at_ns = now_ns;
        for pass in self.blocks.passes(run, write).into_iter().flatten() {
            self.counters.done.blocks_completed += (write && !pass.write) as u64;
            at_ns = self.pass(at_ns, pass, data_ns);
        }
        at_ns
    }

    /// Moves the heads to a run of blocks and over it. Returns when that is done.
    fn pass(&mut self, now_ns: u64, pass: Pass, data_ns: u64) -> u64 {
        let run = pass.run;
        let data_ns = if pass.write { data_ns } else { 0 };
        let sectors = run.end - run.start;
        let access = self
            .mechanics
            .access(now_ns, run.start, sectors, pass.write, data_ns);
        self.counters.access(now_ns, &access);
        self.counters.sectors(run, pass.write);
        if let Some(recorder) = &mut self.recorder {
            let steps = [
                (DriveWork::Seek, access.seek_ns),
                (DriveWork::Rotate, access.rotation_ns),
                (DriveWork::Transfer, access.transfer_ns),
            ];
            recorder.arm(now_ns, &steps);
        }
        self.mechanics.move_to(run.end - 1);
        now_ns + access.positioning_ns() + access.transfer_ns
    }

    /// The blocks to read for a run that is not all in the buffer: without those at its
    /// start that are there.
    fn not_in_buffer(&self, run: SectorRun) -> SectorRun {
        let held = self.read_buffer.held_until(run).min(run.end - 1);
        let start = run
            .start
            .max(self.blocks.around(SectorRun { start: held, ..run }).start);
        self.blocks.around(SectorRun { start, ..run })
    }

    /// When the read-ahead will have read some blocks; `None` where it is not about to.
    fn read_ahead_end_ns(&self, now_ns: u64, run: SectorRun) -> Option<u64> {
        let ahead = self.read_ahead?;
        let read = self.sectors_read_ahead(now_ns, &ahead);
        let at = ahead.from + read;
        // A seek passes a gap of more than a revolution sooner.
        let gap = run.start.saturating_sub(at);
        let in_reach = run.start >= ahead.from
            && gap <= self.spec.cache.read_ahead_sectors
            && self.mechanics.transfer_ns(at, gap) < self.spec.mechanics.turn_ns;
        if !in_reach || at >= ahead.until && run.end > ahead.until {
            return None;
        }
        let end_ns = ahead.since_ns + self.mechanics.transfer_ns(ahead.from, run.end - ahead.from);
        Some(end_ns.max(now_ns))
    }

    /// The arm's next task: the queued command or dirty run that it reaches soonest, dirty
    /// runs only when nothing is queued, the buffer is half full, or a write or flush
    /// waits for them. `None` also while it reads on for a sequential reader, unless a
    /// queued read is in its way. What has waited too long goes first.
    fn choose(&self, now_ns: u64) -> Option<ArmTask> {
        let oldest = self
            .queue
            .iter()
            .copied()
            .min_by_key(|index| self.commands[*index as usize].arrived_ns);
        let in_order = self.spec.controller.scheduling == DiskScheduling::Fcfs;
        if let Some(overdue) = self.overdue(now_ns, oldest) {
            return Some(overdue);
        }
        let reads_on = self.min_read_ahead_end_ns(now_ns).is_some();
        let is_on_the_way = |index: u32| {
            let command = &self.commands[index as usize];
            let run = self.not_in_buffer(command.run);
            command.op == Op::Read && self.read_ahead_end_ns(now_ns, run).is_some()
        };
        let must_destage =
            self.is_filled(None, 2) || !self.waiting_writes.is_empty() || !self.flushes.is_empty();
        if let Some(index) = oldest
            && in_order
            && !must_destage
        {
            return (!reads_on || is_on_the_way(index)).then(|| self.task_of(index));
        }
        // Who it reads ahead for goes on meanwhile.
        let stream = self.stream_in_turn().filter(|_| !reads_on);
        let is_in_turn =
            |index: u32| stream.is_none_or(|first| first == index || !self.continues_stream(index));
        let candidates = self.queue.iter();
        let candidates = candidates
            .filter(|index| !in_order || oldest == Some(**index))
            .filter(|index| is_in_turn(**index))
            .filter(|index| !reads_on || is_on_the_way(**index));
        let queued = candidates.map(|index| {
            let command = &self.commands[*index as usize];
            let write = command.op != Op::Read;
            (
                self.positioning_ns(now_ns, command.run, write),
                self.task_of(*index),
            )
        });
        let destages = !reads_on && (must_destage || self.queue.is_empty());
        let destage = destages.then(|| self.nearest_destage(now_ns)).flatten();
        let soonest = queued
            .chain(destage)
            .min_by_key(|(positioning_ns, _)| *positioning_ns);
        let (_, task) = soonest?;
        match task {
            // The next read of a stream is always the nearest.
            ArmTask::Read(index) if !in_order && !reads_on && is_on_the_way(index) => {
                self.overdue_data(now_ns).or(Some(task))
            }
            _ => Some(task),
        }
    }

    /// Whether a queued read goes on where another ended.
    fn continues_stream(&self, index: u32) -> bool {
        let command = &self.commands[index as usize];
        command.op == Op::Read && self.read_buffer.ends_before(command.run.start)
    }

    /// Of the queued reads that go on where others ended the oldest, where a controller gives
    /// the disk one at a time; `None` where the disk chooses among them.
    fn stream_in_turn(&self) -> Option<u32> {
        self.spec.cache.destage_queue?;
        let streams = self.queue.iter().copied();
        let streams = streams.filter(|index| self.continues_stream(*index));
        streams.min_by_key(|index| self.commands[*index as usize].arrived_ns)
    }

    fn task_of(&self, index: u32) -> ArmTask {
        match self.commands[index as usize].op {
            Op::Read => ArmTask::Read(index),
            _ => ArmTask::Write(index),
        }
    }

    /// Whether the disk does not let wait any longer what came at this time.
    fn is_overdue(&self, now_ns: u64, since_ns: u64) -> bool {
        let in_order = self.spec.controller.scheduling == DiskScheduling::Fcfs;
        !in_order && now_ns - since_ns > self.spec.controller.patience_ns
    }

    /// What has waited too long, the longest first: a queued command, or the write or flush
    /// that any destaging helps.
    fn overdue(&self, now_ns: u64, oldest: Option<u32>) -> Option<ArmTask> {
        let arrived_ns = |index: u32| self.commands[index as usize].arrived_ns;
        let is_overdue = |since_ns: &u64| self.is_overdue(now_ns, *since_ns);
        let queued = oldest.map(|index| (arrived_ns(index), self.task_of(index)));
        let held_up = [self.waiting_writes.front(), self.flushes.front()].into_iter();
        let held_up = held_up.flatten().map(|index| arrived_ns(*index)).min();
        let held_up = held_up.filter(is_overdue).and_then(|since_ns| {
            let (_, destage) = self.nearest_destage(now_ns)?;
            Some((since_ns, destage))
        });
        let waits = queued.filter(|(since_ns, _)| is_overdue(since_ns));
        let waits = waits.into_iter().chain(held_up);
        let (_, task) = waits.min_by_key(|(since_ns, _)| *since_ns)?;
        Some(task)
    }

    /// Data that has been in the disk's own buffer for too long.
    fn overdue_data(&self, now_ns: u64) -> Option<ArmTask> {
        let (since_ns, run) = self.dirty.oldest()?;
        let is_own = self.spec.cache.destage_queue.is_none();
        let is_overdue = self.is_overdue(now_ns, since_ns);
        (is_own && is_overdue).then(|| ArmTask::Destage(self.first_part(run)))
    }

    /// The part of a dirty run that is destaged at once, up to a block boundary.
    fn first_part(&self, run: SectorRun) -> SectorRun {
        let most = self.blocks.around(run).start + self.blocks.round_up(DESTAGE_SECTORS);
        SectorRun {
            start: run.start,
            end: run.end.min(most).min(self.dirty.line_end(run.start)),
        }
    }

    /// The dirty run that the arm reaches soonest, and how soon: of those near it, or of
    /// those that a controller's sweep has given to the disk.
    fn nearest_destage(&self, now_ns: u64) -> Option<(u64, ArmTask)> {
        let reached = |run: SectorRun| {
            let part = self.first_part(run);
            (
                self.positioning_ns(now_ns, part, true),
                ArmTask::Destage(part),
            )
        };
        let soonest = |(positioning_ns, _): &(u64, ArmTask)| *positioning_ns;
        match self.spec.cache.destage_queue {
            Some(most) => {
                // A long run is several commands, which leave room for fewer others.
                let mut room = most as u64;
                let given = self.dirty.runs_from(self.destage_from, most as usize);
                let given = given.take_while(|run| {
                    let fits = room > 0;
                    room = room.saturating_sub(self.dirty.destages_of(*run, DESTAGE_SECTORS));
                    fits
                });
                given.map(reached).min_by_key(soonest)
            }
            None => {
                let near = self.dirty.runs_near(self.arm_sector, NEAR_RUNS);
                near.map(reached).min_by_key(soonest)
            }
        }
    }

    /// How long until a run's first sector is under the heads.
    fn positioning_ns(&self, now_ns: u64, run: SectorRun, write: bool) -> u64 {
        let run = match write {
            true => run,
            false => self.not_in_buffer(run),
        };
        match self.read_ahead_end_ns(now_ns, run) {
            Some(end_ns) if !write => {
                let transfer_ns = self.mechanics.transfer_ns(run.start, run.end - run.start);
                (end_ns - now_ns).saturating_sub(transfer_ns)
            }
            _ => {
                let [first, second, third] = self.blocks.passes(run, write);
                let pass = first.or(second).or(third).unwrap_or(Pass { run, write });
                let sectors = pass.run.end - pass.run.start;
                self.mechanics
                    .access(now_ns, pass.run.start, sectors, pass.write, 0)
                    .positioning_ns()
            }
        }
    }

    fn arm_done(&mut self, now_ns: u64) {
        self.counters.count_time(now_ns);
        match self.arm_task.take() {
            Some(ArmTask::Read(index)) => {
                let run = self.blocks.around(self.commands[index as usize].run);
                self.read_buffer.keep(run);
                self.read_ahead = Some(ReadAhead {
                    from: run.end,
                    since_ns: now_ns,
                    until: self.read_ahead_until(run),
                    min_until: self.min_read_ahead_until,
                    has_event: false,
                });
                self.finish_read(now_ns, index);
                self.answer_queued(now_ns);
            }
            Some(ArmTask::Write(index)) => self.finish(now_ns, index),
            Some(ArmTask::Destage(_)) => {
                self.admit(now_ns);
                self.end_flushes(now_ns);
            }
            None => {}
        }
        self.start_arm(now_ns);
    }
}

impl Device for Hdd {
    fn identify(&self) -> &Identity {
        &self.spec.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        let fits = command.fits(self.spec.identity.capacity_sectors)
            && (command.op != Op::Discard || self.spec.identity.discard);
        let start = command.sector.0;
        let active = ActiveCommand {
            tag: command.tag,
            op: command.op,
            fua: command.fua,
            run: SectorRun {
                start,
                end: start.saturating_add(command.sectors as u64),
            },
            arrived_ns: now.0,
            started_ns: now.0,
            data_ns: [0; 2],
            status: match fits {
                true => CommandStatus::Ok,
                false => CommandStatus::IoError,
            },
            number: self.recorder.as_mut().map(|r| r.next_command()),
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.commands[index as usize] = active;
                index
            }
            None => {
                self.commands.push(active);
                self.commands.len() as u32 - 1
            }
        };
        let taken_ns = now.0 + self.spec.link.submit_ns;
        if fits && command.op == Op::Write {
            self.stats.host_sectors_written += command.sectors as u64;
        }
        let arrived_ns = match fits && self.takes_data_first(&active) {
            true => self.transfer(taken_ns, command.sectors as u64 * 512),
            false => taken_ns,
        };
        self.schedule(
            arrived_ns + self.spec.controller.command_ns,
            Event::Arrived(index),
        );
    }

    fn next_event(&self) -> Nanos {
        self.events
            .peek()
            .map_or(Nanos::MAX, |Reverse(first)| Nanos(first.0))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(&Reverse((at_ns, _, event))) = self.events.peek() {
            if at_ns > now.0 {
                return;
            }
            self.events.pop();
            match event {
                Event::ArmDone => self.arm_done(at_ns),
                Event::ReadAheadDone => self.start_arm(at_ns),
                Event::Arrived(index) => self.arrived(at_ns, index),
                Event::Start(index) => self.start(at_ns, index),
                Event::Completed(index) => {
                    let command = &self.commands[index as usize];
                    self.after_write = command.op == Op::Write;
                    done.push(Completion {
                        tag: command.tag,
                        at: Nanos(at_ns),
                        status: command.status,
                    });
                    self.free.push(index);
                }
            }
        }
    }

    /// The buffer is lost. A description does not say how long the platters take to spin
    /// up, so the disk is ready at once.
    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.stats.power_losses += 1;
        if let Some(ArmTask::Destage(run)) = self.arm_task {
            self.dirty.add(now.0, run);
        }
        self.stats.power_loss_sectors += self.dirty.sectors();
        for run in self.unanswered_writes() {
            self.dirty.remove(run);
        }
        self.stats.power_loss_acknowledged_sectors += self.dirty.sectors();
        self.events.clear();
        self.commands.clear();
        self.free.clear();
        self.queue.clear();
        self.arm_task = None;
        self.counters.stop(now.0);
        self.read_ahead = None;
        self.read_buffer = ReadBuffer::new(&self.spec.cache);
        self.dirty = Dirty::new(self.spec.cache.line_sectors);
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_all();
        }
        self.waiting_writes.clear();
        self.flushes.clear();
        self.link_free_ns = now.0;
        now
    }

    fn stats(&self, now: Nanos) -> DeviceStats {
        DeviceStats {
            arm: Some(self.counters.until(now.0)),
            ..self.stats.clone()
        }
    }

    fn reset_stats(&mut self, now: Nanos) {
        self.stats = DeviceStats::default();
        self.counters.reset(now.0);
    }

    fn record(&mut self, on: bool) {
        self.recorder = on.then(Box::default);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        if let Some(recorder) = &mut self.recorder {
            recorder.take(out);
        }
    }
}
