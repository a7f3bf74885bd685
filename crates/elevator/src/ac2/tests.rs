//! The behaviour and the bounds of ac2.

use super::*;
use crate::bounds::{Adversary, CROWD, SOON, SOON_MS, Victim, assert_wait};
use crate::test_queue::{TestQueue, queue_info};
use blklab_blk::{BioFlags, InsertAt, MergeKind, Op, Sector};

/// Eight dies, a page of 32 sectors each.
fn queue() -> TestQueue {
    let mut queue = TestQueue::new(Box::new(Ac2::new(&queue_info())));
    queue.set("dies", 8);
    queue
}

fn bio(submitter: u32, op: Op, sector: u64) -> Bio {
    Bio {
        submitter: SubmitterId(submitter),
        ..Bio::new(op, Sector(sector), 8)
    }
}

/// A read on a die in stripe `row`, which is adjacent to no other.
fn read(submitter: u32, die: u64, row: u64) -> Bio {
    bio(submitter, Op::Read, (row * 8 + die) * 32)
}

#[test]
fn reads_go_to_the_least_loaded_die() {
    let mut queue = queue();
    queue.set("light_depth", 0);
    for row in 0..3 {
        queue.insert(&read(0, 2, row));
    }
    for die in [5, 2, 7] {
        queue.insert(&read(0, die, 9));
    }
    let dies: Vec<_> = queue.drain_sectors().iter().map(|s| s / 32 % 8).collect();
    assert_eq!(dies, [2, 5, 7, 2, 2, 2]);
}

#[test]
fn a_request_on_its_die_puts_a_read_back_by_so_many_places() {
    let mut queue = queue();
    queue.set("overtake", 5);
    queue.set("light_depth", 0);
    // Three reads are on one die, and many on the others.
    let slow: Vec<_> = (0..3)
        .map(|row| queue.insert(&read(1, 0, row)).unwrap())
        .collect();
    for at in 0..20 {
        queue.insert(&read(1, 1 + at % 7, at)).unwrap();
    }
    let ids = queue.drain();
    let places: Vec<_> = slow
        .iter()
        .map(|id| ids.iter().position(|other| other == id).unwrap())
        .collect();
    // The second goes with those that came five after it, the third with those ten after it.
    assert_eq!(places, [0, 4, 9]);
}

#[test]
fn what_completes_lightens_its_die() {
    let mut queue = queue();
    queue.set("light_depth", 0);
    let first = queue.insert(&read(0, 2, 0)).unwrap();
    queue.insert(&read(0, 3, 0));
    queue.drain();
    queue.complete(first);
    let three = queue.insert(&read(0, 3, 1)).unwrap();
    let two = queue.insert(&read(0, 2, 1)).unwrap();
    assert_eq!(queue.drain(), [two, three]);
}

#[test]
fn reads_keep_away_from_dies_that_write() {
    let mut queue = queue();
    queue.set("light_depth", 0);
    queue.insert(&bio(0, Op::Write, 32));
    queue.dispatch();
    for (die, row) in [(1, 5), (2, 5), (2, 6), (2, 7), (2, 8)] {
        queue.insert(&read(0, die, row));
    }
    let dies: Vec<_> = queue.drain_sectors().iter().map(|s| s / 32 % 8).collect();
    assert_eq!(dies, [2, 2, 2, 2, 1]);
}

#[test]
fn a_light_submitter_s_read_goes_before_a_deep_one_s() {
    let mut queue = queue();
    for row in 0..20 {
        queue.insert(&read(0, row % 8, row));
    }
    queue.dispatch();
    let light = queue.insert(&read(1, 0, 99));
    assert_eq!(queue.dispatch(), light);
}

#[test]
fn deep_submitters_do_not_fill_dies_that_light_ones_read_from() {
    let mut queue = queue();
    queue.insert(&read(1, 0, 50));
    queue.dispatch();
    for row in 0..80 {
        queue.insert(&read(0, row % 8, 100 + row));
    }
    // The first was dispatched, then two for each other die and one for that die.
    let sent = queue.drain();
    assert_eq!(sent.len(), 15);
    let light = queue.insert(&read(2, 0, 51));
    assert_eq!(queue.dispatch(), light);
    queue.pass_ms(100);
    assert_eq!(queue.drain().len(), 80 - 15);
}

