//! `blklab compare --vary`: things other than schedulers compared.

use serde_json::{Value, json};

use crate::support::{MIXED, Place};

/// A comparison's rows and JSON.
fn compared(options: &[&str]) -> Value {
    let place = Place::new();
    place.file("mixed.fio", &MIXED.replace("4000", "400"));
    let common = ["compare", "mixed.fio", "--repeats", "1"];
    place.json(&[&common, options].concat())
}

/// The mean of a fact in each row.
fn cells(json: &Value, metric: &str) -> Vec<f64> {
    let rows = json["sections"][0]["directions"][0]["rows"].as_array();
    let mean = |row: &Value| row["cells"][metric]["value"]["mean"].as_f64();
    let rows = rows.expect("rows").iter();
    rows.map(|row| mean(row).expect("a mean")).collect()
}

#[test]
fn an_option_of_the_job_is_varied() {
    let json = compared(&["--drive", "mx100-256", "--vary", "iodepth=1,32"]);
    assert_eq!(json["schedulers"], json!(["iodepth=1", "iodepth=32"]));
    let iops = cells(&json, "iops");
    assert!(iops[1] > 2.0 * iops[0], "{iops:?}");
}

#[test]
fn a_file_in_place_of_the_jobs_own_is_the_only_one() {
    let place = Place::new();
    let job = "[global]\nfilename=/dev/sda\nruntime=50ms\ntime_based\nsize=1m\n[a]\nrw=randread\n";
    place.file("files.fio", job);
    let run = ["run", "files.fio", "--drive", "null"];
    let text = place
        .blklab(&[&run[..], &["--override", "filename=/dev/sdb"]].concat())
        .ok()
        .out;
    assert!(text.contains("sdb") && !text.contains("sda"), "{text}");
}

#[test]
fn a_tunable_runs_under_its_own_scheduler() {
    let json = compared(&["--vary", "mq-deadline.fifo_batch=1,16"]);
    let rows = json!(["mq-deadline fifo_batch=1", "mq-deadline fifo_batch=16"]);
    assert_eq!(json["schedulers"], rows);
}

#[test]
fn several_axes_give_their_product() {
    let vary = ["--vary", "drive=nvme,null", "--vary", "bs=4k,8k"];
    let json = compared(&vary);
    let rows = json!([
        "drive=nvme bs=4k",
        "drive=nvme bs=8k",
        "drive=null bs=4k",
        "drive=null bs=8k"
    ]);
    assert_eq!(json["schedulers"], rows);
    let iops = cells(&json, "iops");
    assert!(iops[2] > iops[0], "the null drive is the faster: {iops:?}");
    let notes = json["notes"].as_array().expect("notes").iter();
    let notes: Vec<_> = notes.filter_map(Value::as_str).collect();
    let is_said = |note: &&str| note.starts_with("nothing is advised") && note.contains("assumed");
    assert!(notes.iter().any(is_said), "{notes:?}");
}

#[test]
fn drives_in_different_states_are_said_to_be() {
    let said = |options: &[&str]| {
        let vary = ["--vary", "drive=nvme,enterprise-tlc,hdd-7200"];
        compared(&[&vary, options].concat())["notes"].to_string()
    };
    let differ = "different states (nvme filled, enterprise-tlc aged): --state gives all";
    assert!(said(&[]).contains(differ), "{}", said(&[]));
    let fresh = ["--vary", "drive=nvme,enterprise-tlc", "--state", "fresh"];
    assert!(
        !compared(&fresh)["notes"]
            .to_string()
            .contains("different states")
    );
}

#[test]
fn schedulers_are_one_axis_beside_others() {
    let json = compared(&[
        "--schedulers",
        "none,bfq",
        "--vary",
        "machine=rpi4,xeon-10core",
    ]);
    let rows = json!([
        "none machine=rpi4",
        "none machine=xeon-10core",
        "bfq machine=rpi4",
        "bfq machine=xeon-10core"
    ]);
    assert_eq!(json["schedulers"], rows);
    let same = compared(&["--vary", "scheduler=none,bfq"]);
    let short = compared(&["--schedulers", "none,bfq"]);
    assert_eq!(same["sections"], short["sections"]);
}

