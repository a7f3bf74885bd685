//! `--power-loss-at`: what a drive's loss of power does to a job, and what of
//! the job's data is gone.

use crate::support::{Outcome, Place};
use serde_json::Value;

/// Writes that go on after an error; `more` options.
fn job(more: &str) -> String {
    format!(
        "[w]\nfilename=/dev/x\ndirect=1\nrw=randwrite\nbs=4k\nnorandommap\n\
         number_ios=6000\n{more}\n"
    )
}

const QUEUED: &str = "ioengine=libaio\niodepth=16\ncontinue_on_error=all";

fn run(place: &Place, drive: &str, more: &str, at: &str) -> Outcome {
    place.file("w.fio", &job(more)).blklab(&[
        "run",
        "w.fio",
        "--drive",
        drive,
        "--power-loss-at",
        at,
        "--output-format",
        "json",
    ])
}

/// What the drive lost, and a number in it.
fn loss(json: &Value) -> &Value {
    &json["blklab"]["disks"][0]["power_loss"]
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key} in {of}"))
}

#[test]
fn every_request_ends_and_what_was_in_the_drive_ends_with_an_error() {
    let place = Place::new();
    for drive in ["nvme", "mx100-256", "sd-card", "hdd-7200", "null"] {
        let done = run(&place, drive, QUEUED, "2ms").ok();
        let json = done.json();
        let (loss, job) = (loss(&json), &json["jobs"][0]);
        assert_eq!(number(loss, "at_ns"), 2_000_000, "{drive}");
        let failed = number(&loss["failed"], "write");
        assert!((1..=16).contains(&failed), "{drive}: {loss}");
        // Every one of the job's writes came to an end, well or with EIO.
        assert_eq!(number(job, "total_err"), failed, "{drive}");
        assert_eq!(number(job, "error"), 5, "{drive}");
        let write = &job["write"];
        let ended = number(write, "total_ios") + number(write, "short_ios");
        assert!(ended >= 6000, "{drive}: {ended} of 6000 ended");
        assert!(number(loss, "ready_ns") >= 2_000_000, "{drive}");
        // The queue counts what ended well as acknowledged, by then and after.
        assert!(number(loss, "acknowledged_sectors") <= number(write, "total_ios") * 8);
    }
}

#[test]
fn a_volatile_cache_loses_what_it_acknowledged_and_capacitors_keep_it() {
    let place = Place::new();
    let volatile = run(&place, "nvme", QUEUED, "5ms").ok().json();
    let loss_of = loss(&volatile);
    let gone = number(loss_of, "lost_acknowledged_sectors");
    assert!(gone > 0 && gone <= number(loss_of, "acknowledged_sectors"));
    assert!(gone <= number(loss_of, "lost_sectors"));
    assert!(
        number(loss_of, "ready_ns") > 5_000_000,
        "it has to read its map"
    );
    let text = place.blklab(&["show", "drive", "nvme"]).ok().out.replace(
        "[write_cache]",
        "[write_cache]\npower_loss_protection = true",
    );
    place.file("protected.toml", &text);
    let kept = run(&place, "protected.toml", QUEUED, "5ms").ok().json();
    assert_eq!(number(loss(&kept), "lost_sectors"), 0);
    assert_eq!(number(loss(&kept), "lost_acknowledged_sectors"), 0);
    assert!(number(loss(&kept), "acknowledged_sectors") > 0);
}

#[test]
fn what_was_flushed_is_safe() {
    let place = Place::new();
    let each = "ioengine=psync\nfsync=1\ncontinue_on_error=all\nnumber_ios=200";
    for at in ["7ms", "7.3ms", "8.1ms", "9.77ms"] {
        let json = run(&place, "nvme", each, at).ok().json();
        let loss = loss(&json);
        // At most the one write that was not flushed yet.
        assert!(number(loss, "lost_acknowledged_sectors") <= 8, "{loss}");
        let acknowledged = number(loss, "acknowledged_sectors");
        assert!(acknowledged / 8 <= number(loss, "flushes") + 1, "{loss}");
        assert!(number(loss, "flushes") > 1);
    }
}

