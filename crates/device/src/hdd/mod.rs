//! A disk: one arm, so one thing at a time, and a buffer that hides some of it.
//!
//! Platters hold whole physical blocks: reads take all blocks that they touch,
//! and a write of a part of a block has to read the rest first.
//!
//! Commands that the buffer cannot answer queue for the arm; it takes the one
//! that it reaches soonest (or the oldest), reads on when nothing else waits,
//! and writes out what the buffer holds when reads leave it time, when the
//! buffer is half full, or when a flush asks for it.

mod blocks;
mod buffer;
mod bus;
mod counters;
mod mechanics;
mod recorder;
mod spec;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use blklab_blk::{Nanos, Op};
use blklab_stats::{DeviceStats, DriveTimeline, Work};

use crate::spec::{Model, ModelType};
use crate::{Command, CommandStatus, Completion, Device, Identity};
use blocks::{Blocks, Pass};
use buffer::{Dirty, FlushEstimate, SectorRun, Segments};
use counters::Counters;
use mechanics::Mechanics;
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

/// Most that is written out of the buffer at once, so that reads get their turn.
const DESTAGE_SECTORS: u64 = 1024;

/// Dirty runs on either side of the arm that it chooses from: a disk's firmware
/// does not look further either.
const NEAR_RUNS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The arm is done.
    Arm,
    /// The arm has read so far ahead that it may turn to something else.
    Turn,
    /// A command has come in, with its data unless that crosses while the arm moves.
    Arrive(u32),
    /// The firmware is done with what it does for a command first.
    Begin(u32),
    /// A command's end has reached the host.
    Leave(u32),
}

#[derive(Clone, Copy, Debug)]
struct ActiveCommand {
    tag: u32,
    op: Op,
    fua: bool,
    run: SectorRun,
    arrived_ns: u64,
    /// Since when it is carried out.
    begun_ns: u64,
    /// When so much of a write's data is there that the heads may begin, and when all.
    data_ns: [u64; 2],
    status: CommandStatus,
    /// Its number, where what happens is recorded.
    number: Option<u32>,
}

/// What the arm is doing.
#[derive(Clone, Copy, Debug)]
enum ArmTask {
    Read(u32),
    Write(u32),
    Destage(SectorRun),
}

