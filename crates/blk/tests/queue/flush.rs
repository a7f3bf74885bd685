//! PREFLUSH and FUA: the commands that the drive gets, and when the bio ends.

use blklab_blk::{
    Bio, BioFlags, CostCounts, InsertAt, IoStatus, KblockdDelay, Nanos, Op, QueueConfig,
    QueueLimits, Sector,
};

use crate::{FifoState, Fixture, with_limits};

const FUA: BioFlags = BioFlags::FUA;
const PREFLUSH: BioFlags = BioFlags::PREFLUSH;

fn write_cache(fua: bool) -> QueueLimits {
    QueueLimits {
        write_cache: true,
        fua,
        ..QueueLimits::default()
    }
}

fn write(sector: u64, flags: BioFlags) -> Bio {
    Bio {
        flags,
        ..Bio::new(Op::Write, Sector(sector), 8)
    }
}

/// Returns the commands of a write, completed one by one; the bio must end with the last. `F` is a
/// flush, `W` a write and `U` a write with FUA.
fn commands(mut f: Fixture, flags: BioFlags) -> String {
    f.submit_bio(0, write(100, flags));
    f.process();
    while !f.driver.in_flight.is_empty() {
        assert_eq!(f.ended(), []);
        f.complete(IoStatus::Ok);
        f.process();
    }
    assert_eq!(f.ended(), [(0, IoStatus::Ok)]);
    assert!(f.queue.is_idle());
    let command = |c: &crate::Command| match c.op {
        Op::Flush => 'F',
        _ if c.flags.has(PREFLUSH) => 'P',
        _ if c.flags.has(FUA) => 'U',
        _ => 'W',
    };
    f.driver.taken.iter().map(command).collect()
}

#[test]
fn the_drive_decides_which_steps_a_write_takes() {
    let none = QueueLimits {
        fua: true,
        ..QueueLimits::default()
    };
    for (limits, flags, expected) in [
        (none.clone(), FUA.with(PREFLUSH), "W"),
        (write_cache(true), BioFlags::NONE, "W"),
        (write_cache(true), FUA, "U"),
        (write_cache(true), PREFLUSH, "FW"),
        (write_cache(true), FUA.with(PREFLUSH), "FU"),
        (write_cache(false), FUA, "WF"),
        (write_cache(false), PREFLUSH, "FW"),
        (write_cache(false), FUA.with(PREFLUSH), "FWF"),
    ] {
        let config = with_limits(limits);
        assert_eq!(commands(Fixture::new(&config), flags), expected);
        let (f, _) = Fixture::with_fifo(&config, FifoState::default());
        assert_eq!(commands(f, flags), expected);
    }
}

#[test]
fn a_flush_of_a_drive_without_cache_ends_at_once() {
    let mut f = Fixture::new(&with_limits(QueueLimits::default()));
    f.submit(Op::Flush, 0, 0);
    assert_eq!(f.ended(), [(0, IoStatus::Ok)]);
    assert!(f.driver.taken.is_empty() && f.queue.is_idle());
}

#[test]
fn data_of_a_sequence_goes_to_the_head_and_tells_the_scheduler_twice() {
    let (mut f, state) = Fixture::with_fifo(&with_limits(write_cache(false)), FifoState::default());
    f.submit_bio(0, write(100, PREFLUSH.with(FUA)));
    f.drain();
    let state = state.lock().expect("nothing panicked");
    assert_eq!(state.inserts, [(100, InsertAt::Head)]);
    assert_eq!((state.completed, state.finished), (2, 1));
}

#[test]
fn one_flush_serves_all_that_wait_for_it() {
    let mut f = Fixture::new(&with_limits(write_cache(false)));
    f.submit_bio(0, write(0, FUA));
    f.submit_bio(0, write(100, FUA));
    f.complete(IoStatus::Ok);
    f.process();
    assert_eq!(f.driver.taken.len(), 2, "the other's data is under way");
    f.complete(IoStatus::Ok);
    f.process();
    assert_eq!(f.driver.taken.len(), 3);
    f.complete(IoStatus::Ok);
    assert_eq!(f.ended(), [(0, IoStatus::Ok), (1, IoStatus::Ok)]);
    assert_eq!(f.queue.counters(f.now).ios, [0, 2, 0, 1]);
}

