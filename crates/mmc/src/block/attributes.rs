//! The queue's limits, and what sysfs shows of them (`mmc_alloc_disk` in
//! `drivers/mmc/core/queue.c`, `block/blk-sysfs.c`).

use std::fmt;

use blklab_blk::{Nanos, QueueConfig, RequestQueue};

use crate::core::{CardKind, Core};
use crate::host::Caps;
use crate::registers::Scr;

/// Requests that the driver takes (`MMC_QUEUE_DEPTH`).
pub(crate) const QUEUE_DEPTH: u32 = 64;
/// The scheduler that the queue begins with, and the list of those that there are
/// (`CONFIG_MQ_IOSCHED_` of Debian's kernel, others being modules).
const SCHEDULER: &str = "mq-deadline";
const SCHEDULERS: &str = "none [mq-deadline]";
/// A request that takes longer is looked after.
const IO_TIMEOUT_MS: u32 = 60_000;
/// Readahead, unless the device asks for more.
const READ_AHEAD_KB: u32 = 128;
/// The longest request that is made without being asked for
/// (`BLK_DEF_MAX_SECTORS_CAP`).
const DEFAULT_MAX_KB: u32 = 1280;

/// Limits of a card's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most bytes of a request.
    pub max_hw_bytes: u32,
    /// Most pieces of memory.
    pub max_segments: u32,
    /// Most bytes of a piece.
    pub max_segment_bytes: u32,
    /// Most bytes of a discard, 0 if there is none.
    pub max_discard_bytes: u64,
    /// What discards are best aligned to.
    pub discard_granularity: u64,
    /// Most bytes of a write of zeroes, 0 if there is none.
    pub max_write_zeroes_bytes: u64,
    /// Whether there is a cache that forgets.
    pub write_back: bool,
    /// Whether single writes can go past the cache.
    pub fua: bool,
}

impl QueueLimits {
    /// The limits that card and host set; `None` without a card.
    pub fn of(core: &mut Core) -> Option<QueueLimits> {
        let max_discard_sectors = u64::from(core.max_discard_sectors());
        let spec = *core.host().spec();
        let card = core.card()?;
        let preferred = u64::from(card.preferred_erase_sectors);
        let trims_to_zero = card.ext_csd.can_trim() && !card.ext_csd.erased_ones;
        let is_mmc = card.kind == CardKind::Mmc;
        let knows_count = match is_mmc {
            true => card.csd.mmca_version >= 3,
            false => card.scr.commands & Scr::CMD23 != 0,
        };
        let counts = spec.caps.contains(Caps::CMD23) && knows_count;
        let fua = counts && card.ext_csd.has_reliable_write();
        Some(QueueLimits {
            max_hw_bytes: spec
                .max_request_bytes
                .min(spec.max_blocks.saturating_mul(512)),
            max_segments: spec.max_segments,
            max_segment_bytes: spec.max_segment_bytes & !511,
            max_discard_bytes: max_discard_sectors << 9,
            discard_granularity: match (max_discard_sectors, preferred > max_discard_sectors) {
                (0, _) => 0,
                (_, true) => 512,
                (_, false) => preferred << 9,
            },
            max_write_zeroes_bytes: match is_mmc && trims_to_zero {
                true => max_discard_sectors << 9,
                false => 0,
            },
            write_back: fua || card.ext_csd.cache_on,
            fua,
        })
    }

