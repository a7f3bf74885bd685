//! Throttling of host writes by collection.
//!
//! Collection that always yields to the host would never run while the host writes
//! without pause: free blocks would run out, and the host would stall for whole
//! blocks at a time. So there is a *working point* of free slots. Above it a plane's
//! collection runs only while its die is idle. Below it collection has normal
//! priority, and the host begins no further page in the plane until the point is
//! reached again. Under sustained writes a drive stays at that point: it is the
//! steady state.
//!
//! The gain of a collection in progress counts in proportion to what it has moved;
//! otherwise room, and the host's stalls, would come in steps of a block.
//!
//! Other firmware lets the host write as much as collection has freed, and resumes
//! stalled writes only when enough has been freed, which shows as stalls of many
//! milliseconds under sustained random writes: the [`Pace`].

use super::{Collector, Job, Media};
use crate::ssd::ftl::{Stream, Victim};

/// The host's credit of writes, which collection earns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Slots that the host may write, in units of 1 / [`CREDIT_PER_SLOT`].
    credit: i64,
    /// The credit at which writes resume after it ran out, and the most that moved slots
    /// earn.
    enough: i64,
    waits: bool,
}

/// Credit for one slot.
const CREDIT_PER_SLOT: i64 = 1 << 10;

impl Pace {
    pub(crate) fn new(slots: u64) -> Pace {
        let enough = slots as i64 * CREDIT_PER_SLOT;
        Pace {
            credit: enough,
            enough,
            waits: false,
        }
    }
}

impl Collector {
    /// The stream that takes a host slot in a plane now; `None` where the host has to wait,
    /// for a free block or for collection.
    #[inline]
    pub(crate) fn host_stream(&self, ctx: &Media, plane: u32) -> Option<Stream> {
        let stream = ctx.ftl.stream_with_room(plane)?;
        (stream != Stream::Host || self.admits_host(ctx, plane)).then_some(stream)
    }

    /// Whether a plane takes a host slot past the SLC cache now.
    pub(crate) fn takes_direct(&self, ctx: &Media, plane: u32) -> bool {
        ctx.ftl.has_room_for_host(plane) && self.admits_host(ctx, plane)
    }

    /// Whether the host may write past the SLC cache in a plane: its page there is open, or
    /// collection is not behind.
    #[inline]
    fn admits_host(&self, ctx: &Media, plane: u32) -> bool {
        ctx.ftl.filling(plane, Stream::Host).is_some() || !self.is_behind(ctx, plane)
    }

    /// Whether the row of a plane is below its working point while collection runs there.
    #[inline]
    pub(crate) fn is_behind(&self, ctx: &Media, plane: u32) -> bool {
        if !ctx.spec.gc.preemptible || !self.row_collects(ctx, plane) {
            return false;
        }
        let row = ctx.ftl.row_of(plane);
        let point = ctx.spec.gc.working_point(ctx.ftl.slots_per_block()) * row.len() as u32;
        let room: u32 = row.map(|plane| self.room_of(ctx, plane)).sum();
        room < point
    }

    /// Free slots of a plane, including the gain of its collection in progress.
    fn room_of(&self, ctx: &Media, plane: u32) -> u32 {
        let job = &self.jobs[plane as usize];
        let victim = job.is_running().then_some(Victim {
            plane,
            block: job.victim,
            initially_valid: job.initially_valid,
        });
        ctx.ftl.room(plane, victim)
    }

    /// Whether the host has to wait until collection has earned credit.
    pub(crate) fn is_behind_pace(&mut self) -> bool {
        let Some(pace) = &mut self.pace else {
            return false;
        };
        pace.waits = match pace.waits {
            false => pace.credit <= 0,
            true => pace.credit < pace.enough,
        };
        // Without a collection in progress no credit would ever come.
        pace.waits && self.jobs.iter().any(Job::is_under_way)
    }

    /// Charges the host for a slot that it has written.
    pub(crate) fn spend_credit(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.credit = (pace.credit - CREDIT_PER_SLOT).max(0);
        }
    }

    /// Credits a slot that collection has moved with its share of what the block will
    /// free.
    pub(crate) fn earn_credit(&mut self, ctx: &mut Media, job: &Job) {
        if let Some(pace) = &mut self.pace {
            let share = credit_of_moved_slot(job, ctx.ftl.slots_per_block());
            pace.credit = (pace.credit + share).min(pace.enough);
        }
    }

    /// Credits the rest of what a block frees before its erase, beyond the shares of moved
    /// slots. This may exceed [`Pace::enough`], since as many blocks may be erased at
    /// once as there are planes.
    pub(crate) fn earn_rest(&mut self, ctx: &mut Media, job: &Job) {
        if let Some(pace) = &mut self.pace {
            let slots = ctx.ftl.slots_per_block();
            let gained = i64::from(slots - job.moved) * CREDIT_PER_SLOT;
            pace.credit += gained - i64::from(job.moved) * credit_of_moved_slot(job, slots);
        }
    }

    /// Whether waiting writes may resume.
    pub(crate) fn has_caught_up(&self) -> bool {
        let pace = self.pace.as_ref();
        pace.is_some_and(|pace| pace.waits && pace.credit >= pace.enough)
    }
}

/// The credit for a slot that is moved: its share of what the block frees.
fn credit_of_moved_slot(job: &Job, slots: u32) -> i64 {
    i64::from(slots.saturating_sub(job.initially_valid)) * CREDIT_PER_SLOT
        / i64::from(job.initially_valid).max(1)
}
