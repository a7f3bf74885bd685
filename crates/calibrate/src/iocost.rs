//! The parameters of io.cost for a drive, measured like resctl-bench does: the six coefficients of
//! its linear model, and the latencies of its QoS.
//!
//! Eight processes run each job: large requests one at a time for the bandwidth in a direction,
//! then sequential and random 4 KiB at a depth of 256, reads and writes; finally random requests at
//! nine tenths of that rate, whose latencies are the QoS (facebookexperimental/resctl-demo,
//! `iocost_coef_gen.py` and `iocost-qos`). Each job starts with the drive in the state of its
//! description.

use std::fmt;

use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_sim::Machine;
use blklab_stats::DirResults;
use blklab_workload::fio;

use crate::model::CalibrateError;
use crate::work::run_job;

const PROCESSES: u32 = 8;
const DEPTH: u32 = 256;

/// The percentile of latency for the QoS, and the factor by which it may be exceeded.
const PERCENTILE: f64 = 95.0;
const TIMES: f64 = 1.5;

/// Throughput and latency in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoCostSide {
    /// Bytes per second with large requests.
    pub bytes: u64,
    /// Sequential I/Os of 4 KiB per second.
    pub sequential_ios: u64,
    /// Random I/Os of 4 KiB per second.
    pub random_ios: u64,
    /// The QoS latency target for 95 % of I/Os, in microseconds.
    pub latency_us: u64,
}

/// The parameters of io.cost for a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoCost {
    /// Parameters for reads.
    pub reads: IoCostSide,
    /// Parameters for writes.
    pub writes: IoCostSide,
}

impl IoCost {
    /// The six coefficients with the order and names of `io.cost.model`.
    pub fn coefficients(&self) -> [(&'static str, u64); 6] {
        [
            ("rbps", self.reads.bytes),
            ("rseqiops", self.reads.sequential_ios),
            ("rrandiops", self.reads.random_ios),
            ("wbps", self.writes.bytes),
            ("wseqiops", self.writes.sequential_ios),
            ("wrandiops", self.writes.random_ios),
        ]
    }
}

/// Formats the section of a control group file with these parameters for the first drive.
impl fmt::Display for IoCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[/]\nio.cost.model = 8:0 ctrl=user model=linear")?;
        for (name, value) in self.coefficients() {
            write!(f, " {name}={value}")?;
        }
        writeln!(
            f,
            "\nio.cost.qos = 8:0 enable=1 ctrl=user rpct={PERCENTILE:.2} rlat={} \
             wpct={PERCENTILE:.2} wlat={} min=50.00 max=100.00",
            self.reads.latency_us, self.writes.latency_us
        )
    }
}

/// Measures a drive, with this many seconds for each job (resctl-bench: 120).
///
/// # Errors
/// If a job cannot be simulated.
pub fn measure_iocost(
    drive: &DriveSpec,
    machine: &Machine,
    seconds: u32,
    seed: u64,
) -> Result<IoCost, CalibrateError> {
    let run = |rw: &str, options: &str| {
        let text = format!(
            "[job]\nfilename=/dev/disk\nioengine=libaio\ndirect=1\ngroup_reporting=1\n\
             norandommap=1\ntime_based=1\nruntime={seconds}\nnumjobs={PROCESSES}\nrw={rw}\n\
             {options}"
        );
        let job = fio::parse_str(rw, &text, &|_| None, &|_, name| {
            Err(format!("{name}: nothing is included"))
        });
        let job = job.map_err(|problem| CalibrateError::Row {
            row: rw.to_string(),
            problem: Box::new(problem),
        })?;
        let scheduler =
            SchedulerChoice::named("none").map_err(|problem| CalibrateError::Setup {
                row: rw.to_string(),
                problem: problem.into(),
            })?;
        let results = run_job(&job, &scheduler, drive, machine, seed)?;
        let mut all = DirResults::default();
        for group in &results.groups {
            all.merge(match rw.ends_with("read") {
                true => &group.read,
                false => &group.write,
            });
        }
        Ok::<_, CalibrateError>(all)
    };
    let side = |kind: &str| {
        // Each process has its own range. Each request is submitted by itself, because resctl-bench
        // disables merging.
        let apart = format!(
            "size={}%\noffset_increment={}%\n",
            100 / PROCESSES,
            100 / PROCESSES
        );
        let small = format!("bs=4k\niodepth={DEPTH}\n");
        let large = run(kind, &format!("bs=8m\niodepth=1\n{apart}"))?;
        let sequential = run(kind, &format!("{small}{apart}"))?;
        let random = run(&format!("rand{kind}"), &small)?;
        let each = (random.iops() * 0.9 / f64::from(PROCESSES)).max(1.0) as u64;
        let paced = run(
            &format!("rand{kind}"),
            &format!("{small}rate_iops={each}\n"),
        )?;
        let latency_ns = paced.clat_ns.percentile(PERCENTILE) as f64 * TIMES;
        Ok::<_, CalibrateError>(IoCostSide {
            bytes: large.bandwidth() as u64,
            sequential_ios: sequential.iops() as u64,
            random_ios: random.iops() as u64,
            latency_us: (latency_ns / 1e3).round() as u64,
        })
    };
    Ok(IoCost {
        reads: side("read")?,
        writes: side("write")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_device::registry;

    /// A drive with fixed times has the throughput of its description.
    #[test]
    fn a_drive_has_the_coefficients_of_its_description() {
        let values = [
            ("timing.read_interval_ns", "20000"),
            ("timing.write_interval_ns", "40000"),
            ("timing.read_bandwidth_mb_s", "1000"),
            ("timing.write_bandwidth_mb_s", "500"),
        ];
        let values = values.map(|(key, value)| (key.to_string(), value.to_string()));
        let (drive, _) = registry::load_with("null", &values).expect("a drive");
        let (machine, _) = Machine::load("generic-8").expect("a machine");
        let found = measure_iocost(&drive, &machine, 1, 1).expect("measured");
        let want = [1e9, 50e3, 50e3, 500e6, 25e3, 25e3];
        for ((name, value), want) in found.coefficients().into_iter().zip(want) {
            assert!((value as f64 / want - 1.0).abs() < 0.03, "{name}={value}");
        }
        let lines = found.to_string();
        assert!(lines.starts_with("[/]\nio.cost.model = 8:0 ctrl=user model=linear rbps="));
        // The drive's groups accept the written parameters.
        let config = blklab_workload::cgroup::CgroupConfig::parse("measured", &lines);
        config.unwrap_or_else(|e| panic!("{e}"));
    }
}
