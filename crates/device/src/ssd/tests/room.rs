//! Dynamic allocation, throttling by collection, and drives without room.

use blklab_blk::{Nanos, Op};

use crate::ssd::spec::Layout;
use crate::ssd::tests::{FEWER_BLOCKS, PAGES_16K, command, overwrite, overwrite_drawn, small};
use crate::ssd::{Ssd, SsdSpec};
use crate::{Command, CommandStatus, Completion, Device};

/// Submits a command to an idle drive and waits for its end.
fn one(drive: &mut Ssd, now: &mut Nanos, command: Command) -> CommandStatus {
    let mut done: Vec<Completion> = Vec::new();
    drive.submit(*now, command);
    while done.is_empty() {
        let reached = drive.advance_to_completion(Nanos::MAX, &mut done);
        assert!(reached < Nanos::MAX, "it hangs");
        *now = reached;
    }
    done[0].status
}

/// When the last of `count` writes that all have their home in plane 0 is on
/// the flash.
fn time_of_writes_for_one_plane(allocation: &str, count: u64) -> u64 {
    let spec = small(&[
        (
            "layout =",
            &format!("allocation = \"{allocation}\"\nlayout ="),
        ),
        ("enabled = true", "enabled = false"),
        ("state = \"filled\"", "state = \"fresh\""),
    ]);
    let planes = spec.geometry.planes() as u64;
    let mut drive = Ssd::new(spec, 1);
    for write in 0..count {
        let write = command(write as u32, Op::Write, write * planes, 1);
        drive.submit(Nanos(0), write);
    }
    let mut done = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    assert_eq!(done.len() as u64, count);
    done.last().expect("some").at.0
}

/// Two dies of two planes: what static allocation serialises on one plane goes
/// to four under dynamic allocation. A program takes 50 us.
#[test]
fn dynamic_allocation_goes_where_nothing_is_going_on() {
    let fixed = time_of_writes_for_one_plane("static", 400);
    assert!(fixed > 400 * 50_000, "one after the other: {fixed}");
    for allocation in ["next_free", "least_loaded"] {
        let free = time_of_writes_for_one_plane(allocation, 400);
        // Two dies at least; planes of a die as far as they start together.
        assert!(free * 19 < fixed * 10, "{allocation}: {free} of {fixed}");
    }
}

/// A drive that shows the host more than its flash can hold and still collect,
/// which no description may do.
fn overfull(allocation: &str) -> SsdSpec {
    let mut spec = small(&[
        PAGES_16K,
        FEWER_BLOCKS,
        (
            "layout =",
            &format!("allocation = \"{allocation}\"\nlayout ="),
        ),
        ("state = \"filled\"", "state = \"fresh\""),
    ]);
    let page_sectors = spec.geometry.page_bytes as u64 / 512;
    spec.identity.capacity_sectors =
        spec.geometry.blocks() * spec.geometry.pages_per_block as u64 * page_sectors;
    spec
}

