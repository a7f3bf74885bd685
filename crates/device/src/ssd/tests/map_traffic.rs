//! Flash traffic of a map that is only partly in DRAM.

use blklab_blk::{Nanos, Op};

use crate::ssd::Ssd;
use crate::ssd::tests::{command, overwrite, small};
use crate::{Completion, Device};

/// A drive with room for 256 of its 24,576 entries; 64 make a page of the map.
fn drive(state: &str) -> Ssd {
    drive_of_lines(state, 1)
}

/// The same with lines of several entries.
fn drive_of_lines(state: &str, entries: u32) -> Ssd {
    let state = format!("state = \"{state}\"");
    let cached = format!(
        "map_unit_bytes = 4096\nmap_cache_kb = 2\nmap_entry_bytes = 64\n\
         map_line_entries = {entries}"
    );
    let spec = small(&[
        ("map_unit_bytes = 4096", &cached),
        ("state = \"filled\"", &state),
    ]);
    Ssd::new(spec, 1)
}

/// Carries out one command after the other.
fn run(drive: &mut Ssd, commands: impl Iterator<Item = (Op, u64, u32)>) -> Nanos {
    let (mut now, mut done) = (Nanos(1 << 40), Vec::<Completion>::new());
    for (op, slot, slots) in commands {
        drive.submit(now, command(0, op, slot, slots));
        now = drive.advance_to_completion(Nanos::MAX, &mut done);
        assert!(!done.is_empty(), "a command is lost");
        done.clear();
    }
    now = Nanos(now.0 + (1 << 40));
    drive.advance(now, &mut done);
    now
}

#[test]
fn random_writes_move_pages_of_the_map_and_amplification_has_them() {
    let mut drive = drive("filled");
    const WRITES: u32 = 60_000;
    overwrite(&mut drive, WRITES, 3);
    let stats = drive.stats(Nanos(1 << 50));
    drive.controller.media.ftl.map().expect("cached").check();
    assert!(stats.map_programs > WRITES as u64 / 2, "{stats:?}");
    assert!(stats.map_pages_moved > 0 && stats.map_erases > 0);
    // A page of 4 KiB is a map unit: every program has one cause.
    let of_host = stats.flash_programs - stats.map_programs - stats.collection.sectors_moved / 8;
    assert!((WRITES as u64 * 9 / 10..=WRITES as u64).contains(&of_host));
    assert_eq!(stats.flash_sectors_programmed, stats.flash_programs * 8);
    let amplification = stats.write_amplification().expect("written");
    assert!(amplification > 1.5, "{amplification}");
    // Erases count as wear wherever they are.
    let erased = drive
        .controller
        .media
        .ftl
        .blocks()
        .erases
        .iter()
        .map(|n| *n as u64);
    assert_eq!(erased.sum::<u64>(), stats.flash_erases);
}

#[test]
fn discards_change_the_map() {
    // Eight units here and there, far more than the cache has entries for.
    let mut scattered = drive("filled");
    let now = run(
        &mut scattered,
        (0..300).map(|n| (Op::Discard, n * 80 % 24_000, 8)),
    );
    let stats = scattered.stats(now);
    assert!(stats.map_reads >= 300, "{stats:?}");
    assert!(stats.map_programs > 150, "{stats:?}");
    // Whole pages of the map are unmapped, which costs nothing.
    let mut whole = drive("filled");
    let now = run(&mut whole, (0..300).map(|n| (Op::Discard, n * 64, 64)));
    let stats = whole.stats(now);
    assert_eq!((stats.map_reads, stats.map_programs), (0, 0));
    // Nor has a read of what is discarded to look for its entries.
    let now = run(&mut whole, (0..300).map(|n| (Op::Read, n * 64 + 3, 1)));
    assert_eq!(whole.stats(now).map_reads, 0);
    let map = whole.controller.media.ftl.map().expect("cached");
    map.check();
    assert!(map.place(0).is_none() && map.place(300).is_some());
}

