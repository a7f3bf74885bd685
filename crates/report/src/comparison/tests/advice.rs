use blklab_stats::{Histogram, ProcessResults};

use super::goals::victim_and_reader;
use crate::comparison::{
    Advice, Answer, Availability, Choices, Goals, QueueSetting, SchedulerRuns, compare,
};
use crate::sample_run::three_schedulers;
use crate::{html, text};

/// The settings `noop` and `mq-deadline`; the kernel has those that are named.
fn choices(has: &[&str]) -> Choices {
    let row = |name: &str| QueueSetting {
        scheduler: name.to_string(),
        availability: match has.contains(&name) {
            true => Availability::Offered,
            false => Availability::NotInKernel,
        },
        by_default: name == "noop",
        ..QueueSetting::default()
    };
    Choices {
        rows: vec![row("noop"), row("mq-deadline")],
        kernel: "Linux 6.12".to_string(),
        default: "noop".to_string(),
        devices: vec!["sdc".to_string()],
        example: "sda".to_string(),
        pattern: "sd[a-z]*".to_string(),
        identity: "device/wwid".to_string(),
        rotational: Some(false),
    }
}

fn both() -> Choices {
    choices(&["noop", "mq-deadline"])
}

#[test]
fn much_better_for_one_and_a_little_worse_for_another_has_its_price() {
    let comparison = compare(&victim_and_reader());
    let advice = both().advise(&comparison).expect("a verdict");
    assert!(
        advice
            .sentence
            .starts_with("Take mq-deadline: p99 read latency of victim -99.5 %"),
        "{}",
        advice.sentence
    );
    assert!(
        advice.price.contains("read bandwidth of reader -4"),
        "{}",
        advice.price
    );
    assert_eq!(
        advice.commands[0].lines,
        ["echo mq-deadline > /sys/block/sdc/queue/scheduler"]
    );
}

#[test]
fn what_is_typed_never_names_a_disk_that_nobody_named() {
    let comparison = compare(&victim_and_reader());
    let unnamed = Choices {
        devices: Vec::new(),
        ..both()
    };
    let advice = unnamed.advise(&comparison).expect("a verdict");
    let lines: Vec<&String> = (advice.commands.iter())
        .flat_map(|command| &command.lines)
        .collect();
    assert!(
        lines.iter().all(|line| !line.contains("/sda/")),
        "{lines:?}"
    );
    assert_eq!(
        advice.commands[0].lines,
        [
            "# for DISK put your drive's name, as sda: lsblk lists them",
            "echo mq-deadline > /sys/block/DISK/queue/scheduler",
        ]
    );
    let several = Choices {
        devices: vec!["sdc".to_string(), "sdd".to_string()],
        ..both()
    };
    let advice = several.advise(&comparison).expect("a verdict");
    assert_eq!(advice.commands[0].lines.len(), 2);
    assert!(advice.commands[2].lines[1].starts_with("w /sys/block/sdd/"));
}

#[test]
fn a_rule_says_which_devices_it_applies_to() {
    let comparison = compare(&victim_and_reader());
    let advice = both().advise(&comparison).expect("a verdict");
    assert_eq!(
        advice.commands[1].lines[0],
        "# every sd[a-z]* device that does not rotate; for one alone add ATTRS{wwid}==\"...\", \
         as /sys/block/sdc/device/wwid says"
    );
}

#[test]
fn text_and_page_show_what_to_type() {
    let mut comparison = compare(&victim_and_reader());
    comparison.advice = both().advise(&comparison);
    let line = "ACTION==\"add|change\", KERNEL==\"sd[a-z]*\", ENV{DEVTYPE}==\"disk\", ATTR{queue/rotational}==\"0\", \
                ATTR{queue/scheduler}=\"mq-deadline\"";
    let shown = text::render(&comparison);
    assert!(shown.contains(line), "{shown}");
    let page = html::render(&comparison);
    assert!(
        page.contains("What to do") && page.contains("60-ioscheduler.rules"),
        "{page}"
    );
}

