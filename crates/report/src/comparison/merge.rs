//! Merges comparisons of several worlds into one; each is read from the JSON that
//! [`json::render`](crate::json::render) wrote.

use super::figure::Metric;
use super::processes::ProcessFigures;
use super::runs::Pairs;
use super::section::Section;
use super::table::{DirectionTable, Row};
use super::verdict::headline;
use super::why::FactRow;
use super::{Comparison, Origin};

/// A comparison of one world, with the label that is put before its schedulers' names.
#[derive(Clone, Debug)]
pub struct WorldComparison {
    /// The label, usually the world's name.
    pub label: String,
    /// The comparison.
    pub comparison: Comparison,
}

impl WorldComparison {
    /// Returns the comparison with the label before each scheduler's name.
    fn renamed(&self) -> Comparison {
        let mut c = self.comparison.clone();
        let rows = c.sections.iter_mut().flat_map(|s| &mut s.directions);
        let of_rows = rows.flat_map(|table| &mut table.rows);
        let names = c.schedulers.iter_mut();
        let names = names.chain(of_rows.map(|row| &mut row.scheduler));
        let names = names.chain(c.failed.iter_mut().map(|f| &mut f.scheduler));
        let names = names.chain(c.channels.iter_mut().map(|c| &mut c.scheduler));
        let names = names.chain(c.cpus.iter_mut().map(|c| &mut c.scheduler));
        let names = names.chain(c.memory.iter_mut().map(|m| &mut m.scheduler));
        for name in names {
            *name = format!("{} {name}", self.label);
        }
        for note in &mut c.notes {
            *note = format!("{}: {note}", self.label);
        }
        c
    }
}

/// Reads a comparison from JSON.
///
/// # Errors
/// If the text is not such JSON; the message says where.
pub fn read(text: &str) -> Result<Comparison, String> {
    let comparison: Comparison = serde_json::from_str(text).map_err(|error| {
        format!("not a comparison as `compare --output-format json` writes it: {error}")
    })?;
    check(&comparison)?;
    Ok(comparison)
}

/// Checks the lengths of all lists, on which other code relies.
fn check(comparison: &Comparison) -> Result<(), String> {
    let count = comparison.schedulers.len();
    if count == 0 {
        return Err("no schedulers: at least one is needed".to_string());
    }
    for section in &comparison.sections {
        for table in &section.directions {
            let place = format!("group {}: {}", section.group_id, table.title());
            if table.rows.len() != count {
                let rows = table.rows.len();
                return Err(format!("{place}: {rows} rows for {count} schedulers"));
            }
            for row in &table.rows {
                check_row(row, table.metrics())
                    .map_err(|problem| format!("{place}: {}: {problem}", row.scheduler))?;
            }
        }
    }
    let figures = comparison.sections.iter().flat_map(|s| &s.processes);
    for f in figures {
        if f.cells.len() != count || f.repeats.len() != count {
            return Err("processes: not a figure for each scheduler".to_string());
        }
    }
    let calls = comparison.calls.iter().flat_map(|table| &table.rows);
    let calls = calls.map(|row| (&row.name, row.values.len()));
    let facts = comparison.why.iter();
    let facts = facts.map(|fact| (&fact.name, fact.values.len()));
    match facts.chain(calls).find(|(_, values)| *values != count) {
        Some((name, _)) => Err(format!("{name}: not a value for each scheduler")),
        None => Ok(()),
    }
}

/// Checks that a row has every figure, and equally many repeats of each. A row without
/// I/O may have no repeats.
fn check_row(row: &Row, metrics: &[Metric]) -> Result<(), String> {
    let name = |metric: &Metric| serde_json::to_string(metric).unwrap_or_default();
    if let Some(metric) = metrics.iter().find(|m| !row.cells.contains_key(m)) {
        return Err(format!("no {} among its cells", name(metric)));
    }
    let count = row.repeats.values().map(Vec::len).max().unwrap_or(0);
    if count == 0 && row.ios == 0 {
        return Ok(());
    }
    let of = |metric: &Metric| row.repeats.get(metric).map_or(0, Vec::len);
    match metrics.iter().find(|m| of(m) != count.max(1)) {
        Some(metric) => Err(format!(
            "{} repeats of {}, where {} are needed",
            of(metric),
            name(metric),
            count.max(1)
        )),
        None => Ok(()),
    }
}

