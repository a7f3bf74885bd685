//! The description of a disk, read and checked.

use alloc::format;
use alloc::vec::Vec;

use blklab_description::{
    KeyType, ReadError, Table, array, flag, is_whole, keys, nanos, number, whole, word,
};
use strum::{Display, EnumMessage, VariantArray};

use crate::Identity;
use crate::spec::byte_ps;

const MAX_US: f64 = 1_000_000.0;

/// A disk, as described.
#[derive(Clone, Debug)]
pub struct HddSpec {
    /// What the host sees.
    pub identity: Identity,
    /// The link to the host.
    pub link: LinkSpec,
    /// The firmware's time and scheduling.
    pub controller: ControllerSpec,
    /// The firmware's overheads by kind of command.
    pub overheads: OverheadsSpec,
    /// The arm, the heads and the platters.
    pub mechanics: MechanicsSpec,
    /// The buffer.
    pub cache: CacheSpec,
}

keys! {
    /// The link between host and disk.
    #[derive(Clone, Copy, Debug)]
    pub struct LinkSpec(table) {
        /// Its bandwidth.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(1.0..=1e6).map(byte_ps);
        /// From the host's doorbell to the command in the disk.
        pub submit_ns: u64 as "submit_us" = number(0.0..=MAX_US).map(nanos);
        /// From the last byte to the completion at the host.
        // Commands that take no time would let a job submit without end at one moment.
        pub complete_ns: u64 as "complete_us" = number(0.0..=MAX_US).map(|us| nanos(us).max(1));
        /// The share of a read that is off the platters when its transfer to the host starts,
        /// while the heads read the rest; without it, the transfer follows the read.
        pub read_watermark: Option<f64> = number(0.0..=1.0).optional();
        /// The share of a write past the buffer, of its part on the first track, that has to be
        /// transferred before the heads may begin to write; the arm moves meanwhile. Without
        /// it the arm waits for all.
        pub write_watermark: Option<f64> = number(0.0..=1.0).optional();
    }
}

/// Which command a disk takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DiskScheduling {
    /// The one that came first.
    Fcfs,
    /// The one whose sectors come under a head soonest, as NCQ lets it choose.
    ShortestPositioning,
}

keys! {
    /// The firmware's own time and its order of work.
    #[derive(Clone, Copy, Debug)]
    pub struct ControllerSpec(table) {
        /// The firmware's time for a command.
        pub command_ns: u64 as "command_us" = number(0.0..=MAX_US).map(nanos);
        /// Which of the queued commands is served next.
        pub scheduling: DiskScheduling = word();
        /// A command that has waited this long is served next, wherever it is; so is data in
        /// the disk's own buffer before a read that continues a stream.
        pub patience_ns: u64 as "patience_us" = patience(scheduling);
    }
}

fn patience(scheduling: DiskScheduling) -> KeyType<'static, u64> {
    let entry = number(0.0..=100.0 * MAX_US).map(nanos).needs(
        scheduling == DiskScheduling::ShortestPositioning,
        "controller.scheduling = \"shortest_positioning\"",
    );
    match scheduling {
        DiskScheduling::Fcfs => entry.or(0),
        DiskScheduling::ShortestPositioning => entry,
    }
}

keys! {
    /// The firmware's overheads by the kind of a command and of the one before, besides
    /// controller.command_us (Ruemmler and Wilkes 1994; Bucy and others, "The DiskSim
    /// simulation environment version 4.0", 2008, on how they are measured).
    #[derive(Clone, Copy, Debug, Default)]
    pub struct OverheadsSpec(table) {
        /// A read hit in the buffer, after a read.
        pub read_hit_after_read_ns: u64 as "read_hit_after_read_us" = overhead();
        /// A read hit in the buffer, after a write.
        pub read_hit_after_write_ns: u64 as "read_hit_after_write_us" = overhead();
        /// A read miss, after a read.
        pub read_miss_after_read_ns: u64 as "read_miss_after_read_us" = overhead();
        /// A read miss, after a write.
        pub read_miss_after_write_ns: u64 as "read_miss_after_write_us" = overhead();
        /// A write after a read.
        pub write_after_read_ns: u64 as "write_after_read_us" = overhead();
        /// A write after a write.
        pub write_after_write_ns: u64 as "write_after_write_us" = overhead();
        /// Completing a read.
        pub read_end_ns: u64 as "read_end_us" = overhead();
        /// Completing a write.
        pub write_end_ns: u64 as "write_end_us" = overhead();
    }
}