#[test]
fn a_job_that_does_not_go_on_ends_at_its_first_error() {
    let place = Place::new();
    let queued = "ioengine=libaio\niodepth=16";
    place.file("w.fio", &job(queued));
    let args = ["run", "w.fio", "--drive", "nvme", "--power-loss-at", "5ms"];
    let done = place.blklab(&args);
    assert!(
        done.out.contains("err= 5 (Input/output error)"),
        "{}",
        done.out
    );
    assert!(done.out.contains("power lost at 5000 usec"), "{}", done.out);
    let json = run(&place, "nvme", queued, "5ms").json();
    let write = &json["jobs"][0]["write"];
    assert!(number(write, "total_ios") < 6000);
}

#[test]
fn a_comparison_tells_what_each_scheduler_lost() {
    let place = Place::new();
    place.file("w.fio", &job(QUEUED));
    let done = place.blklab(&[
        "compare",
        "w.fio",
        "--schedulers",
        "none,mq-deadline,bfq",
        "--repeats",
        "2",
        "--power-loss-at",
        "5ms",
        "--details",
    ]);
    let out = done.ok().out;
    for fact in [
        "requests that a loss of power ended",
        "acknowledged sectors that went with it",
        "time until the drive was ready again",
    ] {
        assert!(out.contains(fact), "{fact} is missing:\n{out}");
    }
}

#[test]
fn a_row_that_never_loses_power_keeps_it_beside_the_option() {
    let place = Place::new();
    place.file("w.fio", &job(QUEUED));
    let done = place.blklab(&[
        "compare",
        "w.fio",
        "--schedulers",
        "none",
        "--repeats",
        "2",
        "--power-loss-at",
        "5ms",
        "--vary",
        "power_loss_at=never,8ms",
        "--details",
    ]);
    let out = done.ok().out;
    let fact = "requests that a loss of power ended";
    let line = out.lines().find(|line| line.contains(fact));
    let line = line.unwrap_or_else(|| panic!("{fact} is missing:\n{out}"));
    let cells: Vec<&str> = line
        .split(fact)
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(cells.len(), 2, "{line}");
    assert!(cells[0] == "-" || cells[0] == "0", "{line}");
    let of_other: u64 = cells[1].parse().unwrap();
    assert!(of_other > 0, "{line}");
}

#[test]
fn a_trace_loses_power_too() {
    let place = Place::new();
    let lines: Vec<String> = (0..400)
        .map(|n| format!("{} 0 {} 8 0", n * 20_000, n * 4096))
        .collect();
    place.file("w.trace", &lines.join("\n"));
    let args = [
        "run",
        "w.trace",
        "--drive",
        "nvme",
        "--power-loss-at",
        "4.004ms",
        "--output-format",
        "json",
    ];
    let json = place.blklab(&args).ok().json();
    let failed = number(&loss(&json)["failed"], "write");
    assert!(failed > 0);
    let write = &json["jobs"][0]["write"];
    assert_eq!(number(write, "total_ios") + failed, 400);
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place::new();
    let late = run(&place, "nvme", QUEUED, "100s");
    assert_eq!(late.status, 2);
    assert!(
        late.err
            .contains("--power-loss-at: the run under none was over after")
    );
    let of_loop = run(&place, "loop", QUEUED, "1ms");
    assert_eq!(of_loop.status, 2);
    assert!(of_loop.err.contains("is not simulated"), "{}", of_loop.err);
    let no_unit = run(&place, "nvme", QUEUED, "10");
    assert_eq!(no_unit.status, 2);
    assert!(
        no_unit.err.contains("a number with its unit"),
        "{}",
        no_unit.err
    );
}
