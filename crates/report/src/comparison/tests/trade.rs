use crate::comparison::compare;
use crate::sample_run::three_schedulers;

/// The second scheduler with so many times the first one's reads and writes.
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
