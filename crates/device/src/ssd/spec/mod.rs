//! The description of an SSD, read and checked.
//!
//! These are the tables of the description, and what follows from them alone;
//! nothing here depends on the rest of the SSD.

mod caches;
mod controller;
mod flash;
mod ftl;
mod gc;
mod geometry;
mod sizes;
mod state;

use alloc::format;

use blklab_description::{ReadError, Table};

use crate::spec::Interface;
use crate::{DriveState, Identity};

pub use caches::{ReadCachePolicy, ReadCacheSpec, SlcCacheSpec, WhenFull, WriteCacheSpec};
pub use controller::{Arbitration, ControllerSpec, LinkSpec, NvmeSpec};
pub use flash::{ChannelSpec, Copyback, FlashSpec, Interleave, MultiPlane, Scheduling};
pub(crate) use ftl::MOST_MAP_UNIT_BYTES;
pub use ftl::{Allocation, FtlSpec, Mapping};
pub use gc::{GcPolicy, GcScope, GcSpec, WearSpec};
pub use geometry::{Axis, Geometry, Layout};
pub use state::{AgedSpec, InitialState};

/// Longest time of a single operation, in microseconds.
const MAX_US: f64 = 10_000_000.0;

/// Map blocks of a plane beyond those that the map fills: the open one, and the one that
/// collection needs.
const SPARE_MAP_BLOCKS: u64 = 2;
/// One more spare block for this many that the map fills, so that the best victim always
/// has pages to gain.
const FILLED_MAP_BLOCKS_A_SPARE: u64 = 8;

/// An SSD, as described.
#[derive(Clone, Debug, PartialEq)]
pub struct SsdSpec {
    /// What the host sees.
    pub identity: Identity,
    /// The link to the host.
    pub link: LinkSpec,
    /// The firmware's latencies and scheduling.
    pub controller: ControllerSpec,
    /// Number of channels, packages, dies, planes, blocks and pages.
    pub geometry: Geometry,
    /// Commands and times of the flash.
    pub flash: FlashSpec,
    /// The bus between controller and packages.
    pub channel: ChannelSpec,
    /// The flash translation layer.
    pub ftl: FtlSpec,
    /// Host data in DRAM before it is programmed.
    pub write_cache: WriteCacheSpec,
    /// How commands are fetched from submission queues; `None`: in order of arrival.
    pub nvme: Option<NvmeSpec>,
    /// Recently read data in DRAM.
    pub read_cache: Option<ReadCacheSpec>,
    /// Multi-level flash written with one bit a cell.
    pub slc_cache: Option<SlcCacheSpec>,
    /// Garbage collection.
    pub gc: GcSpec,
    /// Wear levelling.
    pub wear: WearSpec,
    /// What is on the drive at the start.
    pub state: InitialState,
}