#[test]
fn lines_spare_sequential_work_reads_of_the_map() {
    let stats = |entries, op| {
        let mut drive = drive_of_lines("filled", entries);
        let now = run(&mut drive, (0..6400).map(|slot| (op, slot, 1)));
        let stats = drive.stats(now);
        drive.controller.media.ftl.map().expect("cached").check();
        (stats.map_reads, stats.map_programs)
    };
    // A few entries of 100 pages of the map are cached at the start.
    let (reads, _) = stats(1, Op::Read);
    assert!((6200..=6400).contains(&reads), "{reads}");
    let (reads, programs) = stats(16, Op::Read);
    assert!((380..=400).contains(&reads), "{reads}");
    assert_eq!(programs, 0);
    // Every page of the map is changed by 64 writes and programmed once, but for
    // those that the cache still holds, and read once more to be changed.
    let (reads, programs) = stats(16, Op::Write);
    assert!((90..=100).contains(&programs), "{programs}");
    assert!((470..=500).contains(&reads), "{reads}");
}

#[test]
fn moves_of_collection_are_known_where_lines_are_kept() {
    let mut drive = drive_of_lines("filled", 16);
    overwrite(&mut drive, 20_000, 3);
    drive.controller.media.ftl.map().expect("cached").check();
    drive.check_at_rest();
    let stats = drive.stats(Nanos(1 << 50));
    assert!(stats.collection.sectors_moved > 0 && stats.map_programs > 0);
}

#[test]
fn a_new_drive_has_no_map_to_read() {
    let mut drive = drive("fresh");
    let now = run(&mut drive, (0..200).map(|n| (Op::Read, n * 97, 1)));
    assert_eq!(drive.stats(now).map_reads, 0);
}

/// Submits commands of (time, operation, slot, slots); when each ends, by its
/// place among them.
fn ends(drive: &mut Ssd, commands: &[(u64, Op, u64, u32)]) -> Vec<u64> {
    let mut done = Vec::<Completion>::new();
    for (tag, (at_ns, op, slot, slots)) in commands.iter().enumerate() {
        drive.advance(Nanos(*at_ns), &mut done);
        drive.submit(Nanos(*at_ns), command(tag as u32, *op, *slot, *slots));
    }
    drive.advance(Nanos(1 << 50), &mut done);
    done.sort_by_key(|end| end.tag);
    done.iter().map(|end| end.at.0).collect()
}

#[test]
fn a_line_that_is_here_waits_for_no_other() {
    // Slots 1 and 16 are on different channels, their lines in one page of the
    // map. The second read comes while the line of slot 16 is on its way.
    let alone = |commands: &[(u64, Op, u64, u32)]| {
        let mut drive = drive_of_lines("filled", 16);
        let ends = ends(&mut drive, commands);
        (ends, drive.stats(Nanos(1 << 50)))
    };
    let first = (0, Op::Read, 0, 1);
    let (without, _) = alone(&[first, (1_000_000, Op::Read, 1, 1)]);
    let (with, stats) = alone(&[
        first,
        (995_000, Op::Read, 16, 1),
        (1_000_000, Op::Read, 1, 1),
    ]);
    assert_eq!(with[2], without[1]);
    assert_eq!(
        (stats.map_reads, stats.map_hits, stats.map_lookups),
        (2, 1, 3)
    );
}

