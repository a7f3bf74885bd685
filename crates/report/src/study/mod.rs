//! A study: the simulation of a document's measurements, by drive and pattern, beside the
//! document's findings. The text and the page show these values and compute none.

mod pi4;

use blklab_stats::{CpuTimes, Histogram, Results};

use crate::comparison::{
    Comparison, Direction, DirectionTable, Metric, SchedulerRuns, compare, note_on_untried,
};

/// The block layer's sector.
const SECTOR_BYTES: f64 = 512.0;

/// A study that has run.
#[derive(Clone, Debug)]
pub struct Study {
    /// Its name.
    pub name: String,
    /// A sentence on what the simulation has in common with the document and what not.
    pub about: String,
    /// The file system that the files are on; `None` for the drives themselves.
    pub file_system: Option<&'static str>,
    /// The cases by drive, then job file, then pattern.
    pub cases: Vec<Case>,
    /// The document's findings beside those of the simulation.
    pub findings: Vec<Finding>,
    /// Whether any assumed value was tried at its plausible ends.
    pub(crate) has_trials: bool,
    /// Which assumed values were tried at their plausible ends, and how many were not; empty if
    /// there is none.
    pub assumed: String,
    /// The command that repeats the study.
    pub command: String,
}

/// One pattern on one drive.
#[derive(Clone, Debug)]
pub struct Case {
    /// The document's name for the drive.
    pub drive: String,
    /// The pattern: the job's name.
    pub pattern: String,
    /// The comparison of the schedulers.
    pub comparison: Comparison,
    /// Further figures by scheduler.
    pub measured: Vec<Measured>,
}

/// Figures of a scheduler's runs of a pattern, over all repeats.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The requests' times in the drive, from issue to completion, as biosnoop shows them;
    /// only of the case's direction.
    pub drive_ns: Histogram,
    /// The mean number of requests in queue and drive.
    pub in_flight: f64,
    /// The write amplification; `None` if nothing was written.
    pub write_amplification: Option<f64>,
    /// Requests of the case's direction that ended in a second, and their mean size in bytes.
    pub requests_per_s: f64,
    /// See `requests_per_s`.
    pub request_bytes: f64,
    /// The share of all CPUs' time in the kernel, including interrupts.
    pub kernel_share: f64,
    /// The CPU time in the kernel, of all CPUs and including interrupts, for each request, in
    /// nanoseconds.
    pub kernel_ns_per_request: f64,
    /// The share of time in which the busiest CPU worked, including programs.
    pub busiest_share: f64,
}

/// A finding of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// The finding.
    pub document: &'static str,
    /// The result of the simulation.
    pub here: String,
    /// Whether both agree.
    pub agrees: bool,
    /// The reason for the simulation's result.
    pub reason: String,
    /// The assumed values that decide on it: each with the end at which the result is another,
    /// and that result.
    pub hangs_on: Vec<String>,
}

impl Finding {
    /// Says whether it is the document's.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.agrees {
            true => "as there",
            false => "not as there",
        }
    }

    /// Says which assumed values decide on it; `None` if none was tried.
    pub(crate) fn assumed(&self, study: &Study) -> Option<String> {
        match (study.has_trials, self.hangs_on.is_empty()) {
            (false, _) => None,
            (true, true) => Some("no assumed value that was tried".to_string()),
            (true, false) => Some(self.hangs_on.join("; ")),
        }
    }
}

impl Study {
    /// Makes a study of cases: drive, pattern, and runs by scheduler.
    pub fn new(
        name: &str,
        about: String,
        command: String,
        file_system: Option<&'static str>,
        cases: Vec<(String, String, Vec<SchedulerRuns>)>,
    ) -> Study {
        let cases = cases.into_iter();
        let mut study = Study {
            name: name.to_string(),
            about,
            file_system,
            cases: cases
                .map(|(drive, pattern, runs)| Case::new(drive, pattern, &runs))
                .collect(),
            findings: Vec::new(),
            has_trials: false,
            assumed: String::new(),
            command,
        };
        study.findings = match name {
            "pi4" => pi4::findings(&study),
            _ => Vec::new(),
        };
        study
    }

