//! Bytes of a read on the channel and on the link, with times worked out by hand.

use blklab_blk::{Nanos, Op, Sector};

use crate::ssd::Ssd;
use crate::ssd::tests::{FEWER_BLOCKS, PAGES_16K, small};
use crate::{Command, Completion, Device};

const FRESH: (&str, &str) = ("state = \"filled\"", "state = \"fresh\"");
/// 4 KiB take 409.6 us.
const SLOW_LINK: (&str, &str) = ("bandwidth_mb_s = 3000", "bandwidth_mb_s = 10");

/// Doorbell and firmware; command and array; status.
const BEFORE: u64 = 100 + 1000 + 290 + 10_000;
const STATUS: u64 = 100;

fn drive(changes: &[(&str, &str)]) -> Ssd {
    Ssd::new(small(changes), 1)
}

/// Commands on these sectors, submitted at once; when each ends.
fn ends(drive: &mut Ssd, since_ns: u64, op: Op, commands: &[(u64, u32)]) -> Vec<u64> {
    let mut done: Vec<Completion> = Vec::new();
    drive.advance(Nanos(since_ns), &mut done);
    for (tag, (sector, sectors)) in commands.iter().enumerate() {
        let command = Command {
            tag: tag as u32,
            queue: 0,
            op,
            sector: Sector(*sector),
            sectors: *sectors,
            fua: false,
        };
        drive.submit(Nanos(since_ns), command);
    }
    drive.advance(Nanos(since_ns + (1 << 40)), &mut done);
    done.iter().map(|end| end.at.0 - since_ns).collect()
}

/// How long one read takes on an idle drive.
fn read(drive: &mut Ssd, sector: u64, sectors: u32) -> u64 {
    ends(drive, 0, Op::Read, &[(sector, sectors)])[0]
}

fn bus_busy_ns(drive: &Ssd) -> u64 {
    let channels = drive.stats(Nanos(1 << 62)).channels;
    channels.iter().map(|channel| channel.bus_busy_ns).sum()
}

#[test]
fn a_misaligned_read_sends_what_was_asked_for() {
    // 15.5 KiB of one page and 512 bytes of the next, on another channel, which
    // are at the host long before.
    let mut drive = drive(&[PAGES_16K, FEWER_BLOCKS]);
    assert_eq!(read(&mut drive, 1, 32), BEFORE + 20_480 + 5286 + STATUS);
}

#[test]
fn so_does_one_that_joins_what_is_read_ahead() {
    let cache = "[read_cache]\nsize_kb = 256\npolicy = \"lru\"\nread_ahead_kb = 64\n\
                 read_ahead_streams = 2\n[write_cache]\nenabled = true";
    let mut drive = drive(&[SLOW_LINK, ("[write_cache]\nenabled = true", cache)]);
    let commands: Vec<(u64, u32)> = (0..8).map(|n| (n * 8 + 1, 8)).collect();
    let ends = ends(&mut drive, 0, Op::Read, &commands);
    assert!(drive.stats(Nanos(0)).read_ahead_units_used > 0);
    // The link carries 4 KiB for each, and begins after the first is read.
    let last_ns = 8 * 409_600 + 50_000;
    assert!(ends.iter().all(|ns| *ns < last_ns), "{ends:?}");
}

#[test]
fn zeros_of_what_nobody_wrote_take_the_link_as_data_does() {
    let mut drive = drive(&[FRESH, SLOW_LINK]);
    ends(&mut drive, 0, Op::Write, &[(0, 8)]);
    ends(&mut drive, 1 << 41, Op::Flush, &[(0, 0)]);
    let took = ends(&mut drive, 1 << 42, Op::Read, &[(0, 16)]);
    assert_eq!(took, [100 + 1000 + 2 * 409_600 + STATUS]);
}

#[test]
fn what_nobody_wrote_is_read_page_by_page_too() {
    let unwritten = (
        "map_unit_bytes = 4096",
        "map_unit_bytes = 4096\nread_unwritten = true",
    );
    let mut fresh = drive(&[PAGES_16K, FEWER_BLOCKS, FRESH, unwritten]);
    let mut filled = drive(&[PAGES_16K, FEWER_BLOCKS]);
    assert_eq!(read(&mut fresh, 0, 256), read(&mut filled, 0, 256));
    assert_eq!(fresh.stats(Nanos(0)).flash_reads, 8);
}

/// Units of 512 bytes in codewords of 4096.
const SMALL_UNITS: (&str, &str) = ("map_unit_bytes = 4096", "map_unit_bytes = 512");

#[test]
fn a_codeword_of_several_units_crosses_the_channel_once() {
    let mut drive = drive(&[PAGES_16K, FEWER_BLOCKS, SMALL_UNITS]);
    let whole_page = BEFORE + 20_480 + 5456 + STATUS;
    assert_eq!(read(&mut drive, 0, 32), whole_page);
    // Two sectors of one codeword and three of the next.
    let took = ends(&mut drive, 1 << 42, Op::Read, &[(6, 5)])[0];
    assert_eq!(took, BEFORE + 2 * 5120 + 853 + STATUS);
}

#[test]
fn collection_reads_whole_codewords() {
    let mut drive = drive(&[SMALL_UNITS]);
    let sectors = drive.controller.media.spec.identity.capacity_sectors;
    let mut since_ns = 0;
    for round in 0..2000u64 {
        let writes: Vec<(u64, u32)> = (0..60)
            .map(|n| ((round * 60 + n) * 7919 % sectors, 1))
            .collect();
        ends(&mut drive, since_ns, Op::Write, &writes);
        since_ns += 1 << 41;
    }
    let stats = drive.stats(Nanos(since_ns));
    assert!(stats.collection.sectors_moved > 10_000);
    // A page is a codeword.
    let pages = stats.flash_reads + stats.flash_programs;
    assert!(bus_busy_ns(&drive) >= pages * 5120);
}

#[test]
fn what_is_kept_in_dram_has_crossed_the_channel() {
    let cache = "[read_cache]\nsize_kb = 64\npolicy = \"lru\"\n[write_cache]\nenabled = true";
    let mut drive = drive(&[
        ("codeword_bytes = 4096", "codeword_bytes = 1024"),
        ("[write_cache]\nenabled = true", cache),
    ]);
    for sector in 0..8 {
        ends(&mut drive, sector << 41, Op::Read, &[(sector, 1)]);
    }
    let stats = drive.stats(Nanos(1 << 50));
    assert_eq!((stats.flash_reads, stats.read_cache_hits), (1, 7));
    assert_eq!(bus_busy_ns(&drive), 290 + 5120);
}

/// Two map units are written, of a read of four.
#[test]
fn reads_of_nothing_are_counted_and_read_no_flash() {
    let mut drive = drive(&[FRESH, SLOW_LINK]);
    let written = ends(&mut drive, 0, Op::Write, &[(16, 16)])[0];
    let since_ns = written + (1 << 41);
    let before = drive.stats(Nanos(since_ns)).flash_reads;
    ends(&mut drive, since_ns, Op::Read, &[(8, 32), (200, 3)]);
    let stats = drive.stats(Nanos(1 << 43));
    assert_eq!(stats.sectors_read_unwritten, 16 + 3);
    assert_eq!(stats.flash_reads - before, 2);
}
