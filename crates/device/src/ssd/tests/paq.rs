//! Physically addressed queueing beside out-of-order scheduling, with times and orders
//! worked out by hand.

use blklab_blk::{Nanos, Op};

use crate::ssd::Ssd;
use crate::ssd::tests::{command, small};
use crate::{Completion, Device};

/// A drive of one channel with two dies of two planes. Page `p` of the address
/// space is on die `p % 2`, plane `p / 2 % 2`, and there on page `p / 4`.
fn drive(scheduling: &str) -> Ssd {
    let scheduling = format!("scheduling = \"{scheduling}\"");
    let spec = small(&[
        ("scheduling = \"read_priority\"", &scheduling),
        ("channels = 2", "channels = 1"),
        ("dies_per_package = 1", "dies_per_package = 2"),
        ("multi_plane = \"any\"", "multi_plane = \"same_page\""),
    ]);
    Ssd::new(spec, 1)
}

/// Submits reads of these pages at once; their ends in order, as (page, time).
fn read(drive: &mut Ssd, pages: &[u64]) -> Vec<(u64, u64)> {
    for (tag, page) in pages.iter().enumerate() {
        drive.submit(Nanos(0), command(tag as u32, Op::Read, *page, 1));
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    let end = |end: &Completion| (pages[end.tag as usize], end.at.0);
    done.iter().map(end).collect()
}

/// Doorbell and firmware; command, array and data of a page; link and status.
const ARRIVES: u64 = 100 + 1000;
const COMMAND: u64 = 290;
const ARRAY: u64 = 10_000;
const DATA: u64 = 5120;
const AFTER: u64 = 1364 + 100;

#[test]
fn an_idle_die_reads_before_data_takes_the_bus() {
    // Two reads of die 0 and one of die 1. Die 0 senses and sends first; then
    // the bus has die 1's data and die 0's next command to choose from.
    let sent = ARRIVES + COMMAND + ARRAY + DATA;
    let mut first_come = drive("out_of_order");
    let ends = read(&mut first_come, &[0, 1, 4]);
    let last = sent + DATA + COMMAND + ARRAY + DATA;
    assert_eq!(
        ends,
        [
            (0, sent + AFTER),
            (1, sent + DATA + AFTER),
            (4, last + AFTER)
        ]
    );

    let mut paq = drive("paq");
    let ends = read(&mut paq, &[0, 1, 4]);
    let second = sent + COMMAND + DATA;
    let last = sent + COMMAND + ARRAY + DATA;
    assert_eq!(
        ends,
        [(0, sent + AFTER), (1, second + AFTER), (4, last + AFTER)]
    );
    assert_eq!(paq.stats(Nanos(0)).reads_clumped, 1);
    assert_eq!(first_come.stats(Nanos(0)).reads_clumped, 0);
}

/// `commands_first` has the same effect under other scheduling.
#[test]
fn an_idle_die_may_read_first_without_paq() {
    let spec = small(&[
        ("channels = 2", "channels = 1"),
        ("dies_per_package = 1", "dies_per_package = 2"),
        ("rate_mt_s = 800", "rate_mt_s = 800\ncommands_first = true"),
    ]);
    let ends = read(&mut Ssd::new(spec, 1), &[0, 1, 4]);
    let sent = ARRIVES + COMMAND + ARRAY + DATA;
    let (second, last) = (sent + COMMAND + DATA, sent + COMMAND + ARRAY + DATA);
    let expected = [(0, sent), (1, second), (4, last)];
    assert_eq!(ends, expected.map(|(page, at)| (page, at + AFTER)));
}

#[test]
fn reads_that_fit_together_go_before_one_alone() {
    // While page 0 is read, page 4 waits alone and pages 8 and 10 are at the
    // same place of two planes.
    let order = |scheduling| {
        let mut drive = drive(scheduling);
        let ends = read(&mut drive, &[0, 4, 8, 10]);
        let order: Vec<u64> = ends.iter().map(|end| end.0).collect();
        let stats = drive.stats(Nanos(0));
        (order, stats.multi_plane_commands, stats.reads_packed)
    };
    assert_eq!(order("out_of_order"), (vec![0, 4, 8, 10], 1, 0));
    assert_eq!(order("paq"), (vec![0, 8, 10, 4], 1, 1));
}

#[test]
fn nobody_is_passed_over_for_ever() {
    // Page 4 alone, then pairs on pages 2, 3, ... of both planes.
    let mut pages = vec![0, 4];
    pages.extend((2..13).flat_map(|place| [place * 4, place * 4 + 2]));
    let ends = read(&mut drive("paq"), &pages);
    let place = ends.iter().position(|end| end.0 == 4);
    assert_eq!(place, Some(1 + 8 * 2));
}
