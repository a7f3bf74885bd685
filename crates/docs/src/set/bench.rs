//! The rows of one drive on one machine: simulation and fitting.

use blklab_calibrate::{FitSetup, Fitted, Model, Row, Scored, cases, fit, score_each};
use serde::Deserialize;

use super::Figure;
use super::folder::Folder;

/// The rows of one drive on one machine.
pub struct Bench {
    /// The name of the drive's description.
    pub drive: &'static str,
    /// The name of the machine's description.
    pub machine: &'static str,
    /// Whether writes need some time until they reach their steady rate.
    pub settles: bool,
    /// The measured rows.
    pub rows: Vec<Row>,
    /// Returns whether a parameter was fitted to a row.
    pub is_fitted: fn(&Row) -> bool,
    /// The compared figures: index in [`Measured::figures`] and name.
    pub compared: &'static [(usize, &'static str)],
}

/// Descriptions of another drive and another machine, which stand in for those of a
/// bench as if nobody had described them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The drive that is left out.
    pub instead_of: String,
    drive: String,
    machine: String,
    /// What may move, as `blklab calibrate --fit` takes it.
    keys: String,
    /// Rows to fit to, spread over all.
    rows: usize,
    /// Simulations of these at most.
    evaluations: usize,
}

/// Facts of a machine and its kernel's release that whoever describes it knows.
const FACTS: [&str; 3] = ["cpu.count", "cpu.sockets", "kernel.dispatch"];

/// IOPS, with its index in [`Measured::figures`].
pub const IOPS: (usize, &str) = (0, "IOPS");
/// Mean latency, with its index in [`Measured::figures`].
pub const MEAN: (usize, &str) = (1, "mean us");
/// 99th percentile of latency, with its index in [`Measured::figures`].
pub const P99: (usize, &str) = (2, "p99 us");

impl Bench {
    /// Simulates the rows. Those that cannot be are left out of the folder.
    ///
    /// # Errors
    /// If a description is wrong.
    pub fn figures(&self, folder: &Folder) -> Result<Vec<Figure>, String> {
        let model = Model::load(self.drive, self.machine)?;
        let (_, machine) = model.parse().map_err(|e| e.to_string())?;
        let mut rows = self.rows.clone();
        // More threads than CPUs share all that there are.
        rows.iter_mut()
            .for_each(|row| row.cores = row.cores.min(machine.cpus()));
        rows.retain(|row| match cases(std::slice::from_ref(row), self.settles) {
            Ok(_) => true,
            Err(why) => {
                folder.leave_out(why.to_string());
                false
            }
        });
        let cases = cases(&rows, self.settles).map_err(|e| e.to_string())?;
        let (scored, refused) = score_each(&model, &cases, &rows, 1).map_err(|e| e.to_string())?;
        for why in refused {
            folder.leave_out(why.to_string());
        }
        Ok(self.compared(&rows, &scored, |at| (self.is_fitted)(&rows[at])))
    }

    /// Fits other descriptions to a few of the rows, and simulates all. Returns what
    /// moved and the figures.
    ///
    /// # Errors
    /// If there is no such description or key, or a row cannot be simulated.
    pub fn predict(&self, start: &Start) -> Result<(Fitted, Vec<Figure>), String> {
        let own = Model::load(self.drive, self.machine)?;
        let mut model = Model::load(&start.drive, &start.machine)?;
        for key in FACTS {
            let taken = model.machine.take(key, &own.machine);
            taken.map_err(|e| e.to_string())?;
        }
        let rows = start.rows.min(self.rows.len());
        let fitted: Vec<usize> = (0..rows).map(|n| n * self.rows.len() / rows).collect();
        let found = self.fit_model(model, &start.keys, &fitted, start.evaluations)?;
        let figures = self.compared(&self.rows, &found.scored, |at| fitted.contains(&at));
        Ok((found, figures))
    }

    /// What is compared of each row.
    fn compared(
        &self,
        rows: &[Row],
        scored: &[Option<Scored>],
        is_fitted: impl Fn(usize) -> bool,
    ) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (at, (row, scored)) in rows.iter().zip(scored).enumerate() {
            let Some(scored) = scored else {
                continue;
            };
            let simulated = scored.simulated;
            for &(place, metric) in self.compared {
                let Some(measured) = row.measured.figures()[place] else {
                    continue;
                };
                figures.push(Figure {
                    group: row.study.clone(),
                    row: row.label(),
                    metric,
                    measured,
                    simulated: simulated.and_then(|s| s.figures()[place]),
                    is_fitted: is_fitted(at),
                    is_left_out: false,
                });
            }
        }
        figures
    }

    /// Returns the names and texts of the descriptions.
    ///
    /// # Errors
    /// If there is no description of that name.
    pub fn descriptions(&self) -> Result<[(String, String); 2], String> {
        let model = Model::load(self.drive, self.machine)?;
        Ok([
            (self.drive.to_string(), model.drive.text()),
            (self.machine.to_string(), model.machine.text()),
        ])
    }

    /// Fits those keys of a comma-separated list that the descriptions have to the rows
    /// that are meant for it. Returns the old and new value of each.
    ///
    /// # Errors
    /// If a key is unknown, or a row cannot be simulated.
    pub fn fit(&self, keys: &str, evaluations: usize) -> Result<String, String> {
        let model = Model::load(self.drive, self.machine)?;
        let places = (0..self.rows.len()).filter(|&at| (self.is_fitted)(&self.rows[at]));
        let fitted: Vec<usize> = places.collect();
        let found = self.fit_model(model, keys, &fitted, evaluations)?;
        let line = |(parameter, from, to): &(blklab_calibrate::Parameter, f64, f64)| {
            format!("{} {from:.0} -> {to:.0}\n", parameter.name())
        };
        let moved: String = found.moved.iter().map(line).collect();
        Ok(format!(
            "{} on {}: loss {:.4}\n{moved}",
            self.drive, self.machine, found.loss
        ))
    }

    /// Fits those keys of a comma-separated list that a model's descriptions have to the
    /// rows with these indices.
    fn fit_model(
        &self,
        model: Model,
        keys: &str,
        fitted: &[usize],
        evaluations: usize,
    ) -> Result<Fitted, String> {
        let parameters = model.parameters(keys).map_err(|e| e.to_string())?;
        let setup = FitSetup {
            model,
            parameters: &parameters,
            rows: &self.rows,
            fitted,
            evaluations,
            seed: 1,
            comment: "fitted",
        };
        fit(setup, &mut |_| ()).map_err(|e| e.to_string())
    }
}
