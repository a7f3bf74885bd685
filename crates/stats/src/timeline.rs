//! `Timeline`: the events of CPUs, requests and drives over a window of a run.

use std::collections::{BTreeMap, BTreeSet};

/// The part of a run to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where it begins, from the run's start on.
    pub start_ns: u64,
    /// How long it is.
    pub length_ns: u64,
    /// Recording ends early at this number of entries.
    pub max_entries: usize,
    /// What is recorded besides requests.
    pub detail: Detail,
}

/// What is recorded besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What happens inside the drives.
    Drives,
    /// Bios that join requests, and plugs.
    Bios,
}

/// The events recorded over a window of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Where the window begins, from the run's start on.
    pub start_ns: u64,
    /// When recording ended: with the window, with the run, or at the most entries.
    pub end_ns: u64,
    /// It ended before the window did, at the most entries.
    pub cut: bool,
    /// The number of CPUs of the machine.
    pub cpus: u32,
    /// The work of CPUs; empty where CPUs cost nothing.
    pub tasks: Vec<CpuTask>,
    /// One entry a drive.
    pub disks: Vec<DiskTimeline>,
}

/// A kind of work of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuWork {
    /// The program itself.
    Program,
    /// A system call.
    Kernel,
    /// kblockd, or another task that runs a queue.
    Dispatch,
    /// An interrupt that completes requests.
    Interrupt,
    /// A softirq that completes requests.
    SoftInterrupt,
}

/// Work of a CPU without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTask {
    /// Which CPU.
    pub cpu: u32,
    /// The kind of work.
    pub work: CpuWork,
    /// The process that it was for, if any.
    pub process: Option<u32>,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The drive of its requests.
    pub disk: u32,
    /// The first request that it made or completed.
    pub first_request: u64,
    /// The number of these requests, which are numbered one after the other.
    pub requests: u32,
}

/// The events of a drive and its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTimeline {
    /// The `filename` it stands for.
    pub name: String,
    /// What happened to requests, in order of time.
    pub steps: Vec<RequestStep>,
    /// What happened inside the drive.
    pub drive: DriveTimeline,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A bio was submitted; without a request if the bio was merged.
    Queued,
    /// A bio was merged into the end of a request; without a request of its own.
    BackMerged,
    /// A bio was merged into the start of a request; without a request of its own.
    FrontMerged,
    /// The submitter plugged its queue; without a request.
    Plugged,
    /// The submitter unplugged its queue with this many requests; without a request.
    Unplugged(u32),
    /// The request was made from a bio.
    Made,
    /// It was inserted into the scheduler, or into a software queue if there is none.
    Inserted,
    /// The scheduler was asked to dispatch; without a request.
    Asked,
    /// The scheduler dispatched it.
    Dispatched,
    /// The scheduler dispatched nothing; without a request.
    NoneDispatched,
    /// The driver took it.
    Issued,
    /// The driver gave it back.
    Requeued,
    /// It was merged into another.
    Merged,
    /// It ended.
    Completed,
}

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStep {
    /// When.
    pub at_ns: u64,
    /// What happened.
    pub kind: StepKind,
    /// The request's number on this queue, which is never used again;
    /// [`RequestStep::NO_REQUEST`] if it concerns none.
    pub request: u64,
    /// Its operation: `R`, `W`, `D` or `F`, as in blkparse.
    pub op: char,
    /// The bits of `BioFlags` in `blk`.
    pub flags: u16,
    /// The first sector.
    pub sector: u64,
    /// The number of sectors.
    pub sectors: u32,
    /// The CPU whose software queue it belongs to.
    pub cpu: u32,
    /// The process that submitted it.
    pub submitter: u32,
    /// The errno that it ended with; 0 for success and before the end.
    pub errno: i32,
}

impl RequestStep {
    /// The number of a step that concerns no request.
    pub const NO_REQUEST: u64 = u64::MAX;

    /// Whether it concerns a request.
    pub fn is_of_request(&self) -> bool {
        self.request != RequestStep::NO_REQUEST
    }
}

