//! Conversion of rows to fio jobs, and of simulation results to the quantities of rows.

use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_sim::{Machine, Setup, Workload};
use blklab_stats::Results;
use blklab_workload::fio::{self, Direction, JobFile};

use crate::model::CalibrateError;
use crate::row::{Measured, Row};

/// Number of I/Os that a simulated run should have, for its 99th percentile.
const WANTED_IOS: f64 = 30_000.0;
/// The shortest and the longest measured time, in microseconds.
const SHORTEST_US: f64 = 15_000.0;
const LONGEST_US: f64 = 300_000.0;
/// The part of the run time over which IOPS are sampled, so that two samples are complete. At the
/// end of a job no I/O is issued while those in flight complete; this is negligible in a run of two
/// minutes, but several percent in one of milliseconds.
const WINDOW: f64 = 0.45;
/// Writes take longer to become steady: caches fill, and schedulers learn (kyber checks its
/// latencies ten times a second). So they are measured in the middle of a run like the study's, two
/// minutes after a ramp of half a minute.
const WRITES_RAMP_US: u64 = 90_000_000;
const WRITES_US: u64 = 2_000_000;

/// A slow drive is measured for at least this many I/Os, and this many writes once it is steady.
const LEAST_IOS: f64 = 1_000.0;
const LEAST_STEADY_WRITES: f64 = 200.0;
/// The longest time for these, in seconds.
const LONGEST_WRITES_S: f64 = 600.0;

/// A model that is this many times as fast as the measured drive has shown it after this many times
/// the measured I/Os, and its run ends.
const MOST_TIMES_IOS: f64 = 10.0;

/// The job that leaves in the drive's cache what earlier runs have left there.
const BEFORE: &str = "before";

/// Options of rows that do not name an engine.
const FIRST_STUDY_OPTIONS: &str = "ioengine=io_uring registerfiles=1 fixedbufs=1";

/// A job and the rows that it represents.
#[derive(Clone)]
pub struct Case {
    job: JobFile,
    text: String,
    scheduler: SchedulerChoice,
    /// Indices of the rows.
    pub rows: Vec<usize>,
}

/// Groups rows into jobs: both directions of a run are one job, and repeats are the same job.
/// `settles` means that the drive needs some time until its writes are steady.
///
/// # Errors
/// If a row is not a valid job or names no scheduler.
pub fn cases(rows: &[Row], settles: bool) -> Result<Vec<Case>, CalibrateError> {
    let mut cases: Vec<Case> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let text = job_text(row, runs_beside(row, rows), settles);
        let same = |c: &&mut Case| c.text == text && c.scheduler.kind.name == row.scheduler;
        if let Some(case) = cases.iter_mut().find(same) {
            case.rows.push(at);
            continue;
        }
        let job = fio::parse_str("row", &text, &|_| None, &|_, name| {
            Err(format!("{name}: a row includes nothing"))
        });
        let job = job.map_err(|problem| CalibrateError::Row {
            row: row.label(),
            problem: Box::new(problem),
        })?;
        let scheduler = SchedulerChoice::named(&row.scheduler);
        let scheduler = scheduler.map_err(|problem| CalibrateError::Setup {
            row: row.label(),
            problem: problem.into(),
        })?;
        cases.push(Case {
            job,
            text,
            scheduler,
            rows: vec![at],
        });
    }
    Ok(cases)
}

/// Whether the row's job ran beside one in the other direction: there is a row of the same run with
/// the other direction, and `rw` does not mix them itself.
fn runs_beside(row: &Row, rows: &[Row]) -> bool {
    !row.mixes()
        && rows.iter().any(|other| {
            other.direction != row.direction
                && (&other.study, &other.note, &other.scheduler)
                    == (&row.study, &row.note, &row.scheduler)
                && (&other.rw, &other.bs) == (&row.rw, &row.bs)
                && (other.iodepth, other.processes, other.cores, other.devices)
                    == (row.iodepth, row.processes, row.cores, row.devices)
        })
}

