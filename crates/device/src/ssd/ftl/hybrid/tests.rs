//! Which merges a pattern of writes needs, and what each copies.

use blklab_blk::{Nanos, Op, Sector};
use blklab_stats::{DeviceStats, DriveTimeline, DriveWork, MergeStats};

use crate::ssd::Ssd;
use crate::ssd::tests::{FEWER_BLOCKS, PAGES_16K, overwrite, small};
use crate::{Command, CommandStatus, Completion, Device};

/// Pages of a block.
const PAGES: u64 = 64;
/// Two channels of a die of two planes; pages go over all planes in turn.
const PLANES: u64 = 4;

/// A filled drive of 96 logical blocks a plane.
fn drive(sequential: u32, random: u32, changes: &[(&str, &str)]) -> Ssd {
    let logs =
        format!("depth = 8\n[hybrid]\nsequential_logs = {sequential}\nrandom_logs = {random}");
    let mut all = vec![
        ("order =", "mapping = \"hybrid\"\norder ="),
        (
            "policy = \"greedy\"\nstart_blocks = 4\ndepth = 8",
            logs.as_str(),
        ),
        (
            "[write_cache]\nenabled = true",
            "[write_cache]\nenabled = false",
        ),
    ];
    all.extend(changes);
    Ssd::new(small(&all), 1)
}

/// The page of the address space at a place of plane 0.
fn page(logical: u64, offset: u64) -> u64 {
    (logical * PAGES + offset) * PLANES
}

/// Carries out a command of some pages alone on the drive.
fn one(drive: &mut Ssd, op: Op, page: u64, pages: u64) {
    let command = Command {
        tag: 0,
        queue: 0,
        op,
        sector: Sector(page * 8),
        sectors: pages as u32 * 8,
        fua: false,
    };
    drive.submit(Nanos(drive.controller.gc.host_ns() + 1_000), command);
    let mut done: Vec<Completion> = Vec::new();
    while done.is_empty() {
        assert!(drive.advance_to_completion(Nanos::MAX, &mut done) < Nanos::MAX);
    }
    assert_eq!(done[0].status, CommandStatus::Ok);
}

/// What was counted once the drive is at rest.
fn at_rest(drive: &mut Ssd) -> DeviceStats {
    drive.advance(Nanos(1 << 50), &mut Vec::new());
    drive.check_at_rest();
    drive.stats(Nanos(1 << 50))
}

fn merges(stats: &DeviceStats) -> (u64, u64, u64) {
    let MergeStats {
        switched,
        partial,
        full,
        ..
    } = stats.merges;
    (switched, partial, full)
}

/// Every slot of the address space has a place of its own, and places behind its end have none,
/// be it within a page or a block.
#[test]
fn the_address_space_ends_with_its_last_slot() {
    // A page of four slots has one of them.
    let more = ("capacity_bytes = 100663296", "capacity_bytes = 100667392");
    let drive = drive(1, 1, &[PAGES_16K, FEWER_BLOCKS, more]);
    let ftl = &drive.controller.media.ftl;
    let slots = drive.controller.media.spec.logical_slots() as u32;
    assert_eq!(slots % 4, 1);
    for slot in 0..slots {
        assert_eq!(ftl.slot_of(ftl.logical_place(slot)), Some(slot));
    }
    for slot in slots..slots + 1_000 {
        assert_eq!(ftl.slot_of(ftl.logical_place(slot)), None, "{slot}");
    }
}

#[test]
fn what_is_written_in_order_becomes_the_data_as_it_is() {
    let mut drive = drive(1, 1, &[]);
    let pages = drive.controller.media.spec.logical_slots();
    for first in (0..pages).step_by(64) {
        one(&mut drive, Op::Write, first, 64);
    }
    let stats = at_rest(&mut drive);
    assert_eq!(merges(&stats), (pages / PAGES, 0, 0));
    assert_eq!(stats.flash_programs, pages);
    assert_eq!((stats.flash_reads, stats.flash_erases), (0, pages / PAGES));
}

