//! The clock of a run. A run that gets nowhere ends with an error instead of never.

use blklab_blk::Nanos;

use crate::setup::SetupError;

/// After this many events at one moment the run is stuck: all that can happen at
/// once is bounded by what processes keep in flight.
const MAX_EVENTS_AT_ONCE: u32 = 20_000_000;

/// Virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    now: Nanos,
    /// Events since time was last compared.
    events: u32,
    /// The time at that comparison.
    compared_at: Nanos,
}

impl Clock {
    #[inline(always)]
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// Lets time pass to the next event, which is at `next` or was before.
    ///
    /// # Errors
    /// Where time has stood still for too many events.
    #[inline(always)]
    pub(super) fn advance(&mut self, next: Nanos) -> Result<(), SetupError> {
        self.now = self.now.max(next);
        self.events += 1;
        match self.events < MAX_EVENTS_AT_ONCE {
            true => Ok(()),
            false => self.compare(),
        }
    }

    #[cold]
    fn compare(&mut self) -> Result<(), SetupError> {
        self.events = 0;
        match std::mem::replace(&mut self.compared_at, self.now) == self.now {
            true => Err(self.stuck("time does not move, whatever happens")),
            false => Ok(()),
        }
    }

    /// The error of a run that can never end, and why.
    pub(super) fn stuck(&self, why: &'static str) -> SetupError {
        SetupError::Stuck {
            at_us: self.now.0 / 1000,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_stands_still_ends_a_run() {
        let mut clock = Clock::default();
        // It may stand still for long, as long as it goes on.
        for now in [Nanos(1), Nanos(2)] {
            assert!((0..MAX_EVENTS_AT_ONCE).all(|_| clock.advance(now).is_ok()));
        }
        let events = (1..=MAX_EVENTS_AT_ONCE).find(|_| clock.advance(Nanos(2)).is_err());
        assert_eq!(events, Some(MAX_EVENTS_AT_ONCE));
    }
}
