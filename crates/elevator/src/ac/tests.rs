//! AC's behaviour as the thesis describes it, and its bounds.

use super::*;
use crate::bounds::{Adversary, SOON, SOON_MS, Victim, assert_wait};
use crate::test_queue::{TestQueue, queue_info};
use blklab_blk::{Bio, BioFlags, MergeKind, Op, Sector};

/// Eight sub-groups of 1000 sectors.
fn queue() -> TestQueue {
    TestQueue::new(Box::new(Ac::new(&QueueInfo {
        capacity_sectors: 8_000,
        ..queue_info()
    })))
}

fn bio(op: Op, group: u64, place: u64) -> Bio {
    Bio::new(op, Sector(group * 1000 + place * 20), 8)
}

fn add(queue: &mut TestQueue, op: Op, group: u64, place: u64) -> RequestId {
    queue
        .insert(&bio(op, group, place))
        .expect("does not merge")
}

fn add_async(queue: &mut TestQueue, group: u64, place: u64) -> RequestId {
    add(queue, Op::Write, group, place)
}

fn add_sync_write(queue: &mut TestQueue, group: u64, place: u64) -> RequestId {
    let mut bio = bio(Op::Write, group, place);
    bio.flags = BioFlags::SYNC;
    queue.insert(&bio).expect("does not merge")
}

fn drain_groups(queue: &mut TestQueue) -> Vec<u64> {
    let sectors = queue.drain_sectors();
    sectors.into_iter().map(|s| s / 1000).collect()
}

#[test]
fn spreads_reads_as_section_4_7_2_1_says() {
    let mut queue = queue();
    for place in 0..2 {
        for group in [3, 5, 6] {
            add(&mut queue, Op::Read, group, place);
        }
    }
    assert_eq!(drain_groups(&mut queue), [3, 5, 6, 3, 5, 6]);
}

/// Sub-groups divide the whole drive, also when its size is told anew; reads begin behind the first.
#[test]
fn sub_groups_follow_the_size_of_the_drive() {
    for (sectors, order) in [(8_000, [1000, 2000, 0]), (16_000, [2000, 0, 1000])] {
        let mut queue = queue();
        queue.elevator.depth_updated(&QueueInfo {
            capacity_sectors: sectors,
            ..queue_info()
        });
        for sector in [0, 1000, 2000] {
            queue.insert(&Bio::new(Op::Read, Sector(sector), 8));
        }
        assert_eq!(queue.drain_sectors(), order, "{sectors}");
    }
}

#[test]
fn serves_one_sub_group_in_a_row_where_only_it_has_reads() {
    let mut queue = queue();
    (0..3).for_each(|place| {
        add(&mut queue, Op::Read, 2, place);
    });
    assert_eq!(drain_groups(&mut queue), [2, 2, 2]);
}

#[test]
fn drains_writes_sub_group_by_sub_group_as_section_4_7_2_2_says() {
    let mut queue = queue();
    for place in 0..2 {
        for group in [3, 5, 7] {
            add_async(&mut queue, group, place);
        }
    }
    assert_eq!(drain_groups(&mut queue), [3, 3, 5, 5, 7, 7]);
}

#[test]
fn a_write_that_arrives_where_writes_drain_is_drained_with_them() {
    let mut queue = queue();
    add_async(&mut queue, 3, 0);
    add_async(&mut queue, 3, 1);
    add_async(&mut queue, 1, 0);
    queue.dispatch();
    // Sub-group 1 drains first because the search starts at 0; then 3 becomes PROC.
    queue.dispatch();
    add_async(&mut queue, 5, 0);
    add_async(&mut queue, 3, 2);
    assert_eq!(drain_groups(&mut queue), [3, 3, 5]);
}

#[test]
fn reads_keep_away_from_where_writes_proceed() {
    let mut queue = queue();
    add_async(&mut queue, 4, 0);
    add_async(&mut queue, 4, 1);
    queue.dispatch();
    for group in [3, 4, 5] {
        add(&mut queue, Op::Read, group, 0);
    }
    let mut order: Vec<_> = (0..2).filter_map(|_| queue.dispatch()).collect();
    order.sort_by_key(|&id| queue.rq(id).sector);
    let groups: Vec<_> = order
        .iter()
        .map(|&id| queue.rq(id).sector.0 / 1000)
        .collect();
    assert_eq!(groups, [3, 5]);
    assert_eq!(queue.count("reads beside writes"), 0);
    // There is no other read, so even these go before writes.
    let last = queue.dispatch().unwrap();
    assert!(!queue.rq(last).is_write());
    assert_eq!(queue.count("reads beside writes"), 1);
}

#[test]
fn a_write_goes_after_four_reads_and_sync_before_async() {
    let mut queue = queue();
    let slow = add_async(&mut queue, 0, 10);
    let sync = add_sync_write(&mut queue, 1, 10);
    (0..10).for_each(|place| {
        add(&mut queue, Op::Read, place % 8, place);
    });
    let ids = queue.drain();
    let at = |id| ids.iter().position(|&x| x == id);
    assert_eq!(at(sync), Some(4));
    assert_eq!(at(slow), Some(9));
}

