//! `blklab trace`: events of a running server, judged by blkparse and by our
//! own reader of kernel traces.

use std::process::{Child, Command};

use crate::support::served::{Served, have, judge, nbdsh};
use crate::support::{Place, send_signal};

fn start(place: &Place, served: &Served, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_blklab"))
        .arg("trace")
        .arg("--control")
        .arg(&served.control)
        .args(args)
        .current_dir(place.path("."))
        .spawn()
        .expect("the program starts")
}

/// Waits until the recorder has created its file: the server records by then.
fn wait_for(place: &Place, name: &str) {
    while !place.path(name).exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn interrupt(mut recorder: Child) {
    send_signal(&recorder, "-INT");
    assert!(recorder.wait().expect("it ends").success());
}

/// 200 writes and 200 reads of 4 KiB, and a flush.
fn work(place: &Place, served: &Served) {
    let lines = "\
for i in range(200): h.pwrite(b'x'*4096, i*8192)
for i in range(200): h.pread(4096, i*8192)
h.flush()";
    nbdsh(place, &served.uri(), &[lines]);
}

#[test]
fn blkparse_reads_what_a_server_did() {
    if !have("blkparse") || !have("nbdsh") {
        return;
    }
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "16M", "--scheduler", "mq-deadline"]);
    let args = ["-o", "run.blktrace.0", "--format", "blktrace"];
    let recorder = start(&place, &served, &args);
    wait_for(&place, "run.blktrace.0");
    // One recording at a time.
    let control = served.control.to_string_lossy();
    let second = place.blklab(&["trace", "--control", &control, "-o", "second"]);
    assert_eq!(second.status, 2);
    assert!(second.err.contains("already"), "{}", second.err);
    work(&place, &served);
    interrupt(recorder);
    let parsed = judge(&place, "blkparse", &["-i", "run", "-f", "%a %d %n %C\n"]);
    let count = |line: &str| parsed.out.lines().filter(|l| *l == line).count();
    for action in ["Q", "G", "I", "D", "C"] {
        assert_eq!(count(&format!("{action} WS 8 client-1")), 200, "{action}");
        assert_eq!(count(&format!("{action} R 8 client-1")), 200, "{action}");
    }
    assert!(
        parsed
            .out
            .contains("Writes Queued:         200,      800KiB"),
        "{}",
        parsed.out
    );
    // After a recording there can be another.
    let args = ["-o", "more.txt", "--seconds", "0.2"];
    assert!(
        start(&place, &served, &args)
            .wait()
            .expect("it ends")
            .success()
    );
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_servers_trace_is_replayed() {
    if !have("nbdsh") {
        return;
    }
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "16M"]);
    let recorder = start(&place, &served, &["-o", "run.trace"]);
    wait_for(&place, "run.trace");
    work(&place, &served);
    interrupt(recorder);
    let text = std::fs::read_to_string(place.path("run.trace")).expect("a trace");
    let count = |event: &str| text.lines().filter(|line| line.contains(event)).count();
    assert_eq!(count("block_rq_issue: 43,0 WS 4096 () "), 200);
    assert_eq!(count("block_rq_complete: 43,0 R () "), 200);
    let args = [
        "compare",
        "run.trace",
        "--schedulers",
        "none",
        "--repeats",
        "1",
    ];
    place.blklab(&args).ok();
    assert_eq!(served.terminate(), Some(0));
}
