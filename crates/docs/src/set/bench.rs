//! Rows of one drive on one machine: simulated, and fitted to.

use blklab_calibrate::{FitSetup, Model, Row, cases, fit, score};

use super::Figure;

/// Rows of one drive on one machine.
pub struct Bench {
    /// The drive's name.
    pub drive: &'static str,
    /// The machine's name.
    pub machine: &'static str,
    /// Writes take a while until they go on as they will.
    pub settles: bool,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Whether a parameter was fitted to a row.
    pub is_fitted: fn(&Row) -> bool,
    /// The figures that are compared, by their places.
    pub compared: &'static [(usize, &'static str)],
}

/// The figures of a row, by their places in [`Measured::figures`].
pub const IOPS: (usize, &str) = (0, "IOPS");
/// Likewise.
pub const P99: (usize, &str) = (2, "p99 us");

impl Bench {
    /// Simulates the rows.
    ///
    /// # Errors
    /// Where a row or a description is none.
    pub fn figures(&self) -> Result<Vec<Figure>, String> {
        let model = Model::load(self.drive, self.machine)?;
        let cases = cases(&self.rows, self.settles).map_err(|e| e.to_string())?;
        let scored = score(&model, &cases, &self.rows, 1).map_err(|e| e.to_string())?;
        let mut figures = Vec::new();
        for (row, scored) in self.rows.iter().zip(scored) {
            let simulated = scored.and_then(|scored| scored.simulated);
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
                    is_fitted: (self.is_fitted)(row),
                });
            }
        }
        Ok(figures)
    }

    /// Names and texts of its descriptions.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn descriptions(&self) -> Result<[(String, String); 2], String> {
        let model = Model::load(self.drive, self.machine)?;
        Ok([
            (self.drive.to_string(), model.drive.text()),
            (self.machine.to_string(), model.machine.text()),
        ])
    }

    /// Fits the keys of a comma-separated list that the descriptions have to the rows
    /// that are for that. Returns where each went.
    ///
    /// # Errors
    /// Where a key is none, or a row cannot be simulated.
    pub fn fit(&self, keys: &str, evaluations: usize) -> Result<String, String> {
        let model = Model::load(self.drive, self.machine)?;
        let parameters = model.parameters(keys).map_err(|e| e.to_string())?;
        let places = (0..self.rows.len()).filter(|&at| (self.is_fitted)(&self.rows[at]));
        let fitted: Vec<usize> = places.collect();
        let setup = FitSetup {
            model,
            parameters: &parameters,
            rows: &self.rows,
            fitted: &fitted,
            evaluations,
            seed: 1,
            comment: "fitted",
        };
        let found = fit(setup, &mut |_| ()).map_err(|e| e.to_string())?;
        let line = |(parameter, from, to): &(blklab_calibrate::Parameter, f64, f64)| {
            format!("{} {from:.0} -> {to:.0}\n", parameter.name())
        };
        let moved: String = found.moved.iter().map(line).collect();
        Ok(format!(
            "{} on {}: loss {:.4}\n{moved}",
            self.drive, self.machine, found.loss
        ))
    }
}
