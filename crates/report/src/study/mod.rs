//! A study: what a document measured, pattern by pattern and drive by drive, beside what
//! it found. The text and the page show this and compute nothing themselves.

mod pi4;

use blklab_stats::{CpuTimes, Histogram, Results};

use crate::comparison::{Comparison, Direction, DirectionTable, Metric, SchedulerRuns, compare};

/// A study that has run.
#[derive(Clone, Debug)]
pub struct Study {
    /// Its name.
    pub name: String,
    /// What is like the document's, and what is not, in a sentence.
    pub about: String,
    /// By drive, then file of jobs, then pattern.
    pub cases: Vec<Case>,
    /// What the document found beside what is found here.
    pub findings: Vec<Finding>,
    /// What repeats it.
    pub command: String,
}

/// One pattern on one drive.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the document calls the drive.
    pub drive: String,
    /// The job.
    pub pattern: String,
    /// Its schedulers compared.
    pub comparison: Comparison,
    /// By scheduler, what is looked at beside.
    pub measured: Vec<Measured>,
}

/// What is looked at of a scheduler's runs of a pattern, all repeats together.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Times of its requests in the drive, from the driver's start to their end, as
    /// biosnoop shows them. Requests of the other direction are left out.
    pub drive_ns: Histogram,
    /// Requests in queue and drive over time, mean.
    pub in_flight: f64,
    /// Sectors that the flash was given for one that the host wrote, where any was.
    pub write_amplification: Option<f64>,
    /// The share of all CPUs' time in the kernel, interrupts included.
    pub kernel_share: f64,
    /// The same of the CPU where it is largest, programs included.
    pub busiest_share: f64,
}

/// Something that the document found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it found.
    pub document: &'static str,
    /// What is found here.
    pub here: String,
    /// Whether that is the same.
    pub agrees: bool,
    /// Why it is so here.
    pub reason: String,
}

impl Study {
    /// A study of these cases, each a drive's name, a pattern's, and its runs by scheduler.
    pub fn new(
        name: &str,
        about: String,
        command: String,
        cases: Vec<(String, String, Vec<SchedulerRuns>)>,
    ) -> Study {
        let cases = cases.into_iter();
        let mut study = Study {
            name: name.to_string(),
            about,
            cases: cases
                .map(|(drive, pattern, runs)| Case::new(drive, pattern, &runs))
                .collect(),
            findings: Vec::new(),
            command,
        };
        study.findings = match name {
            "pi4" => pi4::findings(&study),
            _ => Vec::new(),
        };
        study
    }

    /// The cases of each drive and direction together.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &[Case]> {
        let alike = |a: &Case, b: &Case| a.drive == b.drive && a.direction() == b.direction();
        self.cases.chunk_by(alike)
    }

    /// The pattern whose name begins so.
    fn case(&self, drive: &str, direction: Direction, pattern: &str) -> Option<&Case> {
        let mut cases = self.cases.iter();
        cases.find(|case| {
            (case.drive.as_str(), case.direction()) == (drive, direction)
                && case.pattern.starts_with(pattern)
        })
    }

    /// All patterns of a drive.
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

    /// Its figures.
    pub(crate) fn table(&self) -> Option<&DirectionTable> {
        table(&self.comparison)
    }

    /// Whether it reads or writes.
    pub(crate) fn direction(&self) -> Direction {
        self.table()
            .map_or(Direction::Read, |table| table.direction)
    }

    /// Bytes a second by scheduler.
    pub(crate) fn bandwidths(&self) -> Vec<f64> {
        let rows = self.table().map_or(&[][..], |table| &table.rows);
        let cells = rows.iter().map(|row| row.cells.get(&Metric::Bandwidth));
        cells
            .map(|cell| cell.map_or(0.0, |cell| cell.value.mean))
            .collect()
    }

    /// A scheduler's place.
    fn place(&self, scheduler: &str) -> Option<usize> {
        let mut names = self.comparison.schedulers.iter();
        names.position(|name| name == scheduler)
    }
}

/// A job has one direction.
fn table(comparison: &Comparison) -> Option<&DirectionTable> {
    comparison.sections.first()?.directions.first()
}

impl Measured {
    fn of(runs: &[Results], direction: Direction) -> Measured {
        let mut measured = Measured::default();
        let count = runs.len().max(1) as f64;
        let op = Direction::ALL.iter().position(|of| *of == direction);
        for run in runs {
            let kinds = run.requests.iter().flat_map(|requests| &requests.kinds);
            let own = kinds.filter(|kind| Some(kind.op) == op);
            own.for_each(|kind| measured.drive_ns.merge(&kind.drive_ns));
            for disk in &run.disks {
                let span_ns = disk.counted_in_ns(run.elapsed_ns).max(1) as f64;
                measured.in_flight += disk.queue.time_in_queue_ns as f64 / span_ns / count;
                if let Some(amplification) = disk.device.write_amplification() {
                    let sum = measured.write_amplification.unwrap_or(0.0);
                    measured.write_amplification = Some(sum + amplification / count);
                }
            }
            let in_kernel = |cpu: &CpuTimes| cpu.system_ns + cpu.irq_ns + cpu.softirq_ns;
            let share = |ns: u64, of: u64| ns as f64 / of.max(1) as f64 / count;
            let all_ns: u64 = run.cpus.iter().map(CpuTimes::total_ns).sum();
            measured.kernel_share += share(run.cpus.iter().map(in_kernel).sum(), all_ns);
            let busy = run
                .cpus
                .iter()
                .map(|cpu| (in_kernel(cpu) + cpu.user_ns, cpu.total_ns()));
            let busiest = busy.max_by_key(|(busy_ns, _)| *busy_ns).unwrap_or_default();
            measured.busiest_share += share(busiest.0, busiest.1);
        }
        measured
    }
}

/// The mean of some figures; zero of none.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// By how much the largest of some figures is above the least, as a share of the least.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    match least > 0.0 && least.is_finite() {
        true => most / least - 1.0,
        false => 0.0,
    }
}
