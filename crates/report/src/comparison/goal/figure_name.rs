//! Names of figures: how they are written, what they mean in words, and which values they have.

use std::fmt;
use std::str::FromStr;

use blklab_description::hint;

use super::Values;
use crate::comparison::figure::{Direction, Metric};
use crate::comparison::processes::ProcessFigures;
use crate::comparison::section::Section;
use crate::comparison::{Comparison, DirectionTable};
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
        let ends = |(name, metric): (&str, Metric)| {
            let rest = text.strip_suffix(name)?.strip_suffix('.')?;
            Some((rest, metric))
        };
        let Some((rest, metric)) = METRICS.into_iter().find_map(ends) else {
            let names: Vec<String> = METRICS.map(|(name, _)| name.to_string()).to_vec();
            let end = text.rsplit('.').next().unwrap_or(text);
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
        let is_rate = matches!(metric, Metric::Bandwidth | Metric::Iops);
        match job {
            "" => Err(format!(
                "{text:?} names no job: write JOB.{text} or all.{text}"
            )),
            "all" if !is_rate => Err(format!(
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
        let is_rate = matches!(self.metric, Metric::Bandwidth | Metric::Iops);
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

impl FigureName {
    /// Returns the figure's values, summed over the groups and directions that its name
    /// leaves open.
    pub(super) fn values(&self, comparison: &Comparison) -> Result<Values, String> {
        let mut found: Vec<Values> = Vec::new();
        for section in &comparison.sections {
            found.extend(self.values_in(section)?);
        }
        let mut sum: Values = vec![Vec::new(); comparison.schedulers.len()];
        for values in &found {
            for (sum, own) in sum.iter_mut().zip(values) {
                sum.resize(own.len().max(sum.len()), 0.0);
                let both = sum.iter_mut().zip(own);
                both.for_each(|(sum, value)| *sum += value);
            }
        }
        let jobs = job_names(comparison);
        let is_known = self.job.as_ref().is_some_and(|job| jobs.contains(job));
        // A job that never ended has no time, which is not the user's mistake.
        let is_unfinished = self.metric == Metric::Duration && is_known;
        let of_job = self.job.as_deref().filter(|_| is_known);
        match (found.is_empty() && !is_unfinished, of_job) {
            (true, Some(job)) => Err(format!(
                "{self}: no such figure; those of {job} are {}",
                and_list(&figures_of(job, comparison))
            )),
            (true, None) => Err(format!(
                "{self}: no such figure; the jobs are {}",
                and_list(&jobs)
            )),
            (false, _) => Ok(sum),
        }
    }

    /// Returns a sentence if the figure is a percentile of too few I/Os.
    pub(super) fn untold(&self, comparison: &Comparison) -> Option<String> {
        let ios_min = DirectionTable::ios_min(self.metric)?;
        let tables = (comparison.sections.iter()).flat_map(|section| self.tables_in(section));
        let most = tables.map(DirectionTable::most_ios).max()?;
        (most < ios_min).then(|| {
            format!(
                "{self} is not judged: there are at most {most} in a run, and a {} needs \
                 {ios_min}; a longer runtime brings them.",
                self.metric.name()
            )
        })
    }

    /// Returns the tables that the name may mean.
    fn tables_in<'s>(&self, section: &'s Section) -> Vec<&'s DirectionTable> {
        let alone = section.is_alone();
        let is_job = |table: &DirectionTable| match &self.job {
            None => table.job.is_none(),
            Some(job) if alone => section.title == *job,
            Some(job) => table.job.as_ref() == Some(job),
        };
        let is_direction = |table: &DirectionTable| match self.direction {
            Some(direction) => table.direction == direction,
            None => table.direction != Direction::Sync,
        };
        let tables = section.directions.iter();
        tables
            .filter(|table| is_job(table) && is_direction(table))
            .filter(|table| table.metrics().contains(&self.metric))
            .collect()
    }

    fn values_in(&self, section: &Section) -> Result<Vec<Values>, String> {
        if self.metric == Metric::Duration {
            let is_it = |f: &&ProcessFigures| {
                f.column.metric == Metric::Duration && f.column.job == self.job
            };
            let figures = section.processes.iter().filter(is_it);
            return Ok(figures.map(|f| f.compared()).collect());
        }
        let tables = self.tables_in(section).into_iter();
        let tables: Vec<Values> = tables.map(|table| table.repeats(self.metric)).collect();
        let is_rate = matches!(self.metric, Metric::Bandwidth | Metric::Iops);
        match tables.len() > 1 && !is_rate {
            true => Err(format!(
                "{self}: the job has several directions; name one, as in {}.read.{}",
                self.job.as_deref().unwrap_or("all"),
                self.metric.name()
            )),
            false => Ok(tables),
        }
    }
}

/// Returns the names of a job's figures.
fn figures_of(job: &str, comparison: &Comparison) -> Vec<String> {
    let mut figures: Vec<FigureName> = Vec::new();
    for section in &comparison.sections {
        let alone = section.is_alone();
        let is_job = |table: &&DirectionTable| match alone {
            true => section.title == job,
            false => table.job.as_deref() == Some(job),
        };
        for table in section.directions.iter().filter(is_job) {
            let named =
                |metric: &Metric| FigureName::new(Some(job), Some(table.direction), *metric);
            figures.extend(table.metrics().iter().map(named));
        }
        let processes = section.processes.iter().map(|figures| &figures.column);
        let timed = processes
            .filter(|of| of.metric == Metric::Duration && of.job.as_deref() == Some(job))
            .map(|of| FigureName::new(Some(job), None, of.metric));
        figures.extend(timed);
    }
    figures.iter().map(ToString::to_string).collect()
}

/// Returns the names of all jobs.
fn job_names(comparison: &Comparison) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for section in &comparison.sections {
        let jobs = section
            .directions
            .iter()
            .filter_map(|table| table.job.clone());
        let mut jobs: Vec<String> = jobs.collect();
        if jobs.is_empty() {
            jobs.push(section.title.clone());
        }
        jobs.retain(|job| !names.contains(job));
        jobs.dedup();
        names.extend(jobs);
    }
    names.dedup();
    names
}