#[test]
fn one_run_each_is_no_reason_to_type_anything() {
    let mut schedulers = victim_and_reader();
    for scheduler in &mut schedulers {
        scheduler.runs.truncate(1);
    }
    let comparison = compare(&schedulers);
    let advice = both().advise(&comparison).expect("a verdict");
    assert!(
        advice
            .sentence
            .starts_with("Change nothing yet: mq-deadline looks better (p99 read latency"),
        "{}",
        advice.sentence
    );
    assert!(advice.sentence.ends_with("(see --repeats)."));
    assert_eq!((advice.take, advice.commands.len()), (None, 0));
    let answer = both().answer(&comparison);
    assert_eq!(answer, Some(Answer::Take("mq-deadline".to_string())));
}

#[test]
fn what_the_kernel_lacks_is_named_and_not_typed() {
    let comparison = compare(&victim_and_reader());
    let advice = choices(&["noop"]).advise(&comparison).expect("a verdict");
    assert!(
        advice
            .sentence
            .ends_with("mq-deadline would be better still, and Linux 6.12 does not have it."),
        "{}",
        advice.sentence
    );
    assert_eq!((advice.take, advice.commands.len()), (None, 0));
}

#[test]
fn alike_rows_are_left_as_they_are() {
    let mut schedulers = victim_and_reader();
    let runs = schedulers[0].runs.clone();
    schedulers[1].runs = runs;
    let advice = both().advise(&compare(&schedulers)).expect("a verdict");
    let keep = "No difference worth a change: keep noop (Linux 6.12 sets it by itself).";
    assert_eq!(advice.sentence, keep);
}

/// The third scheduler does as well for the victim as the second, but the reader gets little; the
/// second is a little better for the victim and costs nothing.
#[test]
fn a_row_that_brings_much_more_at_a_price_is_named_beside_the_one_to_take() {
    let mut schedulers = victim_and_reader();
    let mut dear = schedulers[1].clone();
    dear.name = "bfq".to_string();
    for run in &mut dear.runs {
        run.jobs[0].read.bytes /= 20;
    }
    let mut modest = schedulers[0].clone();
    modest.name = "mq-deadline".to_string();
    for run in &mut modest.runs {
        run.jobs[1].read.lat_ns = Histogram::new();
        run.jobs[1].read.lat_ns.record_many(14_000_000, 100);
    }
    schedulers[1] = modest;
    schedulers.push(dear);
    let mut choices = both();
    choices.rows.push(QueueSetting {
        scheduler: "bfq".to_string(),
        availability: Availability::Offered,
        ..QueueSetting::default()
    });
    let advice = choices.advise(&compare(&schedulers)).expect("a verdict");
    assert_eq!(advice.take.as_deref(), Some("mq-deadline"));
    let more = "bfq brings more, p99 read latency of victim -99.5 %";
    assert!(advice.sentence.contains(more), "{}", advice.sentence);
    let cost = "and costs read bandwidth of reader -9";
    assert!(advice.sentence.contains(cost), "{}", advice.sentence);
}

#[test]
fn a_default_that_is_the_best_is_kept_for_that() {
    let mut schedulers = victim_and_reader();
    schedulers.swap(0, 1);
    let comparison = compare(&schedulers);
    let mut swapped = both();
    swapped.rows.swap(0, 1);
    for row in &mut swapped.rows {
        row.by_default = row.scheduler == "mq-deadline";
    }
    let goals = Goals {
        goals: vec!["victim.read.p99".parse().expect("a goal")],
        ..Goals::default()
    };
    let mut evaluated = comparison.clone();
    evaluated.judgement = Some(goals.evaluate(&evaluated).expect("evaluated"));
    let advice = swapped.advise(&evaluated).expect("a verdict");
    let kept = "Keep mq-deadline (Linux 6.12 sets it by itself): noop is worse (p99 read latency \
                of victim ";
    assert!(advice.sentence.starts_with(kept), "{}", advice.sentence);
    assert_eq!((advice.take, advice.commands.len()), (None, 0));
}

