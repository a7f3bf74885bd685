//! The requests of one drive, put together from the steps of its timeline.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::timeline::{
    Activity, Cause, DiskTimeline, DriveWork, Passage, RequestStep, StepKind, Through,
};
use crate::traced_cpu::{CpuRecord, CpuShare};
use crate::traced_request::{Stage, StageTimes, TracedRequest};

/// Returns the requests of a drive that were recorded from start to end.
pub(crate) fn of_disk(
    disk: usize,
    timeline: &DiskTimeline,
    cpus: &CpuRecord<'_>,
) -> Vec<TracedRequest> {
    let mut reader = Reader {
        disk,
        cpus,
        drive: Drive::new(timeline),
        flushes: Flushes {
            commands: Vec::new(),
            hold_others: timeline.flushes_hold_others,
        },
        open: BTreeMap::new(),
        in_drive: 0,
        traced: Vec::new(),
        writes: BTreeMap::new(),
    };
    let of_requests = timeline.steps.iter().filter(|step| step.is_of_request());
    of_requests.for_each(|step| reader.take(step));
    let mut traced = reader.traced;
    traced.sort_by_key(|request| request.completed_ns);
    traced
}

/// The time of the last event of each kind of a request.
#[derive(Clone, Copy, Default)]
struct Steps {
    queued: Option<u64>,
    made: Option<u64>,
    inserted: Option<u64>,
    dispatched: Option<u64>,
    issued: Option<u64>,
    /// Whether the driver gave it back.
    is_requeued: bool,
    /// Requests in the drive when it was issued.
    depth: u32,
}

/// What is known of a drive's requests at one step.
struct Reader<'a> {
    /// The drive, by its index.
    disk: usize,
    cpus: &'a CpuRecord<'a>,
    drive: Drive<'a>,
    flushes: Flushes,
    /// Requests that have not ended, with their first step.
    open: BTreeMap<u64, (RequestStep, Steps)>,
    /// Requests in the drive.
    in_drive: u32,
    traced: Vec<TracedRequest>,
    /// Where the writes are in `traced`, by number.
    writes: BTreeMap<u64, usize>,
}

