//! Allocation units: which are open, which have a log, and what a write to one takes.
//!
//! An open unit takes pages in any order, each of them once. When it is closed, what was
//! not written is copied from where it was (Linaro's FlashCardSurvey, and the SD
//! specification's 4.13 on speed classes, which promises a speed only to who writes units
//! from end to end).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use blklab_stats::MergeStats;

use super::spec::{CardSpec, LogSpec, SmallWrites};
use crate::DriveState;

/// A unit that is being written.
#[derive(Clone, Debug)]
struct OpenUnit {
    unit: u64,
    /// Where in it the last write ended.
    next: u64,
    /// Pages that were not written yet.
    missing: Pages,
}

/// Pages of a unit, from the first to before the end.
#[derive(Clone, Copy, Debug)]
struct PageRun {
    first: u64,
    end: u64,
}

/// Pages of a unit, as runs in order that do not overlap.
#[derive(Clone, Debug)]
struct Pages(Vec<PageRun>);

impl Pages {
    /// All pages of a unit of so many.
    fn all(count: u64) -> Pages {
        Pages(vec![PageRun {
            first: 0,
            end: count,
        }])
    }

    /// Whether all of these pages are of one run.
    fn have(&self, pages: PageRun) -> bool {
        let mut runs = self.0.iter();
        runs.any(|run| run.first <= pages.first && pages.end <= run.end)
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|run| run.end - run.first).sum()
    }

    fn remove(&mut self, pages: PageRun) {
        let touched = |run: &PageRun| run.first < pages.end && pages.first < run.end;
        while let Some(at) = self.0.iter().position(touched) {
            let run = self.0[at];
            match (run.first < pages.first, pages.end < run.end) {
                (true, true) => {
                    self.0[at].end = pages.first;
                    let behind = PageRun {
                        first: pages.end,
                        ..run
                    };
                    self.0.insert(at + 1, behind);
                }
                (true, false) => self.0[at].end = pages.first,
                (false, true) => self.0[at].first = pages.end,
                (false, false) => {
                    self.0.remove(at);
                }
            }
        }
    }

    /// The pages that are of both.
    fn common(&self, others: &Pages) -> Pages {
        let common = |(a, b): (&PageRun, &PageRun)| {
            let (first, end) = (a.first.max(b.first), a.end.min(b.end));
            (first < end).then_some(PageRun { first, end })
        };
        let pairs = { self.0.iter() }.flat_map(|a| others.0.iter().map(move |b| (a, b)));
        Pages(pairs.filter_map(common).collect())
    }
}

/// Small writes to a unit.
#[derive(Clone, Copy, Debug)]
struct Log {
    unit: u64,
    sectors: u64,
}

/// The allocation units of a card.
#[derive(Clone, Debug)]
pub(super) struct Units {
    /// Whether a unit holds anything that must be copied when it is written anew.
    holds_data: Vec<bool>,
    /// By the unit, the pages without data of those that hold data in a part of their pages.
    without_data: BTreeMap<u64, Pages>,
    /// The one that was written to last is last.
    open: VecDeque<OpenUnit>,
    /// Likewise.
    logs: VecDeque<Log>,
    /// Sectors that were copied and those that were programmed.
    pub(super) merges: MergeStats,
    pub(super) sectors_programmed: u64,
}

impl Units {
    pub(super) fn new(spec: &CardSpec) -> Units {
        let count = spec.identity.capacity_sectors.div_ceil(spec.units.sectors);
        let logs = match spec.small {
            SmallWrites::Log(log) => log.count,
            SmallWrites::Map(_) => 0,
        };
        Units {
            holds_data: vec![spec.state != DriveState::Fresh; count as usize],
            without_data: BTreeMap::new(),
            open: VecDeque::with_capacity(spec.units.open),
            logs: VecDeque::with_capacity(logs),
            merges: MergeStats::default(),
            sectors_programmed: 0,
        }
    }

