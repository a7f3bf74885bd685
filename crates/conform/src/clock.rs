//! The trace's clock and its ticks, as one time that a scheduler can be given.

use blklab_blk::{JIFFY_NS, Nanos};
use blklab_workload::trace::tracefs::EventKind;

use crate::recording::Recorded;

/// No moment is later: a year and a month, of which the kernel's first count of
/// jiffies takes half. Delays can be added to it and times summed.
pub(crate) const LATEST_NS: u64 = 1 << 55;

/// Turns a recorded moment into a `now`.
///
/// A boot counts jiffies from a number of its own, so that `jiffies` is
/// `offset + floor(ns / 4 ms)`. The tick is not exactly on time, though: within
/// microseconds of it the recorded count may be one less or more. What a
/// scheduler in the kernel read is the recorded count, so that decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset: u64,
}

impl Clock {
    /// The clock of a trace: the offset that most of its events show.
    pub(crate) fn of(events: &[Recorded<'_>]) -> Clock {
        let mut offsets: Vec<u64> = events
            .iter()
            .filter_map(|recorded| {
                let ticks = recorded.event.at_ns / JIFFY_NS;
                jiffies_of(&recorded.event.kind)?.checked_sub(ticks)
            })
            .collect();
        offsets.sort_unstable();
        Clock {
            offset: offsets.get(offsets.len() / 2).copied().unwrap_or(0),
        }
    }

    /// The tick that the trace clock's time falls into.
    pub(crate) fn jiffies(&self, at_ns: u64) -> u64 {
        self.offset.saturating_add(at_ns / JIFFY_NS)
    }

    /// The time of an event.
    pub(crate) fn now(&self, at_ns: u64) -> Nanos {
        self.now_in(self.jiffies(at_ns), at_ns)
    }

    /// The time of an event that happened in tick `jiffies`: as near to the
    /// trace clock's as that tick allows.
    pub(crate) fn now_in(&self, jiffies: u64, at_ns: u64) -> Nanos {
        let start = jiffies.saturating_mul(JIFFY_NS);
        let at = self.offset.saturating_mul(JIFFY_NS).saturating_add(at_ns);
        let at = at.clamp(start, start.saturating_add(JIFFY_NS - 1));
        Nanos(at.min(LATEST_NS))
    }
}

/// `jiffies_64` where an event recorded it.
pub(crate) fn jiffies_of(kind: &EventKind<'_>) -> Option<u64> {
    use EventKind::*;
    Some(match kind {
        RqIns { jif, .. } => *jif,
        DdIns(call) | KyIns(call) | BfqIns(call) => call.jif,
        DdDisp(call) => call.jif,
        KyDisp(call) => call.jif,
        BfqDisp(call) => call.jif,
        DdDispRet(answer) => answer.jif,
        KyDispRet(answer) => answer.jif,
        BfqDispRet(answer) => answer.jif,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_tick_decides() {
        let clock = Clock { offset: 1000 };
        let at_ns = 7 * JIFFY_NS + 3;
        assert_eq!(clock.now(at_ns).0 / JIFFY_NS, 1007);
        assert_eq!(clock.now_in(1006, at_ns).0, 1007 * JIFFY_NS - 1);
        assert_eq!(clock.now_in(1008, at_ns).0, 1008 * JIFFY_NS);
    }
}