impl Reader<'_> {
    fn take(&mut self, step: &RequestStep) {
        if step.kind == StepKind::Completed {
            return self.end(step);
        }
        let entry = self.open.entry(step.request);
        let (_, steps) = entry.or_insert_with(|| (*step, Steps::default()));
        let now = Some(step.at_ns);
        match step.kind {
            StepKind::Queued => steps.queued = now,
            StepKind::Made => steps.made = now,
            StepKind::Inserted => steps.inserted = now,
            StepKind::Dispatched => steps.dispatched = now,
            StepKind::Issued => {
                self.in_drive += 1;
                (steps.issued, steps.depth) = (now, self.in_drive);
            }
            StepKind::Requeued => {
                self.in_drive -= u32::from(steps.issued.take().is_some());
                steps.is_requeued = true;
            }
            StepKind::Merged => {
                self.open.remove(&step.request);
            }
            _ => {}
        }
    }

    fn end(&mut self, last: &RequestStep) {
        let Some((first, steps)) = self.open.remove(&last.request) else {
            return self.end_after_flush(last);
        };
        self.in_drive -= u32::from(steps.issued.is_some());
        match (steps.made, steps.issued, last.op) {
            (Some(made), None, _) if is_flush(&first) => {
                self.end_flush((&first, last), made, &steps)
            }
            (Some(made), Some(issued), _) => {
                self.end_request((&first, last), (made, issued), &steps)
            }
            (None, Some(issued_ns), 'F') => self.flushes.commands.push(FlushCommand {
                begun_ns: first.at_ns,
                issued_ns,
                ended_ns: last.at_ns,
                depth: steps.depth,
            }),
            _ => {}
        }
    }

    fn end_request(
        &mut self,
        (first, last): (&RequestStep, &RequestStep),
        (made, issued): (u64, u64),
        steps: &Steps,
    ) {
        let submitted = steps.queued.unwrap_or(made);
        let mut stages_ns = StageTimes::default();
        let dispatched = steps.dispatched.unwrap_or(issued);
        // Without a scheduler, a request may be issued directly.
        let inserted = steps.inserted.unwrap_or(dispatched);
        // A write with a flush before its data is in no plug.
        let plugged = match first.flags & RequestStep::PREFLUSH {
            0 => Stage::Plug,
            _ => Stage::Flush,
        };
        let mut reached = submitted;
        for (stage, until) in [
            (Stage::Tag, made),
            (plugged, inserted),
            (Stage::Scheduler, dispatched),
            (Stage::Driver, issued),
        ] {
            let span = (reached, until.max(reached));
            let held_ns = self.flushes.hold_ns(reached, until) as f64;
            let rest_ns = (span.1 - span.0) as f64 - held_ns;
            let share = self.cpu_share(stage, first, steps.is_requeued, span);
            let lock_ns = share.lock_ns.min(rest_ns);
            let work_ns = share.work_ns.min(rest_ns - lock_ns);
            stages_ns[Stage::Flush as usize] += held_ns;
            stages_ns[Stage::Lock as usize] += lock_ns;
            stages_ns[Stage::Cpu as usize] += work_ns;
            stages_ns[stage as usize] += rest_ns - lock_ns - work_ns;
            reached = span.1;
        }
        let in_drive = (reached, last.at_ns);
        self.drive
            .add_stages(first.request, in_drive, &mut stages_ns);
        if last.op == 'W' {
            self.writes.insert(first.request, self.traced.len());
            // Of a drive without parts nobody knows what it does.
            if !self.drive.by_part.is_empty() {
                let rest_ns = core::mem::take(&mut stages_ns[Stage::Rest as usize]);
                stages_ns[Stage::Cache as usize] += rest_ns;
            }
        }
        self.traced.push(TracedRequest {
            inserted_ns: steps.inserted,
            dispatched_ns: steps.dispatched,
            issued_ns: issued,
            depth: steps.depth,
            stages_ns,
            ..self.traced_request(first, last, submitted)
        });
    }

    /// How long of a stage before the drive a CPU worked for the request, or waited for the lock
    /// on its behalf.
    fn cpu_share(
        &self,
        stage: Stage,
        first: &RequestStep,
        is_requeued: bool,
        span: (u64, u64),
    ) -> CpuShare {
        match stage {
            // Its program sleeps for a tag, and its CPU does other things then.
            Stage::Tag => self.cpus.of_maker((self.disk as u32, first.request), span),
            // A scheduler holds it while CPUs do other things; the call that inserts it may
            // wait for the lock to dispatch it.
            Stage::Scheduler => self.cpus.of_task_at_start(first.cpu, span).lock_only(),
            Stage::Driver if is_requeued => CpuShare::default(),
            Stage::Driver => {
                let lock_ns = self.cpus.during(first.cpu, span).lock_ns;
                CpuShare {
                    lock_ns,
                    work_ns: (span.1 - span.0) as f64 - lock_ns,
                }
            }
            _ => self.cpus.during(first.cpu, span).lock_only(),
        }
    }

    /// A write whose data had already ended has ended, too, with the flush after it.
    fn end_after_flush(&mut self, last: &RequestStep) {
        if let Some(at) = self.writes.remove(&last.request) {
            let write = &mut self.traced[at];
            let flush_ns = last.at_ns - write.completed_ns;
            write.stages_ns[Stage::Flush as usize] += flush_ns as f64;
            (write.completed_ns, write.io_end_ns) = (last.at_ns, last.at_ns);
        }
    }

    /// A flush without data has ended with the command that served it. A drive without a
    /// volatile cache needs none.
    fn end_flush(&mut self, (first, last): (&RequestStep, &RequestStep), made: u64, steps: &Steps) {
        let submitted = steps.queued.unwrap_or(made);
        let mut stages_ns = StageTimes::default();
        stages_ns[Stage::Tag as usize] = made.saturating_sub(submitted) as f64;
        let command = self.flushes.last_since(made);
        let issued = command.map_or(made, |command| command.issued_ns.max(made));
        stages_ns[Stage::Flush as usize] = (issued - made) as f64;
        let depth = command.map_or(0, |command| command.depth);
        let in_drive = (issued, last.at_ns);
        self.drive.add_stages_of_flush(in_drive, &mut stages_ns);
        self.traced.push(TracedRequest {
            op: 'F',
            issued_ns: issued,
            depth,
            stages_ns,
            ..self.traced_request(first, last, submitted)
        });
    }

    /// A request with what its first and its last step say of it.
    fn traced_request(
        &self,
        first: &RequestStep,
        last: &RequestStep,
        submitted_ns: u64,
    ) -> TracedRequest {
        TracedRequest {
            disk: self.disk,
            request: first.request,
            op: first.op,
            sector: last.sector,
            sectors: last.sectors,
            cpu: first.cpu,
            submitter: first.submitter,
            submitted_ns,
            inserted_ns: None,
            dispatched_ns: None,
            issued_ns: submitted_ns,
            completed_ns: last.at_ns,
            depth: 0,
            io_start_ns: submitted_ns,
            io_end_ns: last.at_ns,
            stages_ns: StageTimes::default(),
        }
    }
}

