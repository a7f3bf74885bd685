//! The part of the buffer that waits to be written.

use alloc::collections::{BTreeMap, BTreeSet};

use super::spec::HddSpec;

/// A run of sectors, from the first to before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectorRun {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl SectorRun {
    /// Whether it has sectors from `start` to before `end`.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }

    /// The numbers of the lines of so many sectors that it is in, and its part in each.
    pub(super) fn in_lines(self, sectors_each: u64) -> impl Iterator<Item = (u64, SectorRun)> {
        let lines = self.start / sectors_each..self.end.div_ceil(sectors_each);
        lines.map(move |line| {
            let start = self.start.max(line * sectors_each);
            let end = self.end.min((line + 1) * sectors_each);
            (line, SectorRun { start, end })
        })
    }
}

/// Dirty sectors, which are not on the platters yet, as runs that neither touch nor
/// overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    /// By the first sector.
    runs: BTreeMap<u64, DirtyRun>,
    /// When each run's wait began and its first sector.
    waits: BTreeSet<(u64, u64)>,
    sectors: u64,
    lines: Option<Lines>,
}

#[derive(Clone, Copy, Debug)]
struct DirtyRun {
    end: u64,
    /// Since when it waits to be destaged.
    since_ns: u64,
}

/// The lines of a controller's cache that have dirty sectors, each of which takes up a
/// whole line.
#[derive(Clone, Debug)]
struct Lines {
    sectors_each: u64,
    /// Dirty sectors by the number of the line.
    dirty: BTreeMap<u64, u64>,
}

impl Lines {
    /// The line of a sector.
    fn of(&self, sector: u64) -> u64 {
        sector / self.sectors_each
    }

    fn add(&mut self, run: SectorRun) {
        for (line, part) in run.in_lines(self.sectors_each) {
            *self.dirty.entry(line).or_default() += part.end - part.start;
        }
    }

    fn remove(&mut self, run: SectorRun) {
        for (line, part) in run.in_lines(self.sectors_each) {
            let left = self.dirty.remove(&line).unwrap_or(0) - (part.end - part.start);
            if left > 0 {
                self.dirty.insert(line, left);
            }
        }
    }
}

impl Dirty {
    /// No dirty sectors, in a buffer with lines of this many sectors or without.
    pub(crate) fn new(line_sectors: Option<u64>) -> Dirty {
        let lines = line_sectors.map(|sectors_each| Lines {
            sectors_each,
            dirty: BTreeMap::new(),
        });
        Dirty {
            lines,
            ..Dirty::default()
        }
    }

    /// Dirty sectors.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Sectors of the buffer that they take up.
    pub(crate) fn room(&self) -> u64 {
        match &self.lines {
            Some(lines) => lines.dirty.len() as u64 * lines.sectors_each,
            None => self.sectors,
        }
    }

    /// Sectors of the buffer that another run would take up.
    pub(crate) fn room_of(&self, run: SectorRun) -> u64 {
        match &self.lines {
            Some(lines) => {
                let parts = run.in_lines(lines.sectors_each);
                let new = parts.filter(|(line, _)| !lines.dirty.contains_key(line));
                new.count() as u64 * lines.sectors_each
            }
            None => run.end - run.start,
        }
    }

    /// The end of the line that a sector is in; the end of the disk without lines.
    pub(crate) fn line_end(&self, sector: u64) -> u64 {
        let lines = self.lines.as_ref();
        lines.map_or(u64::MAX, |lines| {
            (lines.of(sector) + 1) * lines.sectors_each
        })
    }

    /// How many of them there are.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many commands destage a run, of at most `most` sectors and of one line each.
    pub(crate) fn destages_of(&self, run: SectorRun, most: u64) -> u64 {
        match &self.lines {
            Some(lines) => lines.of(run.end - 1) - lines.of(run.start) + 1,
            None => (run.end - run.start).div_ceil(most),
        }
    }

