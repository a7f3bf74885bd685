//! Tuning: finds the best of many settings with few runs.
//!
//! Successive halving (K. Jamieson and A. Talwalkar, AISTATS 2016): all settings are run
//! once, the better half of them again, and so on, until few have been run as often as is
//! asked for. The n-th runs of all settings have the same seed, so that they differ in what
//! the settings do and hardly in luck. Many settings do the same: of those with equal
//! results so far only the first goes on, which leaves their runs to the others.

use std::ops::Range;

use blklab_elevator::{ElevatorType, KernelVersion, QueueTraits};
use blklab_stats::World;

use crate::axis::VariedAxis;
use crate::error::Error;
use crate::setting::Setting;

/// One in this many settings of a round goes on.
const KEPT_ONE_IN: usize = 2;

/// The usual number of settings that are run to the end, beside the first.
pub const FINALISTS: usize = 5;

/// The outcome of successive halving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalvingOutcome {
    /// The settings that were run to the end: the first of all, then the best of the
    /// others and those that are always kept, best first.
    pub finalists: Vec<usize>,
    /// The number of runs.
    pub runs: usize,
    /// How often each finalist was run.
    pub repeats: usize,
}

/// Finds the best `finalists` of `settings` settings. The first `kept`, with which the others
/// are compared, are never left out. `round` runs settings with these repeats and returns the
/// score of each by all runs that it has had: more is better, `None` excludes a setting. If it
/// returns none, the search ends with the best of the round before; there are no finalists if
/// that was the first.
///
/// # Errors
/// If a round fails.
pub fn halve<E>(
    settings: usize,
    kept: usize,
    repeats: usize,
    finalists: usize,
    mut round: impl FnMut(&[usize], Range<usize>) -> Result<Option<Vec<Option<f64>>>, E>,
) -> Result<HalvingOutcome, E> {
    let mut left: Vec<usize> = (0..settings).collect();
    let (mut done, mut until, mut runs) = (0, 1, 0);
    let ended = |left: Vec<usize>, runs, repeats| HalvingOutcome {
        finalists: match repeats {
            0 => Vec::new(),
            _ => {
                let others = best_and_kept(left.into_iter().skip(1), finalists, kept);
                std::iter::once(0).chain(others).collect()
            }
        },
        runs,
        repeats,
    };
    loop {
        let Some(scores) = round(&left, done..until)? else {
            return Ok(ended(left, runs, done));
        };
        runs += left.len() * (until - done);
        let mut ranked: Vec<(usize, Option<f64>)> = left.iter().copied().zip(scores).collect();
        // The sort is stable: the first of equal settings is the one that goes on.
        ranked.sort_by(|(_, a), (_, b)| {
            let of = |score: &Option<f64>| score.unwrap_or(f64::NEG_INFINITY);
            of(b).total_cmp(&of(a))
        });
        let is_other = |(setting, _): &&(usize, Option<f64>)| *setting != 0;
        let best_other = ranked.iter().find(is_other).map(|(setting, _)| *setting);
        ranked.dedup_by(|next, before| next.0 >= kept && next.1 == before.1);
        let others = ranked.iter().filter(is_other).map(|(setting, _)| *setting);
        let best = (left.len().div_ceil(KEPT_ONE_IN)).max(finalists);
        let others = best_and_kept(others, best, kept);
        left = std::iter::once(0).chain(others).collect();
        if left.len() == 1 {
            // All do the same; one other goes on, for the comparison that says so.
            left.extend(best_other);
        }
        if until >= repeats {
            return Ok(ended(left, runs, repeats));
        }
        done = until;
        // The finalists do the rest of their runs at once.
        until = match left.len() <= finalists + kept {
            true => repeats,
            false => (until * 2).min(repeats),
        };
    }
}

/// Returns the first `best` of ranked settings, and those of the others that are always kept.
fn best_and_kept(
    ranked: impl Iterator<Item = usize>,
    best: usize,
    kept: usize,
) -> impl Iterator<Item = usize> {
    let is_left = move |(rank, setting): &(usize, usize)| *rank < best || *setting < kept;
    ranked
        .enumerate()
        .filter(is_left)
        .map(|(_, setting)| setting)
}