/// Merges comparisons; all schedulers are compared with the first scheduler of the first
/// comparison.
pub fn merge(parts: &[WorldComparison]) -> Comparison {
    if let [only] = parts {
        return only.comparison.clone();
    }
    let pairs = pairs(parts);
    let all: Vec<Comparison> = parts.iter().map(WorldComparison::renamed).collect();
    let schedulers: Vec<String> = all.iter().flat_map(|c| c.schedulers.clone()).collect();
    let sections: Vec<Section> = group_ids(&all)
        .into_iter()
        .map(|group_id| section(parts, &all, &schedulers, group_id, &pairs))
        .collect();
    let headlines = parts.iter().zip(&all);
    let headlines = headlines.map(|(part, c)| (part.label.as_str(), c.headline.as_str()));
    let repeats = all.iter().map(|c| c.repeats).min();
    let notes = all.iter().flat_map(|c| c.notes.clone());
    Comparison {
        job: each_once(&all, |c| &c.job),
        drive: each_once(&all, |c| &c.drive),
        machine: each_once(&all, |c| &c.machine),
        world: each_once(&all, |c| &c.world),
        repeats: repeats.unwrap_or(0),
        seeds: match pairs.are_all_paired() {
            true => all[0].seeds.clone(),
            false => Vec::new(),
        },
        paired: pairs.are_all_paired(),
        headline: match sections.is_empty() {
            true => headline(Vec::new()),
            false => by_part(headlines),
        },
        question: None,
        judgement: None,
        advice: None,
        front: None,
        verification: None,
        failed: all.iter().flat_map(|c| c.failed.clone()).collect(),
        sections,
        why: facts(&all),
        // Each of these has its own comparison's schedulers, so they are left out.
        slowest: Vec::new(),
        calls: Vec::new(),
        memory: all.iter().flat_map(|c| c.memory.clone()).collect(),
        channels: all.iter().flat_map(|c| c.channels.clone()).collect(),
        cpus: all.iter().flat_map(|c| c.cpus.clone()).collect(),
        timelines: Vec::new(),
        interrupted: false,
        notes: different_work(parts).into_iter().chain(notes).collect(),
        origin: origin(&all),
        schedulers,
    }
}

/// Joins a text of all comparisons, each value once.
fn each_once(all: &[Comparison], of: fn(&Comparison) -> &String) -> String {
    let mut values: Vec<&str> = Vec::new();
    for value in all.iter().map(|c| of(c).as_str()) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.join(", ")
}

/// Joins all commands, and takes the first text of each kind.
fn origin(all: &[Comparison]) -> Origin {
    let text = |of: fn(&Origin) -> &String| {
        let mut texts = all.iter().map(|c| of(&c.origin));
        let found = texts.find(|text| !text.is_empty());
        found.cloned().unwrap_or_default()
    };
    let commands = all.iter().map(|c| c.origin.command.as_str());
    Origin {
        command: commands.collect::<Vec<_>>().join("\n"),
        job_text: text(|o| &o.job_text),
        drive_text: text(|o| &o.drive_text),
        machine_text: text(|o| &o.machine_text),
    }
}

/// Pairs the schedulers of one file as they were; those of two files are pairs if world,
/// job and seeds are the same.
fn pairs(parts: &[WorldComparison]) -> Pairs {
    let key = |part: &WorldComparison| {
        let c = &part.comparison;
        let work = (c.world.clone(), job(part), c.seeds.clone());
        let key = c.paired.then_some(work);
        vec![key; c.schedulers.len()]
    };
    Pairs::by_key(&parts.iter().flat_map(key).collect::<Vec<_>>())
}

/// Returns a job's name and text.
fn job(part: &WorldComparison) -> (String, String) {
    let c = &part.comparison;
    (c.job.clone(), c.origin.job_text.clone())
}

/// Returns a note on the parts that ran another job than the first.
fn different_work(parts: &[WorldComparison]) -> Vec<String> {
    let first = &parts[0];
    let others = parts.iter().filter(|part| job(part) != job(first));
    let others: Vec<&str> = others.map(|part| part.label.as_str()).collect();
    let note = format!(
        "{} did other work than {}: differences between them are not the schedulers'.",
        others.join(", "),
        first.label
    );
    (!others.is_empty()).then_some(note).into_iter().collect()
}

/// Joins the sentences of all worlds, since a winner is determined within a world.
pub(super) fn by_part<'a>(sentences: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let labelled = sentences.map(|(label, sentence)| format!("{label}: {sentence}"));
    labelled.collect::<Vec<_>>().join(" ")
}

