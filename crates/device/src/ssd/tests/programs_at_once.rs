//! Pages that the array programs at once are durable at once, with the last.

use blklab_blk::{Nanos, Op, Sector};

use crate::ssd::Ssd;
use crate::ssd::tests::small;
use crate::{Command, Completion, Device};

/// Three pages of a word line take the array 500 us together.
const AT_ONCE: [(&str, &str); 3] = [
    (
        "cell = \"slc\"\nread_us = 10",
        "cell = \"tlc\"\nread_us = 10",
    ),
    (
        "program_us = 50\n",
        "program_us = [1, 1, 500]\nsuperpage = true\n",
    ),
    ("pages_per_block = 64", "pages_per_block = 66"),
];

/// Two parts of a page take it 50 us together.
const PARTS: [(&str, &str); 1] = [("page_kb = 4", "page_kb = 4\npage_parts = 2")];

/// Gives the drive a command on a page and returns how long it takes.
fn take(drive: &mut Ssd, now: Nanos, op: Op, fua: bool, page: u64) -> u64 {
    let command = Command {
        tag: 0,
        queue: 0,
        op,
        sector: Sector(page * 8),
        sectors: if op == Op::Flush { 0 } else { 8 },
        fua,
    };
    drive.submit(now, command);
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(now.0 + 100_000_000), &mut done);
    assert_eq!(done.len(), 1);
    (done[0].at - now).0
}

const SECOND: Nanos = Nanos(1_000_000_000);

#[test]
fn a_flush_waits_until_the_word_line_is_programmed() {
    for (changes, program_ns) in [(&AT_ONCE[..], 500_000), (&PARTS[..], 50_000)] {
        let mut drive = Ssd::new(small(changes), 1);
        for round in 0..7 {
            let now = Nanos(SECOND.0 * (round + 1));
            // Pages of one plane.
            assert!(take(&mut drive, now, Op::Write, false, 4 * round) < 10_000);
            let after = Nanos(now.0 + SECOND.0 / 2);
            let flush_ns = take(&mut drive, after, Op::Flush, false, 0);
            assert!(
                (program_ns..program_ns + 60_000).contains(&flush_ns),
                "{flush_ns}"
            );
        }
        // Nothing is left to program.
        assert!(take(&mut drive, Nanos(SECOND.0 * 9), Op::Flush, false, 0) < 10_000);
    }
}

#[test]
fn so_does_a_write_that_is_to_be_durable() {
    for cache in [true, false] {
        let mut changes = AT_ONCE.to_vec();
        if !cache {
            changes.push(("enabled = true", "enabled = false"));
        }
        let mut drive = Ssd::new(small(&changes), 1);
        for round in 0..7 {
            let now = Nanos(SECOND.0 * (round + 1));
            let write_ns = take(&mut drive, now, Op::Write, cache, 4 * round);
            assert!((500_000..560_000).contains(&write_ns), "{write_ns}");
        }
    }
}

/// Two of three pages of a word line have been transferred, but not programmed: they are
/// lost with the power, and older copies are current again.
#[test]
fn pages_that_wait_for_their_word_line_go_with_the_power() {
    let mut drive = Ssd::new(small(&AT_ONCE), 1);
    for page in 0..5 {
        take(
            &mut drive,
            Nanos(SECOND.0 * (page + 1)),
            Op::Write,
            false,
            4 * page,
        );
    }
    drive.power_loss(Nanos(SECOND.0 * 7));
    let lost = drive
        .stats(Nanos(SECOND.0 * 8))
        .power_loss_acknowledged_sectors;
    assert_eq!(lost, 2 * 8, "three of five pages had been programmed");
    drive.check_at_rest();
}
