//! Running the hardware queues: order, batches, budget, restart.

use blklab_blk::{
    Bio, BlkDriver, BlkStatus, Elevator, ElevatorQueue, InsertAt, IoStatus, KblockdDelay, Nanos,
    Op, QueueConfig, QueueLimits, Request, RequestId, RqList, RunPoint, SchedCtx, Sector, Submit,
    TraceKind,
};

use crate::{FifoState, Fixture, config, with_limits};

/// `BLK_MQ_RESOURCE_DELAY`.
const RESOURCE_DELAY: Nanos = Nanos::from_millis(3);

/// A queue with a scheduler and one request in the driver, which refuses the next request twice:
/// from the scheduler and from the dispatch list.
fn refusing(answer: BlkStatus) -> Fixture {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    f.process();
    f.driver.answers = [answer, answer].into();
    f.submit(Op::Read, 100, 8);
    f.process();
    f
}

#[test]
fn what_the_device_lacks_comes_with_the_end_of_a_request() {
    let mut f = refusing(BlkStatus::DevResource);
    assert_eq!(f.queue.counters(f.now).requeues, 2);
    assert_eq!(f.queue.next_event(), Nanos::MAX);
    assert_eq!(f.driver.budget, 999, "only what it took holds budget");
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.next_event(), f.now);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100]);
    // No run is due now or after the next completion.
    assert_eq!(f.queue.next_event(), Nanos::MAX);
}

/// One completion runs the queue and clears the mark (`BLK_MQ_S_SCHED_RESTART`).
#[test]
fn the_restart_mark_is_for_one_end() {
    let (mut f, state) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    f.process();
    f.driver.answers = [BlkStatus::DevResource].into();
    f.submit(Op::Read, 100, 8);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100]);
    // From here on a run finds work that may not be dispatched.
    state.lock().expect("nothing panicked").holds = true;
    f.submit(Op::Read, 200, 8);
    f.process();
    assert_eq!(f.queue.next_event(), f.now + RESOURCE_DELAY);
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.next_event(), f.now);
    f.process();
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.next_event(), f.now + RESOURCE_DELAY);
}

/// A completion frees the tag, so there is no earlier attempt.
#[test]
fn a_request_without_a_driver_tag_waits_for_an_end() {
    let two_tags = QueueConfig {
        queue_depth: 2,
        ..config()
    };
    let (mut f, _) = Fixture::with_fifo(&two_tags, FifoState::default());
    (0..3).for_each(|n| f.submit(Op::Read, n * 100, 8));
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100]);
    assert_eq!(f.queue.hctx_stats(0).0.run, 1);
    assert_eq!(f.driver.budget, 998);
    f.complete(IoStatus::Ok);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100, 200]);
}

/// Another queue may hold the budget (`BLK_MQ_BUDGET_DELAY`).
#[test]
fn a_refused_request_without_budget_is_tried_again_later() {
    let mut f = refusing(BlkStatus::DevResource);
    f.driver.budget = 0;
    f.submit(Op::Read, 200, 8);
    f.process();
    assert_eq!(f.sectors_taken(), [0]);
    assert_eq!(f.queue.next_event(), f.now + RESOURCE_DELAY);
    f.driver.budget = 1;
    f.queue.expedite(f.now);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100]);
}

#[test]
fn what_the_system_lacks_comes_with_time() {
    for answer in [BlkStatus::Resource, BlkStatus::ZoneResource] {
        let mut f = refusing(answer);
        assert_eq!(f.queue.next_event(), f.now + RESOURCE_DELAY);
        f.now += RESOURCE_DELAY;
        f.process();
        assert_eq!(f.sectors_taken(), [0, 100]);
    }
}

