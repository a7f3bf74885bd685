//! What a request costs in the whole path: process, block layer, scheduler,
//! driver and a drive that only takes time. Then a long run, to see that
//! neither memory nor the cost of a request grows with the work.

use blklab_device::registry;
use blklab_sim::{Machine, SchedulerChoice, Setup, run};
use blklab_workload::fio;

/// Requests of a run that is timed.
const SHORT: u64 = 1_000_000;
/// Requests of the long run.
const LONG: u64 = 100_000_000;
const RUNS: usize = 5;

/// Runs a random read job; nanoseconds of CPU a request.
fn cost_ns(drive: &str, scheduler: &str, depth: u32, requests: u64) -> f64 {
    // Blocks of 1 KiB, so that one pass over the drive is long enough.
    let text = format!(
        "[t]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth={depth}\nrw=randread\nbs=1k\n\
         norandommap\nnumber_ios={requests}\n"
    );
    let job = fio::parse_str("bench", &text, &|_| None, &|_, file| Err(file.to_string()))
        .expect("the job is legal");
    let drive = registry::find(drive)
        .expect("a known drive")
        .expect("a legal drive");
    let machine = Machine::find("generic-8")
        .expect("a known machine")
        .expect("a legal machine");
    let scheduler = SchedulerChoice::named(scheduler).expect("a known scheduler");
    let start = cpu_ns();
    let results = run(&Setup {
        job: &job,
        machine: &machine,
        drive: &drive,
        scheduler: &scheduler,
        seed: 1,
        record: None,
    })
    .expect("the job can be simulated");
    let spent = cpu_ns() - start;
    assert_eq!(results.jobs[0].read.ios, requests);
    spent as f64 / requests as f64
}

/// Time that this process was on a CPU, in nanoseconds: other work on the
/// machine does not count.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = stat.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Resident memory in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() {
    println!("nanoseconds a request, whole path, random 1 KiB reads (median of {RUNS} runs)");
    for drive in ["null", "nvme"] {
        for depth in [32, 256] {
            for kind in blklab_elevator::all() {
                let mut runs: Vec<f64> = (0..RUNS)
                    .map(|_| cost_ns(drive, kind.name, depth, SHORT))
                    .collect();
                runs.sort_by(f64::total_cmp);
                println!(
                    "{drive:5} depth {depth:3}  {:12} {:7.0}",
                    kind.name,
                    runs[RUNS / 2]
                );
            }
        }
    }
    println!(
        "null, none, depth 32: {:.0} ns a request over the first {SHORT} requests, {} MiB resident",
        cost_ns("null", "none", 32, SHORT),
        resident_mib()
    );
    println!(
        "null, none, depth 32: {:.0} ns a request over {LONG} requests, {} MiB resident",
        cost_ns("null", "none", 32, LONG),
        resident_mib()
    );
}