    /// Whether each finding agrees with the document where it does in another study.
    pub fn finds_as(&self, other: &Study) -> bool {
        self.findings.len() == other.findings.len() && { self.findings.iter() }
            .zip(&other.findings)
            .all(|(one, other)| one.agrees == other.agrees)
    }

    /// Adds a run of the study with another assumed value, which `changed` names: a finding
    /// that agrees with the document in only one of both hangs on that value.
    pub fn add_trial(&mut self, changed: &str, other: &Study) {
        self.has_trials = true;
        for (finding, other) in self.findings.iter_mut().zip(&other.findings) {
            if finding.agrees != other.agrees {
                let (verdict, here) = (other.verdict(), &other.here);
                let text = format!("{changed}, which is {verdict}: {here}");
                finding.hangs_on.push(text);
            }
        }
    }

    /// Says which of all assumed values were tried, with this many runs of each row.
    pub fn note_trials(&mut self, keys: &[&str], all: usize, repeats: usize) {
        let mut sentences = Vec::new();
        if !keys.is_empty() {
            let runs = match repeats {
                1 => "one run".to_string(),
                repeats => format!("{repeats} runs"),
            };
            sentences.push(format!(
                "Whether a finding hangs on them was tried at the plausible ends of {}, one at a \
                 time and with {runs} of each pattern.",
                keys.join(", ")
            ));
        }
        sentences.extend(note_on_untried(all, keys.len()));
        self.assumed = sentences.join(" ");
    }

    /// Returns the cases grouped by drive and direction.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &[Case]> {
        let alike = |a: &Case, b: &Case| a.drive == b.drive && a.direction() == b.direction();
        self.cases.chunk_by(alike)
    }

    /// Returns the case whose pattern begins with `pattern`.
    fn case(&self, drive: &str, direction: Direction, pattern: &str) -> Option<&Case> {
        let mut cases = self.cases.iter();
        cases.find(|case| {
            (case.drive.as_str(), case.direction()) == (drive, direction)
                && case.pattern.starts_with(pattern)
        })
    }

    /// Returns the cases of a drive and direction.
    fn cases_of(&self, drive: &str, direction: Direction) -> Vec<&Case> {
        let of = |case: &&Case| (case.drive.as_str(), case.direction()) == (drive, direction);
        self.cases.iter().filter(of).collect()
    }
}

impl Case {
    fn new(drive: String, pattern: String, schedulers: &[SchedulerRuns]) -> Case {
        let comparison = compare(schedulers);
        let direction = table(&comparison).map_or(Direction::Read, |table| table.direction);
        let measured = schedulers.iter();
        Case {
            drive,
            pattern,
            measured: measured
                .map(|of| Measured::of(&of.runs, direction))
                .collect(),
            comparison,
        }
    }

    /// Returns the table of its direction.
    pub(crate) fn table(&self) -> Option<&DirectionTable> {
        table(&self.comparison)
    }

    /// Returns its direction.
    pub(crate) fn direction(&self) -> Direction {
        self.table()
            .map_or(Direction::Read, |table| table.direction)
    }

    /// Returns the bandwidths by scheduler, in bytes a second.
    pub(crate) fn bandwidths(&self) -> Vec<f64> {
        let rows = self.table().map_or(&[][..], |table| &table.rows);
        let cells = rows.iter().map(|row| row.cells.get(&Metric::Bandwidth));
        cells
            .map(|cell| cell.map_or(0.0, |cell| cell.value.mean))
            .collect()
    }

    /// Returns the index of a scheduler.
    fn place(&self, scheduler: &str) -> Option<usize> {
        let mut names = self.comparison.schedulers.iter();
        names.position(|name| name == scheduler)
    }
}

