//! Lists of calls: a recorded program, and programs of one's own, on a simulated drive.

use crate::support::{Outcome, Place};

const COPY: &str = "\
# Copies a file of 4 MiB, twice.
file /in 4M
directory /out

[cp]
repeat 2
  open from /in read
  open to /out/copy write create truncate
  repeat 32
    read from 128K
    write to 128K
  end
  fsync to
  close from
  close to
end
stat /none = ENOENT
wait other

[other]
sleep 1ms
mkdir /out/more
think 2ms
";

fn run_on(place: &Place, fs: &str, list: &str, options: &[&str]) -> Outcome {
    place.file("t.calls", list);
    let run = ["run", "t.calls", "--drive", "mx100-256", "--fs", fs];
    place.blklab(&[&run, options].concat())
}

fn run(place: &Place, list: &str, options: &[&str]) -> Outcome {
    run_on(place, "ext2", list, options)
}

/// What became of a program's calls of a kind.
fn times<'a>(
    json: &'a serde_json::Value,
    program: &str,
    call: &str,
) -> Option<&'a serde_json::Value> {
    let programs = json["blklab"]["calls"].as_array().expect("programs");
    let of = programs.iter().find(|of| of["program"] == program);
    let calls = of.expect("the program")["calls"].as_array();
    calls
        .expect("calls")
        .iter()
        .find(|times| times["call"] == call)
}

#[test]
fn a_list_runs_and_tells_where_its_time_went() {
    for fs in ["ext2", "vfat"] {
        let place = Place::new();
        let json = run_on(&place, fs, COPY, &["--output-format", "json"])
            .ok()
            .json();
        let of = |call, what: &str| {
            let times = times(&json, "cp", call).expect("it was called");
            times[what].as_u64().expect("a count")
        };
        assert_eq!(
            (
                of("read", "calls"),
                of("write", "calls"),
                of("fsync", "calls")
            ),
            (64, 64, 2)
        );
        assert_eq!((of("stat", "calls"), of("stat", "errors")), (1, 1));
        // The file is read from the drive once, and both copies are written to it.
        assert!(
            of("read", "waits_ns") > 0 && of("fsync", "waits_ns") > 1_000_000,
            "{json:#}"
        );
        let pages = |what: &str| json["blklab"]["page_cache"][what].as_u64();
        assert_eq!(pages("readahead_pages"), Some(1024));
        assert_eq!(pages("written_pages"), Some(2048));
        let other = times(&json, "other", "think").expect("it computed");
        assert_eq!(other["total_ns"], 2_000_000);
        let cp = &json["jobs"][0];
        assert_eq!(cp["jobname"], "cp");
        assert_eq!(cp["read"]["io_bytes"], 8 << 20);
        assert_eq!(cp["write"]["io_bytes"], 8 << 20);
    }
}

#[test]
fn the_table_of_calls_is_in_the_text() {
    let place = Place::new();
    let text = run(&place, COPY, &[]).ok().out;
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("fsync "));
    let words: Vec<&str> = line.expect("fsync's row").split_whitespace().collect();
    assert_eq!(words[1..3], ["2", "0"], "{text}");
    assert!(text.contains("throttled"), "{text}");
    // The same list gives the same text.
    assert_eq!(run(&place, COPY, &[]).ok().out, text);
}

