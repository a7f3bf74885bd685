//! What requests waited for inside a drive.

/// What a request may wait for inside a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Its channel, which others used.
    Channel,
    /// Its die, which others used.
    Die,
    /// Garbage collection: at work on its die, or making room for it.
    Collection,
    /// A page of the map, to be read first.
    Map,
    /// Room in the write cache.
    Cache,
}

impl Wait {
    /// All of them.
    pub const ALL: [Wait; 5] = [
        Wait::Channel,
        Wait::Die,
        Wait::Collection,
        Wait::Map,
        Wait::Cache,
    ];

    /// What it waits for.
    pub const fn name(self) -> &'static str {
        match self {
            Wait::Channel => "channel",
            Wait::Die => "die",
            Wait::Collection => "collection",
            Wait::Map => "map",
            Wait::Cache => "cache",
        }
    }
}

/// All that one request has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits(u8);

impl Waits {
    /// It has not waited.
    pub const NONE: Waits = Waits(0);

    /// It waits for this, too, if `really`.
    #[inline]
    pub fn note(&mut self, wait: Wait, really: bool) {
        self.0 |= (really as u8) << wait as u8;
    }

    /// A part of it has waited for these.
    #[inline]
    pub fn add(&mut self, part: Waits) {
        self.0 |= part.0;
    }

    /// Whether it has waited for this.
    #[inline]
    pub fn has(self, wait: Wait) -> bool {
        self.0 & 1 << wait as u8 != 0
    }
}

/// How many requests waited for what. A request counts once for everything
/// that it waited for, however often and however long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Requests by all that they waited for.
    by_waits: [u64; 1 << Wait::ALL.len()],
}

impl WaitCounts {
    /// A request has ended.
    #[inline]
    pub fn count(&mut self, waits: Waits) {
        self.by_waits[waits.0 as usize] += 1;
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.by_waits.iter().sum()
    }

    /// Those that waited for something.
    pub fn waited(&self) -> u64 {
        self.requests() - self.by_waits[0]
    }

    /// Those that waited for this.
    pub fn waited_for(&self, wait: Wait) -> u64 {
        let of_kind = |waits: &usize| Waits(*waits as u8).has(wait);
        let all = 0..self.by_waits.len();
        all.filter(of_kind).map(|waits| self.by_waits[waits]).sum()
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
}