/// Under the second scheduler the victim reaches its end and the reader reads nothing.
#[test]
fn a_figure_of_one_row_only_is_named_by_what_happens_there() {
    let mut schedulers = victim_and_reader();
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.jobs[1].processes = vec![ProcessResults {
            job: "victim".to_string(),
            runtime_ns: 120_000_000_000,
            ..ProcessResults::default()
        }];
    }
    for run in &mut schedulers[1].runs {
        run.jobs[1].processes[0].finished = true;
        run.jobs[1].processes[0].runtime_ns = 19_000_000_000;
        run.jobs[0].write = Default::default();
    }
    let advice = both().advise(&compare(&schedulers)).expect("a verdict");
    let said = format!("{} {}", advice.sentence, advice.price);
    assert!(
        said.contains("the end of victim in 19.0 s (under noop not within 120.0 s)"),
        "{said}"
    );
    assert!(
        said.contains("writes of reader (only under noop)"),
        "{said}"
    );
}

#[test]
fn as_much_won_as_lost_depends() {
    let mut schedulers = victim_and_reader();
    let slow = |schedulers: &mut [SchedulerRuns], row: usize, job: usize, wait_ns: u64| {
        for run in &mut schedulers[row].runs {
            let read = &mut run.jobs[job].read;
            read.lat_ns = Default::default();
            read.lat_ns.record_many(wait_ns, 100);
        }
    };
    slow(&mut schedulers, 0, 0, 89_000);
    slow(&mut schedulers, 1, 0, 18_000_000);
    let comparison = compare(&schedulers);
    assert_eq!(both().answer(&comparison), Some(Answer::Depends));
    let advice = both().advise(&comparison).expect("a verdict");
    assert!(
        advice.sentence.contains("--goal 'victim.read.p99'"),
        "{}",
        advice.sentence
    );
}

#[test]
fn an_answer_is_held_against_another_comparison() {
    let comparison = compare(&victim_and_reader());
    let answer = both().answer(&comparison).expect("rows");
    assert_eq!(answer, Answer::Take("mq-deadline".to_string()));
    assert_eq!(both().changed_answer(&answer, &comparison), None);
    let mut turned = victim_and_reader();
    let runs = turned[0].runs.clone();
    turned[0].runs = turned[1].runs.clone();
    turned[1].runs = runs;
    let other = both().changed_answer(&answer, &compare(&turned));
    assert_eq!(other, Some(Answer::Take("noop".to_string())));
}

#[test]
fn limits_rule_rows_out() {
    let mut comparison = compare(&victim_and_reader());
    let goals = Goals {
        goals: vec!["reader.bandwidth".parse().expect("a goal")],
        limits: vec!["victim.read.p99 < 1ms".parse().expect("a limit")],
    };
    comparison.judgement = Some(goals.evaluate(&comparison).expect("known jobs"));
    let answer = both().answer(&comparison);
    assert_eq!(answer, Some(Answer::Take("mq-deadline".to_string())));
    let jobs = ["reader".to_string()];
    let refused = goals.check_jobs(&jobs).expect_err("no victim");
    assert_eq!(
        refused,
        "--subject-to victim.read.p99: there is no job victim; the jobs are reader"
    );
}

#[test]
fn what_the_idle_class_gets_decides_only_where_nothing_else_changes() {
    let mut schedulers = victim_and_reader();
    for run in schedulers.iter_mut().flat_map(|s| &mut s.runs) {
        run.jobs[1].setup.is_idle_class = true;
    }
    // The victim gains much, and the reader beside it loses half of its reads.
    let mut comparison = compare(&schedulers);
    let advice = both().advise(&comparison).expect("a verdict");
    assert_eq!(advice.take, None, "{}", advice.sentence);
    assert!(
        advice
            .sentence
            .contains("What victim gets decides only where nothing else changes"),
        "{}",
        advice.sentence
    );
    // Who names it as a goal cares about it.
    let goals = Goals {
        goals: vec!["victim.read.p99".parse().expect("a goal")],
        ..Goals::default()
    };
    comparison.judgement = Some(goals.evaluate(&comparison).expect("known jobs"));
    let advice = both().advise(&comparison).expect("a verdict");
    assert_eq!(advice.take.as_deref(), Some("mq-deadline"));
}

