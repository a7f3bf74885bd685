//! `--faults`: a drive that stalls, is slow or cannot read its sectors.

use serde_json::Value;

use crate::support::Place;

const JOB: &str = "[r]\nfilename=/dev/x\ndirect=1\nrw=randread\nbs=4k\nnumber_ios=4000\n\
     ioengine=libaio\niodepth=4\ncontinue_on_error=all\n";

fn run(place: &Place, faults: &str) -> Value {
    let run = [
        "run",
        "r.fio",
        "--output-format",
        "json",
        "--faults",
        faults,
    ];
    let outcome = place.file("r.fio", JOB).blklab(&run);
    // As fio, where an I/O failed.
    assert_eq!(outcome.status, 1, "{}", outcome.err);
    outcome.json()
}

#[test]
fn a_failed_read_is_an_error_of_the_job_and_counted() {
    let place = Place::new();
    let json = run(&place, "read_error=0.01,stall=0.01:20ms");
    let faults = &json["blklab"]["disks"][0]["device"]["faults"];
    let failed = faults["reads_failed"].as_u64().unwrap();
    assert!((10..100).contains(&failed), "{faults}");
    assert_eq!(json["jobs"][0]["total_err"], failed);
    assert!(faults["stalls"].as_u64().unwrap() > 10, "{faults}");
    let longest_ns = json["jobs"][0]["read"]["lat_ns"]["max"].as_f64().unwrap();
    assert!(longest_ns > 20e6, "{longest_ns}");
}

#[test]
fn without_faults_there_is_no_count_of_them() {
    let place = Place::new();
    let plain = place.file("r.fio", JOB);
    let json = plain.json(&["run", "r.fio"]);
    assert!(json["blklab"]["disks"][0]["device"].get("faults").is_none());
    let text = place.blklab(&["run", "r.fio", "--faults", "slow=2"]).ok();
    assert!(text.out.contains("faults: stalls=0"), "{}", text.out);
}

#[test]
fn a_wrong_fault_lists_the_right_ones() {
    let place = Place::new();
    let outcome = place
        .file("r.fio", JOB)
        .blklab(&["run", "r.fio", "--faults", "bitrot=1"]);
    assert_eq!(outcome.status, 2);
    assert!(
        outcome.err.contains("did you mean bit_rot?"),
        "{}",
        outcome.err
    );
}

#[test]
fn a_comparison_tells_on_its_screen_what_faults_were_met() {
    let place = Place::new();
    let compare = |faults: &[&str]| {
        let words = [
            "compare",
            "r.fio",
            "--schedulers",
            "none,bfq",
            "--repeats",
            "2",
        ];
        let words = [&words[..], &["--assumed", "0"], faults].concat();
        place.file("r.fio", JOB).blklab(&words)
    };
    let found = compare(&["--faults", "stall=0.01:20ms"]).ok().out;
    let note = found
        .lines()
        .find(|line| line.contains("faults of the drive"));
    let note = note.unwrap_or_else(|| panic!("no note: {found}"));
    let count = note
        .split(": ")
        .last()
        .and_then(|end| end.split(' ').next());
    let count: u32 = count.and_then(|count| count.parse().ok()).expect("a count");
    assert!(
        note.ends_with(" commands that stalled") && count > 40,
        "{note}"
    );
    assert!(!compare(&[]).ok().out.contains("faults of the drive"));
    let slow = compare(&["--faults", "slow=2"]).ok().out;
    assert!(
        slow.contains("no command met one that is counted"),
        "{slow}"
    );
}

#[test]
fn faults_and_power_cuts_are_axes_and_keys_of_a_sweep() {
    let place = Place::new();
    place.file("r.fio", JOB);
    let axes = [
        "--vary",
        "faults=none,slow=2,stall=0.01:20ms+slow=2",
        "--repeats",
        "1",
    ];
    let json = place.json(&[&["compare", "r.fio", "--assumed", "0"][..], &axes].concat());
    let mean = |at: usize| {
        let rows = &json["sections"][0]["directions"][0]["rows"];
        let cell = &rows[at]["cells"]["latency_mean_ns"];
        cell["value"]["mean"].as_f64().expect("a mean")
    };
    assert!(mean(1) > 1.5 * mean(0) && mean(2) > 1.1 * mean(1));
    place.file(
        "s.toml",
        "job = \"r.fio\"\nvary = [\"power_loss_at=never,2ms\"]\nfaults = \"slow=2\"\n",
    );
    let swept = place.blklab(&["sweep", "s.toml"]).ok().out;
    assert!(swept.starts_with("2 runs: 2 done now"), "{swept}");
    // Other faults are other runs, and so is another power cut.
    for spec in [
        "job = \"r.fio\"\nvary = [\"power_loss_at=never,2ms\"]\nfaults = \"slow=3\"\n",
        "job = \"r.fio\"\nvary = [\"iodepth=4,8\"]\npower_loss_at = \"3ms\"\n",
    ] {
        let swept = place
            .file("s.toml", spec)
            .blklab(&["sweep", "s.toml"])
            .ok()
            .out;
        assert!(swept.starts_with("2 runs: 2 done now"), "{swept}");
    }
    for (spec, said) in [
        ("vary = [\"faults=bitrot=1\"]", "did you mean bit_rot?"),
        (
            "vary = [\"iodepth=1\"]\nfaults = \"slow=0\"",
            "s.toml:3: `faults`",
        ),
        ("vary = [\"power_loss_at=2\"]", "--vary power_loss_at=2"),
        (
            "vary = [\"iodepth=1\"]\npower_loss_at = \"2\"",
            "s.toml:3: `power_loss_at`",
        ),
    ] {
        place.file("s.toml", &format!("job = \"r.fio\"\n{spec}\n"));
        let outcome = place.blklab(&["sweep", "s.toml", "--output", "d"]);
        assert_eq!(outcome.status, 2, "{spec}: {}", outcome.err);
        assert!(outcome.err.contains(said), "{spec}: {}", outcome.err);
    }
}
