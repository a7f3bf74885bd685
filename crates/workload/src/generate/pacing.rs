//! Delays I/Os to keep a rate: `rate`, `rate_iops` and `rate_process`.
//!
//! As in fio, each direction has the time at which the bytes issued so far would be due at the
//! rate. An I/O that is late is issued at once, so that a job catches up.

use super::random::{Random, Seeds, Stream};
use crate::fio::{ByDirection, Direction, JobSpec, RateProcess};

/// The pace of one process. Times are nanoseconds since its start or its last
/// [reset](Pacing::reset).
#[derive(Clone, Debug)]
pub struct Pacing {
    process: RateProcess,
    mixed: bool,
    read_percent: u32,
    paces: ByDirection<DirectionPace>,
}

#[derive(Clone, Debug)]
struct DirectionPace {
    /// The rate in bytes per second; 0: no limit.
    bytes_per_second: u64,
    block_bytes: u64,
    issued_bytes: u64,
    due_ns: u64,
    random: Random,
}

impl Pacing {
    /// Returns the pace of a job; `None` if it sets no rate.
    pub fn new(spec: &JobSpec, seeds: &Seeds) -> Option<Pacing> {
        let pace = |direction| {
            let block_bytes = spec.block_sizes[direction].min_bytes.max(1);
            let bytes_per_second = match spec.rate_bytes[direction] {
                0 => u64::from(spec.rate_iops[direction]).saturating_mul(block_bytes),
                bytes => bytes,
            };
            DirectionPace {
                bytes_per_second: match spec.pattern.does(direction) {
                    true => bytes_per_second,
                    false => 0,
                },
                block_bytes,
                issued_bytes: 0,
                due_ns: 0,
                random: seeds.stream(Stream::Arrival(direction)),
            }
        };
        let paces = ByDirection::from_fn(pace);
        let limited = Direction::ALL
            .into_iter()
            .any(|direction| paces[direction].bytes_per_second > 0);
        limited.then(|| Pacing {
            process: spec.rate_process,
            mixed: spec.pattern.is_mixed(),
            read_percent: spec.read_percent,
            paces,
        })
    }

    /// Returns the direction and the time (`now_ns` or later) of the next I/O, given the direction
    /// that the mix drew. In a mix, a direction that is behind its rate precedes one that is ahead;
    /// if both are ahead, the one that is due first precedes.
    pub fn next(&self, drawn: Direction, now_ns: u64) -> (Direction, u64) {
        let due = self.paces[drawn].due_ns;
        if due <= now_ns {
            return (drawn, now_ns);
        }
        let other = match drawn {
            Direction::Read => Direction::Write,
            _ => Direction::Read,
        };
        let other_share = match other {
            Direction::Read => self.read_percent,
            _ => 100 - self.read_percent,
        };
        if !self.mixed || other_share == 0 {
            return (drawn, due);
        }
        let other_due = self.paces[other].due_ns;
        if other_due <= now_ns {
            (other, now_ns)
        } else if due <= other_due {
            (drawn, due)
        } else {
            (other, other_due)
        }
    }

    /// Records an issued I/O.
    pub fn issued(&mut self, direction: Direction, bytes: u64) {
        let process = self.process;
        self.paces[direction].issued(bytes, process);
    }

    /// Records a pause of `pause_ns` under `rate_ignore_thinktime`: the bytes due in that time,
    /// less one block, count as issued.
    pub fn paused(&mut self, direction: Direction, pause_ns: u64) {
        let pace = &mut self.paces[direction];
        if pace.bytes_per_second == 0 {
            return;
        }
        let missed = u128::from(pace.bytes_per_second) * u128::from(pause_ns) / NS_PER_SECOND;
        let missed = u64::try_from(missed).unwrap_or(u64::MAX);
        pace.issued_bytes = pace
            .issued_bytes
            .saturating_add(missed.saturating_sub(pace.block_bytes));
        pace.due_ns = match self.process {
            RateProcess::Linear => pace.linear_due(),
            RateProcess::Poisson => pace.due_ns.saturating_add(pause_ns),
        };
    }

