//! A drive that refused writes for want of room: which, since when, why, and what
//! would help.

use blklab_stats::{DiskStats, Results, TooFull};

use crate::quantity::{latency, short};

/// What to say of each drive of a run that was too full.
pub fn too_full(run: &Results) -> Vec<String> {
    let sentence = |disk: &DiskStats| Some(sentence(disk, &run.drive, disk.device.too_full?));
    run.disks.iter().filter_map(sentence).collect()
}

fn sentence(disk: &DiskStats, drive: &str, found: TooFull) -> String {
    let TooFull {
        writes,
        first_ns,
        plane,
        data_blocks,
        block_sectors,
        valid_sectors,
        spare_blocks,
    } = found;
    let megabytes = |sectors: u64| format!("{} MB", short(sectors as f64 * 512.0 / 1e6));
    let blocks = |blocks: u32| megabytes(blocks as u64 * block_sectors);
    format!(
        "{} ({drive}) has too little over-provisioning for what was written to it: from {} into \
         the run on {writes} writes ended with \"No space left on device\". Plane {plane} then \
         held {} of valid data in {data_blocks} blocks of {} together, of which collection \
         needs {spare_blocks} ({}) for itself. Raise geometry.blocks_per_plane, lower \
         host.capacity_bytes, or write to less of it",
        disk.name,
        latency(first_ns as f64),
        megabytes(valid_sectors),
        blocks(data_blocks),
        blocks(spare_blocks),
    )
}
