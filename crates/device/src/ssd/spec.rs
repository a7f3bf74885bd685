//! What an SSD is made of, read from its description and checked.

use super::hybrid::spec::{self as hybrid, Mapping};
use super::rng::Rng;
use crate::Identity;
use crate::spec::read_identity;
use crate::ssd::geometry::{Axis, Geometry, Layout};
use blklab_description::{ReadError, Table};

/// Longest time of any single step, in microseconds.
const MAX_US: f64 = 10_000_000.0;

/// An SSD, as described.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdSpec {
    /// What the host sees.
    pub identity: Identity,
    /// The cable.
    pub link: LinkSpec,
    /// The firmware's own time and its order of work.
    pub controller: ControllerSpec,
    /// How many of everything.
    pub geometry: Geometry,
    /// What the arrays do and how long it takes.
    pub flash: FlashSpec,
    /// The bus between controller and packages.
    pub channel: ChannelSpec,
    /// Where data goes.
    pub ftl: FtlSpec,
    /// DRAM before the flash.
    pub write_cache: WriteCacheSpec,
    /// How commands are fetched; `None`: as they come.
    pub nvme: Option<NvmeSpec>,
    /// What was read lately, in DRAM.
    pub read_cache: Option<ReadCacheSpec>,
    /// Flash written with one bit a cell, before the rest.
    pub slc_cache: Option<SlcCacheSpec>,
    /// Making room.
    pub gc: GcSpec,
    /// Wearing all blocks alike.
    pub wear: WearSpec,
    /// What is on the drive at the start.
    pub state: InitialState,
}

/// `[link]`: between host and drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Time of a byte, in picoseconds.
    pub byte_ps: u64,
    /// Data flows both ways at once.
    pub full_duplex: bool,
    /// From the host's doorbell to the command in the controller.
    pub submit_ns: u64,
    /// From the last byte to the host's notice of the end.
    pub complete_ns: u64,
}

/// `[controller]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerSpec {
    /// Firmware's latency of a read, flush or discard.
    pub read_ns: u64,
    /// Firmware's latency of a write.
    pub write_ns: u64,
    /// Least time between two commands; zero for no limit.
    pub interval_ns: u64,
    /// More of that for every further map unit of a command: firmware that is
    /// fastest at commands of one unit takes longer ones apart.
    pub unit_interval_ns: u64,
    /// Who goes first.
    pub scheduling: Scheduling,
    /// Under read priority: after so many reads of a die in a row a program or
    /// an erase that waits for it has its turn.
    pub reads_in_a_row: u32,
}

/// In which order a drive serves what waits for its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Strictly as it came: nothing starts before everything older has started.
    Fcfs,
    /// As it came on each die; dies do not wait for each other.
    OutOfOrder,
    /// Out of order, and reads before programs before erases on each die.
    ReadPriority,
    /// Out of order, and reads by their physical addresses: see `paq`.
    Paq,
}

/// `[flash]`
#[derive(Clone, Debug, PartialEq)]
pub struct FlashSpec {
    /// Array time of a read, one entry a page level (LSB, CSB, MSB, ...).
    pub read_ns: Vec<u64>,
    /// Array time of a program, likewise.
    pub program_ns: Vec<u64>,
    /// Time of an erase.
    pub erase_ns: u64,
    /// The smallest part that works on its own.
    pub interleave: Interleave,
    /// Which operations of planes of one die may run as one.
    pub multi_plane: MultiPlane,
    /// A die may read on while what it has read waits for the bus or is on it.
    pub cache_read: bool,
    /// A die may take the data of its next program while it is at the last.
    pub cache_program: bool,
    /// Whether collection may move a page within a plane without the channel.
    pub copyback: Copyback,
    /// How many operations behind the first of its queue such a command looks
    /// at for partners.
    pub multi_plane_reach: u32,
    /// Word lines of all planes that collection writes are programmed together.
    pub superpage: bool,
    /// Time to stop a program for a read; `None` where it cannot be stopped.
    pub program_suspend_ns: Option<u64>,
    /// Likewise an erase.
    pub erase_suspend_ns: Option<u64>,
    /// Not stopped when it would end this soon anyway.
    pub suspend_above_ns: u64,
}

