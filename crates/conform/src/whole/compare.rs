//! Each tracepoint of the kernel's is compared with ours and counted.

use blklab_blk::RateChange;
use blklab_workload::trace::tracefs::WbtCall;

use super::Whole;
use super::tracepoint::Tracepoint;
use super::unmatched::{Match, OurTracepoint};
use crate::report::Difference;

impl Whole<'_> {
    pub(super) fn compare(&mut self, kernel: &Tracepoint) {
        let (pid, at_ns) = (self.event().pid, self.event().at_ns);
        let found = self.unmatched.take_match(pid, kernel);
        if matches!(kernel, Tracepoint::GetRq(_)) && !matches!(found, Match::Same { .. }) {
            self.latencies.only_kernel_made();
        }
        match found {
            Match::Same { ours, extra } => {
                match kernel {
                    Tracepoint::GetRq(_) => self.latencies.kernel_made(ours.serial, at_ns),
                    Tracepoint::Issue(_) => self.latencies.kernel_issued(ours.serial, at_ns),
                    Tracepoint::RqMerge(_) => self.latencies.merged(ours.serial),
                    _ => {}
                }
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

    /// The state of writeback throttling as a bio goes on.
    pub(super) fn compare_wbt(&mut self, call: &WbtCall) {
        let Some(ours) = self.queue.wbt().map(|wbt| wbt.state()) else {
            return;
        };
        let limits = (ours.limits, ours.step) == (call.limits, call.step);
        let text = |limits: [u32; 3], step: i32| format!("limits {limits:?} at step {step}");
        let kernel = text(call.limits, call.step);
        self.count(
            "wbt limits",
            limits,
            || kernel,
            || text(ours.limits, ours.step),
        );
        let kernel = i64::from(call.in_flight[0]);
        let in_flight = i64::from(ours.in_flight);
        let text = |writes: i64| format!("{writes} writes under way");
        self.count(
            "wbt in flight",
            kernel == in_flight,
            || text(kernel),
            || text(in_flight),
        );
    }

    /// The end of a window of writeback throttling: status, step, writes under way.
    pub(super) fn compare_wbt_timer(&mut self, kernel: [i64; 3]) {
        let Some(wbt) = self.queue.wbt() else {
            return;
        };
        let ours = wbt.last_timer().map(|timer| {
            let status = timer.status as i64;
            [status, timer.step.into(), timer.in_flight.into()]
        });
        let text = |[status, step, writes]: [i64; 3]| {
            format!("status {status} at step {step} with {writes} under way")
        };
        self.count(
            "wbt window",
            ours == Some(kernel),
            || text(kernel),
            || ours.map_or_else(nothing, text),
        );
    }

    /// The end of a period of the cost model, where that changes anything.
    pub(super) fn compare_rate(&mut self, kernel: RateChange) {
        let ours = self.queue.io_cost().and_then(|cost| cost.last_change());
        let text = |change: RateChange| format!("{change:?}");
        self.count(
            "cost rate",
            ours == Some(kernel),
            || text(kernel),
            || ours.map_or_else(nothing, text),
        );
    }

    /// We did something that the kernel did not.
    pub(super) fn extra(&mut self, ours: &OurTracepoint) {
        let tracepoint = ours.tracepoint;
        self.count(tracepoint.kind(), false, nothing, || tracepoint.to_string());
    }

    pub(super) fn count(
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
