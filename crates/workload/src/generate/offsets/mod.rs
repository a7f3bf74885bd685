//! Generates the I/Os of a process: fio's `get_io_u`, as far as addresses go.

mod block_sizes;
mod directions;
mod distribution;
mod file;
mod file_service;
mod limits;
mod open_files;
mod random_blocks;
mod rules;
mod strides;

use super::Io;
use super::layout::{Layout, LayoutError};
use super::random::{Random, Seeds, Stream};
use super::zones::{ZoneCursor, ZonedFile, ZonedNext};
use crate::fio::{ByDirection, Direction, JobSpec, Pattern, ZoneMode};
use block_sizes::SizeDraws;
use directions::DirectionMix;
use file::{File, OffsetDraws};
use file_service::{Choice, FileChooser};
use limits::Limits;
pub use open_files::OpenFiles;
use random_blocks::RandomBlocks;
use rules::Rules;
use strides::Strides;

/// What a process does before its next I/O, or flush, so that the file of it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStep {
    /// Nothing: the file is open.
    Ready,
    /// Opens this file.
    Open(u32),
    /// Closes this file, which is done.
    Close(u32),
    /// Reaps I/O, if there is any, and asks again: no more files may be open.
    Busy,
    /// The pass is over.
    Over,
}

/// Generates the I/Os of one process of a job.
///
/// ```text
/// while offsets.start_pass() {
///     loop {
///         match offsets.turn_to_file() {
///             Ready => if let Some(io) = offsets.next_in(offsets.next_direction()) { issue io }
///             Open(file), Close(file) => do so
///             Busy => reap an I/O
///             Over => break
///         }
///     }
///     wait until all are complete
/// }
/// ```
///
/// [`next`](OffsetGenerator::next) is all of that for a process that waits for each I/O and to which
/// open files do not matter.
///
/// A pass ends when `size` bytes were issued or all blocks visited; `loops`, `io_size` and
/// `time_based` determine whether another follows.
#[derive(Clone, Debug)]
pub struct OffsetGenerator {
    rules: Rules,
    files: Vec<File>,
    one_size: Option<OneSize>,
    chooser: FileChooser,
    open: OpenFiles,
    /// The file of the next I/O.
    chosen: Option<usize>,
    /// Files that were done without an I/O, one after the other.
    fruitless: usize,
    mix: DirectionMix,
    sizes: ByDirection<SizeDraws>,
    limits: Limits,
    draws: OffsetDraws,
    /// With `zonemode=strided`.
    strides: Option<Strides>,
    seeds: Seeds,
}

impl OffsetGenerator {
    /// Makes a generator for one process. Call [`start_pass`](OffsetGenerator::start_pass) first.
    pub fn new(
        spec: &JobSpec,
        layout: &Layout,
        seeds: &Seeds,
    ) -> Result<OffsetGenerator, LayoutError> {
        let rules = Rules::new(spec, layout.files.len());
        let files = (0..)
            .zip(&layout.files)
            .map(|(index, extent)| {
                let random = seeds.stream(Stream::Distribution(index));
                File::new(spec, &rules, extent, random)
            })
            .collect::<Result<Vec<File>, LayoutError>>()?;
        Ok(OffsetGenerator {
            chooser: FileChooser::new(spec, files.len(), seeds),
            open: OpenFiles::new(spec, files.len()),
            chosen: None,
            fruitless: 0,
            mix: DirectionMix::new(spec.pattern, spec.read_percent, seeds.stream(Stream::Mix)),
            sizes: ByDirection::from_fn(|direction| {
                let random = seeds.stream(Stream::BlockSize(direction));
                SizeDraws::new(&spec.block_sizes[direction], random)
            }),
            limits: Limits::new(spec, layout),
            one_size: OneSize::new(spec, &rules, &files),
            rules,
            files,
            draws: OffsetDraws::new(seeds),
            strides: Strides::new(spec, &layout.files),
            seeds: *seeds,
        })
    }

