//! Several schedulers, several times each.

use blklab_stats::Results;
use rayon::prelude::*;

use crate::setup::{SchedulerChoice, Setup, SetupError};

/// Has sweeps use so many threads instead of one a processor. Once a program.
///
/// # Errors
/// Where they cannot be had, or it was called before.
pub fn set_threads(threads: usize) -> Result<(), String> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|e| e.to_string())
}

/// Runs a job under each scheduler `repeats` times. The n-th run of every
/// scheduler has the same seed, so that they meet the same work. `each_done` is
/// called after every run.
///
/// The order and content of the results do not depend on how many threads work.
///
/// # Errors
/// Where the job cannot be run.
pub fn sweep<R>(
    schedulers: &[SchedulerChoice],
    repeats: usize,
    seed: u64,
    run: R,
    each_done: &(dyn Fn() + Sync),
) -> Result<Vec<Vec<Results>>, SetupError>
where
    R: Fn(&SchedulerChoice, u64) -> Result<Results, SetupError> + Sync,
{
    let runs: Vec<(usize, usize)> = (0..schedulers.len())
        .flat_map(|s| (0..repeats).map(move |r| (s, r)))
        .collect();
    let results: Result<Vec<Results>, SetupError> = runs
        .par_iter()
        // Runs take long and some much longer than others: a thread that has
        // nothing to do takes the next one, not a share of them.
        .with_max_len(1)
        .map(|&(s, r)| {
            let result = run(&schedulers[s], seed.wrapping_add(r as u64));
            each_done();
            result
        })
        .collect();
    let mut results = results?.into_iter();
    Ok(schedulers
        .iter()
        .map(|_| results.by_ref().take(repeats).collect())
        .collect())
}

/// [`sweep`] of an fio job.
///
/// # Errors
/// Where the job cannot be simulated.
pub fn sweep_job(
    base: &Setup<'_>,
    schedulers: &[SchedulerChoice],
    repeats: usize,
    each_done: &(dyn Fn() + Sync),
) -> Result<Vec<Vec<Results>>, SetupError> {
    let run = |scheduler: &SchedulerChoice, seed: u64| {
        crate::run(&Setup {
            scheduler,
            seed,
            // The first run of each scheduler is enough to look at.
            record: base.record.filter(|_| seed == base.seed),
            ..base.clone()
        })
    };
    sweep(schedulers, repeats, base.seed, run, each_done)
}
