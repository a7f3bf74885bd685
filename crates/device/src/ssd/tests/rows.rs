//! Planes of a die filled in step.

use blklab_stats::DeviceStats;

use crate::Rng;
use crate::ssd::Ssd;
use crate::ssd::ftl::Stream;
use crate::ssd::ftl::rows::first_place;
use crate::ssd::tests::{overwrite_drawn, small};
use crate::{Command, Device};
use blklab_blk::{Nanos, Op, Sector};

/// A drive after this many random overwrites, at rest and checked.
fn overwritten(changes: &[(&str, &str)], draw: impl FnMut(&mut Rng) -> u32) -> (Ssd, DeviceStats) {
    let mut all = vec![("multi_plane = \"any\"", "multi_plane = \"same_page\"")];
    all.extend_from_slice(changes);
    let mut drive = Ssd::new(small(&all), 1);
    overwrite_drawn(&mut drive, 60_000, 7, draw);
    drive.check_at_rest();
    let stats = drive.stats(Nanos(1 << 50));
    (drive, stats)
}

const APART: (&str, &str) = ("layout =", "in_step = false\nlayout =");

#[test]
fn planes_in_step_program_together() {
    let slots = small(&[]).logical_slots() as u32;
    let (drive, in_step) = overwritten(&[], |rng| rng.below(slots));
    let (_, apart) = overwritten(&[APART], |rng| rng.below(slots));
    println!(
        "{} {}",
        in_step.multi_plane_commands, apart.multi_plane_commands
    );
    assert!(in_step.multi_plane_commands > 2 * apart.multi_plane_commands);
    for stream in [Stream::Host, Stream::Collection] {
        let pages: Vec<Option<u32>> = (0..2)
            .map(|plane| drive.controller.media.ftl.next_page(plane, stream))
            .collect();
        if let [Some(a), Some(b)] = pages[..] {
            let apart = a.abs_diff(b);
            assert!(apart <= 1 || apart >= 63, "{stream:?}: pages {a} and {b}");
        }
    }
}

/// Only data that one plane of each die holds at first is overwritten, while all blocks of
/// the other plane stay fully valid.
#[test]
fn a_hot_plane_does_not_block_its_row() {
    let slots = small(&[]).logical_slots() as u32 / 4;
    let (_, stats) = overwritten(&[], |rng| rng.below(slots) * 4);
    assert!(stats.collection.blocks > 100);
}

/// Write amplification of sequential writes of half a map unit on a small drive.
fn amplification_of_halves(layout: &str, in_step: bool) -> f64 {
    let in_step = format!("in_step = {in_step}\nlayout =");
    let spec = small(&[
        ("multi_plane = \"any\"", "multi_plane = \"same_page\""),
        ("blocks_per_plane = 112", "blocks_per_plane = 24"),
        ("pages_per_block = 64", "pages_per_block = 32"),
        // 20 of 24 blocks a plane: as many as is legal.
        ("capacity_bytes = 100663296", "capacity_bytes = 10469376"),
        ("start_blocks = 4", "start_blocks = 2"),
        ("enabled = true", "enabled = false"),
        ("layout =", &in_step),
        ("striped", layout),
    ]);
    let halves = spec.logical_slots() * 2;
    let mut drive = Ssd::new(spec, 1);
    let (mut now, mut done) = (Nanos::ZERO, Vec::new());
    for half in 0..halves * 5 {
        let command = Command {
            tag: 0,
            queue: 0,
            op: Op::Write,
            sector: Sector(half % halves * 4),
            sectors: 4,
            fua: false,
        };
        drive.submit(now, command);
        now = drive.advance_to_completion(Nanos::MAX, &mut done);
    }
    let stats = drive.stats(now);
    stats.write_amplification().expect("it was written")
}

/// Of the two copies of a unit that is written in halves the first is invalid at once. If it
/// were always in the same plane, the other would have no block worth collecting.
#[test]
fn what_the_host_writes_in_a_rhythm_lies_in_all_planes() {
    for layout in ["striped", "ranges"] {
        let [in_step, apart] =
            [true, false].map(|in_step| amplification_of_halves(layout, in_step));
        println!("{layout}: {in_step:.2}, apart {apart:.2}");
        assert!(in_step < 2.0 * apart, "{layout}: {in_step:.2}, {apart:.2}");
    }
}

/// Of the pages at any regular distance every plane begins its share.
#[test]
fn no_rhythm_of_pages_keeps_to_one_plane() {
    for planes in 2..=4 {
        for rhythm in 1..=16 {
            let mut begun = vec![0; planes as usize];
            for page in (0..4096).step_by(rhythm) {
                begun[first_place(page, planes) as usize] += 1;
            }
            let share = 4096 / rhythm / planes as usize;
            let fits = |begun: &usize| begun.abs_diff(share) <= share / 5;
            assert!(begun.iter().all(fits), "{planes} {rhythm}: {begun:?}");
        }
    }
}
