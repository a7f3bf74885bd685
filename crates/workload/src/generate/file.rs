//! One file of a process: where the last I/O was, and what was visited.

use super::layout::{FileExtent, LayoutError};
use super::random::Random;
use super::rules::Rules;
use super::visits::Visits;
use crate::fio::{ByDirection, Direction, JobSpec, Pattern};

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub extent: FileExtent,
    /// How many random offsets it has.
    pub blocks: ByDirection<u64>,
    /// The end of the last I/O, relative to the extent.
    pub end: ByDirection<u64>,
    /// The start of the last I/O, likewise.
    pub start: ByDirection<Option<u64>>,
    /// The range trimmed last and not written yet.
    pub trimmed: Option<(u64, u64)>,
    pub visits: Visits,
    pub done: bool,
}

impl File {
    pub fn new(
        spec: &JobSpec,
        rules: &Rules,
        extent: &FileExtent,
        random: Random,
    ) -> Result<File, LayoutError> {
        Ok(File {
            extent: *extent,
            blocks: ByDirection::from_fn(|direction| rules.blocks(extent, direction)),
            end: ByDirection::default(),
            start: ByDirection::default(),
            trimmed: None,
            visits: Visits::new(spec, rules, extent, random)?,
            done: false,
        })
    }

    /// Nothing is visited, and sequential I/O begins at the start.
    pub fn restart(&mut self, random: &mut Random) {
        self.end = ByDirection::default();
        self.start = ByDirection::default();
        self.trimmed = None;
        self.visits.restart(random);
    }

    #[inline]
    pub fn remember(&mut self, pattern: Pattern, direction: Direction, start: u64, length: u64) {
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
    pub fn sequential(&mut self, rules: &Rules, direction: Direction) -> Option<u64> {
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