#[test]
fn a_drive_too_full_to_collect_says_so_and_takes_discards() {
    for allocation in ["static", "next_free", "least_loaded"] {
        let mut drive = Ssd::new(overfull(allocation), 1);
        let slots = drive.controller.media.spec.logical_slots();
        let mut now = Nanos::ZERO;
        let chunk = 16;
        let mut refused = 0;
        for (tag, slot) in (0..slots).step_by(chunk).enumerate() {
            let write = command(tag as u32, Op::Write, slot, chunk as u32);
            refused += (one(&mut drive, &mut now, write) == CommandStatus::NoSpace) as u64;
        }
        assert!(refused > 0, "{allocation}: all of it fitted");
        // No more than the reserve and what is needed to collect is refused.
        let blocks = (drive.controller.media.spec.gc.start_blocks + 2) as u64
            * drive.controller.media.spec.geometry.planes() as u64;
        let most = blocks * drive.controller.media.ftl.slots_per_block() as u64 / chunk as u64;
        assert!(refused <= most, "{allocation}: {refused} refused");
        drive.check_at_rest();
        let too_full = drive.stats(now).too_full.expect("it refused writes");
        assert_eq!(too_full.writes, refused, "{allocation}");
        assert!(
            too_full.first_ns > 0 && too_full.first_ns < now.0,
            "{too_full:?}"
        );
        let data_sectors = too_full.data_blocks as u64 * too_full.block_sectors;
        let free_sectors = data_sectors - too_full.valid_sectors;
        let spare_sectors = too_full.spare_blocks as u64 * too_full.block_sectors;
        assert!(free_sectors <= spare_sectors, "{allocation}: {too_full:?}");
        drive.reset_stats(now);
        assert_eq!(
            drive.stats(now).too_full,
            Some(too_full),
            "it is too_full once"
        );
        // Reads go on, and a discard makes room.
        assert_eq!(
            one(&mut drive, &mut now, command(0, Op::Read, 0, 1)),
            CommandStatus::Ok
        );
        let half = command(0, Op::Discard, 0, (slots / 2) as u32);
        assert_eq!(one(&mut drive, &mut now, half), CommandStatus::Ok);
        for (tag, slot) in (0..slots / 4).step_by(chunk).enumerate() {
            let write = command(tag as u32, Op::Write, slot, chunk as u32);
            assert_eq!(
                one(&mut drive, &mut now, write),
                CommandStatus::Ok,
                "{allocation}"
            );
        }
    }
}

/// Whether the page that has a slot's newest data takes further slots.
fn is_open(drive: &Ssd, slot: u64) -> bool {
    let ftl = &drive.controller.media.ftl;
    ftl.open_page_of(slot as u32).is_some()
}

/// Each channel holds a range of addresses.
const RANGES: (&str, &str) = (
    "layout = \"striped\"",
    "allocation = \"next_free\"\nlayout = \"ranges\"",
);

/// A page of another range is not programmed partly empty because writes wait for collection.
#[test]
fn a_wait_for_collection_leaves_pages_open() {
    let mut drive = Ssd::new(small(&[PAGES_16K, FEWER_BLOCKS, RANGES]), 1);
    let slots = drive.controller.media.spec.logical_slots();
    let last = slots - 1;
    one(&mut drive, &mut Nanos(1), command(0, Op::Write, last, 1));
    overwrite_drawn(&mut drive, 20_000, 1, |rng| rng.below(slots as u32 / 2));
    let now = crate::ssd::tests::after_rest(&drive);
    assert!(drive.stats(now).collection.writes_stalled > 0);
    assert!(is_open(&drive, last));
}

/// Where nothing can be collected, what the data in DRAM replaces may be all that keeps blocks from
/// being erased.
#[test]
fn what_is_in_dram_is_programmed_before_a_write_is_refused() {
    let mut spec = overfull("next_free");
    spec.ftl.layout = Layout::Ranges;
    let mut drive = Ssd::new(spec, 1);
    let last = drive.controller.media.spec.logical_slots() - 1;
    let now = &mut Nanos(1);
    one(&mut drive, now, command(0, Op::Write, last, 1));
    let mut slot = 0;
    while one(&mut drive, now, command(0, Op::Write, slot, 16)) == CommandStatus::Ok {
        assert!(is_open(&drive, last));
        slot += 16;
    }
    assert!(!is_open(&drive, last));
}

/// The longest time for which a full drive ends none of the writes that come
/// without pause.
fn longest_stall_ns(changes: &[(&str, &str)]) -> u64 {
    let mut drive = Ssd::new(small(changes), 1);
    let slots = drive.controller.media.spec.logical_slots();
    let mut rng = crate::Rng::new(3);
    let (mut now, mut longest_ns, mut done) = (Nanos::ZERO, 0, Vec::new());
    for tag in 0..60_000u32 {
        let slot = rng.below(slots as u32) as u64;
        drive.submit(now, command(tag, Op::Write, slot, 1));
        if tag >= 8 {
            let before = now;
            now = drive.advance_to_completion(Nanos::MAX, &mut done);
            assert!(now < Nanos::MAX, "it hangs");
            if tag > 30_000 {
                longest_ns = longest_ns.max(now.0 - before.0);
            }
            done.clear();
        }
    }
    longest_ns
}

