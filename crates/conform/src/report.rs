//! `Report`: how often we agree with the kernel, and where first we do not.

use std::fmt;
use std::path::Path;

use crate::{ConformError, Mode};

/// Differences of a trace that are kept to be shown.
const SHOWN: usize = 8;

/// What a comparison came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was compared.
    pub mode: Mode,
    /// Of which scheduler.
    pub scheduler: String,
    /// Trace by trace.
    pub traces: Vec<TraceReport>,
}

/// What the comparison of one trace came to.
#[derive(Clone, Debug)]
pub struct TraceReport {
    /// The trace's file.
    pub file: String,
    /// What the reader should know: what was missing and what was assumed.
    pub notes: Vec<String>,
    /// Compared events by kind.
    pub tallies: Vec<Tally>,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// How many pages of reads were cached, where that was compared.
    pub(crate) hit_ratio: Option<HitRatio>,
    /// Requests, and those of them whose latency is near the recorded one, where that was
    /// compared. It is no agreement: the drive's own times are the trace's.
    pub latency: Option<Tally>,
    /// Agreement that this run has to reach, in percent, where the comparison has one for
    /// each.
    pub goal_percent: Option<f64>,
}

/// Agreements of one kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The kind.
    pub kind: &'static str,
    /// Events that agree.
    pub agreed: u64,
    /// Events that were compared.
    pub compared: u64,
}

/// One difference, side by side.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The line of the trace.
    pub line: u64,
    /// The trace clock.
    pub at_ns: u64,
    /// The kind of event.
    pub kind: &'static str,
    /// What the kernel did.
    pub kernel: String,
    /// What we did.
    pub ours: String,
    /// Our queue's state then, a line each.
    pub state: Vec<String>,
}

/// How many pages of reads were cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HitRatio {
    pages: u64,
    kernel: u64,
    ours: u64,
}

impl HitRatio {
    /// Counts a page of a read: whether it was cached there and here.
    pub(crate) fn count(&mut self, kernel: bool, ours: bool) {
        self.pages += 1;
        self.kernel += u64::from(kernel);
        self.ours += u64::from(ours);
    }

    /// How far ours is from the kernel's, in points of a percent.
    pub(crate) fn points_off(&self) -> f64 {
        percent(self.kernel.abs_diff(self.ours), self.pages)
    }
}

impl fmt::Display for HitRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = percent(self.kernel, self.pages);
        let ours = percent(self.ours, self.pages);
        write!(f, "hit ratio: kernel {kernel:.2} %, ours {ours:.2} %")
    }
}

impl Report {
    /// What `compare` finds in each trace.
    ///
    /// # Errors
    /// Where there is no trace, and at the first that it cannot compare.
    pub(crate) fn of_each(
        mode: Mode,
        scheduler: &str,
        traces: &[impl AsRef<Path>],
        mut compare: impl FnMut(&Path) -> Result<TraceReport, ConformError>,
    ) -> Result<Report, ConformError> {
        if traces.is_empty() {
            return Err(ConformError::NoTraces);
        }
        let traces = traces.iter().map(|path| compare(path.as_ref()));
        Ok(Report {
            mode,
            scheduler: scheduler.to_owned(),
            traces: traces.collect::<Result<_, _>>()?,
        })
    }

    /// Events that agree.
    pub fn agreed(&self) -> u64 {
        self.traces.iter().map(TraceReport::agreed).sum()
    }

    /// Events that were compared.
    pub fn compared(&self) -> u64 {
        self.traces.iter().map(TraceReport::compared).sum()
    }

    /// Whether every compared event agrees, and there was one.
    pub fn all_agree(&self) -> bool {
        self.compared() > 0 && self.agreed() == self.compared()
    }

    /// Agreements in percent; 0 where nothing was compared.
    pub fn percent(&self) -> f64 {
        percent(self.agreed(), self.compared())
    }

