//! The jobs that a calibration runs on a real machine, and their results as rows.

use blklab_stats::{DirResults, Results};
use blklab_workload::fio::Direction;

use crate::row::{Measured, Row};
use crate::score::median;

/// A job of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// fio's `rw`.
    pub rw: &'static str,
    /// fio's `rwmixread`, for mixed jobs.
    pub read_percent: u32,
    /// fio's `bs`.
    pub bs: &'static str,
    /// fio's `iodepth`.
    pub iodepth: u32,
    /// Processes.
    pub processes: u32,
    /// Whether the fit does not use it.
    pub held_out: bool,
}

/// Jobs for the fit: the smallest and a large number of I/Os in flight, a large block size, and two
/// processes.
const FITTED: &[(&str, &str, u32, u32)] = &[
    ("randread", "4k", 1, 1),
    ("randread", "4k", 8, 1),
    ("randread", "4k", 32, 1),
    ("randread", "64k", 8, 1),
    ("randread", "4k", 16, 2),
    ("randwrite", "4k", 1, 1),
    ("randwrite", "4k", 16, 1),
    ("randwrite", "64k", 8, 1),
];

/// Jobs for the comparison: other depths and block sizes, and up to four processes.
const HELD_OUT: &[(&str, &str, u32, u32)] = &[
    ("randread", "4k", 2, 1),
    ("randread", "4k", 4, 1),
    ("randread", "4k", 64, 1),
    ("randread", "8k", 4, 1),
    ("randread", "16k", 1, 1),
    ("randread", "16k", 16, 1),
    ("randread", "128k", 4, 1),
    ("randread", "4k", 1, 2),
    ("randread", "4k", 8, 3),
    ("randread", "4k", 4, 4),
    ("randread", "4k", 32, 4),
    ("randwrite", "4k", 2, 1),
    ("randwrite", "4k", 64, 1),
    ("randwrite", "16k", 8, 1),
    ("randwrite", "4k", 8, 2),
    ("randwrite", "4k", 16, 4),
];

/// Mixed reads and writes, which are also held out; the last number is the percentage of reads.
const MIXED: &[(&str, u32, u32, u32)] = &[("4k", 16, 1, 70), ("8k", 4, 1, 30), ("16k", 4, 2, 50)];

/// All jobs; those for the fit come first.
pub fn points(writes: bool) -> Vec<Point> {
    let of = |jobs: &'static [(&'static str, &'static str, u32, u32)], held_out: bool| {
        let point = move |&(rw, bs, iodepth, processes)| Point {
            rw,
            read_percent: 50,
            bs,
            iodepth,
            processes,
            held_out,
        };
        jobs.iter().map(point)
    };
    let mixed = MIXED
        .iter()
        .map(|&(bs, iodepth, processes, read_percent)| Point {
            rw: "randrw",
            read_percent,
            bs,
            iodepth,
            processes,
            held_out: true,
        });
    of(FITTED, false)
        .chain(of(HELD_OUT, true))
        .chain(mixed)
        .filter(|point| writes || point.rw == "randread")
        .collect()
}

/// Writes fio's job file for all points, which run one after the other.
pub fn host_job(points: &[Point], run_ms: u32) -> String {
    let mut text = format!(
        "[global]\nfilename=/dev/x\nioengine=io_uring\nregisterfiles=1\nfixedbufs=1\ndirect=1\n\
         norandommap=1\ngroup_reporting=1\ntime_based=1\nramp_time={}ms\nruntime={run_ms}ms\n",
        run_ms / 4
    );
    for (n, point) in points.iter().enumerate() {
        let Point {
            rw,
            read_percent,
            bs,
            iodepth,
            processes,
            ..
        } = point;
        text.push_str(&format!(
            "[p{n}]\nstonewall\nnew_group\nrw={rw}\nrwmixread={read_percent}\nbs={bs}\n\
             iodepth={iodepth}\nnumjobs={processes}\n"
        ));
    }
    text
}

