//! Winners, their losses, and schedulers that cannot win.

use blklab_stats::{PowerLoss, ProcessResults, TooFull};

use crate::comparison::{compare, failed_units};
use crate::sample_run::three_schedulers;
use crate::text;

/// Returns the headline if the second scheduler has this percentage of the first one's
/// reads and writes.
fn headline(reads: u64, writes: u64) -> String {
    let mut schedulers = three_schedulers(3);
    schedulers.truncate(2);
    let first = schedulers[0].clone();
    for (run, base) in schedulers[1].runs.iter_mut().zip(&first.runs) {
        run.jobs[0].read.bytes = base.jobs[0].read.bytes * reads / 100;
        run.jobs[0].write.bytes = base.jobs[0].write.bytes * writes / 100;
    }
    compare(&schedulers).headline
}

#[test]
fn who_wins_reads_by_writes_is_told_so() {
    let said = headline(200, 30);
    assert!(said.contains("wins bandwidth"), "{said}");
    let price = "'s bandwidth by direction against noop: write -70.0 %";
    assert!(said.contains(price), "{said}");
    assert!(!said.contains("read -"), "{said}");
}

#[test]
fn who_loses_nothing_pays_nothing() {
    let said = headline(200, 98);
    assert!(said.contains("wins bandwidth"), "{said}");
    assert!(!said.contains("by direction"), "{said}");
}

#[test]
fn who_failed_does_not_win() {
    let mut schedulers = three_schedulers(2);
    assert!(compare(&schedulers).failed.is_empty());
    let job = &mut schedulers[1].runs[0].jobs[0];
    (job.total_errors, job.error) = (7, 95);
    let comparison = compare(&schedulers);
    let said =
        "No verdict: I/O failed under mq-deadline (7 in all, the first: Operation not supported).";
    assert_eq!(comparison.headline, said);
    assert!(!text::render(&comparison).contains("wins"));
}

#[test]
fn what_a_drive_refuses_has_failed_beside_a_loss_of_power_too() {
    let mut schedulers = three_schedulers(1);
    let run = &mut schedulers[0].runs[0];
    run.disks[0].power_loss = Some(PowerLoss::default());
    run.jobs[0].total_errors = 9;
    assert_eq!(failed_units(run), (0, 0));
    run.disks[0].device.too_full = Some(TooFull {
        writes: 4,
        ..TooFull::default()
    });
    assert_eq!(failed_units(run), (4, 28));
}

#[test]
fn nobody_wins_up_to_a_loss_of_power() {
    let mut schedulers = three_schedulers(2);
    let run = &mut schedulers[1].runs[1];
    run.disks[0].power_loss = Some(PowerLoss::default());
    run.jobs[0].processes = vec![ProcessResults::default()];
    assert!(compare(&schedulers).headline.contains("wins"));
    schedulers[1].runs[1].jobs[0].processes[0].failed = true;
    let comparison = compare(&schedulers);
    assert!(
        comparison
            .headline
            .starts_with("No verdict: the loss of power")
    );
    assert!(!text::render(&comparison).contains("wins"));
}

/// A process that has 8 I/Os in flight for five seconds.
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
            "mq-deadline, run 2 of 2 (tables have the means of all): a process of reader waited \
             1200 ms for one I/O, 24.0 % of its run, and one of writer no more than 20.0 ms"
        ]
    );
    // Neither a short wait, nor one as long as all others, nor one that everyone has is
    // reported.
    assert!(said(process("reader", 150, 400_000), writer.clone()).is_empty());
    assert!(said(process("reader", 400_000, 1_200_000), writer.clone()).is_empty());
    // A process with one I/O in flight, of which it did two, starved.
    let alone = ProcessResults {
        ios: 2,
        ..process("reader", 2_500_000, 4_900_000)
    };
    assert!(said(alone, writer)[0].contains("waited 4900 ms for one I/O"));
    let also = process("writer", 900, 900_000);
    assert!(said(process("reader", 150, 1_200_000), also).is_empty());
}
