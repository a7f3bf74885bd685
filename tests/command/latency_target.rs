//! `latency_target`: a job that finds its own depth.

use serde_json::Value;

use crate::support::Place;

const JOB: &str = "[a]\nioengine=libaio\ndirect=1\nrw=randread\nbs=4k\niodepth=64\nsize=1g\n\
                   time_based\nruntime=4\nlatency_target=300us\nlatency_window=20ms\n";

fn run(options: &str) -> Value {
    let place = Place::new();
    place.file("t.fio", &format!("{JOB}{options}"));
    let args = ["run", "t.fio", "--drive", "nvme", "--output-format", "json"];
    place.blklab(&args).ok().json()["jobs"][0].clone()
}

#[test]
fn the_largest_depth_that_keeps_the_latency_is_found_and_reported_alone() {
    let job = run("latency_percentile=99\n");
    let depth = job["latency_depth"].as_u64().expect("a depth");
    assert!((4..64).contains(&depth), "{depth}");
    assert_eq!(job["latency_target"], 300_000);
    assert_eq!(job["latency_window"], 20_000);
    assert_eq!(job["latency_percentile"], 99.0);
    // The last window only, and long before the end of its time.
    let runtime_ms = job["read"]["runtime"].as_u64().expect("a time");
    assert!((20..60).contains(&runtime_ms), "{runtime_ms}");
    let p99_ns = job["read"]["clat_ns"]["percentile"]["99.000000"].as_u64();
    assert!(p99_ns.expect("a latency") < 330_000, "{p99_ns:?}");
    // As many in flight as the depth says, and no more.
    let mean_in_flight = job["read"]["iops"].as_f64().expect("a rate")
        * job["read"]["lat_ns"]["mean"].as_f64().expect("a time")
        / 1e9;
    assert!(mean_in_flight < depth as f64 + 0.5, "{mean_in_flight}");
}

#[test]
fn a_job_that_goes_on_uses_all_of_its_time() {
    let job = run("latency_percentile=99\nlatency_run=1\n");
    let runtime_ms = job["read"]["runtime"].as_u64().expect("a time");
    assert!((4000..=4001).contains(&runtime_ms), "{runtime_ms}");
}

#[test]
fn a_target_that_depth_one_misses_ends_the_job_in_an_error() {
    let place = Place::new();
    let job = JOB.replace("300us", "10us");
    place.file("t.fio", &job);
    let done = place.blklab(&["run", "t.fio", "--drive", "nvme"]);
    assert_eq!(done.status, 1, "{}", done.err);
    let said = format!("{}{}", done.out, done.err);
    assert!(said.contains("a: ended by its latency_target"), "{said}");
    // ETIMEDOUT, as with fio.
    assert!(done.out.contains("err=110"), "{}", done.out);
}
