//! Results, requests and time series as tables.

use std::process::Command;

use blklab_judges::not_possible;

use crate::support::{Outcome, Place};

const JOB: &str = "[global]\ndirect=1\nioengine=libaio\nfilename=/dev/x\n\
                   [reader]\nrw=randread\nbs=4k\niodepth=8\nnumber_ios=300\nsize=64m\n\
                   [writer]\nrw=write\nbs=16k\niodepth=2\nnumber_ios=100\nsize=64m\n";

fn blklab(place: &Place, words: &str) -> Outcome {
    place.blklab(&words.split(' ').collect::<Vec<_>>())
}

/// What a command prints that goes well.
fn ok(place: &Place, words: &str) -> String {
    blklab(place, words).ok().out
}

fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).expect("was written")
}

/// The cells of a CSV file under the names of its columns; none of ours has a comma.
fn column(text: &str, name: &str) -> Vec<String> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    let at = head.iter().position(|column| *column == name);
    let at = at.unwrap_or_else(|| panic!("{name} is not in {head:?}"));
    lines.map(|cells| cells[at].to_string()).collect()
}

fn numbers(text: &str, name: &str) -> Vec<u64> {
    let cells = column(text, name).into_iter();
    cells.map(|cell| cell.parse().expect("a number")).collect()
}

#[test]
fn every_request_has_a_row_whose_times_add_up() {
    let place = Place::new();
    place.file("t.fio", JOB);
    ok(
        &place,
        "run t.fio --scheduler mq-deadline --requests r.csv --series s.csv --output run.txt",
    );
    let requests = read(&place, "r.csv");
    let jobs = column(&requests, "job");
    let of = |job: &str| jobs.iter().filter(|name| *name == job).count();
    assert_eq!(of("reader"), 300);
    // Writes one after another merge, so that there are fewer requests than I/Os.
    assert!((1..=100).contains(&of("writer")), "{}", of("writer"));
    let sectors = numbers(&requests, "sectors").iter().sum::<u64>();
    assert_eq!(sectors, 300 * 8 + 100 * 32);
    let head = requests.lines().next().expect("a head");
    let stages: Vec<&str> = head
        .split(',')
        .filter(|name| name.starts_with("in_"))
        .collect();
    assert_eq!(stages.len(), 17);
    let mut sums = vec![0; jobs.len()];
    for stage in stages {
        let times = numbers(&requests, stage).into_iter();
        sums.iter_mut().zip(times).for_each(|(sum, ns)| *sum += ns);
    }
    let starts = numbers(&requests, "io_start_ns").into_iter();
    let ends = numbers(&requests, "io_end_ns").into_iter();
    let io_ns: Vec<u64> = ends.zip(starts).map(|(end, start)| end - start).collect();
    assert_eq!(sums, io_ns);
    let latencies = numbers(&requests, "latency_ns").into_iter();
    assert!(latencies.zip(&io_ns).all(|(latency, io)| latency <= *io));
    let submitted = numbers(&requests, "submitted_ns");
    let issued = numbers(&requests, "issued_ns");
    let completed = numbers(&requests, "completed_ns");
    for at in 0..jobs.len() {
        assert!(submitted[at] <= issued[at] && issued[at] < completed[at]);
    }
    let depths = numbers(&requests, "depth");
    assert!(depths.iter().all(|depth| (1..=10).contains(depth)));
    let series = read(&place, "s.csv");
    assert!(
        column(&series, "figure")
            .iter()
            .any(|figure| figure == "requests")
    );
}

