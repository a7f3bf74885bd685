//! The shipped descriptions against rows of the study they were fitted to.

use blklab_calibrate::{
    Model, Row, Selection, cases, medians, order_of_schedulers, read_csv, score, side_by_side,
};

fn rows(selections: &[&str]) -> Vec<Row> {
    let text = include_str!("../../../../tests/data/nvme-980pro/calibration.csv");
    let rows = read_csv("calibration.csv", text).expect("rows");
    assert_eq!(rows.len(), 214);
    let selections: Vec<Selection> = selections
        .iter()
        .map(|s| Selection::parse(s).expect("a selection"))
        .collect();
    rows.into_iter()
        .filter(|row| selections.iter().all(|s| s.takes(row)))
        .collect()
}

fn shipped() -> Model {
    Model::load("980pro-1tb", "xeon-10core").expect("shipped")
}

#[test]
fn one_process_under_no_scheduler() {
    let rows = rows(&["study=device-baseline-processes", "processes=1"]);
    let scored = score(&shipped(), &cases(&rows, true).unwrap(), &rows, 1).unwrap();
    println!("{}", side_by_side(&rows, &scored));
    let m = medians(&rows, &scored, |_| true);
    assert!(
        m.iops < 0.03 && m.lat_mean < 0.03 && m.clat_p99 < 0.1,
        "{m:?}"
    );
}

/// kyber has fewer tokens than these processes have requests. Whoever waits for
/// one must get it in its turn.
#[test]
fn kyber_lets_nobody_starve() {
    let rows = rows(&[
        "study=throughput-apps-ten-cores",
        "scheduler=kyber",
        "processes=6,8,10",
    ]);
    let scored = score(&shipped(), &cases(&rows, true).unwrap(), &rows, 1).unwrap();
    println!("{}", side_by_side(&rows, &scored));
    for simulated in scored.iter().map(|s| s.unwrap().simulated.unwrap()) {
        assert!(simulated.clat_p99_us < 3.0 * simulated.lat_mean_us);
    }
}

#[test]
fn schedulers_come_in_the_real_order() {
    let rows = rows(&["study=throughput-apps-ten-cores", "processes=1,2,4"]);
    let scored = score(&shipped(), &cases(&rows, true).unwrap(), &rows, 1).unwrap();
    println!("{}", side_by_side(&rows, &scored));
    let (right, all) = order_of_schedulers(&rows, &scored, 0.05);
    assert_eq!(right, all);
    let m = medians(&rows, &scored, |_| true);
    assert!(m.iops < 0.06 && m.clat_p99 < 0.08, "{m:?}");
}

/// Rows that no drive parameter alone decides: kyber's tokens, stalls of a full
/// write cache, and processes that share a core.
#[test]
fn reads_and_writes_together() {
    let rows = rows(&["study=kyber-targets-*"]);
    let scored = score(&shipped(), &cases(&rows, true).unwrap(), &rows, 1).unwrap();
    println!("{}", side_by_side(&rows, &scored));
    let m = medians(&rows, &scored, |_| true);
    assert!(
        m.iops < 0.1 && m.lat_mean < 0.1 && m.clat_p99 < 0.2,
        "{m:?}"
    );
    // One write at a time: kblockd's wake-ups fill the core.
    let mix = medians(&rows, &scored, |row| row.study == "kyber-targets-mix");
    // Reads and writes share their waiting by who is a microsecond faster.
    assert!(mix.iops < 0.15 && mix.lat_mean < 0.4, "{mix:?}");
}