/// The average rises with each list that is not taken completely, and falls otherwise.
#[test]
fn the_busy_average_follows_refusals() {
    let mut f = refusing(BlkStatus::DevResource);
    assert_eq!(f.queue.hctx_stats(0).1, 3);
    f.complete(IoStatus::Ok);
    f.process();
    assert_eq!(f.queue.hctx_stats(0).1, 2);
    let mut direct = Fixture::new(&config());
    direct.driver.answers = [BlkStatus::DevResource].into();
    direct.submit(Op::Read, 0, 8);
    assert_eq!(direct.queue.hctx_stats(0).1, 1);
    direct.submit(Op::Read, 100, 8);
    direct.process();
    assert_eq!(direct.queue.hctx_stats(0).1, 0);
}

#[test]
fn a_busy_driver_gets_requests_one_by_one() {
    let asks_and_issues = |f: &mut Fixture| {
        f.queue.enable_trace(true);
        f.submit(Op::Read, 1_000, 8);
        f.submit(Op::Read, 2_000, 8);
        f.process();
        let mut kinds = f.trace();
        kinds.retain(|kind| matches!(kind, TraceKind::Dispatch | TraceKind::RqIssue));
        kinds
    };
    let (ask, issue) = (TraceKind::Dispatch, TraceKind::RqIssue);
    let (mut idle, _) = Fixture::with_fifo(&config(), FifoState::default());
    assert_eq!(asks_and_issues(&mut idle), [ask, ask, issue, issue]);
    let mut busy = refusing(BlkStatus::DevResource);
    busy.complete(IoStatus::Ok);
    busy.process();
    assert_eq!(asks_and_issues(&mut busy), [ask, issue, ask, issue]);
}

#[test]
fn a_cpu_that_others_wait_for_leaves_the_rest_to_kblockd() {
    let mut f = refusing(BlkStatus::DevResource);
    f.complete(IoStatus::Ok);
    f.driver.need_resched = true;
    f.submit(Op::Read, 200, 8);
    f.submit(Op::Read, 300, 8);
    f.queue.process(f.now, &mut f.driver);
    assert_eq!(f.sectors_taken(), [0, 100, 200]);
    assert_eq!(f.queue.next_event(), f.now);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100, 200, 300]);
}

/// A run that other CPUs interrupted goes on as one that was not: it takes what it asked for,
/// yields after it, and leaves nothing behind.
#[test]
fn a_paused_run_goes_on_where_it_was() {
    for point in [RunPoint::Ask, RunPoint::Choose, RunPoint::Tag] {
        for need_resched in [false, true] {
            let mut f = refusing(BlkStatus::DevResource);
            f.complete(IoStatus::Ok);
            f.submit(Op::Read, 200, 8);
            f.submit(Op::Read, 300, 8);
            f.driver.need_resched = need_resched;
            f.driver.pauses_at = Some((point, 7));
            f.queue.process(f.now, &mut f.driver);
            assert_eq!(f.sectors_taken(), [0, 100], "{point:?}");
            // A name that is not that of the run continues nothing.
            f.queue.resume_run(f.now, 8, &mut f.driver);
            assert_eq!(f.sectors_taken(), [0, 100], "{point:?}");
            f.queue.resume_run(f.now, 7, &mut f.driver);
            match need_resched {
                true => assert_eq!(f.sectors_taken(), [0, 100, 200], "{point:?}"),
                false => assert_eq!(f.sectors_taken(), [0, 100, 200, 300], "{point:?}"),
            }
            f.queue.resume_run(f.now, 7, &mut f.driver);
            f.process();
            assert_eq!(f.sectors_taken(), [0, 100, 200, 300], "{point:?}");
        }
    }
}

/// A driver that only takes requests.
#[derive(Default)]
struct Plain(Vec<RequestId>);

impl BlkDriver for Plain {
    fn queue_rq(
        &mut self,
        _now: Nanos,
        _hctx: usize,
        id: RequestId,
        _rq: &Request,
        _last: bool,
    ) -> BlkStatus {
        self.0.push(id);
        BlkStatus::Ok
    }
}

