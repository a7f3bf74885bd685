//! The time of a discard: the firmware's for the command and for each entry of the map.

use blklab_blk::{Nanos, Op, Sector};

use crate::ssd::Ssd;
use crate::ssd::tests::small;
use crate::{Command, Completion, Device};

/// When commands submitted at once end: (operation, sectors) from sector 0 on.
fn ends(controller: &str, commands: &[(Op, u32)]) -> Vec<u64> {
    let table = format!("[controller]\n{controller}");
    let mut drive = Ssd::new(small(&[("[controller]", &table)]), 1);
    for (tag, &(op, sectors)) in commands.iter().enumerate() {
        let command = Command {
            tag: tag as u32,
            queue: 0,
            op,
            sector: Sector(0),
            sectors,
            fua: false,
        };
        drive.submit(Nanos(0), command);
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    done.sort_by_key(|end| end.tag);
    done.iter().map(|end| end.at.0).collect()
}

#[test]
fn a_discard_costs_its_command_and_its_entries_of_the_map() {
    let took = |controller: &str, op, sectors| ends(controller, &[(op, sectors)])[0];
    let keys = "discard_us = 30\ndiscard_unit_ns = 12.5";
    let (units, sectors) = (16_384, 16_384 * 8);
    let least = took(keys, Op::Discard, 1);
    assert_eq!(
        took(keys, Op::Discard, sectors) - least,
        units * 12_500 / 1000
    );
    // A part of a unit is not discarded.
    assert_eq!(took(keys, Op::Discard, 7), least);
    let slower = took("discard_us = 70\ndiscard_unit_ns = 12.5", Op::Discard, 1);
    assert_eq!(slower - least, 40_000);
    // The interval for further pages is only for reads.
    let split = format!("{keys}\npage_interval_us = 2");
    assert_eq!(
        took(&split, Op::Discard, sectors),
        took(keys, Op::Discard, sectors)
    );
    assert_eq!(
        took(keys, Op::WriteZeroes, sectors),
        took(keys, Op::Discard, sectors)
    );
}

#[test]
fn the_firmware_takes_nothing_while_it_goes_through_the_map() {
    let keys = "discard_us = 30\ndiscard_unit_ns = 10";
    let read_behind = |sectors| ends(keys, &[(Op::Discard, sectors), (Op::Read, 8)])[1];
    // The data to read is gone, so a read is the firmware's time and its transfer.
    let entries = 16_384;
    let (few, many) = (read_behind(8), read_behind(entries * 8));
    assert_eq!(many - few, (entries as u64 - 1) * 10);
}
