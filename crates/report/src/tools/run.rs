//! The events of a simulated run, as the kernel's tracepoints report them.

use blklab_blk::{BioFlags, IoStatus, Nanos, Op, Sector, TraceEvent, TraceKind};
use blklab_stats::{CpuWork, RequestStep, Results, StepKind, Timeline};
use blklab_workload::trace::TraceError;
use blklab_workload::trace::tracefs::{CpuStat, Dev, Event};

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
/// The interval of mpstat.
const MARKS_NS: u64 = 1_000_000_000;

/// The events of a simulated run.
pub struct RunEvents<'a> {
    timeline: &'a Timeline,
    drives: Vec<String>,
    /// The names of processes, by number.
    comms: Vec<String>,
    /// The drive and index of every recorded event, in order of time.
    order: Vec<(usize, usize)>,
    cpu_marks: Vec<CpuMark>,
}

/// A CPU's times at a moment, as a recording of a kernel has them.
struct CpuMark {
    at_ns: u64,
    text: String,
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
            cpu_marks: cpu_marks(timeline),
        })
    }

    /// Returns the information beside the events.
    pub fn source(&self) -> Source<'_> {
        Source {
            drives: &self.drives,
            cpus: Some(self.timeline.cpus),
        }
    }

    /// Returns the events, in order of time; a mark comes after what it ends.
    pub fn iter(&self) -> impl Iterator<Item = Result<Event<'_>, TraceError>> {
        let mut steps = self.order.iter().filter_map(|at| self.step(*at)).peekable();
        let mut marks = self.cpu_marks.iter().peekable();
        std::iter::from_fn(move || {
            let at_ns = marks.peek().map_or(u64::MAX, |mark| mark.at_ns);
            let step = steps.next_if(|step| step.at_ns <= at_ns);
            step.or_else(|| marks.next().map(CpuMark::event)).map(Ok)
        })
    }

    fn step(&self, (disk, step): (usize, usize)) -> Option<Event<'_>> {
        let step = &self.timeline.disks[disk].steps[step];
        let comm = self.comms.get(step.submitter as usize);
        let comm = comm.map_or(KERNEL_THREAD, String::as_str);
        let dev = Dev {
            major: MAJOR,
            minor: disk as u32,
        };
        Event::of_model(&trace_event(step)?, dev, comm)
    }
}

impl CpuMark {
    fn event(&self) -> Event<'_> {
        Event::mark(self.at_ns, ("<idle>", 0), &self.text)
    }
}

/// Returns marks at the start of the recording, after each second, and at its end; none if CPUs
/// cost nothing.
fn cpu_marks(timeline: &Timeline) -> Vec<CpuMark> {
    let (start_ns, end_ns) = (timeline.start_ns, timeline.end_ns);
    if timeline.tasks.is_empty() || end_ns <= start_ns {
        return Vec::new();
    }
    let seconds = (end_ns - start_ns).div_ceil(MARKS_NS) as usize;
    let moment = |second: usize| end_ns.min(start_ns + second as u64 * MARKS_NS);
    // The busy times of each CPU in each second, by column of `/proc/stat`.
    let mut busy = vec![vec![[0; 10]; timeline.cpus as usize]; seconds];
    for task in &timeline.tasks {
        let (from, to) = (task.start_ns.max(start_ns), task.end_ns.min(end_ns));
        let mut at = from;
        while at < to {
            let second = ((at - start_ns) / MARKS_NS) as usize;
            let until = to.min(moment(second + 1));
            if let Some(times) = busy[second].get_mut(task.cpu as usize) {
                times[column(task.work)] += until - at;
            }
            at = until;
        }
    }
    let mut stats: Vec<CpuStat> = (0..timeline.cpus)
        .map(|cpu| CpuStat { cpu, ns: [0; 10] })
        .collect();
    let mut marks = Vec::new();
    mark(&mut marks, start_ns, &stats);
    for (second, times) in busy.iter().enumerate() {
        let span_ns = moment(second + 1) - moment(second);
        for (stat, busy_ns) in stats.iter_mut().zip(times) {
            stat.ns[IDLE] += span_ns.saturating_sub(busy_ns.iter().sum());
            let columns = stat.ns.iter_mut().zip(busy_ns);
            columns.for_each(|(sum, ns)| *sum += ns);
        }
        mark(&mut marks, moment(second + 1), &stats);
    }
    marks
}

fn mark(marks: &mut Vec<CpuMark>, at_ns: u64, stats: &[CpuStat]) {
    marks.extend(stats.iter().map(|stat| CpuMark {
        at_ns,
        text: stat.to_string(),
    }));
}

/// The column of idle time in `/proc/stat`.
const IDLE: usize = 3;

/// The column of a kind of work there.
fn column(work: CpuWork) -> usize {
    match work {
        CpuWork::Program => 0,
        CpuWork::Kernel | CpuWork::Dispatch => 2,
        CpuWork::Interrupt => 5,
        CpuWork::SoftInterrupt => 6,
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

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_stats::CpuTask;

    #[test]
    fn a_task_counts_in_the_seconds_that_it_runs_in() {
        let task = |cpu, work, start_ns, end_ns| CpuTask {
            cpu,
            work,
            process: None,
            start_ns,
            end_ns,
            disk: 0,
            first_request: 0,
            requests: 0,
            lock_ns: 0,
        };
        let timeline = Timeline {
            end_ns: MARKS_NS * 3 / 2,
            cpus: 2,
            tasks: vec![
                task(0, CpuWork::Program, 500_000_000, 1_250_000_000),
                task(1, CpuWork::Interrupt, 0, 100_000_000),
            ],
            ..Timeline::default()
        };
        let marks = cpu_marks(&timeline);
        let of: Vec<(u64, &str)> = { marks.iter() }
            .map(|mark| (mark.at_ns, mark.text.as_str()))
            .collect();
        let zero = "0 0 0 0 0 0 0 0 0 0";
        assert_eq!(
            of,
            [
                (0, &*format!("cpu0 {zero}")),
                (0, &*format!("cpu1 {zero}")),
                (1_000_000_000, "cpu0 50 0 0 50 0 0 0 0 0 0"),
                (1_000_000_000, "cpu1 0 0 0 90 0 10 0 0 0 0"),
                (1_500_000_000, "cpu0 75 0 0 75 0 0 0 0 0 0"),
                (1_500_000_000, "cpu1 0 0 0 140 0 10 0 0 0 0"),
            ]
        );
    }
}
