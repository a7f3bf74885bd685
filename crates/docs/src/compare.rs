//! Tables of comparisons, with a row for each job and a column for each scheduler.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::part::{PagePart, Table};
use crate::program::Program;

/// Tables made from the output of `blklab compare`, with a row for each job.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The command's arguments; `JOB` stands for a row's job.
    command: String,
    /// The jobs, by name or as fio's options.
    rows: Vec<String>,
    /// A recording in the data folder, a list with each row's output, that replaces the runs.
    recorded: Option<String>,
    /// The labels of the rows; the jobs' names if left out.
    #[serde(default)]
    labels: Vec<String>,
    /// The labels of the columns; the comparison's own names if left out.
    #[serde(default)]
    columns: Vec<String>,
    /// Whether each of a job's groups has a row, not only the first.
    #[serde(default)]
    each_group: bool,
    /// The tables to make.
    tables: Vec<Metric>,
}

/// The figure of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metric {
    pub(crate) title: String,
    /// The key in the comparison's JSON, such as `bandwidth_bytes_per_s`.
    #[serde(default)]
    pub(crate) cell: String,
    /// The key of a fact that is shown instead of a cell.
    fact: Option<String>,
    /// The call whose time is shown instead of a cell, if the job is a list of calls.
    call: Option<String>,
    /// The job or program; all together if not given.
    job: Option<String>,
    /// The value of each row in the document from which the job is taken.
    #[serde(default)]
    document: Vec<String>,
    /// The divisor of the values.
    #[serde(default = "one")]
    unit: f64,
    #[serde(default)]
    decimals: usize,
    /// `read` or `write`; the sum of both if not given.
    pub(crate) direction: Option<String>,
    /// Whether the change from the first scheduler is shown.
    #[serde(default)]
    change: bool,
}

/// Reads a recording.
fn recorded(file: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))
}

fn one() -> f64 {
    1.0
}

impl Block {
    /// Runs all comparisons.
    ///
    /// # Errors
    /// If a comparison fails or its JSON lacks a cell.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let runs: Vec<Value> = match &self.recorded {
            Some(file) => recorded(&program.data().join(file))?,
            None => (self.rows.iter())
                .map(|job| program.json(&self.command.replace("JOB", job)))
                .collect::<Result<_, _>>()?,
        };
        if runs.len() != self.rows.len() {
            return Err(format!(
                "{}: {} rows, not {}",
                self.command,
                runs.len(),
                self.rows.len()
            ));
        }
        let mut text = format!("    blklab {}\n", self.command);
        for metric in &self.tables {
            text += &format!("\n{}:\n\n{}", metric.title, self.table(&runs, metric)?);
        }
        Ok(PagePart {
            text,
            groups: Vec::new(),
        })
    }

    fn table(&self, runs: &[Value], metric: &Metric) -> Result<String, String> {
        let schedulers = |run: &Value| -> Vec<String> {
            let names = run["schedulers"].as_array().into_iter().flatten();
            names.filter_map(Value::as_str).map(String::from).collect()
        };
        let columns = match self.columns.is_empty() {
            true => runs.first().map(schedulers).unwrap_or_default(),
            false => self.columns.clone(),
        };
        let mut head = vec!["job".to_string()];
        head.extend(columns.iter().cloned());
        let has_document = !metric.document.is_empty();
        head.extend(has_document.then(|| "the document".to_string()));
        let mut table = Table::new(head);
        for (n, (job, run)) in self.rows.iter().zip(runs).enumerate() {
            let name = job.rsplit('/').next().unwrap_or(job);
            let name = self.labels.get(n).map_or(name, String::as_str);
            let groups = run["sections"].as_array().map_or(0, Vec::len);
            for group in 0..if self.each_group { groups } else { 1 } {
                let Some(values) = metric.values(run, group, columns.len()) else {
                    return Err(format!("{job}: the comparison has no {}", metric.key()));
                };
                let title = run["sections"][group]["title"].as_str().unwrap_or_default();
                let mut row = vec![match self.each_group {
                    true => format!("{name} {title}"),
                    false => name.to_string(),
                }];
                row.extend(metric.shown(&values));
                let document = metric.document.get(n).cloned().unwrap_or_default();
                row.extend(has_document.then_some(document));
                table.row(row);
            }
        }
        Ok(table.markdown())
    }
}

impl Metric {
    /// Returns the sum of a cell over both directions.
    pub(crate) fn sum_of(cell: &str) -> Metric {
        Metric {
            title: String::new(),
            cell: cell.to_string(),
            fact: None,
            call: None,
            job: None,
            document: Vec::new(),
            unit: 1.0,
            decimals: 0,
            direction: None,
            change: false,
        }
    }

    /// Returns the figure's name in messages.
    fn key(&self) -> &str {
        let others = self.call.as_deref().or(self.fact.as_deref());
        others.unwrap_or(&self.cell)
    }

