//! Verdicts: which scheduler leads in bandwidth and in tail latency, and whether by more
//! than noise.

use blklab_stats::{Estimate, Significance};
use serde::{Deserialize, Serialize};

use super::figure::{Change, Direction, Metric};
use super::figure_name::FigureName;
use super::noun;
use super::runs::Pairs;
use crate::quantity::{and_list, change};

/// Smallest share by which figures have to differ. Deterministic work has no noise, so
/// there even the smallest difference is significant.
const NEGLIGIBLE: f64 = 0.005;
/// Smallest difference of Jain's index. The index changes little until one process falls
/// behind: at 0.95 one of two processes gets 1.6 times as much as the other.
const NEGLIGIBLE_UNFAIRNESS: f64 = 0.05;

/// The verdict on a section of the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The contests for the bandwidth of each job, all directions together; none of a job whose
    /// I/Os have times of their own, so that their rate is not the schedulers' doing.
    pub bandwidths: Vec<Contest>,
    /// The contests for the 99th percentile of latency, by direction.
    pub tails: Vec<Contest>,
    /// The contests for the time of each job that ended, and for fairness where
    /// processes compete.
    #[serde(default)]
    pub times: Vec<Contest>,
    /// The verdict in a sentence.
    pub sentence: String,
}

/// The outcome of a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One scheduler leads every other by more than noise.
    Wins,
    /// Some schedulers lead together: they differ from each other only by noise.
    Shared,
    /// No difference is both more than noise and large enough to matter.
    WithinNoise,
    /// All differences are surely too small to matter.
    Negligible,
    /// One scheduler leads in one run each, which may be noise.
    Untested,
    /// There was only one scheduler.
    Alone,
}

/// A contest of all schedulers for one figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contest {
    /// The figure.
    pub metric: Metric,
    /// The direction; `None` for all directions together.
    pub direction: Option<Direction>,
    /// The job; `None` for all jobs together.
    #[serde(default)]
    pub job: Option<String>,
    /// The outcome.
    pub outcome: Outcome,
    /// The leaders, the best first.
    pub leaders: Vec<String>,
    /// Schedulers that rank behind one that does not lead, but vary so much that they
    /// may not be worse than the leaders.
    #[serde(default)]
    pub unsure: Vec<String>,
    /// The scheduler that `lead` is measured against: the first one, or if that leads
    /// itself, the best that does not lead. Empty if all lead.
    pub against: String,
    /// The lead of the best over that scheduler.
    pub lead: Option<Estimate>,
    /// The lead of the last of several leaders over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_lead: Option<Estimate>,
}