/// Returns the settings to try where none are named, in the form of `--schedulers`:
/// every scheduler of a kernel for such a drive with default tunables, the kernel's default
/// first, and with each tunable at a quarter, half, twice and four times its default, or at
/// one if the default is zero.
pub fn usual_settings(kernel: KernelVersion, queue: QueueTraits) -> Vec<String> {
    let default = kernel.default_scheduler(queue);
    let of_kernel = blklab_elevator::all()
        .iter()
        .filter(|kind| kernel.offers(kind.name, queue));
    let mut kinds: Vec<&ElevatorType> = of_kernel.collect();
    kinds.sort_by_key(|kind| kind.name != default);
    let mut settings: Vec<String> = kinds.iter().map(|kind| kind.name.to_string()).collect();
    for kind in kinds {
        for tunable in kind.tunables {
            let mut values = vec![tunable.default];
            for value in [
                tunable.default / 4,
                tunable.default / 2,
                tunable.default.saturating_mul(2).max(1),
                tunable.default.saturating_mul(4).max(1),
            ] {
                let legal = (tunable.min..=tunable.max).contains(&value);
                if legal && !values.contains(&value) {
                    values.push(value);
                    settings.push(format!("{}:{}={value}", kind.name, tunable.name));
                }
            }
        }
    }
    settings
}

/// An axis of the queue's own settings, which are tried one by one.
struct QueueAxis {
    /// The axis with its values, as in `--vary`.
    axis: &'static str,
    /// Whether only I/O through the page cache depends on it.
    is_for_buffered: bool,
}

/// The queue's settings that matter most. Linux 6.12 takes 4 to 2048 for `nr_requests`, or to
/// the driver's own depth under `none`; `wbt_lat_usec` is 2 ms by default for drives that do
/// not rotate, 75 ms for others, and 0 for never.
const QUEUE_AXES: [QueueAxis; 3] = [
    QueueAxis {
        axis: "nr_requests=16,32,64,128,256,512,1024",
        is_for_buffered: false,
    },
    QueueAxis {
        axis: "read_ahead_kb=0,16,64,256,512,1024,4096",
        is_for_buffered: true,
    },
    QueueAxis {
        axis: "wbt_lat_usec=0,500,2000,10000,75000",
        is_for_buffered: false,
    },
];

