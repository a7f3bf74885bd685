//! When memory was short in a recorded run, and what reclaim knew.

use std::cell::Cell;

use blklab_fs::{Event, Host, Vfs};

use super::recorded::{Recorded, RecordedStep};

/// So many active pages, as statistics told of them.
#[derive(Clone, Copy)]
struct SawActive {
    pages: u64,
    /// The last call that saw another number.
    after: usize,
    /// The first call that saw this one.
    first: usize,
}

/// When memory was short, and what reclaim knew.
pub(super) struct Shortage {
    /// The call of each reclaim, and pages that the call had added before it.
    reclaims: Vec<(usize, u64)>,
    reclaimed: Cell<usize>,
    /// Pages that our call has added.
    added: Cell<u64>,
    /// What statistics told of, one after the other.
    saw_active: Vec<SawActive>,
    /// How many of those were seen, and whether statistics are those of the next.
    seen: Cell<usize>,
    flushed: Cell<bool>,
}

impl Shortage {
    pub(super) fn new(steps: &[Recorded]) -> Shortage {
        let (mut call, mut added) = (0, 0);
        let (mut reclaims, mut saw_active) = (Vec::new(), Vec::<SawActive>::new());
        let mut saw_in = 0;
        for recorded in steps {
            match recorded.step {
                RecordedStep::Call(line) => (call, added) = (line, 0),
                RecordedStep::Took(Event::Add { order, .. }) => added += 1 << order,
                RecordedStep::Took(Event::Reclaim { .. }) => reclaims.push((call, added)),
                RecordedStep::SawActive { pages } => {
                    if saw_active.last().is_none_or(|saw| saw.pages != pages) {
                        saw_active.push(SawActive {
                            pages,
                            after: saw_in,
                            first: call,
                        });
                    }
                    saw_in = call;
                }
                _ => {}
            }
        }
        Shortage {
            reclaims,
            reclaimed: Cell::new(0),
            added: Cell::new(0),
            saw_active,
            seen: Cell::new(0),
            flushed: Cell::new(false),
        }
    }

    /// A call begins. Statistics were flushed at some time before they were seen: when
    /// there were as many active pages as they told of.
    pub(super) fn begin<H: Host>(&self, vfs: &Vfs<H>, call: usize) {
        self.added.set(0);
        while let Some(&saw) = self.saw_active.get(self.seen.get()) {
            let active = vfs.lru_statistics().map(|lists| lists.active);
            let may_be_now = saw.after < call && active == Some(saw.pages);
            if !self.flushed.get() && (may_be_now || saw.first <= call) {
                vfs.flush_memory_statistics();
                self.flushed.set(true);
            }
            if saw.first > call {
                return;
            }
            self.seen.set(self.seen.get() + 1);
            self.flushed.set(false);
        }
    }

    /// Pages of others: all that there are, where the kernel began to reclaim.
    pub(super) fn other_pages(&self, call: usize) -> u64 {
        let is_due = (self.reclaims.get(self.reclaimed.get()))
            .is_some_and(|&due| due <= (call, self.added.get()));
        if is_due { u64::MAX } else { 0 }
    }

    pub(super) fn took(&self, event: &Event) {
        match event {
            Event::Add { order, .. } => self.added.set(self.added.get() + (1 << order)),
            Event::Reclaim { .. } => self.reclaimed.set(self.reclaimed.get() + 1),
            _ => {}
        }
    }
}
