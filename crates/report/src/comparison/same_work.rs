//! Comparisons whose rows differ in what is asked of the drive, such as the depth: only rows that
//! did the same work are judged against each other.

use super::merge::by_part;
use super::part::SameWork;
use super::processes::ProcessFigures;
use super::runs::{Pairs, SchedulerRuns};
use super::section::Section;
use super::table::DirectionTable;
use super::{Comparison, Goals, compare};

impl Comparison {
    /// Judges rows only against those that did the same work, by the goals if there are some.
    /// `settings` are the runs of all rows.
    ///
    /// # Errors
    /// If a part has no such figure as a goal names, in a message for the user.
    pub fn evaluate_by_work(
        &mut self,
        settings: &[SchedulerRuns],
        parts: &[SameWork],
        goals: &Goals,
    ) -> Result<(), String> {
        if !goals.is_empty() {
            self.judgement = Some(goals.evaluate_parts(self, parts)?);
        }
        if parts.len() < 2 || !self.has_verdict() {
            return Ok(());
        }
        if let Some(judgement) = &mut self.judgement {
            judgement.replace_contest(outcomes_by_work(settings, parts, goals)?);
        }
        for section in &mut self.sections {
            let sentence = by_work(parts, |part| {
                Ok(part_of(section, settings, part).verdict.sentence)
            })?;
            let verdict = &mut section.verdict;
            // These contests are of rows whose work differs.
            verdict.bandwidths.clear();
            verdict.tails.clear();
            verdict.times.clear();
            verdict.sentence = sentence;
        }
        let sections = self.sections.iter();
        let sentences = sections.map(|s| (s.title.as_str(), s.verdict.sentence.as_str()));
        let sentences: Vec<(&str, &str)> = sentences.collect();
        self.headline = match &sentences[..] {
            [(_, only)] => only.to_string(),
            several => by_part(several.iter().copied()),
        };
        Ok(())
    }
}

/// Said where there is nothing that a row could be judged against.
const ALL_DIFFER: &str = "Each row does work of its own, so none is better than another; name \
                          several schedulers to compare them at each.";

/// Returns what is said of each part by itself, or that there is nothing to judge.
fn by_work(
    parts: &[SameWork],
    said: impl Fn(&SameWork) -> Result<String, String>,
) -> Result<String, String> {
    if parts.iter().all(|part| part.rows.len() == 1) {
        return Ok(ALL_DIFFER.to_string());
    }
    let each = parts
        .iter()
        .map(|part| Ok((part.label.as_str(), said(part)?)));
    let each: Vec<(&str, String)> = each.collect::<Result<_, String>>()?;
    Ok(by_part(
        each.iter().map(|(label, said)| (*label, said.as_str())),
    ))
}

/// Returns the judgement of each part by itself in words.
fn outcomes_by_work(
    settings: &[SchedulerRuns],
    parts: &[SameWork],
    goals: &Goals,
) -> Result<String, String> {
    by_work(parts, |part| {
        let rows = part.rows.iter().map(|row| SchedulerRuns {
            name: part.short(&settings[*row].name),
            runs: settings[*row].runs.clone(),
        });
        let rows: Vec<SchedulerRuns> = rows.collect();
        Ok(goals.evaluate(&compare(&rows))?.sentence)
    })
}

/// A section with the rows of one part, which are called as without what all of them have.
fn part_of(section: &Section, settings: &[SchedulerRuns], part: &SameWork) -> Section {
    let of_part = |index: &usize| &settings[*index];
    let names: Vec<String> = (part.rows.iter().map(of_part))
        .map(|runs| part.short(&runs.name))
        .collect();
    let seeds: Vec<_> = (part.rows.iter().map(of_part))
        .map(|runs| Some(runs.seeds()))
        .collect();
    let pairs = Pairs::by_key(&seeds);
    let tables = section.directions.iter().map(|table| {
        let rows = part.rows.iter().map(|row| {
            let mut row = table.rows[*row].clone();
            row.scheduler = part.short(&row.scheduler);
            row
        });
        DirectionTable {
            rows: rows.collect(),
            ..table.clone()
        }
    });
    let processes = section.processes.iter().map(|f| figures_of(f, &part.rows));
    let group = (section.group_id, section.title.clone());
    Section::with_verdict(group, &names, tables.collect(), processes.collect(), &pairs)
}

fn figures_of(all: &ProcessFigures, rows: &[usize]) -> ProcessFigures {
    fn picked<T: Clone>(all: &[T], rows: &[usize]) -> Vec<T> {
        let found = rows.iter().filter_map(|row| all.get(*row));
        found.cloned().collect()
    }
    ProcessFigures {
        column: all.column.clone(),
        cells: picked(&all.cells, rows),
        repeats: picked(&all.repeats, rows),
        unfinished: picked(&all.unfinished, rows),
        stopped_after_ns: picked(&all.stopped_after_ns, rows),
    }
}