fn overhead() -> KeyType<'static, u64> {
    number(0.0..=MAX_US).or(0.0).map(nanos)
}

/// Cylinders with the same number of sectors a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// How many cylinders.
    pub cylinders: u32,
    /// Sectors of 512 bytes on each of their tracks; none on cylinders that the host
    /// does not see (spares, the firmware's own).
    pub sectors_per_track: u32,
    /// Track skew (between heads) and cylinder skew, in sectors; `None`: those that a head
    /// switch and a track seek take.
    pub skews: Option<[u32; 2]>,
    /// The angle of its first sector behind the mark at which a revolution begins, in
    /// sectors.
    pub first_sector_at: u32,
}

/// Measured seek times by distance in cylinders, interpolated linearly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekCurve(Vec<(u32, u64)>);

impl SeekCurve {
    /// Time of a seek in nanoseconds; beyond the measured distances, that of the nearest.
    pub fn seek_ns(&self, distance: u32) -> u64 {
        let after = self.0.partition_point(|point| point.0 < distance);
        let Some(&(to, to_ns)) = self.0.get(after) else {
            return self.0.last().map_or(0, |point| point.1);
        };
        let Some(&(from, from_ns)) = after.checked_sub(1).and_then(|at| self.0.get(at)) else {
            return to_ns;
        };
        let share = f64::from(distance - from) / f64::from(to - from);
        (from_ns as f64 + share * (to_ns as f64 - from_ns as f64)) as u64
    }
}

keys! {
    /// The arm, the heads and the platters.
    #[derive(Clone, Debug)]
    pub struct MechanicsSpec(table) {
        /// Surfaces, each with a head.
        pub heads: u32 = whole(1..=64);
        /// Rotational speed.
        ///
        /// Here the time of a revolution.
        pub turn_ns: u64 as "turns_per_minute" =
            number(300.0..=100_000.0).map(|turns| libm::round(60e9 / turns) as u64);
        /// Zones from the outside in: cylinders, sectors of 512 bytes on each of their tracks
        /// (0: cylinders that the host does not see), and where they are known, track skew
        /// and cylinder skew in sectors, and the angle of the zone's first sector in sectors.
        pub zones: Vec<Zone> = zones();
        /// Sectors in the zones that addresses pass over, as spares and defects: runs of the
        /// first one's number on the platters and their length, in sectors of 512 bytes.
        pub skipped_sectors: Vec<[u64; 2]> = skipped_sectors();
        /// Addresses run over the surfaces of every second cylinder of a zone backwards, so
        /// that the head stays the same from one cylinder to the next.
        pub serpentine: bool = flag().or(false);
        /// Spare sectors at the end of each track, besides those of the zones.
        pub spare_sectors_per_track: u32 = whole(0..=10_000).or(0);
        /// Measured seek times by distance in cylinders.
        pub seek_curve: Option<SeekCurve> = seek_curve()
            .needs(!SEEKS.iter().any(|key| table.has(key)), "none of the three seek times");
        /// Seek to the neighbouring cylinder.
        pub track_seek_ns: u64 as "track_seek_us" = seek(&seek_curve, 1);
        /// Seek over a third of all cylinders.
        pub average_seek_ns: u64 as "average_seek_us" = seek(&seek_curve, cylinders(&zones) / 3)
            .such_that(|ns| *ns >= track_seek_ns, "at least mechanics.track_seek_us");
        /// Seek over all cylinders.
        pub full_seek_ns: u64 as "full_seek_us" = seek(&seek_curve, cylinders(&zones))
            .such_that(|ns| *ns >= average_seek_ns, "at least mechanics.average_seek_us");
        /// Switch to another head on the same cylinder.
        pub head_switch_ns: u64 as "head_switch_us" = number(0.0..=MAX_US).map(nanos);
        /// Additional settle time of a write.
        pub write_settle_ns: u64 as "write_settle_us" = number(0.0..=MAX_US).map(nanos);
        /// From a command's start the heads take at least this long until they read or write,
        /// even on the track where they are.
        pub min_positioning_ns: u64 as "min_positioning_us" =
            number(0.0..=MAX_US).or(0.0).map(nanos);
    }
}

/// Keys that a seek curve replaces.
const SEEKS: [&str; 3] = ["track_seek_us", "average_seek_us", "full_seek_us"];

fn cylinders(zones: &[Zone]) -> u32 {
    let cylinders = zones.iter().map(|zone| zone.cylinders);
    cylinders.fold(0, u32::saturating_add)
}

