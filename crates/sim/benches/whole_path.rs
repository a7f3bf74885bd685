//! What a request costs in the whole path: process, block layer, scheduler,
//! driver and drive. First the drive of MQSim's jobs, then every scheduler
//! before a drive that only takes time, then runs of ten times the length each,
//! to see what the cost of a request and memory do as the work grows. How both
//! grow with the drive's size is in the bench `speed` of `blklab-device`, what a
//! second core brings in `threads` of `blklab-experiment`. Most of the time goes
//! to the longest run of writes.
//!
//! `cargo bench --bench whole_path -- PART` runs only what has PART in its name.

use blklab_device::{DriveSpec, registry};
use blklab_elevator::SchedulerChoice;
use blklab_sim::{Machine, Setup, Workload, run};
use blklab_workload::fio::{self, JobFile};

/// Requests of a run that is timed.
const SHORT: u64 = 1_000_000;
/// Requests of a scheduler's run: there are many of them.
const OF_SCHEDULER: u64 = 200_000;
/// Requests of the longest runs: writes fill memory with the map, and after two
/// thirds of them the drive.
const LONGEST: u64 = 100_000_000;
/// Requests of the longest run of a drive that collects from the start.
const LONGEST_FULL: u64 = 10_000_000;
const RUNS: usize = 5;

/// A job to be timed.
#[derive(Clone, Copy)]
struct TimedJob {
    drive: &'static str,
    rw: &'static str,
    block: &'static str,
    scheduler: &'static str,
    depth: u32,
    requests: u64,
    way: Way,
}

/// The way that I/O takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the drive.
    Direct,
    /// To pages that are cached.
    Cached,
    /// To pages that have to be read first.
    Missing,
}

impl TimedJob {
    const READS: TimedJob = TimedJob {
        drive: "null",
        rw: "randread",
        // Small, so that one pass over the drive is long enough.
        block: "1k",
        scheduler: "none",
        depth: 32,
        requests: SHORT,
        way: Way::Direct,
    };

    fn job(&self) -> JobFile {
        let TimedJob {
            rw, block, depth, ..
        } = self;
        let way = match self.way {
            Way::Direct => "filename=/dev/x\ndirect=1",
            // The last close of a device drops its pages, which is not part of a read.
            Way::Cached => "filename_format=x\npre_read=1\nsize=64m\nio_size=1t",
            Way::Missing => "filename_format=x\nsize=238g",
        };
        let text = format!(
            "[t]\n{way}\nioengine=libaio\niodepth={depth}\nrw={rw}\n\
             bs={block}\nnorandommap\nnumber_ios={}\n",
            self.requests
        );
        fio::parse_str("bench", &text, &|_| None, &|_, file| Err(file.to_string()))
            .expect("the job is legal")
    }

    fn name(&self) -> String {
        let TimedJob {
            drive,
            rw,
            scheduler,
            depth,
            ..
        } = self;
        let way = match self.way {
            Way::Direct => scheduler,
            Way::Cached => "cached",
            Way::Missing => "missing",
        };
        format!("{drive:11} {rw:9} depth {depth:3} {way:12}")
    }
}

/// What a run cost.
struct Cost {
    ns_each: f64,
    /// Events inside the drive, of each request.
    events_each: f64,
}

/// Runs a job, in CPU time.
fn cost(work: &TimedJob) -> Cost {
    let (job, drive, machine) = (work.job(), drive(work.drive), machine());
    let scheduler = SchedulerChoice::named(work.scheduler).expect("a known scheduler");
    let start = cpu_ns();
    let setup = Setup::new(Workload::Job(&job), &machine, &drive, &scheduler);
    let results = run(&setup).expect("the job can be simulated");
    let spent = cpu_ns() - start;
    let done = results.jobs[0].read.ios + results.jobs[0].write.ios;
    assert_eq!(done, work.requests);
    Cost {
        ns_each: spent as f64 / done as f64,
        events_each: results.disks[0].device.events as f64 / done as f64,
    }
}