fn job_text(row: &Row, beside: bool, settles: bool) -> String {
    let Span {
        ramp_us,
        run_us,
        most_ios,
    } = span(row, settles);
    let drives: Vec<String> = (0..row.devices)
        .map(|n| format!("/dev/nvme{n}n1"))
        .collect();
    let window_ms = (run_us as f64 * WINDOW / 1e3).floor().max(1.0);
    // A row's own options come last and prevail.
    let mut text = format!(
        "[global]\ndirect=1\nnorandommap=1\n\
         group_reporting=1\ntime_based=1\nramp_time={ramp_us}us\nruntime={run_us}us\n\
         bwavgtime={window_ms}\niopsavgtime={window_ms}\nnumber_ios={most_ios}\nfilename={}\nbs={}\niodepth={}\nrwmixread={}\n{}\n",
        drives.join(":"),
        row.bs,
        row.iodepth,
        row.read_percent,
        match row.options.as_str() {
            "" => FIRST_STUDY_OPTIONS,
            options => options,
        }
        .replace(' ', "\n"),
    );
    let mut stonewall = "";
    if row.read_before_bytes > 0 {
        text.push_str(&format!(
            "[{BEFORE}]\nrw=read\nbs=1m\niodepth=4\nsize={}\ntime_based=0\nramp_time=0\n\
             runtime=0\nnumber_ios=0\n",
            row.read_before_bytes
        ));
        stonewall = "stonewall\n";
    }
    let mut section = |name: &str, rw: &str, processes: u32, cpus: String| {
        text.push_str(&format!(
            "[{name}]\n{stonewall}rw={rw}\nnumjobs={processes}\ncpus_allowed={cpus}\n"
        ));
        stonewall = "";
    };
    let last = row.cores - 1;
    if !beside {
        section("row", &row.rw, row.processes, format!("0-{last}"));
        return text;
    }
    // Readers and writers of one run: half of the processes each, with the writers on the upper
    // cores if there are several.
    let random = if row.rw.starts_with("rand") {
        "rand"
    } else {
        ""
    };
    let half = (row.processes / 2).max(1);
    let split = row.cores / 2;
    let (low, high) = match split {
        0 => ("0-0".to_string(), "0-0".to_string()),
        split => (format!("0-{}", split - 1), format!("{split}-{last}")),
    };
    section("reader", &format!("{random}read"), half, low);
    section("writer", &format!("{random}write"), half, high);
    text
}

/// How long a job runs.
struct Span {
    ramp_us: u64,
    run_us: u64,
    /// It ends earlier after this many I/Os; 0 for no limit.
    most_ios: u64,
}

/// Ramp and run time: long enough for the number of I/Os, and for several fills of the queue.
fn span(row: &Row, settles: bool) -> Span {
    let iops = row.measured.iops;
    if settles && (row.rw.contains("write") || row.rw.contains("rw")) {
        let least_s = (LEAST_STEADY_WRITES / iops).ceil().min(LONGEST_WRITES_S) as u64;
        return Span {
            ramp_us: WRITES_RAMP_US,
            run_us: WRITES_US.max(least_s * 1_000_000),
            most_ios: 0,
        };
    }
    let in_flight = f64::from(row.iodepth) * f64::from(row.processes);
    let run_us = (WANTED_IOS.max(in_flight * 20.0) / iops * 1e6).clamp(SHORTEST_US, LONGEST_US);
    let run_us = run_us.max(LEAST_IOS / iops * 1e6);
    let ramp_us = (in_flight / iops * 6e6).clamp(2_000.0, LONGEST_US);
    let measured_ios = iops * (ramp_us + run_us) / 1e6;
    // Rounded to milliseconds and to a power of two, so that repeats of a row are the same job.
    Span {
        ramp_us: ((ramp_us / 1e3).ceil() as u64).saturating_mul(1000),
        run_us: ((run_us / 1e3).ceil() as u64).saturating_mul(1000),
        most_ios: (measured_ios * MOST_TIMES_IOS).log2().ceil().exp2() as u64,
    }
}

/// Simulates a job.
pub(crate) fn run_job(
    job: &JobFile,
    scheduler: &SchedulerChoice,
    drive: &DriveSpec,
    machine: &Machine,
    seed: u64,
) -> Result<Results, CalibrateError> {
    let setup = Setup {
        seed,
        ..Setup::new(Workload::Job(job), machine, drive, scheduler)
    };
    blklab_sim::run(&setup).map_err(|problem| CalibrateError::Setup {
        row: job.name.clone(),
        problem,
    })
}

impl Case {
    /// Simulates the case and returns the results of reads and writes as fio reports them; `None`
    /// if no I/O completed.
    ///
    /// # Errors
    /// If the job cannot be simulated.
    pub fn simulate(
        &self,
        drive: &DriveSpec,
        machine: &Machine,
        seed: u64,
    ) -> Result<[Option<Measured>; 2], CalibrateError> {
        let results = run_job(&self.job, &self.scheduler, drive, machine, seed)?;
        let side = |direction: Direction| {
            let mut all = blklab_stats::DirResults::default();
            let mut iops = 0.0;
            // What ran before is a group of its own.
            let before = results.jobs.iter().filter(|job| job.name == BEFORE).count();
            for group in results.groups.iter().skip(before) {
                let side = match direction {
                    Direction::Read => &group.read,
                    _ => &group.write,
                };
                iops += match side.iops_samples.count {
                    0 => side.iops(),
                    _ => side.iops_samples.mean(),
                };
                all.merge(side);
            }
            (!all.lat_ns.is_empty()).then(|| Measured {
                iops,
                lat_mean_us: Some(all.lat_ns.summary().mean_ns / 1e3),
                clat_p99_us: Some(all.clat_ns.percentile(99.0) as f64 / 1e3),
            })
        };
        Ok([side(Direction::Read), side(Direction::Write)])
    }
}