/// The smallest part of the flash that executes a command of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    /// One command a package.
    Package,
    /// One a die (interleaved-die commands).
    Die,
    /// One a plane (asynchronous plane reads of 3D NAND).
    Plane,
}

/// Which pages ONFI's copyback commands may move: from the array to the page
/// register and back, always within a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copyback {
    /// None.
    None,
    /// Any.
    SamePlane,
    /// From odd pages to odd ones and from even to even.
    SameParity,
}

/// When planes of one die work as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiPlane {
    /// Never.
    None,
    /// At the same page of their blocks, as ONFI demands.
    SamePage,
    /// At any pages.
    Any,
}

/// `[channel]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelSpec {
    /// Time of a byte of data, in picoseconds.
    pub byte_ps: u64,
    /// Command and address cycles of a read.
    pub read_command_ns: u64,
    /// Of a program.
    pub program_command_ns: u64,
    /// Of an erase.
    pub erase_command_ns: u64,
    /// Of every further plane of a multi-plane command.
    pub plane_command_ns: u64,
    /// Data is read from the page register in pieces of this size.
    pub codeword_bytes: u32,
}

/// `[ftl]`
#[derive(Clone, Debug, PartialEq)]
pub struct FtlSpec {
    /// What one entry of the map covers.
    pub map_unit_bytes: u32,
    /// How logical addresses are laid over the flash.
    pub layout: Layout,
    /// Order in which they go over channels (C), ways (W), dies (D), planes (P).
    pub order: [Axis; 4],
    /// What the map has entries of.
    pub mapping: Mapping,
    /// Who decides which plane a page goes to.
    pub allocation: Allocation,
    /// Entries of the map kept in DRAM; `None` where all of them are.
    pub map_cache_entries: Option<u32>,
    /// Entries of a page of the map.
    pub entries_per_map_page: u32,
    /// A read of what was never written goes to the flash nevertheless.
    pub read_unwritten: bool,
}

/// Which plane takes the host's next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Its address decides.
    Static,
    /// The next in the order whose die has nothing to do.
    NextFree,
    /// The one whose die, then channel, has least to do.
    LeastLoaded,
}

/// `[write_cache]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteCacheSpec {
    /// A write ends when the data is in the cache.
    pub enabled: bool,
    /// Data that may wait for its program, in bytes.
    pub size_bytes: u64,
    /// Once it was full, writes wait until so much of it is free.
    pub resume_bytes: u64,
    /// Time of a byte into or out of DRAM, in picoseconds.
    pub byte_ps: u64,
    /// Time before the first byte.
    pub access_ns: u64,
    /// Capacitors: what is in the cache is safe.
    pub power_loss_protection: bool,
}

/// `[nvme]`: how the controller fetches commands from its queues.
#[derive(Clone, Debug, PartialEq)]
pub struct NvmeSpec {
    /// Whose turn it is.
    pub arbitration: Arbitration,
    /// Most commands from a queue in a row.
    pub burst: u32,
    /// Most commands fetched and not ended.
    pub fetch_limit: u32,
    /// Commands a round of the classes high, medium and low.
    pub weights: [u32; 3],
    /// The class of every queue, from 0 (urgent) to 3 (low); queues beyond the
    /// last start from the first again.
    pub queue_priorities: Vec<u8>,
}

/// NVMe's arbitration mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbitration {
    /// All queues in turn.
    RoundRobin,
    /// Urgent queues first, others by the weights of their classes.
    Weighted,
}

/// `[read_cache]`: map units that were read lately, in the same DRAM as
/// `[write_cache]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCacheSpec {
    /// Its size.
    pub size_bytes: u64,
    /// What makes room.
    pub policy: ReadCachePolicy,
}

