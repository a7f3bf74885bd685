//! Our MMC stack against the kernel's: the traces in this repository, and all that
//! are below the directory that `BLKLAB_MMC_TRACES` names.

use std::fs;
use std::path::{Path, PathBuf};

use blklab_conform::{Report, agrees, mmc};

fn ours() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/mmc-traces")
}

fn traces(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = (entries.map(|entry| entry.unwrap().path()))
        .filter(|path| path.to_string_lossy().ends_with(".trace.gz"))
        .collect();
    found.sort();
    found
}

fn compared(report: &Report, kind: &str) -> u64 {
    let totals = report.totals();
    let tally = totals.iter().find(|tally| tally.kind == kind);
    tally.map_or(0, |tally| tally.compared)
}

#[test]
fn cards_are_identified_shown_and_driven_as_the_kernels() {
    let report = mmc(&traces(&ours())).unwrap();
    assert!(agrees(&report), "{report}");
    // Four cards, each found twice: SD by 31 requests and 9 settings of the bus, eMMC by 28
    // and 12.
    assert_eq!(compared(&report, "identification"), 580, "{report}");
    assert_eq!(compared(&report, "block I/O"), 2529, "{report}");
    assert!(compared(&report, "attribute") > 500, "{report}");
    assert!(compared(&report, "uevent") > 150, "{report}");
}

#[test]
fn the_traces_elsewhere_agree() {
    let Some(folder) = std::env::var_os("BLKLAB_MMC_TRACES") else {
        blklab_judges::not_possible("more traces: BLKLAB_MMC_TRACES names no directory");
        return;
    };
    let report = mmc(&traces(Path::new(&folder))).unwrap();
    assert!(agrees(&report), "{report}");
}

/// A copy of the run of an SD card with its description changed.
fn changed(change: impl Fn(String) -> String) -> (tempfile::TempDir, PathBuf) {
    changed_of("sdsc_128m", change)
}

fn changed_of(run: &str, change: impl Fn(String) -> String) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run.trace.gz");
    fs::copy(ours().join(format!("{run}.trace.gz")), &trace).unwrap();
    let text = fs::read_to_string(ours().join(format!("{run}.json"))).unwrap();
    fs::write(folder.path().join("run.json"), change(text)).unwrap();
    (folder, trace)
}

/// The comparison sees what differs: another manufacturer, another clock.
#[test]
fn another_card_is_told_apart() {
    let other = |text: String| text.replace("0x0000aa", "0x0000ab");
    let (_folder, trace) = changed(other);
    let report = mmc(&[trace]).unwrap();
    assert!(!agrees(&report));
    assert_eq!(report.compared() - report.agreed(), 1, "{report}");
}

#[test]
fn a_register_that_cannot_be_is_one_message() {
    let broken = [
        ("002600325f59", "802600325f59", "csd"),
        ("0225000000000000", "0221000000000000", "scr"),
        ("\"SD\"", "\"SDIO\"", "type"),
    ];
    for (found, put, name) in broken {
        let (_folder, trace) = changed(|text| text.replace(found, put));
        let error = mmc(&[trace]).unwrap_err().to_string();
        assert!(
            error.contains("run.json: card_sysfs") && error.contains(name),
            "{error}"
        );
    }
}

#[test]
fn an_emmc_without_its_register_is_one_message() {
    let broken = [
        ("\"ext_csd\"", "\"unknown\"", "found nothing"),
        (
            "\"ext_csd\": \"00",
            "\"ext_csd\": \"",
            "found 1022 characters",
        ),
        (
            "\"ext_csd\": \"00",
            "\"ext_csd\": \"zz",
            "found 1024 characters",
        ),
    ];
    for (found, put, found_text) in broken {
        let (_folder, trace) = changed_of("emmc_512m", |text| text.replacen(found, put, 1));
        let error = mmc(&[trace]).unwrap_err().to_string();
        let expected = format!("run.json: ext_csd: {found_text}, expected 1024 digits");
        assert!(error.contains(&expected), "{error}");
    }
}