/// Whether a request is a flush without data, which is a write of nothing with `PREFLUSH`.
fn is_flush(first: &RequestStep) -> bool {
    first.sectors == 0 && first.flags & RequestStep::PREFLUSH != 0
}

/// A flush command, which the block layer makes for all flushes that were asked for before it
/// (`block/blk-flush.c`).
struct FlushCommand {
    /// When the driver was first given it.
    begun_ns: u64,
    /// When the drive took it.
    issued_ns: u64,
    ended_ns: u64,
    /// Requests in the drive when it took it.
    depth: u32,
}

/// The flush commands of a drive that have ended.
struct Flushes {
    /// In the order of their ends.
    commands: Vec<FlushCommand>,
    /// Whether the drive takes no other command while it waits for a flush to begin or end.
    hold_others: bool,
}

impl Flushes {
    /// The last command, if it ended after this time.
    fn last_since(&self, from_ns: u64) -> Option<&FlushCommand> {
        let last = self.commands.last();
        last.filter(|command| command.ended_ns >= from_ns)
    }

    /// For how much of a wait a flush kept the drive from other commands.
    fn hold_ns(&self, from: u64, to: u64) -> u64 {
        if !self.hold_others {
            return 0;
        }
        let first = self
            .commands
            .partition_point(|command| command.ended_ns <= from);
        let all = self.commands[first..].iter();
        let shared = all.map(|command| {
            command
                .ended_ns
                .min(to)
                .saturating_sub(command.begun_ns.max(from))
        });
        shared.sum()
    }
}

/// What a drive did for a request: the work of a part, or a way through what serves several at
/// once.
#[derive(Clone, Copy)]
enum Own<'a> {
    Work(&'a Activity),
    Passage(&'a Passage),
}

impl Own<'_> {
    fn span_ns(&self) -> (u64, u64) {
        match self {
            Own::Work(activity) => (activity.start_ns, activity.end_ns),
            Own::Passage(passage) => (passage.from_ns, passage.to_ns),
        }
    }

    fn stage(&self) -> Stage {
        match self {
            Own::Work(activity) => stage_of(activity),
            Own::Passage(passage) => match passage.through {
                Through::Controller => Stage::Controller,
                Through::Link => Stage::Link,
            },
        }
    }
}

/// The work of a drive's parts, by request and by part.
struct Drive<'a> {
    own: BTreeMap<u64, Vec<Own<'a>>>,
    by_part: Vec<Vec<&'a Activity>>,
    is_channel: Vec<bool>,
    /// The part that contains each.
    within: Vec<Option<u32>>,
}

impl<'a> Drive<'a> {
    fn new(disk: &'a DiskTimeline) -> Drive<'a> {
        let requests = disk.requests_by_command();
        let mut own: BTreeMap<u64, Vec<Own<'_>>> = BTreeMap::new();
        let mut by_part: Vec<Vec<&Activity>> = vec![Vec::new(); disk.drive.parts.len()];
        let mut add = |command: u32, of: Own<'a>| {
            if let Some(request) = requests.get(command as usize) {
                own.entry(*request).or_default().push(of);
            }
        };
        for activity in &disk.drive.activities {
            by_part[activity.part as usize].push(activity);
            for command in disk.drive.commands_of(activity) {
                add(*command, Own::Work(activity));
            }
        }
        for passage in &disk.drive.passages {
            add(passage.command, Own::Passage(passage));
        }
        own.values_mut()
            .for_each(|list| list.sort_by_key(Own::span_ns));
        let parts = by_part.iter_mut();
        parts.for_each(|list| list.sort_by_key(|activity| (activity.start_ns, activity.end_ns)));
        let parts = || disk.drive.parts.iter();
        let is_channel = parts().map(|part| part.name.starts_with("channel"));
        Drive {
            own,
            by_part,
            is_channel: is_channel.collect(),
            within: parts().map(|part| part.within).collect(),
        }
    }

    /// Adds a request's times in the stages inside the drive.
    fn add_stages(&self, request: u64, (from, to): (u64, u64), stages_ns: &mut StageTimes) {
        let mut reached = from;
        let own = self.own.get(&request).map_or(&[][..], Vec::as_slice);
        for (at, of) in own.iter().enumerate() {
            let (start_ns, end_ns) = of.span_ns();
            if end_ns <= from || start_ns >= to {
                continue;
            }
            if start_ns > reached {
                self.add_gap(&own[at..], (reached, start_ns), stages_ns);
            }
            let until = end_ns.min(to);
            let since = start_ns.max(reached);
            stages_ns[of.stage() as usize] += until.saturating_sub(since) as f64;
            reached = reached.max(until);
        }
        stages_ns[Stage::Rest as usize] += to.saturating_sub(reached) as f64;
    }