/// What leaves the read cache for something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadCachePolicy {
    /// What was used longest ago.
    Lru,
    /// What came in longest ago.
    Fifo,
}

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

/// `[gc]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GcSpec {
    /// Which block is collected.
    pub policy: GcPolicy,
    /// Collection starts below this many free blocks in a plane.
    pub start_blocks: u32,
    /// The host waits below this many.
    pub reserve_blocks: u32,
    /// Collected pages under way at once in a plane.
    pub depth: u32,
    /// The host may write as much as was freed, and after it had to wait goes on
    /// when that is this much; 0 where it may run ahead.
    pub pace_bytes: u64,
    /// It steps aside for the host until free blocks run out.
    pub preemptible: bool,
    /// How far it moves data.
    pub scope: GcScope,
}

/// How far collection moves data from where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcScope {
    /// Not out of its plane.
    Plane,
    /// Not out of its package.
    Chip,
    /// Anywhere.
    Drive,
}

/// `[wear_levelling]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WearSpec {
    /// The least worn free block is written first.
    pub dynamic: bool,
    /// Data is moved out of a plane's least worn block into a free one that has
    /// been erased more than so many times more; `None` where it stays.
    pub static_spread: Option<u32>,
}

/// Which block garbage collection takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcPolicy {
    /// The one with the least valid data.
    Greedy,
    /// The least valid of so many drawn at random.
    Choices(u32),
    /// The one written longest ago.
    Fifo,
    /// Most freed for the copying, weighed by age.
    CostBenefit,
}

/// What is on the drive at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InitialState {
    /// Nothing was ever written.
    Fresh,
    /// Written once from end to end.
    Filled,
    /// Written to, then overwritten until the flash is steady.
    Aged(AgedSpec),
}

/// `[aged]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AgedSpec {
    /// Share of the address space that holds data.
    pub occupancy: f64,
    /// The part of the data that is hot, from the start of the address space.
    pub hot_share: f64,
    /// The part of the writes that goes there.
    pub hot_writes: f64,
    /// Free blocks that every plane lacks of `gc.start_blocks`: collection is
    /// behind, as after writes that went on for long.
    pub behind_blocks: u32,
    /// Reach the state by simulating the writes, to check the short way.
    pub simulate: bool,
}

impl AgedSpec {
    /// How many of so many slots are hot.
    pub(crate) fn hot_of(&self, slots: u32) -> u32 {
        (self.hot_share * slots as f64) as u32
    }

    /// What it is within one of `ranges` equal parts of the address space,
    /// where each part has flash of its own.
    pub(crate) fn of_range(&self, range: u32, ranges: u32) -> AgedSpec {
        let (from, part) = (range as f64 / ranges as f64, 1.0 / ranges as f64);
        let hot = (self.hot_share - from).clamp(0.0, part) / part;
        let share = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let hot_rate = share(self.hot_writes, self.hot_share) * hot;
        let cold_rate = share(1.0 - self.hot_writes, 1.0 - self.hot_share) * (1.0 - hot);
        // All hot is as even as all cold.
        AgedSpec {
            hot_share: if hot < 1.0 { hot } else { 0.0 },
            hot_writes: if hot < 1.0 {
                share(hot_rate, hot_rate + cold_rate)
            } else {
                0.0
            },
            ..*self
        }
    }

    /// Which of `live` slots is overwritten next.
    pub(crate) fn draw(&self, live: u32, rng: &mut Rng) -> u32 {
        let hot = self.hot_of(live);
        let is_hot = (rng.below(1 << 24) as f64) < self.hot_writes * (1 << 24) as f64;
        match is_hot && hot > 0 {
            true => rng.below(hot),
            false => hot + rng.below((live - hot).max(1)).min(live - hot - 1),
        }
    }
}