#[test]
fn a_deep_submitter_with_little_outstanding_is_not_light_at_once() {
    let mut queue = queue();
    queue.insert(&read(0, 0, 1));
    queue.insert(&read(0, 1, 1));
    let sent = queue.drain();
    sent.into_iter().for_each(|id| queue.complete(id));
    let light = queue.count("reads of light submitters");
    for row in 0..DEEP_RUN as u64 + 4 {
        let id = queue.insert(&read(0, 2, 10 + row)).unwrap();
        queue.dispatch();
        queue.complete(id);
    }
    assert_eq!(queue.count("reads of light submitters"), light + 5);
}

#[test]
fn deep_submitters_reads_leave_tags_to_light_ones() {
    let mut queue = queue();
    let limit = |queue: &mut TestQueue, submitter| {
        let bio = read(submitter, 0, 0);
        queue.elevator.limit_depth_for(&bio)
    };
    for row in 0..20 {
        queue.insert(&read(0, row % 8, row));
    }
    assert_eq!(limit(&mut queue, 0), None);
    queue.drain();
    queue.insert(&read(1, 0, 99));
    queue.dispatch();
    // The limit of 256 tags.
    assert_eq!(limit(&mut queue, 0), Some(192));
    assert_eq!(limit(&mut queue, 1), None);
    queue.pass_ms(100);
    queue.insert(&read(0, 0, 30));
    assert_eq!(limit(&mut queue, 0), None);
}

#[test]
fn a_stream_goes_in_order() {
    let mut queue = queue();
    let ids: Vec<_> = (0..6)
        .map(|i| {
            let bio = Bio::new(Op::Read, Sector(100 + i * 640), 640);
            let id = queue.make(&bio);
            queue.insert_request(id, InsertAt::Tail);
            id
        })
        .collect();
    let merged_away = queue.merged_away();
    assert!(merged_away.len() < 6);
    let order = queue.drain();
    assert!(
        order.is_sorted_by_key(|id| id.index()),
        "{order:?} of {ids:?}"
    );
}

#[test]
fn writes_go_block_by_block_and_have_their_turn() {
    let mut queue = queue();
    queue.set("write_run", 2);
    queue.set("read_lead", 4);
    queue.set("write_weight", 0);
    // Blocks of 2048 sectors.
    for block in [3, 1, 3, 1] {
        let place = queue.in_use() as u64 * 16;
        queue.insert(&bio(0, Op::Write, block * 2048 + place));
    }
    for row in 0..8 {
        queue.insert(&read(0, row, row));
    }
    let ids = queue.drain();
    let writes: Vec<_> = (0..ids.len())
        .filter(|&i| queue.rq(ids[i]).is_write())
        .collect();
    // Two turns; no read goes before a write that came more than four requests earlier.
    assert_eq!(writes, [1, 2, 4, 5]);
    let blocks: Vec<_> = writes
        .iter()
        .map(|&i| queue.rq(ids[i]).sector.0 / 2048)
        .collect();
    assert_eq!(blocks, [3, 3, 1, 1]);
}

#[test]
fn writes_leave_reads_a_part_of_the_drive() {
    let info = QueueInfo {
        queue_depth: 32,
        ..queue_info()
    };
    let mut queue = TestQueue::new(Box::new(Ac2::new(&info)));
    queue.set("write_share", 75);
    for i in 0..100 {
        queue.insert(&bio(0, Op::Write, i * 4096));
    }
    let read = queue.insert(&bio(1, Op::Read, 16)).unwrap();
    assert_eq!(queue.dispatch(), Some(read));
    let mut writes = queue.drain();
    assert_eq!(writes.len(), 24);
    queue.complete(writes.pop().unwrap());
    assert!(queue.run_timer());
    assert_eq!(queue.drain().len(), 1);
    // There has been no read for long, so writes may use the whole drive.
    queue.complete(read);
    queue.pass_ms(20);
    assert_eq!(queue.drain().len(), 75);
}

