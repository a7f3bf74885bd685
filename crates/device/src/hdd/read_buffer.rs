//! The part of the buffer that holds what was read.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::buffer::SectorRun;
use super::spec::CacheSpec;

/// What was read, replaced least recently used first.
#[derive(Clone, Debug)]
pub(super) enum ReadBuffer {
    /// A disk's.
    Segments(Segments),
    /// A controller's.
    Lines(ReadLines),
}

impl ReadBuffer {
    /// Nothing, in a buffer as described.
    pub(super) fn new(spec: &CacheSpec) -> ReadBuffer {
        match spec.line_sectors {
            Some(each) => ReadBuffer::Lines(ReadLines::new(spec.sectors / each, each)),
            None => ReadBuffer::Segments(Segments::new(spec.segments, spec.sectors / 2)),
        }
    }

    /// Sectors of a run that are held at most.
    pub(super) fn longest_run(&self) -> u64 {
        match self {
            ReadBuffer::Segments(segments) => segments.sectors_each,
            ReadBuffer::Lines(lines) => lines.most * lines.sectors_each,
        }
    }

    /// Uses a run. Returns whether all of it was held.
    pub(super) fn hit(&mut self, run: SectorRun) -> bool {
        match self {
            ReadBuffer::Segments(segments) => segments.hit(run),
            ReadBuffer::Lines(lines) => lines.hit(run),
        }
    }

    /// Whether all of a run is held, without counting as a use of it.
    pub(super) fn holds(&self, run: SectorRun) -> bool {
        match self {
            ReadBuffer::Segments(segments) => segments.holds(run),
            ReadBuffer::Lines(lines) => lines.held_until(run.start, run.end) >= run.end,
        }
    }

    /// Up to where a run's sectors from the first one on are held; the first sector where it
    /// is not.
    pub(super) fn held_until(&self, run: SectorRun) -> u64 {
        match self {
            ReadBuffer::Segments(segments) => segments.held_until(run.start),
            ReadBuffer::Lines(lines) => lines.held_until(run.start, run.end),
        }
    }

    /// Whether the sector before this one was read, so that a read from here continues a
    /// sequential reader.
    pub(super) fn ends_before(&self, sector: u64) -> bool {
        match self {
            ReadBuffer::Segments(segments) => segments.ends_before(sector),
            ReadBuffer::Lines(lines) => {
                sector > 0 && lines.held_until(sector - 1, sector) == sector
            }
        }
    }

    /// Keeps what was read.
    pub(super) fn keep(&mut self, run: SectorRun) {
        match self {
            ReadBuffer::Segments(segments) => segments.keep(run),
            ReadBuffer::Lines(lines) => lines.keep(run),
        }
    }

    /// Forgets what a write to a run makes stale.
    pub(super) fn forget(&mut self, run: SectorRun) {
        match self {
            ReadBuffer::Segments(segments) => segments.forget(run),
            ReadBuffer::Lines(lines) => lines.forget(run),
        }
    }
}

/// Runs of sectors that were read, in segments that are replaced least recently used
/// first.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    runs: Vec<(SectorRun, u64)>,
    most: usize,
    sectors_each: u64,
    uses: u64,
}

impl Segments {
    fn new(most: u32, sectors: u64) -> Segments {
        Segments {
            runs: Vec::with_capacity(most as usize),
            most: most as usize,
            sectors_each: (sectors / most as u64).max(1),
            uses: 0,
        }
    }

    /// Whether all of a run is in one segment.
    fn hit(&mut self, run: SectorRun) -> bool {
        self.uses += 1;
        let uses = self.uses;
        let found = self
            .runs
            .iter_mut()
            .find(|(held, _)| held.start <= run.start && run.end <= held.end);
        match found {
            Some(entry) => {
                entry.1 = uses;
                true
            }
            None => false,
        }
    }

    /// Whether all of a run is in one segment, without counting as a use of it.
    fn holds(&self, run: SectorRun) -> bool {
        let mut held = self.runs.iter().map(|(held, _)| held);
        held.any(|held| held.start <= run.start && run.end <= held.end)
    }

    fn held_until(&self, sector: u64) -> u64 {
        let held = self.runs.iter().map(|(held, _)| held);
        let held = held.filter(|held| held.start <= sector);
        held.map(|held| held.end).fold(sector, u64::max)
    }

    /// Whether a segment ends with the sector before this one, or holds both, so that a
    /// read from here continues a sequential reader.
    fn ends_before(&self, sector: u64) -> bool {
        let mut held = self.runs.iter().map(|(held, _)| held);
        held.any(|held| held.start < sector && sector <= held.end)
    }

    /// Keeps what was read, at the end of a segment that it continues.
    fn keep(&mut self, run: SectorRun) {
        self.uses += 1;
        let uses = self.uses;
        let continued = self
            .runs
            .iter_mut()
            .find(|(held, _)| held.start <= run.start && run.start <= held.end);
        let entry = match continued {
            Some(entry) => entry,
            None => {
                if self.runs.len() == self.most {
                    let oldest = (0..self.runs.len()).min_by_key(|at| self.runs[*at].1);
                    self.runs.swap_remove(oldest.unwrap_or(0));
                }
                self.runs.push((run, uses));
                let last = self.runs.len() - 1;
                &mut self.runs[last]
            }
        };
        entry.1 = uses;
        entry.0.end = entry.0.end.max(run.end);
        let room = self.sectors_each;
        entry.0.start = entry.0.start.max(entry.0.end.saturating_sub(room));
    }

    /// Forgets segments that overlap a run that is overwritten.
    fn forget(&mut self, run: SectorRun) {
        self.runs
            .retain(|(held, _)| !run.overlaps(held.start, held.end));
    }
}

