//! Tests of the insides of a drive.

mod ageing;
mod amplification;
mod cache_commands;
mod copyback;
mod discard;
mod gather;
mod host_interface;
mod map_traffic;
mod movement;
mod paq;
mod partial;
mod programs_at_once;
mod promises;
mod read;
mod records;
mod room;
mod rows;
mod slc;
#[path = "../../tests/harness/small.rs"]
mod small_drives;
mod waits;

use blklab_blk::{Nanos, Op, Sector};

use crate::Rng;
use crate::spec::Interface;
use crate::ssd::write_cache::Controller;
use crate::ssd::{Ssd, SsdSpec};
use crate::{Command, Completion, Device};

/// A small drive whose host sees `share` of its flash.
pub(super) fn small(changes: &[(&str, &str)]) -> SsdSpec {
    let mut text = r#"
description = "small"
interface = "nvme"
model = "ssd"
state = "filled"
[host]
capacity_bytes = 100663296
queue_depth = 64
discard = true
[link]
bandwidth_mb_s = 3000
full_duplex = true
submit_us = 0.1
complete_us = 0.1
[controller]
read_us = 1
write_us = 1
scheduling = "read_priority"
[geometry]
channels = 2
packages_per_channel = 1
dies_per_package = 1
planes_per_die = 2
blocks_per_plane = 112
pages_per_block = 64
page_kb = 4
[flash]
cell = "slc"
read_us = 10
program_us = 50
erase_us = 500
interleave = "die"
multi_plane = "any"
[channel]
rate_mt_s = 800
codeword_bytes = 4096
[ftl]
map_unit_bytes = 4096
order = "CWDP"
layout = "striped"
[write_cache]
enabled = true
size_kb = 256
bandwidth_mb_s = 4000
[gc]
policy = "greedy"
start_blocks = 4
depth = 8
"#
    .to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    spec_of(&text)
}

fn spec_of(text: &str) -> SsdSpec {
    let read = blklab_description::read("small.toml", text, |root| {
        SsdSpec::read(root, Interface::Nvme)
    });
    read.unwrap_or_else(|e| panic!("{e}"))
}

impl Ssd {
    /// Checks the invariants of a drive at rest.
    pub(super) fn check_at_rest(&self) {
        let Controller { media, .. } = &self.controller;
        media.ftl.check(media.spec.logical_slots());
    }
}

/// A drive whose data is followed.
fn followed(spec: super::SsdSpec, seed: u64) -> Ssd {
    let mut drive = Ssd::new(spec, seed);
    drive
        .controller
        .media
        .ftl
        .begin_shadow(&drive.controller.media.spec);
    drive
}

pub(super) const PAGES_16K: (&str, &str) = ("page_kb = 4", "page_kb = 16");
pub(super) const FEWER_BLOCKS: (&str, &str) = ("blocks_per_plane = 112", "blocks_per_plane = 34");

