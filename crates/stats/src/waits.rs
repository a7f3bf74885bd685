//! The causes for which requests wait inside a drive.

use alloc::vec;
use alloc::vec::Vec;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::fact::{Fact, OfDisk, Place, Unit, Value};
use crate::results::DiskStats;

macro_rules! waits {
    ($($wait:ident $name:literal $what:literal,)+) => {
        /// A cause for which a request may wait inside a drive.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Wait {
            $(#[doc = concat!("Waits for ", $what)] $wait,)+
        }

        impl Wait {
            /// All causes.
            pub const ALL: [Wait; [$($name),+].len()] = [$(Wait::$wait),+];

            /// Returns the cause's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Wait::$wait => $name,)+
                }
            }
        }

        /// Returns the facts on the shares of requests that waited, by cause.
        pub(crate) fn facts() -> Vec<Fact> {
            vec![
                share(
                    "reads_waited_share",
                    "reads that waited inside",
                    "Share of the host's reads that waited for something inside the drive.",
                    (|disk| Some(disk.device.read_waits.waited()), all_reads),
                ),
                $(share(
                    concat!("reads_waited_", $name, "_share"),
                    concat!("  reads, for ", $name),
                    concat!("Share of the host's reads that waited for ", $what),
                    (|disk| Some(disk.device.read_waits.waited_for(Wait::$wait)), all_reads),
                ),)+
                share(
                    "writes_waited_share",
                    "writes that waited inside",
                    "Share of the host's writes that waited for something inside the drive.",
                    (|disk| Some(disk.device.write_waits.waited()), all_writes),
                ),
                $(share(
                    concat!("writes_waited_", $name, "_share"),
                    concat!("  writes, for ", $name),
                    concat!("Share of the host's writes that waited for ", $what),
                    (|disk| Some(disk.device.write_waits.waited_for(Wait::$wait)), all_writes),
                ),)+
            ]
        }
    };
}

waits! {
    Channel "channel" "a channel that other commands used.",
    Die "die" "a die that other commands used.",
    Collection "collection" "garbage collection on its die, or for garbage collection to make room.",
    Map "map" "a page of the map to be read.",
    Cache "cache" "room in the write cache.",
}

fn share(
    key: &'static str,
    label: &'static str,
    meaning: &'static str,
    (waited, all): (OfDisk, OfDisk),
) -> Fact {
    Fact {
        place: Place::Drive,
        key,
        label,
        unit: Unit::Share,
        meaning,
        value: Value::Quotient(waited, all),
    }
}

fn all_reads(disk: &DiskStats) -> Option<u64> {
    Some(disk.device.read_waits.requests())
}

fn all_writes(disk: &DiskStats) -> Option<u64> {
    Some(disk.device.write_waits.requests())
}

/// The set of causes for which one request has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits(u8);

impl Waits {
    /// The set without any cause.
    pub const NONE: Waits = Waits(0);

    /// Adds a cause, if `waits`.
    #[inline]
    pub fn note(&mut self, wait: Wait, waits: bool) {
        self.0 |= (waits as u8) << wait as u8;
    }

    /// Adds the causes of a part of the request.
    #[inline]
    pub fn add(&mut self, part: Waits) {
        self.0 |= part.0;
    }

    /// Returns whether the request has waited for this cause.
    #[inline]
    pub fn has(self, wait: Wait) -> bool {
        self.0 & 1 << wait as u8 != 0
    }
}

/// Counts of requests by the causes for which they waited. A request counts once for
/// each cause, however often and however long it waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Requests by the set of their causes.
    by_waits: [u64; 1 << Wait::ALL.len()],
}

impl WaitCounts {
    /// Counts a request that ended.
    #[inline]
    pub fn count(&mut self, waits: Waits) {
        self.by_waits[waits.0 as usize] += 1;
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.by_waits.iter().sum()
    }

    /// Returns the number of requests that waited at all.
    pub fn waited(&self) -> u64 {
        self.requests() - self.by_waits[0]
    }

    /// Returns the number of requests that waited for one cause.
    pub fn waited_for(&self, wait: Wait) -> u64 {
        let of_kind = |waits: &usize| Waits(*waits as u8).has(wait);
        let all = 0..self.by_waits.len();
        all.filter(of_kind).map(|waits| self.by_waits[waits]).sum()
    }
}

impl Serialize for WaitCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("requests", &self.requests())?;
        map.serialize_entry("waited", &self.waited())?;
        for wait in Wait::ALL {
            map.serialize_entry(wait.name(), &self.waited_for(wait))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_once_for_each_thing_that_it_waited_for() {
        let mut counts = WaitCounts::default();
        let mut both = Waits::NONE;
        for wait in [Wait::Die, Wait::Cache, Wait::Die] {
            both.note(wait, true);
        }
        both.note(Wait::Map, false);
        counts.count(both);
        counts.count(Waits::NONE);
        assert_eq!((counts.requests(), counts.waited()), (2, 1));
        let each = Wait::ALL.map(|wait| counts.waited_for(wait));
        assert_eq!(each, [0, 1, 0, 0, 1]);
    }

    #[test]
    fn json_has_each_wait_by_its_name() {
        let mut counts = WaitCounts::default();
        let mut map = Waits::NONE;
        map.note(Wait::Map, true);
        counts.count(map);
        let json = serde_json::to_value(&counts).unwrap();
        let figures = |key: &str| json[key].as_u64();
        assert_eq!((figures("requests"), figures("waited")), (Some(1), Some(1)));
        assert_eq!((figures("map"), figures("die")), (Some(1), Some(0)));
        assert_eq!(json.as_object().unwrap().len(), 2 + Wait::ALL.len());
    }
}
