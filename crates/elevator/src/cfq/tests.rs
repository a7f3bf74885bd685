//! The behaviour of cfq.

use super::*;
use crate::bounds::{Adversary, Victim, assert_wait};
use crate::test_queue::{TestQueue, queue_info};
use blklab_blk::{BioFlags, MergeKind, Op, SubmitterId};

fn disk() -> TestQueue {
    let info = QueueInfo {
        rotational: true,
        ..queue_info()
    };
    TestQueue::new(Box::new(Cfq::new(&info)))
}

fn read(process: u32, sector: u64) -> Bio {
    Bio {
        submitter: SubmitterId(process),
        ..Bio::new(Op::Read, Sector(sector), 8)
    }
}

/// Serves readers that always have a few requests queued, one request at a time, each for a
/// millisecond; returns the number of requests of each reader.
fn served(queue: &mut TestQueue, readers: &[Bio], ms: u64) -> Vec<u64> {
    let mut next: Vec<u64> = (0..readers.len() as u64).map(|p| p << 24).collect();
    let add = |queue: &mut TestQueue, next: &mut [u64], p: usize| {
        let bio = Bio {
            sector: Sector(next[p]),
            submitter: SubmitterId(p as u32),
            ..readers[p]
        };
        next[p] += 1024;
        queue.insert(&bio);
    };
    for p in 0..readers.len() {
        (0..4).for_each(|_| add(queue, &mut next, p));
    }
    let mut served = vec![0; readers.len()];
    for _ in 0..ms {
        let id = queue.dispatch();
        queue.pass_ms(1);
        if let Some(id) = id {
            let p = queue.rq(id).submitter.0 as usize;
            queue.complete(id);
            served[p] += 1;
            add(queue, &mut next, p);
        }
        queue.run_timer();
    }
    served
}

fn shares(readers: &[IoPrio], ms: u64) -> Vec<u64> {
    let bio = |&prio: &IoPrio| Bio { prio, ..read(0, 0) };
    let readers: Vec<Bio> = readers.iter().map(bio).collect();
    served(&mut disk(), &readers, ms)
}

/// The share that each control group gets when all of its processes, of the given number, have
/// enough work.
fn shares_of_groups(mut queue: TestQueue, groups: &[(u32, usize)]) -> Vec<f64> {
    let mut readers = Vec::new();
    for (&(weight, processes), group) in groups.iter().zip(1..) {
        queue.elevator.set_cgroup_weight(CgroupId(group), weight);
        let cgroup = CgroupId(group);
        let bio = Bio {
            cgroup,
            ..read(0, 0)
        };
        readers.extend(vec![bio; processes]);
    }
    let got = served(&mut queue, &readers, 60_000);
    let total: u64 = got.iter().sum();
    assert!(total > 50_000, "{got:?}");
    let mut got = got.iter();
    let mut of_group = |n: usize| got.by_ref().take(n).sum::<u64>() as f64 / total as f64;
    groups.iter().map(|&(_, n)| of_group(n)).collect()
}

#[test]
fn shares_follow_the_weights_of_groups() {
    let ssd = || TestQueue::new(Box::new(Cfq::new(&queue_info())));
    let cases: [&[(u32, usize)]; 3] = [
        &[(200, 1), (100, 1)],
        &[(1000, 1), (100, 1)],
        &[(300, 1), (100, 5), (200, 2)],
    ];
    for groups in cases {
        let weights: u32 = groups.iter().map(|&(weight, _)| weight).sum();
        for queue in [disk(), ssd()] {
            let shares = shares_of_groups(queue, groups);
            for (share, &(weight, _)) in shares.iter().zip(groups) {
                let due = weight as f64 / weights as f64;
                assert!((share - due).abs() < 0.03, "{groups:?}: {shares:?}");
            }
        }
    }
}

/// Two processes read far from each other, and the request of the first has completed.
fn first_is_served(queue: &mut TestQueue) -> RequestId {
    let first = queue.insert(&read(0, 1000)).unwrap();
    let other = queue.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(queue.dispatch(), Some(first));
    queue.pass_ms(4);
    queue.complete(first);
    queue.run_timer();
    other
}

#[test]
fn a_process_that_ends_is_not_waited_for() {
    let mut queue = disk();
    let other = first_is_served(&mut queue);
    assert_eq!(queue.dispatch(), None);
    queue.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(0)));
    assert!(queue.run_timer());
    assert_eq!(queue.dispatch(), Some(other));
}

/// A process that comes and exits again and again takes no more room than once; one that leaves
/// requests behind is forgotten with the last of them.
#[test]
fn processes_that_ended_leave_nothing_behind() {
    let mut queue = disk();
    for round in 0..1000 {
        let id = queue.insert(&read(round, 1000)).unwrap();
        queue.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(round)));
        assert_eq!(queue.dispatch(), Some(id));
        queue.pass_ms(1);
        queue.complete(id);
        queue.run_timer();
    }
    assert_eq!(queue.in_use(), 0);
    let state = queue.elevator.debug_state();
    assert!(state.contains(&("processes", 0)), "{state:?}");
    // The empty queue of the last one, which is still active.
    assert!(state.contains(&("queues", 1)), "{state:?}");
}

