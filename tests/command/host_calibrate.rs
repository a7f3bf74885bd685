//! `blklab calibrate --host`: a loop device measured, described, and predicted.

use crate::support::loop_device::LoopDevice;
use crate::support::{Outcome, Place};

/// The number behind a name in a TOML file.
fn number(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.split('=').next().is_some_and(|key| key.trim() == name));
    let line = line.unwrap_or_else(|| panic!("{name} is missing: {text}"));
    let value = line.split('=').nth(1).expect("a value");
    let value = value.split('#').next().expect("a value").trim();
    value.parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn a_loop_device_is_measured_fitted_to_and_predicted() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let place = Place::new();
    let path = device.path.as_str();
    let before = std::fs::read_to_string(device.queue("scheduler")).expect("sysfs");
    let args = [
        "calibrate",
        "--host",
        path,
        "--job-ms",
        "20",
        "--repeats",
        "1",
        "--evaluations",
        "3",
        "--fit",
        "costs.context_switch_ns",
        "--output-drive",
        "drive.toml",
        "--output-machine",
        "machine.toml",
        "--output-rows",
        "rows.csv",
    ];
    // A host that is busy with something else may not be like anything simulated.
    let mut tries = (0..3).map(|_| place.blklab(&args));
    let useless = |done: &Outcome| done.err.contains("the fit is useless");
    let Some(done) = tries.find(|done| !useless(done)) else {
        return;
    };
    let out = done.ok().out;
    for words in [
        "| costs.context_switch_ns |",
        "Fitted:",
        "Held out:",
        "pairs of schedulers that differ by more than 10 %",
    ] {
        assert!(out.contains(words), "{words} is missing: {out}");
    }
    let after = std::fs::read_to_string(device.queue("scheduler")).expect("sysfs");
    assert_eq!(after, before, "the scheduler is not put back");

    let drive = std::fs::read_to_string(place.path("drive.toml")).expect("a drive");
    assert!(drive.contains("interface = \"loop\""), "{drive}");
    assert_eq!(number(&drive, "capacity_bytes"), f64::from(64 << 20));
    let machine = std::fs::read_to_string(place.path("machine.toml")).expect("a machine");
    let cpus = std::thread::available_parallelism().expect("CPUs").get();
    assert_eq!(number(&machine, "count"), cpus as f64);

    // What was measured can be fitted to again, and tells the same: the same
    // rows, simulated on what was fitted.
    let again = [
        "calibrate",
        "rows.csv",
        "--drive",
        "drive.toml",
        "--machine",
        "machine.toml",
        "--hold-out=note=held-out",
        "--evaluations",
        "0",
    ];
    let again = place.blklab(&again).ok().out;
    // The line about pairs is of a host just measured.
    let medians = |text: &str| {
        let told = text.split("Fitted:").nth(1)?;
        Some(told.split("\nOf ").next()?.trim().to_string())
    };
    assert!(medians(&again).is_some(), "{again}");
    assert_eq!(medians(&again), medians(&out));
    // Only reads: without the word nothing was written.
    let rows = std::fs::read_to_string(place.path("rows.csv")).expect("rows");
    assert!(rows.lines().count() > 12, "{rows}");
    assert!(!rows.contains("write,"), "{rows}");
}
