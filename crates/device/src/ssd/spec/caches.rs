//! `[write_cache]` and `[read_cache]`: the controller's DRAM before the flash.

use super::byte_ps;
use blklab_description::{ReadError, Table};

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

/// `[read_cache]`: map units that were read lately, in the same DRAM as
/// `[write_cache]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCacheSpec {
    /// Its size.
    pub size_bytes: u64,
    /// What makes room.
    pub policy: ReadCachePolicy,
    /// How far a sequential reader is read ahead of; 0 where nothing is.
    pub read_ahead_bytes: u64,
    /// How many sequential readers are followed at once.
    pub read_ahead_streams: u32,
}

/// What leaves the read cache for something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadCachePolicy {
    /// What was used longest ago.
    Lru,
    /// What came in longest ago.
    Fifo,
}

pub(super) fn read_write_cache(table: &Table<'_>) -> Result<WriteCacheSpec, ReadError> {
    let cache = WriteCacheSpec {
        enabled: table.flag_or("enabled", true)?,
        size_bytes: table.int("size_kb", 4..=1 << 24)? * 1024,
        resume_bytes: table.int_or("resume_kb", 1..=1 << 24, 1)? * 1024,
        byte_ps: byte_ps(table.number("bandwidth_mb_s", 1.0..=1e6)?),
        access_ns: table.int_or("access_ns", 0..=1_000_000, 0)?,
        power_loss_protection: table.flag_or("power_loss_protection", false)?,
    };
    if cache.resume_bytes > cache.size_bytes {
        return Err(table.wrong(
            "resume_kb",
            format!("legal is at most size_kb ({})", cache.size_bytes / 1024),
        ));
    }
    table.finish()?;
    Ok(cache)
}

pub(super) fn read_read_cache(table: &Table<'_>) -> Result<ReadCacheSpec, ReadError> {
    let cache = ReadCacheSpec {
        size_bytes: table.int("size_kb", 4..=1 << 24)? * 1024,
        policy: table.choice(
            "policy",
            &[
                ("lru", ReadCachePolicy::Lru),
                ("fifo", ReadCachePolicy::Fifo),
            ],
        )?,
        read_ahead_bytes: table.int_or("read_ahead_kb", 0..=1 << 20, 0)? * 1024,
        read_ahead_streams: table.int_or("read_ahead_streams", 1..=64, 8)? as u32,
    };
    let streams = cache.read_ahead_streams as u64;
    if cache.read_ahead_bytes * streams > cache.size_bytes {
        let most = cache.size_bytes / 1024 / streams;
        return Err(table.wrong(
            "read_ahead_kb",
            format!("legal is at most {most} (size_kb / read_ahead_streams)"),
        ));
    }
    table.finish()?;
    Ok(cache)
}
