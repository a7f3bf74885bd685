//! Which bios and requests are merged, and how merges are counted.

use blklab_blk::{
    Bio, BioFlags, CgroupId, Elevator, IoClass, IoPrio, IoStatus, MergeKind, Nanos, NoMerges, Op,
    QueueLimits, Sector,
};

use crate::{FifoState, Fixture, config, with_limits};

fn read(sector: u64, sectors: u32) -> Bio {
    Bio::new(Op::Read, Sector(sector), sectors)
}

/// Start and length of the commands that bios of one plug become.
fn plugged(limits: QueueLimits, bios: &[Bio]) -> Vec<(u64, u32)> {
    let mut f = Fixture::new(&with_limits(limits));
    bios.iter().for_each(|bio| f.submit_plugged(0, *bio));
    f.unplug();
    let taken = f.driver.taken.iter();
    taken.map(|c| (c.sector, c.sectors)).collect()
}

/// Start and length of the commands that bios in a scheduler become.
fn scheduled(limits: QueueLimits, bios: &[Bio]) -> Vec<(u64, u32)> {
    let (mut f, _) = Fixture::with_fifo(&with_limits(limits), FifoState::default());
    bios.iter().for_each(|bio| f.submit_bio(0, *bio));
    f.process();
    let taken = f.driver.taken.iter();
    taken.map(|c| (c.sector, c.sectors)).collect()
}

#[test]
fn merges_are_counted_by_kind_and_are_no_requests() {
    let mut f = Fixture::new(&config());
    for (op, first, second) in [
        (Op::Read, 0, 8),
        (Op::Write, 108, 100),
        (Op::Discard, 200, 208),
    ] {
        f.submit_plugged(0, Bio::new(op, Sector(first), 8));
        f.submit_plugged(0, Bio::new(op, Sector(second), 8));
    }
    assert_eq!(f.queue.counters(f.now).merges, [1, 1, 1, 0]);
    assert_eq!(f.queue.in_flight(), [1, 2]);
    f.unplug();
    assert_eq!(f.sectors_taken(), [0, 100, 200]);
    let bios = f.queue.bios_of(f.driver.taken[1].id);
    let sectors: Vec<u64> = bios.map(|bio| bio.sector.0).collect();
    assert_eq!(sectors, [108, 100], "in the order in which they came");
    f.drain();
    let counters = f.queue.counters(f.now);
    assert_eq!(
        (counters.ios, counters.sectors),
        ([1, 1, 1, 0], [16, 16, 16, 0])
    );
    assert_eq!(f.ended().len(), 6);
}

/// A bio that fills the gap between two requests joins them into one, which has the earlier start
/// time.
#[test]
fn a_request_that_joins_another_leaves_the_accounting() {
    assert!(crate::Fifo::merges_by_end(), "as it has the default hooks");
    let (mut f, state) = Fixture::with_fifo(&config(), FifoState::default());
    f.submit(Op::Read, 16, 8);
    f.now += Nanos(50);
    f.submit(Op::Read, 0, 8);
    assert_eq!(f.queue.in_flight(), [2, 0]);
    f.submit(Op::Read, 8, 8);
    assert_eq!(f.queue.in_flight(), [1, 0]);
    assert_eq!(f.queue.counters(f.now).merges, [2, 0, 0, 0]);
    f.process();
    f.now += Nanos(100);
    f.complete(IoStatus::Ok);
    let counters = f.queue.counters(f.now);
    assert_eq!((counters.ios[0], counters.sectors[0]), (1, 24));
    assert_eq!((counters.ticks_ns[0], counters.io_ticks_ns), (150, 150));
    assert_eq!(f.ended().len(), 3);
    assert_eq!(f.queue.cost_counts().ends, 1);
    let state = state.lock().expect("nothing panicked");
    assert_eq!((state.completed, state.finished), (1, 2));
}

