//! How a thread waits for the next requests: what serves the clients best is found by trying
//! it.
//!
//! A thread that sleeps is woken late, and later where its CPU was halted. One that polls is
//! not, but takes a CPU that its client may need (KVM's "halt polling" in the kernel's
//! documentation has the same trade).
//!
//! A client that sends each request of many with a call of its own wakes the server each time,
//! and pays for it. During a pause no thread is woken, and the next iteration finds several
//! requests at once. A client that waits for its answers loses by that. As the number under way
//! is the client's own choice, a client that gets more answers waits no longer for each.
//!
//! So a way to wait is kept only where more requests are answered with it than without. Trying
//! the next one in either direction and keeping the better is how Linux coalesces the
//! interrupts of network cards (lib/dim, "Generic network DIM" in the kernel's documentation).

use blklab_blk::Nanos;

/// How to wait for what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Polls for as long for the next request, and then sleeps.
    Poll(Nanos),
    Sleep,
    /// Pauses, and then sleeps if nothing has come.
    Pause(Nanos),
}

/// Ways to wait, each next to those that are tried from it.
pub(super) const WAYS: [Wait; 4] = [
    Wait::Poll(Nanos::from_micros(50)),
    Wait::Sleep,
    Wait::Pause(Nanos::from_micros(20)),
    Wait::Pause(Nanos::from_micros(50)),
];
const SLEEP: usize = 1;
/// The ways without pauses.
pub(super) const UNPAUSED_WAYS: &[Wait] = WAYS.split_at(SLEEP + 1).0;

/// How long requests are counted before a rate is known.
const WINDOW: Nanos = Nanos::from_millis(10);
/// With fewer requests in a window nothing, or no pause, is tried.
const FEW_REQUESTS: u64 = 20;
const BUSY_REQUESTS: u64 = 500;
/// Windows between trials, and the most of them after trials that failed.
const WINDOWS_BETWEEN: u32 = 8;
const MAX_WINDOWS_BETWEEN: u32 = 128;

/// What the requests of the current window are counted for.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// No trial runs.
    Settled,
    /// Another way is on trial.
    Trial { before: u64 },
    /// The former way again, as the load may have changed by itself.
    Check { before: u64, trial: u64 },
}

/// Chooses how one thread waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// What it chooses from: a beginning of [`WAYS`].
    ways: &'static [Wait],
    /// The way that was best so far.
    way: usize,
    /// The way on trial, or the next one to be.
    other: usize,
    stage: Stage,
    window_start: Nanos,
    requests_at_start: u64,
    windows_left: u32,
    windows_between: u32,
}

impl Waiting {
    pub(super) fn new(ways: &'static [Wait]) -> Waiting {
        Waiting {
            ways,
            way: SLEEP,
            other: SLEEP - 1,
            stage: Stage::Settled,
            window_start: Nanos::ZERO,
            requests_at_start: 0,
            windows_left: WINDOWS_BETWEEN,
            windows_between: WINDOWS_BETWEEN,
        }
    }

    /// How to wait now.
    pub(super) fn way(&self) -> Wait {
        self.ways[match self.stage {
            Stage::Trial { .. } => self.other,
            _ => self.way,
        }]
    }

    /// Takes note that `requests` were answered in all until `now`.
    pub(super) fn count(&mut self, now: Nanos, requests: u64) {
        let elapsed = now.saturating_sub(self.window_start);
        if elapsed >= WINDOW {
            let count = requests.saturating_sub(self.requests_at_start);
            self.end_window(count.saturating_mul(WINDOW.0) / elapsed.0);
            self.window_start = now;
            self.requests_at_start = requests;
        }
    }

    /// Takes note of a window in which `rate` requests were answered.
    fn end_window(&mut self, rate: u64) {
        match self.stage {
            Stage::Settled if rate < FEW_REQUESTS => *self = Waiting::new(self.ways),
            Stage::Settled => {
                self.windows_left = self.windows_left.saturating_sub(1);
                if self.windows_left == 0 {
                    self.begin_trial(rate);
                }
            }
            Stage::Trial { before } => {
                self.stage = Stage::Check {
                    before,
                    trial: rate,
                };
            }
            Stage::Check { before, trial } => {
                let least = before.max(rate) * required_percent(self.way, self.other) / 100;
                self.decide(trial > least);
            }
        }
    }

    fn begin_trial(&mut self, rate: u64) {
        if self.other > SLEEP && rate < BUSY_REQUESTS {
            self.other = self.way.saturating_sub(1);
        }
        self.stage = Stage::Trial { before: rate };
    }

