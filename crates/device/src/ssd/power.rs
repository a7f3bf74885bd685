//! Loss of power, and what the drive does when it is back.
//!
//! Commands under way are never answered. With capacitors all of DRAM reaches
//! the flash; without, what was not programmed is gone, a page whose program
//! was under way is spoiled, and a block whose erase was under way has to be
//! erased again. Discards are in a log that a flush programs.

use blklab_blk::Nanos;

use super::Ssd;
use super::spec::Mapping;

impl Ssd {
    /// Cuts the power at `now`, up to which the drive has been advanced, and
    /// gives it back. Returns when the drive is ready; commands sent earlier
    /// wait until then.
    pub(super) fn lose_power(&mut self, now: Nanos) -> Nanos {
        let interrupted = self.flash.power_off(now.0);
        let open_pages = self.pages_to_scan();
        self.stats.power_losses += 1;
        let protected = self.spec.write_cache.power_loss_protection;
        #[cfg(test)]
        self.ftl.shadow_power_loss(protected, &interrupted.records);
        if protected {
            self.ftl.save_dram();
        } else {
            let unanswered = self.writes.unanswered_slots(&self.spec, &self.host);
            let lost = self.ftl.lose_dram(&interrupted.records);
            let answered = lost.iter().filter(|slot| !unanswered.contains(slot));
            let sectors = self.spec.ftl.map_unit_bytes as u64 / 512;
            self.stats.power_loss_acknowledged_sectors += answered.count() as u64 * sectors;
            self.stats.power_loss_sectors += lost.len() as u64 * sectors;
        }
        self.ftl.power_off(&interrupted.map_programs);
        self.writes.power_off();
        self.reads.power_off();
        let ready_ns = now.0 + self.recovery_ns(open_pages);
        self.host.power_off(ready_ns);
        let (gc, mut ctx) = self.collector();
        gc.power_off(&mut ctx, now.0);
        gc.power_on(&mut ctx, ready_ns);
        Nanos(ready_ns)
    }

    /// Pages whose spare areas have to be read to know what was written last:
    /// those of the blocks that were being written, in every plane.
    fn pages_to_scan(&self) -> u32 {
        (0..self.spec.geometry.planes())
            .map(|plane| match self.ftl.has_logs() {
                true => self.ftl.pages_in_logs(plane),
                false => self.ftl.pages_in_open_blocks(plane),
            })
            .max()
            .unwrap_or(0)
    }

    /// The map is read from where it was last written to, by all dies at once,
    /// then the open blocks are scanned to bring it up to date.
    fn recovery_ns(&self, open_pages: u32) -> u64 {
        let geometry = &self.spec.geometry;
        let entries = match (self.ftl.has_cached_map(), self.spec.ftl.mapping) {
            (true, _) => 0,
            (false, Mapping::Page) => self.spec.logical_slots(),
            (false, Mapping::Hybrid(_)) => geometry.blocks(),
        };
        let map_pages = entries.div_ceil(self.spec.ftl.entries_per_map_page as u64);
        let dies = (geometry.channels * geometry.dies_per_channel()) as u64;
        let rounds = map_pages.div_ceil(dies) + open_pages as u64;
        rounds * self.flash.slowest_read_ns()
    }
}
