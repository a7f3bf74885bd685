//! The host's writes kept in step with collection.
//!
//! In the steady state every block that the host fills has to be freed first,
//! by moving what is valid out of others. A drive that let the host run ahead
//! would use up its free blocks and then stand still for whole blocks at a
//! time, so firmware lets it write as much as collection has gained. It takes
//! writes up again only when that is worth while, which is what a host sees as
//! stalls of many milliseconds under random writes without pause.

use crate::ssd::Ssd;
use crate::ssd::gc::victim::Job;

/// How far the host is behind collection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Slots that it may write, in parts of [`PARTS`].
    credit: i64,
    /// What it has to have to go on after it had none, and the most that moved
    /// slots earn it.
    enough: i64,
    waits: bool,
}

/// Parts of a slot that credit is counted in.
const PARTS: i64 = 1 << 10;

impl Pace {
    pub(crate) fn new(slots: u64) -> Pace {
        let enough = slots as i64 * PARTS;
        Pace {
            credit: enough,
            enough,
            waits: false,
        }
    }
}

impl Ssd {
    /// Whether the host has to wait for collection.
    pub(crate) fn is_behind_pace(&mut self) -> bool {
        let Some(pace) = &mut self.pace else {
            return false;
        };
        pace.waits = match pace.waits {
            false => pace.credit <= 0,
            true => pace.credit < pace.enough,
        };
        // Where nothing is collected there is nothing to wait for.
        pace.waits && self.jobs.iter().any(Job::is_under_way)
    }

    /// The host has written a slot.
    pub(crate) fn spend_credit(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.credit = (pace.credit - PARTS).max(0);
        }
    }

    /// Collection has moved a slot: its share of what the block will free.
    pub(crate) fn earn_credit(&mut self, job: &Job) {
        if let Some(pace) = &mut self.pace {
            let share = share_of(job, self.ftl.slots_per_block());
            pace.credit = (pace.credit + share).min(pace.enough);
        }
    }

    /// Collection has only to erase its block: what that gains beyond the shares
    /// of what was moved, which is all of it where nothing was. As many blocks
    /// may be erased at once as there are planes, so what one gains may be more
    /// than the host needs to go on.
    pub(crate) fn earn_rest(&mut self, job: &Job) {
        if let Some(pace) = &mut self.pace {
            let slots = self.ftl.slots_per_block();
            let gained = i64::from(slots - job.moved) * PARTS;
            pace.credit += gained - i64::from(job.moved) * share_of(job, slots);
        }
    }

    /// The host waits, and need not any more.
    pub(crate) fn has_caught_up(&self) -> bool {
        let pace = self.pace.as_ref();
        pace.is_some_and(|pace| pace.waits && pace.credit >= pace.enough)
    }
}

/// What a slot that is moved gains of a block with so many slots.
fn share_of(job: &Job, slots: u32) -> i64 {
    i64::from(slots.saturating_sub(job.valid)) * PARTS / i64::from(job.valid).max(1)
}