impl Contest {
    /// Decides the contest from a figure's values by scheduler and repeat.
    pub(crate) fn decide(
        names: &[String],
        values: &[Vec<f64>],
        metric: Metric,
        direction: Option<Direction>,
        pairs: &Pairs,
    ) -> Contest {
        let up = metric.more_is_better();
        let mut ranking: Vec<usize> = (0..values.len()).collect();
        // A figure of zero means that a scheduler did no such I/O, so it ranks last.
        let mean = |index: usize| match Estimate::of(&values[index]).mean {
            0.0 if !up => f64::INFINITY,
            mean => mean,
        };
        // A stable sort: equal schedulers keep their order.
        ranking.sort_by(|a, b| match up {
            true => mean(*b).total_cmp(&mean(*a)),
            false => mean(*a).total_cmp(&mean(*b)),
        });
        let best = ranking[0];
        let idle = |index: usize| Estimate::of(&values[index]).mean == 0.0;
        let lead_of = |one: usize, other: usize| {
            Change::between(&values[other], &values[one], pairs.are(other, one), up)
        };
        let lead_over = |other: usize| lead_of(best, other);
        let beaten = |other: usize| {
            let is_idle = idle(other) && !idle(best);
            other != best && (is_idle || is_beaten(metric, lead_over(other)))
        };
        // A scheduler that ranks behind one that does not lead does not lead either.
        let behind = ranking.iter().position(|&other| beaten(other));
        let (leaders, others) = ranking.split_at(behind.unwrap_or(ranking.len()));
        let unsure = others.iter().filter(|&&other| !beaten(other));
        let against = match others.contains(&0) && beaten(0) {
            true => Some(0),
            false => others.first().copied(),
        };
        let lead = against.and_then(lead_over).map(|change| change.relative);
        let last = leaders.last().filter(|_| leaders.len() > 1);
        let last_lead = last
            .zip(against)
            .and_then(|(&last, other)| lead_of(last, other));
        let tested = lead.is_none_or(|lead| lead.half_width.is_some());
        let is_negligible = |other: &usize| {
            let change = lead_over(*other).map(|change| change.relative);
            change.is_some_and(|of| {
                { of.half_width }.is_some_and(|half| of.mean.abs() + half < NEGLIGIBLE)
            })
        };
        let all_negligible =
            metric != Metric::Jain && ranking.len() > 1 && ranking[1..].iter().all(is_negligible);
        let name = |index: usize| names[index].clone();
        Contest {
            metric,
            direction,
            job: None,
            outcome: match () {
                () if values.len() < 2 => Outcome::Alone,
                () if others.is_empty() && all_negligible => Outcome::Negligible,
                () if others.is_empty() => Outcome::WithinNoise,
                () if !tested => Outcome::Untested,
                () if leaders.len() == 1 => Outcome::Wins,
                () => Outcome::Shared,
            },
            leaders: leaders.iter().copied().map(name).collect(),
            unsure: unsure.copied().map(name).collect(),
            against: against.map(name).unwrap_or_default(),
            lead,
            last_lead: last_lead.map(|change| change.relative),
        }
    }

    /// Returns the figure in words.
    fn subject(&self) -> String {
        FigureName::new(self.job.as_deref(), self.direction, self.metric).words()
    }

    /// Returns the figure with the lead of the best.
    fn subject_and_lead(&self) -> String {
        let subject = self.subject();
        let unsure = match self.unsure.as_slice() {
            [] => String::new(),
            unsure => format!("; {} too varied to tell", and_list(unsure)),
        };
        let Some(lead) = self.lead.as_ref().map(change) else {
            return subject;
        };
        // Those who share a lead need not have the same.
        let last = self.last_lead.as_ref().map(change);
        let to = last.filter(|last| *last != lead);
        let to = to.map_or(String::new(), |last| format!(" to {last}"));
        format!("{subject} ({lead}{to} against {}{unsure})", self.against)
    }
}

/// Returns whether the best leads another by more than noise. Without repeats, every
/// difference that is large enough counts.
fn is_beaten(metric: Metric, lead: Option<Change>) -> bool {
    let Some(lead) = lead else {
        return false;
    };
    let least = match metric {
        Metric::Jain => NEGLIGIBLE_UNFAIRNESS,
        _ => NEGLIGIBLE,
    };
    lead.significance != Significance::WithinNoise && lead.relative.mean.abs() >= least
}

impl Verdict {
    /// Makes the verdict; `trades` are clauses on the losses of the bandwidths' winners.
    pub(crate) fn new(
        bandwidths: Vec<Contest>,
        tails: Vec<Contest>,
        times: Vec<Contest>,
        trades: &[String],
    ) -> Verdict {
        let contests: Vec<&Contest> = bandwidths.iter().chain(&tails).chain(&times).collect();
        let mut sentence = sentence(&contests);
        for trade in trades {
            sentence = format!("{}; {trade}.", sentence.trim_end_matches('.'));
        }
        Verdict {
            bandwidths,
            tails,
            times,
            sentence,
        }
    }

    fn contests(&self) -> impl Iterator<Item = &Contest> {
        let first = self.bandwidths.iter();
        first.chain(&self.tails).chain(&self.times)
    }
}

