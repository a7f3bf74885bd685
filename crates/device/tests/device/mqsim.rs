//! Our drive against MQSim's answers.
//!
//! `data/mqsim-results.csv` has MQSim's figures (commit 7ec40e3, its own
//! default device) for a million requests each. `data/mqsim-short.csv` has the
//! means of shorter runs of the same program with the same files, which its
//! cached map survives: see [`FAULTS`].

use crate::harness::{Outcome, RandomWork, closed_loop};
use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, Device, DriveSpec, registry};
use blklab_stats::Histogram;

const ROWS: &str = include_str!("../data/mqsim-results.csv");
const SHORT_ROWS: &str = include_str!("../data/mqsim-short.csv");
const WSRCH: &str = include_str!("../data/wsrch-small.trace");

/// What MQSim does wrong in the rows with a cached map that are shown and not
/// matched, by the kind of work.
///
/// It queues the pages of the map that it wants to program and never programs
/// them: its scheduler looks only at the queues of user and of collection writes.
/// In a read-only run, where no entry changes, it queues pages nevertheless
/// (98,746 `..._For_Mapping`, while `Issued_Flash_Program_CMD` stays zero). A page
/// so queued counts as being in DRAM, so once the cache has overflowed, after
/// 233,016 requests of that run, misses stop reading flash. Runs that end before
/// do not show this, and are matched.
const FAULTS: [(&str, &str); 3] = [
    (
        "randread",
        "MQSim takes pages of the map for being in DRAM that it wants to program, though nothing \
         changed: later misses read no flash",
    ),
    (
        "randwrite",
        "MQSim never programs the pages of the map that its writes change, and later does not \
         read them either",
    ),
    (
        "mix70",
        "MQSim never programs the pages of the map that its writes change, and later reads and \
         writes get pages of the map for nothing",
    ),
];

struct Row {
    mapping: &'static str,
    workload: &'static str,
    requests: u64,
    cells: Vec<&'static str>,
}

impl Row {
    fn number(&self, at: usize) -> Option<f64> {
        self.cells.get(at).and_then(|cell| cell.parse().ok())
    }

    fn is_cached(&self) -> bool {
        self.mapping.starts_with("cached")
    }

    /// What MQSim does wrong in this row.
    fn fault(&self) -> Option<&'static str> {
        let (kind, _) = self.workload.split_once("_qd")?;
        let fault = FAULTS.iter().find(|(of, _)| *of == kind);
        fault
            .filter(|_| self.is_cached() && self.requests == 1_000_000)
            .map(|(_, fault)| *fault)
    }

    /// The same work as far as MQSim does it right, and how we do there.
    fn before_the_fault(&self) -> String {
        let same = |row: &Row| (row.mapping, row.workload) == (self.mapping, self.workload);
        let Some(short) = rows(SHORT_ROWS).find(same) else {
            return "of a shorter run of it nothing is known".to_string();
        };
        let figure = short_figure(&short);
        format!(
            "its first {} requests took {} us, ours {}",
            short.requests,
            short.cells[3],
            figure.show().trim()
        )
    }
}

fn rows(text: &'static str) -> impl Iterator<Item = Row> {
    text.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        Row {
            mapping: cells[0],
            workload: cells[1],
            requests: cells[2].parse().expect("requests"),
            cells,
        }
    })
}

fn drive(row: &Row, write_cache: bool) -> Box<dyn Device> {
    let name = match row.is_cached() {
        true => "mqsim-default",
        false => "mqsim-ideal",
    };
    let mut text = registry::text(name).expect("listed").to_string();
    if !write_cache {
        text = text.replace("enabled = true", "enabled = false");
    }
    DriveSpec::parse(name, &text).expect("parses").build(798)
}

fn ours(row: &Row) -> Outcome {
    let Some((kind, rest)) = row.workload.split_once("_qd") else {
        return replay(drive(row, true).as_mut());
    };
    let (depth, write_cache) = match rest.strip_suffix("_nocache") {
        Some(depth) => (depth, false),
        None => (rest, true),
    };
    let read_percent = match kind {
        "randread" => 100,
        "randwrite" => 0,
        "mix70" => 70,
        other => panic!("{other}"),
    };
    let work = RandomWork {
        requests: row.requests,
        depth: depth.parse().expect("a depth"),
        read_percent,
        bytes: 4096,
        share: 0.5,
        seed: 798,
        sequential: false,
    };
    closed_loop(drive(row, write_cache).as_mut(), &work)
}