    /// Has every run reach this, in percent, instead of the goal of its kind.
    pub fn set_goal(&mut self, percent: f64) {
        for trace in &mut self.traces {
            trace.goal_percent = Some(percent);
        }
    }

    /// Whether every run reaches its goal.
    pub(crate) fn reaches_goals(&self) -> bool {
        let mut traces = self.traces.iter();
        traces.all(|trace| trace.missed_goal().is_none())
    }

    /// Whether everything of this kind agrees, and there was something.
    pub(crate) fn has_all_of(&self, kind: &str) -> bool {
        let totals = self.totals();
        let tally = totals.iter().find(|tally| tally.kind == kind);
        tally.is_some_and(|tally| tally.agreed == tally.compared)
    }

    /// Agreements of one kind in percent, 100 where there was none.
    pub(crate) fn share(&self, kind: &str) -> f64 {
        let totals = self.totals();
        let tally = totals.iter().find(|tally| tally.kind == kind);
        tally.map_or(100.0, |tally| percent(tally.agreed, tally.compared))
    }

    /// Requests of all traces whose latency is near the recorded one, where that was compared.
    pub fn latency(&self) -> Option<Tally> {
        let tallies = self.traces.iter().filter_map(|trace| trace.latency);
        tallies.reduce(|sum, tally| Tally {
            agreed: sum.agreed + tally.agreed,
            compared: sum.compared + tally.compared,
            ..sum
        })
    }

    /// Tallies over all traces.
    pub fn totals(&self) -> Vec<Tally> {
        let mut totals: Vec<Tally> = Vec::new();
        for tally in self.traces.iter().flat_map(|trace| &trace.tallies) {
            let total = entry(&mut totals, tally.kind);
            total.agreed += tally.agreed;
            total.compared += tally.compared;
        }
        totals
    }
}

impl TraceReport {
    /// Nothing compared yet.
    pub(crate) fn new(file: String) -> TraceReport {
        TraceReport {
            file,
            notes: Vec::new(),
            tallies: Vec::new(),
            differences: Vec::new(),
            hit_ratio: None,
            latency: None,
            goal_percent: None,
        }
    }

    /// Agreements in percent; 0 where nothing was compared.
    pub fn percent(&self) -> f64 {
        percent(self.agreed(), self.compared())
    }

    /// The goal that this run misses.
    fn missed_goal(&self) -> Option<f64> {
        self.goal_percent.filter(|&goal| self.percent() < goal)
    }

    /// Events that agree.
    pub fn agreed(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.agreed).sum()
    }

    /// Events that were compared.
    pub fn compared(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.compared).sum()
    }

    /// Counts one comparison; where it failed `difference` is asked for, unless
    /// enough are kept.
    pub(crate) fn count(
        &mut self,
        kind: &'static str,
        agrees: bool,
        difference: impl FnOnce() -> Difference,
    ) {
        let tally = entry(&mut self.tallies, kind);
        tally.compared += 1;
        tally.agreed += u64::from(agrees);
        if !agrees && self.differences.len() < SHOWN {
            self.differences.push(difference());
        }
    }

    /// Counts what two sequences of these lengths both have, in the longest common order,
    /// and what only one has.
    pub(crate) fn count_in_order(
        &mut self,
        lengths: (usize, usize),
        same: impl Fn(usize, usize) -> bool,
        kind: impl Fn(&Pair) -> &'static str,
        difference: impl Fn(&Pair, &'static str) -> Difference,
    ) {
        for pair in side_by_side(lengths, same) {
            let kind = kind(&pair);
            self.count(kind, pair.agrees, || difference(&pair, kind));
        }
    }
}

/// Two sequences side by side at one place: what both have, or what only one has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The place in the kernel's sequence; of what comes next there where it has nothing.
    pub(crate) at: usize,
    /// The place of the kernel's.
    pub(crate) kernel: Option<usize>,
    /// The place of ours.
    pub(crate) ours: Option<usize>,
    /// Whether both have the same.
    agrees: bool,
}

