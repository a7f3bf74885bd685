//! `blklab compare --world host` on a loop device over tmpfs, under the
//! machine's own kernel.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::loop_device::{LoopDevice, instances, is_tracefs_there};
use crate::support::{Place, send_signal};

const READS: &str = "\
[global]
filename=/dev/ssd
direct=1
ioengine=psync
bs=4k
time_based
runtime=200ms
[reads]
rw=randread
numjobs=2
group_reporting
";

#[test]
fn every_scheduler_of_the_kernel_is_measured_and_all_is_put_back() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    let mut args = vec![
        "compare",
        "reads.fio",
        "--world",
        "host",
        "--device",
        &device.path,
    ];
    args.extend(["--repeats", "2", "--output-format", "json"]);
    args.extend(LoopDevice::trace_options());
    let done = place.file("reads.fio", READS).blklab(&args).ok();
    assert_eq!(device.state(), before);
    assert_eq!(instances(), 0);
    let json = done.json();
    assert_eq!(json["world"], "host");
    // What is set is the first, to which the others are compared.
    let mut names = device.schedulers();
    names.sort_by_key(|name| !before.contains(&format!("[{name}]")));
    assert_eq!(json["schedulers"], serde_json::json!(names));
    let rows = json["sections"][0]["directions"][0]["rows"]
        .as_array()
        .expect("rows");
    for row in rows {
        assert!(row["ios"].as_u64().expect("a count") > 0);
        assert_eq!(row["repeats"]["iops"].as_array().expect("repeats").len(), 2);
        assert!(
            row["cells"]["latency_p99_ns"]["value"]["mean"]
                .as_f64()
                .expect("p99")
                > 0.0
        );
    }
    let timelines = json["cpus"].as_array().expect("CPUs over time");
    assert_eq!(timelines.len(), rows.len());
    assert!(
        !timelines[0]["shares"][0]
            .as_array()
            .expect("spans")
            .is_empty()
    );
    if !is_tracefs_there() {
        blklab_judges::not_possible("latencies: no tracefs");
        return;
    }
    let value = |name: &str, at: usize| {
        let facts = json["why"].as_array().expect("facts");
        let fact = facts.iter().find(|fact| fact["name"] == name);
        fact.unwrap_or_else(|| panic!("{name} is missing"))["values"][at].as_f64()
    };
    for at in 0..rows.len() {
        assert_eq!(value("trace events lost", at), Some(0.0));
        let drive = value("reads in the drive, mean", at).expect("a mean");
        let whole = value("reads from first to last, mean", at).expect("a mean");
        assert!(drive > 0.0 && whole >= drive, "{drive} {whole}");
    }
}

#[test]
fn tunables_reach_the_kernel() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    let place = place.file("reads.fio", READS);
    let run = |set: &str| {
        let mut args = vec![
            "compare",
            "reads.fio",
            "--world",
            "host",
            "--device",
            &device.path,
        ];
        args.extend([
            "--schedulers",
            "mq-deadline",
            "--repeats",
            "1",
            "--no-warm-up",
            "--set",
            set,
        ]);
        args.extend(LoopDevice::trace_options());
        place.blklab(&args)
    };
    let done = run("mq-deadline.fifo_batch=3").ok();
    assert!(done.out.contains("fifo_batch=3"), "{}", done.out);
    let wrong = run("mq-deadline.fifo_bitch=3");
    assert_eq!(wrong.status, 2);
    assert!(
        wrong.err.contains("it has") && wrong.err.contains("fifo_batch"),
        "{}",
        wrong.err
    );
    assert_eq!(device.state(), before);
}

#[test]
fn a_signal_ends_the_run_and_all_is_put_back() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    place.file("long.fio", &READS.replace("200ms", "600"));
    for signal in ["-INT", "-TERM", "-HUP"] {
        let child = Command::new(env!("CARGO_BIN_EXE_blklab"))
            .args([
                "compare",
                "long.fio",
                "--world",
                "host",
                "--device",
                &device.path,
            ])
            .args(["--schedulers", "none", "--no-warm-up"])
            .args(LoopDevice::trace_options())
            .current_dir(place.path("."))
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program starts");
        // It is at work once the scheduler is changed and fio does I/O.
        let stat = device.queue("../stat");
        let ios = || -> u64 {
            let text = std::fs::read_to_string(&stat).expect("counters");
            text.split_whitespace()
                .next()
                .expect("reads")
                .parse()
                .expect("a number")
        };
        let first = ios();
        while !device.read("scheduler").contains("[none]") || ios() < first + 100 {
            std::thread::sleep(Duration::from_millis(5));
        }
        send_signal(&child, signal);
        let done = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(130), "{said}");
        assert!(said.contains("put back"), "{said}");
        assert_eq!(device.state(), before, "{signal}");
        assert_eq!(instances(), 0);
        let later = ios();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(ios(), later, "fio is still at work after {signal}");
    }
}

#[test]
fn a_signal_keeps_the_runs_that_have_ended() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    place.file("reads.fio", READS);
    let child = Command::new(env!("CARGO_BIN_EXE_blklab"))
        .args(["compare", "reads.fio", "--world", "host", "--device"])
        .args([&device.path, "--schedulers", "none,mq-deadline"])
        .args(["--repeats", "1000", "--no-warm-up"])
        .args(LoopDevice::trace_options())
        .current_dir(place.path("."))
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Both have run once when the first has its turn again.
    for scheduler in ["[none]", "[mq-deadline]", "[none]"] {
        while !device.read("scheduler").contains(scheduler) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    send_signal(&child, "-INT");
    let done = child.wait_with_output().expect("it ends");
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    assert_eq!(done.status.code(), Some(130), "{out}{err}");
    for said in ["mq-deadline", "put back", "of 1000 runs each"] {
        assert!(out.contains(said), "{out}{err}");
    }
    assert_eq!(device.state(), before);
    assert_eq!(instances(), 0);
}

#[test]
fn a_plan_changes_nothing() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    let job = READS.replace("randread", "randwrite");
    let done = place
        .file("writes.fio", &job)
        .blklab(&[
            "compare",
            "writes.fio",
            "--world",
            "host",
            "--device",
            &device.path,
            "--dry-run",
        ])
        .ok();
    assert!(done.out.contains("would be refused"), "{}", done.out);
    assert!(done.out.contains("as it was"), "{}", done.out);
    assert!(
        done.out.contains(&format!("filename={}", device.path)),
        "{}",
        done.out
    );
    assert_eq!(device.state(), before);
}
