//! Blocks as the state at the start has them.

use crate::ssd::flash::transaction::NONE;
use crate::ssd::ftl::blocks::Use;
use crate::ssd::ftl::free_blocks::FreeBlocks;
use crate::ssd::ftl::{CLOSED, Frontier, Ftl, Plane, STREAMS, Stream, Victim};

impl Ftl {
    /// Puts a plane's blocks into the state at the start.
    pub(super) fn lay_out(&mut self, plane: u32, planes: u32) {
        let first = plane * self.blocks_per_plane.get();
        let used = self.start.used_blocks(&self.placement, plane);
        for (block, valid) in used.iter().enumerate() {
            let index = first as usize + block;
            self.blocks.valid[index] = *valid;
            self.blocks.programmed[index] = self.pages_per_block as u16;
            self.blocks.uses[index] = Use::Full;
            let before = self
                .start
                .filled_before(&self.placement, plane, block as u32);
            // Planes have filled their blocks side by side.
            self.blocks
                .filled_at_start(first + block as u32, (before as u64 + 1) * planes as u64);
        }
        let untouched = first + used.len() as u32..first + self.data_blocks_per_plane;
        let mut free = FreeBlocks::new(untouched, self.wear.dynamic);
        if let Some(slc) = &mut self.slc {
            for (block, valid) in self.start.cached_blocks(&self.placement, plane) {
                let (is_static, block) = (slc.is_static(block), first + block);
                match is_static {
                    true => slc.free_static(plane).retain(|other| *other != block),
                    false => free.remove(block),
                }
                self.blocks.valid[block as usize] = valid;
                self.blocks.programmed[block as usize] = slc.pages_per_block() as u16;
                self.blocks.uses[block as usize] = Use::Full;
                // As if they had been written last.
                let fills = self.blocks.fills() as u64;
                self.blocks.filled_at_start(block, fills + 1);
                slc.open(plane, block, is_static);
                slc.fill(plane, block);
            }
        }
        self.planes.push(Plane {
            free,
            frontiers: [CLOSED; STREAMS],
            collector: NONE,
            promised: 0,
            owed: 0,
            gives_nothing: false,
        });
        self.go_on(plane);
    }

    /// Goes on where a plane of an aged drive is: opens the blocks that it is
    /// writing.
    fn go_on(&mut self, plane: u32) {
        let Some(scattered) = self.start.scattered(&self.placement, plane) else {
            return;
        };
        let first = plane * self.blocks_per_plane.get();
        let (open, victim) = (scattered.open(), scattered.victim());
        for (stream, open) in [Stream::Host, Stream::Collection].into_iter().zip(open) {
            let Some((block, slots)) = open else { continue };
            let (block, page) = (first + block, self.slots_per_page.split(slots).0);
            self.blocks.go_on(block, page);
            self.planes[plane as usize].frontiers[stream.index()] = Frontier {
                block,
                page,
                ..CLOSED
            };
        }
        self.victims_at_start.extend(victim.map(|(block, had)| {
            let block = first + block;
            Victim { plane, block, had }
        }));
    }
}