#[test]
fn equal_readers_get_equal_shares() {
    let served = shares(&[IoPrio::default(); 4], 8_000);
    let total: u64 = served.iter().sum();
    assert!(total > 7_000, "{served:?}");
    for share in &served {
        assert!(share.abs_diff(total / 4) < total / 20, "{served:?}");
    }
}

#[test]
fn a_higher_level_gets_more_and_a_lower_class_nothing_meanwhile() {
    let level = |level| IoPrio {
        class: IoClass::Be,
        level,
    };
    let idle = IoPrio {
        class: IoClass::Idle,
        level: 7,
    };
    let served = shares(&[level(0), level(4), level(7), idle], 20_000);
    assert!(served[0] > served[1] && served[1] > served[2], "{served:?}");
    assert_eq!(served[3], 0, "{served:?}");
    let real_time = IoPrio {
        class: IoClass::Rt,
        level: 4,
    };
    let served = shares(&[real_time, level(0)], 2_000);
    assert_eq!(served[1], 0, "{served:?}");
}

#[test]
fn waits_for_a_sequential_reader_s_next_request() {
    let mut queue = disk();
    let first = queue.insert(&read(0, 1000)).unwrap();
    queue.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(queue.dispatch(), Some(first));
    queue.pass_ms(4);
    queue.complete(first);
    queue.run_timer();
    assert_eq!(queue.dispatch(), None);
    assert_eq!(queue.count("times idled"), 1);
    let second = queue.insert(&read(0, 1008)).unwrap();
    assert_eq!(queue.dispatch(), Some(second));
}

#[test]
fn gives_up_waiting_after_slice_idle() {
    let mut queue = disk();
    let other = first_is_served(&mut queue);
    assert_eq!(queue.dispatch(), None);
    queue.pass_ms(8);
    assert!(queue.run_timer());
    assert_eq!(queue.dispatch(), Some(other));
}

#[test]
fn does_not_wait_on_an_ssd() {
    let mut queue = TestQueue::new(Box::new(Cfq::new(&queue_info())));
    assert_eq!(queue.elevator.tunables().get("slice_idle"), Some(0));
    let other = first_is_served(&mut queue);
    assert_eq!(queue.dispatch(), Some(other));
    assert_eq!(queue.count("times idled"), 0);
}

#[test]
fn a_synchronous_request_preempts_asynchronous_ones() {
    let mut queue = disk();
    for i in 0..8 {
        queue.insert(&Bio::new(Op::Write, Sector(i * 1000), 8));
    }
    queue.dispatch().unwrap();
    let read = queue.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(queue.count("preemptions"), 1);
    // It waits for the write in the drive, because it would idle.
    let next = queue.dispatch();
    assert!(next.is_none() || next == Some(read));
}

/// Real time preempts best effort, and every class preempts the idle class (`cfq_should_preempt`).
#[test]
fn only_a_higher_class_preempts_a_queue_that_has_requests() {
    let of = |class, process, sector| Bio {
        prio: IoPrio { class, level: 4 },
        ..read(process, sector)
    };
    let classes = [IoClass::Idle, IoClass::Be, IoClass::Rt];
    for (active, new) in (0..9).map(|n| (n / 3, n % 3)) {
        let mut queue = disk();
        for i in 0..4 {
            queue.insert(&of(classes[active], 0, i * 1000));
        }
        queue.dispatch().expect("the first process's");
        queue.insert(&of(classes[new], 1, 9_000_000));
        let found = queue.count("preemptions") > 0;
        assert_eq!(
            found,
            new > active,
            "{:?} {:?}",
            classes[active],
            classes[new]
        );
    }
}

#[test]
fn does_not_merge_across_processes() {
    let mut queue = disk();
    queue.insert(&read(0, 1000)).unwrap();
    queue.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(queue.merge(&read(1, 1008)), None);
    assert!(queue.merge(&read(0, 1008)).is_some());
}

#[test]
fn waits_are_bounded() {
    // Its place in the order of service trees and the current slices: a second, by which a queue
    // that takes over a used-up slice goes ahead of its tree; the slices of two busy queues of
    // level 0 less its own; two slices.
    let bound = 1_000 + 2 * (180 - 100) + 2 * 100;
    assert_wait(&CFQ, &[], Victim::AsyncWrite, Adversary::Reads, bound);
    assert_wait(&CFQ, &[], Victim::Read, Adversary::SyncWrites, bound);
}

#[test]
fn a_survivor_takes_over_the_earlier_deadline_and_its_place() {
    let mut queue = disk();
    let next = queue.insert(&read(0, 10_016)).unwrap();
    queue.pass_ms(100);
    queue.insert(&read(0, 100));
    let survivor = queue.insert(&read(0, 10_000)).unwrap();
    let merged = queue.fill_hole(survivor, next, MergeKind::Back);
    assert_eq!(merged, Some(survivor));
    assert_eq!(queue.merged_away(), [next]);
    queue.pass_ms(40);
    // Its own deadline has not passed, and the other request is nearer.
    assert_eq!(queue.dispatch(), Some(survivor));
    assert_eq!(queue.count("expired deadlines"), 1);
}

