//! `[controller]`: the firmware's own time and its order of work.

use super::MAX_US;
use blklab_description::{ReadError, Table};

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

pub(super) fn read_controller(table: &Table<'_>) -> Result<ControllerSpec, ReadError> {
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