impl SsdSpec {
    pub(crate) fn read(root: &Table<'_>) -> Result<SsdSpec, ReadError> {
        let cache_table = root.table("write_cache")?;
        let write_cache = read_write_cache(&cache_table)?;
        let volatile = write_cache.enabled && !write_cache.power_loss_protection;
        let identity = read_identity(root, 4096, volatile)?;
        let nvme = match root.table_if_any("nvme")? {
            Some(table) => Some(read_nvme(&table, &identity)?),
            None => None,
        };
        let geometry_table = root.table("geometry")?;
        let geometry = read_geometry(&geometry_table)?;
        let flash_table = root.table("flash")?;
        let flash = read_flash(&flash_table)?;
        let slc_table = root.table_if_any("slc_cache")?;
        let slc_cache = match &slc_table {
            Some(table) => Some(read_slc_cache(table, &geometry, &flash)?),
            None => None,
        };
        let ftl_table = root.table("ftl")?;
        let ftl = read_ftl(root, &ftl_table, &geometry, &identity)?;
        let spec = SsdSpec {
            link: read_link(&root.table("link")?)?,
            controller: read_controller(&root.table("controller")?)?,
            channel: read_channel(&root.table("channel")?)?,
            gc: match ftl.mapping {
                Mapping::Page => read_gc(&root.table("gc")?, &geometry)?,
                Mapping::Hybrid(_) => hybrid::read_merges(root)?,
            },
            wear: read_wear(root)?,
            state: read_state(root)?,
            identity,
            geometry,
            flash,
            ftl,
            write_cache,
            nvme,
            read_cache: match root.table_if_any("read_cache")? {
                Some(table) => Some(read_read_cache(&table)?),
                None => None,
            },
            slc_cache,
        };
        hybrid::check(&spec, root, &ftl_table, &flash_table)?;
        spec.check_sizes(&geometry_table, &ftl_table, &cache_table, &flash_table)?;
        if spec.flash.superpage && spec.controller.scheduling == Scheduling::Fcfs {
            let problem = "legal is false where controller.scheduling = \"fcfs\": \
                           programs wait for operations that came after them";
            return Err(flash_table.wrong("superpage", problem));
        }
        let most = (spec.gc.start_blocks).saturating_sub(spec.gc.reserve_blocks + 1);
        if spec.behind_blocks() > most {
            let found = spec.behind_blocks();
            let problem = format!(
                "found {found}, legal is 0 to {most} (gc.start_blocks - gc.reserve_blocks - 1)"
            );
            return Err(root.table("aged")?.wrong("behind_blocks", problem));
        }
        if let (Some(table), Some(cache)) = (&slc_table, &spec.slc_cache)
            && cache.filled > 0.0
            && spec.state == InitialState::Fresh
        {
            return Err(table.wrong("filled", "state = \"fresh\" has no data to fill it with"));
        }
        Ok(spec)
    }

    /// Blocks of a plane by which collection is behind at the start.
    pub(crate) fn behind_blocks(&self) -> u32 {
        match &self.state {
            InitialState::Aged(aged) => aged.behind_blocks,
            _ => 0,
        }
    }

    /// Map entries of a page.
    pub fn slots_per_page(&self) -> u32 {
        self.geometry.page_bytes / self.ftl.map_unit_bytes
    }

    /// Map entries of the host's address space.
    pub fn logical_slots(&self) -> u64 {
        (self.identity.capacity_sectors * 512).div_ceil(self.ftl.map_unit_bytes as u64)
    }

    /// Blocks of a plane that are not the SLC cache's alone.
    pub fn data_blocks_per_plane(&self) -> u32 {
        let static_blocks = self.slc_cache.map_or(0, |cache| cache.static_blocks);
        self.geometry.blocks_per_plane - static_blocks
    }

    /// Pages of a block that is written with one bit a cell.
    pub fn slc_pages_per_block(&self) -> u32 {
        self.geometry.pages_per_block / self.flash.read_ns.len() as u32
    }

