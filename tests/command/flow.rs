//! `flow`: jobs that keep their I/Os in proportion.

use serde_json::Value;

use crate::support::Place;

/// Three jobs in two flows, and one in none.
const JOB: &str = "[global]\nioengine=libaio\ndirect=1\niodepth=4\nrw=randread\nbs=4k\nsize=1g\n\
                   runtime=500ms\ntime_based\n\
                   [one]\nflow=1\n\
                   [three]\nflow=3\nrw=randwrite\n\
                   [alone]\nflow=7\nflow_id=2\n\
                   [free]\nrate_iops=1000\n";

fn ios(json: &Value, name: &str) -> f64 {
    let jobs = json["jobs"].as_array().expect("jobs");
    let job = jobs.iter().find(|job| job["jobname"] == name);
    let job = job.unwrap_or_else(|| panic!("{name}"));
    let of = |direction: &str| job[direction]["total_ios"].as_f64().expect("a count");
    of("read") + of("write")
}

fn run(job: &str, options: &[&str]) -> Value {
    let place = Place::new();
    place.file("f.fio", job);
    let all = [&["run", "f.fio", "--output-format", "json"], options].concat();
    place.blklab(&all).ok().json()
}

#[test]
fn processes_of_a_flow_keep_the_proportion_of_their_weights() {
    // CPUs that cost nothing, those of a server, and one for two that spin.
    for machine in ["generic-8", "server-8", "vm-2cpu"] {
        let json = run(JOB, &["--machine", machine]);
        let ratio = ios(&json, "three") / ios(&json, "one");
        assert!((2.99..3.01).contains(&ratio), "{machine}: {ratio}");
        // Nobody holds back a job that is alone in its flow, or in none.
        assert!(ios(&json, "alone") > ios(&json, "one") * 0.9, "{machine}");
        assert!(ios(&json, "free") > 490.0, "{machine}");
    }
}

#[test]
fn every_process_of_a_job_has_the_weight() {
    let job = JOB.replace("[three]\n", "[three]\nnumjobs=2\ngroup_reporting\n");
    let json = run(&job, &[]);
    let ratio = ios(&json, "three") / ios(&json, "one");
    assert!((5.97..6.03).contains(&ratio), "{ratio}");
}

#[test]
fn who_is_ahead_sleeps_as_long_as_flow_sleep_says() {
    let sleepy = JOB.replace("[global]\n", "[global]\nflow_sleep=1000\n");
    let (json, spinning) = (run(&sleepy, &[]), run(JOB, &[]));
    let ratio = ios(&json, "three") / ios(&json, "one");
    assert!((2.8..3.2).contains(&ratio), "{ratio}");
    assert!(ios(&json, "three") < ios(&spinning, "three") * 0.5);
}

#[test]
fn the_others_go_on_when_one_ends() {
    let job = "[global]\ndirect=1\nrw=read\nbs=4k\n[short]\nflow=1\nsize=400k\n\
               [long]\nflow=1\nsize=4m\n";
    let json = run(job, &[]);
    assert_eq!((ios(&json, "short"), ios(&json, "long")), (100.0, 1024.0));
}

#[test]
fn a_job_that_would_wait_for_ever_is_refused() {
    let place = Place::new();
    let job = "[a]\nflow=1\nsize=1m\n[b]\nflow=1\nstonewall\nsize=1m\n";
    place.file("f.fio", job);
    let done = place.blklab(&["run", "f.fio"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(
        done.err.contains("f.fio:5: flow=1: an earlier job"),
        "{}",
        done.err
    );
    place.file("f.fio", &job.replacen("size=1m", "runtime=10ms", 1));
    place
        .blklab(&["run", "f.fio", "--override", "size=1m"])
        .ok();
    // A runtime of the command line is as good as one of the file, by either name.
    place.file("f.fio", job);
    for option in ["runtime=10ms", "timeout=10ms"] {
        place.blklab(&["run", "f.fio", "--override", option]).ok();
        for goal in [&[][..], &["--goal", "a.iops"]] {
            let compare = ["compare", "f.fio", "--repeats", "1", "--override", option];
            place.blklab(&[&compare[..], goal].concat()).ok();
        }
    }
}
