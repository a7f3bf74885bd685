//! What a process of a job does next, and when: the generators of `workload` put
//! together with time limits, rates, pauses and flushes.

use blklab_blk::Nanos;
use blklab_workload::fio::{
    Direction, IologAction, IologEntry, JobSpec, Priority, SyncKind, ThinkTime,
};
use blklab_workload::generate::{
    CommandPriorities, DriveZones, FileStep, Io, Layout, LayoutError, OffsetGenerator, OpenFiles,
    Pacing, Process, Seeds, SyncSchedule, ZonedNext,
};

use super::files::PlacedFile;
use super::iolog::LogCursor;
use super::verify::Verification;
use crate::contents::Space;
use crate::setup::SetupError;
use crate::zoned_files::{InZones, ZonedFiles};

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NextAction {
    /// Issues this I/O.
    Io(NextIo),
    /// Opens the file of that number.
    Open(u32),
    /// Closes it.
    Close(u32),
    /// Waits until one of its files can be closed, so that another can be opened.
    AwaitFile,
    /// Flushes the file of that number, for that call.
    Flush(SyncKind, u32),
    /// Issues nothing before then, and waits for what is in flight first.
    Pause(Nanos),
    /// Sleeps until then.
    Sleep(Nanos),
    /// Pauses for `thinktime`, once everything in flight has ended.
    Think,
    /// Waits until everything in flight has ended.
    AwaitIdle,
    /// Waits until another process releases a zone.
    AwaitZone,
    /// Resets the zone of that drive that begins at this byte.
    ResetZone(usize, u64),
    /// Issues nothing more in this pass.
    PassOver,
}

/// An I/O on a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NextIo {
    pub(crate) dir: Direction,
    pub(crate) disk: usize,
    /// Which of the process's files.
    pub(crate) file: u32,
    /// Where on the drive.
    pub(crate) offset_bytes: u64,
    pub(crate) bytes: u64,
    /// Its own priority, where it has one.
    pub(crate) prio: Option<Priority>,
    /// Its zone is not others' until it is reaped.
    pub(crate) holds_zone: bool,
}

pub(crate) struct Plan {
    offsets: OffsetGenerator,
    syncs: Option<SyncSchedule>,
    pacing: Option<Pacing>,
    /// The direction that waits for its rate.
    held: Option<Direction>,
    priorities: Option<CommandPriorities>,
    pub(super) files: Vec<PlacedFile>,
    /// Their names, where the process verifies.
    names: Vec<String>,
    /// Where the process verifies.
    verification: Option<Box<Verification>>,
    /// By file, the part that the process works on: its first byte and length.
    parts: Vec<(u64, u64)>,
    /// With `zonemode=zbd`.
    in_zones: Option<Box<InZones>>,
    /// With `read_iolog`.
    log: Option<Box<LogCursor>>,
    think: ThinkTime,
    think_blocks: u64,
    /// A pause is due, after an I/O in this direction.
    think_due: Option<Direction>,
    think_since: Nanos,
    /// Rates count from here.
    pace_from: Nanos,
    ramp_end: Nanos,
    deadline: Nanos,
    ramp: Nanos,
    runtime: Nanos,
    start_delay: Nanos,
    started: Option<Nanos>,
    stopped: bool,
    /// Its work is done before its end (`latency_target`).
    completed_early: bool,
}

