//! `verify=`: what a job reads again, and what it finds.

use serde_json::Value;

use crate::support::{Outcome, Place};

/// A job that writes 64 KiB and logs each I/O.
const JOB: &str = "[v]\nfilename=f\nsize=64k\nverify=crc32c\n";
const LOGS: &str = "write_lat_log=v\nlog_offset=1\n";

fn run(place: &Place, options: &str, args: &[&str]) -> Outcome {
    // Ours is a drive; fio has a file of that size.
    let job = JOB.replace("filename=f", "filename=/dev/x\ndirect=1");
    place.file("v.fio", &format!("{job}{LOGS}{options}\n"));
    place.blklab(&[&["run", "v.fio", "--output-format", "json"], args].concat())
}

/// The I/Os of a log, in order: read or write, and where.
fn ours(place: &Place) -> Vec<(bool, u64)> {
    let log = std::fs::read_to_string(place.path("v_lat.1.log")).expect("a log");
    let number = |text: &str| text.trim().parse().expect("a number");
    let of_line = |line: &str| {
        let fields: Vec<u64> = line.split(',').map(number).collect();
        (fields[2] == 0, fields[4])
    };
    log.lines().map(of_line).collect()
}

/// The same of fio, and its results.
fn fios(options: &str) -> Option<(Vec<(bool, u64)>, Value)> {
    if !blklab_judges::have("fio") {
        return None;
    }
    let place = Place::new();
    place.file("v.fio", &format!("{JOB}{options}\nwrite_iolog=log\n"));
    let fio = std::path::Path::new("fio");
    let done = place.run(fio, &["v.fio", "--output-format=json"]).ok();
    let log = std::fs::read_to_string(place.path("log")).expect("a log");
    let access = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_io = fields.len() == 5 && ["read", "write"].contains(&fields[2]);
        is_io.then(|| (fields[2] == "read", fields[3].parse().expect("an offset")))
    };
    Some((log.lines().filter_map(access).collect(), done.json()))
}

#[test]
fn a_job_writes_and_verifies_as_fio_does() {
    for options in [
        "rw=write",
        "rw=write\nverify_backlog=3\nverify_backlog_batch=2",
        "rw=write\nloops=2\nioengine=libaio",
        "rw=write\nio_size=160k",
        "rw=write\nnumber_ios=6\nverify_backlog=2",
        "rw=write\nioengine=libaio\niodepth=4\nverify_backlog=4",
        "rw=write\nioengine=libaio\niodepth=8\nloops=2",
        "rw=write\ndo_verify=0",
        "rw=write\nfsync=3\nverify_pattern=0xab",
    ] {
        let place = Place::new();
        let json = run(&place, options, &[]).ok().json();
        let Some((theirs, results)) = fios(options) else {
            return;
        };
        assert_eq!(ours(&place), theirs, "{options}");
        for fact in ["total_ios", "io_bytes"] {
            for direction in ["read", "write"] {
                let of = |json: &Value| json["jobs"][0][direction][fact].clone();
                assert_eq!(of(&json), of(&results), "{options}: {direction} {fact}");
            }
        }
    }
}

#[test]
fn wrong_data_ends_the_job_with_fios_error() {
    let place = Place::new();
    for (fault, says) in [
        ("bit_rot=0.2", "crc32c: verify failed at offset"),
        ("stale_read=0.2", "verify: bad magic header, wanted acca"),
        (
            "misdirected_read=0.2",
            "verify: bad magic header, wanted acca",
        ),
    ] {
        let done = run(&place, "rw=write\nloops=4", &["--faults", fault]);
        assert_eq!(done.status, 1, "{fault}: {}", done.err);
        assert!(done.out.contains(says), "{fault}: {}", done.out);
        let job = &done.json()["jobs"][0];
        assert_eq!(
            (&job["error"], &job["total_err"]),
            (&84.into(), &1.into()),
            "{fault}"
        );
        let ios = ours(&place).len();
        assert!(ios < 4 * 32, "{fault}: it went on");

        let on = "rw=write\nloops=4\ncontinue_on_error=verify";
        let job = &run(&place, on, &["--faults", fault]).json()["jobs"][0];
        assert_eq!(job["error"], 84, "{fault}");
        assert!(job["total_err"].as_u64().expect("a number") > 1, "{fault}");
        assert_eq!(ours(&place).len(), 4 * 32, "{fault}: it goes on");

        let fatal = format!("{on}\nverify_fatal=1");
        run(&place, &fatal, &["--faults", fault]);
        assert_eq!(ours(&place).len(), ios, "{fault}: the first one ends it");
    }
}