/// `blk_mq_kick_requeue_list` has a worker of kblockd issue it, which takes its time to be woken,
/// and whose work is counted as that of other runs.
#[test]
fn kblockd_issues_a_flush() {
    let mut f = Fixture::new(&with_limits(write_cache(false)));
    f.queue.set_kblockd_delay(KblockdDelay {
        after: Nanos(100),
        wake: Nanos(10),
    });
    f.submit(Op::Flush, 0, 0);
    assert_eq!(f.queue.next_event(), f.now + Nanos(110));
    f.now += Nanos(50);
    // A later one does not put it off.
    f.submit(Op::Flush, 0, 0);
    f.process();
    assert!(f.driver.taken.is_empty());
    f.now += Nanos(60);
    let mut runs = Vec::new();
    let mut on_run = |hctx, steps: CostCounts| runs.push((hctx, steps.issues));
    f.queue.process_each(f.now, &mut f.driver, &mut on_run);
    assert_eq!(runs, [(0, 1)]);
    assert_eq!(f.driver.taken.len(), 1);
}

/// The driver tag is free although the sequence continues.
#[test]
fn the_end_of_data_lets_others_go() {
    let two_tags = QueueConfig {
        queue_depth: 2,
        ..with_limits(write_cache(false))
    };
    let (mut f, _) = Fixture::with_fifo(&two_tags, FifoState::default());
    f.submit_bio(0, write(0, FUA));
    f.submit_bio(0, write(100, FUA));
    f.submit(Op::Read, 200, 8);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100]);
    f.complete(IoStatus::Ok);
    f.process();
    assert_eq!(f.sectors_taken(), [0, 100, 200]);
    f.drain();
    assert_eq!(f.ended().len(), 3);
}

#[test]
fn flushes_that_come_during_one_share_the_next() {
    let mut f = Fixture::new(&with_limits(write_cache(false)));
    f.submit(Op::Flush, 0, 0);
    f.process();
    f.submit(Op::Flush, 0, 0);
    f.submit(Op::Flush, 0, 0);
    f.process();
    assert_eq!(f.driver.taken.len(), 1);
    f.complete(IoStatus::Ok);
    f.process();
    assert_eq!(f.ended(), [(0, IoStatus::Ok)]);
    assert_eq!(f.driver.taken.len(), 2);
    f.complete(IoStatus::Ok);
    f.process();
    assert_eq!(f.ended(), [(1, IoStatus::Ok), (2, IoStatus::Ok)]);
    assert_eq!(f.driver.taken.len(), 2);
}

/// `FLUSH_PENDING_TIMEOUT`.
#[test]
fn a_flush_does_not_wait_for_data_longer_than_five_seconds() {
    for (wait_ns, flushes) in [(4_999_999_999, 0), (5_000_000_000, 1)] {
        let mut f = Fixture::new(&with_limits(write_cache(false)));
        (0..3).for_each(|n| f.submit_bio(0, write(n * 100, FUA)));
        f.complete(IoStatus::Ok);
        f.now += Nanos(wait_ns);
        f.complete(IoStatus::Ok);
        f.process();
        assert_eq!(f.driver.taken.len(), 3 + flushes);
    }
}

#[test]
fn an_error_ends_the_sequence() {
    let mut f = Fixture::new(&with_limits(write_cache(false)));
    f.submit_bio(0, write(0, PREFLUSH));
    f.process();
    f.complete(IoStatus::IoError);
    f.process();
    assert_eq!(f.ended(), [(0, IoStatus::IoError)]);
    assert_eq!(f.driver.taken.len(), 1, "its data is not written");
    f.submit_bio(0, write(0, FUA));
    f.complete(IoStatus::NoSpace);
    f.process();
    assert_eq!(f.ended(), [(1, IoStatus::NoSpace)]);
    assert_eq!(f.driver.taken.len(), 2, "nothing is left to flush");
    assert!(f.queue.is_idle());
}