/// What happened inside a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveTimeline {
    /// Its parts, each after the part that it belongs to.
    pub parts: Vec<DrivePart>,
    /// The work of its parts, in the order in which it ended. That of one part does not
    /// overlap.
    pub activities: Vec<Activity>,
    /// The commands of the activities, by their [`Activity::first_command`].
    pub commands: Vec<u32>,
}

/// A part of a drive that does one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrivePart {
    /// Its name: `channel 3`, `die 17`, `arm`.
    pub name: String,
    /// The part it belongs to.
    pub within: Option<u32>,
}

/// A kind of work of a part of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveWork {
    /// A command crosses the channel.
    Command,
    /// A command with its data crosses the channel.
    DataIn,
    /// Data read crosses the channel.
    DataOut,
    /// The array reads a page.
    Sense,
    /// The array programs a page.
    Program,
    /// The array erases a block.
    Erase,
    /// The arm moves.
    Seek,
    /// The heads wait for their sector.
    Rotate,
    /// Data passes under the heads.
    Transfer,
}

impl DriveWork {
    /// Its name in timelines.
    pub const fn name(self) -> &'static str {
        match self {
            DriveWork::Command => "command",
            DriveWork::DataIn => "data in",
            DriveWork::DataOut => "data out",
            DriveWork::Sense => "read sense",
            DriveWork::Program => "program",
            DriveWork::Erase => "erase",
            DriveWork::Seek => "seek",
            DriveWork::Rotate => "rotation",
            DriveWork::Transfer => "transfer",
        }
    }
}

/// Why a part of a drive works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A command of the host.
    Host,
    /// Garbage collection.
    Collection,
    /// Reading or writing the drive's map.
    Map,
}

/// Work of a part of a drive without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The part, by its index in [`DriveTimeline::parts`].
    pub part: u32,
    /// The kind of work.
    pub work: DriveWork,
    /// Its cause.
    pub cause: Cause,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The index of its first command in [`DriveTimeline::commands`], which holds numbers of
    /// commands, counted from the start of recording.
    pub first_command: u32,
    /// The number of its commands.
    pub commands: u32,
}

impl DiskTimeline {
    /// The request of each of the drive's commands, by the command's number.
    pub fn requests_by_command(&self) -> Vec<u64> {
        let issued = self
            .steps
            .iter()
            .filter(|step| step.kind == StepKind::Issued);
        issued.map(|step| step.request).collect()
    }
}

/// A time in which flushes were in a drive, and the requests that they delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushSpan {
    /// When the first of them was issued.
    pub start_ns: u64,
    /// When the last of them ended.
    pub end_ns: u64,
    /// The first of them.
    pub request: u64,
    /// Other requests that were queued or in the drive at the same time.
    pub beside: u32,
    /// The time of those within the span, summed.
    pub held_ns: u64,
}

/// Requests in flight at one step of a disk.
#[derive(Default)]
struct InFlight {
    /// Requests that are no flushes, with the time of their first step.
    others: BTreeMap<u64, u64>,
    flushes: BTreeSet<u64>,
    span: Option<FlushSpan>,
}

impl InFlight {
    /// A request that is no flush ended.
    fn ended(&mut self, request: u64, at_ns: u64) {
        if let (Some(from_ns), Some(span)) = (self.others.remove(&request), &mut self.span) {
            span.beside += 1;
            span.held_ns += at_ns - from_ns.max(span.start_ns);
        }
    }

    /// The last flush of a span ended.
    fn end_span(&mut self, end_ns: u64) -> Option<FlushSpan> {
        let span = self.span.take()?;
        let held = self
            .others
            .values()
            .map(|from| end_ns - span.start_ns.max(*from));
        Some(FlushSpan {
            end_ns,
            beside: span.beside + self.others.len() as u32,
            held_ns: span.held_ns + held.sum::<u64>(),
            ..span
        })
    }
}

