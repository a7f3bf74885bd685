//! Pauses between iterations of an event loop, where a client keeps many
//! requests under way.
//!
//! A client that sends each request with a call of its own wakes the server
//! each time, and pays for it. During a pause no thread is woken, and the next
//! iteration finds several requests at once. A client that waits for its
//! answers loses by that, so a pause is kept only where more requests are
//! answered with it than without. As the number under way is the client's own
//! choice, a client that gets more answers waits no longer for each.
//!
//! Trying the next longer or shorter pause and keeping the better one is how
//! Linux coalesces the interrupts of network cards (lib/dim, "Generic network
//! DIM" in the kernel's documentation).

use blklab_blk::Nanos;

/// Pauses to choose from.
const PAUSES: [Nanos; 3] = [Nanos::ZERO, Nanos::from_micros(20), Nanos::from_micros(50)];
/// How long requests are counted before a rate is known.
const WINDOW: Nanos = Nanos::from_millis(10);
/// With fewer requests in a window, pauses are not tried.
const BUSY_REQUESTS: u64 = 500;
/// A trial must bring this many percent to be kept: more than noise does.
const WORTH_PERCENT: u64 = 3;
/// Windows between trials, and the most of them after trials that failed.
const WINDOWS_BETWEEN: u32 = 8;
const MAX_WINDOWS_BETWEEN: u32 = 128;

/// What the requests of the current window are counted for.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// No trial runs.
    Settled,
    /// Another pause is on trial.
    Trial { before: u64 },
    /// The former pause again, as the load may have changed by itself.
    Check { before: u64, trial: u64 },
}

/// Chooses the pause of one event loop.
#[derive(Debug)]
pub(super) struct Coalescing {
    level: usize,
    /// The level on trial, or the next one to be.
    other: usize,
    stage: Stage,
    window_start: Nanos,
    requests_at_start: u64,
    windows_left: u32,
    windows_between: u32,
}

impl Coalescing {
    pub(super) fn new() -> Coalescing {
        Coalescing {
            level: 0,
            other: 1,
            stage: Stage::Settled,
            window_start: Nanos::ZERO,
            requests_at_start: 0,
            windows_left: WINDOWS_BETWEEN,
            windows_between: WINDOWS_BETWEEN,
        }
    }

    /// The pause to make at `now`, after `requests` were answered in all.
    pub(super) fn pause(&mut self, now: Nanos, requests: u64) -> Nanos {
        let elapsed = now.saturating_sub(self.window_start);
        if elapsed >= WINDOW {
            let count = requests.saturating_sub(self.requests_at_start);
            self.end_window(count.saturating_mul(WINDOW.0) / elapsed.0);
            self.window_start = now;
            self.requests_at_start = requests;
        }
        PAUSES[match self.stage {
            Stage::Trial { .. } => self.other,
            _ => self.level,
        }]
    }

    /// Takes note of a window in which `rate` requests were answered.
    fn end_window(&mut self, rate: u64) {
        match self.stage {
            Stage::Settled if rate < BUSY_REQUESTS => *self = Coalescing::new(),
            Stage::Settled => {
                self.windows_left = self.windows_left.saturating_sub(1);
                if self.windows_left == 0 {
                    self.stage = Stage::Trial { before: rate };
                }
            }
            Stage::Trial { before } => {
                self.stage = Stage::Check {
                    before,
                    trial: rate,
                };
            }
            Stage::Check { before, trial } => {
                let least = before.max(rate) / 100 * (100 + WORTH_PERCENT);
                self.decide(trial > least);
            }
        }
    }

    fn decide(&mut self, keep: bool) {
        self.stage = Stage::Settled;
        let upwards = self.other > self.level;
        if keep {
            self.level = self.other;
            self.windows_between = WINDOWS_BETWEEN;
        } else {
            self.windows_between = (self.windows_between * 2).min(MAX_WINDOWS_BETWEEN);
        }
        self.windows_left = self.windows_between;
        // What helped is taken further, what did not is tried the other way.
        self.other = match (upwards == keep, self.level) {
            (_, 0) => 1,
            (true, level) if level + 1 < PAUSES.len() => level + 1,
            (_, level) => level - 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pause, in microseconds, that it settles on for a load that answers
    /// `per_window` requests in a window of each pause, and the share of time
    /// spent with another one.
    fn settle(per_window: [u64; 3]) -> (u64, f64) {
        let mut coalescing = Coalescing::new();
        let (mut now, mut requests, mut pause) = (Nanos::ZERO, 0, Nanos::ZERO);
        let mut used = [0_u64; PAUSES.len()];
        for window in 0..4_000 {
            let level = PAUSES.iter().position(|&n| n == pause).unwrap();
            for _ in 0..10 {
                now += Nanos(WINDOW.0 / 10);
                requests += per_window[level] / 10;
                pause = coalescing.pause(now, requests);
            }
            if window >= 1_000 {
                used[level] += 1;
            }
        }
        let most = (0..PAUSES.len()).max_by_key(|&level| used[level]).unwrap();
        (
            PAUSES[most].0 / 1_000,
            1.0 - used[most] as f64 / used.iter().sum::<u64>() as f64,
        )
    }

    #[test]
    fn a_client_that_waits_for_its_answers_is_hardly_delayed() {
        let (pause, other) = settle([600, 250, 140]);
        assert_eq!(pause, 0);
        assert!(other < 0.02, "{other}");
    }

    #[test]
    fn a_client_with_many_requests_under_way_gets_the_best_pause() {
        assert_eq!(settle([2_000, 2_300, 2_400]).0, 50);
        assert_eq!(settle([2_000, 2_300, 2_000]).0, 20);
        // Not worth it.
        assert_eq!(settle([2_000, 2_020, 2_030]).0, 0);
    }

    #[test]
    fn an_idle_server_never_pauses() {
        let (pause, other) = settle([400, 800, 900]);
        assert_eq!((pause, other), (0, 0.0));
    }

    #[test]
    fn a_load_that_changes_is_learned_anew() {
        let mut coalescing = Coalescing::new();
        let (mut now, mut requests, mut pause) = (Nanos::ZERO, 0, Nanos::ZERO);
        for window in 0..1_000 {
            // Many under way first, then eight.
            let rates = if window < 500 {
                [2_000, 2_300, 2_400]
            } else {
                [1_900, 1_500, 1_000]
            };
            now += WINDOW;
            requests += rates[PAUSES.iter().position(|&n| n == pause).unwrap()];
            pause = coalescing.pause(now, requests);
            if window == 499 {
                assert_eq!(coalescing.level, 2);
            }
        }
        assert_eq!(coalescing.level, 0);
    }
}
