//! What the thesis says of AC, and what it promises.

use super::*;
use crate::rig::{Rig, queue_info};
use crate::single_queue::SingleQueue;
use blklab_blk::{Bio, BioFlags, Op, Sector};

/// Eight sub-groups of 1000 sectors.
fn rig() -> Rig {
    Rig::new(SingleQueue::of(Ac::new(&QueueInfo {
        capacity_sectors: 8_000,
        ..queue_info()
    })))
}

fn bio(op: Op, group: u64, place: u64) -> Bio {
    Bio::new(op, Sector(group * 1000 + place * 20), 8)
}

fn add(rig: &mut Rig, op: Op, group: u64, place: u64) -> RequestId {
    rig.insert(&bio(op, group, place)).expect("does not merge")
}

fn add_async(rig: &mut Rig, group: u64, place: u64) -> RequestId {
    add(rig, Op::Write, group, place)
}

fn add_sync_write(rig: &mut Rig, group: u64, place: u64) -> RequestId {
    let mut bio = bio(Op::Write, group, place);
    bio.flags = BioFlags::SYNC;
    rig.insert(&bio).expect("does not merge")
}

fn drain_groups(rig: &mut Rig) -> Vec<u64> {
    let sectors = rig.drain_sectors();
    sectors.into_iter().map(|s| s / 1000).collect()
}

#[test]
fn spreads_reads_as_section_4_7_2_1_says() {
    let mut rig = rig();
    for place in 0..2 {
        for group in [3, 5, 6] {
            add(&mut rig, Op::Read, group, place);
        }
    }
    assert_eq!(drain_groups(&mut rig), [3, 5, 6, 3, 5, 6]);
}

#[test]
fn serves_one_sub_group_in_a_row_where_only_it_has_reads() {
    let mut rig = rig();
    (0..3).for_each(|place| {
        add(&mut rig, Op::Read, 2, place);
    });
    assert_eq!(drain_groups(&mut rig), [2, 2, 2]);
}

#[test]
fn drains_writes_sub_group_by_sub_group_as_section_4_7_2_2_says() {
    let mut rig = rig();
    for place in 0..2 {
        for group in [3, 5, 7] {
            add_async(&mut rig, group, place);
        }
    }
    assert_eq!(drain_groups(&mut rig), [3, 3, 5, 5, 7, 7]);
}

#[test]
fn a_write_that_arrives_where_writes_drain_is_drained_with_them() {
    let mut rig = rig();
    add_async(&mut rig, 3, 0);
    add_async(&mut rig, 3, 1);
    add_async(&mut rig, 1, 0);
    rig.dispatch();
    // Sub-group 1 drains first: the search starts at 0. Then 3 is PROC.
    rig.dispatch();
    add_async(&mut rig, 5, 0);
    add_async(&mut rig, 3, 2);
    assert_eq!(drain_groups(&mut rig), [3, 3, 5]);
}

#[test]
fn reads_keep_away_from_where_writes_proceed() {
    let mut rig = rig();
    add_async(&mut rig, 4, 0);
    add_async(&mut rig, 4, 1);
    rig.dispatch();
    for group in [3, 4, 5] {
        add(&mut rig, Op::Read, group, 0);
    }
    let mut order: Vec<_> = (0..2).filter_map(|_| rig.dispatch()).collect();
    order.sort_by_key(|&id| rig.rq(id).sector);
    let groups: Vec<_> = order.iter().map(|&id| rig.rq(id).sector.0 / 1000).collect();
    assert_eq!(groups, [3, 5]);
    assert_eq!(rig.count("reads beside writes"), 0);
    // Nothing else is left: reads go over writes even there.
    let last = rig.dispatch().unwrap();
    assert!(!rig.rq(last).is_write());
    assert_eq!(rig.count("reads beside writes"), 1);
}

#[test]
fn a_write_goes_after_four_reads_and_sync_before_async() {
    let mut rig = rig();
    let slow = add_async(&mut rig, 0, 10);
    let sync = add_sync_write(&mut rig, 1, 10);
    (0..10).for_each(|place| {
        add(&mut rig, Op::Read, place % 8, place);
    });
    let ids = rig.drain();
    let at = |id| ids.iter().position(|&x| x == id);
    assert_eq!(at(sync), Some(4));
    assert_eq!(at(slow), Some(9));
}

#[test]
fn write_run_lets_writes_stay() {
    let mut rig = rig();
    rig.set("write_run", 3);
    (0..4).for_each(|place| {
        add_async(&mut rig, 0, place);
    });
    (0..8).for_each(|place| {
        add(&mut rig, Op::Read, 1 + place % 7, place);
    });
    let ids = rig.drain();
    let writes: Vec<_> = (0..ids.len())
        .filter(|&i| rig.rq(ids[i]).is_write())
        .collect();
    assert_eq!(writes, [4, 5, 6, 11]);
}

#[test]
fn a_late_request_waits_for_batch_limit_dispatches_at_most() {
    let mut rig = rig();
    rig.set("writes_starved", i32::MAX as i64);
    let write = add_async(&mut rig, 7, 0);
    rig.pass_ms(16_000);
    (0..40).for_each(|place| {
        add(&mut rig, Op::Read, place % 7, place);
    });
    let ids = rig.drain();
    let at = ids.iter().position(|&id| id == write);
    assert_eq!(at, Some(8));
    assert_eq!(rig.count("expired deadlines"), 1);
}

#[test]
fn late_reads_come_first_unless_reads_starved_writes() {
    let mut rig = rig();
    rig.set("batch_limit", 0);
    let write = add_sync_write(&mut rig, 0, 0);
    let read = add(&mut rig, Op::Read, 1, 0);
    rig.pass_ms(20_000);
    assert_eq!(rig.dispatch(), Some(read));
    assert_eq!(rig.dispatch(), Some(write));

    rig.set("writes_starved", 1);
    let write = add_sync_write(&mut rig, 0, 0);
    let reads = [0, 1].map(|place| add(&mut rig, Op::Read, 1, place));
    rig.pass_ms(20_000);
    assert_eq!(rig.drain(), [reads[0], write, reads[1]]);
}

#[test]
fn a_striped_drive_is_told_by_a_tunable() {
    let mut rig = rig();
    rig.set("stripe_kb", 4);
    rig.set("channels", 2);
    // Sectors 0 and 16 are on the first channel, 8 and 24 on the other.
    for sector in [0, 16, 40, 56] {
        rig.insert(&Bio::new(Op::Read, Sector(sector), 4)).unwrap();
    }
    assert_eq!(rig.drain_sectors(), [40, 0, 56, 16]);
}

#[test]
fn merges_behind_and_with_the_neighbour() {
    let mut rig = rig();
    let other = rig.insert(&Bio::new(Op::Read, Sector(4000), 8)).unwrap();
    let first = rig.insert(&Bio::new(Op::Read, Sector(100), 8)).unwrap();
    let second = rig.insert(&Bio::new(Op::Read, Sector(116), 8)).unwrap();
    assert_eq!(rig.merge(&Bio::new(Op::Read, Sector(92), 8)), None);
    assert_eq!(rig.merge(&Bio::new(Op::Read, Sector(108), 8)), Some(first));
    assert_eq!(rig.swallowed(), [second]);
    assert_eq!(rig.drain(), [other, first]);
    assert_eq!(rig.rq(first).sectors, 24);
}
