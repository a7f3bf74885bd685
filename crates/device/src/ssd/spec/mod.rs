//! What an SSD is made of, read from its description and checked.
//!
//! Every table of the description is a file of its own.

mod caches;
mod channel;
mod controller;
mod effect;
mod flash;
mod ftl;
mod gc;
mod geometry;
mod link;
mod nvme;
mod sizes;
mod slc;
mod state;

use super::ftl::cached_map::blocks as map_blocks;
use super::gc::throttle::working_point;
use super::geometry::Geometry;
use super::hybrid::spec::{self as hybrid, Mapping};
use super::preconditioning::steady::Room;
use crate::Identity;
use crate::effect::refuse_idle_keys;
use crate::spec::read_identity;
use blklab_description::{ReadError, Table};

pub use caches::{ReadCachePolicy, ReadCacheSpec, WriteCacheSpec};
pub use channel::ChannelSpec;
pub use controller::{ControllerSpec, Scheduling};
pub use flash::{Copyback, FlashSpec, Interleave, MultiPlane};
pub(crate) use ftl::MOST_MAP_UNIT_BYTES;
pub use ftl::{Allocation, FtlSpec};
pub use gc::{GcPolicy, GcScope, GcSpec, WearSpec};
pub use link::LinkSpec;
pub use nvme::{Arbitration, NvmeSpec};
pub use slc::{SlcCacheSpec, WhenFull};
pub use state::{AgedSpec, InitialState};

use caches::{read_read_cache, read_write_cache};
use channel::read_channel;
use controller::read_controller;
use flash::read_flash;
use ftl::read_ftl;
use gc::{read_gc, read_wear};
use geometry::read_geometry;
use link::read_link;
use nvme::read_nvme;
use slc::read_slc_cache;
use state::read_state;

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
            channel: read_channel(&root.table("channel")?, &geometry)?,
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
        let suspends = [
            ("program_suspend_us", spec.flash.program_suspend_ns),
            ("erase_suspend_us", spec.flash.erase_suspend_ns),
        ];
        if let Some((key, _)) = suspends.iter().find(|(_, cost)| cost.is_some())
            && spec.controller.scheduling == Scheduling::Fcfs
        {
            let problem = "legal is to leave it out where controller.scheduling = \"fcfs\": a read \
                           that stops what was begun is not served in the order of arrival";
            return Err(flash_table.wrong(key, problem));
        }
        if spec.flash.superpage && spec.flash.copyback != Copyback::None {
            let problem = "legal is \"none\" where flash.superpage = true: a page register \
                           cannot wait until all word lines are complete";
            return Err(flash_table.wrong("copyback", problem));
        }
        spec.check_behind(root)?;
        refuse_idle_keys(root, &spec, effect::NEEDS)?;
        if let (Some(table), Some(cache)) = (&slc_table, &spec.slc_cache)
            && cache.filled > 0.0
            && spec.state == InitialState::Fresh
        {
            return Err(table.wrong(
                "filled",
                "legal is 0 where state = \"fresh\": there is no data to fill it with",
            ));
        }
        Ok(spec)
    }

    /// Collection must be able to catch up.
    fn check_behind(&self, root: &Table<'_>) -> Result<(), ReadError> {
        let InitialState::Aged(aged) = &self.state else {
            return Ok(());
        };
        let found = aged.behind_blocks.unwrap_or(0);
        // At its working point a plane has one more that is being gained, and
        // one that is open.
        let (least, why) = match self.gc.preemptible {
            true => (3, " where preemptible = true"),
            false => (1, ""),
        };
        let most = (self.gc.start_blocks).saturating_sub(self.gc.reserve_blocks + least);
        if found > most {
            let problem = format!(
                "legal is 0 to {most} (gc.start_blocks - gc.reserve_blocks - {least}{why})"
            );
            return Err(root.table("aged")?.wrong("behind_blocks", problem));
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

    /// How much of a plane is free at the start of an aged drive: as much as
    /// collection leaves under writes without pause.
    pub(crate) fn room_at_start(&self) -> Room {
        let start = self.gc.start_blocks;
        let behind = match &self.state {
            InitialState::Aged(aged) => aged.behind_blocks,
            _ => None,
        };
        match behind {
            _ if self.gc.preemptible => {
                Room::Slots(working_point(&self.gc, 1) - behind.unwrap_or(0))
            }
            Some(behind) => Room::Blocks(start - behind),
            // The host stays as far ahead as it is.
            None if self.gc.pace_bytes > 0 => Room::Blocks(start),
            // It runs ahead up to the reserve, and waits there for each block.
            None => Room::Slots(self.gc.reserve_blocks + 1),
        }
    }

    /// Map entries of what one program puts into a plane's flash: all pages of a
    /// word line where a physical page has parts, else one page.
    pub(crate) fn slots_per_word_line(&self) -> u32 {
        let pages = self.geometry.page_parts * self.flash.read_ns.len() as u32;
        let pages = match self.geometry.pages_per_block.is_multiple_of(pages) {
            true => pages,
            false => self.geometry.page_parts,
        };
        pages * self.slots_per_page()
    }

    /// Pages that the array programs at once: those of a word line where a
    /// superpage is made of word lines, else the parts of a physical page.
    pub(crate) fn pages_per_program(&self) -> u32 {
        match self.flash.superpage {
            true => self.slots_per_word_line() / self.slots_per_page(),
            false => self.geometry.page_parts,
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

    /// Blocks of a plane that are the SLC cache's alone.
    fn static_blocks(&self) -> u32 {
        self.slc_cache.map_or(0, |cache| cache.static_blocks)
    }

    /// Blocks of a plane that are neither the SLC cache's alone nor the map's.
    pub fn data_blocks_per_plane(&self) -> u32 {
        let map_blocks = map_blocks::blocks_per_plane(self);
        (self.geometry.blocks_per_plane - self.static_blocks()).saturating_sub(map_blocks)
    }

    /// Pages of a block that is written with one bit a cell.
    pub fn slc_pages_per_block(&self) -> u32 {
        self.geometry.pages_per_block / self.flash.read_ns.len() as u32
    }
}

/// Picoseconds a byte at so many decimal megabytes a second.
fn byte_ps(mb_s: f64) -> u64 {
    (1e6 / mb_s).round() as u64
}