    /// Writes within one unit. Returns what it takes beside the command.
    pub(super) fn write(&mut self, spec: &CardSpec, sector: u64, sectors: u64) -> u64 {
        let (unit, offset) = (sector / spec.units.sectors, sector % spec.units.sectors);
        let data_ns = program_ns(spec, sectors);
        self.sectors_programmed += sectors;
        let is_small = sectors < spec.writes.page_sectors;
        if is_small && sector + sectors <= spec.units.fat_sectors {
            let data_ns = match spec.small {
                SmallWrites::Log(_) => self.program_page(spec, sectors),
                SmallWrites::Map(_) => data_ns,
            };
            return spec.writes.random_ns + data_ns;
        }
        // A unit's begin is where a writer in order comes from the one before.
        let goes_on = { self.open.iter() }.any(|open| open.unit == unit && open.next == offset);
        if goes_on || offset == 0 {
            return data_ns + self.write_pages(spec, unit, offset, sectors);
        }
        match spec.small {
            SmallWrites::Map(map) if is_small => {
                let whole = covered(sector, sectors, map.sectors);
                let partial = cut_units(sector, sectors, map.sectors);
                spec.writes.random_ns
                    + (whole + partial) * map.write_ns
                    + partial * spec.reads.access_ns
            }
            SmallWrites::Log(log) if is_small => {
                let page_ns = self.program_page(spec, sectors);
                spec.writes.random_ns + page_ns + self.add_to_log(spec, log, unit, sectors)
            }
            SmallWrites::Map(_) | SmallWrites::Log(_) => {
                let copied_ns = self.write_pages(spec, unit, offset, sectors);
                spec.writes.random_ns + data_ns + copied_ns
            }
        }
    }

    /// Programs a page for a write of less: flash has no smaller unit. Returns what it takes.
    fn program_page(&mut self, spec: &CardSpec, sectors: u64) -> u64 {
        self.sectors_programmed += spec.writes.page_sectors - sectors;
        program_ns(spec, spec.writes.page_sectors)
    }

    /// Erases the units that lie wholly in a range. Returns what it takes.
    pub(super) fn erase(&mut self, spec: &CardSpec, sector: u64, sectors: u64) -> u64 {
        let first = sector.div_ceil(spec.units.sectors);
        let end = (sector + sectors) / spec.units.sectors;
        for unit in first..end {
            self.holds_data[unit as usize] = false;
            self.without_data.remove(&unit);
        }
        let erased = first..end;
        self.open.retain(|open| !erased.contains(&open.unit));
        self.logs.retain(|log| !erased.contains(&log.unit));
        end.saturating_sub(first) * spec.units.erase_ns
    }

    /// Writes to an open unit, which is opened where it must be. Returns the time to copy
    /// what that closes.
    fn write_pages(&mut self, spec: &CardSpec, unit: u64, offset: u64, sectors: u64) -> u64 {
        let page = spec.writes.page_sectors;
        let next = offset + sectors;
        let mut copied_ns = 0;
        let at = self.open.iter().position(|open| open.unit == unit);
        let found = at.and_then(|at| self.open.remove(at));
        // A page whose begin is written already is filled up.
        let is_filled_up = found.as_ref().is_some_and(|open| open.next == offset);
        let pages = PageRun {
            first: match is_filled_up {
                true => offset.div_ceil(page),
                false => offset / page,
            },
            end: next.div_ceil(page),
        };
        let kept = match found {
            Some(open) if pages.first >= pages.end || open.missing.have(pages) => Some(open),
            Some(written) => {
                copied_ns += self.close(spec, written);
                None
            }
            None => None,
        };
        let mut open = match kept {
            Some(open) => open,
            None => {
                if self.open.len() == spec.units.open
                    && let Some(oldest) = self.open.pop_front()
                {
                    copied_ns += self.close(spec, oldest);
                }
                OpenUnit {
                    unit,
                    next: 0,
                    missing: Pages::all(spec.units.sectors.div_ceil(page)),
                }
            }
        };
        open.next = next;
        open.missing.remove(pages);
        if open.missing.0.is_empty() && next.is_multiple_of(page) {
            self.merges.switched += 1;
            self.settle(open);
        } else {
            self.open.push_back(open);
        }
        copied_ns
    }

