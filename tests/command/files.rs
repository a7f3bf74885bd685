//! Files that are read and written: no output replaces what the command reads, nothing
//! endless is read, and what is written is whole or not there.

use std::path::Path;
use std::process::Command;

use crate::support::{Outcome, Place};

const JOB: &str = "[a]\nfilename=/dev/x\ndirect=1\nrw=randread\nnumber_ios=20\n";

/// The message of a command that a user's mistake ends.
fn refused(place: &Place, args: &[&str]) -> String {
    let Outcome { status, out, err } = place.blklab(args);
    assert_eq!((status, out.as_str()), (2, ""), "{args:?}\n{err}");
    err
}

/// Runs it in a shell that has set limits before.
fn limited(place: &Place, limits: &str, args: &[&str]) -> Outcome {
    let script = format!("{limits}; exec \"$@\"");
    let program = ["-c", &script, "sh", env!("CARGO_BIN_EXE_blklab")];
    place.run(Path::new("sh"), &[&program, args].concat())
}

#[test]
fn no_output_replaces_what_the_command_reads() {
    let place = Place::new();
    let drive = place.blklab(&["show", "drive", "null"]).ok().out;
    let machine = place.blklab(&["show", "machine", "vm-2cpu"]).ok().out;
    let job = format!("{JOB}include part.fio\n");
    let files = [
        ("in.fio", job.as_str()),
        ("part.fio", "bs=8k\n"),
        ("d.toml", &drive),
        ("m.toml", &machine),
        ("r.json", "{}"),
        ("t.trace", "0 0 0 8 1\n"),
        ("rows.csv", "scheduler\n"),
    ];
    for (name, text) in files {
        place.file(name, text);
    }
    let linked = std::fs::hard_link(place.path("in.fio"), place.path("hard.fio"));
    linked.expect("a hard link");
    let linked = std::os::unix::fs::symlink("in.fio", place.path("soft.fio"));
    linked.expect("a symbolic link");
    let folder = place.path("in.fio").display().to_string();
    let before = place.files();
    for args in [
        "compare in.fio -o in.fio",
        "compare in.fio -o ./in.fio",
        "compare in.fio -o hard.fio",
        "compare in.fio --html soft.fio",
        "compare soft.fio -o hard.fio",
        "compare in.fio -o part.fio",
        "compare -o in.fio -- in.fio",
        &format!("run in.fio --html {folder}"),
        "run in.fio --perfetto hard.fio",
        "run in.fio --drive d.toml -o d.toml",
        "run in.fio --machine m.toml -o m.toml",
        "replay t.trace -o t.trace",
        "report r.json -o r.json",
        "calibrate rows.csv --drive d.toml --output-drive d.toml",
        "calibrate rows.csv --drive d.toml --machine m.toml --output-machine m.toml",
        "probe --drive d.toml --output-drive d.toml",
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let said = refused(&place, &words);
        assert!(
            said.contains("the command reads that file"),
            "{args}: {said}"
        );
    }
    let said = refused(&place, &["run", "in.fio", "-o", "new", "--html", "./new"]);
    assert!(said.contains("writes that file too"), "{said}");
    assert_eq!(place.files(), before);
    for (name, text) in files {
        let now = std::fs::read_to_string(place.path(name)).expect("there");
        assert_eq!(now, text, "{name}");
    }
}

#[test]
fn what_never_ends_is_not_read() {
    let place = Place::new();
    place.file("in.fio", JOB);
    for args in [
        "run PATH",
        "compare PATH",
        "replay PATH",
        "report PATH",
        "run in.fio --drive PATH",
        "run in.fio --machine PATH",
        "calibrate PATH --drive null",
        "conform --scheduler kyber PATH",
        "serve PATH",
    ] {
        for (path, what) in [("/dev/zero", "a device, and "), (".", "a folder, and ")] {
            let args = args.replace("PATH", path);
            let words: Vec<&str> = args.split(' ').collect();
            let done = limited(&place, "ulimit -v 2000000", &words);
            assert_eq!(done.status, 2, "{args}: {}", done.err);
            assert!(done.err.contains(what), "{args}: {}", done.err);
        }
    }
    let done = limited(&place, "exec </dev/zero", &["run", "-"]);
    assert_eq!(done.status, 2);
    assert!(done.err.contains("longer than 256 MiB"), "{}", done.err);
}

