//! Each tracepoint of the kernel's is compared with ours and counted.

use super::Whole;
use super::tracepoint::Tracepoint;
use super::unmatched::{Match, OurTracepoint};
use crate::report::Difference;

impl Whole<'_> {
    pub(super) fn compare(&mut self, kernel: &Tracepoint) {
        let pid = self.event().pid;
        match self.unmatched.take_match(pid, kernel) {
            Match::Same { ours, extra } => {
                extra.iter().for_each(|ours| self.extra(ours));
                let mut did = ours.tracepoint;
                if let Some(busy) = self.drive.take_our_busy(self.at) {
                    did = Tracepoint::Ask(busy);
                }
                let same = did == *kernel;
                self.count(
                    kernel.kind(),
                    same,
                    || kernel.to_string(),
                    || did.to_string(),
                );
                if matches!(kernel, Tracepoint::Insert(_)) {
                    self.inserted = Some(ours.serial);
                }
            }
            Match::Different(ours) => self.count(
                kernel.kind(),
                false,
                || kernel.to_string(),
                || ours.tracepoint.to_string(),
            ),
            Match::Missing => self.count(kernel.kind(), false, || kernel.to_string(), nothing),
        }
    }

    /// Whether a task had to wait for a tag, where it did in the kernel or here.
    pub(super) fn count_wait(&mut self, kernel: bool, ours: bool) {
        if kernel || ours {
            let text = |waits: bool| if waits { "a wait for a tag" } else { "no wait" };
            let (kernel_text, ours_text) = (text(kernel), text(ours));
            self.count(
                "wait",
                kernel == ours,
                || kernel_text.to_owned(),
                || ours_text.to_owned(),
            );
        }
    }

    /// We did something that the kernel did not.
    pub(super) fn extra(&mut self, ours: &OurTracepoint) {
        let tracepoint = ours.tracepoint;
        self.count(tracepoint.kind(), false, nothing, || tracepoint.to_string());
    }

    fn count(
        &mut self,
        kind: &'static str,
        agrees: bool,
        kernel: impl FnOnce() -> String,
        ours: impl FnOnce() -> String,
    ) {
        let recorded = &self.events[self.at];
        let state = if agrees { Vec::new() } else { self.state() };
        self.report.count(kind, agrees, || Difference {
            line: recorded.line,
            at_ns: recorded.event.at_ns,
            kind,
            kernel: kernel(),
            ours: ours(),
            state,
        });
    }

    fn state(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        if let Some(elevator) = self.queue.elevator() {
            let state = elevator.debug_state();
            words.extend(state.iter().map(|(name, value)| format!("{name} {value}")));
        }
        words.push(format!("busy {}", self.queue.hctx_stats(0).1));
        words.push(format!("{} in the drive", self.drive.in_flight()));
        vec![words.join(", ")]
    }
}

fn nothing() -> String {
    "nothing of the kind".to_owned()
}
