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
