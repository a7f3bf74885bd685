//! `Timeline`: what was going on where, moment by moment, over a window of a
//! run.

use std::collections::{BTreeMap, BTreeSet};

/// Which part of a run to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where it begins, from the run's start on.
    pub start_ns: u64,
    /// How long it is.
    pub length_ns: u64,
    /// Recording ends early where there is more than this to be kept.
    pub max_entries: usize,
    /// What is recorded beside requests.
    pub detail: Detail,
}

/// What is recorded beside requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What happens inside the drives.
    Drives,
    /// Bios that join requests, and plugs.
    Bios,
}

/// What was recorded over a window of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Where the window begins, from the run's start on.
    pub start_ns: u64,
    /// Where recording ended: with the window, the run, or its room.
    pub end_ns: u64,
    /// It ended before the window did, for want of room.
    pub cut: bool,
    /// CPUs of the machine.
    pub cpus: u32,
    /// What CPUs did; nothing where CPUs cost nothing.
    pub tasks: Vec<CpuTask>,
    /// One entry a drive.
    pub disks: Vec<DiskTimeline>,
}

/// What a CPU is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuWork {
    /// The program itself.
    Program,
    /// The kernel, submitting I/O or on the process's behalf otherwise.
    Kernel,
    /// kblockd, or another that runs a queue.
    Dispatch,
    /// The interrupt that ends a request.
    Interrupt,
    /// The soft interrupt that does so.
    SoftInterrupt,
}

/// A stretch of work of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTask {
    /// Which CPU.
    pub cpu: u32,
    /// What it did.
    pub work: CpuWork,
    /// The process it did it for, if it was for one.
    pub process: Option<u32>,
    /// When it began.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
    /// The drive of the requests.
    pub disk: u32,
    /// The first request that it made or ended.
    pub first_request: u64,
    /// How many there are, numbered one after the other.
    pub requests: u32,
}

/// A drive and the queue before it.
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
    /// A bio was submitted; it is about no request where the bio joined another.
    Queued,
    /// A bio joined the end of a request; it is about no request.
    BackMerged,
    /// A bio joined the start of a request; it is about no request.
    FrontMerged,
    /// The submitter began to hold requests back; it is about no request.
    Plugged,
    /// The submitter let so many requests go; it is about no request.
    Unplugged(u32),
    /// It was made of a bio.
    Made,
    /// It entered the scheduler, or a software queue where there is none.
    Inserted,
    /// The scheduler was asked for one; it is about no request.
    Asked,
    /// The scheduler named it.
    Dispatched,
    /// The scheduler named none; it is about no request.
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

/// One step of a request's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestStep {
    /// When.
    pub at_ns: u64,
    /// What happened.
    pub kind: StepKind,
    /// The request's number on this queue; it is never used twice. A step that is
    /// about none has [`RequestStep::NO_REQUEST`].
    pub request: u64,
    /// What it does: `R`, `W`, `D` or `F`, as blkparse has it.
    pub op: char,
    /// Its modifiers, the bits of `BioFlags` in `blk`.
    pub flags: u16,
    /// Where it starts.
    pub sector: u64,
    /// How much.
    pub sectors: u32,
    /// The CPU whose software queue it belongs to.
    pub cpu: u32,
    /// Who submitted it.
    pub submitter: u32,
    /// The errno that it ended with; 0 for success and before the end.
    pub errno: i32,
}

impl RequestStep {
    /// The number in a step that is about no request.
    pub const NO_REQUEST: u64 = u64::MAX;

    /// Whether it is about a request.
    pub fn is_of_request(&self) -> bool {
        self.request != RequestStep::NO_REQUEST
    }
}

/// What happened inside a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveTimeline {
    /// Its parts, each behind the one it belongs to.
    pub parts: Vec<DrivePart>,
    /// What they did. Of one part they do not overlap, and each is written
    /// down when its end is known.
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