impl SsdSpec {
    pub(crate) fn read(root: &Table<'_>, interface: Interface) -> Result<SsdSpec, ReadError> {
        let cache_table = root.table("write_cache")?;
        let write_cache = WriteCacheSpec::read(&cache_table)?;
        let volatile = write_cache.enabled && !write_cache.power_loss_protection;
        let identity = Identity::read(&root.table("host")?, 4096, volatile, false)?;
        let nvme = root.read_if_any("nvme", |table| NvmeSpec::read(table, &identity))?;
        let geometry_table = root.table("geometry")?;
        let geometry = Geometry::read(&geometry_table)?;
        let flash_table = root.table("flash")?;
        let flash = FlashSpec::read(&flash_table, &geometry)?;
        let slc_table = root.table_if_any("slc_cache")?;
        let slc_cache = match &slc_table {
            Some(table) => Some(SlcCacheSpec::read_checked(table, &geometry, &flash)?),
            None => None,
        };
        let ftl_table = root.table("ftl")?;
        let ftl = FtlSpec::read(&ftl_table, root, &geometry, &identity)?;
        let link = LinkSpec::read(&root.table("link")?)?;
        let controller = ControllerSpec::read(&root.table("controller")?, &flash)?;
        let channel_table = root.table("channel")?;
        let spec = SsdSpec {
            link,
            channel: ChannelSpec::read(&channel_table, &geometry, &flash, controller.scheduling)?,
            controller,
            gc: match ftl.mapping {
                Mapping::Page => GcSpec::read_checked(&root.table("gc")?, &geometry)?,
                Mapping::Hybrid(_) => GcSpec::read_of_merges(root.table_if_any("gc")?.as_ref())?,
            },
            wear: root
                .read_if_any("wear_levelling", WearSpec::read)?
                .unwrap_or_default(),
            state: InitialState::read(root)?,
            identity,
            geometry,
            flash,
            ftl,
            write_cache,
            nvme,
            read_cache: root.read_if_any("read_cache", ReadCacheSpec::read_checked)?,
            slc_cache,
        };
        spec.check_hybrid(root, &ftl_table, &flash_table)?;
        spec.check_sizes(&geometry_table, &ftl_table, &cache_table, &flash_table)?;
        spec.check_flash(&flash_table)?;
        if spec.ftl.in_step && spec.planes_per_row() == 1 {
            ftl_table.refuse_idle("in_step", ftl::IN_STEP);
        }
        if let (Some(table), Some(cache)) = (&slc_table, &spec.slc_cache)
            && cache.filled > 0.0
            && spec.state == InitialState::Fresh
        {
            return Err(table.wrong(
                "filled",
                "legal is 0 where state = \"fresh\": there is no data to fill it with",
            ));
        }
        if spec.nvme.is_some() && interface != Interface::Nvme {
            let problem = "legal is to leave this table out where interface is not \"nvme\"";
            return Err(root.wrong("nvme", problem));
        }
        Ok(spec)
    }

    /// The drive in another initial state. A drive whose description has that state is
    /// unchanged.
    pub(crate) fn in_state(&self, state: DriveState) -> SsdSpec {
        let mut spec = self.clone();
        if spec.state.name() != state {
            spec.state = InitialState::of(state, &spec.ftl.mapping);
        }
        if let (DriveState::Fresh, Some(cache)) = (state, &mut spec.slc_cache) {
            cache.filled = 0.0;
        }
        spec
    }

