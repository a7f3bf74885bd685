//! What a disk is made of, read from its description and checked.

use blklab_description::{
    KeyType, ReadError, Table, array, flag, keys, nanos, number, whole, word,
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
    /// The cable.
    pub link: LinkSpec,
    /// The firmware.
    pub controller: ControllerSpec,
    /// The arm, the heads and the platters.
    pub mechanics: MechanicsSpec,
    /// The buffer.
    pub cache: CacheSpec,
}

keys! {
    /// The cable between host and disk.
    #[derive(Clone, Copy, Debug)]
    pub struct LinkSpec(table) {
        /// Its rate.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(1.0..=1e6).map(byte_ps);
        /// From the host's doorbell to the command in the disk.
        pub submit_ns: u64 as "submit_us" = number(0.0..=MAX_US).map(nanos);
        /// From the last byte to the host's notice of the end.
        // No command ends when it begins: time would stand still.
        pub complete_ns: u64 as "complete_us" = number(0.0..=MAX_US).map(|us| nanos(us).max(1));
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
        /// The firmware's own time for a command.
        pub command_ns: u64 as "command_us" = number(0.0..=MAX_US).map(nanos);
        /// Which of the queued commands is next.
        pub scheduling: DiskScheduling = word();
        /// A command that has waited this long is next whatever it costs.
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

/// Cylinders with the same number of sectors a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// How many cylinders.
    pub cylinders: u32,
    /// Sectors of 512 bytes on each of their tracks.
    pub sectors_per_track: u32,
}

keys! {
    /// The arm, the heads and the platters.
    #[derive(Clone, Debug)]
    pub struct MechanicsSpec(table) {
        /// Surfaces, each with a head.
        pub heads: u32 = whole(1..=64);
        /// How fast the platters turn.
        ///
        /// Here the time of a turn.
        pub turn_ns: u64 as "turns_per_minute" =
            number(300.0..=100_000.0).map(|turns| (60e9 / turns).round() as u64);
        /// From the outside in, cylinders and the sectors of 512 bytes on each of their
        /// tracks.
        pub zones: Vec<Zone> = zones();
        /// To the neighbouring track.
        pub track_seek_ns: u64 as "track_seek_us" = number(0.0..=MAX_US).map(nanos);
        /// Over a third of all tracks.
        pub average_seek_ns: u64 as "average_seek_us" = number(0.0..=MAX_US)
            .map(nanos)
            .such_that(|ns| *ns >= track_seek_ns, "at least mechanics.track_seek_us");
        /// Over all tracks.
        pub full_seek_ns: u64 as "full_seek_us" = number(0.0..=MAX_US)
            .map(nanos)
            .such_that(|ns| *ns >= average_seek_ns, "at least mechanics.average_seek_us");
        /// To another head on the same cylinder.
        pub head_switch_ns: u64 as "head_switch_us" = number(0.0..=MAX_US).map(nanos);
        /// What a write takes longer to settle.
        pub write_settle_ns: u64 as "write_settle_us" = number(0.0..=MAX_US).map(nanos);
    }
}

fn zones() -> KeyType<'static, Vec<Zone>> {
    const LEGAL: &str =
        "an array of [cylinders, sectors a track], each from 1 to 10000000, outermost first";
    // A count may be written with a point.
    let count = number(1.0..=1e7).such_that(|count| count.fract() == 0.0, LEGAL);
    let zone = array(count, LEGAL).such_that(|counts| counts.len() == 2, LEGAL);
    array(zone, LEGAL)
        .such_that(|zones| !zones.is_empty(), LEGAL)
        .map(|zones| {
            let zone = |counts: Vec<f64>| Zone {
                cylinders: counts[0] as u32,
                sectors_per_track: counts[1] as u32,
            };
            zones.into_iter().map(zone).collect()
        })
}

keys! {
    /// The buffer.
    #[derive(Clone, Copy, Debug)]
    pub struct CacheSpec(table) {
        /// Its size.
        ///
        /// Here in sectors of 512 bytes.
        pub sectors: u64 as "size_kb" = whole(64..=1 << 22).map(|kb: u64| kb * 2);
        /// Runs of read data that it keeps apart.
        pub segments: u32 = whole(1..=1024);
        /// How far it reads ahead.
        ///
        /// Here in sectors of 512 bytes.
        pub read_ahead_sectors: u64 as "read_ahead_kb" =
            whole(0..=1 << 20).map(|kb: u64| kb * 2);
        /// How far it reads ahead for a sequential reader before it turns to other
        /// commands.
        ///
        /// Here in sectors of 512 bytes.
        pub read_ahead_min_sectors: u64 as "read_ahead_min_kb" = whole(0..=1 << 20)
            .or(0)
            .map(|kb: u64| kb * 2)
            .such_that(
                |sectors| *sectors <= read_ahead_sectors,
                "at most cache.read_ahead_kb",
            );
        /// Writes end when they are in it.
        pub write_back: bool = flag().or(true);
        /// It takes no writes that would have to wait longer than this to be written
        /// out.
        pub flush_limit_ns: u64 as "flush_limit_us" = number(0.0..=100.0 * MAX_US)
            .map(nanos)
            .or_derived(u64::MAX, "no limit")
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
            mechanics: MechanicsSpec::read(&mechanics_table)?,
            cache,
        };
        spec.check_zones(&mechanics_table)?;
        Ok(spec)
    }

    fn check_zones(&self, table: &Table<'_>) -> Result<(), ReadError> {
        let (zones, heads) = (&self.mechanics.zones, self.mechanics.heads);
        let block_sectors = self.identity.physical_block_bytes / 512;
        if let Some(zone) = (zones.iter()).find(|z| z.sectors_per_track % block_sectors != 0) {
            return Err(table.wrong(
                "zones",
                format!(
                    "of {} sectors a track, legal is a multiple of {block_sectors}, the sectors \
                     of host.physical_block_bytes",
                    zone.sectors_per_track
                ),
            ));
        }
        let tracks = |zone: &Zone| zone.cylinders as u64 * heads as u64;
        let sectors = zones
            .iter()
            .map(|zone| tracks(zone) * zone.sectors_per_track as u64);
        let sectors: u64 = sectors.sum();
        if sectors < self.identity.capacity_sectors {
            return Err(table.wrong(
                "zones",
                format!(
                    "which is {sectors} sectors on {heads} heads, legal is at least {}, the \
                     sectors of host.capacity_bytes",
                    self.identity.capacity_sectors
                ),
            ));
        }
        Ok(())
    }
}
