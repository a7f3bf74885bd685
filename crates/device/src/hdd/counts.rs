//! Counts what the heads do.

use blklab_stats::ArmStats;

use super::buffer::Run;
use super::mechanics::Access;

/// The heads go somewhere and over some blocks.
pub(super) fn count_access(counts: &mut ArmStats, access: &Access) {
    match access.cylinders {
        0 => {
            counts.head_switches += (access.seek_ns > 0) as u64;
            counts.head_switch_ns += access.seek_ns;
        }
        cylinders => {
            counts.seeks += 1;
            counts.seek_cylinders += cylinders as u64;
            counts.seek_ns += access.seek_ns;
        }
    }
    counts.rotation_waits += (access.rotation_ns > 0) as u64;
    counts.rotation_ns += access.rotation_ns;
    counts.transfer_ns += access.transfer_ns;
}

/// A run passes under the heads.
pub(super) fn count_sectors(counts: &mut ArmStats, run: Run, write: bool) {
    match write {
        true => counts.sectors_written += run.end - run.start,
        false => counts.sectors_read += run.end - run.start,
    }
}

/// Reading ahead comes to a run in `ns`.
pub(super) fn count_stream(counts: &mut ArmStats, run: Run, ns: u64) {
    counts.reads_streamed += 1;
    counts.transfer_ns += ns;
    count_sectors(counts, run, false);
}
