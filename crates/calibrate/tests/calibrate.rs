//! Fits that find known parameters, and the shipped descriptions against the rows of the study that
//! they were fitted to.

use blklab_calibrate::{
    FitSetup, Measured, Model, Row, Scored, Selection, cases, fit, medians, order_of_schedulers,
    read_csv, score, side_by_side,
};
use blklab_workload::fio::Direction;

fn rows(selections: &[&str]) -> Vec<Row> {
    let text = include_str!("../../../tests/data/nvme-980pro/calibration.csv");
    let rows = read_csv("calibration.csv", text).expect("rows");
    assert_eq!(rows.len(), 214);
    let selections: Vec<Selection> = selections
        .iter()
        .map(|s| Selection::parse(s).expect("a selection"))
        .collect();
    let taken: Vec<Row> = rows
        .into_iter()
        .filter(|row| selections.iter().all(|s| s.takes(row)))
        .collect();
    assert!(!taken.is_empty(), "no row is {selections:?}");
    taken
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

/// kyber has fewer tokens than these processes have requests; each waiter must get one in its turn.
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
        assert!(simulated.clat_p99_us.unwrap() < 3.0 * simulated.lat_mean_us.unwrap());
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

/// Rows that depend on more than the drive's parameters: kyber's tokens, stalls of a full write
/// cache, and processes that share a core.
fn of_reads_beside_writes(study: &str) -> (Vec<Row>, Vec<Option<Scored>>) {
    let rows = rows(&[&format!("study={study}")]);
    let scored = score(&shipped(), &cases(&rows, true).unwrap(), &rows, 1).unwrap();
    println!("{}", side_by_side(&rows, &scored));
    (rows, scored)
}

/// One write at a time: kblockd's wake-ups use up the core.
#[test]
fn reads_and_writes_of_one_process() {
    let (rows, scored) = of_reads_beside_writes("kyber-targets-mix");
    let mix = medians(&rows, &scored, |_| true);
    // How reads and writes share the wait depends on differences of a microsecond.
    assert!(
        mix.iops < 0.15 && mix.lat_mean < 0.4 && mix.clat_p99 < 0.35,
        "{mix:?}"
    );
}

#[test]
#[ignore = "simulates a minute and a half of writes for each of three jobs"]
fn reads_and_writes_together() {
    let (rows, scored) = of_reads_beside_writes("kyber-targets-*");
    let m = medians(&rows, &scored, |_| true);
    assert!(
        m.iops < 0.1 && m.lat_mean < 0.1 && m.clat_p99 < 0.2,
        "{m:?}"
    );
}

fn row(scheduler: &str, iodepth: u32, processes: u32) -> Row {
    Row {
        study: "known".into(),
        scheduler: scheduler.into(),
        note: String::new(),
        rw: "randread".into(),
        direction: Direction::Read,
        read_percent: 50,
        options: String::new(),
        bs: "4k".into(),
        iodepth,
        processes,
        cores: processes,
        devices: 1,
        read_before_bytes: 0,
        measured: Measured {
            // Only an estimate, for the length of the runs.
            iops: 100_000.0,
            lat_mean_us: Some(100.0),
            clat_p99_us: Some(100.0),
        },
    }
}

fn nvme() -> Model {
    Model::load("nvme", "xeon-10core").expect("shipped")
}

/// A fit to simulated rows finds the parameters of the simulation.
#[test]
fn known_parameters_are_found_again() {
    let mut rows = vec![
        row("none", 1, 1),
        row("none", 8, 1),
        row("none", 64, 1),
        row("none", 64, 2),
        row("mq-deadline", 64, 1),
        row("mq-deadline", 64, 4),
    ];
    let mut truth = nvme();
    // The CPU is so slow that it limits the deep queues, not the drive.
    let bio = &truth.parameters("costs.bio_ns").unwrap()[0];
    truth.set(bio, 4000.0, "").unwrap();
    let simulated = score(&truth, &cases(&rows, true).unwrap(), &rows, 1).unwrap();
    for (row, scored) in rows.iter_mut().zip(&simulated) {
        row.measured = scored.unwrap().simulated.unwrap();
    }
    let names = "drive.flash.read_us,costs.bio_ns";
    let parameters = truth.parameters(names).unwrap();
    let mut start = truth.clone();
    for (parameter, factor) in parameters.iter().zip([1.3, 0.7]) {
        let value = truth.get(parameter).unwrap() * factor;
        start.set(parameter, value, "").unwrap();
    }
    let fitted: Vec<usize> = (0..rows.len()).collect();
    let setup = FitSetup {
        model: start,
        parameters: &parameters,
        rows: &rows,
        fitted: &fitted,
        evaluations: 40,
        seed: 7,
        comment: "fitted",
    };
    let found = fit(setup, &mut |_| ()).unwrap();
    for (parameter, within) in parameters.iter().zip([0.03, 0.06]) {
        let (want, got) = (
            truth.get(parameter).unwrap(),
            found.model.get(parameter).unwrap(),
        );
        let error = (got / want - 1.0).abs();
        assert!(
            error < within,
            "{}: {want} found as {got}",
            parameter.name()
        );
    }
}