#[test]
fn a_job_comes_through_a_pipe_and_one_without_a_writer_is_told() {
    let place = Place::new();
    let pipe = place.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let said = refused(&place, &["run", "pipe"]);
    assert!(said.contains("a pipe to which nobody writes"), "{said}");
    let said = refused(&place, &["replay", "pipe"]);
    assert!(said.contains("a pipe, and a trace is in a file"), "{said}");
    let writer = std::thread::spawn(move || std::fs::write(pipe, JOB));
    place.blklab(&["run", "pipe"]).ok();
    writer.join().expect("it ends").expect("it writes");
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let place = Place::new();
    place.file("in.fio", JOB).file("old.json", "older");
    let limits = "trap '' XFSZ; ulimit -f 1";
    for options in [
        "run in.fio --output-format json -o old.json",
        "run in.fio --output-format json -o new.json",
        "run in.fio --html page.html",
        "run in.fio --perfetto run.pftrace",
        "compare in.fio --repeats 1 --schedulers none --html page.html",
    ] {
        let words: Vec<&str> = options.split(' ').collect();
        let done = limited(&place, limits, &words);
        assert_eq!(done.status, 1, "{options}: {}", done.err);
        assert!(done.err.contains(": cannot write: "), "{}", done.err);
        assert!(!done.err.contains(".blklab-"), "{}", done.err);
        assert_eq!(place.files(), ["in.fio", "old.json"], "{options}");
    }
    let kept = std::fs::read_to_string(place.path("old.json"));
    assert_eq!(kept.expect("there"), "older");
}

#[test]
fn a_folder_that_takes_no_file_is_told_by_the_name_given() {
    let place = Place::new();
    place.file("in.fio", JOB);
    // Nobody, root neither, makes a file there.
    let done = place.blklab(&["run", "in.fio", "-o", "/proc/out.json"]);
    assert_eq!(done.status, 2);
    assert!(
        done.err
            .starts_with("blklab: /proc/out.json: cannot write: ")
            && !done.err.contains(".blklab-"),
        "{}",
        done.err
    );
}

#[test]
fn numbers_that_cannot_be_are_told_as_typed() {
    let place = Place::new();
    place.file("t.trace", "0 0 0 8 1\n").file("in.fio", JOB);
    for (args, said) in [
        (
            "replay t.trace --speed 1e300",
            "--speed 1e300: from 0.001 to",
        ),
        ("replay t.trace --speed nan", "--speed NaN: from 0.001 to"),
        ("run in.fio --seed -1", "right is a whole number from 0 to"),
        (
            "compare in.fio --schedulers ,",
            "a scheduler's name is missing",
        ),
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let err = refused(&place, &words);
        assert!(err.contains(said), "{args}: {err}");
        assert!(err.len() < 500, "{err}");
    }
}

/// At 185 KiB each they did not fit.
#[test]
fn ten_thousand_processes_fit_into_little_memory() {
    let place = Place::new();
    place.file(
        "many.fio",
        &format!("{JOB}size=1g\nnumjobs=10000\ngroup_reporting\n"),
    );
    let args = [
        "run",
        "many.fio",
        "--drive",
        "null",
        "--output-format",
        "json",
    ];
    let json = limited(&place, "ulimit -v 600000", &args).ok().json();
    assert_eq!(json["jobs"][0]["read"]["total_ios"], 200_000);
}

#[test]
fn a_million_files_are_laid_out_at_once() {
    let place = Place::new();
    let job = "[a]\nnrfiles=1000000\nsize=8g\ndirect=1\nrw=randread\nnumber_ios=1000\n";
    place.file("files.fio", job);
    let json = place.json(&["run", "files.fio"]);
    assert_eq!(json["jobs"][0]["read"]["total_ios"], 1000);
}
