//! Busy processes that share a CPU, against a real kernel (`tests/data/cpu-sharing`).

use blklab_device::registry;
use blklab_elevator::SchedulerChoice;
use blklab_sim::{CpuScheduler, Machine, Setup, Workload, run};
use blklab_stats::{JobResults, Results};

use crate::job_file;

const MEASURED: &str = include_str!("../../../../tests/data/cpu-sharing/guest.csv");
const MACHINE: &str = include_str!("../../../../tests/data/cpu-sharing/machine.toml");
const DRIVE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/cpu-sharing/drive.toml"
);

const GLOBAL: &str = "[global]\nfilename=/dev/x\ndirect=1\nsize=512m\nnorandommap\nrw=randread\n\
                      bs=4k\ntime_based\nruntime=1\nramp_time=100ms\n";
const SYNC: &str = "ioengine=psync";
const DEEP: &str = "ioengine=libaio\niodepth=32";

/// What the guest's script ran under that name.
fn jobs_of(name: &str) -> String {
    let (kind, processes) = name.split_at(name.len() - 1);
    let jobs = match kind {
        "sync" => format!("[sync]\n{SYNC}\nnumjobs={processes}\n"),
        "deep" => format!("[deep]\n{DEEP}\nnumjobs={processes}\n"),
        "victim" => format!("[victim]\n{SYNC}\n[noise]\nnew_group\n{DEEP}\nnumjobs={processes}\n"),
        _ => panic!("{name}"),
    };
    format!("{GLOBAL}{jobs}")
}

fn simulate(name: &str, scheduler: CpuScheduler) -> Results {
    let mut machine = Machine::parse("machine.toml", MACHINE).expect("valid");
    machine.cpu_scheduler = scheduler;
    let (drive, _) = registry::load(DRIVE).expect("valid");
    let scheduler = SchedulerChoice::named("none").expect("known");
    let job = job_file(&jobs_of(name));
    let setup = Setup::new(Workload::Job(&job), &machine, &drive, &scheduler);
    run(&setup).expect("it runs")
}

/// I/Os a second of all processes of a job, and the means of their percentiles in us.
fn figures(results: &Results, job: &str) -> [f64; 4] {
    let of_job = |p: &&JobResults| p.name == job;
    let processes: Vec<&JobResults> = results.jobs.iter().filter(of_job).collect();
    let iops = processes.iter().map(|p| p.read.iops()).sum::<f64>();
    let percentile = |percent: f64| {
        let of_process = |p: &&JobResults| p.read.clat_ns.percentile(percent) as f64 / 1000.0;
        processes.iter().map(of_process).sum::<f64>() / processes.len() as f64
    };
    [iops, percentile(50.0), percentile(99.0), percentile(99.9)]
}

/// A row of the measured ones: the job's name, that of its processes, and their figures.
fn measured() -> impl Iterator<Item = (&'static str, &'static str, [f64; 4])> {
    MEASURED.lines().skip(1).map(|line| {
        let mut columns = line.split(',');
        let mut next = || columns.next().expect("a column");
        let names = (next(), next());
        let mut number = || next().parse::<f64>().expect("a number");
        let iops = number();
        // Least and most of one process.
        let _of_one = (number(), number());
        (names.0, names.1, [iops, number(), number(), number()])
    })
}

/// Up to which factor each figure may differ. Tails of a tenth of a millisecond are the
/// kernel's own work, which nothing here has, and a median between two groups of latencies
/// is in one or the other.
const LIMITS: [(&str, f64); 4] = [("IOPS", 1.25), ("p50", 1.8), ("p99", 2.3), ("p99.9", 2.3)];

/// Who waits for whom and for how long comes from the rules of EEVDF alone: nothing but the
/// rates of two of the rows was fitted.
#[test]
fn busy_processes_share_a_cpu_as_under_linux() {
    let mut wrong = Vec::new();
    for (job, name, real) in measured() {
        let ours = figures(&simulate(job, CpuScheduler::Eevdf), name);
        for (at, (what, limit)) in LIMITS.into_iter().enumerate() {
            let (ours, real) = (ours[at], real[at]);
            if ours / real > limit || real / ours > limit {
                wrong.push(format!(
                    "{job} {name} {what}: {ours:.1}, measured {real:.1}"
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Linux before 6.6 had a reader between two busy programs wait for nobody: the tail of
/// milliseconds is EEVDF's.
#[test]
fn cfs_lets_who_sleeps_go_first() {
    let tail_us = |scheduler| figures(&simulate("victim2", scheduler), "victim")[3];
    assert!(tail_us(CpuScheduler::Cfs) < 100.0);
    assert!(tail_us(CpuScheduler::Eevdf) > 3000.0);
}
