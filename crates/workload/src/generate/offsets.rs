//! Where the next I/O of a process goes: fio's `get_io_u`, for addresses.

use super::choose::Chooser;
use super::layout::{FileExtent, Layout, LayoutError, smallest_block};
use super::limits::Limits;
use super::map::{MAP_LIMIT, Map};
use super::mix::Mix;
use super::permutation::Permutation;
use super::random::Random;
use super::ranks::Ranks;
use super::seeds::{Seeds, Stream};
use super::sizes::Sizes;
use super::zones::ZoneTable;
use crate::fio::{
    ByDirection, Direction, Distribution, JobSpec, Pattern, RandomGenerator, Sequencer,
};

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

/// The job that is most often run: one file, blocks of one size, all of them
/// random. Its offsets need none of the rules below, and take half of the
/// time.
#[derive(Clone, Copy, Debug)]
struct Plain {
    block_bytes: u32,
    blocks: u64,
}

impl Plain {
    fn new(spec: &JobSpec, rules: &Rules, files: &[File]) -> Option<Plain> {
        let [file] = files else { return None };
        let block = rules.unit;
        let used = || {
            Direction::ALL
                .into_iter()
                .filter(|direction| spec.pattern.does(*direction))
        };
        let one_size = used().all(|direction| {
            let sizes = &spec.block_sizes[direction];
            sizes.min_bytes == block
                && sizes.max_bytes == block
                && rules.align[direction] == block
                && rules.random_percent[direction] == 100
        });
        let trims_then_writes = spec.pattern == Pattern::RandTrimWrite;
        let extent = &file.extent;
        let inside = extent
            .offset_bytes
            .checked_add(extent.length_bytes)
            .is_some_and(|end| end <= extent.file_bytes);
        let suits = spec.pattern.is_random()
            && !trims_then_writes
            && !rules.sizes_by_randomness
            && rules.random_every == 1
            && matches!(file.visits, Visits::Any | Visits::Each(_))
            && one_size
            && inside;
        Some(Plain {
            block_bytes: u32::try_from(block).ok()?,
            blocks: extent.length_bytes / block,
        })
        .filter(|plain| suits && plain.blocks > 0)
    }

