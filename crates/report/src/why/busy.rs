//! How busy channels, dies and planes were.

use blklab_stats::{ChannelStats, DieStats, Results};

use super::{Channels, counted_ns, mean, ratio};
use crate::comparison::SchedulerRuns;

/// What each channel of the run's drives has of the time.
pub(super) fn of_channels(run: &Results, of: impl Fn(&ChannelStats) -> u64) -> Vec<f64> {
    let channels = run.disks.iter().flat_map(|disk| &disk.device.channels);
    channels.map(|c| of(c) as f64 / counted_ns(run)).collect()
}

/// What each die of the run's drives has of the time.
pub(super) fn of_dies(run: &Results, of: impl Fn(&DieStats) -> u64) -> Vec<f64> {
    let dies = run.disks.iter().flat_map(|disk| &disk.device.dies);
    dies.map(|die| of(die) as f64 / counted_ns(run)).collect()
}

/// How busy each channel of the run's drives was.
pub(super) fn channel_shares(run: &Results) -> Vec<f64> {
    of_channels(run, |c| c.die_busy_ns.max(c.bus_busy_ns))
}

/// How busy each die of the run's drives was.
pub(super) fn die_shares(run: &Results) -> Vec<f64> {
    of_dies(run, |die| die.busy_ns)
}

/// How busy each plane of the run's drives was.
pub(super) fn plane_shares(run: &Results) -> Vec<f64> {
    let dies = run.disks.iter().flat_map(|disk| &disk.device.dies);
    let planes = dies.flat_map(|die| &die.plane_busy_ns);
    planes.map(|ns| *ns as f64 / counted_ns(run)).collect()
}

/// The coefficient of variation: the deviation as a share of the mean.
pub(super) fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    ratio((squares / values.len() as f64).sqrt(), mean)
}

/// How busy the channels were under each scheduler; nothing for drives that
/// have none.
pub(crate) fn channels(schedulers: &[SchedulerRuns]) -> Vec<Channels> {
    let mean = |scheduler: &SchedulerRuns, of: fn(&Results) -> Vec<f64>| {
        let mut sums: Vec<f64> = Vec::new();
        for run in &scheduler.runs {
            let shares = of(run);
            sums.resize(sums.len().max(shares.len()), 0.0);
            sums.iter_mut().zip(shares).for_each(|(sum, s)| *sum += s);
        }
        let runs = scheduler.runs.len().max(1) as f64;
        sums.iter_mut().for_each(|sum| *sum /= runs);
        sums
    };
    let all: Vec<Channels> = schedulers
        .iter()
        .map(|scheduler| Channels {
            scheduler: scheduler.name.clone(),
            busy: mean(scheduler, channel_shares),
            dies: mean(scheduler, die_shares),
            planes: mean(scheduler, plane_shares),
        })
        .collect();
    match all.iter().all(|channels| channels.busy.is_empty()) {
        true => Vec::new(),
        false => all,
    }
}
