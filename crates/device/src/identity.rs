//! What the host learns when it identifies a drive.

use alloc::format;

use blklab_blk::ZoneLimits;
use blklab_description::{flag, keys, whole};

keys! {
    /// What the host learns when it identifies the drive.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Identity(
        host,
        usual_physical_bytes: u32,
        has_volatile_cache: bool,
        has_moving_parts: bool,
    ) {
        /// The unit it addresses.
        pub logical_block_bytes: u32 = whole(512..=65536)
            .or(512)
            .such_that(|bytes: &u32| bytes.is_power_of_two(), "a power of two")
            .documented("a power of two from 512 to 65536");
        /// The unit it writes without reading first.
        pub physical_block_bytes: u32 = whole(512..=1 << 20)
            .or_derived(
                usual_physical_bytes.max(logical_block_bytes),
                "4096 (a null drive: 512), or the logical block if larger",
            )
            .such_that(|bytes: &u32| bytes.is_power_of_two(), "a power of two")
            .such_that(
                |bytes| *bytes >= logical_block_bytes,
                format!("no less than the logical block ({logical_block_bytes})"),
            )
            .documented("a power of two from the logical block to 1048576");
        /// Its size.
        ///
        /// Here in sectors of 512 bytes.
        pub capacity_sectors: u64 as "capacity_bytes" = whole(1 << 20..=1 << 54)
            .such_that(
                |bytes| bytes % logical_block_bytes as u64 == 0,
                format!("a multiple of the logical block ({logical_block_bytes})"),
            )
            .map(|bytes: u64| bytes / 512);
        /// Largest transfer of one command.
        ///
        /// Here in sectors of 512 bytes.
        pub max_transfer_sectors: u32 as "max_transfer_kb" =
            whole(4..=1 << 20).or(512).map(|kb: u32| kb * 2);
        /// Most memory segments of one command.
        pub max_segments: u16 = whole(1..=65535).or(168);
        /// Commands it takes at once on one queue.
        pub queue_depth: u32 = whole(1..=65535);
        /// How many queues it offers.
        pub max_queues: u16 as "queues" = whole(1..=65535).or(1);
        /// It acknowledges writes that are not on stable storage yet.
        pub volatile_write_cache: bool => has_volatile_cache;
        /// It honours force-unit-access on writes.
        pub fua: bool = flag().or(false);
        /// It takes discards.
        pub discard: bool = flag().or(false);
        /// It has moving parts.
        pub rotational: bool => has_moving_parts;
        /// Its zones, if it is host-managed: those of the table `[zones]`.
        pub zones: Option<ZoneLimits> => None;
    }
}
