//! `Timeline`: the events of CPUs, requests and drives over a window of a run.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// The part of a run to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The start, in nanoseconds from the run's start.
    pub start_ns: u64,
    /// The length in nanoseconds.
    pub length_ns: u64,
    /// The number of entries at which recording ends early.
    pub max_entries: usize,
    /// What is recorded besides requests.
    pub detail: Detail,
}

/// What is recorded besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The work inside the drives.
    Drives,
    /// Bios that are merged into requests, and plugging.
    Bios,
}

/// The events recorded over a window of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The start of the window, in nanoseconds from the run's start.
    pub start_ns: u64,
    /// The end of the recording: that of the window or the run, or earlier at the limit
    /// on entries.
    pub end_ns: u64,
    /// Whether the recording ended before the window, at the limit on entries.
    pub cut: bool,
    /// The number of CPUs of the machine.
    pub cpus: u32,
    /// The work of CPUs; empty if CPUs cost nothing.
    pub tasks: Vec<CpuTask>,
    /// The I/Os of jobs, by the time at which their programs had them back.
    pub ios: Vec<IoSpan>,
    /// The system calls of lists of calls, by their end.
    pub calls: Vec<CallSpan>,
    /// One entry for each drive.
    pub disks: Vec<DiskTimeline>,
}

/// A system call of a program, one of a list of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpan {
    /// The number of the process.
    pub process: u32,
    /// The name of the call.
    pub call: &'static str,
    /// The time at which the program called.
    pub start_ns: u64,
    /// The time at which the call returned.
    pub end_ns: u64,
    /// What it returned; `None` if it failed.
    pub returned: Option<u64>,
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

/// Uninterrupted work of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTask {
    /// The index of the CPU.
    pub cpu: u32,
    /// The kind of work.
    pub work: CpuWork,
    /// The process that caused it, if any.
    pub process: Option<u32>,
    /// The time of its start.
    pub start_ns: u64,
    /// The time of its end.
    pub end_ns: u64,
    /// The index of the drive of its requests.
    pub disk: u32,
    /// The first request that it made or completed.
    pub first_request: u64,
    /// The number of these requests, which have consecutive numbers.
    pub requests: u32,
    /// How long of it the CPU waited for the scheduler's lock and what that protects, in
    /// nanoseconds.
    pub lock_ns: u64,
}

/// An I/O of a job's process, of which requests were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoSpan {
    /// The time at which its program began it.
    pub start_ns: u64,
    /// The time at which its program had it back.
    pub end_ns: u64,
    /// The index of its drive.
    pub disk: u32,
    /// The first request that was made of it.
    pub first_request: u64,
    /// The number of these requests, which have consecutive numbers.
    pub requests: u32,
}

/// The events of a drive and its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTimeline {
    /// The drive's `filename` in the job.
    pub name: String,
    /// Whether the drive's driver sends it nothing beside a flush.
    pub flushes_hold_others: bool,
    /// The events of requests, in order of time.
    pub steps: Vec<RequestStep>,
    /// The work inside the drive.
    pub drive: DriveTimeline,
}

/// The kind of an event of a request.
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
    /// A bio waits for an earlier write of its zone; without a request.
    ZoneHeld,
    /// The request was created from a bio.
    Made,
    /// The request was inserted into the scheduler, or into a software queue if there is
    /// none.
    Inserted,
    /// The scheduler was asked to dispatch; without a request.
    Asked,
    /// The scheduler dispatched the request.
    Dispatched,
    /// The scheduler dispatched nothing; without a request.
    NoneDispatched,
    /// The driver took the request.
    Issued,
    /// The driver returned the request.
    Requeued,
    /// The request was merged into another.
    Merged,
    /// The request ended.
    Completed,
}

/// An event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStep {
    /// The time of the event.
    pub at_ns: u64,
    /// The kind of the event.
    pub kind: StepKind,
    /// The request's number on this queue, which is never reused;
    /// [`RequestStep::NO_REQUEST`] if the event concerns none.
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
    /// The number in an event that concerns no request.
    pub const NO_REQUEST: u64 = u64::MAX;

    /// The bit of a flush before the data, which is `BioFlags::PREFLUSH` in `blk`.
    pub const PREFLUSH: u16 = 1 << 3;

    /// Returns whether the event concerns a request.
    pub fn is_of_request(&self) -> bool {
        self.request != RequestStep::NO_REQUEST
    }
}