#[test]
fn a_key_of_the_drive_is_varied_or_left_out() {
    let json = compared(&[
        "--drive",
        "nvme",
        "--vary",
        "drive.controller.read_us=5,500",
    ]);
    let rows = json!(["drive.controller.read_us=5", "drive.controller.read_us=500"]);
    assert_eq!(json["schedulers"], rows);
    let p50_ns = cells(&json, "latency_p50_ns");
    assert!(p50_ns[1] > p50_ns[0] + 100_000.0, "{p50_ns:?}");
    let drive = [
        "--drive",
        "hdd-7200",
        "--vary",
        "drive.controller.scheduling=fcfs",
    ];
    let unset = ["--vary", "drive.controller.patience_us=unset"];
    let json = compared(&[&drive[..], &unset].concat());
    assert_eq!(cells(&json, "iops").len(), 1);
}

#[test]
fn a_queue_setting_is_varied() {
    let json = compared(&["--schedulers", "mq-deadline", "--vary", "nr_requests=4,256"]);
    let rows = json!(["mq-deadline nr_requests=4", "mq-deadline nr_requests=256"]);
    assert_eq!(json["schedulers"], rows);
    let p99 = cells(&json, "latency_p99_ns");
    assert_ne!(p99[0], p99[1]);
}

#[test]
fn a_job_as_options_is_varied_too() {
    let place = Place::new();
    let options = "compare --vary rwmixread=0,100 --repeats 1 --output-format json -- --name=t \
                   --filename=/dev/x --direct=1 --rw=randrw --bs=4k --number_ios=100";
    let json = place
        .blklab(&options.split_whitespace().collect::<Vec<_>>())
        .ok()
        .json();
    assert_eq!(json["schedulers"], json!(["rwmixread=0", "rwmixread=100"]));
}

#[test]
fn what_cannot_be_varied_is_refused_before_anything_runs() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    for (options, words) in [
        (&["--vary", "iodeph=1"][..], &["did you mean iodepth?"][..]),
        (&["--vary", "drve=nvme"], &["did you mean drive?"]),
        (
            &["--vary", "mq-dedline.fifo_batch=1"],
            &["did you mean mq-deadline?"],
        ),
        (
            &["--vary", "mq-deadline.fifo_batsh=1"],
            &["did you mean fifo_batch?"],
        ),
        (
            &["--vary", "mq-deadline.fifo_batch=-1"],
            &["fifo_batch takes"],
        ),
        (&["--vary", "iodepth=0"], &["--vary: iodepth=0", "1"]),
        (&["--vary", "nomerges=3"], &["from 0 to 2"]),
        (
            &["--schedulers", "bfq", "--vary", "nr_requests=8,99999"],
            &["4 to 2048"],
        ),
        (
            &["--vary", "drive=floppy"],
            &["no drive of that name", "nvme"],
        ),
        (
            &["--vary", "drive.gc.policy=greedy,lfu"],
            &["nvme:", "`gc.policy`", "lfu", "cost_benefit"],
        ),
        (
            &["--vary", "drive.gc.polcy=greedy"],
            &["gc.polcy", "policy"],
        ),
        (
            &["--vary", "vm.dirty_rato=1"],
            &["no vm.dirty_rato", "vm.dirty_ratio"],
        ),
        (&["--vary", "iodepth"], &["KEY=VALUE"]),
    ] {
        let args = [&["compare", "mixed.fio"], options].concat();
        let done = place.blklab(&args);
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.out.is_empty(), "{args:?}");
        for word in words {
            assert!(done.err.contains(word), "{args:?}: {}", done.err);
        }
    }
    let trace = "8,0 0 1 0.0 1 Q R 0 + 8 [p]\n8,0 0 2 0.1 1 C R 0 + 8 [0]\n";
    place.file("t.blkparse", trace);
    let done = place.blklab(&["compare", "t.blkparse", "--vary", "iodepth=1,2"]);
    assert_eq!(done.status, 2, "{}", done.err);
}

#[test]
fn the_axes_are_listed() {
    let listed = Place::new().blklab(&["list", "axes"]).ok().out;
    for key in [
        "scheduler",
        "SCHEDULER.TUNABLE",
        "drive",
        "read_ahead_kb",
        "FIO-OPTION",
    ] {
        assert!(listed.lines().any(|line| line.starts_with(key)), "{listed}");
    }
}

