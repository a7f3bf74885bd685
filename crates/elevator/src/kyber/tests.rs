//! The behaviour of kyber.

use super::*;
use crate::bounds::{Adversary, Victim, assert_wait};
use crate::test_queue::{TestQueue, queue_info};
use blklab_blk::Sector;

fn queue() -> TestQueue {
    TestQueue::new(Box::new(Kyber::new(&queue_info())))
}

fn bio(op: Op, sector: u64) -> Bio {
    Bio::new(op, Sector(sector), 8)
}

fn state(queue: &TestQueue, name: &str) -> i64 {
    let state = queue.elevator.debug_state();
    state.iter().find(|(n, _)| *n == name).expect(name).1
}

/// Serves `count` requests, each with this total time and this time in the drive.
fn serve(queue: &mut TestQueue, op: Op, count: u64, wait: Nanos, io: Nanos) {
    for i in 0..count {
        let id = queue.insert(&bio(op, i * 8)).expect("not merged");
        queue.now += wait;
        assert_eq!(queue.dispatch(), Some(id));
        let issued = queue.now;
        queue.now += io;
        queue.with(|_, ctx| ctx.rqs[id].io_start = issued);
        queue.complete(id);
    }
}

/// Advances time until the histograms have been checked.
fn wait_for_timer(queue: &mut TestQueue) {
    queue.now = queue.elevator.next_timer().expect("a timer is set");
    queue.run_timer();
}

#[test]
fn domains_take_turns_in_batches() {
    let mut queue = queue();
    for i in 0..40 {
        queue.insert(&bio(Op::Read, i * 100));
        queue.insert(&bio(Op::Write, 100_000 + i * 100));
        queue.insert(&bio(Op::Discard, 200_000 + i * 100));
    }
    let mut runs: Vec<(Op, u32)> = Vec::new();
    for id in queue.drain() {
        let op = queue.rq(id).op;
        match runs.last_mut() {
            Some((last, n)) if *last == op => *n += 1,
            _ => runs.push((op, 1)),
        }
    }
    assert_eq!(
        runs[..6],
        [
            (Op::Read, 16),
            (Op::Write, 8),
            (Op::Discard, 1),
            (Op::Read, 16),
            (Op::Write, 8),
            (Op::Discard, 1),
        ]
    );
}

