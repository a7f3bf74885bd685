//! `zonemode=zbd`: the zones of a drive as fio keeps them (its `zbd.c`), and the place that an I/O
//! gets among them.
//!
//! All processes that use a drive share its zones. A process holds a zone from the I/O's decision
//! to its end, and others wait for it; so nobody writes beside a write pointer.

use std::ops::Range;

use super::Io;
use super::layout::FileExtent;
use crate::fio::{ByDirection, Direction, JobError, JobSpec};

/// More zones than any drive has.
const MAX_ZONES: u64 = 1 << 20;

/// The zones that a drive has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveZones {
    /// The size of a zone, in bytes.
    pub zone_bytes: u64,
    /// What of a zone can be written, in bytes.
    pub capacity_bytes: u64,
    /// How many zones at the beginning can be written anywhere.
    pub conventional: u64,
    /// The most zones that can be open at once; 0: no limit.
    pub max_open: u32,
    /// All zones that are written in order are full; else they are empty.
    pub are_full: bool,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    /// The write pointer, in bytes from the start of the file.
    write_pointer: u64,
    /// The zone is one of those that are written to.
    is_open: bool,
    /// The next write resets the zone.
    reset_is_due: bool,
    /// The process that has I/O in the zone, and how many.
    holder: u32,
    holds: u32,
}

/// The zones of a drive or file, for all processes that use it.
#[derive(Clone, Debug)]
pub struct ZonedFile {
    shape: DriveZones,
    /// Whether a reset is a command to the drive.
    is_zoned_drive: bool,
    zones: Vec<Zone>,
    /// The zones that are written to, in the order in which they were opened.
    open: Vec<usize>,
    max_open: u32,
    /// Bytes below the write pointers of the part that a pass works on.
    written_bytes: u64,
    /// The same with conventional zones, which count as written.
    data_bytes: u64,
    writes_until_reset: u32,
    resets: u64,
}

impl ZonedFile {
    /// Returns the zones of a file of `file_bytes`: those of the drive, or those that the job
    /// describes.
    pub fn new(
        spec: &JobSpec,
        file_bytes: u64,
        drive: Option<DriveZones>,
    ) -> Result<ZonedFile, JobError> {
        let shape = match drive {
            Some(drive) => shape_of_drive(spec, drive)?,
            None => shape_of_job(spec, file_bytes)?,
        };
        let count = file_bytes.div_ceil(shape.zone_bytes);
        if count > MAX_ZONES {
            let problem = format!("{count} zones are too many");
            return Err(spec.mistake(&["zonesize"], problem, format!("at most {MAX_ZONES}")));
        }
        let zones = (0..count).map(|zone| {
            let start = zone * shape.zone_bytes;
            Zone {
                write_pointer: match (zone < shape.conventional, shape.are_full) {
                    (true, _) => start + shape.zone_bytes,
                    (false, true) => start + shape.capacity_bytes,
                    (false, false) => start,
                },
                is_open: false,
                reset_is_due: false,
                holder: 0,
                holds: 0,
            }
        });
        Ok(ZonedFile {
            shape,
            is_zoned_drive: drive.is_some(),
            zones: zones.collect(),
            open: Vec::new(),
            max_open: match drive {
                Some(drive) if spec.zones.max_open == 0 && !spec.zones.ignore_limits => {
                    drive.max_open
                }
                _ => spec.zones.max_open,
            },
            written_bytes: 0,
            data_bytes: 0,
            writes_until_reset: u32::MAX,
            resets: 0,
        })
    }

    /// Checks that a further job agrees with these zones.
    pub fn check(&self, spec: &JobSpec) -> Result<(), JobError> {
        let options = &spec.zones;
        if options.size_bytes > 0 && options.size_bytes != self.shape.zone_bytes {
            return Err(spec.mistake(
                &["zonesize"],
                "another zone size than the drive or another job has",
                format!("{} bytes, or leave it out", self.shape.zone_bytes),
            ));
        }
        if options.max_open > 0 && options.max_open != self.max_open {
            return Err(spec.mistake(
                &["max_open_zones"],
                "another limit than an earlier job of this drive has",
                "one limit for all",
            ));
        }
        if options.job_max_open > 0 && self.max_open == 0 {
            return Err(spec.mistake(
                &["job_max_open_zones"],
                "it needs a limit for all jobs",
                "max_open_zones as well",
            ));
        }
        let largest = spec.block_sizes.write.max_bytes;
        if spec.pattern.does(Direction::Write) && largest > self.shape.capacity_bytes {
            return Err(spec.mistake(
                &["bssplit", "bsrange", "bs"],
                "a block is larger than a zone",
                format!("at most {} bytes", self.shape.capacity_bytes),
            ));
        }
        Ok(())
    }

