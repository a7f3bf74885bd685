use super::*;
use crate::bounds::{Adversary, SOON, SOON_MS, Victim, assert_wait};
use crate::test_queue::{TestQueue, queue_info};
use blklab_blk::Sector;

fn bio(op: Op, flags: BioFlags, sector: u64, sectors: u32) -> Bio {
    Bio {
        flags,
        ..Bio::new(op, Sector(sector), sectors)
    }
}

fn serve(queue: &mut TestQueue, bio: &Bio, us: u64) {
    queue.insert(bio);
    let id = queue.dispatch().expect("has one");
    queue.now += Nanos::from_micros(us);
    queue.complete(id);
    queue.run_timer();
}

fn state(queue: &TestQueue, name: &str) -> i64 {
    let state = queue.elevator.debug_state();
    state.iter().find(|(n, _)| *n == name).unwrap().1
}

/// A queue whose models have learned that a read takes 100 us and a write 1 ms.
fn trained() -> TestQueue {
    let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
    queue.pass_ms(1);
    for i in 0..20 {
        serve(
            &mut queue,
            &bio(Op::Read, BioFlags::NONE, 8000 + i * 100, 8),
            100,
        );
        serve(
            &mut queue,
            &bio(Op::Write, BioFlags::NONE, 8000 + i * 100, 8),
            1000,
        );
    }
    queue.pass_ms(2000);
    queue.run_timer();
    // The last request in order of arrival turns the models on.
    serve(&mut queue, &bio(Op::Read, BioFlags::NONE, 4, 8), 100);
    queue
}

#[test]
fn learns_the_base_of_each_kind_and_the_slope() {
    let mut queue = trained();
    assert!(state(&queue, "lat_model_read_base").abs_diff(100_000) < 2_000);
    assert!(state(&queue, "lat_model_write_base").abs_diff(1_000_000) < 20_000);
    for i in 0..200 {
        serve(
            &mut queue,
            &bio(Op::Read, BioFlags::NONE, i * 1000, 136),
            740,
        );
    }
    queue.pass_ms(2000);
    queue.run_timer();
    serve(&mut queue, &bio(Op::Read, BioFlags::NONE, 4, 136), 740);
    // 64 KiB more take 640 us more; the base is in the sum only once.
    let slope = state(&queue, "lat_model_read_slope");
    assert!((9_000..=11_500).contains(&slope), "{slope}");
}

#[test]
fn goes_by_arrival_until_reads_and_writes_are_known() {
    let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
    for (i, op) in [Op::Write, Op::Read, Op::Write, Op::Read]
        .into_iter()
        .enumerate()
    {
        queue.insert(&bio(op, BioFlags::NONE, 1000 * i as u64, 8));
    }
    assert_eq!(queue.drain_sectors(), [0, 1000, 2000, 3000]);
}

/// The first line of `batch_actual_max`.
fn largest_batch(queue: &TestQueue) -> u64 {
    let shown = shown(queue, "batch_actual_max");
    let total = shown
        .lines()
        .next()
        .and_then(|l| l.strip_prefix("Total  : "));
    total.and_then(|n| n.parse().ok()).expect("a total")
}

#[test]
fn a_batch_fits_the_window_and_its_limits() {
    let mut queue = trained();
    for i in 0..100 {
        queue.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
    }
    queue.drain();
    // 16 ms hold 15 or 16 writes of 1 ms.
    assert!((15..=16).contains(&largest_batch(&queue)));
    let mut queue = trained();
    for i in 0..100 {
        queue.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
    }
    queue.dispatch();
    assert_eq!(largest_batch(&queue), 36);
}

#[test]
fn synchronous_writes_go_by_age_before_asynchronous_ones() {
    let mut queue = trained();
    for i in 0..5 {
        queue.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
    }
    queue.pass_ms(5);
    let sync = queue.insert(&bio(Op::Write, BioFlags::SYNC, 90_000, 8));
    assert_eq!(queue.dispatch(), sync);
}