impl Plan {
    pub(crate) fn new(
        spec: &JobSpec,
        (process, pid): (&Process, usize),
        files: &[PlacedFile],
        (zones, drive): (&mut ZonedFiles, Option<DriveZones>),
        (seed, start_spread_us): (u64, u64),
    ) -> Result<Plan, SetupError> {
        let seeds = Seeds::new(spec, process.thread_number, seed);
        let sizes: Vec<u64> = files.iter().map(|f| f.size_bytes).collect();
        let fault = |error: LayoutError| SetupError::Mistake(Box::new(error.mistake(spec)));
        let mut layout = Layout::new(spec, process.number, &seeds, &sizes).map_err(fault)?;
        // Behind its room lies another file.
        for (extent, file) in layout.files.iter_mut().zip(files) {
            extent.file_bytes = file.room_bytes;
        }
        let in_zones = match (&mut layout.files[..], files) {
            ([part], [file]) => zones.add((spec, pid), (file, part), drive),
            _ => Ok(None),
        };
        let in_zones = in_zones.map_err(|mistake| SetupError::Mistake(Box::new(mistake)))?;
        let offsets = OffsetGenerator::new(spec, &layout, &seeds).map_err(fault)?;
        Ok(Plan {
            offsets,
            syncs: SyncSchedule::new(spec),
            pacing: Pacing::new(spec, &seeds),
            held: None,
            priorities: CommandPriorities::new(spec, &seeds),
            files: files.to_vec(),
            names: match spec.verify.is_on() {
                true => spec.file_names(process.number),
                false => Vec::new(),
            },
            verification: Verification::new(spec).map(Box::new),
            parts: (layout.files.iter())
                .map(|part| (part.offset_bytes, part.length_bytes))
                .collect(),
            in_zones: in_zones.map(Box::new),
            log: (spec.iolog(process.number)).map(|log| Box::new(LogCursor::new(log))),
            think: spec.think,
            think_blocks: 0,
            think_due: None,
            think_since: Nanos::ZERO,
            pace_from: Nanos::ZERO,
            ramp_end: Nanos::MAX,
            deadline: Nanos::MAX,
            ramp: Nanos::from_micros(spec.ramp_us),
            runtime: match spec.runtime_us {
                0 => Nanos::MAX,
                us => Nanos::from_micros(us),
            },
            start_delay: Nanos::from_micros(
                seeds.start_delay_us(spec) + seeds.start_spread_us(spec, start_spread_us),
            ),
            started: None,
            stopped: false,
            completed_early: false,
        })
    }

    /// How many files the process has.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Which of its files are open.
    #[inline]
    pub(crate) fn open_files(&mut self) -> &mut OpenFiles {
        self.offsets.open_files()
    }

    /// The part of a file that the process works on: its first byte and length.
    pub(crate) fn part(&self, file: usize) -> (u64, u64) {
        self.parts[file]
    }

    /// Where in that file a place of its drive is.
    pub(crate) fn offset_in_file(&self, file: u32, on_drive_bytes: u64) -> u64 {
        let file = self.files.get(file as usize);
        on_drive_bytes.saturating_sub(file.map_or(0, |file| file.base_bytes))
    }

    /// The first byte of an I/O in its file, and its end.
    pub(crate) fn range_in_file(&self, io: &NextIo) -> (u64, u64) {
        let start = self.offset_in_file(io.file, io.offset_bytes);
        (start, start + io.bytes)
    }

    /// How long after everything else the process starts.
    pub(crate) fn start_delay(&self) -> Nanos {
        self.start_delay
    }