/// Without a pace the host stalls when no block is left, for as long as it takes to free
/// one; with one it stalls after every portion, for as long as it takes to free the next.
#[test]
fn the_host_is_kept_in_step_with_collection() {
    let paced = |kb: u32| {
        let key = format!("depth = 8\npace_kb = {kb}");
        longest_stall_ns(&[("depth = 8", &key)])
    };
    let (ahead, large, small) = (longest_stall_ns(&[]), paced(1024), paced(256));
    assert!(small < large, "{small} ns, {large} with large portions");
    assert!(small < ahead, "{small} ns, {ahead} if it may run ahead");
}

/// These stalls are counted.
#[test]
fn waits_for_collection_to_catch_up_are_counted() {
    let paced = ("depth = 8", "depth = 8\npace_kb = 256");
    let mut drive = Ssd::new(small(&[paced]), 1);
    overwrite(&mut drive, 40_000, 9);
    let counts = drive
        .stats(crate::ssd::tests::after_rest(&drive))
        .collection;
    assert!(counts.writes_stalled > 100, "{counts:?}");
    assert!(counts.longest_stall_ns > 1_000_000, "{counts:?}");
    assert!(
        counts.stalled_ns > 100 * counts.longest_stall_ns / 10,
        "{counts:?}"
    );
}

/// Sequential writes leave nothing to move: all credit comes from erases, and suffices.
#[test]
fn writes_in_order_go_on_as_fast_as_blocks_are_erased() {
    let time_ns = |pace: &str| {
        // Longer than the cache lasts.
        let changes = [("erase_us = 500", "erase_us = 2000"), ("depth = 8", pace)];
        let mut drive = Ssd::new(small(&changes), 1);
        let slots = drive.controller.media.spec.logical_slots() as u32;
        let mut next = 0;
        crate::ssd::tests::overwrite_drawn(&mut drive, 3 * slots, 1, |_| {
            next += 1;
            next % slots
        });
        drive.controller.gc.host_ns() - crate::ssd::tests::LONG_NS
    };
    let free = time_ns("depth = 8");
    let paced = time_ns("depth = 8\npace_kb = 64");
    assert!(
        paced < free + free / 20,
        "{paced} ns, {free} without a pace"
    );
}

/// The time of a collection that was in progress at the start counts from when it resumes,
/// and that of one in progress at a reset of the counters from then.
#[test]
fn collections_take_time_from_when_they_run_and_count() {
    let aged = (
        "state = \"filled\"",
        "state = \"aged\"\naged = { occupancy = 1.0 }",
    );
    let mut drive = Ssd::new(small(&[aged]), 1);
    // These begin a quarter of an hour later.
    overwrite(&mut drive, 2_000, 3);
    let counts = drive
        .stats(crate::ssd::tests::after_rest(&drive))
        .collection;
    assert!(
        counts.blocks > 0 && counts.longest_ns < 1_000_000_000,
        "{counts:?}"
    );
    let mut drive = Ssd::new(small(&[aged]), 1);
    overwrite(&mut drive, 10_000, 3);
    let now = crate::ssd::tests::after_rest(&drive);
    drive.controller.gc.count_from(0);
    drive.reset_stats(now);
    assert_eq!(drive.controller.gc.jobs()[0].since_ns, now.0);
}

/// Background collection has normal priority below the working point: the host waits for
/// pages, not for whole blocks of 64.
#[test]
fn a_host_that_writes_without_pause_waits_for_pages() {
    let aside = |depth: u32| {
        let key = format!("depth = {depth}\npreemptible = true");
        longest_stall_ns(&[
            ("depth = 8", &key),
            ("start_blocks = 4", "start_blocks = 6"),
        ])
    };
    let (few, many) = (aside(4), aside(16));
    println!("{few} ns, {many} ns with more pages under way");
    // To empty a block takes 18 ms under such writes.
    assert!(few < 6_000_000 && many < 12_000_000);
}