/// Returns each of these settings with each of the queue's own settings to try where none are
/// named. `is_buffered` says whether the work goes through the page cache; what the drive's
/// queue refuses or one of `worlds` cannot vary is left out.
///
/// # Errors
/// If a drive of the settings is not known.
pub fn usual_queue_settings(
    of: &[Setting],
    is_buffered: bool,
    worlds: &[World],
) -> Result<Vec<Setting>, Error> {
    let mut all = Vec::new();
    for QueueAxis {
        axis,
        is_for_buffered,
    } in QUEUE_AXES
    {
        let can_vary = |world: &World| VariedAxis::parse(axis, *world).is_ok();
        if (is_for_buffered && !is_buffered) || !worlds.iter().all(can_vary) {
            continue;
        }
        for setting in VariedAxis::parse(axis, World::Sim)?.product(of)? {
            if setting.fits_queue()? {
                all.push(setting);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings whose score is their number, with noise that is partly common to all.
    fn noisy(settings: usize, noise: f64) -> HalvingOutcome {
        let mut sums = vec![(0.0, 0.0); settings];
        let seen = |setting: usize, repeat: usize| {
            let mixed = (setting * 7919 + repeat * 104_729 + 17) % 1009;
            (setting * 37 % settings) as f64 + noise * (mixed as f64 / 1009.0 - 0.5)
        };
        let halved = halve::<()>(settings, 1, 16, FINALISTS, |left, repeats| {
            for setting in left {
                for repeat in repeats.clone() {
                    sums[*setting].0 += seen(*setting, repeat);
                    sums[*setting].1 += 1.0;
                }
            }
            let mean = |at: &usize| Some(sums[*at].0 / sums[*at].1);
            Ok(Some(left.iter().map(mean).collect()))
        });
        halved.expect("no round fails")
    }

    #[test]
    fn the_best_is_found_with_a_fraction_of_the_runs() {
        for noise in [0.0, 8.0] {
            let halved = noisy(100, noise);
            let goodness = |setting: usize| setting * 37 % 100;
            let best = halved.finalists[1];
            assert!(goodness(best) >= 97, "noise {noise}: {}", goodness(best));
            assert!(halved.runs < 100 * 16 / 4, "{}", halved.runs);
            assert_eq!(halved.finalists[0], 0);
            assert_eq!(halved.finalists.len(), FINALISTS + 1);
        }
    }

    #[test]
    fn what_is_out_does_not_go_on_while_others_do() {
        let halved = halve::<()>(20, 1, 4, FINALISTS, |left, _| {
            let score = |at: &usize| (at % 2 == 1).then_some(*at as f64);
            Ok(Some(left.iter().map(score).collect()))
        });
        let halved = halved.expect("no round fails");
        assert_eq!(halved.finalists, [0, 19, 17, 15, 13, 11]);
    }

    #[test]
    fn a_search_that_is_ended_keeps_the_round_before() {
        let ended_after = |rounds: usize| {
            let mut round = 0..rounds;
            let halved = halve::<()>(20, 1, 8, FINALISTS, |left, _| {
                let score = |at: &usize| Some(*at as f64);
                Ok(round.next().map(|_| left.iter().map(score).collect()))
            });
            let halved = halved.expect("no round fails");
            (halved.finalists, halved.repeats, halved.runs)
        };
        assert_eq!(ended_after(0), (vec![], 0, 0));
        assert_eq!(ended_after(1), (vec![0, 19, 18, 17, 16, 15], 1, 20));
        assert_eq!(ended_after(2).1, 2);
    }

    #[test]
    fn settings_that_do_the_same_leave_their_runs_to_others() {
        // Four of five settings do what setting 0 does.
        let halved = halve::<()>(50, 1, 8, FINALISTS, |left, _| {
            let score = |at: &usize| Some(if at % 5 == 4 { *at as f64 } else { 0.0 });
            Ok(Some(left.iter().map(score).collect()))
        });
        let halved = halved.expect("no round fails");
        assert_eq!(halved.finalists, [0, 49, 44, 39, 34, 29]);
        // Rounds end at 1, 2, 4 and 8 runs of a setting; ten settings differ from setting 0.
        assert_eq!(halved.runs, 50 + 11 + 7 * 2 + 6 * 4);
    }

    #[test]
    fn where_all_do_the_same_one_is_compared_with_the_first() {
        let halved = halve::<()>(9, 1, 4, FINALISTS, |left, _| {
            Ok(Some(vec![Some(1.0); left.len()]))
        });
        let halved = halved.expect("no round fails");
        assert_eq!(halved.finalists, [0, 1]);
        assert_eq!(halved.runs, 9 + 2 * 3);
    }

    #[test]
    fn the_first_settings_are_kept_whatever_they_do() {
        // Settings 1 to 3 do what setting 0 does, which is the worst.
        let score = |at: usize| if at < 4 { 0.0 } else { at as f64 };
        let halved = halve::<()>(40, 4, 8, FINALISTS, |left, _| {
            Ok(Some(left.iter().map(|at| Some(score(*at))).collect()))
        });
        let halved = halved.expect("no round fails");
        assert_eq!(halved.finalists, [0, 39, 38, 37, 36, 35, 1, 2, 3]);
    }

    #[test]
    fn one_setting_is_its_own_best() {
        let halved = halve::<()>(1, 1, 8, FINALISTS, |left, _| {
            Ok(Some(vec![None; left.len()]))
        });
        assert_eq!(halved.map(|halved| halved.finalists), Ok(vec![0]));
    }

    #[test]
    fn usual_settings_can_be_had() {
        let queue = QueueTraits {
            has_one_queue: true,
            ..QueueTraits::default()
        };
        let settings = usual_settings(KernelVersion::DEFAULT, queue);
        assert_eq!(settings[0], "mq-deadline");
        assert!(settings.len() > 50, "{}", settings.len());
        for setting in &settings {
            let named = crate::NamedScheduler::parse(setting).expect("of the right form");
            named
                .choice()
                .unwrap_or_else(|error| panic!("{setting}: {error}"));
        }
    }

    #[test]
    fn the_queue_s_settings_are_those_that_the_drive_takes() {
        let of = |drive: &str, scheduler: &str| Setting {
            drive: drive.to_string(),
            scheduler: crate::NamedScheduler::new(scheduler),
            label: scheduler.to_string(),
            ..Setting::default()
        };
        let both = [of("mx100-256", "none"), of("mx100-256", "mq-deadline")];
        let usual = |is_buffered, worlds: &[World]| {
            let settings = usual_queue_settings(&both, is_buffered, worlds).expect("known");
            let labels = settings.into_iter().map(|setting| setting.label);
            labels.collect::<Vec<String>>()
        };
        let labels = usual(true, &[World::Sim]);
        let has = |label: &str| labels.iter().any(|known| known == label);
        // A SATA drive has 32 tags, which only a scheduler can have more requests than.
        assert!(has("none nr_requests=32") && !has("none nr_requests=64"));
        assert!(has("mq-deadline nr_requests=1024"));
        assert!(has("none read_ahead_kb=1024") && has("none wbt_lat_usec=0"));
        let direct = usual(false, &[World::Sim]);
        assert!(direct.iter().all(|label| !label.contains("read_ahead_kb")));
        let on_host = usual(true, &[World::Sim, World::Host]);
        assert!(on_host.iter().all(|label| !label.contains("wbt")));
    }
}