/// A second write of a block has the number of its write in its header, so that the first one's
/// data is told from it.
#[test]
fn data_from_before_the_last_write_is_told_by_its_number() {
    let place = Place::new();
    let options = "rw=randwrite\nnorandommap\nbs=4k\nio_size=1m\ncontinue_on_error=verify";
    let done = run(&place, options, &["--faults", "stale_read=1"]);
    assert!(done.out.contains("bad header numberio"), "{}", done.out);
}

#[test]
fn another_job_finds_what_the_first_one_wrote() {
    let place = Place::new();
    let two = |second: &str| {
        let first = "[a]\nrw=write\nfilename=/dev/x\ndirect=1\nsize=64k\nverify=md5\ndo_verify=0\n";
        let b = "[b]\nstonewall\nfilename=/dev/x\ndirect=1\nsize=64k\n";
        place.file("two.fio", &format!("{first}{b}{second}\n"));
        place.blklab(&["run", "two.fio"])
    };
    for right in [
        "rw=read\nverify=md5",
        "rw=randread\nverify=meta",
        "rw=write\nverify_only\nverify=md5",
    ] {
        two(right).ok();
    }
    for (wrong, says) in [
        (
            "rw=read\nverify=sha1",
            "sha1: verify failed at offset 0, length 4096",
        ),
        (
            "rw=read\nverify=md5\nbs=8k",
            "bad header length 4096, wanted 8192",
        ),
        ("rw=read\nverify=md5\noffset=64k", "bad magic header"),
        (
            "rw=read\nverify_pattern=0xab\nverify=pattern",
            "pattern: verify failed",
        ),
    ] {
        let done = two(wrong);
        assert_eq!(done.status, 1, "{wrong}: {}", done.err);
        assert!(done.err.contains(says), "{wrong}: {}", done.err);
    }
}

#[test]
fn checksums_cost_time_and_buffered_jobs_read_through_the_cache() {
    let place = Place::new();
    let us_of = |kind: &str| {
        let options = format!("rw=write\nverify={kind}");
        let json = run(&place, &options, &["--machine", "xeon-10core"])
            .ok()
            .json();
        json["jobs"][0]["job_runtime"].as_u64().expect("a time")
            + json["jobs"][0]["usr_cpu"].as_f64().expect("a share") as u64
    };
    assert!(us_of("sha3-512") > us_of("crc32c"));
    place.file(
        "b.fio",
        "[b]\nrw=randwrite\nsize=1m\nverify=xxhash\nloops=2\n",
    );
    let json = place.json(&["run", "b.fio", "--fs", "ext2"]);
    let ios = |direction: &str| json["jobs"][0][direction]["total_ios"].clone();
    assert_eq!((ios("read"), ios("write")), (512.into(), 512.into()));
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let place = Place::new();
    for (options, args, says) in [
        (
            "rw=write\nverify_async=2",
            &[][..],
            "verify_async=2: fio 3.33 would compare",
        ),
        (
            "rw=write\nexperimental_verify=1",
            &[],
            "experimental_verify=1: fio 3.33 would",
        ),
        ("rw=write\nverify=pattern", &[], "verify_pattern=0xabcd"),
        (
            "rw=write\nverify=sha512\nverify_interval=128",
            &[],
            "no room for data",
        ),
        ("rw=randrw\nverify_only", &[], "verify_only"),
        ("rw=write\nzonemode=zbd\nzonesize=32k", &[], "zonemode"),
        ("rw=write", &["--power-loss-at", "1ms"], "--power-loss-at"),
        (
            "rw=write\ndirect=0",
            &["--faults", "bit_rot=1"],
            "put direct=1",
        ),
    ] {
        let done = run(&place, options, args);
        assert_eq!(done.status, 2, "{options}: {}", done.err);
        assert!(done.err.contains(says), "{options}: {}", done.err);
    }
}

/// fio divides the reads between writes by the time of the last pass, and so do we; that says
/// nothing of the drive.
#[test]
fn what_reads_between_writes_are_divided_by_is_said() {
    let note = "divided by the time of the last pass alone";
    let between = "rw=randwrite\nsize=4m\nioengine=libaio\niodepth=16\nverify_backlog=64";
    let after = "rw=randwrite\nsize=4m\nioengine=libaio\niodepth=16";
    for (options, is_said) in [(between, true), (after, false)] {
        let place = Place::new();
        let job = JOB.replace("filename=f", "filename=/dev/x\ndirect=1");
        place.file("v.fio", &format!("{job}{options}\n"));
        let done = place.blklab(&["compare", "v.fio", "--repeats", "1", "--schedulers", "none"]);
        assert_eq!(done.ok().out.contains(note), is_said, "{options}");
    }
}
