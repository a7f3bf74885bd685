//! Attributes as files over FUSE, read and written by a shell while clients
//! load the export.

use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::served::{Served, have, judge, verified};
use crate::support::{Place, have_fuse};

fn shell(place: &Place, line: &str) -> String {
    judge(place, "sh", &["-c", line]).out
}

fn served(place: &Place, options: &[&str]) -> Served {
    std::fs::create_dir(place.path("sys")).expect("a folder");
    let options = [&["--memory", "64M", "--sysfs", "sys"], options].concat();
    Served::start(place, &options)
}

fn is_mounted(place: &Place) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("a list");
    mounts.contains(&*place.path("sys").to_string_lossy())
}

#[test]
fn the_tree_is_that_of_the_kernel() {
    if !have_fuse() {
        return;
    }
    let place = Place::new();
    let served = served(&place, &["--scheduler", "mq-deadline"]);
    let cat = |path: &str| shell(&place, &format!("cat sys/block/b0/{path}"));
    let schedulers = cat("queue/scheduler");
    for word in ["none", "[mq-deadline]", "kyber", "bfq"] {
        assert!(
            schedulers.split_whitespace().any(|w| w == word),
            "{schedulers}"
        );
    }
    assert_eq!(cat("size"), "131072\n");
    assert_eq!(cat("stat").split_whitespace().count(), 17);
    assert_eq!(
        cat("inflight").split_whitespace().collect::<Vec<_>>(),
        ["0", "0"]
    );
    assert_eq!(cat("queue/rotational"), "0\n");
    assert_eq!(cat("queue/zoned") + &cat("queue/nr_zones"), "none\n0\n");
    // It is a disk of the device model, with what every disk has.
    assert_eq!(
        shell(&place, "readlink sys/block/b0"),
        "../devices/virtual/block/b0\n"
    );
    assert_eq!(shell(&place, "ls sys/class/block"), "b0\n");
    assert_eq!(cat("bdi/uevent"), cat("../../bdi/254:0/uevent"));
    assert_eq!(cat("dev"), "254:0\n");
    assert!(cat("uevent").contains("DEVNAME=b0\n"), "{}", cat("uevent"));
    assert_eq!(cat("queue/write_cache"), "write through\n");
    assert_eq!(cat("queue/iosched/fifo_batch"), "16\n");
    // debugfs shows the queue as it is: its tags are as many as requests.
    let debug = |path: &str| shell(&place, &format!("cat sys/kernel/debug/block/b0/{path}"));
    assert_eq!(debug("hctx0/flags"), "alloc_policy=FIFO SHOULD_MERGE\n");
    assert!(
        debug("state").ends_with("|SQ_SCHED\n"),
        "{}",
        debug("state")
    );
    shell(&place, "echo 48 > sys/block/b0/queue/nr_requests");
    let tags = debug("hctx0/sched_tags");
    assert!(tags.starts_with("nr_tags=48\n"), "{tags}");
    assert_eq!(cat("mq/0/nr_reserved_tags"), "0\n");
    // As on the control socket.
    shell(&place, "echo 4 > sys/block/b0/queue/iosched/fifo_batch");
    assert_eq!(served.get(&place, "iosched/fifo_batch"), "4");
    served.set(&place, "queue/nomerges", "2");
    assert_eq!(cat("queue/nomerges"), "2\n");
    assert_eq!(debug("sched/queued"), "0 0 0\n");
    assert_eq!(debug("sched/async_depth"), "48\n");
    // A scheduler brings its own tunables, and its own files in debugfs.
    shell(&place, "echo kyber > sys/block/b0/queue/scheduler");
    assert_eq!(
        shell(&place, "ls sys/block/b0/queue/iosched"),
        "read_lat_nsec\nwrite_lat_nsec\n"
    );
    assert_eq!(
        shell(&place, "ls sys/kernel/debug/block/b0/sched"),
        "async_depth\ndiscard_tokens\nother_tokens\nread_tokens\nwrite_tokens\n"
    );
    assert_eq!(debug("hctx0/sched/cur_domain"), "READ\n");
    shell(&place, "echo bfq > sys/block/b0/queue/scheduler");
    assert_eq!(
        shell(
            &place,
            "cd sys/kernel/debug/block/b0; ls -d *sched hctx0/*sched; true"
        ),
        ""
    );
    // Out of range: kyber takes any number that is not negative, bfq and
    // mq-deadline the nearest one, of those that their functions read.
    let set = |path: &str, value: &str| {
        std::fs::write(place.path(&format!("sys/block/b0/queue/{path}")), value)
    };
    let refused = |path, value| set(path, value).expect_err("refused").kind();
    set("scheduler", "kyber").expect("it exists");
    assert_eq!(
        refused("iosched/read_lat_nsec", "-1"),
        ErrorKind::InvalidInput
    );
    for (scheduler, tunable, written, read) in [
        ("bfq", "back_seek_penalty", "0", "1\n"),
        ("bfq", "low_latency", "7", "1\n"),
        ("bfq", "max_budget", "99999999999", "2147483647\n"),
        ("mq-deadline", "read_expire", "-5", "0\n"),
        ("mq-deadline", "front_merges", "2", "1\n"),
    ] {
        set("scheduler", scheduler).expect("it exists");
        let path = format!("iosched/{tunable}");
        set(&path, written).expect("moved into range");
        assert_eq!(cat(&format!("queue/{path}")), read, "{scheduler} {path}");
    }
    assert_eq!(
        refused("iosched/read_expire", "4294967296"),
        ErrorKind::InvalidInput
    );
    set("scheduler", "bfq").expect("it exists");
    assert_eq!(refused("iosched/max_budget", "-1"), ErrorKind::InvalidInput);
    // Attributes that are not one number.
    shell(&place, "echo adios > sys/block/b0/queue/scheduler");
    assert_eq!(cat("queue/iosched/adios_version"), "3.1.9\n");
    let model = "sys/block/b0/queue/iosched/lat_model_read";
    shell(&place, &format!("echo 90000 4000 > {model}"));
    assert_eq!(
        cat("queue/iosched/lat_model_read"),
        "base : 90000 ns\nslope: 4000 ns/KiB\n"
    );
    shell(&place, "echo none > sys/block/b0/queue/scheduler");
    assert_eq!(shell(&place, "ls -d sys/block/b0/queue/io*; true"), "");
    assert_eq!(debug("hctx0/sched_tags"), "\n");
    // What makes no sense is refused, and what cannot be set is.
    let set = |path: &str, value: &str| {
        std::fs::write(place.path(&format!("sys/block/b0/{path}")), value)
            .expect_err("refused")
            .kind()
    };
    assert_eq!(set("queue/scheduler", "quick"), ErrorKind::InvalidInput);
    assert_eq!(set("queue/nr_requests", "-1"), ErrorKind::InvalidInput);
    // Root may open what nobody may write.
    set("size", "1");
    set("new", "1");
    assert!(is_mounted(&place));
    assert_eq!(served.terminate(), Some(0));
    assert!(!is_mounted(&place));
}

