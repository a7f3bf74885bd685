//! Summaries of many rows' errors: median, 90th percentile and maximum.

/// The absolute errors of a group of rows in one metric, in percent.
#[derive(Default)]
pub struct Errors {
    percents: Vec<f64>,
}

impl Errors {
    /// Adds a row's error.
    pub fn add(&mut self, percent: f64) {
        self.percents.push(percent.abs());
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.percents.len()
    }

    /// Returns the error that a `share` (0 to 1) of the rows does not exceed, by nearest
    /// rank; 0 without rows.
    pub fn at(&self, share: f64) -> f64 {
        let mut sorted = self.percents.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
    }

    /// Returns the cells of a table's row: group, rows, metric, median, 90th percentile
    /// and maximum.
    pub fn cells(&self, group: String, metric: &str) -> Vec<String> {
        let figure = |share: f64| format!("{:.1}", self.at(share));
        let (rows, metric) = (self.rows().to_string(), metric.to_string());
        vec![group, rows, metric, figure(0.5), figure(0.9), figure(1.0)]
    }

    /// Returns the line that `make evidence` prints for a group.
    pub fn line(&self, set: &str, group: &str, metric: &str) -> String {
        format!(
            "{set} {group} rows {} {metric} median {:.1} % p90 {:.1} % max {:.1} %",
            self.rows(),
            self.at(0.5),
            self.at(0.9),
            self.at(1.0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Errors;

    #[test]
    fn shares_are_by_nearest_rank() {
        let mut errors = Errors::default();
        for percent in [-4.0, 1.0, 2.0, -3.0] {
            errors.add(percent);
        }
        assert_eq!(errors.at(0.5), 2.0);
        assert_eq!(
            errors.line("set", "all", "IOPS"),
            "set all rows 4 IOPS median 2.0 % p90 4.0 % max 4.0 %"
        );
        assert_eq!(Errors::default().at(0.5), 0.0);
    }
}
