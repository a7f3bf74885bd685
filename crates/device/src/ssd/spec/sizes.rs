//! What several tables decide together: whether the parts fit each other.

use super::super::hybrid::spec::Mapping;
use super::super::map_blocks;
use super::{Interleave, SsdSpec};
use blklab_description::{ReadError, Table};

/// Blocks of a drive: 64 TiB of blocks of 4 MiB. More than that is a slip of
/// the pen, and would take gigabytes to simulate.
const MOST_BLOCKS: u64 = 1 << 24;

impl SsdSpec {
    /// What several tables decide together.
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

    /// The parts that work on their own, and their planes, are bits of a word.
    fn check_units(&self, flash: &Table<'_>) -> Result<(), ReadError> {
        let per_channel = match self.flash.interleave {
            Interleave::Package => self.geometry.packages_per_channel,
            Interleave::Die => self.geometry.dies_per_channel(),
            Interleave::Plane => self.geometry.dies_per_channel() * self.geometry.planes_per_die,
        };
        if per_channel > 64 {
            return Err(flash.wrong(
                "interleave",
                format!("{per_channel} independent parts on a channel, legal is at most 64"),
            ));
        }
        let planes = self.geometry.planes_per_channel() / per_channel;
        if planes > 64 {
            return Err(flash.wrong(
                "interleave",
                format!("{planes} planes in a part that works on its own, legal is at most 64"),
            ));
        }
        Ok(())
    }

    /// Every block has a place in tables.
    fn check_blocks(&self, geometry: &Table<'_>) -> Result<(), ReadError> {
        let blocks = self.geometry.blocks();
        if blocks > MOST_BLOCKS {
            let found = self.geometry.blocks_per_plane;
            let problem = format!(
                "found {found}, which makes {blocks} blocks, legal is at most {MOST_BLOCKS} in all planes"
            );
            return Err(geometry.wrong("blocks_per_plane", problem));
        }
        Ok(())
    }

    fn slots_per_block(&self) -> u64 {
        self.slots_per_page() as u64 * self.geometry.pages_per_block as u64
    }

    /// Places on the flash are counted in 32 bits, those of a block in 16.
    fn check_entries(&self, ftl: &Table<'_>) -> Result<(), ReadError> {
        let slots_per_block = self.slots_per_block();
        if slots_per_block > u16::MAX as u64 {
            return Err(ftl.wrong(
                "map_unit_bytes",
                format!("{slots_per_block} map entries a block, legal is at most 65535: use a larger map unit"),
            ));
        }
        let physical = slots_per_block * self.geometry.blocks();
        if physical >= u32::MAX as u64 {
            return Err(ftl.wrong(
                "map_unit_bytes",
                format!(
                    "{physical} map entries, legal is below {}: use a larger map unit",
                    u32::MAX
                ),
            ));
        }
        Ok(())
    }

    /// The flash holds what the host sees, and collection has room to work.
    fn check_room(&self, geometry: &Table<'_>) -> Result<(), ReadError> {
        // One block for every stream of writes that can be half full.
        let (spare, lost) = match self.ftl.mapping {
            // A block with less than a page to gain is never collected.
            Mapping::Page => (
                self.gc.start_blocks as u64 + 2 + self.slc_cache.is_some() as u64,
                self.slots_per_page() as u64 - 1,
            ),
            Mapping::Hybrid(logs) => (logs.spare_blocks() as u64, 0),
        };
        let usable = (self.data_blocks_per_plane() as u64).saturating_sub(spare)
            * (self.slots_per_block() - lost)
            * self.geometry.planes() as u64;
        let per_plane_rounding = self.geometry.planes() as u64 * self.slots_per_page() as u64;
        if self.logical_slots() + per_plane_rounding > usable {
            return Err(geometry.wrong(
                "blocks_per_plane",
                format!(
                    "the flash holds {} bytes and the host sees {}: {} blocks a plane must be left for collection{}",
                    self.geometry.bytes(),
                    self.identity.capacity_sectors * 512,
                    spare,
                    self.left_for()
                ),
            ));
        }
        Ok(())
    }

    /// What else than data takes a plane's blocks.
    fn left_for(&self) -> String {
        let mut text = match (self.ftl.mapping, self.slc_cache) {
            (Mapping::Hybrid(_), _) => {
                " and logs (hybrid.sequential_logs + hybrid.random_logs + 2)".to_string()
            }
            (_, None) => " (gc.start_blocks + 2)".to_string(),
            (_, Some(cache)) => format!(
                " (gc.start_blocks + 3), and {} are the SLC cache's (slc_cache.static_mb)",
                cache.static_blocks
            ),
        };
        let map_blocks = map_blocks::blocks_per_plane(self);
        if map_blocks > 0 {
            text += &format!(", and {map_blocks} are the map's (ftl.map_cache_kb)");
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
                    "found {}, legal is at least {} (a page for every plane, or 1024)",
                    self.write_cache.size_bytes / 1024,
                    least.min(1 << 20) / 1024
                ),
            ));
        }
        Ok(())
    }
}
