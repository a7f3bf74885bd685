//! Where the slowest requests of a run spent their time, compared with the median ones, from
//! a recorded timeline.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::timeline::Timeline;
use crate::traced_request::{StageTimes, TracedRequest};

/// Mean times of requests of about the same latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanTimes {
    /// The number of requests.
    pub requests: u64,
    /// The requests' mean latency in nanoseconds.
    pub whole_ns: f64,
    /// The requests' mean time in each stage.
    pub stages_ns: StageTimes,
}

/// A request given as an example, which can be found in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// The index of its drive.
    pub disk: usize,
    /// Its number on that drive's queue.
    pub request: u64,
    /// The time of its submission, in nanoseconds from the run's start.
    pub from_ns: u64,
    /// The time of its end, in nanoseconds from the run's start.
    pub to_ns: u64,
}

impl Example {
    fn of(request: &TracedRequest) -> Example {
        Example {
            disk: request.disk,
            request: request.request,
            from_ns: request.submitted_ns,
            to_ns: request.completed_ns,
        }
    }
}

/// The slowest requests of one operation of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowestOf {
    /// The job; empty for requests of no job.
    pub job: String,
    /// Their operation: `R`, `W`, `D` or `F`, as in blkparse.
    pub op: char,
    /// The means of the slowest requests.
    pub slowest: MeanTimes,
    /// The means of the requests between the 40th and the 60th percentile.
    pub median: MeanTimes,
    /// The fastest of the slowest: a request just at the percentile.
    pub example: Example,
}

/// Where the slowest requests of a run spent their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slowest {
    /// The percentile of latency from which on a request counts as slow.
    pub percent: f64,
    /// The start of the recording, in nanoseconds from the run's start.
    pub start_ns: u64,
    /// The end of the recording, in nanoseconds from the run's start.
    pub end_ns: u64,
    /// Whether the run continued after the end of the recording.
    pub cut: bool,
    /// The slowest requests by job and operation.
    pub of: Vec<SlowestOf>,
}

impl Timeline {
    /// Analyses the requests from a percentile of latency on; `job_of` names the job of
    /// a submitter.
    pub fn slowest(&self, percent: f64, job_of: impl Fn(u32) -> String) -> Slowest {
        let mut groups: BTreeMap<(String, char), Vec<TracedRequest>> = BTreeMap::new();
        for request in self.traced_requests().of {
            let key = (job_of(request.submitter), request.op);
            groups.entry(key).or_default().push(request);
        }
        let of = groups
            .into_iter()
            .filter_map(|((job, op), all)| slowest_of(job, op, all, percent));
        Slowest {
            percent,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            cut: self.cut,
            of: of.collect(),
        }
    }
}

fn slowest_of(
    job: String,
    op: char,
    mut all: Vec<TracedRequest>,
    percent: f64,
) -> Option<SlowestOf> {
    all.sort_by_key(|whole| (whole.io_latency_ns(), whole.submitted_ns));
    let at = |percent: f64| libm::floor(all.len() as f64 * percent / 100.0) as usize;
    let first = at(percent).min(all.len().checked_sub(1)?);
    let middle = at(40.0)..at(60.0).max(at(40.0) + 1).min(all.len());
    Some(SlowestOf {
        job,
        op,
        slowest: spent(&all[first..]),
        median: spent(&all[middle]),
        example: Example::of(&all[first]),
    })
}