fn group_ids(all: &[Comparison]) -> Vec<u32> {
    let sections = all.iter().flat_map(|c| &c.sections);
    let mut ids: Vec<u32> = sections.map(|section| section.group_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn find(comparison: &Comparison, group_id: u32) -> Option<&Section> {
    let mut sections = comparison.sections.iter();
    sections.find(|section| section.group_id == group_id)
}

fn section(
    parts: &[WorldComparison],
    all: &[Comparison],
    names: &[String],
    group_id: u32,
    pairs: &Pairs,
) -> Section {
    let found = all.iter().find_map(|c| find(c, group_id));
    let title = found.map(|s| s.title.clone()).unwrap_or_default();
    let processes = process_figures(all, group_id, pairs);
    let mut section = Section::with_verdict(
        (group_id, title),
        names,
        tables(all, group_id, pairs),
        processes,
        pairs,
    );
    section.verdict.sentence = by_part(parts.iter().filter_map(|part| {
        let section = find(&part.comparison, group_id)?;
        Some((part.label.as_str(), section.verdict.sentence.as_str()))
    }));
    section
}

/// Merges the rows of all parts for each job and direction; a part without such a table
/// did no such I/O.
fn tables(all: &[Comparison], group_id: u32, pairs: &Pairs) -> Vec<DirectionTable> {
    let mut merged: Vec<DirectionTable> = Vec::new();
    let found = |c| find(c, group_id).into_iter().flat_map(|s| &s.directions);
    for table in all.iter().flat_map(found) {
        if merged.iter().any(|other| is_like(other, table)) {
            continue;
        }
        let rows = all
            .iter()
            .flat_map(|c| match found(c).find(|other| is_like(other, table)) {
                Some(own) => own.rows.clone(),
                None => c.schedulers.iter().cloned().map(Row::idle).collect(),
            });
        let mut table = DirectionTable {
            rows: rows.collect(),
            ..table.clone()
        };
        table.fill_cells(pairs);
        merged.push(table);
    }
    merged
}

/// Returns whether two tables are about the same I/O.
fn is_like(one: &DirectionTable, other: &DirectionTable) -> bool {
    (&one.job, one.several_jobs, one.direction) == (&other.job, other.several_jobs, other.direction)
}

/// Merges the columns of equal name; a world without a column has no figures there.
fn process_figures(all: &[Comparison], group_id: u32, pairs: &Pairs) -> Vec<ProcessFigures> {
    let columns = side_by_side(
        all,
        |c| {
            let figures = find(c, group_id).into_iter().flat_map(|s| &s.processes);
            let columns = figures.map(|f| (f.column.clone(), f.by_scheduler()));
            columns.collect()
        },
        &(Vec::new(), 0),
    );
    let figures = |(column, values)| ProcessFigures::new(column, values, pairs);
    columns.into_iter().map(figures).collect()
}

/// Merges the facts of equal name; a world without a fact has no values there.
fn facts(all: &[Comparison]) -> Vec<FactRow> {
    let rows = side_by_side(
        all,
        |c| {
            let facts = c.why.iter();
            let rows = facts.map(|f| (FactName(f.clone()), f.values.clone()));
            rows.collect()
        },
        &None,
    );
    let row = |(FactName(fact), values)| FactRow { values, ..fact };
    let mut facts: Vec<FactRow> = rows.into_iter().map(row).collect();
    // Reports show the facts of a place together.
    facts.sort_by_key(|fact| fact.place);
    facts
}

/// A fact that is compared by its identity, without its values.
struct FactName(FactRow);

impl PartialEq for FactName {
    fn eq(&self, other: &FactName) -> bool {
        let what = |FactName(f): &FactName| (f.place, f.key.clone(), f.name.clone(), f.unit);
        what(self) == what(other)
    }
}

/// Merges values by name, one for each scheduler of all comparisons; schedulers of a
/// comparison without the name get `missing`.
fn side_by_side<K: PartialEq, V: Clone>(
    all: &[Comparison],
    rows: impl Fn(&Comparison) -> Vec<(K, Vec<V>)>,
    missing: &V,
) -> Vec<(K, Vec<V>)> {
    let total = all.iter().map(|c| c.schedulers.len()).sum();
    let mut merged: Vec<(K, Vec<V>)> = Vec::new();
    let mut before = 0;
    for comparison in all {
        for (name, values) in rows(comparison) {
            let at = merged.iter().position(|(known, _)| *known == name);
            let at = at.unwrap_or_else(|| {
                merged.push((name, vec![missing.clone(); total]));
                merged.len() - 1
            });
            let places = merged[at].1[before..].iter_mut();
            places.zip(values).for_each(|(to, from)| *to = from);
        }
        before += comparison.schedulers.len();
    }
    merged
}
