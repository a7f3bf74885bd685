use crate::comparison::{compare, drive_notes};
use crate::sample_run::three_schedulers;
use crate::{fio_json, fio_text, text};

/// Runs in which a drive answered this many of 100 reads without its flash.
fn shown(percent: u64) -> [String; 3] {
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
    for shown in shown(60) {
        let shown = shown.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert_eq!(shown.matches("% of what was read holds").count(), 1);
        assert!(
            shown.contains("60.0 % of what was read holds nothing"),
            "{shown}"
        );
        assert!(shown.contains("--state filled"), "{shown}");
    }
    for shown in shown(9) {
        assert!(!shown.contains("holds nothing ("), "{shown}");
    }
    assert!(drive_notes(&three_schedulers(1)[0].runs[0]).is_empty());
}
