//! A job's rules for offsets, precomputed.

use crate::fio::{ByDirection, Direction, JobSpec, Pattern, Sequencer};
use crate::generate::layout::FileExtent;

/// A job's rules for offsets.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub pattern: Pattern,
    pub random_every: u32,
    pub random_percent: ByDirection<u32>,
    pub step: i64,
    pub sequencer: Sequencer,
    pub align: ByDirection<u64>,
    pub min: ByDirection<u64>,
    pub sizes_by_randomness: bool,
    /// The unit of maps and ranks, in bytes.
    pub unit: u64,
    pub time_based: bool,
    pub one_file: bool,
}

impl Rules {
    pub fn new(spec: &JobSpec, files: usize) -> Rules {
        Rules {
            pattern: spec.pattern,
            random_every: spec.random_every.max(1),
            random_percent: spec.random_percent,
            step: spec.sequential_step_bytes,
            sequencer: spec.sequencer,
            align: ByDirection::from_fn(|direction| spec.align_bytes[direction].max(1)),
            min: ByDirection::from_fn(|direction| spec.block_sizes[direction].min_bytes.max(1)),
            sizes_by_randomness: spec.sizes_by_randomness,
            unit: spec.smallest_block(),
            time_based: spec.time_based,
            one_file: files == 1,
        }
    }

    /// Whether all blocks have one size and lie at multiples of it.
    pub fn has_one_size(&self, spec: &JobSpec) -> bool {
        let one_size = |direction| {
            let sizes = &spec.block_sizes[direction];
            sizes.min_bytes == self.unit
                && sizes.max_bytes == self.unit
                && self.align[direction] == self.unit
        };
        let mut used = Direction::ALL
            .into_iter()
            .filter(|direction| self.pattern.does(*direction));
        !self.sizes_by_randomness && used.all(one_size)
    }

    /// Returns the number of random offsets of a file in a direction.
    pub fn blocks(&self, extent: &FileExtent, direction: Direction) -> u64 {
        let (align, min) = (self.align[direction], self.min[direction]);
        let bytes = extent.length_bytes.min(extent.file_bytes);
        match min > align {
            true => bytes.saturating_sub(min - align) / align,
            false => bytes / align,
        }
    }
}
