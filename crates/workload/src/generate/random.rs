//! Random numbers that are the same everywhere, and which stream of them each
//! decision of each process draws from.
//!
//! Xoshiro256++ (Blackman, Vigna: "Scrambled linear pseudorandom number
//! generators", 2021) through `rand_xoshiro`, which promises to keep it.
//! `rand`'s own `SmallRng` may be another algorithm on another platform or in
//! the next version. What is drawn from it is made here rather than by
//! `rand`'s distributions for the same reason, and logarithms and powers come
//! from `libm`, because those of two systems' C libraries differ.

use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use crate::fio::{Direction, JobSpec, Pattern};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly from 0 to `n - 1`; 0 where `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        // Lemire's multiplication; without his rejection step the bias is at
        // most n / 2^64, which no run is long enough to show.
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Evenly from 1 to 100.
    #[inline]
    pub fn percent(&mut self) -> u32 {
        self.below(100) as u32 + 1
    }

    /// Evenly from 0 to just below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

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

/// What SplitMix64 (Steele, Lea, Flood 2014) makes of two numbers.
fn mix(a: u64, b: u64) -> u64 {
    let seed = a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b);
    SplitMix64::seed_from_u64(seed).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    #[test]
    fn the_numbers_never_change() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            drawn,
            [
                14_971_601_782_005_023_387,
                13_781_649_495_232_077_965,
                1_847_458_086_238_483_744
            ]
        );
    }

    #[test]
    fn draws_stay_in_range() {
        let mut random = Random::new(7);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
        let mut seen = [0u32; 101];
        for _ in 0..100_000 {
            seen[random.percent() as usize] += 1;
            let unit = random.unit();
            assert!((0.0..1.0).contains(&unit));
        }
        assert_eq!(seen[0], 0);
        // 1000 expected of each, standard deviation 31.5.
        assert!(seen[1..].iter().all(|n| (800..1200).contains(n)));
    }

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
