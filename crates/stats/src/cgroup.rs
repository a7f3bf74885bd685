//! Counters of throttling by control group.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use crate::fact::{Fact, Unit, Value};
use crate::queue::fact;
use crate::results::DiskStats;

/// I/Os that a throttling layer held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeldIos {
    /// The number of I/Os.
    pub ios: u64,
    /// The time for which they were held back, summed, in nanoseconds.
    pub ns: u64,
}

impl HeldIos {
    /// Returns the mean time for which an I/O was held back, in nanoseconds.
    pub fn mean_ns(&self) -> Option<u64> {
        self.ns.checked_div(self.ios)
    }
}

/// The cost model's times of a group in microseconds, as in `io.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CostTimes {
    /// The drive's time that the group used, by the model (`cost.usage`).
    pub usage_us: u64,
    /// The time for which the group's I/Os waited (`cost.wait`).
    pub wait_us: u64,
    /// The time for which the group was in debt (`cost.indebt`).
    pub debt_us: u64,
    /// The time for which the group's tasks were delayed (`cost.indelay`).
    pub delay_us: u64,
}

/// A control group on a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CgroupStats {
    /// The group's path; empty for the root.
    pub name: String,
    /// Held back by `io.max`.
    pub io_max: HeldIos,
    /// Held back by writeback throttling.
    pub wbt: HeldIos,
    /// Held back by `io.latency`.
    pub io_latency: HeldIos,
    /// Held back by `io.cost`.
    pub io_cost: HeldIos,
    /// The cost model's times, if the model is on.
    pub cost: Option<CostTimes>,
    /// The most I/Os in flight that `io.latency` allows the group at the end; `None` for
    /// no limit.
    pub max_depth: Option<u32>,
}

impl CgroupStats {
    /// Returns the I/Os that each layer held back, by the layer's name.
    pub fn layers(&self) -> [(&'static str, HeldIos); 4] {
        [
            ("io.max", self.io_max),
            ("wbt", self.wbt),
            ("io.latency", self.io_latency),
            ("io.cost", self.io_cost),
        ]
    }
}

/// The rate of the cost model's time in percent of the clock (`cost.vrate`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CostRate {
    /// The rate at the end.
    pub percent: f64,
    /// The slowest rate.
    pub min_percent: f64,
    /// The fastest rate.
    pub max_percent: f64,
}

fn sum(disk: &DiskStats, of: fn(&CgroupStats) -> u64) -> Option<u64> {
    let groups = disk.cgroups.iter();
    (!disk.cgroups.is_empty()).then(|| groups.map(of).sum())
}

/// Returns a time of all groups together, which the root has; `None` if the cost model
/// is off.
fn cost(disk: &DiskStats, of: fn(&CostTimes) -> u64) -> Option<u64> {
    let root = disk.cgroups.iter().find(|group| group.name.is_empty())?;
    root.cost.as_ref().map(of)
}

/// Declares the facts of a layer: the number of I/Os that it held back, and their mean
/// time.
macro_rules! held {
    ($layer:ident, $name:literal, $meaning:literal) => {
        [
            fact(
                concat!(stringify!($layer), "_held"),
                Unit::Count,
                concat!("I/Os held back by ", $name),
                $meaning,
                Value::Sum(|disk| sum(disk, |group| group.$layer.ios)),
            ),
            fact(
                concat!(stringify!($layer), "_held_ns"),
                Unit::Nanoseconds,
                "  for, mean",
                concat!("Time for which ", $name, " held back an I/O, mean."),
                Value::Quotient(
                    |disk| sum(disk, |group| group.$layer.ns),
                    |disk| sum(disk, |group| group.$layer.ios),
                ),
            ),
        ]
    };
}

/// Returns the facts on throttling.
pub(crate) fn facts() -> Vec<Fact> {
    [
        &held!(
            io_max,
            "io.max",
            "I/Os held back because their group had reached its limits."
        )[..],
        &held!(
            wbt,
            "writeback throttling",
            "Writes held back because reads took longer than the queue's wbt_lat_usec."
        ),
        &held!(
            io_latency,
            "io.latency",
            "I/Os held back because another group missed its latency target."
        ),
        &held!(
            io_cost,
            "io.cost",
            "I/Os held back until their group had the budget for them."
        ),
        &cost_facts(),
    ]
    .concat()
}

fn cost_facts() -> [Fact; 4] {
    [
        fact(
            "io_cost_usage_ns",
            Unit::Nanoseconds,
            "  time of the drive, by the cost model",
            "Time of the drive that the groups' I/Os used, by the cost model.",
            Value::Sum(|disk| cost(disk, |cost| cost.usage_us * 1000)),
        ),
        fact(
            "io_cost_debt_ns",
            Unit::Nanoseconds,
            "  time in debt",
            "Time for which groups were in debt for I/Os that could not be held back.",
            Value::Sum(|disk| cost(disk, |cost| cost.debt_us * 1000)),
        ),
        fact(
            "io_cost_rate",
            Unit::Ratio,
            "  vrate at the end",
            "Rate of the cost model's virtual time at the end, as a multiple of real time.",
            Value::Run(|run| {
                let rates = run.disks.iter().filter_map(|disk| disk.cost_rate);
                rates.map(|rate| rate.percent / 100.0).reduce(f64::min)
            }),
        ),
        fact(
            "io_cost_rate_min",
            Unit::Ratio,
            "  vrate, slowest",
            "Slowest rate of the cost model's virtual time, as a multiple of real time.",
            Value::Run(|run| {
                let rates = run.disks.iter().filter_map(|disk| disk.cost_rate);
                rates.map(|rate| rate.min_percent / 100.0).reduce(f64::min)
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_the_kernel_s_names_and_a_mean_if_they_held_anything_back() {
        let held = |ios| HeldIos { ios, ns: 120 };
        let group = CgroupStats {
            io_max: held(1),
            wbt: held(2),
            io_latency: held(3),
            ..CgroupStats::default()
        };
        let means = group.layers().map(|(name, held)| (name, held.mean_ns()));
        assert_eq!(
            means,
            [
                ("io.max", Some(120)),
                ("wbt", Some(60)),
                ("io.latency", Some(40)),
                ("io.cost", None)
            ]
        );
    }
}
