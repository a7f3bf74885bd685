//! `latency_target`: the largest depth at which I/Os stay below a latency (`lat_target_*` in fio's
//! `io_u.c`).

use blklab_blk::Nanos;
use blklab_workload::calls::Errno;
use blklab_workload::fio::JobSpec;

use super::{JobProcess, PauseReason, Phase};

/// A window of success at the same depth this many times in a row raises the limit above it.
const STABLE_WINDOWS: u32 = 3;

/// The search for the depth.
#[derive(Clone, Debug)]
pub(super) struct DepthSearch {
    target: Nanos,
    window: Nanos,
    /// The share of I/Os, in percent, that keep to the target in a window that succeeds.
    percentile: f64,
    /// Goes on when the depth is found.
    keeps_running: bool,
    /// `iodepth`.
    max_depth: u32,
    depth: u32,
    /// The largest depth that succeeded, or less.
    low: u32,
    /// The smallest depth that failed, or `iodepth`.
    high: u32,
    stable_windows: u32,
    window_start: Nanos,
    ios: u64,
    late_ios: u64,
    /// The depth is found, and the window that is reported has begun.
    in_last_window: bool,
}

/// What a window's end has the job do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    GoOn,
    /// The depth is less from now on: what is in flight is awaited.
    Lowered,
    /// The depth is found: one more window is reported.
    Found,
    /// That window is over.
    Done,
}

impl DepthSearch {
    /// What the job asks for; `None` where that is nothing.
    pub(super) fn new(spec: &JobSpec, max_depth: u32) -> Option<DepthSearch> {
        let asked = spec.latency_target?;
        Some(DepthSearch {
            target: Nanos::from_micros(asked.target_us),
            window: Nanos::from_micros(asked.window_us),
            percentile: asked.percentile,
            keeps_running: asked.keep_running,
            max_depth,
            depth: 1,
            low: 1,
            high: max_depth,
            stable_windows: 0,
            window_start: Nanos::ZERO,
            ios: 0,
            late_ios: 0,
            in_last_window: false,
        })
    }

    /// The depth so far.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Begins from depth 1; measuring starts at `from`.
    fn start(&mut self, from: Nanos) {
        (self.depth, self.low, self.high) = (1, 1, self.max_depth);
        self.in_last_window = false;
        self.start_window(from);
    }

    fn start_window(&mut self, now: Nanos) {
        self.window_start = now;
        (self.ios, self.late_ios) = (0, 0);
    }

    /// An I/O took so long. Where no I/O may be late the depth is lowered at once. Returns false
    /// where the target is missed at depth 1.
    fn completed(&mut self, now: Nanos, latency: Nanos) -> bool {
        self.ios += 1;
        if latency <= self.target {
            return true;
        }
        self.late_ios += 1;
        self.percentile < 100.0 || self.lower(now)
    }

    /// Lowers the depth; whether it could.
    fn lower(&mut self, now: Nanos) -> bool {
        if self.depth == 1 {
            return false;
        }
        self.high = self.depth;
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = self.depth.midpoint(self.low);
        self.stable_windows = 0;
        self.start_window(now);
        true
    }

    /// Judges the window, if it is over.
    fn check_window(&mut self, now: Nanos) -> Outcome {
        if now.saturating_sub(self.window_start) < self.window {
            return Outcome::GoOn;
        }
        let in_time = (self.ios - self.late_ios) as f64 * 100.0;
        // Nothing done is no success.
        if self.ios > 0 && in_time >= self.percentile * self.ios as f64 {
            return self.raise(now);
        }
        match self.lower(now) {
            true => Outcome::Lowered,
            // fio goes on at depth 1, and in the same window.
            false => Outcome::GoOn,
        }
    }

    /// The window succeeded: doubles the depth, or goes half the way to one that failed.
    fn raise(&mut self, now: Nanos) -> Outcome {
        let before = self.depth;
        self.low = before;
        if before + 1 == self.high {
            self.stable_windows += 1;
            if self.stable_windows >= STABLE_WINDOWS {
                self.high += 1;
                self.stable_windows = 0;
            }
        }
        let next = match self.high == self.max_depth {
            true => before.saturating_mul(2),
            false => before.midpoint(self.high),
        };
        self.depth = next.min(self.max_depth);
        self.start_window(now);
        if self.keeps_running || self.depth != before {
            return Outcome::GoOn;
        }
        match std::mem::replace(&mut self.in_last_window, true) {
            false => Outcome::Found,
            true => Outcome::Done,
        }
    }
}

