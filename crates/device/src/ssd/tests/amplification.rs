//! Write amplification against what theory says of it.
//!
//! Where the block filled longest ago is collected, a slot is moved if its data was not
//! overwritten for a round through all blocks. Data that is overwritten x times in a round is
//! so written x + x / (e^x - 1) times, and all data together fills the blocks once
//! (Desnoyers, "Analytic Modeling of SSD Write Performance", SYSTOR 2012).

use blklab_blk::Nanos;

use crate::Device;
use crate::ssd::Ssd;
use crate::ssd::tests::{overwrite_drawn, small};

const BLOCKS: f64 = 448.0;

/// Writes and where they go: a part of the data gets this many of them.
#[derive(Clone, Copy, Debug)]
struct Hot {
    data: f64,
    writes: f64,
}

const UNIFORM: Hot = Hot {
    data: 0.5,
    writes: 0.5,
};

/// What the drive programs for each of the host's writes once it is in its steady state, and
/// how many of its blocks are full for each block of data.
fn measured(policy: &str, live_blocks: u32, hot: Hot) -> (f64, f64) {
    let slots = live_blocks * 4 * 64;
    let capacity = format!("capacity_bytes = {}", u64::from(slots) * 4096);
    let blocks = format!("blocks_per_plane = {BLOCKS}");
    let mut drive = Ssd::new(
        small(&[
            ("capacity_bytes = 100663296", &capacity),
            ("blocks_per_plane = 112", &blocks),
            ("policy = \"greedy\"", policy),
        ]),
        1,
    );
    let hot_slots = (f64::from(slots) * hot.data) as u32;
    let write = |drive: &mut Ssd, writes, seed| {
        overwrite_drawn(drive, writes, seed, |rng| {
            match f64::from(rng.below(1 << 20)) < hot.writes * f64::from(1 << 20) {
                true => rng.below(hot_slots),
                false => hot_slots + rng.below(slots - hot_slots),
            }
        });
    };
    write(&mut drive, 4 * slots, 1);
    let before = drive.stats(Nanos::ZERO);
    write(&mut drive, 2 * slots, 2);
    let after = drive.stats(Nanos::ZERO);
    let all = after.flash_sectors_programmed - before.flash_sectors_programmed;
    let host = after.host_sectors_programmed - before.host_sectors_programmed;
    let amplified = all as f64 / host as f64;
    // Of each plane's blocks three are free on average, and host and collection fill one each.
    (amplified, (BLOCKS - 5.0) / f64::from(live_blocks))
}

/// The amplification with this many full blocks for each block of data.
fn of_fifo(full: f64, hot: Hot) -> f64 {
    let parts = [(hot.data, hot.writes), (1.0 - hot.data, 1.0 - hot.writes)];
    // Writes to each slot of data in a round through all blocks.
    let (mut low, mut high) = (0.0, full);
    for _ in 0..60 {
        let rounds = (low + high) / 2.0;
        let written = parts.map(|(data, writes)| {
            let own = rounds * writes / data;
            data * own / (1.0 - (-own).exp())
        });
        match written.iter().sum::<f64>() < full {
            true => low = rounds,
            false => high = rounds,
        }
    }
    full / low
}

#[test]
fn rounds_through_all_blocks_amplify_as_theory_says() {
    for live_blocks in [224, 320] {
        for hot in [
            UNIFORM,
            Hot {
                data: 0.2,
                writes: 0.8,
            },
        ] {
            let (found, full) = measured("policy = \"fifo\"", live_blocks, hot);
            let theory = of_fifo(full, hot);
            println!("{live_blocks} {hot:?}: {found:.3}, in theory {theory:.3}");
            assert!((found / theory - 1.0).abs() < 0.025, "{found}, {theory}");
        }
    }
}

/// A block drawn by lot has as much valid data as blocks have on average, but for those that have
/// nothing else and are not collected.
#[test]
fn lots_amplify_by_the_share_that_is_not_spare() {
    for live_blocks in [128, 192, 224] {
        let (found, full) = measured("policy = \"d_choices\"\nchoices = 1", live_blocks, UNIFORM);
        let theory = full / (full - 1.0);
        println!("{live_blocks}: {found:.3}, in theory {theory:.3}");
        assert!((found / theory - 1.0).abs() < 0.03, "{found}, {theory}");
    }
}