#[test]
fn reads_go_first_in_a_batch_and_writes_are_not_starved() {
    let mut queue = trained();
    queue.insert(&bio(Op::Write, BioFlags::NONE, 0, 8));
    for i in 1..10 {
        queue.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
    }
    let ids = queue.drain();
    assert!(queue.rq(ids[9]).is_write());

    let mut queue = trained();
    let write = queue.insert(&bio(Op::Write, BioFlags::SYNC, 0, 8));
    let mut sent = 0;
    for i in 1.. {
        queue.insert(&bio(Op::Read, BioFlags::NONE, 1000 * i, 8));
        queue.now += Nanos::from_micros(100);
        let id = queue.dispatch().unwrap();
        queue.complete(id);
        if Some(id) == write {
            break;
        }
        sent += 1;
    }
    assert!(sent < 500, "the write waited for {sent} reads");
}

#[test]
fn a_discard_waits_for_what_came_before_and_is_waited_for() {
    let mut queue = trained();
    let before = queue.insert(&bio(Op::Write, BioFlags::NONE, 0, 8));
    let discard = queue.insert(&bio(Op::Discard, BioFlags::NONE, 5000, 8));
    let behind = queue.insert(&bio(Op::Read, BioFlags::SYNC, 9000, 8));
    let ids: Vec<_> = queue.drain().into_iter().map(Some).collect();
    assert_eq!(ids, [before, discard, behind]);
}

fn shown(queue: &TestQueue, name: &str) -> String {
    queue.elevator.attribute(name).expect(name)
}

fn write(queue: &mut TestQueue, name: &str, text: &str) {
    let mut attributes = ATTRIBUTES.iter();
    let attribute = attributes.find(|a| a.name == name).expect(name);
    let numbers = attribute.parse(text).expect(text);
    queue.elevator.set_attribute(name, &numbers);
}

#[test]
fn models_can_be_written_and_reset() {
    let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
    write(&mut queue, "lat_model_read", "90000 4000");
    assert_eq!(
        shown(&queue, "lat_model_read"),
        "base : 90000 ns\nslope: 4000 ns/KiB"
    );
    write(&mut queue, "reset_lat_model", "1 2 3 4 5 6");
    assert_eq!(
        shown(&queue, "lat_model_discard"),
        "base : 5 ns\nslope: 6 ns/KiB"
    );
    write(&mut queue, "reset_lat_model", "1");
    assert_eq!(
        shown(&queue, "lat_model_write"),
        "base : 0 ns\nslope: 0 ns/KiB"
    );
}

#[test]
fn a_written_model_is_used_from_the_second_request_on() {
    let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
    write(&mut queue, "reset_lat_model", "100000 0 1000000 0 0 0");
    serve(&mut queue, &bio(Op::Read, BioFlags::NONE, 0, 8), 100);
    for i in 0..100 {
        queue.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
    }
    queue.drain();
    assert_eq!(largest_batch(&queue), 16);
    assert_eq!(
        shown(&queue, "batch_actual_max"),
        "Total  : 16\nDiscard: 0\nRead   : 0\nWrite  : 16"
    );
    write(&mut queue, "reset_bq_stats", "1");
    assert!(shown(&queue, "batch_actual_max").starts_with("Total  : 0\n"));
}

#[test]
fn a_fixed_order_does_not_heed_what_is_predicted() {
    for (flags, first) in [(0, 1000), (1, 0)] {
        let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
        queue.set("compliance_flags", flags);
        queue.set("batch_limit_read", 1);
        write(&mut queue, "reset_lat_model", "100000 1000000 100000 0 0 0");
        serve(&mut queue, &bio(Op::Read, BioFlags::NONE, 9000, 8), 100);
        // The first is large: its predicted time is 124 ms.
        queue.insert(&bio(Op::Read, BioFlags::NONE, 0, 256));
        queue.insert(&bio(Op::Read, BioFlags::NONE, 1000, 8));
        let id = queue.dispatch().unwrap();
        assert_eq!(queue.rq(id).sector.0, first);
    }
}

#[test]
fn only_a_drive_with_moving_parts_has_its_batches_sorted() {
    let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
    assert!(queue.elevator.set_tunable("batch_order", 1).is_err());
    let disk = QueueInfo {
        rotational: true,
        ..queue_info()
    };
    let mut queue = TestQueue::new(Box::new(Adios::new(&disk)));
    queue.set("batch_order", 1);
    write(&mut queue, "reset_lat_model", "100000 0 100000 0 0 0");
    serve(&mut queue, &bio(Op::Read, BioFlags::NONE, 0, 8), 100);
    for sector in [900, 300, 600] {
        queue.insert(&bio(Op::Write, BioFlags::NONE, sector, 8));
    }
    assert_eq!(queue.drain_sectors(), [300, 600, 900]);
}

