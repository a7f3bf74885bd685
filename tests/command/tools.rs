//! `blklab run --trace` and `blklab trace`: what tools that users know print of a run, judged
//! by the tools themselves.

use std::path::Path;

use crate::support::Place;
use crate::support::served::{have, judge};

/// Writers that merge, beside a reader that waits for each I/O.
const JOB: &str = "\
[global]
filename=/dev/sda
direct=1
[log writer]
rw=write
bs=4k
ioengine=libaio
iodepth=16
iodepth_batch_submit=8
size=1m
[db]
rw=randread
bs=4k
number_ios=100
size=1g
offset=1g
";

fn run(place: &Place, tool: &str, file: &str) {
    place.file("job.fio", JOB);
    let args = [
        "run",
        "job.fio",
        "--drive",
        "mx100-256",
        "--machine",
        "xeon-10core",
        "--scheduler",
        "mq-deadline",
        "--trace",
        file,
        "--as",
        tool,
    ];
    place.blklab(&args).ok();
}

fn read(place: &Place, file: &str) -> String {
    std::fs::read_to_string(place.path(file)).expect("a file")
}

/// The first lines that differ.
fn differences<'a>(one: &[&'a str], other: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let pairs = one.iter().zip(other).filter(|(one, other)| one != other);
    pairs.map(|(one, other)| (*one, *other)).take(5).collect()
}

#[test]
fn blkparse_prints_what_we_print_for_it() {
    if !have("blkparse") || !have("btt") {
        return;
    }
    let place = Place::new();
    run(&place, "blktrace", "run.blktrace");
    run(&place, "blkparse", "run.txt");
    let theirs = judge(&place, "sh", &["-c", "blkparse -q -i - < run.blktrace"]).out;
    let ours = read(&place, "run.txt");
    let (mut theirs, mut ours): (Vec<&str>, Vec<&str>) =
        (theirs.lines().collect(), ours.lines().collect());
    let shown = |text: &str| ours.iter().filter(|line| line.contains(text)).count();
    assert!(shown("  M  WS ") > 10, "no merges");
    assert!(shown("  U   N [log_writer] ") > 0, "no unplugs");
    // Neither orders what happens at one moment.
    theirs.sort_unstable();
    ours.sort_unstable();
    assert!(theirs == ours, "{:#?}", differences(&theirs, &ours));
    let btt = place.run(Path::new("btt"), &["-i", "run.blktrace"]).ok();
    assert!(btt.out.contains("Q2C"), "{}", btt.out);
}

/// iowatcher plots reads and writes of it, with as many I/Os a second as there were.
#[test]
fn iowatcher_plots_a_run() {
    if !have("iowatcher") {
        return;
    }
    let place = Place::new();
    run(&place, "blktrace", "run.blktrace");
    let args = ["-t", "run.blktrace", "-o", "run.svg"];
    place.run(Path::new("iowatcher"), &args).ok();
    let plot = read(&place, "run.svg");
    for label in ["Reads", "Writes", "IO Latency", "Queue Depth", "IOPs"] {
        assert!(plot.contains(label), "{label}");
    }
    // Each I/O is a piece of a line in the first plot.
    assert!(plot.matches("<path").count() > 10, "no I/O is drawn");
}

#[test]
fn a_recorded_trace_shows_what_the_run_showed() {
    let place = Place::new();
    run(&place, "text", "run.trace");
    for (tool, in_trace, in_run) in [
        ("blkparse", "", ""),
        // A trace names drives by their numbers, and a run as the job does.
        ("biosnoop", "259,0    ", "sda      "),
        ("biolatency", "'259,0'", "'sda'"),
        ("iostat", "259,0", "sda  "),
        ("mpstat", "", ""),
    ] {
        run(&place, tool, "of-run");
        let args = ["trace", "run.trace", "--as", tool, "-o", "of-trace"];
        place.blklab(&args).ok();
        let of_trace = read(&place, "of-trace").replace(in_trace, in_run);
        let of_run = read(&place, "of-run");
        let of_trace: Vec<&str> = of_trace.lines().collect();
        let of_run: Vec<&str> = of_run.lines().collect();
        assert!(of_run.len() > 2, "{tool}: {of_run:?}");
        assert!(
            of_trace == of_run,
            "{tool}: {:#?}",
            differences(&of_trace, &of_run)
        );
    }
}

