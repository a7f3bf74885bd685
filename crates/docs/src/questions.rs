//! Questions with a real kernel's answers, beside the simulation's.

use blklab_report::{Comparison, GoalRow, goal_values};
use serde::Deserialize;

use crate::part::{PagePart, Table};
use crate::program::Program;
use crate::recorded::{self, Recorded};

/// A table of questions that were put to a real kernel and to the simulation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The file of recorded answers, in the folder of measured data.
    recorded: String,
    /// The command's arguments; `JOB` stands for a question, `OPTIONS` for the options
    /// that it was recorded with, `HOW` for those of each simulation.
    command: String,
    /// The simulations that are put beside the kernel.
    simulations: Vec<Simulated>,
}

/// How the questions are simulated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simulated {
    /// What its column is called.
    label: String,
    /// Further options; `RECORDED` stands for the number of runs that the kernel had.
    options: String,
}

/// The answers to a question: the kernel's first, then each simulation's.
type Answers = Vec<Comparison>;

impl Block {
    /// Puts the recorded questions to the simulation.
    ///
    /// # Errors
    /// If the file cannot be read or a comparison fails.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let recorded = recorded::read(program, &self.recorded)?;
        let asked = recorded.into_iter().map(|of| self.ask(program, of));
        let all = asked.collect::<Result<Vec<Answers>, String>>()?;
        let agree = self.agree(&all);
        let groups = self.simulations.iter().zip(&agree).map(|(of, agree)| {
            let (label, rows) = (&of.label, all.len());
            format!("questions {label} rows {rows} same advice {agree}")
        });
        Ok(PagePart {
            groups: groups.collect(),
            text: format!(
                "{}\n{}\n{}",
                self.commands(),
                self.advice(&all, &agree).markdown(),
                self.goals(&all)?.markdown()
            ),
        })
    }

    fn ask(&self, program: &Program, recorded: Recorded<Comparison>) -> Result<Answers, String> {
        let job = recorded.answer.job.clone();
        let mut answers = vec![recorded.answer];
        let repeats = answers[0].repeats.to_string();
        for of in &self.simulations {
            let how = of.options.replace("RECORDED", &repeats);
            let command = self.command.replace("HOW", &how);
            answers.push(recorded::simulated(
                program,
                &command,
                &job,
                &recorded.options,
            )?);
        }
        Ok(answers)
    }

    /// Returns a line for each simulation's command.
    fn commands(&self) -> String {
        let command = |of: &Simulated| {
            let command = self.command.replace("HOW", &of.options);
            format!("    blklab {command}\n")
        };
        self.simulations.iter().map(command).collect()
    }

    fn labels(&self) -> impl Iterator<Item = &str> {
        self.simulations.iter().map(|of| of.label.as_str())
    }

    /// Returns how often each simulation's advice agrees with the kernel's.
    fn agree(&self, all: &[Answers]) -> Vec<usize> {
        let agrees = |n: usize| {
            let same = all.iter().filter(|of| advised(&of[0]) == advised(&of[n]));
            same.count()
        };
        (1..=self.simulations.len()).map(agrees).collect()
    }

    /// Returns a table of the advice with a row for each question, and last the number
    /// of questions on which each simulation agrees with the kernel.
    fn advice(&self, all: &[Answers], agree: &[usize]) -> Table {
        let mut head = ["question", "drive", "kernel"].map(String::from).to_vec();
        head.extend(self.labels().map(String::from));
        let mut table = Table::new(head);
        for answers in all {
            let kernel = &answers[0];
            let question = kernel.question.as_ref().unwrap_or(&kernel.job);
            let mut row = vec![question.clone(), kernel.drive.clone()];
            row.extend(answers.iter().map(advised));
            table.row(row);
        }
        let mut row = ["as the kernel", "", ""].map(String::from).to_vec();
        row.extend(agree.iter().map(|n| format!("{n} of {}", all.len())));
        table.row(row);
        table
    }

    /// Returns a table with a row for each goal or limit and each world.
    fn goals(&self, all: &[Answers]) -> Result<Table, String> {
        let Some(first) = all.first().map(|answers| &answers[0].schedulers) else {
            return Err("no answer is recorded".to_string());
        };
        let mut head = ["question", "goal", "on"].map(String::from).to_vec();
        head.extend(first.iter().cloned());
        let mut table = Table::new(head);
        for answers in all {
            let job = &answers[0].job;
            if answers.iter().any(|answer| answer.schedulers != *first) {
                return Err(format!("{job}: other schedulers than before"));
            }
            let rows = |of: &Comparison| of.judgement.clone().map_or(Vec::new(), |j| j.rows);
            let rows: Vec<Vec<GoalRow>> = answers.iter().map(rows).collect();
            for (n, goal) in rows[0].iter().enumerate() {
                let worlds = std::iter::once("kernel").chain(self.labels());
                for (world, rows) in worlds.zip(&rows) {
                    let name = job.rsplit('/').next().unwrap_or_default();
                    let mut row = [name, &goal.name, world].map(String::from).to_vec();
                    let row_of = rows.get(n).ok_or_else(|| format!("{job}: other goals"))?;
                    row.extend(goal_values(row_of));
                    table.row(row);
                }
            }
        }
        Ok(table)
    }
}

