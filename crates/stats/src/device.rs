//! Counters of drives' models.

use alloc::vec::Vec;

use serde::Serialize;

use crate::fact::{Fact, Place, Unit, Value, counters, mean, ratio};
use crate::hdd::ArmStats;
use crate::results::Results;
use crate::ssd::{CollectionStats, MergeStats, SlcStats, TooFull, WearStats};
use crate::waits::{self, WaitCounts};

counters! {
    /// What happened inside a drive.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct DeviceStats {
        /// Events of its simulation, whose number determines the CPU time of a run.
        #[serde(skip)]
        pub events: u64,
        /// One entry for each channel.
        pub channels: Vec<ChannelStats>,
        /// One entry for each part that executes commands of its own, mostly a die.
        pub dies: Vec<DieStats>,
        /// Counters of garbage collection.
        pub collection: CollectionStats,
        /// The writes for which it had no room; `None` if it always had.
        pub too_full: Option<TooFull>,
        /// Commands fetched under NVMe's arbitration.
        pub fetches: FetchStats,
        /// Counters of the SLC cache.
        pub slc: SlcStats,
        /// Counters of merges of log blocks.
        pub merges: MergeStats,
        /// The wear of its blocks.
        pub wear: WearStats,
        /// Counters of a disk's arm, platters and buffer; `None` for other drives.
        pub arm: Option<ArmStats>,
        /// Counters of injected faults; `None` if none were requested.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub faults: Option<FaultStats>,
        /// Page reads of the host that a program or an erase delayed: it ran on their
        /// die between the read's arrival and its start.
        pub reads_behind_writes: u64 => sum Drive Count "pages whose read waited behind writes";
            per_read Drive Ratio "  for each read of the host":
                "Page reads that a program or an erase delayed, for each read of the host.",
        /// Time by which programs and erases delayed page reads of the host, summed, in
        /// nanoseconds.
        pub reads_behind_writes_ns: u64 => sum Drive Nanoseconds "  time they lost, in all";
            per(reads_behind_writes) Drive Nanoseconds "  time they lost, each":
                "Delay of a page read that waited for a program or an erase, mean.",
        /// What the host's reads waited for.
        #[serde(rename = "reads_waited")]
        pub read_waits: WaitCounts,
        /// What the host's writes waited for.
        #[serde(rename = "writes_waited")]
        pub write_waits: WaitCounts,
        /// Pages read from flash.
        pub flash_reads: u64 => sum Flash Count "pages read",
        /// Pages programmed.
        pub flash_programs: u64 => sum Flash Count "pages programmed",
        /// Blocks erased.
        pub flash_erases: u64 => sum Flash Count "blocks erased",
        /// Sectors the host wrote.
        pub host_sectors_written: u64,
        /// Sectors of the host's data that were programmed: those that it wrote, without
        /// those that are still in the cache or were overwritten there.
        pub host_sectors_programmed: u64,
        /// Sectors that the host overwrote in the write cache before they were
        /// programmed; the old data never reaches the flash.
        pub host_sectors_absorbed: u64 => sum Flash Count "sectors overwritten in the cache",
        /// Sectors programmed, of the host's data and of moved data.
        pub flash_sectors_programmed: u64
            => per(host_sectors_programmed) Flash Ratio "write amplification":
                "Sectors programmed for each sector of the host's data that was programmed.",
        /// Commands that several planes executed as one.
        pub multi_plane_commands: u64 => sum Flash Count "multi-plane commands",
        /// Programs and erases that were suspended for a read.
        pub suspensions: u64 => sum Flash Count "programs and erases suspended",
        /// Reads that a die started while it still transferred the data of the read before.
        pub cache_reads: u64 => sum Flash Count "cache reads",
        /// Programs whose data was transferred to a die during the program before.
        pub cache_programs: u64,
        /// Pages that garbage collection moved within a die, without the channel.
        pub copybacks: u64 => sum Flash Count "pages moved by copyback",
        /// Reads started before an older read of their die, because more others could
        /// join them in a multi-plane command.
        pub reads_packed: u64 => sum Flash Count "reads packed before older ones",
        /// Read commands sent on a channel before data that was ready for it.
        pub reads_clumped: u64 => sum Flash Count "reads clumped before ready data",
        /// Reads answered from the drive's DRAM.
        pub cache_read_hits: u64 => sum Drive Count "reads answered from the drive's cache",
        /// Sectors that the host read and that nobody wrote, or that were discarded: the
        /// drive answers with zeroes and reads no flash.
        pub sectors_read_unwritten: u64 => sum Drive Count "sectors read that hold nothing",
        /// Commands that came while the drive saved power, and woke it.
        pub wakes: u64 => sum Drive Count "times it was woken from a power state",
        /// Time until it was back at full power, summed, in nanoseconds.
        pub wakes_ns: u64 => sum Drive Nanoseconds "  time that took, in all";
            per(wakes) Drive Nanoseconds "  time that took, each":
                "Exit latency of a power state in which a command found the drive, mean.",
        /// The number of losses of power.
        pub power_losses: u64,
        /// Sectors whose last write, acknowledged or not, was lost with the power.
        pub power_loss_sectors: u64,
        /// Those of them whose lost write had been acknowledged.
        pub power_loss_acknowledged_sectors: u64,
        /// Map units on the flash looked up in an SSD's read cache.
        pub read_cache_lookups: u64,
        /// Those of them that were found.
        pub read_cache_hits: u64
            => per(read_cache_lookups) Drive Share "map units found in the read cache":
                "Share of the map units looked up in the SSD's read cache that were there.",
        /// Map units that the drive read ahead of sequential readers.
        pub read_ahead_units: u64 => sum Drive Count "map units read ahead",
        /// Those of them that the host then read.
        pub read_ahead_units_used: u64
            => per(read_ahead_units) Drive Share "map units read ahead and then used":
                "Share of the map units read ahead that the host then read.",
        /// Map entries looked up in the map's cache, one for each map unit of a command;
        /// zero where the whole map is in DRAM.
        pub map_lookups: u64,
        /// Those of them that were found, without those whose page was still being read.
        pub map_hits: u64 => per(map_lookups) Flash Share "map entries found in the map's cache":
            "Share of the map entries looked up that were in the map's cache; one whose page \
             was still being read does not count.",
        /// Pages of the map read from flash.
        pub map_reads: u64 => sum Flash Count "pages of the map read",
        /// Pages of the map programmed.
        pub map_programs: u64 => sum Flash Count "pages of the map programmed",
        /// Pages of the map that garbage collection moved.
        pub map_pages_moved: u64 => sum Flash Count "pages of the map moved by collection",
        /// Blocks of the map erased.
        pub map_erases: u64,
    }
    "" of |disk| Some(&disk.device)
}