#[test]
fn biosnoop_sees_each_read_and_mpstat_the_cpus() {
    let place = Place::new();
    run(&place, "biosnoop", "snoop");
    let snoop = read(&place, "snoop");
    let reads = snoop.lines().filter(|line| line.contains(" db ")).count();
    assert_eq!(reads, 100);
    let args = [
        "run",
        "job.fio",
        "--trace",
        "/dev/stdout",
        "--as",
        "biosnoop",
        "-o",
        "text",
    ];
    let printed = place.blklab(&args).ok();
    assert!(printed.out.starts_with("TIME(s) "), "{}", printed.out);
    run(&place, "mpstat", "mpstat");
    let mpstat = read(&place, "mpstat");
    let average = mpstat
        .lines()
        .find(|line| line.starts_with("Average:     all"));
    let idle: f64 = average
        .and_then(|line| line.split_whitespace().last()?.parse().ok())
        .expect("idle time");
    assert!((1.0..100.0).contains(&idle), "{mpstat}");
}

#[test]
fn what_a_trace_does_not_tell_is_refused() {
    let place = Place::new();
    run(&place, "text", "run.trace");
    let text = read(&place, "run.trace");
    let events: Vec<&str> = { text.lines() }
        .filter(|line| !line.contains(": tracing_mark_write: cpu"))
        .collect();
    place.file("events.trace", &events.join("\n"));
    let done = place.blklab(&["trace", "events.trace", "--as", "mpstat"]);
    assert_eq!(done.status, 2);
    assert!(
        done.err.contains("has not two marks of their times"),
        "{}",
        done.err
    );
    let done = place.blklab(&["trace", "run.trace", "--as", "iotop"]);
    assert_eq!(done.status, 2);
    assert!(done.err.contains("biosnoop"), "{}", done.err);
    let done = place.blklab(&["trace", "run.trace", "-o", "run.trace"]);
    assert_eq!(done.status, 2);
    place.file(
        "cut.trace",
        " fio-1 [000] ..... 1.0: block_rq_issue: 8,0 R\n",
    );
    let done = place.blklab(&["trace", "cut.trace", "--as", "biosnoop"]);
    assert_eq!(done.status, 2);
    assert!(done.err.contains("cut.trace:1"), "{}", done.err);
    run(&place, "blkparse", "run.blkparse");
    let done = place.blklab(&["trace", "run.blkparse", "--as", "biosnoop"]);
    assert_eq!(done.status, 2);
    let said = "a trace as blkparse, but `blklab trace` reads tracefs text";
    assert!(done.err.contains(said), "{}", done.err);
}

/// The issue of a flush comes behind the bio that asks for it, in another task's time.
#[test]
fn a_flush_is_issued_after_it_was_asked_for() {
    let place = Place::new();
    place.file(
        "wal.fio",
        "[wal]\nfilename=/dev/nvme0n1\nrw=write\nbs=8k\nsize=64k\nfdatasync=1\ndirect=1\n",
    );
    for scheduler in ["none", "mq-deadline", "bfq"] {
        let run = [
            "run",
            "wal.fio",
            "--drive",
            "nvme",
            "--scheduler",
            scheduler,
        ];
        place
            .blklab(&[&run[..], &["--trace", "wal.trace"]].concat())
            .ok();
        let text = read(&place, "wal.trace");
        let mut asked = 0;
        for line in text.lines() {
            asked += i32::from(line.contains("block_getrq") && line.contains(" FWS "));
            asked -= i32::from(line.contains("block_rq_issue") && line.contains(" FF "));
            assert!((0..=1).contains(&asked), "{scheduler}: {line}");
        }
        assert!(text.contains(" FF "), "{text}");
    }
}

#[test]
fn iostat_tells_whole_seconds() {
    let job = "[steady]\nfilename=/dev/sda\ndirect=1\nrw=randread\nbs=4k\nnumber_ios=2010\n\
               rate_iops=1000\nrate_process=linear\n";
    let place = Place::new();
    place.file("steady.fio", job);
    let args = [
        "run",
        "steady.fio",
        "--drive",
        "null",
        "--trace",
        "run.trace",
    ];
    place.blklab(&args).ok();
    let out = place
        .blklab(&["trace", "run.trace", "--as", "iostat"])
        .ok()
        .out;
    let reads = out.lines().filter(|line| line.starts_with("259,0"));
    let reads: Vec<f64> = reads
        .map(|line| line.split_whitespace().nth(1).expect("r/s"))
        .map(|text| text.parse().expect("a number"))
        .collect();
    assert_eq!(reads.len(), 2, "{out}");
    assert!(
        reads.iter().all(|rate| (990.0..=1010.0).contains(rate)),
        "{out}"
    );
}
