//! `state` and `[aged]`: what is on the drive at the start.

use super::super::rng::Rng;
use blklab_description::{ReadError, Table};

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

/// `[aged]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AgedSpec {
    /// Share of the address space that holds data.
    pub occupancy: f64,
    /// The part of the data that is hot, from the start of the address space.
    pub hot_share: f64,
    /// The part of the writes that goes there.
    pub hot_writes: f64,
    /// Free blocks that every plane lacks of `gc.start_blocks`: collection is
    /// behind by as much. `None`: as under writes without pause.
    pub behind_blocks: Option<u32>,
    /// Reach the state by simulating the writes, to check the short way.
    pub simulate: bool,
}

impl AgedSpec {
    /// How many of so many slots are hot.
    pub(crate) fn hot_of(&self, slots: u32) -> u32 {
        (self.hot_share * slots as f64) as u32
    }

    /// Whether all data is overwritten alike.
    pub(crate) fn is_even(&self) -> bool {
        self.hot_share == self.hot_writes
    }

    /// What it is within one of `ranges` equal parts of the address space,
    /// where each part has flash of its own.
    pub(crate) fn of_range(&self, range: u32, ranges: u32) -> AgedSpec {
        let (from, part) = (range as f64 / ranges as f64, 1.0 / ranges as f64);
        let hot = (self.hot_share - from).clamp(0.0, part) / part;
        let share = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let hot_rate = share(self.hot_writes, self.hot_share) * hot;
        let cold_rate = share(1.0 - self.hot_writes, 1.0 - self.hot_share) * (1.0 - hot);
        // All hot is as even as all cold.
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

    /// Which of `live` slots is overwritten next.
    pub(crate) fn draw(&self, live: u32, rng: &mut Rng) -> u32 {
        let hot = self.hot_of(live);
        let is_hot = (rng.below(1 << 24) as f64) < self.hot_writes * (1 << 24) as f64;
        match is_hot && hot > 0 {
            true => rng.below(hot),
            false => hot + rng.below((live - hot).max(1)).min(live - hot - 1),
        }
    }
}

pub(super) fn read_state(root: &Table<'_>) -> Result<InitialState, ReadError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Name {
        Fresh,
        Filled,
        Aged,
    }
    let name = root.choice(
        "state",
        &[
            ("fresh", Name::Fresh),
            ("filled", Name::Filled),
            ("aged", Name::Aged),
        ],
    )?;
    let table = root.table_if_any("aged")?;
    let Some(table) = table else {
        return match name {
            Name::Fresh => Ok(InitialState::Fresh),
            Name::Filled => Ok(InitialState::Filled),
            Name::Aged => Err(root.wrong(
                "state",
                "legal is \"fresh\" or \"filled\" where there is no table [aged]",
            )),
        };
    };
    if name != Name::Aged {
        return Err(root.wrong(
            "aged",
            "legal is to leave this table out where state is not \"aged\"",
        ));
    }
    let aged = AgedSpec {
        occupancy: table.number("occupancy", 0.001..=1.0)?,
        hot_share: table.number_or("hot_share", 0.0..=0.99, 0.0)?,
        hot_writes: table.number_or("hot_writes", 0.0..=1.0, 0.0)?,
        behind_blocks: table
            .int_if_any("behind_blocks", 0..=1 << 16)?
            .map(|blocks| blocks as u32),
        simulate: table.flag_or("simulate", false)?,
    };
    table.finish()?;
    Ok(InitialState::Aged(aged))
}
