//! Where collection and wear levelling move data.

use blklab_blk::{Nanos, Op};
use blklab_stats::DeviceStats;

use crate::Device;
use crate::Rng;
use crate::ssd::Ssd;
use crate::ssd::ftl::Located;
use crate::ssd::tests::{command, overwrite_drawn, small};

/// Overwrites slots drawn by `draw`, and checks the drive at rest.
fn overwrite(drive: &mut Ssd, writes: u32, draw: impl FnMut(&mut Rng) -> u32) -> DeviceStats {
    overwrite_drawn(drive, writes, 5, draw);
    drive.check_at_rest();
    drive.stats(Nanos(1 << 50))
}

/// A drive of two chips with two planes each, of which only the first plane's
/// addresses are overwritten.
fn hot_plane(scope: &str) -> (Ssd, DeviceStats) {
    let scope = format!("depth = 8\nscope = \"{scope}\"");
    let mut drive = Ssd::new(small(&[("depth = 8", &scope)]), 1);
    let slots = drive.controller.media.spec.logical_slots() as u32 / 4;
    let stats = overwrite(&mut drive, 40_000, |rng| rng.below(slots) * 4);
    (drive, stats)
}

/// Whether every slot is in the same group of `planes` planes as its home.
fn all_at_home(drive: &Ssd, planes: u32) -> bool {
    (0..drive.controller.media.spec.logical_slots() as u32).all(|slot| {
        match drive.controller.media.ftl.locate(slot) {
            Located::Flash(at) | Located::Buffered(at) => {
                drive.controller.media.ftl.parts(at).plane / planes
                    == drive.controller.media.ftl.target(slot) / planes
            }
            Located::Nowhere => panic!("slot {slot} is lost"),
        }
    })
}

#[test]
fn collection_keeps_data_in_its_scope() {
    let (drive, plane) = hot_plane("plane");
    assert!(all_at_home(&drive, 1));
    assert_eq!(plane.collection.sectors_off_plane, 0);
    let (drive, chip) = hot_plane("chip");
    assert!(all_at_home(&drive, 2) && !all_at_home(&drive, 1));
    assert!(chip.collection.sectors_off_plane > 0 && chip.collection.sectors_off_chip == 0);
    let (drive, whole) = hot_plane("drive");
    assert!(!all_at_home(&drive, 2));
    assert!(whole.collection.sectors_off_chip > 0);
    // The more of the spare space the hot plane's data can use, the less is
    // moved.
    let moved = |stats: &DeviceStats| stats.collection.sectors_moved;
    println!("{} {} {}", moved(&plane), moved(&chip), moved(&whole));
    assert!(moved(&whole) < moved(&chip) && moved(&chip) < moved(&plane));
}

/// The spread of erase counts after only a twentieth of the data was
/// overwritten, and what was moved to level it.
fn spread(table: &str) -> DeviceStats {
    let table = format!("[wear_levelling]\n{table}\n[gc]");
    let mut drive = Ssd::new(small(&[("[gc]", &table)]), 1);
    let hot = drive.controller.media.spec.logical_slots() as u32 / 20;
    overwrite(&mut drive, 150_000, |rng| rng.below(hot))
}

#[test]
fn static_wear_levelling_bounds_the_spread_of_erase_counts() {
    let dynamic = spread("");
    let fixed = spread("static_spread = 6");
    let none = spread("dynamic = false");
    println!("{:?} {:?} {:?}", dynamic.wear, fixed.wear, none.wear);
    // Nobody erases what is never overwritten.
    assert_eq!(dynamic.wear.min_erases, 0);
    assert_eq!(dynamic.wear.levelled_blocks, 0);
    assert!(dynamic.wear.max_erases > 25);
    // A block that comes back from use has been erased once more.
    assert!(fixed.wear.max_erases - fixed.wear.min_erases <= 6 + 2);
    assert!(fixed.wear.mean_erases < 1.5 * dynamic.wear.mean_erases);
    // It has a price: every block that it empties is written once more.
    let written = |stats: &DeviceStats| stats.flash_sectors_programmed;
    assert!(fixed.wear.levelled_blocks > 0);
    assert!(written(&fixed) >= written(&dynamic) + fixed.wear.levelled_sectors * 9 / 10);
    // Without dynamic levelling some free blocks are taken again and again.
    assert!(none.wear.max_erases > dynamic.wear.max_erases);
}

/// Overwrites extents of this many slots at random, one after the other.
fn overwrite_extents(slots: u32) -> DeviceStats {
    let mut drive = Ssd::new(small(&[]), 1);
    let extents = drive.controller.media.spec.logical_slots() as u32 / slots;
    let (mut rng, mut now, mut done) = (Rng::new(5), Nanos::ZERO, Vec::new());
    for tag in 0..4 * extents {
        let slot = (rng.below(extents) * slots) as u64;
        drive.submit(now, command(tag, Op::Write, slot, slots));
        now = drive.advance_to_completion(Nanos::MAX, &mut done);
        done.clear();
    }
    drive.stats(now)
}

/// Document 002, section 4.4: a write that covers a block leaves collection
/// nothing to do but the erase; one that crosses a block's border leaves parts
/// of blocks to be moved. A block of each of the four planes has 256 slots.
#[test]
fn writes_that_cross_blocks_cost_collection() {
    let whole = overwrite_extents(256);
    assert!(whole.collection.blocks > 100);
    assert_eq!(whole.collection.blocks_partly_valid, 0);
    assert_eq!(whole.collection.sectors_moved, 0);
    let crossing = overwrite_extents(384);
    assert!(crossing.collection.blocks_partly_valid * 10 > crossing.collection.blocks);
    assert!(crossing.collection.sectors_moved > 0);
}

/// Nothing is moved while erase counts differ by less than the limit.
#[test]
fn static_wear_levelling_waits_for_the_limit() {
    let wear = spread("static_spread = 1000").wear;
    assert!(wear.max_erases > 25 && wear.max_erases < 1000);
    assert_eq!((wear.min_erases, wear.levelled_blocks), (0, 0));
}