    /// Returns the values of this many schedulers in one of the run's groups, if it has them all.
    pub(crate) fn values(&self, run: &Value, group: usize, schedulers: usize) -> Option<Vec<f64>> {
        let values = (0..schedulers).map(|n| self.value(run, group, n));
        values.collect()
    }

    /// Returns the cells with these values.
    pub(crate) fn shown(&self, values: &[f64]) -> Vec<String> {
        let cell = |(n, &value): (usize, &f64)| {
            let change = match n {
                0 => String::new(),
                _ if !self.change => String::new(),
                _ => format!(" ({:+.1} %)", (value / values[0] - 1.0) * 100.0),
            };
            format!("{:.*}{change}", self.decimals, value / self.unit)
        };
        values.iter().enumerate().map(cell).collect()
    }

    /// Returns the value of the n-th scheduler in one of the run's groups.
    fn value(&self, run: &Value, group: usize, n: usize) -> Option<f64> {
        if let Some(call) = &self.call {
            let mut programs = run["calls"].as_array()?.iter();
            let is_meant = |program: &&Value| program["program"].as_str() == self.job.as_deref();
            let mut rows = programs.find(is_meant)?["rows"].as_array()?.iter();
            return rows.find(|row| row["name"] == **call)?["values"][n].as_f64();
        }
        if let Some(fact) = &self.fact {
            let facts = run["why"].as_array()?;
            return facts.iter().find(|of| of["key"] == **fact)?["values"][n].as_f64();
        }
        // A job that is a group of its own has a section of its name.
        let mut sections = run["sections"].as_array()?.iter();
        let own = (self.job.as_ref()).and_then(|job| sections.find(|of| of["title"] == **job));
        let section = own.unwrap_or(&run["sections"][group]);
        let directions = section["directions"].as_array()?;
        let has_all = directions.iter().any(|d| d["several_jobs"] == true);
        let is_wanted = |d: &&Value| match (&self.job, own) {
            (Some(job), None) => d["job"] == **job,
            _ => !has_all || d["several_jobs"] == true,
        };
        let values: Vec<f64> = (directions.iter().filter(is_wanted))
            .filter(|d| (self.direction.as_deref()).is_none_or(|wanted| d["direction"] == wanted))
            .filter_map(|d| d["rows"][n]["cells"][&self.cell]["value"]["mean"].as_f64())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::Metric;

    fn metric(direction: Option<&str>, job: Option<&str>, fact: Option<&str>) -> Metric {
        Metric {
            title: String::new(),
            cell: "iops".into(),
            call: None,
            document: Vec::new(),
            fact: fact.map(String::from),
            job: job.map(String::from),
            unit: 1.0,
            decimals: 0,
            direction: direction.map(String::from),
            change: false,
        }
    }

    #[test]
    fn a_group_has_a_section_of_its_name() {
        let section = |title: &str, iops: f64| {
            let rows = serde_json::json!([{"cells": {"iops": {"value": {"mean": iops}}}}]);
            serde_json::json!({"title": title, "directions": [{"direction": "read", "rows": rows}]})
        };
        let run = serde_json::json!({"sections": [section("first", 3.0), section("again", 5.0)]});
        let value = |job| metric(None, job, None).value(&run, 0, 0);
        assert_eq!(value(Some("again")), Some(5.0));
        assert_eq!(value(Some("first")), Some(3.0));
        assert_eq!(value(Some("other")), None);
    }

    #[test]
    fn both_directions_add_up() {
        let run = serde_json::json!({"sections": [{"directions": [
            {"direction": "read", "rows": [{"cells": {"iops": {"value": {"mean": 3.0}}}}]},
            {"direction": "write", "rows": [{"cells": {"iops": {"value": {"mean": 4.0}}}}]},
        ]}]});
        let value = |direction| metric(direction, None, None).value(&run, 0, 0);
        assert_eq!(value(None), Some(7.0));
        assert_eq!(value(Some("write")), Some(4.0));
        assert_eq!(value(Some("trim")), None);
    }

    #[test]
    fn jobs_and_all_of_them_are_told_apart() {
        let of = |job: serde_json::Value, iops: f64| {
            serde_json::json!({"several_jobs": job.is_null(), "job": job, "direction": "read",
                "rows": [{"cells": {"iops": {"value": {"mean": iops}}}}]})
        };
        let run = serde_json::json!({
            "sections": [{"directions": [of(().into(), 7.0), of("a".into(), 3.0), of("b".into(), 4.0)]}],
            "why": [{"key": "flash_reads", "values": [9.0]}],
        });
        assert_eq!(metric(None, None, None).value(&run, 0, 0), Some(7.0));
        assert_eq!(metric(None, Some("b"), None).value(&run, 0, 0), Some(4.0));
        assert_eq!(
            metric(None, None, Some("flash_reads")).value(&run, 0, 0),
            Some(9.0)
        );
        assert_eq!(metric(None, None, Some("none")).value(&run, 0, 0), None);
    }
}
