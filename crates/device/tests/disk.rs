//! What a disk takes, against the arithmetic of its description.

mod harness;

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, CommandStatus, Device, DriveSpec, registry};
use harness::Rng;

/// The disk that comes with the program, changed.
fn disk(changes: &[(&str, &str)]) -> Box<dyn Device> {
    let mut text = registry::text("hdd-7200").expect("listed").to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let spec = DriveSpec::parse("disk.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    spec.build(1)
}

const WRITE_THROUGH: (&str, &str) = ("write_back = true", "write_back = false");

/// A turn of 7200 a minute.
const TURN_US: f64 = 60e6 / 7200.0;

/// One command, and when it ends.
fn carry_out(disk: &mut dyn Device, now: Nanos, op: Op, sector: u64, sectors: u32) -> Nanos {
    let command = Command {
        tag: 0,
        queue: 0,
        op,
        sector: Sector(sector),
        sectors,
        fua: false,
    };
    disk.submit(now, command);
    let mut done = Vec::new();
    disk.advance_to_completion(Nanos::MAX, &mut done);
    assert_eq!(done[0].status, CommandStatus::Ok);
    done[0].at
}

/// Mean time of random commands one after the other, in microseconds; their
/// first sectors are `offset` after the start of a block.
fn mean_us(disk: &mut dyn Device, op: Op, offset: u64, sectors: u32) -> f64 {
    const COMMANDS: u64 = 4000;
    let blocks = disk.identify().capacity_sectors / 8 - 1;
    let (mut rng, mut now) = (Rng(7), Nanos::ZERO);
    for _ in 0..COMMANDS {
        let sector = rng.below(blocks) * 8 + offset;
        now = carry_out(disk, now, op, sector, sectors);
    }
    now.0 as f64 / COMMANDS as f64 / 1e3
}

fn near(found: f64, want: f64, share: f64) {
    let off = (found / want - 1.0).abs();
    assert!(off <= share, "found {found:.1}, want {want:.1}");
}

/// The block is read when it comes by, and written when it comes by again. The
/// arm settles for reading first, which takes less; a turn later it has settled.
#[test]
fn writing_a_part_of_a_block_takes_a_turn_more() {
    let write_us =
        |offset, sectors| mean_us(disk(&[WRITE_THROUGH]).as_mut(), Op::Write, offset, sectors);
    let settle_us = 1000.0;
    let whole = write_us(0, 8);
    let part = write_us(0, 1);
    near(part - whole, TURN_US - settle_us, 0.03);
    // Two blocks, each in part.
    near(write_us(1, 8) - whole, TURN_US - settle_us, 0.03);
    // Two blocks, one in part and one as a whole.
    near(write_us(4, 12) - whole, TURN_US - settle_us, 0.03);
    near(write_us(0, 16), whole, 0.01);
    // Reading a part takes what the block takes.
    let read_us = |offset, sectors| mean_us(disk(&[]).as_mut(), Op::Read, offset, sectors);
    near(read_us(3, 1), read_us(0, 8), 0.001);
}

#[test]
fn blocks_of_a_sector_are_written_at_once() {
    let native = ("physical_block_bytes = 4096", "physical_block_bytes = 512");
    let sector = mean_us(disk(&[WRITE_THROUGH, native]).as_mut(), Op::Write, 1, 1);
    let block = mean_us(disk(&[WRITE_THROUGH]).as_mut(), Op::Write, 0, 8);
    near(sector, block, 0.01);
}

/// The buffer hides it until it is full.
#[test]
fn emptying_the_buffer_pays_for_parts_of_blocks() {
    let write_us = |sectors| {
        let mut disk = disk(&[("size_kb = 65536", "size_kb = 256")]);
        mean_us(disk.as_mut(), Op::Write, 0, sectors)
    };
    let (whole, part) = (write_us(8), write_us(1));
    // More dirty sectors to choose from shorten the way of the small ones.
    assert!(
        (0.4 * TURN_US..TURN_US).contains(&(part - whole)),
        "{part} {whole}"
    );
}
