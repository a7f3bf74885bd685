//! Statistics that are reset in the midst of work: what was counted before and
//! what is counted after add up to what is counted without a reset.

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, Completion, Device, DriveSpec};
use proptest::prelude::*;

use crate::harness::cases;
use crate::small::{small, small_in_rows};

/// What is no sum: extremes and means, erases, which count for the drive's life,
/// the number of a die's channel, and a stall that goes on, which counts in both
/// parts.
fn is_no_sum(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or(field);
    name.starts_with("longest_")
        || name.ends_with("_erases") && field.contains("wear")
        || ["writes_stalled", "channel"].contains(&name)
        // What is under way counts when it ends, from the reset on.
        || field.ends_with("collection.busy_ns")
        || field.ends_with("merges.busy_ns")
}

/// Numbers with the names of the fields that they are in.
type Numbers = Vec<(String, f64)>;

/// All of a drive's statistics.
fn numbers(drive: &dyn Device, now: Nanos) -> Numbers {
    let text = format!("{:?}", drive.stats(now));
    let mut numbers = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let (mut name, mut word) = (String::new(), String::new());
    for letter in text.chars() {
        match letter {
            ':' => name = std::mem::take(&mut word).trim().to_string(),
            '{' | '[' | '(' => {
                path.push(std::mem::take(&mut name));
                word.clear();
            }
            ',' | '}' | ']' | ')' => {
                if let Ok(number) = word.trim().parse() {
                    numbers.push((format!("{}.{name}", path.join(".")), number));
                }
                word.clear();
                if letter != ',' {
                    name = path.pop().unwrap_or_default();
                }
            }
            _ => word.push(letter),
        }
    }
    numbers
}

/// A kind, a place and a length in sectors, and a pause after it.
type DriveStep = (u8, u32, u32, u16);

/// Runs the steps with at most eight outstanding. Statistics are reset before
/// step `reset`; returns what was counted until then, and from then on.
fn run(spec: &DriveSpec, steps: &[DriveStep], reset: Option<usize>) -> (Numbers, Numbers) {
    let mut drive = spec.build(3);
    let (mut now, mut outstanding) = (Nanos::ZERO, 0);
    let mut done: Vec<Completion> = Vec::new();
    let mut before = Vec::new();
    for (number, (kind, place, sectors, pause_us)) in steps.iter().enumerate() {
        if reset == Some(number) {
            before = numbers(drive.as_ref(), now);
            drive.reset_stats(now);
        }
        let op = match kind {
            0 => Op::Flush,
            1 => Op::Discard,
            2..=9 => Op::Read,
            _ => Op::Write,
        };
        let capacity = spec.identity().capacity_sectors;
        let command = Command {
            tag: number as u32,
            queue: 0,
            op,
            sector: Sector(*place as u64 % (capacity - 64)),
            sectors: if op == Op::Flush { 0 } else { *sectors },
            fua: false,
        };
        drive.submit(now, command);
        outstanding += 1;
        now = Nanos(now.0 + *pause_us as u64 * 1000);
        drive.advance(now, &mut done);
        while outstanding - done.len() >= 8 {
            now = drive.next_event();
            drive.advance(now, &mut done);
        }
        outstanding -= done.len();
        done.clear();
    }
    let end = Nanos(now.0 + 1_000_000_000);
    drive.advance(end, &mut done);
    (before, numbers(drive.as_ref(), end))
}

fn parts_add_up(text: &str, steps: &[DriveStep], reset: usize) -> Result<(), TestCaseError> {
    let spec = DriveSpec::parse("small.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let (_, whole) = run(&spec, steps, None);
    let (before, after) = run(&spec, steps, Some(reset % steps.len()));
    prop_assert_eq!(whole.len(), before.len());
    prop_assert_eq!(whole.len(), after.len());
    let mut differ = Vec::new();
    for ((whole, before), after) in whole.iter().zip(&before).zip(&after) {
        if !is_no_sum(&whole.0) && whole.1 != before.1 + after.1 {
            let field = &whole.0;
            differ.push(format!("{field} {}: {} and {}", whole.1, before.1, after.1));
        }
    }
    prop_assert!(differ.is_empty(), "{differ:#?}");
    Ok(())
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn what_is_counted_in_two_parts_is_the_whole(
        drive in prop_oneof![small(), small_in_rows()],
        steps in prop::collection::vec((0u8..40, any::<u32>(), 1u32..64, 0u16..200), 100..800),
        reset: usize,
    ) {
        parts_add_up(&drive.text(), &steps, reset)?;
    }
}
