//! Names of figures: how they are written, and what they mean in words.

use std::fmt;
use std::str::FromStr;

use blklab_description::hint;

use super::figure::{Direction, Metric};
use crate::quantity::and_list;

/// A figure's name: `JOB.read.p99`, `JOB.bandwidth`, `all.iops`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureName {
    /// The job; `None` for all jobs together.
    pub(super) job: Option<String>,
    pub(super) direction: Option<Direction>,
    pub(super) metric: Metric,
}

/// The metrics by name. A name that ends with another name comes before it.
const METRICS: [(&str, Metric); 8] = [
    ("bandwidth", Metric::Bandwidth),
    ("iops", Metric::Iops),
    ("mean", Metric::Mean),
    ("p50", Metric::P50),
    ("p99.9", Metric::P999),
    ("p99", Metric::P99),
    ("max", Metric::Max),
    ("time", Metric::Duration),
];

impl FromStr for FigureName {
    type Err = String;

    fn from_str(text: &str) -> Result<FigureName, String> {
        if let Some((direction, metric)) = in_words(text) {
            return match is_rate(metric) {
                true => Ok(FigureName {
                    job: None,
                    direction,
                    metric,
                }),
                false => Err(format!(
                    "{text:?}: only bandwidth and iops add up over jobs; name a job, as in \
                     JOB.{}",
                    text.split_whitespace().collect::<Vec<_>>().join(".")
                )),
            };
        }
        let ends = |(name, metric): (&str, Metric)| {
            let rest = text.strip_suffix(name)?.strip_suffix('.')?;
            Some((rest, metric))
        };
        let Some((rest, metric)) = METRICS.into_iter().find_map(ends) else {
            let names: Vec<String> = METRICS.map(|(name, _)| name.to_string()).to_vec();
            let end = text.rsplit(['.', ' ']).next().unwrap_or(text);
            let hint = hint(end, METRICS.map(|(name, _)| name));
            return Err(format!(
                "{text:?} is not JOB.DIRECTION.FIGURE: it ends with none of {}{hint}",
                and_list(&names)
            ));
        };
        let of = |direction: Direction| {
            let job = rest.strip_suffix(direction.name())?.strip_suffix('.')?;
            Some((job, direction))
        };
        let found = Direction::ALL.into_iter().find_map(of);
        let (job, direction) = match found {
            Some((job, direction)) => (job, Some(direction)),
            None => (rest, None),
        };
        match job {
            "" => Err(format!(
                "{text:?} names no job: write JOB.{text} or all.{text}"
            )),
            "all" if !is_rate(metric) => Err(format!(
                "{text:?}: only bandwidth and iops add up over jobs; name a job"
            )),
            _ if metric == Metric::Duration && direction.is_some() => Err(format!(
                "{text:?}: the time is a whole job's: write JOB.time"
            )),
            _ => Ok(FigureName {
                job: (job != "all").then(|| job.to_string()),
                direction,
                metric,
            }),
        }
    }
}

/// Returns whether a figure is a rate, which adds up over jobs.
pub(crate) fn is_rate(metric: Metric) -> bool {
    matches!(metric, Metric::Bandwidth | Metric::Iops)
}

/// Returns what a figure is that is named in words without its job: `bandwidth`, `read p99`.
fn in_words(text: &str) -> Option<(Option<Direction>, Metric)> {
    let mut words = text.split_whitespace().rev();
    let last = words.next()?;
    let (_, metric) = METRICS.into_iter().find(|(name, _)| *name == last)?;
    let direction = match words.next() {
        None => None,
        Some(word) => {
            let named = |direction: &Direction| direction.name() == word;
            Some(Direction::ALL.into_iter().find(named)?)
        }
    };
    words.next().is_none().then_some((direction, metric))
}

/// Returns the name of a figure that is written in full, or in words where it is of all jobs or
/// of the only one.
pub(crate) fn of_jobs(text: &str, jobs: &[String]) -> Result<FigureName, String> {
    match (in_words(text), jobs) {
        (Some((direction, metric)), [job]) if !is_rate(metric) => {
            Ok(FigureName::new(Some(job), direction, metric))
        }
        (Some((_, metric)), [_, _, ..]) if !is_rate(metric) => {
            let figure = text.split_whitespace().collect::<Vec<_>>().join(".");
            let named = jobs.iter().map(|job| format!("{job}.{figure}"));
            Err(format!(
                "{text:?}: of which job? It is one of {}",
                and_list(&named.collect::<Vec<_>>())
            ))
        }
        _ => text.parse(),
    }
}

impl FigureName {
    /// Names a figure of a job, or of all jobs.
    pub(crate) fn new(
        job: Option<&str>,
        direction: Option<Direction>,
        metric: Metric,
    ) -> FigureName {
        FigureName {
            job: job.map(str::to_string),
            direction,
            metric,
        }
    }

    /// Returns the metric of the figure.
    pub(crate) fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the figure in words: `p99 read latency of victim`, `bandwidth`.
    pub(crate) fn words(&self) -> String {
        let metric = self.metric.name();
        let is_rate = is_rate(self.metric);
        let what = match self.direction {
            Some(direction) if is_rate => format!("{} {metric}", direction.name()),
            Some(direction) => format!("{metric} {} latency", direction.name()),
            None => metric.to_string(),
        };
        match &self.job {
            Some(job) => format!("{what} of {job}"),
            None => what,
        }
    }

    /// Whether the other figure is of the same direction of the same job.
    pub(crate) fn is_beside(&self, other: &FigureName) -> bool {
        (&self.job, self.direction) == (&other.job, other.direction)
    }

    /// Whether it is the running time of this job.
    pub(crate) fn is_time_of(&self, job: Option<&str>) -> bool {
        self.metric == Metric::Duration && self.job.as_deref() == job
    }

    /// Returns in words what there is if a scheduler has the figure: `reads of victim`,
    /// `the end of program`.
    pub(crate) fn activity(&self) -> String {
        let activity = match (self.metric, self.direction) {
            (Metric::Duration, _) => "the end".to_string(),
            (Metric::Score, _) => "a score".to_string(),
            (_, Some(direction)) => format!("{}s", direction.name()),
            (_, None) => "I/O".to_string(),
        };
        match &self.job {
            Some(job) => format!("{activity} of {job}"),
            None => activity,
        }
    }
}

impl fmt::Display for FigureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = self.job.as_deref().unwrap_or("all");
        let metric = METRICS.iter().find(|(_, metric)| *metric == self.metric);
        let metric = metric.map_or("", |(name, _)| name);
        match self.direction {
            Some(direction) => write!(f, "{job}.{}.{metric}", direction.name()),
            None => write!(f, "{job}.{metric}"),
        }
    }
}