fn spent(requests: &[TracedRequest]) -> MeanTimes {
    let count = requests.len().max(1) as f64;
    let mut spent = MeanTimes {
        requests: requests.len() as u64,
        ..MeanTimes::default()
    };
    for whole in requests {
        spent.whole_ns += whole.io_latency_ns() as f64 / count;
        let parts = spent.stages_ns.iter_mut().zip(whole.stages_ns);
        parts.for_each(|(sum, part)| *sum += part / count);
    }
    spent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{
        Activity, Cause, DiskTimeline, DrivePart, DriveTimeline, DriveWork, Passage, RequestStep,
        StepKind, Through,
    };
    use crate::traced_request::{Stage, TracedRequest};

    fn step(request: u64, kind: StepKind, at_ns: u64) -> RequestStep {
        RequestStep {
            at_ns,
            kind,
            request,
            op: 'R',
            flags: 0,
            sector: 0,
            sectors: 8,
            cpu: 0,
            submitter: 3,
            errno: 0,
        }
    }

    /// A read of the array for one command, or for none.
    fn sense(cause: Cause, start_ns: u64, end_ns: u64, command: Option<u32>) -> Activity {
        Activity {
            part: 0,
            work: DriveWork::Sense,
            cause,
            start_ns,
            end_ns,
            first_command: command.unwrap_or(0),
            commands: u32::from(command.is_some()),
        }
    }

    /// One request that waits nowhere, and one that waits everywhere.
    fn two_requests() -> Timeline {
        use StepKind::{Completed, Dispatched, Inserted, Issued, Made, Queued};
        let steps = [
            (1, Queued, 100),
            (1, Made, 100),
            (1, Inserted, 100),
            (1, Dispatched, 100),
            (1, Issued, 100),
            (2, Queued, 100),
            (1, Completed, 150),
            (2, Made, 110),
            (2, Inserted, 115),
            (2, Dispatched, 145),
            (2, Issued, 150),
            (2, Completed, 300),
        ];
        let mut steps: Vec<RequestStep> = steps
            .map(|(request, kind, at_ns)| step(request, kind, at_ns))
            .to_vec();
        steps.sort_by_key(|step| step.at_ns);
        Timeline {
            start_ns: 90,
            end_ns: 400,
            disks: vec![DiskTimeline {
                name: "/dev/x".to_string(),
                flushes_hold_others: false,
                steps,
                drive: DriveTimeline {
                    parts: vec![DrivePart {
                        name: "die 0".to_string(),
                        within: None,
                    }],
                    activities: vec![
                        sense(Cause::Host, 105, 145, Some(0)),
                        sense(Cause::Collection, 155, 235, None),
                        sense(Cause::Host, 240, 290, Some(1)),
                    ],
                    commands: vec![0, 1],
                    passages: Vec::new(),
                },
            }],
            ..Timeline::default()
        }
    }

    #[test]
    fn all_of_a_slow_requests_time_is_accounted_for() {
        let slowest = two_requests().slowest(99.0, |submitter| format!("job {submitter}"));
        let [of] = &slowest.of[..] else {
            panic!("{slowest:?}");
        };
        assert_eq!((of.job.as_str(), of.op), ("job 3", 'R'));
        assert_eq!((of.slowest.requests, of.slowest.whole_ns), (1, 200.0));
        let spent = |stage: Stage| of.slowest.stages_ns[stage as usize];
        assert_eq!(spent(Stage::Tag), 10.0);
        assert_eq!(spent(Stage::Plug), 5.0);
        assert_eq!(spent(Stage::Scheduler), 30.0);
        assert_eq!(spent(Stage::Cpu), 5.0);
        assert_eq!(spent(Stage::Collection), 80.0);
        assert_eq!(spent(Stage::Media), 50.0);
        assert_eq!(spent(Stage::Rest), 20.0);
        assert_eq!(
            of.slowest.stages_ns.iter().sum::<f64>(),
            of.slowest.whole_ns
        );
        assert_eq!((of.example.request, of.example.from_ns), (2, 100));
    }

    #[test]
    fn a_single_request_is_its_own_median() {
        let mut timeline = two_requests();
        timeline.disks[0].steps.retain(|step| step.request == 1);
        let slowest = timeline.slowest(99.0, |_| "job".to_string());
        let median = &slowest.of[0].median;
        assert_eq!((median.requests, median.whole_ns), (1, 50.0));
    }

    #[test]
    fn a_traced_request_has_its_steps_and_the_depth_that_it_came_to() {
        let traced = two_requests().traced_requests();
        let [first, second] = &traced.of[..] else {
            panic!("{traced:?}");
        };
        assert_eq!((first.submitted_ns, first.completed_ns), (100, 150));
        assert_eq!((first.depth, second.depth), (1, 1));
        assert_eq!(second.inserted_ns, Some(115));
        assert_eq!(second.dispatched_ns, Some(145));
        assert_eq!((second.issued_ns, second.latency_ns()), (150, 200));
        assert!(!traced.cut);
    }

    #[test]
    fn every_stay_says_what_it_is() {
        for stage in Stage::ALL {
            assert!(stage.meaning().ends_with('.'), "{stage:?}");
        }
    }

    #[test]
    fn means_are_over_the_requests() {
        let mut timeline = two_requests();
        timeline.disks[0]
            .steps
            .iter_mut()
            .for_each(|step| step.submitter = 3);
        let all = timeline.slowest(0.0, |_| "job".to_string());
        let slowest = &all.of[0].slowest;
        assert_eq!((slowest.requests, slowest.whole_ns), (2, 125.0));
        let mean = |stage: Stage| slowest.stages_ns[stage as usize];
        assert_eq!((mean(Stage::Tag), mean(Stage::Scheduler)), (5.0, 15.0));
        assert_eq!((mean(Stage::Media), mean(Stage::Collection)), (45.0, 40.0));
        assert_eq!((all.start_ns, all.end_ns, all.cut), (90, 400, false));
    }

    /// A request that was merged away is none; one that was requeued leaves the drive and comes back.
    #[test]
    fn depth_counts_what_is_in_the_drive() {
        use StepKind::{Completed, Issued, Made, Merged, Queued, Requeued};
        let steps = [
            (1, Made, 10),
            (1, Issued, 11),
            (2, Made, 12),
            (2, Issued, 13),
            (3, Queued, 14),
            (3, Merged, 15),
            (2, Requeued, 16),
            (4, Made, 17),
            (4, Issued, 18),
            (2, Issued, 19),
            (1, Completed, 20),
            (2, Completed, 21),
            (4, Completed, 22),
            (5, Made, 23),
            (5, Issued, 24),
            (5, Completed, 25),
        ];
        let mut timeline = two_requests();
        timeline.disks[0].steps = steps.map(|(id, kind, at)| step(id, kind, at)).to_vec();
        let traced = timeline.traced_requests().of;
        let depths: Vec<_> = traced.iter().map(|r| (r.request, r.depth)).collect();
        assert_eq!(depths, [(1, 1), (2, 3), (4, 2), (5, 1)]);
        let submitted: Vec<_> = traced.iter().map(|r| r.submitted_ns).collect();
        assert_eq!(submitted, [10, 12, 17, 23]);
    }

    /// A flush behind another one, whose command keeps the drive from a read, and a write with a
    /// flush before and after its data.
    fn flushes(hold_others: bool) -> Timeline {
        use StepKind::{Completed, Inserted, Issued, Made, Queued, Requeued};
        let flush = |request, kind, at_ns| RequestStep {
            op: if request == 1 { 'W' } else { 'F' },
            flags: RequestStep::PREFLUSH,
            sectors: 0,
            ..step(request, kind, at_ns)
        };
        let write = |kind, at_ns| RequestStep {
            op: 'W',
            flags: RequestStep::PREFLUSH,
            ..step(5, kind, at_ns)
        };
        let mut timeline = two_requests();
        timeline.disks[0].flushes_hold_others = hold_others;
        let drive = &mut timeline.disks[0].drive;
        drive.commands.clear();
        drive.parts.push(drive.parts[0].clone());
        drive.activities = vec![
            sense(Cause::Host, 105, 115, None),
            Activity {
                part: 1,
                ..sense(Cause::Host, 112, 130, None)
            },
            sense(Cause::Collection, 128, 140, None),
        ];
        timeline.disks[0].steps = vec![
            flush(1, Queued, 100),
            flush(1, Made, 102),
            flush(2, Requeued, 105),
            step(3, Made, 106),
            step(3, Inserted, 107),
            flush(2, Issued, 110),
            write(Made, 120),
            flush(2, Completed, 150),
            flush(1, Completed, 150),
            step(3, Issued, 152),
            step(3, Completed, 160),
            flush(4, Issued, 161),
            flush(4, Completed, 170),
            write(Inserted, 171),
            write(Issued, 172),
            write(Completed, 180),
            flush(6, Issued, 181),
            flush(6, Completed, 190),
            write(Completed, 190),
        ];
        timeline
    }

    fn stages_of_first(op: char, timeline: &Timeline) -> StageTimes {
        let traced = timeline.traced_requests().of;
        let first = traced.iter().find(|request| request.op == op);
        first.expect("a request of this kind").stages_ns
    }

    #[test]
    fn a_flush_is_traced_with_the_command_that_served_it() {
        let traced = flushes(true).traced_requests().of;
        let [flush, read, write] = &traced[..] else {
            panic!("{traced:?}");
        };
        let spent = |of: &TracedRequest, stage: Stage| of.stages_ns[stage as usize];
        assert_eq!(
            (flush.op, flush.submitted_ns, flush.completed_ns),
            ('F', 100, 150)
        );
        assert_eq!((flush.issued_ns, flush.depth), (110, 1));
        assert_eq!(spent(flush, Stage::Tag), 2.0);
        assert_eq!(spent(flush, Stage::Flush), 8.0);
        assert_eq!(spent(flush, Stage::Media), 20.0);
        assert_eq!(spent(flush, Stage::Collection), 10.0);
        assert_eq!(spent(flush, Stage::Rest), 10.0);
        assert_eq!((read.op, spent(read, Stage::Plug)), ('R', 0.0));
        assert_eq!(spent(read, Stage::Flush), 1.0 + 43.0);
        assert_eq!(spent(read, Stage::Scheduler), 2.0);
        assert_eq!((write.submitted_ns, write.completed_ns), (120, 190));
        assert_eq!(spent(write, Stage::Flush), 51.0 + 10.0);
        assert_eq!(spent(write, Stage::Cache), 8.0);
        for request in &traced {
            let stages = request.stages_ns.iter().sum::<f64>();
            assert_eq!(stages, request.latency_ns() as f64, "{request:?}");
        }
    }

    #[test]
    fn a_flush_that_others_go_beside_holds_none_of_them() {
        let stages = stages_of_first('R', &flushes(false));
        assert_eq!(stages[Stage::Flush as usize], 0.0);
        assert_eq!(stages[Stage::Scheduler as usize], 45.0);
    }

    #[test]
    fn a_drive_without_parts_has_no_cache_to_wait_for() {
        let mut timeline = flushes(false);
        timeline.disks[0].drive = DriveTimeline::default();
        let stages = stages_of_first('W', &timeline);
        assert_eq!(stages[Stage::Cache as usize], 0.0);
        assert_eq!(stages[Stage::Rest as usize], 8.0);
    }

    #[test]
    fn flushes_of_one_command_count_once() {
        let mut timeline = flushes(true);
        let again = timeline.disks[0].steps[..2]
            .iter()
            .chain(&timeline.disks[0].steps[8..9]);
        let again: Vec<_> = again
            .map(|step| RequestStep {
                request: 9,
                ..*step
            })
            .collect();
        timeline.disks[0]
            .steps
            .splice(2..2, again[..2].iter().copied());
        timeline.disks[0].steps.insert(11, again[2]);
        let traced = timeline.traced_requests();
        assert_eq!(
            traced.of.iter().filter(|request| request.op == 'F').count(),
            2
        );
        let stats = traced.times(|_| "job".to_string());
        let flushes = stats
            .kinds
            .iter()
            .find(|kind| kind.op == 3)
            .expect("flushes");
        assert_eq!(flushes.drive_ns.summary().count, 1);
    }

    /// The channel takes a command to its die when the die is free, so what waits for the channel
    /// waits for the die.
    #[test]
    fn a_command_waits_for_its_die_before_the_channel() {
        let mut timeline = two_requests();
        timeline.disks[0].steps.retain(|step| step.request == 2);
        let drive = &mut timeline.disks[0].drive;
        drive.parts = vec![
            DrivePart {
                name: "channel 0".to_string(),
                within: None,
            },
            DrivePart {
                name: "die 0".to_string(),
                within: Some(0),
            },
        ];
        let on = |part, work, (start_ns, end_ns), command| Activity {
            part,
            work,
            ..sense(Cause::Host, start_ns, end_ns, command)
        };
        drive.activities = vec![
            on(1, DriveWork::Program, (100, 180), None),
            on(0, DriveWork::DataIn, (160, 200), None),
            on(0, DriveWork::Command, (210, 212), Some(0)),
            on(1, DriveWork::Sense, (212, 260), Some(0)),
            on(1, DriveWork::Program, (270, 280), None),
            on(0, DriveWork::DataOut, (290, 300), Some(0)),
        ];
        drive.commands = vec![0];
        let stages = timeline.traced_requests().of[0].stages_ns;
        let spent = |stage: Stage| stages[stage as usize];
        assert_eq!((spent(Stage::Die), spent(Stage::Channel)), (30.0, 20.0));
        assert_eq!((spent(Stage::Transfer), spent(Stage::Media)), (12.0, 48.0));
        assert_eq!(spent(Stage::Rest), 10.0 + 30.0);
        assert_eq!(stages.iter().sum::<f64>(), 200.0);
    }

    #[test]
    fn controller_and_link_have_their_own_times() {
        let mut timeline = two_requests();
        let through = |through, from_ns, to_ns| Passage {
            command: 1,
            through,
            from_ns,
            to_ns,
        };
        timeline.disks[0].drive.passages = vec![
            through(Through::Link, 292, 298),
            // It begins when the command can be seen.
            through(Through::Controller, 152, 160),
        ];
        let traced = timeline.traced_requests().of;
        let [_, slow] = &traced[..] else {
            panic!("{traced:?}");
        };
        let spent = |stage: Stage| slow.stages_ns[stage as usize];
        assert_eq!((spent(Stage::Controller), spent(Stage::Link)), (10.0, 6.0));
        assert_eq!(
            (spent(Stage::Collection), spent(Stage::Media)),
            (75.0, 50.0)
        );
        // Between collection and its own sense, before the link, and after it.
        assert_eq!(spent(Stage::Rest), 5.0 + 2.0 + 2.0);
        assert_eq!(slow.stages_ns.iter().sum::<f64>(), 200.0);
    }

    /// A read that waits for the die while the channel is busy for others, and for the channel
    /// while nothing has it.
    #[test]
    fn a_wait_is_split_by_what_the_part_did() {
        let part = |name: &str| DrivePart {
            name: name.to_string(),
            within: None,
        };
        let on = |part, activity: Activity| Activity { part, ..activity };
        let mut timeline = two_requests();
        timeline.disks[0].steps.retain(|step| step.request == 2);
        timeline.disks[0].drive = DriveTimeline {
            parts: vec![part("channel 0"), part("die 0")],
            activities: vec![
                // Ends as the wait begins, so it is none of it.
                on(0, sense(Cause::Host, 140, 150, None)),
                on(0, sense(Cause::Host, 160, 180, None)),
                on(0, sense(Cause::Map, 180, 185, None)),
                on(0, sense(Cause::Host, 190, 200, Some(0))),
                on(1, sense(Cause::Host, 195, 230, None)),
                on(1, sense(Cause::Map, 230, 260, Some(0))),
                on(1, sense(Cause::Host, 260, 280, Some(0))),
            ],
            commands: vec![0],
            passages: Vec::new(),
        };
        // The drive has the command of request 2 alone.
        let traced = timeline.traced_requests().of;
        let stages = traced[0].stages_ns;
        let spent = |stage: Stage| stages[stage as usize];
        assert_eq!(spent(Stage::Channel), 20.0);
        assert_eq!(spent(Stage::Die), 30.0);
        assert_eq!(spent(Stage::Map), 5.0 + 30.0);
        assert_eq!(spent(Stage::Media), 10.0 + 20.0);
        assert_eq!(spent(Stage::Rest), 10.0 + 5.0 + 20.0);
        assert_eq!(stages.iter().sum::<f64>(), 200.0);
    }
}
