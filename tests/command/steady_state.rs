//! `steadystate`: jobs that end when their figures no longer change.

use std::path::Path;

use serde_json::Value;

use crate::support::Place;

/// Two jobs of a steady rate: one by its deviation, two processes together by their slope.
const JOB: &str = "[global]\nsize=1g\nbs=4k\nrw=randread\nrate_iops=1000\n\
                   [alone]\nss=iops:5%\nss_dur=3\n\
                   [together]\nstonewall\nss=bw_slope:10%\nss_dur=4\nss_ramp=1\nnumjobs=2\n\
                   group_reporting\n";

fn steady_states(json: &Value) -> Vec<Value> {
    let jobs = json["jobs"].as_array().expect("jobs");
    jobs.iter().map(|job| job["steadystate"].clone()).collect()
}

fn ours(job: &str) -> Value {
    let place = Place::new();
    let job = job.replace("[global]\n", "[global]\nioengine=psync\ndirect=1\n");
    place.file("s.fio", &job);
    let args = ["run", "s.fio", "--drive", "null", "--output-format", "json"];
    place.blklab(&args).ok().json()
}

#[test]
fn a_job_ends_when_it_is_steady_as_with_fio() {
    let ours = steady_states(&ours(JOB));
    let figures = |state: &Value, key: &str| state["data"][key].as_array().map(Vec::len);
    assert_eq!(ours[0]["attained"], 1);
    assert_eq!(ours[0]["data"]["iops_mean"], 1000);
    assert_eq!(ours[1]["data"]["iops_mean"], 2000);
    if !blklab_judges::have("fio") {
        return;
    }
    let place = Place::new();
    let job = JOB.replace("[global]\n", "[global]\nioengine=null\n");
    place.file("s.fio", &job);
    let fio = place.run(Path::new("fio"), &["s.fio", "--output-format=json"]);
    for (own, theirs) in ours.iter().zip(steady_states(&fio.ok().json())) {
        let keys = |state: &Value| -> Vec<String> {
            state
                .as_object()
                .expect("an object")
                .keys()
                .cloned()
                .collect()
        };
        assert_eq!(keys(own), keys(&theirs));
        assert_eq!(keys(&own["data"]), keys(&theirs["data"]));
        for key in ["ss", "duration", "attained"] {
            assert_eq!(own[key], theirs[key], "{key}");
        }
        for key in ["iops", "bw"] {
            assert_eq!(figures(own, key), figures(&theirs, key));
        }
        let mean = |state: &Value| state["data"]["iops_mean"].as_f64().expect("a mean");
        // On a busy machine fio falls behind its rate.
        assert!((mean(own) / mean(&theirs) - 1.0).abs() < 0.25);
    }
}

#[test]
fn a_job_that_does_not_settle_runs_on() {
    // Three a second are a third more or less from one second to the next.
    let job = "[global]\nsize=1g\nbs=4k\nrate_iops=100\nruntime=6\ntime_based\n[a]\nss_dur=3\n\
               ss=iops:0\n";
    let json = ours(job);
    assert_eq!(json["jobs"][0]["steadystate"]["attained"], 0);
    assert!(json["jobs"][0]["job_runtime"].as_u64() >= Some(6000));
    // Without a duration nothing is judged, as in fio.
    let json = ours(&job.replace("ss_dur=3\n", ""));
    assert!(json["jobs"][0].get("steadystate").is_none());
}

#[test]
fn the_text_says_whether_it_was_steady() {
    let place = Place::new();
    place.file("s.fio", &JOB.replace("[global]\n", "[global]\ndirect=1\n"));
    let done = place.blklab(&["run", "s.fio", "--drive", "null"]).ok();
    for line in [
        "  steadystate  : attained=yes, bw=4000KiB/s (4000kB/s), iops=1000, iops mean dev=0.000%",
        "  steadystate  : attained=yes, bw=8000KiB/s (8000kB/s), iops=2000, bw slope=0.000%",
    ] {
        assert!(done.out.contains(line), "{}", done.out);
    }
}

#[test]
fn a_threshold_or_a_group_that_does_not_fit_is_refused() {
    let place = Place::new();
    for (job, says) in [
        (
            "[a]\nss=iops\nss_dur=3\n",
            "s.fio:2: ss=iops: the threshold is missing",
        ),
        (
            "[a]\nss=iops:x\nss_dur=3\n",
            "s.fio:2: ss=iops:x: the threshold is no number",
        ),
        (
            "[a]\nss=foo:3%\n",
            "fio 3.33 knows iops, iops_slope, bw, bw_slope",
        ),
        (
            "[a]\nss=bw:3%\nss_dur=3\n[b]\nrw=write\n",
            "the steady state differs within a group of jobs",
        ),
    ] {
        place.file("s.fio", job);
        let done = place.blklab(&["run", "s.fio"]);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(says), "{}", done.err);
    }
}
