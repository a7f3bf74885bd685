//! `[controller]`: the firmware's own time and its order of work.

use super::MAX_US;
use blklab_description::{ReadError, Table};

/// Where a description is silent: a discard of 4 KiB took 63 to 71 us on an NVMe
/// drive, seen from fio (its issue 764), of which the host has 10 to 20.
const DISCARD_NS: u64 = 50_000;
/// Likewise, assumed: 16 entries of 4 bytes come with a cache line that DRAM
/// delivers in about 100 ns, and a core of 1 GHz has some 15 instructions for
/// each. Drives differ by more than ten times in either direction.
const DISCARD_UNIT_NS: f64 = 20.0;

/// `[controller]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerSpec {
    /// Firmware's latency of a read or flush.
    pub read_ns: u64,
    /// Firmware's latency of a write.
    pub write_ns: u64,
    /// Least time between two commands; zero for no limit.
    pub interval_ns: u64,
    /// More of that for every further page of the flash that a read is spread
    /// over: firmware that is fastest at commands of one page takes others apart.
    pub page_interval_ns: u64,
    /// Firmware's latency of a discard or write-zeroes.
    pub discard_ns: u64,
    /// Time of each of its map units, in picoseconds: an entry of the map in
    /// DRAM and the count of valid data where it pointed. The firmware takes no
    /// other command meanwhile.
    pub discard_unit_ps: u64,
    /// Who goes first.
    pub scheduling: Scheduling,
    /// After so many reads of a die in a row a program or an erase that waits
    /// for it, or was stopped for them, has its turn.
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

pub(super) fn read_controller(table: &Table<'_>) -> Result<ControllerSpec, ReadError> {
    let controller = ControllerSpec {
        read_ns: table.micros("read_us", MAX_US)?,
        write_ns: table.micros("write_us", MAX_US)?,
        interval_ns: table.micros_or("interval_us", MAX_US, 0)?,
        page_interval_ns: table.micros_or("page_interval_us", MAX_US, 0)?,
        discard_ns: table.micros_or("discard_us", MAX_US, DISCARD_NS)?,
        discard_unit_ps: (table.number_or("discard_unit_ns", 0.0..=1e6, DISCARD_UNIT_NS)? * 1e3)
            .round() as u64,
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
