//! Faults that drives have in the field, on top of any model: how often, which command
//! meets one (`drive`), and what it does to data (`data`).
//!
//! Latent sector errors and silent corruption as Bairavasundaram et al. describe them
//! (SIGMETRICS 2007, FAST 2008); lost, torn and misdirected writes as Krioukov et al. do
//! ("Parity Lost and Parity Regained", FAST 2008); drives that stall or turn slow as
//! Gunawi et al. do ("Fail-Slow at Scale", FAST 2018).

mod data;
mod drive;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use blklab_description::{hint, time_ns};

pub use data::{DataFault, FaultyData, FlippedBits, PowerCut, WriteFate, faulty_parts};
pub(crate) use drive::FaultyDevice;

/// Largest factor of `slow`: a drive slower than that has failed.
const SLOW_MAX: f64 = 1e6;

/// How often a drive has which fault. A rate is a share of commands, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Reads that find one of their sectors unreadable; it stays unreadable until it is
    /// written.
    read_error: f64,
    /// Reads before which a bit of their range flipped on the medium.
    bit_rot: f64,
    /// Reads that return the data from before the last write.
    stale_read: f64,
    /// Reads that return another range's data.
    misdirected_read: f64,
    /// Writes that are acknowledged and leave everything as it was.
    lost_write: f64,
    /// Writes of which only the beginning lands.
    torn_write: f64,
    /// Writes that land on another range, while their own keeps its data.
    misdirected_write: f64,
    /// Commands whose completion is delayed by `stall_ns`.
    stall: f64,
    stall_ns: u64,
    /// Factor on the time of every command, from 1.
    slow: f64,
}

// No number in it is NaN: it is only made by [`Faults::parse`].
impl Eq for Faults {}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            read_error: 0.0,
            bit_rot: 0.0,
            stale_read: 0.0,
            misdirected_read: 0.0,
            lost_write: 0.0,
            torn_write: 0.0,
            misdirected_write: 0.0,
            stall: 0.0,
            stall_ns: 0,
            slow: 1.0,
        }
    }
}

/// A fault of `--faults`, declared once for parsing, help and the reference.
struct FaultType {
    name: &'static str,
    /// The form of its value.
    value: &'static str,
    meaning: &'static str,
    set: fn(&mut Faults, &str) -> Result<(), String>,
}

const FAULTS: &[FaultType] = &[
    FaultType {
        name: "read_error",
        value: "RATE",
        meaning: "a read finds a sector unreadable (EIO) until it is written",
        set: |faults, text| rate(text, &mut faults.read_error),
    },
    FaultType {
        name: "bit_rot",
        value: "RATE",
        meaning: "a bit of a read's range has flipped on the medium",
        set: |faults, text| rate(text, &mut faults.bit_rot),
    },
    FaultType {
        name: "stale_read",
        value: "RATE",
        meaning: "a read returns the data from before the last write",
        set: |faults, text| rate(text, &mut faults.stale_read),
    },
    FaultType {
        name: "misdirected_read",
        value: "RATE",
        meaning: "a read returns another range's data",
        set: |faults, text| rate(text, &mut faults.misdirected_read),
    },
    FaultType {
        name: "lost_write",
        value: "RATE",
        meaning: "a write leaves everything as it was",
        set: |faults, text| rate(text, &mut faults.lost_write),
    },
    FaultType {
        name: "torn_write",
        value: "RATE",
        meaning: "only the first blocks of a write land",
        set: |faults, text| rate(text, &mut faults.torn_write),
    },
    FaultType {
        name: "misdirected_write",
        value: "RATE",
        meaning: "a write lands on another range, and its own keeps its data",
        set: |faults, text| rate(text, &mut faults.misdirected_write),
    },
    FaultType {
        name: "stall",
        value: "RATE:TIME",
        meaning: "a command completes this much later",
        set: |faults, text| {
            let (share, time) = text
                .split_once(':')
                .ok_or("right is RATE:TIME, as 1e-4:30ms")?;
            rate(share, &mut faults.stall)?;
            faults.stall_ns = time_ns(time)?;
            Ok(())
        },
    },
    FaultType {
        name: "slow",
        value: "FACTOR",
        meaning: "every command takes this many times as long",
        set: |faults, text| {
            let factor = text.parse().ok().filter(|f| (1.0..=SLOW_MAX).contains(f));
            faults.slow = factor.ok_or("right is a number from 1 to 1000000")?;
            Ok(())
        },
    },
];