/// Lines of a cache, each with one run of sectors that were read.
#[derive(Clone, Debug)]
pub(super) struct ReadLines {
    sectors_each: u64,
    /// How many there are at most.
    most: u64,
    /// By the number of the line, its run and its last use.
    lines: BTreeMap<u64, (SectorRun, u64)>,
    /// The last use of each line, and its number.
    by_use: BTreeSet<(u64, u64)>,
    uses: u64,
}

impl ReadLines {
    fn new(most: u64, sectors_each: u64) -> ReadLines {
        ReadLines {
            sectors_each,
            most: most.max(1),
            lines: BTreeMap::new(),
            by_use: BTreeSet::new(),
            uses: 0,
        }
    }

    fn use_line(&mut self, line: u64, run: SectorRun) {
        self.uses += 1;
        if let Some((_, used)) = self.lines.insert(line, (run, self.uses)) {
            self.by_use.remove(&(used, line));
        }
        self.by_use.insert((self.uses, line));
    }

    fn hit(&mut self, run: SectorRun) -> bool {
        if self.held_until(run.start, run.end) < run.end {
            return false;
        }
        for (line, _) in run.in_lines(self.sectors_each) {
            if let Some(&(held, _)) = self.lines.get(&line) {
                self.use_line(line, held);
            }
        }
        true
    }

    fn held_until(&self, sector: u64, end: u64) -> u64 {
        let mut at = sector;
        while at < end
            && let Some((held, _)) = self.lines.get(&(at / self.sectors_each))
            && held.start <= at
            && at < held.end
        {
            at = held.end;
        }
        at.min(end.max(sector))
    }

    /// A line has one run: a part that does not touch what it held takes its place.
    fn keep(&mut self, run: SectorRun) {
        for (line, part) in run.in_lines(self.sectors_each) {
            let held = self.lines.get(&line).map(|(held, _)| *held);
            let touching = held.filter(|held| held.start <= part.end && part.start <= held.end);
            let joined = touching.map_or(part, |held| SectorRun {
                start: held.start.min(part.start),
                end: held.end.max(part.end),
            });
            self.use_line(line, joined);
            if self.lines.len() as u64 > self.most
                && let Some((_, oldest)) = self.by_use.pop_first()
            {
                self.lines.remove(&oldest);
            }
        }
    }

    fn forget(&mut self, run: SectorRun) {
        for (line, _) in run.in_lines(self.sectors_each) {
            if let Some((_, used)) = self.lines.remove(&line) {
                self.by_use.remove(&(used, line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn segments_share_the_buffer_evenly() {
        let each = |most, sectors| Segments::new(most, sectors).sectors_each;
        assert_eq!((each(4, 1000), each(3, 1000), each(16, 8)), (250, 333, 1));
    }

    proptest! {
        /// Of runs apart from one another, those used last are held.
        #[test]
        fn segments_hold_what_was_used_last(
            steps in prop::collection::vec((0u64..6, any::<bool>()), 0..100),
            most in 1u32..5,
        ) {
            let mut segments = Segments::new(most, 100 * most as u64);
            let mut plain: Vec<u64> = Vec::new();
            for (place, is_read) in steps {
                let run = SectorRun { start: place * 1000, end: place * 1000 + 10 };
                let held = plain.iter().position(|of| *of == place);
                prop_assert_eq!(segments.holds(run), held.is_some());
                if is_read {
                    prop_assert_eq!(segments.hit(run), held.is_some());
                } else {
                    segments.keep(run);
                    if held.is_none() && plain.len() == most as usize {
                        plain.remove(0);
                    }
                }
                match held {
                    Some(at) => plain[at..].rotate_left(1),
                    None if !is_read => plain.push(place),
                    None => {}
                }
            }
        }
    }

    proptest! {
        /// What lines hold was kept and not forgotten since.
        #[test]
        fn lines_hold_what_was_kept(
            steps in prop::collection::vec((0u64..200, 1u64..40, 0u8..3), 0..100),
        ) {
            let mut lines = ReadLines::new(8, 16);
            let mut kept: BTreeSet<u64> = BTreeSet::new();
            for (start, length, step) in steps {
                let run = SectorRun { start, end: start + length };
                match step {
                    0 => {
                        lines.keep(run);
                        kept.extend(run.start..run.end);
                        prop_assert!(lines.held_until(run.end - 1, run.end) == run.end);
                    }
                    1 => {
                        lines.forget(run);
                        kept.retain(|sector| !(run.start..run.end).contains(sector));
                        prop_assert_eq!(lines.held_until(run.start, run.end), run.start);
                    }
                    _ => {
                        let held = run.start..lines.held_until(run.start, run.end).min(run.end);
                        prop_assert!(held.clone().all(|sector| kept.contains(&sector)));
                        prop_assert_eq!(lines.hit(run), held.end == run.end);
                    }
                }
                prop_assert!(lines.lines.len() <= 8);
                prop_assert_eq!(lines.lines.len(), lines.by_use.len());
            }
        }
    }

    #[test]
    fn a_file_that_was_read_in_order_stays_in_lines() {
        let mut lines = ReadLines::new(4, 16);
        for start in (0..96).step_by(8) {
            lines.keep(SectorRun {
                start,
                end: start + 8,
            });
        }
        // The last four lines of six.
        assert_eq!((lines.held_until(0, 96), lines.held_until(32, 96)), (0, 96));
        assert!(lines.hit(SectorRun { start: 32, end: 40 }));
        lines.keep(SectorRun {
            start: 200,
            end: 201,
        });
        assert_eq!(
            (lines.held_until(32, 96), lines.held_until(48, 96)),
            (48, 48)
        );
    }
}