    /// The process starts.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.started = Some(now);
        self.pace_from = now;
        self.think_since = now;
        self.ramp_end = now + self.ramp;
        self.deadline = self.ramp_end.saturating_add(self.runtime);
    }

    /// When the process started, if it has.
    pub(crate) fn started(&self) -> Option<Nanos> {
        self.started
    }

    /// When the process's time is over; [`Nanos::MAX`] where it has no limit.
    pub(crate) fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Nothing more is to be issued.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// The work is done: nothing more is to be issued.
    pub(crate) fn complete(&mut self) {
        (self.stopped, self.completed_early) = (true, true);
    }

    /// Whether the process came to the end of its work, rather than to that of its time.
    pub(crate) fn is_complete(&self, now: Nanos) -> bool {
        self.completed_early || !self.is_over(now)
    }

    /// Begins another pass, if there is one. Everything issued has ended.
    pub(crate) fn start_pass(&mut self, now: Nanos, zones: &mut ZonedFiles) -> bool {
        let starts = !self.is_over(now) && self.offsets.start_pass();
        if let Some(in_zones) = &mut self.in_zones {
            let file = zones.of(in_zones);
            in_zones.cursor.start_pass(file);
        }
        if let Some(verification) = self.verification.as_mut().filter(|_| starts) {
            verification.start_pass();
        }
        starts
    }

    /// The process's place in the zones of its file.
    #[inline]
    pub(crate) fn in_zones(&self) -> Option<&InZones> {
        self.in_zones.as_deref()
    }

    pub(crate) fn in_zones_mut(&mut self) -> Option<&mut InZones> {
        self.in_zones.as_deref_mut()
    }

    /// Whether time or another job's end stops the process, rather than the end
    /// of its own work.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        self.stopped || now >= self.deadline
    }

    /// How far the process is with writing and verifying, if it verifies.
    pub(super) fn verification(&self) -> Option<&Verification> {
        self.verification.as_deref()
    }

    pub(super) fn verification_mut(&mut self) -> Option<&mut Verification> {
        self.verification.as_deref_mut()
    }

    /// What a file of the process is in.
    pub(super) fn space_of(&self, file: u32) -> Space {
        let file = &self.files[file as usize];
        match file.in_tree {
            Some(number) => Space::File(number),
            None => Space::Drive(file.disk),
        }
    }

    /// The name of a file of a process that verifies.
    pub(super) fn file_name(&self, file: u32) -> &str {
        self.names.get(file as usize).map_or("", String::as_str)
    }

    /// The next thing to do.
    #[inline]
    pub(crate) fn next(&mut self, now: Nanos) -> NextAction {
        match self.verification.is_some() || self.log.is_some() {
            false => self.next_of_own(now),
            true => self.next_of_list(now),
        }
    }

    /// The next thing to do of a process that verifies, or replays a log.
    #[cold]
    fn next_of_list(&mut self, now: Nanos) -> NextAction {
        match self.log.is_some() {
            true => self.next_in_log(now),
            false => self.next_verifying(now),
        }
    }

    /// The next thing to do of a process that verifies.
    fn next_verifying(&mut self, now: Nanos) -> NextAction {
        let Some(mut verification) = self.verification.take() else {
            return NextAction::PassOver;
        };
        let next = self.next_with_verification(now, &mut verification);
        self.verification = Some(verification);
        next
    }

    fn next_with_verification(&mut self, now: Nanos, v: &mut Verification) -> NextAction {
        if self.is_over(now) {
            return NextAction::PassOver;
        }
        if v.reads_rest() {
            // fio keeps neither to rates nor to pauses here.
            return self
                .read_next_again(v, false)
                .unwrap_or(NextAction::PassOver);
        }
        if v.only() {
            return self.write_nothing(v);
        }
        if self.takes_think_due() {
            return NextAction::Think;
        }
        if self.offsets.may_issue()
            && let Some(again) = self.read_next_again(v, true)
        {
            return again;
        }
        let next = self.next_of_own(now);
        if let NextAction::Io(io) = &next {
            v.decided(Io {
                direction: io.dir,
                file: io.file,
                offset_bytes: self.offset_in_file(io.file, io.offset_bytes),
                length_bytes: io.bytes as u32,
            });
        }
        next
    }

    /// Reads again the next of what was written, if there is one: `between` other I/Os, where that
    /// is due, or after them. A file that is closed is opened first (`get_next_verify`).
    fn read_next_again(&mut self, v: &mut Verification, between: bool) -> Option<NextAction> {
        let io = match v.due.take() {
            Some(io) => io,
            None => {
                let written = match between {
                    true => v.log.due(),
                    false => v.log.next(),
                };
                v.again(written?)
            }
        };
        if !self.open_files().is_open(io.file) {
            v.due = Some(io);
            self.open_files().open(io.file);
            return Some(NextAction::Open(io.file));
        }
        Some(self.read_again(io, between))
    }

    /// Goes through the job's I/O without doing it (`do_dry_run`).
    fn write_nothing(&mut self, v: &mut Verification) -> NextAction {
        loop {
            if let Some(action) = self.turn_to_file() {
                return action;
            }
            let dir = self.offsets.next_direction();
            if let Some(io) = self.offsets.next_in(dir) {
                self.open_files().reaped(io.file);
                v.log.issued(io, false);
            }
        }
    }

    /// Reads again what was written, `between` other I/Os or after them.
    fn read_again(&mut self, io: Io, between: bool) -> NextAction {
        let bytes = u64::from(io.length_bytes);
        self.offsets.verified(bytes, between);
        self.open_files().issued(io.file);
        if let Some(pacing) = &mut self.pacing {
            pacing.issued(Direction::Read, bytes);
        }
        let file = self.files[io.file as usize];
        NextAction::Io(NextIo {
            dir: Direction::Read,
            disk: file.disk,
            file: io.file,
            offset_bytes: file.base_bytes + io.offset_bytes,
            bytes,
            prio: None,
            holds_zone: false,
        })
    }

    /// What comes before the next I/O so that its file is open, if anything does.
    #[inline(always)]
    fn turn_to_file(&mut self) -> Option<NextAction> {
        match self.offsets.turn_to_file() {
            FileStep::Ready => None,
            FileStep::Open(file) => Some(NextAction::Open(file)),
            FileStep::Close(file) => Some(NextAction::Close(file)),
            FileStep::Busy => Some(NextAction::AwaitFile),
            FileStep::Over => Some(NextAction::PassOver),
        }
    }

    #[inline(always)]
    fn next_of_own(&mut self, now: Nanos) -> NextAction {
        loop {
            let dir = match self.next_direction(now) {
                Ok(dir) => dir,
                Err(action) => return action,
            };
            // A file may be done instead; it is the next one's turn then.
            if let Some(io) = self.offsets.next_in(dir) {
                return NextAction::Io(self.issue(now, &io, false));
            }
        }
    }

    /// The next thing to do of a process that keeps to zones; `is_idle` tells whether it has
    /// nothing in flight.
    #[cold]
    pub(crate) fn next_in_zones(
        &mut self,
        now: Nanos,
        zones: &mut ZonedFiles,
        is_idle: bool,
    ) -> NextAction {
        let Some(mut in_zones) = self.in_zones.take() else {
            return NextAction::PassOver;
        };
        let action = self.next_with(now, (&mut in_zones, zones), is_idle);
        self.in_zones = Some(in_zones);
        action
    }

    fn next_with(
        &mut self,
        now: Nanos,
        (in_zones, zones): (&mut InZones, &mut ZonedFiles),
        is_idle: bool,
    ) -> NextAction {
        let file = zones.of(in_zones);
        let cursor = &mut in_zones.cursor;
        if self.is_over(now) {
            return NextAction::PassOver;
        }
        while !cursor.is_pending() {
            let dir = match self.next_direction(now) {
                Ok(dir) => dir,
                Err(action) => return action,
            };
            self.offsets.draw_in_zones(dir, (cursor, file));
        }
        match self.offsets.place_in_zones((cursor, file), is_idle) {
            ZonedNext::Io(io, holds_zone) => NextAction::Io(self.issue(now, &io, holds_zone)),
            ZonedNext::Idle => NextAction::AwaitIdle,
            ZonedNext::Release => NextAction::AwaitZone,
            ZonedNext::Reset(at_bytes) => {
                let file = self.files[0];
                NextAction::ResetZone(file.disk, file.base_bytes + at_bytes)
            }
            ZonedNext::End => NextAction::PassOver,
        }
    }

    /// The direction of the next I/O, or what comes before it.
    #[inline(always)]
    fn next_direction(&mut self, now: Nanos) -> Result<Direction, NextAction> {
        if self.is_over(now) {
            return Err(NextAction::PassOver);
        }
        if self.takes_think_due() {
            return Err(NextAction::Think);
        }
        if let Some(action) = self.turn_to_file() {
            return Err(action);
        }
        // fio flushes the file whose turn it is, and between two I/Os, not behind the last one.
        if let Some(kind) = self.syncs.as_ref().and_then(SyncSchedule::due)
            && let Some(file) = self.offsets.chosen_file()
        {
            return Err(NextAction::Flush(kind, file));
        }
        match self.pacing {
            None => Ok(self.offsets.next_direction()),
            Some(_) => self
                .paced_direction(now)
                .map_err(|until| NextAction::Pause(until.min(self.deadline))),
        }
    }

    /// Where the next I/O will be in the process's only file, if that is known beforehand.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u64> {
        self.offsets.peek()
    }

    /// Counts an I/O as issued, and says where on the drive it is.
    #[inline(always)]
    pub(super) fn issue(&mut self, now: Nanos, io: &Io, holds_zone: bool) -> NextIo {
        let bytes = u64::from(io.length_bytes);
        self.issued(now, io.direction, bytes);
        let file = self.files[io.file as usize];
        let prio = self.priorities.as_mut();
        NextIo {
            dir: io.direction,
            disk: file.disk,
            file: io.file,
            offset_bytes: file.base_bytes + io.offset_bytes,
            bytes,
            prio: prio.and_then(|p| p.next(io.direction, bytes)),
            holds_zone,
        }
    }

    /// The direction whose turn it is by the rates, or when it will be.
    #[inline(never)]
    fn paced_direction(&mut self, now: Nanos) -> Result<Direction, Nanos> {
        if self.pace_from < self.ramp_end && now >= self.ramp_end {
            // Measuring begins; what the ramp was behind or ahead is forgotten.
            self.pace_from = self.ramp_end;
            if let Some(pacing) = &mut self.pacing {
                pacing.reset();
            }
        }
        let drawn = match self.held.take() {
            Some(held) => held,
            None => self.offsets.next_direction(),
        };
        let since = now.saturating_sub(self.pace_from).0;
        let Some(pacing) = &self.pacing else {
            return Ok(drawn);
        };
        let (dir, at_ns) = pacing.next(drawn, since);
        if at_ns <= since {
            return Ok(dir);
        }
        self.held = Some(dir);
        Err(self.pace_from.saturating_add(Nanos(at_ns)))
    }

    #[inline(always)]
    fn issued(&mut self, now: Nanos, dir: Direction, bytes: u64) {
        if let Some(pacing) = &mut self.pacing {
            pacing.issued(dir, bytes);
        }
        if let Some(syncs) = &mut self.syncs {
            syncs.issued(dir);
        }
        if self.think.count_issues {
            self.count_block(now, dir);
        }
    }

    /// An I/O ended.
    #[inline]
    pub(crate) fn completed(&mut self, now: Nanos, dir: Direction) {
        if self.think.pause_us > 0 && !self.think.count_issues {
            self.count_block(now, dir);
        }
    }

    #[inline(never)]
    fn count_block(&mut self, now: Nanos, dir: Direction) {
        if self.think.pause_us == 0 {
            return;
        }
        self.think_blocks += 1;
        let by_time = Nanos::from_micros(self.think.io_time_us);
        let time_is_up = by_time > Nanos::ZERO && now.saturating_sub(self.think_since) >= by_time;
        let counts = by_time == Nanos::ZERO || self.think.blocks_given;
        let every = u64::from(self.think.blocks.max(1));
        if time_is_up || (counts && self.think_blocks.is_multiple_of(every)) {
            self.think_due = Some(dir);
        }
    }

    /// Whether `thinktime` asks for a pause now.
    pub(super) fn takes_think_due(&mut self) -> bool {
        let Some(dir) = self.think_due.take() else {
            return false;
        };
        if let Some(pacing) = &mut self.pacing
            && self.think.rate_ignores
        {
            pacing.paused(dir, Nanos::from_micros(self.think.pause_us).0);
        }
        true
    }

    /// The pause of `thinktime` begins: until when the process spins, and until
    /// when it pauses in all.
    pub(crate) fn think(&mut self, now: Nanos) -> (Nanos, Nanos) {
        let end = |us| {
            now.saturating_add(Nanos::from_micros(us))
                .min(self.deadline)
        };
        let (spun, until) = (end(self.think.spin_us), end(self.think.pause_us));
        self.think_since = until;
        (spun, until)
    }

    /// The flush asked for was issued.
    pub(crate) fn flushed(&mut self, now: Nanos) {
        if let Some(log) = &mut self.log {
            return log.advance(now);
        }
        self.offsets.flushed();
        if let Some(syncs) = &mut self.syncs {
            syncs.synced();
        }
    }

    /// The drive that a file is on.
    pub(crate) fn disk_of(&self, file: u32) -> usize {
        self.files.get(file as usize).map_or(0, |file| file.disk)
    }
}