    /// What several tables decide together.
    fn check_sizes(
        &self,
        geometry: &Table<'_>,
        ftl: &Table<'_>,
        cache: &Table<'_>,
        flash: &Table<'_>,
    ) -> Result<(), ReadError> {
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
        let slots_per_block = self.slots_per_page() as u64 * self.geometry.pages_per_block as u64;
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
            * (slots_per_block - lost)
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
                    match (self.ftl.mapping, self.slc_cache) {
                        (Mapping::Hybrid(_), _) => " and logs (hybrid.sequential_logs + hybrid.random_logs + 2)".to_string(),
                        (_, None) => " (gc.start_blocks + 2)".to_string(),
                        (_, Some(cache)) => format!(
                            " (gc.start_blocks + 3), and {} are the SLC cache's (slc_cache.static_mb)",
                            cache.static_blocks
                        ),
                    }
                ),
            ));
        }
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

/// Picoseconds a byte at so many decimal megabytes a second.
fn byte_ps(mb_s: f64) -> u64 {
    (1e6 / mb_s).round() as u64
}

fn read_link(table: &Table<'_>) -> Result<LinkSpec, ReadError> {
    let link = LinkSpec {
        byte_ps: byte_ps(table.number("bandwidth_mb_s", 1.0..=1e6)?),
        full_duplex: table.flag_or("full_duplex", false)?,
        submit_ns: table.micros("submit_us", MAX_US)?,
        complete_ns: table.micros("complete_us", MAX_US)?,
    };
    table.finish()?;
    Ok(link)
}

fn read_controller(table: &Table<'_>) -> Result<ControllerSpec, ReadError> {
    let controller = ControllerSpec {
        read_ns: table.micros("read_us", MAX_US)?,
        write_ns: table.micros("write_us", MAX_US)?,
        interval_ns: table.micros_or("interval_us", MAX_US, 0)?,
        unit_interval_ns: table.micros_or("unit_interval_us", MAX_US, 0)?,
        scheduling: table.choice(
            "scheduling",
            &[
                ("fcfs", Scheduling::Fcfs),
                ("out_of_order", Scheduling::OutOfOrder),
                ("read_priority", Scheduling::ReadPriority),
                ("paq", Scheduling::Paq),
            ],
        )?,
        reads_in_a_row: table.int_or("reads_in_a_row", 1..=1 << 20, u32::MAX as u64)? as u32,
    };
    table.finish()?;
    Ok(controller)
}

fn read_geometry(table: &Table<'_>) -> Result<Geometry, ReadError> {
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

fn read_flash(table: &Table<'_>) -> Result<FlashSpec, ReadError> {
    let bits: usize = table.choice("cell", &[("slc", 1), ("mlc", 2), ("tlc", 3), ("qlc", 4)])?;
    let suspend = |key: &'static str| -> Result<Option<u64>, ReadError> {
        Ok(Some(table.micros_or(key, MAX_US, u64::MAX)?).filter(|ns| *ns != u64::MAX))
    };
    let flash = FlashSpec {
        read_ns: table.micros_each("read_us", bits, MAX_US)?,
        program_ns: table.micros_each("program_us", bits, MAX_US)?,
        erase_ns: table.micros("erase_us", MAX_US)?,
        interleave: table.choice(
            "interleave",
            &[
                ("package", Interleave::Package),
                ("die", Interleave::Die),
                ("plane", Interleave::Plane),
            ],
        )?,
        multi_plane: table.choice(
            "multi_plane",
            &[
                ("none", MultiPlane::None),
                ("same_page", MultiPlane::SamePage),
                ("any", MultiPlane::Any),
            ],
        )?,
        cache_read: table.flag_or("cache_read", false)?,
        cache_program: table.flag_or("cache_program", false)?,
        copyback: table.choice_or(
            "copyback",
            &[
                ("none", Copyback::None),
                ("same_plane", Copyback::SamePlane),
                ("same_parity", Copyback::SameParity),
            ],
            Copyback::None,
        )?,
        multi_plane_reach: table.int_or("multi_plane_reach", 1..=1024, 64)? as u32,
        superpage: table.flag_or("superpage", false)?,
        program_suspend_ns: suspend("program_suspend_us")?,
        erase_suspend_ns: suspend("erase_suspend_us")?,
        suspend_above_ns: table.micros_or("suspend_above_us", MAX_US, 0)?,
    };
    table.finish()?;
    Ok(flash)
}