#[test]
fn a_begun_block_takes_the_rest_from_the_old_one() {
    let mut drive = drive(1, 1, &[]);
    for offset in 0..10 {
        one(&mut drive, Op::Write, page(3, offset), 1);
    }
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 0));
    // The only sequential log is needed for another block.
    one(&mut drive, Op::Write, page(5, 0), 1);
    let stats = at_rest(&mut drive);
    assert_eq!(merges(&stats), (0, 1, 0));
    assert_eq!(stats.flash_reads, PAGES - 10);
    assert_eq!(stats.flash_programs, 11 + PAGES - 10);
    assert_eq!(stats.merges.sectors_moved, (PAGES - 10) * 8);
    assert_eq!(stats.flash_erases, 1);
}

#[test]
fn several_sequential_logs_keep_several_blocks_open() {
    // With one log, the second stream's first page pushes the first one out,
    // whose later pages fit nowhere and go to the random log.
    for (logs, partial) in [(1, 1), (2, 0)] {
        let mut drive = drive(logs, 1, &[]);
        for offset in 0..6 {
            one(&mut drive, Op::Write, page(3, offset), 1);
            one(&mut drive, Op::Write, page(50, offset), 1);
        }
        assert_eq!(merges(&at_rest(&mut drive)), (0, partial, 0));
    }
}

#[test]
fn a_full_random_log_is_merged_with_every_block_it_has_pages_of() {
    let mut drive = drive(1, 1, &[]);
    // Sixteen blocks, four pages each: the log is full.
    for place in 0..PAGES {
        one(&mut drive, Op::Write, page(place % 16, 10 + place / 16), 1);
    }
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 0));
    one(&mut drive, Op::Write, page(20, 7), 1);
    let stats = at_rest(&mut drive);
    assert_eq!(merges(&stats), (0, 0, 16));
    assert_eq!(stats.flash_reads, 16 * PAGES);
    assert_eq!(stats.flash_programs, PAGES + 1 + 16 * PAGES);
    // Sixteen old data blocks, and the log.
    assert_eq!(stats.flash_erases, 17);
    assert!(stats.collection.writes_stalled > 0, "the host has to wait");
}

/// A merge in one plane does not stop writes to others.
#[test]
fn planes_are_merged_at_once() {
    let mut drive = drive(1, 2, &[]);
    overwrite(&mut drive, 4_000, 3);
    let took_ns = drive.controller.gc.host_ns() % (1 << 40);
    let stats = at_rest(&mut drive);
    assert!(stats.merges.full > 100, "{:?}", stats.merges);
    let merging_ns = stats.merges.busy_ns;
    assert!(
        merging_ns > took_ns * 5 / 4,
        "{merging_ns} ns in {took_ns} ns"
    );
}

/// Logs with the pages of this many blocks.
fn associative(random: u32, most: u32) -> Ssd {
    let limit = format!("[hybrid]\nassociativity = {most}");
    drive(1, random, &[("[hybrid]", &limit)])
}

#[test]
fn a_log_of_two_blocks_is_merged_with_two() {
    for (most, full) in [(1, 1), (2, 2), (3, 3)] {
        let mut drive = associative(4, most);
        // As many blocks as the logs take, by turns: nothing to merge until a
        // block comes that no log has room for.
        let blocks = 4 * most as u64;
        for place in 0..blocks * 3 {
            one(
                &mut drive,
                Op::Write,
                page(place % blocks, 10 + place / blocks),
                1,
            );
        }
        assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 0));
        one(&mut drive, Op::Write, page(50, 7), 1);
        let stats = at_rest(&mut drive);
        assert_eq!(merges(&stats), (0, 0, full));
        assert_eq!(stats.flash_reads, full * PAGES);
        assert_eq!(stats.flash_erases, full + 1);
        drive.controller.media.ftl.check_logs();
    }
}

/// A log goes on where it was left, and the one used longest ago makes room.
#[test]
fn logs_are_filled_by_turns() {
    let mut drive = associative(2, 1);
    for place in 0..PAGES {
        one(&mut drive, Op::Write, page(place % 2, 8 + place / 2), 1);
    }
    one(&mut drive, Op::Write, page(0, 50), 1);
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 0));
    one(&mut drive, Op::Write, page(9, 50), 1);
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 1));
    // Block 0 has its log still, with 31 pages to go.
    for _ in 0..PAGES / 2 - 1 {
        one(&mut drive, Op::Write, page(0, 51), 1);
    }
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 1));
    one(&mut drive, Op::Write, page(0, 51), 1);
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 2));
}