    /// Adds the time before what a drive did next for a request, which is the first of `own`.
    fn add_gap(&self, own: &[Own<'_>], (from, to): (u64, u64), stages_ns: &mut StageTimes) {
        let gap_ns = (to - from) as f64;
        match own.first() {
            Some(Own::Work(activity)) => match self.die_before(activity, own) {
                Some(die) => {
                    self.add_wait(&[die, activity.part as usize], (from, to), stages_ns);
                }
                None => self.add_wait(&[activity.part as usize], (from, to), stages_ns),
            },
            // The controller has not come to it yet.
            Some(Own::Passage(passage)) if passage.through == Through::Controller => {
                stages_ns[Stage::Controller as usize] += gap_ns;
            }
            Some(Own::Passage(_)) | None => stages_ns[Stage::Rest as usize] += gap_ns,
        }
    }

    /// The die that a channel takes a command to, for which the command waits, too.
    fn die_before(&self, activity: &Activity, own: &[Own<'_>]) -> Option<usize> {
        let is_to_die = matches!(activity.work, DriveWork::Command | DriveWork::DataIn);
        let mut parts = own.iter().filter_map(|of| match of {
            Own::Work(next) => Some(next.part as usize),
            Own::Passage(_) => None,
        });
        let is_within = |part: &usize| self.within[*part] == Some(activity.part);
        parts.find(is_within).filter(|_| is_to_die)
    }

    /// Splits the time that a request waited for parts by what the first of them did meanwhile, and
    /// where that did nothing, the next.
    fn add_wait(&self, parts: &[usize], (from, to): (u64, u64), stages_ns: &mut StageTimes) {
        let Some((part, others)) = parts.split_first() else {
            stages_ns[Stage::Rest as usize] += (to - from) as f64;
            return;
        };
        let mut reached = from;
        for activity in within(&self.by_part[*part], (from, to)) {
            let (since, until) = (activity.start_ns.max(reached), activity.end_ns.min(to));
            let stage = match activity.cause {
                Cause::Collection => Stage::Collection,
                Cause::Map => Stage::Map,
                Cause::Host if self.is_channel[*part] => Stage::Channel,
                Cause::Host => Stage::Die,
            };
            if since > reached {
                self.add_wait(others, (reached, since), stages_ns);
            }
            stages_ns[stage as usize] += until.saturating_sub(since) as f64;
            reached = reached.max(until);
        }
        if to > reached {
            self.add_wait(others, (reached, to), stages_ns);
        }
    }

    /// Adds a flush's times inside the drive. As long as any part works for the host, what the
    /// cache holds is on its way to the medium; what other work adds to that comes next.
    fn add_stages_of_flush(&self, (from, to): (u64, u64), stages_ns: &mut StageTimes) {
        let busy_ns = |causes: &[Cause]| {
            let mut spans: Vec<(u64, u64)> = Vec::new();
            for all in &self.by_part {
                let wanted = within(all, (from, to)).filter(|a| causes.contains(&a.cause));
                spans.extend(wanted.map(|a| (a.start_ns.max(from), a.end_ns.min(to))));
            }
            covered_ns(spans)
        };
        let causes = [Cause::Host, Cause::Map, Cause::Collection];
        let stages = [Stage::Media, Stage::Map, Stage::Collection];
        let mut counted_ns = 0;
        for (at, stage) in stages.into_iter().enumerate() {
            let busy_ns = busy_ns(&causes[..=at]);
            stages_ns[stage as usize] += (busy_ns - counted_ns) as f64;
            counted_ns = busy_ns;
        }
        stages_ns[Stage::Rest as usize] += (to - from - counted_ns) as f64;
    }
}

/// The work of one part, in order, that falls into a time at least in part.
fn within<'w, 'a>(
    all: &'w [&'a Activity],
    (from, to): (u64, u64),
) -> impl Iterator<Item = &'w &'a Activity> {
    let first = all.partition_point(|activity| activity.end_ns <= from);
    all[first..].iter().take_while(move |a| a.start_ns < to)
}

/// The time that spans cover, of which some may overlap.
fn covered_ns(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut reached, mut covered_ns) = (0, 0);
    for (from, to) in spans {
        covered_ns += to.saturating_sub(from.max(reached));
        reached = reached.max(to);
    }
    covered_ns
}

/// Returns the stage of a request while a part works for it.
fn stage_of(activity: &Activity) -> Stage {
    match (activity.cause, activity.work) {
        (Cause::Map, _) => Stage::Map,
        (Cause::Collection, _) => Stage::Collection,
        (Cause::Host, DriveWork::Command | DriveWork::DataIn | DriveWork::DataOut) => {
            Stage::Transfer
        }
        (Cause::Host, _) => Stage::Media,
    }
}
