//! `blklab tune`: the best setting by few runs.

use crate::support::Place;

/// Two processes, one of them a writer whose queue grows with the depth.
const JOB: &str = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\nnorandommap\nsize=64m\n\
                   [reader]\nrw=randread\nbs=4k\nnumber_ios=300\n\
                   [writer]\nrw=randwrite\nbs=64k\niodepth=32\nnumber_ios=300\n";

fn tune(place: &Place, words: &str) -> crate::support::Outcome {
    let words: Vec<&str> = words.split(' ').collect();
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
        outcome.out.contains("No difference worth a change"),
        "{}",
        outcome.out
    );
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
    ] {
        let outcome = tune(&place, words);
        assert_eq!(outcome.status, 2, "{words}: {}", outcome.err);
        assert!(outcome.err.contains(said), "{words}: {}", outcome.err);
    }
}