/// Returns a section's verdict in one sentence: consecutive contests with the same
/// outcome share a clause.
pub(super) fn sentence(contests: &[&Contest]) -> String {
    if contests.is_empty() {
        return "There is too little I/O to judge.".to_string();
    }
    if let Some(alone) = contests.iter().find(|c| c.outcome == Outcome::Alone) {
        let noun = noun(&alone.leaders);
        return format!("There is nothing to compare: only one {noun} ran.");
    }
    let undecided: Vec<String> = [Outcome::WithinNoise, Outcome::Negligible]
        .into_iter()
        .filter_map(|outcome| undecided(contests, outcome))
        .collect();
    let is_decided =
        |c: &&Contest| !matches!(c.outcome, Outcome::WithinNoise | Outcome::Negligible);
    let decided: Vec<&Contest> = contests.iter().copied().filter(is_decided).collect();
    if decided.is_empty() {
        let noun = noun(&contests[0].leaders);
        return format!("No {noun} wins: {}.", undecided.join("; "));
    }
    let alike = |a: &&Contest, b: &&Contest| (a.outcome, &a.leaders) == (b.outcome, &b.leaders);
    let mut clauses: Vec<String> = decided.chunk_by(alike).map(clause).collect();
    clauses.extend(undecided);
    if contests.iter().any(|c| c.outcome == Outcome::Untested) {
        clauses.push("one run each cannot tell this from noise (see --repeats)".to_string());
    }
    format!("{}.", clauses.join("; "))
}

/// Returns a clause on the contests that are undecided for the same reason, if there are any.
fn undecided(contests: &[&Contest], outcome: Outcome) -> Option<String> {
    let of_outcome = contests.iter().filter(|c| c.outcome == outcome);
    let subjects: Vec<String> = of_outcome.map(|c| c.subject()).collect();
    // Several goals together are one contest, but the verb is plural.
    let verb = match subjects.len() == 1 && contests[0].metric != Metric::Score {
        true => "differs",
        false => "differ",
    };
    let how = match outcome {
        Outcome::Negligible => format!("by less than {} %", NEGLIGIBLE * 100.0),
        _ => "only within the noise".to_string(),
    };
    (!subjects.is_empty()).then(|| format!("{} {verb} {how}", and_list(&subjects)))
}

/// Returns a clause on contests that have the same leaders and outcome.
fn clause(contests: &[&Contest]) -> String {
    let subjects: Vec<String> = contests.iter().map(|c| c.subject_and_lead()).collect();
    let leaders = and_list(&contests[0].leaders);
    let several = contests[0].leaders.len() > 1;
    let verb = match (contests[0].outcome, several) {
        (Outcome::Wins, _) => "wins",
        (Outcome::Shared, _) => "share the lead in",
        (_, false) => "is ahead in",
        (_, true) => "are ahead in",
    };
    format!("{leaders} {verb} {}", and_list(&subjects))
}

/// Returns the verdict on the whole job in one sentence: that of its only section, or
/// how many contests each scheduler leads.
pub(crate) fn headline(verdicts: Vec<&Verdict>) -> String {
    match &verdicts[..] {
        [] => "Nothing ran.".to_string(),
        [only] => only.sentence.clone(),
        several => {
            let bandwidths = several.iter().flat_map(|v| &v.bandwidths);
            let tails = several.iter().flat_map(|v| &v.tails);
            let mut all = several.iter().flat_map(|v| v.contests());
            let untested = all.any(|c| c.outcome == Outcome::Untested);
            let caveat = match untested {
                true => "; one run each cannot tell this from noise (see --repeats)",
                false => "",
            };
            let (bandwidths, tails): (Vec<_>, Vec<_>) = (bandwidths.collect(), tails.collect());
            format!(
                "Of {} bandwidths, one for each job, {}; of {} p99 latencies, one for each job \
                 and direction, {}{caveat}.",
                bandwidths.len(),
                tally(&bandwidths),
                tails.len(),
                tally(&tails)
            )
        }
    }
}