#[test]
fn writes_that_are_synced_one_by_one_are_half_of_a_commit() {
    let answer = |syncs: u64| {
        let mut schedulers = three_schedulers(3);
        schedulers.truncate(2);
        for (at, scheduler) in schedulers.iter_mut().enumerate() {
            for run in &mut scheduler.runs {
                let job = &mut run.jobs[0];
                job.read = Default::default();
                (job.write.ios, job.write.lat_ns) = (200, Histogram::new());
                job.write.lat_ns.record_many([320_000, 130_000][at], 200);
                job.write.bytes = [1_057_000, 1_000_000][at];
                job.sync_ns = Histogram::new();
                job.sync_ns.record_many(5_400_000, syncs);
                job.syncs = syncs;
            }
        }
        both().answer(&compare(&schedulers))
    };
    assert_eq!(answer(200), Some(Answer::Keep("noop".to_string())));
    assert_ne!(answer(20), Some(Answer::Keep("noop".to_string())));
}

#[test]
fn what_the_kernel_sets_by_itself_is_missed_if_it_is_not_compared() {
    let comparison = compare(&victim_and_reader());
    let other = Choices {
        default: "bfq".to_string(),
        ..both()
    };
    let said = other.advise(&comparison).expect("a verdict").sentence;
    let missing = "bfq, which Linux 6.12 sets by itself, was not compared.";
    assert!(said.ends_with(missing), "{said}");
}

#[test]
fn where_nobody_keeps_the_limits_there_is_nothing_to_change() {
    let mut comparison = compare(&victim_and_reader());
    let goals = Goals {
        goals: vec!["reader.bandwidth".parse().expect("a goal")],
        limits: vec!["victim.read.p99 < 1us".parse().expect("a limit")],
    };
    comparison.judgement = Some(goals.evaluate(&comparison).expect("known jobs"));
    let advice = both().advise(&comparison).expect("something to do");
    assert_eq!(
        advice.sentence,
        "Change nothing: no scheduler that Linux 6.12 has keeps the limits."
    );
}

/// The rows of `victim_and_reader`, both as under the first scheduler.
fn twins() -> Vec<SchedulerRuns> {
    let mut schedulers = victim_and_reader();
    let runs = schedulers[0].runs.clone();
    schedulers[1].runs = runs;
    schedulers
}

#[test]
fn the_largest_of_many_differences_may_be_chance() {
    let mut schedulers = twins();
    for (run, percent) in schedulers[1].runs.iter_mut().zip([104, 106, 108]) {
        run.jobs[0].read.bytes = run.jobs[0].read.bytes * percent / 100;
    }
    let mut comparison = compare(&schedulers);
    let advice = both().advise(&comparison).expect("a verdict");
    assert_eq!(
        advice.sentence,
        "No difference worth a change: keep noop (Linux 6.12 sets it by itself). mq-deadline's \
         read bandwidth of reader +6.0 % ±4.9 % may be chance among the 6 differences looked \
         at: more --repeats tell."
    );
    // Who asked for this one figure alone looked at no other.
    let goals = Goals {
        goals: vec!["reader.read.bandwidth".parse().expect("a goal")],
        limits: Vec::new(),
    };
    comparison.judgement = Some(goals.evaluate(&comparison).expect("known jobs"));
    let answer = both().answer(&comparison);
    assert_eq!(answer, Some(Answer::Take("mq-deadline".to_string())));
}

/// Gives the victim these waits in five of a thousand reads, by row.
fn with_tails(waits_ns: [u64; 2]) -> Vec<SchedulerRuns> {
    let mut schedulers = twins();
    for (row, wait_ns) in waits_ns.into_iter().enumerate() {
        for run in &mut schedulers[row].runs {
            let victim = &mut run.jobs[1].read;
            victim.lat_ns = Default::default();
            victim.lat_ns.record_many(100_000, 995);
            victim.lat_ns.record_many(wait_ns, 5);
            victim.ios = 1000;
        }
    }
    schedulers
}

