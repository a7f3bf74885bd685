//! The queue's statistics: `/sys/block/*/stat`, debugfs, CPU costs and the scheduler's counters.

use blklab_blk::{Bio, BioFlags, BlkStatus, CostCounts, IoStatus, Nanos, Op, QueueLimits, Sector};

use crate::{FifoState, Fixture, config, with_limits};

#[test]
fn requests_sectors_and_time_are_counted_by_kind() {
    let mut f = Fixture::new(&with_limits(QueueLimits {
        max_write_zeroes_sectors: 64,
        ..QueueLimits::default()
    }));
    for (op, sectors, took_ns) in [
        (Op::Read, 8, 1_000),
        (Op::Write, 16, 2_000),
        (Op::WriteZeroes, 32, 4_000),
        (Op::Discard, 64, 8_000),
    ] {
        f.submit(op, 0, sectors);
        f.now += Nanos(took_ns);
        f.complete(IoStatus::Ok);
        f.now += Nanos(500);
    }
    let counters = f.queue.counters(f.now);
    assert_eq!(counters.ios, [1, 2, 1, 0]);
    assert_eq!(counters.sectors, [8, 48, 64, 0]);
    assert_eq!(counters.ticks_ns, [1_000, 6_000, 8_000, 0]);
    assert_eq!(counters.io_ticks_ns, 15_000);
    assert_eq!(counters.merges, [0; 4]);
    assert_eq!((counters.errors, counters.requeues), (0, 0));
}

/// The kernel counts the flush command as a flush, and the bio that asked for it as an empty write.
#[test]
fn a_flush_is_counted_as_a_flush_and_as_a_write() {
    let mut f = Fixture::new(&with_limits(QueueLimits {
        write_cache: true,
        ..QueueLimits::default()
    }));
    f.submit(Op::Flush, 0, 0);
    assert_eq!(f.queue.in_flight(), [0, 1]);
    f.process();
    f.now += Nanos(700);
    f.complete(IoStatus::Ok);
    let counters = f.queue.counters(f.now);
    assert_eq!(counters.ios, [0, 1, 0, 1]);
    assert_eq!(counters.ticks_ns, [0, 700, 0, 700]);
    assert_eq!(counters.sectors, [0; 4]);
    assert_eq!(f.queue.in_flight(), [0, 0]);
}

#[test]
fn in_flight_is_counted_by_direction() {
    let mut f = Fixture::new(&config());
    f.submit(Op::Read, 0, 8);
    f.submit(Op::Write, 100, 8);
    f.submit(Op::Discard, 200, 8);
    assert_eq!(f.queue.in_flight(), [1, 2]);
    assert_eq!(f.queue.busy_requests().len(), 3);
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.in_flight(), [0, 2]);
    f.complete(IoStatus::IoError);
    assert_eq!(f.queue.in_flight(), [0, 1]);
    assert_eq!(f.queue.busy_requests().len(), 1);
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.in_flight(), [0, 0]);
    assert!(f.queue.is_idle());
}

#[test]
fn io_ticks_is_the_time_with_something_in_flight() {
    let mut f = Fixture::new(&config());
    let io_ticks_ns = |f: &Fixture| f.queue.counters(f.now).io_ticks_ns;
    f.submit(Op::Read, 0, 8);
    f.now += Nanos(300);
    f.submit(Op::Write, 100, 8);
    f.now += Nanos(100);
    f.complete(IoStatus::Ok);
    f.now += Nanos(200);
    assert_eq!(io_ticks_ns(&f), 600);
    f.complete(IoStatus::Ok);
    f.now += Nanos(400);
    assert_eq!(io_ticks_ns(&f), 600);
    f.submit(Op::Read, 0, 8);
    f.now += Nanos(50);
    assert_eq!(io_ticks_ns(&f), 650);
}

/// The counters of every scheduler: changes between reads and writes, requests merged and
/// dispatched.
fn elevator_counters(f: &Fixture) -> [u64; 3] {
    let counters = f.queue.elevator_counters();
    let names = counters.iter().map(|(name, _)| *name);
    let expected = ["direction switches", "requests merged", "dispatched"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    [0, 1, 2].map(|at| counters[at].1)
}

#[test]
fn a_scheduler_counts_switches_merges_and_dispatches() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    for (op, sector) in [(Op::Read, 0), (Op::Write, 100), (Op::Write, 200)] {
        f.submit(op, sector, 8);
    }
    // The last joins two requests.
    for sector in [300, 316, 308] {
        f.submit(Op::Read, sector, 8);
    }
    f.process();
    assert_eq!(elevator_counters(&f), [2, 1, 4]);
}

