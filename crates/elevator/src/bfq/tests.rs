//! The behaviour of bfq, and the consistency of its counters.

use std::collections::{BTreeMap, VecDeque};

use blklab_blk::{Bio, BioFlags, InsertAt, IoClass, IoPrio, Nanos, Op, RequestId, Sector};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::bounds::{Adversary, Victim, assert_wait};
use crate::test_queue::{TestQueue, queue_info};

fn queue(rotational: bool) -> TestQueue {
    let info = QueueInfo {
        rotational,
        ..queue_info()
    };
    let mut queue = TestQueue::new(Box::new(Bfq::new(&info)));
    // A kernel has been up for a while when I/O starts.
    queue.pass_ms(10_000);
    queue
}

fn bio(op: Op, sector: u64, submitter: u32) -> Bio {
    let mut bio = Bio::new(op, Sector(sector), 64);
    bio.submitter = SubmitterId(submitter);
    bio
}

/// A reader far from all others.
fn far(process: u32) -> Bio {
    bio(Op::Read, process as u64 * 1_000_000_000, process)
}

fn with_prio(mut bio: Bio, class: IoClass, level: u8) -> Bio {
    bio.prio = IoPrio { class, level };
    bio
}

fn state(queue: &TestQueue, name: &str) -> i64 {
    let state = queue.elevator.debug_state();
    state.iter().find(|(n, _)| *n == name).expect(name).1
}

/// Processes that always have requests, on a drive that holds four at a time and serves them one
/// after the other.
struct Drive {
    queue: TestQueue,
    in_drive: VecDeque<RequestId>,
    /// The next bio of each process, and how it continues.
    readers: Vec<Reader>,
    /// Sectors served, by submitter.
    served: BTreeMap<u32, u64>,
    /// Time for a sector, and for a request.
    sector_ns: u64,
    request_ns: u64,
}

struct Reader {
    bio: Bio,
    depth: u32,
    queued: u32,
}

impl Drive {
    fn new(queue: TestQueue, bios: Vec<(Bio, u32)>) -> Drive {
        let readers = bios.into_iter().map(|(bio, depth)| Reader {
            bio,
            depth,
            queued: 0,
        });
        Drive {
            queue,
            in_drive: VecDeque::new(),
            readers: readers.collect(),
            served: BTreeMap::new(),
            sector_ns: 1_000,
            request_ns: 20_000,
        }
    }

    fn submit(&mut self) {
        for reader in &mut self.readers {
            while reader.queued < reader.depth {
                let bio = reader.bio;
                reader.bio.sector = Sector(bio.sector.0 + 100_000);
                reader.queued += 1;
                self.queue.insert(&bio);
            }
        }
    }

    /// Serves one request; waits where the scheduler waits.
    fn step(&mut self) {
        self.submit();
        loop {
            while self.in_drive.len() < 4
                && let Some(id) = self.queue.dispatch()
            {
                self.in_drive.push_back(id);
            }
            if !self.in_drive.is_empty() {
                break;
            }
            self.queue.now = self
                .queue
                .elevator
                .next_timer()
                .expect("waits for something");
            self.queue.run_timer();
        }
        let id = self.in_drive.pop_front().expect("just filled");
        let (submitter, sectors) = (
            self.queue.rq(id).submitter.0,
            self.queue.rq(id).sectors as u64,
        );
        self.queue.now += Nanos(self.request_ns + sectors * self.sector_ns);
        self.queue.run_timer();
        self.queue.complete(id);
        *self.served.entry(submitter).or_default() += sectors;
        let mut readers = self.readers.iter_mut();
        let reader = readers.find(|r| r.bio.submitter.0 == submitter);
        reader.expect("has a reader").queued -= 1;
    }

    fn run_ms(&mut self, ms: u64) {
        let end = self.queue.now + Nanos::from_millis(ms);
        while self.queue.now < end {
            self.step();
        }
    }

    fn share(&self, of: u32) -> f64 {
        let total: u64 = self.served.values().sum();
        self.served[&of] as f64 / total as f64
    }
}

#[test]
fn shares_follow_the_levels_of_priority() {
    let mut queue = queue(false);
    queue.set("low_latency", 0);
    let levels = [0, 4, 7];
    let readers = levels.iter().zip(1u32..).map(|(&level, process)| {
        let bio = with_prio(far(process), IoClass::Be, level);
        (bio, 8)
    });
    let mut drive = Drive::new(queue, readers.collect());
    drive.run_ms(60_000);
    // Weights are 80, 40 and 10.
    for (process, weight) in [(1, 80.0), (2, 40.0), (3, 10.0)] {
        let (share, due) = (drive.share(process), weight / 130.0);
        assert!((share - due).abs() < 0.04, "{process}: {share} of {due}");
    }
}

/// The share that each control group gets when all of its processes, of the given number, have
/// enough work.
fn shares_of_groups(groups: &[(u32, u32)]) -> Vec<f64> {
    let mut queue = queue(false);
    queue.set("low_latency", 0);
    let mut readers = Vec::new();
    let mut of_group = Vec::new();
    for (&(weight, processes), group) in groups.iter().zip(1..) {
        queue.elevator.set_cgroup_weight(CgroupId(group), weight);
        let first = readers.len() as u32 + 1;
        of_group.push(first..first + processes);
        readers.extend((first..first + processes).map(|process| {
            let cgroup = CgroupId(group);
            let bio = Bio {
                cgroup,
                ..far(process)
            };
            (bio, 8)
        }));
    }
    let mut drive = Drive::new(queue, readers);
    drive.run_ms(60_000);
    let share = |processes: std::ops::Range<u32>| processes.map(|p| drive.share(p)).sum();
    of_group.into_iter().map(share).collect()
}

#[test]
fn shares_follow_the_weights_of_groups() {
    for (weights, processes) in [([200, 100], [1, 1]), ([1000, 100], [1, 1])] {
        let shares = shares_of_groups(&[(weights[0], processes[0]), (weights[1], processes[1])]);
        let due = weights[0] as f64 / (weights[0] + weights[1]) as f64;
        assert!(
            (shares[0] - due).abs() < 0.02,
            "{weights:?}: {shares:?} of {due}"
        );
    }
}

#[test]
fn a_group_s_share_is_not_that_of_the_number_of_its_processes() {
    let shares = shares_of_groups(&[(300, 1), (100, 5), (200, 2)]);
    for (share, due) in shares.iter().zip([0.5, 1.0 / 6.0, 1.0 / 3.0]) {
        assert!((share - due).abs() < 0.03, "{shares:?}");
    }
}

#[test]
fn inside_a_group_shares_follow_priorities_and_root_processes_stand_beside_it() {
    let mut queue = queue(false);
    queue.set("low_latency", 0);
    let cgroup = CgroupId(1);
    let in_group = |process, level| {
        let bio = with_prio(far(process), IoClass::Be, level);
        (Bio { cgroup, ..bio }, 8)
    };
    // The group has weight 100, its members 80 and 20, and the process beside it 40.
    let mut drive = Drive::new(queue, vec![in_group(1, 0), in_group(2, 6), (far(3), 8)]);
    drive.run_ms(60_000);
    for (process, due) in [(1, 0.8 / 1.4), (2, 0.2 / 1.4), (3, 0.4 / 1.4)] {
        let share = drive.share(process);
        assert!((share - due).abs() < 0.03, "{process}: {share} of {due}");
    }
}

