//! What io.cost is told of a drive, measured as resctl-bench does: the six
//! coefficients of its linear model, and the latencies of its QoS.
//!
//! Eight processes each: large requests one at a time for the bandwidth of a
//! direction, then 4 KiB at a depth of 256 in sequence and at random, reads and
//! writes; at last random ones at nine tenths of what that gave, whose latencies are
//! the QoS (facebookexperimental/resctl-demo, `iocost_coef_gen.py` and its
//! `iocost-qos`). Each job finds the drive as its description has it.

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

/// The percentile of latency that QoS is about, and how many times it may be.
const PERCENTILE: f64 = 95.0;
const TIMES: f64 = 1.5;

/// What one direction can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoCostSide {
    /// Bytes a second in large requests.
    pub bytes: u64,
    /// I/Os of 4 KiB a second in sequence.
    pub sequential_ios: u64,
    /// The same at random.
    pub random_ios: u64,
    /// What QoS allows 95 % of I/Os to take, in microseconds.
    pub latency_us: u64,
}

/// What io.cost is told of a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoCost {
    /// Of reads.
    pub reads: IoCostSide,
    /// Of writes.
    pub writes: IoCostSide,
}

impl IoCost {
    /// The six coefficients in the order and under the names of `io.cost.model`.
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

/// The section of a file of control groups that tells it, for the first drive.
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

/// Measures a drive, each job for so many seconds (resctl-bench: 120).
///
/// # Errors
/// Where a job cannot be simulated on it.
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
        // Processes have a place each. Each request is submitted by itself, as
        // resctl-bench has the kernel merge none.
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

    /// A drive that only takes time gives what its description says.
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
        // The drive's groups take what was written.
        let config = blklab_workload::cgroup::CgroupConfig::parse("measured", &lines);
        config.unwrap_or_else(|e| panic!("{e}"));
    }
}
