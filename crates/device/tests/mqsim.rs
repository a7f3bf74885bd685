//! Our drive against MQSim's answers (`data/mqsim-results.csv`, extracted from
//! MQSim commit 7ec40e3 with its own default device).

mod harness;

use blklab_device::registry;
use harness::{Work, closed_loop};

const ROWS: &str = include_str!("data/mqsim-results.csv");

/// A row of MQSim's.
struct Row {
    mapping: &'static str,
    workload: &'static str,
    iops: f64,
    mean_us: f64,
    read_mean_us: Option<f64>,
    read_p50_us: Option<f64>,
    read_p99_us: Option<f64>,
    write_mean_us: Option<f64>,
    write_p50_us: Option<f64>,
    write_p99_us: Option<f64>,
}

fn rows() -> Vec<Row> {
    ROWS.lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let number = |at: usize| cells[at].parse().ok();
            Row {
                mapping: cells[0],
                workload: cells[1],
                iops: number(3).expect("iops"),
                mean_us: number(4).expect("mean"),
                read_mean_us: number(5),
                read_p50_us: number(6),
                read_p99_us: number(7),
                write_mean_us: number(8),
                write_p50_us: number(9),
                write_p99_us: number(10),
            }
        })
        .collect()
}

fn ours(row: &Row) -> Option<harness::Outcome> {
    let (kind, rest) = row.workload.split_once("_qd")?;
    let (depth, cache) = match rest.strip_suffix("_nocache") {
        Some(depth) => (depth, false),
        None => (rest, true),
    };
    let read_percent = match kind {
        "randread" => 100,
        "randwrite" => 0,
        "mix70" => 70,
        _ => return None,
    };
    let mut text = registry::text("mqsim-default").expect("listed").to_string();
    if !cache {
        text = text.replace("enabled = true", "enabled = false");
    }
    if row.mapping.starts_with("cached") {
        return None;
    }
    let spec = blklab_device::DriveSpec::parse("mqsim-default", &text).expect("parses");
    let mut drive = spec.build(798);
    Some(closed_loop(
        drive.as_mut(),
        &Work {
            requests: 1_000_000,
            depth: depth.parse().expect("a number"),
            read_percent,
            bytes: 4096,
            share: 0.5,
            seed: 798,
            sequential: false,
        },
    ))
}

fn off(ours: f64, theirs: Option<f64>) -> String {
    match theirs {
        Some(theirs) => format!("{ours:9.1} {:+6.1}%", (ours / theirs - 1.0) * 100.0),
        None => " ".repeat(17),
    }
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
    for row in rows() {
        let Some(got) = ours(&row) else { continue };
        let us = |h: &blklab_stats::Histogram, p: f64| h.percentile(p) as f64 / 1e3;
        println!(
            "{:7} {:22} {} {} {} {} {} {} {} {}",
            &row.mapping[..6],
            row.workload,
            off(got.iops, Some(row.iops)),
            off(got.mean_us, Some(row.mean_us)),
            off(got.read_mean_us(), row.read_mean_us),
            off(us(&got.reads, 50.0), row.read_p50_us),
            off(us(&got.reads, 99.0), row.read_p99_us),
            off(got.write_mean_us(), row.write_mean_us),
            off(us(&got.writes, 50.0), row.write_p50_us),
            off(us(&got.writes, 99.0), row.write_p99_us),
        );
    }
}