    /// What was not written to a unit is copied, where it has data.
    fn close(&mut self, spec: &CardSpec, open: OpenUnit) -> u64 {
        self.merges.partial += 1;
        let missing = open.missing.count();
        let without_data = match self.holds_data[open.unit as usize] {
            false => missing,
            true => { self.without_data.get(&open.unit) }
                .map_or(0, |empty| empty.common(&open.missing).count()),
        };
        let copied = (missing - without_data) * spec.writes.page_sectors;
        let copied_ns = self.copy(spec, copied.min(spec.units.sectors));
        self.settle(open);
        copied_ns
    }

    /// A unit is closed, and holds what was written to it beside what it held: its log is of no
    /// use any more.
    fn settle(&mut self, open: OpenUnit) {
        let OpenUnit { unit, missing, .. } = open;
        self.logs.retain(|log| log.unit != unit);
        let held_data = core::mem::replace(&mut self.holds_data[unit as usize], true);
        let empty = match held_data {
            false => Some(missing),
            true => { self.without_data.remove(&unit) }.map(|empty| empty.common(&missing)),
        };
        if let Some(empty) = empty.filter(|empty| !empty.0.is_empty()) {
            self.without_data.insert(unit, empty);
        }
    }

    /// A small write to a unit's log. Returns the time of what it makes necessary.
    fn add_to_log(&mut self, spec: &CardSpec, log: LogSpec, unit: u64, sectors: u64) -> u64 {
        let mut merged_ns = 0;
        let at = self.logs.iter().position(|log| log.unit == unit);
        let mut found = match at.and_then(|at| self.logs.remove(at)) {
            Some(found) => found,
            None => {
                if self.logs.len() == log.count
                    && let Some(oldest) = self.logs.pop_front()
                {
                    merged_ns += self.merge(spec, oldest);
                }
                Log { unit, sectors: 0 }
            }
        };
        found.sectors += sectors;
        match found.sectors >= log.sectors {
            true => merged_ns += self.merge(spec, found),
            false => self.logs.push_back(found),
        }
        merged_ns
    }

    /// A unit is written anew from itself and its log.
    fn merge(&mut self, spec: &CardSpec, log: Log) -> u64 {
        let unit = log.unit;
        self.open.retain(|open| open.unit != unit);
        self.merges.full += 1;
        let empty = { self.without_data.remove(&unit) }.map_or(0, |empty| empty.count());
        let held = match core::mem::replace(&mut self.holds_data[unit as usize], true) {
            false => 0,
            true => spec.units.sectors - (empty * spec.writes.page_sectors).min(spec.units.sectors),
        };
        let merged_ns = self.copy(spec, held.max(log.sectors));
        self.merges.longest_ns = self.merges.longest_ns.max(merged_ns);
        merged_ns
    }

    /// Copies so much of a unit, if it is not mapped in pieces that may stay where they are.
    fn copy(&mut self, spec: &CardSpec, sectors: u64) -> u64 {
        if matches!(spec.small, SmallWrites::Map(_)) {
            return 0;
        }
        self.merges.sectors_moved += sectors;
        self.sectors_programmed += sectors;
        let copied_ns = bytes_ns(sectors, spec.reads.byte_ps) + program_ns(spec, sectors);
        self.merges.busy_ns += copied_ns;
        copied_ns
    }
}

fn program_ns(spec: &CardSpec, sectors: u64) -> u64 {
    bytes_ns(sectors, spec.writes.byte_ps.max(spec.bus.byte_ps))
}

/// The time of this many sectors at this many picoseconds a byte.
pub(super) fn bytes_ns(sectors: u64, byte_ps: u64) -> u64 {
    (u128::from(sectors * blklab_blk::SECTOR_SIZE) * u128::from(byte_ps) / 1000) as u64
}

/// Units that a range touches.
fn covered(sector: u64, sectors: u64, unit: u64) -> u64 {
    (sector + sectors).div_ceil(unit) - sector / unit
}

/// Units that it covers in part, which are read first.
fn cut_units(sector: u64, sectors: u64, unit: u64) -> u64 {
    let end = sector + sectors;
    let is_one = covered(sector, sectors, unit) == 1;
    match (!sector.is_multiple_of(unit), !end.is_multiple_of(unit)) {
        (false, false) => 0,
        (true, true) if !is_one => 2,
        _ => 1,
    }
}
