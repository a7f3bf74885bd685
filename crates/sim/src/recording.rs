//! The timeline of a run: what requests, CPUs and drives did in a window of time.

use std::collections::HashMap;

use blklab_blk::{BioFlags, Nanos, TraceEvent, TraceKind};
use blklab_stats::{CallSpan, Detail, DiskTimeline, RequestStep, StepKind, Timeline, Window};

use crate::cpu::Cpus;
use crate::disk::{Disk, letter};

const _: () = assert!(RequestStep::PREFLUSH == BioFlags::PREFLUSH.0);

/// What is recorded of a run.
pub(crate) struct Recording {
    window: Window,
    state: WindowState,
    timeline: Timeline,
    events: Vec<TraceEvent>,
    /// The submissions of bios that are no requests yet, by what tells them apart.
    bios: HashMap<BioKey, RequestStep>,
}

/// Submitter, drive, first sector and operation of a bio.
type BioKey = (u32, usize, u64, char);

/// Where the run is in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowState {
    Before,
    Within,
    After,
}

impl Recording {
    pub(crate) fn new(window: Window) -> Recording {
        Recording {
            window,
            state: WindowState::Before,
            timeline: Timeline {
                start_ns: window.start_ns,
                ..Timeline::default()
            },
            events: Vec::new(),
            bios: HashMap::new(),
        }
    }

    fn end_ns(&self) -> u64 {
        self.window.start_ns.saturating_add(self.window.length_ns)
    }

    /// When it starts or stops.
    pub(crate) fn next_event(&self) -> Nanos {
        match self.state {
            WindowState::Before => Nanos(self.window.start_ns),
            WindowState::Within => Nanos(self.end_ns()),
            WindowState::After => Nanos::MAX,
        }
    }

    /// Takes in what was recorded before `now`, at which nothing has happened yet, and
    /// starts and stops with the window.
    pub(crate) fn step(&mut self, now: Nanos, disks: &mut [Disk], cpus: &mut Cpus) {
        if self.state == WindowState::Before && now.0 >= self.window.start_ns {
            self.state = WindowState::Within;
            cpus.record(true);
        }
        if self.state != WindowState::Within {
            return;
        }
        for new in disks.iter_mut().skip(self.timeline.disks.len()) {
            new.record(true, self.window.detail == Detail::Drives);
            self.timeline.disks.push(DiskTimeline {
                name: new.name.clone(),
                flushes_hold_others: new.flushes_hold_others(),
                // The drive numbers its commands from here on, these among them.
                steps: new.on_the_way(now),
                ..DiskTimeline::default()
            });
        }
        self.take(disks, cpus);
        if now.0 >= self.end_ns() {
            self.stop(self.end_ns(), disks, cpus);
        } else if self.entries() >= self.window.max_entries {
            self.timeline.cut = true;
            self.stop(now.0, disks, cpus);
        }
    }

    fn entries(&self) -> usize {
        let disks = self.timeline.disks.iter();
        let of_disks =
            disks.map(|d| d.steps.len() + d.drive.activities.len() + d.drive.passages.len());
        let of_cpus = self.timeline.tasks.len() + self.timeline.ios.len();
        of_disks.sum::<usize>() + of_cpus + self.timeline.calls.len()
    }

    /// A program's call has returned. One that began before the window is within it in part.
    pub(crate) fn call_returned(&mut self, call: CallSpan) {
        if self.state == WindowState::Within {
            self.timeline.calls.push(call);
        }
    }

    fn take(&mut self, disks: &mut [Disk], cpus: &mut Cpus) {
        cpus.take_log(&mut self.timeline);
        let recorded = disks.iter_mut().zip(&mut self.timeline.disks);
        for (at, (disk, timeline)) in recorded.enumerate() {
            disk.take_record(&mut self.events, &mut timeline.drive);
            for event in self.events.drain(..) {
                let step = step_of(&event);
                let key = (step.submitter, at, step.sector, step.op);
                let queued = match step.kind {
                    StepKind::Queued => {
                        self.bios.insert(key, step);
                        continue;
                    }
                    StepKind::Made | StepKind::BackMerged | StepKind::FrontMerged => {
                        self.bios.remove(&key)
                    }
                    _ => None,
                };
                if self.window.detail == Detail::Drives && is_of_bio(step.kind) {
                    continue;
                }
                timeline.steps.extend(queued.map(|queued| RequestStep {
                    request: step.request,
                    ..queued
                }));
                timeline.steps.push(step);
            }
        }
    }

    fn stop(&mut self, end_ns: u64, disks: &mut [Disk], cpus: &mut Cpus) {
        self.state = WindowState::After;
        self.timeline.end_ns = end_ns;
        cpus.record(false);
        disks.iter_mut().for_each(|disk| disk.record(false, false));
    }