/// The last bio joins two requests, and the result touches the first request.
#[test]
fn a_request_that_is_inserted_joins_those_it_touches() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    // None touches the one before it, so the plug keeps them apart.
    for sector in [100, 8, 300, 0, 200, 16] {
        f.read_plugged(sector);
    }
    assert_eq!(f.queue.in_flight(), [6, 0]);
    f.unplug();
    let taken = f.driver.taken.iter().map(|c| (c.sector, c.sectors));
    let expected = [(100, 8), (300, 8), (0, 24), (200, 8)];
    assert_eq!(taken.collect::<Vec<_>>(), expected);
    assert_eq!(f.queue.in_flight(), [4, 0]);
    assert_eq!(f.queue.counters(f.now).merges, [2, 0, 0, 0]);
    f.drain();
    assert_eq!(f.ended().len(), 6);
    assert!(f.queue.is_idle());
}

#[test]
fn only_one_kind_is_merged() {
    let prio = IoPrio {
        class: IoClass::Rt,
        level: 0,
    };
    let second = read(8, 8);
    for other in [
        Bio::new(Op::Write, Sector(8), 8),
        Bio { prio, ..second },
        Bio {
            cgroup: CgroupId(1),
            ..second
        },
        Bio {
            flags: BioFlags::NOMERGE,
            ..second
        },
        read(9, 8),
    ] {
        let all = QueueLimits::default;
        assert_eq!(plugged(all(), &[read(0, 8), other]).len(), 2, "{other:?}");
        assert_eq!(scheduled(all(), &[read(0, 8), other]).len(), 2, "{other:?}");
    }
    assert_eq!(
        plugged(QueueLimits::default(), &[read(0, 8), second]),
        [(0, 16)]
    );
}

/// A request that was once too large for a bio is not tried again (`req_set_nomerge`).
#[test]
fn a_request_that_is_full_once_stays_so() {
    let limits = || QueueLimits {
        max_sectors: 20,
        ..QueueLimits::default()
    };
    let fits = [read(0, 8), read(8, 12)];
    assert_eq!(plugged(limits(), &fits), [(0, 20)]);
    let full = [read(0, 8), read(8, 13), read(8, 4)];
    assert_eq!(plugged(limits(), &full)[0], (0, 8));
    assert_eq!(scheduled(limits(), &full)[0], (0, 8));
}

/// Each page of a bio is a memory segment.
#[test]
fn memory_segments_limit_a_merge() {
    let limits = QueueLimits {
        max_segments: 4,
        ..QueueLimits::default()
    };
    let bios: Vec<Bio> = (0..6).map(|sector| read(sector, 1)).collect();
    assert_eq!(plugged(limits, &bios), [(0, 4), (4, 2)]);
}

#[test]
fn requests_are_joined_within_the_limits() {
    let hole = [read(0, 8), read(16, 8), read(8, 8)];
    let of = |max_sectors, max_segments| QueueLimits {
        max_sectors,
        max_segments,
        ..QueueLimits::default()
    };
    assert_eq!(scheduled(of(24, 3), &hole), [(0, 24)]);
    assert_eq!(scheduled(of(23, 3), &hole), [(0, 16), (16, 8)]);
    assert_eq!(scheduled(of(24, 2), &hole), [(0, 16), (16, 8)]);
    let full = [hole[0], hole[1], hole[2], read(24, 8)];
    assert_eq!(scheduled(of(64, 3), &full), [(0, 24), (24, 8)]);
}