#[test]
fn each_codeword_of_the_map_is_brought_by_whoever_wants_it_first() {
    let spec = |codeword: &str| {
        let cached = "map_unit_bytes = 4096\nmap_cache_kb = 2\nmap_entry_bytes = 64\n\
                      map_line_entries = 16";
        small(&[
            ("map_unit_bytes = 4096", cached),
            ("codeword_bytes = 4096", codeword),
        ])
    };
    let bus = |codeword, commands: &[(u64, Op, u64, u32)]| {
        let mut drive = Ssd::new(spec(codeword), 1);
        ends(&mut drive, commands);
        let stats = drive.stats(Nanos(1 << 50));
        let channels = stats.channels.iter();
        let bus_ns: u64 = channels.map(|channel| channel.bus_busy_ns).sum();
        (stats.map_reads, bus_ns)
    };
    const COMMAND: u64 = 290;
    const KIB: u64 = 1280;
    let three_lines = (0, Op::Discard, 8, 32);
    let (small, whole) = ("codeword_bytes = 1024", "codeword_bytes = 4096");
    assert_eq!(bus(small, &[three_lines]), (1, COMMAND + 3 * KIB));
    assert_eq!(bus(whole, &[three_lines]), (1, COMMAND + 4 * KIB));
    // The fourth line is wanted while the array reads the page for the others,
    // or when their data is on the bus.
    let both = |at_ns| [three_lines, (at_ns, Op::Discard, 50, 4)];
    assert_eq!(bus(small, &both(5000)), (1, COMMAND + 4 * KIB));
    assert_eq!(bus(small, &both(11_500)), (2, 2 * COMMAND + 4 * KIB));
    assert_eq!(bus(whole, &both(11_500)), (1, COMMAND + 4 * KIB));
    // A read of a line that is being read waits for it.
    let same = [three_lines, (5000, Op::Discard, 40, 4)];
    assert_eq!(bus(small, &same), (1, COMMAND + 3 * KIB));
}

#[test]
fn look_ups_are_those_of_commands() {
    let mut moved = drive_of_lines("filled", 16);
    overwrite(&mut moved, 20_000, 3);
    let stats = moved.stats(Nanos(1 << 50));
    assert!(stats.collection.sectors_moved > 0);
    assert_eq!(stats.map_lookups, 20_000);

    let spec = small(&[
        (
            "map_unit_bytes = 4096",
            "map_unit_bytes = 4096\nmap_cache_kb = 2\nmap_entry_bytes = 64",
        ),
        (
            "[write_cache]\nenabled = true",
            "[read_cache]\nsize_kb = 256\npolicy = \"lru\"\nread_ahead_kb = 64\n\
             read_ahead_streams = 2\n[write_cache]\nenabled = true",
        ),
    ]);
    let mut ahead = Ssd::new(spec, 1);
    let now = run(&mut ahead, (0..100).map(|slot| (Op::Read, slot, 1)));
    let stats = ahead.stats(now);
    assert!(stats.read_ahead_units > 0);
    assert_eq!(stats.map_lookups, 100);
}

/// A discard changes the pages of the map that it covers in part, and no others: 64 entries make a
/// page, and pages that are covered whole need not be read.
#[test]
fn a_discard_reads_the_pages_of_the_map_that_it_covers_in_part() {
    const SLOTS: u64 = 24_576;
    for (start, end) in [
        (10_000, 10_001),
        (10_010, 10_020),
        (10_010, 10_200),
        (10_048, 10_112),
        (10_048, 10_113),
        (10_047, 10_112),
        (10_047, 10_113),
        (10_060, 10_120),
        (24_500, SLOTS),
        (24_560, SLOTS),
        (24_512, SLOTS),
    ] {
        let mut drive = drive("filled");
        let before = drive.stats(Nanos(1 << 40)).map_reads;
        let now = run(
            &mut drive,
            [(Op::Discard, start, (end - start) as u32)].into_iter(),
        );
        let in_part = |page: u64| {
            let (first, last) = (page * 64, page * 64 + 64);
            let covered = end.min(last).saturating_sub(start.max(first));
            covered > 0 && covered < 64
        };
        let expected = (0..SLOTS / 64).filter(|page| in_part(*page)).count();
        let reads = drive.stats(now).map_reads - before;
        assert_eq!(reads, expected as u64, "{start} to {end}");
        let map = drive.controller.media.ftl.map().expect("cached");
        map.check();
        for page in start / 64 - 1..(end / 64 + 2).min(SLOTS / 64) {
            let is_whole = start <= page * 64 && page * 64 + 64 <= end;
            assert_eq!(
                map.place(page as u32).is_none(),
                is_whole,
                "{start} to {end}: {page}"
            );
        }
    }
}