    /// The runs next to a sector, at most `most` on either side.
    pub(crate) fn runs_near(
        &self,
        sector: u64,
        most: usize,
    ) -> impl Iterator<Item = SectorRun> + '_ {
        let before = self.runs.range(..sector).rev().take(most);
        let after = self.runs.range(sector..).take(most);
        before.chain(after).map(sector_run)
    }

    /// The runs from a sector on, then those from the first one on, at most `most`.
    pub(crate) fn runs_from(
        &self,
        sector: u64,
        most: usize,
    ) -> impl Iterator<Item = SectorRun> + '_ {
        let in_order = self.runs.range(sector..).chain(self.runs.range(..sector));
        in_order.take(most).map(sector_run)
    }

    /// Where the first run from a sector on starts; 0 if there is none.
    pub(crate) fn first_from(&self, sector: u64) -> u64 {
        let first = self.runs.range(sector..).next();
        first.map_or(0, |(&start, _)| start)
    }

    /// The run that has waited longest, and since when.
    pub(crate) fn oldest(&self) -> Option<(u64, SectorRun)> {
        let &(since_ns, start) = self.waits.first()?;
        let end = self.runs.get(&start)?.end;
        Some((since_ns, SectorRun { start, end }))
    }

    /// The last run that starts before a sector.
    fn last_before(&self, sector: u64) -> Option<(SectorRun, u64)> {
        let found = self.runs.range(..sector).next_back()?;
        Some((sector_run(found), found.1.since_ns))
    }

    /// Adds a run and joins it with those that it touches, as old as the oldest of them.
    pub(crate) fn add(&mut self, now_ns: u64, run: SectorRun) {
        // What is dirty already counts once; what is left of it waits on.
        let overwritten_ns = self.remove(run);
        if let Some(lines) = &mut self.lines {
            lines.add(run);
        }
        let (mut joined, mut since_ns) = (run, now_ns.min(overwritten_ns));
        while let Some((touching, touching_ns)) = self.last_before(run.end + 1)
            && touching.end >= run.start
        {
            self.take(touching, touching_ns);
            joined.start = joined.start.min(touching.start);
            joined.end = joined.end.max(touching.end);
            since_ns = since_ns.min(touching_ns);
        }
        self.insert(joined, since_ns);
    }

    /// Removes a run that the heads write now. What follows of a longer one waits anew, so
    /// that who writes without end does not keep the heads.
    pub(crate) fn destage(&mut self, now_ns: u64, run: SectorRun) {
        self.remove(run);
        if let Some(&DirtyRun { end, since_ns }) = self.runs.get(&run.end) {
            let start = run.end;
            self.take(SectorRun { start, end }, since_ns);
            self.insert(SectorRun { start, end }, now_ns);
        }
    }

    /// Removes a run's sectors from all runs. Returns since when the oldest of these has
    /// waited, `u64::MAX` if there is none.
    pub(crate) fn remove(&mut self, run: SectorRun) -> u64 {
        let mut oldest_ns = u64::MAX;
        while let Some((found, since_ns)) = self.last_before(run.end)
            && found.end > run.start
        {
            oldest_ns = oldest_ns.min(since_ns);
            self.take(found, since_ns);
            if let Some(lines) = &mut self.lines {
                lines.remove(SectorRun {
                    start: found.start.max(run.start),
                    end: found.end.min(run.end),
                });
            }
            for rest in [
                SectorRun {
                    start: found.start,
                    end: run.start.min(found.end),
                },
                SectorRun {
                    start: run.end.max(found.start),
                    end: found.end,
                },
            ] {
                if rest.start < rest.end {
                    self.insert(rest, since_ns);
                }
            }
        }
        oldest_ns
    }

    fn insert(&mut self, run: SectorRun, since_ns: u64) {
        let end = run.end;
        self.runs.insert(run.start, DirtyRun { end, since_ns });
        self.waits.insert((since_ns, run.start));
        self.sectors += run.end - run.start;
    }

    fn take(&mut self, run: SectorRun, since_ns: u64) {
        self.runs.remove(&run.start);
        self.waits.remove(&(since_ns, run.start));
        self.sectors -= run.end - run.start;
    }

    /// Whether all of a run is dirty.
    pub(crate) fn covers(&self, run: SectorRun) -> bool {
        self.runs
            .range(..=run.start)
            .next_back()
            .is_some_and(|(_, found)| found.end >= run.end)
    }
}

fn sector_run((&start, run): (&u64, &DirtyRun)) -> SectorRun {
    SectorRun {
        start,
        end: run.end,
    }
}

/// Runs in the moving average, at least.
const AVERAGE_OVER: u64 = 32;

/// How long it would take to write out what the buffer holds.
///
/// A drive may not take minutes for a flush, so its firmware takes no more
/// writes than it can be rid of in a certain time, however large its DRAM. It
/// estimates that from the writes that it holds (Seagate, "Adaptive control of
/// write cache size in a storage device", US patent application 2016/0077974).
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushEstimate {
    /// Moving average of the time to position the heads for a run.
    positioning_ns: u64,
    limit_ns: u64,
}

