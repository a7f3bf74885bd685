//! `blklab record`: a real kernel's trace, replayed in simulation.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::loop_device::{LoopDevice, instances, is_tracefs_there};
use crate::support::{Place, send_signal};

/// A loop device, or `None` where requests cannot be traced on one.
fn device() -> Option<LoopDevice> {
    let device = LoopDevice::new()?;
    if is_tracefs_there() {
        return Some(device);
    }
    blklab_judges::not_possible("no tracefs");
    None
}

/// Records while fio reads 500 times, with these options.
fn record(device: &LoopDevice, place: &Place, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blklab"));
    command.args(["record", &device.path]).args(options);
    while_fio_reads(device, place, &mut command)
}

/// Records with this command while fio reads 500 times.
fn while_fio_reads(device: &LoopDevice, place: &Place, command: &mut Command) -> Output {
    let recorder = command
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
    send_signal(&recorder, "-INT");
    recorder.wait_with_output().expect("it ends")
}

/// Files may grow to no more than 8 KiB, as on a disk that is full after that.
#[test]
fn a_full_disk_leaves_no_half_of_a_recording() {
    let Some(device) = device() else {
        return;
    };
    let place = Place::new();
    place.file("load.trace", "an older one");
    let limited = "trap '' XFSZ; ulimit -f 16; exec \"$@\"";
    for (name, format) in [
        ("load.trace", "tracefs"),
        ("load.txt", "blkparse"),
        ("load.blktrace.0", "blktrace"),
    ] {
        let mut command = Command::new("sh");
        command
            .args(["-c", limited, "sh", env!("CARGO_BIN_EXE_blklab"), "record"])
            .args([&device.path, "-o", name, "--format", format]);
        let done = while_fio_reads(&device, &place, &mut command);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{format}: {said}");
        assert!(said.contains(&format!("{name}: cannot write: ")), "{said}");
        assert!(!said.contains(".blklab-"), "{said}");
        assert_eq!(place.files(), ["load.trace"], "{format}");
    }
    let kept = std::fs::read_to_string(place.path("load.trace"));
    assert_eq!(kept.expect("there"), "an older one");
}

#[test]
fn a_recording_is_a_trace_that_can_be_replayed() {
    let Some(device) = device() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    let done = record(&device, &place, &["-o", "load.trace"]);
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
    assert_eq!(count("block_getrq: "), count("block_rq_issue: "));
    for timing in ["open", "dependencies"] {
        let options = ["--schedulers", "none,bfq", "--repeats", "1"];
        let mut args = vec!["replay", "load.trace", "--timing", timing];
        args.extend(options);
        let replayed = place.blklab(&args).ok();
        assert!(replayed.out.contains("bfq"), "{}", replayed.out);
    }
}

/// What a tool prints of a recording.
fn shown(place: &Place, recording: &str, tool: &str) -> String {
    place.blklab(&["trace", recording, "--as", tool]).ok().out
}

#[test]
fn tools_show_a_recording() {
    let Some(device) = device() else {
        return;
    };
    let place = Place::new();
    let recorded = record(&device, &place, &["-o", "load.trace"]);
    assert!(recorded.status.success());
    let snoop = shown(&place, "load.trace", "biosnoop");
    let reads = snoop.lines().filter(|line| line.contains(" R ")).count();
    assert!(reads >= 500, "{snoop}");
    let latencies = shown(&place, "load.trace", "biolatency");
    let counts = { latencies.lines() }.filter_map(|line| line.split(':').nth(1)?.split('|').next());
    let counted: usize = counts.filter_map(|n| n.trim().parse::<usize>().ok()).sum();
    assert_eq!(counted, snoop.lines().count() - 1, "{latencies}");
    let iostat = shown(&place, "load.trace", "iostat");
    let last = { iostat.lines().rev() }.find(|line| !line.is_empty());
    let columns = last.expect("a drive").split_whitespace().count();
    assert_eq!(columns, 23, "{iostat}");
    let mpstat = shown(&place, "load.trace", "mpstat");
    assert!(mpstat.contains("Average:     all "), "{mpstat}");
}