/// As fio-plot draws them.
#[test]
fn a_varied_depth_is_drawn_as_curves() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let args = ["compare", "mixed.fio", "--drive", "null", "--repeats", "1"];
    let vary = ["--vary", "scheduler=none,bfq", "--vary", "iodepth=1,2,4,8"];
    let page = ["--details", "--html", "page.html"];
    let out = place.blklab(&[&args[..], &vary, &page].concat()).ok().out;
    let lines: Vec<&str> = out.lines().collect();
    let head = lines
        .iter()
        .position(|l| l.contains("IOPS of read over iodepth"));
    let table = &lines[head.expect("a table of curves")..];
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    assert!(words(table[0]).ends_with(&["1", "2", "4", "8"].map(String::from)));
    assert_eq!(words(table[2])[0], "none");
    assert_eq!(words(table[3])[0], "bfq");
    assert_eq!(words(table[2]).len(), 5);
    let page = std::fs::read_to_string(place.path("page.html")).expect("the page");
    assert!(page.contains("<h2>Over iodepth</h2>"));
    let chart = page.split("<h2>Over iodepth</h2>").nth(1).expect("charts");
    let chart = &chart[..chart.find("<h2>").expect("what follows")];
    // Reads and writes: IOPS, bandwidth and p99 of two schedulers at four depths each.
    assert_eq!(chart.matches("<circle").count(), 2 * 3 * 2 * 4);
    assert_eq!(chart.matches("class=\"curve\"").count(), 2 * 3 * 2);
}

/// Points of a curve are not better than one another: schedulers are judged at each.
#[test]
fn schedulers_are_judged_at_each_depth() {
    let place = Place::new();
    let job = "[a]\nioengine=libaio\ndirect=1\nrw=randread\nbs=4k\nsize=1g\ntime_based\n\
               runtime=20ms\n";
    place.file("a.fio", job);
    let depths = [
        "compare",
        "a.fio",
        "--repeats",
        "2",
        "--vary",
        "iodepth=1,4,16",
    ];
    let both = [&depths[..], &["--schedulers", "none,bfq"]].concat();
    let out = place.blklab(&both).ok().out;
    for said in [
        "IOPS of read over iodepth",
        "iodepth=1: ",
        "iodepth=4: ",
        "iodepth=16: ",
    ] {
        assert!(out.contains(said), "no {said:?} in {out}");
    }
    assert!(!out.contains("against none iodepth=1)"), "{out}");
    // A goal is judged at each depth too: more in flight is more work, not a better scheduler.
    let goal = [&both[..], &["--goal", "a.iops"]].concat();
    let judgement = &place.json(&goal)["judgement"];
    let said = judgement["sentence"].as_str().expect("a sentence");
    for depth in ["iodepth=1: ", "iodepth=4: ", "iodepth=16: "] {
        assert!(said.contains(depth), "no {depth:?} in {said}");
    }
    assert_eq!(judgement["contest"], serde_json::Value::Null);
    let one = [&depths[..], &["--schedulers", "none"]].concat();
    let out = place.blklab(&one).ok().out;
    assert!(out.contains("Each row does work of its own"), "{out}");
    // A limit by another row is one by that at the same depth.
    let same = [&goal[..], &["--subject-to", "a.bandwidth >= 0.99 none"]].concat();
    let rows = &place.json(&same)["judgement"]["rows"];
    let kept = rows[1]["kept"].as_array().expect("a list");
    assert_eq!(kept.len(), 6);
    assert_eq!(
        kept[..3],
        [json!(true), json!(true), json!(true)],
        "none keeps its own: {rows}"
    );
    let other = "a.bandwidth >= 0.99 none iodepth=1";
    let other = place.blklab(&[&goal[..], &["--subject-to", other]].concat());
    assert_eq!(other.status, 2);
    let said = "none iodepth=1 is not compared; none and bfq are";
    assert!(other.err.contains(said), "{}", other.err);
}

/// Whatever says what is asked of a drive is work, and how it is asked is a choice.
#[test]
fn rows_are_judged_by_what_may_be_chosen() {
    let sentence = |axis: &str| {
        let json = compared(&["--schedulers", "none,bfq", "--vary", axis]);
        let said = json["headline"].as_str().expect("a headline");
        said.to_string()
    };
    for (axis, first) in [
        ("percentage_random=0,100", "percentage_random=0: "),
        ("fsync=0,1", "fsync=0: "),
        ("latency_target=0,5ms", "latency_target=0: "),
    ] {
        let said = sentence(axis);
        assert!(said.contains(first), "{axis}: {said}");
    }
    let said = sentence("ioengine=libaio,psync");
    assert!(!said.contains("ioengine=psync: "), "{said}");
}