    /// Refuses what needs a page map on a drive with hybrid mapping.
    fn check_hybrid(
        &self,
        root: &Table<'_>,
        ftl: &Table<'_>,
        flash: &Table<'_>,
    ) -> Result<(), ReadError> {
        if self.ftl.mapping == Mapping::Page {
            return Ok(());
        }
        const WITH: &str = "where ftl.mapping = \"hybrid\"";
        if self.ftl.allocation != Allocation::Static {
            return Err(ftl.wrong("allocation", format!("legal is \"static\" {WITH}")));
        }
        if self.ftl.map_cache_entries.is_some() {
            return Err(ftl.wrong(
                "map_cache_kb",
                format!("legal is 0 {WITH}: its map is small"),
            ));
        }
        if self.flash.copyback != Copyback::None {
            return Err(flash.wrong("copyback", format!("legal is \"none\" {WITH}")));
        }
        if self.flash.superpage {
            return Err(flash.wrong("superpage", format!("legal is false {WITH}")));
        }
        if self.slc_cache.is_some() {
            return Err(root.wrong(
                "slc_cache",
                format!("legal is to leave this table out {WITH}"),
            ));
        }
        if self.wear.static_spread.is_some() {
            let table = root.table("wear_levelling")?;
            let problem = format!("legal is to leave it out {WITH}");
            return Err(table.wrong("static_spread", problem));
        }
        match self.state {
            InitialState::Aged(aged) if !aged.simulate => Err(root.wrong(
                "state",
                format!("legal is \"fresh\" or \"filled\" {WITH}, or aged.simulate = true"),
            )),
            InitialState::Aged(aged) if aged.occupancy < 1.0 => {
                let aged = root.table("aged")?;
                Err(aged.wrong("occupancy", format!("legal is 1 {WITH}")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses flash commands that conflict with the scheduling or with each other.
    fn check_flash(&self, flash: &Table<'_>) -> Result<(), ReadError> {
        let in_order = self.controller.scheduling == Scheduling::Fcfs;
        if self.flash.superpage && in_order {
            let problem = "legal is false where controller.scheduling = \"fcfs\": \
                           programs wait for operations that came after them";
            return Err(flash.wrong("superpage", problem));
        }
        let suspends = [
            ("program_suspend_us", self.flash.program_suspend_ns),
            ("erase_suspend_us", self.flash.erase_suspend_ns),
        ];
        if let Some((key, _)) = suspends.iter().find(|(_, cost)| cost.is_some())
            && in_order
        {
            let problem = "legal is to leave it out where controller.scheduling = \"fcfs\": a read \
                           that stops what was begun is not served in the order of arrival";
            return Err(flash.wrong(key, problem));
        }
        if self.flash.superpage && self.flash.copyback != Copyback::None {
            let problem = "legal is \"none\" where flash.superpage = true: a page register \
                           cannot wait until all word lines are complete";
            return Err(flash.wrong("copyback", problem));
        }
        Ok(())
    }

    /// Planes that are filled in step, so that multi-plane commands find them
    /// at the same page. Superpages are in step by themselves, and copyback does
    /// not leave its plane.
    pub(crate) fn planes_per_row(&self) -> u32 {
        let in_step = self.ftl.in_step
            && self.flash.multi_plane == MultiPlane::SamePage
            && !self.flash.superpage
            && self.flash.copyback == Copyback::None
            && self.ftl.allocation == Allocation::Static
            && self.ftl.mapping == Mapping::Page
            && self.gc.scope == GcScope::Plane;
        match in_step {
            true => self.geometry.planes_per_die,
            false => 1,
        }
    }

    /// Map units of a word line, or of a physical page where blocks do not hold a whole
    /// number of word lines.
    pub(crate) fn slots_per_word_line(&self) -> u32 {
        let pages = self.geometry.page_parts * self.flash.read_ns.len() as u32;
        let pages = match self.geometry.pages_per_block.is_multiple_of(pages) {
            true => pages,
            false => self.geometry.page_parts,
        };
        pages * self.slots_per_page()
    }

    /// Pages of one program: those of a word line with superpages, else the parts of a
    /// physical page.
    pub(crate) fn pages_per_program(&self) -> u32 {
        match self.flash.superpage {
            true => self.slots_per_word_line() / self.slots_per_page(),
            false => self.geometry.page_parts,
        }
    }

    /// Map units of a page.
    pub fn slots_per_page(&self) -> u32 {
        self.geometry.page_bytes / self.ftl.map_unit_bytes
    }

    /// Map units of the host's address space.
    pub fn logical_slots(&self) -> u64 {
        (self.identity.capacity_sectors * 512).div_ceil(self.ftl.map_unit_bytes as u64)
    }

    /// Blocks of a plane that belong to the static SLC cache.
    fn static_blocks(&self) -> u32 {
        self.slc_cache.map_or(0, |cache| cache.static_blocks)
    }

    /// Blocks of a plane that belong neither to the static SLC cache nor to the map.
    pub fn data_blocks_per_plane(&self) -> u32 {
        let map_blocks = self.map_blocks_per_plane();
        (self.geometry.blocks_per_plane - self.static_blocks()).saturating_sub(map_blocks)
    }

    /// Blocks that each plane keeps for the map; none where DRAM holds all of it. Real
    /// numbers are not published: an eighth more than the map fills, and two, is assumed.
    pub(crate) fn map_blocks_per_plane(&self) -> u32 {
        if self.ftl.map_cache_entries.is_none() {
            return 0;
        }
        let pages = self
            .logical_slots()
            .div_ceil(self.ftl.entries_per_map_page as u64);
        let planes = self.geometry.planes() as u64;
        let blocks = pages
            .div_ceil(planes)
            .div_ceil(self.geometry.pages_per_block as u64);
        let spare = SPARE_MAP_BLOCKS + blocks.div_ceil(FILLED_MAP_BLOCKS_A_SPARE);
        (blocks + spare).min(u32::MAX as u64) as u32
    }

    /// Pages of a block that is written with one bit a cell.
    pub fn slc_pages_per_block(&self) -> u32 {
        self.geometry.pages_per_block / self.flash.read_ns.len() as u32
    }
}
