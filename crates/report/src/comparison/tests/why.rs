use blklab_stats::{CpuSlice, CpuTimes, Histogram, RequestKind, RequestStats};

use crate::comparison::why::request_facts;
use crate::comparison::{FactRow, SchedulerRuns};
use crate::sample_run::three_schedulers;

fn histogram(ns: u64) -> Histogram {
    let mut histogram = Histogram::new();
    histogram.record(ns);
    histogram
}

fn kind(op: usize, process: &str, queued_ns: u64, drive_ns: u64) -> RequestKind {
    RequestKind {
        op,
        up_to_bytes: 4096,
        process: process.to_string(),
        queued_ns: histogram(queued_ns),
        drive_ns: histogram(drive_ns),
        whole_ns: histogram(queued_ns + drive_ns),
    }
}

fn traced() -> Vec<SchedulerRuns> {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.requests = Some(RequestStats {
            kinds: vec![
                kind(0, "fio", 100, 1000),
                kind(0, "db", 300, 1000),
                kind(1, "fio", 7, 9),
            ],
            ..RequestStats::default()
        });
        run.cpu_timeline = vec![CpuSlice {
            end_ns: 1,
            cpus: vec![
                CpuTimes {
                    user_ns: 1,
                    idle_ns: 3,
                    ..CpuTimes::default()
                };
                2
            ],
        }];
    }
    schedulers
}

fn value(facts: &[FactRow], name: &str) -> Option<f64> {
    let found = facts.iter().find(|fact| fact.name == name);
    found.unwrap_or_else(|| panic!("{name} is missing")).values[0]
}

#[test]
fn the_split_is_by_direction_size_and_process() {
    let facts = request_facts(&traced());
    assert_eq!(value(&facts, "reads in the scheduler, mean"), Some(200.0));
    assert_eq!(value(&facts, "reads in the drive, p99"), Some(1000.0));
    assert_eq!(value(&facts, "writes from first to last, mean"), Some(16.0));
    assert_eq!(
        value(&facts, "  reads up to 4 KiB of db in the scheduler, mean"),
        Some(300.0)
    );
    // Writes have one kind only, which is not split.
    assert!(facts.iter().all(|f| !f.name.contains("writes up to")));
}

#[test]
fn losses_are_told_where_there_are_none() {
    let facts = crate::compare(&traced()).why;
    assert_eq!(value(&facts, "trace events lost"), Some(0.0));
    assert!(request_facts(&three_schedulers(1)).is_empty());
}

#[test]
fn cpu_time_is_shared_out() {
    let facts = crate::compare(&traced()).why;
    assert_eq!(value(&facts, "applications"), Some(0.25));
}
