//! Writes down what happens where over a window of a run, where somebody asked
//! for it.

use blklab_blk::{Nanos, Op, TraceEvent, TraceKind};
use blklab_stats::{DiskTimeline, RequestStep, StepKind, Timeline, Window};

use crate::cpu::Cpus;
use crate::disk::Disk;

/// A recording, under way or over.
pub(crate) struct Recording {
    window: Window,
    state: State,
    timeline: Timeline,
    events: Vec<TraceEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    Within,
    After,
}

impl Recording {
    pub(crate) fn new(window: Window) -> Recording {
        Recording {
            window,
            state: State::Before,
            timeline: Timeline {
                start_ns: window.start_ns,
                ..Timeline::default()
            },
            events: Vec::new(),
        }
    }

    fn end_ns(&self) -> u64 {
        self.window.start_ns.saturating_add(self.window.length_ns)
    }

    /// When it starts or stops.
    pub(crate) fn next_event(&self) -> Nanos {
        match self.state {
            State::Before => Nanos(self.window.start_ns),
            State::Within => Nanos(self.end_ns()),
            State::After => Nanos::MAX,
        }
    }

    /// Time passes to `now`, and nothing of that time has happened yet: starts
    /// and stops with the window, and takes in what was written down.
    pub(crate) fn step(&mut self, now: Nanos, disks: &mut [Disk], cpus: &mut Cpus) {
        if self.state == State::Before && now.0 >= self.window.start_ns {
            self.state = State::Within;
            cpus.record(true);
        }
        if self.state != State::Within {
            return;
        }
        for new in disks.iter_mut().skip(self.timeline.disks.len()) {
            new.record(true);
            self.timeline.disks.push(DiskTimeline {
                name: new.name.clone(),
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
        let of_disks = disks.map(|d| d.steps.len() + d.drive.activities.len());
        of_disks.sum::<usize>() + self.timeline.tasks.len()
    }

    fn take(&mut self, disks: &mut [Disk], cpus: &mut Cpus) {
        cpus.take_tasks(&mut self.timeline.tasks);
        for (disk, timeline) in disks.iter_mut().zip(&mut self.timeline.disks) {
            disk.take_record(&mut self.events, &mut timeline.drive);
            timeline
                .steps
                .extend(self.events.drain(..).filter_map(|event| step_of(&event)));
        }
    }

    fn stop(&mut self, end_ns: u64, disks: &mut [Disk], cpus: &mut Cpus) {
        self.state = State::After;
        self.timeline.end_ns = end_ns;
        cpus.record(false);
        disks.iter_mut().for_each(|disk| disk.record(false));
    }

    /// What was recorded; `None` where the run ended before the window began.
    pub(crate) fn finish(
        mut self,
        now: Nanos,
        disks: &mut [Disk],
        cpus: &mut Cpus,
    ) -> Option<Timeline> {
        if self.state == State::Within {
            self.take(disks, cpus);
            self.stop(now.0.min(self.end_ns()), disks, cpus);
        }
        self.timeline.cpus = cpus.count();
        (self.state == State::After).then_some(self.timeline)
    }
}

/// A tracepoint as a step of a request's way; `None` for what is about none.
fn step_of(event: &TraceEvent) -> Option<RequestStep> {
    let kind = match event.kind {
        TraceKind::GetRq => StepKind::Made,
        TraceKind::RqInsert => StepKind::Inserted,
        TraceKind::Ask(_) => StepKind::Asked,
        TraceKind::Dispatch => StepKind::Dispatched,
        TraceKind::DispatchNone => StepKind::NoneDispatched,
        TraceKind::RqIssue => StepKind::Issued,
        TraceKind::RqRequeue => StepKind::Requeued,
        TraceKind::RqMerge => StepKind::Merged,
        TraceKind::RqComplete(_) => StepKind::Completed,
        TraceKind::BioQueue
        | TraceKind::BioBackMerge
        | TraceKind::BioFrontMerge
        | TraceKind::Plug
        | TraceKind::Unplug(_) => return None,
    };
    Some(RequestStep {
        at_ns: event.at.0,
        kind,
        request: event.serial,
        op: match event.op {
            Op::Read => 'R',
            Op::Write | Op::WriteZeroes => 'W',
            Op::Discard => 'D',
            Op::Flush => 'F',
        },
        sector: event.sector.0,
        sectors: event.sectors,
        cpu: event.cpu as u32,
        submitter: event.submitter,
    })
}