/// Times at which this many commands of a page each, all of one die and submitted
/// at once, end.
pub(super) fn one_die_ends(drive: &mut Ssd, op: Op, pages: u64) -> Vec<u64> {
    for page in 0..pages {
        // Pages go to the two channels, one die each, in turn.
        drive.submit(Nanos(0), command(page as u32, op, page * 2, 1));
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    done.iter().map(|end| end.at.0).collect()
}

/// A command on this many map units of 4 KiB.
pub(super) fn command(tag: u32, op: Op, slot: u64, slots: u32) -> Command {
    Command {
        tag,
        queue: 0,
        op,
        sector: Sector(slot * 8),
        sectors: slots * 8,
        fua: false,
    }
}

/// Random writes of a slot each, eight at a time; the drive at rest after them.
pub(super) fn overwrite(drive: &mut Ssd, writes: u32, seed: u64) {
    let slots = drive.controller.media.spec.logical_slots() as u32;
    overwrite_drawn(drive, writes, seed, |rng| rng.below(slots));
}

/// The same with slots drawn otherwise.
pub(super) fn overwrite_drawn(
    drive: &mut Ssd,
    writes: u32,
    seed: u64,
    mut draw: impl FnMut(&mut Rng) -> u32,
) {
    let mut rng = Rng::new(seed);
    let mut done: Vec<Completion> = Vec::new();
    let mut now = after_rest(drive);
    drive.advance(now, &mut done);
    let mut outstanding = 0;
    for tag in 0..writes {
        drive.submit(now, command(tag, Op::Write, draw(&mut rng) as u64, 1));
        outstanding += 1;
        while outstanding >= 8 {
            now = drive.advance_to_completion(Nanos::MAX, &mut done);
            outstanding -= done.len();
            assert!(
                done.drain(..)
                    .all(|end| end.status == crate::CommandStatus::Ok)
            );
        }
    }
    drive.advance(after_rest(drive), &mut done);
}

/// Long enough for all to come to rest.
const LONG_NS: u64 = 1 << 40;

/// A time so long after the host's last command that all is at rest.
fn after_rest(drive: &Ssd) -> Nanos {
    Nanos((drive.controller.gc.host_ns() / LONG_NS + 1) * LONG_NS)
}

#[test]
fn every_slot_is_valid_once_and_counted() {
    let shapes: [&[(&str, &str)]; 6] = [
        &[],
        &[PAGES_16K, FEWER_BLOCKS],
        &[("state = \"filled\"", "state = \"fresh\"")],
        &[(
            "state = \"filled\"",
            "state = \"aged\"\naged = { occupancy = 1.0 }",
        )],
        &[
            (
                "state = \"filled\"",
                "state = \"aged\"\naged = { occupancy = 0.6 }",
            ),
            PAGES_16K,
            FEWER_BLOCKS,
        ],
        &[
            ("layout = \"striped\"", "layout = \"ranges\""),
            ("capacity_bytes = 100663296", "capacity_bytes = 100659200"),
        ],
    ];
    for shape in shapes {
        let mut drive = Ssd::new(small(shape), 1);
        drive.check_at_rest();
        for round in 0..4 {
            overwrite(&mut drive, 30_000, round);
            drive.check_at_rest();
        }
        let stats = drive.stats(Nanos(0));
        assert!(
            stats.collection.blocks > 100,
            "{shape:?}: nothing was collected"
        );
    }
}

/// A drive to which 64 commands of a page each came at once.
fn given_64(op: Op) -> Ssd {
    let mut drive = Ssd::new(small(&[]), 1);
    for tag in 0..64 {
        drive.submit(Nanos(0), command(tag, op, tag as u64, 1));
    }
    drive
}

/// A channel that is never idle is busy all the time, whenever one asks.
#[test]
fn work_in_progress_counts_as_busy() {
    let mut drive = given_64(Op::Read);
    let mut done = Vec::new();
    let (reset, now) = (Nanos(60_000), Nanos(100_000));
    drive.advance(reset, &mut done);
    drive.reset_stats(reset);
    drive.advance(now, &mut done);
    assert!(done.len() < 64, "nothing is in progress any more");
    for channel in drive.stats(now).channels {
        assert_eq!(channel.die_busy_ns, now.0 - reset.0);
    }
}

/// What was on a bus when the power went is not counted as if it had got there.
#[test]
fn work_that_the_power_ended_does_not_count() {
    let mut drive = given_64(Op::Write);
    let mut done = Vec::new();
    let loss = Nanos(5_000);
    drive.advance(loss, &mut done);
    let before = drive.stats(loss).channels;
    assert!(before.iter().all(|channel| channel.bus_busy_ns > 0));
    let ready = drive.power_loss(loss);
    let after = drive.stats(ready).channels;
    for (before, after) in before.iter().zip(after) {
        assert!(after.bus_busy_ns <= loss.0);
        assert_eq!(before.bus_busy_ns, after.bus_busy_ns);
    }
}

/// 24 pages of the map, read by two dies at once.
#[test]
fn the_map_is_read_after_a_loss_of_power() {
    let mut drive = Ssd::new(small(&[]), 1);
    assert_eq!(drive.power_loss(Nanos(1000)), Nanos(1000 + 12 * 10_000));
}
