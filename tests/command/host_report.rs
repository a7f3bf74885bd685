//! `blklab report`: comparisons of both worlds in one table and page.

use crate::support::Place;
use crate::support::loop_device::LoopDevice;

const READS: &str = "\
[reads]
filename=/dev/ssd
rw=randread
direct=1
ioengine=psync
bs=4k
size=8m
number_ios=300
";

fn simulate(place: &Place, schedulers: &str, file: &str) {
    place.file("reads.fio", READS);
    let args = [
        "compare",
        "reads.fio",
        "--schedulers",
        schedulers,
        "--repeats",
        "2",
    ];
    let more = ["--output-format", "json", "-o", file];
    place.blklab(&[&args[..], &more[..]].concat()).ok();
}

#[test]
fn simulations_are_told_apart_by_their_files() {
    let place = Place::new();
    simulate(&place, "none,mq-deadline", "a.json");
    simulate(&place, "none,bfq", "b.json");
    let done = place
        .blklab(&["report", "a.json", "b.json", "--html", "page.html"])
        .ok();
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    for name in ["a none", "a mq-deadline", "b none", "b bfq"] {
        assert!(done.out.contains(name), "{name} is missing:\n{}", done.out);
        assert!(page.contains(name), "{name} is missing in the page");
    }
}

#[test]
fn one_file_shows_what_compare_showed() {
    let place = Place::new();
    simulate(&place, "none,mq-deadline", "a.json");
    let shown = place.blklab(&[
        "compare",
        "reads.fio",
        "--schedulers",
        "none,mq-deadline",
        "--repeats",
        "2",
    ]);
    assert_eq!(place.blklab(&["report", "a.json"]).ok().out, shown.ok().out);
}

#[test]
fn both_worlds_stand_in_one_table() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let place = Place::new();
    simulate(&place, "none,mq-deadline", "sim.json");
    let args = [
        "compare",
        "reads.fio",
        "--world",
        "host",
        "--device",
        &device.path,
    ];
    let more = [
        "--schedulers",
        "none,mq-deadline",
        "--repeats",
        "2",
        "--no-warm-up",
    ];
    let out = ["--output-format", "json", "-o", "host.json"];
    let trace = LoopDevice::trace_options();
    place
        .blklab(&[&args[..], &more[..], &out[..], trace].concat())
        .ok();
    let done = place.blklab(&["report", "sim.json", "host.json"]).ok();
    for name in [
        "sim none",
        "sim mq-deadline",
        "host none",
        "host mq-deadline",
    ] {
        assert!(done.out.contains(name), "{name} is missing:\n{}", done.out);
    }
}

#[test]
fn other_files_are_refused_by_name() {
    let place = Place::new();
    place.file("other.json", "{\"jobs\": []}");
    for (file, word) in [
        ("other.json", "not a comparison"),
        ("none.json", "cannot be read"),
    ] {
        let done = place.blklab(&["report", file]);
        assert_eq!(done.status, 2);
        assert!(
            done.err.contains(file) && done.err.contains(word),
            "{}",
            done.err
        );
    }
}
