//! Writes down what the arm does, where somebody asked for it.

use blklab_stats::{Activity, Cause, DrivePart, DriveTimeline, Work};

use super::buffer::SectorRun;

/// What was seen and not taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    seen: DriveTimeline,
    next_command: u32,
    /// Whose data is in the buffer and not on the platters yet.
    written: Vec<(SectorRun, u32)>,
    /// The commands that the arm works for.
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

    /// Data in the buffer will not be written from there.
    pub(super) fn forget(&mut self, run: SectorRun) {
        let within = |of: &SectorRun| run.start <= of.start && of.end <= run.end;
        self.written.retain(|(of, _)| !within(of));
    }

    /// Nothing in the buffer will be written.
    pub(super) fn forget_all(&mut self) {
        self.written.clear();
    }

    /// What the arm does next is for a command.
    pub(super) fn serves(&mut self, command: u32) {
        self.served.clear();
        self.served.push(command);
    }

    /// What the arm does next empties the buffer of a run.
    pub(super) fn empties(&mut self, run: SectorRun) {
        let overlap = |of: &SectorRun| of.start < run.end && run.start < of.end;
        let written = self.written.iter().filter(|(of, _)| overlap(of));
        self.served.clear();
        self.served.extend(written.map(|(_, command)| *command));
        self.forget(run);
    }

    /// The arm does one thing after the other, each for so long.
    pub(super) fn arm(&mut self, now_ns: u64, steps: &[(Work, u64)]) {
        let mut start_ns = now_ns;
        for &(work, ns) in steps.iter().filter(|(_, ns)| *ns > 0) {
            let first_command = self.seen.commands.len() as u32;
            self.seen.commands.extend_from_slice(&self.served);
            self.seen.activities.push(Activity {
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

    /// Moves what was seen to the end of `out`.
    pub(super) fn take(&mut self, out: &mut DriveTimeline) {
        if out.parts.is_empty() {
            out.parts.push(DrivePart {
                name: "arm".to_string(),
                within: None,
            });
        }
        out.append(&mut self.seen);
    }
}
