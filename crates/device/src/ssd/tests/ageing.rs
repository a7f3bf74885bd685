//! The scaled-up state of an aged drive against the one that is simulated write by write:
//! both have the same write amplification afterwards.

use blklab_stats::DeviceStats;

use crate::Device;
use crate::ssd::Ssd;
use crate::ssd::ftl::{Located, Victim};
use crate::ssd::preconditioning::ageing::draw;
use crate::ssd::spec::InitialState;
use crate::ssd::tests::{overwrite_drawn, small};
use blklab_blk::Nanos;

/// How writes are distributed, and how many seeds are averaged: more for hot data that
/// fills fewer blocks.
const DISTRIBUTIONS: [(&str, u64); 3] = [
    ("", 1),
    (", hot_share = 0.2, hot_writes = 0.8", 2),
    (", hot_share = 0.05, hot_writes = 0.95", 5),
];

/// Write amplification is measured over the first tenth of a drive write, the rest of it,
/// and another half.
const WINDOWS: [f64; 3] = [0.1, 0.9, 0.5];

/// Sectors programmed, of all and of the host's.
fn programmed(drive: &mut Ssd) -> [u64; 2] {
    let stats: DeviceStats = drive.stats(Nanos(0));
    [
        stats.flash_sectors_programmed,
        stats.host_sectors_programmed,
    ]
}

/// What is programmed in each window after ageing, of all and of the host's,
/// under writes of the same distribution.
fn windows(changes: &[(&str, &str)], seed: u64) -> [[u64; 2]; 3] {
    let spec = small(changes);
    let InitialState::Aged(aged) = spec.state else {
        panic!("it is aged");
    };
    let slots = spec.logical_slots() as u32;
    let mut drive = Ssd::new(spec, seed);
    drive.controller.media.ftl.check(slots as u64);
    let live: Vec<u32> = (0..slots)
        .filter(|slot| drive.controller.media.ftl.locate(*slot) != Located::Nowhere)
        .collect();
    WINDOWS.map(|part| {
        let before = programmed(&mut drive);
        let writes = (part * live.len() as f64) as u32;
        overwrite_drawn(&mut drive, writes, seed + (part * 10.0) as u64, |rng| {
            live[draw(&aged, live.len() as u32, rng) as usize]
        });
        let after = programmed(&mut drive);
        [after[0] - before[0], after[1] - before[1]]
    })
}

/// Write amplification over this many seeds: of the first tenth of a drive write,
/// of all of it, and of one and a half.
fn amplification(changes: &[(&str, &str)], seeds: u64) -> [f64; 3] {
    let mut sums = [[0; 2]; 3];
    for seed in 0..seeds {
        for (sum, window) in sums.iter_mut().zip(windows(changes, seed * 100 + 3)) {
            sum[0] += window[0];
            sum[1] += window[1];
        }
    }
    for window in 1..3 {
        let before = sums[window - 1];
        sums[window][0] += before[0];
        sums[window][1] += before[1];
    }
    sums.map(|[all, host]| all as f64 / host as f64)
}

/// What the state that is worked out amplifies writes by, over what the
/// simulated one does.
fn short_over_long(aged: &str, changes: &[(&str, &str)], seeds: u64) -> [f64; 3] {
    let [short, long] = [false, true].map(|simulate| {
        let aged = format!("state = \"aged\"\naged = {{ simulate = {simulate}, {aged} }}");
        let mut all = vec![("state = \"filled\"", &aged[..])];
        all.extend_from_slice(changes);
        amplification(&all, seeds)
    });
    let ratios = [0, 1, 2].map(|window| short[window] / long[window]);
    println!("{aged} {changes:?}: {short:.3?} worked out, {long:.3?} simulated, {ratios:.3?}");
    ratios
}

/// A drive write, and one and a half, are the same within 5 % for each state. In
/// its first tenth few blocks are collected: there the mean of all states is.
fn short_way_is_the_long_one(states: &[(String, u64)], changes: &[(&str, &str)]) {
    short_way_is_within(0.05, states, changes);
}

fn short_way_is_within(part: f64, states: &[(String, u64)], changes: &[(&str, &str)]) {
    let ratios = states.iter().map(|(aged, seeds)| {
        let ratios = short_over_long(aged, changes, *seeds);
        let fits = ratios[1..].iter().all(|ratio| (ratio - 1.0).abs() < part);
        assert!(fits, "{aged} {changes:?}: {ratios:.3?}");
        ratios[0]
    });
    let mean = ratios.sum::<f64>() / states.len() as f64;
    println!("{changes:?}: {mean:.3} in the first tenth");
    assert!((0.97..1.03).contains(&mean), "{changes:?}: {mean:.3}");
}