    /// Cuts a process's part down to whole zones, unless it only reads
    /// (`zbd_zone_align_file_sizes`).
    pub fn fit(&self, spec: &JobSpec, part: &mut FileExtent) -> Result<(), JobError> {
        let zone_bytes = self.shape.zone_bytes;
        let end = part.offset_bytes.saturating_add(part.length_bytes);
        let sequential = self.shape.conventional * zone_bytes;
        if !spec.pattern.does(Direction::Write) || end <= sequential {
            return Ok(());
        }
        let start = part.offset_bytes.next_multiple_of(zone_bytes);
        let end = end / zone_bytes * zone_bytes;
        if end <= start {
            let help = format!("at least a zone of {zone_bytes} bytes");
            return Err(spec.mistake(&["size"], "the job's part is less than a zone", help));
        }
        (part.offset_bytes, part.length_bytes) = (start, end - start);
        Ok(())
    }

    /// How many zones were reset.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// An I/O that holds its zone has ended. Returns whether others may have the zone now.
    pub fn release(&mut self, cursor: &mut ZoneCursor, direction: Direction, end: u64) -> bool {
        let zone = self.zone_of(end.saturating_sub(1));
        if direction == Direction::Write && end >= self.capacity_end(zone) {
            self.close(cursor, zone);
        }
        self.unhold(zone)
    }

    fn zone_of(&self, offset: u64) -> usize {
        ((offset / self.shape.zone_bytes) as usize).min(self.zones.len() - 1)
    }

    fn start(&self, zone: usize) -> u64 {
        zone as u64 * self.shape.zone_bytes
    }

    fn capacity_end(&self, zone: usize) -> u64 {
        self.start(zone) + self.shape.capacity_bytes
    }

    fn is_sequential(&self, zone: usize) -> bool {
        zone as u64 >= self.shape.conventional
    }

    fn has_room(&self, zone: usize, bytes: u64) -> bool {
        self.zones[zone].write_pointer + bytes <= self.capacity_end(zone)
    }

    fn is_held_by_another(&self, zone: usize, process: u32) -> bool {
        let zone = &self.zones[zone];
        zone.holds > 0 && zone.holder != process
    }

    fn is_held_by_others(&self, process: u32) -> bool {
        (0..self.zones.len()).any(|zone| self.is_held_by_another(zone, process))
    }

    fn hold(&mut self, zone: usize, process: u32) {
        let zone = &mut self.zones[zone];
        zone.holder = process;
        zone.holds += 1;
    }

    fn unhold(&mut self, zone: usize) -> bool {
        let zone = &mut self.zones[zone];
        zone.holds = zone.holds.saturating_sub(1);
        zone.holds == 0
    }

    /// Makes a zone one of those that are written to, if the limits allow it (`zbd_open_zone`).
    fn open(&mut self, cursor: &mut ZoneCursor, zone: usize) -> bool {
        if self.max_open == 0 {
            return true;
        }
        if self.zones[zone].is_open {
            // What fills the zone up may be on its way.
            return self.zones[zone].write_pointer < self.capacity_end(zone);
        }
        let own_limit = cursor.max_open;
        if own_limit > 0 && cursor.open >= own_limit || self.open.len() >= self.max_open as usize {
            return false;
        }
        self.open.push(zone);
        cursor.open += 1;
        self.zones[zone].is_open = true;
        true
    }

    fn close(&mut self, cursor: &mut ZoneCursor, zone: usize) {
        if let Some(at) = self.open.iter().position(|open| *open == zone) {
            self.open.remove(at);
            cursor.open = cursor.open.saturating_sub(1);
            self.zones[zone].is_open = false;
        }
    }

