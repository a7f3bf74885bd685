//! Advice: which row to take, what gets worse by it, and the commands to apply it.

mod commands;
mod decide;

use serde::{Deserialize, Serialize};

use super::{Comparison, Judgement};
use crate::quantity::and_list;
pub use commands::Command;
pub use decide::Answer;
use decide::{Decision, Gains};

/// Says how many of all assumed values were not tried at their plausible ends; `None` if all were.
pub fn note_on_untried(all: usize, tried: usize) -> Option<String> {
    let left = all.saturating_sub(tried);
    (left > 0).then(|| format!("Of {all} assumed values {left} were not tried (--assumed {all})."))
}

/// Whether a kernel can use a scheduler for a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// The kernel does not have the scheduler.
    #[default]
    NotInKernel,
    /// The kernel has it, and it does not suit the drive.
    NotForDrive,
    /// It can be used, and may change the order of the writes of a host-managed zone.
    ReordersZones,
    /// It can be used.
    Offered,
}

/// The queue settings of a row, and whether the target kernel can apply them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSetting {
    /// The scheduler.
    pub scheduler: String,
    /// The scheduler's tunables with their values.
    pub tunables: Vec<(String, String)>,
    /// The queue's `nr_requests`, if it is set.
    pub nr_requests: Option<u32>,
    /// The queue's `nomerges`, if it is set.
    pub nomerges: Option<u8>,
    /// The queue's `read_ahead_kb`, if it is set.
    pub read_ahead_kb: Option<u32>,
    /// The queue's `wbt_lat_usec`, if it is set.
    pub wbt_lat_us: Option<u32>,
    /// Whether the target kernel can use the scheduler.
    pub availability: Availability,
    /// Whether the target kernel uses this setting for the drive by default.
    pub by_default: bool,
}

/// The rows that a user can choose from, and the system to apply one on.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The queue settings of each row of the comparison.
    pub rows: Vec<QueueSetting>,
    /// The kernel, such as `Linux 6.12`.
    pub kernel: String,
    /// The scheduler that the kernel sets for the drive by itself.
    pub default: String,
    /// The devices' names in `/sys/block`; empty if only their kind is known.
    pub devices: Vec<String>,
    /// The first device of their kind, such as `sda`.
    pub example: String,
    /// udev's pattern for devices of this kind, such as `sd[a-z]*`.
    pub pattern: String,
    /// The file in a device's folder in sysfs that tells it from others of its kind; empty if
    /// there is none.
    pub identity: String,
    /// Whether the device has rotating media; `None` if not known.
    pub rotational: Option<bool>,
}

/// The advice of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Advice {
    /// The answer in one sentence.
    pub sentence: String,
    /// The row to take; `None` if the current one should stay, or if it depends.
    pub take: Option<String>,
    /// The figures that get worse, in a sentence; empty if there are none.
    pub price: String,
    /// The assumed values on which the answer depends, in a sentence; empty if none was
    /// tried.
    pub assumed: String,
    /// The commands to apply the advice.
    pub commands: Vec<Command>,
}

/// What an answer ends with if every row ran once.
const UNTESTED: &str = " One run each cannot tell this from noise (see --repeats).";

impl Advice {
    /// Turns the advice of a shortened comparison into what it is: nothing to apply yet.
    pub fn make_first_look(&mut self) {
        self.sentence = format!(
            "A first look, not an answer (without --quick it is one): {}",
            self.sentence
        );
        self.commands.clear();
    }
}

impl Choices {
    /// Returns the answer of a comparison.
    pub fn answer(&self, comparison: &Comparison) -> Option<Answer> {
        let decision = Decision::new(comparison, self, &self.offered())?;
        Some(decision.answer(comparison))
    }