/// No write waits for more than the merges of one log.
#[test]
fn associativity_bounds_the_longest_write() {
    let longest_ns = |drive: &mut Ssd| {
        let blocks = 96;
        let mut longest_ns = 0;
        for place in 0..1000 {
            let began_ns = drive.controller.gc.host_ns();
            one(
                drive,
                Op::Write,
                page(place * 37 % blocks, 1 + place * 11 % 60),
                1,
            );
            longest_ns = longest_ns.max(drive.controller.gc.host_ns() - began_ns);
        }
        longest_ns as f64
    };
    let any = longest_ns(&mut drive(1, 2, &[]));
    let [one, two] = [1, 2].map(|most| longest_ns(&mut associative(2, most)));
    assert!((1.5..2.5).contains(&(two / one)), "{one} {two}");
    assert!(any / one > 20.0, "{one} {any}");
}

#[test]
fn a_log_of_one_page_over_and_over_costs_one_merge() {
    let mut drive = drive(1, 2, &[]);
    for _ in 0..PAGES * 2 {
        one(&mut drive, Op::Write, page(9, 30), 1);
    }
    one(&mut drive, Op::Write, page(9, 30), 1);
    // All of the oldest log was overwritten: it is only erased.
    let stats = at_rest(&mut drive);
    assert_eq!(merges(&stats), (0, 0, 0));
    assert_eq!((stats.flash_erases, stats.flash_reads), (1, 0));
}

#[test]
fn what_was_discarded_is_not_copied() {
    let mut drive = drive(1, 1, &[]);
    for offset in 0..PAGES {
        one(&mut drive, Op::Discard, page(3, offset), 1);
    }
    for offset in 0..10 {
        one(&mut drive, Op::Write, page(3, offset), 1);
    }
    one(&mut drive, Op::Write, page(5, 0), 1);
    let stats = at_rest(&mut drive);
    assert_eq!(merges(&stats), (1, 0, 0));
    assert_eq!((stats.flash_reads, stats.flash_programs), (0, 11));
    // And its block goes on where it ends, without any log to merge.
    one(&mut drive, Op::Write, page(3, 10), 1);
    let stats = at_rest(&mut drive);
    assert_eq!(merges(&stats), (1, 1, 0));
    assert_eq!(stats.flash_programs, 12 + PAGES - 1);
}

#[test]
fn an_empty_drive_merges_what_was_written_out_of_order() {
    let fresh = ("state = \"filled\"", "state = \"fresh\"");
    let mut drive = drive(1, 1, &[fresh]);
    // From behind: nothing of it is in order.
    for place in (0..PAGES).rev() {
        one(&mut drive, Op::Write, page(2, place), 1);
    }
    // The last one, of offset 0, began a sequential log. One more page fills
    // the random log, and another wants it merged.
    one(&mut drive, Op::Write, page(7, 6), 1);
    one(&mut drive, Op::Write, page(8, 5), 1);
    let stats = at_rest(&mut drive);
    // The log of a page becomes the data block, then all pages come together.
    assert_eq!(merges(&stats), (1, 0, 2));
    assert_eq!(stats.merges.pages_padded, 6);
    assert_eq!(stats.flash_programs, PAGES + 2 + PAGES + 7);
    assert_eq!(stats.flash_erases, 2);
}

#[test]
fn what_lies_before_the_first_page_is_padded() {
    let fresh = ("state = \"filled\"", "state = \"fresh\"");
    let mut drive = drive(1, 1, &[fresh]);
    for _ in 0..PAGES {
        one(&mut drive, Op::Write, page(2, 40), 1);
    }
    one(&mut drive, Op::Write, page(3, 40), 1);
    let stats = at_rest(&mut drive);
    assert_eq!(merges(&stats), (0, 0, 1));
    assert_eq!(stats.merges.pages_padded, 40);
    assert_eq!(stats.flash_programs, PAGES + 1 + 41);
}

/// Random overwriting moves a whole block for nearly every page, as the paper
/// measures: the log has room for 64 pages, which are of 47 of the 96 logical
/// blocks in the mean (96 * (1 - (95/96)^64)).
#[test]
fn random_writes_amplify_as_blocks_over_logs_say() {
    let mut drive = drive(1, 1, &[]);
    overwrite(&mut drive, 20_000, 3);
    let stats = drive.stats(Nanos(1 << 50));
    drive.check_at_rest();
    let amplification = stats.write_amplification().expect("written");
    let blocks = 96.0 * (1.0 - (95.0f64 / 96.0).powi(64));
    println!("{amplification:.2}, {blocks:.1} blocks a log");
    assert!((0.93..1.07).contains(&(amplification / (1.0 + blocks))));
}