fn read_channel(table: &Table<'_>) -> Result<ChannelSpec, ReadError> {
    let rate_mt_s = table.number("rate_mt_s", 1.0..=10_000.0)?;
    let width_bytes = table.int_or("width_bits", 8..=16, 8)? / 8;
    // The defaults are ONFI NV-DDR2's typical command, address and wait cycles.
    let channel = ChannelSpec {
        byte_ps: byte_ps(rate_mt_s * width_bytes as f64),
        read_command_ns: table.int_or("read_command_ns", 0..=100_000, 290)?,
        program_command_ns: table.int_or("program_command_ns", 0..=100_000, 361)?,
        erase_command_ns: table.int_or("erase_command_ns", 0..=100_000, 220)?,
        plane_command_ns: table.int_or("plane_command_ns", 0..=100_000, 650)?,
        codeword_bytes: table.int("codeword_bytes", 512..=65536)? as u32,
    };
    if !channel.codeword_bytes.is_power_of_two() {
        return Err(table.wrong(
            "codeword_bytes",
            "legal is a power of two from 512 to 65536",
        ));
    }
    table.finish()?;
    Ok(channel)
}

fn read_ftl(
    root: &Table<'_>,
    table: &Table<'_>,
    geometry: &Geometry,
    identity: &Identity,
) -> Result<FtlSpec, ReadError> {
    let map_unit_bytes = table.int("map_unit_bytes", 512..=65536)? as u32;
    if !map_unit_bytes.is_power_of_two()
        || map_unit_bytes > geometry.page_bytes
        || map_unit_bytes < identity.logical_block_bytes
    {
        return Err(table.wrong(
            "map_unit_bytes",
            format!(
                "found {map_unit_bytes}, legal is a power of two from the logical block ({}) to the page ({})",
                identity.logical_block_bytes, geometry.page_bytes
            ),
        ));
    }
    let order_text = table.text("order")?;
    let order = Axis::parse_order(&order_text).ok_or_else(|| {
        table.wrong(
            "order",
            format!("found {order_text:?}, legal is any order of the letters C, W, D and P"),
        )
    })?;
    let layout = table.choice(
        "layout",
        &[("striped", Layout::Striped), ("ranges", Layout::Ranges)],
    )?;
    let read_unwritten = table.flag_or("read_unwritten", false)?;
    let ftl = FtlSpec {
        map_unit_bytes,
        layout,
        order,
        mapping: hybrid::read_mapping(root, table)?,
        allocation: table.choice_or(
            "allocation",
            &[
                ("static", Allocation::Static),
                ("next_free", Allocation::NextFree),
                ("least_loaded", Allocation::LeastLoaded),
            ],
            Allocation::Static,
        )?,
        map_cache_entries: map_cache_entries(table)?,
        entries_per_map_page: geometry.page_bytes
            / table.int_or("map_entry_bytes", 1..=64, 4)? as u32,
        read_unwritten,
    };
    table.finish()?;
    Ok(ftl)
}

/// How much of the map is in DRAM: all of it unless the description says how
/// much memory there is, and how large an entry is with its own address.
fn map_cache_entries(table: &Table<'_>) -> Result<Option<u32>, ReadError> {
    let kb = table.int_or("map_cache_kb", 0..=1 << 24, 0)?;
    let entry_bytes = table.int_or("map_cache_entry_bytes", 1..=64, 8)?;
    match kb {
        0 => Ok(None),
        kb => Ok(Some(
            (kb * 1024 / entry_bytes).min(u32::MAX as u64 - 1) as u32
        )),
    }
}

