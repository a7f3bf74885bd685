//! `[slc_cache]`: multi-level flash that is written with one bit a cell.

use super::{FlashSpec, MAX_US};
use crate::ssd::geometry::Geometry;
use blklab_description::{ReadError, Table};

/// `[slc_cache]`: multi-level flash that is written with one bit a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlcCacheSpec {
    /// Blocks of every plane that serve nothing else.
    pub static_blocks: u32,
    /// Further blocks of every plane that may serve it while they are free.
    pub dynamic_blocks: u32,
    /// Array time of a read.
    pub read_ns: u64,
    /// Array time of a program.
    pub program_ns: u64,
    /// Time of an erase.
    pub erase_ns: u64,
    /// What becomes of writes while it is full.
    pub when_full: WhenFull,
    /// The host's silence after which it is emptied; `None` where that happens
    /// only for want of room.
    pub fold_after_ns: Option<u64>,
    /// Share of it that holds data at the start.
    pub filled: f64,
}

/// What becomes of the host's writes while the SLC cache is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// They go to multi-level pages at once.
    Direct,
    /// They wait until a block of the cache has been emptied.
    Wait,
}

pub(super) fn read_slc_cache(
    table: &Table<'_>,
    geometry: &Geometry,
    flash: &FlashSpec,
) -> Result<SlcCacheSpec, ReadError> {
    let bits = flash.read_ns.len() as u32;
    let pages = geometry.pages_per_block / bits;
    if bits < 2 || pages == 0 {
        return Err(table.wrong(
            "static_mb",
            "legal with a cell of two to four bits (flash.cell) and as many pages a block",
        ));
    }
    // A block of every plane at one bit a cell.
    let stripe_bytes = geometry.planes() as u64 * pages as u64 * geometry.page_bytes as u64;
    let blocks = |megabytes: f64| (megabytes * 1e6 / stripe_bytes as f64).ceil() as u64;
    let size = |key| table.number_or(key, 0.0..=1e9, 0.0).map(blocks);
    let (static_blocks, dynamic_blocks) = (size("static_mb")?, size("dynamic_mb")?);
    if static_blocks + dynamic_blocks == 0 {
        return Err(table.wrong("static_mb", "legal is above 0, here or in dynamic_mb"));
    }
    let most = geometry.blocks_per_plane as u64;
    for (key, blocks) in [("static_mb", static_blocks), ("dynamic_mb", dynamic_blocks)] {
        if blocks >= most {
            return Err(table.wrong(
                key,
                format!(
                    "which is {blocks} blocks a plane at one bit a cell, legal is below geometry.blocks_per_plane ({most})"
                ),
            ));
        }
    }
    let cache = SlcCacheSpec {
        static_blocks: static_blocks as u32,
        dynamic_blocks: dynamic_blocks as u32,
        read_ns: table.micros_above_zero("read_us", MAX_US)?,
        program_ns: table.micros_above_zero("program_us", MAX_US)?,
        erase_ns: table.micros_above_zero_or("erase_us", MAX_US, flash.erase_ns)?,
        when_full: table.choice(
            "when_full",
            &[("direct", WhenFull::Direct), ("wait", WhenFull::Wait)],
        )?,
        fold_after_ns: table.micros_if_any("fold_after_us", 1e12)?,
        filled: table.number_or("filled", 0.0..=1.0, 0.0)?,
    };
    table.finish()?;
    Ok(cache)
}
