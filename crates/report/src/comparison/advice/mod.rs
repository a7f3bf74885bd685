//! What to do: which row to take, what that costs, and what to type.

mod commands;
mod decide;

use serde::{Deserialize, Serialize};

use super::{Comparison, Judgement};
use crate::quantity::and_list;
pub use commands::Command;
pub use decide::Answer;
use decide::Decision;

/// How a row sets its queue, and on which device that can be made so for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSetting {
    /// The scheduler.
    pub scheduler: String,
    /// Its tunables and their values.
    pub tunables: Vec<(String, String)>,
    /// The queue's `nr_requests`, where it is set.
    pub nr_requests: Option<u32>,
    /// The queue's `nomerges`, likewise.
    pub nomerges: Option<u8>,
    /// The queue's `read_ahead_kb`, likewise.
    pub read_ahead_kb: Option<u32>,
    /// Whether the kernel in question has the scheduler.
    pub in_kernel: bool,
    /// Whether it is what that kernel gives the drive by itself.
    pub by_default: bool,
}

/// What there is to choose among.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Each row of the comparison.
    pub rows: Vec<QueueSetting>,
    /// The kernel, as `Linux 6.12`.
    pub kernel: String,
    /// The device, as `/sys/block` names it: `sda`.
    pub device: String,
    /// What udev matches the kernel's names of such devices with: `sd[a-z]*`.
    pub pattern: String,
    /// Whether it turns, where that is known.
    pub rotational: Option<bool>,
}

/// What to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Advice {
    /// The answer in one sentence.
    pub sentence: String,
    /// The row to take; none where all is well as it is, or where it depends.
    pub take: Option<String>,
    /// What that makes worse, in a sentence; empty where it costs nothing.
    pub price: String,
    /// Which assumed values it hangs on, in a sentence; empty where none was tried.
    pub assumed: String,
    /// What to type, once or for good.
    pub commands: Vec<Command>,
}

impl Choices {
    /// What the comparison says to do.
    pub fn answer(&self, comparison: &Comparison) -> Option<Answer> {
        let decision = Decision::new(comparison, self, &self.of_kernel())?;
        Some(decision.answer(comparison))
    }

    /// Whether an answer still holds by another comparison of the same rows: the
    /// other one where it does not.
    pub fn instead(&self, answer: &Answer, comparison: &Comparison) -> Option<Answer> {
        let (Answer::Take(held) | Answer::Keep(held)) = answer else {
            return None;
        };
        let at = comparison.schedulers.iter().position(|name| name == held)?;
        let from_held = Decision::from(at, comparison, &self.of_kernel());
        match (from_held.answer(comparison), self.answer(comparison)) {
            // It does no harm; where it brings nothing either, that is another answer.
            (Answer::Keep(_), Some(Answer::Keep(base))) if base != *held => {
                Some(Answer::Keep(base))
            }
            (Answer::Keep(_), _) => None,
            (other, _) => Some(other),
        }
    }

    /// What to do by a comparison; nothing where it has no verdict.
    pub fn advise(&self, comparison: &Comparison) -> Option<Advice> {
        let is_open = (comparison.judgement.as_ref()).is_some_and(Judgement::is_open);
        if !comparison.has_verdict() || is_open || comparison.schedulers.len() < 2 {
            return None;
        }
        let kernel = &self.kernel;
        let own = self.of_kernel();
        let Some(decision) = Decision::new(comparison, self, &own) else {
            let keeps = comparison.judgement.is_none();
            return keeps.then(|| Advice {
                sentence: format!(
                    "{kernel} has none of these schedulers: there is nothing to set."
                ),
                ..Advice::default()
            });
        };
        let mut advice = decision.advice(comparison, self);
        let all: Vec<usize> = (0..self.rows.len()).collect();
        if let Some(better) = self.better_elsewhere(&decision, comparison, &all) {
            advice.sentence = format!("{} {better}", advice.sentence);
        }
        if let Some(at) = decision.taken() {
            advice.commands = commands::of(self, &self.rows[at]);
        }
        Some(advice)
    }

    /// The rows whose scheduler the kernel has.
    fn of_kernel(&self) -> Vec<usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.in_kernel)
            .map(|(at, _)| at)
            .collect()
    }

    /// A scheduler that would be better and that the kernel does not have.
    fn better_elsewhere(
        &self,
        decision: &Decision<'_>,
        comparison: &Comparison,
        all: &[usize],
    ) -> Option<String> {
        let held = decision.held();
        let at = Decision::from(held, comparison, all).taken()?;
        let name = &comparison.schedulers[at];
        (!self.rows[at].in_kernel).then(|| {
            format!(
                "{name} would be better still, and {} does not have it.",
                self.kernel
            )
        })
    }
}

impl Decision<'_> {
    fn advice(&self, comparison: &Comparison, choices: &Choices) -> Advice {
        let name = |at: usize| comparison.schedulers[at].as_str();
        let by_itself = match choices.rows[self.base()].by_default {
            true => format!(" ({} sets it by itself)", choices.kernel),
            false => String::new(),
        };
        let base = format!("{}{by_itself}", name(self.base()));
        let untested = match comparison.repeats {
            1 => " One run each cannot tell this from noise (see --repeats).",
            _ => "",
        };
        match self.answer(comparison) {
            Answer::Keep(_) => Advice {
                sentence: format!("No difference worth a change: keep {base}.{untested}"),
                ..Advice::default()
            },
            Answer::Take(taken) => {
                let at = self.held();
                let (gains, prices) = (self.gains(at), self.prices(at));
                let why = match gains.is_empty() {
                    true => "it keeps the limits".to_string(),
                    false => and_list(&gains),
                };
                Advice {
                    sentence: format!("Take {taken}: {why}, against {base}.{untested}"),
                    price: match prices.is_empty() {
                        true => String::new(),
                        false => format!("Its price: {}.", and_list(&prices)),
                    },
                    take: Some(taken),
                    ..Advice::default()
                }
            }
            Answer::Depends => {
                let rows = self.both_ways().into_iter().map(|at| {
                    format!(
                        "{} brings {} and costs {}",
                        name(at),
                        and_list(&self.gains(at)),
                        and_list(&self.prices(at))
                    )
                });
                let rows: Vec<String> = rows.collect();
                Advice {
                    sentence: format!(
                        "It depends on what you care about. Against {base}, {}. --goal decides, \
                         as in --goal '{}'.{untested}",
                        rows.join("; "),
                        self.example_goal()
                    ),
                    ..Advice::default()
                }
            }
        }
    }
}