fn load(place: &Place, served: &Served) -> Child {
    let args = verified(&served.uri(), 2, "randrw", "8m");
    Command::new("fio")
        .args(args)
        .args(["--loops=3"])
        .current_dir(place.path("."))
        .stdout(Stdio::null())
        .spawn()
        .expect("fio starts")
}

#[test]
fn echo_switches_schedulers_under_load() {
    if !have_fuse() || !have("fio") {
        return;
    }
    let place = Place::new();
    let served = served(&place, &["--depth", "4"]);
    let mut fio = load(&place, &served);
    let mut switches = 0;
    let status = loop {
        for name in ["mq-deadline", "kyber", "bfq", "none"] {
            shell(
                &place,
                &format!("echo {name} > sys/block/b0/queue/scheduler"),
            );
            let shown = shell(&place, "cat sys/block/b0/queue/scheduler");
            assert!(shown.contains(&format!("[{name}]")), "{shown}");
            switches += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(status) = fio.try_wait().expect("fio runs") {
            break status;
        }
    };
    assert!(status.success(), "after {switches} switches");
    assert!(switches >= 4);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_folder_that_is_in_use_is_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("sys")).expect("a folder");
    std::fs::write(place.path("sys/mine"), "").expect("a file");
    let socket = place.path("b.sock");
    let socket = socket.to_string_lossy();
    for (folder, word) in [("sys", "not empty"), ("nowhere", "No such file")] {
        let args = ["serve", "--socket", &socket, "--memory", "1M", "--sysfs"];
        let done = place.blklab(&[&args[..], &[folder]].concat());
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(word), "{}", done.err);
    }
}

#[test]
fn attributes_go_by_their_paths_in_sysfs_too() {
    let place = Place::new();
    let args = ["--memory", "1M", "--scheduler", "mq-deadline"];
    let served = Served::start(&place, &args);
    for (path, value) in [
        ("iosched/fifo_batch", "3"),
        ("queue/iosched/fifo_batch", "4"),
        ("/sys/block/sdx/queue/iosched/fifo_batch", "5"),
    ] {
        served.set(&place, path, value);
        assert_eq!(served.get(&place, path), value);
        assert_eq!(served.get(&place, "iosched/fifo_batch"), value);
    }
    served.set(&place, "/sys/block/sdx/queue/nr_requests", "32");
    assert_eq!(served.get(&place, "queue/nr_requests"), "32");
    let control = served.control.to_string_lossy().into_owned();
    let wrong = place.blklab(&["get", "--control", &control, "/sys/block/sdx/queue/none"]);
    assert_eq!(wrong.status, 2);
    assert!(
        wrong.err.contains("no attribute queue/none"),
        "{}",
        wrong.err
    );
}