#[test]
fn a_longer_tail_beyond_p99_is_a_price() {
    let mut schedulers = with_tails([100_000, 10_000_000]);
    for run in &mut schedulers[1].runs {
        run.jobs[0].read.bytes = run.jobs[0].read.bytes * 11 / 10;
    }
    let mut comparison = compare(&schedulers);
    let answer = both().answer(&comparison);
    assert_eq!(answer, Some(Answer::Keep("noop".to_string())));
    let goals = Goals {
        goals: vec!["reader.read.bandwidth".parse().expect("a goal")],
        limits: Vec::new(),
    };
    comparison.judgement = Some(goals.evaluate(&comparison).expect("known jobs"));
    let advice = both().advise(&comparison).expect("a verdict");
    assert_eq!(advice.take.as_deref(), Some("mq-deadline"));
    let price = "Its price: p99.9 read latency of victim x100.0.";
    assert_eq!(advice.price, price);
}

#[test]
fn a_shorter_tail_beyond_p99_is_no_gain() {
    let comparison = compare(&with_tails([10_000_000, 100_000]));
    let answer = both().answer(&comparison);
    assert_eq!(answer, Some(Answer::Keep("noop".to_string())));
}

/// The advice on noop, mq-deadline and kyber for the victim's 99th percentile.
fn advice_for_victim(schedulers: &[SchedulerRuns]) -> Advice {
    let mut choices = both();
    let mut kyber = choices.rows[1].clone();
    kyber.scheduler = "kyber".to_string();
    choices.rows.push(kyber);
    let mut comparison = compare(schedulers);
    let goals = Goals {
        goals: vec!["victim.read.p99".parse().expect("a goal")],
        limits: Vec::new(),
    };
    comparison.judgement = Some(goals.evaluate(&comparison).expect("known jobs"));
    choices.advise(&comparison).expect("a verdict")
}

#[test]
fn of_rows_that_reach_the_goal_alike_the_cheapest_is_taken() {
    let mut schedulers = victim_and_reader();
    // As good for the victim as far as the runs can tell, at no price for the reader.
    let mut cheap = twins().remove(1);
    cheap.name = "kyber".to_string();
    for (run, wait_ns) in cheap.runs.iter_mut().zip([91_000, 88_000, 92_000]) {
        run.jobs[1].read.lat_ns = Default::default();
        run.jobs[1].read.lat_ns.record_many(wait_ns, 100);
    }
    schedulers.push(cheap);
    let advice = advice_for_victim(&schedulers);
    assert_eq!(advice.take.as_deref(), Some("kyber"), "{}", advice.sentence);
    assert_eq!(advice.price, "");
}

/// Of two better rows the one that is sure by a little is not advised while the other looks much
/// better and the runs cannot tell whether that is chance.
#[test]
fn a_little_that_is_sure_does_not_keep_out_much_that_is_likely() {
    let mut schedulers = twins();
    let mut much = twins().remove(1);
    much.name = "kyber".to_string();
    schedulers.push(much);
    let waits_ns = [[100_000, 100_010], [94_300, 94_310], [59_500, 63_000]];
    for (scheduler, waits_ns) in schedulers.iter_mut().zip(waits_ns) {
        scheduler.runs.truncate(2);
        for (run, wait_ns) in scheduler.runs.iter_mut().zip(waits_ns) {
            run.jobs[1].read.lat_ns = Default::default();
            run.jobs[1].read.lat_ns.record_many(wait_ns, 100);
        }
    }
    let advice = advice_for_victim(&schedulers);
    assert!(
        advice
            .sentence
            .starts_with("Change nothing yet: mq-deadline is better than noop")
            && (advice.sentence)
                .contains("kyber looks better still (p99 read latency of victim -3"),
        "{}",
        advice.sentence
    );
    assert_eq!((advice.take, advice.commands.len()), (None, 0));
}
