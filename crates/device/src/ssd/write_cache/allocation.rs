//! Which plane takes the host's next page.
//!
//! Static allocation gives every address its plane. Dynamic allocation (Tavakkol
//! et al., "Unleashing the potentials of dynamism for page allocation
//! strategies in SSDs", SIGMETRICS 2014) looks at what is idle when a page is
//! begun: pages follow each other over the planes in the same order as under
//! static allocation, but those whose die is at work are passed over. Where the
//! layout keeps a range of addresses on one channel, it chooses among that
//! channel's planes.

use crate::ssd::Ssd;
use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::Stream;
use crate::ssd::spec::Allocation;

/// Where dynamic allocation stands in one range of addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The plane whose page is being filled, [`NONE`] before the first.
    plane: u32,
    /// The place in the order that is next.
    next: u32,
}

impl Turn {
    pub(crate) const FIRST: Turn = Turn {
        plane: NONE,
        next: 0,
    };
}

impl Ssd {
    /// Plane and stream that take a slot of the host's now; `None` where it has
    /// to wait.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, now_ns: u64, slot: u32) -> Option<(u32, Stream)> {
        if self.ftl.hybrid.is_some() {
            return self.allocate_in_logs(now_ns, slot);
        }
        if self.spec.ftl.allocation != Allocation::Static {
            return self.allocate_dynamically(slot);
        }
        let plane = self.ftl.target(slot);
        if self.ftl.has_rows() {
            return self.allocate_in_row(now_ns, plane);
        }
        self.host_stream(plane).map(|stream| (plane, stream))
    }

    /// The plane of a row whose turn it is. The row waits for it while anything
    /// can be freed there.
    fn allocate_in_row(&mut self, now_ns: u64, plane: u32) -> Option<(u32, Stream)> {
        if self.ftl.slc.is_some() {
            let cached = self.ftl.in_turn(plane, Stream::Slc);
            if self.ftl.takes_cached(cached) {
                return Some((cached, Stream::Slc));
            }
            if self.ftl.waits_for_cache(cached) {
                return None;
            }
        }
        let first = self.ftl.in_turn(plane, Stream::Host);
        if self.takes_direct(first) {
            return Some((first, Stream::Host));
        }
        if self.collect(now_ns, first) {
            return None;
        }
        let mut row = self.ftl.row_of(plane);
        row.find(|plane| self.takes_direct(*plane))
            .map(|plane| (plane, Stream::Host))
    }

    fn allocate_dynamically(&mut self, slot: u32) -> Option<(u32, Stream)> {
        let range = self.ftl.placement.range_of(self.ftl.target(slot));
        let turn = self.turns[range as usize];
        if turn.plane != NONE
            && let Some(stream) = self.host_stream(turn.plane)
            && (self.ftl.filling(turn.plane, stream))
                .is_some_and(|record| !self.ftl.is_full(record))
        {
            return Some((turn.plane, stream));
        }
        let planes = self.ftl.placement.planes_per_range();
        let mut best: Option<(u64, u32, u32, Stream)> = None;
        for step in 0..planes {
            let place = (turn.next + step) % planes;
            let plane = self.ftl.placement.plane_at(range, place);
            let Some(stream) = self.host_stream(plane) else {
                continue;
            };
            let load = match self.spec.ftl.allocation {
                // Any die at work is as bad as any other.
                Allocation::NextFree => (self.flash.load(plane) > 0) as u64,
                _ => self.flash.load(plane),
            };
            if best.is_none_or(|(least, ..)| load < least) {
                best = Some((load, place, plane, stream));
            }
            if load == 0 {
                break;
            }
        }
        let (_, place, plane, stream) = best?;
        self.turns[range as usize] = Turn {
            plane,
            next: (place + 1) % planes,
        };
        Some((plane, stream))
    }

    /// No plane takes the slot: starts to make room. `false` where there is
    /// none to be made.
    pub(crate) fn make_room(&mut self, now_ns: u64, slot: u32) -> bool {
        if self.ftl.hybrid.is_some() {
            // A merge is under way.
            return true;
        }
        let target = self.ftl.target(slot);
        if self.spec.ftl.allocation == Allocation::Static {
            if self.ftl.waits_for_cache(target) && !self.row_collects(target) {
                self.fold_where_due(now_ns);
            }
            let mut may_come = false;
            for plane in self.ftl.row_of(target) {
                may_come |= self.collect(now_ns, plane);
            }
            return may_come;
        }
        let range = self.ftl.placement.range_of(target);
        let mut may_come = false;
        for place in 0..self.ftl.placement.planes_per_range() {
            let plane = self.ftl.placement.plane_at(range, place);
            may_come |= self.collect(now_ns, plane);
        }
        if !may_come && self.dirty_bytes > 0 {
            // Copies may be kept only for what overwrites them in DRAM.
            self.close_all(now_ns);
            may_come = self.programs_queued > 0;
        }
        may_come
    }
}