#[test]
fn a_request_that_starts_earlier_is_found_there() {
    let mut queue = disk();
    let low = queue.insert(&read(0, 100));
    let high = queue.insert(&read(0, 200));
    assert_eq!(queue.merge(&read(0, 192)), high);
    assert_eq!(queue.merge(&read(0, 92)), low);
    assert_eq!(queue.merge(&read(0, 184)), high);
    assert_eq!(queue.merge(&read(0, 84)), low);
    assert_eq!(queue.drain_sectors(), [84, 184]);
}

#[test]
fn think_time_is_a_mean_that_fades_by_an_eighth() {
    let mut think_time = ThinkTime::default();
    for (last_end, now, samples, total, mean) in [
        (100, 104, 32, 128, 8),
        (110, 112, 60, 176, 5),
        // At most twice the idle time: 16.
        (120, 400, 84, 666, 9),
    ] {
        assert!(!think_time.is_known());
        think_time.last_end = last_end;
        think_time.update(now, 8);
        let found = (think_time.samples, think_time.total, think_time.mean);
        assert_eq!(found, (samples, total, mean));
    }
    assert!(think_time.is_longer_than(8) && !think_time.is_longer_than(9));
}

/// Metadata goes first; then the closer request, where a distance back counts `back_seek_penalty`
/// times and one above `back_seek_max` comes after everything ahead; of two that are so far behind,
/// the lower goes first (`cfq_choose_req`, `cfq_find_next_rq`).
#[test]
fn the_next_request_is_the_closer_one() {
    // The sectors dispatched after a request that ends at sector 100,008.
    let next_of = |others: [Bio; 2]| {
        let mut queue = disk();
        let first = queue.insert(&read(0, 100_000));
        assert_eq!(queue.dispatch(), first);
        for bio in &others {
            queue.insert(bio);
        }
        let id = queue.dispatch().expect("one of them");
        queue.rq(id).sector.0
    };
    let data = |one, other| next_of([read(0, one), read(0, other)]);
    assert_eq!(data(100_408, 100_708), 100_408);
    assert_eq!(data(99_600, 100_708), 100_708);
    assert_eq!(data(99_600, 100_908), 99_600);
    // The distance back, times the penalty, equals the distance ahead.
    assert_eq!(data(99_608, 100_808), 100_808);
    // 16 MiB are 32,768 sectors.
    assert_eq!(data(67_240, 900_000), 67_240);
    assert_eq!(data(67_239, 900_000), 900_000);
    assert_eq!(data(20_000, 50_000), 20_000);
    let metadata = Bio {
        flags: BioFlags::META,
        ..read(0, 900_000)
    };
    assert_eq!(next_of([read(0, 100_408), metadata]), 900_000);
    assert_eq!(next_of([metadata, read(0, 100_408)]), 900_000);
}

/// Only the removal of the request that comes next makes another one the next
/// (`cfq_remove_request`).
#[test]
fn a_merge_elsewhere_leaves_the_next_request_as_it_is() {
    let mut queue = disk();
    let near = queue.insert(&read(1, 0));
    let far = [100_000, 100_016].map(|sector| queue.insert(&read(1, sector)).expect("no merge"));
    let merged = queue.fill_hole(far[0], far[1], MergeKind::Back);
    assert_eq!((merged, queue.merged_away()), (Some(far[0]), vec![far[1]]));
    assert_eq!((queue.dispatch(), queue.dispatch()), (near, merged));
}

/// A group's only queue stays active while it has requests in the drive, unless `group_idle` is
/// zero (`cfq_group_should_wait_rq`).
#[test]
fn the_only_queue_of_a_group_is_waited_for_as_group_idle_says() {
    for group_idle in [8, 0] {
        let mut queue = disk();
        queue.set("group_idle", group_idle);
        let write = |group: u16| Bio {
            cgroup: CgroupId(group),
            submitter: SubmitterId(group as u32),
            ..Bio::new(Op::Write, Sector(group as u64 * 1_000_000), 8)
        };
        let first = queue.insert(&write(1)).unwrap();
        let second = queue.insert(&write(2)).unwrap();
        assert_eq!(queue.dispatch(), Some(first));
        let expected = (group_idle == 0).then_some(second);
        assert_eq!(queue.dispatch(), expected, "group_idle {group_idle}");
    }
}

/// A group's only process has its second request in the drive, and another group's waits. Its slice
/// of 100 ms began with the completion of its first request, just now.
fn second_of_a_group(queue: &mut TestQueue) -> (RequestId, RequestId) {
    let of_group = |group: u16, sector| Bio {
        cgroup: CgroupId(group),
        ..read(group as u32, sector)
    };
    let first = queue.insert(&of_group(1, 1000)).unwrap();
    let other = queue.insert(&of_group(2, 9_000_000)).unwrap();
    assert_eq!(queue.dispatch(), Some(first));
    queue.pass_ms(4);
    queue.complete(first);
    let second = queue.insert(&of_group(1, 1008)).unwrap();
    assert_eq!(queue.dispatch(), Some(second));
    (second, other)
}

