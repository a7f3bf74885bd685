//! Comparisons that a real kernel made, beside the same in the simulation.

use blklab_report::{Contest, Outcome, Verdict};
use serde::Deserialize;
use serde_json::Value;

use crate::compare::Metric;
use crate::part::{PagePart, Table};
use crate::program::Program;
use crate::recorded::{self, Recorded};

/// Tables with two rows for each job: as recorded in a kernel, and as simulated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The file of recorded comparisons, in the folder of measured data.
    recorded: String,
    /// The simulation's command; `JOB` stands for a recorded job, `OPTIONS` for the options
    /// that it was recorded with.
    command: String,
    /// The schedulers as columns are called; a kernel that has the name already has ours under
    /// another.
    schedulers: Vec<String>,
    /// The tables to make. A job without the direction of a table has no row in it.
    tables: Vec<Metric>,
}

/// A job's comparison in each world.
struct Pair {
    job: String,
    worlds: [(&'static str, Value); 2],
}

impl Block {
    /// Simulates the recorded jobs.
    ///
    /// # Errors
    /// If the file cannot be read or a comparison fails.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let recorded = recorded::read(program, &self.recorded)?;
        let pairs = recorded.into_iter().map(|of| self.pair(program, of));
        let pairs = pairs.collect::<Result<Vec<Pair>, String>>()?;
        let mut text = format!("    blklab {}\n", self.command);
        for metric in &self.tables {
            let table = self.table(&pairs, metric)?.markdown();
            text += &format!("\n{}:\n\n{table}", metric.title);
        }
        Ok(PagePart {
            text,
            groups: Vec::new(),
        })
    }

    fn pair(&self, program: &Program, recorded: Recorded<Value>) -> Result<Pair, String> {
        let kernel = recorded.answer;
        let Some(job) = kernel["job"].as_str() else {
            return Err(format!("{}: a comparison without job", self.recorded));
        };
        let simulated = recorded::simulated(program, &self.command, job, &recorded.options)?;
        for world in [&kernel, &simulated] {
            let found = world["schedulers"].as_array().map_or(0, Vec::len);
            if found != self.schedulers.len() {
                let expected = self.schedulers.len();
                return Err(format!("{job}: {found} schedulers, not {expected}"));
            }
        }
        Ok(Pair {
            job: job.rsplit('/').next().unwrap_or(job).to_string(),
            worlds: [("kernel", kernel), ("simulated", simulated)],
        })
    }

    fn table(&self, pairs: &[Pair], metric: &Metric) -> Result<Table, String> {
        let mut head = ["job", "in"].map(String::from).to_vec();
        head.extend(self.schedulers.iter().cloned());
        head.push("ahead".to_string());
        let mut table = Table::new(head);
        for pair in pairs {
            for (world, run) in &pair.worlds {
                let Some(values) = metric.values(run, 0, self.schedulers.len()) else {
                    continue;
                };
                let mut row = vec![pair.job.clone(), world.to_string()];
                row.extend(metric.shown(&values));
                row.push(self.ahead(run, metric)?);
                table.row(row);
            }
        }
        Ok(table)
    }

    /// Returns who is ahead by more than noise, as the comparison itself judges; nothing of a
    /// figure that is no contest.
    ///
    /// # Errors
    /// If the comparison's verdict is of another form.
    fn ahead(&self, run: &Value, metric: &Metric) -> Result<String, String> {
        let verdict = &run["sections"][0]["verdict"];
        let verdict = Verdict::deserialize(verdict).map_err(|e| format!("verdict: {e}"))?;
        let direction = metric.direction.as_deref();
        let is_meant = |of: &&Contest| {
            serde_json::json!(of.metric) == *metric.cell
                && serde_json::json!(of.direction).as_str() == direction
        };
        let mut contests = verdict.bandwidths.iter().chain(&verdict.tails);
        let Some(contest) = contests.find(is_meant) else {
            return Ok(String::new());
        };
        let label = |name: &String| {
            let names = run["schedulers"].as_array()?;
            let place = names.iter().position(|of| of == name)?;
            self.schedulers.get(place).map(String::as_str)
        };
        Ok(match contest.outcome {
            Outcome::WithinNoise | Outcome::Negligible => "no difference".to_string(),
            Outcome::Untested => "one run each".to_string(),
            Outcome::Wins | Outcome::Shared | Outcome::Alone => {
                let leaders = contest.leaders.iter().filter_map(label);
                leaders.collect::<Vec<&str>>().join(", ")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Pair};

    fn run(
        names: [&str; 2],
        reads: [f64; 2],
        outcome: &str,
        leaders: &[&str],
    ) -> serde_json::Value {
        let rows = reads.map(|mean| {
            serde_json::json!({"cells": {"bandwidth_bytes_per_s": {"value": {"mean": mean}}}})
        });
        serde_json::json!({"schedulers": names, "sections": [{
            "directions": [{"direction": "read", "rows": rows}],
            "verdict": {"tails": [], "sentence": "", "bandwidths": [{
                "metric": "bandwidth_bytes_per_s", "direction": null, "against": "",
                "lead": null, "outcome": outcome, "leaders": leaders,
            }]},
        }]})
    }

    #[test]
    fn worlds_stand_one_below_the_other() {
        let text = "recorded = \"\"\ncommand = \"\"\nschedulers = [\"noop\", \"deadline\"]\n\
                    [[tables]]\ntitle = \"MB/s\"\ncell = \"bandwidth_bytes_per_s\"\n\
                    unit = 1e6\nchange = true\n\
                    [[tables]]\ntitle = \"writes\"\ncell = \"iops\"\ndirection = \"write\"\n";
        let block: Block = toml::from_str(text).expect("a block");
        let kernel = run(
            ["noop", "our-deadline"],
            [2e6, 3e6],
            "wins",
            &["our-deadline"],
        );
        let simulated = run(["noop", "deadline"], [4e6, 4e6], "within_noise", &["noop"]);
        let pair = Pair {
            job: "randread".into(),
            worlds: [("kernel", kernel), ("simulated", simulated)],
        };
        let table = block.table(std::slice::from_ref(&pair), &block.tables[0]);
        let table = table.expect("verdicts");
        let rows = "| randread | kernel | 2 | 3 (+50.0 %) | deadline |\n\
                    | randread | simulated | 4 | 4 (+0.0 %) | no difference |\n";
        let table = table.markdown();
        assert!(table.ends_with(rows), "{table}");
        let none = block.table(&[pair], &block.tables[1]);
        let none = none.expect("verdicts").markdown();
        assert_eq!(none.lines().count(), 2, "{none}");
    }
}
