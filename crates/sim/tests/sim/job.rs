//! Runs of fio jobs, checked by what must add up.

use blklab_device::registry;
use blklab_sim::Workload;
use blklab_stats::Results;

use crate::{On, job_file};

fn results(text: &str, drive: &str, scheduler: &str) -> Results {
    results_on("generic-8", text, drive, scheduler)
}

fn results_on(machine: &str, text: &str, drive: &str, scheduler: &str) -> Results {
    let on = On {
        machine,
        drive,
        scheduler,
    };
    on.run(Workload::Job(&job_file(text)), None)
        .unwrap_or_else(|e| panic!("{e}"))
}

/// The job, which keeps to the drive's zones if it has any.
fn in_zones(text: &str, drive: &str) -> String {
    let spec = registry::find(drive).expect("listed").expect("valid");
    match spec.identity().zones {
        Some(_) => format!("{text}zonemode=zbd\n"),
        None => text.to_string(),
    }
}

#[test]
fn every_scheduler_does_the_same_work_on_every_drive() {
    let text = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=48\nnumjobs=3\n\
                bs=4k\nnorandommap\nnumber_ios=500\n[a]\nrw=randrw\nfsync=50\n";
    for drive in registry::names() {
        let text = &in_zones(text, drive);
        for kind in blklab_elevator::all() {
            let r = results(text, drive, kind.name);
            let ios: u64 = r.jobs.iter().map(|j| j.read.ios + j.write.ios).sum();
            assert_eq!(ios, 1500, "{} on {drive}", kind.name);
            let queue = &r.disks[0].queue;
            let done = queue.ios[0] + queue.ios[1] + queue.merges[0] + queue.merges[1];
            assert!(done >= 1500, "{} on {drive}: {queue:?}", kind.name);
            assert_eq!(queue.errors, 0, "{} on {drive}", kind.name);
        }
    }
}

/// Each drive counts its own waiters: of two, each has one of the same ticket.
#[test]
fn workers_wait_in_the_queues_of_two_drives() {
    for engine in ["io_uring", "posixaio"] {
        let text = format!(
            "[a]\nfilename=/dev/x:/dev/y\ndirect=1\nioengine={engine}\niodepth=2000\nbs=4k\n\
             rw=randrw\nfile_service_type=random\nnumber_ios=4000\nsize=2g\n"
        );
        let r = results_on("i7-3770k", &text, "mx100-256", "none");
        assert_eq!(r.jobs[0].read.ios + r.jobs[0].write.ios, 4000);
    }
}

/// fio's `stats=0`: the job runs, and no figure has it.
#[test]
fn a_job_that_does_not_count_is_in_no_result() {
    for together in ["", "group_reporting\n"] {
        let text = format!(
            "[global]\nfilename=/dev/x\ndirect=1\nbs=4k\nrw=randread\nsize=1g\n\
             number_ios=100\n{together}[a]\n[b]\nstats=0\nrw=write\n[c]\n"
        );
        let r = results(&text, "null", "none");
        let names: Vec<&str> = r.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!((r.groups[0].read.ios, r.groups[0].write.ios), (200, 0));
        let processes: usize = r.jobs.iter().map(|job| job.processes.len()).sum();
        assert_eq!(processes, 2);
        assert_eq!(r.disks[0].queue.ios[..2], [200, 100]);
    }
}

