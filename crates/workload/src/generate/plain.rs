//! The short way for the job that is most often run.

use super::file::File;
use super::offsets::Io;
use super::random::Random;
use super::rules::Rules;
use super::visits::Visits;
use crate::fio::{ByDirection, Direction, JobSpec, Pattern};

/// The job that is most often run: one file, blocks of one size, all of them
/// random. Its offsets need none of the rules below, and take half of the
/// time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    block_bytes: u32,
    blocks: u64,
}

impl Plain {
    pub fn new(spec: &JobSpec, rules: &Rules, files: &[File]) -> Option<Plain> {
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
            && rules.random_percent == ByDirection::all(100)
            && rules.random_every == 1
            && matches!(file.visits, Visits::Any | Visits::Each(_))
            && inside;
        Some(Plain {
            block_bytes: u32::try_from(block).ok()?,
            blocks: extent.length_bytes / block,
        })
        .filter(|plain| suits && plain.blocks > 0)
    }

    /// `None` where all blocks were visited.
    #[inline]
    pub fn place(self, file: &mut File, random: &mut Random, direction: Direction) -> Option<Io> {
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
