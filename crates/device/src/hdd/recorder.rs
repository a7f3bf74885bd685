//! Records what the arm does, where a timeline is asked for.

use alloc::string::ToString;
use alloc::vec::Vec;

use blklab_stats::{Activity, Cause, DrivePart, DriveTimeline, DriveWork};

use super::buffer::SectorRun;

/// What was recorded and not taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    recorded: DriveTimeline,
    next_command: u32,
    /// Dirty runs in the buffer and the commands that wrote them.
    written: Vec<(SectorRun, u32)>,
    /// The commands that the arm's task serves.
    served: Vec<u32>,
}

impl Recorder {
    /// Numbers a command.
    pub(super) fn next_command(&mut self) -> u32 {
        self.next_command += 1;
        self.next_command - 1
    }

    /// A command's data is in the buffer.
    pub(super) fn wrote(&mut self, run: SectorRun, command: u32) {
        self.written.push((run, command));
    }

    /// Dirty data of a run was overwritten or destaged.
    pub(super) fn forget(&mut self, run: SectorRun) {
        let within = |of: &SectorRun| run.start <= of.start && of.end <= run.end;
        self.written.retain(|(of, _)| !within(of));
    }

    /// All dirty data was lost.
    pub(super) fn forget_all(&mut self) {
        self.written.clear();
    }

    /// The arm's next task is for a command.
    pub(super) fn serves(&mut self, command: u32) {
        self.served.clear();
        self.served.push(command);
    }

    /// The arm's next task destages a run.
    pub(super) fn destages(&mut self, run: SectorRun) {
        let overlap = |of: &SectorRun| of.start < run.end && run.start < of.end;
        let written = self.written.iter().filter(|(of, _)| overlap(of));
        self.served.clear();
        self.served.extend(written.map(|(_, command)| *command));
        self.forget(run);
    }

    /// Records what the arm does from now on, one activity after the other with its
    /// length.
    pub(super) fn arm(&mut self, now_ns: u64, steps: &[(DriveWork, u64)]) {
        let mut start_ns = now_ns;
        for &(work, ns) in steps.iter().filter(|(_, ns)| *ns > 0) {
            let first_command = self.recorded.commands.len() as u32;
            self.recorded.commands.extend_from_slice(&self.served);
            self.recorded.activities.push(Activity {
                part: 0,
                work,
                cause: Cause::Host,
                start_ns,
                end_ns: start_ns + ns,
                first_command,
                commands: self.served.len() as u32,
            });
            start_ns += ns;
        }
    }

    /// Moves what was recorded to the end of `out`.
    pub(super) fn take(&mut self, out: &mut DriveTimeline) {
        if out.parts.is_empty() {
            out.parts.push(DrivePart {
                name: "arm".to_string(),
                within: None,
            });
        }
        out.append(&mut self.recorded);
    }
}
