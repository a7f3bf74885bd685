//! Reads every recorded kernel trace there is: those of this repository, and
//! those below the directory that `BLKLAB_KERNEL_TRACES` names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use blklab_workload::trace::tracefs::{EventKind, Reader, RunInfo};

/// The traces below `directory`, in order.
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

/// The events that count towards a name in the JSON file's `event_counts`.
fn trace_name(kind: &EventKind<'_>) -> &'static str {
    match kind {
        EventKind::BioQueue(_) => "block_bio_queue",
        EventKind::BioBackmerge(_) => "block_bio_backmerge",
        EventKind::BioFrontmerge(_) => "block_bio_frontmerge",
        EventKind::GetRq(_) => "block_getrq",
        EventKind::Plug { .. } => "block_plug",
        EventKind::Unplug { .. } => "block_unplug",
        EventKind::RqInsert(_) => "block_rq_insert",
        EventKind::RqIssue(_) => "block_rq_issue",
        EventKind::RqMerge(_) => "block_rq_merge",
        EventKind::RqComplete(_) => "block_rq_complete",
        EventKind::RqIns { .. } => "rq_ins",
        EventKind::DdIns(_) => "dd_ins",
        EventKind::KyIns(_) => "ky_ins",
        EventKind::BfqIns(_) => "bfq_ins",
        EventKind::DdDisp(_) => "dd_disp",
        EventKind::KyDisp(_) => "ky_disp",
        EventKind::BfqDisp(_) => "bfq_disp",
        EventKind::DdDispRet(_) => "dd_disp_ret",
        EventKind::KyDispRet(_) => "ky_disp_ret",
        EventKind::BfqDispRet(_) => "bfq_disp_ret",
        EventKind::DdFin { .. } => "dd_fin",
        EventKind::KyFin { .. } => "ky_fin",
        EventKind::BfqFin { .. } => "bfq_fin",
        EventKind::KyDone { .. } => "ky_done",
        EventKind::DdBmerged { .. } => "dd_bmerged",
        EventKind::DdRqmerged { .. } => "dd_rqmerged",
        EventKind::KyberLatency { .. } => "kyber_latency",
        EventKind::KyberAdjust { .. } => "kyber_adjust",
        EventKind::KyberThrottled { .. } => "kyber_throttled",
        other => panic!("not in any recorded trace: {other:?}"),
    }
}

/// Every line parses, and there are as many events of each kind as the
/// recording counted; NULL answers too.
#[test]
fn every_event_of_every_trace_is_known() {
    for path in all_traces() {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut nulls = 0;
        let mut reader = Reader::open(&path).unwrap();
        let mut before_ns = 0;
        while let Some(event) = reader.next_event().unwrap() {
            *counts.entry(trace_name(&event.kind)).or_default() += 1;
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
        let counted: BTreeMap<&str, u64> = json["event_counts"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, count)| (name.as_str(), count.as_u64().unwrap()))
            .collect();
        assert_eq!(counts, counted, "{}", path.display());
        assert_eq!(nulls, info.dispatch_calls.null, "{}", path.display());
        assert_eq!(json["last_ts"].as_str().unwrap(), seconds(before_ns));
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
