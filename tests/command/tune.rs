//! `blklab tune`: the best setting by few runs.

use crate::support::Place;
use crate::support::loop_device::LoopDevice;
use crate::support::served::have;

/// Two processes, one of them a writer whose queue grows with the depth.
const JOB: &str = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\nnorandommap\nsize=64m\n\
                   [reader]\nrw=randread\nbs=4k\nnumber_ios=300\n\
                   [writer]\nrw=randwrite\nbs=64k\niodepth=32\nnumber_ios=300\n";

fn tune(place: &Place, words: &str) -> crate::support::Outcome {
    let words: Vec<&str> = words.split_whitespace().collect();
    place.blklab(&[&["tune", "t.fio"][..], &words].concat())
}

#[test]
fn the_best_of_a_grid_is_found_by_fewer_runs() {
    let place = Place::new();
    place.file("t.fio", JOB);
    let grid = "--drive mx100-256 --vary nr_requests=4..32 --goal reader.read.mean --repeats 4 \
                --output-format json";
    let json = tune(&place, grid).ok().json();
    let tuned = json["schedulers"].as_array().expect("rows");
    assert_eq!(tuned[0], "nr_requests=4");
    assert_eq!(tuned.len(), 6);
    let notes = json["notes"].to_string();
    assert!(notes.contains("29 settings were tried by"), "{notes}");
    assert!(notes.contains("would be 116"), "{notes}");
    let best = |json: &serde_json::Value| {
        let value = json["judgement"]["rows"][0]["values"]
            .as_array()
            .expect("values")
            .clone();
        let means = value.iter().filter_map(|value| value["mean"].as_f64());
        means.fold(f64::INFINITY, f64::min)
    };
    let all = grid.replace("--output-format json", "");
    let words: Vec<&str> = all.split_whitespace().collect();
    let exhaustive = place.json(&[&["compare", "t.fio", "--assumed", "0"][..], &words].concat());
    let regret = best(&json) / best(&exhaustive) - 1.0;
    assert!(regret < 0.03, "regret {regret}");
}

/// Most settings do the same here, and nothing but a worse one would be left beside the first.
#[test]
fn the_kernel_s_schedulers_as_they_are_stand_beside_what_is_found() {
    let place = Place::new();
    place.file("t.fio", JOB);
    let words = "--drive mx100-256 --goal reader.read.p99 --repeats 2 --output-format json";
    let json = tune(&place, words).ok().json();
    let rows = json["schedulers"].as_array().expect("rows");
    for plain in ["mq-deadline", "none", "kyber", "bfq"] {
        assert!(rows.iter().any(|row| *row == plain), "{plain}: {rows:?}");
    }
    assert_eq!(rows[0], "mq-deadline");
}

#[test]
fn where_nothing_is_better_it_says_so() {
    let place = Place::new();
    // One I/O at a time leaves a scheduler nothing to decide.
    place.file(
        "t.fio",
        "[a]\nrw=randread\nfilename=/dev/x\ndirect=1\nsize=8m\nnumber_ios=100\n",
    );
    let outcome = tune(&place, "--drive null --goal a.read.mean --repeats 2").ok();
    assert!(
        outcome
            .out
            .contains("Which setting is best for a.read.mean?"),
        "{}",
        outcome.out
    );
    assert!(
        outcome
            .out
            .contains("Keep none (Linux 6.12 sets it by itself)"),
        "{}",
        outcome.out
    );
}

/// Of reads through the page cache, the window of readahead is one of them.
#[test]
fn the_queue_s_own_settings_are_tried_too() {
    let place = Place::new();
    place.file(
        "t.fio",
        "[a]\nrw=read\nbs=16k\nsize=64m\nfilename=/dev/x\nioengine=psync\n",
    );
    let words = "--drive hdd-7200 --goal a.read.bandwidth --repeats 2 --output-format json";
    let json = tune(&place, words).ok().json();
    let tuned = json["schedulers"].as_array().expect("rows");
    let is_set = |name: &serde_json::Value| {
        let name = name.as_str().expect("a name");
        name.contains("read_ahead_kb=")
    };
    assert!(tuned.iter().any(is_set), "{tuned:?}");
    assert!(json["advice"]["sentence"].is_string(), "no advice");
}

#[test]
fn several_goals_have_a_front() {
    let place = Place::new();
    place.file("t.fio", JOB);
    let words = "--drive mx100-256 --schedulers none,mq-deadline,kyber,bfq \
                 --vary nr_requests=4,8,16,32 --minimize reader.read.p99 \
                 --maximize writer.write.bandwidth --pareto --repeats 2";
    let json = tune(&place, &format!("{words} --output-format json"))
        .ok()
        .json();
    let front = json["front"]["rows"].as_array().expect("a front");
    let front: Vec<usize> = front
        .iter()
        .map(|at| at.as_u64().expect("a row") as usize)
        .collect();
    let goals = &json["judgement"]["rows"];
    let points: Vec<[f64; 2]> = (0..json["schedulers"].as_array().expect("rows").len())
        .map(|at| {
            let mean = |goal: usize| goals[goal]["values"][at]["mean"].as_f64().expect("a mean");
            [-mean(0), mean(1)]
        })
        .collect();
    let beats = |a: [f64; 2], b: [f64; 2]| a != b && a[0] >= b[0] && a[1] >= b[1];
    for (at, own) in points.iter().enumerate() {
        let is_beaten = points.iter().any(|other| beats(*other, *own));
        assert_eq!(front.contains(&at), !is_beaten, "{at}: {points:?}");
    }
    assert!(front.len() > 1, "{points:?}");
    let text = tune(&place, words).ok().out;
    let table = text.split("Pareto front").nth(1).expect("a table");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[2].contains('\u{b1}'), "{text}");
    // Each setting stands whole on a line of its own.
    for name in json["schedulers"].as_array().expect("rows") {
        let name = name.as_str().expect("a name");
        assert!(
            text.lines().any(|line| line.trim_start().starts_with(name)),
            "{name}: {text}"
        );
    }
}