/// A seek time, by default from the curve if there is one.
fn seek(curve: &Option<SeekCurve>, distance: u32) -> KeyType<'static, u64> {
    let entry = number(0.0..=MAX_US).map(nanos);
    match curve {
        None => entry,
        Some(curve) => entry.or_derived(curve.seek_ns(distance), "from mechanics.seek_curve"),
    }
}

fn seek_curve() -> KeyType<'static, Option<SeekCurve>> {
    const LEGAL: &str = "an array of [cylinders, microseconds], with rising distances from 1 on \
                         and times up to 1000000";
    let point = array(number(0.0..=1e7), LEGAL).such_that(
        |point| point.len() == 2 && point[0] >= 1.0 && is_whole(point[0]) && point[1] <= MAX_US,
        LEGAL,
    );
    array(point, LEGAL)
        .such_that(
            |points| !points.is_empty() && points.windows(2).all(|pair| pair[0][0] < pair[1][0]),
            LEGAL,
        )
        .map(|points| {
            let point = |point: &Vec<f64>| (point[0] as u32, nanos(point[1]));
            SeekCurve(points.iter().map(point).collect())
        })
        .optional()
}

fn zones() -> KeyType<'static, Vec<Zone>> {
    const LEGAL: &str = "an array of [cylinders, sectors a track], [cylinders, sectors a track, \
                         track skew, cylinder skew] or [cylinders, sectors a track, track skew, \
                         cylinder skew, first sector's angle], each to 10000000, cylinders from \
                         1, skews and angle in sectors, outermost first";
    // Counts are read as numbers, since TOML arrays of zones may have 100.0 for 100.
    let count = number(0.0..=1e7).such_that(|count| is_whole(*count), LEGAL);
    let zone = array(count, LEGAL).such_that(
        |counts| matches!(counts.len(), 2 | 4 | 5) && counts[0] >= 1.0,
        LEGAL,
    );
    array(zone, LEGAL)
        .such_that(|zones| zones.iter().any(|counts| counts[1] > 0.0), LEGAL)
        .map(|zones| {
            let zone = |counts: Vec<f64>| Zone {
                cylinders: counts[0] as u32,
                sectors_per_track: counts[1] as u32,
                skews: (counts.len() > 2).then(|| [counts[2] as u32, counts[3] as u32]),
                first_sector_at: counts.get(4).map_or(0, |at| *at as u32),
            };
            zones.into_iter().map(zone).collect()
        })
}

fn skipped_sectors() -> KeyType<'static, Vec<[u64; 2]>> {
    const LEGAL: &str = "an array of [first sector, sectors], each behind the one before, to \
                         1000000000000, of at least one sector";
    let count = number(0.0..=1e12).such_that(|count| is_whole(*count), LEGAL);
    let run = array(count, LEGAL).such_that(|run| run.len() == 2 && run[1] >= 1.0, LEGAL);
    array(run, LEGAL)
        .such_that(
            |runs| {
                let mut pairs = runs.windows(2);
                !runs.is_empty() && pairs.all(|pair| pair[0][0] + pair[0][1] <= pair[1][0])
            },
            LEGAL,
        )
        .map(|runs| {
            let run = |run: &Vec<f64>| [run[0] as u64, run[1] as u64];
            runs.iter().map(run).collect()
        })
        .or_derived(Vec::new(), "none")
}