#[test]
fn nomerges_stops_the_search() {
    let bios = [read(0, 8), read(100, 8), read(8, 8)];
    let of = |nomerges| QueueLimits {
        nomerges,
        ..QueueLimits::default()
    };
    assert_eq!(scheduled(of(NoMerges::All), &bios).len(), 2);
    // The request inserted first counts as the last merge until there is one.
    assert_eq!(scheduled(of(NoMerges::OneHit), &bios).len(), 2);
    let not_last = [read(0, 8), read(100, 8), read(108, 8)];
    assert_eq!(scheduled(of(NoMerges::All), &not_last).len(), 2);
    assert_eq!(scheduled(of(NoMerges::OneHit), &not_last).len(), 3);
    assert_eq!(scheduled(of(NoMerges::Never), &bios).len(), 3);
    assert_eq!(plugged(of(NoMerges::Never), &bios[..1]).len(), 1);
    assert_eq!(
        plugged(of(NoMerges::Never), &[read(0, 8), read(8, 8)]).len(),
        2
    );
}

/// A front merge does not change the end, by which the request is found.
#[test]
fn a_request_is_found_by_its_end_after_a_front_merge() {
    let (mut f, state) = Fixture::with_fifo(&config(), FifoState::default());
    // Another request is the last merge when the last bio arrives.
    for sector in [100, 92, 300, 308, 108] {
        f.submit(Op::Read, sector, 8);
    }
    f.process();
    let taken = f.driver.taken.iter().map(|c| (c.sector, c.sectors));
    assert_eq!(taken.collect::<Vec<_>>(), [(92, 24), (300, 16)]);
    let (front, back) = (MergeKind::Front, MergeKind::Back);
    let state = state.lock().expect("nothing panicked");
    assert_eq!(state.bio_merges, [front, back, back]);
}

#[test]
fn the_request_merged_last_is_tried_first() {
    let (mut f, _) = Fixture::with_fifo(&config(), FifoState::default());
    for sector in [0, 100, 108] {
        f.submit(Op::Read, sector, 8);
    }
    f.queue.limits_mut().nomerges = NoMerges::OneHit;
    f.submit(Op::Read, 8, 8);
    assert_eq!(f.queue.counters(f.now).merges[0], 1);
    f.submit(Op::Read, 116, 8);
    assert_eq!(f.queue.counters(f.now).merges[0], 2);
}

/// Without a scheduler the youngest eight requests of the CPU's own software queue are tried.
#[test]
fn a_software_queue_is_searched_eight_deep() {
    let mut f = Fixture::new(&config());
    f.queue.stop_hw_queue(0);
    for n in 0..9 {
        f.submit(Op::Read, n * 100, 8);
    }
    f.submit(Op::Read, 108, 8);
    assert_eq!(f.queue.counters(f.now).merges[0], 1);
    f.submit(Op::Read, 8, 8);
    assert_eq!(f.queue.counters(f.now).merges[0], 1);
}

#[test]
fn discards_of_several_ranges_share_a_command() {
    let discard = |sector| Bio::new(Op::Discard, Sector(sector), 8);
    let limits = QueueLimits {
        max_discard_segments: 3,
        ..QueueLimits::default()
    };
    let bios = [discard(0), discard(100), discard(200), discard(300)];
    let commands = plugged(limits, &bios);
    assert_eq!(commands, [(0, 24), (300, 8)]);
    // Each has one range, so only adjacent discards are merged.
    let touching = [discard(0), discard(8), discard(100)];
    assert_eq!(
        plugged(QueueLimits::default(), &touching),
        [(0, 16), (100, 8)]
    );
}

/// Two files that are read by turns: each bio continues a request that is not the one merged last,
/// so that it is found by its end, which each merge moves, or by its start, which leaves the end.
#[test]
fn a_request_is_found_by_its_end_however_it_grew() {
    let bios = [
        read(1_000, 8),
        read(2_000, 8),
        read(1_008, 8),
        read(2_008, 8),
        read(1_016, 8),
        read(2_016, 8),
        read(992, 8),
        read(1_992, 8),
        read(1_024, 8),
        read(2_024, 8),
        read(984, 8),
        read(1_984, 8),
        read(1_032, 8),
        read(2_032, 8),
    ];
    let grown = scheduled(QueueLimits::default(), &bios);
    assert_eq!(grown, [(984, 56), (1_984, 56)]);
}
