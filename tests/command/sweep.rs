//! `blklab sweep`: many runs kept in a folder, gone on with, and put together.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Outcome, Place};

const JOB: &str = "[a]\nrw=randread\nbs=4k\nfilename=/dev/x\ndirect=1\nioengine=libaio\n\
                   norandommap\nsize=64m\nnumber_ios=200\n";
const SPEC: &str = "job = \"a.fio\"\nrepeats = 3\n\
                    vary = [\"scheduler=none,bfq\", \"iodepth=1..16*4\"]\n";
/// Schedulers, depths and repeats of it.
const RUNS: usize = 2 * 3 * 3;

fn place() -> Place {
    let place = Place::new();
    place.file("a.fio", JOB).file("s.toml", SPEC);
    place
}

fn sweep(place: &Place, words: &str) -> Outcome {
    let words: Vec<&str> = words.split(' ').collect();
    place.blklab(&[&["sweep", "s.toml"][..], &words].concat())
}

fn data_set(place: &Place, folder: &str) -> Vec<u8> {
    std::fs::read(place.path(folder).join("results.parquet")).expect("was written")
}

/// The keys of all runs that a folder's files have.
fn keys(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let paths = files.map(|file| file.expect("an entry").path());
    let parts = paths.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let mut keys = Vec::new();
    for part in parts {
        let text = std::fs::read_to_string(part).expect("text");
        // What was cut has no end.
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        for line in whole.skip(1) {
            let run: serde_json::Value = serde_json::from_str(line).expect("JSON");
            keys.push(run["key"].as_str().expect("a key").to_string());
        }
    }
    keys
}

#[test]
fn a_second_sweep_does_nothing_again_and_a_wider_one_only_what_is_new() {
    let place = place();
    let first = sweep(&place, "--output d").ok().out;
    assert!(
        first.starts_with("18 runs: 18 done now, 0 were there, 0 missing\n"),
        "{first}"
    );
    let set = data_set(&place, "d");
    let again = sweep(&place, "--output d --threads 1").ok().out;
    assert!(
        again.starts_with("18 runs: 0 done now, 18 were there"),
        "{again}"
    );
    assert!(data_set(&place, "d") == set, "another data set");
    place.file("s.toml", &SPEC.replace("16*4", "64*4"));
    let wider = sweep(&place, "--output d").ok().out;
    assert!(
        wider.starts_with("24 runs: 6 done now, 18 were there"),
        "{wider}"
    );
    place.file("a.fio", &JOB.replace("4k", "8k"));
    let other = sweep(&place, "--output d").ok().out;
    assert!(other.starts_with("24 runs: 24 done now"), "{other}");
}

#[test]
fn parts_of_two_machines_make_the_data_set_of_one() {
    let place = place();
    sweep(&place, "--output one").ok();
    let half = sweep(&place, "--output d1 --shard 1/2").ok().out;
    assert!(
        half.starts_with("18 runs: 9 done now, 0 were there, 9 missing"),
        "{half}"
    );
    // Another machine has the files in another place.
    let other = self::place();
    sweep(&other, "--output d2 --shard 2/2").ok();
    let from_other = other.path("d2");
    let both = sweep(
        &place,
        &format!("--output d1 --merge {}", from_other.display()),
    );
    let both = both.ok().out;
    assert!(
        both.starts_with("18 runs: 0 done now, 18 were there"),
        "{both}"
    );
    assert!(data_set(&place, "d1") == data_set(&place, "one"));
}

/// However far the sweep has come when it is killed, nothing is lost and nothing is
/// run twice.
#[test]
fn a_killed_sweep_goes_on() {
    let place = place();
    sweep(&place, "--output whole").ok();
    place.file("a.fio", JOB);
    for lines in [0, 3, 9] {
        let folder = place.path(&format!("killed-{lines}"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_blklab"))
            .args(["sweep", "s.toml", "--output"])
            .arg(&folder)
            .current_dir(place.path("."))
            .stdout(Stdio::null())
            .spawn()
            .expect("the program starts");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60)
            && !(folder.is_dir() && keys(&folder).len() >= lines)
            && child.try_wait().expect("a child").is_none()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().expect("it may have ended");
        child.wait().expect("a child");
        let name = format!("killed-{lines}");
        sweep(&place, &format!("--output {name}")).ok();
        let mut keys = keys(&folder);
        assert_eq!(keys.len(), RUNS);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), RUNS, "a run was done twice");
        assert!(data_set(&place, &name) == data_set(&place, "whole"));
    }
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let place = place();
    for (spec, said) in [
        (
            "vary = [\"iodeth=1\"]",
            "s.toml: --vary iodeth=1: there is nothing called iodeth",
        ),
        (
            "vary = [\"iodepth=8..1\"]",
            "from the smaller to the greater",
        ),
        ("vary = [\"mq-deadline.fifo_batch=-1\"]", "fifo_batch"),
        (
            "vary = [\"bs=4k\"]\nrepeat = 3",
            "s.toml:3: `repeats`: found `repeat`",
        ),
        ("vary = [\"bs=4k\"]\nrepeats = 0", "s.toml:3: `repeats`"),
    ] {
        place.file("s.toml", &format!("job = \"a.fio\"\n{spec}\n"));
        let outcome = sweep(&place, "--output d");
        assert_eq!(outcome.status, 2, "{spec}: {}", outcome.err);
        assert!(outcome.err.contains(said), "{spec}: {}", outcome.err);
    }
    assert!(!place.path("d").exists());
    place.file("s.toml", SPEC);
    let outcome = sweep(&place, "--shard 3/2");
    assert_eq!(outcome.status, 2);
    assert!(outcome.err.contains("right is I/N"), "{}", outcome.err);
    std::fs::create_dir(place.path("d")).expect("a folder");
    place.file("d/part-0.jsonl", "{\"program\":\"blklab 0.0.9\"}\n");
    let outcome = sweep(&place, "--output d");
    assert_eq!(outcome.status, 2);
    assert!(
        outcome.err.contains("its runs are of blklab 0.0.9"),
        "{}",
        outcome.err
    );
}

