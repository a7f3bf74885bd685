//! `--cgroup-file`: limits, weights and targets of control groups.

use serde_json::Value;

use crate::support::Place;

/// Two programs that read all they can.
const TWO: &str = "\
[global]
filename=/dev/x
direct=1
ioengine=libaio
iodepth=16
rw=randread
bs=4k
norandommap
time_based
runtime=1500ms
[a]
[b]
";

/// One that waits for each of its reads, beside one that writes all it can.
const NOISY: &str = "\
[global]
filename=/dev/x
direct=1
ioengine=libaio
bs=4k
norandommap
time_based
runtime=4
[victim]
rw=randread
iodepth=1
[writer]
rw=randwrite
bs=64k
iodepth=64
";

/// 10,000 random reads a second, by the model.
const MODEL: &str = "\
[/]
io.cost.model = 8:0 rbps=400000000 rseqiops=10000 rrandiops=10000
io.cost.qos = 8:0 enable=1 rpct=90 rlat=5000 min=100 max=100
";

fn place(groups: &str) -> Place {
    let place = Place::new();
    place
        .file("two.fio", TWO)
        .file("noisy.fio", NOISY)
        .file("groups", groups);
    place
}

fn run(place: &Place, job: &str, options: &[&str]) -> Value {
    let common = ["run", job, "--cgroup-file", "groups"];
    place.json(&[&common, options].concat())
}

/// I/Os a second of a job.
fn iops(run: &Value, job: usize, direction: &str) -> f64 {
    run["jobs"][job][direction]["iops"].as_f64().expect("iops")
}

/// What was counted of a group.
fn group<'a>(run: &'a Value, name: &str) -> &'a Value {
    let groups = run["blklab"]["disks"][0]["cgroups"].as_array();
    let mut groups = groups.expect("groups").iter();
    let found = groups.find(|group| group["name"] == name);
    found.expect("the group is counted")
}

#[test]
fn io_max_bounds_a_group_and_no_other() {
    let place = place("[/low]\njobs = a\nio.max = 8:0 riops=500\n");
    let run = run(&place, "two.fio", &[]);
    let (low, other) = (iops(&run, 0, "read"), iops(&run, 1, "read"));
    assert!((450.0..600.0).contains(&low), "{low}");
    assert!(other > 20_000.0, "{other}");
    let held = &group(&run, "low")["io_max"];
    assert!(held["ios"].as_u64() > Some(100), "{held}");
    assert!(held["ns"].as_u64() > Some(5_000_000_000), "{held}");
}

#[test]
fn weights_divide_what_the_model_says_there_is() {
    let groups =
        format!("{MODEL}[/a]\nio.weight = 100\njobs = a\n[/b]\nio.weight = 300\njobs = b\n");
    let place = place(&groups);
    let run = run(&place, "two.fio", &[]);
    let (a, b) = (iops(&run, 0, "read"), iops(&run, 1, "read"));
    assert!((2300.0..2700.0).contains(&a), "{a}");
    assert!((7000.0..8000.0).contains(&b), "{b}");
    let cost = &group(&run, "")["cost"];
    assert!(cost["usage_us"].as_u64() > Some(1_400_000), "{cost}");
    assert_eq!(run["blklab"]["disks"][0]["cost_rate"]["percent"], 100.0);
    let text = place
        .blklab(&["run", "two.fio", "--cgroup-file", "groups"])
        .ok()
        .out;
    let line = text
        .lines()
        .find(|line| line.contains("/b: held by io.cost"));
    assert!(line.is_some(), "{text}");
}

/// fio's own options make the same groups.
#[test]
fn fio_s_weights_are_weights_of_io_cost_too() {
    let place = place(MODEL);
    let job = TWO
        .replace("[a]", "[a]\ncgroup=a\ncgroup_weight=100\ncgroup_nodelete=1")
        .replace("[b]", "[b]\ncgroup=b\ncgroup_weight=900");
    place.file("weights.fio", &job);
    let run = run(&place, "weights.fio", &[]);
    let ratio = iops(&run, 1, "read") / iops(&run, 0, "read");
    assert!((8.0..10.0).contains(&ratio), "{ratio}");
}

