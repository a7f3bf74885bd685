//! The policies that delay bios beside the scheduler.

use blklab_blk::{
    Bio, BioFlags, CgroupId, CostModel, CostQos, IoMax, IoStatus, Nanos, Op, QueueConfig, Sector,
    Submit, Wbt,
};

use crate::{Fixture, config};

fn at_ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn in_group(group: u16, sector: u64) -> Bio {
    Bio {
        cgroup: CgroupId(group),
        ..Bio::new(Op::Read, Sector(sector), 128)
    }
}

/// Processes the queue's events up to this time.
fn run_to(q: &mut Fixture, ms: u64) {
    while q.queue.next_event() <= at_ms(ms) {
        q.now = q.now.max(q.queue.next_event());
        q.process();
    }
    q.now = at_ms(ms);
}

/// Ten reads of 64 KiB with a limit of 1 MiB per second, two of which fit a slice; the drive takes
/// two commands, so the worker must wait for tags.
#[test]
fn io_max_holds_bios_back_and_its_worker_submits_them() {
    let mut q = Fixture::new(&QueueConfig {
        queue_depth: 2,
        ..config()
    });
    q.now = at_ms(100);
    let max = IoMax {
        bytes: [Some(2 * 1024 * 1024), None],
        ..IoMax::default()
    };
    assert_eq!(q.queue.io_max(CgroupId(1)), IoMax::default());
    q.queue.set_io_max(q.now, CgroupId(1), max);
    let found = [1, 2].map(|group| q.queue.io_max(CgroupId(group)));
    assert_eq!(found, [max, IoMax::default()]);
    for n in 0..10 {
        q.submit_bio(0, in_group(1, 1000 * n));
        if q.driver.in_flight.len() == 2 {
            q.drain();
        }
    }
    assert!(q.waiters.is_empty(), "its submitter is not held");
    let at_once = q.sectors_taken().len();
    assert!(at_once < 5, "{at_once} of ten");
    assert_eq!(
        q.queue.cgroup_stats(CgroupId(1)).io_max.bios as usize,
        10 - at_once
    );
    let mut ended = 0;
    for ms in (100..1000).step_by(4) {
        run_to(&mut q, ms);
        q.drain();
        assert!(q.woken().is_empty(), "the worker's ticket is its own");
        ended += q.ended().len();
    }
    assert_eq!(ended, 10);
    let sectors: Vec<u64> = (0..10).map(|n| 1000 * n).collect();
    assert_eq!(q.sectors_taken(), sectors);
    assert!(q.queue.is_idle());
    q.submit_bio(0, in_group(2, 77));
    q.complete(IoStatus::Ok);
    assert_eq!(q.ended().len(), 1, "another group has no limit");
    assert!(q.queue.cgroup_stats(CgroupId(1)).io_max.ns > 0);
    q.queue.reset_counters(q.now);
    let io_max = q.queue.cgroup_stats(CgroupId(1)).io_max;
    assert_eq!((io_max.bios, io_max.ns), (0, 0));
}

#[test]
fn writeback_waits_until_there_is_room_for_it() {
    let mut q = Fixture::new(&QueueConfig {
        queue_depth: 4,
        ..config()
    });
    q.queue.set_wbt_latency(q.now, 2_000);
    for n in 0..3 {
        q.submit(Op::Write, 1000 * n, 8);
    }
    assert_eq!((q.waiters.len(), q.driver.in_flight.len()), (1, 2));
    q.complete(IoStatus::Ok);
    let waiter = q.waiters.pop().unwrap();
    assert_eq!(q.woken(), [waiter.ticket]);
    let done = q.queue.resume(q.now, None, waiter, &mut q.driver);
    assert_eq!(done, Submit::Done);
    assert_eq!(q.sectors_taken(), [0, 1000, 2000]);
    let direct = Bio {
        flags: BioFlags::SYNC.with(BioFlags::IDLE),
        ..Bio::new(Op::Write, Sector(9000), 8)
    };
    q.submit_bio(0, direct);
    assert!(q.waiters.is_empty(), "direct writes are not throttled");
    q.drain();
    assert!(q.queue.is_idle());
}