/// Returns a row for every point and direction, with the median of a scheduler's repeats. Each
/// point is a group of `repeats`, numbered as the points are.
pub fn host_rows(points: &[Point], scheduler: &str, repeats: &[Results], cores: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for (n, point) in points.iter().enumerate() {
        let directions: &[Direction] = match point.rw {
            "randread" => &[Direction::Read],
            "randwrite" => &[Direction::Write],
            _ => &[Direction::Read, Direction::Write],
        };
        for &direction in directions {
            // A job is one process only.
            let groups = repeats
                .iter()
                .filter_map(|r| r.groups.iter().find(|group| group.group_id == n as u32));
            let sides: Vec<&DirResults> = groups
                .map(|group| match direction {
                    Direction::Read => &group.read,
                    _ => &group.write,
                })
                .collect();
            if let Some(measured) = middle_run(&sides) {
                rows.push(row(point, scheduler, direction, cores, measured));
            }
        }
    }
    rows
}

/// The median of each quantity, which a disturbed repeat hardly changes, unlike a mean.
fn middle_run(sides: &[&DirResults]) -> Option<Measured> {
    let of = |figure: &dyn Fn(&DirResults) -> f64| {
        median(sides.iter().map(|side| figure(side)).collect())
    };
    Some(Measured {
        iops: of(&DirResults::iops)?,
        lat_mean_us: of(&|side| side.lat_ns.summary().mean_ns / 1e3),
        clat_p99_us: of(&|side| side.clat_ns.percentile(99.0) as f64 / 1e3),
    })
}

fn row(
    point: &Point,
    scheduler: &str,
    direction: Direction,
    cores: u32,
    measured: Measured,
) -> Row {
    Row {
        study: "host".to_string(),
        scheduler: scheduler.to_string(),
        note: if point.held_out { HELD_OUT_NOTE } else { "" }.to_string(),
        rw: point.rw.to_string(),
        direction,
        read_percent: point.read_percent,
        options: String::new(),
        bs: point.bs.to_string(),
        iodepth: point.iodepth,
        processes: point.processes,
        cores,
        devices: 1,
        read_before_bytes: 0,
        measured,
    }
}

/// Note of rows that the fit does not use.
pub const HELD_OUT_NOTE: &str = "held-out";

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_stats::GroupResults;
    use blklab_workload::fio;

    #[test]
    fn the_job_is_one_that_fio_can_run() {
        let text = host_job(&points(true), 400);
        let job = fio::parse_str("t", &text, &|_| None, &|_, name| Err(name.to_string()));
        assert_eq!(job.unwrap().jobs.len(), points(true).len());
    }

    #[test]
    fn what_is_held_out_is_no_job_that_was_fitted_to() {
        for writes in [false, true] {
            let all = points(writes);
            let job = |p: &Point| (p.rw, p.read_percent, p.bs, p.iodepth, p.processes);
            for (n, point) in all.iter().enumerate() {
                assert!(!all[..n].iter().any(|other| job(other) == job(point)));
            }
            assert!(all.iter().any(|p| p.held_out) && all.iter().any(|p| !p.held_out));
            assert!(writes || all.iter().all(|p| p.rw == "randread"));
        }
    }

    #[test]
    fn repeats_become_one_row_of_each_direction() {
        let points = points(true);
        let repeat = |ios: u64| {
            let groups = (0..points.len() as u32).map(|group_id| {
                let side = DirResults {
                    ios,
                    runtime_ns: 1_000_000_000,
                    ..DirResults::default()
                };
                GroupResults {
                    group_id,
                    read: side.clone(),
                    write: side,
                    ..GroupResults::default()
                }
            });
            Results {
                groups: groups.collect(),
                ..Results::default()
            }
        };
        let repeats = [repeat(1200), repeat(3600), repeat(96)];
        let rows = host_rows(&points, "none", &repeats, 2);
        assert_eq!(rows.len(), points.len() + MIXED.len());
        assert!(rows.iter().all(|row| row.measured.iops == 1200.0));
        let held_out = rows.iter().filter(|row| row.note == HELD_OUT_NOTE);
        assert_eq!(held_out.count(), HELD_OUT.len() + 2 * MIXED.len());
        assert_eq!(host_rows(&points, "none", &[], 2), []);
    }
}
