//! `[link]`, `[controller]` and `[nvme]`: the cable, the firmware, and how it
//! fetches commands from its queues.

use blklab_description::{KeyType, flag, keys, nanos, number, parsed, whole, word};
use strum::{Display, EnumMessage, VariantArray};

use super::{FlashSpec, MAX_US};
use crate::Identity;
use crate::spec::byte_ps;

keys! {
    /// The cable between host and drive.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct LinkSpec(table) {
        /// Its rate.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(1.0..=1e6).map(byte_ps);
        /// Data flows both ways at once.
        pub full_duplex: bool = flag().or(false);
        /// From the host's doorbell to the command in the controller.
        pub submit_ns: u64 as "submit_us" = number(0.0..=MAX_US).map(nanos);
        /// From the last byte to the host's notice of the end.
        // In no time a job whose commands follow each other would never see the
        // end of its run.
        pub complete_ns: u64 as "complete_us" =
            number(0.0..=MAX_US).map(|us| nanos(us).max((submit_ns == 0) as u64));
    }
}

/// Where a description is silent: a discard of 4 KiB took 63 to 71 us on an NVMe
/// drive, seen from fio (its issue 764), of which the host has 10 to 20.
const DISCARD_US: f64 = 50.0;
/// Likewise, assumed: 16 entries of 4 bytes come with a cache line that DRAM
/// delivers in about 100 ns, and a core of 1 GHz has some 15 instructions for
/// each. Drives differ by more than ten times in either direction.
const DISCARD_UNIT_NS: f64 = 20.0;

/// In which order a drive serves what waits for its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Scheduling {
    /// Strictly as it came: nothing starts before everything older has started.
    Fcfs,
    /// As it came on each die; dies do not wait for each other.
    OutOfOrder,
    /// Out of order, and reads before programs before erases on each die.
    ReadPriority,
    /// Out of order, and reads by their physical addresses (physically addressed
    /// queueing).
    Paq,
}

keys! {
    /// The firmware's own time and its order of work.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ControllerSpec(table, flash: &FlashSpec) {
        /// Firmware's latency of a read or flush.
        pub read_ns: u64 as "read_us" = number(0.0..=MAX_US).map(nanos);
        /// Firmware's latency of a write.
        pub write_ns: u64 as "write_us" = number(0.0..=MAX_US).map(nanos);
        /// Least time between two commands; zero for no limit.
        pub interval_ns: u64 as "interval_us" = number(0.0..=MAX_US).or(0.0).map(nanos);
        /// More of that for a write: finding it a place, which one core does.
        pub write_interval_ns: u64 as "write_interval_us" =
            number(0.0..=MAX_US).or(0.0).map(nanos);
        /// More of that for every further page of the flash that a read is spread
        /// over: firmware that is fastest at commands of one page takes others apart.
        pub page_interval_ns: u64 as "page_interval_us" =
            number(0.0..=MAX_US).or(0.0).map(nanos);
        /// Firmware's latency of a discard or write-zeroes.
        pub discard_ns: u64 as "discard_us" = number(0.0..=MAX_US).or(DISCARD_US).map(nanos);
        /// Time of each of a discard's map units: an entry of the map in DRAM and the
        /// count of valid data where it pointed. The firmware takes no other command
        /// meanwhile.
        pub discard_unit_ps: u64 as "discard_unit_ns" = number(0.0..=1e6)
            .or(DISCARD_UNIT_NS)
            .map(|ns| (ns * 1e3).round() as u64);
        /// In which order what waits for the flash is served.
        pub scheduling: Scheduling = word();
        /// Reads that a die carries out in a row before a program or an erase has its
        /// turn, which waits for the die or was stopped for them.
        pub reads_in_a_row: u32 = whole(1..=1 << 20).or_derived(u32::MAX, "no limit").needs(
            scheduling == Scheduling::ReadPriority || flash.suspends(),
            "controller.scheduling = \"read_priority\", flash.program_suspend_us or \
             flash.erase_suspend_us",
        );
    }
}

/// NVMe's arbitration mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Arbitration {
    /// All queues in turn.
    RoundRobin,
    /// Urgent queues first, others by the weights of their classes.
    Weighted,
}

keys! {
    /// How the controller fetches commands from its queues.
    #[derive(Clone, Debug, PartialEq)]
    pub struct NvmeSpec(table, identity: &Identity) {
        /// Whose turn it is.
        pub arbitration: Arbitration = word();
        /// The class of every queue; queues beyond the last start from the first
        /// again.
        ///
        /// Here from 0 (urgent) to 3 (low), and empty where all have their turn.
        pub queue_priorities: Vec<u8> = priorities(arbitration);
        /// Commands a round of the class high.
        let high_weight: u32 = whole(1..=256).or(1).needs(
            queue_priorities.contains(&1),
            "nvme.arbitration = \"weighted\" and an h in nvme.queue_priorities",
        );
        /// Commands a round of the class medium.
        let medium_weight: u32 = whole(1..=256).or(1).needs(
            queue_priorities.contains(&2),
            "nvme.arbitration = \"weighted\" and an m in nvme.queue_priorities",
        );
        /// Commands a round of the class low.
        let low_weight: u32 = whole(1..=256).or(1).needs(
            queue_priorities.contains(&3),
            "nvme.arbitration = \"weighted\" and an l in nvme.queue_priorities",
        );
        /// Commands a round of the classes high, medium and low.
        pub weights: [u32; 3] => [high_weight, medium_weight, low_weight];
        /// Most commands from a queue in a row.
        pub burst: u32 = whole(1..=64)
            .or(64)
            .needs(identity.max_queues > 1, "host.queues above 1");
        /// Most commands being processed: fetched, not ended, and no writes that wait
        /// for room in the cache.
        pub fetch_limit: u32 = whole(1..=1 << 20)
            .or_derived(
                identity.queue_depth as u64 * identity.max_queues as u64,
                "host.queue_depth of every queue",
            )
            .map(|commands: u64| commands.min(1 << 30) as u32);
    }
}

fn priorities(arbitration: Arbitration) -> KeyType<'static, Vec<u8>> {
    const LEGAL: &str = "a letter a queue, such as \"uhml\": u urgent, h high, m medium, l low";
    let is_weighted = arbitration == Arbitration::Weighted;
    let entry = parsed(LEGAL, classes).needs(is_weighted, "nvme.arbitration = \"weighted\"");
    match arbitration {
        Arbitration::RoundRobin => entry.or_derived(Vec::new(), ""),
        Arbitration::Weighted => entry,
    }
}

/// The classes that letters stand for, from 0 (urgent) to 3 (low).
fn classes(letters: &str) -> Option<Vec<u8>> {
    let class = |letter: char| "uhml".find(letter).map(|class| class as u8);
    let classes: Option<Vec<u8>> = letters.chars().map(class).collect();
    classes.filter(|classes| !classes.is_empty())
}