#[test]
fn a_target_protects_who_has_it() {
    let groups = "[/victim]\njobs = victim\nio.latency = 8:0 target=400\n\
                  [/other]\njobs = writer\n";
    let place = place(groups);
    let common = [
        "compare",
        "noisy.fio",
        "--drive",
        "mx100-256",
        "--machine",
        "generic-8",
        "--repeats",
        "1",
    ];
    let vary = ["--schedulers", "none", "--vary", "cgroup_file=none,groups"];
    let json = place.json(&[&common[..], &vary].concat());
    // Of both jobs' reads, of their writes, and then of the victim's.
    let median = |row: usize| {
        let table = &json["sections"][0]["directions"][2];
        assert_eq!(
            (&table["direction"], &table["job"]),
            (&"read".into(), &"victim".into())
        );
        let cell = &table["rows"][row]["cells"]["latency_p50_ns"];
        cell["value"]["mean"].as_f64().expect("a median")
    };
    assert!(median(1) < 0.8 * median(0), "{} {}", median(0), median(1));
    let why = json["why"].as_array().expect("facts");
    let held = why
        .iter()
        .find(|row| row["name"] == "/other: held by io.latency");
    let held = &held.expect("who is held back is told")["values"];
    assert!(held[0].is_null() && held[1].as_f64() > Some(10.0), "{held}");
}

#[test]
fn a_class_of_priority_is_a_group_s() {
    let groups = "[/first]\njobs = a\nio.prio.class = promote-to-rt\n[/last]\njobs = b\n";
    let place = place(groups);
    let options = ["--scheduler", "mq-deadline", "--drive", "mx100-256"];
    let run = run(
        &place,
        "two.fio",
        &[&options[..], &["--nr-requests", "64"]].concat(),
    );
    let (first, last) = (iops(&run, 0, "read"), iops(&run, 1, "read"));
    assert!(first > 3.0 * last, "{first} {last}");
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (groups, message) in [
        (
            "[a]\nparent = b\n[b]\nparent = a\n",
            "groups:4: parent = /a: a group cannot be inside itself: /a in /b in /a (ELOOP)",
        ),
        (
            "[/a]\njobs = a\nio.weight = 20000\n",
            "groups:3: io.weight = 20000: found \"20000\", and a weight is from 1 to 10000 (EINVAL)",
        ),
        (
            "[/]\nio.cost.qos = 8:0 enable=1 rpct=110\n",
            "groups:2: io.cost.qos = enable=1 rpct=110: rpct=110 is above 100 percent (EINVAL)",
        ),
        (
            "[/a]\njobs = nobody\n",
            "groups:2: jobs = nobody: no job is called so; there are a, b",
        ),
    ] {
        let place = place(groups);
        let outcome = place.blklab(&["run", "two.fio", "--cgroup-file", "groups"]);
        assert_eq!(outcome.status, 2, "{groups}{}", outcome.err);
        assert!(outcome.err.contains(message), "{groups}{}", outcome.err);
        assert_eq!(outcome.out, "");
    }
    let outcome = place("").blklab(&["run", "two.fio", "--cgroup-file", "nothing"]);
    assert_eq!(outcome.status, 2);
    assert!(
        outcome.err.contains("nothing: cannot be read"),
        "{}",
        outcome.err
    );
    let host = [
        "compare",
        "two.fio",
        "--world",
        "serve",
        "--cgroup-file",
        "groups",
    ];
    let outcome = place("").blklab(&host);
    assert!(outcome.err.contains("--cgroup-file"), "{}", outcome.err);
}

/// What the flusher writes is charged to the group that made it dirty.
#[test]
fn write_back_is_held_by_the_limit_of_who_dirtied_the_file() {
    let place = place("[/low]\njobs = w\nio.max = 8:0 wiops=200\n");
    place.file(
        "write.fio",
        "[w]\nrw=randwrite\nbs=4k\nsize=64m\ntime_based\nruntime=1500ms\n",
    );
    let background = ["--sysctl", "vm.dirty_background_bytes=65536"];
    let run = run(&place, "write.fio", &background);
    let flushed = &run["blklab"]["page_cache"]["flusher_pages"];
    assert!(flushed.as_u64() > Some(100), "{flushed}");
    let held = &group(&run, "low")["io_max"];
    assert!(held["ios"].as_u64() > Some(100), "{held}");
}