#[test]
fn waits_are_bounded() {
    // Requests batched before it, in two pages.
    assert_wait(
        &ADIOS,
        &[("lat_target_write", SOON_MS * 1_000_000)],
        Victim::AsyncWrite,
        Adversary::Reads,
        SOON + 2 * 36,
    );
}

/// A request that completes before the previous completion, as clocks of several CPUs may show it,
/// gives no sample (`adios_completed_request`).
#[test]
fn a_completion_before_the_last_one_is_no_sample() {
    let base_after = |completes: bool| {
        let mut queue = trained();
        let both = [0, 1000].map(|sector| {
            let read = bio(Op::Read, BioFlags::NONE, sector, 8);
            queue.insert(&read).expect("does not merge")
        });
        queue.drain();
        queue.pass_ms(5);
        queue.complete(both[0]);
        if completes {
            queue.now = queue.now.saturating_sub(Nanos::from_millis(1));
            queue.complete(both[1]);
        }
        queue.pass_ms(2000);
        queue.run_timer();
        state(&queue, "lat_model_read_base")
    };
    assert_eq!(base_after(true), base_after(false));
}

/// What is dispatched on one side turns the bias to the other, by the time that it is predicted to
/// take, and for reads by the weight of their priority.
#[test]
fn the_bias_moves_by_what_was_dispatched() {
    for (priority, weight) in [(-20, 88761), (0, 1024), (7, 215), (8, 172), (19, 15)] {
        let mut queue = trained();
        queue.set("read_priority", priority);
        assert_eq!(state(&queue, "dl_bias"), 0);
        queue.insert(&bio(Op::Read, BioFlags::NONE, 50_000, 8));
        let read = queue.dispatch().expect("has a read");
        let read_ns = state(&queue, "total_pred_lat");
        assert!(read_ns.abs_diff(100_000) < 2_000, "{read_ns}");
        let of_read = (read_ns * weight) >> 10;
        assert_eq!(state(&queue, "dl_bias"), -of_read, "priority {priority}");
        queue.insert(&bio(Op::Write, BioFlags::NONE, 60_000, 8));
        let write = queue.dispatch().expect("has a write");
        let write_ns = state(&queue, "total_pred_lat") - read_ns;
        assert!(write_ns.abs_diff(1_000_000) < 20_000, "{write_ns}");
        // A write is weighed as one of priority zero.
        assert_eq!(state(&queue, "dl_bias"), write_ns - of_read);
        queue.complete(read);
        assert_eq!(state(&queue, "total_pred_lat"), write_ns);
        queue.complete(write);
        assert_eq!(state(&queue, "total_pred_lat"), 0);
    }
}

/// A synchronous request is due when it comes, an asynchronous one a target and its own predicted
/// time later; of two sides the preferred one goes first, whichever is due.
#[test]
fn requests_of_a_side_go_by_their_deadlines() {
    let mut queue = trained();
    let late = queue.insert(&bio(Op::Write, BioFlags::NONE, 10_000, 8));
    let large = queue.insert(&bio(Op::Write, BioFlags::NONE, 20_000, 512));
    queue.pass_ms(1);
    let sync = queue.insert(&bio(Op::Write, BioFlags::SYNC, 30_000, 8));
    let fifo_time = |id: Option<RequestId>| queue.rq(id.expect("not merged")).fifo_time;
    assert_eq!(fifo_time(sync), queue.now);
    let target = queue.elevator.queue().tunables.get("lat_target_write");
    let target = target.expect("is declared") as u64;
    let from = queue.now - Nanos::from_millis(1);
    let model = fifo_time(late) - from;
    assert!(model.0.abs_diff(target + 1_000_000) < 20_000, "{model:?}");
    assert!(fifo_time(large) >= fifo_time(late));
    assert_eq!(queue.dispatch(), sync);
    assert_eq!([queue.dispatch(), queue.dispatch()], [late, large]);
}