/// Reading on after a read, until something else wants the arm.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    from: u64,
    since_ns: u64,
    until: u64,
    /// The heads read on up to here whatever else waits.
    at_least_until: u64,
    /// An event tells when they are there.
    is_awaited: bool,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: HddSpec,
    mechanics: Mechanics,
    blocks: Blocks,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    commands: Vec<ActiveCommand>,
    free: Vec<u32>,
    link_ns: u64,
    /// Whether the command that ended last was a write.
    after_write: bool,
    /// Commands that need the arm.
    queue: Vec<u32>,
    work: Option<ArmTask>,
    /// Where the arm will be after it.
    arm_sector: u64,
    ahead: Option<ReadAhead>,
    /// Up to where it reads on after the work whatever else waits.
    at_least_until: u64,
    segments: Segments,
    dirty: Dirty,
    flush_estimate: FlushEstimate,
    /// Writes that wait for room in the buffer.
    stalled: VecDeque<u32>,
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
            blocks: Blocks::new(spec.identity.physical_block_bytes),
            events: BinaryHeap::new(),
            order: 0,
            commands: Vec::new(),
            free: Vec::new(),
            link_ns: 0,
            after_write: false,
            queue: Vec::new(),
            work: None,
            arm_sector: 0,
            ahead: None,
            at_least_until: 0,
            segments: Segments::new(spec.cache.segments, spec.cache.sectors / 2),
            dirty: Dirty::default(),
            flush_estimate: FlushEstimate::new(&spec),
            stalled: VecDeque::new(),
            flushes: VecDeque::new(),
            stats: DeviceStats::default(),
            counters: Counters::default(),
            recorder: None,
            spec,
        }
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at_ns, self.order, event)));
    }

    fn arrive(&mut self, now_ns: u64, index: u32) {
        match self.overhead_ns(now_ns, index) {
            0 => self.begin(now_ns, index),
            overhead_ns => self.schedule(now_ns + overhead_ns, Event::Begin(index)),
        }
    }

    fn begin(&mut self, now_ns: u64, index: u32) {
        self.commands[index as usize].begun_ns = now_ns;
        let command = self.commands[index as usize];
        match command.op {
            _ if command.status != CommandStatus::Ok => self.finish(now_ns, index),
            Op::Read => self.start_read(now_ns, index),
            Op::Flush => {
                self.flushes.push_back(index);
                self.end_flushes(now_ns);
            }
            Op::Write | Op::WriteZeroes => self.start_write(now_ns, index),
            // A disk has nothing to discard.
            Op::Discard => self.finish(now_ns, index),
        }
        self.use_arm(now_ns);
    }

    fn start_read(&mut self, now_ns: u64, index: u32) {
        let run = self.commands[index as usize].run;
        self.note_read_ahead(now_ns);
        let read = self.segments.hit(run);
        if read || self.dirty.covers(run) {
            self.stats.cache_read_hits += 1;
            if read {
                self.read_on(now_ns, run);
            }
            return self.finish(now_ns, index);
        }
        self.queue.push(index);
    }

    fn start_write(&mut self, now_ns: u64, index: u32) {
        let command = self.commands[index as usize];
        self.note_read_ahead(now_ns);
        // Reading on would bring what is written over back into the buffer.
        self.ahead = (self.ahead).filter(|ahead| !command.run.overlaps(ahead.from, ahead.until));
        self.segments.forget(command.run);
        if !self.spec.cache.write_back || command.fua {
            // What it overwrites in the buffer must not be written after it.
            self.dirty.remove(command.run);
            if let Some(recorder) = &mut self.recorder {
                recorder.forget(command.run);
            }
            self.take_data(now_ns, index);
            self.queue.push(index);
            return;
        }
        self.stalled.push_back(index);
        self.counters.done.writes_buffered += 1;
        self.admit(now_ns);
        self.counters.done.writes_waited += !self.stalled.is_empty() as u64;
    }

    /// Takes waiting writes into the buffer as long as there is room.
    fn admit(&mut self, now_ns: u64) {
        while let Some(&index) = self.stalled.front() {
            let ActiveCommand { run, number, .. } = self.commands[index as usize];
            if self.is_filled(run.end - run.start, 1) && !self.dirty.is_empty() {
                return;
            }
            self.stalled.pop_front();
            self.dirty.add(run);
            if let (Some(recorder), Some(number)) = (&mut self.recorder, number) {
                recorder.wrote(run, number);
            }
            self.finish(now_ns, index);
        }
    }

    /// Whether the buffer with a run of `more` sectors added is filled to more than 1
    /// over `parts` of what it may hold: half of it is for writes, and
    /// they must be written out in time.
    fn is_filled(&self, more: u64, parts: u64) -> bool {
        let sectors = self.dirty.sectors() + more;
        let runs = self.dirty.runs() + (more > 0) as u64;
        let transfer_ns = sectors * self.mechanics.sector_ps(self.arm_sector) / 1000;
        sectors * 2 * parts > self.spec.cache.sectors
            || self.flush_estimate.exceeds(runs, transfer_ns, parts)
    }

    /// Writes that are in the buffer and whose end has not reached the host.
    fn unanswered_writes(&self) -> Vec<SectorRun> {
        let leaving = self
            .events
            .iter()
            .filter_map(|Reverse((_, _, event))| match event {
                Event::Leave(index) => Some(self.commands[*index as usize]),
                _ => None,
            });
        leaving
            .filter(|command| matches!(command.op, Op::Write | Op::WriteZeroes))
            .map(|command| command.run)
            .collect()
    }

    fn end_flushes(&mut self, now_ns: u64) {
        if self.dirty.is_empty() && !matches!(self.work, Some(ArmTask::Destage(_))) {
            while let Some(flush) = self.flushes.pop_front() {
                self.counters.done.flushes += 1;
                self.counters.done.flush_ns += now_ns - self.commands[flush as usize].arrived_ns;
                self.finish(now_ns, flush);
            }
        }
    }

    /// Puts what was read ahead so far into the buffer; that is how far the heads are.
    fn note_read_ahead(&mut self, now_ns: u64) {
        let Some(ahead) = self.ahead else { return };
        let read = self.sectors_read_ahead(now_ns, &ahead);
        if read > 0 {
            let end = ahead.from + read;
            // A segment forgets the start of a long run.
            let start = ahead
                .from
                .max(end.saturating_sub(self.segments.sectors_each()));
            self.segments.keep(SectorRun { start, end });
            self.mechanics.move_to(end - 1);
        }
    }

    fn sectors_read_ahead(&self, now_ns: u64, ahead: &ReadAhead) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(ahead.since_ns);
        let sector_ps = self.mechanics.sector_ps(ahead.from).max(1);
        let passed = u128::from(elapsed_ns) * 1000 / u128::from(sector_ps);
        let most = passed.min(u128::from(ahead.until - ahead.from)) as u64;
        // Steps to following tracks take their time, too.
        let takes_ns = self.mechanics.transfer_ns(ahead.from, most).max(1);
        match takes_ns > elapsed_ns {
            true => (most as u128 * elapsed_ns as u128 / takes_ns as u128) as u64,
            false => most,
        }
    }

    /// How far the heads read on after a run: to the end of a block.
    fn read_ahead_until(&self, run: SectorRun) -> u64 {
        let end = self.blocks.around(run).end;
        let distance = self.blocks.at_least(self.spec.cache.read_ahead_sectors);
        let until = (end + distance).min(self.spec.identity.capacity_sectors.max(end));
        match self.spec.cache.read_ahead_tracks {
            Some(tracks) => until.min(self.mechanics.track_end(end - 1, tracks)),
            None => until,
        }
    }

    /// Ends the queued reads that want what another one has brought.
    fn answer_queued(&mut self, now_ns: u64) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|&index| {
            let command = self.commands[index as usize];
            let found = command.op == Op::Read && self.segments.hit(command.run);
            if found {
                self.stats.cache_read_hits += 1;
                self.finish(now_ns, index);
            }
            !found
        });
        self.queue = queue;
    }

    /// A reader has found a run in what was read ahead: the idle heads read on,
    /// so that they stay ahead of it. Once they have stopped they wait until
    /// half of it is used up, since going back to where they were costs a wait
    /// for rotation.
    fn read_on(&mut self, now_ns: u64, run: SectorRun) {
        let Some(ahead) = self.ahead else { return };
        let until = self.read_ahead_until(run);
        if until <= ahead.until || run.end > ahead.until {
            return;
        }
        let read = self.sectors_read_ahead(now_ns, &ahead);
        if ahead.from + read < ahead.until {
            self.ahead = Some(ReadAhead { until, ..ahead });
        } else if run.end + self.spec.cache.read_ahead_sectors / 2 >= ahead.until {
            self.mechanics.move_to(ahead.until - 1);
            let access = self.mechanics.access(now_ns, ahead.until, 1, false, 0);
            self.ahead = Some(ReadAhead {
                from: ahead.until,
                since_ns: now_ns + access.positioning_ns(),
                until,
                at_least_until: ahead.until,
                is_awaited: false,
            });
        }
    }

    /// Up to where the heads read on after a read whatever else waits: once they
    /// have come to a sequential reader, far enough that the way was worth it.
    /// Its further reads do not extend that.
    fn reads_on_at_least_until(&self, now_ns: u64, run: SectorRun) -> u64 {
        let streams = self.streams(now_ns, self.not_in_buffer(run)).is_some();
        match self.ahead {
            Some(ahead) if streams => ahead.at_least_until,
            _ if self.segments.ends_before(run.start) => (run.end
                + self.spec.cache.read_ahead_min_sectors)
                .min(self.spec.identity.capacity_sectors),
            _ => 0,
        }
    }

    /// When the heads will have read as far ahead as they do whatever else
    /// waits; `None` where they have.
    fn reads_ahead_until_ns(&self, now_ns: u64) -> Option<u64> {
        let ahead = self.ahead?;
        let sectors = ahead.at_least_until.checked_sub(ahead.from)?;
        let end_ns = ahead.since_ns + self.mechanics.transfer_ns(ahead.from, sectors);
        (sectors > 0 && end_ns > now_ns).then_some(end_ns)
    }

    /// Schedules the arm's next task for when it has read ahead far enough.
    fn await_read_ahead(&mut self, now_ns: u64) {
        if self.queue.is_empty() && self.dirty.is_empty() {
            return;
        }
        let end_ns = self.reads_ahead_until_ns(now_ns);
        if let (Some(end_ns), Some(ahead)) = (end_ns, &mut self.ahead)
            && !ahead.is_awaited
        {
            ahead.is_awaited = true;
            self.schedule(end_ns, Event::Turn);
        }
    }

    /// Gives the idle arm its next work.
    fn use_arm(&mut self, now_ns: u64) {
        if self.work.is_some() {
            return;
        }
        self.note_read_ahead(now_ns);
        let Some(work) = self.choose(now_ns) else {
            return self.await_read_ahead(now_ns);
        };
        let (run, write) = match work {
            ArmTask::Read(index) => (self.commands[index as usize].run, false),
            ArmTask::Write(index) => (self.commands[index as usize].run, true),
            ArmTask::Destage(run) => (run, true),
        };
        if let ArmTask::Read(index) | ArmTask::Write(index) = work {
            self.queue.retain(|queued| *queued != index);
        }
        if let ArmTask::Destage(run) = work {
            self.dirty.remove(run);
            self.counters.done.destages += 1;
            self.counters.done.sectors_destaged += run.end - run.start;
        }
        self.record_work(work);
        self.at_least_until = match write {
            true => 0,
            false => self.reads_on_at_least_until(now_ns, run),
        };
        let data_ns = match work {
            ArmTask::Write(index) => self.may_write_from_ns(index),
            _ => 0,
        };
        let done_ns = self.reach(now_ns, run, write, data_ns);
        if let ArmTask::Destage(run) = work {
            let transfer_ns = self.mechanics.transfer_ns(run.start, run.end - run.start);
            let took_ns = done_ns - now_ns;
            self.flush_estimate
                .reached(took_ns.saturating_sub(transfer_ns));
        }
        self.ahead = None;
        self.arm_sector = run.end;
        match write {
            true => self.counters.done.writes += 1,
            false => self.counters.done.reads += 1,
        }
        self.work = Some(work);
        self.schedule(done_ns, Event::Arm);
    }

    /// Tells the recorder what the arm begins with.
    fn record_work(&mut self, work: ArmTask) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        match work {
            ArmTask::Read(index) | ArmTask::Write(index) => {
                if let Some(number) = self.commands[index as usize].number {
                    recorder.serves(number);
                }
            }
            ArmTask::Destage(run) => recorder.empties(run),
        }
    }

    /// When a run will have passed under the heads, which are then at its end; what is
    /// written of it is there at `data_ns`.
    fn reach(&mut self, now_ns: u64, run: SectorRun, write: bool, data_ns: u64) -> u64 {
        let run = match write {
            true => run,
            false => self.not_in_buffer(run),
        };
        if !write && let Some(end_ns) = self.streams(now_ns, run) {
            if let Some(recorder) = &mut self.recorder {
                recorder.arm(now_ns, &[(Work::Transfer, end_ns - now_ns)]);
            }
            self.counters.stream(now_ns, run, end_ns - now_ns);
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

    /// Moves the heads to some blocks and over them; when that is done.
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
                (Work::Seek, access.seek_ns),
                (Work::Rotate, access.rotation_ns),
                (Work::Transfer, access.transfer_ns),
            ];
            recorder.arm(now_ns, &steps);
        }
        self.mechanics.move_to(run.end - 1);
        now_ns + access.positioning_ns() + access.transfer_ns
    }

    /// The blocks that are to be read for a run that is not all in the buffer:
    /// those at its begin that are there are not read again.
    fn not_in_buffer(&self, run: SectorRun) -> SectorRun {
        let held = self.segments.held_until(run.start).min(run.end - 1);
        let start = run
            .start
            .max(self.blocks.around(SectorRun { start: held, ..run }).start);
        self.blocks.around(SectorRun { start, ..run })
    }

    /// Where reading ahead is about to come to some blocks, when it will be
    /// through.
    fn streams(&self, now_ns: u64, run: SectorRun) -> Option<u64> {
        let ahead = self.ahead?;
        let read = self.sectors_read_ahead(now_ns, &ahead);
        let at = ahead.from + read;
        // A gap that takes more than a turn is passed sooner by a seek.
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

    /// What the arm does next: the queued command or dirty run that it reaches
    /// soonest, dirty runs only when nothing is queued, the buffer is half full
    /// or somebody waits for them; `None` too while it reads on for a sequential
    /// reader and nothing queued is on its way.
    fn choose(&self, now_ns: u64) -> Option<ArmTask> {
        let work_of = |index: u32| match self.commands[index as usize].op {
            Op::Read => ArmTask::Read(index),
            _ => ArmTask::Write(index),
        };
        let oldest = self
            .queue
            .iter()
            .copied()
            .min_by_key(|index| self.commands[*index as usize].arrived_ns);
        let in_order = self.spec.controller.scheduling == DiskScheduling::Fcfs;
        let is_overdue = |index: &u32| {
            let waited_ns = now_ns - self.commands[*index as usize].arrived_ns;
            !in_order && waited_ns > self.spec.controller.patience_ns
        };
        // A write that waits for room, or a flush, which both end by what is written out.
        let held_up = [self.stalled.front(), self.flushes.front()].into_iter();
        let held_up = held_up.flatten().find(|index| is_overdue(index)).copied();
        let arrived_ns = |index: u32| self.commands[index as usize].arrived_ns;
        let is_older = |index: &u32| held_up.is_none_or(|h| arrived_ns(*index) < arrived_ns(h));
        if let Some(index) = oldest.filter(is_overdue).filter(is_older) {
            return Some(work_of(index));
        }
        if held_up.is_some()
            && let Some((_, destage)) = self.nearest_destage(now_ns)
        {
            return Some(destage);
        }
        let reads_on = self.reads_ahead_until_ns(now_ns).is_some();
        let is_on_the_way = |index: u32| {
            let command = &self.commands[index as usize];
            let run = self.not_in_buffer(command.run);
            command.op == Op::Read && self.streams(now_ns, run).is_some()
        };
        let must_destage =
            self.is_filled(0, 2) || !self.stalled.is_empty() || !self.flushes.is_empty();
        if let Some(index) = oldest
            && in_order
            && !must_destage
        {
            return (!reads_on || is_on_the_way(index)).then(|| work_of(index));
        }
        let candidates = self.queue.iter();
        let candidates = candidates
            .filter(|index| !in_order || oldest == Some(**index))
            .filter(|index| !reads_on || is_on_the_way(**index));
        let queued = candidates.map(|index| {
            let command = &self.commands[*index as usize];
            let write = command.op != Op::Read;
            (self.cost_ns(now_ns, command.run, write), work_of(*index))
        });
        let destages = !reads_on && (must_destage || self.queue.is_empty());
        let destage = destages.then(|| self.nearest_destage(now_ns)).flatten();
        queued
            .chain(destage)
            .min_by_key(|(cost_ns, _)| *cost_ns)
            .map(|(_, work)| work)
    }

    /// The dirty run that the arm reaches soonest, and how soon.
    fn nearest_destage(&self, now_ns: u64) -> Option<(u64, ArmTask)> {
        let near = self.dirty.runs_near(self.arm_sector, NEAR_RUNS);
        let reached = near.map(|run| {
            // Cut between blocks.
            let most = self.blocks.around(run).start + self.blocks.at_least(DESTAGE_SECTORS);
            let part = SectorRun {
                start: run.start,
                end: run.end.min(most),
            };
            (self.cost_ns(now_ns, part, true), ArmTask::Destage(part))
        });
        reached.min_by_key(|(cost_ns, _)| *cost_ns)
    }

    /// How long until a run's first sector is under the heads.
    fn cost_ns(&self, now_ns: u64, run: SectorRun, write: bool) -> u64 {
        let run = match write {
            true => run,
            false => self.not_in_buffer(run),
        };
        match self.streams(now_ns, run) {
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
        self.counters.book(now_ns);
        match self.work.take() {
            Some(ArmTask::Read(index)) => {
                let run = self.blocks.around(self.commands[index as usize].run);
                self.segments.keep(run);
                self.ahead = Some(ReadAhead {
                    from: run.end,
                    since_ns: now_ns,
                    until: self.read_ahead_until(run),
                    at_least_until: self.at_least_until,
                    is_awaited: false,
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
        self.use_arm(now_ns);
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
            begun_ns: now.0,
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
            Event::Arrive(index),
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
                Event::Arm => self.arm_done(at_ns),
                Event::Turn => self.use_arm(at_ns),
                Event::Arrive(index) => self.arrive(at_ns, index),
                Event::Begin(index) => self.begin(at_ns, index),
                Event::Leave(index) => {
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

    /// The buffer is lost. How long the platters take to come up to speed is
    /// not known from a description: the disk is ready at once.
    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.stats.power_losses += 1;
        if let Some(ArmTask::Destage(run)) = self.work {
            self.dirty.add(run);
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
        self.work = None;
        self.counters.stop(now.0);
        self.ahead = None;
        self.segments = Segments::new(self.spec.cache.segments, self.spec.cache.sectors / 2);
        self.dirty = Dirty::default();
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_all();
        }
        self.stalled.clear();
        self.flushes.clear();
        self.link_ns = now.0;
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
