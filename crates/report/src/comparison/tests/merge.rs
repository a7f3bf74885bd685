use blklab_stats::World;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::comparison::merge::{WorldComparison, merge, read};
use crate::comparison::{Comparison, Metric, compare};
use crate::sample_run::three_schedulers;
use crate::{html, json, text};

/// The comparison of a host's run of the same job.
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

fn parts() -> Vec<WorldComparison> {
    let part = |label: &str, comparison| WorldComparison {
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
    let of = |c: &Comparison, row: usize| c.sections[0].directions[0].rows[row].cells[&Metric::P99];
    assert_eq!(of(&merged, 2).value, of(&parts[0].comparison, 2).value);
    assert_eq!(of(&merged, 4).value, of(&parts[1].comparison, 1).value);
    let change = of(&merged, 4).change.unwrap();
    let ratio = of(&merged, 4).value.mean / of(&merged, 0).value.mean - 1.0;
    assert!((change.relative.mean - ratio).abs() < 1e-9);
}

#[test]
fn a_file_s_own_pairs_stay_pairs() {
    let (sim, host) = (compare(&three_schedulers(5)), host());
    let part = |label: &str, comparison: &Comparison| WorldComparison {
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

/// Returns the `at`-th value of a document, counted from the root.
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
            let part = |label: &str| WorldComparison {
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