impl DeviceStats {
    /// Sectors programmed for each sector of the host's data that reached the flash, as
    /// drives' own counters have it; `None` before the first.
    pub fn write_amplification(&self) -> Option<f64> {
        let programmed = self.flash_sectors_programmed as f64;
        ratio(programmed, self.host_sectors_programmed as f64)
    }
}

counters! {
    /// Counters of a drive's injected faults.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FaultStats {
        /// Commands that a fault delayed.
        pub stalls: u64 => sum Drive Count "commands that stalled",
        /// Reads that failed because a sector was unreadable.
        pub reads_failed: u64 => sum Drive Count "reads of unreadable sectors",
        /// Sectors that became unreadable.
        pub latent_errors: u64 => sum Drive Count "  sectors that became unreadable",
        /// Bits that flipped on the medium without an error.
        pub bits_rotted: u64 => sum Drive Count "bits that turned on the medium",
        /// Reads that returned the data from before the last write.
        pub stale_reads: u64 => sum Drive Count "reads given stale data",
        /// Reads that returned another address's data.
        pub misdirected_reads: u64 => sum Drive Count "reads given another place's data",
        /// Writes that were acknowledged and left everything as it was.
        pub lost_writes: u64 => sum Drive Count "writes that were lost",
        /// Writes of which only the beginning landed.
        pub torn_writes: u64 => sum Drive Count "writes that were torn",
        /// Writes that landed on another address.
        pub misdirected_writes: u64 => sum Drive Count "writes that landed elsewhere",
    }
    "fault_" of |disk| disk.device.faults.as_ref()
}