    /// Returns the answer of another comparison of the same rows if it differs from
    /// `answer`, or `None` if `answer` still holds.
    pub fn changed_answer(&self, answer: &Answer, comparison: &Comparison) -> Option<Answer> {
        let (Answer::Take(held) | Answer::Keep(held)) = answer else {
            let other = self.answer(comparison);
            return other.filter(|other| *other != Answer::Depends);
        };
        let at = comparison.schedulers.iter().position(|name| name == held)?;
        let from_held = Decision::from(at, comparison, &self.offered());
        match (from_held.answer(comparison), self.answer(comparison)) {
            // The row is not worse than others here; but if the base is not worse
            // either, the answer is to keep the base.
            (Answer::Keep(_), Some(Answer::Keep(base))) if base != *held => {
                Some(Answer::Keep(base))
            }
            (Answer::Keep(_), _) => None,
            (other, _) => Some(other),
        }
    }

    /// Returns the advice of a comparison; `None` if it has no verdict.
    pub fn advise(&self, comparison: &Comparison) -> Option<Advice> {
        if !comparison.has_verdict() || comparison.schedulers.len() < 2 {
            return None;
        }
        let kernel = &self.kernel;
        let own = self.offered();
        let is_unmeasured = (comparison.judgement.as_ref()).is_some_and(Judgement::is_unmeasured);
        let decision = match is_unmeasured {
            true => None,
            false => Decision::new(comparison, self, &own),
        };
        let Some(decision) = decision else {
            let sentence = match () {
                () if own.is_empty() => format!(
                    "{kernel} offers none of these schedulers for this drive: there is nothing to \
                     set."
                ),
                () if is_unmeasured => "Change nothing yet: the goal was not measured.".to_string(),
                () => format!("Change nothing: no scheduler that {kernel} has keeps the limits."),
            };
            return Some(Advice {
                sentence,
                ..Advice::default()
            });
        };
        let mut advice = decision.advice(comparison, self);
        if let Some(missing) = self.missing_default() {
            advice.sentence = format!("{} {missing}", advice.sentence);
        }
        if let Some(idle) = idle_jobs(comparison) {
            advice.sentence = format!("{} {idle}", advice.sentence);
        }
        if let Some(chance) = decision.maybe_chance(&own) {
            advice.sentence = format!("{} {chance}", advice.sentence);
        }
        if let Some(better) = self.better_elsewhere(&decision, comparison) {
            advice.sentence = format!("{} {better}", advice.sentence);
        }
        let result = &self.rows[decision.resulting_row()];
        if result.availability == Availability::ReordersZones {
            advice.sentence = format!(
                "{} {kernel} keeps the order of a zone's writes under mq-deadline only: under {} \
                 they fail if a zone has more than one in flight.",
                advice.sentence, result.scheduler
            );
        }
        if let (Some(at), Some(_)) = (decision.taken(), &advice.take) {
            advice.commands = commands::of(self, &self.rows[at]);
        }
        Some(advice)
    }

    /// Returns a sentence if what the kernel sets by itself was not compared.
    fn missing_default(&self) -> Option<String> {
        let is_there = self.rows.iter().any(|row| row.scheduler == self.default);
        (!is_there).then(|| {
            format!(
                "{}, which {} sets by itself, was not compared.",
                self.default, self.kernel
            )
        })
    }

    /// Returns the rows whose scheduler the kernel can use.
    fn offered(&self) -> Vec<usize> {
        self.rows_with(|availability| availability >= Availability::ReordersZones)
    }

    fn rows_with(&self, matches: impl Fn(Availability) -> bool) -> Vec<usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| matches(row.availability))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns a sentence on a scheduler that would be better but that the kernel lacks.
    fn better_elsewhere(&self, decision: &Decision<'_>, comparison: &Comparison) -> Option<String> {
        let held = decision.resulting_row();
        let all = self.rows_with(|availability| availability != Availability::NotForDrive);
        let at = Decision::from(held, comparison, &all).taken()?;
        let name = &comparison.schedulers[at];
        (self.rows[at].availability == Availability::NotInKernel).then(|| {
            format!(
                "{name} would be better still, and {} does not have it.",
                self.kernel
            )
        })
    }
}

