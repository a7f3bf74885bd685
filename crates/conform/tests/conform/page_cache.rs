//! Our page cache and its write-back against the kernel's: the traces in this repository, and all
//! that are below the directory that `BLKLAB_PAGE_CACHE_TRACES` names.

use std::fs;

use blklab_conform::{Report, agrees, eviction, page_cache, write_back};

use crate::recorded::{Copy, elsewhere, ours, tally, traces};

/// Agreements in percent of events of this kind.
fn percent(report: &Report, kind: &str) -> f64 {
    let tally = tally(report, kind);
    tally.agreed as f64 * 100.0 / tally.compared as f64
}

fn assert_agrees(report: &Report) {
    assert!(agrees(report), "{report}");
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
    let Some(directory) = elsewhere() else { return };
    assert_agrees(&page_cache(&traces(&directory, "page-cache")).unwrap());
    let report = eviction(&traces(&directory, "eviction")).unwrap();
    assert!(agrees(&report), "{report}");
}

#[test]
fn evictions_are_the_kernels() {
    let report = eviction(&traces(&ours(), "eviction")).unwrap();
    assert!(agrees(&report), "{report}");
    assert!(percent(&report, "page of a read") >= 99.9, "{report}");
}

/// What one policy evicts is not what the other would have.
#[test]
fn the_other_policy_is_found_out() {
    let (classic, generations) = ("\"lru_gen\": \"0x0000", "\"lru_gen\": \"0x0007");
    let copy = Copy::new("eviction", "zipf_classic").describe(classic, generations);
    let report = eviction(&[copy.trace()]).unwrap();
    assert!(!agrees(&report), "{report}");
}

/// A description that says something else is found out.
#[test]
fn another_readahead_is_found_out() {
    let key = "\"read_ahead_kb\": ";
    let copy = Copy::new("page-cache", "bd_inter4_onefd")
        .describe(&format!("{key}\"128\""), &format!("{key}\"64\""));
    let report = page_cache(&[copy.trace()]).unwrap();
    assert!(!agrees(&report), "{report}");
}

#[test]
fn a_broken_list_of_calls_names_its_line() {
    let copy = Copy::new("page-cache", "bd_eof");
    fs::write(copy.file("calls.txt"), "open 0 /dev/nullb0 r\nreed 0 1\n").unwrap();
    let error = page_cache(&[copy.trace()]).unwrap_err().to_string();
    let expected = "bd_eof.calls.txt:2: found \"reed 0 1\"";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn writers_are_slowed_down_and_pages_written_as_by_the_kernel() {
    let report = write_back(&traces(&ours(), "write-back")).unwrap();
    assert!(agrees(&report), "{report}");
    let throttling = tally(&report, "throttling");
    assert_eq!(throttling.agreed, throttling.compared, "{report}");
    assert!(throttling.compared > 200, "{report}");
    let written = tally(&report, "page written");
    assert_eq!(written.agreed, written.compared, "{report}");
    assert!(written.compared > 5_000, "{report}");
}

#[test]
fn write_back_elsewhere_agrees() {
    let Some(directory) = elsewhere() else { return };
    let report = write_back(&traces(&directory, "write-back")).unwrap();
    assert!(agrees(&report), "{report}");
}

/// A machine on which pages grow older before they are written is found out.
#[test]
fn another_age_is_found_out() {
    let age = "\"dirty_expire_centisecs\": ";
    let copy = Copy::new("write-back", "e2_three_files_age")
        .describe(&format!("{age}\"100\""), &format!("{age}\"3000\""));
    let report = write_back(&[copy.trace()]).unwrap();
    assert!(!agrees(&report), "{report}");
}
