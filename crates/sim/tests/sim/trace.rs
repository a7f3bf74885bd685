//! Replays of small traces whose times can be told beforehand: the null drive
//! takes 10 us for everything.

use std::ops::ControlFlow;
use std::path::PathBuf;

use blklab_blk::Nanos;
use blklab_sim::{BreakOff, Replay, ReplayMode, Workload};
use blklab_stats::Results;

use crate::On;

const SERVICE_NS: u64 = 10_000;

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("a file of the test's own");
    path
}

fn replayed(name: &str, text: &str, mode: ReplayMode) -> Result<Results, String> {
    replayed_under("none", name, text, mode)
}

fn replayed_under(
    scheduler: &str,
    name: &str,
    text: &str,
    mode: ReplayMode,
) -> Result<Results, String> {
    let path = file(name, text);
    let file = path.to_str().expect("plain letters");
    let on = On {
        machine: "generic-8",
        drive: "null",
        scheduler,
    };
    let replay = Replay {
        mode,
        ..Replay::default()
    };
    on.run(Workload::Trace { file, replay }, None)
        .map_err(|e| e.to_string())
}

/// Runs of a trace whose arrivals are moved differ by less than what clocks of traces tell, and
/// the same seed moves them alike.
#[test]
fn arrivals_move_as_the_seed_draws() {
    let text = blkparse(&chain(1, 0));
    let path = file("jitter.trace", &text);
    let file = path.to_str().expect("plain letters");
    let on = On {
        machine: "generic-8",
        drive: "null",
        scheduler: "none",
    };
    let ended = |mode, jitter| {
        let replay = Replay {
            mode,
            jitter,
            ..Replay::default()
        };
        let done = on.run(Workload::Trace { file, replay }, None);
        done.expect("it runs").elapsed_ns
    };
    let open = ReplayMode::Open { speed: 1.0 };
    let one_by_one = ReplayMode::Closed { depth: 1 };
    for (mode, moved) in [(open, 1), (one_by_one, 10), (ReplayMode::Dependencies, 10)] {
        let exact = ended(mode, None);
        let of_seeds: Vec<u64> = (0..3).map(|seed| ended(mode, Some(seed))).collect();
        for moved_ns in &of_seeds {
            assert!((exact..exact + 1000 * moved).contains(moved_ns), "{mode:?}");
        }
        assert!(of_seeds[0] != of_seeds[1] && of_seeds[1] != of_seeds[2]);
        assert_eq!(of_seeds[2], ended(mode, Some(2)));
    }
}

/// Lines of blkparse text: time in ms, pid, action and sector of 4 KiB reads.
fn blkparse(events: &[(u64, u32, char, u64)]) -> String {
    let mut text = String::new();
    for (n, (ms, pid, action, sector)) in (1..).zip(events) {
        let (s, ns) = (ms / 1000, ms % 1000 * 1_000_000);
        let tail = if *action == 'C' { "[0]" } else { "[p]" };
        text +=
            &format!("  8,16   0 {n:8} {s:5}.{ns:09} {pid:5}  {action}   R {sector} + 8 {tail}\n");
    }
    text
}

/// Ten reads, each behind the one before; the process thinks for 4 ms.
fn chain(pid: u32, from_ms: u64) -> Vec<(u64, u32, char, u64)> {
    let ios = (0..10).flat_map(|n| {
        let (at, sector) = (from_ms + n * 5, 1000 * u64::from(pid) + n * 800);
        [(at, pid, 'Q', sector), (at + 1, 0, 'C', sector)]
    });
    ios.collect()
}

#[test]
fn speed_scales_the_times_and_leaves_the_service() {
    let text = blkparse(&chain(1, 0));
    for (speed, arrived_ns) in [(1.0, 45_000_000), (2.0, 22_500_000), (0.5, 90_000_000)] {
        let name = format!("speed-{speed}.trace");
        let done = replayed(&name, &text, ReplayMode::Open { speed }).unwrap();
        assert_eq!(done.elapsed_ns, arrived_ns + SERVICE_NS, "{speed}");
    }
}

/// Kyber's timer goes on after the last I/O.
#[test]
fn a_replay_ends_with_its_last_io() {
    let text = blkparse(&chain(1, 0));
    for scheduler in ["none", "mq-deadline", "kyber"] {
        let name = format!("end-{scheduler}.trace");
        let done = replayed_under(scheduler, &name, &text, ReplayMode::Open { speed: 1.0 });
        assert_eq!(
            done.unwrap().elapsed_ns,
            45_000_000 + SERVICE_NS,
            "{scheduler}"
        );
    }
}