/// One channel of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChannelStats {
    /// Page reads that it carried.
    pub reads: u64,
    /// Page programs that it carried.
    pub writes: u64,
    /// Time for which its bus was in use, in nanoseconds.
    pub bus_busy_ns: u64,
    /// Time for which at least one of its dies was busy, in nanoseconds.
    pub die_busy_ns: u64,
    /// The time that dies waited for its bus, summed, in nanoseconds.
    pub queue_ns: u64,
    /// The most dies that waited at once.
    pub longest_queue: u32,
}

/// A part of a drive that executes commands of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DieStats {
    /// The channel it is on.
    pub channel: u32,
    /// Commands that it executed.
    pub commands: u64,
    /// Time for which its array worked, in nanoseconds.
    pub busy_ns: u64,
    /// The time that operations waited for it, summed, in nanoseconds; divided by the run's
    /// time it is the mean length of its queue.
    pub queue_ns: u64,
    /// The most operations that waited at once.
    pub longest_queue: u32,
    /// The time that each of its planes worked, in nanoseconds.
    pub plane_busy_ns: Vec<u64>,
}

/// Commands fetched under NVMe's arbitration, by priority class: urgent (or all of them
/// under round robin), high, medium, low. All zero for a drive without arbitration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FetchStats {
    /// The number of commands.
    pub commands: [u64; 4],
    /// Time for which they waited in their submission queues, in nanoseconds.
    pub wait_ns: [u64; 4],
}

/// The utilization of channels, dies and planes, as shares of the counted time; those of
/// several drives one after the other.
impl Results {
    /// Returns the share of the time in which each channel transferred data or one of its dies worked.
    pub fn channel_shares(&self) -> Vec<f64> {
        self.of_channels(|channel| channel.die_busy_ns.max(channel.bus_busy_ns))
    }

    /// Returns the share of the time in which each die's array worked.
    pub fn die_shares(&self) -> Vec<f64> {
        self.of_dies(|die| die.busy_ns)
    }

    /// Returns the share of the time in which each plane worked.
    pub fn plane_shares(&self) -> Vec<f64> {
        let dies = self.disks.iter().flat_map(|disk| &disk.device.dies);
        let planes = dies.flat_map(|die| &die.plane_busy_ns);
        planes.map(|ns| *ns as f64 / self.counted_ns()).collect()
    }

    fn of_channels(&self, ns: impl Fn(&ChannelStats) -> u64) -> Vec<f64> {
        let channels = self.disks.iter().flat_map(|disk| &disk.device.channels);
        channels.map(|c| ns(c) as f64 / self.counted_ns()).collect()
    }

    fn of_dies(&self, ns: impl Fn(&DieStats) -> u64) -> Vec<f64> {
        let dies = self.disks.iter().flat_map(|disk| &disk.device.dies);
        dies.map(|die| ns(die) as f64 / self.counted_ns()).collect()
    }
}

/// The coefficient of variation: the standard deviation as a share of the mean.
fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
    ratio(libm::sqrt(squares / values.len() as f64), mean)
}

/// Returns the facts on injected faults that commands met: not how many sectors became
/// unreadable, as nothing need have read them.
pub fn fault_facts() -> impl Iterator<Item = Fact> {
    let facts = FaultStats::facts().into_iter();
    facts.filter(|fact| fact.key != "fault_latent_errors")
}

