//! Cache reads: the array reads the next page while the last goes out.

use blklab_blk::{Nanos, Op};

use crate::Device;
use crate::ssd::Ssd;
use crate::ssd::tests::{one_die_ends, small};

/// Times at which so many reads of one die, submitted at once, end.
fn ends(cache_read: bool, rate_mt_s: u64, reads: u64) -> Vec<u64> {
    let key = format!("multi_plane = \"none\"\ncache_read = {cache_read}");
    let rate = format!("rate_mt_s = {rate_mt_s}");
    let spec = small(&[
        ("multi_plane = \"any\"", key.as_str()),
        ("rate_mt_s = 800", rate.as_str()),
    ]);
    let mut drive = Ssd::new(spec, 1);
    let ends = one_die_ends(&mut drive, Op::Read, reads);
    let stats = drive.stats(Nanos(1 << 40));
    assert_eq!(stats.cache_reads > 0, cache_read && reads > 1);
    ends
}

/// Doorbell and firmware; command, array; link and status.
const ARRIVES: u64 = 100 + 1000;
const COMMAND: u64 = 290;
const ARRAY: u64 = 10_000;
const AFTER: u64 = 1364 + 100;

#[test]
fn a_fast_bus_leaves_only_the_array_to_wait_for() {
    // 5.12 us of data are on the bus while the array reads for 10 us.
    let data = 5120;
    let plain = ARRIVES + (COMMAND + ARRAY + data) * 4 + AFTER;
    assert_eq!(ends(false, 800, 4)[3], plain);
    // The next command goes before the data; the last read has none behind it.
    let sensed = ARRIVES + COMMAND + ARRAY;
    let each = COMMAND + ARRAY;
    assert_eq!(
        ends(true, 800, 4),
        [
            sensed + COMMAND + data + AFTER,
            sensed + each + COMMAND + data + AFTER,
            sensed + each * 2 + COMMAND + data + AFTER,
            sensed + each * 3 + data + AFTER,
        ]
    );
    // One read alone gains nothing.
    assert_eq!(ends(true, 800, 1), ends(false, 800, 1));
}

#[test]
fn a_slow_bus_leaves_only_the_bus_to_wait_for() {
    // 20.48 us of data: the array has read the next page long before.
    let data = 20_480;
    let sensed = ARRIVES + COMMAND + ARRAY;
    let each = COMMAND + data;
    assert_eq!(
        ends(false, 200, 4)[3],
        ARRIVES + (COMMAND + ARRAY + data) * 4 + AFTER
    );
    assert_eq!(ends(true, 200, 4)[3], sensed + each * 3 + data + AFTER);
}