/// A group's only queue stays active for `slice_idle` if its slice ends with its last request, so
/// that its group is not left (`cfq_should_wait_busy`).
#[test]
fn a_group_is_not_left_because_a_slice_ended_with_the_last_request() {
    let mut queue = disk();
    let (second, other) = second_of_a_group(&mut queue);
    queue.pass_ms(120);
    queue.complete(second);
    queue.run_timer();
    assert_eq!(queue.dispatch(), None);
    queue.pass_ms(12);
    assert!(queue.run_timer());
    assert_eq!(queue.dispatch(), Some(other));
}

/// Idling stops only for a seeky queue: a sequential reader with its only request in the drive
/// keeps the drive (`cfq_select_queue`).
#[test]
fn a_sequential_reader_keeps_its_idle_window_while_it_waits_for_the_drive() {
    let mut queue = disk();
    let first = queue.insert(&read(0, 1000)).unwrap();
    queue.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(queue.dispatch(), Some(first));
    assert_eq!(queue.dispatch(), None, "its request is in the drive");
    queue.pass_ms(4);
    queue.complete(first);
    queue.run_timer();
    assert_eq!(queue.dispatch(), None, "its next request is waited for");
}

/// Only more than five requests, queued or in the drive, say anything about the drive
/// (`cfq_update_hw_tag`).
#[test]
fn the_depth_of_a_drive_shows_under_load() {
    for (queued, in_driver, learned) in [
        (5, 5, None),
        (6, 0, Some(false)),
        (6, 4, Some(false)),
        (6, 5, Some(true)),
        (0, 6, Some(true)),
        (0, 7, Some(true)),
    ] {
        let mut cfq = Cfq::new(&queue_info());
        (cfq.queued, cfq.in_driver) = (queued, in_driver);
        (0..50).for_each(|_| cfq.update_hw_tag());
        assert_eq!(cfq.queues_in_drive, None);
        cfq.update_hw_tag();
        assert_eq!(cfq.queues_in_drive, learned, "{queued} {in_driver}");
    }
}

/// A drive that never had five requests at once in fifty samples under load does not queue commands
/// and is idled for, even without moving parts (`cfq_update_hw_tag`).
#[test]
fn a_drive_that_takes_one_request_at_a_time_is_idled_for() {
    let mut queue = TestQueue::new(Box::new(Cfq::new(&queue_info())));
    queue.set("slice_idle", 8);
    let idle_class = IoPrio {
        class: IoClass::Idle,
        level: 7,
    };
    // These make up the load and are served last.
    for i in 0..10 {
        queue.insert(&Bio {
            prio: idle_class,
            ..read(1, 9_000_000 + i * 1000)
        });
    }
    // On a drive without moving parts a large request is not a seek.
    let mut sector = 0;
    let mut add = |queue: &mut TestQueue| {
        sector += 1000;
        queue.insert(&Bio {
            sectors: 128,
            ..read(0, sector)
        });
    };
    (0..5).for_each(|_| add(&mut queue));
    let serve = |queue: &mut TestQueue| {
        let id = queue.dispatch().expect("the first process's");
        assert_eq!(queue.rq(id).submitter, SubmitterId(0));
        queue.pass_ms(1);
        queue.complete(id);
        queue.run_timer();
    };
    for _ in 0..60 {
        serve(&mut queue);
        add(&mut queue);
    }
    assert_eq!(queue.count("times idled"), 0);
    (0..5).for_each(|_| serve(&mut queue));
    assert_eq!(queue.count("times idled"), 1);
    assert_eq!(queue.dispatch(), None);
}

/// Beside another queue one whose slice has not begun or soon ends sends half of `quantum`; alone
/// it sends all that it has (`cfq_may_dispatch`).
#[test]
fn beside_others_a_queue_has_half_its_quantum_in_the_drive() {
    for (quantum, processes, most) in [(8, 2, 4), (12, 2, 6), (3, 2, 1), (1, 2, 1), (8, 1, 20)] {
        let mut queue = disk();
        queue.set("quantum", quantum);
        for i in 0..20 {
            for process in 0..processes {
                queue.insert(&read(process, (u64::from(process) << 24) + i * 1000));
            }
        }
        let sent = core::iter::from_fn(|| queue.dispatch()).count();
        assert_eq!(sent, most, "quantum {quantum}, processes {processes}");
    }
}

/// Beside another queue an asynchronous queue sends `2 * slice_async_rq * (8 - level)` requests in
/// a slice (`cfq_prio_to_maxrq`).
#[test]
fn an_asynchronous_slice_is_bounded_by_requests() {
    for (slice_async_rq, expected) in [(2, [16, 12, 16]), (3, [24, 18, 24])] {
        let runs = runs_of_writers(slice_async_rq);
        assert_eq!(runs[..3], expected, "slice_async_rq {slice_async_rq}");
    }
}

/// The number of requests in each turn of two writers at levels 4 and 5.
fn runs_of_writers(slice_async_rq: i64) -> Vec<usize> {
    let mut queue = disk();
    queue.set("low_latency", 0);
    queue.set("slice_async_rq", slice_async_rq);
    for (process, level) in [(1, 4), (2, 5)] {
        for i in 0..60 {
            let prio = IoPrio {
                class: IoClass::Be,
                level,
            };
            queue.insert(&Bio {
                prio,
                submitter: SubmitterId(process),
                ..Bio::new(Op::Write, Sector(u64::from(process) << 24 | (i * 1000)), 8)
            });
        }
    }
    let mut order = Vec::new();
    while let Some(id) = queue.dispatch() {
        order.push(queue.rq(id).submitter.0);
        queue.pass_ms(1);
        queue.complete(id);
        queue.run_timer();
    }
    order.chunk_by(|a, b| a == b).map(<[u32]>::len).collect()
}

