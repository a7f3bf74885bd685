//! Loss of power, and recovery.
//!
//! Commands in progress never complete. With capacitors all of DRAM reaches the
//! flash; without them, data that was not programmed is lost, a page whose program
//! was interrupted is unreadable, and a block whose erase was interrupted has to
//! be erased again. Discards are lost unless a flush has programmed their log.

use blklab_blk::Nanos;

use super::Ssd;
use super::spec::Mapping;

impl Ssd {
    /// Cuts the power at `now`, up to which the drive has been advanced, and
    /// gives it back. Returns when the drive is ready; commands sent earlier
    /// wait until then.
    pub(super) fn lose_power(&mut self, now: Nanos) -> Nanos {
        let interrupted = self.controller.media.flash.power_off(now.0);
        let open_pages = self.pages_to_scan();
        self.controller.media.stats.power_losses += 1;
        let protected = self.controller.media.spec.write_cache.power_loss_protection;
        #[cfg(test)]
        self.controller
            .media
            .ftl
            .shadow_power_loss(protected, &interrupted.records);
        if protected {
            self.controller.media.ftl.save_dram();
        } else {
            let unanswered = self
                .writes
                .unanswered_slots(&self.controller.media.spec, &self.controller.host);
            let lost = self.controller.media.ftl.lose_dram(&interrupted.records);
            let answered = lost.iter().filter(|slot| !unanswered.contains(slot));
            let sectors = self.controller.media.spec.ftl.map_unit_bytes as u64 / 512;
            self.controller.media.stats.power_loss_acknowledged_sectors +=
                answered.count() as u64 * sectors;
            self.controller.media.stats.power_loss_sectors += lost.len() as u64 * sectors;
        }
        self.controller
            .media
            .ftl
            .power_off(&interrupted.map_programs);
        self.writes.power_off();
        self.controller.reads.power_off();
        let ready_ns = now.0 + self.recovery_ns(open_pages);
        self.controller.host.power_off(ready_ns);
        self.controller.media.writes_wait = false;
        self.controller
            .gc
            .power_off(&mut self.controller.media, now.0);
        self.controller
            .gc
            .power_on(&mut self.controller.media, ready_ns);
        Nanos(ready_ns)
    }

    /// Pages whose spare areas have to be read to know what was written last:
    /// those of the blocks that were being written, in every plane.
    fn pages_to_scan(&self) -> u32 {
        (0..self.controller.media.spec.geometry.planes())
            .map(|plane| match self.controller.media.ftl.has_logs() {
                true => self.controller.media.ftl.pages_in_logs(plane),
                false => self.controller.media.ftl.pages_in_open_blocks(plane),
            })
            .max()
            .unwrap_or(0)
    }

    /// The map is read from where it was last written to, by all dies at once,
    /// then the open blocks are scanned to bring it up to date.
    fn recovery_ns(&self, open_pages: u32) -> u64 {
        let geometry = &self.controller.media.spec.geometry;
        let entries = match (
            self.controller.media.ftl.has_cached_map(),
            self.controller.media.spec.ftl.mapping,
        ) {
            (true, _) => 0,
            (false, Mapping::Page) => self.controller.media.spec.logical_slots(),
            (false, Mapping::Hybrid(_)) => geometry.blocks(),
        };
        let map_pages =
            entries.div_ceil(self.controller.media.spec.ftl.entries_per_map_page as u64);
        let dies = (geometry.channels * geometry.dies_per_channel()) as u64;
        let rounds = map_pages.div_ceil(dies) + open_pages as u64;
        rounds * self.controller.media.flash.slowest_read_ns()
    }
}
