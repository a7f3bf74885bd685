//! Runs that are ended early: by Ctrl-C, by a limit of time, and by --quick.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Place;

/// Goes through a whole drive, which takes minutes.
const ENDLESS: &str = "[a]\nfilename=/dev/x\nrw=randread\nbs=4k\ndirect=1\n";
/// As long as a real run has to be for the second to be under way when the first has ended.
const LONG: &str = "[a]\nfilename=/dev/x\nrw=randread\nbs=4k\ndirect=1\nruntime=60\ntime_based\n";

/// A command that was interrupted.
struct Interrupted {
    status: Option<i32>,
    out: String,
    err: String,
    /// The time that it went on for.
    took: Duration,
}

/// Interrupts the command after so much time.
fn interrupted(place: &Place, args: &[&str], after: Duration) -> Interrupted {
    let mut child = Command::new(env!("CARGO_BIN_EXE_blklab"))
        .args(args)
        .current_dir(place.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    std::thread::sleep(after);
    let pid = i32::try_from(child.id()).expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let since = Instant::now();
    let output = loop {
        if child.try_wait().expect("it can be asked").is_some() {
            break child.wait_with_output().expect("its output");
        }
        assert!(since.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    Interrupted {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: since.elapsed(),
    }
}

#[test]
fn ctrl_c_ends_at_once_where_no_run_has_ended() {
    let place = Place::new();
    place.file("a.fio", ENDLESS);
    let args = ["compare", "a.fio", "--drive", "nvme"];
    let done = interrupted(&place, &args, Duration::from_millis(700));
    assert_eq!(done.status, Some(130), "{}", done.err);
    let said = "stopped before any run had ended";
    assert!(done.err.contains(said), "{}", done.err);
    assert!(done.took < Duration::from_secs(5), "{:?}", done.took);
}

#[test]
fn ctrl_c_ends_a_run_with_what_it_has_done() {
    let place = Place::new();
    place.file("a.fio", ENDLESS);
    let args = ["run", "a.fio", "--drive", "nvme"];
    let done = interrupted(&place, &args, Duration::from_millis(700));
    assert_eq!(done.status, Some(130), "{}", done.err);
    assert!(done.err.contains("the run ends here"), "{}", done.err);
    assert!(done.out.contains("read: IOPS="), "{}", done.out);
    assert!(done.took < Duration::from_secs(5), "{:?}", done.took);
}

/// Of programs that wait for each other none is left behind.
#[test]
fn ctrl_c_ends_a_list_of_calls_with_what_it_has_done() {
    let place = Place::new();
    let list = "file /f 4M\n[reader]\nopen f /f read\nrepeat 400000000\n  pread f 4K 0\nend\n\
                [waiter]\nwait reader\n[sleeper]\nsleep 1000s\n";
    place.file("a.calls", list);
    let args = ["run", "a.calls", "--drive", "nvme", "--fs", "ext2"];
    let done = interrupted(&place, &args, Duration::from_millis(700));
    assert_eq!(done.status, Some(130), "{}", done.err);
    assert!(done.err.contains("the run ends here"), "{}", done.err);
    assert!(done.out.contains("pread"), "{}", done.out);
    assert!(done.took < Duration::from_secs(5), "{:?}", done.took);
}

#[test]
fn ctrl_c_ends_tune_with_the_best_so_far() {
    let place = Place::new();
    let short = "[a]\nfilename=/dev/x\nrw=randread\nbs=4k\ndirect=1\nruntime=20ms\ntime_based\n";
    place.file("a.fio", short);
    let args = "tune a.fio --drive nvme --goal a.iops --schedulers none,bfq --repeats 10000";
    let args: Vec<&str> = args.split(' ').collect();
    let done = interrupted(&place, &args, Duration::from_secs(4));
    assert_eq!(done.status, Some(130), "{}", done.err);
    assert!(done.out.contains("what to do:"), "{}", done.out);
    assert!(done.took < Duration::from_secs(10), "{:?}", done.took);
}

#[test]
fn a_limit_of_time_ends_runs_without_a_runtime() {
    let place = Place::new();
    place.file("a.fio", ENDLESS);
    let args = ["compare", "a.fio", "--drive", "nvme", "--max-time", "300ms"];
    let done = place.blklab(&args);
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("give it runtime="), "{}", done.err);
}

#[test]
fn a_quick_look_is_short_and_nothing_to_type() {
    let place = Place::new();
    place.file("a.fio", ENDLESS);
    let args = [
        "compare",
        "a.fio",
        "--quick",
        "--drive",
        "nvme",
        "--schedulers",
        "none,bfq",
    ];
    let done = place.blklab(&args).ok();
    assert!(
        done.out.contains("the first second of each job"),
        "{}",
        done.out
    );
    assert!(
        done.out.contains("A first look, not an answer"),
        "{}",
        done.out
    );
    assert!(!done.out.contains("echo "), "{}", done.out);
    // What takes longer by its own runtime is cut to a second, too.
    place.file("a.fio", LONG);
    let json = place.json(&args);
    let elapsed = json["sections"][0]["directions"][0]["rows"][0]["ios"].as_u64();
    assert!(elapsed.is_some_and(|ios| ios < 100_000), "{elapsed:?}");
    // A runtime of one's own stays, by either name.
    for option in ["runtime=20ms", "timeout=20ms"] {
        let notes = place.json(&[&args[..], &["--override", option]].concat())["notes"].to_string();
        assert!(
            notes.contains("--quick") && !notes.contains("first second"),
            "{notes}"
        );
    }
}

#[test]
fn a_percentile_of_a_few_is_not_judged() {
    let place = Place::new();
    let job = "[a]\nfilename=/dev/x\nrw=randwrite\nbs=4k\ndirect=1\nnumber_ios=2000\n\
               iodepth=8\nioengine=libaio\nfsync=100\n";
    place.file("a.fio", job);
    let args = [
        "compare",
        "a.fio",
        "--drive",
        "hdd-7200",
        "--schedulers",
        "none,mq-deadline",
    ];
    let done = place.blklab(&args).ok();
    let says = "too few for a 99th percentile, which is not judged: sync (at most 1";
    assert!(done.out.contains(says), "{}", done.out);
    assert!(!done.out.contains("p99 sync latency"), "{}", done.out);
}

#[test]
fn processes_that_draw_nothing_do_not_start_in_step() {
    let place = Place::new();
    let job = "[w]\nfilename=/dev/x\nrw=write\nbs=256k\ndirect=1\nrate=4m\nruntime=1\n\
               time_based\nnumjobs=4\noffset_increment=5%\nsize=5%\n";
    place.file("w.fio", job);
    let run = |seed: &str| {
        let args = ["run", "w.fio", "--drive", "hdd-7200", "--seed", seed];
        place.json(&args)["jobs"].clone()
    };
    assert_ne!(run("1"), run("2"));
    assert_eq!(run("2"), run("2"));
    // One alone meets nobody, and a repeat of it would tell nothing new.
    place.file("w.fio", &job.replace("numjobs=4\n", ""));
    assert_eq!(run("1"), run("2"));
}