/// No budget, no sleep and no other thread are in the way.
#[test]
fn a_driver_without_hooks_gets_everything_in_one_run() {
    let (fixture, _) = Fixture::with_fifo(&config(), FifoState::default());
    let (mut queue, mut driver, now) = (fixture.queue, Plain::default(), fixture.now);
    for n in 0..3 {
        let bio = Bio::new(Op::Read, Sector(n * 100), 8);
        let done = queue.submit_bio(now, 0, None, bio, &mut driver);
        assert_eq!(done, Submit::Done);
    }
    queue.process(now, &mut driver);
    assert_eq!((driver.0.len(), queue.next_event()), (3, Nanos::MAX));
    for id in driver.0.clone() {
        queue.complete(now, id, IoStatus::Ok, &mut driver);
    }
    assert!(queue.is_idle());
}

/// The rest of a plug goes by software queue after the driver was busy once, so that of each other
/// hardware queue is issued directly (`blk_mq_plug_issue_direct`).
#[test]
fn a_busy_driver_gets_the_rest_of_a_plug_by_its_queues() {
    let mut f = Fixture::new(&QueueConfig {
        nr_cpus: 2,
        nr_hw_queues: 2,
        ..config()
    });
    f.queue.enable_trace(true);
    for (cpu, sector) in [(0, 0), (0, 100), (1, 200), (1, 300)] {
        f.submit_plugged(cpu, Bio::new(Op::Read, Sector(sector), 8));
    }
    f.driver.answers = [BlkStatus::DevResource].into();
    f.unplug();
    f.process();
    let mut kinds = f.trace();
    kinds.retain(|kind| matches!(kind, TraceKind::Unplug(_) | TraceKind::RqInsert));
    let (all, two) = (TraceKind::Unplug(4), TraceKind::Unplug(2));
    // Only the second request of the busy queue is inserted.
    let expected = [all, TraceKind::Unplug(1), TraceKind::RqInsert, two];
    assert_eq!(kinds, expected);
    assert_eq!(f.sectors_taken(), [0, 100, 200, 300]);
    let last: Vec<bool> = f.driver.taken.iter().map(|c| c.last).collect();
    assert_eq!(last[2..], [false, true]);
    f.drain();
    assert_eq!(f.ended().len(), 4);
}

/// A request without budget goes to the dispatch list, before all that comes later.
#[test]
fn a_plug_without_budget_keeps_its_order() {
    let mut f = Fixture::new(&config());
    for n in 0..4 {
        f.read_plugged(n * 100);
    }
    f.driver.budget = 1;
    f.unplug();
    assert_eq!(f.sectors_taken(), [0]);
    f.drain();
    assert_eq!(f.sectors_taken(), [0, 100, 200, 300]);
    assert_eq!(f.driver.budget, 1);
}

#[test]
fn the_last_of_a_batch_is_marked_and_a_broken_batch_committed() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    f.submit(Op::Read, 100, 8);
    f.process();
    let last: Vec<bool> = f.driver.taken.iter().map(|c| c.last).collect();
    assert_eq!((last, f.driver.commits.len()), (vec![false, true], 0));
    f.driver.answers = [BlkStatus::Ok, BlkStatus::DevResource].into();
    f.submit(Op::Read, 200, 8);
    f.submit(Op::Read, 300, 8);
    f.queue.process(f.now, &mut f.driver);
    assert_eq!(f.driver.commits, [0]);
    f.drain();
    assert_eq!(f.sectors_taken(), [0, 100, 200, 300]);
}

#[test]
fn a_taken_zone_lets_others_pass() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    f.driver.answers = [BlkStatus::ZoneResource].into();
    f.submit(Op::Write, 0, 8);
    f.submit(Op::Write, 100, 8);
    f.submit(Op::Write, 200, 8);
    f.process();
    assert_eq!(f.sectors_taken(), [100, 200, 0]);
    assert_eq!(f.driver.budget, 997);
}

