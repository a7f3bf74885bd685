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
    /// The command's arguments, of which the second is the file of rows.
    command: String,
    /// Rows that are averaged over several runs.
    repeated: Option<Repeated>,
}

/// Rows that small differences change by much: each is simulated with several seeds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeated {
    study: String,
    /// Seeds, from one on.
    seeds: u64,
}

/// The metrics of a row, in the order of its columns `%`.
const METRICS: [&str; 3] = ["IOPS", "mean", "p99"];

impl Block {
    /// Simulates every row.
    ///
    /// # Errors
    /// If the command fails or prints no rows.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let mut printed = program.run(&self.command)?;
        let mut spread = String::new();
        if let Some(repeated) = &self.repeated {
            let runs = repeated.runs(program, &self.command)?;
            if !runs.is_empty() {
                (printed, spread) = repeated.averaged(&printed, &runs)?;
            }
        }
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
            "    blklab {}\n\n{}\n{spread}Every row:\n\n{rows}",
            self.command,
            table.markdown()
        );
        Ok(made)
    }
}

impl Repeated {
    /// Returns what the command prints of the study's rows, by seed; nothing if it has none.
    fn runs(&self, program: &Program, command: &str) -> Result<Vec<String>, String> {
        let data = program.data().to_string_lossy();
        let rows = command.split_whitespace().nth(1).unwrap_or_default();
        let path = rows.replace("DATA", &data);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let start = format!("{},", self.study);
        let of_study = |(at, line): &(usize, &str)| *at == 0 || line.starts_with(&start);
        let lines: Vec<_> = text.lines().enumerate().filter(of_study).collect();
        if lines.len() < 2 {
            return Ok(Vec::new());
        }
        let folder = tempfile::tempdir().map_err(|e| format!("a folder for rows: {e}"))?;
        let file = folder.path().join("rows.csv");
        let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        let command = command.replacen(rows, &file.to_string_lossy(), 1);
        let runs = (1..=self.seeds).map(|seed| program.run(&format!("{command} --seed {seed}")));
        runs.collect()
    }

    /// Returns the printed table with the means of the runs in the study's rows, and a
    /// table of the smallest, mean and largest simulated figures.
    ///
    /// # Errors
    /// If the runs have other rows.
    fn averaged(&self, printed: &str, runs: &[String]) -> Result<(String, String), String> {
        let of_study = |line: &&str| cells(line).first() == Some(&self.study.as_str());
        let mut runs: Vec<_> = runs
            .iter()
            .map(|run| row_table(run).filter(of_study).map(cells))
            .collect();
        let rows = row_table(printed).count();
        let percents = percent_columns(printed.lines().next().unwrap_or_default());
        let head = [
            "row",
            "figure",
            "smallest",
            "mean",
            "largest",
            "% of the mean",
        ];
        let mut spread = Table::new(head.map(String::from).to_vec());
        let (mut text, mut at) = (String::new(), 0);
        for (n, line) in printed.lines().enumerate() {
            if n >= rows || !of_study(&line) {
                text += &format!("{line}\n");
                continue;
            }
            let mut row: Vec<String> = cells(line).into_iter().map(String::from).collect();
            let same: Option<Vec<Vec<&str>>> = runs.iter_mut().map(Iterator::next).collect();
            let same = same.ok_or_else(|| format!("{}: runs have fewer rows", self.study))?;
            at += 1;
            for (metric, &column) in percents.iter().enumerate() {
                let simulated = same
                    .iter()
                    .filter_map(|cells| cells[column - 1].parse().ok());
                let simulated: Vec<f64> = simulated.collect();
                let Ok(measured) = row[column - 2].parse::<f64>() else {
                    continue;
                };
                let mean = simulated.iter().sum::<f64>() / simulated.len().max(1) as f64;
                let percent = format!("{:+.1}", (mean / measured - 1.0) * 100.0);
                let smallest = simulated.iter().copied().fold(f64::INFINITY, f64::min);
                let largest = simulated.iter().copied().fold(0.0, f64::max);
                let figures = [smallest, mean, largest].map(|figure| format!("{figure:.0}"));
                row[column - 1].clone_from(&figures[1]);
                row[column].clone_from(&percent);
                let mut shown = vec![at.to_string(), METRICS[metric].to_string()];
                shown.extend(figures);
                shown.push(percent);
                spread.row(shown);
            }
            text += &format!("| {} |\n", row.join(" | "));
        }
        let spread = format!(
            "Rows of `{}`, in their order, with seeds 1 to {}; the other tables have the mean:\n\n{}\n",
            self.study,
            self.seeds,
            spread.markdown()
        );
        Ok((text, spread))
    }
}

/// Returns the cells of a table's line.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// Returns the columns with errors, each behind a measured and a simulated one.
fn percent_columns(head: &str) -> Vec<usize> {
    let cells = cells(head);
    (2..cells.len()).filter(|&n| cells[n] == "%").collect()
}

/// Returns the lines of the table of rows; the tables of groups behind it begin with the names of
/// studies as well.
fn row_table(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().take_while(|line| line.starts_with('|'))
}

/// Returns the table of rows, as printed.
fn rows_of(printed: &str) -> String {
    row_table(printed).map(|line| format!("{line}\n")).collect()
}

/// Returns the errors by group and metric; the group `all` has all rows.
fn errors_by_study(printed: &str) -> BTreeMap<(String, usize), Errors> {
    let mut groups: BTreeMap<(String, usize), Errors> = BTreeMap::new();
    let mut percents = Vec::new();
    for line in row_table(printed) {
        let cells = cells(line);
        if percents.is_empty() {
            percents = percent_columns(line);
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
    use super::{Repeated, errors_by_study};

    #[test]
    fn rows_that_chance_decides_are_averaged() {
        let head = "| study | IOPS | simulated | % |\n| --- | ---: | ---: | ---: |\n";
        let rest = "\n| study | rows |\n| --- | ---: |\n| b | 1 |\n";
        let run = |simulated: u32| format!("{head}| b | 200 | {simulated} | +0.0 |\n{rest}");
        let printed = format!("{head}| a | 100 | 104 | +4.0 |\n| b | 200 | 300 | +50.0 |\n{rest}");
        let repeated = Repeated {
            study: "b".to_string(),
            seeds: 2,
        };
        let (text, spread) = repeated
            .averaged(&printed, &[run(300), run(120)])
            .expect("the same rows");
        assert!(text.contains("| a | 100 | 104 | +4.0 |"), "{text}");
        assert!(text.contains("| b | 200 | 210 | +5.0 |"), "{text}");
        assert!(text.ends_with(rest), "{text}");
        assert!(
            spread.contains("| 1 | IOPS | 120 | 210 | 300 | +5.0 |"),
            "{spread}"
        );
        let other = [format!("{head}\nrest\n")];
        assert!(repeated.averaged(&printed, &other).is_err());
    }

    #[test]
    fn rows_are_grouped_by_study() {
        let printed = "| study | IOPS | simulated | % |\n| --- | ---: | ---: | ---: |\n\
                       | a | 100 | 104 | +4.0 |\n| b | 100 | 98 | -2.0 |\n\nrest\n";
        let groups = errors_by_study(printed);
        assert_eq!(groups[&("a".to_string(), 0)].at(1.0), 4.0);
        assert_eq!(groups[&("all".to_string(), 0)].rows(), 2);
    }
}