/// The part of the window below which the next batch is made beforehand; what comes later then goes
/// behind it.
#[test]
fn the_next_batch_is_made_below_a_part_of_the_window() {
    // The first batch, two writes, is predicted to take 2 ms of a window of 10 ms.
    for (percent, is_late) in [(0, false), (20, false), (21, true), (100, true)] {
        let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
        queue.set("global_latency_window", 10_000_000);
        queue.set("bq_refill_below_ratio", percent);
        queue.set("batch_limit_write", 2);
        write(&mut queue, "reset_lat_model", "1000000 0 1000000 0 0 0");
        serve(&mut queue, &bio(Op::Read, BioFlags::NONE, 0, 8), 1000);
        for i in 1..=4 {
            queue.insert(&bio(Op::Write, BioFlags::NONE, 1000 * i, 8));
        }
        for _ in 0..2 {
            assert!(queue.dispatch().is_some());
        }
        let urgent = queue.insert(&bio(Op::Write, BioFlags::SYNC, 90_000, 8));
        let next = [queue.dispatch(), queue.dispatch()];
        assert_eq!(next[0] == urgent, !is_late, "{percent} %");
    }
}

/// A side's requests go by the millisecond of their deadline, and inside one by arrival; a merge
/// puts a request behind the others of its millisecond.
#[test]
fn a_batch_is_in_the_order_of_deadlines() {
    let mut random = 1u64;
    let mut draw = move |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        (random >> 33) % below
    };
    for round in 0..20 {
        let mut queue = TestQueue::new(Box::new(Adios::new(&queue_info())));
        queue.set("global_latency_window", 1_000_000_000);
        // 100 us for each KiB beyond 4 KiB, so that sizes order deadlines.
        write(
            &mut queue,
            "reset_lat_model",
            "100000 1000 100000 100000 0 0",
        );
        serve(&mut queue, &bio(Op::Read, BioFlags::NONE, 0, 8), 100);
        let mut waiting = Vec::new();
        for i in 0..12 {
            let flags = [BioFlags::NONE, BioFlags::SYNC][(draw(4) == 0) as usize];
            let sectors = 8 * (1 + draw(60) as u32);
            let id = queue.insert(&bio(Op::Write, flags, 10_000 * (i + 1), sectors));
            waiting.push((id.expect("touches no other"), sectors));
            if draw(3) == 0 {
                let (into, sectors) = waiting.remove(draw(waiting.len() as u64) as usize);
                let (end, flags) = (queue.rq(into).end().0, queue.rq(into).flags);
                assert_eq!(queue.merge(&bio(Op::Write, flags, end, 8)), Some(into));
                waiting.push((into, sectors));
            }
            queue.pass_ms(draw(3));
        }
        let deadline = |(id, sectors): &(RequestId, u32)| {
            let rq = queue.rq(*id);
            let due_ns = match rq.flags.has(BioFlags::SYNC) {
                true => rq.start.0,
                false => {
                    let kib = u64::from(*sectors) / 2;
                    rq.start.0 + 2_000_000_000 + 100_000 + 100_000 * kib.saturating_sub(4)
                }
            };
            due_ns >> QUANTUM_SHIFT
        };
        let target = queue.elevator.queue().tunables.get("lat_target_write");
        assert_eq!(target, Some(2_000_000_000));
        waiting.sort_by_key(deadline);
        let order: Vec<_> = waiting.iter().map(|(id, _)| *id).collect();
        assert_eq!(queue.drain(), order, "round {round}");
    }
}

/// Only requests of the preferred side change the bias.
#[test]
fn the_other_side_s_requests_leave_the_bias() {
    let mut queue = trained();
    queue.set("read_priority", 0);
    queue.insert(&bio(Op::Read, BioFlags::NONE, 50_000, 8));
    queue.dispatch().expect("has a read");
    let bias = state(&queue, "dl_bias");
    assert!(bias < 0, "writes are preferred: {bias}");
    queue.insert(&bio(Op::Read, BioFlags::NONE, 60_000, 8));
    queue.dispatch().expect("has a read");
    assert_eq!(state(&queue, "dl_bias"), bias);
}

/// Only synchronous reads may have all tags of a queue whose depth has changed.
#[test]
fn the_limit_of_tags_follows_the_depth_of_the_queue() {
    let mut adios = Adios::new(&queue_info());
    for nr_requests in [256, 64, 1_024] {
        adios.depth_updated(&QueueInfo {
            nr_requests,
            ..queue_info()
        });
        let of = |adios: &mut Adios, op| adios.limit_depth(op, BioFlags::NONE);
        assert_eq!(of(&mut adios, Op::Write), Some(nr_requests));
        assert_eq!(of(&mut adios, Op::Read), None);
    }
}
