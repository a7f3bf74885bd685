//! Writes down what the arm does, where somebody asked for it.

use blklab_stats::{Activity, Cause, DrivePart, DriveTimeline, Work};

/// What was seen and not taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    seen: DriveTimeline,
    next_command: u32,
}

impl Recorder {
    /// Numbers a command.
    pub(super) fn next_command(&mut self) -> u32 {
        self.next_command += 1;
        self.next_command - 1
    }

    /// The arm does one thing after the other, each for so long, for a command
    /// or to empty the buffer.
    pub(super) fn arm(&mut self, now_ns: u64, steps: &[(Work, u64)], command: Option<u32>) {
        let mut start_ns = now_ns;
        for &(work, ns) in steps.iter().filter(|(_, ns)| *ns > 0) {
            let first_command = self.seen.commands.len() as u32;
            self.seen.commands.extend(command);
            self.seen.activities.push(Activity {
                part: 0,
                work,
                cause: Cause::Host,
                start_ns,
                end_ns: start_ns + ns,
                first_command,
                commands: command.is_some() as u32,
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
