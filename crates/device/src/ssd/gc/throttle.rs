//! Where collection and the host's writes balance.
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

use crate::ssd::Ssd;
use crate::ssd::ftl::{Ftl, Stream, Victim};

impl Ssd {
    /// The stream that takes a slot of the host's in a plane now; `None` where
    /// the host has to wait, for a free block or for collection.
    #[inline]
    pub(crate) fn host_stream(&self, plane: u32) -> Option<Stream> {
        let stream = self.ftl.stream_with_room(plane)?;
        (stream != Stream::Host || self.lets_go_on(plane)).then_some(stream)
    }

    /// Whether a plane takes a slot of the host's past the SLC cache now.
    pub(crate) fn takes_direct(&self, plane: u32) -> bool {
        self.ftl.has_room_for_host(plane) && self.lets_go_on(plane)
    }

    /// Whether the host may go on past the SLC cache in a plane: it is filling a
    /// page, or collection is not behind.
    #[inline]
    fn lets_go_on(&self, plane: u32) -> bool {
        self.ftl.filling(plane, Stream::Host).is_some() || !self.is_behind(plane)
    }

    /// Whether the row of a plane is below its working point, and collection at
    /// work there to change that.
    #[inline]
    pub(crate) fn is_behind(&self, plane: u32) -> bool {
        if !self.spec.gc.preemptible || !self.row_collects(plane) {
            return false;
        }
        let row = self.ftl.row_of(plane);
        let point = self.spec.gc.working_point(self.ftl.slots_per_block()) * row.len() as u32;
        let room: u32 = row.map(|plane| self.room_of(plane)).sum();
        room < point
    }

    /// Slots free in a plane, what its collection has gained included.
    fn room_of(&self, plane: u32) -> u32 {
        let job = &self.jobs[plane as usize];
        let victim = job.is_running().then_some(Victim {
            plane,
            block: job.victim,
            had: job.valid,
        });
        self.ftl.room(plane, victim)
    }
}

impl Ftl {
    /// Slots free in a plane, with what has been gained of the block being
    /// emptied.
    pub(crate) fn room(&self, plane: u32, victim: Option<Victim>) -> u32 {
        self.free_slots(plane) + victim.map_or(0, |victim| self.gained(victim))
    }

    /// Slots of a plane that can be written without an erase.
    fn free_slots(&self, plane: u32) -> u32 {
        let state = &self.planes[plane as usize];
        let left = |stream: Stream| {
            let frontier = &state.frontiers[stream.index()];
            match self.is_open(plane, stream) {
                true => (self.pages_per_block - frontier.page) * self.slots_per_page(),
                false => 0,
            }
        };
        let open: u32 = [Stream::Host, Stream::Collection]
            .into_iter()
            .map(left)
            .sum();
        state.free.len() as u32 * self.slots_per_block() + open
    }

    /// What a collection has gained of its block, by what is left to be moved.
    fn gained(&self, victim: Victim) -> u32 {
        if self.is_static_slc(victim.block) {
            return 0;
        }
        let left = self.blocks.valid[victim.block as usize] as u64;
        let all = u64::from(victim.had).max(left).max(1);
        (self.slots_per_block() as u64 * (all - left) / all) as u32
    }
}