    /// Starts the next pass over the files; returns `false` when the process is done. Everything
    /// issued before must be complete. The pass begins by closing files that are still open.
    pub fn start_pass(&mut self) -> bool {
        let files_done = self.files.iter().all(|file| file.done);
        if !self.limits.start_pass(files_done) {
            return false;
        }
        self.mix.restart();
        if let Some(strides) = &mut self.strides {
            strides.start_pass(&mut self.files[0]);
        }
        if self.seeds.same_each_pass && !self.limits.is_first_pass() {
            self.repeat_draws();
        }
        for (number, file) in (0..).zip(&mut self.files) {
            file.done = false;
            self.open.done(number);
        }
        (self.chosen, self.fruitless) = (None, 0);
        true
    }

    /// The open files.
    pub fn open_files(&mut self) -> &mut OpenFiles {
        &mut self.open
    }

    /// The file of the next I/O or flush, which [`turn_to_file`](OffsetGenerator::turn_to_file) has
    /// turned to.
    #[inline]
    pub fn chosen_file(&self) -> Option<u32> {
        self.chosen.map(|file| file as u32)
    }

    /// A flush was issued for the chosen file, whose turn is then over.
    pub fn flushed(&mut self) {
        self.turn_is_over();
    }

    #[inline]
    fn turn_is_over(&mut self) {
        if self.files.len() > 1 {
            self.chosen = None;
        }
    }

    /// Turns to the file of the next I/O.
    #[inline]
    pub fn turn_to_file(&mut self) -> FileStep {
        if !self.limits.may_issue() {
            return FileStep::Over;
        }
        match self.chosen {
            Some(_) => FileStep::Ready,
            None => self.choose_file(),
        }
    }

    #[inline(never)]
    fn choose_file(&mut self) -> FileStep {
        /// Files that start over when they are done never run out; this limit ends the search if no
        /// block fits into any of them.
        const FRUITLESS_LIMIT: usize = 1000;
        if let Some(file) = self.open.close_done() {
            return FileStep::Close(file);
        }
        if self.chooser.restarts_files() && self.fruitless >= FRUITLESS_LIMIT {
            return FileStep::Over;
        }
        let files = &self.files;
        match self.chooser.next(&self.open, |file| files[file].done) {
            None => FileStep::Over,
            Some(Choice::Busy) => FileStep::Busy,
            Some(Choice::Open(file)) => {
                self.chosen = Some(file);
                FileStep::Ready
            }
            Some(Choice::Closed(file)) => {
                self.chosen = Some(file);
                self.open.open(file as u32);
                self.files[file].restart(&mut self.draws.block);
                FileStep::Open(file as u32)
            }
        }
    }

    /// The chosen file is done.
    #[cold]
    fn file_done(&mut self, index: usize) {
        self.chosen = None;
        self.fruitless += 1;
        self.open.done(index as u32);
        self.files[index].done = !self.chooser.restarts_files();
    }

    /// Restarts all streams from the beginning, except those of ranks, as in fio.
    fn repeat_draws(&mut self) {
        self.draws = OffsetDraws::new(&self.seeds);
        self.mix.reseed(self.seeds.stream(Stream::Mix));
        self.chooser.reseed(self.seeds.stream(Stream::File));
        for direction in Direction::ALL {
            let random = self.seeds.stream(Stream::BlockSize(direction));
            self.sizes[direction].reseed(random);
        }
    }

