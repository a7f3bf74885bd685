//! Comparisons of several worlds as one: each from the JSON that
//! [`json::render`](crate::json::render) wrote.

use std::collections::BTreeMap;

use crate::comparison::{
    Comparison, Direction, DirectionTable, Metric, Origin, Row, Section, fill_cells,
};
use crate::cpu_time::CpuTimeline;
use crate::failed::FailedIo;
use crate::pairs::Pairs;
use crate::processes::{self, ProcessColumn, ProcessFigures};
use crate::verdict::{Contest, Verdict, headline};
use crate::why::FactRow;

/// A comparison and what its schedulers are called beside others'.
#[derive(Clone, Debug)]
pub struct Part {
    /// The world, mostly.
    pub label: String,
    /// The comparison.
    pub comparison: Comparison,
}

impl Part {
    fn name(&self, scheduler: &str) -> String {
        format!("{} {scheduler}", self.label)
    }
}

/// Reads a comparison back from JSON.
///
/// # Errors
/// Where the text is no such JSON; the message says where.
pub fn read(text: &str) -> Result<Comparison, String> {
    let comparison: Comparison = serde_json::from_str(text).map_err(|error| {
        format!("not a comparison as `compare --output-format json` writes it: {error}")
    })?;
    check(&comparison)?;
    Ok(comparison)
}

