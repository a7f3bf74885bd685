//! A closed loop directly on a drive: a fixed number of commands outstanding, each
//! completion followed at once by the next command.

#![allow(dead_code, reason = "every test uses a part of it")]

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, CommandStatus, Completion, Device};
use blklab_stats::Histogram;
use proptest::prelude::ProptestConfig;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// SplitMix64: the same numbers on every machine.
pub struct Rng(SplitMix64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(SplitMix64::seed_from_u64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}

/// Random aligned commands over the first part of a drive.
#[derive(Clone, Copy)]
pub struct RandomWork {
    pub requests: u64,
    pub depth: u32,
    pub read_percent: u64,
    pub bytes: u64,
    /// Share of the drive that is used, from its start.
    pub share: f64,
    pub seed: u64,
    /// Sequential instead of random addresses.
    pub sequential: bool,
}

pub struct Outcome {
    pub iops: f64,
    pub mean_us: f64,
    pub reads: Histogram,
    pub writes: Histogram,
    pub errors: u64,
}

impl Outcome {
    pub fn read_mean_us(&self) -> f64 {
        self.reads.summary().mean_ns / 1e3
    }
    pub fn write_mean_us(&self) -> f64 {
        self.writes.summary().mean_ns / 1e3
    }
}

pub fn closed_loop(drive: &mut dyn Device, work: &RandomWork) -> Outcome {
    let places =
        (drive.identify().capacity_sectors as f64 * 512.0 * work.share) as u64 / work.bytes;
    let mut rng = Rng::new(work.seed);
    let mut issued_at = vec![(Nanos::ZERO, false); work.depth as usize];
    let (mut reads, mut writes) = (Histogram::new(), Histogram::new());
    let mut errors = 0;
    let mut next_place = 0;
    let mut submit =
        |drive: &mut dyn Device, now: Nanos, tag: u32, issued: &mut [(Nanos, bool)]| {
            let is_read = rng.below(100) < work.read_percent;
            let place = if work.sequential {
                next_place += 1;
                (next_place - 1) % places
            } else {
                rng.below(places)
            };
            issued[tag as usize] = (now, is_read);
            drive.submit(
                now,
                Command {
                    tag,
                    queue: 0,
                    op: if is_read { Op::Read } else { Op::Write },
                    sector: Sector::from_bytes(place * work.bytes),
                    sectors: (work.bytes / 512) as u32,
                    fua: false,
                },
            );
        };
    let mut submitted = 0;
    for tag in 0..work.depth.min(work.requests as u32) {
        submit(drive, Nanos::ZERO, tag, &mut issued_at);
        submitted += 1;
    }
    let (mut ended, mut now) = (0, Nanos::ZERO);
    let mut done: Vec<Completion> = Vec::new();
    while ended < work.requests {
        let reached = drive.advance_to_completion(Nanos::MAX, &mut done);
        assert!(
            reached >= now && reached < Nanos::MAX,
            "the drive went idle"
        );
        now = reached;
        for completion in done.drain(..) {
            ended += 1;
            errors += (completion.status != CommandStatus::Ok) as u64;
            let (since, is_read) = issued_at[completion.tag as usize];
            let histogram = if is_read { &mut reads } else { &mut writes };
            histogram.record((completion.at - since).0);
            if submitted < work.requests {
                submit(drive, completion.at, completion.tag, &mut issued_at);
                submitted += 1;
            }
        }
    }
    let total = reads.summary().mean_ns * reads.count() as f64
        + writes.summary().mean_ns * writes.count() as f64;
    Outcome {
        iops: work.requests as f64 * 1e9 / now.0 as f64,
        mean_us: total / work.requests as f64 / 1e3,
        reads,
        writes,
        errors,
    }
}

/// The number of cases of a property test: this, or that of `PROPTEST_CASES`.
pub fn cases(usual: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig {
            cases: usual,
            ..config
        },
    }
}
