//! What fio's processes do and cost in simulation: depths, flushes, threads,
//! sleeping for tags, sharing CPUs.

use crate::support::Place;
use serde_json::Value;

/// A job with these options, on a drive and a machine.
fn run(options: &str, more: &[&str]) -> Value {
    let place = Place::new();
    place.file(
        "job.fio",
        &format!("[job]\nfilename=/dev/a\ndirect=1\nbs=4k\nsize=1g\n{options}"),
    );
    place.json(&[&["run", "job.fio"], more].concat())
}

fn sys_us_each(json: &Value) -> f64 {
    let jobs = json["jobs"].as_array().expect("jobs");
    let of = |job: &Value| {
        let number = |value: &Value| value.as_f64().expect("a number");
        let ios = number(&job["read"]["total_ios"]) + number(&job["write"]["total_ios"]);
        let us = number(&job["sys_cpu"]) / 100.0 * number(&job["job_runtime"]) * 1000.0;
        (us, ios)
    };
    let sums = jobs.iter().map(of);
    let (us, ios) = sums.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
    us / ios
}

/// As fio 3.33 has it: it reaps until no more than `iodepth_low` are left, and
/// after each submission where it polls.
#[test]
fn depths_are_those_of_fio() {
    let share = |options: &str, depth: &str| {
        let options = format!("rw=randread\nioengine=libaio\nnumber_ios=2000\n{options}");
        let json = run(&options, &[]);
        json["jobs"][0]["iodepth_level"][depth]
            .as_f64()
            .expect("a share")
    };
    assert!(share("iodepth=8\niodepth_low=7", "8") > 99.0);
    let low = share("iodepth=8\niodepth_low=4", "8");
    assert!((low - 25.0).abs() < 0.5, "{low} %");
    assert_eq!(
        share("iodepth=16\niodepth_batch_complete_min=0", "1"),
        100.0
    );
}

/// glibc has a thread for each file, also where all are on one drive.
#[test]
fn posixaio_reads_from_several_files_at_once() {
    let iops = |files: &str| {
        let place = Place::new();
        let job = format!(
            "[job]\ndirect=1\nbs=4k\nsize=1g\nrw=randread\nioengine=posixaio\niodepth=8\n\
             number_ios=2000\n{files}"
        );
        place.file("job.fio", &job);
        let json = place.json(&["run", "job.fio", "--drive", "mx100-256"]);
        json["jobs"][0]["read"]["iops"].as_f64().expect("IOPS")
    };
    let (one, eight) = (iops(""), iops("nrfiles=8"));
    assert!(eight > 3.0 * one, "{one} with one file, {eight} with eight");
}

/// A machine of one CPU where calls, and inserts of mq-deadline, cost time.
const DEAR: &str = "description = \"x\"\n[cpu]\ncount = 1\n[costs]\nsyscall_ns = SYSCALL\n\
    [costs.scheduler.mq-deadline]\ninsert_ns = INSERT\n";

fn dear(syscall_ns: u32, insert_ns: u32) -> String {
    DEAR.replace("SYSCALL", &syscall_ns.to_string())
        .replace("INSERT", &insert_ns.to_string())
}

/// What is inserted by who slept for a tag costs as much as what is inserted at
/// once.
#[test]
fn sleeping_for_a_tag_saves_no_cpu_time() {
    let us = |tags: &str| {
        let place = Place::new();
        place.file("dear.toml", &dear(0, 10_000));
        let job = "[job]\nfilename=/dev/a\ndirect=1\nbs=4k\nsize=1g\nrw=randread\nioengine=psync\n\
                   numjobs=64\nnumber_ios=50\n";
        place.file("job.fio", job);
        let args = [
            "run",
            "job.fio",
            "--machine",
            "dear.toml",
            "--scheduler",
            "mq-deadline",
        ];
        sys_us_each(&place.json(&[&args[..], &["--nr-requests", tags]].concat()))
    };
    let (many, few) = (us("256"), us("4"));
    assert!(many > 9.0 && few > 0.9 * many, "{many} us and {few} us");
}

#[test]
fn a_flush_costs_a_call() {
    let us = |options: &str| {
        let place = Place::new();
        place.file("dear.toml", &dear(10_000, 0));
        let job = format!(
            "[job]\nfilename=/dev/a\ndirect=1\nbs=4k\nsize=1g\nrw=randwrite\nioengine=psync\n\
             number_ios=200\n{options}"
        );
        place.file("job.fio", &job);
        sys_us_each(&place.json(&["run", "job.fio", "--machine", "dear.toml"]))
    };
    let (alone, synced) = (us(""), us("fsync=1"));
    assert!(synced > alone + 8.0, "{alone} us, with fsync {synced} us");
}

/// As fio 3.33 has it: `fdatasync` has latencies and is not counted, the last
/// flush of a file is in neither.
#[test]
fn flushes_are_counted_as_fio_counts_them() {
    let counts = |options: &str| {
        let options = format!("rw=write\nioengine=psync\nnumber_ios=100\n{options}");
        let json = run(&options, &[]);
        let sync = &json["jobs"][0]["sync"];
        let count = |value: &Value| value.as_u64().expect("a count");
        (count(&sync["total_ios"]), count(&sync["lat_ns"]["N"]))
    };
    assert_eq!(counts("fdatasync=1"), (0, 99));
    assert_eq!(counts("fsync=10\nend_fsync=1"), (9, 9));
    assert_eq!(counts("end_fsync=1"), (0, 0));
}

/// The ramp of a process begins at its own start, and the drive's counters go
/// with it.
#[test]
fn a_drive_counts_from_the_end_of_the_last_ramp() {
    let options = "rw=randread\nioengine=libaio\niodepth=4\ntime_based\nruntime=20ms\n\
                   ramp_time=20ms\nstartdelay=200ms\n";
    let json = run(options, &[]);
    let of_job = json["jobs"][0]["read"]["total_ios"]
        .as_u64()
        .expect("reads");
    let disk = &json["blklab"]["disks"][0];
    let of_disk = disk["queue"]["ios"]["read"].as_u64().expect("reads");
    assert!(of_disk.abs_diff(of_job) <= 4, "{of_disk} and {of_job}");
}

/// Where more can run than there are CPUs, Linux moves them about.
#[test]
fn processes_that_may_move_share_all_cpus() {
    let share = |cpus: &str| {
        let options = format!(
            "rw=randread\nioengine=io_uring\niodepth=32\nnumjobs=3\ntime_based\nruntime=600ms\n{cpus}"
        );
        let json = run(&options, &["--machine", "vm-2cpu", "--drive", "null"]);
        let jobs = json["jobs"].as_array().expect("jobs");
        let iops: Vec<f64> = jobs
            .iter()
            .map(|job| job["read"]["iops"].as_f64().expect("IOPS"))
            .collect();
        let most = iops.iter().copied().fold(0.0, f64::max);
        iops.into_iter().fold(f64::MAX, f64::min) / most
    };
    assert!(share("") > 0.7);
    // Bound to one each, one of the CPUs has two.
    assert!(share("cpus_allowed=0-1\ncpus_allowed_policy=split") < 0.6);
}
