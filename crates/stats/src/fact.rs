//! Facts: figures that explain a run, each declared once with its key, label, unit and
//! meaning. Text, JSON, HTML and metrics are made from these.

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
    let mut facts = crate::queue::facts().to_vec();
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
            pub(crate) fn facts() -> Vec<crate::fact::Fact> {
                let mut facts = Vec::new();
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
}