/// Replays the trace of `wsrch_small` at its own times.
fn replay(drive: &mut dyn Device) -> Outcome {
    let mut issued = Vec::new();
    let mut done = Vec::new();
    for (tag, line) in WSRCH.lines().enumerate() {
        let fields: Vec<u64> = line
            .split_whitespace()
            .map(|f| f.parse().expect("number"))
            .collect();
        let [at, _, sector, sectors, kind] = fields[..] else {
            panic!("{line}")
        };
        drive.advance(Nanos(at), &mut done);
        let op = if kind == 1 { Op::Read } else { Op::Write };
        issued.push((Nanos(at), op));
        drive.submit(
            Nanos(at),
            Command {
                tag: tag as u32,
                queue: 0,
                op,
                sector: Sector(sector),
                sectors: sectors as u32,
                fua: false,
            },
        );
    }
    drive.advance(Nanos(u64::MAX - 1), &mut done);
    assert_eq!(done.len(), issued.len());
    let (mut reads, mut writes) = (Histogram::new(), Histogram::new());
    for end in &done {
        let (since, op) = issued[end.tag as usize];
        let histogram = if op == Op::Read {
            &mut reads
        } else {
            &mut writes
        };
        histogram.record((end.at - since).0);
    }
    let last = done.last().expect("some").at;
    let total = reads.summary().mean_ns * reads.count() as f64
        + writes.summary().mean_ns * writes.count() as f64;
    Outcome {
        iops: done.len() as f64 * 1e9 / last.0 as f64,
        mean_us: total / done.len() as f64 / 1e3,
        reads,
        writes,
        errors: 0,
    }
}

/// One figure of a row: ours, how far off, and how far it may be.
struct Figure {
    ours: f64,
    theirs: Option<f64>,
    limit: f64,
}

impl Figure {
    fn off(&self) -> Option<f64> {
        self.theirs.map(|theirs| self.ours / theirs - 1.0)
    }

    fn is_within(&self) -> bool {
        self.off().is_none_or(|off| off.abs() <= self.limit)
    }

    fn show(&self) -> String {
        match self.off() {
            Some(off) => format!("{:9.1} {:+6.1}%", self.ours, off * 100.0),
            None => " ".repeat(17),
        }
    }
}

/// Reads within 5 %, writes and mixes within 10 %, p99 within 15 %.
fn figures(row: &Row, got: &Outcome) -> Vec<Figure> {
    let us = |histogram: &Histogram, percent| histogram.percentile(percent) as f64 / 1e3;
    let mean = match row.workload.starts_with("randread") {
        true => 0.05,
        false => 0.10,
    };
    [
        (got.iops, 3, mean),
        (got.mean_us, 4, mean),
        (got.read_mean_us(), 5, mean),
        (us(&got.reads, 50.0), 6, 0.15),
        (us(&got.reads, 99.0), 7, 0.15),
        (got.write_mean_us(), 8, mean),
        (us(&got.writes, 50.0), 9, 0.15),
        (us(&got.writes, 99.0), 10, 0.15),
    ]
    .into_iter()
    .map(|(ours, cell, limit)| Figure {
        ours,
        theirs: row.number(cell),
        limit,
    })
    .collect()
}

#[test]
fn every_row_of_mqsim() {
    println!(
        "{:7} {:22} {:>17} {:>17} {:>17} {:>17} {:>17} {:>17} {:>17} {:>17}",
        "map",
        "work",
        "iops",
        "mean",
        "read mean",
        "read p50",
        "read p99",
        "write mean",
        "write p50",
        "write p99"
    );
    let mut outside = Vec::new();
    for row in rows(ROWS) {
        let figures = figures(&row, &ours(&row));
        let shown: Vec<String> = figures.iter().map(Figure::show).collect();
        let beside = match row.fault() {
            Some(fault) => format!("NOT MATCHED: {fault}; {}", row.before_the_fault()),
            None => String::new(),
        };
        println!(
            "{:7} {:22} {} {beside}",
            &row.mapping[..6],
            row.workload,
            shown.join(" "),
        );
        if row.fault().is_none() && !figures.iter().all(Figure::is_within) {
            outside.push(row.workload);
        }
    }
    assert!(outside.is_empty(), "outside their limits: {outside:?}");
}

/// Our mean latency of a short run beside MQSim's.
fn short_figure(row: &Row) -> Figure {
    Figure {
        ours: ours(row).mean_us,
        theirs: row.number(3),
        limit: match row.workload.starts_with("randread") {
            true => 0.05,
            false => 0.10,
        },
    }
}

/// The cached map before MQSim's goes wrong.
#[test]
fn short_runs_with_a_cached_map() {
    for row in rows(SHORT_ROWS) {
        let figure = short_figure(&row);
        println!(
            "{:7} {:22} {:>8} requests, mean {}",
            &row.mapping[..6],
            row.workload,
            row.requests,
            figure.show()
        );
        assert!(figure.is_within(), "{}", row.workload);
    }
}