/// The root has twice the weight that other groups begin with.
#[test]
fn the_root_has_two_thirds_beside_a_group_of_default_weight() {
    for (group, share) in [(CgroupId::ROOT, 0.5), (CgroupId(3), 2.0 / 3.0)] {
        let of_group = Bio {
            cgroup: group,
            ..read(0, 0)
        };
        let got = served(&mut disk(), &[read(0, 0), of_group], 30_000);
        let found = got[0] as f64 / (got[0] + got[1]) as f64;
        assert!((found - share).abs() < 0.03, "{group:?}: {got:?}");
    }
}

/// While the drive idles for a group's only queue, the end of the slice ends the wait, since
/// nothing of the queue is in the drive any more.
#[test]
fn a_slice_that_ends_while_the_drive_idles_is_not_waited_beyond() {
    let mut queue = disk();
    let (second, other) = second_of_a_group(&mut queue);
    // Its slice ends between this and the end of the wait.
    queue.pass_ms(94);
    queue.complete(second);
    assert_eq!(queue.dispatch(), None, "its next request is waited for");
    queue.pass_ms(7);
    assert_eq!(queue.dispatch(), Some(other));
}

/// A request of up to a page that was idled for waits to be merged with more, unless another queue
/// is busy (`cfq_rq_enqueued`).
#[test]
fn a_small_request_that_was_idled_for_waits_for_more() {
    for (sectors, other_is_busy, waits) in [(8, false, true), (9, false, false), (8, true, false)] {
        let mut queue = disk();
        let first = queue.insert(&read(0, 0)).expect("is alone");
        assert_eq!(queue.dispatch(), Some(first));
        queue.pass_ms(1);
        queue.complete(first);
        if other_is_busy {
            queue.insert(&read(1, 9_000_000));
        }
        assert_eq!(queue.dispatch(), None);
        assert!(queue.elevator.next_timer().is_some(), "it idles");
        let next = Bio::new(Op::Read, Sector(8), sectors);
        queue.insert(&Bio {
            submitter: SubmitterId(0),
            ..next
        });
        let is_idling = queue.elevator.next_timer().is_some();
        assert_eq!(is_idling, waits, "{sectors} {other_is_busy}");
    }
}

/// A deadline is `fifo_expire_sync` after the arrival, an eighth of a second in whole ticks of 4 ms,
/// and of use from the first request of a slice on.
#[test]
fn a_request_goes_first_from_its_deadline_on() {
    for (waited_ms, is_late) in [(120, false), (123, false), (124, true)] {
        let mut queue = disk();
        queue.pass_ms(10_000);
        let far = queue.insert(&read(0, 9_000_000));
        let near = queue.insert(&read(0, 100));
        queue.pass_ms(waited_ms);
        assert_eq!(queue.dispatch(), if is_late { far } else { near });
        assert_eq!(queue.count("expired deadlines"), u64::from(is_late));
    }
}

/// Each slice is at least two idle times long, however many queues share the target latency
/// (`cfq_scaled_cfqq_slice`).
#[test]
fn many_readers_have_slices_of_two_idle_times() {
    let bio = read(0, 0);
    let readers = vec![bio; 60];
    let mut queue = disk();
    let served = served(&mut queue, &readers, 12_000);
    let slices = queue.count("slices") as f64;
    let all: u64 = served.iter().sum();
    let of_slice = all as f64 / slices;
    assert!((12.0..=20.0).contains(&of_slice), "{of_slice} ms of 16");
}

/// Serves two processes with one read each at a time, each for a millisecond and thought about for
/// a while; returns how often the drive idled in the last of two halves.
fn idled_for(queue: &mut TestQueue, think_ms: u64, next: impl Fn(u64, u64) -> u64) -> u64 {
    let mut before = 0;
    for n in 0..400 {
        if n == 200 {
            before = queue.count("times idled");
        }
        for process in 0..2 {
            let bio = read(process as u32, next(process, n));
            queue.insert(&bio);
        }
        for _ in 0..2 {
            let found = (0..100).find_map(|_| {
                queue.dispatch().or_else(|| {
                    queue.pass_ms(4);
                    queue.run_timer();
                    None
                })
            });
            let id = found.expect("one is queued");
            queue.pass_ms(1);
            queue.complete(id);
            queue.run_timer();
        }
        queue.pass_ms(think_ms);
        queue.run_timer();
    }
    queue.count("times idled") - before
}

