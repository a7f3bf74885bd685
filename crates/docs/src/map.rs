//! A map: where what a document says holds, over options of its job that it does not tell.

use serde::Deserialize;
use serde_json::Value;

use crate::compare::Metric;
use crate::part::{PagePart, Table};
use crate::program::Program;

/// A scheduler is behind if it has less than this share of the best one's bandwidth: two runs of
/// one setting differ by less.
const BEHIND: f64 = 0.98;

/// A table with a row for each setting, of how far the last scheduler is ahead of each other one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The command's arguments; `JOB` stands for a job.
    command: String,
    /// The jobs; the document tells figures of the first.
    jobs: Vec<String>,
    /// The schedulers; the last is the document's own.
    schedulers: Vec<String>,
    /// The options that the document does not tell, with their values.
    options: Vec<(String, Vec<String>)>,
    document: Document,
}

/// What the document says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    /// The changes from each other scheduler to its own, of bandwidth and of latency.
    changes_percent: Vec<Change>,
    /// Which of the other schedulers, by number, can together be those that it measured.
    readings: Vec<Vec<usize>>,
    /// The jobs in which its own scheduler is behind.
    behind: Vec<String>,
}

/// A change of bandwidth and of mean latency, in percent.
type Change = [f64; 2];

const BANDWIDTH: usize = 0;
const LATENCY: usize = 1;

/// What a setting gives.
struct Place {
    label: String,
    changes: Vec<Change>,
    behind: Vec<String>,
}

impl Block {
    /// Runs the comparisons: one of all settings for each job.
    ///
    /// # Errors
    /// If a comparison fails or its JSON lacks a figure.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let line = self.line();
        let runs = (self.jobs.iter()).map(|job| program.json(&line.replace("JOB", job)));
        let runs = runs.collect::<Result<Vec<Value>, String>>()?;
        let places = self.places(&runs)?;
        let mut text = format!("    blklab {line}\n\n{}\n", self.table(&places).markdown());
        text.extend((self.document.readings.iter()).map(|of| self.nearest(&places, of)));
        Ok(PagePart {
            text,
            groups: Vec::new(),
        })
    }

    fn line(&self) -> String {
        let mut line = format!(
            "{} --vary scheduler={}",
            self.command,
            self.schedulers.join(",")
        );
        for (option, values) in &self.options {
            line += &format!(" --vary {option}={}", values.join(","));
        }
        line
    }

    /// The settings in the order of a comparison's columns: the last option varies fastest.
    fn labels(&self) -> Vec<String> {
        let mut labels = vec![String::new()];
        for (_, values) in &self.options {
            let with = |label: &String, value: &String| match label.as_str() {
                "" => value.clone(),
                label => format!("{label} x {value}"),
            };
            let longer = (labels.iter()).flat_map(|l| values.iter().map(move |v| with(l, v)));
            labels = longer.collect();
        }
        labels
    }

    fn places(&self, runs: &[Value]) -> Result<Vec<Place>, String> {
        let labels = self.labels();
        // The values of each scheduler in each setting.
        let values = |run: &Value, cell: &str| -> Result<Vec<Vec<f64>>, String> {
            let columns = labels.len() * self.schedulers.len();
            let all = Metric::sum_of(cell).values(run, 0, columns);
            let all = all.ok_or_else(|| format!("the comparison has no {cell}"))?;
            Ok(all.chunks(labels.len()).map(<[f64]>::to_vec).collect())
        };
        let bandwidths = (runs.iter().map(|run| values(run, "bandwidth_bytes_per_s")))
            .collect::<Result<Vec<_>, String>>()?;
        let first = runs.first().ok_or("a map needs a job")?;
        let figures = [bandwidths[0].clone(), values(first, "latency_mean_ns")?];
        let others = self.schedulers.len().saturating_sub(1);
        let place = |(n, label): (usize, &String)| {
            let change = |other: usize| {
                let percent = |of: &Vec<Vec<f64>>| (of[others][n] / of[other][n] - 1.0) * 100.0;
                [percent(&figures[BANDWIDTH]), percent(&figures[LATENCY])]
            };
            let is_behind = |of: &[Vec<f64>]| {
                let best = of[..others].iter().map(|of| of[n]).fold(0.0, f64::max);
                of[others][n] < BEHIND * best
            };
            let behind = self.jobs.iter().zip(&bandwidths);
            Place {
                label: label.clone(),
                changes: (0..others).map(change).collect(),
                behind: (behind.filter(|(_, of)| is_behind(of)))
                    .map(|(job, _)| short(job).to_string())
                    .collect(),
            }
        };
        Ok(labels.iter().enumerate().map(place).collect())
    }

    fn table(&self, places: &[Place]) -> Table {
        let names: Vec<&str> = self.options.iter().map(|(name, _)| name.as_str()).collect();
        let (own, others) = self.schedulers.split_last().expect("is not empty");
        let mut head = vec![names.join(" x ")];
        head.extend(others.iter().map(|other| format!("over {other}")));
        head.push(format!("{own} is behind in"));
        let mut table = Table::new(head);
        let mut row = |label: &str, changes: &[Change], behind: &[String]| {
            let mut row = vec![label.to_string()];
            let shown = |[bandwidth, latency]: &Change| format!("{bandwidth:+.0}, {latency:+.0} %");
            row.extend(changes.iter().map(shown));
            row.push(behind.join(", "));
            table.row(row);
        };
        let of = &self.document;
        row(&of.name, &of.changes_percent, &of.behind);
        for place in places {
            row(&place.label, &place.changes, &place.behind);
        }
        table
    }

    /// Tells which setting is nearest to the document, if these schedulers are those that it
    /// measured.
    fn nearest(&self, places: &[Place], reading: &[usize]) -> String {
        let distance = |place: &Place, figures: &[usize]| {
            let points = |&of: &usize| {
                let (here, there) = (place.changes[of], self.document.changes_percent[of]);
                let each = figures.iter().map(|&n| (here[n] - there[n]).abs());
                each.fold(0.0, f64::max)
            };
            reading.iter().map(points).fold(0.0, f64::max)
        };
        let nearest = |figures: &[usize]| {
            let all = places.iter().map(|place| (distance(place, figures), place));
            let found = all.min_by(|a, b| a.0.total_cmp(&b.0));
            found.map_or(String::new(), |(points, place)| {
                format!(
                    "{}, where no figure is off by more than {points:.0} points",
                    place.label
                )
            })
        };
        let names: Vec<&str> = reading
            .iter()
            .map(|&of| self.schedulers[of].as_str())
            .collect();
        let same = places.iter().filter(|p| p.behind == self.document.behind);
        let behind: Vec<&str> = same.map(|place| place.label.as_str()).collect();
        format!(
            "If {} are what was measured: nearest in bandwidth is {}; nearest in both is {}. \
             Behind in the same jobs: {}.\n\n",
            names.join(", "),
            nearest(&[BANDWIDTH]),
            nearest(&[BANDWIDTH, LATENCY]),
            if behind.is_empty() {
                "nowhere".to_string()
            } else {
                behind.join(", ")
            },
        )
    }
}

