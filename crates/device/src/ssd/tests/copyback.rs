//! Copyback: the channel time that it saves, and when it is possible.

use blklab_blk::Nanos;
use blklab_stats::DeviceStats;

use crate::Device;
use crate::ssd::Ssd;
use crate::ssd::tests::{overwrite, small};

/// A drive that was overwritten for long; what it counted.
fn overwritten(copyback: &str, shape: &[(&str, &str)]) -> DeviceStats {
    let copyback = format!("multi_plane = \"none\"\ncopyback = \"{copyback}\"");
    let mut changes = vec![("multi_plane = \"any\"", copyback.as_str())];
    changes.extend(shape);
    let mut drive = Ssd::new(small(&changes), 1);
    overwrite(&mut drive, 60_000, 1);
    drive.check_at_rest();
    drive.stats(Nanos(1 << 50))
}

fn bus_ns(stats: &DeviceStats) -> u64 {
    stats.channels.iter().map(|c| c.bus_busy_ns).sum()
}

/// Command cycles, and a page's data at 800 MB/s.
const READ_COMMAND: u64 = 290;
const PROGRAM_COMMAND: u64 = 361;
const ERASE_COMMAND: u64 = 220;
const PAGE: u64 = 5120;

#[test]
fn a_move_needs_two_commands_and_no_data_of_the_channel() {
    let (with, without) = (overwritten("same_plane", &[]), overwritten("none", &[]));
    // Every page is one map unit, so every move is a copy.
    assert_eq!(with.copybacks, with.collection.sectors_moved / 8);
    assert_eq!(with.flash_reads, with.copybacks);
    assert_eq!(without.copybacks, 0);
    let host = with.flash_programs - with.copybacks;
    let expected = host * (PROGRAM_COMMAND + PAGE)
        + with.copybacks * (READ_COMMAND + PROGRAM_COMMAND)
        + with.flash_erases * ERASE_COMMAND;
    // Some pages were displaced from the page register by a host program, and are read
    // again.
    let again_ns = bus_ns(&with) - expected;
    assert_eq!(again_ns % READ_COMMAND, 0);
    let again = again_ns / READ_COMMAND;
    assert!(again < with.copybacks / 4, "{again} of {}", with.copybacks);
    let expected = without.flash_reads * (READ_COMMAND + PAGE)
        + without.flash_programs * (PROGRAM_COMMAND + PAGE)
        + without.flash_erases * ERASE_COMMAND;
    assert_eq!(bus_ns(&without), expected);
    // 10 us to read, 50 us to program.
    let array_ns: u64 = with.dies.iter().map(|die| die.busy_ns).sum();
    let programs_ns = with.flash_programs * 50_000 + (with.copybacks + again) * 10_000;
    assert_eq!(array_ns, programs_ns + with.flash_erases * 500_000);
}

#[test]
fn pages_with_stale_parts_go_over_the_channel() {
    let moved = |stats: &DeviceStats| stats.collection.sectors_moved / 8;
    // Pages of four units: those that were overwritten in part are not whole.
    let parts = overwritten(
        "same_plane",
        &[
            ("page_kb = 4", "page_kb = 16"),
            ("blocks_per_plane = 112", "blocks_per_plane = 34"),
        ],
    );
    assert!(parts.copybacks > 0 && parts.flash_reads > parts.copybacks);
    assert!(moved(&parts) < (parts.copybacks + parts.flash_reads) * 4);
}

/// Write amplification of random writes to an aged drive with background collection, and
/// the longest stall. Its blocks take a quarter of a second to be programmed.
fn aged(copyback: &str) -> (f64, u64) {
    let flash = format!("multi_plane = \"none\"\ncopyback = \"{copyback}\"");
    let spec = small(&[
        ("multi_plane = \"any\"", flash.as_str()),
        ("state = \"filled\"", "state = \"aged\""),
        ("capacity_bytes = 100663296", "capacity_bytes = 805306368"),
        ("pages_per_block = 64", "pages_per_block = 512"),
        ("program_us = 50", "program_us = 500"),
        ("start_blocks = 4", "start_blocks = 6"),
        ("depth = 8", "depth = 8\npreemptible = true"),
        ("[write_cache]", "[aged]\noccupancy = 0.9\n[write_cache]"),
    ]);
    let mut drive = Ssd::new(spec, 1);
    overwrite(&mut drive, 20_000, 1);
    let stats = drive.stats(Nanos(1 << 50));
    let amplification = stats.write_amplification().expect("written");
    (amplification, stats.collection.longest_stall_ns)
}

#[test]
fn copies_keep_the_pace_of_other_moves() {
    let (with, without) = (aged("same_plane"), aged("none"));
    println!("{with:?} {without:?}");
    assert!(with.0 > 1.2, "{with:?}");
    assert!(
        (with.0 / without.0 - 1.0).abs() < 0.03,
        "{with:?} {without:?}"
    );
    assert!(with.1 <= without.1, "{with:?} {without:?}");
}
