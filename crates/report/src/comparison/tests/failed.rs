use blklab_stats::{PowerLoss, ProcessResults, TooFull};

use crate::comparison::{compare, failed_units};
use crate::sample_run::three_schedulers;
use crate::text;

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