    fn reset(&mut self, zone: usize) {
        let start = self.start(zone);
        let data = self.zones[zone].write_pointer - start;
        self.written_bytes = self.written_bytes.saturating_sub(data);
        self.data_bytes = self.data_bytes.saturating_sub(data);
        self.zones[zone].write_pointer = start;
        self.resets += 1;
    }

    /// Counts what the zones of a part hold (`zbd_process_swd`).
    fn count_data(&mut self, zones: Range<usize>) {
        (self.written_bytes, self.data_bytes) = (0, 0);
        for zone in zones {
            let data = self.zones[zone].write_pointer - self.start(zone);
            self.data_bytes += data;
            if self.is_sequential(zone) {
                self.written_bytes += data;
            }
        }
    }
}

fn shape_of_drive(spec: &JobSpec, drive: DriveZones) -> Result<DriveZones, JobError> {
    let given = spec.zones.size_bytes;
    if given > 0 && given != drive.zone_bytes {
        return Err(spec.mistake(
            &["zonesize"],
            "not the size of the drive's zones",
            format!("{} bytes, or leave it out", drive.zone_bytes),
        ));
    }
    let limit = drive.max_open;
    if limit > 0 && spec.zones.max_open > limit && !spec.zones.ignore_limits {
        return Err(spec.mistake(
            &["max_open_zones"],
            format!("the drive has at most {limit} open"),
            format!("at most {limit}, or ignore_zone_limits=1"),
        ));
    }
    Ok(drive)
}

fn shape_of_job(spec: &JobSpec, file_bytes: u64) -> Result<DriveZones, JobError> {
    let zone_bytes = spec.zones.size_bytes;
    if zone_bytes == 0 {
        return Err(spec.mistake(
            &["zonemode"],
            "the drive has no zones",
            "zonesize as well, or a zoned drive",
        ));
    }
    if zone_bytes < 512 || zone_bytes > file_bytes {
        let help = format!("from 512 to {file_bytes} bytes, the file's size");
        return Err(spec.mistake(&["zonesize"], "no size of a zone", help));
    }
    let capacity_bytes = match spec.zones.capacity_bytes {
        0 => zone_bytes,
        bytes if bytes <= zone_bytes => bytes,
        _ => {
            let help = format!("at most zonesize, {zone_bytes} bytes");
            return Err(spec.mistake(&["zonecapacity"], "more than a zone", help));
        }
    };
    Ok(DriveZones {
        zone_bytes,
        capacity_bytes,
        conventional: 0,
        max_open: 0,
        are_full: false,
    })
}

/// What becomes of an I/O among the zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonedNext {
    /// It is issued so; whether it holds its zone until [`ZonedFile::release`].
    Io(Io, bool),
    /// The process waits until none of its I/Os is in flight, and asks again.
    Idle,
    /// The process waits until another releases a zone, and asks again; none of its own I/Os is in
    /// flight.
    Release,
    /// The zone that starts at this byte is reset, then the process asks again.
    Reset(u64),
    /// There is nothing more to do in this pass.
    End,
}

/// How far the search for an I/O's place has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Start,
    /// The zones behind this one are tried.
    Search {
        zone: usize,
        is_retry: bool,
    },
    /// This zone is written, after its reset if it needs one. It is held.
    Write(usize),
    /// This zone was reset. It is held.
    WasReset(usize),
}

/// The place of a process among the zones of its file.
#[derive(Clone, Debug)]
pub struct ZoneCursor {
    process: u32,
    part: FileExtent,
    zones: Range<usize>,
    is_random: bool,
    writes: bool,
    reads_beyond: bool,
    max_open: u32,
    /// Zones that this process has opened.
    open: u32,
    threshold: f64,
    frequency: f64,
    min_bytes: ByDirection<u64>,
    pending: Option<(Io, Stage)>,
}

