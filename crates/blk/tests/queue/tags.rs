//! Which submitters wait for a tag, and when they are woken.

use blklab_blk::{Bio, BioFlags, IoStatus, Op, QueueConfig, Sector, Submit};

use crate::{Fifo, FifoState, Fixture, config};

/// A queue with `depth` tags that are all in use.
fn full(depth: u32) -> Fixture {
    let mut f = Fixture::new(&QueueConfig {
        queue_depth: depth,
        ..config()
    });
    for n in 0..depth as u64 {
        f.submit(Op::Read, n * 100, 8);
    }
    assert!(f.waiters.is_empty());
    f
}

/// Waiters are woken an eighth of 64 tags at a time (`sbq_calc_wake_batch`).
#[test]
fn waiters_are_woken_in_batches_first_come_first_served() {
    let mut f = full(64);
    // There is no waiter yet, so these tags do not count.
    for n in 0..3 {
        f.complete(IoStatus::Ok);
        f.submit(Op::Read, 50_000 + n * 100, 8);
    }
    for n in 0..10 {
        f.submit(Op::Read, 90_000 + n * 100, 8);
    }
    let tickets: Vec<u64> = f.waiters.iter().map(|waiter| waiter.ticket).collect();
    assert_eq!(tickets.len(), 10);
    for _ in 0..7 {
        f.complete(IoStatus::Ok);
        assert_eq!(f.woken(), []);
    }
    f.complete(IoStatus::Ok);
    assert_eq!(f.woken(), tickets[..8]);
    for _ in 0..7 {
        f.complete(IoStatus::Ok);
        assert_eq!(f.woken(), []);
    }
    f.complete(IoStatus::Ok);
    assert_eq!(f.woken(), tickets[8..]);
}

#[test]
fn who_was_woken_and_finds_no_tag_waits_behind_the_others() {
    let mut f = full(4);
    f.submit(Op::Read, 90_000, 8);
    f.submit(Op::Read, 91_000, 8);
    f.complete(IoStatus::Ok);
    let first = f.waiters.remove(0);
    assert_eq!(f.woken(), [first.ticket]);
    // Another submitter was faster.
    f.submit(Op::Read, 80_000, 8);
    let again = f.queue.resume(f.now, None, first, &mut f.driver);
    let Submit::Blocked(again) = again else {
        panic!("there is no tag");
    };
    f.complete(IoStatus::Ok);
    assert_eq!(f.woken(), [f.waiters[0].ticket]);
    f.complete(IoStatus::Ok);
    assert_eq!(f.woken(), [again.ticket]);
    let done = f.queue.resume(f.now, None, again, &mut f.driver);
    assert_eq!(done, Submit::Done);
    assert_eq!(f.sectors_taken().last(), Some(&90_000));
}

#[test]
fn who_must_not_wait_is_refused() {
    let mut f = full(4);
    let read = Bio::new(Op::Read, Sector(90_000), 8);
    assert!(!f.queue.has_free_tag(0, &read));
    let flags = BioFlags::NOWAIT;
    f.submit_bio(0, Bio { flags, ..read });
    assert!(f.waiters.is_empty());
    assert_eq!(f.ended(), [(4, IoStatus::WouldBlock)]);
    f.complete(IoStatus::Ok);
    assert!(f.queue.has_free_tag(0, &read));
}

/// Otherwise the drive could wait for the plugged requests of the sleeper.
#[test]
fn who_sleeps_for_a_tag_lets_the_plug_go() {
    let mut f = Fixture::new(&QueueConfig {
        queue_depth: 2,
        ..config()
    });
    f.read_plugged(0);
    f.read_plugged(100);
    assert!(f.driver.taken.is_empty());
    f.read_plugged(200);
    assert_eq!((f.waiters.len(), f.plug.is_empty()), (1, true));
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100]);
}

/// A submitter queues for a tag before it lets its plug go (`blk_mq_get_tag`).
#[test]
fn what_the_plug_of_a_sleeper_frees_wakes_it() {
    let two_tags = QueueConfig {
        queue_depth: 2,
        ..config()
    };
    let (mut f, _) = Fixture::with_fifo(&two_tags, FifoState::default());
    // The scheduler has twice as many; at the insert the third request joins the first.
    for sector in [0, 100, 8, 200, 300] {
        f.read_plugged(sector);
    }
    let sleeper = f.waiters.remove(0);
    assert_eq!(f.woken(), [sleeper.ticket]);
    assert!(f.queue.tag_for(&sleeper).is_some());
    let done = f.queue.resume(f.now, None, sleeper, &mut f.driver);
    assert_eq!(done, Submit::Done);
}

/// The kernel calls `limit_depth` once for each request, so a sleeping submitter keeps the limit of
/// that time.
#[test]
fn who_sleeps_for_a_tag_is_not_given_another_depth() {
    let four_tags = QueueConfig {
        queue_depth: 4,
        ..config()
    };
    let limited = FifoState {
        depth: Some(4),
        min_shallow_depth: Some(1),
        ..FifoState::default()
    };
    let (mut f, state) = Fixture::with_fifo(&four_tags, limited);
    for id in 1..=12 {
        f.submit(Op::Read, id * 16, 8);
    }
    assert_eq!(f.waiters.len(), 8);
    let mut ended = 0;
    while !f.queue.is_idle() || !f.waiters.is_empty() {
        f.drain();
        ended += f.ended().len();
        for ticket in f.woken() {
            let at = f.waiters.iter().position(|w| w.ticket == ticket);
            let waiter = f.waiters.remove(at.expect("a waiter is woken once"));
            if let Submit::Blocked(again) = f.queue.resume(f.now, None, waiter, &mut f.driver) {
                f.waiters.push(again);
            }
        }
    }
    assert_eq!(ended, 12);
    assert_eq!(state.lock().expect("nothing panicked").depths_asked, 12);
}

#[test]
fn a_frozen_queue_lets_bios_in_when_it_is_thawed() {
    let mut f = Fixture::new(&config());
    f.queue.freeze();
    f.submit(Op::Read, 0, 8);
    assert!(f.queue.is_idle());
    f.queue.unfreeze();
    let waiter = f.waiters.remove(0);
    assert_eq!(f.woken(), [waiter.ticket]);
    let done = f.queue.resume(f.now, None, waiter, &mut f.driver);
    assert_eq!((done, f.driver.taken.len()), (Submit::Done, 1));
}

/// `nr_requests` without a scheduler is the number of the drive's tags in use; under a scheduler it
/// is that of the scheduler's, and the drive has all of its own again.
#[test]
fn a_scheduler_has_all_tags_of_the_drive() {
    let eight_tags = QueueConfig {
        queue_depth: 8,
        ..config()
    };
    let mut f = Fixture::new(&eight_tags);
    f.queue.set_nr_requests(4).expect("it is legal");
    (0..5).for_each(|n| f.submit(Op::Read, n * 100, 8));
    assert_eq!((f.driver.taken.len(), f.waiters.len()), (4, 1));
    f.drain();
    f.resume_woken();
    f.unplug();
    f.drain();
    f.queue
        .set_elevator(Some(Box::new(Fifo::new(FifoState::default()).0)));
    (0..10).for_each(|n| f.submit(Op::Read, n * 100, 8));
    f.process();
    assert_eq!(f.driver.in_flight.len(), 8);
    assert!(f.waiters.is_empty(), "the scheduler has twice as many");
}