/// The next completion runs the queue, as SCSI's completion handler does.
#[test]
fn an_end_runs_the_queue_that_found_no_budget() {
    let (mut f, state) = Fixture::with_fifo(&config(), FifoState::default());
    f.driver.budget = 1;
    f.submit(Op::Read, 0, 8);
    f.submit(Op::Read, 100, 8);
    f.process();
    assert_eq!(f.sectors_taken(), [0]);
    assert_eq!((f.driver.budget, f.queue.next_event()), (0, Nanos::MAX));
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.next_event(), f.now);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100]);
    // Budget has not been refused since, so a completion leaves the queue to its delay.
    f.driver.budget = 1;
    state.lock().expect("nothing panicked").holds = true;
    f.submit(Op::Read, 200, 8);
    f.process();
    assert_eq!(f.driver.budget, 1, "what was not used is given back");
    assert_eq!(f.queue.next_event(), f.now + RESOURCE_DELAY);
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.next_event(), f.now + RESOURCE_DELAY);
    assert_eq!(f.driver.budget, 2);
}

#[test]
fn what_the_driver_had_started_goes_past_the_scheduler() {
    let (mut f, state) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    f.submit(Op::Read, 100, 8);
    f.process();
    let started = f.driver.in_flight.pop_front().expect("it was dispatched");
    f.queue.requeue_request(f.now, started, true, &mut f.driver);
    let not_started = f.driver.in_flight.pop_front().expect("it was dispatched");
    f.queue
        .requeue_request(f.now, not_started, false, &mut f.driver);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100, 0, 100]);
    let state = state.lock().expect("nothing panicked");
    let tail = |sector| (sector, InsertAt::Tail);
    assert_eq!(state.inserts, [tail(0), tail(100), (100, InsertAt::Head)]);
}

#[test]
fn what_comes_back_goes_before_what_waits() {
    let mut f = Fixture::new(&config());
    f.submit(Op::Read, 0, 8);
    f.queue.stop_hw_queue(0);
    f.submit(Op::Read, 100, 8);
    let id = f.driver.in_flight.pop_front().expect("it was issued");
    f.queue.requeue_request(f.now, id, false, &mut f.driver);
    f.process();
    assert_eq!(f.sectors_taken(), [0]);
    f.queue.start_hw_queue(f.now, 0);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 0, 100]);
}

#[test]
fn a_flush_goes_before_what_the_driver_refused() {
    let mut f = Fixture::new(&with_limits(QueueLimits {
        write_cache: true,
        ..QueueLimits::default()
    }));
    f.driver.answers = [BlkStatus::DevResource, BlkStatus::DevResource].into();
    f.submit(Op::Read, 100, 8);
    f.submit_bio(0, Bio::new(Op::Flush, Sector(0), 0));
    f.process();
    let ops: Vec<Op> = f.driver.taken.iter().map(|c| c.op).collect();
    assert_eq!(ops, [Op::Flush, Op::Read]);
}

/// Two CPUs on one hardware context, with two requests each.
fn two_cpus() -> Fixture {
    Fixture::new(&QueueConfig {
        nr_cpus: 2,
        ..config()
    })
}

#[test]
fn software_queues_take_turns_while_the_driver_is_busy() {
    for (refusals, order) in [
        (0, [0, 100, 200, 300].as_slice()),
        (2, [900, 0, 200, 100, 300].as_slice()),
    ] {
        let mut f = two_cpus();
        if refusals > 0 {
            f.driver.answers = vec![BlkStatus::DevResource; refusals].into();
            f.submit(Op::Read, 900, 8);
        }
        f.queue.stop_hw_queue(0);
        for (cpu, sector) in [(0, 0), (0, 100), (1, 200), (1, 300)] {
            f.submit_bio(cpu, Bio::new(Op::Read, Sector(sector), 8));
        }
        f.queue.start_hw_queue(f.now, 0);
        f.process();
        assert_eq!(f.sectors_taken(), order);
    }
}

