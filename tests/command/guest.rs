//! `blklab guest`: a real kernel in a virtual machine, where its packages are unpacked.

use std::time::{Duration, Instant};

use crate::support::{Place, guest};

const READS: &str =
    "[reads]\nfilename=/dev/x\nrw=randread\nbs=4k\nsize=64m\ndirect=1\nnumber_ios=100\n";

#[test]
fn a_missing_kernel_names_what_fetches_it() {
    let place = Place::new();
    place.file("reads.fio", READS);
    let done = place.blklab(&["guest", "run", "reads.fio", "--guest", "none"]);
    assert_eq!(done.status, 2, "{}", done.err);
    let is_named = ["blklab guest setup", "apt-get install"];
    assert!(
        is_named.iter().any(|name| done.err.contains(name)),
        "{}",
        done.err
    );
    let done = place.blklab(&["compare", "reads.fio", "--guest-cpus", "2"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--world guest"), "{}", done.err);
}

#[test]
fn time_can_pass_slower_in_a_guest() {
    let place = Place::new();
    place.file("reads.fio", READS);
    let done = place.blklab(&["compare", "reads.fio", "--time-dilation", "4"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--world guest"), "{}", done.err);
    let Some(kernel) = guest::kernel("kernel", |_| true) else {
        return;
    };
    let script = "before=$(date +%s)\nsleep 2\nafter=$(date +%s)\n\
                  [ $((after - before)) -lt 6 ] && echo passed\n";
    let start = Instant::now();
    let done = place.in_guest(script, &kernel, 512, &["--time-dilation", "4"]);
    if done.err.contains("install the package libfaketime") {
        return blklab_judges::not_possible(&done.err);
    }
    done.ok();
    assert!(start.elapsed() > Duration::from_secs(8));
    let done = place.blklab(&[
        "guest",
        "script",
        "script",
        "--guest",
        &kernel,
        "--time-dilation",
        "4",
        "--accelerator",
        "kvm",
    ]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("--accelerator tcg"), "{}", done.err);
}

#[test]
fn a_job_runs_under_a_real_kernel() {
    let Some(guest) = guest::kernel("kernel", |_| true) else {
        return;
    };
    let place = Place::new();
    place.file("reads.fio", READS);
    let done = place.json(&[
        "guest",
        "run",
        "reads.fio",
        "--guest",
        &guest,
        "--accelerator",
        "tcg",
        "--drive",
        "mx100-256",
        "--schedulers",
        "mq-deadline",
        "--repeats",
        "1",
    ]);
    assert_eq!(done["world"], "guest");
    let machine = done["machine"].as_str().expect("a machine");
    assert!(machine.starts_with("Linux 6."), "{machine}");
    let row = &done["sections"][0]["directions"][0]["rows"][0];
    assert_eq!(row["ios"], 100, "{row}");
    // Its own requests, and what the drive that was served counted.
    let facts = done["why"].as_array().expect("facts");
    let value = |key: &str| {
        let fact = facts.iter().find(|fact| fact["name"] == key);
        fact.unwrap_or_else(|| panic!("no {key} in {facts:?}"))["values"][0].as_f64()
    };
    assert!(value("requests to the drive") >= Some(100.0));
    assert!(value("pages read") >= Some(100.0), "{facts:?}");
}
