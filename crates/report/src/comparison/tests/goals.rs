use blklab_stats::Histogram;

use crate::comparison::{Comparison, Goal, Goals, Limit, SchedulerRuns, compare};
use crate::sample_run::three_schedulers;
use crate::{html, json, text};

/// A job with one I/O at a time beside a greedy one. It waits long under the first
/// scheduler; under the second the greedy job gets less.
pub(super) fn victim_and_reader() -> Vec<SchedulerRuns> {
    let mut schedulers = three_schedulers(3);
    schedulers.truncate(2);
    for (at, scheduler) in schedulers.iter_mut().enumerate() {
        for run in &mut scheduler.runs {
            let mut victim = run.jobs[0].clone();
            run.jobs[0].name = "reader".to_string();
            victim.name = "victim".to_string();
            victim.write = Default::default();
            victim.read.ios = 100;
            victim.read.lat_ns = Histogram::new();
            let wait_ns = [18_000_000, 89_000][at];
            victim.read.lat_ns.record_many(wait_ns, 100);
            if at == 1 {
                run.jobs[0].read.bytes /= 2;
            }
            run.jobs.push(victim);
        }
    }
    schedulers
}

pub(super) fn evaluated(goals: &[&str], limits: &[&str]) -> Comparison {
    let mut comparison = compare(&victim_and_reader());
    let goals = Goals {
        goals: goals.iter().map(|goal| goal.parse().unwrap()).collect(),
        limits: limits.iter().map(|limit| limit.parse().unwrap()).collect(),
    };
    comparison.judgement = Some(goals.evaluate(&comparison).unwrap());
    comparison
}

fn sentence(comparison: &Comparison) -> &str {
    &comparison.judgement.as_ref().unwrap().sentence
}

#[test]
fn a_rate_of_one_direction_is_no_latency() {
    let comparison = evaluated(&["reader.read.bandwidth"], &[]);
    let said = sentence(&comparison);
    assert!(said.contains(" read bandwidth of reader"), "{said}");
}

#[test]
fn a_limit_may_be_a_part_of_another_rows_figure() {
    let name = victim_and_reader()[0].name.clone();
    let kept = |share: &str| {
        let limit = format!("reader.bandwidth >= {share} {name}");
        evaluated(&["victim.p99"], &[&limit])
            .judgement
            .and_then(|mut judgement| judgement.rows.pop())
            .map(|row| row.kept)
    };
    assert_eq!(kept("0.95"), Some(vec![true, false]));
    assert_eq!(kept("100%"), Some(vec![true, false]), "itself keeps it");
    assert_eq!(kept("49%"), Some(vec![true, true]));
    let limit = "reader.bandwidth > 0.95 nine".parse().unwrap();
    let goals = Goals {
        limits: vec![limit],
        ..Goals::default()
    };
    let rows = ["none".to_string(), "bfq".to_string()];
    assert_eq!(
        goals.check_rows(&rows, &[]).unwrap_err(),
        "--subject-to reader.bandwidth > 0.95 nine: nine is not compared; none and bfq are; did \
         you mean none?"
    );
    assert!("reader.bandwidth > much none".parse::<Limit>().is_err());
    assert!("reader.bandwidth > -1 none".parse::<Limit>().is_err());
}

#[test]
fn latencies_of_different_jobs_are_never_pooled() {
    let comparison = compare(&victim_and_reader());
    let said = &comparison.headline;
    assert!(
        said.contains("; mq-deadline wins p99 read latency of reader"),
        "{said}"
    );
    assert!(
        said.contains("p99 read latency of victim (-99.5 %"),
        "{said}"
    );
    let tables = &comparison.sections[0].directions;
    let titles: Vec<String> = tables.iter().map(|table| table.title()).collect();
    let each = ["read of reader", "write of reader", "read of victim"];
    assert_eq!(titles[..2], ["read of all jobs", "write of all jobs"]);
    assert_eq!(titles[2..], each);
    assert!(tables[..2].iter().all(|table| table.metrics().len() == 2));
    let shown = text::render(&comparison);
    let page = html::render(&comparison);
    for title in each {
        assert!(shown.contains(title), "{title}: {shown}");
    }
    assert!(page.contains("Reads of victim") && page.contains("Writes of reader"));
    assert!(json::render(&comparison).contains("\"job\": \"victim\""));
}

