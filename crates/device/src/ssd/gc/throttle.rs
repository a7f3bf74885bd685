//! How the host is kept in step with collection.
//!
//! Collection that steps aside for the host would never have its turn while the
//! host writes without pause: free blocks would run out, and the host would
//! stand still for whole blocks at a time. So firmware makes collection earn
//! what the host spends. Above its *working point* a plane has room to spare
//! and collection waits for an idle die. Below it collection has its turn like
//! anybody, and the host begins no further page in the plane until the point is
//! reached again. Under writes without pause a drive stays at that point, for as
//! long as they last: it is the steady state.
//!
//! What a collection under way has gained counts already, in proportion to what
//! it has moved; else room would come in steps of a block, and so would the
//! host's pauses.
//!
//! Other firmware lets the host write as much as collection has gained, and takes
//! writes up again only when that is worth while, which is what a host sees as
//! stalls of many milliseconds under random writes without pause: the [`Pace`].

use super::{Collector, Job, Media};
use crate::ssd::ftl::{Stream, Victim};

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

impl Collector {
    /// The stream that takes a slot of the host's in a plane now; `None` where
    /// the host has to wait, for a free block or for collection.
    #[inline]
    pub(crate) fn host_stream(&self, ctx: &Media, plane: u32) -> Option<Stream> {
        let stream = ctx.ftl.stream_with_room(plane)?;
        (stream != Stream::Host || self.lets_go_on(ctx, plane)).then_some(stream)
    }

    /// Whether a plane takes a slot of the host's past the SLC cache now.
    pub(crate) fn takes_direct(&self, ctx: &Media, plane: u32) -> bool {
        ctx.ftl.has_room_for_host(plane) && self.lets_go_on(ctx, plane)
    }

    /// Whether the host may go on past the SLC cache in a plane: it is filling a
    /// page, or collection is not behind.
    #[inline]
    fn lets_go_on(&self, ctx: &Media, plane: u32) -> bool {
        ctx.ftl.filling(plane, Stream::Host).is_some() || !self.is_behind(ctx, plane)
    }

    /// Whether the row of a plane is below its working point, and collection at
    /// work there to change that.
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

    /// Slots free in a plane, what its collection has gained included.
    fn room_of(&self, ctx: &Media, plane: u32) -> u32 {
        let job = &self.jobs[plane as usize];
        let victim = job.is_running().then_some(Victim {
            plane,
            block: job.victim,
            had: job.valid,
        });
        ctx.ftl.room(plane, victim)
    }

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
    pub(crate) fn earn_credit(&mut self, ctx: &mut Media, job: &Job) {
        if let Some(pace) = &mut self.pace {
            let share = share_of(job, ctx.ftl.slots_per_block());
            pace.credit = (pace.credit + share).min(pace.enough);
        }
    }

    /// Collection has only to erase its block: what that gains beyond the shares
    /// of what was moved, which is all of it where nothing was. As many blocks
    /// may be erased at once as there are planes, so what one gains may be more
    /// than the host needs to go on.
    pub(crate) fn earn_rest(&mut self, ctx: &mut Media, job: &Job) {
        if let Some(pace) = &mut self.pace {
            let slots = ctx.ftl.slots_per_block();
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

/// What a slot that is moved gains of its block.
fn share_of(job: &Job, slots: u32) -> i64 {
    i64::from(slots.saturating_sub(job.valid)) * PARTS / i64::from(job.valid).max(1)
}