    fn decide(&mut self, keep: bool) {
        self.stage = Stage::Settled;
        let onwards = self.other > self.way;
        if keep {
            self.way = self.other;
            self.windows_between = WINDOWS_BETWEEN;
        } else {
            self.windows_between = (self.windows_between * 2).min(MAX_WINDOWS_BETWEEN);
        }
        self.windows_left = self.windows_between;
        // What helped is taken further, what did not is tried the other way.
        self.other = match (onwards == keep, self.way) {
            (_, 0) => 1,
            (true, way) if way + 1 < self.ways.len() => way + 1,
            (_, way) => way - 1,
        };
    }
}

/// How many answers a change from one way to another must bring to be kept, in percent: more
/// than noise does. Polling takes a CPU, so it must bring more, and is given up for less.
fn required_percent(from: usize, to: usize) -> u64 {
    match (WAYS[from], WAYS[to]) {
        (_, Wait::Poll(_)) => 110,
        (Wait::Poll(_), _) => 95,
        _ => 103,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load that answers as many requests in a window of each way.
    struct Load {
        waiting: Waiting,
        now: Nanos,
        requests: u64,
    }

    impl Load {
        fn new() -> Load {
            Load {
                waiting: Waiting::new(&WAYS),
                now: Nanos::ZERO,
                requests: 0,
            }
        }

        /// Returns the way that is used most in 3,000 windows after a thousand others, and
        /// the share of these with other ways.
        fn settle(&mut self, per_window: [u64; 4]) -> (Wait, f64) {
            let mut used = [0_u64; WAYS.len()];
            for window in 0..4_000 {
                let way = self.waiting.way();
                let index = WAYS.iter().position(|&other| other == way).unwrap();
                for _ in 0..10 {
                    self.now += Nanos(WINDOW.0 / 10);
                    self.requests += per_window[index] / 10;
                    self.waiting.count(self.now, self.requests);
                }
                used[index] += u64::from(window >= 1_000);
            }
            let most = (0..WAYS.len()).max_by_key(|&index| used[index]).unwrap();
            let share = used[most] as f64 / used.iter().sum::<u64>() as f64;
            (WAYS[most], 1.0 - share)
        }
    }

    fn settle(per_window: [u64; 4]) -> (Wait, f64) {
        Load::new().settle(per_window)
    }

    #[test]
    fn a_thread_without_pauses_only_learns_to_poll() {
        let mut load = Load::new();
        load.waiting = Waiting::new(UNPAUSED_WAYS);
        assert_eq!(load.settle([2_000, 2_000, 9_000, 9_000]).0, Wait::Sleep);
        assert_eq!(load.settle([3_000, 2_000, 9_000, 9_000]).0, WAYS[0]);
    }

    const PAUSE_20: Wait = WAYS[2];
    const PAUSE_50: Wait = WAYS[3];

    #[test]
    fn a_client_that_waits_for_its_answers_is_hardly_delayed() {
        let (way, other) = settle([600, 600, 250, 140]);
        assert_eq!(way, Wait::Sleep);
        assert!(other < 0.02, "{other}");
    }

    #[test]
    fn a_client_with_many_requests_under_way_gets_the_best_pause() {
        assert_eq!(settle([2_000, 2_000, 2_300, 2_400]).0, PAUSE_50);
        assert_eq!(settle([2_000, 2_000, 2_300, 2_000]).0, PAUSE_20);
        // Not worth it.
        assert_eq!(settle([2_000, 2_000, 2_020, 2_030]).0, Wait::Sleep);
    }

    #[test]
    fn nothing_is_tried_with_an_idle_server_and_no_pause_with_few_requests() {
        assert_eq!(settle([40, 10, 400, 400]), (Wait::Sleep, 0.0));
        assert_eq!(settle([400, 400, 800, 900]).0, Wait::Sleep);
    }

    #[test]
    fn a_lone_client_is_polled_for_where_it_gets_more_answers_by_it() {
        let (way, other) = settle([400, 200, 200, 200]);
        assert_eq!(way, WAYS[0]);
        assert!(other < 0.02, "{other}");
        // The client needs the thread's CPU, or takes longer than the thread polls.
        for polled in [100, 200, 210] {
            let (way, other) = settle([polled, 200, 200, 200]);
            assert_eq!(way, Wait::Sleep);
            assert!(other < 0.02, "{other}");
        }
    }

    #[test]
    fn a_load_that_changes_is_learned_anew() {
        let mut load = Load::new();
        assert_eq!(load.settle([2_000, 2_000, 2_300, 2_400]).0, PAUSE_50);
        // Many under way first, then eight, then one, beside which CPUs are idle at first.
        assert_eq!(load.settle([1_900, 1_900, 1_500, 1_000]).0, Wait::Sleep);
        assert_eq!(load.settle([900, 600, 250, 140]).0, WAYS[0]);
        assert_eq!(load.settle([610, 600, 250, 140]).0, Wait::Sleep);
    }
}