/// Reads of an MSR trace, a millisecond apart.
fn trace(from: u64) -> String {
    let line = |n: u64| {
        format!(
            "{},x,0,Read,{},4096,1000\n",
            10_000 * n,
            4096 * (from + 7 * n)
        )
    };
    (1..=50).map(line).collect()
}

#[test]
fn a_trace_is_swept_wherever_it_is_and_its_content_counts() {
    let place = place();
    place.file("load.csv", &trace(0));
    let spec = "job = \"load.csv\"\nrepeats = 2\nspeed = 10\nvary = [\"scheduler=none,bfq\"]\n";
    place.file("s.toml", spec);
    let first = sweep(&place, "--output d").ok().out;
    assert!(first.starts_with("4 runs: 4 done now"), "{first}");
    let other = Place::new();
    other.file("load.csv", &trace(0)).file("s.toml", spec);
    let from_other = place.path("d");
    let merged = sweep(
        &other,
        &format!("--output d --merge {}", from_other.display()),
    );
    let merged = merged.ok().out;
    assert!(
        merged.starts_with("4 runs: 0 done now, 4 were there"),
        "{merged}"
    );
    assert!(data_set(&other, "d") == data_set(&place, "d"));
    let from_elsewhere = place.path("s.toml").display().to_string();
    let words = ["sweep", from_elsewhere.as_str(), "--output", "e"];
    other.blklab(&words).ok();
    assert!(data_set(&other, "e") == data_set(&place, "d"));
    // Another speed, another content, and arrivals to the letter: nothing of it was there.
    for (spec, content, runs) in [
        (spec.replace("10", "20"), trace(0), 4),
        (spec.to_string(), trace(1), 4),
        (spec.replace("repeats = 2\n", ""), trace(0), 2),
    ] {
        place.file("load.csv", &content).file("s.toml", &spec);
        let again = sweep(&place, "--output d").ok().out;
        let all = format!("{runs} runs: {runs} done now, 0 were there");
        assert!(again.starts_with(&all), "{again}");
    }
}

#[test]
fn what_a_trace_cannot_vary_is_told() {
    let place = place();
    place.file("load.csv", &trace(0));
    for (job, rest, said) in [
        (
            "load.csv",
            "vary = [\"iodepth=1,2\"]",
            "load.csv is no job of fio's",
        ),
        (
            "load.csv",
            "depth = 4\nvary = [\"scheduler=none\"]",
            "s.toml: --depth is for traces replayed with a number in flight",
        ),
        (
            "load.csv",
            "replay = \"open\"\nspeed = 0\nvary = [\"scheduler=none\"]",
            "s.toml:3: `speed`",
        ),
        (
            "load.csv",
            "replay = \"opened\"\nvary = [\"scheduler=none\"]",
            "\"open\", \"closed\", \"dependencies\"",
        ),
        (
            "a.fio",
            "speed = 2\nvary = [\"scheduler=none\"]",
            "--speed is for traces; an fio job says itself",
        ),
    ] {
        place.file("s.toml", &format!("job = \"{job}\"\n{rest}\n"));
        let outcome = sweep(&place, "--output d");
        assert_eq!(outcome.status, 2, "{rest}: {}", outcome.err);
        assert!(outcome.err.contains(said), "{rest}: {}", outcome.err);
    }
    assert!(!place.path("d").exists());
}

#[test]
fn a_full_disk_leaves_no_folder_behind() {
    let place = place();
    place.file("s.toml", SPEC);
    let blklab = env!("CARGO_BIN_EXE_blklab");
    // Files may not grow at all, as on a disk that is full.
    let script = format!("trap '' XFSZ; ulimit -f 0; exec {blklab} sweep s.toml -o d");
    let done = place.run(Path::new("sh"), &["-c", &script]);
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("cannot write"), "{}", done.err);
    assert!(!place.path("d").exists());
}
