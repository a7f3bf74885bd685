//! ONFI's cache commands.

use blklab_blk::{Nanos, Op};

use crate::Device;
use crate::ssd::Ssd;
use crate::ssd::tests::{one_die_ends, small};

/// The array reads the next page while the last goes out.
mod reads {
    use super::*;

    /// Times at which this many reads of one die, submitted at once, end.
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
}

/// The next data goes in while the array is at the last program.
mod programs {
    use super::*;

    /// Times at which this many writes of one die, submitted at once to a drive
    /// without a write cache, end.
    fn ends(cache_program: bool, rate_mt_s: u64, writes: u64) -> Vec<u64> {
        let key = format!("multi_plane = \"none\"\ncache_program = {cache_program}");
        let rate = format!("rate_mt_s = {rate_mt_s}");
        let spec = small(&[
            ("multi_plane = \"any\"", key.as_str()),
            ("rate_mt_s = 800", rate.as_str()),
            ("bandwidth_mb_s = 3000", "bandwidth_mb_s = 1000000"),
            ("enabled = true", "enabled = false"),
        ]);
        let mut drive = Ssd::new(spec, 1);
        let ends = one_die_ends(&mut drive, Op::Write, writes);
        let stats = drive.stats(Nanos(1 << 40));
        let expected = if cache_program { writes - 1 } else { 0 };
        assert_eq!(stats.cache_programs, expected);
        let array_ns: u64 = stats.dies.iter().map(|die| die.busy_ns).sum();
        assert_eq!(array_ns, writes * ARRAY);
        ends
    }

    /// Doorbell, a page over the link (rounded up), and firmware; command; array;
    /// status.
    const ARRIVES: u64 = 100 + 5 + 1000;
    const COMMAND: u64 = 361;
    const ARRAY: u64 = 50_000;
    const AFTER: u64 = 100;

    #[test]
    fn a_fast_bus_leaves_only_the_array_to_wait_for() {
        // 5.12 us of data against 50 us of programming.
        let bus = COMMAND + 5120;
        assert_eq!(ends(false, 800, 4)[3], ARRIVES + (bus + ARRAY) * 4 + AFTER);
        let expected = [1, 2, 3, 4].map(|n| ARRIVES + bus + ARRAY * n + AFTER);
        assert_eq!(ends(true, 800, 4), expected);
    }

    #[test]
    fn a_slow_bus_leaves_only_the_bus_to_wait_for() {
        // 81.92 us of data: the array is done long before.
        let bus = COMMAND + 81_920;
        assert_eq!(ends(false, 50, 4)[3], ARRIVES + (bus + ARRAY) * 4 + AFTER);
        let expected = [1, 2, 3, 4].map(|n| ARRIVES + bus * n + ARRAY + AFTER);
        assert_eq!(ends(true, 50, 4), expected);
    }
}