fn short(job: &str) -> &str {
    let name = job.split_whitespace().next().unwrap_or(job);
    name.rsplit('/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{Block, short};

    fn block() -> Block {
        toml::from_str(
            r#"
command = "compare JOB"
jobs = ["a/mixed", "a/write --override bs=8k"]
schedulers = ["noop", "own"]
options = [["iodepth", ["1", "2"]], ["numjobs", ["1", "3"]]]
[document]
name = "the document"
changes_percent = [[10.0, -20.0]]
readings = [[0]]
behind = ["write"]
"#,
        )
        .expect("a map")
    }

    fn run(bandwidths: [f64; 8], latencies: [f64; 8]) -> serde_json::Value {
        let rows: Vec<_> = (bandwidths.iter().zip(latencies))
            .map(|(b, l)| {
                serde_json::json!({"cells": {
                    "bandwidth_bytes_per_s": {"value": {"mean": b}},
                    "latency_mean_ns": {"value": {"mean": l}},
                }})
            })
            .collect();
        serde_json::json!({"sections": [{"directions": [{"direction": "read", "rows": rows}]}]})
    }

    #[test]
    fn a_map_tells_each_setting_and_the_nearest() {
        let block = block();
        assert_eq!(
            block.line(),
            "compare JOB --vary scheduler=noop,own --vary iodepth=1,2 --vary numjobs=1,3"
        );
        let same = [100.0; 8];
        let mixed = run(
            [100.0, 100.0, 100.0, 100.0, 100.0, 109.0, 120.0, 100.0],
            [100.0, 100.0, 100.0, 100.0, 100.0, 60.0, 75.0, 100.0],
        );
        let write = run([100.0, 100.0, 100.0, 100.0, 97.0, 99.0, 120.0, 90.0], same);
        let places = block.places(&[mixed, write]).expect("all figures");
        let table = block.table(&places).markdown();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| the document | +10, -20 % | write |",
                "| 1 x 1 | +0, +0 % | write |",
                "| 1 x 3 | +9, -40 % |  |",
                "| 2 x 1 | +20, -25 % |  |",
                "| 2 x 3 | +0, +0 % | write |",
            ]
        );
        assert_eq!(
            block.nearest(&places, &[0]),
            "If noop are what was measured: nearest in bandwidth is 1 x 3, where no figure is off \
             by more than 1 points; nearest in both is 2 x 1, where no figure is off by more than \
             10 points. Behind in the same jobs: 1 x 1, 2 x 3.\n\n"
        );
    }

    #[test]
    fn a_job_is_called_by_its_name_alone() {
        assert_eq!(short("thesis/write --override bs=8k"), "write");
    }
}
