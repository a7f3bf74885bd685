//! Drives with zones: jobs that keep to them, jobs that do not, and what refuses such drives.

use crate::support::Place;

fn job(place: &Place, options: &str) {
    let job = format!("[a]\nfilename=/dev/x\ndirect=1\nbs=64k\n{options}\n");
    place.file("job.fio", &job);
}

fn run(place: &Place, options: &[&str]) -> crate::support::Outcome {
    place.blklab(&[&["run", "job.fio", "--drive", "small.toml"], options].concat())
}

/// A null drive of 32 MiB: a conventional zone of 2 MiB, and 30 of which half can be written.
fn small_drive(place: &Place) {
    place.file(
        "small.toml",
        "description = \"x\"\ninterface = \"nvme\"\nmodel = \"null\"\n[host]\n\
         capacity_bytes = 33554432\nqueue_depth = 64\nqueues = 4\ndiscard = true\n[timing]\n\
         read_ns = 50000\nwrite_ns = 20000\nflush_ns = 0\nparallelism = 64\n[zones]\n\
         size_kb = 2048\ncapacity_kb = 1024\nconventional = 1\nmax_active = 4\n\
         command_us = 10\nreset_us = 1000\nfinish_us = 1000\n",
    );
}

fn zone_resets(out: &str) -> u64 {
    let before = out.split(" zone resets").next().expect("a part");
    let number = before.rsplit(' ').next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no zone resets in {out}"))
}

#[test]
fn jobs_keep_to_zones_and_reset_them() {
    let place = Place::new();
    small_drive(&place);
    for (options, resets) in [
        // 30 zones of 1 MiB, each written twice.
        ("rw=write\noffset=1z\nloops=2", 30..=30),
        (
            "rw=randwrite\nioengine=libaio\niodepth=16\noffset=1z\nio_size=120m\nnorandommap",
            60..=100,
        ),
        (
            "rw=randwrite\nioengine=io_uring\niodepth=16\nnumjobs=3\ngroup_reporting\noffset=1z\n\
             max_open_zones=3\nio_size=60m\nnorandommap",
            60..=190,
        ),
        (
            "rw=randrw\nioengine=libaio\niodepth=8\nnumber_ios=2000\nnorandommap\noffset=1z",
            1..=100,
        ),
        ("rw=randrw\nnumber_ios=100\nsize=1z", 0..=0),
    ] {
        job(&place, &format!("zonemode=zbd\n{options}"));
        for scheduler in ["none", "mq-deadline", "bfq"] {
            let done = run(&place, &["--scheduler", scheduler]).ok();
            let found = zone_resets(&done.out);
            assert!(resets.contains(&found), "{options} {scheduler}: {found}");
            assert!(done.out.contains("err= 0"), "{options}: {}", done.out);
        }
    }
}

#[test]
fn writes_elsewhere_fail_as_on_a_real_drive() {
    let place = Place::new();
    small_drive(&place);
    job(&place, "rw=randwrite\noffset=2m\nnumber_ios=50");
    let done = run(&place, &[]);
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.out.contains("err= 5"), "{}", done.out);
    assert!(
        done.err.contains("zonemode=zbd keeps to them"),
        "{}",
        done.err
    );
    // In order and from the start of a zone they do not.
    job(&place, "rw=write\noffset=2m\nsize=1m");
    let done = run(&place, &[]).ok();
    assert!(done.out.contains("err= 0"), "{}", done.out);
}

#[test]
fn what_a_zoned_drive_cannot_do_is_refused() {
    let place = Place::new();
    small_drive(&place);
    let mistake = |options: &str, says: &str| {
        job(&place, options);
        let done = run(&place, &[]);
        assert_eq!(done.status, 2, "{options}: {}", done.err);
        assert!(done.err.contains(says), "{options}: {}", done.err);
    };
    mistake(
        "zonemode=zbd\nzonesize=1m",
        "zonesize=1m: not the size of the drive's zones",
    );
    mistake(
        "zonemode=zbd\nrw=write\nbs=2m",
        "a block is larger than a zone",
    );
    mistake(
        "zonemode=zbd\nrw=write\nsize=1m\noffset=2m",
        "less than a zone",
    );
    mistake(
        "zonemode=zbd\nmax_open_zones=5",
        "at most 4, or ignore_zone_limits=1",
    );
    mistake(
        "zonemode=zbd\nrw=trim\nbs=2m",
        "are not simulated with zonemode=zbd",
    );
    mistake("zonemode=zbd\nzoneskip=2m", "not skipped with zonemode=zbd");
    mistake("zonesize=1m", "needs a zonemode");
    mistake("size=2z", "there are no zones");
    place.file(
        "plain.fio",
        "[a]\nfilename=/dev/x\ndirect=1\nzonemode=zbd\n",
    );
    let done = place.blklab(&["run", "plain.fio", "--drive", "null"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("the drive has no zones"), "{}", done.err);
    let refused = |arguments: &[&str], says: &str| {
        let done = place.blklab(arguments);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(says), "{}", done.err);
    };
    refused(
        &[
            "serve",
            "--memory",
            "32M",
            "--drive",
            "small.toml",
            "--socket",
            "s",
        ],
        "has zones, and no client could learn of them",
    );
    job(&place, "rw=read");
    refused(
        &["run", "job.fio", "--drive", "small.toml", "--fs", "ext2"],
        "right is --fs raw",
    );
}

/// Writers of the shipped drive's 14 zones make what its flash takes, whatever the scheduler.
#[test]
fn a_zns_drive_is_compared() {
    let place = Place::new();
    place.file(
        "zns.fio",
        "[a]\nfilename=/dev/x\ndirect=1\nzonemode=zbd\nrw=randwrite\nbs=128k\nioengine=libaio\n\
         iodepth=14\nruntime=100ms\ntime_based\n",
    );
    let schedulers = ["--schedulers", "none,mq-deadline", "--repeats", "1"];
    let compare = ["compare", "zns.fio", "--drive", "zn540-1tb", "--details"];
    let done = place.blklab(&[&compare[..], &schedulers].concat()).ok();
    for scheduler in ["none", "mq-deadline"] {
        let mut lines = done.out.lines().map(str::split_whitespace);
        let mut row = lines.find(|line| line.clone().next() == Some(scheduler));
        let mb_s = row.as_mut().and_then(|row| row.nth(1)?.parse().ok());
        // 1077 MiB in 907 ms is what its flash takes.
        let near = mb_s.is_some_and(|mb_s: f64| (1000.0..1300.0).contains(&mb_s));
        assert!(near, "{scheduler}: {}", done.out);
    }
}

#[test]
fn a_kernel_without_zones_is_refused_for_a_drive_with_zones() {
    let place = Place::new();
    job(&place, "rw=write\nzonemode=zbd\nnumber_ios=4");
    let refused = |kernel| {
        let args = [
            "compare",
            "job.fio",
            "--drive",
            "zn540-1tb",
            "--kernel",
            kernel,
        ];
        let outcome = place.blklab(&args);
        assert_eq!(outcome.status, 2, "{}", outcome.err);
        outcome.err
    };
    let expected = "blklab: --kernel 3.10: Linux has a driver for zn540-1tb from 5.9 on\n";
    assert_eq!(refused("3.10"), expected);
    assert!(refused("5.8").contains("from 5.9 on"));
}
