//! Which stream of random numbers each decision of each process draws from.

use super::random::Random;
use crate::fio::{Direction, JobSpec, Pattern};

/// fio's default `randseed`.
const DEFAULT_SEED: u64 = 0x89;

/// A decision that has a stream of its own, so that asking for one more of a
/// kind does not shift another kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Block,
    Sequential(Direction),
    BlockSize(Direction),
    Mix,
    File,
    FileSize,
    StartDelay,
    Arrival(Direction),
    Zone,
    Priority,
    /// Where a file's distribution is centred, by the file's index.
    Distribution(u32),
}

impl Stream {
    fn id(self) -> u64 {
        match self {
            Stream::Block => 0,
            Stream::Mix => 1,
            Stream::File => 2,
            Stream::FileSize => 3,
            Stream::StartDelay => 4,
            Stream::Zone => 5,
            Stream::Priority => 6,
            Stream::Sequential(direction) => 8 + direction as u64,
            Stream::BlockSize(direction) => 12 + direction as u64,
            Stream::Arrival(direction) => 16 + direction as u64,
            Stream::Distribution(file) => 32 + u64::from(file),
        }
    }
}

/// The seeds of one process.
///
/// fio's rules: with `randseed`, everything follows from that number; with
/// `randrepeat`, its default, from a fixed one; `allrandrepeat` likewise.
/// Only with both off does a run differ from the next. Processes of `numjobs`
/// differ in all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    base: u64,
    /// A pass over the files draws the same numbers as the one before.
    pub(crate) same_each_pass: bool,
    trims_like_writes: bool,
}

impl Seeds {
    /// The seeds of the process numbered `thread_number` (from 1, over the
    /// whole job file).
    ///
    /// `run_seed` stands for what is different between two runs. Where it is
    /// 0 fio's rules hold as they are; any other value also varies what
    /// `randrepeat` would repeat, which is how repeats of an experiment get
    /// different addresses.
    pub fn new(spec: &JobSpec, thread_number: u32, run_seed: u64) -> Seeds {
        let fixed = spec.all_random_repeatable || spec.random_repeatable;
        let job = match spec.random_seed {
            Some(seed) if !spec.all_random_repeatable => seed,
            _ if fixed => DEFAULT_SEED,
            _ => mix(DEFAULT_SEED, u64::MAX),
        };
        let base = match run_seed {
            0 => job,
            seed => mix(job, seed),
        };
        Seeds {
            base: mix(base, u64::from(thread_number)),
            same_each_pass: spec.random_repeatable,
            trims_like_writes: matches!(spec.pattern, Pattern::TrimWrite | Pattern::RandTrimWrite),
        }
    }

    pub(crate) fn stream(&self, stream: Stream) -> Random {
        let stream = match stream {
            // A trimmed range is written with the size it was trimmed with.
            Stream::BlockSize(Direction::Trim) if self.trims_like_writes => {
                Stream::BlockSize(Direction::Write)
            }
            stream => stream,
        };
        Random::new(mix(self.base, stream.id()))
    }

    /// How long this process waits before it starts, in microseconds.
    pub fn start_delay_us(&self, spec: &JobSpec) -> u64 {
        let (low, high) = spec.start_delay_us;
        let span = high.saturating_sub(low).saturating_add(1);
        low + self.stream(Stream::StartDelay).below(span)
    }
}

/// SplitMix64's finalizer over both (Steele, Lea, Flood 2014).
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(b)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    fn job(options: &str) -> JobSpec {
        parse_str("t", &format!("[a]\n{options}\n"), &|_| None, &|_, _| {
            Err(String::new())
        })
        .unwrap()
        .jobs
        .remove(0)
    }

    #[test]
    fn processes_differ_and_repeat() {
        let repeats = job("randrepeat=1");
        assert_eq!(Seeds::new(&repeats, 1, 0), Seeds::new(&repeats, 1, 0));
        assert_ne!(Seeds::new(&repeats, 1, 0), Seeds::new(&repeats, 2, 0));
        assert_ne!(Seeds::new(&repeats, 1, 0), Seeds::new(&repeats, 1, 5));
    }

    #[test]
    fn the_jobs_seed_counts() {
        let one = Seeds::new(&job("randseed=1"), 1, 0);
        assert_ne!(one, Seeds::new(&job("randseed=2"), 1, 0));
        assert!(!one.same_each_pass);
        assert_ne!(
            Seeds::new(&job("randrepeat=0"), 1, 1),
            Seeds::new(&job("randrepeat=0"), 1, 2)
        );
    }

    #[test]
    fn streams_are_apart() {
        let seeds = Seeds::new(&job(""), 1, 0);
        assert_ne!(
            seeds.stream(Stream::Block).next(),
            seeds.stream(Stream::Mix).next()
        );
        let seeds = Seeds::new(&job("rw=randtrimwrite"), 1, 0);
        assert_eq!(
            seeds.stream(Stream::BlockSize(Direction::Trim)).next(),
            seeds.stream(Stream::BlockSize(Direction::Write)).next()
        );
    }

    #[test]
    fn start_delays_are_drawn_from_their_range() {
        let spec = job("startdelay=1-2");
        let delays: Vec<u64> = (1..50)
            .map(|thread| Seeds::new(&spec, thread, 0).start_delay_us(&spec))
            .collect();
        assert!(delays.iter().all(|us| (1_000_000..=2_000_000).contains(us)));
        assert!(delays.windows(2).any(|pair| pair[0] != pair[1]));
        assert_eq!(
            Seeds::new(&job("startdelay=3"), 1, 0).start_delay_us(&job("startdelay=3")),
            3_000_000
        );
    }
}
