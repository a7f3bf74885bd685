//! What cfq promises.

use super::*;
use crate::rig::{Rig, queue_info};
use blklab_blk::{Op, SubmitterId};

fn disk() -> Rig {
    let info = QueueInfo {
        rotational: true,
        ..queue_info()
    };
    Rig::new(Box::new(Cfq::new(&info)))
}

fn read(process: u32, sector: u64) -> Bio {
    Bio {
        submitter: SubmitterId(process),
        ..Bio::new(Op::Read, Sector(sector), 8)
    }
}

/// Serves readers that each always have a few requests queued, a millisecond a
/// request, one at a time; how many each got.
fn served(rig: &mut Rig, readers: &[Bio], ms: u64) -> Vec<u64> {
    let mut next: Vec<u64> = (0..readers.len() as u64).map(|p| p << 24).collect();
    let add = |rig: &mut Rig, next: &mut [u64], p: usize| {
        let bio = Bio {
            sector: Sector(next[p]),
            submitter: SubmitterId(p as u32),
            ..readers[p]
        };
        next[p] += 1024;
        rig.insert(&bio);
    };
    for p in 0..readers.len() {
        (0..4).for_each(|_| add(rig, &mut next, p));
    }
    let mut served = vec![0; readers.len()];
    for _ in 0..ms {
        let id = rig.dispatch();
        rig.pass_ms(1);
        if let Some(id) = id {
            let p = rig.rq(id).submitter.0 as usize;
            rig.complete(id);
            served[p] += 1;
            add(rig, &mut next, p);
        }
        rig.run_timer();
    }
    served
}

fn shares(readers: &[IoPrio], ms: u64) -> Vec<u64> {
    let bio = |&prio: &IoPrio| Bio { prio, ..read(0, 0) };
    let readers: Vec<Bio> = readers.iter().map(bio).collect();
    served(&mut disk(), &readers, ms)
}

/// What each control group got whose processes, so many, all have enough to do.
fn shares_of_groups(mut rig: Rig, groups: &[(u32, usize)]) -> Vec<f64> {
    let mut readers = Vec::new();
    for (&(weight, processes), group) in groups.iter().zip(1..) {
        rig.elevator.set_cgroup_weight(CgroupId(group), weight);
        let cgroup = CgroupId(group);
        let bio = Bio {
            cgroup,
            ..read(0, 0)
        };
        readers.extend(vec![bio; processes]);
    }
    let got = served(&mut rig, &readers, 60_000);
    let total: u64 = got.iter().sum();
    assert!(total > 50_000, "{got:?}");
    let mut got = got.iter();
    let mut of_group = |n: usize| got.by_ref().take(n).sum::<u64>() as f64 / total as f64;
    groups.iter().map(|&(_, n)| of_group(n)).collect()
}

#[test]
fn shares_follow_the_weights_of_groups() {
    let ssd = || Rig::new(Box::new(Cfq::new(&queue_info())));
    let cases: [&[(u32, usize)]; 3] = [
        &[(200, 1), (100, 1)],
        &[(1000, 1), (100, 1)],
        &[(300, 1), (100, 5), (200, 2)],
    ];
    for groups in cases {
        let weights: u32 = groups.iter().map(|&(weight, _)| weight).sum();
        for rig in [disk(), ssd()] {
            let shares = shares_of_groups(rig, groups);
            for (share, &(weight, _)) in shares.iter().zip(groups) {
                let due = weight as f64 / weights as f64;
                assert!((share - due).abs() < 0.03, "{groups:?}: {shares:?}");
            }
        }
    }
}

/// Two processes read far from each other, and the first one's request is
/// complete.
fn first_is_served(rig: &mut Rig) -> RequestId {
    let first = rig.insert(&read(0, 1000)).unwrap();
    let other = rig.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(rig.dispatch(), Some(first));
    rig.pass_ms(4);
    rig.complete(first);
    rig.run_timer();
    other
}

#[test]
fn a_process_that_ends_is_not_waited_for() {
    let mut rig = disk();
    let other = first_is_served(&mut rig);
    assert_eq!(rig.dispatch(), None);
    rig.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(0)));
    assert!(rig.run_timer());
    assert_eq!(rig.dispatch(), Some(other));
}

/// The same process again and again takes no more room than once; one that
/// leaves requests behind is forgotten with the last of them.
#[test]
fn processes_that_ended_leave_nothing_behind() {
    let mut rig = disk();
    for round in 0..1000 {
        let id = rig.insert(&read(round, 1000)).unwrap();
        rig.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(round)));
        assert_eq!(rig.dispatch(), Some(id));
        rig.pass_ms(1);
        rig.complete(id);
        rig.run_timer();
    }
    assert_eq!(rig.in_use(), 0);
    let state = rig.elevator.debug_state();
    assert!(state.contains(&("processes", 0)), "{state:?}");
    // The last one's, which is empty, and whose turn it still is.
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
    let mut rig = disk();
    let first = rig.insert(&read(0, 1000)).unwrap();
    rig.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(rig.dispatch(), Some(first));
    rig.pass_ms(4);
    rig.complete(first);
    rig.run_timer();
    assert_eq!(rig.dispatch(), None);
    assert_eq!(rig.count("times idled"), 1);
    let second = rig.insert(&read(0, 1008)).unwrap();
    assert_eq!(rig.dispatch(), Some(second));
}

#[test]
fn gives_up_waiting_after_slice_idle() {
    let mut rig = disk();
    let other = first_is_served(&mut rig);
    assert_eq!(rig.dispatch(), None);
    rig.pass_ms(8);
    assert!(rig.run_timer());
    assert_eq!(rig.dispatch(), Some(other));
}

#[test]
fn does_not_wait_on_an_ssd() {
    let mut rig = Rig::new(Box::new(Cfq::new(&queue_info())));
    assert_eq!(rig.elevator.tunables().get("slice_idle"), Some(0));
    let other = first_is_served(&mut rig);
    assert_eq!(rig.dispatch(), Some(other));
    assert_eq!(rig.count("times idled"), 0);
}

#[test]
fn a_synchronous_request_preempts_asynchronous_ones() {
    let mut rig = disk();
    for i in 0..8 {
        rig.insert(&Bio::new(Op::Write, Sector(i * 1000), 8));
    }
    rig.dispatch().unwrap();
    let read = rig.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(rig.count("preemptions"), 1);
    // It waits for the write that is in the drive, as it would idle.
    let next = rig.dispatch();
    assert!(next.is_none() || next == Some(read));
}

#[test]
fn does_not_merge_across_processes() {
    let mut rig = disk();
    rig.insert(&read(0, 1000)).unwrap();
    rig.insert(&read(1, 9_000_000)).unwrap();
    assert_eq!(rig.merge(&read(1, 1008)), None);
    assert!(rig.merge(&read(0, 1008)).is_some());
}
