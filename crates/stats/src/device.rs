//! What happened inside a drive, of whatever kind.

use crate::hdd::ArmStats;
use crate::ssd::{CollectionStats, LevellingStats, MergeStats, SlcStats, TooFull};
use crate::waits::WaitCounts;

/// What happened inside a drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceStats {
    /// Steps of its simulation: what a request costs to simulate goes with them.
    pub events: u64,
    /// One entry a channel.
    pub channels: Vec<ChannelStats>,
    /// Pages whose read by the host a program or an erase held up: their die was
    /// at it between their coming and their start.
    pub reads_behind_writes: u64,
    /// Time those reads lost to it, in nanoseconds.
    pub reads_behind_writes_ns: u64,
    /// What the host's reads waited for.
    pub read_waits: WaitCounts,
    /// What its writes waited for.
    pub write_waits: WaitCounts,
    /// Pages read from flash.
    pub flash_reads: u64,
    /// Pages programmed.
    pub flash_programs: u64,
    /// Blocks erased.
    pub flash_erases: u64,
    /// Sectors the host wrote.
    pub host_sectors_written: u64,
    /// Sectors of the host's data that were programmed: what it wrote less what
    /// is still in the cache or was overwritten there.
    pub host_sectors_programmed: u64,
    /// Sectors that the host overwrote while they were in the cache, in the page
    /// that was being filled: they never reach the flash.
    pub host_sectors_absorbed: u64,
    /// Sectors programmed, for whatever reason.
    pub flash_sectors_programmed: u64,
    /// One entry a part that executes commands of its own: a die, mostly.
    pub dies: Vec<DieStats>,
    /// Commands that several planes executed as one.
    pub multi_plane_commands: u64,
    /// Programs and erases that were stopped for a read.
    pub suspensions: u64,
    /// Reads that a die began while data of its last was going out.
    pub cache_reads: u64,
    /// Programs whose data went to a die while it was at its last program.
    pub cache_programs: u64,
    /// Pages that collection moved without the channel.
    pub copybacks: u64,
    /// Reads that went before an older one of their die because more others
    /// could join them in a multi-plane command.
    pub reads_packed: u64,
    /// Reads whose command went before data that was ready for the channel.
    pub reads_clumped: u64,
    /// What garbage collection did.
    pub collection: CollectionStats,
    /// Commands fetched under NVMe's arbitration.
    pub fetches: FetchStats,
    /// What the SLC cache did.
    pub slc: SlcStats,
    /// What merges of log blocks did.
    pub merges: MergeStats,
    /// It had no room for a write; `None` where it always had.
    pub too_full: Option<TooFull>,
    /// What static wear levelling moved.
    pub levelling: LevellingStats,
    /// How evenly blocks are worn.
    pub wear: WearStats,
    /// Map entries looked up in the map's cache, one for each map unit of a
    /// command; zero where the whole map is in DRAM.
    pub map_lookups: u64,
    /// Those found there, which waited for nothing: not those that were on their
    /// way, for a neighbour or for the same command.
    pub map_hits: u64,
    /// Pages of the map read from flash.
    pub map_reads: u64,
    /// Pages of the map programmed.
    pub map_programs: u64,
    /// Those of them that collection of the map's blocks moved.
    pub map_pages_moved: u64,
    /// Blocks of the map erased.
    pub map_erases: u64,
    /// Reads answered from the drive's DRAM.
    pub cache_read_hits: u64,
    /// Times that its power was cut.
    pub power_losses: u64,
    /// Sectors whose last write, acknowledged or not, went with it.
    pub power_loss_sectors: u64,
    /// Those of them of which an acknowledged write went.
    pub power_loss_acknowledged_sectors: u64,
    /// Map units on the flash looked up in an SSD's read cache.
    pub read_cache_lookups: u64,
    /// Those found there.
    pub read_cache_hits: u64,
    /// Map units that the drive read ahead of sequential readers.
    pub read_ahead_units: u64,
    /// Those of them that were then asked for.
    pub read_ahead_units_used: u64,
    /// What a disk's arm, platters and buffer did; `None` where there are none.
    pub arm: Option<ArmStats>,
}

impl DeviceStats {
    /// What the flash programmed for every sector of the host's data that
    /// reached it, as drives' own counters have it; `None` before the first.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.host_sectors_programmed > 0)
            .then(|| self.flash_sectors_programmed as f64 / self.host_sectors_programmed as f64)
    }
}

/// One channel of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Reads and writes of pages it carried.
    pub reads: u64,
    /// Page programs it carried.
    pub writes: u64,
    /// Time its bus was taken, in nanoseconds.
    pub bus_busy_ns: u64,
    /// Time at least one of its dies was busy, in nanoseconds.
    pub die_busy_ns: u64,
    /// Dies that waited for its bus times how long, in nanoseconds.
    pub queue_ns: u64,
    /// Most dies that waited at once.
    pub longest_queue: u32,
}

/// A part of a drive that executes commands of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DieStats {
    /// The channel it is on.
    pub channel: u32,
    /// Commands it executed.
    pub commands: u64,
    /// Time its array worked, in nanoseconds.
    pub busy_ns: u64,
    /// Operations that waited for it times how long, in nanoseconds: over the
    /// time of the run it is the mean length of its queue.
    pub queue_ns: u64,
    /// Most operations that waited at once.
    pub longest_queue: u32,
    /// The same as `busy_ns` for each of its planes.
    pub plane_busy_ns: Vec<u64>,
}

/// Erase counts over all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WearStats {
    /// The least worn block.
    pub min_erases: u32,
    /// The most worn block.
    pub max_erases: u32,
    /// Mean over all blocks.
    pub mean_erases: f64,
}

/// Commands fetched under NVMe's arbitration, by priority class: urgent (or all
/// of them under round robin), high, medium, low. All zero where a drive takes
/// commands as they come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchStats {
    /// How many.
    pub commands: [u64; 4],
    /// Time that they waited in their queues, in nanoseconds.
    pub wait_ns: [u64; 4],
}