    /// The queue of a disk of so many sectors, as the driver makes it for so many CPUs.
    pub(crate) fn queue(&self, capacity_sectors: u64, cpus: usize) -> RequestQueue {
        let sectors = |bytes: u64| u32::try_from(bytes >> 9).unwrap_or(u32::MAX);
        let mut queue = RequestQueue::new(&QueueConfig {
            nr_cpus: cpus,
            nr_hw_queues: 1,
            queue_depth: QUEUE_DEPTH,
            round_robin_tags: false,
            // Where each CPU looks for a tag first is a matter of chance.
            seed: 1,
            limits: blklab_blk::QueueLimits {
                capacity_sectors,
                max_sectors: self.max_kb() * 2,
                max_segments: u16::try_from(self.max_segments).unwrap_or(u16::MAX),
                max_discard_sectors: sectors(self.max_discard_bytes),
                max_write_zeroes_sectors: sectors(self.max_write_zeroes_bytes),
                write_cache: self.write_back,
                fua: self.fua,
                ..blklab_blk::QueueLimits::default()
            },
        });
        let scheduler = blklab_elevator::find(SCHEDULER);
        queue.set_elevator(scheduler.and_then(|kind| kind.build(&queue.info())));
        queue.enable_wbt(Nanos::ZERO);
        queue
    }

    /// The longest request that is made without being asked for, in KiB.
    fn max_kb(&self) -> u32 {
        (self.max_hw_bytes / 1024).min(DEFAULT_MAX_KB)
    }

    /// Files of `queue/`, those of its scheduler too.
    pub(crate) fn attributes(&self, queue: &RequestQueue) -> Vec<(String, String)> {
        let max_hw_kb = self.max_hw_bytes / 1024;
        let (max_kb, depth) = (self.max_kb(), queue.nr_requests());
        let wbt_latency_us = queue.wbt().map_or(0, |wbt| wbt.latency_us());
        let cache = match self.write_back {
            true => "write back",
            false => "write through",
        };
        let discard = self.max_discard_bytes;
        let rows: [(&str, &dyn fmt::Display); 44] = [
            ("add_random", &0),
            ("atomic_write_boundary_bytes", &0),
            ("atomic_write_max_bytes", &0),
            ("atomic_write_unit_max_bytes", &0),
            ("atomic_write_unit_min_bytes", &0),
            ("chunk_sectors", &0),
            ("dax", &0),
            ("discard_granularity", &self.discard_granularity),
            ("discard_max_bytes", &discard),
            ("discard_max_hw_bytes", &discard),
            ("discard_zeroes_data", &0),
            ("dma_alignment", &511),
            ("fua", &u8::from(self.fua)),
            ("hw_sector_size", &512),
            ("io_poll", &0),
            ("io_poll_delay", &-1),
            ("io_timeout", &IO_TIMEOUT_MS),
            ("iostats", &1),
            ("logical_block_size", &512),
            ("max_discard_segments", &1),
            ("max_hw_sectors_kb", &max_hw_kb),
            ("max_integrity_segments", &0),
            ("max_sectors_kb", &max_kb),
            ("max_segment_size", &self.max_segment_bytes),
            ("max_segments", &self.max_segments),
            ("minimum_io_size", &512),
            ("nomerges", &0),
            ("nr_requests", &depth),
            ("nr_zones", &0),
            ("optimal_io_size", &0),
            ("physical_block_size", &512),
            ("read_ahead_kb", &READ_AHEAD_KB),
            ("rotational", &0),
            ("rq_affinity", &1),
            ("scheduler", &SCHEDULERS),
            ("stable_writes", &0),
            ("virt_boundary_mask", &0),
            ("wbt_lat_usec", &wbt_latency_us),
            ("write_cache", &cache),
            ("write_same_max_bytes", &0),
            ("write_zeroes_max_bytes", &self.max_write_zeroes_bytes),
            ("zone_append_max_bytes", &0),
            ("zone_write_granularity", &0),
            ("zoned", &"none"),
        ];
        let mut files: Vec<(String, String)> = { rows.iter() }
            .map(|(name, value)| ((*name).to_owned(), value.to_string()))
            .collect();
        if let Some(elevator) = queue.elevator() {
            let tunables = elevator.tunables();
            let declared = tunables.declared().iter();
            files.extend(declared.filter_map(|tunable| {
                let value = tunables.get(tunable.name)?;
                Some((format!("iosched/{}", tunable.name), value.to_string()))
            }));
        }
        files
    }
}
