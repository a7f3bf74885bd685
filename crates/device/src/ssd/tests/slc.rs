//! The SLC cache: times of commands, the cliff when it is full, and folding while idle.

use blklab_blk::{Nanos, Op};

use crate::ssd::Ssd;
use crate::ssd::tests::{command, overwrite, small};
use crate::{CommandStatus, Completion, Device};

/// Times of `small`'s drive around the array: doorbell, firmware, and status.
const AROUND_NS: u64 = 100 + 1000 + 100;
/// 4 KiB over the link at 3000 MB/s, and over the channel at 800 MB/s.
const LINK_NS: u64 = 1364;
const CHANNEL_NS: u64 = 5120;
const SLC_READ_NS: u64 = 20_000;
const SLC_PROGRAM_NS: u64 = 100_000;
const TLC_READ_NS: u64 = 60_000;
const TLC_PROGRAM_NS: u64 = 700_000;
/// Two channels of a die of two planes.
const PLANES: u64 = 4;
/// Pages of a block of 63 at one bit a cell.
const SLC_PAGES: u64 = 21;

/// A TLC drive without a write cache, with `slc` as its table.
fn drive(state: &str, slc: &str) -> Ssd {
    drive_of(state, slc, &[])
}

fn drive_of(state: &str, slc: &str, changes: &[(&str, &str)]) -> Ssd {
    let table = format!(
        "[slc_cache]\nread_us = 20\nprogram_us = 100\n{slc}\n[write_cache]\nenabled = false"
    );
    let state = format!("state = \"{state}\"");
    let mut all = vec![
        ("state = \"filled\"", state.as_str()),
        ("cell = \"slc\"", "cell = \"tlc\""),
        ("read_us = 10", "read_us = 60"),
        ("program_us = 50", "program_us = 700"),
        ("pages_per_block = 64", "pages_per_block = 63"),
        ("blocks_per_plane = 112", "blocks_per_plane = 128"),
        ("[write_cache]\nenabled = true", &table),
    ];
    all.extend(changes);
    Ssd::new(small(&all), 1)
}

/// One command of a page alone on the drive; how long it took.
fn one(drive: &mut Ssd, now: &mut Nanos, op: Op, page: u64) -> u64 {
    let since = *now;
    drive.submit(since, command(0, op, page, 1));
    let mut done: Vec<Completion> = Vec::new();
    *now = drive.advance_to_completion(Nanos::MAX, &mut done);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].status, CommandStatus::Ok);
    (done[0].at - since).0
}

#[test]
fn a_write_and_a_read_take_the_times_of_one_bit_a_cell() {
    let mut drive = drive("filled", "static_mb = 2\nwhen_full = \"direct\"");
    let now = &mut Nanos(0);
    let before = one(&mut drive, now, Op::Read, 0);
    assert_eq!(before, AROUND_NS + 290 + TLC_READ_NS + CHANNEL_NS + LINK_NS);
    let write = one(&mut drive, now, Op::Write, 0);
    assert_eq!(
        write,
        AROUND_NS + LINK_NS + 361 + CHANNEL_NS + SLC_PROGRAM_NS
    );
    let after = one(&mut drive, now, Op::Read, 0);
    assert_eq!(before - after, TLC_READ_NS - SLC_READ_NS);
    let stats = drive.stats(Nanos(1 << 51)).slc;
    assert_eq!(
        (stats.sectors_written, stats.sectors_past, stats.pages_read),
        (8, 0, 1)
    );
}

#[test]
fn the_cliff_is_where_the_cache_ends() {
    // Two static and three dynamic blocks a plane.
    let slc = "static_mb = 0.5\ndynamic_mb = 1\nwhen_full = \"direct\"";
    let room = PLANES * SLC_PAGES * 5;
    let mut drive = drive("fresh", slc);
    let now = &mut Nanos(0);
    let cached = AROUND_NS + LINK_NS + 361 + CHANNEL_NS + SLC_PROGRAM_NS;
    for page in 0..room {
        assert_eq!(one(&mut drive, now, Op::Write, page), cached, "page {page}");
    }
    for page in room..room + 40 {
        let took = one(&mut drive, now, Op::Write, page);
        assert_eq!(
            took,
            cached + TLC_PROGRAM_NS - SLC_PROGRAM_NS,
            "page {page}"
        );
    }
    let stats = drive.stats(Nanos(1 << 51)).slc;
    assert_eq!(stats.sectors_written, room * 8);
    assert_eq!(stats.sectors_past, 40 * 8);
}

