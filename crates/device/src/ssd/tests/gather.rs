//! Commands on several planes of a die, with times worked out by hand.

use blklab_blk::{Nanos, Op};

use crate::ssd::Ssd;
use crate::ssd::tests::{command, small};
use crate::{Completion, Device};

/// A drive of one channel with two dies of two planes. Page `p` of the address
/// space is on die `p % 2`, plane `p / 2 % 2`.
fn drive(changes: &[(&str, &str)]) -> Ssd {
    let mut all = vec![
        ("channels = 2", "channels = 1"),
        ("dies_per_package = 1", "dies_per_package = 2"),
        ("multi_plane = \"any\"", "multi_plane = \"same_page\""),
    ];
    all.extend(changes);
    Ssd::new(small(&all), 1)
}

/// When a command on this many pages ends.
fn end_of(drive: &mut Ssd, op: Op, pages: u32) -> u64 {
    drive.submit(Nanos(0), command(0, op, 0, pages));
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    done[0].at.0
}

/// Doorbell and firmware; a command for one plane and for a further one, array
/// and data of a page; link and status.
const ARRIVES: u64 = 100 + 1000;
const COMMAND: u64 = 290;
const PLANE: u64 = 650;
const ARRAY: u64 = 10_000;
const DATA: u64 = 5120;
const AFTER: u64 = 1364 + 100;

#[test]
fn an_idle_die_reads_a_command_from_all_planes_at_once() {
    let mut both = drive(&[]);
    // The other die senses meanwhile, and has its data ready in time.
    let ends = ARRIVES + COMMAND + PLANE + ARRAY + DATA * 4 + AFTER;
    assert_eq!(end_of(&mut both, Op::Read, 4), ends);
    assert_eq!(both.stats(Nanos(0)).multi_plane_commands, 2);

    // Where planes do not work together the second pages are sensed when the
    // first are out, which the bus carries before it takes commands.
    let mut alone = drive(&[("multi_plane = \"same_page\"", "multi_plane = \"none\"")]);
    let first = ARRIVES + COMMAND + ARRAY + DATA * 2;
    let ends = first + COMMAND + ARRAY + DATA * 2 + AFTER;
    assert_eq!(end_of(&mut alone, Op::Read, 4), ends);
    assert_eq!(alone.stats(Nanos(0)).multi_plane_commands, 0);
}

#[test]
fn an_idle_die_programs_a_command_on_all_planes_at_once() {
    let mut drive = drive(&[]);
    end_of(&mut drive, Op::Write, 4);
    assert_eq!(drive.stats(Nanos(1 << 40)).multi_plane_commands, 2);
}
