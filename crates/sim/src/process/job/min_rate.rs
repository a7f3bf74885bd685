//! `rate_min` and `rate_iops_min`: a job that is slower over a cycle of time
//! fails (`__check_min_rate` in fio's `backend.c`).

use blklab_blk::Nanos;
use blklab_workload::fio::{ByDirection, Direction, JobSpec};

/// A job has this long to settle before its rate is checked.
const SETTLE: Nanos = Nanos::from_millis(2000);

/// The least that a process has to do.
#[derive(Clone, Debug)]
pub(crate) struct MinRate {
    cycle: Nanos,
    /// Counted from here: the end of the ramp.
    from: Nanos,
    directions: ByDirection<DirectionRate>,
}

#[derive(Clone, Debug)]
struct DirectionRate {
    /// 0: no limit.
    min_bytes: u64,
    /// 0: no limit.
    min_ios: u64,
    done: Done,
    /// When the cycle began, and what was done then.
    mark: Option<(Nanos, Done)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Done {
    bytes: u64,
    ios: u64,
}

impl MinRate {
    /// What the job asks for; `None` where that is nothing.
    pub(crate) fn new(spec: &JobSpec) -> Option<MinRate> {
        let direction_rate = |direction| DirectionRate {
            min_bytes: spec.rate_min_bytes[direction],
            min_ios: u64::from(spec.rate_iops_min[direction]),
            done: Done::default(),
            mark: None,
        };
        let directions = ByDirection::from_fn(direction_rate);
        let limits = |d: Direction| directions[d].min_bytes > 0 || directions[d].min_ios > 0;
        Direction::ALL.into_iter().any(limits).then(|| MinRate {
            cycle: Nanos::from_millis(u64::from(spec.rate_cycle_ms)),
            from: Nanos::ZERO,
            directions,
        })
    }

    /// Measuring starts at `from`.
    pub(crate) fn start(&mut self, from: Nanos) {
        self.from = from;
    }

    /// Another pass: fio counts afresh.
    pub(crate) fn start_pass(&mut self) {
        for direction in Direction::ALL {
            let rate = &mut self.directions[direction];
            (rate.done, rate.mark) = (Done::default(), None);
        }
    }

    /// An I/O ended.
    pub(crate) fn completed(&mut self, now: Nanos, direction: Direction, bytes: u64) {
        if now >= self.from {
            let done = &mut self.directions[direction].done;
            done.bytes += bytes;
            done.ios += 1;
        }
    }

    /// The option that is not met, where a cycle is over and one is not.
    pub(crate) fn missed(&mut self, now: Nanos) -> Option<&'static str> {
        if now.saturating_sub(self.from) < SETTLE {
            return None;
        }
        let cycle = self.cycle;
        let missed = |d| self.directions[d].missed(now, cycle);
        Direction::ALL.into_iter().find_map(missed)
    }
}

impl DirectionRate {
    fn missed(&mut self, now: Nanos, cycle: Nanos) -> Option<&'static str> {
        if self.done.ios == 0 || self.min_bytes == 0 && self.min_ios == 0 {
            return None;
        }
        if let Some((since, before)) = self.mark {
            let spent = now.saturating_sub(since);
            if spent < cycle || spent == Nanos::ZERO {
                return None;
            }
            let is_less = |done: u64, least: u64| {
                u128::from(done) * 1_000_000_000 < u128::from(least) * u128::from(spent.0)
            };
            let bytes = self.done.bytes - before.bytes;
            if is_less(bytes, self.min_bytes) {
                return Some("rate_min");
            }
            if is_less(self.done.ios - before.ios, self.min_ios) {
                return Some("rate_iops_min");
            }
        }
        self.mark = Some((now, self.done));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::fio::parse_str;

    fn min_rate(options: &str) -> Option<MinRate> {
        let text = format!("[a]\nrw=randrw\n{options}\n");
        let file = parse_str("t", &text, &|_| None, &|_, _| Err(String::new()));
        MinRate::new(&file.unwrap_or_else(|e| panic!("{e}")).jobs[0])
    }

    /// When the job fails, in milliseconds, where a read of 4 KiB ends every
    /// `every_ms` and time runs for 10 s.
    fn fails_at(options: &str, every_ms: impl Fn(u64) -> u64) -> Option<(u64, &'static str)> {
        let mut rate = min_rate(options).expect("a limit");
        let mut ms = 0;
        while ms < 10_000 {
            ms += every_ms(ms);
            let now = Nanos::from_millis(ms);
            rate.completed(now, Direction::Read, 4096);
            if let Some(option) = rate.missed(now) {
                return Some((ms, option));
            }
        }
        None
    }

    #[test]
    fn no_limit_no_check() {
        assert!(min_rate("rate=1m").is_none());
        assert!(min_rate("rate_iops_min=0,0").is_none());
    }

    #[test]
    fn who_is_too_slow_fails_a_cycle_after_the_settling() {
        // 100 I/Os a second.
        assert_eq!(fails_at("rate_iops_min=100", |_| 10), None);
        let failed = fails_at("rate_iops_min=101", |_| 10);
        assert_eq!(failed, Some((3000, "rate_iops_min")));
        assert_eq!(fails_at("rate_min=400k", |_| 10), None);
        let failed = fails_at("rate_min=401k\nrate_cycle=500", |_| 10);
        assert_eq!(failed, Some((2500, "rate_min")));
        // The limit is for writes.
        assert_eq!(fails_at("rate_iops_min=0,1000", |_| 10), None);
    }

    #[test]
    fn each_cycle_is_looked_at_by_itself() {
        let slows_down = |ms| if ms < 5000 { 1 } else { 20 };
        let failed = fails_at("rate_iops_min=100", slows_down);
        assert_eq!(failed, Some((6000, "rate_iops_min")));
    }
}