/// Lists how many contests each scheduler leads alone, most first.
fn tally(contests: &[&Contest]) -> String {
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for contest in contests {
        let [winner] = contest.leaders.as_slice() else {
            continue;
        };
        match wins.iter_mut().find(|(name, _)| name == winner) {
            Some((_, count)) => *count += 1,
            None => wins.push((winner, 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let undecided = contests.len() - wins.iter().map(|(_, count)| count).sum::<usize>();
    let mut parts: Vec<String> = wins
        .iter()
        .map(|(name, count)| format!("{name} leads {count}"))
        .collect();
    match undecided {
        0 => {}
        1 => parts.push("1 has no single leader".to_string()),
        _ => parts.push(format!("{undecided} have no single leader")),
    }
    and_list(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedulers(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    fn all_paired(values: &[Vec<f64>]) -> Pairs {
        Pairs::by_key(&vec![Some(()); values.len()])
    }

    fn bandwidth(values: &[Vec<f64>]) -> Contest {
        let pairs = all_paired(values);
        let names = schedulers(&["noop", "deadline", "ac"][..values.len()]);
        Contest::decide(&names, values, Metric::Bandwidth, None, &pairs)
    }

    fn read_tail(values: &[Vec<f64>]) -> Contest {
        let pairs = all_paired(values);
        let names = schedulers(&["noop", "deadline", "ac"][..values.len()]);
        Contest::decide(&names, values, Metric::P99, Some(Direction::Read), &pairs)
    }

    #[test]
    fn a_clear_lead_wins() {
        let contest = bandwidth(&[
            vec![100.0, 101.0, 102.0],
            vec![99.0, 100.5, 101.0],
            vec![104.0, 105.1, 106.0],
        ]);
        assert_eq!(
            (contest.outcome, contest.leaders),
            (Outcome::Wins, vec!["ac".to_string()])
        );
        assert_eq!(contest.against, "noop");
        let lead = contest.lead.unwrap();
        assert!((lead.mean - 4.0333 / 101.0).abs() < 1e-5, "{lead:?}");
    }

    #[test]
    fn the_first_scheduler_may_win_too() {
        let contest = bandwidth(&[vec![110.0, 111.0], vec![90.0, 91.0], vec![100.0, 101.0]]);
        assert_eq!(contest.leaders, ["noop"]);
        assert_eq!(contest.against, "ac");
    }

    #[test]
    fn of_latency_less_is_better() {
        let contest = read_tail(&[vec![900.0, 910.0], vec![500.0, 510.0]]);
        assert_eq!(
            (contest.outcome, contest.leaders),
            (Outcome::Wins, vec!["deadline".to_string()])
        );
        assert!(contest.lead.unwrap().mean < 0.0);
    }

    #[test]
    fn a_scheduler_without_such_io_is_last() {
        let contest = read_tail(&[vec![0.0, 0.0], vec![500.0, 510.0]]);
        assert_eq!(contest.leaders, ["deadline"]);
        assert_eq!(contest.outcome, Outcome::Wins);
    }

    #[test]
    fn where_nobody_waits_nobody_wins() {
        let contest = read_tail(&[vec![0.0, 0.0], vec![0.0, 0.0]]);
        assert_eq!(contest.outcome, Outcome::WithinNoise);
    }

    #[test]
    fn spread_hides_a_difference() {
        let contest = bandwidth(&[vec![100.0, 140.0, 90.0], vec![120.0, 95.0, 130.0]]);
        assert_eq!(contest.outcome, Outcome::WithinNoise);
        assert_eq!(contest.leaders.len(), 2);
        assert_eq!(contest.lead, None);
    }

    #[test]
    fn two_may_share_the_lead() {
        let contest = bandwidth(&[
            vec![100.0, 101.0, 100.5],
            vec![110.0, 112.0, 111.0],
            vec![111.0, 111.0, 111.5],
        ]);
        assert_eq!(contest.outcome, Outcome::Shared);
        assert_eq!(contest.leaders, ["ac", "deadline"]);
        assert_eq!(contest.against, "noop");
        let sentence = Verdict::new(vec![contest], Vec::new(), Vec::new(), &[]).sentence;
        assert_eq!(
            sentence,
            "ac and deadline share the lead in bandwidth (+10.6 % ±1.5 % to +10.4 % ±1.1 % against \
             noop)."
        );
    }

    #[test]
    fn the_noisiest_does_not_lead_from_behind() {
        let contest = bandwidth(&[
            vec![100.0, 60.0, 90.0],
            vec![100.0, 101.0, 100.5],
            vec![110.0, 112.0, 111.0],
        ]);
        assert_eq!(contest.outcome, Outcome::Wins);
        assert_eq!(
            (&contest.leaders[..], contest.against.as_str()),
            (&["ac".to_string()][..], "deadline")
        );
        assert_eq!(contest.unsure, ["noop"]);
        let sentence = Verdict::new(vec![contest], Vec::new(), Vec::new(), &[]).sentence;
        assert!(
            sentence.ends_with("against deadline; noop too varied to tell)."),
            "{sentence}"
        );
    }

    #[test]
    fn a_sure_but_tiny_difference_is_none() {
        let contest = bandwidth(&[vec![100_000.0, 100_000.0], vec![100_400.0, 100_400.0]]);
        assert_eq!(contest.outcome, Outcome::Negligible);
    }

    #[test]
    fn one_run_is_ahead_but_proves_nothing() {
        let contest = bandwidth(&[vec![100.0], vec![120.0]]);
        assert_eq!(
            (contest.outcome, contest.leaders),
            (Outcome::Untested, vec!["deadline".to_string()])
        );
        assert_eq!(contest.lead.unwrap().half_width, None);
    }

    #[test]
    fn counts_of_several_groups_say_what_they_count() {
        let wins = bandwidth(&[vec![100.0, 100.0], vec![110.0, 110.0]]);
        let tail = read_tail(&[vec![900.0, 900.0], vec![450.0, 450.0]]);
        let noise = read_tail(&[vec![900.0, 950.0], vec![950.0, 900.0]]);
        let group = |tails: Vec<Contest>| Verdict::new(vec![wins.clone()], tails, Vec::new(), &[]);
        let groups = [group(vec![tail, noise.clone()]), group(vec![noise])];
        assert_eq!(
            headline(groups.iter().collect()),
            "Of 2 bandwidths, one for each job, deadline leads 2; of 3 p99 latencies, one for each job \
             and direction, deadline leads 1 and 2 have no single leader."
        );
    }

    #[test]
    fn sentences_say_who_and_by_how_much() {
        let wins = bandwidth(&[vec![100.0, 100.0], vec![110.0, 110.0]]);
        let also = read_tail(&[vec![900.0, 900.0], vec![450.0, 450.0]]);
        let noise = read_tail(&[vec![900.0, 950.0], vec![950.0, 900.0]]);
        assert_eq!(
            Verdict::new(vec![wins.clone()], vec![also], Vec::new(), &[]).sentence,
            "deadline wins bandwidth (+10.0 % against noop) and p99 read latency (-50.0 % \
             against noop)."
        );
        assert_eq!(
            Verdict::new(vec![wins], vec![noise.clone()], Vec::new(), &[]).sentence,
            "deadline wins bandwidth (+10.0 % against noop); p99 read latency differs only \
             within the noise."
        );
        let noisy = bandwidth(&[vec![90.0, 110.0], vec![110.0, 90.0]]);
        assert_eq!(
            Verdict::new(vec![noisy], vec![noise.clone()], Vec::new(), &[]).sentence,
            "No scheduler wins: bandwidth and p99 read latency differ only within the noise."
        );
        let same = bandwidth(&[vec![100.0, 100.0], vec![100.1, 100.1]]);
        assert_eq!(
            Verdict::new(vec![same], vec![noise], Vec::new(), &[]).sentence,
            "No scheduler wins: p99 read latency differs only within the noise; bandwidth differs \
             by less than 0.5 %."
        );
        let alone = bandwidth(&[vec![1.0]]);
        assert!(
            Verdict::new(vec![alone], Vec::new(), Vec::new(), &[])
                .sentence
                .contains("only one scheduler")
        );
    }
}