fn read_write_cache(table: &Table<'_>) -> Result<WriteCacheSpec, ReadError> {
    let cache = WriteCacheSpec {
        enabled: table.flag_or("enabled", true)?,
        size_bytes: table.int("size_kb", 4..=1 << 24)? * 1024,
        resume_bytes: table.int_or("resume_kb", 1..=1 << 24, 1)? * 1024,
        byte_ps: byte_ps(table.number("bandwidth_mb_s", 1.0..=1e6)?),
        access_ns: table.int_or("access_ns", 0..=1_000_000, 0)?,
        power_loss_protection: table.flag_or("power_loss_protection", false)?,
    };
    if cache.resume_bytes > cache.size_bytes {
        return Err(table.wrong("resume_kb", "legal is at most size_kb"));
    }
    table.finish()?;
    Ok(cache)
}

fn read_nvme(table: &Table<'_>, identity: &Identity) -> Result<NvmeSpec, ReadError> {
    let arbitration = table.choice(
        "arbitration",
        &[
            ("round_robin", Arbitration::RoundRobin),
            ("weighted", Arbitration::Weighted),
        ],
    )?;
    let weight = |key, default| Ok(table.int_or(key, 1..=256, default)? as u32);
    let weights = [
        weight("high_weight", 1)?,
        weight("medium_weight", 1)?,
        weight("low_weight", 1)?,
    ];
    let priorities = match arbitration {
        Arbitration::RoundRobin => "m".to_string(),
        Arbitration::Weighted => table.text("queue_priorities")?,
    };
    let class = |letter: char| "uhml".find(letter).map(|class| class as u8);
    let queue_priorities: Vec<u8> = priorities.chars().map_while(class).collect();
    if priorities.is_empty() || queue_priorities.len() != priorities.chars().count() {
        return Err(table.wrong(
            "queue_priorities",
            format!("found {priorities:?}, legal is a letter a queue: u, h, m or l (urgent, high, medium, low)"),
        ));
    }
    let all = identity.queue_depth as u64 * identity.max_queues as u64;
    let nvme = NvmeSpec {
        arbitration,
        burst: table.int_or("burst", 1..=64, 64)? as u32,
        fetch_limit: table.int_or("fetch_limit", 1..=1 << 20, all)?.min(1 << 30) as u32,
        weights,
        queue_priorities,
    };
    table.finish()?;
    Ok(nvme)
}

fn read_read_cache(table: &Table<'_>) -> Result<ReadCacheSpec, ReadError> {
    let cache = ReadCacheSpec {
        size_bytes: table.int("size_kb", 4..=1 << 24)? * 1024,
        policy: table.choice(
            "policy",
            &[
                ("lru", ReadCachePolicy::Lru),
                ("fifo", ReadCachePolicy::Fifo),
            ],
        )?,
    };
    table.finish()?;
    Ok(cache)
}

fn read_slc_cache(
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
        return Err(table.wrong("static_mb", "this or dynamic_mb must be above 0"));
    }
    let most = geometry.blocks_per_plane as u64;
    for (key, blocks) in [("static_mb", static_blocks), ("dynamic_mb", dynamic_blocks)] {
        if blocks >= most {
            return Err(table.wrong(
                key,
                format!(
                    "{blocks} blocks a plane at one bit a cell, legal is below blocks_per_plane ({most})"
                ),
            ));
        }
    }
    let cache = SlcCacheSpec {
        static_blocks: static_blocks as u32,
        dynamic_blocks: dynamic_blocks as u32,
        read_ns: table.micros("read_us", MAX_US)?,
        program_ns: table.micros("program_us", MAX_US)?,
        erase_ns: table.micros_or("erase_us", MAX_US, flash.erase_ns)?,
        when_full: table.choice(
            "when_full",
            &[("direct", WhenFull::Direct), ("wait", WhenFull::Wait)],
        )?,
        fold_after_ns: Some(table.micros_or("fold_after_us", 1e12, u64::MAX)?)
            .filter(|ns| *ns != u64::MAX),
        filled: table.number_or("filled", 0.0..=1.0, 0.0)?,
    };
    table.finish()?;
    Ok(cache)
}