/// What a part of a drive does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
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

impl Work {
    /// Its name in timelines.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Command => "command",
            Work::DataIn => "data in",
            Work::DataOut => "data out",
            Work::Sense => "read sense",
            Work::Program => "program",
            Work::Erase => "erase",
            Work::Seek => "seek",
            Work::Rotate => "rotation",
            Work::Transfer => "transfer",
        }
    }
}

/// Why a part of a drive does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// For the host.
    Host,
    /// Garbage collection.
    Collection,
    /// The drive's own map.
    Map,
}

/// A stretch of work of a part of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Which part, by its place in [`DriveTimeline::parts`].
    pub part: u32,
    /// What it did.
    pub work: Work,
    /// Why.
    pub cause: Cause,
    /// When it began.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
    /// Where its commands begin in [`DriveTimeline::commands`]: numbers of the
    /// commands it served, counted from the start of recording.
    pub first_command: u32,
    /// How many these are.
    pub commands: u32,
}

impl DiskTimeline {
    /// Which request each of the drive's commands was, by the commands' numbers.
    pub fn requests_by_command(&self) -> Vec<u64> {
        let issued = self
            .steps
            .iter()
            .filter(|step| step.kind == StepKind::Issued);
        issued.map(|step| step.request).collect()
    }
}

/// A time in which flushes were in a drive, and what else was under way meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushSpan {
    /// When the first of them was issued.
    pub start_ns: u64,
    /// When none was left.
    pub end_ns: u64,
    /// The first of them.
    pub request: u64,
    /// Requests of others that were queued or in the drive beside them.
    pub beside: u32,
    /// Time that those spent beside them, summed.
    pub held_ns: u64,
}

/// Requests under way while the steps of a disk are gone through.
#[derive(Default)]
struct UnderWay {
    /// Others, with when they came.
    others: BTreeMap<u64, u64>,
    flushes: BTreeSet<u64>,
    span: Option<FlushSpan>,
}

impl UnderWay {
    /// A request that is no flush is over.
    fn ended(&mut self, request: u64, at_ns: u64) {
        if let (Some(from_ns), Some(span)) = (self.others.remove(&request), &mut self.span) {
            span.beside += 1;
            span.held_ns += at_ns - from_ns.max(span.start_ns);
        }
    }

    /// The span in which there were flushes is over.
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
    /// When flushes were in the drive, and what waited meanwhile, up to the recording's
    /// end.
    pub fn flush_spans(&self, end_ns: u64) -> Vec<FlushSpan> {
        let mut under_way = UnderWay::default();
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
                    under_way.flushes.insert(*request);
                    under_way.span.get_or_insert(FlushSpan {
                        start_ns: *at_ns,
                        end_ns: *at_ns,
                        request: *request,
                        beside: 0,
                        held_ns: 0,
                    });
                }
                (StepKind::Completed | StepKind::Requeued, true) => {
                    under_way.flushes.remove(request);
                    if under_way.flushes.is_empty() {
                        spans.extend(under_way.end_span(*at_ns));
                    }
                }
                (StepKind::Made | StepKind::Inserted | StepKind::Issued, false) => {
                    under_way.others.entry(*request).or_insert(*at_ns);
                }
                (StepKind::Completed | StepKind::Merged, false) => {
                    under_way.ended(*request, *at_ns);
                }
                _ => {}
            }
        }
        spans.extend(under_way.end_span(end_ns));
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
        let names = [Work::Sense, Work::Program, Work::Erase, Work::Rotate].map(Work::name);
        assert_eq!(names, ["read sense", "program", "erase", "rotation"]);
    }

    #[test]
    fn a_timeline_that_is_appended_keeps_its_commands() {
        let of = |commands: &[u32]| DriveTimeline {
            activities: vec![Activity {
                part: 0,
                work: Work::Sense,
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
    fn what_was_under_way_beside_flushes_is_counted() {
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
