//! `--mkfs`: each run in a new file system on a loop device, which is gone
//! afterwards, also after an error or a signal.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::loop_device::{LoopDevice, instances};
use crate::support::{Place, send_signal};

const JOB: &str = "\
[global]
filename=/dev/ssd
size=8m
direct=0
bs=4k
[mixed]
rw=randrw
number_ios=200
";

/// Mounts of a device.
fn mounts(device: &str) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let of_device = text.lines().filter(|line| line.starts_with(device));
    of_device.map(str::to_owned).collect()
}

fn arguments<'a>(device: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["compare", "job.fio", "--world", "host", "--device", device];
    args.extend(["--mkfs", "ext4 -O ^has_journal", "--repeats", "1"]);
    args.extend(LoopDevice::trace_options());
    args.extend(more);
    args
}

#[test]
fn every_run_has_its_own_file_system() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let path = device.path.as_str();
    let place = Place::new();
    let place = place.file("job.fio", JOB);
    let refused = place.blklab(&arguments(path, &[]));
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("--mkfs writes"), "{}", refused.err);
    let plan = place.blklab(&arguments(path, &["--dry-run"])).ok().out;
    for words in [
        "mkfs.ext4 -F -q -O ^has_journal",
        "mount -t ext4",
        "umount",
        "drop_caches",
    ] {
        assert!(plan.contains(words), "{words}: {plan}");
    }
    let more = ["--destroy-data", path, "--output-format", "json"];
    let done = place.blklab(&arguments(path, &more)).ok();
    let json = done.json();
    let rows = json["sections"][0]["directions"][0]["rows"].as_array();
    assert_eq!(rows.expect("rows").len(), device.schedulers().len());
    let found = Command::new("blkid").arg("-p").arg(path).output();
    if let Ok(found) = found {
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        assert!(text.contains("ext"), "{text}");
    }
    assert_eq!((device.state(), instances()), (before, 0));
    assert!(mounts(path).is_empty(), "{:?}", mounts(path));
}

#[test]
fn an_error_or_a_signal_leaves_nothing_mounted() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.tune();
    let path = device.path.as_str();
    let place = Place::new();
    // More than the file system holds: a full disk.
    place.file("job.fio", &JOB.replace("size=8m", "size=200m"));
    let more = ["--destroy-data", path, "--schedulers", "none"];
    let done = place.blklab(&arguments(path, &more));
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("No space left"), "{}", done.err);
    assert!(mounts(path).is_empty(), "{:?}", mounts(path));
    assert_eq!(device.state(), before);

    place.file(
        "job.fio",
        &JOB.replace("number_ios=200", "time_based\nruntime=60"),
    );
    let child = Command::new(env!("CARGO_BIN_EXE_blklab"))
        .args(arguments(path, &more))
        .current_dir(place.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    while mounts(path).is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    send_signal(&child, "-TERM");
    let done = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("SIGTERM"), "{said}");
    assert!(mounts(path).is_empty(), "{:?}", mounts(path));
    assert_eq!((device.state(), instances()), (before, 0));
}

#[test]
fn wrong_file_systems_are_refused() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let place = Place::new();
    place.file("job.fio", &JOB.replace("size=8m\n", ""));
    let path = device.path.as_str();
    let base = ["compare", "job.fio", "--world", "host", "--device", path];
    for (mkfs, word) in [("ntfs", "can be made"), ("ext4", "needs size=")] {
        let mut args = base.to_vec();
        args.extend(["--mkfs", mkfs, "--destroy-data", path]);
        args.extend(LoopDevice::trace_options());
        let done = place.blklab(&args);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(word), "{}", done.err);
    }
    let done = place.blklab(&["compare", "job.fio", "--mkfs", "ext4"]);
    assert!(
        done.err.contains("--mkfs needs --world host"),
        "{}",
        done.err
    );
}