#[test]
fn silence_empties_the_cache() {
    let slc = "static_mb = 0.5\nwhen_full = \"direct\"\nfold_after_us = 1000";
    let mut drive = drive("fresh", slc);
    let room = PLANES * SLC_PAGES * 2;
    let now = &mut Nanos(0);
    for page in 0..room + 4 {
        one(&mut drive, now, Op::Write, page);
    }
    assert_eq!(
        drive.stats(Nanos(1 << 51)).slc.blocks_folded,
        0,
        "the host was never silent"
    );
    let mut done = Vec::new();
    *now = Nanos(now.0 + 1_000_000);
    drive.advance(Nanos(now.0 - 1), &mut done);
    assert_eq!(
        drive.stats(Nanos(1 << 51)).flash_reads,
        0,
        "a nanosecond too early"
    );
    drive.advance(Nanos(1 << 50), &mut done);
    *now = Nanos(1 << 50);
    let stats = drive.stats(Nanos(1 << 51));
    assert_eq!(stats.slc.blocks_folded, PLANES * 2);
    assert_eq!(stats.slc.sectors_folded, room * 8);
    assert_eq!(stats.collection.blocks, 0, "that is no garbage collection");
    // All that was in the cache was programmed twice.
    assert_eq!(stats.flash_programs, 2 * room + 4);
    assert_eq!(
        one(&mut drive, now, Op::Read, 0),
        AROUND_NS + 290 + TLC_READ_NS + CHANNEL_NS + LINK_NS
    );
    let again = one(&mut drive, now, Op::Write, 0);
    assert_eq!(
        again,
        AROUND_NS + LINK_NS + 361 + CHANNEL_NS + SLC_PROGRAM_NS
    );
    drive.check_at_rest();
}

/// A fold that was interrupted by a loss of power continues with the same block, and no data
/// is lost.
#[test]
fn a_fold_that_loses_power_goes_on_with_the_oldest_block() {
    let slc = "static_mb = 0.5\nwhen_full = \"direct\"\nfold_after_us = 1000";
    let mut drive = drive("fresh", slc);
    let now = &mut Nanos(0);
    let room = PLANES * SLC_PAGES * 2;
    for page in 0..room {
        one(&mut drive, now, Op::Write, page);
    }
    let oldest = |drive: &Ssd| {
        let slc = drive.controller.media.ftl.slc().expect("it has a cache");
        [0, 1, 2, 3].map(|plane| slc.oldest(plane).expect("full blocks"))
    };
    let before = oldest(&drive);
    // Some pages have been moved, and no block is empty.
    *now = Nanos(now.0 + 1_000_000 + 5 * TLC_PROGRAM_NS);
    drive.advance(*now, &mut Vec::new());
    assert_ne!(oldest(&drive), before, "nothing is being folded");
    assert!(drive.stats(*now).slc.sectors_folded > 0);
    *now = drive.power_loss(*now);
    assert_eq!(oldest(&drive), before);
    drive.check_at_rest();
    drive.advance(Nanos(1 << 50), &mut Vec::new());
    let stats = drive.stats(Nanos(1 << 51));
    assert_eq!(stats.slc.blocks_folded, PLANES * 2);
    drive.check_at_rest();
    // What was moved twice has filled places of the multi-level block twice.
    assert!(stats.slc.sectors_folded > room * 8, "{:?}", stats.slc);
    *now = Nanos(1 << 50);
    let read = one(&mut drive, now, Op::Read, 0);
    assert_eq!(read, AROUND_NS + 290 + TLC_READ_NS + CHANNEL_NS + LINK_NS);
}

/// Data in the cache at the start is the youngest, so first-in first-out collection comes
/// to it last.
#[test]
fn cached_data_is_the_youngest_at_the_start() {
    let slc = "dynamic_mb = 1\nwhen_full = \"direct\"\nfilled = 1.0";
    let drive = drive("filled", slc);
    let filled = &drive.controller.media.ftl.blocks().filled;
    for plane in 0..PLANES as u32 {
        let blocks = drive.controller.media.ftl.plane_blocks(plane);
        let written = blocks.filter(|block| drive.controller.media.ftl.is_written(*block));
        let (cached, others): (Vec<u32>, Vec<u32>) =
            written.partition(|b| drive.controller.media.ftl.is_slc(*b));
        let youngest = others.iter().map(|block| filled[*block as usize]).max();
        assert!(!cached.is_empty());
        assert!(
            cached
                .iter()
                .all(|block| Some(filled[*block as usize]) > youngest)
        );
    }
}

#[test]
fn writes_can_wait_for_a_fold_instead() {
    let mut drive = drive("filled", "static_mb = 0.5\nwhen_full = \"wait\"");
    overwrite(&mut drive, 20_000, 5);
    let stats = drive.stats(Nanos(1 << 51));
    assert_eq!(stats.slc.sectors_past, 0);
    assert_eq!(stats.slc.sectors_written, 20_000 * 8);
    assert!(stats.collection.writes_stalled > 0 && stats.slc.blocks_folded > 900);
    drive.check_at_rest();
}

