//! Any mix of commands on any small drive: every command completes once, completions are
//! in order of time, and `next_event` is right.

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, CommandStatus, Completion, Device, DriveSpec, DriveState};
use proptest::prelude::*;

use crate::harness::cases;
use crate::small::{small, small_in_rows, small_with_logs};
use crate::texts::changed;

#[derive(Clone, Debug)]
struct RandomCommand {
    kind: u8,
    place: u32,
    /// In the first eighth of the drive, which is written more often.
    near: bool,
    sectors: u32,
    fua: bool,
    pause_us: u16,
}

fn steps() -> impl Strategy<Value = Vec<RandomCommand>> {
    let place = (any::<u32>(), any::<bool>());
    let step = (0u8..40, place, 1u32..64, any::<bool>(), 0u16..300).prop_map(
        |(kind, (place, near), sectors, fua, pause_us)| RandomCommand {
            kind,
            place,
            near,
            sectors,
            fua: fua && place % 4 == 0,
            pause_us: if place % 8 == 0 { pause_us } else { 0 },
        },
    );
    prop::collection::vec(step, 1..1500)
}

/// More events than a small drive handles before it comes to rest.
const MAX_EVENTS: u32 = 500_000;

/// Lets the drive run up to `now`, one event at a time.
fn run_to(drive: &mut dyn Device, now: Nanos, done: &mut Vec<Completion>) {
    for _ in 0..MAX_EVENTS {
        let next = drive.next_event();
        if next > now || next == Nanos::MAX {
            return;
        }
        let before = done.len();
        drive.advance(next, done);
        assert!(drive.next_event() > next, "an event stays due");
        assert!(
            done[before..].iter().all(|c| c.at <= next),
            "an end from the future"
        );
    }
    panic!("the drive does not come to rest");
}

/// Submits commands with at most `depth` outstanding, and checks every completion.
fn check(spec: &DriveSpec, steps: &[RandomCommand], depth: usize) -> Result<(), TestCaseError> {
    let mut drive = spec.build(7);
    let capacity = spec.identity().capacity_sectors;
    let discards = spec.identity().discard;
    let mut now = Nanos::ZERO;
    let mut done = Vec::new();
    // The status that every command in flight should end with.
    let mut in_flight = vec![None; steps.len()];
    let mut last = Nanos::ZERO;
    let mut outstanding = 0usize;
    let mut take = |done: &mut Vec<Completion>, in_flight: &mut [Option<CommandStatus>]| {
        for completion in done.drain(..) {
            prop_assert!(completion.at >= last);
            last = completion.at;
            let expected = in_flight[completion.tag as usize].take();
            prop_assert_eq!(expected, Some(completion.status));
        }
        Ok(())
    };
    for (tag, step) in steps.iter().enumerate() {
        let op = match step.kind {
            0 => Op::Flush,
            1 => Op::Discard,
            2 => Op::WriteZeroes,
            3..=12 => Op::Read,
            _ => Op::Write,
        };
        // A few start beyond the end or reach over it.
        let sector = match step.near {
            true => step.place as u64 % (capacity / 8),
            false => step.place as u64 % (capacity + 32),
        };
        let sectors = if op == Op::Flush { 0 } else { step.sectors };
        let legal = op == Op::Flush
            || (sector + sectors as u64 <= capacity && (op != Op::Discard || discards));
        drive.submit(
            now,
            Command {
                tag: tag as u32,
                queue: 0,
                op,
                sector: Sector(sector),
                sectors,
                fua: step.fua,
            },
        );
        in_flight[tag] = Some(if legal {
            CommandStatus::Ok
        } else {
            CommandStatus::IoError
        });
        outstanding += 1;
        now = Nanos(now.0 + step.pause_us as u64 * 1000);
        run_to(drive.as_mut(), now, &mut done);
        while outstanding - done.len() >= depth {
            now = drive.next_event();
            prop_assert!(now < Nanos::MAX, "stuck with {outstanding} outstanding");
            run_to(drive.as_mut(), now, &mut done);
        }
        outstanding -= done.len();
        take(&mut done, &mut in_flight)?;
    }
    run_to(drive.as_mut(), Nanos(u64::MAX - 1), &mut done);
    take(&mut done, &mut in_flight)?;
    prop_assert!(
        in_flight.iter().all(Option::is_none),
        "a command never ended"
    );
    prop_assert_eq!(drive.next_event(), Nanos::MAX);
    Ok(())
}

/// A disk of 2 MiB.
fn disk(fcfs: bool, write_back: bool, read_ahead_kb: u32) -> String {
    let at_least_kb = read_ahead_kb / 2;
    let read_ahead = format!("read_ahead_kb = {read_ahead_kb}\nread_ahead_min_kb = {at_least_kb}");
    let mut changes = vec![
        ("capacity_bytes = 100663296", "capacity_bytes = 2097152"),
        (
            "[[1000, 64], [1, 0], [1000, 48, 4, 6]]",
            "[[20, 64], [1, 0], [40, 48, 4, 6]]",
        ),
        (
            "size_kb = 65536\nsegments = 16",
            "size_kb = 128\nsegments = 4",
        ),
        (
            "read_ahead_kb = 2048\nread_ahead_min_kb = 1024",
            &read_ahead,
        ),
        ("patience_us = 500000", "patience_us = 50000"),
    ];
    if fcfs {
        changes.push(("\"shortest_positioning\"\npatience_us = 50000", "\"fcfs\""));
    }
    if !write_back {
        let through = "write_back = false";
        let buffered = "write_back = true\ndirty_share = 0.25\nline_kb = 64\n\
                        flush_limit_us = 1000000\ndestage_queue = 32";
        changes.push((buffered, through));
    }
    changed(&crate::texts::complete("disk"), &changes)
}

fn parse(text: &str) -> DriveSpec {
    DriveSpec::parse("small.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn an_ssd_ends_everything_once_and_in_order(
        small in small(), steps in steps(), depth in 1usize..48,
    ) {
        check(&parse(&small.text()), &steps, depth)?;
    }

    /// Room that collection needs in a row of planes is never used up otherwise, so every
    /// write within the capacity finds a place.
    #[test]
    fn planes_in_step_end_everything_once_and_in_order(
        small in small_in_rows(), steps in steps(), depth in 1usize..48,
    ) {
        check(&parse(&small.text()), &steps, depth)?;
    }

    /// A drive that maps blocks goes on when it is asked for in the state after long overwriting.
    #[test]
    fn old_logs_end_everything_once_and_in_order(
        small in small_with_logs(), steps in steps(), depth in 1usize..48,
    ) {
        let aged = parse(&small.text()).in_state(DriveState::Aged);
        check(&aged.expect("an SSD"), &steps, depth)?;
    }

    #[test]
    fn a_disk_ends_everything_once_and_in_order(
        fcfs: bool, write_back: bool, ahead in 0u32..64, steps in steps(), depth in 1usize..32,
    ) {
        check(&parse(&disk(fcfs, write_back, ahead)), &steps, depth)?;
    }

    #[test]
    fn a_null_drive_ends_everything_once_and_in_order(steps in steps(), depth in 1usize..100) {
        let text = blklab_device::registry::text("null").expect("listed");
        check(&parse(text), &steps, depth)?;
    }
}