    /// `None` where all blocks were visited.
    #[inline]
    fn place(self, file: &mut File, random: &mut Random, direction: Direction) -> Option<Io> {
        let block = match &mut file.visits {
            Visits::Each(permutation) => permutation.next()?,
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

/// What the job says, as far as offsets go.
#[derive(Clone, Debug)]
struct Rules {
    pattern: Pattern,
    random_every: u32,
    random_percent: ByDirection<u32>,
    step: i64,
    sequencer: Sequencer,
    align: ByDirection<u64>,
    min: ByDirection<u64>,
    sizes_by_randomness: bool,
    /// What maps and ranks count in.
    unit: u64,
    time_based: bool,
    one_file: bool,
}

/// The random numbers offsets are drawn from.
#[derive(Clone, Debug)]
struct Draws {
    block: Random,
    sequential: ByDirection<Random>,
    zone: Random,
    /// I/Os until the next random offset.
    until_random: u32,
}

#[derive(Clone, Debug)]
struct File {
    extent: FileExtent,
    /// How many random offsets it has.
    blocks: ByDirection<u64>,
    /// The end of the last I/O, relative to the extent.
    end: ByDirection<u64>,
    /// The start of the last I/O, likewise.
    start: ByDirection<Option<u64>>,
    /// The range trimmed last and not written yet.
    trimmed: Option<(u64, u64)>,
    visits: Visits,
    done: bool,
}

/// How random blocks of a file are chosen.
#[derive(Clone, Debug)]
enum Visits {
    /// Any, any time.
    Any,
    /// Each once, all of one size.
    Each(Permutation),
    /// Each once, of different sizes.
    Mapped(Map),
    /// Some more often than others.
    Ranked(Box<Ranks>),
    /// Parts with shares.
    Zoned(Box<ByDirection<ZoneTable>>),
}

/// An offset relative to the extent, how it came about, and for how many
/// bytes, where that is settled.
struct Place {
    relative: u64,
    is_random: bool,
    length: Option<u64>,
}

impl Place {
    fn random(relative: u64) -> Place {
        Place {
            relative,
            is_random: true,
            length: None,
        }
    }

    fn sequential(relative: u64) -> Place {
        Place {
            relative,
            is_random: false,
            length: None,
        }
    }
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
        // Orders are drawn when a pass begins; these are not used.
        let mut unused = seeds.stream(Stream::Block);
        let mut files = Vec::with_capacity(layout.files.len());
        for (index, extent) in (0..).zip(&layout.files) {
            let random = seeds.stream(Stream::Distribution(index));
            files.push(File {
                extent: *extent,
                blocks: ByDirection {
                    read: rules.blocks(extent, Direction::Read),
                    write: rules.blocks(extent, Direction::Write),
                    trim: rules.blocks(extent, Direction::Trim),
                },
                end: ByDirection::default(),
                start: ByDirection::default(),
                trimmed: None,
                visits: rules.visits(spec, extent, random, &mut unused)?,
                done: false,
            });
        }
        let sizes = |direction| {
            let random = seeds.stream(Stream::BlockSize(direction));
            Sizes::new(&spec.block_sizes[direction], random)
        };
        Ok(OffsetGenerator {
            chooser: Chooser::new(spec, files.len(), seeds),
            mix: Mix::new(spec.pattern, spec.read_percent, seeds.stream(Stream::Mix)),
            sizes: ByDirection {
                read: sizes(Direction::Read),
                write: sizes(Direction::Write),
                trim: sizes(Direction::Trim),
            },
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

impl Rules {
    fn new(spec: &JobSpec, files: usize) -> Rules {
        let min = |direction| spec.block_sizes[direction].min_bytes.max(1);
        Rules {
            pattern: spec.pattern,
            random_every: spec.random_every.max(1),
            random_percent: spec.random_percent,
            step: spec.sequential_step_bytes,
            sequencer: spec.sequencer,
            align: ByDirection {
                read: spec.align_bytes.read.max(1),
                write: spec.align_bytes.write.max(1),
                trim: spec.align_bytes.trim.max(1),
            },
            min: ByDirection {
                read: min(Direction::Read),
                write: min(Direction::Write),
                trim: min(Direction::Trim),
            },
            sizes_by_randomness: spec.sizes_by_randomness,
            unit: smallest_block(spec),
            time_based: spec.time_based,
            one_file: files == 1,
        }
    }

    /// How many random offsets a file has in a direction.
    fn blocks(&self, extent: &FileExtent, direction: Direction) -> u64 {
        let (align, min) = (self.align[direction], self.min[direction]);
        let bytes = extent.length_bytes.min(extent.file_bytes);
        match min > align {
            true => bytes.saturating_sub(min - align) / align,
            false => bytes / align,
        }
    }

    fn visits(
        &self,
        spec: &JobSpec,
        extent: &FileExtent,
        random: Random,
        block: &mut Random,
    ) -> Result<Visits, LayoutError> {
        if !self.pattern.is_random() {
            return Ok(Visits::Any);
        }
        let range = extent.length_bytes.min(extent.file_bytes) / self.unit;
        let ranked = |ranks: fn(u64, f64, Option<f64>, Random) -> Ranks, shape, center| {
            Visits::Ranked(Box::new(ranks(range.max(1), shape, center, random.clone())))
        };
        Ok(match &spec.distribution {
            Distribution::Zipf { theta, center } => ranked(Ranks::zipf, *theta, *center),
            Distribution::Pareto { h, center } => ranked(Ranks::pareto, *h, *center),
            Distribution::Normal {
                deviation_percent,
                center,
            } => ranked(Ranks::normal, *deviation_percent, *center),
            Distribution::Zoned(zones) => zoned(zones, false),
            Distribution::ZonedAbsolute(zones) => {
                check_zones(spec, zones, extent)?;
                zoned(zones, true)
            }
            Distribution::Random => self.each_once(spec, range, block)?,
        })
    }

    fn each_once(
        &self,
        spec: &JobSpec,
        blocks: u64,
        random: &mut Random,
    ) -> Result<Visits, LayoutError> {
        let one_size = Direction::ALL
            .into_iter()
            .filter(|direction| self.pattern.does(*direction))
            .all(|direction| {
                let sizes = &spec.block_sizes[direction];
                sizes.min_bytes == self.unit
                    && sizes.max_bytes == self.unit
                    && self.align[direction] == self.unit
            })
            && !self.sizes_by_randomness;
        let once = !spec.no_random_map || spec.generator == RandomGenerator::Lfsr;
        Ok(match (once, one_size) {
            (true, true) => Visits::Each(Permutation::new(blocks, random)),
            (false, _) => Visits::Any,
            (true, false) if spec.no_random_map => Visits::Any,
            (true, false) if blocks <= MAP_LIMIT => Visits::Mapped(Map::new(blocks)),
            (true, false) if spec.soft_random_map => Visits::Any,
            (true, false) => {
                return Err(LayoutError::Map {
                    job: spec.name.clone(),
                    blocks,
                });
            }
        })
    }
}

fn zoned(zones: &ByDirection<Vec<crate::fio::Zone>>, absolute: bool) -> Visits {
    let table = |direction| ZoneTable::new(&zones[direction], absolute);
    Visits::Zoned(Box::new(ByDirection {
        read: table(Direction::Read),
        write: table(Direction::Write),
        trim: table(Direction::Trim),
    }))
}

fn check_zones(
    spec: &JobSpec,
    zones: &ByDirection<Vec<crate::fio::Zone>>,
    extent: &FileExtent,
) -> Result<(), LayoutError> {
    for direction in Direction::ALL {
        let zone_bytes = zones[direction]
            .iter()
            .fold(0u64, |sum, zone| sum.saturating_add(zone.size));
        if spec.pattern.does(direction) && zone_bytes > extent.length_bytes {
            return Err(LayoutError::Zones {
                job: spec.name.clone(),
                zone_bytes,
                bytes: extent.length_bytes,
            });
        }
    }
    Ok(())
}

impl Draws {
    fn new(seeds: &Seeds) -> Draws {
        let sequential = |direction| seeds.stream(Stream::Sequential(direction));
        Draws {
            block: seeds.stream(Stream::Block),
            sequential: ByDirection {
                read: sequential(Direction::Read),
                write: sequential(Direction::Write),
                trim: sequential(Direction::Trim),
            },
            zone: seeds.stream(Stream::Zone),
            until_random: 1,
        }
    }

    #[inline]
    fn place(&mut self, rules: &Rules, file: &mut File, direction: Direction) -> Option<Place> {
        if let (Pattern::RandTrimWrite, Direction::Write, Some((start, length))) =
            (rules.pattern, direction, file.trimmed)
        {
            return Some(Place {
                relative: start,
                is_random: true,
                length: Some(length),
            });
        }
        if !rules.pattern.is_random() {
            return file.sequential(rules, direction).map(Place::sequential);
        }
        self.until_random -= 1;
        if self.until_random > 0 {
            return self.between_randoms(rules, file, direction);
        }
        self.until_random = rules.random_every;
        let percent = rules.random_percent[direction];
        let random = percent == 100 || self.sequential[direction].percent() <= percent;
        if !random && let Some(relative) = file.sequential(rules, direction) {
            return Some(Place::sequential(relative));
        }
        self.random(rules, file, direction).map(Place::random)
    }

    /// `rw=randread:8`: the seven after each random one.
    fn between_randoms(
        &mut self,
        rules: &Rules,
        file: &mut File,
        direction: Direction,
    ) -> Option<Place> {
        let relative = match rules.sequencer {
            Sequencer::Identical => Some(file.start[direction].unwrap_or(0)),
            Sequencer::Sequential => file.sequential(rules, direction),
        };
        let fits = |at: &u64| {
            file.extent.length_bytes - rules.min[direction].min(file.extent.length_bytes) >= *at
        };
        match relative.filter(fits) {
            Some(relative) => Some(Place::sequential(relative)),
            None => self.random(rules, file, direction).map(Place::random),
        }
    }

    #[inline]
    fn random(&mut self, rules: &Rules, file: &mut File, direction: Direction) -> Option<u64> {
        if let Some(relative) = self.random_once(rules, file, direction) {
            return Some(relative);
        }
        if !rules.time_based {
            return None;
        }
        file.restart(&mut self.block);
        self.random_once(rules, file, direction)
    }

    #[inline]
    fn random_once(&mut self, rules: &Rules, file: &mut File, direction: Direction) -> Option<u64> {
        let align = rules.align[direction];
        let blocks = file.blocks[direction];
        if blocks == 0 {
            return None;
        }
        match &mut file.visits {
            Visits::Any => Some(self.block.below(blocks) * align),
            Visits::Each(permutation) => permutation.next().map(|block| block * align),
            Visits::Mapped(map) => {
                let drawn = self.block.below(blocks) * align / rules.unit;
                let last = file.extent.length_bytes - rules.min[direction];
                loop {
                    let relative = map.next_free(drawn)? * rules.unit;
                    if relative <= last {
                        return Some(relative);
                    }
                    // Too near the end for this direction's blocks.
                    map.visit(relative / rules.unit, 1);
                }
            }
            Visits::Ranked(ranks) => {
                let block = ranks.next() * rules.unit / align;
                Some(block.min(blocks - 1) * align)
            }
            Visits::Zoned(tables) => {
                let percent = self.zone.percent();
                let (first, count) = tables[direction].part(percent, blocks, align);
                Some((first + self.block.below(count)) * align)
            }
        }
    }
}

impl Visits {
    /// Takes the blocks of a random I/O; returns how long it may be.
    #[inline]
    fn claim(&mut self, relative: u64, length: u64, unit: u64) -> u64 {
        match self {
            Visits::Mapped(map) => {
                let count = map.visit(relative / unit, length.div_ceil(unit));
                match count {
                    0 => length,
                    count => length.min(count * unit),
                }
            }
            _ => length,
        }
    }
}

impl File {
    /// Nothing is visited, and sequential I/O begins at the start.
    fn restart(&mut self, random: &mut Random) {
        self.end = ByDirection::default();
        self.start = ByDirection::default();
        self.trimmed = None;
        match &mut self.visits {
            Visits::Each(permutation) => permutation.restart(random),
            Visits::Mapped(map) => map.clear(),
            _ => {}
        }
    }

    #[inline]
    fn remember(&mut self, pattern: Pattern, direction: Direction, start: u64, length: u64) {
        self.start[direction] = Some(start);
        self.end[direction] = start + length;
        if matches!(pattern, Pattern::TrimWrite | Pattern::RandTrimWrite) {
            self.trimmed = match direction {
                Direction::Trim => Some((start, length)),
                _ => None,
            };
        }
    }

    /// Where the last I/O of this direction ended, plus the step.
    #[inline]
    fn sequential(&mut self, rules: &Rules, direction: Direction) -> Option<u64> {
        let extent = &self.extent;
        let mut at = self.end[direction];
        if at >= extent.length_bytes && rules.time_based && rules.one_file {
            at = 0;
        }
        if at >= extent.file_bytes.saturating_sub(extent.offset_bytes) {
            return None;
        }
        if at == 0 || rules.step == 0 {
            return Some(at);
        }
        let end = extent.length_bytes.min(extent.file_bytes);
        match at.checked_add_signed(rules.step) {
            Some(next) if next < extent.file_bytes => Some(next),
            // Backwards I/O goes round to the end, holes to the beginning.
            _ if rules.step < 0 => Some(end.saturating_add_signed(rules.step)),
            _ => Some(0),
        }
    }
}

#[cfg(test)]
mod tests;