#[test]
fn a_process_takes_its_queue_with_it_to_another_group() {
    let mut queue = queue(false);
    queue.set("low_latency", 0);
    queue.elevator.set_cgroup_weight(CgroupId(1), 400);
    let cgroup = CgroupId(1);
    let in_group = |process| {
        (
            Bio {
                cgroup,
                ..far(process)
            },
            8,
        )
    };
    let mut drive = Drive::new(queue, vec![in_group(1), in_group(2)]);
    drive.run_ms(5_000);
    drive.readers[1].bio.cgroup = CgroupId(2);
    drive.run_ms(5_000);
    drive.served.clear();
    drive.run_ms(30_000);
    let share = drive.share(1);
    assert!((share - 0.8).abs() < 0.02, "{share}");
}

#[test]
fn real_time_goes_first_and_idle_is_not_starved() {
    let mut queue = queue(false);
    queue.set("low_latency", 0);
    let classes = [IoClass::Rt, IoClass::Be, IoClass::Idle];
    let readers = classes
        .iter()
        .zip(1u32..)
        .map(|(&class, process)| (with_prio(far(process), class, 4), 8));
    let mut drive = Drive::new(queue, readers.collect());
    drive.run_ms(10_000);
    assert!(drive.share(1) > 0.9, "{:?}", drive.served);
    assert_eq!(
        drive.served.get(&2),
        None,
        "best effort waits for real time"
    );
    assert!(drive.served[&3] > 0, "the idle class gets a little");
}

#[test]
fn equal_readers_and_writers_get_equal_shares() {
    let mut queue = queue(false);
    queue.set("low_latency", 0);
    let mut writer = far(2);
    (writer.op, writer.flags) = (Op::Write, BioFlags::SYNC);
    // Queues that are created together would be merged.
    let mut drive = Drive::new(queue, vec![(far(1), 8), (writer, 0)]);
    drive.run_ms(1_000);
    drive.readers[1].depth = 8;
    drive.served.clear();
    drive.run_ms(30_000);
    let share = drive.share(1);
    assert!((share - 0.5).abs() < 0.04, "{share}");
}

/// The share of a process that starts on a drive kept busy by four others: in the first second, and
/// a minute later.
fn newcomer(low_latency: i64) -> (f64, f64) {
    let mut queue = queue(false);
    queue.set("low_latency", low_latency);
    let mut drive = Drive::new(queue, (1..=5).map(|process| (far(process), 0)).collect());
    drive.sector_ns = 10_000;
    // They start one after the other, so that they do not count as one program.
    for hog in 0..4 {
        drive.readers[hog].depth = 8;
        drive.run_ms(5_000);
    }
    drive.run_ms(30_000);
    drive.readers[4].depth = 8;
    drive.served.clear();
    drive.run_ms(1_000);
    let at_once = drive.share(5);
    drive.run_ms(60_000);
    drive.served.clear();
    drive.run_ms(20_000);
    (at_once, drive.share(5))
}

#[test]
fn who_starts_gets_most_of_the_drive_for_a_while() {
    let (at_once, later) = newcomer(1);
    assert!(at_once > 0.6, "{at_once}");
    assert!((later - 0.2).abs() < 0.05, "raising ends: {later}");
    let (plain, _) = newcomer(0);
    assert!(
        plain < 0.3,
        "without low_latency no queue is raised: {plain}"
    );
}

#[test]
fn raising_ends_after_its_time_or_its_service() {
    let mut drive = Drive::new(queue(false), vec![(far(1), 4), (far(2), 0)]);
    drive.run_ms(30_000);
    drive.readers[1].depth = 4;
    drive.step();
    while state(&drive.queue, "pid") != 2 {
        drive.step();
    }
    assert_eq!(state(&drive.queue, "wr_coeff"), 30);
    let began = drive.queue.now;
    while state(&drive.queue, "wr_coeff") == 30 || state(&drive.queue, "pid") != 2 {
        drive.step();
    }
    let raised_ms = (drive.queue.now - began).0 / 1_000_000;
    assert!(drive.served[&2] >= 119_000 || raised_ms >= 3_000);
    assert!(raised_ms <= 25_000, "{raised_ms}");
}

#[test]
fn waits_for_a_sequential_reader_on_a_disk() {
    let mut queue = queue(true);
    queue.set("low_latency", 0);
    let far = bio(Op::Read, 500_000_000, 2);
    queue.insert(&far);
    let mut sector = 0;
    for _ in 0..20 {
        queue.insert(&bio(Op::Read, sector, 1));
        sector += 64;
        queue.now += Nanos::from_micros(100);
    }
    let mut of_first = 0;
    // The sequential reader's next request comes a millisecond after each completion.
    for _ in 0..15 {
        let id = loop {
            match queue.dispatch() {
                Some(id) => break id,
                None => {
                    queue.now = queue.elevator.next_timer().expect("waits");
                    queue.run_timer();
                }
            }
        };
        of_first += (queue.rq(id).submitter == SubmitterId(1)) as u32;
        queue.now += Nanos::from_millis(1);
        queue.complete(id);
        queue.insert(&bio(Op::Read, sector, 1));
        sector += 64;
    }
    assert!(of_first >= 14, "{of_first}");
}

#[test]
fn idling_ends_after_slice_idle() {
    let mut queue = queue(true);
    queue.set("low_latency", 0);
    let id = queue.insert(&bio(Op::Read, 0, 1)).unwrap();
    assert_eq!(queue.dispatch(), Some(id));
    queue.now += Nanos::from_millis(1);
    queue.complete(id);
    queue.insert(&bio(Op::Read, 900_000, 2));
    let wait = queue
        .elevator
        .next_timer()
        .expect("waits for the first process");
    assert!(wait <= queue.now + Nanos::from_millis(8));
    assert_eq!(queue.dispatch(), None);
    queue.now = wait;
    assert!(queue.run_timer());
    assert!(queue.dispatch().is_some());
}

#[test]
fn slice_idle_of_zero_never_waits() {
    let mut queue = queue(true);
    queue.set("slice_idle", 0);
    for i in 0..50 {
        queue.insert(&bio(Op::Read, i * 1_000, (i % 5) as u32));
    }
    let mut served = 0;
    while let Some(id) = queue.dispatch() {
        queue.now += Nanos::from_millis(1);
        queue.complete(id);
        served += 1;
    }
    assert_eq!(served, 50);
}

#[test]
fn strict_guarantees_sends_one_request_at_a_time() {
    let mut queue = queue(false);
    queue.set("strict_guarantees", 1);
    let first = queue.insert(&bio(Op::Read, 0, 1)).unwrap();
    queue.insert(&bio(Op::Read, 10_000, 1));
    assert_eq!(queue.dispatch(), Some(first));
    assert_eq!(queue.dispatch(), None);
    queue.complete(first);
    assert!(queue.dispatch().is_some());
}