#[test]
fn a_figure_is_named_with_its_sense() {
    let place = Place::new();
    place.file(
        "one.fio",
        "[a]\nrw=randread\nfilename=/dev/x\ndirect=1\nsize=8m\nnumber_ios=100\n",
    );
    place.file("t.fio", JOB);
    let run = |job: &str, words: &[&str]| {
        let all = [
            "tune",
            job,
            "--drive",
            "mx100-256",
            "--schedulers",
            "none,bfq",
            "--repeats",
            "1",
        ];
        place.blklab(&[&all[..], words].concat())
    };
    let outcome = run(
        "one.fio",
        &[
            "--minimize",
            "read p99",
            "--subject-to",
            "bandwidth >= 0.5 none",
        ],
    );
    let text = outcome.ok().out;
    assert!(
        text.contains("Which setting is best for a.read.p99?"),
        "{text}"
    );
    for (figure, option, said) in [
        (
            "read p99",
            "--minimize",
            "It is one of reader.read.p99 and writer.read.p99",
        ),
        (
            "bandwidth",
            "--minimize",
            "of bandwidth more is better: right is --maximize 'bandwidth'",
        ),
        (
            "reader.read.p99",
            "--maximize",
            "right is --minimize 'reader.read.p99'",
        ),
        ("read p98", "--minimize", "did you mean p99"),
        ("raeder.read.p99", "--minimize", "there is no job raeder"),
        (
            "reader.read.p99",
            "--pareto",
            "--pareto is for several goals",
        ),
    ] {
        let words = match option {
            "--pareto" => vec!["--minimize", figure, option],
            _ => vec![option, figure],
        };
        let outcome = run("t.fio", &words);
        assert_eq!(outcome.status, 2, "{figure}: {}", outcome.err);
        assert!(outcome.err.contains(said), "{figure}: {}", outcome.err);
    }
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let place = Place::new();
    place.file("t.fio", JOB);
    for (words, said) in [
        ("--repeats 1", "tune needs a --goal"),
        ("--goal reader.read.p98", "p99"),
        ("--goal raeder.read.p99", "there is no job raeder"),
        ("--goal all.iops --quick", "--quick is for `blklab compare`"),
        ("--goal all.iops --vary iodeth=1", "did you mean iodepth?"),
        (
            "--goal all.iops --device /dev/x",
            "--device needs --verify-on host",
        ),
        ("--goal all.iops --verify-on host", "needs --device"),
        (
            "--goal all.iops --guest-cpus 2",
            "--guest-cpus is for --verify-on guest",
        ),
        (
            "--goal all.iops --verify-on serve --vary memory=1G,2G",
            "memory can be varied in --world sim",
        ),
        (
            "--goal all.iops --verify-on serve --memory 2G",
            "--memory is for simulations",
        ),
    ] {
        let outcome = tune(&place, words);
        assert_eq!(outcome.status, 2, "{words}: {}", outcome.err);
        assert!(outcome.err.contains(said), "{words}: {}", outcome.err);
    }
}

/// Reads that two schedulers serve alike, by number and not by time.
const READS: &str = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=8\nbs=4k\n\
                     size=32m\n[reads]\nrw=randread\nnumber_ios=400\n";

/// Checks what a measurement of the settings found is said to be, and returns it.
fn measured(outcome: crate::support::Outcome, world: &str) -> serde_json::Value {
    let json = outcome.ok().json();
    let verified = &json["verification"];
    assert_eq!(verified["world"], world);
    assert_eq!(verified["schedulers"], json["schedulers"]);
    assert_eq!(verified["repeats"], 2);
    let values = verified["judgement"]["rows"][0]["values"].as_array();
    let values = values.expect("a figure of each setting");
    let iops = values.iter().map(|value| value["mean"].as_f64());
    let iops: Vec<f64> = iops.map(|mean| mean.expect("a mean")).collect();
    assert_eq!(iops.len(), 2);
    let names = json["schedulers"].as_array().expect("names");
    let choice = names.iter().position(|name| *name == verified["choice"]);
    let own = iops[choice.expect("the choice is measured")];
    let best = iops[0].max(iops[1]);
    let regret = verified["regret"].as_f64().expect("a regret");
    assert!(
        (regret - (best / own - 1.0)).abs() < 1e-9,
        "{regret} {iops:?}"
    );
    json
}

#[test]
fn what_is_found_is_measured_on_a_served_model() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    place.file("t.fio", READS);
    let words = "--drive mx100-256 --schedulers none,mq-deadline --goal all.iops --repeats 1 \
                 --verify-on serve --verify-repeats 2 --output-format json";
    let json = measured(tune(&place, words), "serve");
    assert_eq!(json["world"], "sim");
}

#[test]
fn what_is_found_is_measured_on_a_drive() {
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let before = device.state();
    let place = Place::new();
    place.file("t.fio", READS);
    let device_path = &device.path;
    let words = format!(
        "--drive mx100-256 --schedulers none,mq-deadline --goal all.iops --repeats 1 \
         --verify-on host --device {device_path} --no-trace --verify-repeats 2 \
         --output-format json"
    );
    measured(tune(&place, &words), "host");
    assert_eq!(device.state(), before);
    let text = tune(&place, &words.replace("json", "normal")).ok().out;
    assert!(text.contains("measured on "), "{text}");
    assert!(text.contains("Of 2 settings measured, "), "{text}");
}