impl ZoneCursor {
    /// Makes the cursor of process `process`, which works on that part of the file.
    pub fn new(spec: &JobSpec, process: u32, part: &FileExtent, file: &ZonedFile) -> ZoneCursor {
        let end = part.offset_bytes + part.length_bytes;
        let first = file.zone_of(part.offset_bytes);
        let behind = ((end / file.shape.zone_bytes) as usize).min(file.zones.len());
        ZoneCursor {
            process,
            part: *part,
            zones: first..behind.max(first + 1),
            is_random: spec.pattern.is_random(),
            writes: spec.pattern.does(Direction::Write),
            reads_beyond: spec.zones.read_beyond_wp,
            max_open: spec.zones.job_max_open,
            open: 0,
            threshold: spec.zones.reset_threshold,
            frequency: spec.zones.reset_frequency,
            min_bytes: ByDirection::from_fn(|d| spec.block_sizes[d].min_bytes.max(1)),
            pending: None,
        }
    }

    /// A pass begins (`zbd_file_reset`).
    pub fn start_pass(&mut self, file: &mut ZonedFile) {
        if self.writes {
            file.count_data(self.zones.clone());
            file.writes_until_reset = self.writes_between_resets();
        }
    }

    fn writes_between_resets(&self) -> u32 {
        match self.frequency > 0.0 {
            true => (1.0 / self.frequency).min(f64::from(u32::MAX)) as u32,
            false => u32::MAX,
        }
    }

    /// Whether an I/O has been decided on that has no place yet.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Takes an I/O that is to have a place.
    pub(super) fn take(&mut self, io: Io) {
        self.pending = Some((io, Stage::Start));
    }

    /// Gives the I/O up that has no place yet. Returns whether others may have its zone now.
    pub fn give_up(&mut self, file: &mut ZonedFile) -> bool {
        match self.pending.take() {
            Some((_, Stage::Write(zone) | Stage::WasReset(zone))) => file.unhold(zone),
            _ => false,
        }
    }

    /// Returns the direction of the next I/O: a mix begins with a write if there is nothing to read
    /// (`zbd_adjust_ddir`).
    pub(super) fn direction(&self, drawn: Direction, file: &ZonedFile) -> Direction {
        let reads_nothing = file.data_bytes == 0 && !self.reads_beyond;
        match drawn {
            Direction::Read if self.writes && reads_nothing => Direction::Write,
            _ => drawn,
        }
    }

    /// Returns where sequential writes go on that came to `end`: behind a zone's capacity follows
    /// the next zone (`setup_zbd_zone_mode`).
    pub(super) fn skip_gap(&self, end: u64, file: &ZonedFile) -> u64 {
        let at = self.part.offset_bytes + end;
        let zone = file.zone_of(at);
        let in_gap = file.is_sequential(zone) && at >= file.capacity_end(zone);
        match !self.is_random && in_gap {
            true => file.start(zone + 1) - self.part.offset_bytes,
            false => end,
        }
    }

    /// Finds the place of the pending I/O (`zbd_adjust_block`); `is_idle` tells whether the process
    /// has nothing in flight.
    pub(super) fn place(&mut self, file: &mut ZonedFile, is_idle: bool) -> ZonedNext {
        let Some((io, stage)) = self.pending else {
            return ZonedNext::End;
        };
        let next = match io.direction {
            Direction::Write => self.place_write(io, stage, file, is_idle),
            _ => self.place_read(io, file, is_idle),
        };
        if matches!(next, ZonedNext::Io(..) | ZonedNext::End) {
            self.pending = None;
        }
        next
    }

    /// Another process holds a zone: this one waits, with nothing in flight.
    fn await_release(&self, is_idle: bool) -> ZonedNext {
        match is_idle {
            true => ZonedNext::Release,
            false => ZonedNext::Idle,
        }
    }