#[test]
fn processes_that_read_next_to_each_other_share_a_queue_on_a_disk() {
    let mut queue = queue(true);
    // Others read elsewhere; they came in no order.
    for place in [4, 1, 6, 2, 7, 3, 5] {
        queue.insert(&far(10 + place));
    }
    for round in 0..8 {
        for process in [1, 2] {
            let sector = 1_000_000 + round * 256 + process as u64 * 128;
            queue.insert(&bio(Op::Read, sector, process));
        }
    }
    assert!(queue.count("queues merged") > 0);
    // On flash it is of no use.
    let mut flash = self::queue(false);
    flash.insert(&bio(Op::Read, 0, 1));
    flash.pass_ms(1_000);
    flash.insert(&bio(Op::Read, 128, 2));
    assert_eq!(flash.count("queues merged"), 0);
}

/// As traced in Linux 6.12: a reader that began 19 ms after a copy was merged with it at its
/// first request 600 ms later, and one that began 330 ms after it never was.
#[test]
fn processes_that_start_together_share_a_queue_for_good_on_a_disk() {
    for (apart_ms, merges) in [(19, 1), (330, 0)] {
        let mut queue = queue(true);
        let mut read = |process: u32, sector: u64, wait_ms: u64| {
            let start = far(process).sector.0;
            queue.insert(&bio(Op::Read, start + sector, process));
            let id = next(&mut queue).expect("what was inserted");
            queue.complete(id);
            queue.pass_ms(wait_ms);
            (queue.count("queues merged"), queue.count("queues split"))
        };
        read(1, 0, apart_ms);
        read(2, 0, 500);
        assert_eq!(read(2, 1_000_000, 200), (0, 0), "{apart_ms} ms");
        for round in 2..50 {
            let counts = read(2, round * 1_000_000, 100);
            assert_eq!(counts, (merges, 0), "{apart_ms} ms");
        }
    }
}

#[test]
fn many_queues_at_once_are_not_raised() {
    let mut queue = queue(true);
    for process in 0..20 {
        queue.insert(&bio(Op::Read, process as u64 * 30_000_000, process));
        queue.pass_ms(10);
    }
    let mut last = 0;
    while let Some(id) = next(&mut queue) {
        last = state(&queue, "wr_coeff");
        queue.pass_ms(1);
        queue.complete(id);
    }
    assert_eq!(last, 1, "queues of a large burst are not raised");
}

fn next(queue: &mut TestQueue) -> Option<RequestId> {
    loop {
        if let Some(id) = queue.dispatch() {
            return Some(id);
        }
        if !queue.elevator.has_work(0) {
            return None;
        }
        queue.now = queue.elevator.next_timer()?;
        queue.run_timer();
    }
}

#[test]
fn asynchronous_writes_leave_tags_and_less_while_a_queue_is_raised() {
    let mut bfq = Bfq::new(&queue_info());
    let write = BioFlags::NONE;
    assert_eq!(bfq.limit_depth(Op::Write, write), Some(128));
    assert_eq!(bfq.limit_depth(Op::Write, BioFlags::SYNC), Some(192));
    assert_eq!(bfq.limit_depth(Op::Read, write), None);
    bfq.wr_busy = 1;
    assert_eq!(bfq.limit_depth(Op::Write, write), Some(48));
    assert_eq!(bfq.limit_depth(Op::Write, BioFlags::SYNC), Some(96));
}

/// A bfq whose state a test sees, and what its hooks need.
struct Inside {
    bfq: Bfq,
    rqs: blklab_blk::Requests,
    merge: blklab_blk::MergeState,
    trace: blklab_blk::Trace,
    now: Nanos,
}

impl Inside {
    fn new() -> Inside {
        Inside {
            bfq: Bfq::new(&queue_info()),
            rqs: blklab_blk::Requests::default(),
            merge: blklab_blk::MergeState::new(blklab_blk::QueueLimits::default()),
            trace: blklab_blk::Trace::default(),
            now: Nanos::from_secs(10),
        }
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Bfq, &mut SchedCtx<'_>) -> T) -> T {
        let mut ctx = SchedCtx {
            now: self.now,
            rqs: &mut self.rqs,
            merge: &mut self.merge,
            trace: &mut self.trace,
            runs: &mut Vec::new(),
        };
        f(&mut self.bfq, &mut ctx)
    }

    fn insert(&mut self, bio: Bio) {
        self.with(|bfq, ctx| {
            let id = (ctx.rqs).insert(blklab_blk::Request::for_bio(&bio, ctx.now));
            bfq.insert_request(ctx, 0, id, InsertAt::Tail);
        });
    }
}

#[test]
fn a_queue_with_more_than_its_share_of_tags_may_use_one() {
    let mut queue = Inside::new();
    // Their levels differ, so that they are not merged for starting together.
    let first = with_prio(bio(Op::Read, 0, 1), IoClass::Be, 0);
    let second = with_prio(bio(Op::Read, 50_000_000, 2), IoClass::Be, 7);
    queue.insert(second);
    for i in 0..200 {
        let sector = Sector(i * 1_000);
        queue.insert(Bio { sector, ..first });
    }
    // Weights of 80 and 10 share 256 tags; one request is already there.
    for i in 1..28 {
        assert_eq!(queue.bfq.limit_depth_for(&second), None, "after {i}");
        let sector = Sector(50_000_000 + i * 1_000);
        queue.insert(Bio { sector, ..second });
    }
    let least = queue.bfq.limit_depth_for(&second);
    assert_eq!(least, Some(1));
    // The block layer has to be told the lowest limit (`bfq_depth_updated`).
    assert_eq!(queue.bfq.min_shallow_depth(), least);
}

/// Weights of a higher class count eightfold against those of a lower one, and those of a lower
/// class not at all (`bfqq_request_over_limit`).
#[test]
fn a_share_of_tags_is_of_the_weights_of_this_class_and_those_above() {
    let of = |class, process| with_prio(far(process), class, 4);
    let (rt, be) = (of(IoClass::Rt, 1), of(IoClass::Be, 2));
    let mut queue = Inside::new();
    queue.insert(rt);
    // 256 tags of which a ninth belongs to the best-effort class.
    for i in 0..28 {
        assert_eq!(queue.bfq.limit_depth_for(&be), None, "after {i}");
        let sector = Sector(be.sector.0 + i * 1_000);
        queue.insert(Bio { sector, ..be });
    }
    assert_eq!(queue.bfq.limit_depth_for(&be), Some(1));
    for i in 1..256 {
        assert_eq!(queue.bfq.limit_depth_for(&rt), None, "after {i}");
        let sector = Sector(rt.sector.0 + i * 1_000);
        queue.insert(Bio { sector, ..rt });
    }
    assert_eq!(queue.bfq.limit_depth_for(&rt), Some(1));
}

