//! `[link]`, `[controller]` and `[nvme]`: the link to the host, the firmware, and how
//! it fetches commands from submission queues.

use alloc::vec::Vec;

use blklab_description::{
    KeyType, array, flag, is_whole, keys, nanos, number, parsed, whole, word,
};
use strum::{Display, EnumMessage, VariantArray};

use super::{FlashSpec, MAX_US, Scheduling};
use crate::Identity;
use crate::spec::byte_ps;

keys! {
    /// The link between host and drive.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct LinkSpec(table) {
        /// Its bandwidth.
        ///
        /// Here the time of a byte, in picoseconds.
        pub byte_ps: u64 as "bandwidth_mb_s" = number(1.0..=1e6).map(byte_ps);
        /// Data flows both ways at once.
        pub full_duplex: bool = flag().or(false);
        /// From the host's doorbell to the command in the controller.
        pub submit_ns: u64 as "submit_us" = number(0.0..=MAX_US).map(nanos);
        /// From the last byte to the completion at the host.
        // Commands that take no time would let a job submit without end at one moment.
        pub complete_ns: u64 as "complete_us" =
            number(0.0..=MAX_US).map(|us| nanos(us).max((submit_ns == 0) as u64));
    }
}

/// Default, measured: a discard of 4 KiB took 63 to 71 us on an NVMe drive in fio (its
/// issue 764), 10 to 20 us of which are the host's.
const DISCARD_US: f64 = 50.0;
/// Default, assumed: DRAM delivers a cache line of 16 entries of 4 bytes in about 100 ns,
/// and a core of 1 GHz executes some 15 instructions for each. Drives differ by more
/// than a factor of ten in either direction.
const DISCARD_UNIT_NS: f64 = 20.0;

keys! {
    /// The firmware's latencies and scheduling.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ControllerSpec(table, flash: &FlashSpec) {
        /// Firmware's latency of a read or flush.
        pub read_ns: u64 as "read_us" = number(0.0..=MAX_US).map(nanos);
        /// Firmware's latency of a write.
        pub write_ns: u64 as "write_us" = number(0.0..=MAX_US).map(nanos);
        /// Least time between two commands; zero for no limit.
        pub interval_ns: u64 as "interval_us" = number(0.0..=MAX_US).or(0.0).map(nanos);
        /// Additional interval after a write, for its allocation by one core.
        pub write_interval_ns: u64 as "write_interval_us" =
            number(0.0..=MAX_US).or(0.0).map(nanos);
        /// Up to four pairs of a number of writes and of microseconds: whenever this number of
        /// writes was fetched, the firmware fetches no command for this time, in which it does
        /// work of its own such as the records of its map.
        pub write_pauses: WritePauses = write_pauses();
        /// Additional interval for each further flash page of a read, which the firmware
        /// splits.
        pub page_interval_ns: u64 as "page_interval_us" =
            number(0.0..=MAX_US).or(0.0).map(nanos);
        /// Firmware's latency of a discard or write-zeroes.
        pub discard_ns: u64 as "discard_us" = number(0.0..=MAX_US).or(DISCARD_US).map(nanos);
        /// Time of each map unit of a discard, for its map entry and the valid count of its
        /// block. The firmware fetches no other command meanwhile.
        pub discard_unit_ps: u64 as "discard_unit_ns" = number(0.0..=1e6)
            .or(DISCARD_UNIT_NS)
            .map(|ns| libm::round(ns * 1e3) as u64);
        /// In which order transactions that wait for the flash are served.
        pub scheduling: Scheduling = word();
        /// Most reads that a die executes in a row while a program or an erase waits for it
        /// or is suspended.
        pub reads_in_a_row: u32 = whole(1..=1 << 20).or_derived(u32::MAX, "no limit").needs(
            scheduling == Scheduling::ReadPriority || flash.suspends(),
            "controller.scheduling = \"read_priority\", flash.program_suspend_us or \
             flash.erase_suspend_us",
        );
    }
}

/// A time for which the firmware fetches no command, after each run of this many writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePause {
    /// How many writes.
    pub writes: u64,
    /// How long.
    pub pause_ns: u64,
}

/// The pauses of a firmware, from the first place on.
pub type WritePauses = [Option<WritePause>; 4];

fn write_pauses() -> KeyType<'static, WritePauses> {
    const LEGAL: &str = "an array of one to four [writes, microseconds], with whole writes from 1 \
                         on and times up to 10000000";
    let pause = array(number(0.001..=1e12), LEGAL).such_that(
        |pair| pair.len() == 2 && pair[0] >= 1.0 && is_whole(pair[0]) && pair[1] <= MAX_US,
        LEGAL,
    );
    array(pause, LEGAL)
        .such_that(|pairs| (1..=4).contains(&pairs.len()), LEGAL)
        .map(|pairs| {
            let mut pauses: WritePauses = [None; 4];
            for (pause, pair) in pauses.iter_mut().zip(pairs) {
                *pause = Some(WritePause {
                    writes: pair[0] as u64,
                    pause_ns: nanos(pair[1]),
                });
            }
            pauses
        })
        .or_derived([None; 4], "")
}

/// NVMe's arbitration mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Arbitration {
    /// All queues by turns.
    RoundRobin,
    /// Urgent queues first, others by the weights of their classes.
    Weighted,
}

keys! {
    /// How the controller fetches commands from its queues.
    #[derive(Clone, Debug, PartialEq)]
    pub struct NvmeSpec(table, identity: &Identity) {
        /// From which queue the next command is fetched.
        pub arbitration: Arbitration = word();
        /// The priority class of every queue; for further queues the list repeats.
        ///
        /// Here from 0 (urgent) to 3 (low), and empty with round robin.
        pub queue_priorities: Vec<u8> = priorities(arbitration);
        /// Commands a round from the class high.
        let high_weight: u32 = whole(1..=256).or(1).needs(
            queue_priorities.contains(&1),
            "nvme.arbitration = \"weighted\" and an h in nvme.queue_priorities",
        );
        /// Commands a round from the class medium.
        let medium_weight: u32 = whole(1..=256).or(1).needs(
            queue_priorities.contains(&2),
            "nvme.arbitration = \"weighted\" and an m in nvme.queue_priorities",
        );
        /// Commands a round from the class low.
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
        /// Most commands being processed: fetched and not completed, without writes that
        /// wait for room in the cache.
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