/// The drive idles for readers that soon read on where they were, not for those that seek while
/// others wait, nor for those that think for longer than `slice_idle` (`cfq_update_idle_window`).
#[test]
fn only_near_and_early_requests_are_idled_for() {
    let near = |process: u64, n: u64| (process << 26) + 8 * n;
    let far = |process: u64, n: u64| (process << 26) + (n * 7919 % 1000) * 10_000;
    let disk = || {
        let mut queue = disk();
        queue.set("group_idle", 0);
        queue
    };
    let soon = idled_for(&mut disk(), 0, near);
    let late = idled_for(&mut disk(), 40, near);
    let seeky = idled_for(&mut disk(), 0, far);
    assert!(
        soon > 300 && late == 0 && seeky < 250,
        "{soon} {late} {seeky}"
    );
    let mut queue = TestQueue::new(Box::new(Cfq::new(&queue_info())));
    queue.set("slice_idle", 8);
    assert_eq!(idled_for(&mut queue, 0, near), 0);
}

/// Two processes that read turn by turn what lies side by side share a queue in the end
/// (`cfq_close_cooperator`, `cfq_setup_merge`); those that read elsewhere do not.
#[test]
fn processes_that_read_next_to_each_other_share_a_queue() {
    let queues = |apart: u64| {
        let mut queue = disk();
        idled_for(&mut queue, 0, |process, n| {
            1_000_000 + 32 * n + (16 + apart) * process
        });
        let state = queue.elevator.debug_state();
        state.iter().find(|(name, _)| *name == "queues").unwrap().1
    };
    assert_eq!(queues(0), 1);
    assert_eq!(queues(500_000_000), 2);
}

/// A request of the largest size is not followed by a seek for having grown (`max_sectors`).
#[test]
fn a_request_does_not_grow_beyond_what_a_reader_may_skip() {
    let most = disk().elevator.max_sectors().expect("has a limit");
    assert_eq!(most, 1024);
    // A reader's 128 KiB were counted when they came.
    assert!(u64::from(most) - 256 <= SEEK_THRESHOLD);
}

/// A seeky reader of many requests at once is idled for only in the second half of its slice
/// (`cfq_select_queue`).
#[test]
fn a_deep_seeky_reader_is_left_early_in_its_slice() {
    let mut queue = disk();
    for n in 0..8 {
        queue.insert(&read(0, 1_000_000 * (8 - n)));
    }
    let other = queue.insert(&read(1, 90_000_000));
    for n in 0..8 {
        let id = queue.dispatch().expect("the first process's");
        assert_eq!(queue.rq(id).submitter, SubmitterId(0));
        if n == 7 {
            // Its last request is in the drive.
            assert_eq!(queue.dispatch(), other);
        }
        queue.pass_ms(1);
        queue.complete(id);
        queue.run_timer();
    }
}

/// The processes of the queue with fewer of them move to the other one, or to where its processes
/// are about to move; queues without processes are left alone (`cfq_setup_merge`).
#[test]
fn queues_merge_into_the_one_with_more_processes() {
    let merge = |processes: [u32; 3], chained: Option<(QueueId, QueueId)>| {
        let mut cfq = Cfq::new(&queue_info());
        for processes in processes {
            let queue = cfq.make_queue(groups::ROOT, true);
            cfq.queues[queue].processes = processes;
        }
        if let Some((from, to)) = chained {
            cfq.queues[from].merges_into = Some(to);
        }
        cfq.setup_merge(0, 1);
        [0, 1, 2].map(|queue| cfq.queues[queue].merges_into)
    };
    for (processes, merges) in [
        ([1, 1, 0], [Some(1), None, None]),
        ([1, 3, 0], [Some(1), None, None]),
        ([3, 1, 0], [None, Some(0), None]),
        ([0, 1, 0], [None; 3]),
        ([1, 0, 0], [None; 3]),
    ] {
        assert_eq!(merge(processes, None), merges, "{processes:?}");
    }
    let onward = merge([1, 1, 2], Some((1, 2)));
    assert_eq!(onward, [Some(2), Some(2), None]);
    let back = merge([1, 1, 0], Some((1, 0)));
    assert_eq!(back, [None, Some(0), None], "they would go in a circle");
}

fn async_write(process: u32, sector: u64) -> Bio {
    Bio {
        submitter: SubmitterId(process),
        ..Bio::new(Op::Write, Sector(sector), 8)
    }
}

fn cfq() -> Cfq {
    Cfq::new(&QueueInfo {
        rotational: true,
        ..queue_info()
    })
}

/// A slice is `slice_sync` or `slice_async` at level 4, a fifth of it more or less for each level
/// (`cfq_prio_slice`).
#[test]
fn slices_are_a_fifth_longer_for_each_level() {
    let cfq = cfq();
    let of = |sync| [0, 4, 7].map(|level| cfq.prio_slice(sync, level) * 1000 / HZ);
    assert_eq!((of(true), of(false)), ([180, 100, 40], [72, 40, 16]));
}

/// Three quarters of the larger number count, so that the average rises fast and falls slowly
/// (`cfq_group_get_avg_queues`).
#[test]
fn the_average_of_busy_queues_rises_fast_and_falls_slowly() {
    let mut cfq = cfq();
    let mut average = |busy: usize| {
        let tree = tree_index(Class::BestEffort, Workload::Sync);
        cfq.groups[groups::ROOT].trees[tree].queues = (0..busy).map(|n| (0, n)).collect();
        cfq.average_busy(groups::ROOT, Class::BestEffort)
    };
    let found = [8, 8, 8, 0, 0, 0].map(&mut average);
    assert_eq!(found, [6, 8, 8, 6, 5, 4]);
}