/// All facts of drives except those on a loss of power.
pub(crate) fn facts() -> Vec<Fact> {
    let mut facts = parallelism().to_vec();
    facts.extend(queues());
    facts.extend(DeviceStats::facts());
    facts.extend(waits::facts());
    facts.push(Fact {
        place: Place::Drive,
        key: "fetch_wait_ns_per_command",
        label: "time in submission queues, each command",
        unit: Unit::Nanoseconds,
        meaning: "Time for which a command waited in its submission queue under NVMe's arbitration, mean.",
        value: Value::Quotient(
            |disk| Some(disk.device.fetches.wait_ns.iter().sum()),
            |disk| Some(disk.device.fetches.commands.iter().sum()),
        ),
    });
    facts.extend(ArmStats::facts());
    facts.extend(FaultStats::facts());
    facts.extend(CollectionStats::facts());
    facts.extend(WearStats::facts());
    facts.extend(SlcStats::facts());
    facts.extend(MergeStats::facts());
    facts
}

fn parallelism() -> [Fact; 7] {
    let fact = |key, unit, label, meaning, of| Fact {
        place: Place::Drive,
        key,
        label,
        unit,
        meaning,
        value: Value::Run(of),
    };
    [
        fact(
            "channels_busy_share",
            Unit::Share,
            "channels busy, mean",
            "Share of the time in which a channel transferred data or one of its dies worked.",
            |run| mean(&run.channel_shares()),
        ),
        fact(
            "buses_busy_share",
            Unit::Share,
            "  their buses alone",
            "Share of the time in which a channel's bus transferred data or commands.",
            |run| mean(&run.of_channels(|channel| channel.bus_busy_ns)),
        ),
        fact(
            "busiest_channel_ratio",
            Unit::Ratio,
            "busiest channel over the mean",
            "Busy time of the busiest channel, divided by the mean of all channels.",
            |run| {
                let shares = run.channel_shares();
                let busiest = shares.iter().copied().fold(0.0, f64::max);
                ratio(busiest, mean(&shares)?)
            },
        ),
        fact(
            "channels_variation",
            Unit::Share,
            "channels' spread (stddev/mean)",
            "Standard deviation of the channels' busy times, divided by their mean.",
            |run| variation(&run.channel_shares()),
        ),
        fact(
            "dies_busy_share",
            Unit::Share,
            "dies busy, mean",
            "Share of the time in which a die's array worked.",
            |run| mean(&run.die_shares()),
        ),
        fact(
            "dies_variation",
            Unit::Share,
            "dies' spread (stddev/mean)",
            "Standard deviation of the dies' busy times, divided by their mean.",
            |run| variation(&run.die_shares()),
        ),
        fact(
            "planes_busy_share",
            Unit::Share,
            "planes busy, mean",
            "Share of the time in which a plane worked.",
            |run| mean(&run.plane_shares()),
        ),
    ]
}

fn queues() -> [Fact; 4] {
    let fact = |key, unit, label, meaning, value| Fact {
        place: Place::Drive,
        key,
        label,
        unit,
        meaning,
        value,
    };
    [
        fact(
            "die_queue",
            Unit::Ratio,
            "queue of a die, mean",
            "Operations that waited for a die, mean over dies and time.",
            Value::Run(|run| mean(&run.of_dies(|die| die.queue_ns))),
        ),
        fact(
            "die_queue_longest",
            Unit::Count,
            "  longest",
            "Most operations that waited for one die at once.",
            Value::Max(|disk| {
                let dies = disk.device.dies.iter();
                dies.map(|die| u64::from(die.longest_queue)).max()
            }),
        ),
        fact(
            "channel_queue",
            Unit::Ratio,
            "dies that wait for a channel, mean",
            "Dies that waited for their channel's bus, mean over channels and time.",
            Value::Run(|run| mean(&run.of_channels(|channel| channel.queue_ns))),
        ),
        fact(
            "channel_queue_longest",
            Unit::Count,
            "  most at once",
            "Most dies that waited for one channel's bus at once.",
            Value::Max(|disk| {
                let channels = disk.device.channels.iter();
                channels
                    .map(|channel| u64::from(channel.longest_queue))
                    .max()
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_amplification_is_of_what_reached_the_flash() {
        let mut stats = DeviceStats::default();
        assert_eq!(stats.write_amplification(), None);
        stats.host_sectors_written = 1_000;
        stats.host_sectors_programmed = 800;
        stats.flash_sectors_programmed = 1_200;
        assert_eq!(stats.write_amplification(), Some(1.5));
    }
}
