//! The events of a simulated run, as the kernel's tracepoints report them.

use blklab_blk::{BioFlags, IoStatus, Nanos, Op, Sector, TraceEvent, TraceKind};
use blklab_stats::{RequestStep, Results, StepKind, Timeline};
use blklab_workload::trace::TraceError;
use blklab_workload::trace::tracefs::{Dev, Event};

use super::Source;

/// The major number of modelled drives: that of `blkext`, whose minor numbers the kernel
/// assigns consecutively.
const MAJOR: u32 = 259;
/// The first drive.
pub(super) const DRIVE: Dev = Dev {
    major: MAJOR,
    minor: 0,
};
/// Longest name of a task, without its terminating null byte (`TASK_COMM_LEN`).
const COMM_CHARS: usize = 15;
/// The name of submitters that are not a job's process, such as write-back.
const KERNEL_THREAD: &str = "kworker";

/// The events of a simulated run.
pub struct RunEvents<'a> {
    timeline: &'a Timeline,
    drives: Vec<String>,
    /// The names of processes, by number.
    comms: Vec<String>,
    /// The drive and index of every recorded event, in order of time.
    order: Vec<(usize, usize)>,
}

impl<'a> RunEvents<'a> {
    /// Returns the recorded events of a run; `None` if nothing was recorded.
    pub fn of(results: &'a Results) -> Option<RunEvents<'a>> {
        let timeline = results.timeline.as_ref()?;
        let drives = timeline.disks.iter().map(|disk| {
            let name = disk.name.rsplit('/').next().unwrap_or_default();
            name.to_string()
        });
        let mut comms = Vec::new();
        for process in results.jobs.iter().flat_map(|job| &job.processes) {
            let number = process.process as usize;
            if comms.len() <= number {
                comms.resize(number + 1, KERNEL_THREAD.to_string());
            }
            let comm = process.job.chars().map(|c| match c.is_whitespace() {
                true => '_',
                false => c,
            });
            comms[number] = comm.take(COMM_CHARS).collect();
        }
        let disks = timeline.disks.iter().enumerate();
        let steps = disks.flat_map(|(disk, t)| (0..t.steps.len()).map(move |step| (disk, step)));
        let mut order: Vec<(usize, usize)> = steps.collect();
        order.sort_by_key(|(disk, step)| timeline.disks[*disk].steps[*step].at_ns);
        Some(RunEvents {
            timeline,
            drives: drives.collect(),
            comms,
            order,
        })
    }

    /// Returns the information beside the events.
    pub fn source(&self) -> Source<'_> {
        Source {
            drives: &self.drives,
            timeline: Some(self.timeline),
        }
    }

    /// Returns the events, in order of time.
    pub fn iter(&self) -> impl Iterator<Item = Result<Event<'_>, TraceError>> {
        self.order.iter().filter_map(|(disk, step)| {
            let step = &self.timeline.disks[*disk].steps[*step];
            let comm = self.comms.get(step.submitter as usize);
            let comm = comm.map_or(KERNEL_THREAD, String::as_str);
            let dev = Dev {
                major: MAJOR,
                minor: *disk as u32,
            };
            Event::of_model(&trace_event(step)?, dev, comm).map(Ok)
        })
    }
}

/// Returns the tracepoint of a recorded event. Process numbers start from 1 there, as 0
/// is the idle task.
fn trace_event(step: &RequestStep) -> Option<TraceEvent> {
    let kind = match step.kind {
        StepKind::Queued => TraceKind::BioQueue,
        StepKind::BackMerged => TraceKind::BioBackMerge,
        StepKind::FrontMerged => TraceKind::BioFrontMerge,
        StepKind::Plugged => TraceKind::Plug,
        StepKind::Unplugged(requests) => TraceKind::Unplug(requests),
        StepKind::ZoneHeld => TraceKind::ZonePlug,
        StepKind::Made => TraceKind::GetRq,
        StepKind::Inserted => TraceKind::RqInsert,
        StepKind::Issued => TraceKind::RqIssue,
        StepKind::Requeued => TraceKind::RqRequeue,
        StepKind::Merged => TraceKind::RqMerge,
        StepKind::Completed => TraceKind::RqComplete(IoStatus::of_errno(step.errno)),
        StepKind::Asked | StepKind::Dispatched | StepKind::NoneDispatched => return None,
    };
    Some(TraceEvent {
        at: Nanos(step.at_ns),
        kind,
        serial: step.request,
        op: match step.op {
            'R' => Op::Read,
            'D' => Op::Discard,
            'F' => Op::Flush,
            _ => Op::Write,
        },
        flags: BioFlags(step.flags),
        sector: Sector(step.sector),
        sectors: step.sectors,
        cpu: u16::try_from(step.cpu).unwrap_or(u16::MAX),
        submitter: step.submitter + 1,
    })
}
