//! The tunables and the effects of changing them.

use blklab_blk::{Tunable, TunableError, Unit, msecs_to_jiffies};

use super::Bfq;

/// The tunables, with the names and units of sysfs. `slice_idle` and `slice_idle_us` are one value,
/// which the kernel stores in 32 bits of nanoseconds; this limits the range.
pub const TUNABLES: &[Tunable] = &[
    Tunable {
        name: "fifo_expire_sync",
        unit: Unit::Milliseconds,
        min: 1,
        max: i32::MAX as i64,
        default: 125,
        help: "a synchronous request's deadline",
    },
    Tunable {
        name: "fifo_expire_async",
        unit: Unit::Milliseconds,
        min: 1,
        max: i32::MAX as i64,
        default: 250,
        help: "an asynchronous request's deadline",
    },
    Tunable {
        name: "back_seek_max",
        unit: Unit::Kib,
        min: 0,
        max: i32::MAX as i64,
        default: 16 * 1024,
        help: "how far back from the head a request may lie to be next",
    },
    Tunable {
        name: "back_seek_penalty",
        unit: Unit::Count,
        min: 1,
        max: i32::MAX as i64,
        default: 2,
        help: "cost of a distance back against one ahead",
    },
    Tunable {
        name: "slice_idle",
        unit: Unit::Milliseconds,
        min: 0,
        max: 4_294,
        default: 8,
        help: "how long to wait for a queue's next request",
    },
    Tunable {
        name: "slice_idle_us",
        unit: Unit::Microseconds,
        min: 0,
        max: 4_294_967,
        default: 8_000,
        help: "the same, in microseconds",
    },
    Tunable {
        name: "max_budget",
        unit: Unit::Sectors,
        min: 0,
        max: i32::MAX as i64,
        default: 0,
        help: "most service of a queue in a row; 0: what the drive serves in timeout_sync",
    },
    Tunable {
        name: "timeout_sync",
        unit: Unit::Milliseconds,
        min: 1,
        max: i32::MAX as i64,
        default: 124,
        help: "how long a queue may take for its budget",
    },
    Tunable {
        name: "strict_guarantees",
        unit: Unit::Bool,
        min: 0,
        max: 1,
        default: 0,
        help: "one request in the drive at a time, and always wait for the next",
    },
    Tunable {
        name: "low_latency",
        unit: Unit::Bool,
        min: 0,
        max: 1,
        default: 1,
        help: "raise the weight of interactive and soft real-time queues",
    },
];

/// The tunables in the units of the scheduler's decisions.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Expiry of asynchronous and of synchronous requests.
    pub(super) fifo_expire_ns: [u64; 2],
    pub(super) back_max_sectors: u64,
    pub(super) back_penalty: u64,
    pub(super) slice_idle_ns: u64,
    /// In jiffies.
    pub(super) timeout: i64,
    pub(super) user_max_budget: i64,
    pub(super) strict_guarantees: bool,
    pub(super) low_latency: bool,
}

impl Settings {
    pub(super) fn of(tunables: &blklab_blk::Tunables) -> Settings {
        let get = |name| tunables.get(name).unwrap_or_default();
        Settings {
            fifo_expire_ns: [
                get("fifo_expire_async") as u64 * 1_000_000,
                get("fifo_expire_sync") as u64 * 1_000_000,
            ],
            back_max_sectors: get("back_seek_max") as u64 * 2,
            back_penalty: get("back_seek_penalty") as u64,
            slice_idle_ns: get("slice_idle_us") as u64 * 1_000,
            timeout: msecs_to_jiffies(get("timeout_sync")),
            user_max_budget: get("max_budget"),
            strict_guarantees: get("strict_guarantees") != 0,
            low_latency: get("low_latency") != 0,
        }
    }
}

