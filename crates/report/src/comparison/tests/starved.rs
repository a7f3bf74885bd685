use blklab_stats::ProcessResults;

use crate::comparison::compare;
use crate::sample_run::three_schedulers;

/// One that has 8 I/Os in flight for five seconds.
fn process(job: &str, mean_us: u64, max_us: u64) -> ProcessResults {
    ProcessResults {
        job: job.to_string(),
        bytes: 1 << 20,
        ios: 8 * 5_000_000 / mean_us,
        runtime_ns: 5_000_000_000,
        latency_mean_ns: mean_us as f64 * 1e3,
        latency_max_ns: max_us * 1000,
        ..ProcessResults::default()
    }
}

#[test]
fn who_waits_while_others_go_on_is_named() {
    let mut schedulers = three_schedulers(2);
    let mut said = |reader, writer| {
        schedulers[1].runs[1].jobs[0].processes = vec![reader, writer];
        let mut notes = compare(&schedulers).notes;
        notes.retain(|note| note.contains("waited"));
        notes
    };
    let writer = process("writer", 900, 20_000);
    assert_eq!(
        said(process("reader", 150, 1_200_000), writer.clone()),
        [
            "mq-deadline: a process of reader waited 1200 ms for one I/O, 24.0 % of its run, \
             and one of writer no more than 20.0 ms"
        ]
    );
    // Not for long; as it always does; all alike.
    assert!(said(process("reader", 150, 400_000), writer.clone()).is_empty());
    assert!(said(process("reader", 400_000, 1_200_000), writer.clone()).is_empty());
    // One that waits for each of its I/Os, of which it did two.
    let alone = ProcessResults {
        ios: 2,
        ..process("reader", 2_500_000, 4_900_000)
    };
    assert!(said(alone, writer)[0].contains("waited 4900 ms for one I/O"));
    let also = process("writer", 900, 900_000);
    assert!(said(process("reader", 150, 1_200_000), also).is_empty());
}