#[test]
fn one_job_of_several_processes_is_one_row() {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        let twin = run.jobs[0].clone();
        run.jobs.push(twin);
    }
    let tables = &compare(&schedulers).sections[0].directions;
    assert_eq!(tables.len(), 2);
    assert!(
        tables
            .iter()
            .all(|table| table.job.is_none() && !table.several_jobs)
    );
}

#[test]
fn syncs_have_a_table() {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.jobs[0].syncs = 10;
        run.jobs[0].sync_ns.record_many(2_000_000, 10);
    }
    let comparison = compare(&schedulers);
    let table = comparison.sections[0].directions.last().unwrap();
    assert_eq!(table.title(), "sync");
    let goals = Goals {
        goals: vec!["mixed.sync.p99".parse().unwrap()],
        ..Goals::default()
    };
    let judgement = goals.evaluate(&comparison).unwrap();
    let p99 = judgement.rows[0].values[0].unwrap().mean;
    assert!((p99 - 2e6).abs() < 2e3, "{p99}");
}

#[test]
fn a_goal_decides() {
    let for_victim = evaluated(&["victim.read.p99"], &[]);
    let said = "mq-deadline wins p99 read latency of victim (-99.5 % against noop).";
    assert_eq!(sentence(&for_victim), said);
    for shown in [text::render(&for_victim), html::render(&for_victim)] {
        assert!(
            shown.contains(said) && shown.contains("victim.read.p99"),
            "{shown}"
        );
    }
    let for_all = evaluated(&["all.bandwidth"], &[]);
    assert!(
        sentence(&for_all).starts_with("noop wins bandwidth"),
        "{}",
        sentence(&for_all)
    );
}

#[test]
fn weights_decide_between_goals() {
    let much = evaluated(&["10*victim.p99", "reader.bandwidth"], &[]);
    assert!(sentence(&much).starts_with("mq-deadline wins the goals together"));
    let little = evaluated(&["0.01*victim.p99", "reader.bandwidth"], &[]);
    assert!(sentence(&little).starts_with("noop wins the goals together"));
}

#[test]
fn who_breaks_a_limit_does_not_win() {
    let limited = evaluated(&["all.bandwidth"], &["victim.read.p99 < 5ms"]);
    assert_eq!(
        sentence(&limited),
        "mq-deadline alone keeps the limits. Not victim.read.p99 < 5ms: noop (18.0 ms)."
    );
    let neither = evaluated(&["all.bandwidth"], &["victim.p99<1us"]);
    assert!(sentence(&neither).starts_with("No scheduler keeps the limits. Not"));
}

#[test]
fn where_io_failed_goals_name_no_winner() {
    let mut schedulers = victim_and_reader();
    schedulers[0].runs[0].jobs[0].total_errors = 3;
    let goals = Goals {
        goals: vec!["all.iops".parse().unwrap()],
        ..Goals::default()
    };
    let said = goals.evaluate(&compare(&schedulers)).unwrap().sentence;
    assert!(said.starts_with("No verdict"), "{said}");
}

#[test]
fn a_job_that_ended_under_no_scheduler_has_no_time_and_no_winner() {
    let comparison = evaluated(&["victim.time"], &[]);
    let judgement = comparison.judgement.as_ref().unwrap();
    assert_eq!(judgement.rows[0].values, [None, None]);
    assert!(judgement.contest.is_none() && judgement.is_unmeasured());
    assert_eq!(sentence(&comparison), "No scheduler has victim.time.");
}

#[test]
fn a_percentile_of_too_few_ios_is_no_goal() {
    let mut schedulers = victim_and_reader();
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.jobs[1].read.ios = 99;
    }
    let comparison = compare(&schedulers);
    let evaluated = |goal: &str| {
        let goals = Goals {
            goals: vec![goal.parse().unwrap()],
            ..Goals::default()
        };
        goals.evaluate(&comparison).unwrap()
    };
    let few = evaluated("victim.p99");
    assert!(few.contest.is_none() && few.is_unmeasured());
    assert_eq!(
        few.sentence,
        "victim.p99 is not judged: there are at most 99 in a run, and a p99 needs 100; a longer \
         runtime brings them."
    );
    assert!(evaluated("victim.mean").contest.is_some());
}

