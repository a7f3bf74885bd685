//! A run that gets nowhere ends with an error instead of never.

use blklab_blk::Nanos;

use crate::setup::SetupError;

/// After so many steps time must have moved: all that can happen at once is
/// bounded by what processes keep in flight.
const STEPS: u32 = 20_000_000;

/// What a run says in which nobody will ever go on.
pub(crate) const LOST: &str = "processes wait, and nothing will ever happen";

/// Looks whether time moves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    steps: u32,
    /// The time of the last look.
    looked_at: Nanos,
}

impl Progress {
    /// One step more has come to `now`.
    #[inline(always)]
    pub(crate) fn step(&mut self, now: Nanos) -> Result<(), SetupError> {
        self.steps += 1;
        if self.steps < STEPS {
            return Ok(());
        }
        self.look(now)
    }

    #[cold]
    fn look(&mut self, now: Nanos) -> Result<(), SetupError> {
        self.steps = 0;
        if now == std::mem::replace(&mut self.looked_at, now) {
            let why = "time does not move, whatever happens";
            return Err(SetupError::stuck(now, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_stands_still_ends_a_run() {
        let mut progress = Progress::default();
        // It may stand still for long, as long as it goes on.
        for now in [Nanos(1), Nanos(2)] {
            assert!((0..STEPS).all(|_| progress.step(now).is_ok()));
        }
        let steps = (1..=STEPS).find(|_| progress.step(Nanos(2)).is_err());
        assert_eq!(steps, Some(STEPS));
    }
}
