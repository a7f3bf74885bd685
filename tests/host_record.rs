//! `blklab record`: a real kernel's trace, replayed in simulation.

#[path = "support/loop_device.rs"]
mod loop_device;
mod support;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use loop_device::{LoopDevice, instances, is_tracefs_there};
use support::Place;

#[test]
fn a_recording_is_a_trace_that_can_be_replayed() {
    let Some(device) = LoopDevice::new("a_recording_is_a_trace") else {
        return;
    };
    if !is_tracefs_there() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED a_recording_is_a_trace: no tracefs"
        );
        return;
    }
    let before = device.tune();
    let place = Place::new();
    let recorder = Command::new(env!("CARGO_BIN_EXE_blklab"))
        .args(["record", &device.path, "-o", "load.trace"])
        .current_dir(place.path("."))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    while instances() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The instance is there before its events are on.
    std::thread::sleep(Duration::from_millis(200));
    let fio = [
        "--name=r",
        "--rw=randread",
        "--bs=4k",
        "--direct=1",
        "--size=8m",
    ];
    let fio = Command::new("fio")
        .args(fio)
        .args(["--number_ios=500", &format!("--filename={}", device.path)])
        .stdout(Stdio::null())
        .status();
    assert!(fio.expect("fio runs").success());
    let stopped = Command::new("kill")
        .args(["-INT", &recorder.id().to_string()])
        .status();
    assert!(stopped.expect("kill runs").success());
    let done = recorder.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains(" 0 lost"), "{said}");
    assert_eq!((device.state(), instances()), (before, 0));
    let text = std::fs::read_to_string(place.path("load.trace")).expect("the recording");
    let count = |event: &str| text.lines().filter(|line| line.contains(event)).count();
    assert!(
        count("block_bio_queue: ") >= 500,
        "{}",
        count("block_bio_queue: ")
    );
    assert!(count("block_rq_issue: ") >= 500);
    assert_eq!(count("block_rq_issue: "), count("block_rq_complete: "));
    let replayed = place
        .blklab(&[
            "compare",
            "load.trace",
            "--schedulers",
            "none,bfq",
            "--repeats",
            "1",
        ])
        .ok();
    assert!(replayed.out.contains("bfq"), "{}", replayed.out);
}

#[test]
fn wrong_times_and_devices_are_refused() {
    let place = Place::new();
    for (device, seconds, word) in [
        ("/dev/null", "1", "not a block device"),
        ("/dev/null", "0", "--seconds 0"),
        ("/dev/null", "NaN", "--seconds NaN"),
    ] {
        let done = place.blklab(&["record", device, "-o", "x.trace", "--seconds", seconds]);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(word), "{}", done.err);
        assert!(place.files().is_empty(), "a refused recording left a file");
    }
}