/// What the rest relies on.
fn check(comparison: &Comparison) -> Result<(), String> {
    let count = comparison.schedulers.len();
    if count == 0 {
        return Err("no schedulers: at least one is needed".to_string());
    }
    for section in &comparison.sections {
        for table in &section.directions {
            let place = format!("group {}: {}s", section.group_id, table.direction.name());
            if table.rows.len() != count {
                let rows = table.rows.len();
                return Err(format!("{place}: {rows} rows for {count} schedulers"));
            }
            for row in &table.rows {
                check_row(row)
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
    match comparison
        .why
        .iter()
        .find(|fact| fact.values.len() != count)
    {
        Some(fact) => Err(format!("{}: not a value for each scheduler", fact.name)),
        None => Ok(()),
    }
}

/// A row has every figure, and of each as many repeats. One that did no I/O may
/// have none.
fn check_row(row: &Row) -> Result<(), String> {
    let name = |metric: &Metric| serde_json::to_string(metric).unwrap_or_default();
    if let Some(metric) = Metric::ALL.iter().find(|m| !row.cells.contains_key(m)) {
        return Err(format!("no {} among its cells", name(metric)));
    }
    let count = row.repeats.values().map(Vec::len).max().unwrap_or(0);
    if count == 0 && row.ios == 0 {
        return Ok(());
    }
    let of = |metric: &Metric| row.repeats.get(metric).map_or(0, Vec::len);
    match Metric::ALL.iter().find(|m| of(m) != count.max(1)) {
        Some(metric) => Err(format!(
            "{} repeats of {}, where {} are needed",
            of(metric),
            name(metric),
            count.max(1)
        )),
        None => Ok(()),
    }
}

/// Puts comparisons into one; the first scheduler of the first is what all
/// others are compared with.
pub fn merge(parts: &[Part]) -> Comparison {
    if let [only] = parts {
        return only.comparison.clone();
    }
    let pairs = pairs(parts);
    let mut sections = Vec::new();
    for group_id in group_ids(parts) {
        sections.push(section(parts, group_id, &pairs));
    }
    let all = |of: fn(&Comparison) -> &String| {
        let mut values: Vec<&str> = Vec::new();
        for value in parts.iter().map(|part| of(&part.comparison).as_str()) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values.join(", ")
    };
    let text = |of: fn(&Origin) -> &String| {
        let mut texts = parts.iter().map(|part| of(&part.comparison.origin));
        texts
            .find(|text| !text.is_empty())
            .cloned()
            .unwrap_or_default()
    };
    let headlines = parts
        .iter()
        .map(|p| (p.label.as_str(), p.comparison.headline.as_str()));
    let commands = parts.iter().map(|p| p.comparison.origin.command.as_str());
    let repeats = parts.iter().map(|part| part.comparison.repeats).min();
    Comparison {
        job: all(|c| &c.job),
        drive: all(|c| &c.drive),
        machine: all(|c| &c.machine),
        world: all(|c| &c.world),
        schedulers: schedulers(parts),
        repeats: repeats.unwrap_or(0),
        seeds: match pairs.are_all() {
            true => parts[0].comparison.seeds.clone(),
            false => Vec::new(),
        },
        paired: pairs.are_all(),
        headline: match sections.is_empty() {
            true => headline(&sections),
            false => told_by_each(headlines),
        },
        failed: parts.iter().flat_map(failed).collect(),
        sections,
        why: facts(parts),
        channels: parts.iter().flat_map(channels).collect(),
        cpus: parts.iter().flat_map(cpus).collect(),
        timelines: Vec::new(),
        notes: [
            different_work(parts),
            parts.iter().flat_map(notes).collect(),
        ]
        .concat(),
        origin: Origin {
            command: commands.collect::<Vec<_>>().join("\n"),
            job_text: text(|o| &o.job_text),
            drive_text: text(|o| &o.drive_text),
            machine_text: text(|o| &o.machine_text),
        },
    }
}

/// Schedulers of one file are pairs as they were there; those of two are where
/// world, job and seeds are the same.
fn pairs(parts: &[Part]) -> Pairs {
    let key = |part: &Part| {
        let c = &part.comparison;
        let work = (c.world.clone(), job(part), c.seeds.clone());
        let key = c.paired.then_some(work);
        vec![key; c.schedulers.len()]
    };
    Pairs::by_key(&parts.iter().flat_map(key).collect::<Vec<_>>())
}

/// A job by its name and its text.
fn job(part: &Part) -> (String, String) {
    let c = &part.comparison;
    (c.job.clone(), c.origin.job_text.clone())
}

/// Says which parts are not of the first one's job.
fn different_work(parts: &[Part]) -> Vec<String> {
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

/// Who wins is a question to ask within a world.
fn told_by_each<'a>(sentences: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let told = sentences.map(|(label, sentence)| format!("{label}: {sentence}"));
    told.collect::<Vec<_>>().join(" ")
}

fn schedulers(parts: &[Part]) -> Vec<String> {
    let each = |part: &Part| -> Vec<String> {
        let names = part.comparison.schedulers.iter();
        names.map(|name| part.name(name)).collect()
    };
    parts.iter().flat_map(each).collect()
}

fn channels(part: &Part) -> Vec<crate::why::Channels> {
    let named = |c: &crate::why::Channels| crate::why::Channels {
        scheduler: part.name(&c.scheduler),
        busy: c.busy.clone(),
        dies: c.dies.clone(),
        planes: c.planes.clone(),
    };
    part.comparison.channels.iter().map(named).collect()
}

fn cpus(part: &Part) -> Vec<CpuTimeline> {
    let named = |timeline: &CpuTimeline| CpuTimeline {
        scheduler: part.name(&timeline.scheduler),
        ..timeline.clone()
    };
    part.comparison.cpus.iter().map(named).collect()
}

fn failed(part: &Part) -> Vec<FailedIo> {
    let named = |f: &FailedIo| FailedIo {
        scheduler: part.name(&f.scheduler),
        ..f.clone()
    };
    part.comparison.failed.iter().map(named).collect()
}

fn notes(part: &Part) -> Vec<String> {
    let notes = part.comparison.notes.iter();
    notes
        .map(|note| format!("{}: {note}", part.label))
        .collect()
}

fn group_ids(parts: &[Part]) -> Vec<u32> {
    let sections = parts.iter().flat_map(|part| &part.comparison.sections);
    let mut ids: Vec<u32> = sections.map(|section| section.group_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn find(part: &Part, group_id: u32) -> Option<&Section> {
    let sections = &part.comparison.sections;
    sections.iter().find(|section| section.group_id == group_id)
}

fn section(parts: &[Part], group_id: u32, pairs: &Pairs) -> Section {
    let there = |part| find(part, group_id);
    let title = parts.iter().find_map(there).map(|s| s.title.clone());
    let directions: Vec<DirectionTable> = Direction::ALL
        .into_iter()
        .filter_map(|direction| table(parts, group_id, direction, pairs))
        .collect();
    let names = schedulers(parts);
    let processes = process_figures(parts, group_id, pairs);
    let values = |table: &DirectionTable, metric: Metric| -> Vec<Vec<f64>> {
        let rows = table.rows.iter();
        rows.map(|row| row.repeats.get(&metric).cloned().unwrap_or_default())
            .collect()
    };
    let mut bandwidths = vec![Vec::new(); names.len()];
    let mut tails = Vec::new();
    for table in &directions {
        for (total, own) in bandwidths.iter_mut().zip(values(table, Metric::Bandwidth)) {
            total.resize(own.len().max(total.len()), 0.0);
            let pairs = total.iter_mut().zip(own);
            pairs.for_each(|(total, own)| *total += own);
        }
        let p99s = values(table, Metric::P99);
        let direction = Some(table.direction);
        tails.push(Contest::decide_named(
            &names,
            &p99s,
            Metric::P99,
            direction,
            pairs,
        ));
    }
    let bandwidth = Contest::decide_named(&names, &bandwidths, Metric::Bandwidth, None, pairs);
    let sentences = parts.iter().filter_map(|part| {
        let section = find(part, group_id)?;
        Some((part.label.as_str(), section.verdict.sentence.as_str()))
    });
    let sentence = told_by_each(sentences);
    Section {
        group_id,
        title: title.unwrap_or_default(),
        verdict: Verdict {
            bandwidth,
            tails,
            times: processes::contests(&names, &processes, pairs),
            sentence,
        },
        directions,
        processes,
    }
}

/// A direction's rows of all parts; those without it did no such I/O.
fn table(
    parts: &[Part],
    group_id: u32,
    direction: Direction,
    pairs: &Pairs,
) -> Option<DirectionTable> {
    let mut rows = Vec::new();
    let mut some = false;
    for part in parts {
        let tables = find(part, group_id).into_iter().flat_map(|s| &s.directions);
        let table = tables
            .into_iter()
            .find(|table| table.direction == direction);
        some |= table.is_some();
        for (index, name) in part.comparison.schedulers.iter().enumerate() {
            let row = table.and_then(|table| table.rows.get(index));
            rows.push(Row {
                scheduler: part.name(name),
                ..row.cloned().unwrap_or_else(idle)
            });
        }
    }
    fill_cells(&mut rows, pairs);
    some.then_some(DirectionTable { direction, rows })
}

/// Columns of one name side by side; a world that does not know one has no
/// figures there.
fn process_figures(parts: &[Part], group_id: u32, pairs: &Pairs) -> Vec<ProcessFigures> {
    let mut merged: Vec<(ProcessColumn, Vec<Vec<f64>>)> = Vec::new();
    let mut before = 0;
    let total = schedulers(parts).len();
    for part in parts {
        let own = find(part, group_id).into_iter().flat_map(|s| &s.processes);
        for figures in own {
            let at = merged.iter().position(|(c, _)| *c == figures.column);
            let at = at.unwrap_or_else(|| {
                merged.push((figures.column.clone(), vec![Vec::new(); total]));
                merged.len() - 1
            });
            let places = merged[at].1[before..].iter_mut();
            places
                .zip(&figures.repeats)
                .for_each(|(to, from)| to.clone_from(from));
        }
        before += part.comparison.schedulers.len();
    }
    let figures = |(column, repeats)| ProcessFigures::new(column, repeats, pairs);
    merged.into_iter().map(figures).collect()
}

fn idle() -> Row {
    Row {
        scheduler: String::new(),
        ios: 0,
        cells: BTreeMap::new(),
        repeats: BTreeMap::new(),
        curve: Vec::new(),
    }
}

/// Facts of one name side by side; a world that does not know one has none.
fn facts(parts: &[Part]) -> Vec<FactRow> {
    let mut facts: Vec<FactRow> = Vec::new();
    let mut before = 0;
    let total: usize = parts.iter().map(|p| p.comparison.schedulers.len()).sum();
    for part in parts {
        let count = part.comparison.schedulers.len();
        for fact in &part.comparison.why {
            let same =
                |f: &FactRow| (f.place, f.unit) == (fact.place, fact.unit) && f.name == fact.name;
            let at = facts.iter().position(same).unwrap_or_else(|| {
                facts.push(FactRow {
                    values: vec![None; total],
                    ..fact.clone()
                });
                facts.len() - 1
            });
            let values = facts[at].values[before..before + count].iter_mut();
            values.zip(&fact.values).for_each(|(to, from)| *to = *from);
        }
        before += count;
    }
    // Reports show a place's facts together.
    facts.sort_by_key(|fact| fact.place);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::compare;
    use crate::sample_run::three_schedulers;
    use crate::{html, json, text};
    use blklab_stats::World;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// What a host's run of the same job came to.
    fn host() -> Comparison {
        let mut schedulers = three_schedulers(3);
        schedulers.remove(1);
        for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
            run.world = World::Host;
            run.drive = "loop0".to_string();
            run.notes.push("busy".to_string());
            run.disks[0].device = Default::default();
        }
        compare(&schedulers)
    }

    fn parts() -> Vec<Part> {
        let part = |label: &str, comparison| Part {
            label: label.to_string(),
            comparison,
        };
        vec![
            part("sim", compare(&three_schedulers(5))),
            part("host", host()),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        let comparison = compare(&three_schedulers(3));
        let written = json::render(&comparison);
        let again = read(&written).unwrap();
        assert_eq!(text::render(&again), text::render(&comparison));
        assert_eq!(html::render(&again), html::render(&comparison));
    }

    #[test]
    fn both_worlds_are_in_one_table_and_page() {
        let merged = merge(&parts());
        assert_eq!(
            merged.schedulers,
            [
                "sim noop",
                "sim mq-deadline",
                "sim ac",
                "host noop",
                "host ac"
            ]
        );
        let table = text::render(&merged);
        let page = html::render(&merged);
        for name in ["sim ac", "host ac", "(sim, host)", "host: busy"] {
            assert!(table.contains(name), "{name} is missing:\n{table}");
            assert!(page.contains(name), "{name} is missing in the page");
        }
        assert_eq!(merged.sections[0].directions[0].rows.len(), 5);
        for fact in &merged.why {
            assert_eq!(fact.values.len(), 5);
        }
    }

    #[test]
    fn figures_are_those_of_each_world() {
        let parts = parts();
        let merged = merge(&parts);
        let of =
            |c: &Comparison, row: usize| c.sections[0].directions[0].rows[row].cells[&Metric::P99];
        assert_eq!(of(&merged, 2).value, of(&parts[0].comparison, 2).value);
        assert_eq!(of(&merged, 4).value, of(&parts[1].comparison, 1).value);
        let change = of(&merged, 4).change.unwrap();
        let ratio = of(&merged, 4).value.mean / of(&merged, 0).value.mean - 1.0;
        assert!((change.relative.mean - ratio).abs() < 1e-9);
    }

    #[test]
    fn a_file_s_own_pairs_stay_pairs() {
        let (sim, host) = (compare(&three_schedulers(5)), host());
        let part = |label: &str, comparison: &Comparison| Part {
            label: label.to_string(),
            comparison: comparison.clone(),
        };
        let change = |c: &Comparison, row: usize| {
            let cell = c.sections[0].directions[0].rows[row].cells[&Metric::Mean];
            cell.change.expect("not the first").relative
        };
        let merged = merge(&[part("a", &sim), part("b", &host)]);
        assert!(!merged.paired);
        assert_eq!(change(&merged, 2), change(&sim, 2));
        let twice = merge(&[part("a", &sim), part("b", &sim)]);
        assert!(twice.paired);
        assert_eq!(change(&twice, 5), change(&sim, 2));
    }

    #[test]
    fn other_work_is_told() {
        let mut parts = parts();
        assert!(!text::render(&merge(&parts)).contains("other work"));
        parts[1].comparison.origin.job_text = "[other]".to_string();
        let said = "host did other work than sim";
        assert!(text::render(&merge(&parts)).contains(said));
    }

    #[test]
    fn each_world_names_its_own_winner() {
        let parts = parts();
        let merged = merge(&parts);
        let sentence = &merged.sections[0].verdict.sentence;
        assert!(sentence.starts_with("sim: ac wins"), "{sentence}");
        assert!(sentence.contains("host: ac wins"), "{sentence}");
    }

    #[test]
    fn one_part_stays_as_it_is() {
        let parts = parts();
        assert_eq!(
            json::render(&merge(&parts[..1])),
            json::render(&parts[0].comparison)
        );
    }

    #[test]
    fn other_json_is_refused() {
        for wrong in ["", "{}", "[]", "{\"jobs\": []}"] {
            assert!(
                read(wrong)
                    .unwrap_err()
                    .contains("compare --output-format json")
            );
        }
        let mut short = compare(&three_schedulers(2));
        short.schedulers.pop();
        assert!(read(&json::render(&short)).unwrap_err().contains("rows"));
    }

    #[test]
    fn a_comparison_with_holes_is_refused() {
        let refused = |change: fn(&mut Comparison)| {
            let mut comparison = compare(&three_schedulers(2));
            change(&mut comparison);
            read(&json::render(&comparison)).unwrap_err()
        };
        let none = refused(|c| {
            c.schedulers.clear();
            c.why.clear();
            for section in &mut c.sections {
                section.directions.clear();
                section.processes.clear();
            }
        });
        assert!(none.contains("no schedulers"), "{none}");
        let cells = refused(|c| {
            let row = &mut c.sections[0].directions[0].rows[1];
            row.cells.remove(&Metric::P99);
        });
        assert!(cells.contains("latency_p99_ns"), "{cells}");
        assert!(cells.contains("mq-deadline"), "{cells}");
        for repeats in [
            refused(|c| c.sections[0].directions[0].rows[1].repeats.clear()),
            refused(|c| {
                let row = &mut c.sections[0].directions[0].rows[1];
                row.repeats.get_mut(&Metric::Iops).unwrap().pop();
            }),
        ] {
            assert!(repeats.contains("repeats of"), "{repeats}");
        }
    }

    #[test]
    fn what_was_merged_is_read_again() {
        let mut parts = parts();
        // The host did no such I/O: its rows are idle.
        parts[1].comparison.sections[0].directions.clear();
        let merged = merge(&parts);
        let again = read(&json::render(&merged)).unwrap();
        assert_eq!(text::render(&again), text::render(&merged));
    }

    /// The `at`-th value of a document, counted from the root.
    fn value_at<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
        if *at == 0 {
            return Some(value);
        }
        *at -= 1;
        match value {
            Value::Array(list) => list.iter_mut().find_map(|v| value_at(v, at)),
            Value::Object(map) => map.values_mut().find_map(|v| value_at(v, at)),
            _ => None,
        }
    }

    fn count(value: &Value) -> usize {
        let inner = match value {
            Value::Array(list) => list.iter().map(count).sum(),
            Value::Object(map) => map.values().map(count).sum(),
            _ => 0,
        };
        1 + inner
    }

    fn other_values() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!(null)),
            Just(json!([])),
            Just(json!({})),
            Just(json!("")),
            Just(json!("write")),
            Just(json!(0)),
            Just(json!(-1)),
            Just(json!(u64::MAX)),
            Just(json!(1e308)),
            Just(json!(-1e308)),
            Just(json!(1e-308)),
            Just(json!(true)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn whatever_is_read_can_be_merged_and_shown(
            changes in proptest::collection::vec((0..1usize << 20, other_values()), 1..4)
        ) {
            let whole = json::render(&compare(&three_schedulers(2)));
            let mut document: Value = serde_json::from_str(&whole).unwrap();
            for (at, other) in changes {
                let mut at = at % count(&document);
                if let Some(place) = value_at(&mut document, &mut at) {
                    *place = other;
                }
            }
            if let Ok(comparison) = read(&document.to_string()) {
                let part = |label: &str| Part {
                    label: label.to_string(),
                    comparison: comparison.clone(),
                };
                let merged = merge(&[part("a"), part("b")]);
                text::render(&merged);
                html::render(&merged);
                json::render(&merged);
            }
        }
    }
}
