//! What `blklab compare --world host` refuses, and that nothing was changed.

use std::process::Command;

use crate::support::loop_device::LoopDevice;
use crate::support::{Outcome, Place};

const WRITES: &str = "\
[writes]
filename=/dev/ssd
rw=randwrite
direct=1
bs=4k
size=1m
";

fn compare(place: &Place, device: &str, more: &[&str]) -> Outcome {
    let mut args = vec!["compare", "job.fio", "--world", "host", "--device", device];
    args.extend(["--repeats", "1", "--no-warm-up", "--schedulers", "none"]);
    args.extend(LoopDevice::trace_options());
    args.extend(more);
    place.blklab(&args)
}

fn refused(done: Outcome, word: &str) {
    assert_eq!(done.status, 2, "{}{}", done.out, done.err);
    assert!(done.err.contains(word), "{word} is missing: {}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn writing_needs_the_word_and_names_what_would_be_lost() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    place.file("job.fio", WRITES);
    let content = || std::fs::read(&device.path).expect("the device's content");
    let blank = content();
    refused(compare(&place, &device.path, &[]), "--destroy-data");
    refused(
        compare(&place, &device.path, &["--destroy-data", "/dev/other"]),
        "exactly",
    );
    let formatted = Command::new("mkfs.ext4")
        .args(["-q", "-F", &device.path])
        .status();
    if formatted.is_ok_and(|status| status.success()) {
        let held = content();
        assert_ne!(held, blank);
        refused(compare(&place, &device.path, &[]), "ext4");
        assert!(held == content(), "a refused job has written");
    }
    assert_eq!(device.state(), before);
    let held = content();
    compare(&place, &device.path, &["--destroy-data", &device.path]).ok();
    assert!(held != content(), "a permitted job has not written");
    assert_eq!(device.state(), before);
}

#[test]
fn a_mounted_device_is_called_so() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let place = Place::new();
    place.file("job.fio", WRITES);
    let folder = place.path("mnt");
    std::fs::create_dir(&folder).expect("a folder");
    let run = |program: &str, args: &[&str]| {
        let done = Command::new(program).args(args).status();
        done.is_ok_and(|status| status.success())
    };
    let folder = folder.display().to_string();
    let mounted =
        run("mkfs.ext4", &["-q", "-F", &device.path]) && run("mount", &[&device.path, &folder]);
    if !mounted {
        blklab_judges::not_possible("cannot mount here");
        return;
    }
    let done = compare(&place, &device.path, &[]);
    assert!(run("umount", &[&folder]));
    refused(done, "is mounted on");
}

#[test]
fn what_the_kernel_or_fio_cannot_do_is_one_message() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    place.file("job.fio", &WRITES.replace("randwrite", "randread"));
    let done = place.blklab(&[
        "compare",
        "job.fio",
        "--world",
        "host",
        "--device",
        &device.path,
        "--no-trace",
        "--schedulers",
        "none,cfq",
    ]);
    refused(done, "it has none");
    // Beyond the device's end fio does nothing and calls it a success.
    place.file(
        "job.fio",
        &WRITES.replace("randwrite", "randread\noffset=1g"),
    );
    let done = compare(&place, &device.path, &[]);
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("did no I/O"), "{}", done.err);
    assert_eq!(device.state(), before);
}

#[test]
fn a_missing_fio_names_its_package() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    place.file("job.fio", &WRITES.replace("randwrite", "randread"));
    let done = Command::new(env!("CARGO_BIN_EXE_blklab"))
        .args([
            "compare",
            "job.fio",
            "--world",
            "host",
            "--device",
            &device.path,
            "--no-trace",
        ])
        .env("PATH", place.path("."))
        .current_dir(place.path("."))
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("package `fio`"), "{said}");
    assert_eq!(device.state(), before);
}

#[test]
fn devices_that_are_none_are_refused() {
    let place = Place::new();
    place.file("job.fio", WRITES);
    refused(compare(&place, "/dev/no-such-drive", &[]), "no such device");
    refused(compare(&place, "/dev/null", &[]), "not a block device");
    refused(compare(&place, "job.fio", &[]), "not a block device");
}

#[test]
fn options_of_the_other_world_are_refused() {
    let place = Place::new();
    place.file("job.fio", WRITES);
    refused(
        place.blklab(&["compare", "job.fio", "--device", "/dev/null"]),
        "--world host",
    );
    refused(
        place.blklab(&["compare", "job.fio", "--dry-run"]),
        "--world host",
    );
    refused(
        place.blklab(&["compare", "job.fio", "--world", "host"]),
        "--device",
    );
    refused(
        compare(&place, "/dev/null", &["--drive", "mx100-256"]),
        "--device",
    );
    refused(compare(&place, "/dev/null", &["--seed", "7"]), "randseed");
}

#[test]
fn calibration_of_a_host_needs_a_drive_of_it() {
    let place = Place::new();
    for (args, word) in [
        (&["calibrate"][..], "required"),
        (
            &["calibrate", "--host", "/dev/null"][..],
            "not a block device",
        ),
        (
            &["calibrate", "--host", "/dev/nowhere"][..],
            "no such device",
        ),
        (
            &["calibrate", "x.csv", "--host", "/dev/null"][..],
            "cannot be used",
        ),
        (
            &["calibrate", "x.csv", "--destroy-data", "/dev/null"][..],
            "cannot be used",
        ),
    ] {
        let done = place.blklab(args);
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(word), "{args:?}: {}", done.err);
    }
}
