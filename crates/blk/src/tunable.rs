//! Tunables of a scheduler. Each is declared once, with name, unit, range and default, for the
//! command line, job files, sysfs and the documentation.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The unit of a tunable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    Count,
    /// 0 or 1.
    Bool,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Sectors of 512 bytes.
    Sectors,
    /// KiB.
    Kib,
    /// Percent.
    Percent,
}

impl Unit {
    /// The unit's symbol, as tables show it.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bool => "0/1",
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "us",
            Unit::Nanoseconds => "ns",
            Unit::Sectors => "sectors",
            Unit::Kib => "KiB",
            Unit::Percent => "%",
        }
    }
}

/// Declaration of a tunable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Name, the kernel's if it has one.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Smallest legal value.
    pub min: i64,
    /// Largest legal value.
    pub max: i64,
    /// Default value.
    pub default: i64,
    /// One line of help.
    pub help: &'static str,
}

impl Tunable {
    /// Returns a declaration with the range `min` to `max`.
    pub const fn new(
        name: &'static str,
        unit: Unit,
        (min, max): (i64, i64),
        default: i64,
        help: &'static str,
    ) -> Tunable {
        Tunable {
            name,
            unit,
            min,
            max,
            default,
            help,
        }
    }

    /// The legal values in words.
    pub fn range(&self) -> String {
        let range = match (self.unit, self.max) {
            (Unit::Bool, _) => return "0 or 1".to_string(),
            (_, i64::MAX) => format!("{} or more", self.min),
            (_, max) => format!("{} to {max}", self.min),
        };
        match self.unit {
            Unit::Count => range,
            unit => format!("{range} {}", unit.symbol()),
        }
    }
}

/// The reason why a tunable could not be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunableError {
    /// The scheduler has no tunable of that name.
    Unknown {
        /// Names of its tunables.
        known: Vec<&'static str>,
    },
    /// The value is out of the tunable's range.
    Range(Tunable, i64),
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunableError::Unknown { known } if known.is_empty() => write!(f, "it has no tunables"),
            TunableError::Unknown { known } => write!(f, "its tunables are {}", known.join(", ")),
            TunableError::Range(t, value) => {
                write!(f, "{value} is out of range; {} takes {}", t.name, t.range())
            }
        }
    }
}

impl core::error::Error for TunableError {}

/// A scheduler's tunables and their current values.
#[derive(Clone, Debug)]
pub struct Tunables {
    declared: &'static [Tunable],
    values: Vec<i64>,
}

impl Tunables {
    /// Returns the tunables at their defaults.
    pub fn new(declared: &'static [Tunable]) -> Tunables {
        Tunables {
            declared,
            values: declared.iter().map(|t| t.default).collect(),
        }
    }

    /// The declarations.
    pub fn declared(&self) -> &'static [Tunable] {
        self.declared
    }

    /// The value of the tunable at `index`.
    ///
    /// # Panics
    /// If there are fewer tunables.
    pub fn at(&self, index: usize) -> i64 {
        self.values[index]
    }

    /// The value of the tunable `name`.
    pub fn get(&self, name: &str) -> Option<i64> {
        let index = self.declared.iter().position(|t| t.name == name)?;
        Some(self.values[index])
    }

    /// Sets a tunable by name.
    ///
    /// # Errors
    /// If there is no tunable of that name, or the value is out of its range.
    pub fn set(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        let Some(index) = self.declared.iter().position(|t| t.name == name) else {
            return Err(TunableError::Unknown {
                known: self.declared.iter().map(|t| t.name).collect(),
            });
        };
        let tunable = self.declared[index];
        if !(tunable.min..=tunable.max).contains(&value) {
            return Err(TunableError::Range(tunable, value));
        }
        self.values[index] = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_as_words() {
        let range = |unit, min, max| Tunable::new("x", unit, (min, max), min, "").range();
        assert_eq!(range(Unit::Bool, 0, 1), "0 or 1");
        assert_eq!(range(Unit::Count, 1, 16), "1 to 16");
        assert_eq!(range(Unit::Milliseconds, 0, i64::MAX), "0 or more ms");
    }

    #[test]
    fn an_unknown_tunable_is_answered_with_those_there_are() {
        let message = |known: &[&'static str]| {
            let known = known.to_vec();
            TunableError::Unknown { known }.to_string()
        };
        assert_eq!(message(&[]), "it has no tunables");
        assert_eq!(message(&["a", "b"]), "its tunables are a, b");
    }
}