/// `bfq_update_inject_limit`: one more while a request takes less than one and a half times as long
/// as without injection, up to one more than the drive has held, otherwise one less.
#[test]
fn the_limit_of_injection_follows_what_injection_costs() {
    let mut queue = Inside::new();
    queue.insert(far(1));
    let bfq = &mut queue.bfq;
    let context = bfq.contexts.find(SubmitterId(1)).expect("it submitted");
    let q = bfq.contexts[context].queues[1].expect("it read");
    (bfq.drive.max_in_driver, bfq.in_driver) = (2, 2);
    for (took_ns, before, after) in [
        (1_499, 0, 1),
        (1_500, 0, 0),
        (1_499, 2, 3),
        (1_499, 3, 3),
        (1_500, 3, 2),
        (9_999, 1, 0),
    ] {
        let injection = &mut bfq.queues[q].injection;
        (injection.last_service_ns, injection.limit) = (1_000, before);
        injection.lowered = 0;
        bfq.rqs_injected = true;
        bfq.last_empty_occupied_ns = bfq.now_ns - took_ns;
        bfq.update_injection(q);
        let found = bfq.queues[q].injection;
        assert_eq!(found.limit, after, "{took_ns} ns at {before}");
        let is_lowered = found.lowered == bfq.jiffies;
        assert_eq!(is_lowered, after < before, "{took_ns} ns at {before}");
        assert_eq!(found.last_service_ns, 1_000, "it was not alone");
        assert!(!bfq.rqs_injected);
    }
    // A request that was alone in the drive is what others are compared with, as is a faster one.
    for (injected, in_driver, took_ns, reference_ns) in [
        (false, 1, 3_000, 3_000),
        (true, 1, 3_000, 1_000),
        (false, 2, 3_000, 1_000),
        (true, 2, 999, 999),
    ] {
        bfq.queues[q].injection.last_service_ns = 1_000;
        (bfq.rqs_injected, bfq.in_driver) = (injected, in_driver);
        bfq.last_empty_occupied_ns = bfq.now_ns - took_ns;
        bfq.update_injection(q);
        let found_ns = bfq.queues[q].injection.last_service_ns;
        assert_eq!(found_ns, reference_ns, "{injected} {in_driver} {took_ns}");
    }
}

#[derive(Clone, Debug)]
enum HookCall {
    Insert(Bio),
    Merge(Bio),
    Dispatch,
    Complete(Index),
    Requeue(Index),
    Pass(u64),
    Exit(u32),
    Tune(Index, i64),
}

fn any_bio() -> impl Strategy<Value = Bio> {
    let prio = prop_oneof![
        6 => Just(IoPrio::default()),
        1 => (0u8..8).prop_map(|level| IoPrio { class: IoClass::Be, level }),
        1 => (0u8..8).prop_map(|level| IoPrio { class: IoClass::Rt, level }),
        1 => Just(IoPrio { class: IoClass::Idle, level: 0 }),
    ];
    let flags = prop_oneof![
        Just(BioFlags::NONE),
        Just(BioFlags::SYNC),
        Just(BioFlags::META)
    ];
    let cgroup = prop_oneof![4 => Just(0u16), 1 => 1u16..4];
    (
        any::<bool>(),
        flags,
        0u64..60,
        1u32..4,
        0u32..6,
        prio,
        cgroup,
    )
        .prop_map(|(write, flags, slot, size, submitter, prio, cgroup)| Bio {
            flags,
            prio,
            cgroup: CgroupId(cgroup),
            sectors: size * 64,
            ..bio(
                if write { Op::Write } else { Op::Read },
                slot * 64,
                submitter,
            )
        })
}

fn any_step() -> impl Strategy<Value = HookCall> {
    prop_oneof![
        12 => any_bio().prop_map(HookCall::Insert),
        4 => any_bio().prop_map(HookCall::Merge),
        12 => Just(HookCall::Dispatch),
        10 => any::<Index>().prop_map(HookCall::Complete),
        1 => any::<Index>().prop_map(HookCall::Requeue),
        6 => (0u64..3_000_000).prop_map(HookCall::Pass),
        2 => (0u64..2_000_000_000).prop_map(HookCall::Pass),
        2 => (0u32..6).prop_map(HookCall::Exit),
        1 => (any::<Index>(), 0i64..3).prop_map(|(i, v)| HookCall::Tune(i, v)),
    ]
}