impl JobProcess {
    /// Begins the search for the depth, if the job has one, as another pass begins or the ramp
    /// ends at `from`.
    pub(super) fn start_depth_search(&mut self, from: Nanos) {
        if let Some(search) = &mut self.depth_search {
            search.start(from);
            self.depth = search.depth;
        }
    }

    /// Looks whether a window is over; whether the process does something else than its next I/O.
    #[cold]
    pub(super) fn window_interrupts(&mut self, now: Nanos) -> bool {
        if !self.recorder.is_measuring(now) || self.plan.is_over(now) {
            return false;
        }
        let Some(search) = &mut self.depth_search else {
            return false;
        };
        let outcome = search.check_window(now);
        self.depth = search.depth;
        self.phase = match outcome {
            Outcome::GoOn => return false,
            Outcome::Lowered => Phase::Quiesce(PauseReason::Depth),
            Outcome::Found => Phase::Quiesce(PauseReason::LastWindow),
            Outcome::Done => {
                self.plan.complete();
                Phase::Drain
            }
        };
        true
    }

    /// An I/O took so long.
    #[cold]
    pub(super) fn hold_against_target(&mut self, now: Nanos, latency: Nanos) {
        if !self.recorder.is_measuring(now) {
            return;
        }
        let Some(search) = &mut self.depth_search else {
            return;
        };
        if !search.completed(now, latency) {
            self.miss("latency_target", Errno::ETIMEDOUT.0);
        }
    }

    /// Whether the depth was lowered since the last look, so that what is in flight is awaited.
    #[inline]
    pub(super) fn takes_lowered_depth(&mut self) -> bool {
        let Some(search) = &self.depth_search else {
            return false;
        };
        let lowered = search.depth < self.depth;
        self.depth = search.depth;
        lowered
    }

    /// Nothing is in flight, and the window that is reported begins.
    pub(super) fn start_last_window(&mut self, now: Nanos) {
        self.recorder.restart(&self.spec, now);
        if let Some(search) = &mut self.depth_search {
            search.start_window(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::fio::LatencyTarget;

    const WINDOW: Nanos = Nanos::from_millis(1);

    fn search(max_depth: u32, percentile: f64) -> DepthSearch {
        let spec = JobSpec {
            latency_target: Some(LatencyTarget {
                target_us: 100,
                window_us: 1000,
                percentile,
                keep_running: false,
            }),
            ..JobSpec::default()
        };
        let mut search = DepthSearch::new(&spec, max_depth).expect("the job has a target");
        search.start(Nanos::ZERO);
        search
    }

    /// Runs windows on a drive whose latency is ten microseconds times the depth; the depths.
    fn depths(search: &mut DepthSearch, windows: u32) -> (Vec<u32>, Option<Outcome>) {
        let (mut now, mut depths) = (Nanos::ZERO, Vec::new());
        for _ in 0..windows {
            depths.push(search.depth);
            search.completed(now, Nanos::from_micros(10 * u64::from(search.depth)));
            now += WINDOW;
            let outcome = search.check_window(now);
            if outcome == Outcome::Done {
                return (depths, Some(outcome));
            }
        }
        (depths, None)
    }

    #[test]
    fn the_depth_doubles_until_a_window_fails_and_is_halved_towards_it() {
        let mut search = search(64, 99.0);
        let (depths, _) = depths(&mut search, 9);
        // The target of 100 us holds up to depth 10.
        assert_eq!(depths, [1, 2, 4, 8, 16, 12, 10, 11, 10]);
    }

    #[test]
    fn a_depth_that_does_not_change_is_run_once_more_and_ends_the_job() {
        let mut search = search(8, 99.0);
        let (depths, last) = depths(&mut search, 99);
        assert_eq!(last, Some(Outcome::Done));
        assert_eq!(depths, [1, 2, 4, 8, 8]);
    }

    #[test]
    fn where_no_io_may_be_late_the_first_late_one_lowers_the_depth() {
        let mut search = search(64, 100.0);
        (search.depth, search.low) = (8, 4);
        assert!(search.completed(Nanos::ZERO, Nanos::from_micros(101)));
        assert_eq!((search.depth, search.high), (6, 8));
        search.depth = 1;
        assert!(!search.completed(Nanos::ZERO, Nanos::from_micros(101)));
    }

    #[test]
    fn a_window_without_io_fails() {
        let mut search = search(64, 50.0);
        search.depth = 4;
        assert_eq!(search.check_window(WINDOW), Outcome::Lowered);
        assert_eq!(search.depth, 2);
    }
}
