//! io_uring's submission queue with a kernel thread that submits from it
//! (`IORING_SETUP_SQPOLL`). The thread takes all entries that it finds in the ring under
//! one plug (`io_sq_thread`, `io_submit_sqes`), so that a scheduler gets more requests at
//! once the farther the thread is behind. Without entries for a time it sleeps, and the next
//! submission is a call that wakes it (`IORING_SQ_NEED_WAKEUP`).

use std::collections::VecDeque;

use blklab_blk::{Nanos, Plug};

use super::JobProcess;
use crate::cpu::Mode;
use crate::system::System;

/// The number of requests at which a plug for several drives is flushed
/// (`blk_plug_max_rq_count`).
const MAX_PLUGGED: u32 = 64;

/// Without entries for this long the thread sleeps, if nothing else is asked for
/// (`io_sq_offload_create`).
const DEFAULT_IDLE_MS: u32 = 1000;

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
    /// Without entries for this long the thread sleeps.
    idle: Nanos,
    /// When the thread last found the ring empty.
    empty_since: Option<Nanos>,
}

/// What the thread does next.
enum RingAction {
    Submit(u32),
    /// Flushing the plug of this drive.
    Unplug(usize),
}

impl SubmissionRing {
    /// An empty ring whose thread runs on that CPU, and sleeps after so many milliseconds, 0 for
    /// the default.
    pub(super) fn new(cpu: usize, idle_ms: u32) -> SubmissionRing {
        let idle_ms = if idle_ms == 0 {
            DEFAULT_IDLE_MS
        } else {
            idle_ms
        };
        SubmissionRing {
            cpu,
            entries: VecDeque::new(),
            found: 0,
            plugs: false,
            plugged: 0,
            next_step: None,
            idle: Nanos::from_millis(idle_ms.into()),
            empty_since: None,
        }
    }

    /// Whether the thread sleeps.
    fn is_asleep(&self, now: Nanos) -> bool {
        let waits = self.next_step.is_none() && self.entries.is_empty();
        let since = self.empty_since.filter(|_| waits);
        since.is_some_and(|since| now.saturating_sub(since) > self.idle)
    }

    /// The CPU of the thread.
    pub(super) fn cpu(&self) -> usize {
        self.cpu
    }

    /// The next step; `None` if the ring is empty and nothing is plugged.
    fn step(&mut self, plugs: &[Plug]) -> Option<RingAction> {
        if self.found == 0 || self.plugged >= MAX_PLUGGED {
            if let Some(disk) = plugs.iter().position(|plug| !plug.is_empty()) {
                return Some(RingAction::Unplug(disk));
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
        Some(RingAction::Submit(slot))
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
        let sleeps = ring.is_asleep(now);
        ring.entries.push_back(slot);
        if sleeps {
            let call = self.costs.syscall + self.costs.wake;
            self.set_next_step(now + self.costs.sq_thread_wake, system);
            self.spend(now, call, Mode::System, system);
        } else if ring.next_step.is_none() {
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
            Some(RingAction::Submit(slot)) => {
                let plugs = ring.plugs;
                match self.ios[slot as usize].is_forced {
                    true => self.punt(now, slot, system),
                    false => self.submit_directly(now, slot, plugs, system),
                }
            }
            Some(RingAction::Unplug(disk)) => self.unplug(now, disk, system),
            None => {
                ring.next_step = None;
                ring.empty_since = Some(now);
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
        let mut ring = SubmissionRing::new(1, 0);
        let mut next = |added: &[u32]| {
            ring.entries.extend(added);
            match ring.step(&[]) {
                Some(RingAction::Submit(slot)) => Some((slot, ring.plugs)),
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