#[test]
fn counters_set_to_zero_count_from_then_on() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    f.submit(Op::Read, 8, 8);
    f.submit(Op::Read, 100, 8);
    f.process();
    f.complete(IoStatus::IoError);
    f.now += Nanos(50);
    f.queue.reset_counters(f.now);
    f.now += Nanos(30);
    let counters = f.queue.counters(f.now);
    assert_eq!((counters.ios, counters.merges), ([0; 4], [0; 4]));
    assert_eq!((counters.errors, counters.io_ticks_ns), (0, 30));
    assert_eq!(elevator_counters(&f), [0, 0, 0]);
    assert_eq!(f.queue.hctx_stats(0).0.run, 0);
    f.complete(IoStatus::Ok);
    let counters = f.queue.counters(f.now);
    assert_eq!((counters.ios[0], counters.ticks_ns[0]), (1, 80));
    f.submit(Op::Read, 200, 8);
    f.process();
    assert_eq!(elevator_counters(&f), [0, 0, 1]);
    assert_eq!(f.queue.hctx_stats(0).0.run, 1);
    let elevator = f.queue.elevator().expect("a scheduler is set");
    assert_eq!((elevator.name(), elevator.has_work(0)), ("fifo", false));
}

#[test]
fn an_error_is_counted_whether_drive_or_driver_found_it() {
    let mut f = Fixture::new(&config());
    f.submit(Op::Read, 0, 8);
    f.complete(IoStatus::IoError);
    assert_eq!(f.ended(), [(0, IoStatus::IoError)]);
    f.driver.answers = [BlkStatus::Failed(IoStatus::NoSpace)].into();
    f.submit(Op::Write, 0, 8);
    assert_eq!(f.ended(), [(1, IoStatus::NoSpace)]);
    let counters = f.queue.counters(f.now);
    assert_eq!((counters.errors, counters.ios), (2, [1, 1, 0, 0]));
    assert_eq!(f.queue.in_flight(), [0, 0]);
    assert_eq!(f.driver.budget, 1_000);
}

#[test]
fn a_bio_in_parts_ends_once_with_the_first_error() {
    let mut f = Fixture::new(&with_limits(QueueLimits {
        max_sectors: 8,
        ..QueueLimits::default()
    }));
    f.submit(Op::Read, 0, 20);
    let sectors: Vec<u32> = f.driver.taken.iter().map(|c| c.sectors).collect();
    assert_eq!(sectors, [8, 8, 4]);
    f.complete(IoStatus::Ok);
    f.complete(IoStatus::NoSpace);
    assert_eq!(f.ended(), []);
    f.complete(IoStatus::IoError);
    assert_eq!(f.ended(), [(0, IoStatus::NoSpace)]);
}

#[test]
fn what_the_driver_puts_back_is_counted_and_comes_again() {
    let mut f = Fixture::new(&config());
    f.driver.answers = [BlkStatus::DevResource].into();
    f.submit(Op::Read, 0, 8);
    assert_eq!(f.queue.counters(f.now).requeues, 1);
    let id = f.driver.in_flight.pop_front().expect("it was tried again");
    f.queue.requeue_request(f.now, id, false, &mut f.driver);
    assert_eq!(f.queue.counters(f.now).requeues, 2);
    assert!(f.queue.busy_requests().is_empty());
    f.drain();
    assert_eq!(f.ended(), [(0, IoStatus::Ok)]);
    assert_eq!(f.queue.counters(f.now).ios[0], 1);
}

#[test]
fn every_hook_of_a_request_is_called_once() {
    let (mut f, state) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    f.submit(Op::Write, 100, 8);
    f.process();
    let id = f.driver.in_flight.pop_front().expect("it was dispatched");
    f.queue.requeue_request(f.now, id, false, &mut f.driver);
    f.drain();
    let state = state.lock().expect("nothing panicked");
    assert_eq!((state.prepared, state.requeued), (2, 1));
    assert_eq!((state.completed, state.finished), (2, 2));
    assert_eq!(elevator_counters(&f)[2], 3);
}

