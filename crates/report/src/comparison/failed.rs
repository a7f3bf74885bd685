//! Failed I/O: a scheduler under which I/O failed cannot win.

use blklab_stats::Results;
use blklab_workload::calls::Errno;
use serde::{Deserialize, Serialize};

use super::runs::SchedulerRuns;
use crate::fio::strerror;
use crate::quantity::and_list;

/// A scheduler under which I/O failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedIo {
    /// The scheduler.
    pub scheduler: String,
    /// I/Os that failed, in all repeats.
    pub units: u64,
    /// The error of the first of them (errno).
    pub first_error: i32,
}

/// The beginning of a sentence that replaces a verdict.
pub(super) const NO_VERDICT: &str = "No verdict";

/// Returns the number of I/Os of a run that failed, and the first error. Failures by an
/// intended loss of power are not counted, but writes that a full drive refused are.
pub fn failed_units(run: &Results) -> (u64, i32) {
    if run.lost_power() {
        let refused = run.disks.iter().filter_map(|disk| disk.device.too_full);
        return match refused.map(|too_full| too_full.writes).sum() {
            0 => (0, 0),
            writes => (writes, Errno::ENOSPC.0),
        };
    }
    let units = run.jobs.iter().map(|job| job.total_errors).sum();
    let first = run.jobs.iter().map(|job| job.error).find(|e| *e != 0);
    (units, first.unwrap_or(0))
}

/// Returns the schedulers under which I/O failed.
pub(crate) fn failed(schedulers: &[SchedulerRuns]) -> Vec<FailedIo> {
    let of = |scheduler: &SchedulerRuns| {
        let runs: Vec<(u64, i32)> = scheduler.runs.iter().map(failed_units).collect();
        let units = runs.iter().map(|(units, _)| units).sum();
        let first_error = runs.iter().map(|(_, e)| *e).find(|e| *e != 0);
        (units > 0).then(|| FailedIo {
            scheduler: scheduler.name.clone(),
            units,
            first_error: first_error.unwrap_or(0),
        })
    };
    schedulers.iter().filter_map(of).collect()
}

/// Returns the sentence that replaces a verdict if I/O failed.
pub(crate) fn sentence(failed: &[FailedIo]) -> Option<String> {
    let first = failed.first()?;
    let names: Vec<String> = failed.iter().map(|f| f.scheduler.clone()).collect();
    Some(format!(
        "{NO_VERDICT}: I/O failed under {} ({} in all, the first: {}).",
        and_list(&names),
        failed.iter().map(|f| f.units).sum::<u64>(),
        strerror(first.first_error)
    ))
}

/// Returns the sentence that replaces a verdict if a loss of power ended jobs: the
/// scheduler under which the first I/O failed later would have done more work.
pub(crate) fn cut_short(schedulers: &[SchedulerRuns]) -> Option<String> {
    let is_cut = |run: &Results| {
        let mut processes = run.jobs.iter().flat_map(|job| &job.processes);
        run.lost_power() && processes.any(|process| process.failed)
    };
    let any = schedulers.iter().flat_map(|s| &s.runs).any(is_cut);
    any.then(|| {
        format!(
            "{NO_VERDICT}: the loss of power ended jobs at their first failed I/O; with \
             continue_on_error=all they go on."
        )
    })
}