/// Returns the advice in a few words.
fn advised(answer: &Comparison) -> String {
    match answer.advice.as_ref().map(|advice| &advice.take) {
        Some(Some(taken)) => format!("take {taken}"),
        Some(None) => "change nothing".to_string(),
        None => "no advice".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Comparison, Simulated};

    fn block() -> Block {
        Block {
            recorded: String::new(),
            command: String::new(),
            simulations: vec![Simulated {
                label: "m".to_string(),
                options: String::new(),
            }],
        }
    }

    /// Returns an answer to `questions/q` with these values of its goal.
    fn answer(schedulers: [&str; 2], values: [Option<f64>; 2], take: Option<&str>) -> Comparison {
        let estimate = |mean: f64| serde_json::json!({"mean": mean, "repeats": 1});
        let json = serde_json::json!({
            "job": "questions/q", "drive": "null", "machine": "m", "world": "guest",
            "schedulers": schedulers, "repeats": 1, "seeds": [1], "paired": true,
            "question": "Which?", "headline": "", "sections": [], "why": [], "channels": [],
            "notes": [],
            "origin": {"command": "", "job_text": "", "drive_text": "", "machine_text": ""},
            "judgement": {"rows": [{
                "name": "a.read.p99", "metric": "latency_p99_ns",
                "values": values.map(|value| value.map(estimate)),
            }], "contest": null, "sentence": ""},
            "advice": {"sentence": "", "take": take, "price": "", "assumed": "",
                "commands": []},
        });
        serde_json::from_value(json).expect("a comparison")
    }

    #[test]
    fn both_worlds_are_told_one_below_the_other() {
        let both = ["none", "bfq"];
        let kernel = answer(both, [Some(2e6), None], None);
        let simulated = answer(both, [Some(3e6), Some(1e6)], Some("bfq"));
        let all = [vec![kernel, simulated]];
        let advice = block().advice(&all, &block().agree(&all)).markdown();
        let rows = "| Which? | null | change nothing | take bfq |\n\
                    | as the kernel |  |  | 0 of 1 |\n";
        assert!(advice.ends_with(rows), "{advice}");
        let goals = block().goals(&all).expect("the same schedulers").markdown();
        let rows = "| q | a.read.p99 | kernel | 2000 us | - |\n\
                    | q | a.read.p99 | m | 3000 us | 1000 us |\n";
        assert!(goals.ends_with(rows), "{goals}");
    }

    #[test]
    fn a_column_is_one_scheduler() {
        let kernel = answer(["none", "bfq"], [None, None], None);
        let other = answer(["none", "kyber"], [None, None], None);
        assert!(block().goals(&[vec![kernel, other]]).is_err());
    }
}