keys! {
    /// The buffer.
    #[derive(Clone, Copy, Debug)]
    pub struct CacheSpec(table) {
        /// Its size.
        ///
        /// Here in sectors of 512 bytes.
        pub sectors: u64 as "size_kb" = whole(64..=1 << 22).map(|kb: u64| kb * 2);
        /// Segments for read data, one for each sequential run. A cache with `line_kb` keeps what
        /// was read in lines instead.
        pub segments: u32 = whole(1..=1024);
        /// How far it reads ahead.
        ///
        /// Here in sectors of 512 bytes.
        pub read_ahead_sectors: u64 as "read_ahead_kb" =
            whole(0..=1 << 20).map(|kb: u64| kb * 2);
        /// It reads ahead no further than to the end of the track and of this many tracks
        /// after it.
        pub read_ahead_tracks: Option<u32> = whole(0..=1024).optional();
        /// How far it reads ahead for a sequential reader before it serves other commands.
        ///
        /// Here in sectors of 512 bytes.
        pub read_ahead_min_sectors: u64 as "read_ahead_min_kb" = whole(0..=1 << 20)
            .or(0)
            .map(|kb: u64| kb * 2)
            .such_that(
                |sectors| *sectors <= read_ahead_sectors,
                "at most cache.read_ahead_kb",
            );
        /// Writes complete when they are in it.
        pub write_back: bool = flag().or(true);
        /// The share of it that dirty data may take up.
        pub dirty_share: f64 = number(0.001..=1.0)
            .or(0.5)
            .needs(write_back, "cache.write_back = true");
        /// A controller's cache has lines of this size: dirty data takes up whole ones, and
        /// is destaged line by line.
        ///
        /// Here in sectors of 512 bytes.
        pub line_sectors: Option<u64> as "line_kb" = whole(4..=1 << 16)
            .such_that(|kb: &u64| kb.is_multiple_of(4), "a multiple of 4")
            .map(|kb: u64| kb * 2)
            .optional()
            .needs(write_back, "cache.write_back = true");
        /// It admits no further writes while destaging what it holds would take longer than
        /// this.
        pub flush_limit_ns: u64 as "flush_limit_us" = number(0.0..=100.0 * MAX_US)
            .map(nanos)
            .or_derived(u64::MAX, "no limit")
            .needs(write_back, "cache.write_back = true");
        /// A controller before the disk destages in the order of blocks, and has this many
        /// commands at the disk, which chooses among them; of several readers in order it serves
        /// one after the other. Without it the disk chooses among all that are near.
        pub destage_queue: Option<u32> = whole(1..=65535)
            .optional()
            .needs(write_back, "cache.write_back = true");
    }
}

impl HddSpec {
    pub(super) fn read(root: &Table<'_>) -> Result<HddSpec, ReadError> {
        let cache = CacheSpec::read(&root.table("cache")?)?;
        let mechanics_table = root.table("mechanics")?;
        let spec = HddSpec {
            identity: Identity::read(&root.table("host")?, 4096, cache.write_back, true)?,
            link: LinkSpec::read(&root.table("link")?)?,
            controller: ControllerSpec::read(&root.table("controller")?)?,
            overheads: root
                .read_if_any("overheads", OverheadsSpec::read)?
                .unwrap_or_default(),
            mechanics: MechanicsSpec::read(&mechanics_table)?,
            cache,
        };
        spec.check_zones(&mechanics_table)?;
        Ok(spec)
    }

    fn check_zones(&self, table: &Table<'_>) -> Result<(), ReadError> {
        let (zones, heads) = (&self.mechanics.zones, self.mechanics.heads);
        let block_sectors = self.identity.physical_block_bytes as u64 / 512;
        if let Some(zone) =
            (zones.iter()).find(|z| !(z.sectors_per_track as u64).is_multiple_of(block_sectors))
        {
            return Err(table.wrong(
                "zones",
                format!(
                    "of {} sectors a track, legal is a multiple of {block_sectors}, the sectors \
                     of host.physical_block_bytes",
                    zone.sectors_per_track
                ),
            ));
        }
        let skipped = &self.mechanics.skipped_sectors;
        let whole = |run: &&[u64; 2]| run.iter().all(|at| at.is_multiple_of(block_sectors));
        if let Some([first, sectors]) = skipped.iter().find(|run| !whole(run)) {
            return Err(table.wrong(
                "skipped_sectors",
                format!(
                    "of [{first}, {sectors}], legal are multiples of {block_sectors}, the \
                     sectors of host.physical_block_bytes"
                ),
            ));
        }
        let tracks = |zone: &Zone| zone.cylinders as u64 * heads as u64;
        let sectors = zones
            .iter()
            .map(|zone| tracks(zone) * zone.sectors_per_track as u64);
        let sectors: u64 = sectors.sum();
        if let Some([first, _]) = skipped.iter().find(|run| run[0] + run[1] > sectors) {
            return Err(table.wrong(
                "skipped_sectors",
                format!("from {first} on, legal is up to {sectors}, the sectors of the zones"),
            ));
        }
        let seen = sectors - skipped.iter().map(|run| run[1]).sum::<u64>();
        if seen < self.identity.capacity_sectors {
            return Err(table.wrong(
                "zones",
                format!(
                    "which is {seen} sectors on {heads} heads, legal is at least {}, the \
                     sectors of host.capacity_bytes",
                    self.identity.capacity_sectors
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_curve_is_interpolated_and_ends_flat() {
        let curve = SeekCurve(vec![(3, 1000), (13, 2000), (23, 2500)]);
        let seeks = [1, 3, 8, 13, 18, 23, 99].map(|distance| curve.seek_ns(distance));
        assert_eq!(seeks, [1000, 1000, 1500, 2000, 2250, 2500, 2500]);
    }
}