    /// Returns the next I/O of a process that waits for each, and opens and closes files as it
    /// comes to it; `None` at the end of the pass.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that ends does not begin another pass"
    )]
    pub fn next(&mut self) -> Option<Io> {
        loop {
            match self.turn_to_file() {
                FileStep::Open(_) | FileStep::Close(_) | FileStep::Busy => {}
                FileStep::Over => return None,
                FileStep::Ready => {
                    let direction = self.next_direction();
                    if let Some(io) = self.next_in(direction) {
                        self.open.reaped(io.file);
                        return Some(io);
                    }
                }
            }
        }
    }

    /// Returns the direction that the mix draws for the next I/O. A job with a rate passes it to
    /// [`Pacing`](super::Pacing) and then calls [`next_in`](OffsetGenerator::next_in).
    #[inline]
    pub fn next_direction(&mut self) -> Direction {
        self.mix.next()
    }

    /// Whether this pass has I/O left.
    #[inline]
    pub fn may_issue(&self) -> bool {
        self.limits.may_issue()
    }

    /// Counts a block that is read to verify it, `between` the job's own I/Os or after a pass.
    pub fn verified(&mut self, bytes: u64, between: bool) {
        self.limits.verified(bytes, between);
    }

    /// Returns the next I/O to the chosen file in `direction`; `None` if that file is done, or none
    /// is chosen. A pattern in which writes follow trims overrides the direction. The I/O counts as
    /// under way until [`OpenFiles::reaped`].
    #[inline]
    pub fn next_in(&mut self, direction: Direction) -> Option<Io> {
        let index = self.chosen?;
        if self.mix.is_mixed() {
            self.mix.override_with(direction);
        }
        let quick = self.one_size.and_then(|one_size| {
            one_size.place(&mut self.files[0], &mut self.draws.block, direction)
        });
        let io = match quick {
            Some(io) => io,
            None => self.place(index, direction)?,
        };
        self.issued(&io);
        Some(io)
    }

    #[inline(always)]
    fn issued(&mut self, io: &Io) {
        self.mix.issued(io.direction);
        self.limits.issued(io.direction, u64::from(io.length_bytes));
        self.open.issued(io.file);
        self.turn_is_over();
    }

    /// Where the next I/O of a pass that has begun will be, if the pass goes on, in a job of one file
    /// and random blocks of one size; `None` in others.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        self.one_size?.peek(&self.files[0], &self.draws.block)
    }

    /// With `zonemode=zbd`, gives the cursor the next I/O in `direction`, which has no place in the
    /// zones yet. Returns `false` if the file is done, or not chosen.
    pub fn draw_in_zones(
        &mut self,
        direction: Direction,
        (cursor, zones): (&mut ZoneCursor, &ZonedFile),
    ) -> bool {
        let Some(index) = self.chosen else {
            return false;
        };
        if self.mix.is_mixed() {
            self.mix.override_with(direction);
        }
        let direction = cursor.direction(direction, zones);
        let file = &mut self.files[0];
        if direction == Direction::Write {
            file.end.write = cursor.skip_gap(file.end.write, zones);
        }
        let drawn = self.place(index, direction);
        drawn.map(|io| cursor.take(io)).is_some()
    }

    /// Returns the I/O that the cursor was given, in its place; `is_idle` tells whether the process
    /// has nothing in flight.
    pub fn place_in_zones(
        &mut self,
        (cursor, zones): (&mut ZoneCursor, &mut ZonedFile),
        is_idle: bool,
    ) -> ZonedNext {
        let next = cursor.place(zones, is_idle);
        match &next {
            ZonedNext::Io(io, _) => {
                let file = &mut self.files[0];
                let relative = io.offset_bytes - file.extent.offset_bytes;
                let length = u64::from(io.length_bytes);
                file.remember(self.rules.pattern, io.direction, relative, length);
                self.issued(io);
            }
            ZonedNext::End => self.file_done(0),
            _ => {}
        }
        next
    }

    /// Returns the next I/O to one file, or ends the file.
    #[inline(never)]
    fn place(&mut self, index: usize, direction: Direction) -> Option<Io> {
        let io = self.place_in(index, direction);
        match io {
            Some(_) => self.fruitless = 0,
            None => self.file_done(index),
        }
        io
    }

    /// Returns the next I/O to one file; `None` once the file is done.
    #[inline]
    fn place_in(&mut self, index: usize, direction: Direction) -> Option<Io> {
        let file = &mut self.files[index];
        let rules = &self.rules;
        if let Some(strides) = &mut self.strides {
            strides.enter(file, direction, &mut self.draws.block);
        }
        let direction = match rules.pattern {
            Pattern::TrimWrite | Pattern::RandTrimWrite => match file.trimmed {
                None => Direction::Trim,
                Some(_) => Direction::Write,
            },
            _ => direction,
        };
        let place = self.draws.place(rules, file, direction)?;
        let extent = file.extent;
        if place.relative >= extent.length_bytes {
            return None;
        }
        let offset = extent.offset_bytes + place.relative;
        let room = extent.length_bytes - place.relative;
        let sizes = match (rules.sizes_by_randomness, place.is_random) {
            (false, _) => direction,
            (true, true) => Direction::Write,
            (true, false) => Direction::Read,
        };
        let sizes = &mut self.sizes[sizes];
        let mut length = match (place.length, sizes.fixed()) {
            (Some(length), _) => length,
            // As in fio, a last block may extend beyond `size`, but not beyond the file.
            (None, Some(length)) => length,
            (None, None) => sizes.next(room)?,
        };
        if length > extent.file_bytes.saturating_sub(offset) {
            return None;
        }
        if place.is_random && place.length.is_none() {
            length = file.random_blocks.claim(place.relative, length, rules.unit);
        }
        file.remember(rules.pattern, direction, place.relative, length);
        if let Some(strides) = &mut self.strides {
            strides.issued(length);
        }
        Some(Io {
            direction,
            file: index as u32,
            offset_bytes: offset,
            // Blocks of 4 GiB are refused when jobs are read.
            length_bytes: u32::try_from(length).ok()?,
        })
    }
}