impl Bfq {
    pub(super) fn apply_tunable(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.queue.tunables.set(name, value)?;
        match name {
            "slice_idle" => self.queue.tunables.set("slice_idle_us", value * 1_000)?,
            "slice_idle_us" => self.queue.tunables.set("slice_idle", value / 1_000)?,
            // The guarantees require idling for long enough.
            "strict_guarantees"
                if value != 0
                    && !self.settings.strict_guarantees
                    && self.settings.slice_idle_ns < 8_000_000 =>
            {
                self.queue.tunables.set("slice_idle", 8)?;
                self.queue.tunables.set("slice_idle_us", 8_000)?;
            }
            _ => {}
        }
        let raised = self.settings.low_latency;
        self.settings = Settings::of(&self.queue.tunables);
        if raised && !self.settings.low_latency {
            self.end_all_raising();
        }
        match name {
            "max_budget" | "timeout_sync" if self.settings.user_max_budget == 0 => {
                self.max_budget = self.budget_of_peak_rate();
            }
            "max_budget" => self.max_budget = self.settings.user_max_budget,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_the_tunables_in_finer_units() {
        let set = Settings::of(&blklab_blk::Tunables::new(TUNABLES));
        assert_eq!(set.fifo_expire_ns, [250_000_000, 125_000_000]);
        assert_eq!(set.back_max_sectors, 32 * 1024);
        assert_eq!(set.slice_idle_ns, 8_000_000);
    }

    /// An idle slice is one value in two units, and the guarantees make it long enough once
    /// (`bfq_slice_idle_us_store`, `bfq_strict_guarantees_store`).
    #[test]
    fn strict_guarantees_lengthen_a_short_idle_slice() {
        let mut bfq = Bfq::new(&crate::test_queue::queue_info());
        for (name, value, slice_idle, slice_idle_us) in [
            ("slice_idle", 3, 3, 3_000),
            ("slice_idle_us", 4_500, 4, 4_500),
            ("strict_guarantees", 0, 4, 4_500),
            ("strict_guarantees", 1, 8, 8_000),
            ("slice_idle", 2, 2, 2_000),
            ("strict_guarantees", 1, 2, 2_000),
            ("strict_guarantees", 0, 2, 2_000),
            ("slice_idle_us", 8_001, 8, 8_001),
            ("strict_guarantees", 1, 8, 8_001),
        ] {
            bfq.apply_tunable(name, value).expect("is legal");
            let found = ["slice_idle", "slice_idle_us"].map(|name| bfq.queue.tunables.get(name));
            let expected = [Some(slice_idle), Some(slice_idle_us)];
            assert_eq!(found, expected, "{name} = {value}");
            let slice_ns = slice_idle_us as u64 * 1_000;
            assert_eq!(bfq.settings.slice_idle_ns, slice_ns, "{name} = {value}");
        }
    }

    /// Only when low latency is switched off does raising end (`bfq_low_latency_store`).
    #[test]
    fn raising_ends_with_low_latency() {
        let (mut bfq, q) = super::super::tests::one_queue();
        for (name, value, coeff) in [
            ("slice_idle", 5, 30),
            ("low_latency", 1, 30),
            ("low_latency", 0, 1),
        ] {
            bfq.apply_tunable(name, value).expect("is legal");
            assert_eq!(bfq.queues[q].raising.coeff, coeff, "{name} = {value}");
        }
    }

    /// The largest budget is the user's, or what the drive does in `timeout_sync`
    /// (`bfq_max_budget_store`, `bfq_timeout_sync_store`).
    #[test]
    fn the_largest_budget_follows_the_timeout_unless_it_is_set() {
        let mut bfq = Bfq::new(&crate::test_queue::queue_info());
        // One sector per microsecond.
        bfq.rate.peak = 1 << super::super::budget::RATE_SHIFT;
        for (name, value, expected) in [
            ("max_budget", 500, 500),
            ("timeout_sync", 200, 500),
            ("max_budget", 0, 200_000),
            ("timeout_sync", 100, 100_000),
            ("slice_idle", 4, 100_000),
        ] {
            bfq.apply_tunable(name, value).expect("is legal");
            assert_eq!(bfq.max_budget, expected, "{name} = {value}");
        }
    }
}