#[test]
fn what_a_call_does_otherwise_than_its_line_says_is_told() {
    let place = Place::new();
    for (line, message) in [
        ("unlink /none", "t.calls:2: unlink: it fails with ENOENT"),
        (
            "mkdir /a = EEXIST",
            "t.calls:2: mkdir: it does not fail with EEXIST",
        ),
        (
            "mkdir /a = EEXIST\n[q]\nwait p",
            "t.calls:2: mkdir: it does not fail with EEXIST",
        ),
        (
            "open f /x read = ENOENT\nread f 4k",
            "t.calls:3: read: it fails with EBADF",
        ),
        ("raed f 4k", "t.calls:2: raed: there is no such call"),
    ] {
        let refused = run(&place, &format!("[p]\n{line}\n"), &[]);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(
            refused.err.starts_with(&format!("blklab: {message}")),
            "{}",
            refused.err
        );
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
    let raw = place.blklab(&["run", "t.calls", "--fs", "raw"]);
    assert_eq!(raw.status, 2);
    place.file("t.calls", "[p]\nsync\n");
    let raw = place.blklab(&["run", "t.calls"]);
    assert!(
        raw.err.contains("right is --fs ext2 or --fs vfat"),
        "{}",
        raw.err
    );
    let fio = place.blklab(&["run", "t.calls", "--fs", "ext2", "--override", "bs=4k"]);
    assert_eq!(fio.status, 2, "{}", fio.err);
}

#[test]
fn threads_share_files_and_programs_start_each_other() {
    let place = Place::new();
    let list = "[p]\nopen f /f write create\nwrite f 64K\nstart p/t\nwait p/t\nstart q\n\
                wait q\nstat /moved\n[p/t]\npwrite f 4K 1M\nfdatasync f\nclose f\n\
                [q]\nrename /f /moved\nunlink /f = ENOENT\n";
    let json = run(&place, list, &["--output-format", "json"]).ok().json();
    let wrote = times(&json, "p/t", "fdatasync").expect("it was called");
    assert!(wrote["waits_ns"].as_u64() > Some(0), "{wrote}");
    assert!(times(&json, "q", "rename").is_some());
}

#[test]
fn caches_that_are_dropped_are_read_again() {
    let place = Place::new();
    let list = |drop: &str| {
        format!(
            "file /f 8M\n[p]\nopen f /f read\nrepeat 64\nread f 128K\nend\n{drop}\n\
                 lseek f 0\nrepeat 64\nread f 128K\nend\n"
        )
    };
    let elapsed = |drop| {
        let json = run(&place, &list(drop), &["--output-format", "json"])
            .ok()
            .json();
        json["blklab"]["elapsed_ns"].as_u64().expect("a time")
    };
    let (kept, dropped) = (elapsed("sync"), elapsed("drop_caches 3"));
    assert!(dropped > kept * 3 / 2, "{kept} {dropped}");
}

#[test]
fn two_schedulers_are_compared_by_a_list() {
    let place = Place::new();
    place.file("t.calls", COPY);
    let compare = ["compare", "t.calls", "--drive", "hdd-7200", "--fs", "ext2"];
    let options = ["--schedulers", "none,mq-deadline", "--repeats", "1"];
    let text = place.blklab(&[&compare[..], &options].concat()).ok().out;
    assert!(text.contains("mq-deadline"), "{text}");
}

#[test]
fn a_recording_becomes_a_list_that_runs() {
    let place = Place::new();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/strace");
    for name in ["program", "shell"] {
        let recording = format!("{data}/{name}.strace");
        let folder = [
            "--under",
            "/srv/demo",
            "--cwd",
            "/srv/demo",
            "-o",
            "t.calls",
        ];
        place
            .blklab(&[&["calls", &recording][..], &folder].concat())
            .ok();
        let run = [
            "run",
            "t.calls",
            "--drive",
            "nvme",
            "--fs",
            "ext2",
            "--output-format",
            "json",
        ];
        let json = place.blklab(&run).ok().json();
        let elapsed_ms = json["blklab"]["elapsed_ns"].as_u64().expect("a time") / 1_000_000;
        assert!((1..2000).contains(&elapsed_ms), "{name}: {elapsed_ms} ms");
    }
    let empty = place.blklab(&[
        "calls",
        &format!("{data}/shell.strace"),
        "--under",
        "/elsewhere",
    ]);
    assert_eq!(empty.status, 2);
    assert!(
        empty.err.contains("no call on a file that is wanted"),
        "{}",
        empty.err
    );
    place.file("wrong.strace", "1.5 read(3\n");
    let wrong = place.blklab(&["calls", "wrong.strace"]);
    assert_eq!(wrong.status, 2);
    assert!(
        wrong.err.contains("wrong.strace:1: column 5: call"),
        "{}",
        wrong.err
    );
}
