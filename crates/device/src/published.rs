//! `[published]`: the performance that a drive's maker or a published test states.

use alloc::string::String;
use alloc::vec::Vec;

use blklab_description::{KeyType, array, keys, number, text, whole};

/// Largest figure of any kind.
const MAX_FIGURE: f64 = 1e9;

const UNMET: &str = "an array of \"KEY: why\", each KEY one of the figures of this table";

keys! {
    /// The performance that the drive's maker or a published test states. No simulation
    /// depends on it: tests compare the model with it.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Published(table) {
        /// Sequential reads of 128 KiB at queue depth 32.
        pub sequential_read_mb_s: Option<f64> = figure();
        /// Sequential writes of 128 KiB at queue depth 32.
        pub sequential_write_mb_s: Option<f64> = figure();
        /// The same writes on an empty drive.
        pub burst_write_mb_s: Option<f64> = figure();
        /// Random reads of 4 KiB.
        pub random_read_iops: Option<f64> = figure();
        /// Random writes of 4 KiB.
        pub random_write_iops: Option<f64> = figure();
        /// Queue depth of the random reads and writes.
        pub random_depth: u32 = whole(1..=65535).or(32);
        /// Size of the part of the drive in which these are, and those at depth 1; all of it
        /// if not given.
        pub random_mb: Option<f64> = figure();
        /// Latency of a random read of 4 KiB at queue depth 1.
        pub read_us: Option<f64> = figure();
        /// Latency of a random write of 4 KiB at queue depth 1.
        pub write_us: Option<f64> = figure();
        /// Latency of a flush after each of these writes.
        pub flush_us: Option<f64> = figure();
        /// Figures that the model does not meet, and why.
        pub unmet: Vec<String> = array(text().such_that(|entry| entry.contains(':'), UNMET), UNMET)
            .such_that(|entries| !entries.is_empty(), UNMET)
            .or_derived(Vec::new(), "");
    }
}

fn figure() -> KeyType<'static, Option<f64>> {
    number(0.001..=MAX_FIGURE).optional()
}

impl Published {
    /// Its figures, by key.
    pub fn figures(&self) -> impl Iterator<Item = (&'static str, f64)> {
        // Each field is named, so that none can be forgotten.
        let Published {
            sequential_read_mb_s,
            sequential_write_mb_s,
            burst_write_mb_s,
            random_read_iops,
            random_write_iops,
            random_depth: _,
            random_mb: _,
            read_us,
            write_us,
            flush_us,
            unmet: _,
        } = *self;
        let all = [
            ("sequential_read_mb_s", sequential_read_mb_s),
            ("sequential_write_mb_s", sequential_write_mb_s),
            ("burst_write_mb_s", burst_write_mb_s),
            ("random_read_iops", random_read_iops),
            ("random_write_iops", random_write_iops),
            ("read_us", read_us),
            ("write_us", write_us),
            ("flush_us", flush_us),
        ];
        all.into_iter()
            .filter_map(|(key, figure)| Some((key, figure?)))
    }
}
