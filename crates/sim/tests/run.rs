//! Whole runs in virtual time, checked by what must add up.

use blklab_device::registry;
use blklab_sim::{Machine, SchedulerChoice, Setup, run};
use blklab_stats::Results;
use blklab_workload::fio;

fn results(text: &str, drive: &str, scheduler: &str) -> Results {
    let job = fio::parse_str("t.fio", text, &|_| None, &|_, f| Err(f.to_string()))
        .unwrap_or_else(|e| panic!("{e}"));
    let drive = registry::find(drive).expect("known").expect("valid");
    let machine = Machine::find("generic-8").expect("known").expect("valid");
    let scheduler = SchedulerChoice::named(scheduler).expect("known");
    run(&Setup {
        job: &job,
        machine: &machine,
        drive: &drive,
        scheduler: &scheduler,
        seed: 1,
        record: None,
        power_loss_at: None,
    })
    .unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_scheduler_does_the_same_work_on_every_drive() {
    let text = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=48\nnumjobs=3\n\
                bs=4k\nnorandommap\nnumber_ios=1500\n[a]\nrw=randrw\nfsync=50\n";
    for drive in registry::names() {
        for kind in blklab_elevator::all() {
            let r = results(text, drive, kind.name);
            let ios: u64 = r.jobs.iter().map(|j| j.read.ios + j.write.ios).sum();
            assert_eq!(ios, 4500, "{} on {drive}", kind.name);
            let queue = &r.disks[0].queue;
            let done = queue.ios[0] + queue.ios[1] + queue.merges[0] + queue.merges[1];
            assert!(done >= 4500, "{} on {drive}: {queue:?}", kind.name);
            assert_eq!(queue.errors, 0, "{} on {drive}", kind.name);
        }
    }
}

#[test]
fn a_job_of_fixed_time_ends_in_time() {
    let text = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=32\nnumjobs=4\n\
                bs=4k\nnorandommap\nruntime=300ms\ntime_based\nramp_time=50ms\n[a]\nrw=randrw\n";
    // A disk needs longer than this for what is in flight at the end.
    let quick = |name: &&str| {
        let spec = registry::find(name).expect("listed").expect("valid");
        !spec.identity().rotational
    };
    for drive in registry::names().filter(quick) {
        for kind in blklab_elevator::all() {
            let r = results(text, drive, kind.name);
            let elapsed_ms = r.elapsed_ns / 1_000_000;
            assert!(elapsed_ms >= 350, "{} on {drive}: {elapsed_ms}", kind.name);
            for job in &r.jobs {
                assert!(
                    job.read.ios > 0 && job.write.ios > 0,
                    "{} on {drive}: {} {}",
                    kind.name,
                    job.read.ios,
                    job.write.ios
                );
                let off = job.read.runtime_ns.abs_diff(300_000_000);
                assert!(off < 250_000_000, "{} on {drive}: {off}", kind.name);
            }
        }
    }
}

#[test]
fn a_flush_that_ends_on_the_spot_may_be_the_last_thing_done() {
    // Without a volatile cache a flush is over at once, and so is the first
    // job: the second, which waits for it, starts once.
    let text = "[global]\nfilename=/dev/x\ndirect=1\nioengine=psync\nrw=randwrite\nbs=4k\n\
                fsync=10\n[a]\nnumber_ios=100\n[b]\nstonewall\nnumber_ios=50\n";
    let results = results(text, "null", "none");
    let ios: Vec<u64> = results.jobs.iter().map(|job| job.write.ios).collect();
    assert_eq!(ios, [100, 50]);
    assert!(results.jobs.iter().all(|job| job.syncs > 0));
}