/// Returns a sentence on the jobs that are not weighed beside others, if there are any.
fn idle_jobs(comparison: &Comparison) -> Option<String> {
    let sections = comparison.sections.iter();
    let idle: Vec<String> = sections.flat_map(|section| section.idle.clone()).collect();
    let is_weighed = comparison.judgement.is_some();
    (!idle.is_empty() && !is_weighed).then(|| {
        format!(
            "What {} gets decides only where nothing else changes: the idle class gets what others \
             leave.",
            and_list(&idle)
        )
    })
}

impl Decision<'_> {
    /// Returns a sentence on a row that brings much more than the one that is taken, at a price;
    /// empty if there is none.
    fn dearer_one(&self, comparison: &Comparison) -> String {
        let Some(at) = self.dearer() else {
            return String::new();
        };
        format!(
            " {} brings more, {}, and costs {}: --goal decides.",
            comparison.schedulers[at],
            and_list(&self.gains(at, Gains::Sure)),
            and_list(&self.losses(at))
        )
    }

    /// The advice to take a row instead of `base`, unless the runs cannot tell yet.
    fn advice_to_take(&self, taken: String, base: &str, comparison: &Comparison) -> Advice {
        let at = self.resulting_row();
        let (gains, prices) = (self.gains(at, Gains::Sure), self.losses(at));
        let why = match gains.is_empty() {
            true => "it keeps the limits".to_string(),
            false => and_list(&gains),
        };
        let price = match prices.is_empty() {
            true => String::new(),
            false => format!("Its price: {}.", and_list(&prices)),
        };
        let not_yet = |sentence| Advice {
            sentence,
            price: price.clone(),
            ..Advice::default()
        };
        if comparison.repeats == 1 {
            return not_yet(format!(
                "Change nothing yet: {taken} looks better ({why}, against {base}).{UNTESTED}"
            ));
        }
        if let Some(likely) = self.likely_better() {
            let gains = self.gains(likely, Gains::Likely);
            let by = match gains.is_empty() {
                true => String::new(),
                false => format!(" ({})", and_list(&gains)),
            };
            return not_yet(format!(
                "Change nothing yet: {taken} is better than {base} ({why}), and {} looks better \
                 still{by}: more --repeats tell whether that is chance.",
                comparison.schedulers[likely]
            ));
        }
        Advice {
            sentence: format!(
                "Take {taken}: {why}, against {base}.{}",
                self.dearer_one(comparison)
            ),
            price,
            take: Some(taken),
            ..Advice::default()
        }
    }

    fn advice(&self, comparison: &Comparison, choices: &Choices) -> Advice {
        let name = |at: usize| comparison.schedulers[at].as_str();
        let is_default = choices.rows[self.base()].by_default;
        let by_itself = match is_default {
            true => format!(" ({} sets it by itself)", choices.kernel),
            false => String::new(),
        };
        let base = format!("{}{by_itself}", name(self.base()));
        let untested = match comparison.repeats {
            1 => UNTESTED,
            _ => "",
        };
        match self.answer(comparison) {
            Answer::Keep(_) => {
                // Only what the kernel has already can be kept.
                let sentence = match (self.all_lose(), is_default) {
                    (Some(loss), true) => format!("Keep {base}: {loss}."),
                    (Some(loss), false) => format!("Nothing is better than {base}: {loss}."),
                    (None, true) => format!("No difference worth a change: keep {base}."),
                    (None, false) => format!("No difference worth a change from {base}."),
                };
                Advice {
                    sentence: format!("{sentence}{untested}"),
                    ..Advice::default()
                }
            }
            Answer::Take(taken) => self.advice_to_take(taken, &base, comparison),
            Answer::Depends => {
                let rows = self.mixed().into_iter().map(|at| {
                    format!(
                        "{} brings {} and costs {}",
                        name(at),
                        and_list(&self.gains(at, Gains::Sure)),
                        and_list(&self.losses(at))
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
