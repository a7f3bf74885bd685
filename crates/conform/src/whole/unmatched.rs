//! Tracepoints of our queue that the kernel's trace has not shown yet.

use std::collections::{BTreeMap, VecDeque};

use super::tracepoint::Tracepoint;

/// How many of a task's tracepoints are searched for one of the kernel's.
const AHEAD: usize = 64;

/// A tracepoint of our queue, with the request's serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OurTracepoint {
    pub(super) tracepoint: Tracepoint,
    pub(super) serial: u64,
}

/// What our queue did where the kernel did something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The same, perhaps with another count; `extra` came before it and the
    /// kernel did not do that.
    Same {
        ours: OurTracepoint,
        extra: Vec<OurTracepoint>,
    },
    /// Something else of the same kind.
    Different(OurTracepoint),
    /// Nothing of the kind.
    Missing,
}

/// Tracepoints by task, in order. Only the order within a task is compared:
/// how tasks interleave depends on the CPU scheduler.
#[derive(Debug, Default)]
pub(super) struct Unmatched {
    tasks: BTreeMap<u32, VecDeque<OurTracepoint>>,
}

impl Unmatched {
    pub(super) fn push(&mut self, pid: u32, ours: OurTracepoint) {
        self.tasks.entry(pid).or_default().push_back(ours);
    }

    /// Whether `pid` did this, or another task as its next.
    pub(super) fn has_match(&self, pid: u32, wanted: &Tracepoint) -> bool {
        self.tasks.iter().any(|(&task, queue)| {
            let looks = if task == pid { AHEAD } else { 1 };
            queue
                .iter()
                .take(looks)
                .any(|ours| ours.tracepoint.is_like(wanted))
        })
    }

    /// Takes out what matches a tracepoint of the kernel's in task `pid`.
    pub(super) fn take_match(&mut self, pid: u32, kernel: &Tracepoint) -> Match {
        if let Some(queue) = self.tasks.get_mut(&pid) {
            let alike = queue
                .iter()
                .take(AHEAD)
                .position(|ours| ours.tracepoint.is_like(kernel));
            if let Some(at) = alike {
                let extra: Vec<OurTracepoint> = queue.drain(..at).collect();
                if let Some(ours) = queue.pop_front() {
                    return Match::Same { ours, extra };
                }
            }
        }
        // Another task may have done it here: kblockd, or a submitter.
        for queue in self.tasks.values_mut() {
            if queue
                .front()
                .is_some_and(|ours| ours.tracepoint.is_like(kernel))
                && let Some(ours) = queue.pop_front()
            {
                let extra = Vec::new();
                return Match::Same { ours, extra };
            }
        }
        let queue = self.tasks.entry(pid).or_default();
        match queue.front() {
            Some(first) if first.tracepoint.kind() == kernel.kind() => {
                let ours = *first;
                queue.pop_front();
                Match::Different(ours)
            }
            _ => Match::Missing,
        }
    }

    /// Everything that is left.
    pub(super) fn take_rest(&mut self) -> Vec<OurTracepoint> {
        let rest = self.tasks.values_mut().flat_map(std::mem::take);
        rest.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::Sector;

    fn choice(sector: u64) -> OurTracepoint {
        OurTracepoint {
            tracepoint: Tracepoint::Choice(Some(Sector(sector))),
            serial: sector,
        }
    }

    #[test]
    fn what_comes_before_a_match_is_extra() {
        let mut unmatched = Unmatched::default();
        for sector in [1, 2, 3] {
            unmatched.push(7, choice(sector));
        }
        let found = unmatched.take_match(7, &choice(2).tracepoint);
        let same = Match::Same {
            ours: choice(2),
            extra: vec![choice(1)],
        };
        assert_eq!(found, same);
        assert_eq!(
            unmatched.take_match(7, &choice(9).tracepoint),
            Match::Different(choice(3))
        );
        assert_eq!(unmatched.take_match(7, &Tracepoint::Plug), Match::Missing);
    }

    #[test]
    fn another_task_may_have_done_it() {
        let mut unmatched = Unmatched::default();
        unmatched.push(7, choice(1));
        let found = unmatched.take_match(8, &choice(1).tracepoint);
        assert!(matches!(found, Match::Same { .. }));
        assert!(unmatched.take_rest().is_empty());
    }
}
