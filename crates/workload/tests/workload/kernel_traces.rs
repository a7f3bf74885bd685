//! Reads all recorded kernel traces: those of this repository, and those below the directory
//! `BLKLAB_KERNEL_TRACES`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use blklab_workload::trace::tracefs::{EventKind, Reader, RunInfo, events};
use blklab_workload::trace::{device_number, open, read_text};

/// Collects the traces below `directory`, in order.
fn traces_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            traces_below(&path, found);
        } else if path.to_string_lossy().ends_with(".trace.gz") {
            found.push(path);
        }
    }
}

fn all_traces() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kernel-traces");
    traces_below(&ours, &mut found);
    assert!(!found.is_empty(), "the repository has traces of its own");
    if let Some(more) = std::env::var_os("BLKLAB_KERNEL_TRACES") {
        traces_below(Path::new(&more), &mut found);
    }
    found
}

fn run_info(trace: &Path) -> RunInfo {
    RunInfo::open(Path::new(
        &trace.to_string_lossy().replace(".trace.gz", ".json"),
    ))
    .unwrap()
}

/// Every line parses, and the number of events of each kind is the one that the recording counted,
/// including returns of NULL.
/// recording counted; NULL answers too.
#[test]
fn every_event_of_every_trace_is_known() {
    for path in all_traces() {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut nulls = 0;
        let mut reader = Reader::open(&path).unwrap();
        let mut before_ns = 0;
        while let Some(event) = reader.next_event().unwrap() {
            *counts.entry(event.kind.name().to_owned()).or_default() += 1;
            assert!(!matches!(event.kind, EventKind::Other(_)), "{event}");
            nulls += match event.kind {
                EventKind::DdDispRet(ret) => u64::from(ret.picked.is_none()),
                EventKind::KyDispRet(ret) => u64::from(ret.picked.is_none()),
                EventKind::BfqDispRet(ret) => u64::from(ret.picked.is_none()),
                _ => 0,
            };
            assert!(
                event.at_ns >= before_ns,
                "{}: time goes back",
                path.display()
            );
            before_ns = event.at_ns;
        }
        assert_eq!(reader.lost_events(), 0);

        let info = run_info(&path);
        let json =
            fs::read_to_string(path.to_string_lossy().replace(".trace.gz", ".json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let counted: BTreeMap<String, u64> = json["event_counts"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
            .collect();
        assert_eq!(counts, counted, "{}", path.display());
        assert_eq!(nulls, info.dispatch_calls.null, "{}", path.display());
        assert_eq!(json["last_ts"].as_str().unwrap(), seconds(before_ns));
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// An event that is written again equals its line, except for flags other than need-resched and the
/// irq context, and the place of a probe.
#[test]
fn events_written_again_are_the_recorded_lines() {
    for path in all_traces() {
        let text = read_text(&path).unwrap();
        let recorded = text.lines().filter(|line| !line.starts_with('#'));
        for (event, line) in events(&text, "trace").zip(recorded) {
            let event = event.unwrap();
            let written = event.to_string();
            let kept: Vec<&str> = written.split_whitespace().collect();
            assert_eq!(
                kept,
                without_flags_and_place(line, kept[2]),
                "{}",
                path.display()
            );
        }
    }
}

/// Returns the words of `line`, with `flags` for its flags and without `(place)`.
fn without_flags_and_place<'a>(line: &'a str, flags: &'a str) -> Vec<&'a str> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words[2] = flags;
    if words[5].starts_with('(') && words[5] != "()" {
        let end = words
            .iter()
            .position(|word| word.ends_with(')') || word.ends_with("])"));
        words.drain(5..=end.unwrap());
    }
    words
}

/// The trace, read as one to replay, has the same queued bios in order, but for those that manage
/// zones, which are not replayed.
#[test]
fn queued_bios_are_what_is_replayed() {
    for path in all_traces() {
        let text = read_text(&path).unwrap();
        // The kernel's letter for all operations but reads, writes, discards and flushes.
        let of_zones = text.matches("block_bio_queue: 253,0 N").count() as u64;
        let queued = info_count(&path, "block_bio_queue") - of_zones;
        let mut before_ns = 0;
        let mut records = 0;
        for record in open(&path, None).unwrap() {
            let record = record.unwrap();
            assert!(record.at_ns >= before_ns);
            assert_eq!(Some(record.device), device_number(253, 0));
            before_ns = record.at_ns;
            records += 1;
        }
        assert_eq!(records, queued, "{}", path.display());
    }
}

fn info_count(trace: &Path, event: &str) -> u64 {
    let json = fs::read_to_string(trace.to_string_lossy().replace(".trace.gz", ".json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["event_counts"][event].as_u64().unwrap()
}