/// One run gives the driver the requests of four CPUs on two sockets.
#[test]
fn requests_of_another_socket_are_counted_apart() {
    let four_hctxs = QueueConfig {
        nr_cpus: 4,
        nr_hw_queues: 4,
        ..config()
    };
    let holds = FifoState {
        holds: true,
        ..FifoState::default()
    };
    let (mut f, state) = Fixture::with_fifo(&four_hctxs, holds);
    f.queue.set_sockets(|cpu| cpu / 2);
    for (cpu, sector) in [(1, 100), (2, 200), (3, 300)] {
        f.submit_bio(cpu, Bio::new(Op::Read, Sector(sector), 8));
        f.process();
    }
    state.lock().expect("nothing panicked").holds = false;
    f.submit_bio(0, Bio::new(Op::Read, Sector(0), 8));
    f.process();
    assert_eq!(f.driver.taken.len(), 4);
    let counts = f.queue.cost_counts();
    assert_eq!((counts.foreign_issues, counts.far_issues), (3, 2));
}

#[test]
fn a_scheduler_for_all_hardware_contexts_gives_each_its_own() {
    let two_hctxs = QueueConfig {
        nr_cpus: 2,
        nr_hw_queues: 2,
        ..config()
    };
    let (mut f, _) = Fixture::with_fifo(&two_hctxs, FifoState::default());
    for (cpu, sector) in [(0, 0), (1, 100), (0, 200), (1, 300)] {
        f.submit_bio(cpu, Bio::new(Op::Read, Sector(sector), 8));
    }
    assert_eq!(f.queue.nr_hw_queues(), 2);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 200, 100, 300]);
    let hctxs: Vec<usize> = f.driver.taken.iter().map(|c| c.hctx).collect();
    assert_eq!(hctxs, [0, 0, 1, 1]);
    for hctx in 0..2 {
        assert_eq!(f.queue.hctx_stats(hctx).0.dispatched[2], 1);
    }
}

#[test]
fn a_plug_lets_go_when_it_is_full_or_large() {
    let mut f = Fixture::new(&QueueConfig {
        queue_depth: 64,
        ..config()
    });
    (0..32).for_each(|n| f.read_plugged(n * 100));
    assert!(f.driver.taken.is_empty());
    f.read_plugged(9_000);
    assert_eq!(f.driver.taken.len(), 32);
    f.unplug();
    // The size of the first request counts.
    f.submit_plugged(0, Bio::new(Op::Read, Sector(20_000), 255));
    f.read_plugged(30_000);
    assert_eq!(f.driver.taken.len(), 33);
    f.unplug();
    f.submit_plugged(0, Bio::new(Op::Read, Sector(20_000), 256));
    assert_eq!(f.driver.taken.len(), 35);
    f.read_plugged(30_000);
    assert_eq!(f.driver.taken.len(), 36);
}

#[test]
fn a_plug_inserts_by_software_queue() {
    let (mut f, _) = Fixture::with_fifo(
        &QueueConfig {
            nr_cpus: 2,
            ..config()
        },
        FifoState::default(),
    );
    f.queue.enable_trace(true);
    for (cpu, sector) in [(0, 0), (1, 100), (0, 200)] {
        f.submit_plugged(cpu, Bio::new(Op::Read, Sector(sector), 8));
    }
    f.unplug();
    let mut kinds = f.trace();
    kinds.retain(|kind| matches!(kind, TraceKind::Plug | TraceKind::Unplug(_)));
    let unplugs = [TraceKind::Plug, TraceKind::Unplug(2), TraceKind::Unplug(1)];
    assert_eq!(kinds, unplugs);
    assert_eq!(f.sectors_taken(), [0, 200, 100]);
}

