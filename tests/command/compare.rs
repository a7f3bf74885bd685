//! `blklab compare`: a job in, a verdict out.

use crate::support::{MIXED, Place};

#[test]
fn a_job_becomes_a_table_with_a_verdict() {
    let place = Place::new();
    let done = place
        .file("mixed.fio", MIXED)
        .blklab(&[
            "compare",
            "mixed.fio",
            "--drive",
            "mx100-256",
            "--schedulers",
            "noop,deadline,mq-deadline,ac",
            "--repeats",
            "3",
            "--details",
        ])
        .ok();
    for name in ["noop", "deadline", "mq-deadline", "ac"] {
        assert!(done.out.contains(name), "{name} is missing:\n{}", done.out);
    }
    for word in ["read", "write", "p99", "batches", "channel"] {
        assert!(
            done.out.to_lowercase().contains(word),
            "{word} is missing:\n{}",
            done.out
        );
    }
}

/// The answer, a row for each job and scheduler, and where the rest is.
#[test]
fn what_is_printed_fits_on_a_screen() {
    let place = Place::new();
    let job = format!("{MIXED}[other]\nrw=randrw\nbs=8k\n");
    place.file("two.fio", &job);
    let args = ["compare", "two.fio", "--schedulers", "none,kyber,bfq"];
    let args = [&args[..], &["--repeats", "2", "--drive", "mx100-256"]].concat();
    let short = place.blklab(&args).ok().out;
    assert!(short.lines().count() <= 40, "{short}");
    for part in [
        " read of mixed ",
        " write of other ",
        "what to do: ",
        "--details prints every figure",
    ] {
        assert!(short.contains(part), "{part} is missing:\n{short}");
    }
    let details = place.blklab(&[&args[..], &["--details"]].concat()).ok().out;
    let normal = ["--output-format", "normal"];
    let normal = place.blklab(&[&args[..], &normal].concat()).ok().out;
    assert!(
        details.lines().count() > 80 && details == normal,
        "{details}"
    );
    let answer = ["--output-format", "answer"];
    let answer = place.blklab(&[&args[..], &answer].concat()).ok().out;
    assert!(short.starts_with(answer.trim_end()), "{answer}");
}

#[test]
fn the_page_needs_no_network() {
    let place = Place::new();
    place
        .file("mixed.fio", MIXED)
        .blklab(&[
            "compare",
            "mixed.fio",
            "--schedulers",
            "none,mq-deadline",
            "--repeats",
            "2",
            "--html",
            "page.html",
        ])
        .ok();
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    assert!(page.starts_with("<!DOCTYPE html>"));
    assert!(page.contains("<svg") && page.contains("mq-deadline"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "the page fetches {outside}");
    }
}

#[test]
fn json_holds_what_the_table_shows() {
    let place = Place::new();
    let done = place
        .file("mixed.fio", MIXED)
        .blklab(&[
            "compare",
            "mixed.fio",
            "--schedulers",
            "none,mq-deadline",
            "--repeats",
            "2",
            "--output-format",
            "json",
        ])
        .ok();
    let json = done.json();
    assert_eq!(
        json["schedulers"],
        serde_json::json!(["none", "mq-deadline"])
    );
    assert_eq!(json["repeats"], 2);
}

#[test]
fn a_tunable_changes_the_run() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let run = |set: &str| {
        let args = [
            "run",
            "mixed.fio",
            "--drive",
            "mx100-256",
            "--scheduler",
            "mq-deadline",
            "--output-format",
            "json",
            "--set",
            set,
        ];
        place.blklab(&args).ok().out
    };
    assert_ne!(
        run("mq-deadline.fifo_batch=1"),
        run("mq-deadline.fifo_batch=64")
    );
}

#[test]
fn a_scheduler_is_compared_with_itself_set_otherwise() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let list = "mq-deadline,mq-deadline:fifo_batch=1:writes_starved=9";
    let args = [
        "compare",
        "mixed.fio",
        "--schedulers",
        list,
        "--repeats",
        "1",
        "--details",
    ];
    let out = place.blklab(&args).ok().out;
    let variant = " mq-deadline fifo_batch=1 writes_starved=9 ";
    assert!(out.contains(variant), "{out}");
}

#[test]
fn fio_options_behind_two_dashes_are_a_job() {
    let place = Place::new();
    let done = place
        .blklab(&[
            "compare",
            "--schedulers",
            "none,mq-deadline",
            "--repeats",
            "1",
            "--",
            "--name=t",
            "--filename=/dev/x",
            "--direct=1",
            "--rw=randread",
            "--bs=4k",
            "--number_ios=500",
        ])
        .ok();
    assert!(done.out.contains("mq-deadline"), "{}", done.out);
}

