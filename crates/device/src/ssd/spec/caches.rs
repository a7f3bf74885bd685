//! `[write_cache]`, `[read_cache]` and `[slc_cache]`: the controller's DRAM, and flash
//! that is written with one bit a cell.

use alloc::format;

use blklab_description::{ReadError, Table, flag, keys, nanos, number, whole, word};
use strum::{Display, EnumMessage, VariantArray};

use super::{FlashSpec, Geometry, MAX_US};
use crate::spec::byte_ps;

keys! {
    /// Host data in the controller's DRAM before it is programmed.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct WriteCacheSpec(table) {
        /// A write completes when its data is in the cache.
        pub enabled: bool = flag().or(true);
        /// Most data in it.
        pub size_bytes: u64 as "size_kb" = whole(4..=1 << 24).map(|kb: u64| kb * 1024);
        /// Once it is full, writes wait until this much of it is free.
        pub resume_bytes: u64 as "resume_kb" = whole(1..=1 << 24)
            .or(1)
            .such_that(
                |kb: &u64| kb * 1024 <= size_bytes,
                format!("at most size_kb ({})", size_bytes / 1024),
            )
            .map(|kb: u64| kb * 1024);
        /// Bandwidth of the DRAM.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(1.0..=1e6).map(byte_ps);
        /// Time before the first byte.
        pub access_ns: u64 = whole(0..=1_000_000).or(0);
        /// Capacitors protect the data in the cache.
        pub power_loss_protection: bool = flag().or(false);
        /// Pages of the firmware's own records that a flush of new data programs when
        /// that data is on the flash, one after the other; with one bit a cell where
        /// there is an SLC cache.
        pub flush_records: u32 = whole(0..=4096).or(0).needs(
            enabled && !power_loss_protection,
            "write_cache.enabled and no power_loss_protection",
        );
        /// The same for a write with force unit access.
        pub fua_records: u32 = whole(0..=4096).or(0).needs(
            enabled && !power_loss_protection,
            "write_cache.enabled and no power_loss_protection",
        );
    }
}

/// What the read cache evicts for new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReadCachePolicy {
    /// What was used longest ago.
    Lru,
    /// What was inserted longest ago.
    Fifo,
}

keys! {
    /// Recently read map units, in the same DRAM as `[write_cache]`.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ReadCacheSpec(table) {
        /// Its size.
        pub size_bytes: u64 as "size_kb" = whole(4..=1 << 24).map(|kb: u64| kb * 1024);
        /// What is evicted for new data.
        pub policy: ReadCachePolicy = word();
        /// How far the drive reads ahead of a sequential reader; 0: it does not.
        pub read_ahead_bytes: u64 as "read_ahead_kb" =
            whole(0..=1 << 20).or(0).map(|kb: u64| kb * 1024);
        /// How many sequential readers are tracked at once.
        pub read_ahead_streams: u32 = whole(1..=64)
            .or(8)
            .needs(read_ahead_bytes > 0, "read_cache.read_ahead_kb above 0");
        /// It reads ahead only after a read beside which the drive has no other command.
        pub read_ahead_alone: bool = flag()
            .or(false)
            .needs(read_ahead_bytes > 0, "read_cache.read_ahead_kb above 0");
    }
}

impl ReadCacheSpec {
    pub(super) fn read_checked(table: &Table<'_>) -> Result<ReadCacheSpec, ReadError> {
        let cache = ReadCacheSpec::read(table)?;
        let streams = cache.read_ahead_streams as u64;
        if cache.read_ahead_bytes * streams > cache.size_bytes {
            let most = cache.size_bytes / 1024 / streams;
            let problem = format!("legal is at most {most} (size_kb / read_ahead_streams)");
            return Err(table.wrong("read_ahead_kb", problem));
        }
        Ok(cache)
    }
}

/// What happens to host writes while the SLC cache is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WhenFull {
    /// They go directly to multi-level pages.
    Direct,
    /// They wait until a block of the cache has been folded.
    Wait,
}

keys! {
    /// Multi-level flash that is written with one bit a cell.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct SlcCacheSpec(table, geometry: &Geometry, flash: &FlashSpec) {
        /// Static part: flash that is only ever SLC cache.
        let static_mb: u64 = number(0.0..=1e9).or(0.0).map(|mb| slc_blocks(mb, geometry, flash));
        /// Dynamic part: free flash that may be used as SLC cache.
        let dynamic_mb: u64 = number(0.0..=1e9).or(0.0).map(|mb| slc_blocks(mb, geometry, flash));
        /// Blocks of every plane that are only ever SLC cache.
        pub static_blocks: u32 => fitting(table, "static_mb", static_mb, geometry)?;
        /// Most free blocks of every plane that may be used as SLC cache besides.
        pub dynamic_blocks: u32 => fitting(table, "dynamic_mb", dynamic_mb, geometry)?;
        /// Array time of a read.
        pub read_ns: u64 as "read_us" = number(0.001..=MAX_US).map(nanos);
        /// Array time of a program.
        pub program_ns: u64 as "program_us" = number(0.001..=MAX_US).map(nanos);
        /// Time of an erase.
        pub erase_ns: u64 as "erase_us" = number(0.001..=MAX_US)
            .map(nanos)
            .or_derived(flash.erase_ns, "flash.erase_us");
        /// What happens to host writes while it is full.
        pub when_full: WhenFull = word();
        /// Idle time of the host after which it is folded; without it, only for lack of
        /// room.
        pub fold_after_ns: Option<u64> as "fold_after_us" = number(0.0..=1e12).map(nanos).optional();
        /// Share of it that is full at the start.
        pub filled: f64 = number(0.0..=1.0).or(0.0);
    }
}

/// Blocks of every plane that together hold this much at one bit a cell.
fn slc_blocks(megabytes: f64, geometry: &Geometry, flash: &FlashSpec) -> u64 {
    let pages = geometry.pages_per_block / flash.read_ns.len() as u32;
    let stripe_bytes = geometry.planes() as u64 * pages as u64 * geometry.page_bytes as u64;
    libm::ceil(megabytes * 1e6 / stripe_bytes as f64) as u64
}

/// A number of blocks, checked to be below that of a plane.
fn fitting(
    table: &Table<'_>,
    key: &str,
    blocks: u64,
    geometry: &Geometry,
) -> Result<u32, ReadError> {
    let most = geometry.blocks_per_plane as u64;
    match blocks < most {
        true => Ok(blocks as u32),
        false => Err(table.wrong(
            key,
            format!(
                "which is {blocks} blocks a plane at one bit a cell, legal is below geometry.blocks_per_plane ({most})"
            ),
        )),
    }
}

impl SlcCacheSpec {
    pub(super) fn read_checked(
        table: &Table<'_>,
        geometry: &Geometry,
        flash: &FlashSpec,
    ) -> Result<SlcCacheSpec, ReadError> {
        let bits = flash.read_ns.len() as u32;
        if bits < 2 || geometry.pages_per_block < bits {
            return Err(table.wrong(
                "static_mb",
                "legal with a cell of two to four bits (flash.cell) and as many pages a block",
            ));
        }
        let cache = SlcCacheSpec::read(table, geometry, flash)?;
        match cache.static_blocks + cache.dynamic_blocks {
            0 => Err(table.wrong("static_mb", "legal is above 0, here or in dynamic_mb")),
            _ => Ok(cache),
        }
    }
}