/// mpstat sees the same CPUs as busy beside it.
#[test]
fn a_recording_tells_what_cpus_did() {
    let Some(device) = device() else {
        return;
    };
    let place = Place::new();
    let judge = Command::new("mpstat")
        .env("S_TIME_FORMAT", "ISO")
        .env("LC_ALL", "C")
        .args(["-P", "ALL", "3", "1"])
        .stdout(Stdio::piped())
        .spawn();
    let args = ["record", &device.path, "-o", "cpus.trace", "--seconds", "3"];
    place.blklab(&args).ok();
    let Ok(judge) = judge else {
        blklab_judges::missing("mpstat");
        return;
    };
    let theirs = judge.wait_with_output().expect("it ends").stdout;
    let averages = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("Average:"));
        lines.map(str::to_string).collect()
    };
    let theirs = averages(&String::from_utf8_lossy(&theirs));
    let ours = averages(&shown(&place, "cpus.trace", "mpstat"));
    // A line for all CPUs and one for each, under the same head.
    assert_eq!((ours.len(), &ours[0]), (theirs.len(), &theirs[0]));
    let of_all = |lines: &[String]| -> Vec<f64> {
        let words = lines[1].split_whitespace().skip(2);
        words.map(|word| word.parse().expect("a share")).collect()
    };
    // The two do not begin at the same moment.
    for (ours, theirs) in of_all(&ours).into_iter().zip(of_all(&theirs)) {
        assert!((ours - theirs).abs() < 20.0, "{ours} {theirs}");
    }
}

/// `blkparse` reads what is recorded in blktrace's form, and `btt` splits it.
#[test]
fn blktraces_own_tools_read_a_recording() {
    let Some(device) = device() else {
        return;
    };
    device.tune();
    let place = Place::new();
    let done = record(&device, &place, &["--format", "blktrace", "-o", "load"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let replayed = place.blklab(&["replay", "load", "--schedulers", "none", "--repeats", "1"]);
    let replayed = replayed.ok().out;
    let Ok(judge) = Command::new("blkparse")
        .args(["-i", "load", "-d", "load.bin"])
        .current_dir(place.path("."))
        .output()
    else {
        blklab_judges::missing("blkparse");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&judge.stderr), "");
    let text = String::from_utf8_lossy(&judge.stdout).into_owned();
    let count = |action: &str| {
        let is = |line: &&str| line.split_whitespace().nth(5) == Some(action);
        text.lines().filter(is).count()
    };
    assert!(count("Q") >= 500, "{text}");
    for action in ["G", "I", "D", "C"] {
        assert_eq!(count(action), count("Q"), "{action}");
    }
    // What blkparse printed is the same load.
    place.file("printed.txt", &text);
    let options = ["--schedulers", "none", "--repeats", "1"];
    let mut args = vec!["replay", "printed.txt"];
    args.extend(options);
    let printed = place.blklab(&args).ok().out;
    // Columns are as wide as the names of the files, in which alone the two differ.
    let table = |out: &str| {
        let words = out.lines().skip(1).flat_map(str::split_whitespace);
        let is_program = |word: &&str| !word.starts_with("--") && !word.contains("load.blktrace");
        let words: Vec<&str> = words.filter(is_program).collect();
        words.join(" ").replace("printed.txt ", "")
    };
    assert_eq!(table(&printed), table(&replayed));
    let btt = place.run(Path::new("btt"), &["-i", "load.bin"]).ok();
    assert!(btt.out.contains("Q2C"), "{}", btt.out);
}

#[test]
fn a_recording_as_blkparse_prints_it_is_read_back() {
    let Some(device) = device() else {
        return;
    };
    let place = Place::new();
    let done = record(&device, &place, &["--format", "blkparse", "-o", "load.txt"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let replayed = place
        .blklab(&["run", "load.txt", "--output-format", "json"])
        .ok();
    let json = replayed.json();
    let reads = json["jobs"][0]["read"]["total_ios"].as_u64();
    assert!(reads >= Some(500), "{reads:?}");
}

#[test]
fn a_full_disk_ends_a_recording_in_order() {
    let Some(device) = device() else {
        return;
    };
    let before = device.tune();
    let place = Place::new();
    for format in ["tracefs", "blkparse"] {
        let done = record(&device, &place, &["--format", format, "-o", "/dev/full"]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{format}: {said}");
        assert!(said.contains("/dev/full"), "{format}: {said}");
        assert!(said.contains("No space left"), "{format}: {said}");
        assert_eq!((device.state(), instances()), (before.clone(), 0));
    }
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