/// The recorded work inside a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveTimeline {
    /// The drive's parts, each after the part that contains it.
    pub parts: Vec<DrivePart>,
    /// The work of the parts, in the order of its end. Activities of one part do not
    /// overlap.
    pub activities: Vec<Activity>,
    /// The commands of the activities, from [`Activity::first_command`] on.
    pub commands: Vec<u32>,
    /// The commands' ways through what serves several of them at once.
    pub passages: Vec<Passage>,
}

/// What serves several commands of a drive at once, in stages or in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// The controller, which fetches and processes a command.
    Controller,
    /// The link to the host, over which data goes.
    Link,
}

/// The time of a command in something that serves several at once, its wait for that included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The command, by its number from the start of recording.
    pub command: u32,
    /// What it passed.
    pub through: Through,
    /// The time at which it came there.
    pub from_ns: u64,
    /// The time at which it was through.
    pub to_ns: u64,
}

/// A part of a drive that does one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrivePart {
    /// The part's name, such as `channel 3`, `die 17` or `arm`.
    pub name: String,
    /// The index of the part that contains it.
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
    /// Returns the name in timelines.
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

/// The reason for work of a drive's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A command of the host.
    Host,
    /// Garbage collection.
    Collection,
    /// Reading or writing the drive's map.
    Map,
}

/// Uninterrupted work of a drive's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The part, by its index in [`DriveTimeline::parts`].
    pub part: u32,
    /// The kind of work.
    pub work: DriveWork,
    /// The reason for it.
    pub cause: Cause,
    /// The time of its start.
    pub start_ns: u64,
    /// The time of its end.
    pub end_ns: u64,
    /// The index of its first command in [`DriveTimeline::commands`], which holds
    /// numbers of commands, counted from the start of recording.
    pub first_command: u32,
    /// The number of its commands.
    pub commands: u32,
}

impl DiskTimeline {
    /// Returns the request of each of the drive's commands, by the command's number.
    pub fn requests_by_command(&self) -> Vec<u64> {
        let issued = self
            .steps
            .iter()
            .filter(|step| step.kind == StepKind::Issued);
        issued.map(|step| step.request).collect()
    }
}

/// A time during which flushes were in a drive, and the requests that they delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushSpan {
    /// The time at which the first flush was issued.
    pub start_ns: u64,
    /// The time at which the last flush ended.
    pub end_ns: u64,
    /// The number of the first flush.
    pub request: u64,
    /// The number of other requests that were queued or in the drive at the same time.
    pub beside: u32,
    /// The time that these requests spent within the span, summed, in nanoseconds.
    pub held_ns: u64,
}

/// The requests in flight at one event of a disk.
#[derive(Default)]
struct InFlight {
    /// Requests other than flushes, with the time of their first event.
    others: BTreeMap<u64, u64>,
    flushes: BTreeSet<u64>,
    span: Option<FlushSpan>,
}

impl InFlight {
    /// Removes a request that ended and is not a flush.
    fn ended(&mut self, request: u64, at_ns: u64) {
        if let (Some(from_ns), Some(span)) = (self.others.remove(&request), &mut self.span) {
            span.beside += 1;
            span.held_ns += at_ns - from_ns.max(span.start_ns);
        }
    }

    /// Ends a span with its last flush.
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
    /// Returns the spans during which flushes were in the drive, and the requests that
    /// they delayed, up to the end of recording.
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
    /// Moves all activities and passages of `other` to the end of this one's.
    pub fn append(&mut self, other: &mut DriveTimeline) {
        self.passages.append(&mut other.passages);
        let before = self.commands.len() as u32;
        self.commands.append(&mut other.commands);
        let moved = other.activities.drain(..).map(|activity| Activity {
            first_command: activity.first_command + before,
            ..activity
        });
        self.activities.extend(moved);
    }

    /// Returns the commands that an activity served.
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
        assert!(disk.steps.iter().all(RequestStep::is_of_request));
        let none = step(0, Issued, RequestStep::NO_REQUEST, 'R');
        assert!(!none.is_of_request());
        let spans = disk.flush_spans(310).into_iter();
        let spans: Vec<_> = spans
            .map(|s| (s.start_ns, s.end_ns, s.request, s.beside, s.held_ns))
            .collect();
        // The reads were beside the first two for 30 and 40 ns.
        assert_eq!(spans, [(100, 200, 3, 2, 70), (300, 310, 6, 0, 0)]);
    }
}
