//! Generates the I/Os of a process: fio's `get_io_u`, as far as addresses go.

mod block_sizes;
mod directions;
mod distribution;
mod file;
mod file_service;
mod limits;
mod random_blocks;
mod rules;
mod strides;

use super::layout::{Layout, LayoutError};
use super::random::{Random, Seeds, Stream};
use super::zones::{ZoneCursor, ZonedFile, ZonedNext};
use crate::fio::{ByDirection, Direction, JobSpec, Pattern, ZoneMode};
use block_sizes::SizeDraws;
use directions::DirectionMix;
use file::{File, OffsetDraws};
use file_service::FileChooser;
use limits::Limits;
use random_blocks::RandomBlocks;
use rules::Rules;
use strides::Strides;

/// One I/O of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The direction.
    pub direction: Direction,
    /// The index of the file among the process's files.
    pub file: u32,
    /// The offset in the file, in bytes.
    pub offset_bytes: u64,
    /// The length, in bytes.
    pub length_bytes: u32,
}

/// Generates the I/Os of one process of a job.
///
/// ```text
/// while offsets.start_pass() {
///     while let Some(io) = offsets.next() { issue io }
///     wait until all are complete
/// }
/// ```
///
/// A pass ends when `size` bytes were issued or all blocks visited; `loops`, `io_size` and
/// `time_based` determine whether another follows.
#[derive(Clone, Debug)]
pub struct OffsetGenerator {
    rules: Rules,
    files: Vec<File>,
    one_size: Option<OneSize>,
    chooser: FileChooser,
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
    /// issued before must be complete.
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
        for file in &mut self.files {
            file.done = false;
            file.restart(&mut self.draws.block);
        }
        true
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

    /// Returns the next I/O; `None` at the end of the pass.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that ends does not begin another pass"
    )]
    pub fn next(&mut self) -> Option<Io> {
        let direction = self.next_direction();
        self.next_in(direction)
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

    /// Returns the next I/O in `direction`; `None` at the end of the pass. A pattern in which
    /// writes follow trims overrides the direction.
    #[inline]
    pub fn next_in(&mut self, direction: Direction) -> Option<Io> {
        if !self.limits.may_issue() {
            return None;
        }
        if self.mix.is_mixed() {
            self.mix.override_with(direction);
        }
        let io = match self.one_size {
            Some(one_size) if !self.files[0].done => {
                match one_size.place(&mut self.files[0], &mut self.draws.block, direction) {
                    Some(io) => io,
                    None => self.place(direction)?,
                }
            }
            _ => self.place(direction)?,
        };
        self.issued(&io);
        Some(io)
    }

    #[inline(always)]
    fn issued(&mut self, io: &Io) {
        self.mix.issued(io.direction);
        self.limits.issued(io.direction, u64::from(io.length_bytes));
    }

    /// With `zonemode=zbd`, gives the cursor the next I/O in `direction`, which has no place in the
    /// zones yet. Returns `false` at the end of the pass.
    pub fn draw_in_zones(
        &mut self,
        direction: Direction,
        (cursor, zones): (&mut ZoneCursor, &ZonedFile),
    ) -> bool {
        if !self.limits.may_issue() {
            return false;
        }
        if self.mix.is_mixed() {
            self.mix.override_with(direction);
        }
        let direction = cursor.direction(direction, zones);
        let file = &mut self.files[0];
        if direction == Direction::Write {
            file.end.write = cursor.skip_gap(file.end.write, zones);
        }
        let drawn = self.place(direction);
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
        if let ZonedNext::Io(io, _) = &next {
            let file = &mut self.files[0];
            let relative = io.offset_bytes - file.extent.offset_bytes;
            let length = u64::from(io.length_bytes);
            file.remember(self.rules.pattern, io.direction, relative, length);
            self.issued(io);
        }
        next
    }

    #[inline(never)]
    fn place(&mut self, direction: Direction) -> Option<Io> {
        /// Files that start over when they are done never run out; this limit ends the search if no
        /// block fits into any of them.
        const FRUITLESS_LIMIT: usize = 1000;
        for _ in 0..FRUITLESS_LIMIT {
            let files = &self.files;
            let index = self.chooser.next(|file| files[file].done)?;
            if let Some(io) = self.place_in(index, direction) {
                return Some(io);
            }
            let file = &mut self.files[index];
            match self.chooser.restarts_files() {
                true => file.restart(&mut self.draws.block),
                false => file.done = true,
            }
        }
        None
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
            offset_bytes: file.extent.offset_bytes + block * u64::from(self.block_bytes),
            length_bytes: self.block_bytes,
        })
    }
}