    fn place_read(&mut self, mut io: Io, file: &mut ZonedFile, is_idle: bool) -> ZonedNext {
        let drawn_in = file.zone_of(io.offset_bytes);
        if !file.is_sequential(drawn_in) || self.reads_beyond {
            return ZonedNext::Io(io, false);
        }
        let min = self.min_bytes.read;
        let has_data = |zone: usize| file.zones[zone].write_pointer >= file.start(zone) + min;
        let mut zone = drawn_in;
        let ends = io.offset_bytes + min > file.zones[zone].write_pointer;
        if !has_data(zone) || !self.is_random && ends {
            match self.nearest(zone, has_data) {
                Some(found) => zone = found,
                None => return ZonedNext::End,
            }
            if !self.is_random {
                io.offset_bytes = file.start(zone);
            }
        }
        if file.is_held_by_another(zone, self.process) {
            return self.await_release(is_idle);
        }
        let (start, end) = (file.start(zone), file.zones[zone].write_pointer);
        let length = u64::from(io.length_bytes);
        if end - start <= length {
            io.offset_bytes = start;
        } else if self.is_random {
            let within = (io.offset_bytes - file.start(drawn_in)) % (end - start - length);
            io.offset_bytes = start + within / min * min;
        }
        if !file.is_sequential(zone) {
            return ZonedNext::Io(io, false);
        }
        io.length_bytes = (length.min(end - io.offset_bytes) / min * min) as u32;
        file.hold(zone, self.process);
        ZonedNext::Io(io, true)
    }

    /// Returns the nearest zone with data: behind this one, for random I/O also before it
    /// (`zbd_find_zone`).
    fn nearest(&self, zone: usize, has_data: impl Fn(usize) -> bool) -> Option<usize> {
        for distance in 1..=self.zones.len().max(zone + 1) {
            let behind = Some(zone + distance).filter(|zone| *zone < self.zones.end);
            if behind.is_none() && !self.is_random {
                return None;
            }
            let before = zone.checked_sub(distance).filter(|_| self.is_random);
            let before = before.filter(|zone| *zone >= self.zones.start);
            let mut both = behind.into_iter().chain(before);
            if let Some(found) = both.find(|zone| has_data(*zone)) {
                return Some(found);
            }
        }
        None
    }

    fn place_write(
        &mut self,
        mut io: Io,
        stage: Stage,
        file: &mut ZonedFile,
        is_idle: bool,
    ) -> ZonedNext {
        let found = match stage {
            Stage::Start => {
                let zone = file.zone_of(io.offset_bytes);
                if !file.is_sequential(zone) {
                    self.keep_from_sequential(&mut io, zone, file);
                    return ZonedNext::Io(io, false);
                }
                if file.is_held_by_another(zone, self.process) {
                    return self.await_release(is_idle);
                }
                match file.open(self, zone) {
                    true => Ok(zone),
                    false => self.find_open(&io, file, is_idle),
                }
            }
            Stage::Search { zone, is_retry } => self.search(zone, is_retry, file, is_idle),
            Stage::Write(zone) => return self.write(io, zone, file, is_idle),
            Stage::WasReset(zone) => {
                file.reset(zone);
                return self.write(io, zone, file, is_idle);
            }
        };
        match found {
            Ok(zone) => {
                file.hold(zone, self.process);
                self.count_write(zone, file);
                self.pending = Some((io, Stage::Write(zone)));
                self.write(io, zone, file, is_idle)
            }
            Err(waits) => waits,
        }
    }

    /// A write to a conventional zone does not reach into one that is written in order.
    fn keep_from_sequential(&self, io: &mut Io, zone: usize, file: &ZonedFile) {
        let next = file.start(zone + 1);
        let end = io.offset_bytes + u64::from(io.length_bytes);
        if !file.is_sequential(zone + 1) || end <= next {
            return;
        }
        let min = self.min_bytes.write;
        if io.offset_bytes + min > next {
            io.offset_bytes = file.start(zone) + next - io.offset_bytes;
        }
        let length = u64::from(io.length_bytes).min(next - io.offset_bytes);
        io.length_bytes = (length / min * min) as u32;
    }

    /// Finds a zone for a write whose own cannot be opened (`zbd_convert_to_open_zone`).
    fn find_open(
        &mut self,
        io: &Io,
        file: &mut ZonedFile,
        is_idle: bool,
    ) -> Result<usize, ZonedNext> {
        let last = self.zones.end - 1;
        // The open zones share the part by its offsets.
        let within = u128::from(io.offset_bytes - self.part.offset_bytes);
        let length = u128::from(self.part.length_bytes);
        let place = (within * file.open.len() as u128 / length) as usize;
        let zone = match file.open.is_empty() {
            true => file.zone_of(io.offset_bytes).clamp(self.zones.start, last),
            false => {
                let places = (place..file.open.len()).chain(0..place);
                let mut own = places.map(|place| file.open[place]);
                let found = own.find(|zone| self.zones.contains(zone));
                found.ok_or(ZonedNext::End)?
            }
        };
        if file.is_held_by_another(zone, self.process) {
            return Err(self.await_release(is_idle));
        }
        if !file.open.is_empty() && file.has_room(zone, self.min_bytes.write) {
            return Ok(zone);
        }
        let is_at_limit = file.open.len() == self.zones.len()
            || file.open.len() == file.max_open as usize
            || self.max_open > 0 && self.open == self.max_open;
        let is_retry = false;
        if is_at_limit && !is_idle {
            // The end of what is in flight may close a zone.
            self.pending = Some((*io, Stage::Search { zone, is_retry }));
            return Err(ZonedNext::Idle);
        }
        self.search(zone, is_retry, file, is_idle)
    }