/// Sequences of these lengths, what both have in the longest common order. What lies
/// between is paired one by one.
fn side_by_side((kernel, ours): (usize, usize), same: impl Fn(usize, usize) -> bool) -> Vec<Pair> {
    let common = longest_common(kernel, ours, same);
    let mut pairs = Vec::with_capacity(kernel.max(ours));
    let (mut k, mut o) = (0, 0);
    for &(next_k, next_o) in common.iter().chain(&[(kernel, ours)]) {
        pairs.extend((0..(next_k - k).max(next_o - o)).map(|n| Pair {
            at: (k + n).min(next_k),
            kernel: Some(k + n).filter(|&at| at < next_k),
            ours: Some(o + n).filter(|&at| at < next_o),
            agrees: false,
        }));
        (k, o) = (next_k + 1, next_o + 1);
        pairs.extend((next_k < kernel).then_some(Pair {
            at: next_k,
            kernel: Some(next_k),
            ours: Some(next_o),
            agrees: true,
        }));
    }
    pairs
}

fn entry<'t>(tallies: &'t mut Vec<Tally>, kind: &'static str) -> &'t mut Tally {
    let at = tallies.iter().position(|tally| tally.kind == kind);
    let at = at.unwrap_or_else(|| {
        tallies.push(Tally {
            kind,
            agreed: 0,
            compared: 0,
        });
        tallies.len() - 1
    });
    &mut tallies[at]
}

fn percent(agreed: u64, compared: u64) -> f64 {
    match compared {
        0 => 0.0,
        _ => agreed as f64 * 100.0 / compared as f64,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for trace in &self.traces {
            write!(f, "{trace}")?;
        }
        match self.scheduler.as_str() {
            "" => writeln!(f, "{}", self.mode)?,
            scheduler => writeln!(f, "{scheduler}, {}", self.mode)?,
        }
        write_tallies(f, &self.totals())?;
        if let Some(latency) = self.latency() {
            writeln!(f, "{latency}")?;
        }
        writeln!(f, "agree {} of {}", self.agreed(), self.compared())
    }
}

impl fmt::Display for TraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (agreed, compared) = (self.agreed(), self.compared());
        let share = self.percent();
        let file = &self.file;
        match self.missed_goal() {
            None => writeln!(f, "{file}: {agreed} of {compared} agree ({share:.2} %)")?,
            Some(goal) => writeln!(
                f,
                "{file}: {agreed} of {compared} agree ({share:.2} %, less than {goal} %)"
            )?,
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        if let Some(ratio) = self.hit_ratio {
            writeln!(f, "  {ratio}")?;
        }
        if let Some(latency) = self.latency {
            writeln!(f, "  {latency}")?;
        }
        write_tallies(f, &self.tallies)?;
        for difference in &self.differences {
            write!(f, "{difference}")?;
        }
        let missed = compared - agreed;
        let shown = self.differences.len() as u64;
        if missed > shown {
            writeln!(f, "  ... and {} more", missed - shown)?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {}", self.kind, self.agreed, self.compared)
    }
}