/// A generator for the most frequent kind of job: one file and random blocks of one size. It skips
/// the general rules and takes half the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneSize {
    block_bytes: u32,
    blocks: u64,
}

impl OneSize {
    pub fn new(spec: &JobSpec, rules: &Rules, files: &[File]) -> Option<OneSize> {
        let [file] = files else { return None };
        let block = rules.unit;
        let trims_then_writes = spec.pattern == Pattern::RandTrimWrite;
        let extent = &file.extent;
        let inside = extent
            .offset_bytes
            .checked_add(extent.length_bytes)
            .is_some_and(|end| end <= extent.file_bytes);
        let suits = spec.pattern.is_random()
            && !trims_then_writes
            && rules.has_one_size(spec)
            && spec.zones.mode == ZoneMode::None
            && rules.random_percent == ByDirection::all(100)
            && rules.random_every == 1
            && matches!(
                file.random_blocks,
                RandomBlocks::Any | RandomBlocks::Each(_)
            )
            && inside;
        Some(OneSize {
            block_bytes: u32::try_from(block).ok()?,
            blocks: extent.length_bytes / block,
        })
        .filter(|one_size| suits && one_size.blocks > 0)
    }

    /// Returns the next I/O; `None` once all blocks are visited.
    #[inline]
    pub fn place(self, file: &mut File, random: &mut Random, direction: Direction) -> Option<Io> {
        let block = match &mut file.random_blocks {
            RandomBlocks::Each(permutation) => permutation.next()?,
            _ => random.below(self.blocks),
        };
        Some(Io {
            direction,
            file: 0,
            offset_bytes: self.offset_bytes(file, block),
            length_bytes: self.block_bytes,
        })
    }

    /// Returns the offset of the next I/O.
    #[inline]
    fn peek(self, file: &File, random: &Random) -> Option<u64> {
        let block = match &file.random_blocks {
            RandomBlocks::Each(permutation) => permutation.peek()?,
            _ => random.clone().below(self.blocks),
        };
        Some(self.offset_bytes(file, block))
    }

    #[inline]
    fn offset_bytes(self, file: &File, block: u64) -> u64 {
        file.extent.offset_bytes + block * u64::from(self.block_bytes)
    }
}
