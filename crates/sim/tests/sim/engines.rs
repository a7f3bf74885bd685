//! Ways to submit an I/O and to learn of its end, and what they cost.

use blklab_device::registry;
use blklab_elevator::SchedulerChoice;
use blklab_sim::{Machine, Setup, SetupError, Workload, run};
use blklab_stats::Results;

use crate::{On, job_file};

fn xeon() -> Machine {
    let machine = Machine::find("xeon-2x10core").expect("known");
    machine.expect("valid")
}

/// 4 KiB reads of seven drives for 30 ms.
fn reads(options: &str, scheduler: &str) -> Result<Results, SetupError> {
    reads_on(&xeon(), options, scheduler)
}

fn reads_on(machine: &Machine, options: &str, scheduler: &str) -> Result<Results, SetupError> {
    let drives: Vec<String> = (0..7).map(|n| format!("/dev/d{n}")).collect();
    let text = format!(
        "[a]\nfilename={}\ndirect=1\nrw=randread\nbs=4k\nnorandommap\ntime_based\n\
         runtime=30ms\ngroup_reporting\n{options}\n",
        drives.join(":")
    );
    let drive = registry::find("optane-ssd").expect("known").expect("valid");
    let scheduler = SchedulerChoice::named(scheduler).expect("known");
    let job = job_file(&text);
    run(&Setup::new(
        Workload::Job(&job),
        machine,
        &drive,
        &scheduler,
    ))
}

fn iops(options: &str, scheduler: &str) -> f64 {
    iops_on(&xeon(), options, scheduler)
}

fn iops_on(machine: &Machine, options: &str, scheduler: &str) -> f64 {
    let results = reads_on(machine, options, scheduler).unwrap_or_else(|e| panic!("{e}"));
    results.groups[0].read.iops()
}

const DEEP: &str = "ioengine=io_uring\niodepth=128\ncpus_allowed=0-9";

#[test]
fn who_polls_is_not_interrupted() {
    let busy = |options: &str| {
        let results = reads(options, "none").expect("it runs");
        let cpu = &results.cpus[0];
        (cpu.irq_ns, cpu.idle_ns + cpu.iowait_ns)
    };
    let (interrupts, _) = busy("ioengine=io_uring\ncpus_allowed=0");
    assert!(interrupts > 0);
    // It looks for completions all the time, even with one I/O in flight.
    let (interrupts, idle) = busy("ioengine=io_uring\ncpus_allowed=0\nhipri");
    assert_eq!(interrupts, 0);
    assert!(idle < 1_000_000, "{idle} ns idle");
}

/// Linux before 5.16 leaves polled I/O under a scheduler to kblockd.
#[test]
fn a_scheduler_takes_from_polling_what_it_gains() {
    let polled = format!("{DEEP}\nhipri");
    assert!(iops(&polled, "none") > iops(DEEP, "none"));
    assert!(iops(&polled, "mq-deadline") < 0.8 * iops(DEEP, "mq-deadline"));
}

/// bfq and kyber count the ends of requests, whoever finds them.
#[test]
fn who_polls_pays_for_the_scheduler_at_an_end() {
    let job = job_file(
        "[a]\nfilename=/dev/d\ndirect=1\nrw=randread\nbs=4k\ntime_based\nruntime=5ms\n\
         ioengine=io_uring\niodepth=32\nhipri\n",
    );
    let drive = registry::find("null").expect("known").expect("valid");
    let scheduler = SchedulerChoice::named("bfq").expect("known");
    let iops = |finish_ns: u64| {
        let mut machine = xeon();
        let costs = machine.costs.scheduler.get_mut("bfq").expect("described");
        costs.finish_ns = finish_ns;
        let setup = Setup::new(Workload::Job(&job), &machine, &drive, &scheduler);
        run(&setup).expect("it runs").groups[0].read.iops()
    };
    let (free, dear) = (iops(0), iops(5_000));
    let more_ns = 1e9 / dear - 1e9 / free;
    assert!((4_500.0..6_500.0).contains(&more_ns), "{more_ns}");
}

/// The page of zeroes, over and over, is a segment each time: the bio does not fit into a request,
/// may not wait, and is made anew by a worker.
#[test]
fn a_large_write_from_untouched_memory_is_pinned_twice() {
    let took_ns = |rw: &str, buffers: &str| {
        let text = format!(
            "[a]\nfilename=/dev/d\ndirect=1\nrw={rw}\nbs=1m\nnorandommap\ntime_based\n\
             runtime=20ms\nioengine=io_uring\niodepth=32\ncpus_allowed=0\n{buffers}\n"
        );
        let on = On {
            machine: "epyc-9654p",
            drive: "memory",
            scheduler: "none",
        };
        let results = on.run(Workload::Job(&job_file(&text)), None);
        let group = &results.expect("it runs").groups[0];
        1e9 / (group.read.iops() + group.write.iops())
    };
    let pinning = |rw: &str| took_ns(rw, "untouched_buffers=1") - took_ns(rw, "fixedbufs=1");
    let (read_ns, write_ns) = (pinning("randread"), pinning("randwrite"));
    // 255 further pages: 135 ns each once, and 170 ns each twice.
    assert!((20_000.0..50_000.0).contains(&read_ns), "{read_ns}");
    assert!((75_000.0..100_000.0).contains(&write_ns), "{write_ns}");
}

