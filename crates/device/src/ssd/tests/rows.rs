//! Planes of a die filled in step.

use blklab_stats::DeviceStats;

use super::{overwrite_drawn, small};
use crate::Device;
use crate::ssd::Ssd;
use crate::ssd::ftl::Stream;
use crate::ssd::rng::Rng;
use blklab_blk::Nanos;

/// A drive after so many random overwrites, at rest and checked.
fn overwritten(changes: &[(&str, &str)], draw: impl FnMut(&mut Rng) -> u32) -> (Ssd, DeviceStats) {
    let mut all = vec![("multi_plane = \"any\"", "multi_plane = \"same_page\"")];
    all.extend_from_slice(changes);
    let mut drive = Ssd::new(small(&all), 1);
    overwrite_drawn(&mut drive, 60_000, 7, draw);
    drive.ftl.check(drive.spec.logical_slots());
    let stats = drive.stats(Nanos(1 << 50));
    (drive, stats)
}

const APART: (&str, &str) = ("layout =", "in_step = false\nlayout =");

#[test]
fn planes_in_step_program_together() {
    let slots = Ssd::new(small(&[]), 1).spec.logical_slots() as u32;
    let (drive, in_step) = overwritten(&[], |rng| rng.below(slots));
    let (_, apart) = overwritten(&[APART], |rng| rng.below(slots));
    println!(
        "{} {}",
        in_step.multi_plane_commands, apart.multi_plane_commands
    );
    assert!(in_step.multi_plane_commands > 2 * apart.multi_plane_commands);
    for stream in [Stream::Host, Stream::Collection] {
        let pages: Vec<Option<u32>> = (0..2)
            .map(|plane| drive.ftl.next_page(plane, stream))
            .collect();
        if let [Some(a), Some(b)] = pages[..] {
            let apart = a.abs_diff(b);
            assert!(apart <= 1 || apart >= 63, "{stream:?}: pages {a} and {b}");
        }
    }
}

/// Only what one plane of each die holds at first is overwritten: the other
/// plane's blocks, all valid, must not stand in the way.
#[test]
fn a_hot_plane_does_not_block_its_row() {
    let slots = Ssd::new(small(&[]), 1).spec.logical_slots() as u32 / 4;
    let (_, stats) = overwritten(&[], |rng| rng.below(slots) * 4);
    assert!(stats.collection.blocks > 100);
}