#[test]
fn a_job_of_fixed_time_ends_in_time() {
    let text = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=32\nnumjobs=4\n\
                bs=4k\nnorandommap\nruntime=40ms\ntime_based\nramp_time=10ms\n[a]\nrw=randrw\n";
    // A disk needs longer than this for what is in flight at the end, and so does
    // a card, where a write waits for a merge of 150 ms.
    let quick = |name: &&str| {
        let spec = registry::find(name).expect("listed").expect("valid");
        !spec.identity().rotational && !["sd-card", "sd-card-hybrid"].contains(name)
    };
    for drive in registry::names().filter(quick) {
        let text = &in_zones(text, drive);
        for kind in blklab_elevator::all() {
            let r = results(text, drive, kind.name);
            let elapsed_ms = r.elapsed_ns / 1_000_000;
            assert!(elapsed_ms >= 50, "{} on {drive}: {elapsed_ms}", kind.name);
            for job in &r.jobs {
                assert!(
                    job.read.ios > 0 && job.write.ios > 0,
                    "{} on {drive}: {} {}",
                    kind.name,
                    job.read.ios,
                    job.write.ios
                );
                let off = job.read.runtime_ns.abs_diff(40_000_000);
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

const JOBS: &str = "[global]\nfilename=/dev/x\ndirect=1\nbs=4k\nnorandommap\nrw=randread\n";

#[test]
fn an_io_slower_than_max_latency_ends_its_job() {
    let run = |options: &str| {
        results(
            &format!("{JOBS}number_ios=500\n[a]\n{options}\n"),
            "nvme",
            "none",
        )
    };
    let ended = run("max_latency=1us");
    // fio 3.33: err=110, and the slow I/O is counted.
    assert_eq!((ended.jobs[0].error, ended.jobs[0].read.ios), (110, 1));
    assert!(
        ended
            .notes
            .contains(&"a: ended by its max_latency".to_string()),
        "{:?}",
        ended.notes
    );
    let writes = run("rw=randrw\nmax_latency=0,1us");
    assert_eq!((writes.jobs[0].error, writes.jobs[0].write.ios), (110, 1));
    let deep = run("max_latency=1us\nioengine=libaio\niodepth=16");
    assert!(
        (1..=16).contains(&deep.jobs[0].read.ios),
        "{}",
        deep.jobs[0].read.ios
    );
    let kept = run("max_latency=10s");
    assert_eq!((kept.jobs[0].error, kept.jobs[0].read.ios), (0, 500));
}

#[test]
fn a_job_below_its_rate_min_fails_after_a_cycle() {
    let run = |options: &str| {
        let text = format!("{JOBS}runtime=8\ntime_based\nthinktime=100ms\n[a]\n{options}\n");
        let r = results(&text, "nvme", "none");
        (r.jobs[0].error, r.elapsed_ns / 100_000_000)
    };
    // fio 3.33: err=5 (check_min_rate) after two seconds to settle and a cycle of one.
    let (error, tenths) = run("rate_iops_min=20");
    assert!(
        error == 5 && (30..=32).contains(&tenths),
        "{error} {tenths}"
    );
    let (error, tenths) = run("rate_min=80k\nrate_cycle=3000");
    assert!(
        error == 5 && (50..=52).contains(&tenths),
        "{error} {tenths}"
    );
    assert_eq!(run("rate_iops_min=8"), (0, 80));
}

#[test]
fn a_failed_job_takes_others_with_it_where_it_is_told_to() {
    let run = |options: &str| {
        let text = format!(
            "{JOBS}runtime=2\ntime_based\n[a]\nmax_latency=1us\n{options}\n\
             [busy]\n[thinking]\nthinktime=60s\n[later]\nstonewall\ntime_based=0\nnumber_ios=10\n"
        );
        let r = results(&text, "nvme", "none");
        let ms: Vec<u64> = r.jobs[1..3]
            .iter()
            .map(|j| j.runtime_ns / 1_000_000)
            .collect();
        (ms, r.jobs[3].read.ios)
    };
    assert_eq!(run(""), (vec![2000, 2000], 10));
    assert_eq!(run("exitall_on_error"), (vec![0, 0], 10));
    assert_eq!(
        run("exitall_on_error\nexit_what=stonewall"),
        (vec![0, 0], 10)
    );
    assert_eq!(run("exitall_on_error\nexit_what=all"), (vec![0, 0], 0));
    // Nor does anybody wait for a start that leads to nothing.
    let text = format!("{JOBS}[a]\nnumber_ios=1\nexitall\n[b]\nstartdelay=5\n");
    let late = results(&text, "nvme", "none");
    assert!(late.elapsed_ns < 1_000_000, "{}", late.elapsed_ns);
    assert_eq!(late.jobs[1].read.ios, 0);
    // Without an error nobody is told to end.
    let text = format!("{JOBS}[a]\nnumber_ios=1\nexitall_on_error\n[b]\nnumber_ios=100\n");
    assert_eq!(results(&text, "nvme", "none").jobs[1].read.ios, 100);
}

#[test]
fn who_spins_while_thinking_uses_its_cpu() {
    let run = |spin_us: u32| {
        let options = format!("number_ios=101\nthinktime=1000us\nthinktime_spin={spin_us}us\n");
        let r = results_on(
            "xeon-10core",
            &format!("{JOBS}[a]\n{options}"),
            "nvme",
            "none",
        );
        (r.elapsed_ns / 1000, r.jobs[0].cpu.user_ns / 1000)
    };
    let (asleep, spinning, all) = (run(0), run(400), run(1000));
    let spun_us = spinning.1 - asleep.1;
    assert!((40_000..=40_400).contains(&spun_us), "{spun_us}");
    assert!((100_000..=101_000).contains(&(all.1 - asleep.1)), "{all:?}");
    // The pause is as long as ever.
    assert!(
        spinning.0.abs_diff(asleep.0) < asleep.0 / 100,
        "{asleep:?} {spinning:?}"
    );
}
