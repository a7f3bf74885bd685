//! Facts: figures that explain a run, each declared once with its key, label, unit and
//! meaning. Text, JSON, HTML and metrics are made from these.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::results::{DiskStats, Results};

/// The part of the system where a fact is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The page cache.
    PageCache,
    /// The block layer's queue.
    Queue,
    /// The scheduler.
    Scheduler,
    /// The drive.
    Drive,
    /// The flash of the drive.
    Flash,
    /// The host's CPUs.
    Cpus,
}

impl Place {
    /// Returns the place's name.
    pub const fn name(self) -> &'static str {
        match self {
            Place::PageCache => "page cache",
            Place::Queue => "queue",
            Place::Scheduler => "scheduler",
            Place::Drive => "drive",
            Place::Flash => "flash",
            Place::Cpus => "CPUs",
        }
    }
}

/// The unit of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A number of events or objects.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// A share, where 1 is the whole.
    Share,
    /// A plain number.
    Ratio,
}

/// A counter of one drive; `None` if the drive lacks the part that it belongs to.
pub(crate) type OfDisk = fn(&DiskStats) -> Option<u64>;

/// How a fact is computed from a run's counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// Summed over the run's drives.
    Sum(OfDisk),
    /// The largest of the run's drives.
    Max(OfDisk),
    /// One sum over the run's drives divided by another.
    Quotient(OfDisk, OfDisk),
    /// Nanoseconds as a share of the counted time of each drive that has the part.
    TimeShare(OfDisk),
    /// Computed from the whole run.
    Run(fn(&Results) -> Option<f64>),
}

/// A figure that explains a run.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// The place where it is counted.
    pub place: Place,
    /// The name for programs: unique, lower case, words joined by underscores.
    pub key: &'static str,
    /// The name in tables; two leading spaces subordinate it to the fact before it.
    pub label: &'static str,
    /// The unit.
    pub unit: Unit,
    /// The meaning in a sentence.
    pub meaning: &'static str,
    pub(crate) value: Value,
}

impl Fact {
    /// Returns the fact's value for a run; `None` if the run does not have it.
    pub fn of(&self, run: &Results) -> Option<f64> {
        let disks = run.disks.iter();
        match self.value {
            Value::Sum(of) => Some(disks.filter_map(of).reduce(|a, b| a + b)? as f64),
            Value::Max(of) => Some(disks.filter_map(of).max()? as f64),
            Value::Quotient(part, whole) => {
                let whole: u64 = run.disks.iter().filter_map(whole).sum();
                ratio(disks.filter_map(part).sum::<u64>() as f64, whole as f64)
            }
            Value::TimeShare(of) => {
                let busy_ns: Vec<u64> = disks.filter_map(of).collect();
                let whole_ns = run.counted_ns() * busy_ns.len() as f64;
                ratio(busy_ns.iter().sum::<u64>() as f64, whole_ns)
            }
            Value::Run(of) => of(run),
        }
    }

    /// Returns the value for one drive, if the fact is a plain counter of a drive.
    pub fn counter(&self, disk: &DiskStats) -> Option<u64> {
        match self.value {
            Value::Sum(of) => of(disk),
            _ => None,
        }
    }
}

/// Returns all declared facts in the order in which they are shown, by place.
///
/// The counters of schedulers and the split of traced requests by size and process are
/// not among them, because their names are known only after a run.
pub fn facts() -> Vec<Fact> {
    let mut facts: Vec<Fact> = crate::queue::facts().collect();
    facts.extend(crate::cgroup::facts());
    facts.extend(crate::device::facts());
    facts.extend(crate::results::power_loss_facts());
    facts.extend(crate::results::ServerTimes::facts());
    facts.extend(crate::cpu::facts());
    facts.extend(crate::page_cache::facts());
    facts.sort_by_key(|fact| fact.place);
    facts
}

pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    ratio(values.iter().sum(), values.len() as f64)
}

