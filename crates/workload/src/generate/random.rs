//! Reproducible random numbers, with a stream for each kind of decision of each process.
//!
//! The generator is Xoshiro256++ (Blackman, Vigna: "Scrambled linear pseudorandom number
//! generators", 2021) from `rand_xoshiro`, which guarantees its sequence, whereas `rand`'s
//! `SmallRng` may differ between platforms and versions. For the same reason the distributions are
//! implemented here rather than taken from `rand`, and logarithms and powers come from `libm`, as
//! the C libraries of two systems differ.

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

    /// Returns a uniform number from 0 to `n - 1`; 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        // Lemire's multiplication without its rejection step has a bias of at most n / 2^64, too
        // small to show in any run.
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a uniform number from 1 to 100.
    #[inline]
    pub fn percent(&mut self) -> u32 {
        self.below(100) as u32 + 1
    }

    /// Returns a uniform number from 0 to just below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// fio's default `randseed`.
const DEFAULT_SEED: u64 = 0x89;

/// A kind of decision with a stream of its own, so that a further draw for one kind does not change
/// the others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Block,
    Sequential(Direction),
    BlockSize(Direction),
    Mix,
    File,
    FileSize,
    StartDelay,
    StartSpread,
    Arrival(Direction),
    Zone,
    Priority,
    /// The center of a file's distribution, by the file's index.
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
            Stream::StartSpread => 7,
            Stream::Sequential(direction) => 8 + direction as u64,
            Stream::BlockSize(direction) => 12 + direction as u64,
            Stream::Arrival(direction) => 16 + direction as u64,
            Stream::Distribution(file) => 32 + u64::from(file),
        }
    }
}

/// The seeds of one process.
///
/// The rules are fio's: with `randseed`, everything follows from that number; with `randrepeat`,
/// fio's default, or `allrandrepeat`, from a fixed one. Only with both off do two runs differ. The
/// processes of `numjobs` always differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    base: u64,
    /// Whether each pass over the files draws the same numbers.
    pub(crate) same_each_pass: bool,
    trims_like_writes: bool,
    /// Whether another run has other draws.
    varies: bool,
    /// What a job that verifies reads is as large as what it writes.
    writes_like_reads: bool,
}

impl Seeds {
    /// Returns the seeds of the process `thread_number` (from 1, over the whole job file).
    ///
    /// `run_seed` distinguishes runs. With 0, fio's rules hold as they are; any other value also
    /// varies the seeds that `randrepeat` would fix, so that repetitions of an experiment have
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
            varies: run_seed != 0,
            writes_like_reads: spec.verify.is_on(),
            trims_like_writes: matches!(spec.pattern, Pattern::TrimWrite | Pattern::RandTrimWrite),
        }
    }

    pub(crate) fn stream(&self, stream: Stream) -> Random {
        let write_sizes = match self.writes_like_reads {
            true => Stream::BlockSize(Direction::Read),
            false => Stream::BlockSize(Direction::Write),
        };
        let stream = match stream {
            Stream::BlockSize(Direction::Write) => write_sizes,
            // A trimmed range is written with the size with which it was trimmed.
            Stream::BlockSize(Direction::Trim) if self.trims_like_writes => write_sizes,
            stream => stream,
        };
        Random::new(mix(self.base, stream.id()))
    }

    /// Returns the delay of this process's start, in microseconds.
    pub fn start_delay_us(&self, spec: &JobSpec) -> u64 {
        let (low, high) = spec.start_delay_us;
        let span = high.saturating_sub(low).saturating_add(1);
        low + self.stream(Stream::StartDelay).below(span)
    }

    /// Returns how much later than its job says this process starts, in microseconds and below
    /// `most_us`: a time that is drawn where nothing else of its I/O is.
    ///
    /// Processes that all start at once, do their I/O in step and meet the same in every repeat
    /// are one sample, whose result hangs on how their steps fall. None start so in a real system.
    pub fn start_spread_us(&self, spec: &JobSpec, most_us: u64) -> u64 {
        match self.varies && !spec.draws() {
            true => self.stream(Stream::StartSpread).below(most_us),
            false => 0,
        }
    }
}

/// Mixes two numbers by SplitMix64 (Steele, Lea, Flood 2014).
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