/// A workload has its queues' share of `target_latency`, asynchronous queues `slice_async` to
/// `slice_sync` of that, and synchronous ones two idle times at least
/// (`choose_wl_class_and_type`).
#[test]
fn a_workload_has_a_slice_by_its_queues() {
    let ms = |workload, counts: [usize; 3]| {
        let mut cfq = cfq();
        cfq.workload = workload;
        cfq.busy = counts.iter().sum::<usize>() as u32;
        let group = &mut cfq.groups[groups::ROOT];
        group.fraction = 1 << 12;
        for (workload, count) in WORKLOADS.into_iter().zip(counts) {
            let tree = tree_index(Class::BestEffort, workload);
            group.trees[tree].queues = (0..count).map(|n| (0, n)).collect();
        }
        cfq.workload_slice(Class::BestEffort) * 1000 / HZ
    };
    assert_eq!(ms(Workload::Sync, [0, 1, 2]), 200);
    assert_eq!(ms(Workload::SyncNoIdle, [0, 1, 2]), 100);
    assert_eq!(ms(Workload::Async, [1, 0, 2]), 40);
    assert_eq!(ms(Workload::Sync, [0, 99, 1]), 16);
}

/// The place of a queue that becomes busy depends on the others alone: its offset is counted before
/// the queue itself is (`cfq_service_tree_add`, `cfq_slice_offset`).
#[test]
fn a_queue_that_becomes_busy_does_not_count_itself() {
    let of = |process, level| Bio {
        prio: IoPrio {
            class: IoClass::Be,
            level,
        },
        ..read(process, u64::from(process) << 24)
    };
    let mut queue = disk();
    queue.insert(&of(0, 4));
    assert!(queue.dispatch().is_some());
    let low = queue.insert(&of(1, 7));
    // By itself as another it would come 140 ms later.
    queue.pass_ms(100);
    queue.insert(&of(2, 0));
    queue.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(0)));
    assert_eq!(queue.dispatch(), low);
}

/// Asynchronous requests wait until synchronous ones have left the drive (`cfq_may_dispatch`).
#[test]
fn an_asynchronous_request_waits_for_synchronous_ones_in_the_drive() {
    let mut queue = disk();
    let first = queue.insert(&read(0, 1000)).unwrap();
    assert_eq!(queue.dispatch(), Some(first));
    let write = queue.insert(&async_write(1, 9_000_000));
    queue.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(0)));
    assert_eq!(queue.dispatch(), None);
    queue.complete(first);
    assert_eq!(queue.dispatch(), write);
}

/// With `low_latency` the asynchronous depth grows by one for each `slice_sync` since a synchronous
/// request was late, from one on (`cfq_may_dispatch`, `cfq_completed_request`).
#[test]
fn asynchronous_depth_grows_after_a_late_synchronous_request() {
    for (low_latency, took_ms, passed_ms, sent) in [
        (1, 124, 0, 1),
        (1, 124, 100, 1),
        (1, 124, 300, 3),
        (0, 124, 0, 20),
        // It was in time; a second counts as passed when the queue was made.
        (1, 120, 0, 11),
    ] {
        let mut queue = disk();
        queue.set("low_latency", low_latency);
        let first = queue.insert(&read(0, 1000)).unwrap();
        assert_eq!(queue.dispatch(), Some(first));
        queue.pass_ms(took_ms);
        queue.complete(first);
        queue.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(0)));
        queue.pass_ms(passed_ms);
        (0..20).for_each(|n| assert!(queue.insert(&async_write(1, n * 1000)).is_some()));
        let found = queue.drain().len();
        assert_eq!(found, sent, "{low_latency} {took_ms} {passed_ms}");
    }
}

/// Before 4.2 `slice_idle` was 8 ms on every drive. On one that queues commands and has no moving
/// parts the drive then waits for nobody beside others of the same kind, and for the last queue of
/// its kind only while that has a request in the drive (`cfq_should_idle`, `cfq_arm_slice_timer`).
#[test]
fn a_queueing_drive_without_moving_parts_waits_for_the_last_of_a_kind() {
    for (other, is_waited_for) in [
        (read(1, 9_000_000), false),
        (async_write(1, 9_000_000), true),
    ] {
        let mut queue = TestQueue::new(Box::new(Cfq::new(&queue_info())));
        queue.set("slice_idle", 8);
        let first = queue.insert(&read(0, 1000)).unwrap();
        assert_eq!(queue.dispatch(), Some(first));
        let other = queue.insert(&other);
        let expected = if is_waited_for { None } else { other };
        assert_eq!(queue.dispatch(), expected);
        queue.complete(first);
        if is_waited_for {
            assert_eq!(queue.dispatch(), other);
        }
        assert_eq!(queue.count("times idled"), 0);
    }
}

/// Beside others a queue has more than half of `quantum` in the drive only if `slice_idle` for each
/// of its requests there is left of its slice (`cfq_slice_used_soon`).
#[test]
fn depth_falls_towards_the_end_of_a_slice() {
    for (slice_idle, passed_ms, most) in [(8, 0, 8), (8, 60, 6), (8, 72, 4), (0, 96, 8)] {
        let mut queue = disk();
        queue.set("slice_idle", slice_idle);
        for n in 0..20 {
            queue.insert(&read(0, n * 1000));
            queue.insert(&read(1, (1 << 24) + n * 1000));
        }
        let first = queue.drain();
        assert_eq!(first.len(), 4, "its slice has not begun");
        // Its slice of 100 ms begins.
        queue.complete(first[0]);
        queue.pass_ms(passed_ms);
        let in_drive = 3 + queue.drain().len();
        assert_eq!(in_drive, most, "{slice_idle} {passed_ms}");
    }
}