fn run(queue: &mut TestQueue, step: HookCall, in_drive: &mut Vec<RequestId>) {
    match step {
        HookCall::Insert(bio) => {
            queue.insert(&bio);
        }
        HookCall::Merge(bio) => {
            queue.merge(&bio);
            queue.merged_away();
        }
        HookCall::Dispatch => in_drive.extend(queue.dispatch()),
        HookCall::Complete(which) if !in_drive.is_empty() => {
            let id = in_drive.swap_remove(which.index(in_drive.len()));
            queue.complete(id);
        }
        HookCall::Requeue(which) if !in_drive.is_empty() => {
            let id = in_drive.swap_remove(which.index(in_drive.len()));
            queue.requeue(id);
        }
        HookCall::Complete(_) | HookCall::Requeue(_) => {}
        HookCall::Pass(ns) => {
            queue.now += Nanos(ns);
            queue.run_timer();
        }
        HookCall::Exit(submitter) => {
            queue.with(|e, ctx| e.exit_submitter(ctx, SubmitterId(submitter)));
        }
        HookCall::Tune(which, value) => {
            let tunable = TUNABLES[which.index(TUNABLES.len())];
            queue.set(tunable.name, value.clamp(tunable.min, tunable.max));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Processes come, merge, split and exit; in the end every request has been served, and every
    /// queue, counter and reference is gone.
    #[test]
    fn nothing_is_lost_and_nothing_is_left(
        rotational: bool,
        steps in prop::collection::vec(any_step(), 1..250),
    ) {
        let mut queue = queue(rotational);
        let mut in_drive = Vec::new();
        for step in steps {
            run(&mut queue, step, &mut in_drive);
        }
        loop {
            in_drive.extend(next(&mut queue));
            let Some(id) = in_drive.pop() else { break };
            queue.now += Nanos::from_micros(100);
            queue.complete(id);
        }
        prop_assert_eq!(queue.in_use(), 0);
        prop_assert_eq!(state(&queue, "queued"), 0);
        prop_assert_eq!(state(&queue, "tot_rq_in_driver"), 0);
        // An empty queue may still be idled for, or keep its turn.
        prop_assert_eq!(queue.dispatch(), None);
        while let Some(at) = queue.elevator.next_timer() {
            queue.now = at;
            queue.run_timer();
            prop_assert_eq!(queue.dispatch(), None);
        }
        prop_assert_eq!(state(&queue, "busy_queues"), 0);
        prop_assert_eq!(state(&queue, "wr_busy_queues"), 0);
        prop_assert_eq!(state(&queue, "in_service_queue"), -1);
    }
}

impl Bfq {
    /// Compares every count with one made anew from queues, lists and requests.
    fn check_counts(&self, rqs: &blklab_blk::Requests, in_driver: &[RequestId]) {
        let ids = self.queues.ids();
        let queues = || ids.iter().map(|q| &self.queues[*q]);
        for (at, queue) in queues().enumerate() {
            let listed = queue.fifo.iter(rqs).count();
            assert_eq!(queue.sorted.len(), listed, "queue {at}");
            let sync = queue.fifo.iter(rqs).filter(|id| rqs[*id].is_sync()).count();
            let queued = queue.queued.map(|queued| queued as usize);
            assert_eq!(queued, [listed - sync, sync], "queue {at}");
            assert_eq!(queue.next_rq.is_some(), listed > 0, "queue {at}");
            if let Some(next) = queue.next_rq {
                assert!(queue.sorted.contains(rqs, next), "queue {at}");
            }
            // A queue without requests stays busy in service, and when it was preempted there.
            assert!(listed == 0 || queue.busy, "queue {at}");
            let pending = queue.busy || queue.dispatched > 0;
            assert_eq!(queue.counted_pending, pending, "queue {at}");
            assert!(queue.counted_weight.is_none() || pending, "queue {at}");
        }
        let count = |has: &dyn Fn(&&BfqQueue) -> bool| queues().filter(has).count() as u32;
        let busy = [0, 1, 2].map(|class| count(&|queue| queue.busy && queue.class == class));
        assert_eq!(self.busy, busy);
        assert_eq!(
            self.wr_busy,
            count(&|queue| queue.busy && queue.is_raised())
        );
        assert_eq!(
            self.queued,
            queues()
                .map(|queue| queue.queued.iter().sum::<u32>())
                .sum::<u32>()
        );
        assert_eq!(self.in_driver, in_driver.len() as u32);
        assert_eq!(
            self.in_driver,
            queues().map(|queue| queue.dispatched).sum::<u32>()
        );
        let mut pending_groups = 0;
        for (at, group) in self.groups.iter().enumerate() {
            let pending = count(&|queue| queue.counted_pending && queue.group == at);
            assert_eq!(group.pending_queues, pending, "group {at}");
            pending_groups += (pending > 0) as u32;
        }
        assert_eq!(self.pending_groups, pending_groups);
        let mut weights: Vec<u32> = queues().filter_map(|queue| queue.counted_weight).collect();
        weights.sort_unstable();
        assert_eq!(self.weights.all(), weights);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Counts are what there is, after every call. Processes stay in their groups, since an empty
    /// queue that changes its group stays counted as pending (`bfq_bfqq_move`).
    #[test]
    fn counts_are_those_of_queues_and_requests(
        steps in prop::collection::vec(any_step(), 1..200),
        strict: bool,
    ) {
        let mut inside = Inside::new();
        inside.bfq.settings.strict_guarantees = strict;
        let mut in_driver: Vec<RequestId> = Vec::new();
        for step in steps {
            match step {
                HookCall::Insert(mut bio) | HookCall::Merge(mut bio) => {
                    bio.cgroup = CgroupId(bio.submitter.0 as u16 % 3);
                    let id = inside.rqs.insert(blklab_blk::Request::for_bio(&bio, inside.now));
                    inside.with(|bfq, ctx| {
                        bfq.prepare_request(ctx, id);
                        bfq.insert_request(ctx, 0, id, InsertAt::Tail);
                    });
                    let mut gone = Vec::new();
                    inside.merge.take_merged_away(&mut gone);
                    for id in gone {
                        inside.with(|bfq, ctx| bfq.finish_request(ctx, id));
                        inside.rqs.remove(id);
                    }
                }
                HookCall::Dispatch => {
                    let taken = inside.with(|bfq, ctx| blklab_blk::take_request(bfq, ctx, 0));
                    in_driver.extend(taken);
                }
                HookCall::Complete(which) if !in_driver.is_empty() => {
                    let id = in_driver.swap_remove(which.index(in_driver.len()));
                    inside.with(|bfq, ctx| {
                        bfq.completed_request(ctx, id);
                        bfq.finish_request(ctx, id);
                    });
                    inside.rqs.remove(id);
                }
                HookCall::Pass(ns) => {
                    inside.now += Nanos(ns);
                    if inside.bfq.next_timer().is_some_and(|at| at <= inside.now) {
                        inside.with(|bfq, ctx| bfq.timer(ctx));
                    }
                }
                HookCall::Exit(submitter) => {
                    inside.with(|bfq, ctx| bfq.exit_submitter(ctx, SubmitterId(submitter)));
                }
                HookCall::Complete(_) | HookCall::Requeue(_) | HookCall::Tune(..) => {}
            }
            inside.bfq.check_counts(&inside.rqs, &in_driver);
        }
    }
}

#[test]
fn a_sequential_reader_that_does_not_think_at_all_is_waited_for() {
    let mut queue = queue(true);
    queue.set("low_latency", 0);
    let mut next = queue.insert(&bio(Op::Read, 0, 0));
    for i in 1..20 {
        let id = queue.dispatch().expect("its turn");
        assert_eq!(Some(id), next);
        if i == 1 {
            queue.insert(&far(1));
        }
        queue.now += Nanos::from_millis(1);
        queue.complete(id);
        assert_eq!(queue.dispatch(), None);
        next = queue.insert(&bio(Op::Read, 64 * i, 0));
    }
    assert_eq!(queue.count("idle slices"), 19);
}

#[test]
fn waits_are_bounded() {
    // One budget of each other queue.
    assert_wait(
        &BFQ,
        &[("low_latency", 0)],
        Victim::AsyncWrite,
        Adversary::Reads,
        2 * 128,
    );
    // The idle class is served every fifth of a second even beside raised queues.
    assert_wait(
        &BFQ,
        &[("low_latency", 0)],
        Victim::IdleRead,
        Adversary::Reads,
        200 + 128,
    );
}

/// Metadata goes first; then the closer request, where a distance back counts `back_seek_penalty`
/// times and one above `back_seek_max` comes after everything ahead; of two that are so far behind,
/// the lower goes first (`bfq_choose_req`).
#[test]
fn the_next_request_is_the_closer_one() {
    // The sectors dispatched after a request that ends at sector 100,064.
    let next_of = |others: [Bio; 2]| {
        let mut queue = queue(true);
        let first = queue.insert(&bio(Op::Read, 100_000, 1));
        assert_eq!(queue.dispatch(), first);
        for bio in &others {
            queue.insert(bio);
        }
        let id = queue.dispatch().expect("one of them");
        queue.rq(id).sector.0
    };
    let data = |one, other| next_of([bio(Op::Read, one, 1), bio(Op::Read, other, 1)]);
    assert_eq!(data(100_464, 100_764), 100_464);
    assert_eq!(data(99_656, 100_764), 100_764);
    assert_eq!(data(99_656, 100_964), 99_656);
    // The distance back, times the penalty, equals the distance ahead.
    assert_eq!(data(99_664, 100_864), 100_864);
    // 16 MiB are 32,768 sectors.
    assert_eq!(data(67_296, 900_000), 67_296);
    assert_eq!(data(67_295, 900_000), 900_000);
    assert_eq!(data(20_000, 50_000), 20_000);
    let metadata = Bio {
        flags: BioFlags::META,
        ..bio(Op::Read, 900_000, 1)
    };
    let near = bio(Op::Read, 100_464, 1);
    assert_eq!(next_of([near, metadata]), 900_000);
    assert_eq!(next_of([metadata, near]), 900_000);
}

/// The oldest request goes first if its deadline has passed, once in a service slot
/// (`bfq_check_fifo`).
#[test]
fn a_late_request_goes_before_closer_ones_once_in_a_slot() {
    let mut queue = queue(true);
    queue.set("fifo_expire_sync", 100);
    let far = queue.insert(&bio(Op::Read, 900_000, 1));
    queue.pass_ms(101);
    let near: Vec<_> = (0..4)
        .map(|i| queue.insert(&bio(Op::Read, 1_000 * i, 1)))
        .collect();
    let order: Vec<_> = (0..3).map(|_| queue.dispatch()).collect();
    // All others are too far behind, so the lowest comes next.
    assert_eq!(order, [near[0], far, near[1]]);
}

/// A queue is raised again only after two seconds without requests (`bfq_bfqq_idle_for_long_time`).
/// All its requests are seeks, so it is not soft real-time.
#[test]
fn a_queue_is_raised_again_after_two_seconds_without_requests() {
    let mut queue = queue(true);
    let mut sector = 0;
    let mut serve = |queue: &mut TestQueue| {
        sector += 1_000_000;
        let id = queue.insert(&bio(Op::Read, sector, 1));
        assert_eq!(queue.dispatch(), id);
        let coeff = state(queue, "wr_coeff");
        queue.pass_ms(1);
        queue.complete(id.expect("does not merge"));
        // The idle slice ends.
        queue.pass_ms(20);
        queue.run_timer();
        coeff
    };
    assert_eq!(serve(&mut queue), 30);
    // On this drive raising lasts ten and a half seconds.
    for _ in 0..110 {
        queue.pass_ms(79);
        serve(&mut queue);
    }
    assert_eq!(serve(&mut queue), 1);
    queue.pass_ms(1_900);
    assert_eq!(serve(&mut queue), 1);
    queue.pass_ms(2_100);
    assert_eq!(serve(&mut queue), 30);
}

/// Whether the drive queues commands follows from the most it held in 32 samples under load; once
/// it was seen to, that stays (`bfq_update_hw_tag`).
#[test]
fn a_drive_that_never_held_four_requests_does_not_queue_commands() {
    let learn = |bfq: &mut Bfq, held: u32, samples: usize| {
        for _ in 0..samples {
            bfq.in_driver = held;
            bfq.observe_drive_queue();
        }
    };
    let mut bfq = Inside::new().bfq;
    // Without load nothing is learned.
    learn(&mut bfq, 3, 100);
    assert!(bfq.drive.is_queueing());
    bfq.queued = 1;
    learn(&mut bfq, 3, 32);
    assert!(bfq.drive.is_queueing(), "it is assumed until it is known");
    learn(&mut bfq, 3, 1);
    assert!(!bfq.drive.is_queueing() && !bfq.queueing_flash);
    learn(&mut bfq, 4, 32);
    assert!(!bfq.drive.is_queueing(), "the samples begin again");
    learn(&mut bfq, 3, 1);
    assert!(bfq.drive.is_queueing() && bfq.queueing_flash);
    learn(&mut bfq, 1, 100);
    assert!(bfq.drive.is_queueing() && bfq.queueing_flash);
}

/// Idling raises throughput on a disk that takes one command at a time, and for sequential queues
/// unless the drive is flash that queues commands; beside raised queues it is not done for that
/// (`idling_boosts_thr_without_issues`).
#[test]
fn idling_boosts_throughput_by_drive_and_pattern() {
    for (nonrot, is_queueing, boosts_sequential, boosts_seeky) in [
        (false, false, true, true),
        (false, true, true, false),
        (true, false, true, false),
        (true, true, false, false),
    ] {
        let (mut bfq, q) = one_queue();
        (bfq.nonrot, bfq.drive.known, bfq.wr_busy) = (nonrot, Some(is_queueing), 0);
        (bfq.queues[q].io_bound, bfq.queues[q].short_ttime) = (true, true);
        for (seeks, boosts) in [(0, boosts_sequential), (u32::MAX, boosts_seeky)] {
            bfq.queues[q].seek_history = seeks;
            let case = (nonrot, is_queueing, seeks);
            assert_eq!(bfq.idling_boosts_throughput(q), boosts, "{case:?}");
            bfq.wr_busy = 1;
            assert!(!bfq.idling_boosts_throughput(q), "{case:?}");
            bfq.wr_busy = 0;
        }
    }
}

/// A queue in service that thinks shortly and has fewer than three requests may itself be why the
/// drive holds so few, so nothing is learned from it then (`bfq_update_hw_tag`).
#[test]
fn a_queue_with_few_requests_in_service_says_nothing_about_the_drive() {
    for (short_ttime, dispatched, queued, in_driver, is_learned) in [
        (true, 0, [0, 2], 2, false),
        (true, 1, [0, 1], 2, false),
        (true, 1, [1, 0], 2, false),
        (true, 1, [1, 1], 2, true),
        (true, 3, [0, 0], 2, true),
        (true, 0, [0, 2], 3, true),
        (false, 0, [0, 2], 2, true),
    ] {
        let (mut bfq, q) = one_queue();
        (bfq.in_service, bfq.in_driver, bfq.queued) = (Some(q), in_driver, 8);
        let queue = &mut bfq.queues[q];
        (queue.short_ttime, queue.dispatched, queue.queued) = (short_ttime, dispatched, queued);
        (0..33).for_each(|_| bfq.observe_drive_queue());
        let case = (short_ttime, dispatched, queued, in_driver);
        assert_eq!(!bfq.drive.is_queueing(), is_learned, "{case:?}");
    }
}

/// The synchronous queue of a process.
fn queue_of(bfq: &Bfq, process: u32) -> QueueId {
    let context = bfq.contexts.find(SubmitterId(process));
    let context = context.expect("the process has been seen");
    bfq.contexts[context].queues[1].expect("it has a queue")
}

/// A group in service keeps its timestamps while members come whose budget is no smaller
/// (`bfq_update_parent_budget`).
#[test]
fn a_member_with_the_same_budget_does_not_move_its_group() {
    let mut queue = Inside::new();
    queue.bfq.set_tunable("low_latency", 0).expect("is legal");
    let of_group = |group: u16, process: u32| Bio {
        cgroup: CgroupId(group),
        // Their levels differ, so that they are not merged for starting together.
        ..with_prio(far(process), IoClass::Be, process as u8)
    };
    for (group, process) in [(1, 1), (2, 2)] {
        for n in 0..4 {
            let mut bio = of_group(group, process);
            bio.sector.0 += n * 1_000_000;
            queue.insert(bio);
        }
    }
    for _ in 0..2 {
        assert!(
            queue
                .with(|bfq, ctx| bfq.dispatch_request(ctx, 0))
                .is_some()
        );
    }
    let bfq = &queue.bfq;
    let served = bfq.in_service.expect("has requests left");
    let (group, budget) = (bfq.queues[served].group, bfq.queues[served].entity.budget);
    let times = |bfq: &Bfq| {
        (
            bfq.groups[group].entity.start,
            bfq.groups[group].entity.finish,
        )
    };
    let number = if served == queue_of(bfq, 1) { 1 } else { 2 };
    // The first member beside the one in service is the next to be served.
    queue.insert(of_group(number, 3));
    let before = times(&queue.bfq);
    queue.insert(of_group(number, 4));
    let newest = queue_of(&queue.bfq, 4);
    assert_eq!(queue.bfq.queues[newest].entity.budget, budget);
    assert_eq!(queue.bfq.queues[newest].group, group);
    assert_eq!(times(&queue.bfq), before);
}

/// The weight by which a queue is counted is the one that it has; a raised one is not counted. Its
/// level follows from its weight (`__bfq_entity_update_weight_prio`).
#[test]
fn a_queue_is_counted_by_its_present_weight() {
    let mut queue = Inside::new();
    queue.bfq.set_tunable("low_latency", 0).expect("is legal");
    queue.insert(with_prio(far(1), IoClass::Be, 4));
    let bfq = &mut queue.bfq;
    let q = queue_of(bfq, 1);
    assert_eq!(bfq.queues[q].counted_weight, Some(40));
    for (weight, coeff, counted, level) in [
        (80, 1, Some(80), 0),
        (80, 1, Some(80), 0),
        (20, 30, None, 6),
        (500, 1, Some(500), 0),
    ] {
        bfq.queues[q].entity.new_weight = weight;
        bfq.queues[q].entity.prio_changed = true;
        bfq.queues[q].raising.coeff = coeff;
        bfq.update_weight(q, false);
        assert_eq!(bfq.queues[q].counted_weight, counted);
        assert_eq!(bfq.queues[q].level, level);
    }
}

/// A changed class is applied only where it may be, and stays due until then
/// (`__bfq_entity_update_weight_prio`).
#[test]
fn a_changed_class_is_due_until_it_is_applied() {
    let mut queue = Inside::new();
    queue.insert(with_prio(far(1), IoClass::Be, 4));
    let bfq = &mut queue.bfq;
    let q = queue_of(bfq, 1);
    let before = bfq.queues[q].class;
    bfq.queues[q].new_class = before + 1;
    bfq.queues[q].entity.prio_changed = true;
    for (class_too, class, is_due) in [(false, before, true), (true, before + 1, false)] {
        bfq.update_weight(q, class_too);
        assert_eq!(bfq.queues[q].class, class);
        assert_eq!(bfq.queues[q].entity.prio_changed, is_due);
    }
}

/// A queue in a burst, known to be in a large one, or split from another less than 10 ms ago, is
/// no new one (`bfq_handle_burst`).
#[test]
fn a_queue_that_is_not_new_is_in_no_further_burst() {
    type Change = fn(&mut Bfq, QueueId);
    let changes: [(Change, bool); 4] = [
        (|_, _| (), true),
        (|bfq, q| bfq.queues[q].in_burst_list = true, false),
        (|bfq, q| bfq.queues[q].in_large_burst = true, false),
        (|bfq, q| bfq.queues[q].split = bfq.jiffies, false),
    ];
    for (at, (change, is_new)) in changes.into_iter().enumerate() {
        let (mut bfq, q) = one_queue();
        bfq.queues[q].in_burst_list = false;
        bfq.burst.last_arrival = 0;
        change(&mut bfq, q);
        bfq.handle_burst(q);
        assert_eq!(bfq.burst.last_arrival == bfq.jiffies, is_new, "case {at}");
    }
}

/// A request of less than 32 sectors that the drive idled for waits to be merged with more, unless
/// its queue has others (`bfq_rq_enqueued`).
#[test]
fn a_small_request_that_was_idled_for_waits_for_more() {
    for (sectors, count, waits) in [(31, 1, true), (32, 1, false), (31, 2, false)] {
        let mut queue = queue(true);
        queue.set("low_latency", 0);
        let first = queue.insert(&bio(Op::Read, 0, 1)).expect("is alone");
        assert_eq!(queue.dispatch(), Some(first));
        queue.pass_ms(1);
        queue.complete(first);
        assert_eq!(queue.dispatch(), None);
        assert!(queue.elevator.next_timer().is_some(), "it idles");
        for n in 0..count {
            let mut bio = Bio::new(Op::Read, Sector(64 + n * 1000), sectors);
            bio.submitter = SubmitterId(1);
            queue.insert(&bio);
        }
        let is_idling = queue.elevator.next_timer().is_some();
        assert_eq!(is_idling, waits, "{count} of {sectors} sectors");
    }
}

/// Interactive raising ends after more than 120,000 sectors (`bfq_update_wr_data`).
#[test]
fn raising_ends_beyond_its_service() {
    for (service, coeff) in [(120_000, 30), (120_001, 1)] {
        let mut queue = Inside::new();
        queue.insert(far(1));
        let bfq = &mut queue.bfq;
        let q = queue_of(bfq, 1);
        assert_eq!(bfq.queues[q].raising.coeff, 30);
        bfq.queues[q].raising.service = service;
        // What has ended does not end again.
        for _ in 0..2 {
            bfq.update_raising(q);
            assert_eq!(bfq.queues[q].raising.coeff, coeff, "{service}");
            assert_eq!(bfq.wr_busy, u32::from(coeff > 1));
        }
    }
}

/// A bfq with the queues of some processes, ten seconds after the machine has started.
pub(super) fn queues<const COUNT: usize>() -> (Bfq, [QueueId; COUNT]) {
    let mut queue = Inside::new();
    for process in 0..COUNT as u32 {
        // Their levels differ, so that they are not merged for starting together.
        queue.insert(with_prio(far(process + 1), IoClass::Be, process as u8));
    }
    let ids = core::array::from_fn(|process| queue_of(&queue.bfq, process as u32 + 1));
    (queue.bfq, ids)
}

/// A bfq with the queue of one process, ten seconds after the machine has started.
pub(super) fn one_queue() -> (Bfq, QueueId) {
    let mut queue = Inside::new();
    queue.insert(far(1));
    let q = queue_of(&queue.bfq, 1);
    (queue.bfq, q)
}

/// What was learned about injection is for another process's behaviour once the think time has
/// changed between short and long, unless the limit was lowered within 100 ms; a long think time
/// always starts anew (`bfq_update_has_short_ttime`).
#[test]
fn a_changed_think_time_starts_injection_anew() {
    let ms = |ms| blklab_blk::msecs_to_jiffies(ms);
    for (is_short, lowered_ago, service_ns, is_reset) in [
        (true, ms(100), 0, true),
        (true, ms(100) - 1, 0, false),
        (false, 0, 0, true),
        (false, ms(100), 0, true),
        // It is known what a request takes, so there is something to keep.
        (true, ms(100), 1_000, false),
        (false, ms(100), 1_000, false),
    ] {
        let (mut bfq, q) = one_queue();
        let context = bfq.queues[q].context.expect("one process's");
        let idle_ns = bfq.settings.slice_idle_ns;
        bfq.jiffies += 10_000;
        let (jiffies, queue) = (bfq.jiffies, &mut bfq.queues[q]);
        queue.short_ttime = !is_short;
        (queue.ttime.samples, queue.ttime.mean_ns) = (256, idle_ns / 2 + !is_short as u64);
        queue.injection.lowered = jiffies - lowered_ago;
        (queue.injection.last_service_ns, queue.injection.limit) = (service_ns, 7);
        // A second time nothing changes any more.
        for n in 0..2 {
            bfq.update_short_ttime(q, context);
            let found = &bfq.queues[q];
            assert_eq!(found.short_ttime, is_short);
            let expected = match (is_reset, n) {
                (false, _) | (true, 1) => 7,
                (true, _) => 1 - is_short as u32,
            };
            assert_eq!(found.injection.limit, expected, "{is_short} {lowered_ago}");
            bfq.queues[q].injection.limit = 7;
        }
    }
}

/// A process is I/O-bound if it lets the drive wait for at most a fifth of the time, of which the
/// last 200 ms at least are remembered (`bfq_update_io_intensity`).
#[test]
fn a_process_that_is_idle_for_a_fifth_of_the_time_is_not_io_bound() {
    const MS: u64 = 1_000_000;
    for (total_ms, idle_ms, is_bound, kept_ms) in [
        (100, 20, true, 100),
        (100, 21, false, 100),
        (200, 40, true, 200),
        (201, 0, true, 100),
        (300, 61, false, 150),
        (300, 60, true, 150),
    ] {
        let (mut bfq, q) = one_queue();
        let now_ns = bfq.now_ns;
        let queue = &mut bfq.queues[q];
        queue.just_created = false;
        (queue.io_start_ns, queue.idle_total_ns) = (now_ns - total_ms * MS, idle_ms * MS);
        bfq.update_io_bound(q);
        let queue = &bfq.queues[q];
        assert_eq!(queue.io_bound, is_bound, "{total_ms} {idle_ms}");
        assert!((now_ns - queue.io_start_ns).abs_diff(kept_ms * MS) <= MS / 2);
        let kept_idle_ms = idle_ms * kept_ms / total_ms;
        assert!(queue.idle_total_ns.abs_diff(kept_idle_ms * MS) <= MS / 2);
    }
}

/// The service of a soft real-time queue does not end its raising (`bfq_update_wr_data`).
#[test]
fn a_player_may_read_more_than_a_starting_program() {
    let (mut bfq, q) = one_queue();
    let jiffies = bfq.jiffies;
    let raising = &mut bfq.queues[q].raising;
    (raising.coeff, raising.service) = (3_000, 120_001);
    (raising.max_time, raising.start_finish) = (blklab_blk::msecs_to_jiffies(300), jiffies);
    bfq.update_raising(q);
    assert_eq!(bfq.queues[q].raising.coeff, 3_000);
}

/// The mean think time approaches what a process takes, with an idle slice's double as the most;
/// only the first request after a completion counts (`bfq_update_io_thinktime`).
#[test]
fn think_time_is_a_mean_of_the_times_between_completion_and_request() {
    for (took_ns, counted_ns) in [
        (0, 0),
        (5_000, 5_000),
        (16_000_000, 16_000_000),
        (16_000_001, 16_000_000),
        (1 << 40, 16_000_000),
    ] {
        let (mut bfq, q) = one_queue();
        assert_eq!(bfq.settings.slice_idle_ns, 8_000_000);
        bfq.now_ns = 1 << 41;
        let queue = &mut bfq.queues[q];
        queue.ttime = Default::default();
        (queue.busy, queue.dispatched) = (false, 0);
        for n in 1..60 {
            bfq.queues[q].ttime.last_end_ns = bfq.now_ns - took_ns;
            bfq.update_think_time(q);
            let ttime = bfq.queues[q].ttime;
            // The sum of samples is rounded down, by 7 of 256 in the end, and half of it is added.
            assert!(
                ttime.mean_ns.abs_diff(counted_ns) <= 4 + counted_ns / 30,
                "{took_ns} {n}"
            );
            let known = 256.0 * (1.0 - 0.875f64.powi(n));
            assert!((known - ttime.samples as f64).abs() < 8.0);
        }
        // While it has requests nothing is known about its thinking.
        let before = bfq.queues[q].ttime;
        for (busy, dispatched) in [(true, 0), (false, 1), (true, 1)] {
            let queue = &mut bfq.queues[q];
            (queue.busy, queue.dispatched) = (busy, dispatched);
            queue.ttime.last_end_ns = 1;
            bfq.update_think_time(q);
            let ttime = bfq.queues[q].ttime;
            assert_eq!(
                (ttime.samples, ttime.total_ns),
                (before.samples, before.total_ns)
            );
        }
    }
}

/// A request of the queue in service shows what injection costs if the drive is empty, or if
/// others were injected and what it takes without them is known; not within 10 ms after the limit
/// was lowered (`bfq_add_request`).
#[test]
fn a_request_is_timed_alone_or_beside_injected_ones() {
    let ms = |ms| blklab_blk::msecs_to_jiffies(ms);
    let later = ms(12);
    for (in_service, in_driver, service_ns, injected, lowered_ago, is_timed) in [
        (true, 0, 0, false, later, true),
        (true, 0, 0, true, later, true),
        (true, 1, 0, true, later, false),
        (true, 1, 1, false, later, false),
        (true, 1, 1, true, later, true),
        (true, 1, 1, true, 0, false),
        (true, 0, 1, false, 0, false),
        (true, 0, 1, false, ms(10), true),
        (true, 0, 1, false, ms(10) - 1, false),
        (false, 0, 1, false, later, false),
    ] {
        let (mut bfq, q) = one_queue();
        bfq.in_service = in_service.then_some(q);
        (bfq.in_driver, bfq.rqs_injected, bfq.wait_dispatch) = (in_driver, injected, false);
        bfq.queues[q].injection.last_service_ns = service_ns;
        bfq.queues[q].injection.lowered = bfq.jiffies - lowered_ago;
        bfq.prepare_injection_sample(q);
        let case = (in_service, in_driver, service_ns, injected, lowered_ago);
        assert_eq!(bfq.wait_dispatch, is_timed, "{case:?}");
        // A request that is alone in the drive is not disturbed by what was injected before.
        let disturbed = injected && !(is_timed && in_driver == 0);
        assert_eq!(bfq.rqs_injected, disturbed, "{case:?}");
    }
}

/// What remains of a merge has the earlier of two deadlines and that one's place
/// (`bfq_requests_merged`).
#[test]
fn a_survivor_of_a_merge_has_the_earlier_deadline() {
    for is_first_older in [true, false] {
        let mut queue = queue(true);
        let sectors = [100_000, 100_128];
        let [older, younger] = match is_first_older {
            true => sectors,
            false => [sectors[1], sectors[0]],
        };
        let older = queue.insert(&bio(Op::Read, older, 1)).expect("is alone");
        let deadline = queue.rq(older).fifo_time;
        queue.pass_ms(50);
        let between = queue.insert(&bio(Op::Read, 900_000, 1));
        queue.pass_ms(50);
        let younger = queue.insert(&bio(Op::Read, younger, 1)).expect("has a gap");
        let [first, second] = match is_first_older {
            true => [older, younger],
            false => [younger, older],
        };
        let merged = queue.fill_hole(first, second, blklab_blk::MergeKind::Back);
        assert_eq!(merged, Some(first));
        assert_eq!(queue.merged_away(), [second]);
        assert_eq!(queue.rq(first).fifo_time, deadline, "{is_first_older}");
        assert_eq!(
            queue.drain(),
            [Some(first), between].map(|id| id.expect("is queued"))
        );
    }
}
