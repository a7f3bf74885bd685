//! The firmware's own records, before which nothing ends that is to be durable.

use blklab_blk::{Nanos, Op, Sector};

use crate::ssd::Ssd;
use crate::ssd::tests::small;
use crate::{Command, Completion, Device};

/// Three pages at a flush and five with a durable write, of 50 us each.
const RECORDS: [(&str, &str); 1] = [(
    "enabled = true",
    "enabled = true\nflush_records = 3\nfua_records = 5",
)];

const MS: u64 = 1_000_000;

fn command(op: Op, fua: bool, page: u64) -> Command {
    Command {
        tag: page as u32,
        queue: 0,
        op,
        sector: Sector(page * 8),
        sectors: if op == Op::Flush { 0 } else { 8 },
        fua,
    }
}

/// Gives the drive commands at one moment; how long each took, in order of their
/// ends.
fn take(drive: &mut Ssd, at_ms: u64, commands: &[Command]) -> Vec<(u32, u64)> {
    let now = Nanos(at_ms * MS);
    for command in commands {
        drive.submit(now, *command);
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(now + Nanos(100 * MS), &mut done);
    done.iter().map(|c| (c.tag, (c.at - now).0)).collect()
}

/// Programs one after the other, each with its data's way over the channel.
fn is_programs(programs: u64, ns: u64) -> bool {
    (programs * 50_000..programs * 70_000).contains(&ns)
}

#[test]
fn records_follow_the_data() {
    let mut drive = Ssd::new(small(&RECORDS), 1);
    take(&mut drive, 1000, &[command(Op::Write, false, 0)]);
    let flush = command(Op::Flush, false, 0);
    let ns = take(&mut drive, 2000, &[flush])[0].1;
    // The data's page was full, and so has been programmed.
    assert!(is_programs(3, ns), "{ns}");
    // Nothing has changed since.
    let ns = take(&mut drive, 3000, &[flush])[0].1;
    assert!(ns < 10_000, "{ns}");
    let ns = take(&mut drive, 4000, &[command(Op::Write, true, 1)])[0].1;
    assert!(is_programs(1 + 5, ns), "{ns}");
    // That was durable with its records, and all before it.
    let ns = take(&mut drive, 5000, &[flush])[0].1;
    assert!(ns < 10_000, "{ns}");
}

/// Two durable writes go to planes of their own, and then one set of records serves
/// whoever waits when it is begun.
#[test]
fn records_serve_all_that_wait() {
    let mut drive = Ssd::new(small(&RECORDS), 1);
    let writes: Vec<Command> = (0..4).map(|page| command(Op::Write, true, page)).collect();
    let ends = take(&mut drive, 1000, &writes);
    assert_eq!(ends.len(), 4);
    let last = ends[3].1;
    assert!(is_programs(1 + 2 * 5, last), "{ends:?}");
}

#[test]
fn a_drive_with_capacitors_has_none() {
    let text = [(
        "enabled = true",
        "enabled = true\npower_loss_protection = true",
    )];
    let mut drive = Ssd::new(small(&text), 1);
    for (at_ms, fua) in [(1000, false), (2000, true)] {
        let ns = take(&mut drive, at_ms, &[command(Op::Write, fua, 0)])[0].1;
        assert!(ns < 10_000, "{ns}");
    }
    let ns = take(&mut drive, 3000, &[command(Op::Flush, false, 0)])[0].1;
    assert!(ns < 10_000, "{ns}");
}

/// After a loss of power the pages of open blocks are read, in all planes at once.
#[test]
fn recovery_scans_the_blocks_that_were_being_written() {
    let recovery_ns = |rows: u32| {
        let mut drive = Ssd::new(small(&[]), 1);
        let mut done = Vec::new();
        // Pages go over the four planes in turn.
        drive.submit(Nanos(0), super::command(0, Op::Write, 0, 4 * rows));
        drive.advance(Nanos(1 << 40), &mut done);
        drive.submit(Nanos(1 << 40), super::command(1, Op::Flush, 0, 0));
        drive.advance(Nanos(1 << 41), &mut done);
        (drive.power_loss(Nanos(1 << 41)) - Nanos(1 << 41)).0
    };
    let of_one = recovery_ns(1);
    for rows in [2, 5, 20] {
        // A page is read in 10 us.
        assert_eq!(recovery_ns(rows) - of_one, u64::from(rows - 1) * 10_000);
    }
}
