//! Settings that a simulation found, measured for real.

use serde::{Deserialize, Serialize};

use super::{Answer, Comparison, Judgement};
use crate::quantity::signed_percent;

/// The measurement of settings that a simulation found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verification {
    /// The world, `serve`, `host` or `guest`.
    pub world: String,
    /// The drive's name.
    pub drive: String,
    /// The machine's name.
    pub machine: String,
    /// The number of runs of each setting.
    pub repeats: usize,
    /// The settings that were measured.
    pub schedulers: Vec<String>,
    /// The measurement judged by the goals of the simulation.
    pub judgement: Judgement,
    /// The setting that the simulation advises.
    pub choice: String,
    /// The share by which the best measured setting beats the choice; `None` if one of them
    /// breaks a limit or lacks a figure.
    pub regret: Option<f64>,
    /// The outcome in a sentence.
    pub sentence: String,
}

/// Returns the setting that a simulation chooses: what its answer says, or the one that is best
/// by the goals where there is no answer.
pub fn choice_of<'c>(simulated: &'c Comparison, answer: Option<&'c Answer>) -> Option<&'c str> {
    match answer {
        Some(Answer::Take(name) | Answer::Keep(name)) => Some(name),
        Some(Answer::Depends) | None => {
            let scores = simulated.judgement.as_ref()?.scores();
            let best = best_of(&scores)?;
            simulated.schedulers.get(best).map(String::as_str)
        }
    }
}

/// Returns the first of the best scores.
fn best_of(scores: &[Option<f64>]) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for (at, score) in scores.iter().enumerate() {
        if let Some(score) = *score
            && best.is_none_or(|(most, _)| score > most)
        {
            best = Some((score, at));
        }
    }
    best.map(|(_, at)| at)
}

impl Verification {
    /// Judges a measurement of the settings of which the simulation chose `choice`; `None`
    /// without a goal, or if the choice was not measured.
    pub fn new(measured: &Comparison, choice: &str) -> Option<Verification> {
        let judgement = measured.judgement.clone()?;
        let names = &measured.schedulers;
        let at = names.iter().position(|name| name == choice)?;
        let scores = judgement.scores();
        let best = best_of(&scores);
        let own = scores.get(at).copied().flatten();
        let regret = best.and_then(|best| Some(scores[best]? / own? - 1.0));
        let is_in_noise = judgement.contest.as_ref().is_some_and(|contest| {
            let mut good = contest.leaders.iter().chain(&contest.unsure);
            good.any(|name| name == choice)
        });
        let best = best.map(|best| names[best].as_str());
        let sentence = match (best, regret) {
            (None, _) => "no setting has all figures and keeps the limits".to_string(),
            (Some(best), _) if best == choice => format!("{choice} is the best, as simulated"),
            (Some(best), Some(_)) if is_in_noise => {
                format!("{choice} differs from the best, {best}, only within the noise")
            }
            (Some(best), Some(regret)) => {
                let percent = signed_percent(regret);
                format!("{best} is better than {choice}, which the simulation chose: {percent}")
            }
            (Some(best), None) => format!(
                "{choice}, which the simulation chose, breaks a limit or lacks a figure; {best} \
                 is the best"
            ),
        };
        Some(Verification {
            world: measured.world.clone(),
            drive: measured.drive.clone(),
            machine: measured.machine.clone(),
            repeats: measured.repeats,
            schedulers: names.clone(),
            choice: choice.to_string(),
            regret,
            sentence: format!("Of {} settings measured, {sentence}.", names.len()),
            judgement,
        })
    }

    /// Describes where it was measured, and how often.
    pub fn place(&self) -> String {
        let times = match self.repeats {
            1 => "one run each".to_string(),
            n => format!("{n} runs each"),
        };
        let Verification {
            drive,
            machine,
            world,
            ..
        } = self;
        format!("{drive}, machine {machine} ({world}), {times}")
    }
}
