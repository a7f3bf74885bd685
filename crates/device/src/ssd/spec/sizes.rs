//! Checks across several tables of a description.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;

use super::{Interleave, Mapping, SsdSpec};
use blklab_description::{ReadError, Table};

/// Most blocks of a drive, 64 TiB of blocks of 4 MiB: more would be a mistake in the
/// description, and take gigabytes to simulate.
const MOST_BLOCKS: u64 = 1 << 24;

impl SsdSpec {
    /// Checks sizes across tables.
    ///
    /// # Errors
    /// Where parts do not fit each other; the message names the key to change.
    pub(super) fn check_sizes(
        &self,
        geometry: &Table<'_>,
        ftl: &Table<'_>,
        cache: &Table<'_>,
        flash: &Table<'_>,
    ) -> Result<(), ReadError> {
        self.check_units(flash)?;
        self.check_blocks(geometry)?;
        self.check_entries(ftl)?;
        self.check_room(geometry)?;
        self.check_write_cache(cache)
    }

    /// Units on a channel, and planes of a unit, are bits of a 64-bit word.
    fn check_units(&self, flash: &Table<'_>) -> Result<(), ReadError> {
        let per_channel = match self.flash.interleave {
            Interleave::Package => self.geometry.packages_per_channel,
            Interleave::Die => self.geometry.dies_per_channel(),
            Interleave::Plane => self.geometry.dies_per_channel() * self.geometry.planes_per_die,
        };
        if per_channel > 64 {
            return Err(flash.wrong(
                "interleave",
                format!(
                    "which makes {per_channel} independent parts on a channel, legal is at most 64"
                ),
            ));
        }
        let planes = self.geometry.planes_per_channel() / per_channel;
        if planes > 64 {
            return Err(flash.wrong(
                "interleave",
                format!("which makes {planes} planes in a part that works on its own, legal is at most 64"),
            ));
        }
        Ok(())
    }

    /// Every block has a place in tables, whose size is limited.
    fn check_blocks(&self, geometry: &Table<'_>) -> Result<(), ReadError> {
        let blocks = self.geometry.blocks();
        if blocks > MOST_BLOCKS {
            let most = MOST_BLOCKS / self.geometry.planes() as u64;
            let problem = format!(
                "which makes {blocks} blocks in {} planes, legal is at most {most} ({MOST_BLOCKS} in all)",
                self.geometry.planes()
            );
            return Err(geometry.wrong("blocks_per_plane", problem));
        }
        Ok(())
    }

    fn slots_per_block(&self) -> u64 {
        self.slots_per_page() as u64 * self.geometry.pages_per_block as u64
    }

    /// Physical slots are numbered in 32 bits, those of a block in 16.
    fn check_entries(&self, ftl: &Table<'_>) -> Result<(), ReadError> {
        let slots_per_block = self.slots_per_block();
        if slots_per_block > u16::MAX as u64 {
            return Err(ftl.wrong(
                "map_unit_bytes",
                format!("which makes {slots_per_block} map entries a block, legal is at most 65535: use a larger map unit"),
            ));
        }
        let physical = slots_per_block * self.geometry.blocks();
        if physical >= u32::MAX as u64 {
            return Err(ftl.wrong(
                "map_unit_bytes",
                format!(
                    "which makes {physical} map entries, legal is below {}: use a larger map unit",
                    u32::MAX
                ),
            ));
        }
        Ok(())
    }

    /// The flash holds what the host sees, and collection has room to work.
    fn check_room(&self, geometry: &Table<'_>) -> Result<(), ReadError> {
        let lost = match self.ftl.mapping {
            // A block with less than a page to gain is never collected.
            Mapping::Page => self.slots_per_page() as u64 - 1,
            Mapping::Hybrid(_) => 0,
        };
        let spare = self.spare_blocks() as u64;
        let planes = self.geometry.planes() as u64;
        let per_plane_rounding = planes * self.slots_per_page() as u64;
        let needed = (self.logical_slots() + per_plane_rounding)
            .div_ceil((self.slots_per_block() - lost) * planes);
        let others = self.static_blocks() as u64 + self.map_blocks_per_plane() as u64;
        let least = needed + spare + others;
        if (self.geometry.blocks_per_plane as u64) < least {
            let problem = format!(
                "legal is at least {least}: {needed} for the {} bytes of host.capacity_bytes, \
                 {spare} left for collection{}",
                self.identity.capacity_sectors * 512,
                self.left_for()
            );
            return Err(geometry.wrong("blocks_per_plane", problem));
        }
        Ok(())
    }

    /// Blocks of a plane that collection or merges need, including an open one for every
    /// stream.
    pub(in crate::ssd) fn spare_blocks(&self) -> u32 {
        match self.ftl.mapping {
            Mapping::Page => self.gc.start_blocks + 2 + self.slc_cache.is_some() as u32,
            Mapping::Hybrid(logs) => logs.spare_blocks(),
        }
    }

    /// What takes a plane's blocks besides data, for a message.
    fn left_for(&self) -> String {
        let mut text = match (self.ftl.mapping, self.slc_cache) {
            (Mapping::Hybrid(_), _) => {
                " and logs (hybrid.sequential_logs + hybrid.random_logs + 2)".to_string()
            }
            (_, None) => " (gc.start_blocks + 2)".to_string(),
            (_, Some(cache)) => format!(
                " (gc.start_blocks + 3), {} for the SLC cache (slc_cache.static_mb)",
                cache.static_blocks
            ),
        };
        let map_blocks = self.map_blocks_per_plane();
        if map_blocks > 0 {
            text += &format!(", {map_blocks} for the map (ftl.map_cache_kb)");
        }
        text
    }

    /// A write cache holds a page for every plane.
    fn check_write_cache(&self, cache: &Table<'_>) -> Result<(), ReadError> {
        let page = self.geometry.page_bytes as u64;
        let least = page * self.geometry.planes() as u64;
        if self.write_cache.size_bytes < least.min(1 << 20) {
            return Err(cache.wrong(
                "size_kb",
                format!(
                    "legal is at least {} (a page for every plane, or 1024)",
                    least.min(1 << 20) / 1024
                ),
            ));
        }
        Ok(())
    }
}
