//! Tables of measured fio results beside simulated ones.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::part::{PagePart, Table};
use crate::program::Program;
use crate::share::Errors;

/// A table made from the output of `blklab calibrate --evaluations 0`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The set's folder, for the summary lines.
    set: String,
    /// The command's arguments.
    command: String,
}

/// The metrics of a row, in the order of its columns `%`.
const METRICS: [&str; 3] = ["IOPS", "mean", "p99"];

impl Block {
    /// Simulates every row.
    ///
    /// # Errors
    /// If the command fails or prints no rows.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let printed = program.run(&self.command)?;
        let (rows, groups) = (rows_of(&printed), errors_by_study(&printed));
        if groups.is_empty() {
            return Err(format!("blklab {}: no table of rows", self.command));
        }
        let head = ["group", "rows", "metric", "median %", "p90 %", "max %"];
        let mut table = Table::new(head.map(String::from).to_vec());
        let mut made = PagePart::default();
        for ((study, metric), errors) in &groups {
            let metric = METRICS[*metric];
            made.groups.push(errors.line(&self.set, study, metric));
            table.row(errors.cells(study.clone(), metric));
        }
        made.text = format!(
            "    blklab {}\n\n{}\nEvery row:\n\n{rows}",
            self.command,
            table.markdown()
        );
        Ok(made)
    }
}

/// Returns the table of rows, as printed.
fn rows_of(printed: &str) -> String {
    let lines = printed.lines().take_while(|line| line.starts_with('|'));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the errors by group and metric; the group `all` has all rows.
fn errors_by_study(printed: &str) -> BTreeMap<(String, usize), Errors> {
    let mut groups: BTreeMap<(String, usize), Errors> = BTreeMap::new();
    let mut percents = Vec::new();
    for line in printed.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if percents.is_empty() {
            percents = (0..cells.len()).filter(|&n| cells[n] == "%").collect();
            continue;
        }
        for (metric, &column) in percents.iter().enumerate() {
            let Some(percent) = cells.get(column).and_then(|cell| cell.parse().ok()) else {
                continue;
            };
            for study in [cells[0], "all"] {
                let group = groups.entry((study.to_string(), metric)).or_default();
                group.add(percent);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::errors_by_study;

    #[test]
    fn rows_are_grouped_by_study() {
        let printed = "| study | IOPS | simulated | % |\n| --- | ---: | ---: | ---: |\n\
                       | a | 100 | 104 | +4.0 |\n| b | 100 | 98 | -2.0 |\n\nrest\n";
        let groups = errors_by_study(printed);
        assert_eq!(groups[&("a".to_string(), 0)].at(1.0), 4.0);
        assert_eq!(groups[&("all".to_string(), 0)].rows(), 2);
    }
}
