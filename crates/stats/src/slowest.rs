//! Where the slowest requests of a run spent their time, against the median ones: worked
//! out from what was recorded moment by moment.

use std::collections::BTreeMap;

use crate::timeline::{Activity, Cause, DiskTimeline, RequestStep, StepKind, Timeline, Work};

macro_rules! stages {
    ($($(#[doc = $doc:literal])+ $stage:ident $name:literal,)+) => {
        /// Where a request may spend time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Stage {
            $($(#[doc = $doc])+ $stage,)+
        }

        impl Stage {
            /// All of them, in the order in which a request comes to them.
            pub const ALL: [Stage; [$($name),+].len()] = [$(Stage::$stage),+];

            /// Its name in tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Stage::$stage => $name,)+
                }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Stage::$stage => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

stages! {
    /// Before it was a request: all of the queue's tags were taken, or a limit held it back.
    Tag "tag or throttle",
    /// In its submitter's plug, where what follows may join it.
    Plug "plug",
    /// In the scheduler, or in a software queue where there is none, until it was chosen.
    Scheduler "scheduler",
    /// Chosen, and on its way to the drive: room in the drive's queue, locks, the driver's CPU time.
    Driver "driver",
    /// In the drive, behind another command's data on its channel.
    Channel "busy channel",
    /// In the drive, behind another command on its die, or of the arm.
    Die "busy die or arm",
    /// In the drive, behind garbage collection on its die.
    Collection "collection",
    /// In the drive, for a page of the map that was not in memory.
    Map "map",
    /// On the channel, with its own data.
    Transfer "own transfer",
    /// In the flash array, or under the heads: the work itself.
    Media "own media",
    /// In the drive otherwise: link, firmware, room in the cache, a flush that goes first.
    Rest "link, cache, firmware",
}

/// Time by [`Stage`], in nanoseconds.
pub type StageTimes = [f64; Stage::ALL.len()];

/// Requests of about one latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanTimes {
    /// How many there are.
    pub requests: u64,
    /// Their mean latency, in nanoseconds.
    pub whole_ns: f64,
    /// Where it went.
    pub stages_ns: StageTimes,
}

/// One request, for who wants to look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// Its drive.
    pub disk: usize,
    /// Its number there.
    pub request: u64,
    /// When it came.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
}

/// The slowest requests of one operation of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowestOf {
    /// The job; empty for requests of no job.
    pub job: String,
    /// What they do, as blkparse has it: `R`, `W`, `D` or `F`.
    pub op: char,
    /// The slowest.
    pub slowest: MeanTimes,
    /// Those between the 40th and the 60th percentile.
    pub median: MeanTimes,
    /// The fastest of the slowest: a request just at the percentile.
    pub example: Example,
}

/// Where the slowest requests of a run spent their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slowest {
    /// They are those beyond this percentile.
    pub percent: f64,
    /// From when on requests were looked at, ...
    pub start_ns: u64,
    /// ... and until when.
    pub end_ns: u64,
    /// The run was longer than that.
    pub cut: bool,
    /// By job and operation.
    pub of: Vec<SlowestOf>,
}

/// A request that was seen from its beginning to its end.
struct TracedRequest {
    example: Example,
    stages_ns: StageTimes,
}

impl TracedRequest {
    fn latency_ns(&self) -> u64 {
        self.example.to_ns - self.example.from_ns
    }
}

impl Timeline {
    /// Where the requests beyond a percentile spent their time; `job_of` names the job
    /// of a submitter.
    pub fn slowest(&self, percent: f64, job_of: impl Fn(u32) -> String) -> Slowest {
        let mut groups: BTreeMap<(String, char), Vec<TracedRequest>> = BTreeMap::new();
        for (at, disk) in self.disks.iter().enumerate() {
            for (first, whole) in traced_requests(at, disk) {
                let key = (job_of(first.submitter), first.op);
                groups.entry(key).or_default().push(whole);
            }
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
    all.sort_by_key(|whole| (whole.latency_ns(), whole.example.from_ns));
    let at = |percent: f64| (all.len() as f64 * percent / 100.0).floor() as usize;
    let first = at(percent).min(all.len().checked_sub(1)?);
    let middle = at(40.0)..at(60.0).max(at(40.0) + 1).min(all.len());
    Some(SlowestOf {
        job,
        op,
        slowest: spent(&all[first..]),
        median: spent(&all[middle]),
        example: all[first].example,
    })
}

fn spent(requests: &[TracedRequest]) -> MeanTimes {
    let count = requests.len().max(1) as f64;
    let mut spent = MeanTimes {
        requests: requests.len() as u64,
        ..MeanTimes::default()
    };
    for whole in requests {
        spent.whole_ns += whole.latency_ns() as f64 / count;
        let parts = spent.stages_ns.iter_mut().zip(whole.stages_ns);
        parts.for_each(|(sum, part)| *sum += part / count);
    }
    spent
}

/// When a request came to each step; of those that it took more than once the last.
#[derive(Clone, Copy, Default)]
struct Steps {
    queued: Option<u64>,
    made: Option<u64>,
    inserted: Option<u64>,
    dispatched: Option<u64>,
    issued: Option<u64>,
}

/// The requests of a drive that were seen from beginning to end.
fn traced_requests(at: usize, disk: &DiskTimeline) -> Vec<(RequestStep, TracedRequest)> {
    let drive = Drive::new(disk);
    let mut open: BTreeMap<u64, (RequestStep, Steps)> = BTreeMap::new();
    let mut traced_requests = Vec::new();
    for step in &disk.steps {
        if !step.is_of_request() {
            continue;
        }
        let entry = open.entry(step.request);
        let (first, steps) = entry.or_insert_with(|| (*step, Steps::default()));
        let now = Some(step.at_ns);
        match step.kind {
            StepKind::Queued => steps.queued = now,
            StepKind::Made => steps.made = now,
            StepKind::Inserted => steps.inserted = now,
            StepKind::Dispatched => steps.dispatched = now,
            StepKind::Issued => steps.issued = now,
            StepKind::Completed => {
                let whole = traced_request(at, first, steps, step.at_ns, &drive);
                traced_requests.extend(whole.map(|whole| (*first, whole)));
                open.remove(&step.request);
            }
            StepKind::Merged => {
                open.remove(&step.request);
            }
            _ => {}
        }
    }
    traced_requests
}

fn traced_request(
    disk: usize,
    first: &RequestStep,
    steps: &Steps,
    to_ns: u64,
    drive: &Drive<'_>,
) -> Option<TracedRequest> {
    let (made, issued) = (steps.made?, steps.issued?);
    let from_ns = steps.queued.unwrap_or(made);
    let mut stages_ns = StageTimes::default();
    let dispatched = steps.dispatched.unwrap_or(issued);
    // Without a scheduler a request may go straight to the driver.
    let inserted = steps.inserted.unwrap_or(dispatched);
    let mut reached = from_ns;
    for (stage, until) in [
        (Stage::Tag, made),
        (Stage::Plug, inserted),
        (Stage::Scheduler, dispatched),
        (Stage::Driver, issued),
    ] {
        stages_ns[stage as usize] = until.saturating_sub(reached) as f64;
        reached = reached.max(until);
    }
    drive.add_stages(first.request, (reached, to_ns), &mut stages_ns);
    let example = Example {
        disk,
        request: first.request,
        from_ns,
        to_ns,
    };
    Some(TracedRequest { example, stages_ns })
}

/// What the parts of a drive did, by request and by part.
struct Drive<'a> {
    own: BTreeMap<u64, Vec<&'a Activity>>,
    by_part: Vec<Vec<&'a Activity>>,
    is_channel: Vec<bool>,
}

impl<'a> Drive<'a> {
    fn new(disk: &'a DiskTimeline) -> Drive<'a> {
        let requests = disk.requests_by_command();
        let mut own: BTreeMap<u64, Vec<&Activity>> = BTreeMap::new();
        let mut by_part: Vec<Vec<&Activity>> = vec![Vec::new(); disk.drive.parts.len()];
        for activity in &disk.drive.activities {
            by_part[activity.part as usize].push(activity);
            for command in disk.drive.commands_of(activity) {
                if let Some(request) = requests.get(*command as usize) {
                    own.entry(*request).or_default().push(activity);
                }
            }
        }
        let lists = own.values_mut().chain(&mut by_part);
        lists.for_each(|list| list.sort_by_key(|activity| (activity.start_ns, activity.end_ns)));
        let parts = disk.drive.parts.iter();
        Drive {
            own,
            by_part,
            is_channel: parts.map(|part| part.name.starts_with("channel")).collect(),
        }
    }

    /// Adds where a request was while it was in the drive.
    fn add_stages(&self, request: u64, (from, to): (u64, u64), stages_ns: &mut StageTimes) {
        let mut reached = from;
        let own = self.own.get(&request).map_or(&[][..], Vec::as_slice);
        for activity in own.iter().filter(|a| a.end_ns > from && a.start_ns < to) {
            if activity.start_ns > reached {
                self.add_wait(
                    activity.part as usize,
                    (reached, activity.start_ns),
                    stages_ns,
                );
            }
            let until = activity.end_ns.min(to);
            let since = activity.start_ns.max(reached);
            stages_ns[stage_of(activity) as usize] += until.saturating_sub(since) as f64;
            reached = reached.max(until);
        }
        stages_ns[Stage::Rest as usize] += to.saturating_sub(reached) as f64;
    }

    /// Adds what a part did in the time in which a request waited for it.
    fn add_wait(&self, part: usize, (from, to): (u64, u64), stages_ns: &mut StageTimes) {
        let all = &self.by_part[part];
        let first = all.partition_point(|activity| activity.end_ns <= from);
        let mut reached = from;
        for activity in all[first..].iter().take_while(|a| a.start_ns < to) {
            let (since, until) = (activity.start_ns.max(reached), activity.end_ns.min(to));
            let stage = match activity.cause {
                Cause::Collection => Stage::Collection,
                Cause::Map => Stage::Map,
                Cause::Host if self.is_channel[part] => Stage::Channel,
                Cause::Host => Stage::Die,
            };
            stages_ns[stage as usize] += until.saturating_sub(since) as f64;
            stages_ns[Stage::Rest as usize] += since.saturating_sub(reached) as f64;
            reached = reached.max(until);
        }
        stages_ns[Stage::Rest as usize] += to.saturating_sub(reached) as f64;
    }
}

/// Where a request is while a part works for it.
fn stage_of(activity: &Activity) -> Stage {
    match (activity.cause, activity.work) {
        (Cause::Map, _) => Stage::Map,
        (Cause::Collection, _) => Stage::Collection,
        (Cause::Host, Work::Command | Work::DataIn | Work::DataOut) => Stage::Transfer,
        (Cause::Host, _) => Stage::Media,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{DrivePart, DriveTimeline};

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
            work: Work::Sense,
            cause,
            start_ns,
            end_ns,
            first_command: command.unwrap_or(0),
            commands: u32::from(command.is_some()),
        }
    }

    /// One request that goes straight through, and one that waits everywhere.
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
        assert_eq!(spent(Stage::Driver), 5.0);
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
    fn every_stay_says_what_it_is() {
        for stage in Stage::ALL {
            assert!(stage.meaning().ends_with('.'), "{stage:?}");
        }
    }
}