#[test]
fn slow_reads_throttle_writes_and_free_the_reads() {
    let mut queue = queue();
    // Writes meet their target easily, reads are slow in the drive.
    serve(&mut queue, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    serve(
        &mut queue,
        Op::Read,
        600,
        Nanos(0),
        Nanos::from_micros(5000),
    );
    wait_for_timer(&mut queue);
    // Writes took a quarter of the target, so a quarter of the tokens is left.
    assert_eq!(state(&queue, "write_tokens_depth"), 32);
    assert_eq!(state(&queue, "read_tokens_depth"), 256);
    // Only that many of the following writes reach the drive.
    for i in 0..100 {
        queue.insert(&bio(Op::Write, i * 100));
    }
    assert_eq!(queue.drain().len(), 32);
    assert_eq!(state(&queue, "write_waiting"), 1);
    queue.insert(&bio(Op::Read, 0));
    assert_eq!(queue.drain().len(), 1, "a read need not wait for writes");
}

/// Each time that a domain has requests but no token is counted (`trace_kyber_throttled`).
#[test]
fn requests_and_waits_for_tokens_are_counted_by_domain() {
    let count = |queue: &TestQueue, what: &str| {
        let names = ["reads", "writes", "discards", "others"];
        names.map(|name| queue.count(&format!("{name} {what}")))
    };
    let throttled = |queue: &TestQueue| count(queue, "throttled");
    let ops = [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes];
    for (domain, op) in ops.into_iter().enumerate() {
        let mut queue = queue();
        for i in 0..=MAX_DEPTH[domain] {
            queue.insert(&bio(op, u64::from(i) * 100));
        }
        let mut expected = [0; DOMAINS];
        for _ in 0..MAX_DEPTH[domain] {
            assert!(queue.dispatch().is_some());
        }
        assert_eq!(throttled(&queue), expected, "{op:?}");
        // The batch is over, so the domain is tried once, in its turn.
        assert_eq!(queue.dispatch(), None);
        expected[domain] = 1;
        assert_eq!(throttled(&queue), expected, "{op:?}");
        // Now it is tried as the one that is being served, and in its turn.
        assert_eq!(queue.dispatch(), None);
        expected[domain] = 3;
        assert_eq!(throttled(&queue), expected, "{op:?}");
        expected[domain] = MAX_DEPTH[domain].into();
        assert_eq!(count(&queue, "dispatched"), expected, "{op:?}");
    }
}

#[test]
fn a_throttled_domain_gets_its_depth_back() {
    let mut queue = queue();
    serve(&mut queue, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    serve(&mut queue, Op::Read, 600, Nanos(0), Nanos::from_millis(5));
    wait_for_timer(&mut queue);
    assert_eq!(state(&queue, "write_tokens_depth"), 32);
    // Writes now wait too long before they get to the drive.
    serve(
        &mut queue,
        Op::Write,
        600,
        Nanos::from_millis(30),
        Nanos::from_micros(10),
    );
    wait_for_timer(&mut queue);
    assert_eq!(state(&queue, "write_tokens_depth"), 64);
}

#[test]
fn a_freed_token_runs_the_queues() {
    let mut queue = queue();
    serve(&mut queue, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    for _ in 0..3 {
        serve(&mut queue, Op::Read, 600, Nanos(0), Nanos::from_millis(5));
        serve(&mut queue, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
        wait_for_timer(&mut queue);
    }
    let depth = state(&queue, "write_tokens_depth") as usize;
    assert!(depth < 8, "{depth}");
    for i in 0..100 {
        queue.insert(&bio(Op::Write, i * 100));
    }
    let in_drive = queue.drain();
    assert_eq!(in_drive.len(), depth);
    queue.now += Nanos::from_micros(1);
    queue.complete(in_drive[0]);
    assert_eq!(queue.take_runs(), [0], "the queue is to be run");
    assert!(queue.dispatch().is_some());
}

/// A queue with a hardware context for each of so many CPUs.
fn queue_of(hctxs: u32) -> TestQueue {
    let info = QueueInfo {
        nr_hw_queues: hctxs,
        nr_cpus: hctxs,
        ..queue_info()
    };
    TestQueue::new(Box::new(Kyber::new(&info)))
}

/// Inserts so many reads through a hardware context.
fn insert_reads(queue: &mut TestQueue, hctx: usize, count: u64) {
    for i in 0..count {
        let id = queue.make(&bio(Op::Read, i * 100));
        queue.with(|e, ctx| {
            ctx.rqs[id].ctx = hctx as u16;
            let mut list = RqList::new();
            list.push_back(ctx.rqs, id);
            e.insert_requests(ctx, hctx, &mut list, InsertAt::Tail);
        });
    }
}

fn dispatch(queue: &mut TestQueue, hctx: usize) -> Option<RequestId> {
    queue.with(|e, ctx| e.dispatch_request(ctx, hctx))
}

#[test]
fn contexts_are_run_in_the_order_in_which_they_began_to_wait() {
    let mut queue = queue_of(3);
    let mut in_drive = Vec::new();
    for hctx in [0usize, 2, 1] {
        insert_reads(&mut queue, hctx, 300);
        while let Some(id) = dispatch(&mut queue, hctx) {
            in_drive.push(id);
        }
    }
    assert_eq!(in_drive.len(), MAX_DEPTH[READ] as usize);
    // The first has all tokens and waits for more, as do the others.
    for &id in &in_drive[..7] {
        queue.complete(id);
    }
    assert!(queue.take_runs().is_empty(), "a batch of tokens is awaited");
    queue.complete(in_drive[7]);
    assert_eq!(queue.take_runs(), [0, 2, 1]);
    // Each is served in its turn; those run in vain come first.
    for (turn, order) in [(1, [0, 2, 1]), (2, [2, 1, 0]), (3, [1, 0, 2])] {
        let mut tokens = Vec::new();
        for hctx in order {
            while let Some(id) = dispatch(&mut queue, hctx) {
                tokens.push(hctx);
                in_drive.push(id);
            }
        }
        assert_eq!(tokens, [order[0]; 8], "turn {turn}");
        for &id in &in_drive[8 * turn..8 * turn + 8] {
            queue.complete(id);
        }
        let order = order.map(|hctx| hctx as u16);
        assert_eq!(queue.take_runs(), [order[1], order[2], order[0]]);
    }
}

/// A context that got a token while it was waiting is no longer woken; others are
/// (`kyber_get_domain_token`).
#[test]
fn a_context_that_got_a_token_no_longer_waits() {
    let mut queue = queue_of(2);
    insert_reads(&mut queue, 0, 300);
    insert_reads(&mut queue, 1, 1);
    let mut in_drive = Vec::new();
    while let Some(id) = dispatch(&mut queue, 0) {
        in_drive.push(id);
    }
    assert_eq!(dispatch(&mut queue, 1), None);
    queue.complete(in_drive[0]);
    assert!(dispatch(&mut queue, 1).is_some());
    for &id in &in_drive[1..9] {
        queue.complete(id);
    }
    assert_eq!(queue.take_runs(), [0]);
}

/// The end of a request may be told late once it sets no timer and frees no token that is awaited.
#[test]
fn an_end_can_wait_while_a_timer_is_set_and_no_token_is_awaited() {
    let mut queue = queue();
    for i in 0..=MAX_DEPTH[OTHER] {
        queue.insert(&bio(Op::WriteZeroes, u64::from(i) * 100));
    }
    let read = queue.insert(&bio(Op::Read, 0));
    assert_eq!(queue.dispatch(), read);
    assert!(!queue.elevator.ends_can_wait(), "it sets the timer");
    queue.complete(read.expect("does not merge"));
    assert!(queue.elevator.ends_can_wait());
    assert_eq!(queue.drain().len(), MAX_DEPTH[OTHER] as usize);
    assert!(!queue.elevator.ends_can_wait(), "one waits for a token");
}

#[test]
fn few_samples_wait_for_a_second() {
    let mut queue = queue();
    let slow = |queue: &mut TestQueue| serve(queue, Op::Read, 20, Nanos(0), Nanos::from_millis(5));
    serve(&mut queue, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    slow(&mut queue);
    wait_for_timer(&mut queue);
    assert_eq!(state(&queue, "write_tokens_depth"), 128);
    queue.pass_ms(1000);
    slow(&mut queue);
    wait_for_timer(&mut queue);
    assert_eq!(state(&queue, "write_tokens_depth"), 32);
}

#[test]
fn bios_merge_with_requests_of_their_cpu_until_these_are_flushed() {
    assert!(!Kyber::merges_by_end());
    let mut queue = queue();
    let id = queue.insert(&bio(Op::Write, 0));
    assert_eq!(queue.merge(&bio(Op::Write, 8)), id);
    assert_eq!(queue.merge(&bio(Op::Read, 16)), None);
    queue.insert(&bio(Op::Write, 1000));
    queue.dispatch();
    // The second request was flushed along with the first.
    assert_eq!(queue.merge(&bio(Op::Write, 1008)), None);
}

#[test]
fn writes_that_nobody_waits_for_leave_tags_to_the_rest() {
    let mut kyber = Kyber::new(&queue_info());
    let limit = kyber.limit_depth(Op::Write, BioFlags::NONE);
    assert_eq!((limit, kyber.min_shallow_depth()), (Some(192), Some(192)));
    assert_eq!(kyber.limit_depth(Op::Write, BioFlags::SYNC), None);
    assert_eq!(kyber.limit_depth(Op::Read, BioFlags::NONE), None);
}

#[test]
fn requeue_gives_the_token_back_once() {
    let mut queue = queue();
    let id = queue.insert(&bio(Op::Write, 0)).unwrap();
    assert_eq!(queue.dispatch(), Some(id));
    queue.requeue(id);
    assert_eq!(state(&queue, "write_tokens_busy"), 0);
    assert_eq!(queue.dispatch(), Some(id));
    queue.complete(id);
    assert_eq!(state(&queue, "write_tokens_busy"), 0);
    assert_eq!(queue.in_use(), 0);
}

#[test]
fn waits_are_bounded() {
    // A batch of each other domain: 16 reads, 8 writes.
    assert_wait(&KYBER, &[], Victim::AsyncWrite, Adversary::Reads, 16);
    assert_wait(&KYBER, &[], Victim::Read, Adversary::SyncWrites, 8);
}

/// A file of debugfs' `sched`, of the queue or of its hardware context.
fn shown(queue: &mut TestQueue, hctx: Option<usize>, name: &str) -> String {
    let files = queue.with(|elevator, ctx| elevator.debug_files(ctx.rqs, hctx));
    let found = files.into_iter().find(|(known, _)| known == name);
    found.map_or_else(|| panic!("no {name}"), |(_, value)| value)
}

#[test]
fn debugfs_shows_tokens_and_the_domain_in_turn() {
    let mut queue = queue();
    // As Linux 6.12 shows them of an idle queue.
    for (domain, lines) in [
        (
            "read",
            [
                "depth=256",
                "busy=0",
                "bits_per_word=64",
                "map_nr=4",
                "wake_batch=8",
            ],
        ),
        (
            "write",
            [
                "depth=128",
                "busy=0",
                "bits_per_word=32",
                "map_nr=4",
                "wake_batch=8",
            ],
        ),
        (
            "discard",
            [
                "depth=64",
                "busy=0",
                "bits_per_word=16",
                "map_nr=4",
                "wake_batch=8",
            ],
        ),
        (
            "other",
            [
                "depth=16",
                "busy=0",
                "bits_per_word=4",
                "map_nr=4",
                "wake_batch=2",
            ],
        ),
    ] {
        let tokens = shown(&mut queue, None, &format!("{domain}_tokens"));
        for line in lines {
            assert!(
                tokens.lines().any(|of| of == line),
                "{domain}: no {line}: {tokens}"
            );
        }
    }
    assert_eq!(shown(&mut queue, Some(0), "cur_domain"), "READ");
    queue.insert(&Bio::new(Op::Write, Sector(0), 8));
    queue.insert(&Bio::new(Op::Write, Sector(800), 8));
    queue.dispatch().expect("a write");
    assert_eq!(shown(&mut queue, Some(0), "cur_domain"), "WRITE");
    assert_eq!(shown(&mut queue, Some(0), "write_waiting"), "0");
    // All of its CPU's requests have come to it, and one is left.
    assert_eq!(shown(&mut queue, Some(0), "write_rqs").lines().count(), 1);
    assert!(shown(&mut queue, None, "write_tokens").contains("\nbusy=1\n"));
}