/// Returns the table of the first direction, which is the only one of a job.
fn table(comparison: &Comparison) -> Option<&DirectionTable> {
    comparison.sections.first()?.directions.first()
}

impl Measured {
    fn of(runs: &[Results], direction: Direction) -> Measured {
        let mut measured = Measured::default();
        let count = runs.len().max(1) as f64;
        let op = Direction::ALL.iter().position(|of| *of == direction);
        let (mut requests, mut sectors, mut kernel_ns) = (0, 0, 0);
        for run in runs {
            let kinds = run.requests.iter().flat_map(|requests| &requests.kinds);
            let own = kinds.filter(|kind| Some(kind.op) == op);
            own.for_each(|kind| measured.drive_ns.merge(&kind.drive_ns));
            for disk in &run.disks {
                let span_ns = disk.counted_in_ns(run.elapsed_ns).max(1) as f64;
                measured.in_flight += disk.queue.time_in_queue_ns as f64 / span_ns / count;
                if let Some(op) = op {
                    requests += disk.queue.ios[op];
                    sectors += disk.queue.sectors[op];
                    measured.requests_per_s += disk.queue.ios[op] as f64 / span_ns * 1e9 / count;
                }
                if let Some(amplification) = disk.device.write_amplification() {
                    let sum = measured.write_amplification.unwrap_or(0.0);
                    measured.write_amplification = Some(sum + amplification / count);
                }
            }
            let in_kernel = |cpu: &CpuTimes| cpu.system_ns + cpu.irq_ns + cpu.softirq_ns;
            let share = |ns: u64, of: u64| ns as f64 / of.max(1) as f64 / count;
            let all_ns: u64 = run.cpus.iter().map(CpuTimes::total_ns).sum();
            let of_run_ns = run.cpus.iter().map(in_kernel).sum();
            kernel_ns += of_run_ns;
            measured.kernel_share += share(of_run_ns, all_ns);
            let busy = run
                .cpus
                .iter()
                .map(|cpu| (in_kernel(cpu) + cpu.user_ns, cpu.total_ns()));
            let busiest = busy.max_by_key(|(busy_ns, _)| *busy_ns).unwrap_or_default();
            measured.busiest_share += share(busiest.0, busiest.1);
        }
        let each = |of_all: u64| of_all as f64 / requests.max(1) as f64;
        measured.request_bytes = each(sectors) * SECTOR_BYTES;
        measured.kernel_ns_per_request = each(kernel_ns);
        measured
    }
}

/// Returns the mean of values; zero without values.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the difference between the largest and the smallest value, as a share of the
/// smallest.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    match least > 0.0 && least.is_finite() {
        true => most / least - 1.0,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(agrees: [bool; 2]) -> Study {
        let mut study = Study::new("x", String::new(), String::new(), None, Vec::new());
        study.findings = agrees
            .map(|agrees| Finding {
                here: format!("it is {agrees}"),
                agrees,
                ..Finding::default()
            })
            .to_vec();
        study
    }

    #[test]
    fn a_finding_hangs_on_the_values_at_whose_ends_it_is_another() {
        let mut base = study([true, true]);
        assert_eq!(base.findings[0].assumed(&base), None);
        base.add_trial("a of x 1 in place of 2", &study([true, false]));
        base.add_trial("a of x 3 in place of 2", &study([true, true]));
        base.note_trials(&["a"], 3, 2);
        let hangs_on = |at: usize| base.findings[at].assumed(&base).expect("tried");
        assert_eq!(hangs_on(0), "no assumed value that was tried");
        assert_eq!(
            hangs_on(1),
            "a of x 1 in place of 2, which is not as there: it is false"
        );
        let tried = "ends of a, one at a time and with 2 runs of each pattern. Of 3 assumed \
                     values 2 were not tried (--assumed 3).";
        assert!(base.assumed.ends_with(tried), "{}", base.assumed);
        assert!(base.finds_as(&study([true, true])) && !base.finds_as(&study([false, true])));
    }
}
