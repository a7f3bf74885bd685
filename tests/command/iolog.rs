//! `read_iolog`: a job that replays a log of fio's, with fio as the judge.

use std::path::Path;

use serde_json::Value;

use crate::support::Place;

const LOG: &str = "fio version 3 iolog\n0 data add\n100 data open\n20000 data read 0 4096\n\
                   50000 data read 8192 4096\n90000 data write 16384 8192\n90001 data sync 0 0\n\
                   100000 data close\n";

const JOB: &str = "[r]\nread_iolog=log\nioengine=psync\n";

/// The job with that log, on a file that is there.
fn place(log: &str, options: &str) -> Place {
    let place = Place::new();
    place.file("log", log);
    place.file("data", &"x".repeat(64 << 10));
    place.file("r.fio", &format!("{JOB}{options}"));
    place
}

fn counts(json: &Value) -> Vec<u64> {
    let job = &json["jobs"][0];
    let of = |direction: &str, key: &str| job[direction][key].as_u64().expect("a count");
    vec![
        of("read", "total_ios"),
        of("write", "total_ios"),
        of("read", "io_bytes"),
        of("write", "io_bytes"),
        of("sync", "total_ios"),
    ]
}

fn runtime_ms(json: &Value) -> u64 {
    json["jobs"][0]["job_runtime"].as_u64().expect("a time")
}

const JSON: [&str; 4] = ["run", "r.fio", "--output-format", "json"];

#[test]
fn a_log_is_replayed_as_by_fio() {
    let place = place(LOG, "");
    let ours = place.blklab(&JSON).ok().json();
    assert_eq!(counts(&ours), [2, 1, 8192, 8192, 1]);
    // From the second line on, each is as long after the one before as in the log.
    assert!((99..=101).contains(&runtime_ms(&ours)), "{ours}");
    let on_files = [&JSON[..], &["--fs", "ext2"]].concat();
    let on_files = place.blklab(&on_files).ok().json();
    assert_eq!(counts(&on_files), counts(&ours));
    if blklab_judges::have("fio") {
        let args = ["r.fio", "--output-format=json"];
        let fio = place.run(Path::new("fio"), &args).ok().json();
        assert_eq!(counts(&ours), counts(&fio));
        assert!(runtime_ms(&fio) >= 99, "{fio}");
    }
}

#[test]
fn pauses_are_left_out_or_shorter_where_the_job_says_so() {
    let run = |options: &str| runtime_ms(&place(LOG, options).blklab(&JSON).ok().json());
    assert!(run("replay_no_stall=1\n") < 5);
    let half = run("replay_time_scale=200\n");
    assert!((49..=52).contains(&half), "{half}");
}

#[test]
fn a_log_of_our_jobs_is_compared_like_any_job() {
    let place = place(LOG, "direct=1\n");
    let done = place.blklab(&["compare", "r.fio", "--schedulers", "none,bfq"]);
    assert!(done.ok().out.contains("read of r"));
}

#[test]
fn what_a_log_cannot_be_is_said_with_its_line() {
    for (log, options, says) in [
        (
            LOG,
            "verify=crc32c\n",
            "r.fio:4: verify=crc32c: read_iolog is also given",
        ),
        (
            "1 x read\n",
            "",
            "r.fio:2: read_iolog=log: log:1: column 1: first line",
        ),
        (
            "fio version 3 iolog\n5 x jump 0 1\n",
            "",
            "log:2: column 5: action",
        ),
        (
            "fio version 3 iolog\n5 x read 0 100\n",
            "",
            "log:2: 100 bytes are not whole sectors",
        ),
        ("fio version 3 iolog\n", "", "log: there is no I/O in it"),
    ] {
        let done = place(log, options).blklab(&["run", "r.fio"]);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(says), "no {says:?} in {}", done.err);
    }
    let place = Place::new();
    place.file("r.fio", JOB);
    let done = place.blklab(&["run", "r.fio"]);
    assert_eq!(done.status, 2);
    assert!(
        done.err.contains("r.fio:2: read_iolog=log: log: "),
        "{}",
        done.err
    );
}