    /// What was recorded; `None` where the run ended before the window began.
    pub(crate) fn finish(
        mut self,
        now: Nanos,
        disks: &mut [Disk],
        cpus: &mut Cpus,
    ) -> Option<Timeline> {
        if self.state == WindowState::Within {
            self.take(disks, cpus);
            self.stop(now.0.min(self.end_ns()), disks, cpus);
        }
        let end_ns = self.timeline.end_ns;
        for disk in &mut self.timeline.disks {
            put_in_order(&mut disk.steps);
            place_bios(&mut disk.steps);
            disk.steps.sort_by_key(|step| step.at_ns);
            disk.steps.retain(|step| step.at_ns <= end_ns);
        }
        self.timeline.cpus = cpus.count();
        (self.state == WindowState::After).then_some(self.timeline)
    }
}

/// Puts the steps of each request in order. The time of a step is when its CPU was
/// free for it, and another CPU may have been free for the next step before. The time
/// of the later step holds, as the drive had the request then.
fn put_in_order(steps: &mut [RequestStep]) {
    let mut next_ns: HashMap<u64, u64> = HashMap::new();
    let of_requests = steps.iter_mut().filter(|step| step.is_of_request());
    for step in of_requests.rev() {
        let next_ns = next_ns.entry(step.request).or_insert(step.at_ns);
        *next_ns = step.at_ns.min(*next_ns);
        step.at_ns = *next_ns;
    }
}

/// Puts the steps of bios and plugs on their submitter's CPU, which only its requests tell.
fn place_bios(steps: &mut [RequestStep]) {
    let made = steps.iter().filter(|step| step.kind == StepKind::Made);
    let cpus: HashMap<u32, u32> = made.map(|step| (step.submitter, step.cpu)).collect();
    for step in steps.iter_mut() {
        if is_of_bio(step.kind) {
            step.cpu = cpus.get(&step.submitter).copied().unwrap_or(step.cpu);
        }
    }
}

fn is_of_bio(kind: StepKind) -> bool {
    matches!(
        kind,
        StepKind::Queued
            | StepKind::BackMerged
            | StepKind::FrontMerged
            | StepKind::Plugged
            | StepKind::ZoneHeld
            | StepKind::Unplugged(_)
    )
}

/// The step that a tracepoint is about.
fn step_of(event: &TraceEvent) -> RequestStep {
    let mut errno = 0;
    let kind = match event.kind {
        TraceKind::BioQueue => StepKind::Queued,
        TraceKind::BioBackMerge => StepKind::BackMerged,
        TraceKind::BioFrontMerge => StepKind::FrontMerged,
        TraceKind::Plug => StepKind::Plugged,
        TraceKind::Unplug(requests) => StepKind::Unplugged(requests),
        TraceKind::ZonePlug => StepKind::ZoneHeld,
        TraceKind::GetRq => StepKind::Made,
        TraceKind::RqInsert => StepKind::Inserted,
        TraceKind::Ask(_) => StepKind::Asked,
        TraceKind::Dispatch => StepKind::Dispatched,
        TraceKind::DispatchNone => StepKind::NoneDispatched,
        TraceKind::RqIssue => StepKind::Issued,
        TraceKind::RqRequeue => StepKind::Requeued,
        TraceKind::RqMerge => StepKind::Merged,
        TraceKind::RqComplete(status) => {
            errno = status.errno();
            StepKind::Completed
        }
    };
    RequestStep {
        at_ns: event.at.0,
        kind,
        request: event.serial,
        op: letter(event.op),
        flags: event.flags.0,
        sector: event.sector.0,
        sectors: event.sectors,
        cpu: u32::from(event.cpu),
        submitter: event.submitter,
        errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_not_later_than_the_next_of_its_request() {
        let step = |request, kind, at_ns| RequestStep {
            at_ns,
            kind,
            request,
            op: 'R',
            flags: 0,
            sector: 0,
            sectors: 8,
            cpu: 0,
            submitter: 0,
            errno: 0,
        };
        let mut steps = [
            step(1, StepKind::Made, 10),
            step(2, StepKind::Made, 90),
            step(1, StepKind::Inserted, 30),
            step(1, StepKind::Dispatched, 20),
            step(1, StepKind::Issued, 25),
            step(2, StepKind::Issued, 100),
        ];
        put_in_order(&mut steps);
        let times: Vec<u64> = steps.iter().map(|step| step.at_ns).collect();
        assert_eq!(times, [10, 90, 20, 20, 25, 100]);
    }
}