#[test]
fn writeback_is_throttled_by_itself_unless_someone_says_otherwise() {
    for (rotational, latency_us) in [(false, 2_000), (true, 75_000)] {
        let mut config = config();
        config.limits.rotational = rotational;
        let mut q = Fixture::new(&config);
        q.queue.enable_wbt(q.now);
        assert_eq!(q.queue.wbt().map(Wbt::latency_us), Some(latency_us));
    }
    let mut q = Fixture::new(&config());
    q.queue.set_wbt_latency(q.now, 0);
    q.queue.enable_wbt(q.now);
    assert_eq!(q.queue.wbt().map(Wbt::latency_us), Some(0));
}

#[test]
fn targets_and_model_of_the_costs_are_kept_together() {
    let mut q = Fixture::new(&config());
    assert!(q.queue.io_cost().is_none());
    let (mut qos, mut model) = (CostQos::default(), CostModel::default());
    qos.write("enable=1 rpct=90 rlat=10000 min=50 max=150")
        .unwrap();
    model
        .write("rbps=400000000 rseqiops=1000 rrandiops=1000")
        .unwrap();
    q.queue.set_io_cost_qos(q.now, qos);
    q.queue.set_io_cost_model(q.now, model);
    q.queue.set_io_weight(q.now, CgroupId(1), 200);
    let cost = q.queue.io_cost().expect("it was set");
    assert_eq!((cost.qos(), cost.model()), (qos, model));
}

/// A group with a target that it misses is the reason why its sibling may have fewer bios in
/// flight, which `io.stat` shows as its depth.
#[test]
fn a_missed_target_shows_as_the_depth_of_another_group() {
    let mut q = Fixture::new(&config());
    let (protected, other) = (1, 2);
    q.queue.set_io_latency(CgroupId(protected), 2_000);
    q.queue.set_io_latency(CgroupId(other), 0);
    let depth = |q: &Fixture| q.queue.cgroup_stats(CgroupId(other)).max_depth;
    for (ms, group) in [(1_000, protected), (1_020, other)] {
        assert_eq!(depth(&q), None);
        q.now = at_ms(ms);
        q.submit_bio(0, in_group(group, ms));
        q.now += Nanos::from_millis(10);
        q.drain();
    }
    let (found, all) = (depth(&q), q.queue.nr_requests());
    assert_eq!(found, Some(all / 2));
    assert_eq!(q.queue.cgroup_stats(CgroupId(protected)).max_depth, None);
}

/// A bio that its group cannot pay for waits without a request (`ioc_rqos_throttle`); a sequential
/// read takes a tenth of a second by this model, more than the budget of half a period.
#[test]
fn a_bio_that_waits_for_budget_keeps_the_queue_busy() {
    let mut q = Fixture::new(&config());
    q.now = at_ms(100);
    let (mut qos, mut model) = (CostQos::default(), CostModel::default());
    qos.write("enable=1 rpct=90 rlat=10000 min=100 max=100")
        .unwrap();
    model
        .write("rbps=400000000 rseqiops=10 rrandiops=10")
        .unwrap();
    q.queue.set_io_cost_qos(q.now, qos);
    q.queue.set_io_cost_model(q.now, model);
    q.queue.set_io_weight(q.now, CgroupId(1), 100);
    q.submit_bio(0, in_group(1, 1000));
    assert!(q.driver.taken.is_empty() && !q.queue.is_idle());
    run_to(&mut q, 400);
    let waiter = q.waiters.pop().expect("it waits");
    assert_eq!(q.woken(), [waiter.ticket]);
    let done = q.queue.resume(q.now, None, waiter, &mut q.driver);
    assert_eq!((done, q.sectors_taken()), (Submit::Done, vec![1000]));
    q.drain();
    assert!(q.queue.is_idle());
}

/// The timers of policies run by themselves where no hardware queue is due.
#[test]
fn timers_of_policies_run_without_a_queue() {
    let mut q = Fixture::new(&config());
    q.queue.set_wbt_latency(q.now, 2_000);
    q.submit(Op::Write, 0, 8);
    let ended = |q: &Fixture| q.queue.wbt().expect("it was set").last_timer().is_some();
    q.queue.run_timers(at_ms(50));
    assert!(!ended(&q), "a window lasts 100 ms");
    q.queue.run_timers(at_ms(120));
    assert!(ended(&q));
}