#[test]
fn operations_that_cost_cpu_time_are_counted() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 0, 8);
    let before = f.queue.cost_counts();
    f.submit(Op::Read, 100, 9);
    f.submit(Op::Read, 200, 24);
    f.submit(Op::Read, 224, 8);
    f.submit_bio(0, Bio::new(Op::Discard, Sector(300), 1));
    f.drain();
    let costs = f.queue.cost_counts().since(&before);
    assert_eq!((costs.bios, costs.merge_attempts, costs.inserts), (4, 4, 3));
    // The request of 8 sectors is dispatched with the others. Of pages beyond the first, 9 sectors
    // have one and 32 sectors have three.
    assert_eq!((costs.dispatch_calls, costs.issues, costs.ends), (4, 4, 4));
    assert_eq!((costs.multi_page_issues, costs.further_pages), (2, 4));
    assert_eq!((costs.submits, costs.submitted_pages), (4, 3));
}

/// Its pages were pinned for the attempt, and are again for the next one.
#[test]
fn a_bio_that_is_refused_is_counted_as_submitted() {
    let limits = QueueLimits::default();
    let sectors = limits.max_request_sectors(Op::Write) + 8;
    let pages = u64::from(sectors / 8 - 1);
    let mut f = Fixture::new(&with_limits(limits));
    let before = f.queue.cost_counts();
    let flags = BioFlags::NOWAIT;
    let write = Bio::new(Op::Write, Sector(0), sectors);
    f.submit_bio(0, Bio { flags, ..write });
    assert_eq!(f.ended(), [(0, IoStatus::WouldBlock)]);
    f.submit_bio(0, write);
    let costs = f.queue.cost_counts().since(&before);
    assert_eq!((costs.submits, costs.bios), (2, 2));
    assert_eq!(
        (costs.submitted_pages, costs.written_pages),
        (2 * pages, 2 * pages)
    );
}

#[test]
fn counts_of_a_span_are_those_at_its_end_without_those_before() {
    let counts = |of: fn(u64) -> u64| CostCounts {
        submits: of(11),
        submitted_pages: of(12),
        written_pages: of(13),
        bios: of(1),
        merge_attempts: of(2),
        inserts: of(3),
        dispatch_calls: of(4),
        issues: of(5),
        multi_page_issues: of(6),
        further_pages: of(7),
        foreign_issues: of(8),
        far_issues: of(9),
        ends: of(10),
    };
    let (before, span) = (counts(|n| 100 * n), counts(|n| n));
    assert_eq!(counts(|n| 101 * n).since(&before), span);
}

#[test]
fn a_run_is_counted_by_what_the_driver_took() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    for n in 0..3 {
        f.submit(Op::Read, n * 100, 8);
    }
    f.process();
    let (stats, busy) = f.queue.hctx_stats(0);
    assert_eq!((stats.run, busy), (1, 0));
    assert_eq!(stats.dispatched, [0, 0, 1, 0, 0, 0, 0]);
}

/// The submitter of the flush is not counted as delayed by it.
#[test]
fn what_is_in_flight_beside_a_flush_is_counted() {
    let mut f = Fixture::new(&with_limits(QueueLimits {
        write_cache: true,
        fua: true,
        ..QueueLimits::default()
    }));
    f.submit(Op::Flush, 0, 0);
    f.process();
    f.submit(Op::Read, 0, 8);
    f.submit(Op::Read, 100, 8);
    f.now += Nanos(400);
    assert_eq!(f.queue.counters(f.now).behind_flush_ns, 800);
    f.now += Nanos(300);
    f.complete(IoStatus::Ok);
    f.now += Nanos(1000);
    f.complete(IoStatus::Ok);
    f.complete(IoStatus::Ok);
    assert_eq!(f.queue.counters(f.now).behind_flush_ns, 1400);
    f.submit_bio(
        0,
        Bio {
            flags: BioFlags::FUA,
            ..Bio::new(Op::Write, Sector(200), 8)
        },
    );
    f.now += Nanos(50);
    f.complete(IoStatus::Ok);
    let counters = f.queue.counters(f.now);
    assert_eq!((counters.fua_ios, counters.fua_ticks_ns), (1, 50));
    assert_eq!(counters.behind_flush_ns, 1400);
}