impl FlushEstimate {
    pub(super) fn new(spec: &HddSpec) -> FlushEstimate {
        let arm = &spec.mechanics;
        FlushEstimate {
            positioning_ns: arm.average_seek_ns + arm.write_settle_ns + arm.turn_ns / 2,
            limit_ns: spec.cache.flush_limit_ns,
        }
    }

    /// Takes the positioning time of a destaged run into the average, which is over as many
    /// runs as are `left`: over fewer, chance would decide how many the buffer takes.
    pub(super) fn reached(&mut self, positioning_ns: u64, left: u64) {
        let over = left.max(AVERAGE_OVER);
        self.positioning_ns = (self.positioning_ns * (over - 1) + positioning_ns) / over;
    }

    /// Whether writing out `runs`, with transfers of `transfer_ns` in all, would take
    /// longer than one `parts`-th of the limit.
    pub(super) fn exceeds(&self, runs: u64, transfer_ns: u64, parts: u64) -> bool {
        let needs_ns = runs
            .saturating_mul(self.positioning_ns)
            .saturating_add(transfer_ns);
        needs_ns > self.limit_ns / parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn dirty_runs_are_a_set_of_sectors(
            steps in prop::collection::vec((any::<bool>(), 0u64..100, 1u64..20), 0..100),
            line in prop::option::of(1u64..20),
        ) {
            let mut dirty = Dirty::new(line);
            let mut plain = BTreeSet::new();
            for (now, (add, start, length)) in steps.into_iter().enumerate() {
                let run = SectorRun { start, end: start + length };
                prop_assert_eq!(dirty.covers(run), (run.start..run.end).all(|s| plain.contains(&s)));
                let (room, more) = (dirty.room(), dirty.room_of(run));
                if add {
                    dirty.add(now as u64, run);
                    plain.extend(run.start..run.end);
                } else {
                    dirty.remove(run);
                    (run.start..run.end).for_each(|s| { plain.remove(&s); });
                }
                prop_assert_eq!(dirty.sectors(), plain.len() as u64);
                if let Some(each) = line {
                    let lines: BTreeSet<u64> = plain.iter().map(|sector| sector / each).collect();
                    prop_assert_eq!(dirty.room(), lines.len() as u64 * each);
                    prop_assert!(!add || dirty.room() == room + more);
                }
                let runs: Vec<SectorRun> = dirty.runs_near(0, usize::MAX).collect();
                let next = runs.iter().find(|run| run.start >= start);
                prop_assert_eq!(dirty.first_from(start), next.map_or(0, |run| run.start));
                prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(dirty.waits.len(), runs.len());
                prop_assert_eq!(dirty.oldest().is_some(), !runs.is_empty());
            }
        }
    }

    #[test]
    fn a_dirty_run_is_as_old_as_its_oldest_sector() {
        let run = |start, end| SectorRun { start, end };
        let mut dirty = Dirty::new(None);
        dirty.add(5, run(100, 108));
        dirty.add(7, run(0, 8));
        dirty.add(8, run(108, 124));
        dirty.add(9, run(96, 104));
        assert_eq!(dirty.oldest(), Some((5, run(96, 124))));
        // What is left of a destaged run waits anew.
        dirty.destage(20, run(96, 112));
        assert_eq!(dirty.oldest(), Some((7, run(0, 8))));
        dirty.remove(run(0, 8));
        assert_eq!(dirty.oldest(), Some((20, run(112, 124))));
        // Overwriting it does not make it younger.
        dirty.add(30, run(112, 124));
        assert_eq!(dirty.oldest(), Some((20, run(112, 124))));
        dirty.remove(run(0, 200));
        assert_eq!(dirty.oldest(), None);
    }

    /// A buffer that can be written out in exactly its limit is not full.
    #[test]
    fn a_flush_may_take_as_long_as_its_limit() {
        let estimate = FlushEstimate {
            positioning_ns: 10,
            limit_ns: 100,
        };
        for (runs, transfer_ns, parts, exceeds) in [
            (5, 50, 1, false),
            (5, 51, 1, true),
            (6, 41, 1, true),
            (5, 0, 2, false),
            (5, 1, 2, true),
            (u64::MAX, 1, 1, true),
        ] {
            let found = estimate.exceeds(runs, transfer_ns, parts);
            assert_eq!(found, exceeds, "{runs} {transfer_ns} {parts}");
        }
    }
}
