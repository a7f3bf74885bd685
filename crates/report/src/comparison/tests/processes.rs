use blklab_stats::ProcessResults;

use crate::comparison::processes::figures;
use crate::comparison::runs::Pairs;
use crate::comparison::{Metric, ProcessFigures, SchedulerRuns, compare};
use crate::sample_run::three_schedulers;
use crate::{html, text};

/// Two readers of weights 1 and 3, and a program that ends by itself.
fn crowd() -> Vec<SchedulerRuns> {
    let mut schedulers = three_schedulers(3);
    let runs = schedulers.iter_mut().flat_map(|s| &mut s.runs);
    for (start_ms, run) in (901..).zip(runs) {
        let process = |job: &str, mb: u64, weight: f64, finished: bool| ProcessResults {
            job: job.to_string(),
            process: 0,
            bytes: mb * 1_000_000,
            runtime_ns: if finished {
                start_ms * 1_000_000
            } else {
                1_000_000_000
            },
            weight: Some(weight),
            finished,
            ..ProcessResults::default()
        };
        run.jobs[0].processes = vec![
            process("light", 10, 1.0, false),
            process("heavy", 30, 3.0, false),
            process("program", 1, 1.0, true),
        ];
    }
    schedulers
}

fn all_paired() -> Pairs {
    Pairs::by_key(&[Some(()); 3])
}

fn find<'a>(all: &'a [ProcessFigures], job: Option<&str>, metric: Metric) -> &'a [Vec<f64>] {
    let same = |f: &&ProcessFigures| f.column.job.as_deref() == job && f.column.metric == metric;
    &all.iter().find(same).expect("is there").repeats
}

#[test]
fn shares_by_weight_are_fair_and_programs_are_timed() {
    let all = figures(&crowd(), 0, &all_paired());
    assert_eq!(find(&all, Some("light"), Metric::Bandwidth)[0][0], 10e6);
    assert_eq!(find(&all, Some("heavy"), Metric::Bandwidth)[0][0], 30e6);
    assert!((find(&all, None, Metric::Jain)[0][0] - 1.0).abs() < 1e-12);
    assert_eq!(
        find(&all, Some("program"), Metric::Duration)[0],
        [901e6, 902e6, 903e6]
    );
}

/// A reader of 4 KiB at random and one of 1 MiB in sequence, as jobs of their own.
fn unlike_readers() -> Vec<SchedulerRuns> {
    let mut schedulers = three_schedulers(3);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        let process = |job: &str, mb: u64| ProcessResults {
            job: job.to_string(),
            bytes: mb * 1_000_000,
            runtime_ns: 1_000_000_000,
            weight: Some(1.0),
            ..ProcessResults::default()
        };
        let mut other = run.jobs[0].clone();
        run.jobs[0].processes = vec![process("small", 1)];
        other.name = "large".to_string();
        other.setup.rw = "read".to_string();
        other.setup.block_bytes = [(1 << 20, 1 << 20); 3];
        other.processes = vec![process("large", 99)];
        run.jobs.push(other);
    }
    schedulers
}

#[test]
fn unlike_work_has_a_fairness_only_where_shares_are_given() {
    let has_index = |schedulers: &[SchedulerRuns]| {
        let all = figures(schedulers, 0, &all_paired());
        assert!(all.iter().any(|f| f.column.metric == Metric::Bandwidth));
        all.iter().any(|f| f.column.metric == Metric::Jain)
    };
    assert!(!has_index(&unlike_readers()));
    let with = |change: &dyn Fn(&mut blklab_stats::Results)| {
        let mut schedulers = unlike_readers();
        schedulers
            .iter_mut()
            .flat_map(|s| &mut s.runs)
            .for_each(change);
        has_index(&schedulers)
    };
    assert!(with(&|run| run.jobs[1].setup = run.jobs[0].setup.clone()));
    assert!(with(&|run| run.jobs[1].processes[0].weight = Some(3.0)));
    assert!(with(&|run| {
        let group = ("cgroup".to_string(), "tenant".to_string());
        run.jobs[1].options.push(group);
    }));
}

#[test]
fn an_unfinished_job_is_marked_and_not_compared() {
    let mut schedulers = crowd();
    schedulers[1].runs[0].jobs[0].processes[2].finished = false;
    let comparison = compare(&schedulers);
    let figures = &comparison.sections[0].processes[0];
    assert_eq!(figures.column.metric, Metric::Duration);
    assert_eq!((figures.unfinished(0), figures.unfinished(1)), (0, 1));
    assert!(figures.cells[1].is_none() && figures.cells[2].is_some());
    for shown in [text::render(&comparison), html::render(&comparison)] {
        for words in ["unfinished in 1 of 3", "unfinished: stopped before"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }
}

#[test]
fn a_stopped_program_has_no_time() {
    let mut schedulers = crowd();
    schedulers[1].runs[0].jobs[0].processes[2].finished = false;
    let all = figures(&schedulers, 0, &all_paired());
    assert_eq!(find(&all, Some("program"), Metric::Duration)[1].len(), 2);
}

#[test]
fn one_stopped_process_needs_no_table() {
    let mut schedulers = crowd();
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.jobs[0].processes.truncate(1);
    }
    assert!(figures(&schedulers, 0, &all_paired()).is_empty());
}

#[test]
fn reports_show_it() {
    let comparison = compare(&crowd());
    for shown in [text::render(&comparison), html::render(&comparison)] {
        for word in ["Jain", "program", "light", "heavy"] {
            assert!(shown.contains(word), "{word} is missing:\n{shown}");
        }
    }
    let sentence = &comparison.headline;
    assert!(sentence.contains("time of program"), "{sentence}");
}
