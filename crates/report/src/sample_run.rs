//! Made-up results for this crate's tests: runs as the simulator fills them, from a
//! random generator.

use crate::comparison::SchedulerRuns;

use blklab_stats::{
    ChannelStats, Counter, CpuStats, DEFAULT_PERCENTILES, DeviceStats, DirResults, DiskStats,
    HwQueueStats, JobResults, JobSetup, LatencyTarget, QueueStats, Results, SchedulerStats, Wait,
    WaitCounts, Waits, World,
};

const BLOCK_BYTES: u64 = 4096;
const RUNTIME_NS: u64 = 2_000_000_000;

/// The parameters of a made-up run.
#[derive(Clone, Copy)]
pub(crate) struct Recipe {
    pub scheduler: &'static str,
    pub seed: u64,
    /// Number of reads.
    pub reads: u64,
    pub writes: u64,
    /// Shortest time of a read in nanoseconds.
    pub base_ns: u64,
    /// The factor by which one of fifty I/Os takes longer.
    pub tail: u64,
}

/// A mixed job of one process.
pub(crate) fn mixed(recipe: Recipe) -> Results {
    let Recipe {
        scheduler,
        seed,
        reads,
        writes,
        base_ns,
        tail,
    } = recipe;
    let mut random = Random(seed);
    let read = direction(&mut random, reads, base_ns, tail);
    let write = direction(&mut random, writes, base_ns * 3, tail);
    let mut job = JobResults {
        name: "mixed".to_string(),
        members: 1,
        options: options(&[("rw", "randrw"), ("rwmixread", "90")]),
        read,
        write,
        runtime_ns: RUNTIME_NS,
        cpu: CpuStats {
            user_ns: 40_000_000,
            system_ns: 160_000_000,
            context_switches: 1234,
            ..CpuStats::default()
        },
        latency_target: LatencyTarget::none(16),
        percentiles: DEFAULT_PERCENTILES.to_vec(),
        setup: JobSetup {
            rw: "randrw".to_string(),
            block_bytes: [(BLOCK_BYTES, BLOCK_BYTES); 3],
            ioengine: "libaio".to_string(),
            iodepth: 16,
            is_idle_class: false,
        },
        ..JobResults::default()
    };
    for io in 0..reads + writes {
        job.depth.record((io as u32 + 1).min(16), 1);
        job.submit.record(1);
        job.complete.record(1 + (io % 6) as u32);
    }
    Results {
        world: World::Sim,
        scheduler: scheduler.to_string(),
        drive: "mx100".to_string(),
        machine: "desktop".to_string(),
        seed,
        job: "mixed.fio".to_string(),
        elapsed_ns: RUNTIME_NS,
        jobs: vec![job],
        disks: vec![disk(&mut random, scheduler, reads, writes)],
        global_options: options(&[("direct", "1"), ("iodepth", "16")]),
        ..Results::default()
    }
}

fn options(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = pairs.iter().map(|(n, v)| (n.to_string(), v.to_string()));
    owned.collect()
}

fn direction(random: &mut Random, ios: u64, base_ns: u64, tail: u64) -> DirResults {
    let mut dir = DirResults {
        ios,
        bytes: ios * BLOCK_BYTES,
        runtime_ns: if ios == 0 { 0 } else { RUNTIME_NS },
        ..DirResults::default()
    };
    for _ in 0..ios {
        let slat_ns = 900 + random.below(400);
        let factor = if random.below(50) == 0 { tail } else { 1 };
        let clat_ns = (base_ns + random.below(base_ns)) * factor;
        dir.slat_ns.record(slat_ns);
        dir.clat_ns.record(clat_ns);
        dir.lat_ns.record(slat_ns + clat_ns);
    }
    if ios > 0 {
        for half_second in 0..4 {
            let share = 0.95 + 0.03 * half_second as f64;
            dir.bw_samples.record(dir.bandwidth() * share);
            dir.iops_samples.record(dir.iops() * share);
        }
    }
    dir
}

fn disk(random: &mut Random, scheduler: &str, reads: u64, writes: u64) -> DiskStats {
    let counters: &[(&'static str, u64)] = match scheduler {
        "none" | "noop" => &[],
        _ => &[
            ("batches", 812),
            ("direction switches", 407),
            ("expired deadlines", 23),
        ],
    };
    let counters = counters.iter();
    let channels = (0..8).map(|_| ChannelStats {
        reads: reads / 8 + random.below(20),
        writes: writes / 8,
        bus_busy_ns: 700_000_000 + random.below(100_000_000),
        die_busy_ns: 1_100_000_000 + random.below(500_000_000),
        ..ChannelStats::default()
    });
    DiskStats {
        counted_ns: RUNTIME_NS,
        power_loss: None,
        cgroups: Vec::new(),
        server: None,
        cost_rate: None,
        name: "sda".to_string(),
        queue: QueueStats {
            ios: [reads, writes, 0, 0],
            merges: [reads / 50, writes / 10, 0, 0],
            sectors: [reads * 8, writes * 8, 0, 0],
            ticks_ns: [reads * 80_000, writes * 200_000, 0, 0],
            io_ticks_ns: RUNTIME_NS / 10 * 9,
            time_in_queue_ns: reads * 80_000 + writes * 200_000,
            hctx: vec![HwQueueStats {
                run: reads + writes,
                dispatched: [reads, writes, 10, 5, 0, 0, 0],
                dispatch_busy: 1,
            }],
            ..QueueStats::default()
        },
        scheduler: SchedulerStats {
            counters: counters
                .map(|&(name, value)| Counter { name, value })
                .collect(),
        },
        device: DeviceStats {
            channels: channels.collect(),
            reads_behind_writes: reads / 9,
            reads_behind_writes_ns: reads / 9 * 180_000,
            read_waits: waits(reads),
            flash_reads: reads,
            flash_programs: writes,
            flash_erases: writes / 256,
            host_sectors_written: writes * 8,
            host_sectors_programmed: writes * 8,
            flash_sectors_programmed: writes * 10,
            ..DeviceStats::default()
        },
    }
}

/// A third of all requests waited for a channel, a quarter for a die as well.
fn waits(requests: u64) -> WaitCounts {
    let mut counts = WaitCounts::default();
    for request in 0..requests {
        let mut waits = Waits::NONE;
        waits.note(Wait::Channel, request < requests / 3);
        waits.note(Wait::Die, request < requests / 4);
        counts.count(waits);
    }
    counts
}

/// Knuth's linear congruential generator, sufficient for made-up figures.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Three schedulers, of which `ac` reads faster and has a shorter tail.
pub(crate) fn three_schedulers(repeats: u64) -> Vec<SchedulerRuns> {
    let runs = |scheduler: &'static str, reads, tail| SchedulerRuns {
        name: scheduler.to_string(),
        runs: (1..=repeats)
            .map(|seed| {
                mixed(Recipe {
                    scheduler,
                    seed,
                    reads: reads + seed * 13 % 50,
                    writes: reads / 9 + seed * 7 % 11,
                    base_ns: 60_000,
                    tail,
                })
            })
            .collect(),
    };
    vec![
        runs("noop", 9000, 30),
        runs("mq-deadline", 9010, 28),
        runs("ac", 9400, 12),
    ]
}
