//! What requests waited for, in cases worked out by hand.

use blklab_blk::{Nanos, Op, Sector};
use blklab_stats::{DeviceStats, Wait, WaitCounts};

use crate::ssd::Ssd;
use crate::ssd::tests::{command, overwrite, small};
use crate::{Command, Completion, Device};

/// A drive of one channel with two dies of two planes. Page `p` of the address
/// space is on die `p % 2`, plane `p / 2 % 2`.
fn drive(changes: &[(&str, &str)]) -> Ssd {
    let mut all = vec![
        ("channels = 2", "channels = 1"),
        ("dies_per_package = 1", "dies_per_package = 2"),
        ("multi_plane = \"any\"", "multi_plane = \"none\""),
    ];
    all.extend(changes);
    Ssd::new(small(&all), 1)
}

/// Carries out commands on this many pages each, all submitted at once.
fn run(drive: &mut Ssd, op: Op, fua: bool, commands: &[(u64, u32)]) -> DeviceStats {
    for (tag, (page, pages)) in commands.iter().enumerate() {
        let command = Command {
            tag: tag as u32,
            queue: 0,
            op,
            sector: Sector(page * 8),
            sectors: pages * 8,
            fua,
        };
        drive.submit(Nanos(0), command);
    }
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(1 << 40), &mut done);
    assert_eq!(done.len(), commands.len());
    drive.stats(Nanos(1 << 40))
}

/// Requests, those that waited, and what for: channel, die, collection, map and
/// cache.
fn counts(waits: &WaitCounts) -> (u64, u64, [u64; 5]) {
    let each = Wait::ALL.map(|wait| waits.waited_for(wait));
    (waits.requests(), waits.waited(), each)
}

/// A write that is programmed for 500 us, and reads of this many pages that come
/// at `now`; the reads' latencies.
fn reads_beside_a_program(changes: &[(&str, &str)], now: Nanos, pages: &[u64]) -> Vec<u64> {
    let suspends = ("erase_us = 500", "erase_us = 500\nprogram_suspend_us = 30");
    let mut all = vec![suspends, ("program_us = 50", "program_us = 500")];
    all.extend(changes);
    let mut drive = drive(&all);
    let command = |tag: usize, op: Op, page: u64| Command {
        tag: tag as u32,
        queue: 0,
        op,
        sector: Sector(page * 8),
        sectors: 8,
        fua: true,
    };
    drive.submit(Nanos(0), command(pages.len(), Op::Write, 0));
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(now, &mut done);
    for (tag, page) in pages.iter().enumerate() {
        drive.submit(now, command(tag, Op::Read, *page));
    }
    drive.advance(Nanos(1 << 40), &mut done);
    done.retain(|end| (end.tag as usize) < pages.len());
    done.sort_by_key(|end| end.tag);
    done.iter().map(|end| end.at.0 - now.0).collect()
}

/// While a die suspends its program for a read, its channel is free.
#[test]
fn a_die_that_stops_its_program_leaves_the_channel_to_others() {
    let took = reads_beside_a_program(&[], Nanos(100_000), &[4, 1]);
    assert!((40_000..60_000).contains(&took[0]), "{took:?}");
    assert!((10_000..25_000).contains(&took[1]), "{took:?}");
}

/// A read that comes while the data of a program is on the bus suspends the program as soon
/// as the array has begun it.
#[test]
fn a_program_is_stopped_for_a_read_that_came_before_its_array_began() {
    // A page takes 82 us at this rate.
    let slow = ("rate_mt_s = 800", "rate_mt_s = 50");
    for now_us in [10, 40, 70] {
        let took = reads_beside_a_program(&[slow], Nanos(now_us * 1000), &[4])[0];
        let bus_left_ns = 83_500 - now_us * 1000;
        let alone_ns = reads_beside_a_program(&[slow], Nanos(1_000_000), &[4])[0];
        let expected = bus_left_ns + 30_000 + alone_ns;
        assert!(took.abs_diff(expected) < 2_000, "{took} of {expected}");
    }
}

#[test]
fn a_read_waits_for_its_die_or_for_its_channel() {
    // One has nobody in its way.
    let stats = run(&mut drive(&[]), Op::Read, false, &[(0, 1)]);
    assert_eq!(counts(&stats.read_waits), (1, 0, [0; 5]));
    // The second waits until the die has given its data away.
    let stats = run(&mut drive(&[]), Op::Read, false, &[(0, 1), (4, 1)]);
    assert_eq!(counts(&stats.read_waits), (2, 1, [0, 1, 0, 0, 0]));
    // The other die is idle, and its data finds the bus taken.
    let stats = run(&mut drive(&[]), Op::Read, false, &[(0, 1), (1, 1)]);
    assert_eq!(counts(&stats.read_waits), (2, 1, [1, 0, 0, 0, 0]));
    // The third waits for both: a request counts once for each.
    let stats = run(&mut drive(&[]), Op::Read, false, &[(0, 1), (1, 1), (4, 1)]);
    assert_eq!(counts(&stats.read_waits), (3, 2, [2, 1, 0, 0, 0]));
    assert_eq!(counts(&stats.write_waits), (0, 0, [0; 5]));
}

#[test]
fn pages_of_one_read_are_not_in_its_way() {
    // Two pages of each of two dies, which have to go one after the other.
    let stats = run(&mut drive(&[]), Op::Read, false, &[(0, 8)]);
    assert_eq!(counts(&stats.read_waits), (1, 0, [0; 5]));
    // Behind another read they wait, which counts once.
    let stats = run(&mut drive(&[]), Op::Read, false, &[(8, 1), (0, 8)]);
    assert_eq!(counts(&stats.read_waits), (2, 1, [1, 1, 0, 0, 0]));
}

