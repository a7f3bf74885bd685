//! Arbitration between submission queues, and the sharing of the link.

use blklab_blk::{Nanos, Op, Sector};

use crate::ssd::Ssd;
use crate::ssd::tests::{command, small};
use crate::{Command, Completion, Device};

/// A drive whose controller takes 10 us for every command, and does nothing
/// else for long: discards, which touch no flash.
fn drive(nvme: &str) -> Ssd {
    let table = format!("[nvme]\n{nvme}\n[controller]\ninterval_us = 10\ndiscard_us = 1");
    let queues = ("queue_depth = 64", "queue_depth = 64\nqueues = 4");
    Ssd::new(small(&[("[controller]", &table), queues]), 1)
}

/// Puts this many commands into each queue at once; the queues in the order in
/// which their commands ended, and the times.
fn ends(drive: &mut Ssd, counts: &[u32]) -> Vec<(usize, u64)> {
    for (queue, count) in counts.iter().enumerate() {
        for number in 0..*count {
            let command = Command {
                tag: (queue as u32) << 16 | number,
                queue: queue as u16,
                op: Op::Discard,
                sector: Sector(0),
                sectors: 1,
                fua: false,
            };
            drive.submit(Nanos(0), command);
        }
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    assert_eq!(done.len() as u32, counts.iter().sum::<u32>());
    // Commands of one queue are fetched in order.
    for queue in 0..counts.len() as u32 {
        let tags = done.iter().map(|end| end.tag);
        assert!(tags.filter(|tag| tag >> 16 == queue).is_sorted());
    }
    let queue_of = |end: &Completion| ((end.tag >> 16) as usize, end.at.0);
    done.iter().map(queue_of).collect()
}

fn order(nvme: &str, counts: &[u32]) -> Vec<usize> {
    let ends = ends(&mut drive(nvme), counts);
    ends.iter().map(|end| end.0).collect()
}

#[test]
fn round_robin_takes_a_burst_of_each_queue() {
    let one = "arbitration = \"round_robin\"\nburst = 1";
    assert_eq!(order(one, &[3, 1, 2]), [0, 1, 2, 0, 2, 0]);
    let two = "arbitration = \"round_robin\"\nburst = 2";
    assert_eq!(order(two, &[3, 1, 4]), [0, 0, 1, 2, 2, 0, 2, 2]);
    // Without the table: as they came.
    let mut plain = Ssd::new(small(&[]), 1);
    let plain: Vec<usize> = ends(&mut plain, &[2, 2]).iter().map(|end| end.0).collect();
    assert_eq!(plain, [0, 0, 1, 1]);
}

#[test]
fn urgent_queues_go_first_and_others_by_weight() {
    let weighted = "arbitration = \"weighted\"\nqueue_priorities = \"lhum\"\nburst = 1\nhigh_weight = 3\nmedium_weight = 2\nlow_weight = 1";
    // Queue 2 is urgent, 1 high, 3 medium, 0 low; a round is 1 1 1 3 3 0.
    let order = order(weighted, &[3, 6, 2, 4]);
    assert_eq!(order[..2], [2, 2]);
    let mut rounds = order[2..].to_vec();
    rounds.truncate(12);
    let count = |queue: usize, part: &[usize]| part.iter().filter(|q| **q == queue).count();
    for round in rounds.chunks(6) {
        assert_eq!(
            [1, 3, 0].map(|queue| count(queue, round)),
            [3, 2, 1],
            "{round:?}"
        );
    }
    // Whoever is left alone is not held back by its weight.
    assert_eq!(order[14..], [0]);
}

#[test]
fn waits_are_counted_by_class() {
    let mut drive = drive("arbitration = \"weighted\"\nqueue_priorities = \"lu\"");
    ends(&mut drive, &[2, 2]);
    let fetches = drive.stats(Nanos(0)).fetches;
    assert_eq!(fetches.commands, [2, 0, 0, 2]);
    // Fetched at once, after 10, 20 and 30 us.
    assert_eq!(fetches.wait_ns, [10_000, 0, 0, 20_000 + 30_000]);
}

#[test]
fn no_more_are_inside_than_the_limit() {
    let spec = |limit: &str| {
        let table =
            format!("[nvme]\narbitration = \"round_robin\"\n{limit}\n[controller]\ndiscard_us = 1");
        small(&[("[controller]", &table)])
    };
    // One at a time: each is fetched when the one before has ended.
    let mut single = Ssd::new(spec("fetch_limit = 1"), 1);
    let times: Vec<u64> = ends(&mut single, &[2, 2]).iter().map(|end| end.1).collect();
    // Doorbell, then firmware and status for each.
    assert_eq!(times, [1200, 2300, 3400, 4500]);
    let mut all = Ssd::new(spec(""), 1);
    let times: Vec<u64> = ends(&mut all, &[2, 2]).iter().map(|end| end.1).collect();
    assert_eq!(times, [1200; 4]);
}

/// A cache that was full takes nothing until it is empty: writes of three queues
/// wait for that, more than the controller processes at a time. A read of the
/// fourth queue is not among them.
#[test]
fn writes_that_wait_for_room_do_not_keep_reads_out() {
    let nvme = "[nvme]\narbitration = \"round_robin\"\nburst = 1\nfetch_limit = 16\n[controller]";
    let queues = ("queue_depth = 64", "queue_depth = 64\nqueues = 4");
    let resume = ("size_kb = 256", "size_kb = 1024\nresume_kb = 1024");
    let mut drive = Ssd::new(small(&[("[controller]", nvme), queues, resume]), 1);
    let mut submit = |at: Nanos, queue: u16, number: u32, op: Op| {
        let command = Command {
            tag: (queue as u32) << 16 | number,
            queue,
            op,
            sector: Sector(number as u64 * 64),
            sectors: if op == Op::Read { 8 } else { 64 },
            fua: false,
        };
        let mut done: Vec<Completion> = Vec::new();
        drive.advance(at, &mut done);
        drive.submit(at, command);
        done
    };
    // 32 of these fill the cache.
    for queue in 0..3 {
        for number in 0..50 {
            submit(Nanos(0), queue, queue as u32 * 50 + number, Op::Write);
        }
    }
    let now = Nanos(800_000);
    let written = submit(now, 3, 0, Op::Read).len();
    assert!((32..150 - 16).contains(&written), "{written} have ended");
    let mut done: Vec<Completion> = Vec::new();
    while !done.iter().any(|end| end.tag >> 16 == 3) {
        drive.advance_to_completion(Nanos::MAX, &mut done);
    }
    let read = done.last().expect("it has ended");
    println!("{:?} after {} writes", read.at - now, done.len() - 1);
    assert_eq!(done.len(), 1, "writes ended before the read");
}

/// A read and, behind it, writes that the controller takes one every 20 us: when
/// each of them ended.
fn link_ends(full_duplex: bool) -> Vec<u64> {
    let duplex = format!("full_duplex = {full_duplex}");
    let drive = small(&[
        ("full_duplex = true", &duplex),
        ("[controller]", "[controller]\ninterval_us = 20"),
    ]);
    let mut drive = Ssd::new(drive, 1);
    for tag in 0..20 {
        let op = if tag == 0 { Op::Read } else { Op::Write };
        drive.submit(Nanos(0), command(tag, op, tag as u64, 1));
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    done.sort_by_key(|end| end.tag);
    done.iter().map(|end| end.at.0).collect()
}

/// A write that is not fetched yet does not occupy the link.
#[test]
fn a_shared_link_is_taken_when_data_moves_and_not_before() {
    const PAGE_NS: u64 = 4096 * 1000 / 3000 + 1;
    for (shared, apart) in link_ends(false).into_iter().zip(link_ends(true)) {
        assert!(shared <= apart + 2 * PAGE_NS, "{shared} ns, {apart} apart");
    }
}

/// Writes into DRAM at once, a pause of 500 us after every third and of 2 ms after every
/// sixth: when they end tells when each was fetched.
#[test]
fn the_firmware_pauses_after_so_many_writes() {
    let table = "[controller]\nwrite_pauses = [[3, 500], [6, 2000]]";
    let mut drive = Ssd::new(small(&[("[controller]", table)]), 1);
    let mut done: Vec<Completion> = Vec::new();
    for tag in 0..13 {
        drive.submit(Nanos(0), command(tag, Op::Write, tag as u64, 1));
    }
    drive.advance(Nanos(1 << 40), &mut done);
    let fetched: Vec<u64> = done.iter().map(|end| end.at.0 / 400_000).collect();
    assert_eq!(fetched, [0, 0, 0, 1, 1, 1, 7, 7, 7, 8, 8, 8, 15]);
}

/// The firmware takes a while for each page of a read beyond the first, and more slowly fetches
/// what comes next.
#[test]
fn a_read_of_several_pages_delays_the_next_command() {
    let second_ends = |slots| {
        let table = "[controller]\ninterval_us = 10\npage_interval_us = 5\ndiscard_us = 1";
        let mut drive = Ssd::new(small(&[("[controller]", table)]), 1);
        drive.submit(Nanos(0), command(0, Op::Read, 0, slots));
        drive.submit(Nanos(0), command(1, Op::Discard, 5_000, 1));
        let mut done: Vec<Completion> = Vec::new();
        drive.advance(Nanos(1 << 40), &mut done);
        let second = done.iter().find(|end| end.tag == 1);
        second.expect("both end").at.0
    };
    let alone = second_ends(1);
    for slots in [2, 4, 9] {
        assert_eq!(second_ends(slots) - alone, u64::from(slots - 1) * 5_000);
    }
}
