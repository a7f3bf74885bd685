//! `blklab probe`: drives of which the right answer is known.

use crate::support::Place;
use crate::support::loop_device::LoopDevice;
use crate::support::served::Served;

/// The line of a finding.
fn found<'a>(out: &'a str, name: &str) -> &'a str {
    let line = out.lines().find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("{name} is missing: {out}"))[22..].trim()
}

#[test]
fn models_are_seen_through_and_their_description_can_be_used() {
    let place = Place::new();
    let drives = [
        ("mx100-256", "16 KiB", "16", "striped"),
        ("mx100-256-ranges", "16 KiB", "16", "ranges of"),
        ("nvme", "16 KiB", "16", "striped"),
    ];
    for (name, chunk, parallel, mapping) in drives {
        let args = ["probe", "--drive", name, "--cliff-bytes", "64M"];
        let out = place.blklab(&args).ok().out;
        assert!(found(&out, "chunk ").starts_with(chunk), "{out}");
        assert!(
            found(&out, "chunks in parallel").starts_with(parallel),
            "{out}"
        );
        assert!(found(&out, "mapping ").starts_with(mapping), "{out}");
    }
    let args = [
        "probe",
        "--drive",
        "nvme",
        "--output-drive",
        "seen.toml",
        "--cliff-bytes",
        "64M",
    ];
    place.blklab(&args).ok();
    // What was described is a drive like the one that was probed.
    let iops = |drive: &str| {
        let fio = "--name=t --rw=randread --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
                   --filename=/dev/x --number_ios=20000";
        let mut args = vec!["run", "--drive", drive, "--"];
        args.extend(fio.split_whitespace());
        let json = place.json(&args);
        json["jobs"][0]["read"]["iops"].as_f64().expect("a rate")
    };
    let ratio = iops("seen.toml") / iops("nvme");
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

#[test]
fn nothing_is_detected_where_nothing_is() {
    let place = Place::new();
    let args = ["probe", "--drive", "null", "--output-drive", "null.toml"];
    let out = place.blklab(&args).ok().out;
    for name in [
        "chunk ",
        "mapping ",
        "write buffer",
        "write cliff",
        "boundary",
    ] {
        assert_eq!(found(&out, name), "not detected", "{out}");
    }
    place.blklab(&["show", "drive", "null"]).ok();
    let text = std::fs::read_to_string(place.path("null.toml")).expect("a description");
    assert!(text.contains("read_ns = 10000 "), "{text}");
    assert!(text.contains("parallelism = 64 "), "{text}");
}

#[test]
fn slow_writes_are_told_in_digits_that_say_something() {
    let place = Place::new();
    let args = ["probe", "--drive", "sd-card", "--cliff-bytes", "1G"];
    let out = place.blklab(&args).ok().out;
    let line = out.lines().find(|line| line.contains("random writes go"));
    let line = line.unwrap_or_else(|| panic!("no rates: {out}"));
    let rates: Vec<f64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
    // The last figure is the amount of data.
    assert_eq!(rates.len(), 3, "{line}");
    assert!(rates[..2].iter().all(|rate| *rate > 0.0), "{line}");
}

/// A drive ten times slower than the MX100, so that a busy machine's own
/// delays do not matter: 1.5 ms a read.
fn slow_drive(place: &Place) {
    let text = place.blklab(&["show", "drive", "mx100-256"]).ok().out;
    let text = text
        .replace("read_us = [95, 130]", "read_us = [1500, 1500]")
        .replace(
            "capacity_bytes = 256060514304",
            "capacity_bytes = 2147483648",
        )
        .replace("blocks_per_plane = 1048", "blocks_per_plane = 24")
        .replace("start_blocks = 12", "start_blocks = 5");
    // A controller that reads ahead hides what pairs of reads wait for.
    let (before, rest) = text.split_once("[read_cache]").expect("it has one");
    let (_, after) = rest.split_once("[gc]").expect("it comes next");
    let text = format!("{before}[gc]{after}");
    // What is assumed of the drive is not of this one.
    let lines = text.lines().filter(|line| !line.starts_with('"'));
    let text = lines.collect::<Vec<_>>().join("\n");
    place.file("slow.toml", &text);
}

#[test]
fn a_served_drive_is_seen_through() {
    let place = Place::new();
    slow_drive(&place);
    let served = Served::start(&place, &["--memory", "2G", "--drive", "slow.toml"]);
    let uri = format!("nbd+unix:///?socket={}", served.socket.display());
    let out = place.blklab(&["probe", &uri]).ok().out;
    assert!(found(&out, "chunk ").starts_with("16 KiB"), "{out}");
    assert!(
        found(&out, "chunks in parallel").starts_with("16 "),
        "{out}"
    );
    assert!(found(&out, "mapping ").starts_with("striped"), "{out}");
    assert_eq!(found(&out, "write buffer"), "not detected");
    assert!(out.contains("--destroy-data"), "{out}");
}

#[test]
fn a_real_drive_is_written_with_the_word_alone() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let place = Place::new();
    let path = device.path.as_str();
    let out = place.blklab(&["probe", path]).ok().out;
    assert!(out.starts_with(&format!("{path}: 64 MiB")), "{out}");
    // Only the kernel says so, of a loop device or a virtual machine's disk often wrongly.
    let of_parts = out.lines().filter(|line| line.contains("moving parts"));
    for line in of_parts {
        let source = "the kernel's queue/rotational (1, as many virtual disks have it) says";
        assert!(line.contains(source), "{out}");
    }
    let wrong = place.blklab(&["probe", path, "--destroy-data", "/dev/other"]);
    assert_eq!(wrong.status, 2, "{}", wrong.err);
    assert!(wrong.err.contains("named exactly"), "{}", wrong.err);
    for (args, word) in [
        (&["probe"][..], "required"),
        (&["probe", "/dev/null"][..], "not a block device"),
        (&["probe", "--drive", "mx1000"][..], "mx100"),
        (
            &["probe", "--drive", "null", "--cliff-bytes", "x"][..],
            "--cliff-bytes",
        ),
        (
            &[
                "probe",
                "--drive",
                "hdd-7200",
                "--cliff-bytes",
                "64M",
                "--output-drive",
                "d.toml",
            ][..],
            "hdd-7200: the description says that the drive has moving parts",
        ),
    ] {
        let done = place.blklab(args);
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(word), "{args:?}: {}", done.err);
    }
}