/// `submit_bio_noacct`: what a bio may not be, by its end.
#[test]
fn a_bio_that_the_drive_cannot_carry_out_ends_at_once() {
    use blklab_blk::{ZoneAction, ZoneLimits};
    let limits = QueueLimits {
        capacity_sectors: 1024,
        logical_block_sectors: 8,
        max_discard_sectors: 0,
        max_write_zeroes_sectors: 0,
        ..QueueLimits::default()
    };
    let more = QueueLimits {
        max_discard_sectors: 1,
        max_write_zeroes_sectors: 1,
        zones: Some(ZoneLimits {
            zone_sectors: 256,
            capacity_sectors: 256,
            conventional: 4,
            max_open: 0,
            max_active: 0,
        }),
        ..limits.clone()
    };
    let end = |limits: &QueueLimits, op, sector, sectors| {
        let mut f = Fixture::new(&with_limits(limits.clone()));
        f.submit(op, sector, sectors);
        let ended = f.ended();
        assert_eq!(
            ended.is_empty(),
            !f.driver.taken.is_empty() || !f.queue.is_idle()
        );
        ended.first().map(|end| end.1)
    };
    let (refused, wrong) = (Some(IoStatus::NotSupported), Some(IoStatus::IoError));
    let reset = Op::Zone(ZoneAction::Reset);
    for (op, sector, sectors, expected) in [
        (Op::Read, 0, 8, None),
        (Op::Read, 1016, 8, None),
        (Op::Write, 0, 1024, None),
        (Op::Read, 1016, 16, wrong),
        (Op::Read, 1024, 8, wrong),
        (Op::Read, u64::MAX - 7, 8, wrong),
        (Op::Read, 4, 8, wrong),
        (Op::Read, 8, 4, wrong),
        (Op::Read, 8, 0, wrong),
        (Op::Write, 8, 0, wrong),
        (Op::Discard, 0, 8, refused),
        (Op::WriteZeroes, 0, 8, refused),
        (reset, 0, 0, refused),
    ] {
        let found = end(&limits, op, sector, sectors);
        assert_eq!(found, expected, "{op:?} of {sectors} at {sector}");
    }
    for op in [Op::Discard, Op::WriteZeroes] {
        assert_eq!(end(&more, op, 0, 1024), None, "{op:?}");
        assert_eq!(end(&more, op, 8, 1024), wrong, "{op:?}");
        assert_eq!(end(&more, op, 0, 0), wrong, "{op:?}");
    }
    assert_ne!(end(&more, reset, 0, 0), refused);
}

#[test]
fn an_end_can_come_between_an_unplug_and_its_insert() {
    let (mut f, state) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    f.process();
    f.read_plugged(100);
    f.driver.ends_before_insert = f.driver.in_flight.pop_front();
    f.queue.enable_trace(true);
    f.unplug();
    let wanted = |kind: &TraceKind| {
        matches!(
            kind,
            TraceKind::Unplug(_) | TraceKind::RqInsert | TraceKind::RqComplete(_)
        )
    };
    let kinds: Vec<TraceKind> = f.trace().into_iter().filter(wanted).collect();
    let ended = TraceKind::RqComplete(IoStatus::Ok);
    assert_eq!(kinds, [TraceKind::Unplug(1), ended, TraceKind::RqInsert]);
    assert_eq!(state.lock().expect("nothing panicked").completed, 1);
}

#[test]
fn what_got_no_driver_tag_begins_the_next_run() {
    let one_tag = QueueConfig {
        queue_depth: 1,
        ..config()
    };
    let (mut f, _) = Fixture::with_fifo(&one_tag, FifoState::default());
    f.submit(Op::Read, 0, 8);
    assert!(f.queue.held_request(0).is_none());
    f.submit(Op::Read, 100, 8);
    f.process();
    let held = f.queue.held_request(0).expect("it was taken");
    assert_eq!(held.sector, Sector(100));
    f.drain();
    assert!(f.queue.held_request(0).is_none());
}

