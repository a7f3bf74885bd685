//! A write that there is no room for, and none to gain: what it ends with, and
//! what is written down of why.

use blklab_stats::TooFull;

use crate::CommandStatus;
use crate::ssd::Ssd;

impl Ssd {
    /// Ends a write at a slot that no plane takes.
    #[cold]
    pub(crate) fn refuse_write(&mut self, now_ns: u64, index: u32, slot: u32) {
        self.commands[index as usize].status = CommandStatus::NoSpace;
        match &mut self.stats.too_full {
            Some(too_full) => too_full.writes += 1,
            None => self.stats.too_full = Some(self.first_refused(now_ns, slot)),
        }
    }

    fn first_refused(&self, now_ns: u64, slot: u32) -> TooFull {
        let plane = self.ftl.target(slot);
        let unit_sectors = self.spec.ftl.map_unit_bytes as u64 / 512;
        let blocks = self.ftl.plane_blocks(plane);
        let valid = &self.ftl.blocks.valid[blocks.start as usize..blocks.end as usize];
        let valid_slots: u64 = valid.iter().map(|slots| *slots as u64).sum();
        TooFull {
            writes: 1,
            first_ns: now_ns,
            plane,
            data_blocks: self.ftl.data_blocks_per_plane(),
            block_sectors: self.ftl.slots_per_block() as u64 * unit_sectors,
            valid_sectors: valid_slots * unit_sectors,
            spare_blocks: self.spec.spare_blocks(),
        }
    }
}