impl DiskTimeline {
    /// The times in which flushes were in the drive, and the requests that they delayed, up
    /// to the end of recording.
    pub fn flush_spans(&self, end_ns: u64) -> Vec<FlushSpan> {
        let mut in_flight = InFlight::default();
        let mut spans = Vec::new();
        for RequestStep {
            at_ns,
            kind,
            request,
            op,
            ..
        } in &self.steps
        {
            match (kind, *op == 'F') {
                (StepKind::Issued, true) => {
                    in_flight.flushes.insert(*request);
                    in_flight.span.get_or_insert(FlushSpan {
                        start_ns: *at_ns,
                        end_ns: *at_ns,
                        request: *request,
                        beside: 0,
                        held_ns: 0,
                    });
                }
                (StepKind::Completed | StepKind::Requeued, true) => {
                    in_flight.flushes.remove(request);
                    if in_flight.flushes.is_empty() {
                        spans.extend(in_flight.end_span(*at_ns));
                    }
                }
                (StepKind::Made | StepKind::Inserted | StepKind::Issued, false) => {
                    in_flight.others.entry(*request).or_insert(*at_ns);
                }
                (StepKind::Completed | StepKind::Merged, false) => {
                    in_flight.ended(*request, *at_ns);
                }
                _ => {}
            }
        }
        spans.extend(in_flight.end_span(end_ns));
        spans
    }
}

impl DriveTimeline {
    /// Moves all activities of `other` to the end of this one's.
    pub fn append(&mut self, other: &mut DriveTimeline) {
        let before = self.commands.len() as u32;
        self.commands.append(&mut other.commands);
        let moved = other.activities.drain(..).map(|activity| Activity {
            first_command: activity.first_command + before,
            ..activity
        });
        self.activities.extend(moved);
    }

    /// The commands that an activity served.
    pub fn commands_of(&self, activity: &Activity) -> &[u32] {
        let first = activity.first_command as usize;
        &self.commands[first..first + activity.commands as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_called_as_data_sheets_call_it() {
        let names = [
            DriveWork::Sense,
            DriveWork::Program,
            DriveWork::Erase,
            DriveWork::Rotate,
        ]
        .map(DriveWork::name);
        assert_eq!(names, ["read sense", "program", "erase", "rotation"]);
    }

    #[test]
    fn a_timeline_that_is_appended_keeps_its_commands() {
        let of = |commands: &[u32]| DriveTimeline {
            activities: vec![Activity {
                part: 0,
                work: DriveWork::Sense,
                cause: Cause::Host,
                start_ns: 0,
                end_ns: 1,
                first_command: 0,
                commands: commands.len() as u32,
            }],
            commands: commands.to_vec(),
            ..DriveTimeline::default()
        };
        let (mut all, mut more) = (of(&[1, 2]), of(&[3]));
        all.append(&mut more);
        let commands = all.activities.iter().map(|a| all.commands_of(a).to_vec());
        assert_eq!(commands.collect::<Vec<_>>(), [vec![1, 2], vec![3]]);
        assert!(more.activities.is_empty() && more.commands.is_empty());
    }

    #[test]
    fn what_was_in_flight_beside_flushes_is_counted() {
        use StepKind::{Completed, Issued, Made};
        let step = |at_ns, kind, request, op| RequestStep {
            at_ns,
            kind,
            request,
            op,
            flags: 0,
            sector: 0,
            sectors: 0,
            cpu: 0,
            submitter: 0,
            errno: 0,
        };
        let disk = DiskTimeline {
            steps: vec![
                step(10, Made, 1, 'W'),
                step(50, Completed, 1, 'W'),
                step(60, Made, 2, 'R'),
                step(100, Issued, 3, 'F'),
                step(120, Issued, 4, 'F'),
                step(130, Completed, 2, 'R'),
                step(150, Completed, 3, 'F'),
                step(160, Made, 5, 'R'),
                step(200, Completed, 4, 'F'),
                step(250, Completed, 5, 'R'),
                step(300, Issued, 6, 'F'),
            ],
            ..DiskTimeline::default()
        };
        let spans = disk.flush_spans(310).into_iter();
        let spans: Vec<_> = spans
            .map(|s| (s.start_ns, s.end_ns, s.request, s.beside, s.held_ns))
            .collect();
        // The reads were beside the first two for 30 and 40 ns.
        assert_eq!(spans, [(100, 200, 3, 2, 70), (300, 310, 6, 0, 0)]);
    }
}