#[test]
fn a_write_that_is_awaited_waits_for_its_die() {
    // It ends when its page is programmed; the second follows on the die.
    let stats = run(&mut drive(&[]), Op::Write, true, &[(0, 1), (4, 1)]);
    assert_eq!(counts(&stats.write_waits), (2, 1, [0, 1, 0, 0, 0]));
    // In the cache nobody waits for the flash.
    let stats = run(&mut drive(&[]), Op::Write, false, &[(0, 1), (4, 1)]);
    assert_eq!(counts(&stats.write_waits), (2, 0, [0; 5]));
}

#[test]
fn writes_wait_for_room_in_the_cache() {
    // Room for four pages; the others wait, behind each other as well.
    let mut drive = drive(&[("size_kb = 256", "size_kb = 16")]);
    let pages: Vec<(u64, u32)> = (0..12).map(|page| (page, 1)).collect();
    let stats = run(&mut drive, Op::Write, false, &pages);
    assert_eq!(counts(&stats.write_waits), (12, 8, [0, 0, 0, 0, 8]));
}

#[test]
fn reads_wait_for_the_map() {
    let cached = "map_unit_bytes = 4096\nmap_cache_kb = 2\nmap_entry_bytes = 64";
    let mut drive = drive(&[
        ("map_unit_bytes = 4096", cached),
        ("state = \"filled\"", "state = \"fresh\""),
    ]);
    overwrite(&mut drive, 20_000, 3);
    drive.reset_stats(Nanos(1 << 45));
    let mut done: Vec<Completion> = Vec::new();
    let read = |page: u64| Command {
        tag: 0,
        queue: 0,
        op: Op::Read,
        sector: Sector(page * 8),
        sectors: 8,
        fua: false,
    };
    // The second time its entry is there.
    for page in [20_000, 20_000] {
        drive.submit(Nanos(1 << 45), read(page));
        drive.advance(Nanos(1 << 46), &mut done);
    }
    let waits = drive.stats(Nanos(1 << 46)).read_waits;
    assert_eq!(counts(&waits), (2, 1, [0, 0, 0, 1, 0]));
}

#[test]
fn collection_makes_requests_wait() {
    let mut drive = drive(&[("start_blocks = 4", "start_blocks = 4\npreemptible = false")]);
    overwrite(&mut drive, 60_000, 5);
    let stats = drive.stats(Nanos(1 << 50));
    let writes = counts(&stats.write_waits);
    assert!(stats.collection.writes_stalled > 0);
    // Those behind the one that is stalled wait with it.
    assert!(writes.2[2] >= stats.collection.writes_stalled, "{writes:?}");
    assert!(writes.2[2] <= writes.1 && writes.1 <= writes.0);
    assert_eq!(writes.0, 60_000);
}

/// A write whose plane has no room stops none that goes to another plane, and does
/// not wait for what the other needs.
#[test]
fn a_plane_without_room_stops_only_its_own_writes() {
    let mut drive = drive(&[("start_blocks = 4", "start_blocks = 4\npreemptible = false")]);
    let slots = drive.controller.media.spec.logical_slots();
    let mut rng = crate::Rng::new(3);
    let (mut now, mut done, mut tag) = (Nanos::ZERO, Vec::<Completion>::new(), 0);
    let mut write = |drive: &mut Ssd, now: Nanos, page: u64| {
        tag += 1;
        drive.submit(now, command(tag, Op::Write, page, 1));
        tag
    };
    // Pages of plane 0 of die 0, until one has to wait for a block.
    while drive.stats(now).collection.writes_stalled == 0 {
        let page = rng.below(slots as u32 / 4) as u64 * 4;
        write(&mut drive, now, page);
        now = Nanos(now.0 + 40_000);
        drive.advance(now, &mut done);
        assert!(now.0 < 1 << 40, "it always has room");
    }
    done.clear();
    let (same, other) = (write(&mut drive, now, 4), write(&mut drive, now, 1));
    let ended = |tag: u32, done: &[Completion]| done.iter().position(|end| end.tag == tag);
    drive.advance(Nanos(now.0 + (1 << 40)), &mut done);
    assert!(ended(other, &done) < ended(same, &done), "{done:?}");
    assert!(ended(other, &done) == Some(0), "{done:?}");
}

#[test]
fn reads_behind_collection_are_those_that_it_held_up() {
    let mut drive = drive(&[]);
    let slots = drive.controller.media.spec.logical_slots();
    overwrite(&mut drive, 60_000, 1);
    let (mut now, mut done) = (Nanos(1 << 60), Vec::<Completion>::new());
    drive.advance(now, &mut done);
    drive.reset_stats(now);
    let (mut reads, mut outstanding) = (0, 0);
    for n in 0..20_000u64 {
        let op = [Op::Read, Op::Write][n as usize % 2];
        let page = (n / 2 * 7919 + n % 2 * 5000) % slots;
        drive.submit(now, command(n as u32, op, page, 1));
        (reads, outstanding) = (reads + u64::from(op == Op::Read), outstanding + 1);
        while outstanding >= 16 {
            now = drive.advance_to_completion(Nanos::MAX, &mut done);
            outstanding -= done.drain(..).count();
        }
    }
    drive.advance(Nanos(1 << 61), &mut done);
    let stats = drive.stats(Nanos(1 << 61));
    let held_up = stats.read_waits.waited_for(Wait::Collection);
    assert!((reads / 10..reads).contains(&held_up), "{held_up}");
    assert_eq!(stats.collection.reads_behind, held_up);
}
