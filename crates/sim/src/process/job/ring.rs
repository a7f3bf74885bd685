//! io_uring's submission queue with a kernel thread that submits from it
//! (`IORING_SETUP_SQPOLL`). The thread takes all entries that it finds in the ring under
//! one plug (`io_sq_thread`, `io_submit_sqes`), so that a scheduler gets more requests at
//! once the farther the thread is behind.

use std::collections::VecDeque;

use blklab_blk::{Nanos, Plug};

use super::JobProcess;
use crate::system::System;

/// The number of requests at which a plug for several drives is flushed
/// (`blk_plug_max_rq_count`).
const MAX_PLUGGED: u32 = 64;

/// The submission queue, and how far its thread has come.
#[derive(Debug)]
pub(super) struct SubmissionRing {
    /// The CPU of the thread.
    cpu: usize,
    /// Slots of the I/Os in the ring, in order.
    entries: VecDeque<u32>,
    /// How many entries, from the first, the thread took when it last looked.
    found: usize,
    /// Whether it plugs for these.
    plugs: bool,
    /// Requests under the plug.
    plugged: u32,
    /// When the thread takes its next step; `None` while the ring is empty.
    next_step: Option<Nanos>,
}

/// What the thread does next.
enum Step {
    Submit(u32),
    /// Flushing the plug of this drive.
    Unplug(usize),
}

impl SubmissionRing {
    /// An empty ring whose thread runs on that CPU.
    pub(super) fn new(cpu: usize) -> SubmissionRing {
        SubmissionRing {
            cpu,
            entries: VecDeque::new(),
            found: 0,
            plugs: false,
            plugged: 0,
            next_step: None,
        }
    }

    /// The CPU of the thread.
    pub(super) fn cpu(&self) -> usize {
        self.cpu
    }

    /// The next step; `None` if the ring is empty and nothing is plugged.
    fn step(&mut self, plugs: &[Plug]) -> Option<Step> {
        if self.found == 0 || self.plugged >= MAX_PLUGGED {
            if let Some(disk) = plugs.iter().position(|plug| !plug.is_empty()) {
                return Some(Step::Unplug(disk));
            }
            self.plugged = 0;
        }
        if self.found == 0 {
            self.found = self.entries.len();
            self.plugs = self.found > 1;
        }
        let slot = self.entries.pop_front()?;
        self.found -= 1;
        self.plugged += u32::from(self.plugs);
        Some(Step::Submit(slot))
    }
}

impl JobProcess {
    /// Whether the kernel thread submits its I/O. On CPUs that cost nothing there is no
    /// difference.
    #[inline]
    pub(super) fn submits_through_ring(&self) -> bool {
        self.ring.is_some() && !self.costs.free
    }

    /// Puts an I/O into the ring.
    pub(super) fn submit_through_ring(&mut self, now: Nanos, slot: u32, system: &mut System) {
        let Some(ring) = &mut self.ring else {
            return;
        };
        ring.entries.push_back(slot);
        if ring.next_step.is_none() {
            self.set_next_step(now, system);
        }
    }

    /// The thread goes on at `now`, or when its CPU is free.
    fn set_next_step(&mut self, now: Nanos, system: &mut System) {
        if let Some(ring) = &mut self.ring {
            let at = system.cpus.free_at(ring.cpu).max(now);
            ring.next_step = Some(at);
            system.timers.set(at, self.id);
        }
    }

    /// The thread takes its next step if that is due.
    pub(super) fn go_on_submitting(&mut self, now: Nanos, system: &mut System) {
        let Some(ring) = &mut self.ring else {
            return;
        };
        if ring.next_step.is_none_or(|at| at > now) {
            return;
        }
        if system.cpus.free_at(ring.cpu) > now {
            // An interrupt or another process has its CPU.
            return self.set_next_step(now, system);
        }
        match ring.step(&self.plugs) {
            Some(Step::Submit(slot)) => {
                let plugs = ring.plugs;
                match self.ios[slot as usize].is_forced {
                    true => self.punt(now, slot, system),
                    false => self.submit_directly(now, slot, plugs, system),
                }
            }
            Some(Step::Unplug(disk)) => self.unplug(now, disk, system),
            None => {
                ring.next_step = None;
                return;
            }
        }
        self.set_next_step(now, system);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_found_together_are_plugged() {
        let mut ring = SubmissionRing::new(1);
        let mut next = |added: &[u32]| {
            ring.entries.extend(added);
            match ring.step(&[]) {
                Some(Step::Submit(slot)) => Some((slot, ring.plugs)),
                _ => None,
            }
        };
        assert_eq!(next(&[7, 8]), Some((7, true)));
        // The thread has not looked again since this one came.
        assert_eq!(next(&[9]), Some((8, true)));
        assert_eq!(next(&[]), Some((9, false)), "alone it needs no plug");
        assert_eq!(next(&[]), None);
    }
}
