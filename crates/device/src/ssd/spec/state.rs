//! `state` and `[aged]`: what is on the drive at the start.

use blklab_description::{ReadError, Table, flag, keys, number, word};

use super::Mapping;
use crate::DriveState;

/// What is on the drive at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InitialState {
    /// Nothing was ever written.
    Fresh,
    /// Written once from end to end.
    Filled,
    /// Written to, then overwritten until the flash is steady.
    Aged(AgedSpec),
}

keys! {
    /// How the drive was overwritten, with `state = "aged"`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct AgedSpec(table) {
        /// Share of the address space that holds data.
        pub occupancy: f64 = number(0.001..=1.0);
        /// The part of the data that is hot, from the start of the address space.
        pub hot_share: f64 = number(0.0..=0.99).or(0.0);
        /// The part of the writes that goes there.
        pub hot_writes: f64 =
            number(0.0..=1.0).or(0.0).needs(hot_share > 0.0, "aged.hot_share above 0");
        /// Reach the state by simulating every write, as a check of the scaled-down way.
        pub simulate: bool = flag().or(false);
    }
}

impl AgedSpec {
    /// How many of this number of slots are hot.
    pub(crate) fn hot_of(&self, slots: u32) -> u32 {
        (self.hot_share * slots as f64) as u32
    }

    /// Whether all data is overwritten alike.
    pub(crate) fn is_even(&self) -> bool {
        self.hot_share == self.hot_writes
    }

    /// The same for one of `ranges` equal parts of the address space, where each part has
    /// flash of its own.
    pub(crate) fn of_range(&self, range: u32, ranges: u32) -> AgedSpec {
        let (from, part) = (range as f64 / ranges as f64, 1.0 / ranges as f64);
        let hot = (self.hot_share - from).clamp(0.0, part) / part;
        let share = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let hot_rate = share(self.hot_writes, self.hot_share) * hot;
        let cold_rate = share(1.0 - self.hot_writes, 1.0 - self.hot_share) * (1.0 - hot);
        // A part that is all hot is overwritten as evenly as one that is all cold.
        AgedSpec {
            hot_share: if hot < 1.0 { hot } else { 0.0 },
            hot_writes: if hot < 1.0 {
                share(hot_rate, hot_rate + cold_rate)
            } else {
                0.0
            },
            ..*self
        }
    }
}

impl InitialState {
    /// A state without `[aged]`: an aged drive is full, and was overwritten evenly. One that
    /// maps blocks has its data in place and in logs, where only writing puts it.
    pub(super) fn of(state: DriveState, mapping: &Mapping) -> InitialState {
        match state {
            DriveState::Fresh => InitialState::Fresh,
            DriveState::Filled => InitialState::Filled,
            DriveState::Aged => InitialState::Aged(AgedSpec {
                occupancy: 1.0,
                hot_share: 0.0,
                hot_writes: 0.0,
                simulate: matches!(mapping, Mapping::Hybrid(_)),
            }),
        }
    }

    /// The word of `state` for it.
    pub(crate) fn name(&self) -> DriveState {
        match self {
            InitialState::Fresh => DriveState::Fresh,
            InitialState::Filled => DriveState::Filled,
            InitialState::Aged(_) => DriveState::Aged,
        }
    }

    /// Reads `state` and `[aged]`.
    pub(super) fn read(root: &Table<'_>) -> Result<InitialState, ReadError> {
        let name: DriveState = root.key("state", "What is on the drive at the start.", word())?;
        match (name, root.table_if_any("aged")?) {
            (DriveState::Fresh, None) => Ok(InitialState::Fresh),
            (DriveState::Filled, None) => Ok(InitialState::Filled),
            (DriveState::Aged, None) => Err(root.wrong(
                "state",
                "legal is \"fresh\" or \"filled\" where there is no table [aged]",
            )),
            (DriveState::Aged, Some(table)) => AgedSpec::read(&table).map(InitialState::Aged),
            (DriveState::Fresh | DriveState::Filled, Some(_)) => Err(root.wrong(
                "aged",
                "legal is to leave this table out where state is not \"aged\"",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of the address space have the hot data that lies in them, and hot and cold data is
    /// overwritten as often as in the whole.
    #[test]
    fn ranges_are_overwritten_as_the_whole() {
        for (hot_share, hot_writes) in [(0.3, 0.9), (0.1, 0.5), (0.7, 0.8)] {
            let whole = AgedSpec {
                occupancy: 1.0,
                hot_share,
                hot_writes,
                simulate: false,
            };
            let ratio = |of: &AgedSpec| {
                let cold = (1.0 - of.hot_writes) / (1.0 - of.hot_share);
                of.hot_writes / of.hot_share / cold
            };
            for ranges in [1, 2, 4, 7] {
                let parts: Vec<_> = (0..ranges).map(|n| whole.of_range(n, ranges)).collect();
                // The hot data is at the start; a part that is all hot counts as even.
                let mixed = hot_share * f64::from(ranges);
                let hot = mixed.floor() as usize;
                for (n, part) in parts.iter().enumerate() {
                    assert_eq!(part.is_even(), n != hot, "{n} of {ranges}: {part:?}");
                }
                let part = &parts[hot];
                assert!((part.hot_share - mixed.fract()).abs() < 1e-9, "{part:?}");
                assert!((ratio(part) / ratio(&whole) - 1.0).abs() < 1e-9, "{part:?}");
            }
        }
    }
}