/// A plane without room does not stop writes to other planes, so that many planes are folded
/// at once under static allocation as under dynamic.
#[test]
fn folds_of_many_planes_are_under_way_at_once() {
    let took_ns = |allocation: &str| {
        let order = format!("allocation = \"{allocation}\"\norder =");
        let slc = "static_mb = 0.5\nwhen_full = \"wait\"";
        let mut drive = drive_of("filled", slc, &[("order =", &order)]);
        overwrite(&mut drive, 10_000, 5);
        drive.check_at_rest();
        drive.controller.gc.host_ns() % (1 << 40)
    };
    let (fixed, free) = (took_ns("static"), took_ns("next_free"));
    assert!(fixed < free * 3 / 2, "{fixed} ns, {free} with next_free");
}

/// Folding begins ahead of need: with a single write in flight planes would otherwise be
/// folded one after the other.
#[test]
fn folds_begin_before_anybody_waits() {
    let slc = "static_mb = 0.5\nwhen_full = \"wait\"";
    let mut drive = drive_of("filled", slc, &[("enabled = false", "enabled = true")]);
    let mut rng = crate::Rng::new(3);
    let now = &mut Nanos(0);
    for _ in 0..4_000 {
        let page = rng.below(24_000) as u64;
        one(&mut drive, now, Op::Write, page);
    }
    let stats = drive.stats(*now).slc;
    assert_eq!((stats.sectors_written, stats.sectors_past), (32_000, 0));
    // Of two dies each could not do more than a half, one after the other.
    let pages = stats.sectors_folded / 8;
    assert!(
        now.0 < pages * TLC_PROGRAM_NS * 2 / 3,
        "{now:?} for {pages} pages"
    );
}

/// The first write that finds the cache full has all planes folded at once, not only its own.
#[test]
fn a_write_that_waits_has_all_planes_folded() {
    let slc = "static_mb = 0.5\nwhen_full = \"wait\"\nfilled = 1.0";
    let mut drive = drive("filled", slc);
    let folds = |drive: &Ssd| {
        let jobs = drive.controller.gc.jobs().iter();
        jobs.filter(|job| job.slc).count() as u64
    };
    drive.submit(Nanos(0), command(0, Op::Write, 0, 1));
    let mut done = Vec::new();
    while folds(&drive) == 0 {
        assert!(drive.next_event() < Nanos::MAX, "it hangs");
        drive.advance(drive.next_event(), &mut done);
    }
    assert_eq!((folds(&drive), done.len()), (PLANES, 0));
}

#[test]
fn a_full_drive_has_no_room_for_dynamic_blocks() {
    let slc = "dynamic_mb = 4\nwhen_full = \"wait\"";
    let mut fresh = drive("fresh", slc);
    let mut aged = drive("aged\"\naged = { occupancy = 1.0 }\n#", slc);
    for drive in [&mut fresh, &mut aged] {
        overwrite(drive, 400, 2);
    }
    assert_eq!(fresh.stats(Nanos(1 << 51)).slc.sectors_past, 0);
    assert_eq!(aged.stats(Nanos(1 << 51)).slc.sectors_written, 0);
}

#[test]
fn a_cache_that_was_filled_has_no_room() {
    let slc = "static_mb = 2\nwhen_full = \"direct\"\nfilled = 1.0";
    let mut drive = drive("aged\"\naged = { occupancy = 1.0 }\n#", slc);
    drive.check_at_rest();
    overwrite(&mut drive, 2_000, 2);
    let stats = drive.stats(Nanos(1 << 51)).slc;
    assert_eq!((stats.sectors_written, stats.sectors_past), (0, 16_000));
}

#[test]
fn every_slot_is_valid_once_with_a_cache() {
    for slc in [
        "static_mb = 1\ndynamic_mb = 8\nwhen_full = \"direct\"\nfold_after_us = 100",
        "dynamic_mb = 8\nwhen_full = \"wait\"",
        "static_mb = 1\ndynamic_mb = 2\nwhen_full = \"wait\"\nfold_after_us = 5000\nfilled = 0.5",
    ] {
        let mut drive = drive("filled", slc);
        drive.check_at_rest();
        for round in 0..3 {
            overwrite(&mut drive, 40_000, round);
            drive.check_at_rest();
        }
        let stats = drive.stats(Nanos(1 << 51));
        assert!(stats.slc.blocks_folded > 100, "{slc}: {:?}", stats.slc);
        assert!(
            stats.collection.blocks > 100,
            "{slc}: {:?}",
            stats.collection
        );
    }
}
