//! A drive's recorded timeline agrees with its counters.

use std::collections::HashSet;

use crate::harness::closed_loop;
use blklab_blk::Nanos;
use blklab_device::{Device, registry};
use blklab_stats::{DriveTimeline, DriveWork};

fn recorded(drive: &str, read_percent: u64, requests: u64) -> (Box<dyn Device>, DriveTimeline) {
    let spec = registry::find(drive).expect("listed").expect("parses");
    let mut drive = spec.build(1);
    drive.record(true);
    let work = crate::harness::RandomWork {
        requests,
        depth: 32,
        read_percent,
        bytes: 4096,
        share: 0.5,
        seed: 7,
        sequential: false,
    };
    closed_loop(drive.as_mut(), &work);
    let mut timeline = DriveTimeline::default();
    // In two goes, as over a run.
    drive.take_record(&mut timeline);
    drive.take_record(&mut timeline);
    (drive, timeline)
}

/// The spans of a part's activities, in order of time.
fn spans(timeline: &DriveTimeline, part: &str) -> Vec<(u64, u64)> {
    let part = timeline.parts.iter().position(|p| p.name == part);
    let part = part.expect("a part of that name") as u32;
    let own = timeline.activities.iter().filter(|a| a.part == part);
    let mut spans: Vec<(u64, u64)> = own.map(|a| (a.start_ns, a.end_ns)).collect();
    spans.sort_unstable();
    spans.dedup();
    spans
}

#[test]
fn a_part_does_one_thing_at_a_time() {
    for (drive, reads) in [("mx100-256", 50), ("mqsim-default", 70), ("hdd-7200", 50)] {
        let (_, timeline) = recorded(drive, reads, 3000);
        assert!(timeline.activities.len() > 3000, "{drive}");
        for part in &timeline.parts {
            let spans = spans(&timeline, &part.name);
            assert!(spans.iter().all(|(start, end)| start < end));
            let apart = spans.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            assert!(apart, "{drive}, {}: two things at once", part.name);
        }
    }
}

#[test]
fn the_sums_are_those_counted() {
    let (drive, timeline) = recorded("mqsim-default", 70, 3000);
    let stats = drive.stats(Nanos(1 << 40));
    let busy_ns = |part: &str| -> u64 {
        let spans = spans(&timeline, part);
        spans.iter().map(|(start, end)| end - start).sum()
    };
    for (channel, counted) in stats.channels.iter().enumerate() {
        assert_eq!(busy_ns(&format!("channel {channel}")), counted.bus_busy_ns);
    }
    // A die's count has the array's work in progress too; nothing stops it here.
    let counted: u64 = stats.dies.iter().map(|die| die.busy_ns).sum();
    let dies = timeline.parts.iter().filter(|part| part.within.is_some());
    let seen: u64 = dies.map(|die| busy_ns(&die.name)).sum();
    assert!(
        seen <= counted && seen as f64 > counted as f64 * 0.95,
        "{seen} of {counted}"
    );
}

/// The commands that some kind of work was done for.
fn commands(timeline: &DriveTimeline, work: DriveWork) -> HashSet<u32> {
    let own = timeline.activities.iter().filter(|a| a.work == work);
    own.flat_map(|a| timeline.commands_of(a)).copied().collect()
}

#[test]
fn every_command_is_seen() {
    let (_, timeline) = recorded("mqsim-ideal", 100, 1000);
    for work in [DriveWork::Sense, DriveWork::DataOut] {
        assert_eq!(commands(&timeline, work), (0..1000).collect(), "{work:?}");
    }
    // Writes end in the cache; those whose page was programmed are seen there,
    // and on the bus before, all planes of a command.
    let (_, timeline) = recorded("mqsim-ideal", 0, 4000);
    let programmed = commands(&timeline, DriveWork::Program);
    assert!(programmed.len() > 1000, "{}", programmed.len());
    assert!(programmed.is_subset(&commands(&timeline, DriveWork::DataIn)));
}

#[test]
fn a_disks_buffered_writes_are_seen_when_they_are_written_out() {
    let (drive, timeline) = recorded("hdd-7200", 0, 1000);
    let written = commands(&timeline, DriveWork::Transfer);
    let arm = drive.stats(Nanos(1 << 50)).arm.expect("a disk");
    assert!(arm.destages > 500, "{}", arm.destages);
    assert!(written.len() as u64 >= arm.destages, "{}", written.len());
}

#[test]
fn recording_changes_nothing() {
    let (drive, _) = recorded("mx100-256", 50, 3000);
    let spec = registry::find("mx100-256")
        .expect("listed")
        .expect("parses");
    let mut plain = spec.build(1);
    let work = crate::harness::RandomWork {
        requests: 3000,
        depth: 32,
        read_percent: 50,
        bytes: 4096,
        share: 0.5,
        seed: 7,
        sequential: false,
    };
    closed_loop(plain.as_mut(), &work);
    assert_eq!(drive.stats(Nanos(1 << 40)), plain.stats(Nanos(1 << 40)));
}