#[test]
fn a_trace_is_replayed_open_and_closed() {
    let trace = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/traces/tpcc-small.trace"
    );
    let place = Place::new();
    for how in [
        &["--replay", "open"][..],
        &["--replay", "closed", "--depth", "8"],
    ] {
        let mut args = vec![
            "run",
            trace,
            "--scheduler",
            "mq-deadline",
            "--output-format",
            "json",
        ];
        args.extend(how);
        let done = place.blklab(&args).ok();
        let json = done.json();
        let job = &json["jobs"][0];
        let ios = |dir: &str| job[dir]["total_ios"].as_u64().expect("a count");
        assert_eq!(ios("read") + ios("write"), 200, "{how:?}");
    }
}

#[test]
fn a_drive_that_does_not_start_fresh_is_listed_as_such() {
    let listed = Place::new().blklab(&["list", "drives"]).ok().out;
    let line = |name: &str| {
        let found = listed.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("{name} is missing: {listed}"))
    };
    assert!(line("980pro-1tb").contains("(starts aged; "), "{listed}");
    assert!(line("mx100-256 ").contains("(starts filled"), "{listed}");
    for name in ["rocket4plus-2tb", "hdd-7200 ", "null "] {
        assert!(!line(name).contains("starts"), "{listed}");
    }
}

#[test]
fn the_thesis_patterns_run_one_by_one_and_together() {
    let place = Place::new();
    let listed = place.blklab(&["list", "jobs"]).ok().out;
    assert!(
        listed.lines().filter(|l| l.starts_with("thesis/")).count() == 8,
        "{listed}"
    );
    let all = place.blklab(&["show", "job", "thesis/all"]).ok().out;
    // The same six, only shorter.
    let short = all
        .replace("runtime=1\ntime_based\nramp_time=200ms", "number_ios=300")
        .replace("iodepth=32", "iodepth=16");
    let done = place.file("all.fio", &short).blklab(&[
        "run",
        "all.fio",
        "--scheduler",
        "ac",
        "--drive",
        "mx100-256-ranges",
        "--output-format",
        "json",
    ]);
    let json = done.ok().json();
    assert_eq!(json["jobs"].as_array().map(Vec::len), Some(6));
}

/// Readers beside one that writes through to the drive, whose runs differ much.
const UNSTEADY: &str = "\
[global]
filename=/dev/x
direct=1
time_based
runtime=300ms
[db]
ioengine=libaio
rw=randrw
rwmixread=80
bs=8k
iodepth=4
numjobs=8
[wal]
ioengine=psync
rw=write
bs=8k
fdatasync=1
";

#[test]
fn no_interval_of_a_change_goes_below_nothing() {
    let place = Place::new();
    place.file("unsteady.fio", UNSTEADY);
    let options = [
        "--drive",
        "mx100-256",
        "--repeats",
        "3",
        "--html",
        "page.html",
    ];
    let args = [&["compare", "unsteady.fio", "--assumed", "0"], &options[..]].concat();
    place.blklab(&args).ok();
    let page = std::fs::read_to_string(place.path("page.html")).expect("a page");
    let number = |text: &str| -> Option<f64> { text.trim().parse().ok() };
    for (before, after) in page.match_indices(" % ±").map(|(at, _)| page.split_at(at)) {
        let start = before.rfind(['+', '-']).expect("a sign");
        let change = number(&before[start..]).expect("a change");
        let half_width = after[" % ±".len()..].split(" %").next();
        let Some(half_width) = half_width.and_then(number) else {
            continue;
        };
        assert!(change - half_width >= -100.1, "{change} ±{half_width}");
    }
    // Where they would, both ends are told.
    assert!(page.contains(" % to "), "no such change");
}

#[test]
fn a_goal_that_a_job_does_not_have_names_those_it_has() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let args = ["compare", "mixed.fio", "--drive", "null", "--repeats", "1"];
    let done = place.blklab(&[&args[..], &["--goal", "mixed.sync.p99"]].concat());
    assert_eq!(done.status, 2, "{}", done.err);
    for part in ["no such figure", "those of mixed are", "mixed.read.p99"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
}

#[test]
fn a_job_that_is_named_twice_is_refused() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let done = place.blklab(&["compare", "mixed.fio", "mixed.fio", "--drive", "null"]);
    assert_eq!((done.status, done.out.as_str()), (2, ""));
    assert!(
        done.err.contains("mixed.fio is named twice"),
        "{}",
        done.err
    );
}