#[test]
fn a_submission_thread_is_a_second_cpu() {
    let with_thread = format!("{DEEP}\nsqthread_poll=1");
    let (with, without) = (iops(&with_thread, "none"), iops(DEEP, "none"));
    assert!(with > 1.5 * without, "{with} against {without}");
    let one = with_thread.replace("0-9", "0");
    assert!(iops(&one, "none") < 1.1 * without, "there is no second one");
}

/// Measured on another machine (`iouring-kioxia-cm7`): 24 to 33 us more.
#[test]
fn who_wakes_the_submission_thread_waits_for_it() {
    let mean_us = |options: &str| {
        let job =
            format!("ioengine=io_uring\niodepth=1\nsqthread_poll=1\nthinktime=3ms\n{options}");
        let results = reads(&job, "none").unwrap_or_else(|e| panic!("{e}"));
        results.groups[0].read.latency().summary().mean_ns / 1e3
    };
    let (asleep, awake) = (mean_us("sq_thread_idle=1"), mean_us("sq_thread_idle=10"));
    assert!((1.0..20.0).contains(&(asleep - awake)), "{asleep} {awake}");
    assert_eq!(mean_us(""), awake, "by default it sleeps after a second");
}

#[test]
fn a_lock_between_sockets_is_dearer_than_one_inside() {
    let mut machine = xeon();
    // Nothing but the lock tells the sockets apart.
    machine.costs.remote_drive_ns = 0;
    let at = |cpus: &str| {
        let job = format!("ioengine=io_uring\niodepth=64\nnumjobs=4\ncpus_allowed={cpus}");
        let iops = |scheduler: &str| iops_on(&machine, &job, scheduler);
        (iops("mq-deadline"), iops("none"))
    };
    let ((near, near_none), (far, far_none)) = (at("0-3"), at("8-11"));
    assert!(far < 0.95 * near, "{far} against {near}");
    assert!(far_none > 0.99 * near_none, "nothing is shared there");
}

/// A command and its end are in the memory of the drive's socket.
#[test]
fn a_drive_is_farther_from_the_other_socket() {
    let at = |cpu: u32| {
        let job = format!("ioengine=io_uring\niodepth=64\ncpus_allowed={cpu}");
        iops(&job, "none")
    };
    let share = at(10) / at(9);
    assert!((0.94..0.98).contains(&share), "{share}");
}

/// Two programs that never wait, on the threads of one core and on two cores.
#[test]
fn threads_of_a_core_slow_each_other_down() {
    let on = On {
        machine: "i5-4200u",
        drive: "optane-ssd",
        scheduler: "none",
    };
    let at = |cpus: &str| {
        let job = job_file(&format!(
            "[a]\nfilename=/dev/d\ndirect=1\nrw=randread\nbs=4k\ntime_based\nruntime=10ms\n\
             group_reporting\nnumjobs=2\nioengine=io_uring\niodepth=32\ncpus_allowed={cpus}\n"
        ));
        let results = on.run(Workload::Job(&job), None).expect("it runs");
        results.groups[0].read.iops()
    };
    // It would be 1 / 1.6 if the drive were no limit to two cores.
    let share = at("0,1") / at("0,2");
    assert!((0.75..0.85).contains(&share), "{share}");
}

/// A drive with one interrupt has it where the machine says.
#[test]
fn one_interrupt_goes_to_one_cpu() {
    let mut machine = Machine::find("server-8").expect("listed").expect("legal");
    machine.irq_cpu = 3;
    let drive = registry::find("mx100-256").expect("listed").expect("legal");
    let none = SchedulerChoice::named("none").expect("listed");
    let job = job_file(
        "[a]\nfilename=/dev/d\ndirect=1\nrw=randread\nbs=4k\ntime_based\nruntime=5ms\n\
         cpus_allowed=0\n",
    );
    let results = run(&Setup::new(Workload::Job(&job), &machine, &drive, &none)).expect("it runs");
    let interrupted: Vec<usize> = (0..results.cpus.len())
        .filter(|&cpu| results.cpus[cpu].irq_ns > 0)
        .collect();
    assert_eq!(interrupted, [3]);
}

#[test]
fn passthrough_goes_by_the_scheduler() {
    let job = "ioengine=io_uring_cmd\niodepth=32";
    assert!(iops(job, "none") > 0.0);
    let refused = reads(job, "mq-deadline").expect_err("not simulated");
    let message = refused.to_string();
    assert!(
        message.contains("t.fio:10: job a: ioengine=io_uring_cmd passes"),
        "{message}"
    );
}

/// The kernel drops bios' flushes for a drive that has no cache to lose, and leaves
/// commands of a process's own to the drive.
#[test]
fn a_passthrough_flush_takes_the_drives_time() {
    let writes = |engine: &str| {
        let text = format!(
            "[a]\nfilename=/dev/d\ndirect=1\nrw=write\nbs=4k\nfsync=1\ntime_based\n\
             runtime=10ms\nioengine={engine}\n"
        );
        let on = On {
            machine: "epyc-9654p",
            drive: "kioxia-cm7",
            scheduler: "none",
        };
        let results = on.run(Workload::Job(&job_file(&text)), None);
        results.expect("it runs").groups[0].write.iops()
    };
    let (of_bios, of_commands) = (writes("io_uring"), writes("io_uring_cmd"));
    assert!(of_bios > 40_000.0, "{of_bios}");
    assert!((6_000.0..7_500.0).contains(&of_commands), "{of_commands}");
}