fn command(op: Op, sector: u64, sectors: u32) -> Bio {
    Bio {
        flags: BioFlags::PASSTHROUGH,
        ..Bio::new(op, Sector(sector), sectors)
    }
}

/// The kernel drops the flushes of bios for a drive without a cache, and combines those for a drive
/// with a cache; a passthrough flush is left as it is.
#[test]
fn a_passthrough_flush_is_the_drives_business() {
    for limits in [QueueLimits::default(), write_cache(false)] {
        let mut f = Fixture::new(&with_limits(limits));
        for _ in 0..2 {
            f.submit_bio(0, command(Op::Flush, 0, 0));
        }
        f.process();
        let taken: Vec<Op> = f.driver.taken.iter().map(|c| c.op).collect();
        assert_eq!(taken, [Op::Flush, Op::Flush]);
        assert_eq!(f.ended(), []);
        f.drain();
        assert_eq!(f.ended(), [(0, IoStatus::Ok), (1, IoStatus::Ok)]);
        assert!(f.queue.is_idle());
    }
}

#[test]
fn a_passthrough_write_with_fua_goes_as_it_is() {
    let mut f = Fixture::new(&with_limits(QueueLimits::default()));
    let write = command(Op::Write, 0, 8);
    let flags = write.flags.with(FUA);
    f.submit_bio(0, Bio { flags, ..write });
    f.drain();
    assert!(f.driver.taken[0].flags.has(FUA));
}

#[test]
fn a_scheduler_hears_nothing_of_passthrough() {
    let (mut f, state) = Fixture::with_fifo(
        &with_limits(QueueLimits::default()),
        FifoState {
            holds: true,
            ..FifoState::default()
        },
    );
    f.submit_plugged(0, command(Op::Write, 0, 8));
    f.submit_plugged(0, command(Op::Write, 8, 8));
    f.submit_plugged(0, Bio::new(Op::Write, Sector(16), 8));
    f.unplug();
    f.submit_bio(0, command(Op::Write, 24, 8));
    f.drain();
    assert_eq!(f.sectors_taken(), [0, 8, 24], "none was merged or held");
    let state = state.lock().expect("nothing panicked");
    assert_eq!(state.inserts, [(16, InsertAt::Tail)]);
    assert_eq!((state.depths_asked, state.prepared), (1, 1));
    assert_eq!((state.completed, state.finished), (0, 0));
}

#[test]
fn a_passthrough_command_is_not_split() {
    let limits = QueueLimits::default();
    let most = limits.max_request_sectors(Op::Read);
    let mut f = Fixture::new(&with_limits(limits));
    f.submit_bio(0, command(Op::Read, 0, most + 8));
    assert_eq!(f.ended(), [(0, IoStatus::Invalid)]);
    assert!(f.driver.taken.is_empty() && f.queue.is_idle());
}

/// Requests that do not ask for a flush are delayed while flushes run, one after the other; those
/// that ask for the next flush are not among them.
#[test]
fn flushes_delay_what_did_not_ask_for_them_and_nothing_later() {
    let mut f = Fixture::new(&with_limits(write_cache(false)));
    let behind_flush_ns = |f: &Fixture| f.queue.counters(f.now).behind_flush_ns;
    f.submit(Op::Flush, 0, 0);
    f.process();
    f.submit(Op::Flush, 0, 0);
    f.submit(Op::Flush, 0, 0);
    f.submit(Op::Read, 0, 8);
    f.process();
    f.now += Nanos(100);
    assert_eq!(behind_flush_ns(&f), 100);
    f.complete(IoStatus::Ok);
    f.process();
    f.now += Nanos(10);
    assert_eq!(behind_flush_ns(&f), 110);
    // The second flush ends, the read does not.
    let read = f.driver.in_flight.pop_front();
    f.complete(IoStatus::Ok);
    f.process();
    f.now += Nanos(1000);
    assert_eq!(behind_flush_ns(&f), 110);
    f.driver.in_flight.extend(read);
    f.complete(IoStatus::Ok);
    assert!(f.queue.is_idle());
    let counters = f.queue.counters(f.now);
    assert_eq!((counters.ios[3], counters.ticks_ns[3]), (2, 110));
}