/// A busy queue's requests are inserted, but of several queues only asynchronous ones, since others
/// would be delayed (`blk_mq_submit_bio`).
#[test]
fn a_busy_queue_is_passed_by_synchronous_requests_where_there_are_several() {
    for (queues, op, inserted) in [
        (1, Op::Read, 1),
        (1, Op::Write, 1),
        (2, Op::Read, 0),
        (2, Op::Write, 1),
    ] {
        let mut f = Fixture::new(&QueueConfig {
            nr_cpus: 2,
            nr_hw_queues: queues,
            ..config()
        });
        f.driver.answers = [BlkStatus::DevResource].into();
        f.submit(Op::Read, 0, 8);
        assert_eq!(f.queue.hctx_stats(0).1, 1);
        f.queue.enable_trace(true);
        f.submit(op, 100, 8);
        let is_insert = |kind: &TraceKind| matches!(kind, TraceKind::RqInsert);
        let found = f.trace().iter().filter(|kind| is_insert(kind)).count();
        assert_eq!(found, inserted, "{queues} {op:?}");
        f.drain();
        assert_eq!(f.ended().len(), 2);
    }
}

/// A scheduler with a list for each hardware context. It keeps all requests but the first until
/// that ends, and then asks for runs of the contexts in this order.
struct Asking {
    queue: ElevatorQueue,
    lists: [RqList; 3],
    sent: bool,
    order: Vec<usize>,
}

impl Elevator for Asking {
    fn queue(&self) -> &ElevatorQueue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut ElevatorQueue {
        &mut self.queue
    }

    fn is_single_queue(&self) -> bool {
        false
    }

    fn add_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize, id: RequestId) {
        self.lists[hctx].push_back(ctx.rqs, id);
    }

    fn dispatch_request(&mut self, ctx: &mut SchedCtx<'_>, hctx: usize) -> Option<RequestId> {
        let id = self
            .has_work(hctx)
            .then(|| self.lists[hctx].pop_front(ctx.rqs));
        self.sent = true;
        id.flatten()
    }

    fn has_work(&self, hctx: usize) -> bool {
        (!self.sent || self.order.is_empty()) && !self.lists[hctx].is_empty()
    }

    fn completed_request(&mut self, ctx: &mut SchedCtx<'_>, _: RequestId) {
        self.order.drain(..).for_each(|hctx| ctx.run_hw_queue(hctx));
    }
}

/// kblockd's workers are woken one after the other, in the order in which the scheduler asked.
#[test]
fn hardware_queues_run_in_the_order_asked_for() {
    for order in [[2, 0, 1], [1, 2, 0]] {
        let mut f = Fixture::new(&QueueConfig {
            nr_cpus: 3,
            nr_hw_queues: 3,
            ..config()
        });
        f.queue.set_elevator(Some(Box::new(Asking {
            queue: ElevatorQueue::new("asking", &[]),
            lists: Default::default(),
            sent: false,
            order: order.to_vec(),
        })));
        f.submit(Op::Read, 9, 8);
        f.process();
        for cpu in 0..3 {
            f.submit_bio(cpu, Bio::new(Op::Read, Sector(100 * cpu as u64), 8));
        }
        f.process();
        assert_eq!(f.sectors_taken(), [9]);
        f.queue.set_kblockd_delay(KblockdDelay {
            after: Nanos(100),
            wake: Nanos(10),
        });
        f.complete(IoStatus::Ok);
        // The first call notes what was asked for.
        f.process();
        for (before, hctx) in (0..).zip(order) {
            assert_eq!(f.queue.next_run(hctx), f.now + Nanos(110 + 10 * before));
        }
        f.now += Nanos(119);
        f.process();
        assert_eq!(f.sectors_taken(), [9, 100 * order[0] as u64]);
        f.now += Nanos(1_000);
        f.process();
        let expected = order.map(|hctx| 100 * hctx as u64);
        assert_eq!(f.sectors_taken()[1..], expected);
    }
}