fn write_tallies(f: &mut fmt::Formatter<'_>, tallies: &[Tally]) -> fmt::Result {
    for tally in tallies {
        writeln!(
            f,
            "  {:<16} {:>8} of {:>8}",
            tally.kind, tally.agreed, tally.compared
        )?;
    }
    Ok(())
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ns) = (self.at_ns / 1_000_000_000, self.at_ns % 1_000_000_000);
        writeln!(f, "  line {}, {s}.{ns:09} s: {}", self.line, self.kind)?;
        writeln!(f, "    kernel: {}", self.kernel)?;
        writeln!(f, "    ours:   {}", self.ours)?;
        for line in &self.state {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

/// Pairs of places at which two sequences of these lengths have the same, in order,
/// as many as there can be.
fn longest_common(
    kernel: usize,
    ours: usize,
    same: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let shorter = kernel.min(ours);
    let head = (0..shorter).take_while(|&n| same(n, n)).count();
    let (rows, columns) = (kernel - head, ours - head);
    let mut best = vec![vec![0_u32; columns + 1]; rows + 1];
    for k in (0..rows).rev() {
        for o in (0..columns).rev() {
            best[k][o] = match same(head + k, head + o) {
                true => best[k + 1][o + 1] + 1,
                false => best[k + 1][o].max(best[k][o + 1]),
            };
        }
    }
    let mut pairs: Vec<(usize, usize)> = (0..head).map(|n| (n, n)).collect();
    let (mut k, mut o) = (0, 0);
    while k < rows && o < columns {
        if same(head + k, head + o) {
            pairs.push((head + k, head + o));
            (k, o) = (k + 1, o + 1);
        } else if best[k + 1][o] >= best[k][o + 1] {
            k += 1;
        } else {
            o += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference() -> Difference {
        Difference {
            line: 13,
            at_ns: 16_000_000_500,
            kind: "choice",
            kernel: "8 + 8".to_owned(),
            ours: "none".to_owned(),
            state: vec!["last_dir 1".to_owned()],
        }
    }

    #[test]
    fn the_last_line_is_the_verdict() {
        let mut trace = TraceReport::new("a.trace".to_owned());
        trace.count("choice", true, difference);
        trace.count("choice", false, difference);
        let report = Report {
            mode: Mode::SchedulerAlone,
            scheduler: "mq-deadline".to_owned(),
            traces: vec![trace],
        };
        assert!(!report.all_agree());
        let text = report.to_string();
        assert_eq!(text.lines().last(), Some("agree 1 of 2"));
        assert!(text.contains("line 13, 16.000000500 s: choice"), "{text}");
    }

    #[test]
    fn each_run_has_to_reach_its_goal() {
        let run = |agreed: u64, goal_percent| {
            let mut trace = TraceReport::new("a.trace".to_owned());
            (0..200).for_each(|n| trace.count("choice", n < agreed, difference));
            trace.goal_percent = Some(goal_percent);
            trace
        };
        let mut report = Report {
            mode: Mode::Whole,
            scheduler: "none".to_owned(),
            traces: vec![run(200, 99.5), run(190, 95.0)],
        };
        assert!(report.reaches_goals(), "{report}");
        // What one run has too much is no help to another.
        report.traces.push(run(198, 99.5));
        assert!(!report.reaches_goals());
        let text = report.to_string();
        assert!(text.contains("198 of 200 agree (99.00 %, less than 99.5 %)"));
        report.set_goal(95.0);
        assert!(report.reaches_goals(), "{report}");
    }

    #[test]
    fn nothing_compared_is_no_agreement() {
        let report = Report {
            mode: Mode::SchedulerAlone,
            scheduler: "mq-deadline".to_owned(),
            traces: Vec::new(),
        };
        assert!(!report.all_agree());
        assert_eq!(report.percent(), 0.0);
    }

    #[test]
    fn what_only_one_side_has_is_left_out() {
        let (kernel, ours) = ("abxcd", "abcyd");
        let same = |k: usize, o: usize| kernel.as_bytes()[k] == ours.as_bytes()[o];
        let pairs = longest_common(kernel.len(), ours.len(), same);
        assert_eq!(pairs, [(0, 0), (1, 1), (3, 2), (4, 4)]);
        let pairs = side_by_side((kernel.len(), ours.len()), same);
        let pairs: Vec<_> = { pairs.iter() }
            .map(|pair| (pair.at, pair.kernel, pair.ours, pair.agrees))
            .collect();
        let both = |k, o| (k, Some(k), Some(o), true);
        let only = |k| (k, Some(k), None, false);
        let ours = (4, None, Some(3), false);
        assert_eq!(
            pairs,
            [
                both(0, 0),
                both(1, 1),
                only(2),
                both(3, 2),
                ours,
                both(4, 4)
            ]
        );
    }
}