#[test]
fn who_has_more_than_an_even_share_of_the_tags_leaves_others_some() {
    let mut queue = queue();
    let limit = |queue: &mut TestQueue, submitter| {
        let mut bio = bio(submitter, Op::Write, 0);
        bio.flags = BioFlags::SYNC;
        queue.elevator.limit_depth_for(&bio)
    };
    for place in 0..128 {
        queue.insert(&bio(0, Op::Write, place * 16));
    }
    assert_eq!(limit(&mut queue, 0), None);
    queue.insert(&bio(1, Op::Write, 50_000));
    assert_eq!(limit(&mut queue, 0), None);
    queue.insert(&bio(0, Op::Write, 60_000));
    // The limit of 256 tags.
    assert_eq!(limit(&mut queue, 0), Some(192));
    assert_eq!(limit(&mut queue, 1), None);
    let sent = queue.drain();
    sent.into_iter().for_each(|id| queue.complete(id));
    assert_eq!(limit(&mut queue, 0), None);
}

#[test]
fn nobody_waits_much_longer_than_its_deadline() {
    let mut queue = queue();
    let deep = queue.insert(&read(0, 0, 1)).unwrap();
    let other = queue.insert(&read(0, 0, 2)).unwrap();
    queue.pass_ms(100);
    let sent: Vec<_> = (0..18)
        .filter_map(|i| {
            queue.insert(&read(2 + i, 1, 10 + i as u64));
            queue.dispatch()
        })
        .collect();
    assert!(sent.contains(&deep) && sent.contains(&other));
    assert!(queue.count("expired deadlines") > 0);
}

#[test]
fn ranges_have_dies_of_their_own() {
    let info = queue_info();
    let mut ac2 = Ac2::new(&info);
    for (name, value) in [("dies", 8), ("ranges", 4)] {
        ac2.set_tunable(name, value).expect(name);
    }
    let (range, page) = (info.capacity_sectors / 4, 32);
    let die_of = |sector| ac2.layout.die_of(sector);
    for at in 0..4 {
        let first = at * range;
        let dies = [first, first + page - 1, first + page, first + 2 * page].map(die_of);
        assert_eq!(dies, [0, 0, 1, 0].map(|die| 2 * at as usize + die));
    }
    assert_eq!(die_of(info.capacity_sectors - 1), 7);
}

#[test]
fn waits_are_bounded() {
    // The deadline and batch_limit dispatches.
    assert_wait(
        &AC2,
        &[("async_write_expire", SOON_MS)],
        Victim::AsyncWrite,
        Adversary::SyncWrites,
        SOON + 8 + 1,
    );
    // Reads that came before, and read_lead that came later.
    assert_wait(&AC2, &[], Victim::AsyncWrite, Adversary::Reads, CROWD + 32);
}

/// Light submitters' reads also go to the least loaded die, by the requests in the drive.
#[test]
fn a_light_read_goes_to_the_least_loaded_die() {
    let mut queue = queue();
    for submitter in [1, 2] {
        queue.insert(&read(submitter, 5, submitter as u64));
    }
    assert_eq!(queue.drain().len(), 2);
    let done = queue.insert(&read(3, 1, 0)).unwrap();
    assert_eq!(queue.drain(), [done]);
    queue.complete(done);
    let loaded = queue.insert(&read(4, 5, 3)).unwrap();
    let free = queue.insert(&read(5, 1, 1)).unwrap();
    assert_eq!(queue.drain(), [free, loaded]);
}

/// A stream continues behind what was merged at its end, whatever was merged at its start.
#[test]
fn a_stream_continues_behind_merged_bios() {
    for (kind, is_stream) in [(MergeKind::Back, true), (MergeKind::Front, false)] {
        let mut queue = queue();
        let mut at = 100_000;
        for _ in 0..=STREAM_RUN {
            let id = queue.insert(&bio(3, Op::Write, at)).expect("alone");
            assert_eq!(queue.dispatch(), Some(id));
            queue.complete(id);
            at += 8;
        }
        let queued = queue.insert(&bio(3, Op::Write, at)).expect("alone");
        assert!(ElvWord::of(queue.rq(queued)).class() == Class::Stream);
        let (beside, next) = match kind {
            MergeKind::Back => (at + 8, at + 16),
            _ => (at - 8, at - 8 + 64),
        };
        assert_eq!(queue.merge(&bio(3, Op::Write, beside)), Some(queued));
        assert_eq!(queue.dispatch(), Some(queued));
        let after = queue.insert(&bio(3, Op::Write, next)).expect("alone");
        let found = ElvWord::of(queue.rq(after)).class() == Class::Stream;
        assert_eq!(found, is_stream, "{kind:?}");
    }
}
