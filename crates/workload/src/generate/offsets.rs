//! What a process does, I/O by I/O: fio's `get_io_u`, for addresses.

use super::choose::Chooser;
use super::draws::Draws;
use super::file::File;
use super::layout::{Layout, LayoutError};
use super::limits::Limits;
use super::mix::Mix;
use super::plain::Plain;
use super::rules::Rules;
use super::seeds::{Seeds, Stream};
use super::sizes::Sizes;
use crate::fio::{ByDirection, Direction, JobSpec, Pattern};

/// One I/O of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Which way.
    pub direction: Direction,
    /// Which of the process's files.
    pub file: u32,
    /// Where in the file, in bytes.
    pub offset_bytes: u64,
    /// How much, in bytes.
    pub length_bytes: u32,
}

/// Says what one process of a job does, I/O by I/O.
///
/// ```text
/// while offsets.start_pass() {
///     while let Some(io) = offsets.next() { issue io }
///     wait until all are complete
/// }
/// ```
///
/// A pass ends when `size` bytes were issued or all blocks visited; whether
/// another follows is a matter of `loops`, `io_size` and `time_based`.
#[derive(Clone, Debug)]
pub struct OffsetGenerator {
    rules: Rules,
    files: Vec<File>,
    plain: Option<Plain>,
    chooser: Chooser,
    mix: Mix,
    sizes: ByDirection<Sizes>,
    limits: Limits,
    draws: Draws,
    seeds: Seeds,
}

impl OffsetGenerator {
    /// A generator for one process. Begin with
    /// [`start_pass`](OffsetGenerator::start_pass).
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
            chooser: Chooser::new(spec, files.len(), seeds),
            mix: Mix::new(spec.pattern, spec.read_percent, seeds.stream(Stream::Mix)),
            sizes: ByDirection::from_fn(|direction| {
                let random = seeds.stream(Stream::BlockSize(direction));
                Sizes::new(&spec.block_sizes[direction], random)
            }),
            limits: Limits::new(spec, layout),
            plain: Plain::new(spec, &rules, &files),
            rules,
            files,
            draws: Draws::new(seeds),
            seeds: *seeds,
        })
    }

    /// Begins the next pass over the files; false when the process is done.
    /// To be called when everything issued before is complete.
    pub fn start_pass(&mut self) -> bool {
        let files_done = self.files.iter().all(|file| file.done);
        if !self.limits.start_pass(files_done) {
            return false;
        }
        self.mix.restart();
        if self.seeds.same_each_pass && !self.limits.is_first_pass() {
            self.repeat_draws();
        }
        for file in &mut self.files {
            file.done = false;
            file.restart(&mut self.draws.block);
        }
        true
    }

    /// Draws from the beginning of all streams again, but for those of ranks,
    /// which fio lets run on.
    fn repeat_draws(&mut self) {
        self.draws = Draws::new(&self.seeds);
        self.mix.reseed(self.seeds.stream(Stream::Mix));
        self.chooser.reseed(self.seeds.stream(Stream::File));
        for direction in Direction::ALL {
            let random = self.seeds.stream(Stream::BlockSize(direction));
            self.sizes[direction].reseed(random);
        }
    }

    /// The next I/O; `None` at the end of the pass.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that ends does not begin another pass"
    )]
    pub fn next(&mut self) -> Option<Io> {
        let direction = self.next_direction();
        self.next_in(direction)
    }

    /// The direction the mix draws for the next I/O. A job that has a rate
    /// asks [`Pacing`](super::Pacing) about it and then calls
    /// [`next_in`](OffsetGenerator::next_in).
    #[inline]
    pub fn next_direction(&mut self) -> Direction {
        self.mix.next()
    }

    /// Whether this pass has not done all that it is to do.
    #[inline]
    pub fn may_issue(&self) -> bool {
        self.limits.may_issue()
    }

    /// The next I/O, in this direction; `None` at the end of the pass. Where
    /// trims are followed by writes the generator knows better.
    #[inline]
    pub fn next_in(&mut self, direction: Direction) -> Option<Io> {
        if !self.limits.may_issue() {
            return None;
        }
        if self.mix.is_mixed() {
            self.mix.override_with(direction);
        }
        let io = match self.plain {
            Some(plain) if !self.files[0].done => {
                match plain.place(&mut self.files[0], &mut self.draws.block, direction) {
                    Some(io) => io,
                    None => self.place(direction)?,
                }
            }
            _ => self.place(direction)?,
        };
        self.mix.issued(io.direction);
        self.limits.issued(io.direction, u64::from(io.length_bytes));
        Some(io)
    }

    #[inline(never)]
    fn place(&mut self, direction: Direction) -> Option<Io> {
        /// Files that start over when they are done never run out; one on
        /// which nothing fits must not keep the process busy for ever.
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

    /// The next I/O to one file; `None` once the file is done.
    #[inline]
    fn place_in(&mut self, index: usize, direction: Direction) -> Option<Io> {
        let file = &mut self.files[index];
        let rules = &self.rules;
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
            // As in fio, a last block may reach beyond `size`, but not
            // beyond the file.
            (None, Some(length)) => length,
            (None, None) => sizes.next(room)?,
        };
        if length > extent.file_bytes.saturating_sub(offset) {
            return None;
        }
        if place.is_random && place.length.is_none() {
            length = file.visits.claim(place.relative, length, rules.unit);
        }
        file.remember(rules.pattern, direction, place.relative, length);
        Some(Io {
            direction,
            file: index as u32,
            offset_bytes: offset,
            // The reader of jobs refuses blocks of 4 GiB.
            length_bytes: u32::try_from(length).ok()?,
        })
    }
}
