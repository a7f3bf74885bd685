//! `[geometry]`: how many of everything.

use crate::ssd::geometry::Geometry;
use blklab_description::{ReadError, Table};

pub(super) fn read_geometry(table: &Table<'_>) -> Result<Geometry, ReadError> {
    let geometry = Geometry {
        channels: table.int("channels", 1..=64)? as u32,
        packages_per_channel: table.int("packages_per_channel", 1..=64)? as u32,
        dies_per_package: table.int("dies_per_package", 1..=32)? as u32,
        planes_per_die: table.int("planes_per_die", 1..=8)? as u32,
        blocks_per_plane: table.int("blocks_per_plane", 4..=1 << 20)? as u32,
        pages_per_block: table.int("pages_per_block", 1..=16384)? as u32,
        page_bytes: table.int("page_kb", 1..=64)? as u32 * 1024,
        page_parts: table.int_or("page_parts", 1..=16, 1)? as u32,
    };
    if !geometry.page_bytes.is_power_of_two() {
        return Err(table.wrong("page_kb", "legal is a power of two from 1 to 64"));
    }
    let parts = geometry.page_parts;
    if !parts.is_power_of_two() || !geometry.pages_per_block.is_multiple_of(parts) {
        let legal = "legal is a power of two from 1 to 16 that divides pages_per_block";
        return Err(table.wrong("page_parts", legal));
    }
    table.finish()?;
    Ok(geometry)
}