/// Declares a struct of counters together with the facts that are made of them.
///
/// A field's facts follow `=>`: `sum` or `max` over a run's drives, `per(other, ...)` for
/// the quotient with the sum of other fields, `per_read` for the quotient with the host's
/// completed reads, `time(field, ...)` for the fields' share of the time. The meaning
/// follows the label; without one it is the field's doc comment. A field without `=>` is
/// in JSON only. `"prefix_" of |disk| ...` after the struct gives the prefix of its keys
/// and the struct of a drive.
macro_rules! counters {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])?
                pub $field:ident: $type:ty
                $(=> $(
                    $rule:ident $(($($with:ident),+))? $place:ident $unit:ident $label:literal
                    $(: $meaning:literal)?
                );+)?,
            )+
        }
        $prefix:literal of |$disk:ident| $of:expr
    ) => {
        $(#[$about])*
        #[derive(serde::Serialize)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)*)])?
                pub $field: $type,
            )+
        }

        impl $name {
            fn of($disk: &crate::results::DiskStats) -> Option<&$name> {
                $of
            }

            /// Returns the facts that the fields declare.
            pub(crate) fn facts() -> alloc::vec::Vec<crate::fact::Fact> {
                let mut facts = alloc::vec::Vec::new();
                $({
                    const MEANING: &str = concat!($($doc),+).trim_ascii();
                    let _ = MEANING;
                    $($(facts.push(crate::fact::Fact {
                        place: crate::fact::Place::$place,
                        key: concat!(
                            $prefix,
                            stringify!($field),
                            crate::fact::counters!(@suffix $rule $($($with)+)?)
                        ),
                        label: $label,
                        unit: crate::fact::Unit::$unit,
                        meaning: crate::fact::counters!(@meaning MEANING $($meaning)?),
                        value: crate::fact::counters!(@value $name $field $rule $($($with)+)?),
                    });)+)?
                })+
                facts
            }
        }
    };
    (@meaning $of_field:ident) => { $of_field };
    (@meaning $of_field:ident $meaning:literal) => { $meaning };
    (@suffix sum) => { "" };
    (@suffix max) => { "" };
    (@suffix per $with:ident $($more:ident)*) => { concat!("_per_", stringify!($with)) };
    (@suffix per_read) => { "_per_read" };
    (@suffix time $($with:ident)+) => { "_share" };
    (@value $name:ident $field:ident sum) => {
        crate::fact::Value::Sum(|disk| Some($name::of(disk)?.$field))
    };
    (@value $name:ident $field:ident max) => {
        crate::fact::Value::Max(|disk| Some($name::of(disk)?.$field))
    };
    (@value $name:ident $field:ident per $($with:ident)+) => {
        crate::fact::Value::Quotient(
            |disk| Some($name::of(disk)?.$field),
            |disk| Some(0 $(+ $name::of(disk)?.$with)+),
        )
    };
    (@value $name:ident $field:ident per_read) => {
        crate::fact::Value::Quotient(
            |disk| Some($name::of(disk)?.$field),
            |disk| Some(disk.queue.ios[0]),
        )
    };
    (@value $name:ident $field:ident time $($with:ident)+) => {
        crate::fact::Value::TimeShare(|disk| Some(0 $(+ $name::of(disk)?.$with)+))
    };
}
pub(crate) use counters;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_facts_say_what_they_are() {
        let facts = facts();
        for (at, fact) in facts.iter().enumerate() {
            let of_program = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(fact.key.chars().all(of_program), "{}", fact.key);
            assert!(
                facts[..at].iter().all(|other| other.key != fact.key),
                "{}",
                fact.key
            );
            assert!(
                !fact.label.trim().is_empty() && fact.meaning.ends_with('.'),
                "{fact:?}"
            );
        }
    }

    fn value(run: &Results, key: &str) -> Option<f64> {
        let facts = facts();
        let fact = facts.iter().find(|fact| fact.key == key);
        fact.expect("is declared").of(run)
    }

    #[test]
    fn drives_of_a_run_add_up() {
        let drive = |blocks, busy_ns| {
            let mut disk = DiskStats::default();
            disk.device.collection.blocks = blocks;
            disk.device.collection.busy_ns = busy_ns;
            disk.device.collection.longest_ns = busy_ns;
            disk
        };
        let mut run = Results::default();
        assert_eq!(value(&run, "collection_blocks"), None);
        run.disks = vec![drive(1, 700), drive(3, 100)];
        assert_eq!(value(&run, "collection_blocks"), Some(4.0));
        assert_eq!(value(&run, "collection_busy_ns_per_blocks"), Some(200.0));
        assert_eq!(value(&run, "collection_longest_ns"), Some(700.0));
    }

    #[test]
    fn an_arm_s_time_is_of_the_drives_that_have_one() {
        let mut run = Results {
            elapsed_ns: 1000,
            disks: vec![DiskStats::default(), DiskStats::default()],
            ..Results::default()
        };
        assert_eq!(value(&run, "arm_transfer_ns_share"), None);
        run.disks[1].device.arm = Some(crate::ArmStats {
            transfer_ns: 250,
            ..crate::ArmStats::default()
        });
        assert_eq!(value(&run, "arm_transfer_ns_share"), Some(0.25));
        assert_eq!(value(&run, "arm_seeks"), Some(0.0));
    }

    /// Two channels and two dies in a run of 1000 ns.
    #[test]
    fn how_busy_parts_were_is_of_the_counted_time() {
        let mut disk = DiskStats::default();
        let channel = |die_busy_ns, bus_busy_ns, queue_ns, longest_queue| crate::ChannelStats {
            die_busy_ns,
            bus_busy_ns,
            queue_ns,
            longest_queue,
            ..crate::ChannelStats::default()
        };
        disk.device.channels = vec![channel(300, 100, 500, 2), channel(50, 100, 100, 4)];
        let die = |busy_ns, queue_ns, longest_queue| crate::DieStats {
            busy_ns,
            queue_ns,
            longest_queue,
            plane_busy_ns: vec![busy_ns, busy_ns / 2],
            ..crate::DieStats::default()
        };
        disk.device.dies = vec![die(600, 2_000, 5), die(200, 1_000, 3)];
        disk.device.fetches.commands = [3, 1, 0, 0];
        disk.device.fetches.wait_ns = [100, 300, 0, 0];
        let run = Results {
            elapsed_ns: 1000,
            disks: vec![disk],
            ..Results::default()
        };
        for (key, expected) in [
            // A channel counts as busy for its dies or its bus, whichever was longer.
            ("channels_busy_share", 0.2),
            ("buses_busy_share", 0.1),
            ("busiest_channel_ratio", 1.5),
            ("channels_variation", 0.5),
            ("dies_busy_share", 0.4),
            ("dies_variation", 0.5),
            ("planes_busy_share", 0.3),
            ("die_queue", 1.5),
            ("die_queue_longest", 5.0),
            ("channel_queue", 0.3),
            ("channel_queue_longest", 4.0),
            ("fetch_wait_ns_per_command", 100.0),
        ] {
            let found = value(&run, key).expect(key);
            assert!((found - expected).abs() < 1e-12, "{key}: {found}");
        }
    }

    fn all(run: &Results, expected: &[(&str, Option<f64>)]) {
        for (key, expected) in expected {
            let found = value(run, key);
            let close = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
                (found, expected) => found == *expected,
            };
            assert!(close, "{key}: {found:?}, not {expected:?}");
        }
    }

    #[test]
    fn the_queue_s_facts_are_of_its_counters() {
        let mut disk = DiskStats::default();
        disk.queue.ios = [6, 4, 2, 8];
        disk.queue.merges = [3, 5, 0, 0];
        disk.queue.sectors = [60, 20, 20, 0];
        disk.queue.ticks_ns = [700, 300, 50, 400];
        disk.queue.time_in_queue_ns = 3_000;
        disk.queue.behind_flush_ns = 250;
        (disk.queue.fua_ios, disk.queue.fua_ticks_ns) = (4, 100);
        (disk.queue.errors, disk.queue.requeues) = (7, 9);
        let hctx = |dispatched| crate::HwQueueStats {
            dispatched,
            ..crate::HwQueueStats::default()
        };
        disk.queue.hctx = vec![hctx([99, 5, 1, 0, 0, 0, 0]), hctx([0, 1, 0, 2, 0, 0, 1])];
        let run = Results {
            elapsed_ns: 1000,
            disks: vec![disk],
            ..Results::default()
        };
        all(
            &run,
            &[
                ("queue_requests", Some(20.0)),
                ("queue_request_bytes", Some(2560.0)),
                ("queue_read_merges", Some(3.0)),
                ("queue_write_merges", Some(5.0)),
                ("queue_batch_share", Some(0.4)),
                ("queue_in_flight", Some(3.0)),
                ("queue_flushes", Some(8.0)),
                ("queue_flush_ns", Some(50.0)),
                ("queue_flush_time_ns", Some(400.0)),
                ("queue_behind_flush_ns", Some(250.0)),
                ("queue_behind_flush_share", Some(0.25)),
                ("queue_fua_writes", Some(4.0)),
                ("queue_fua_ns", Some(25.0)),
                ("queue_discards", Some(2.0)),
                ("queue_discard_ns", Some(25.0)),
                ("queue_requeues", Some(9.0)),
                ("queue_errors", Some(7.0)),
            ],
        );
    }

    /// The root has the cost model's times of all groups.
    #[test]
    fn facts_on_groups_are_sums_over_them() {
        let held = |ios, ns| crate::HeldIos { ios, ns };
        let root = crate::CgroupStats {
            cost: Some(crate::CostTimes {
                usage_us: 70,
                debt_us: 30,
                ..crate::CostTimes::default()
            }),
            ..crate::CgroupStats::default()
        };
        let group = |name: &str, n: u64| crate::CgroupStats {
            name: name.to_string(),
            io_max: held(n, 100 * n),
            io_latency: held(2 * n, 600 * n),
            io_cost: held(3 * n, 1500 * n),
            cost: Some(crate::CostTimes {
                usage_us: 1,
                ..crate::CostTimes::default()
            }),
            ..crate::CgroupStats::default()
        };
        let rate = |percent, min_percent| crate::CostRate {
            percent,
            min_percent,
            max_percent: 400.0,
        };
        let run = Results {
            disks: vec![
                DiskStats {
                    cgroups: vec![root, group("a", 1), group("b", 4)],
                    cost_rate: Some(rate(150.0, 50.0)),
                    ..DiskStats::default()
                },
                DiskStats {
                    cost_rate: Some(rate(125.0, 75.0)),
                    ..DiskStats::default()
                },
            ],
            ..Results::default()
        };
        all(
            &run,
            &[
                ("io_max_held", Some(5.0)),
                ("io_max_held_ns", Some(100.0)),
                ("io_latency_held", Some(10.0)),
                ("io_latency_held_ns", Some(300.0)),
                ("io_cost_held", Some(15.0)),
                ("io_cost_held_ns", Some(500.0)),
                ("io_cost_usage_ns", Some(70_000.0)),
                ("io_cost_debt_ns", Some(30_000.0)),
                ("io_cost_rate", Some(1.25)),
                ("io_cost_rate_min", Some(0.5)),
            ],
        );
        let without = Results {
            disks: vec![DiskStats::default()],
            ..Results::default()
        };
        let keys = ["io_max_held", "io_max_held_ns", "io_cost_usage_ns"];
        all(&without, &keys.map(|key| (key, None)));
    }

    #[test]
    fn wear_is_the_mean_of_the_drives_that_have_blocks() {
        let worn = |dies: usize, min_erases, mean_erases, max_erases| {
            let mut disk = DiskStats::default();
            disk.device.dies = vec![crate::DieStats::default(); dies];
            disk.device.wear = crate::WearStats {
                min_erases,
                mean_erases,
                max_erases,
                ..crate::WearStats::default()
            };
            disk
        };
        let run = Results {
            disks: vec![
                worn(2, 1, 2.0, 5),
                worn(0, 90, 90.0, 90),
                worn(1, 3, 6.0, 9),
            ],
            ..Results::default()
        };
        all(
            &run,
            &[
                ("wear_min_erases", Some(2.0)),
                ("wear_mean_erases", Some(4.0)),
                ("wear_max_erases", Some(7.0)),
            ],
        );
        all(&Results::default(), &[("wear_mean_erases", None)]);
    }

    #[test]
    fn waits_inside_a_drive_are_shares_of_its_requests() {
        use crate::{Wait, Waits};
        let waits = |causes: &[Wait]| {
            let mut waits = Waits::NONE;
            causes.iter().for_each(|cause| waits.note(*cause, true));
            waits
        };
        let mut disk = DiskStats::default();
        let mut both = waits(&[Wait::Die]);
        both.add(waits(&[Wait::Map]));
        for read in [waits(&[]), waits(&[]), waits(&[Wait::Die]), both] {
            disk.device.read_waits.count(read);
        }
        for write in [waits(&[]), waits(&[Wait::Cache])] {
            disk.device.write_waits.count(write);
        }
        let run = Results {
            disks: vec![disk],
            ..Results::default()
        };
        all(
            &run,
            &[
                ("reads_waited_share", Some(0.5)),
                ("reads_waited_die_share", Some(0.5)),
                ("reads_waited_map_share", Some(0.25)),
                ("reads_waited_cache_share", Some(0.0)),
                ("writes_waited_share", Some(0.5)),
                ("writes_waited_cache_share", Some(0.5)),
                ("writes_waited_die_share", Some(0.0)),
            ],
        );
    }

    #[test]
    fn facts_on_a_server_and_on_a_loss_of_power_are_of_the_drives_that_have_them() {
        let run = Results {
            disks: vec![
                DiskStats::default(),
                DiskStats {
                    server: Some(crate::ServerTimes {
                        receive_ns: 10,
                        serve_ns: 20,
                        reply_ns: 70,
                    }),
                    power_loss: Some(crate::PowerLoss {
                        at_ns: 400,
                        ready_ns: 1000,
                        failed: [1, 2, 3, 4],
                        lost_acknowledged_sectors: 8,
                        ..crate::PowerLoss::default()
                    }),
                    ..DiskStats::default()
                },
            ],
            ..Results::default()
        };
        assert!(run.lost_power());
        all(
            &run,
            &[
                ("server_reply_share", Some(0.7)),
                ("power_loss_requests", Some(10.0)),
                ("power_loss_lost_acknowledged_sectors", Some(8.0)),
                ("power_loss_ready_ns", Some(600.0)),
            ],
        );
        let without = Results {
            disks: vec![DiskStats::default()],
            ..Results::default()
        };
        assert!(!without.lost_power());
        let keys = ["server_reply_share", "power_loss_requests"];
        all(&without, &keys.map(|key| (key, None)));
    }

    /// Totals leave out ramps, so they count where they are known.
    #[test]
    fn cpu_shares_are_of_the_totals_or_else_of_the_timeline() {
        let times = |user_ns, idle_ns| crate::CpuTimes {
            user_ns,
            idle_ns,
            ..crate::CpuTimes::default()
        };
        let slice = |end_ns, cpus| crate::CpuSlice { end_ns, cpus };
        let mut run = Results {
            cpu_timeline: vec![
                slice(50, vec![times(10, 40), times(50, 0)]),
                slice(100, vec![times(0, 50), times(0, 50)]),
            ],
            ..Results::default()
        };
        all(
            &run,
            &[
                ("cpu_user_share", Some(0.3)),
                ("cpu_idle_share", Some(0.7)),
                ("cpu_irq_share", Some(0.0)),
            ],
        );
        run.cpus = vec![times(25, 75), times(75, 25)];
        all(&run, &[("cpu_user_share", Some(0.5))]);
        all(&Results::default(), &[("cpu_user_share", None)]);
    }

    #[test]
    fn the_page_cache_s_hits_are_a_share_of_what_was_read() {
        let mut run = Results::default();
        all(&run, &[("cache_hit_ratio", None), ("cache_hits", None)]);
        run.page_cache = Some(crate::CacheStats {
            read_pages: 8,
            hits: 6,
            ..crate::CacheStats::default()
        });
        all(
            &run,
            &[("cache_hit_ratio", Some(0.75)), ("cache_hits", Some(6.0))],
        );
    }

    /// What is no plain count of one drive is no counter of it.
    #[test]
    fn plain_sums_alone_are_counters_of_a_drive() {
        let mut disk = DiskStats::default();
        disk.device.collection.blocks = 5;
        disk.device.collection.busy_ns = 50;
        let counter = |key: &str| {
            let facts = facts();
            let fact = facts.iter().find(|fact| fact.key == key);
            fact.expect("is declared").counter(&disk)
        };
        assert_eq!(counter("collection_blocks"), Some(5));
        assert_eq!(counter("collection_busy_ns_per_blocks"), None);
        assert_eq!(counter("arm_seeks"), None);
    }
}
