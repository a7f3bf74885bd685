//! Whole simulations of small jobs made of any options: a mistake that is told, or
//! a run that comes to its end. Never a panic, never a hang.
#![no_main]

use blklab_device::{DriveSpec, registry};
use blklab_elevator::SchedulerChoice;
use blklab_sim::{Machine, Setup, Workload, run};
use blklab_workload::fio::parse_str;
use libfuzzer_sys::fuzz_target;

/// Options, and what stands before and behind a number in them.
const OPTIONS: [(&str, &str); 48] = [
    ("[job", "]"),
    ("stonewall", ""),
    ("new_group", ""),
    ("wait_for=job", ""),
    ("name=job", ""),
    ("numjobs=", ""),
    ("group_reporting", ""),
    ("exitall", ""),
    ("rw=read", ""),
    ("rw=write", ""),
    ("rw=randrw", ""),
    ("rw=randtrimwrite", ""),
    ("rw=rw:", "k"),
    ("rwmixread=", ""),
    ("ioengine=libaio", ""),
    ("ioengine=io_uring", ""),
    ("ioengine=posixaio", ""),
    ("ioengine=psync", ""),
    ("iodepth=", ""),
    ("iodepth_batch=", ""),
    ("iodepth_batch_complete_min=", ""),
    ("iodepth_low=", ""),
    ("nowait=1", ""),
    ("bs=", "k"),
    ("bs=4k,", "k"),
    ("bsrange=4k-", "k"),
    ("bssplit=4k/", ":16k/"),
    ("ba=", "k"),
    ("size=", "k"),
    ("size=", "%"),
    ("io_size=", "k"),
    ("offset=", "k"),
    ("offset=", "%"),
    ("offset_increment=", "k"),
    ("filename=/dev/x", ""),
    ("nrfiles=", ""),
    ("filesize=4k-", "k"),
    ("loops=", ""),
    ("thinktime=", "us"),
    ("thinktime_blocks=", ""),
    ("rate=", "k"),
    ("rate_iops=", ""),
    ("startdelay=", "ms"),
    ("ramp_time=", "ms"),
    ("fsync=", ""),
    ("sync=1", ""),
    ("random_distribution=zipf:0.", ""),
    ("prioclass=", ""),
];

/// What keeps every run short, whatever else is asked for.
const SHORT: &str = "number_ios=32\nruntime=100ms\n";

/// The drive, its scheduler, the seed, and options with their numbers.
type Input = (bool, u8, u8, Vec<(u8, u8)>);

fuzz_target!(|input: Input| {
    let (is_null, scheduler, seed, options) = input;
    let mut text = format!("[global]\n{SHORT}[job]\n");
    for &(option, number) in options.iter().take(24) {
        let (before, behind) = OPTIONS[option as usize % OPTIONS.len()];
        text.push_str(before);
        if before.ends_with(|c: char| "=:-/,.b".contains(c)) {
            text.push_str(&number.to_string());
        }
        text.push_str(behind);
        text.push('\n');
    }
    let job = parse_str("fuzz.fio", &text, &|_| None, &|_, name| {
        Err(format!("{name}: nothing is included"))
    });
    let Ok(job) = job else { return };
    let processes: u64 = job.jobs.iter().map(|job| u64::from(job.processes)).sum();
    if processes > 64 {
        return;
    }
    let small = DriveSpec::parse("small.toml", include_str!("small.toml")).expect("valid");
    let null = registry::find("null").expect("known").expect("valid");
    let machine = Machine::find("vm-2cpu").expect("known").expect("valid");
    let kinds = blklab_elevator::all();
    let kind = kinds[scheduler as usize % kinds.len()].name;
    let drive = if is_null { &null } else { &small };
    let scheduler = SchedulerChoice::named(kind).expect("known");
    let setup = Setup {
        seed: u64::from(seed),
        ..Setup::new(Workload::Job(&job), &machine, drive, &scheduler)
    };
    if let Ok(results) = run(&setup) {
        assert_eq!(
            results.jobs.is_empty(),
            job.jobs.iter().all(|job| !job.stats)
        );
    }
});