#[test]
fn write_run_lets_writes_stay() {
    let mut queue = queue();
    queue.set("write_run", 3);
    (0..4).for_each(|place| {
        add_async(&mut queue, 0, place);
    });
    (0..8).for_each(|place| {
        add(&mut queue, Op::Read, 1 + place % 7, place);
    });
    let ids = queue.drain();
    let writes: Vec<_> = (0..ids.len())
        .filter(|&i| queue.rq(ids[i]).is_write())
        .collect();
    assert_eq!(writes, [4, 5, 6, 11]);
}

#[test]
fn a_late_request_waits_for_batch_limit_dispatches_at_most() {
    let mut queue = queue();
    queue.set("writes_starved", i32::MAX as i64);
    let write = add_async(&mut queue, 7, 0);
    queue.pass_ms(16_000);
    (0..40).for_each(|place| {
        add(&mut queue, Op::Read, place % 7, place);
    });
    let ids = queue.drain();
    let at = ids.iter().position(|&id| id == write);
    assert_eq!(at, Some(8));
    assert_eq!(queue.count("expired deadlines"), 1);
}

#[test]
fn late_reads_come_first_unless_reads_starved_writes() {
    let mut queue = queue();
    queue.set("batch_limit", 0);
    let write = add_sync_write(&mut queue, 0, 0);
    let read = add(&mut queue, Op::Read, 1, 0);
    queue.pass_ms(20_000);
    assert_eq!(queue.dispatch(), Some(read));
    assert_eq!(queue.dispatch(), Some(write));

    queue.set("writes_starved", 1);
    let write = add_sync_write(&mut queue, 0, 0);
    let reads = [0, 1].map(|place| add(&mut queue, Op::Read, 1, place));
    queue.pass_ms(20_000);
    assert_eq!(queue.drain(), [reads[0], write, reads[1]]);
}

#[test]
fn a_striped_drive_is_told_by_a_tunable() {
    let mut queue = queue();
    queue.set("stripe_kb", 4);
    queue.set("channels", 2);
    // Sectors 0 and 16 are on the first channel, 8 and 24 on the other.
    for sector in [0, 16, 40, 56] {
        queue
            .insert(&Bio::new(Op::Read, Sector(sector), 4))
            .unwrap();
    }
    assert_eq!(queue.drain_sectors(), [40, 0, 56, 16]);
}

#[test]
fn merges_behind_and_with_the_neighbour() {
    let mut queue = queue();
    let other = queue.insert(&Bio::new(Op::Read, Sector(4000), 8)).unwrap();
    let first = queue.insert(&Bio::new(Op::Read, Sector(100), 8)).unwrap();
    let second = queue.insert(&Bio::new(Op::Read, Sector(116), 8)).unwrap();
    assert_eq!(queue.merge(&Bio::new(Op::Read, Sector(92), 8)), None);
    assert_eq!(
        queue.merge(&Bio::new(Op::Read, Sector(108), 8)),
        Some(first)
    );
    assert_eq!(queue.merged_away(), [second]);
    assert_eq!(queue.drain(), [other, first]);
    assert_eq!(queue.rq(first).sectors, 24);
}

#[test]
fn waits_are_bounded() {
    // The deadline and batch_limit dispatches.
    assert_wait(
        &AC,
        &[("async_write_expire", SOON_MS)],
        Victim::AsyncWrite,
        Adversary::SyncWrites,
        SOON + 8 + 1,
    );
    // writes_starved reads in a row.
    assert_wait(&AC, &[], Victim::AsyncWrite, Adversary::Reads, 4 + 1);
}

#[test]
fn a_survivor_takes_over_an_earlier_deadline() {
    let mut queue = queue();
    queue.set("writes_starved", i32::MAX as i64);
    let write = queue.insert(&Bio::new(Op::Write, Sector(7000), 8)).unwrap();
    queue.set("async_write_expire", 100);
    let next = queue.insert(&Bio::new(Op::Write, Sector(7016), 8)).unwrap();
    let merged = queue.fill_hole(write, next, MergeKind::Back);
    assert_eq!(merged, Some(write));
    assert_eq!(queue.merged_away(), [next]);
    queue.pass_ms(100);
    (0..20).for_each(|place| {
        add(&mut queue, Op::Read, place % 7, place);
    });
    let ids = queue.drain();
    assert_eq!(ids.iter().position(|&id| id == write), Some(8));
    assert_eq!(queue.count("expired deadlines"), 1);
}

#[test]
fn debugfs_shows_groups_that_hold_requests() {
    let mut queue = queue();
    add(&mut queue, Op::Read, 1, 0);
    add(&mut queue, Op::Read, 3, 0);
    add_async(&mut queue, 5, 0);
    let state = queue.elevator.debug_state();
    let of = |name: &str| state.iter().find(|(n, _)| *n == name).expect(name).1;
    assert_eq!(
        (of("read_held"), of("write_held")),
        (1 << 1 | 1 << 3, 1 << 5)
    );
    assert_eq!(of("read_pend"), 1 << 1 | 1 << 3);
}
