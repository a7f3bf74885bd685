//! A fit to rows that were simulated finds the numbers they were simulated with.

use blklab_calibrate::{FitSetup, Measured, Model, Row, cases, fit, score};
use blklab_workload::fio::Direction;

fn row(scheduler: &str, iodepth: u32, processes: u32) -> Row {
    Row {
        study: "known".into(),
        scheduler: scheduler.into(),
        note: String::new(),
        rw: "randread".into(),
        direction: Direction::Read,
        read_percent: 50,
        bs: "4k".into(),
        iodepth,
        processes,
        cores: processes,
        devices: 1,
        measured: Measured {
            // Only a first guess, for the length of the runs.
            iops: 100_000.0,
            lat_mean_us: 100.0,
            clat_p99_us: 100.0,
        },
    }
}

fn model() -> Model {
    Model::load("nvme", "xeon-10core").expect("shipped")
}

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
    let mut truth = model();
    // So slow a CPU that it, not the drive, limits the deep queues.
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