#[test]
fn a_replay_that_is_broken_off_has_what_it_has_done() {
    const READS: u64 = 100_000;
    let reads: Vec<_> = (0..READS).map(|n| (n, 1, 'Q', n * 8)).collect();
    let path = file("broken-off.trace", &blkparse(&reads));
    let workload = Workload::Trace {
        file: path.to_str().expect("plain letters"),
        replay: Replay::default(),
    };
    let on = On {
        machine: "generic-8",
        drive: "null",
        scheduler: "none",
    };
    let mut reached = Nanos::ZERO;
    let done = on.run_watched(workload, |_| {}, &mut |now| {
        reached = reached.max(now);
        ControlFlow::Break(BreakOff::Work)
    });
    let done = done.expect("results");
    let ios = done.jobs[0].read.ios;
    assert!(0 < ios && ios < READS, "{ios}");
    assert!(reached > Nanos::ZERO && done.elapsed_ns <= reached.0 + SERVICE_NS);
}

#[test]
fn a_chain_stays_a_chain_and_processes_go_side_by_side() {
    let alone = blkparse(&chain(1, 0));
    let done = replayed("chain.trace", &alone, ReplayMode::Dependencies).unwrap();
    assert_eq!(done.elapsed_ns, 10 * SERVICE_NS);
    // Another process with as many, far behind the first in time, and one
    // with all its reads at once.
    let mut events = chain(1, 0);
    events.extend(chain(2, 1000));
    events.extend((0..10).map(|n| (2000, 3, 'Q', 50_000 + n * 800)));
    events.extend((0..10).map(|n| (2001, 0, 'C', 50_000 + n * 800)));
    let text = blkparse(&events);
    let done = replayed("two.trace", &text, ReplayMode::Dependencies).unwrap();
    assert_eq!(done.elapsed_ns, 10 * SERVICE_NS);
    assert_eq!(done.jobs[0].read.ios, 30);
}

#[test]
fn merged_and_cut_requests_end_what_they_cover() {
    // Two bios as one request, then one bio as two requests, then one more.
    let mut text = blkparse(&[(0, 1, 'Q', 0), (0, 1, 'Q', 8)]);
    text += "  8,16   0        3     0.001000000     0  C   R 0 + 16 [0]\n";
    text += "  8,16   0        4     0.002000000     1  Q   R 100 + 16 [p]\n";
    text += "  8,16   0        5     0.003000000     0  C   R 108 + 8 [0]\n";
    text += "  8,16   0        6     0.004000000     1  Q   R 200 + 8 [p]\n";
    text += "  8,16   0        7     0.005000000     0  C   R 100 + 8 [0]\n";
    text += "  8,16   0        8     0.006000000     1  Q   R 300 + 8 [p]\n";
    let done = replayed("merged.trace", &text, ReplayMode::Dependencies).unwrap();
    // 0 and 8 at once; then 100 and, as 100 was half done, 200; then 300.
    assert_eq!(done.elapsed_ns, 3 * SERVICE_NS);
}

#[test]
fn a_trace_without_ends_is_refused_where_they_are_needed() {
    let text = "0 0 0 8 1\n1000 0 8 8 1\n";
    let error = replayed("disksim.trace", text, ReplayMode::Dependencies).unwrap_err();
    assert!(error.contains("does not tell when I/Os ended"), "{error}");
    assert!(replayed("disksim.trace", text, ReplayMode::Closed { depth: 1 }).is_ok());
}

#[test]
fn a_trace_longer_than_the_models_count_is_refused_with_its_line() {
    let two = |last_s: u64| format!("0 0 0 8 1\n{last_s}000000000 0 8 8 1\n");
    let open = |last_s: u64, speed: f64| {
        let name = format!("long-{last_s}-{speed}.trace");
        replayed(&name, &two(last_s), ReplayMode::Open { speed })
    };
    // Everything is replayed, to the end of the range.
    for (last_s, speed) in [(1_000_000_000, 1.0), (1_000_000, 0.001)] {
        let done = open(last_s, speed).unwrap();
        assert_eq!(done.elapsed_ns, 1_000_000_000_000_000_000 + SERVICE_NS);
        assert_eq!(done.jobs[0].read.ios + done.jobs[0].write.ios, 2);
    }
    for (last_s, speed, most) in [
        (4_000_000_000, 1.0, "at most 1000000000 s"),
        (18_446_745, 0.001, "at most 1000000 s"),
    ] {
        let error = open(last_s, speed).unwrap_err();
        assert!(error.contains(".trace:2: "), "{error}");
        assert!(error.contains(most), "{error}");
    }
    // Where times are ignored they may be whatever they are.
    let closed = ReplayMode::Closed { depth: 1 };
    let done = replayed("long-closed.trace", &two(4_000_000_000), closed).unwrap();
    assert_eq!(done.elapsed_ns, 2 * SERVICE_NS);
}
