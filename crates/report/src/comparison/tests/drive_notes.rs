//! Notes on drives: those that are too full, and those that read what holds nothing.

use blklab_stats::TooFull;

use crate::comparison::notes::too_full_notes;
use crate::comparison::{SchedulerRuns, compare, drive_notes};
use crate::sample_run::three_schedulers;
use crate::{fio_json, fio_text, html, text};

/// Three schedulers, where the drive was full after 1.5 s under the second.
fn full_under_the_second() -> Vec<SchedulerRuns> {
    let mut schedulers = three_schedulers(2);
    for run in &mut schedulers[1].runs {
        run.disks[0].name = "/dev/x".to_string();
        run.drive = "mine.toml".to_string();
        run.disks[0].device.too_full = Some(TooFull {
            writes: 17,
            first_ns: 1_500_000_000,
            plane: 3,
            data_blocks: 100,
            block_sectors: 2048,
            valid_sectors: 90 * 2048,
            spare_blocks: 10,
        });
        (run.jobs[0].total_errors, run.jobs[0].error) = (17, 28);
    }
    schedulers
}

/// Checks that the drive, the time, the reason and the remedy are shown.
fn says_all(shown: &str) {
    let shown = shown.split_whitespace().collect::<Vec<&str>>().join(" ");
    for piece in [
        "/dev/x (mine.toml) has too little over-provisioning",
        "from 1500 ms into the run on 17 writes",
        "Plane 3 then held 94.4 MB of valid data in 100 blocks of 104.9 MB",
        "collection needs 10 (10.5 MB) for itself",
        "geometry.blocks_per_plane",
    ] {
        assert!(shown.contains(piece), "no {piece:?} in:\n{shown}");
    }
}

#[test]
fn every_way_out_says_which_drive_when_and_why() {
    let schedulers = full_under_the_second();
    let run = &schedulers[1].runs[0];
    says_all(&fio_text::render(run, None));
    let json = fio_json::render(run, fio_json::Options::default());
    says_all(&json);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let too_full = &json["blklab"]["disks"][0]["device"]["too_full"];
    assert_eq!(
        (&too_full["writes"], &too_full["plane"]),
        (&17.into(), &3.into())
    );
    let comparison = compare(&schedulers);
    assert!(
        comparison
            .headline
            .starts_with("No verdict: I/O failed under mq-deadline")
    );
    for shown in [
        text::render(&comparison),
        html::render(&comparison),
        crate::json::render(&comparison),
    ] {
        says_all(&shown.replace("&quot;", "\"").replace("\\\"", "\""));
        assert!(shown.contains("mq-deadline: /dev/x"), "{shown}");
    }
}

#[test]
fn nothing_is_said_of_a_drive_with_room() {
    let schedulers = three_schedulers(1);
    assert!(too_full_notes(&schedulers).is_empty());
    let said = fio_text::render(&schedulers[0].runs[0], None);
    assert!(!said.contains("over-provisioning"));
}

/// Runs in which a drive answered this many of 100 reads without its flash.
fn shown_with_unwritten(percent: u64) -> [String; 3] {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        let disk = &mut run.disks[0];
        disk.device.sectors_read_unwritten = disk.queue.sectors[0] * percent / 100;
    }
    let run = &schedulers[1].runs[0];
    [
        text::render(&compare(&schedulers)),
        fio_text::render(run, None),
        fio_json::render(run, fio_json::Options::default()),
    ]
}

#[test]
fn reads_of_nothing_are_told_where_they_are_many() {
    for shown in shown_with_unwritten(60) {
        let shown = shown.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert_eq!(shown.matches("% of what was read holds").count(), 1);
        assert!(
            shown.contains("60.0 % of what was read holds nothing"),
            "{shown}"
        );
        assert!(shown.contains("--state filled"), "{shown}");
    }
    for shown in shown_with_unwritten(9) {
        assert!(!shown.contains("holds nothing ("), "{shown}");
    }
    assert!(drive_notes(&three_schedulers(1)[0].runs[0]).is_empty());
}
