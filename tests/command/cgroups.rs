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

/// Two programs that each read a file of their own twice.
const READERS: &str = "\
[global]
ioengine=psync
bs=128k
rw=read
size=48m
loops=2
invalidate=0
[a]
[b]
";

/// The memory of a group.
fn memory<'a>(run: &'a Value, name: &str) -> &'a Value {
    let groups = run["blklab"]["page_cache"]["groups"].as_array();
    let mut groups = groups.expect("groups with memory").iter();
    let found = groups.find(|group| group["name"] == name);
    found.expect("the group's memory is counted")
}

fn count(of: &Value, what: &str) -> u64 {
    of[what].as_u64().expect("a number")
}

const FILE_PAGES: u64 = 48 << 8;
const MAX_BYTES: u64 = 16 << 20;

/// A file larger than `memory.max` is read anew each time, that of another group is not.
#[test]
fn a_group_at_its_limit_evicts_its_own_pages() {
    let place = place("[/a]\nmemory.max = 16M\njobs = a\n[/b]\njobs = b\n");
    place.file("readers.fio", READERS);
    for lists in ["n", "y"] {
        let sysctl = format!("mm.lru_gen.enabled={lists}");
        let run = run(&place, "readers.fio", &["--sysctl", &sysctl]);
        let (a, b) = (memory(&run, "a"), memory(&run, "b"));
        assert_eq!(count(a, "peak_bytes"), MAX_BYTES, "{a}");
        assert!(count(a, "charged_pages") >= 2 * FILE_PAGES, "{a}");
        assert!(count(a, "max_events") > 100, "{a}");
        let kept = count(a, "charged_pages") - count(a, "reclaimed_pages");
        assert!(kept <= MAX_BYTES / 4096, "{a}");
        assert_eq!(count(b, "charged_pages"), FILE_PAGES, "{b}");
        for never in ["reclaimed_pages", "max_events", "high_events"] {
            assert_eq!(count(b, never), 0, "{b}");
        }
        assert_eq!((count(a, "oom_events"), count(b, "oom_events")), (0, 0));
    }
}

/// Two groups together are held to their parent's limit, and each is reclaimed from.
#[test]
fn a_group_s_limit_is_that_of_all_in_it() {
    let groups = "[/p]\nmemory.max = 16M\n[/p/a]\njobs = a\n[/p/b]\njobs = b\n";
    let place = place(groups);
    place.file("readers.fio", READERS);
    let run = run(&place, "readers.fio", &[]);
    let of = |name: &str, what: &str| count(memory(&run, name), what);
    assert_eq!(of("p", "peak_bytes"), MAX_BYTES);
    assert_eq!((of("p", "charged_pages"), of("p", "oom_events")), (0, 0));
    for inside in ["p/a", "p/b"] {
        assert!(of(inside, "reclaimed_pages") > FILE_PAGES, "{inside}");
        assert_eq!(of(inside, "max_events"), 0, "the limit is the parent's");
    }
}

/// A reader above `memory.high` reclaims before it returns, and hardly waits.
#[test]
fn a_group_above_high_reclaims() {
    let place = place("[/a]\nmemory.high = 16M\njobs = a\n");
    place.file("readers.fio", READERS);
    let run = run(&place, "readers.fio", &[]);
    let a = memory(&run, "a");
    let batch_bytes = 64 << 12;
    assert!(count(a, "peak_bytes") > MAX_BYTES, "{a}");
    assert!(count(a, "peak_bytes") <= MAX_BYTES + 2 * batch_bytes, "{a}");
    assert!(count(a, "high_events") > 100, "{a}");
    assert_eq!((count(a, "max_events"), count(a, "throttled_ns")), (0, 0));
}

/// Of a group's memory a fifth may be dirty, however much the machine has: its writer is held to
/// the drive's speed, one beside it is not.
#[test]
fn a_writer_is_throttled_by_the_memory_of_its_group() {
    let job = "[global]\nioengine=psync\nbs=128k\nrw=write\nsize=256m\noverwrite=1\n[a]\n[b]\n";
    let place = place("[/a]\nmemory.max = 32M\njobs = a\n[/b]\njobs = b\n");
    place.file("writers.fio", job);
    for options in [&[][..], &["--fs", "ext2"]] {
        let run = run(&place, "writers.fio", options);
        let (a, b) = (memory(&run, "a"), memory(&run, "b"));
        assert_eq!((count(a, "oom_events"), count(b, "oom_events")), (0, 0));
        assert!(count(a, "peak_bytes") <= 32 << 20, "{a}");
        let bandwidth = |job: usize| run["jobs"][job]["write"]["bw_bytes"].as_f64();
        let (held, free) = (bandwidth(0).expect("a rate"), bandwidth(1).expect("a rate"));
        assert!(held * 2.0 < free, "{held} {free}");
    }
}

#[test]
fn what_of_memory_is_not_simulated_is_said() {
    let place = place("[/a]\nmemory.swap.max = 1G\njobs = a\n");
    let refused = place.blklab(&["run", "two.fio", "--cgroup-file", "groups"]);
    assert_eq!(refused.status, 2);
    assert!(
        refused
            .err
            .contains("groups:2: memory.swap.max: there is no swap here; right is"),
        "{}",
        refused.err
    );
    place.file("groups", "[/a]\nmemory.max = 64M\njobs = a\n");
    let text = place.blklab(&["run", "two.fio", "--cgroup-file", "groups"]);
    let said = text.ok();
    let all = said.out + &said.err;
    assert!(all.contains("all I/O is direct"), "{all}");
}

#[test]
fn groups_that_no_job_is_in_are_noted() {
    let place = place("[/a]\nio.max = 8:0 wbps=1048576\n[/b]\njobs = a\n");
    let args = ["run", "two.fio", "--cgroup-file", "groups"];
    let said = place.blklab(&args).ok().out;
    assert!(said.contains("groups: no job is in /a, so"), "{said}");
    place.file("groups", "");
    let said = place.blklab(&args).ok().out;
    assert!(said.contains("groups: no control group is in it"), "{said}");
}
