//! What is run on a real machine to calibrate for it, and its results as rows.

use blklab_stats::{DirResults, Results};
use blklab_workload::fio::Direction;

use crate::row::{Measured, Row};

/// One job of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// fio's `rw`.
    pub rw: &'static str,
    /// fio's `bs`.
    pub bs: &'static str,
    /// fio's `iodepth`.
    pub iodepth: u32,
    /// Processes.
    pub processes: u32,
}

/// The jobs, in an order in which every second is like the one before it: those
/// are held out of the fit.
pub fn points(writes: bool) -> Vec<Point> {
    let mut points = Vec::new();
    let rws: &[&'static str] = match writes {
        true => &["randread", "randwrite"],
        false => &["randread"],
    };
    for &rw in rws {
        for (bs, iodepth, processes) in [
            ("4k", 1, 1),
            ("4k", 2, 1),
            ("4k", 8, 1),
            ("4k", 16, 1),
            ("4k", 64, 1),
            ("4k", 32, 1),
            ("4k", 16, 2),
            ("4k", 8, 2),
            ("16k", 1, 1),
            ("16k", 8, 1),
        ] {
            points.push(Point {
                rw,
                bs,
                iodepth,
                processes,
            });
        }
    }
    points
}

/// fio's job for all points, one behind the other.
pub fn host_job(points: &[Point], run_ms: u32) -> String {
    let mut text = format!(
        "[global]\nfilename=/dev/x\nioengine=io_uring\nregisterfiles=1\nfixedbufs=1\ndirect=1\n\
         norandommap=1\ngroup_reporting=1\ntime_based=1\nramp_time={}ms\nruntime={run_ms}ms\n",
        run_ms / 4
    );
    for (n, point) in points.iter().enumerate() {
        let Point {
            rw,
            bs,
            iodepth,
            processes,
        } = point;
        text.push_str(&format!(
            "[p{n}]\nstonewall\nnew_group\nrw={rw}\nbs={bs}\niodepth={iodepth}\n\
             numjobs={processes}\n"
        ));
    }
    text
}

/// A row for every point: the mean of a scheduler's repeats. `repeats` are its
/// results, each of which has the jobs in order.
pub fn host_rows(points: &[Point], scheduler: &str, repeats: &[Results], cores: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for (n, point) in points.iter().enumerate() {
        let name = format!("p{n}");
        let jobs = repeats
            .iter()
            .filter_map(|r| r.jobs.iter().find(|job| job.name == name));
        let direction = match point.rw.ends_with("write") {
            true => Direction::Write,
            false => Direction::Read,
        };
        let sides: Vec<&DirResults> = jobs
            .map(|job| match direction {
                Direction::Read => &job.read,
                _ => &job.write,
            })
            .collect();
        if sides.is_empty() {
            continue;
        }
        let mean = |of: &dyn Fn(&DirResults) -> f64| {
            sides.iter().map(|side| of(side)).sum::<f64>() / sides.len() as f64
        };
        rows.push(Row {
            study: "host".to_string(),
            scheduler: scheduler.to_string(),
            note: String::new(),
            rw: point.rw.to_string(),
            direction,
            bs: point.bs.to_string(),
            iodepth: point.iodepth,
            processes: point.processes,
            cores,
            devices: 1,
            measured: Measured {
                iops: mean(&DirResults::iops),
                lat_mean_us: mean(&|side| side.lat_ns.summary().mean_ns / 1e3),
                clat_p99_us: mean(&|side| side.clat_ns.percentile(99.0) as f64 / 1e3),
            },
        });
    }
    rows
}

/// Places of the rows that a fit may look at: every second point's.
pub fn every_second_point(points: &[Point], rows: &[Row]) -> Vec<usize> {
    let number = |row: &Row| {
        points.iter().position(|p| {
            (p.rw, p.bs, p.iodepth, p.processes) == (&*row.rw, &*row.bs, row.iodepth, row.processes)
        })
    };
    let is_fitted = |at: &usize| number(&rows[*at]).is_some_and(|n| n.is_multiple_of(2));
    (0..rows.len()).filter(is_fitted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_stats::JobResults;
    use blklab_workload::fio;

    #[test]
    fn the_job_is_one_that_fio_can_run() {
        let text = host_job(&points(true), 400);
        let job = fio::parse_str("t", &text, &|_| None, &|_, name| Err(name.to_string()));
        assert_eq!(job.unwrap().jobs.len(), points(true).len());
    }

    #[test]
    fn repeats_become_one_row_and_every_second_point_is_held_out() {
        let points = points(true);
        let repeat = |ios: u64| {
            let jobs = (0..points.len()).map(|n| {
                let side = DirResults {
                    ios,
                    runtime_ns: 1_000_000_000,
                    ..DirResults::default()
                };
                JobResults {
                    name: format!("p{n}"),
                    read: side.clone(),
                    write: side,
                    ..JobResults::default()
                }
            });
            Results {
                jobs: jobs.collect(),
                ..Results::default()
            }
        };
        let mut rows = host_rows(&points, "none", &[repeat(1000), repeat(3000)], 2);
        assert_eq!(rows.len(), points.len());
        assert!(rows.iter().all(|row| row.measured.iops == 2000.0));
        rows.extend(host_rows(&points, "bfq", &[repeat(1000)], 2));
        let fitted = every_second_point(&points, &rows);
        assert_eq!(fitted.len(), points.len());
        assert!(fitted.contains(&0) && !fitted.contains(&1));
    }
}
