//! What kyber promises.

use super::*;
use crate::rig::{Rig, queue_info};
use blklab_blk::Sector;

fn rig() -> Rig {
    Rig::new(Box::new(Kyber::new(&queue_info())))
}

fn bio(op: Op, sector: u64) -> Bio {
    Bio::new(op, Sector(sector), 8)
}

fn state(rig: &Rig, name: &str) -> i64 {
    let state = rig.elevator.debug_state();
    state.iter().find(|(n, _)| *n == name).expect(name).1
}

/// Serves `count` requests that each take so long in all and in the drive.
fn serve(rig: &mut Rig, op: Op, count: u64, wait: Nanos, io: Nanos) {
    for i in 0..count {
        let id = rig.insert(&bio(op, i * 8)).expect("not merged");
        rig.now += wait;
        assert_eq!(rig.dispatch(), Some(id));
        let issued = rig.now;
        rig.now += io;
        rig.with(|_, ctx| ctx.rqs[id].io_start = issued);
        rig.complete(id);
    }
}

/// Lets time pass until the histograms were looked at.
fn wait_for_timer(rig: &mut Rig) {
    rig.now = rig.elevator.next_timer().expect("a timer is set");
    rig.run_timer();
}

#[test]
fn domains_take_turns_in_batches() {
    let mut rig = rig();
    for i in 0..40 {
        rig.insert(&bio(Op::Read, i * 100));
        rig.insert(&bio(Op::Write, 100_000 + i * 100));
        rig.insert(&bio(Op::Discard, 200_000 + i * 100));
    }
    let mut runs: Vec<(Op, u32)> = Vec::new();
    for id in rig.drain() {
        let op = rig.rq(id).op;
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
    let mut rig = rig();
    // Writes are well within their target, reads are slow in the drive.
    serve(&mut rig, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    serve(&mut rig, Op::Read, 600, Nanos(0), Nanos::from_micros(5000));
    wait_for_timer(&mut rig);
    // A quarter of the target is what the writes took, so a quarter is left.
    assert_eq!(state(&rig, "write_tokens_depth"), 32);
    assert_eq!(state(&rig, "read_tokens_depth"), 256);
    // Of the writes that come now only so many reach the drive.
    for i in 0..100 {
        rig.insert(&bio(Op::Write, i * 100));
    }
    assert_eq!(rig.drain().len(), 32);
    assert_eq!(state(&rig, "write_waiting"), 1);
    rig.insert(&bio(Op::Read, 0));
    assert_eq!(rig.drain().len(), 1, "a read need not wait for writes");
}

#[test]
fn a_throttled_domain_gets_its_depth_back() {
    let mut rig = rig();
    serve(&mut rig, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    serve(&mut rig, Op::Read, 600, Nanos(0), Nanos::from_millis(5));
    wait_for_timer(&mut rig);
    assert_eq!(state(&rig, "write_tokens_depth"), 32);
    // Writes now wait too long before they get to the drive.
    serve(
        &mut rig,
        Op::Write,
        600,
        Nanos::from_millis(30),
        Nanos::from_micros(10),
    );
    wait_for_timer(&mut rig);
    assert_eq!(state(&rig, "write_tokens_depth"), 64);
}

#[test]
fn a_freed_token_runs_the_queues() {
    let mut rig = rig();
    serve(&mut rig, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    for _ in 0..3 {
        serve(&mut rig, Op::Read, 600, Nanos(0), Nanos::from_millis(5));
        serve(&mut rig, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
        wait_for_timer(&mut rig);
    }
    let depth = state(&rig, "write_tokens_depth") as usize;
    assert!(depth < 8, "{depth}");
    for i in 0..100 {
        rig.insert(&bio(Op::Write, i * 100));
    }
    let in_drive = rig.drain();
    assert_eq!(in_drive.len(), depth);
    rig.now += Nanos::from_micros(1);
    rig.complete(in_drive[0]);
    assert_eq!(rig.take_runs(), [0], "the queue is to be run");
    assert!(rig.dispatch().is_some());
}

#[test]
fn contexts_are_run_in_the_order_in_which_they_began_to_wait() {
    let info = QueueInfo {
        nr_hw_queues: 3,
        nr_cpus: 3,
        ..queue_info()
    };
    let mut rig = Rig::new(Box::new(Kyber::new(&info)));
    let mut in_drive = Vec::new();
    for hctx in [0usize, 2, 1] {
        for i in 0..300 {
            let id = rig.make(&bio(Op::Read, i * 100));
            rig.with(|e, ctx| {
                ctx.rqs[id].ctx = hctx as u16;
                let mut list = RqList::new();
                list.push_back(ctx.rqs, id);
                e.insert_requests(ctx, hctx, &mut list, InsertAt::Tail);
            });
        }
        while let Some(id) = rig.with(|e, ctx| e.dispatch_request(ctx, hctx)) {
            in_drive.push(id);
        }
    }
    assert_eq!(in_drive.len(), MAX_DEPTH[READ] as usize);
    // The first got all tokens and waits for more; so do the others.
    for &id in &in_drive[..7] {
        rig.complete(id);
    }
    assert!(rig.take_runs().is_empty(), "a batch of tokens is awaited");
    rig.complete(in_drive[7]);
    assert_eq!(rig.take_runs(), [0, 2, 1]);
    // Each is served in its turn: who was run in vain comes first.
    for (turn, order) in [(1, [0, 2, 1]), (2, [2, 1, 0]), (3, [1, 0, 2])] {
        let mut tokens = Vec::new();
        for hctx in order {
            while let Some(id) = rig.with(|e, ctx| e.dispatch_request(ctx, hctx)) {
                tokens.push(hctx);
                in_drive.push(id);
            }
        }
        assert_eq!(tokens, [order[0]; 8], "turn {turn}");
        for &id in &in_drive[8 * turn..8 * turn + 8] {
            rig.complete(id);
        }
        let order = order.map(|hctx| hctx as u16);
        assert_eq!(rig.take_runs(), [order[1], order[2], order[0]]);
    }
}

#[test]
fn few_samples_wait_for_a_second() {
    let mut rig = rig();
    let slow = |rig: &mut Rig| serve(rig, Op::Read, 20, Nanos(0), Nanos::from_millis(5));
    serve(&mut rig, Op::Write, 600, Nanos(0), Nanos::from_micros(10));
    slow(&mut rig);
    wait_for_timer(&mut rig);
    assert_eq!(state(&rig, "write_tokens_depth"), 128);
    rig.pass_ms(1000);
    slow(&mut rig);
    wait_for_timer(&mut rig);
    assert_eq!(state(&rig, "write_tokens_depth"), 32);
}

#[test]
fn bios_merge_with_requests_of_their_cpu_until_these_are_flushed() {
    let mut rig = rig();
    let id = rig.insert(&bio(Op::Write, 0));
    assert_eq!(rig.merge(&bio(Op::Write, 8)), id);
    assert_eq!(rig.merge(&bio(Op::Read, 16)), None);
    rig.insert(&bio(Op::Write, 1000));
    rig.dispatch();
    // The second request was flushed along with the first.
    assert_eq!(rig.merge(&bio(Op::Write, 1008)), None);
}

#[test]
fn writes_that_nobody_waits_for_leave_tags_to_the_rest() {
    let mut kyber = Kyber::new(&queue_info());
    assert_eq!(kyber.limit_depth(Op::Write, BioFlags::NONE), Some(192));
    assert_eq!(kyber.limit_depth(Op::Write, BioFlags::SYNC), None);
    assert_eq!(kyber.limit_depth(Op::Read, BioFlags::NONE), None);
}

#[test]
fn requeue_gives_the_token_back_once() {
    let mut rig = rig();
    let id = rig.insert(&bio(Op::Write, 0)).unwrap();
    assert_eq!(rig.dispatch(), Some(id));
    rig.requeue(id);
    assert_eq!(state(&rig, "write_tokens_busy"), 0);
    assert_eq!(rig.dispatch(), Some(id));
    rig.complete(id);
    assert_eq!(state(&rig, "write_tokens_busy"), 0);
    assert_eq!(rig.in_use(), 0);
}