    /// Restarts the time, as at the end of `ramp_time`.
    pub fn reset(&mut self) {
        for direction in Direction::ALL {
            let pace = &mut self.paces[direction];
            pace.issued_bytes = 0;
            pace.due_ns = 0;
        }
    }
}

const NS_PER_SECOND: u128 = 1_000_000_000;

impl DirectionPace {
    fn issued(&mut self, bytes: u64, process: RateProcess) {
        if self.bytes_per_second == 0 {
            return;
        }
        self.issued_bytes = self.issued_bytes.saturating_add(bytes);
        self.due_ns = match process {
            RateProcess::Linear => self.linear_due(),
            RateProcess::Poisson => {
                let mean_ns = self.block_bytes as f64 / self.bytes_per_second as f64 * 1e9;
                // The value is above 0, so that its logarithm exists, and at most 1.
                let unit = 1.0 - self.random.unit();
                self.due_ns
                    .saturating_add((-libm::log(unit) * mean_ns) as u64)
            }
        };
    }

    fn linear_due(&self) -> u64 {
        let due = u128::from(self.issued_bytes) * NS_PER_SECOND / u128::from(self.bytes_per_second);
        u64::try_from(due).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    fn pacing(options: &str) -> Option<Pacing> {
        let text = format!("[a]\n{options}\n");
        let file = parse_str("t", &text, &|_| None, &|_, _| Err(String::new()))
            .unwrap_or_else(|error| panic!("{error}"));
        Pacing::new(&file.jobs[0], &Seeds::new(&file.jobs[0], 1, 0))
    }

    fn times(options: &str, direction: Direction, count: usize) -> Vec<u64> {
        let mut pacing = pacing(options).unwrap();
        let mut now = 0;
        (0..count)
            .map(|_| {
                (_, now) = pacing.next(direction, now);
                pacing.issued(direction, 4096);
                now
            })
            .collect()
    }

    #[test]
    fn no_rate_no_pacing() {
        assert!(pacing("rw=read").is_none());
        assert!(pacing("rw=read\nrate_iops=0,100,").is_none());
    }

    #[test]
    fn linear_is_even() {
        let times = times("rw=read\nrate_iops=1000", Direction::Read, 4);
        assert_eq!(times, [0, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn who_is_late_catches_up() {
        let mut pacing = pacing("rw=read\nrate=4096000").unwrap();
        pacing.issued(Direction::Read, 4096);
        assert_eq!(pacing.next(Direction::Read, 5_000_000).1, 5_000_000);
        for _ in 0..4 {
            pacing.issued(Direction::Read, 4096);
        }
        assert_eq!(pacing.next(Direction::Read, 5_000_000).1, 5_000_000);
        pacing.issued(Direction::Read, 4096);
        assert_eq!(pacing.next(Direction::Read, 5_000_000).1, 6_000_000);
        pacing.reset();
        assert_eq!(pacing.next(Direction::Read, 0).1, 0);
    }

    #[test]
    fn poisson_has_its_mean_and_its_spread() {
        let count = 100_000;
        let times = times(
            "rw=write\nrate_iops=1000\nrate_process=poisson",
            Direction::Write,
            count,
        );
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|t| (t[1] - t[0]) as f64 / 1e6)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        // The standard deviation of an exponential distribution is its mean.
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count as f64;
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
        let over_twice = gaps.iter().filter(|gap| **gap > 2.0).count() as f64 / count as f64;
        assert!((over_twice - 0.135).abs() < 0.01, "{over_twice}");
    }

    #[test]
    fn a_mix_issues_what_is_due() {
        let mut pacing = pacing("rw=randrw\nrate_iops=1000,10").unwrap();
        pacing.issued(Direction::Read, 4096);
        assert_eq!(pacing.next(Direction::Read, 0), (Direction::Write, 0));
        pacing.issued(Direction::Write, 4096);
        assert_eq!(
            pacing.next(Direction::Write, 0),
            (Direction::Read, 1_000_000)
        );
    }

    #[test]
    fn ignored_pauses_count_as_work() {
        let mut pacing = pacing("rw=read\nrate=4096000").unwrap();
        pacing.issued(Direction::Read, 4096);
        pacing.paused(Direction::Read, 10_000_000);
        assert_eq!(pacing.next(Direction::Read, 0).1, 10_000_000);
    }
}