fn drive(name: &str) -> DriveSpec {
    registry::find(name)
        .expect("a known drive")
        .expect("a legal drive")
}

fn machine() -> Machine {
    Machine::find("generic-8")
        .expect("a known machine")
        .expect("a legal machine")
}

/// The run of middle cost.
fn median(work: &TimedJob) -> Cost {
    let mut runs: Vec<Cost> = (0..RUNS).map(|_| cost(work)).collect();
    runs.sort_by(|a, b| a.ns_each.total_cmp(&b.ns_each));
    runs.swap_remove(RUNS / 2)
}

fn show(work: &TimedJob) {
    if !is_wanted(&work.name()) {
        return;
    }
    let Cost {
        ns_each,
        events_each,
    } = median(work);
    println!(
        "{} {ns_each:6.0} ns {:6.2} M/s {events_each:5.1} events in the drive {:5} MiB at most",
        work.name(),
        1e3 / ns_each,
        most_resident_mib()
    );
}

fn is_wanted(name: &str) -> bool {
    let mut parts = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    parts.next().is_none_or(|part| name.contains(&part))
}

/// Time that this process was on a CPU, in nanoseconds: other work on the
/// machine does not count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = stat.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// The most memory that was resident so far, in MiB.
fn most_resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() {
    println!(
        "CPU time of a request in the whole path, median of {RUNS} runs of {SHORT} requests, \
         of {OF_SCHEDULER} where schedulers are compared"
    );
    for rw in ["randread", "randwrite"] {
        show(&TimedJob {
            drive: "mqsim-ideal",
            rw,
            block: "4k",
            ..TimedJob::READS
        });
    }
    for rw in ["randread", "randwrite"] {
        show(&TimedJob {
            rw,
            block: "4k",
            depth: 1,
            way: Way::Cached,
            ..TimedJob::READS
        });
    }
    // What a miss costs is the difference of these.
    for way in [Way::Missing, Way::Direct] {
        show(&TimedJob {
            block: "4k",
            depth: 1,
            way,
            requests: OF_SCHEDULER,
            ..TimedJob::READS
        });
    }
    for drive in ["null", "nvme"] {
        for depth in [32, 256] {
            for kind in blklab_elevator::all() {
                show(&TimedJob {
                    drive,
                    depth,
                    scheduler: kind.name,
                    requests: OF_SCHEDULER,
                    ..TimedJob::READS
                });
            }
        }
    }
    if is_wanted("long") {
        grow("mqsim-ideal", "randread", LONGEST);
        grow("mqsim-ideal", "randwrite", LONGEST);
        grow("enterprise-tlc", "randwrite", LONGEST_FULL);
    }
}

/// Longer and longer runs; the cost beside that of the shortest, of a request
/// and of an event in the drive, which has more to do once it is full. A drive
/// that begins in its steady state has as much to do from the start.
fn grow(drive: &'static str, rw: &'static str, longest: u64) {
    let mut shortest = None;
    let mut requests = 100_000;
    while requests <= longest {
        let work = TimedJob {
            drive,
            rw,
            block: "4k",
            requests,
            ..TimedJob::READS
        };
        let cost = match requests <= SHORT {
            true => median(&work),
            false => cost(&work),
        };
        let of_event = |cost: &Cost| cost.ns_each / cost.events_each;
        let (ns_each, events_each) = (cost.ns_each, cost.events_each);
        let ns_event = of_event(&cost);
        let least = shortest.get_or_insert(cost);
        println!(
            "{} {ns_each:6.0} ns over {requests:9} requests, {:.2} of the shortest run's; \
             {events_each:5.1} events in the drive, each {:.2} of the shortest run's; {:5} MiB at most",
            work.name(),
            ns_each / least.ns_each,
            ns_event / of_event(least),
            most_resident_mib()
        );
        requests *= 10;
    }
}