/// Reads a share of commands.
fn rate(text: &str, into: &mut f64) -> Result<(), String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    *into = rate.ok_or("right is a share of commands from 0 to 1, as 1e-4")?;
    Ok(())
}

impl Faults {
    /// Reads `NAME=VALUE,...`.
    ///
    /// # Errors
    /// Where there is no such fault or its value is none; the message says what is
    /// right.
    pub fn parse(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::default();
        let mut given: Vec<&str> = Vec::new();
        for fault in text.split(',').map(str::trim) {
            let (name, value) = fault.split_once('=').unwrap_or((fault, ""));
            let kind = FAULTS.iter().find(|kind| kind.name == name);
            let kind = kind.ok_or_else(|| unknown(name))?;
            let set = (kind.set)(&mut faults, value);
            set.map_err(|right| format!("{name}: found {value:?}; {right}"))?;
            if given.contains(&kind.name) {
                return Err(format!(
                    "{name}: it is given twice; right is each fault once"
                ));
            }
            given.push(kind.name);
        }
        Ok(faults)
    }

    /// The faults that can be asked for, as a table in Markdown.
    pub fn table() -> String {
        let mut table = String::from("| fault | meaning |\n| --- | --- |\n");
        for FaultType {
            name,
            value,
            meaning,
            ..
        } in FAULTS
        {
            let _ = writeln!(table, "| `{name}={value}` | {meaning} |");
        }
        table
    }

    /// Whether there are faults that show only in the data of reads, so that a drive
    /// without data cannot have them.
    pub fn in_data(&self) -> bool {
        let of_reads = self.bit_rot + self.stale_read + self.misdirected_read;
        of_reads + self.lost_write + self.torn_write + self.misdirected_write > 0.0
    }

    /// Whether reads may return the data from before the last write.
    pub fn has_stale_reads(&self) -> bool {
        self.stale_read > 0.0
    }

    /// Whether commands take a multiple of the drive's own time.
    pub fn is_slow(&self) -> bool {
        self.slow > 1.0
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = FAULTS.iter().map(|kind| kind.name).collect();
    let hint = hint(name, names.iter().copied());
    format!(
        "there is no fault {name:?}; there are {}{hint}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_with_what_is_right() {
        for (text, expected) in [
            (
                "bitrot=1",
                "there is no fault \"bitrot\"; there are read_error, bit_rot",
            ),
            ("bitrot=1", "did you mean bit_rot?"),
            ("", "there is no fault \"\""),
            ("bit_rot=2", "bit_rot: found \"2\"; right is a share"),
            ("bit_rot", "bit_rot: found \"\"; right is a share"),
            ("stall=0.1", "stall: found \"0.1\"; right is RATE:TIME"),
            ("stall=0.1:5", "right is a number with its unit"),
            ("slow=0.5", "slow: found \"0.5\"; right is a number from 1"),
            ("slow=NaN", "slow: found \"NaN\""),
            ("slow=2,bit_rot=0.1,slow=3", "slow: it is given twice"),
        ] {
            let found = Faults::parse(text).unwrap_err();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn a_drive_without_data_may_have_faults_that_do_not_need_it() {
        for (text, in_data) in [
            ("bit_rot=0.1", true),
            ("stale_read=0.1", true),
            ("misdirected_read=0.1", true),
            ("lost_write=0.1", true),
            ("torn_write=0.1", true),
            ("misdirected_write=0.1", true),
            ("read_error=0.1,stall=0.1:1ms,slow=2", false),
        ] {
            assert_eq!(Faults::parse(text).unwrap().in_data(), in_data, "{text}");
        }
    }
}