/// Replaying a log (`read_iolog_get` in fio's `iolog.c`).
impl Plan {
    /// The next thing to do of a process that replays a log. fio sleeps until it is due, and reaps
    /// nothing meanwhile.
    pub(super) fn next_in_log(&mut self, now: Nanos) -> NextAction {
        loop {
            if self.is_over(now) {
                return NextAction::PassOver;
            }
            if self.takes_think_due() {
                return NextAction::Think;
            }
            if let Some(file) = self.open_files().close_done() {
                return NextAction::Close(file);
            }
            let Some((entry, due)) = self.log.as_ref().and_then(|log| log.peek()) else {
                self.complete();
                return NextAction::PassOver;
            };
            if due > now {
                return NextAction::Sleep(due.min(self.deadline()));
            }
            if let Some(action) = self.do_entry(now, entry) {
                return action;
            }
        }
    }

    /// Does what an entry says; `None` where that is nothing.
    fn do_entry(&mut self, now: Nanos, entry: IologEntry) -> Option<NextAction> {
        let file = entry.file;
        let is_open = self.open_files().is_open(file);
        // An I/O to a file that no line opens has it opened first.
        let opens = match entry.action {
            IologAction::Add | IologAction::Close => false,
            IologAction::Open | IologAction::Io { .. } | IologAction::Flush(_) => !is_open,
        };
        if opens {
            self.open_files().open(file);
            return Some(NextAction::Open(file));
        }
        match entry.action {
            IologAction::Flush(kind) => return Some(NextAction::Flush(kind, file)),
            IologAction::Open if self.open_files().closes(file) => {
                // It closes first.
                return Some(NextAction::AwaitFile);
            }
            _ => {}
        }
        if let Some(log) = &mut self.log {
            log.advance(now);
        }
        match entry.action {
            IologAction::Close => {
                self.open_files().done(file);
                None
            }
            IologAction::Io {
                direction,
                offset_bytes,
                length_bytes,
            } => {
                self.open_files().issued(file);
                let io = Io {
                    direction,
                    file,
                    offset_bytes,
                    length_bytes,
                };
                Some(NextAction::Io(self.issue(now, &io, false)))
            }
            _ => None,
        }
    }
}