#[test]
fn simulated_ageing_leaves_logs_full_of_pages() {
    let aged = (
        "state = \"filled\"",
        "state = \"aged\"\naged = { occupancy = 1.0, simulate = true }",
    );
    let mut old = drive(2, 3, &[aged]);
    old.check_at_rest();
    let mut young = drive(2, 3, &[]);
    let amplification = |drive: &mut Ssd| {
        overwrite(drive, 10_000, 7);
        drive
            .stats(Nanos(1 << 50))
            .write_amplification()
            .expect("written")
    };
    // A filled drive takes three logs' worth for nothing first.
    let (old, young) = (amplification(&mut old), amplification(&mut young));
    let free = 1.0 - (3 * 64 * 4) as f64 / 10_000.0;
    println!("{old:.2} aged, {young:.2} filled");
    assert!((0.95..1.05).contains(&(young / old / free)));
}

/// Whoever writes a logical block from its start again has its sequential log merged; what comes
/// out of order goes to the random log and leaves the sequential log as it is.
#[test]
fn a_block_begun_anew_ends_its_sequential_log() {
    let mut again = drive(2, 1, &[]);
    for offset in (0..6).chain(0..6) {
        one(&mut again, Op::Write, page(3, offset), 1);
    }
    let stats = at_rest(&mut again);
    assert_eq!(merges(&stats), (0, 1, 0));
    assert_eq!(stats.merges.sectors_moved, (PAGES - 6) * 8);
    let mut elsewhere = drive(2, 1, &[]);
    for offset in [0, 1, 2, 9, 1, 40, 3, 4, 5] {
        one(&mut elsewhere, Op::Write, page(3, offset), 1);
    }
    // Its rest completes the log, which takes what the random log has as well.
    assert_eq!(merges(&at_rest(&mut elsewhere)), (0, 0, 0));
    for offset in 6..PAGES {
        one(&mut elsewhere, Op::Write, page(3, offset), 1);
    }
    let stats = at_rest(&mut elsewhere);
    assert_eq!(merges(&stats), (1, 0, 0));
    assert_eq!(stats.flash_programs, PAGES + 3);
    assert_eq!(stats.flash_reads, 0);
}

#[test]
fn every_plane_has_its_random_logs() {
    for random in [1, 4] {
        let logs = drive(1, random, &[]).controller.media.ftl.all_random_logs();
        assert_eq!(logs, u64::from(random) * PLANES);
    }
}

/// A merged page is programmed when all pages that hold its units have been read, even where the
/// flash would start the program between two of the reads.
#[test]
fn a_merged_page_is_programmed_after_all_its_reads() {
    let mut drive = drive(
        1,
        1,
        &[
            PAGES_16K,
            FEWER_BLOCKS,
            ("multi_plane = \"any\"", "multi_plane = \"none\""),
            ("\"read_priority\"", "\"read_priority\"\nreads_in_a_row = 1"),
            ("depth = 8\n[hybrid]", "depth = 1\n[hybrid]"),
        ],
    );
    // The units of a page of plane 0.
    let unit = |place: u64, number: u64| place * PLANES * 4 + number;
    // Each write takes a page of the log. The first sixteen are overwritten by the last.
    for number in [1, 2, 3, 1] {
        for place in 0..PAGES / 4 {
            one(&mut drive, Op::Write, unit(place, number), 1);
        }
    }
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 0));
    drive.record(true);
    one(&mut drive, Op::Write, unit(10 * PAGES, 1), 1);
    assert_eq!(merges(&at_rest(&mut drive)), (0, 0, 1));
    let mut timeline = DriveTimeline::default();
    drive.take_record(&mut timeline);
    let works = timeline.activities.iter().map(|activity| activity.work);
    let works = works.filter(|work| matches!(work, DriveWork::Sense | DriveWork::Program));
    let works: Vec<DriveWork> = works.collect();
    // Unit 0 of these pages is in the data block, and the others are in three pages of the log.
    let apart = [[DriveWork::Sense; 4].as_slice(), &[DriveWork::Program]].concat();
    let whole = [DriveWork::Sense, DriveWork::Program];
    let expected = [apart.repeat(16), whole.repeat(48)].concat();
    assert_eq!(works[..expected.len()], expected);
}
