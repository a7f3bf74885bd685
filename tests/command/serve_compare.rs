//! `blklab compare --world serve`: a job through a real client on a drive's
//! model in real time.

use crate::support::Place;
use crate::support::served::have;

const JOB: &str = "\
[global]
filename=/dev/ssd
direct=1
ioengine=libaio
iodepth=8
numjobs=2
group_reporting
norandommap
bs=4k
[mixed]
rw=randrw
number_ios=400
";

#[test]
fn both_worlds_fill_the_same_results() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    place.file("job.fio", JOB);
    let run = |world: &[&str], file: &str| {
        let common = "compare job.fio --drive mx100-256 --repeats 1 \
             --schedulers none,mq-deadline --output-format json -o";
        let mut options: Vec<&str> = common.split_whitespace().collect();
        options.push(file);
        options.extend(world);
        place.blklab(&options).ok();
        let text = std::fs::read_to_string(place.path(file)).expect("a comparison");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let served = run(&["--world", "serve"], "serve.json");
    run(&[], "sim.json");
    let text = served.to_string();
    assert!(text.contains("pacing: requests ended later"), "{text}");
    let both = place.blklab(&["report", "sim.json", "serve.json"]).ok();
    assert!(
        both.out.contains("sim") && both.out.contains("serve"),
        "{}",
        both.out
    );
}

#[test]
fn what_cannot_be_served_is_refused() {
    let place = Place::new();
    place.file("cached.fio", &JOB.replace("direct=1", "direct=0"));
    place.file("job.fio", JOB);
    for (options, word) in [
        (&["cached.fio"][..], "direct=1"),
        (
            &["job.fio", "--device", "/dev/null"],
            "--device needs --world host",
        ),
        (
            &["job.fio", "--machine", "i7-3770k"],
            "--world serve is this machine",
        ),
        (&["job.fio", "--schedulers", "quick"], "quick"),
        (&["job.fio", "--repeats", "0"], "not in 1..=10000"),
    ] {
        let args = [&["compare", "--world", "serve"], options].concat();
        let done = place.blklab(&args);
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(word), "{args:?}: {}", done.err);
    }
}