    /// Tries to open a zone behind this one, then looks for room in those that are open.
    fn search(
        &mut self,
        zone: usize,
        is_retry: bool,
        file: &mut ZonedFile,
        is_idle: bool,
    ) -> Result<usize, ZonedNext> {
        let count = (self.part.length_bytes / file.shape.zone_bytes) as usize;
        let mut at = zone;
        for _ in 0..count {
            at = match at + 1 < self.zones.end {
                true => at + 1,
                false => self.zones.start,
            };
            if !file.is_sequential(at) || file.zones[at].is_open {
                continue;
            }
            if file.is_held_by_another(at, self.process) {
                return Err(self.await_release(is_idle));
            }
            if file.open(self, at) {
                return Ok(at);
            }
        }
        let (own, min) = (self.zones.clone(), self.min_bytes.write);
        let mut open = file.open.iter().copied();
        let with_room = open.find(|zone| own.contains(zone) && file.has_room(*zone, min));
        match with_room {
            Some(zone) if file.is_held_by_another(zone, self.process) => {
                Err(self.await_release(is_idle))
            }
            Some(zone) => Ok(zone),
            // What is in flight may close a zone.
            None if file.is_held_by_others(self.process) => Err(self.await_release(is_idle)),
            None if is_retry => Err(ZonedNext::End),
            None => {
                if let Some((_, stage)) = &mut self.pending {
                    *stage = Stage::Search {
                        zone: at,
                        is_retry: true,
                    };
                }
                Err(ZonedNext::Idle)
            }
        }
    }

    /// Counts a write towards the next reset (`zone_reset_frequency`).
    fn count_write(&mut self, zone: usize, file: &mut ZonedFile) {
        let threshold = self.part.length_bytes as f64 * self.threshold;
        if self.frequency > 0.0 && file.written_bytes as f64 >= threshold {
            file.writes_until_reset = file.writes_until_reset.saturating_sub(1);
            if file.writes_until_reset == 0 {
                file.writes_until_reset = self.writes_between_resets();
                file.zones[zone].reset_is_due = true;
            }
        }
    }

    /// Writes to a zone at its write pointer, after a reset if it is due or the zone is full.
    fn write(&mut self, mut io: Io, zone: usize, file: &mut ZonedFile, is_idle: bool) -> ZonedNext {
        let min = self.min_bytes.write;
        let start = file.start(zone);
        if file.zones[zone].reset_is_due || !file.has_room(zone, min) {
            if !is_idle {
                return ZonedNext::Idle;
            }
            file.zones[zone].reset_is_due = false;
            if file.zones[zone].write_pointer > start {
                if file.is_zoned_drive {
                    self.pending = Some((io, Stage::WasReset(zone)));
                    return ZonedNext::Reset(start);
                }
                file.reset(zone);
            }
        }
        io.offset_bytes = file.zones[zone].write_pointer;
        let left = file.capacity_end(zone) - io.offset_bytes;
        let length = u64::from(io.length_bytes).min(left) / min * min;
        let end = self.part.offset_bytes + self.part.length_bytes;
        if length == 0 || !(self.part.offset_bytes..end).contains(&io.offset_bytes) {
            file.unhold(zone);
            return ZonedNext::End;
        }
        io.length_bytes = length as u32;
        file.zones[zone].write_pointer += length;
        file.written_bytes += length;
        file.data_bytes += length;
        ZonedNext::Io(io, true)
    }
}
