//! Comparisons of made-up runs, and their reports.

mod advice;
mod drive_notes;
mod goals;
mod merge;
mod processes;
mod verdict;
mod verification;
mod why;

use blklab_stats::{DirResults, Estimate, Histogram};

use crate::comparison::{Comparison, Direction, Metric, SchedulerRuns, compare};
use crate::sample_run::three_schedulers;

#[test]
fn cells_are_means_over_repeats() {
    let schedulers = three_schedulers(4);
    let comparison = compare(&schedulers);
    let read = &comparison.sections[0].directions[0];
    assert_eq!(read.direction, Direction::Read);
    let runs = schedulers[2].runs.iter();
    let by_hand: Vec<f64> = runs.map(|run| run.jobs[0].read.iops()).collect();
    let cell = read.rows[2].cells[&Metric::Iops];
    assert_eq!(cell.value, Estimate::of(&by_hand));
    let base = read.rows[0].cells[&Metric::Iops];
    assert_eq!(base.change, None);
    let relative = cell.change.unwrap().relative.mean;
    assert!((relative - (cell.value.mean / base.value.mean - 1.0)).abs() < 1e-12);
}

#[test]
fn the_same_seeds_are_compared_pair_by_pair() {
    let mut schedulers = three_schedulers(3);
    assert!(compare(&schedulers).paired);
    schedulers[1].runs[2].seed = 77;
    assert!(!compare(&schedulers).paired);
}

#[test]
fn directions_are_those_the_job_has() {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.jobs[0].write = DirResults::default();
    }
    let comparison = compare(&schedulers);
    let directions = &comparison.sections[0].directions;
    assert_eq!(directions.len(), 1);
    assert_eq!(comparison.sections[0].verdict.tails.len(), 1);
}

/// What one job loses is not made up for by what another gains.
#[test]
fn bandwidths_of_different_jobs_are_not_added() {
    let mut schedulers = goals::victim_and_reader();
    for run in &mut schedulers[1].runs {
        run.jobs[1].read.bytes *= 2;
    }
    let comparison = compare(&schedulers);
    let bandwidths = comparison.sections[0].verdict.bandwidths.iter();
    let won: Vec<_> = bandwidths
        .map(|contest| (contest.job.as_deref(), contest.leaders[0].as_str()))
        .collect();
    assert_eq!(
        won,
        [(Some("reader"), "noop"), (Some("victim"), "mq-deadline")]
    );
    assert!(
        comparison
            .headline
            .contains("noop wins bandwidth of reader")
            && comparison
                .headline
                .contains("mq-deadline wins bandwidth of victim"),
        "{}",
        comparison.headline
    );
}

#[test]
fn each_group_is_a_section() {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        let mut second = run.jobs[0].clone();
        second.name = "second".to_string();
        second.group_id = 1;
        run.jobs.push(second);
    }
    let comparison = compare(&schedulers);
    let titles: Vec<&str> = comparison
        .sections
        .iter()
        .map(|s| s.title.as_str())
        .collect();
    assert_eq!(titles, ["mixed", "second"]);
    assert!(
        comparison
            .headline
            .starts_with("Of 2 bandwidths, one for each job, ac leads 2;")
    );
}

#[test]
fn jobs_of_a_group_add_up() {
    let mut schedulers = three_schedulers(2);
    let before = compare(&schedulers);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        let twin = run.jobs[0].clone();
        run.jobs.push(twin);
    }
    let after = compare(&schedulers);
    let iops = |c: &Comparison| {
        c.sections[0].directions[0].rows[0].cells[&Metric::Iops]
            .value
            .mean
    };
    assert!((iops(&after) - 2.0 * iops(&before)).abs() < 1e-6);
    assert_eq!(after.sections[0].title, "mixed");
}

#[test]
fn curves_rise_and_end_where_the_values_do() {
    let comparison = compare(&three_schedulers(2));
    let curve = &comparison.sections[0].directions[0].rows[0].curve;
    assert!(curve.windows(2).all(|w| w[0].percent < w[1].percent));
    assert!(curve.windows(2).all(|w| w[0].latency_ns <= w[1].latency_ns));
    assert_eq!(curve[0].percent, 0.0);
    // 18,000 values resolve a little more than four nines.
    let last = curve.last().unwrap().percent;
    assert!((99.99..99.999).contains(&last), "{last}");
}

#[test]
fn nothing_compares_to_nothing() {
    assert_eq!(compare(&[]).schedulers.len(), 0);
    let name = "none".to_string();
    let idle = SchedulerRuns {
        name,
        runs: Vec::new(),
    };
    assert!(compare(&[idle]).sections.is_empty());
}

#[test]
fn notes_show_once() {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.notes.push("buffered I/O is not modelled".to_string());
    }
    assert_eq!(compare(&schedulers).notes.len(), 1);
}

#[test]
fn how_late_a_served_model_was_is_one_note() {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().take(2).flat_map(|s| &mut s.runs) {
        let mut late = Histogram::default();
        late.record(20_000);
        run.pacing_lateness_ns = Some(late);
    }
    let notes = compare(&schedulers).notes;
    let [note] = &notes[..] else {
        panic!("{notes:?}");
    };
    assert_eq!(
        note.matches("20.0 us and 20.0 us under").count(),
        2,
        "{note}"
    );
}
