//! Our page cache against the kernel's: the traces in this repository, and all
//! that are below the directory that `BLKLAB_PAGE_CACHE_TRACES` names.

use std::fs;
use std::path::{Path, PathBuf};

use blklab_conform::{Report, eviction, page_cache};

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/page-cache-traces")
}

fn traces(directory: &Path, kind: &str) -> Vec<PathBuf> {
    let folder = directory.join(kind);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = (entries.map(|entry| entry.unwrap().path()))
        .filter(|path| path.to_string_lossy().ends_with(".trace.gz"))
        .collect();
    found.sort();
    found
}

/// Agreements in percent of events of this kind.
fn percent(report: &Report, kind: &str) -> f64 {
    let totals = report.totals();
    let tally = totals.iter().find(|tally| tally.kind == kind).unwrap();
    tally.agreed as f64 * 100.0 / tally.compared as f64
}

fn assert_agrees(report: &Report) {
    assert!(report.page_cache_agrees(), "{report}");
    assert!(percent(report, "readahead") >= 99.9, "{report}");
    assert!(percent(report, "page added") >= 99.9, "{report}");
    assert!(percent(report, "bio") >= 99.0, "{report}");
}

#[test]
fn readahead_pages_and_bios_are_the_kernels() {
    let report = page_cache(&traces(&ours(), "page-cache")).unwrap();
    assert_agrees(&report);
    assert!(report.compared() > 10_000, "{report}");
}

#[test]
fn the_traces_elsewhere_agree() {
    let Some(directory) = std::env::var_os("BLKLAB_PAGE_CACHE_TRACES") else {
        blklab_judges::not_possible("more traces: BLKLAB_PAGE_CACHE_TRACES names no directory");
        return;
    };
    let directory = Path::new(&directory);
    assert_agrees(&page_cache(&traces(directory, "page-cache")).unwrap());
    let report = eviction(&traces(directory, "eviction")).unwrap();
    assert!(report.eviction_agrees(), "{report}");
}

#[test]
fn evictions_are_the_kernels() {
    let report = eviction(&traces(&ours(), "eviction")).unwrap();
    assert!(report.eviction_agrees(), "{report}");
    assert!(percent(&report, "page of a read") >= 99.9, "{report}");
}

/// What one policy evicts is not what the other would have.
#[test]
fn the_other_policy_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |ending: &str| {
        let name = format!("zipf_classic.{ending}");
        let to = folder.path().join(&name);
        fs::copy(ours().join("eviction").join(&name), &to).unwrap();
        to
    };
    let (trace, _, description) = (copy("trace.gz"), copy("calls.txt"), copy("json"));
    let text = fs::read_to_string(&description).unwrap();
    let other = text.replace("\"lru_gen\": \"0x0000", "\"lru_gen\": \"0x0007");
    assert_ne!(text, other);
    fs::write(&description, other).unwrap();
    let report = eviction(&[trace]).unwrap();
    assert!(!report.eviction_agrees(), "{report}");
}

/// A description that says something else is found out.
#[test]
fn another_readahead_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["trace.gz", "calls.txt", "json"] {
        let name = format!("bd_inter4_onefd.{ending}");
        fs::copy(
            ours().join("page-cache").join(&name),
            folder.path().join(&name),
        )
        .unwrap();
    }
    let description = folder.path().join("bd_inter4_onefd.json");
    let text = fs::read_to_string(&description).unwrap();
    let other = text.replace("\"read_ahead_kb\": \"128\"", "\"read_ahead_kb\": \"64\"");
    assert_ne!(text, other);
    fs::write(&description, other).unwrap();
    let report = page_cache(&[folder.path().join("bd_inter4_onefd.trace.gz")]).unwrap();
    assert!(!report.page_cache_agrees(), "{report}");
}

#[test]
fn a_broken_list_of_calls_names_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["trace.gz", "calls.txt", "json"] {
        let name = format!("bd_eof.{ending}");
        fs::copy(
            ours().join("page-cache").join(&name),
            folder.path().join(&name),
        )
        .unwrap();
    }
    fs::write(
        folder.path().join("bd_eof.calls.txt"),
        "open 0 /dev/nullb0 r\nreed 0 1\n",
    )
    .unwrap();
    let error = page_cache(&[folder.path().join("bd_eof.trace.gz")]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("bd_eof.calls.txt:2: found \"reed 0 1\""),
        "{error}"
    );
}