/// The only synchronous queue sends all that it has, although asynchronous ones are busy
/// (`cfq_may_dispatch`).
#[test]
fn asynchronous_queues_do_not_bound_the_only_synchronous_one() {
    let mut queue = disk();
    for n in 0..20 {
        queue.insert(&read(0, n * 1000));
        queue.insert(&async_write(1, (1 << 24) + n * 1000));
    }
    assert_eq!(queue.drain().len(), 20);
}

/// Metadata preempts a queue that has none (`cfq_should_preempt`).
#[test]
fn metadata_preempts_data() {
    let metadata = |process, sector| Bio {
        flags: BioFlags::META,
        ..read(process, sector)
    };
    for (active, expected) in [(read(0, 1000), 1), (metadata(0, 1000), 0)] {
        let mut queue = disk();
        queue.insert(&read(0, 90_000));
        queue.dispatch().expect("the first process's");
        queue.insert(&active);
        queue.insert(&metadata(1, 9_000_000));
        assert_eq!(queue.count("preemptions"), expected);
    }
    // What was dispatched is not queued any more.
    let mut queue = disk();
    queue.insert(&metadata(0, 90_000));
    queue.dispatch().expect("the first process's");
    queue.insert(&read(0, 1000));
    queue.insert(&metadata(1, 9_000_000));
    assert_eq!(queue.count("preemptions"), 1);
}

/// All asynchronous requests of the idle class are in one queue of a group, whatever their level
/// (`cfq_async_queue_prio`).
#[test]
fn the_idle_class_has_one_asynchronous_queue() {
    let queues = |class| {
        let mut queue = disk();
        for level in 0..3 {
            let prio = IoPrio { class, level };
            queue.insert(&Bio {
                prio,
                ..async_write(u32::from(level), u64::from(level) << 24)
            });
        }
        let state = queue.elevator.debug_state();
        state.iter().find(|(name, _)| *name == "queues").unwrap().1
    };
    assert_eq!((queues(IoClass::Idle), queues(IoClass::Be)), (1, 3));
}

/// A queue has the level of its process, the middle one without a class and the lowest in the
/// idle class, with its next request (`cfq_init_prio_data`).
#[test]
fn a_changed_priority_is_applied_with_the_next_request() {
    let mut cfq = cfq();
    let process = cfq.process(SubmitterId(1), 0);
    let id = cfq.assign_queue(process, true);
    for (class, level, ioprio) in [
        (IoClass::Be, 6, 6),
        (IoClass::Rt, 2, 2),
        (IoClass::None, 6, 4),
        (IoClass::Idle, 2, 7),
    ] {
        let before = cfq.queues[id].ioprio;
        cfq.check_ioprio(process, IoPrio { class, level });
        assert_eq!(cfq.queues[id].ioprio, before);
        cfq.apply_prio(id, process);
        assert_eq!(cfq.queues[id].ioprio, ioprio);
    }
}

/// A queue that others will be merged into counts their processes, along the whole chain, until
/// they end (`cfq_setup_merge`, `cfq_put_cooperator`).
#[test]
fn a_queue_counts_the_processes_that_will_join_it() {
    let mut cfq = cfq();
    let [one, two, three] = [(); 3].map(|()| {
        let id = cfq.make_queue(groups::ROOT, true);
        cfq.queues[id].processes = 1;
        id
    });
    cfq.setup_merge(one, two);
    assert_eq!(cfq.queues[one].merges_into, Some(two));
    cfq.setup_merge(three, one);
    assert_eq!(cfq.queues[three].merges_into, Some(two));
    assert_eq!(cfq.queues[two].processes, 3);
    // What would close a circle is left alone.
    cfq.setup_merge(two, one);
    assert_eq!(cfq.queues[two].merges_into, None);
    cfq.put_cooperators(three);
    assert_eq!(cfq.queues[two].processes, 2);
}

/// A request counts as in the drive from its dispatch until it completes or is given back
/// (`cfq_activate_request`, `cfq_deactivate_request`).
#[test]
fn a_request_that_the_driver_gives_back_is_not_in_the_drive() {
    let mut queue = disk();
    let in_driver = |queue: &TestQueue| {
        let state = queue.elevator.debug_state();
        let found = state.iter().find(|(name, _)| *name == "rq_in_driver");
        found.expect("is shown").1
    };
    let id = queue.insert(&read(0, 1000)).unwrap();
    for _ in 0..2 {
        assert_eq!(queue.dispatch(), Some(id));
        assert_eq!(in_driver(&queue), 1);
        queue.requeue(id);
        assert_eq!(in_driver(&queue), 0);
    }
    assert_eq!(queue.dispatch(), Some(id));
    queue.complete(id);
    assert_eq!(in_driver(&queue), 0);
}
