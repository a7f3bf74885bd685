//! What a card is made of, read from its description and checked.

use blklab_description::{ReadError, Table, keys, nanos, number, whole, word};

use crate::spec::byte_ps;
use crate::{DriveState, Identity};

const MAX_US: f64 = 1_000_000.0;

/// Most allocation units of a card, which bounds what a simulation keeps of them.
const MOST_UNITS: u64 = 1 << 24;

/// A card, as described.
#[derive(Clone, Debug)]
pub(crate) struct CardSpec {
    pub(super) identity: Identity,
    /// What was written to it before.
    pub(super) state: DriveState,
    pub(super) bus: BusSpec,
    pub(super) reads: ReadSpec,
    pub(super) writes: WriteSpec,
    pub(super) units: UnitSpec,
    /// Where small writes go.
    pub(super) small: SmallWrites,
}

/// Where a card puts writes of less than a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum SmallWrites {
    /// Into a log of their allocation unit.
    Log(LogSpec),
    /// Anywhere: their units have a map of their own.
    Map(MapSpec),
}

keys! {
    /// The wires between host and card, which are the same both ways.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct BusSpec(table) {
        /// Their rate.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(0.1..=1e5).map(byte_ps);
        /// What a command takes beside its data: its bits, the response, the stop command
        /// and the host's interrupt.
        // No command ends when it begins: time would stand still.
        pub command_ns: u64 as "command_us" = number(0.0..=MAX_US).map(|us| nanos(us).max(1));
    }
}

keys! {
    /// How the card reads.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct ReadSpec(table) {
        /// From a command to its first byte, where it has not read ahead.
        pub access_ns: u64 as "access_us" = number(0.0..=MAX_US).map(nanos);
        /// How fast data comes out of the flash.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(0.1..=1e5).map(byte_ps);
        /// Sequential readers that it reads ahead of.
        pub streams: usize = whole(0..=64).or(1);
    }
}

keys! {
    /// How the card writes.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct WriteSpec(table) {
        /// What a write takes that does not go on where another ended, beside its data.
        pub random_ns: u64 as "random_us" = number(0.0..=MAX_US).map(nanos);
        /// How fast data goes into the flash in order.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(0.01..=1e5).map(byte_ps);
        /// What is no less goes to the flash as it is, if it need not be in order.
        ///
        /// Here in sectors of 512 bytes.
        pub page_sectors: u64 as "page_kb" = whole(1..=1024).map(|kb: u64| kb * 2);
    }
}

keys! {
    /// Allocation units: what the SD specification calls AU, the firmware's unit of
    /// mapping and erasing.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct UnitSpec(table, capacity_sectors: u64) {
        /// Size of one. SD cards tell it in their status register (AU_SIZE).
        ///
        /// Here in sectors of 512 bytes.
        pub sectors: u64 as "kb" = whole(16..=512 * 1024)
            .map(|kb: u64| kb * 2)
            .such_that(
                |&sectors| capacity_sectors / sectors < MOST_UNITS,
                "no less than a 16777216th of the card",
            )
            .documented("16 to 524288");
        /// Units that can be written in order at once; what flashbench finds with
        /// `--open-au`.
        pub open: usize = whole(1..=64);
        /// Time to erase one.
        pub erase_ns: u64 as "erase_us" = number(0.0..=MAX_US).map(nanos);
        /// So much from the card's start is where a FAT file system has its tables:
        /// small writes there are kept apart and never make a unit be rewritten.
        ///
        /// Here in sectors of 512 bytes.
        pub fat_sectors: u64 as "fat_kb" = whole(0..=1 << 20).map(|kb: u64| kb * 2).or(0);
    }
}

keys! {
    /// Logs of small writes, one of an allocation unit each. A unit whose log is full, or
    /// is wanted for another unit, is written anew.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct LogSpec(table) {
        /// Size of one.
        ///
        /// Here in sectors of 512 bytes.
        pub sectors: u64 as "kb" = whole(1..=512 * 1024).map(|kb: u64| kb * 2);
        /// How many units can have one.
        pub count: usize = whole(1..=65536);
    }
}

keys! {
    /// A map of units smaller than an allocation unit, as cards of the application
    /// performance classes A1 and A2 have: small writes may go anywhere.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct MapSpec(table) {
        /// What is mapped by itself.
        ///
        /// Here in sectors of 512 bytes.
        pub sectors: u64 as "unit_kb" = whole(1..=1024).map(|kb: u64| kb * 2);
        /// What a write that is not in order takes for each, with the folding and
        /// collection that it makes necessary.
        pub write_ns: u64 as "write_us" = number(0.0..=MAX_US).map(nanos);
    }
}

impl CardSpec {
    /// Reads what is its own in a description.
    pub(super) fn read(root: &Table<'_>) -> Result<CardSpec, ReadError> {
        let identity = Identity::read(&root.table("host")?, 512, false, false)?;
        let state = root.key("state", "What was written to it before.", word())?;
        let capacity_sectors = identity.capacity_sectors;
        let small = match root.read_if_any("map", MapSpec::read)? {
            Some(map) => SmallWrites::Map(map),
            None => SmallWrites::Log(LogSpec::read(&root.table("log")?)?),
        };
        Ok(CardSpec {
            state,
            bus: BusSpec::read(&root.table("bus")?)?,
            reads: ReadSpec::read(&root.table("reads")?)?,
            writes: WriteSpec::read(&root.table("writes")?)?,
            units: UnitSpec::read(&root.table("units")?, capacity_sectors)?,
            small,
            identity,
        })
    }
}