#[test]
fn a_comparison_has_a_row_for_each_run_of_each_job() {
    let place = Place::new();
    place.file("t.fio", JOB);
    let common = "t.fio --schedulers none,bfq --repeats 2 --assumed 0";
    let csv = ok(&place, &format!("compare {common} --output-format csv"));
    assert_eq!(column(&csv, "setting").len(), 2 * 2 * 2);
    assert_eq!(column(&csv, "seed")[..4], ["1", "1", "2", "2"]);
    let json = ok(
        &place,
        "run t.fio --scheduler bfq --seed 2 --output-format json",
    );
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let ours = column(&csv, "latency_max_ns")[6].clone();
    assert_eq!(json["jobs"][0]["read"]["lat_ns"]["max"].to_string(), ours);
    ok(
        &place,
        &format!("compare {common} --output-format parquet --output t.parquet"),
    );
    let bytes = std::fs::read(place.path("t.parquet")).expect("was written");
    assert_eq!(
        (&bytes[..4], &bytes[bytes.len() - 4..]),
        (&b"PAR1"[..], &b"PAR1"[..])
    );
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let place = Place::new();
    place.file("t.fio", JOB);
    for (words, expected) in [
        (
            "run t.fio --requests r.txt",
            "--requests r.txt: what is right ends with .parquet",
        ),
        ("run t.fio --series t.fio", "the command reads that file"),
        (
            "run t.fio --requests a.csv --series a.csv",
            "writes that file too",
        ),
        (
            "compare t.fio --world serve --requests r.csv",
            "does not see each request's way",
        ),
    ] {
        let outcome = blklab(&place, words);
        assert_eq!(outcome.status, 2, "{words}: {}", outcome.err);
        let err = outcome.err;
        assert!(err.contains(expected), "{words}: {err}");
    }
    assert_eq!(place.files(), ["t.fio"]);
}

/// A Python of which `make setup` has made a place of its own, with these modules.
fn python_with(modules: &str) -> Option<Command> {
    let python = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/python/bin/python"
    );
    let found = Command::new(python)
        .args(["-c", &format!("import {modules}")])
        .output();
    match found.is_ok_and(|output| output.status.success()) {
        true => Some(Command::new(python)),
        false => {
            not_possible(&format!(
                "no Python with {modules} (make setup installs them with pip)"
            ));
            None
        }
    }
}

const READERS: &str = "
import duckdb, polars, sys
n, top = duckdb.sql(\"select count(*), max(latency_ns) from 'r.parquet' where job = 'reader'\").fetchall()[0]
frame = polars.read_parquet('r.parquet').filter(polars.col('job') == 'reader')
assert (n, top) == (frame.height, frame['latency_ns'].max()), (n, top)
assert frame['completed_ns'].dtype == polars.UInt64
print(n)
";

#[test]
fn duckdb_and_polars_read_the_requests() {
    let Some(mut python) = python_with("duckdb, polars") else {
        return;
    };
    let place = Place::new();
    place.file("t.fio", JOB);
    ok(&place, "run t.fio --requests r.parquet --output run.txt");
    let folder = place.path("r.parquet");
    let folder = folder.parent().expect("a folder");
    let read = python.args(["-c", READERS]).current_dir(folder).output();
    let read = read.expect("Python runs");
    let (out, err) = (&read.stdout, String::from_utf8_lossy(&read.stderr));
    assert_eq!(String::from_utf8_lossy(out), "300\n", "{err}");
}

#[test]
fn calls_of_fsync_have_a_time_and_a_rate() {
    let place = Place::new();
    let job = "[a]\nfilename=/dev/x\nrw=write\nbs=4k\nsize=64k\nfsync=4\n";
    place.file("sync.fio", job);
    let csv = ok(&place, "run sync.fio --drive nvme --output-format csv");
    assert_eq!(column(&csv, "direction"), ["write", "sync"]);
    let (ios, runtime_ns) = (numbers(&csv, "ios")[1], numbers(&csv, "runtime_ns")[1]);
    let iops: f64 = column(&csv, "iops")[1].parse().expect("a number");
    let expected = ios as f64 * 1e9 / runtime_ns as f64;
    assert!((iops / expected - 1.0).abs() < 1e-6, "{iops} {expected}");
}
