//! Our write-back against the kernel's: the traces in this repository, and all that
//! are below the directory that `BLKLAB_PAGE_CACHE_TRACES` names.

use blklab_conform::write_back;

use crate::recorded::{Copy, elsewhere, ours, tally, traces};

#[test]
fn writers_are_slowed_down_and_pages_written_as_by_the_kernel() {
    let report = write_back(&traces(&ours(), "write-back")).unwrap();
    assert!(report.write_back_agrees(), "{report}");
    let throttling = tally(&report, "throttling");
    assert_eq!(throttling.agreed, throttling.compared, "{report}");
    assert!(throttling.compared > 200, "{report}");
    assert!(tally(&report, "page written").compared > 5_000, "{report}");
}

#[test]
fn the_traces_elsewhere_agree() {
    let Some(directory) = elsewhere() else { return };
    let report = write_back(&traces(&directory, "write-back")).unwrap();
    assert!(report.write_back_agrees(), "{report}");
}

/// A machine on which pages grow older before they are written is found out.
#[test]
fn another_age_is_found_out() {
    let age = "\"dirty_expire_centisecs\": ";
    let copy = Copy::new("write-back", "e2_three_files_age")
        .describe(&format!("{age}\"100\""), &format!("{age}\"3000\""));
    let report = write_back(&[copy.trace()]).unwrap();
    assert!(!report.write_back_agrees(), "{report}");
}
