//! The same seed gives the same bytes: on any number of threads, in debug and
//! release builds.

use std::path::Path;

use crate::support::{MIXED, Place};

const ARGS: [&str; 11] = [
    "compare",
    "mixed.fio",
    "--drive",
    "mx100-256",
    "--repeats",
    "2",
    "--output-format",
    "json",
    "--schedulers",
    "none,noop,deadline,mq-deadline,ac",
    "--seed=7",
];

fn with_threads(place: &Place, program: &Path, threads: &str) -> String {
    let mut args = ARGS.to_vec();
    args.extend(["--threads", threads]);
    // The command line is part of the result; only this part of it differs.
    place
        .run(program, &args)
        .ok()
        .out
        .replace(&format!("--threads {threads}"), "")
}

#[test]
fn threads_and_builds_make_no_difference() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let this = Path::new(env!("CARGO_BIN_EXE_blklab"));
    let one = with_threads(&place, this, "1");
    assert_eq!(
        one,
        with_threads(&place, this, "2"),
        "one thread and two differ"
    );
    // target/debug/blklab and target/release/blklab lie side by side.
    let target = this
        .parent()
        .and_then(Path::parent)
        .expect("a target folder");
    let other = ["debug", "release"]
        .map(|profile| target.join(profile).join("blklab"))
        .into_iter()
        .find(|path| path != this && path.is_file());
    match other {
        Some(other) => assert_eq!(one, with_threads(&place, &other, "1"), "builds differ"),
        None => blklab_judges::not_possible(
            "debug against release (run `make test`, which builds both)",
        ),
    }
}

#[test]
fn another_seed_is_another_run() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let run = |seed: &str| {
        let args = [
            "run",
            "mixed.fio",
            "--output-format",
            "json",
            "--seed",
            seed,
        ];
        place.blklab(&args).ok().out
    };
    assert_eq!(run("3"), run("3"));
    assert_ne!(run("3"), run("4"));
}
