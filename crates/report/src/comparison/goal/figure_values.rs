//! The values of figures by their names.

use super::Values;
use crate::comparison::figure::{Direction, Metric};
use crate::comparison::figure_name::{FigureName, is_rate};
use crate::comparison::processes::ProcessFigures;
use crate::comparison::section::Section;
use crate::comparison::{Comparison, DirectionTable};
use crate::quantity::{and_list, few_of};

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
                few_of(self.job.as_deref().unwrap_or_default(), &jobs)
            )),
            (false, _) => Ok(sum),
        }
    }

    /// Returns a sentence if the figure is a percentile of too few I/Os.
    pub(super) fn too_few_ios(&self, comparison: &Comparison) -> Option<String> {
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
        match tables.len() > 1 && !is_rate(self.metric) {
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