#[test]
fn many_jobs_are_told_one_by_one_as_far_as_a_screen_goes() {
    let job_names = |jobs: usize| {
        let mut schedulers = victim_and_reader();
        for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
            // The last job changes most.
            let victim = run.jobs.pop().unwrap();
            let reader = run.jobs.pop().unwrap();
            run.jobs = (1..jobs).map(|_| reader.clone()).collect();
            for (at, job) in run.jobs.iter_mut().enumerate() {
                job.name = format!("reader{at}");
            }
            run.jobs.push(victim);
        }
        text::answer(&compare(&schedulers), text::Style::PLAIN)
    };
    let three = job_names(4);
    for title in ["read of reader0", "write of reader2", "read of victim"] {
        assert!(three.contains(title), "{title}: {three}");
    }
    assert!(
        !three.contains("all jobs") && !three.contains("--details"),
        "{three}"
    );
    let many = job_names(7);
    assert!(
        many.contains("read of victim") && !many.contains("all jobs"),
        "{many}"
    );
    assert!(
        many.contains("\n5 more, in which less changes, are in --details."),
        "{many}"
    );
}

#[test]
fn an_answer_explains_the_marks_that_it_shows_and_no_others() {
    let unfinished = "unfinished: stopped before";
    let answer = |comparison: &Comparison| text::answer(comparison, text::Style::PLAIN);
    let shown = answer(&evaluated(&["victim.time"], &[]));
    let row = shown.lines().find(|line| line.starts_with(" victim.time"));
    assert!(
        row.is_some_and(|row| row.ends_with("unfinished")),
        "{shown}"
    );
    assert!(shown.contains(unfinished), "{shown}");
    let mut asked = evaluated(&["victim.p99"], &[]);
    asked.question = Some("Which scheduler?".to_string());
    let shown = answer(&asked);
    assert!(
        !shown.contains(unfinished) && !shown.contains("-: nothing"),
        "{shown}"
    );
    // The table of a question has means only.
    let head = "; figures are means, ± is the 95 % interval of a change\n";
    assert!(
        shown.contains(head) && !shown.contains("changes are against"),
        "{shown}"
    );
}

#[test]
fn mistakes_are_told() {
    let goal = |text: &str| text.parse::<Goal>().unwrap_err();
    assert!(goal("victim.read.p98").contains("ends with none of bandwidth"));
    assert!(goal("all.read.p99").contains("name a job"));
    assert!(goal("p99").contains("name a job, as in JOB.p99"));
    assert!(goal("p98").contains("none of") && goal(".p99").contains("names no job"));
    assert!(goal("-1*victim.p99").contains("above zero"));
    assert!(goal("victim.read.time").contains("JOB.time"));
    let limit = |text: &str| text.parse::<Limit>().unwrap_err();
    assert!(limit("victim.p99").contains("FIGURE < VALUE"));
    assert!(limit("victim.p99 < 5MB/s").contains("\"5ms\""));
    let unknown = Goals {
        goals: vec!["other.p99".parse().unwrap()],
        ..Goals::default()
    };
    let comparison = compare(&victim_and_reader());
    let said = unknown.evaluate(&comparison).unwrap_err();
    assert_eq!(
        said,
        "other.p99: no such figure; the jobs are reader and victim"
    );
    let direction = Goals {
        goals: vec!["victim.fsync.p99".parse().unwrap()],
        ..Goals::default()
    };
    assert_eq!(
        direction.check_jobs(&["victim".to_string()]).unwrap_err(),
        "--goal victim.fsync.p99: fsync is none of read, write, trim and sync; did you mean sync?"
    );
    let both = Goals {
        goals: vec!["reader.p99".parse().unwrap()],
        ..Goals::default()
    };
    assert!(
        both.evaluate(&comparison)
            .unwrap_err()
            .contains("reader.read.p99")
    );
}

#[test]
fn a_job_s_name_may_have_dots() {
    let mut schedulers = three_schedulers(2);
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.jobs[0].name = "db.1".to_string();
    }
    let goals = Goals {
        goals: vec!["db.1.read.p99.9".parse().unwrap()],
        ..Goals::default()
    };
    assert_eq!(
        goals.evaluate(&compare(&schedulers)).unwrap().rows[0].name,
        "db.1.read.p99.9"
    );
}