/// `rounds`: how many times as many seeds the hottest data needs. First-in
/// first-out goes through the cold blocks in bunches.
fn holds_for(policy: &str, rounds: u64) {
    let occupancies = [0.5, 0.7, 0.9, 1.0].into_iter();
    let states: Vec<(String, u64)> = occupancies
        .flat_map(|occupancy| {
            DISTRIBUTIONS.map(|(hot, seeds)| {
                let seeds = seeds * if seeds == 5 { rounds } else { 1 };
                (format!("occupancy = {occupancy}{hot}"), seeds)
            })
        })
        .collect();
    short_way_is_the_long_one(&states, &[("policy = \"greedy\"", policy)]);
}

#[test]
fn greedy_collection_starts_as_if_simulated() {
    holds_for("policy = \"greedy\"", 1);
}

#[test]
fn d_choices_start_as_if_simulated() {
    holds_for("policy = \"d_choices\"\nchoices = 8", 1);
}

#[test]
fn fifo_starts_as_if_simulated() {
    holds_for("policy = \"fifo\"", 2);
}

#[test]
fn cost_benefit_starts_as_if_simulated() {
    holds_for("policy = \"cost_benefit\"", 1);
}

/// Background collection, and planes of a die in step.
#[test]
fn so_it_is_at_the_working_point() {
    let states = DISTRIBUTIONS.map(|(hot, seeds)| (format!("occupancy = 1.0{hot}"), seeds));
    let aside = ("depth = 8", "depth = 8\npreemptible = true");
    let start = ("start_blocks = 4", "start_blocks = 5");
    let in_step = ("multi_plane = \"any\"", "multi_plane = \"same_page\"");
    short_way_is_the_long_one(&states, &[aside, start]);
    short_way_is_the_long_one(&states, &[in_step]);
    // Two planes of a die are one system: half as many that chance evens out.
    let states = states.map(|(aged, seeds)| (aged, seeds * 3));
    short_way_is_within(0.02, &states, &[aside, start, in_step]);
}

/// Its room is that of the working point to the slot, also where its blocks are
/// stretched from ones an eighth of their size: else the host would write for a
/// while before anything is collected.
#[test]
fn it_begins_with_the_room_of_its_working_point() {
    for (hot, planes) in [
        ("", "any"),
        ("", "same_page"),
        (DISTRIBUTIONS[2].0, "same_page"),
    ] {
        for (simulate, pages) in [(false, 1024), (true, 64)] {
            let aged = format!(
                "state = \"aged\"\naged = {{ occupancy = 1.0{hot}, simulate = {simulate} }}"
            );
            let planes = format!("multi_plane = \"{planes}\"");
            let capacity = format!("capacity_bytes = {}", pages << 20 | pages << 19);
            let pages_key = format!("pages_per_block = {pages}");
            has_the_room_of_its_working_point(
                &[
                    ("state = \"filled\"", &aged),
                    ("pages_per_block = 64", &pages_key),
                    ("capacity_bytes = 100663296", &capacity),
                    ("depth = 8", "depth = 8\npreemptible = true"),
                    ("start_blocks = 4", "start_blocks = 5"),
                    ("multi_plane = \"any\"", &planes),
                ],
                pages,
            );
        }
    }
}

fn has_the_room_of_its_working_point(changes: &[(&str, &str)], pages: i64) {
    let drive = Ssd::new(small(changes), 1);
    let room = |plane: u32| {
        let job = drive.controller.gc.jobs()[plane as usize];
        let (block, initially_valid) = (job.victim, job.initially_valid);
        let victim = job.is_running().then_some(Victim {
            plane,
            block,
            initially_valid,
        });
        drive.controller.media.ftl.room(plane, victim) as i64
    };
    let mut planes = 0;
    while planes < drive.controller.media.ftl.plane_count() {
        let row = drive.controller.media.ftl.row_of(planes);
        let more = row.clone().map(room).sum::<i64>() - 4 * pages * row.len() as i64;
        assert!((0..=2).contains(&more), "{more} slots more in {row:?}");
        planes = row.end;
    }
}

/// With a range of addresses on each channel, only some channels have hot data.
#[test]
fn so_it_is_where_channels_differ() {
    let states = [
        (
            "occupancy = 1.0, hot_share = 0.2, hot_writes = 0.8".to_string(),
            2,
        ),
        (
            "occupancy = 1.0, hot_share = 0.7, hot_writes = 0.9".to_string(),
            2,
        ),
    ];
    let ranges = ("layout = \"striped\"", "layout = \"ranges\"");
    short_way_is_the_long_one(&states, &[ranges]);
}
