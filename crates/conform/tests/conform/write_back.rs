//! Our write-back against the kernel's: the traces in this repository, and all that
//! are below the directory that `BLKLAB_PAGE_CACHE_TRACES` names.

use std::fs;
use std::path::{Path, PathBuf};

use blklab_conform::{Report, write_back};

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/page-cache-traces")
}

fn traces(directory: &Path) -> Vec<PathBuf> {
    let folder = directory.join("write-back");
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = (entries.map(|entry| entry.unwrap().path()))
        .filter(|path| path.to_string_lossy().ends_with(".trace.gz"))
        .collect();
    found.sort();
    found
}

/// Agreements and comparisons of events of this kind.
fn tally(report: &Report, kind: &str) -> (u64, u64) {
    let totals = report.totals();
    let tally = totals.iter().find(|tally| tally.kind == kind).unwrap();
    (tally.agreed, tally.compared)
}

#[test]
fn writers_are_slowed_down_and_pages_written_as_by_the_kernel() {
    let report = write_back(&traces(&ours())).unwrap();
    assert!(report.write_back_agrees(), "{report}");
    let (agreed, compared) = tally(&report, "throttling");
    assert_eq!(agreed, compared, "{report}");
    assert!(compared > 200, "{report}");
    assert!(tally(&report, "page written").1 > 5_000, "{report}");
}

#[test]
fn the_traces_elsewhere_agree() {
    let Some(directory) = std::env::var_os("BLKLAB_PAGE_CACHE_TRACES") else {
        blklab_judges::not_possible("more traces: BLKLAB_PAGE_CACHE_TRACES names no directory");
        return;
    };
    let report = write_back(&traces(Path::new(&directory))).unwrap();
    assert!(report.write_back_agrees(), "{report}");
}

/// A machine on which pages grow older before they are written is found out.
#[test]
fn another_age_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["trace.gz", "calls.txt", "json"] {
        let name = format!("e2_three_files_age.{ending}");
        let text = fs::read(ours().join("write-back").join(&name)).unwrap();
        let text = match ending {
            "json" => {
                let text = String::from_utf8(text).unwrap();
                let age = "\"dirty_expire_centisecs\": ";
                let other = text.replace(&format!("{age}\"100\""), &format!("{age}\"3000\""));
                assert_ne!(text, other);
                other.into_bytes()
            }
            _ => text,
        };
        fs::write(folder.path().join(&name), text).unwrap();
    }
    let report = write_back(&[folder.path().join("e2_three_files_age.trace.gz")]).unwrap();
    assert!(!report.write_back_agrees(), "{report}");
}
