//! What a disk is made of, read from its description and checked.

use crate::Identity;
use crate::effect::{Needs, refuse_idle_keys};
use crate::spec::read_identity;
use blklab_description::{ReadError, Table};

const MAX_US: f64 = 1_000_000.0;

/// A disk, as described.
#[derive(Clone, Debug, PartialEq)]
pub struct HddSpec {
    /// What the host sees.
    pub identity: Identity,
    /// Time of a byte on the cable, in picoseconds.
    pub link_byte_ps: u64,
    /// From the host's doorbell to the command in the disk.
    pub submit_ns: u64,
    /// From the last byte to the host's notice of the end.
    pub complete_ns: u64,
    /// The firmware's own time for a command.
    pub command_ns: u64,
    /// Which of the queued commands is next.
    pub scheduling: DiskScheduling,
    /// A command that has waited this long is next whatever it costs.
    pub patience_ns: u64,
    /// Surfaces, each with a head.
    pub heads: u32,
    /// Time of a turn.
    pub turn_ns: u64,
    /// From the outside in.
    pub zones: Vec<Zone>,
    /// To the neighbouring track.
    pub track_seek_ns: u64,
    /// Over a third of all tracks.
    pub average_seek_ns: u64,
    /// Over all tracks.
    pub full_seek_ns: u64,
    /// To another head on the same cylinder.
    pub head_switch_ns: u64,
    /// What a write takes longer to settle.
    pub write_settle_ns: u64,
    /// The buffer.
    pub cache: DiskCacheSpec,
}

/// Cylinders with the same number of sectors a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// How many cylinders.
    pub cylinders: u32,
    /// Sectors of 512 bytes on each of their tracks.
    pub sectors_per_track: u32,
}

/// Which command a disk takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskScheduling {
    /// The one that came first.
    Fcfs,
    /// The one whose sectors come under a head soonest, as NCQ lets it choose.
    ShortestPositioning,
}

/// `[cache]` of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCacheSpec {
    /// Its size in sectors.
    pub sectors: u64,
    /// Runs of read data that it keeps apart.
    pub segments: u32,
    /// How far it reads ahead, in sectors.
    pub read_ahead_sectors: u64,
    /// Writes end when they are in it.
    pub write_back: bool,
    /// It takes no writes that would have to wait longer than this to be written
    /// out.
    pub flush_limit_ns: u64,
}

/// Every key that some disk has no use for.
const NEEDS: &[Needs<HddSpec>] = &[
    Needs {
        table: "controller",
        key: "patience_us",
        works: |spec| spec.scheduling == DiskScheduling::ShortestPositioning,
        needs: "controller.scheduling = \"shortest_positioning\"",
    },
    Needs {
        table: "cache",
        key: "flush_limit_us",
        works: |spec| spec.cache.write_back,
        needs: "cache.write_back = true",
    },
];

impl HddSpec {
    pub(crate) fn read(root: &Table<'_>) -> Result<HddSpec, ReadError> {
        let cache_table = root.table("cache")?;
        let cache = read_cache(&cache_table)?;
        let mut identity = read_identity(root, 4096, cache.write_back)?;
        identity.rotational = true;
        let link = root.table("link")?;
        let controller = root.table("controller")?;
        let mechanics = root.table("mechanics")?;
        let scheduling = controller.choice(
            "scheduling",
            &[
                ("fcfs", DiskScheduling::Fcfs),
                ("shortest_positioning", DiskScheduling::ShortestPositioning),
            ],
        )?;
        let spec = HddSpec {
            identity,
            link_byte_ps: (1e6 / link.number("bandwidth_mb_s", 1.0..=1e6)?).round() as u64,
            submit_ns: link.micros("submit_us", MAX_US)?,
            // No command ends when it begins: time would stand still.
            complete_ns: link.micros("complete_us", MAX_US)?.max(1),
            command_ns: controller.micros("command_us", MAX_US)?,
            scheduling,
            patience_ns: match scheduling {
                DiskScheduling::Fcfs => controller.micros_or("patience_us", 100.0 * MAX_US, 0)?,
                _ => controller.micros("patience_us", 100.0 * MAX_US)?,
            },
            heads: mechanics.int("heads", 1..=64)? as u32,
            turn_ns: (60e9 / mechanics.number("turns_per_minute", 300.0..=100_000.0)?).round()
                as u64,
            zones: read_zones(&mechanics)?,
            track_seek_ns: mechanics.micros("track_seek_us", MAX_US)?,
            average_seek_ns: mechanics.micros("average_seek_us", MAX_US)?,
            full_seek_ns: mechanics.micros("full_seek_us", MAX_US)?,
            head_switch_ns: mechanics.micros("head_switch_us", MAX_US)?,
            write_settle_ns: mechanics.micros("write_settle_us", MAX_US)?,
            cache,
        };
        spec.check(&mechanics)?;
        for table in [&link, &controller, &mechanics, &cache_table] {
            table.finish()?;
        }
        refuse_idle_keys(root, &spec, NEEDS)?;
        Ok(spec)
    }

    fn check(&self, mechanics: &Table<'_>) -> Result<(), ReadError> {
        if self.average_seek_ns < self.track_seek_ns {
            let problem = "legal is at least mechanics.track_seek_us";
            return Err(mechanics.wrong("average_seek_us", problem));
        }
        if self.full_seek_ns < self.average_seek_ns {
            let problem = "legal is at least mechanics.average_seek_us";
            return Err(mechanics.wrong("full_seek_us", problem));
        }
        let block_sectors = self.identity.physical_block_bytes / 512;
        if let Some(zone) = (self.zones.iter()).find(|z| z.sectors_per_track % block_sectors != 0) {
            return Err(mechanics.wrong(
                "zones",
                format!(
                    "of {} sectors a track, legal is a multiple of {block_sectors}, the sectors \
                     of host.physical_block_bytes",
                    zone.sectors_per_track
                ),
            ));
        }
        let sectors: u64 = self
            .zones
            .iter()
            .map(|z| z.cylinders as u64 * z.sectors_per_track as u64 * self.heads as u64)
            .sum();
        if sectors < self.identity.capacity_sectors {
            return Err(mechanics.wrong(
                "zones",
                format!(
                    "which is {sectors} sectors on {} heads, legal is at least {}, the sectors of \
                     host.capacity_bytes",
                    self.heads, self.identity.capacity_sectors
                ),
            ));
        }
        Ok(())
    }
}

fn read_cache(table: &Table<'_>) -> Result<DiskCacheSpec, ReadError> {
    Ok(DiskCacheSpec {
        sectors: table.int("size_kb", 64..=1 << 22)? * 2,
        segments: table.int("segments", 1..=1024)? as u32,
        read_ahead_sectors: table.int("read_ahead_kb", 0..=1 << 20)? * 2,
        write_back: table.flag_or("write_back", true)?,
        flush_limit_ns: table.micros_or("flush_limit_us", 100.0 * MAX_US, u64::MAX)?,
    })
}

fn read_zones(table: &Table<'_>) -> Result<Vec<Zone>, ReadError> {
    let legal =
        "an array of [cylinders, sectors a track], each from 1 to 10000000, outermost first";
    let is_count = |number: &f64| number.fract() == 0.0 && (1.0..=1e7).contains(number);
    table
        .rows("zones", 2, legal)?
        .into_iter()
        .map(|row| {
            row.iter().all(is_count).then(|| Zone {
                cylinders: row[0] as u32,
                sectors_per_track: row[1] as u32,
            })
        })
        .collect::<Option<Vec<Zone>>>()
        .ok_or_else(|| table.wrong("zones", format!("legal is {legal}")))
}
