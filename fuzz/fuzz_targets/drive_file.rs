//! Drive descriptions with other numbers in them: an error with its line, or a
//! drive that ends every command it is given. Never a panic, never a hang.
#![no_main]

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, Completion, Device, DriveSpec, registry};
use libfuzzer_sys::fuzz_target;

/// A line and the number to write there; a text in place of it now and then.
type Edit = (u8, u64, bool);

/// The drive that is run. Those that come with the program are only read: they
/// are too large.
const SMALL: &str = include_str!("small.toml");
/// Larger ones take too long to build.
const MOST_SECTORS: u64 = (64 << 20) / 512;

fuzz_target!(|input: (u8, Vec<Edit>, Vec<(u8, u32, u16)>)| {
    let (base, edits, commands) = input;
    let others: Vec<&str> = registry::names().filter_map(registry::text).collect();
    let base = *others.get(base as usize).unwrap_or(&SMALL);
    let text = edited(base, &edits);
    match DriveSpec::parse("fuzz.toml", &text) {
        Err(error) if edits.is_empty() => panic!("{error}"),
        Err(error) => assert!(error.line <= text.lines().count() + 1),
        Ok(spec) if base == SMALL && spec.identity().capacity_sectors <= MOST_SECTORS => {
            run(spec.build(1).as_mut(), &commands);
        }
        Ok(_) => {}
    }
});

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for &(line, number, is_text) in edits.iter().take(8) {
        let at = line as usize % lines.len();
        if let Some((key, _)) = lines[at].clone().split_once(" = ") {
            let value = match is_text {
                true => format!("\"{number}\""),
                false => number.to_string(),
            };
            lines[at] = format!("{key} = {value}");
        }
    }
    lines.join("\n")
}

/// Gives the drive up to 100 commands, as many at once as it takes.
fn run(drive: &mut dyn Device, commands: &[(u8, u32, u16)]) {
    let identity = drive.identify().clone();
    let block = u64::from(identity.logical_block_bytes / 512);
    let blocks = identity.capacity_sectors / block;
    let mut now = Nanos::ZERO;
    let mut done: Vec<Completion> = Vec::new();
    let mut given = 0;
    for (tag, &(op, place, length)) in (0..).zip(commands.iter().take(100)) {
        let op = match op % 5 {
            0 => Op::Read,
            1 => Op::Write,
            2 if identity.discard => Op::Discard,
            3 => Op::Flush,
            _ => Op::Write,
        };
        let first = u64::from(place) % blocks;
        let most = u64::from(identity.max_transfer_sectors) / block;
        let length = (1 + u64::from(length)).min(most.max(1)).min(blocks - first);
        let sectors = match op {
            Op::Flush => 0,
            _ => (length * block) as u32,
        };
        while given - done.len() >= identity.queue_depth as usize {
            now = step(drive, now, &mut done);
        }
        drive.submit(
            now,
            Command {
                tag,
                queue: 0,
                op,
                sector: Sector(first * block),
                sectors,
                fua: false,
            },
        );
        given += 1;
    }
    while done.len() < given {
        now = step(drive, now, &mut done);
    }
    assert_eq!(done.len(), given);
}

fn step(drive: &mut dyn Device, now: Nanos, done: &mut Vec<Completion>) -> Nanos {
    let next = drive.next_event();
    assert!(next != Nanos::MAX, "a command is out and nothing goes on");
    assert!(next >= now, "time ran back");
    drive.advance(next, done);
    next
}