fn read_state(root: &Table<'_>) -> Result<InitialState, ReadError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Name {
        Fresh,
        Filled,
        Aged,
    }
    let name = root.choice(
        "state",
        &[
            ("fresh", Name::Fresh),
            ("filled", Name::Filled),
            ("aged", Name::Aged),
        ],
    )?;
    let table = root.table_if_any("aged")?;
    let Some(table) = table else {
        return match name {
            Name::Fresh => Ok(InitialState::Fresh),
            Name::Filled => Ok(InitialState::Filled),
            Name::Aged => Err(root.wrong("state", "\"aged\" needs a table [aged]")),
        };
    };
    if name != Name::Aged {
        return Err(root.wrong("aged", "this table needs state = \"aged\""));
    }
    let aged = AgedSpec {
        occupancy: table.number("occupancy", 0.001..=1.0)?,
        hot_share: table.number_or("hot_share", 0.0..=0.99, 0.0)?,
        hot_writes: table.number_or("hot_writes", 0.0..=1.0, 0.0)?,
        behind_blocks: table.int_or("behind_blocks", 0..=1 << 16, 0)? as u32,
        simulate: table.flag_or("simulate", false)?,
    };
    if aged.simulate && aged.behind_blocks > 0 {
        return Err(table.wrong("behind_blocks", "legal is 0 where simulate = true"));
    }
    if aged.simulate && aged.occupancy < 1.0 {
        return Err(table.wrong("occupancy", "legal is 1 where simulate = true"));
    }
    table.finish()?;
    Ok(InitialState::Aged(aged))
}

fn read_gc(table: &Table<'_>, geometry: &Geometry) -> Result<GcSpec, ReadError> {
    #[derive(Clone, Copy)]
    enum Name {
        Greedy,
        Choices,
        Fifo,
        CostBenefit,
    }
    let name = table.choice(
        "policy",
        &[
            ("greedy", Name::Greedy),
            ("d_choices", Name::Choices),
            ("fifo", Name::Fifo),
            ("cost_benefit", Name::CostBenefit),
        ],
    )?;
    let most = (geometry.blocks_per_plane as u64 - 2).max(2);
    let choices = table.int_or("choices", 1..=1024, 8)? as u32;
    let gc = GcSpec {
        policy: match name {
            Name::Greedy => GcPolicy::Greedy,
            Name::Choices => GcPolicy::Choices(choices),
            Name::Fifo => GcPolicy::Fifo,
            Name::CostBenefit => GcPolicy::CostBenefit,
        },
        start_blocks: table.int("start_blocks", 2..=most)? as u32,
        reserve_blocks: table.int_or("reserve_blocks", 1..=most, 1)? as u32,
        depth: table.int_or("depth", 1..=16384, 4)? as u32,
        pace_bytes: table.int_or("pace_kb", 0..=1 << 24, 0)? * 1024,
        preemptible: table.flag_or("preemptible", false)?,
        scope: table.choice_or(
            "scope",
            &[
                ("plane", GcScope::Plane),
                ("chip", GcScope::Chip),
                ("drive", GcScope::Drive),
            ],
            GcScope::Plane,
        )?,
    };
    if gc.reserve_blocks >= gc.start_blocks {
        return Err(table.wrong(
            "reserve_blocks",
            format!(
                "found {}, legal is below start_blocks ({})",
                gc.reserve_blocks, gc.start_blocks
            ),
        ));
    }
    table.finish()?;
    Ok(gc)
}

fn read_wear(root: &Table<'_>) -> Result<WearSpec, ReadError> {
    let mut wear = WearSpec {
        dynamic: true,
        static_spread: None,
    };
    if let Some(table) = root.table_if_any("wear_levelling")? {
        wear.dynamic = table.flag_or("dynamic", true)?;
        let spread = table.int_or("static_spread", 1..=1 << 20, 0)? as u32;
        wear.static_spread = (spread > 0).then_some(spread);
        table.finish()?;
    }
    Ok(wear)
}
