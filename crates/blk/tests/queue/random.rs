//! Random bios and a driver with random answers: no bio is lost or ends twice, and flushed data is
//! durable, every count is the one that the tracepoints tell, and a tag is with one request.

use std::collections::{HashMap, HashSet};

use blklab_blk::{
    Bio, BioFlags, BlkDriver, BlkStatus, IoStatus, KblockdDelay, Nanos, NoMerges, Op, Plug,
    QueueConfig, QueueLimits, Request, RequestId, RequestQueue, Sector, Submit, SubmitterId,
    Waiter,
};
use proptest::prelude::*;

use crate::tracepoints::Account;
use crate::{Fifo, FifoState};

/// A driver with random answers, over a drive with a write cache.
#[derive(Default)]
struct RandomDriver {
    answers: Vec<u8>,
    at: usize,
    budget: u32,
    in_flight: Vec<(RequestId, Op, Sector, u32, bool)>,
    /// Hardware contexts of the commands in flight.
    hctxs: Vec<usize>,
    /// Sectors in the drive's cache, and on its medium.
    cached: HashSet<u64>,
    durable: HashSet<u64>,
    blocked: Vec<RequestId>,
    /// Whether the driver tells when it would sleep.
    says_so: bool,
    /// Whether it failed a flush.
    failed_flush: bool,
}

impl RandomDriver {
    fn finish(&mut self, pick: usize) -> Option<RequestId> {
        if self.in_flight.is_empty() {
            return None;
        }
        let at = pick % self.in_flight.len();
        let (id, op, sector, sectors, fua) = self.in_flight.remove(at);
        self.hctxs.remove(at);
        let range = sector.0..sector.0 + sectors as u64;
        match op {
            Op::Write if fua => self.durable.extend(range),
            Op::Write => self.cached.extend(range),
            Op::Flush => self.durable.extend(self.cached.drain()),
            _ => {}
        }
        Some(id)
    }
}

impl BlkDriver for RandomDriver {
    fn queue_rq(
        &mut self,
        _now: Nanos,
        hctx: usize,
        id: RequestId,
        rq: &Request,
        _last: bool,
    ) -> BlkStatus {
        let answer = self.answers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        // A device resource is freed by a completion of the same hardware context, so one must be
        // in flight; a system resource is freed by time.
        match answer {
            1 => return BlkStatus::Resource,
            2 if self.hctxs.contains(&hctx) => return BlkStatus::DevResource,
            3 => return BlkStatus::ZoneResource,
            4 => {
                self.failed_flush |= rq.op == Op::Flush;
                return BlkStatus::Failed(IoStatus::IoError);
            }
            _ => {}
        }
        let fua = rq.flags.has(BioFlags::FUA);
        self.in_flight.push((id, rq.op, rq.sector, rq.sectors, fua));
        self.hctxs.push(hctx);
        if answer == 5 {
            self.blocked.push(id);
            return BlkStatus::OkBlocking;
        }
        BlkStatus::Ok
    }

    fn get_budget(&mut self) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        true
    }

    fn put_budget(&mut self) {
        self.budget += 1;
    }

    fn would_sleep(&self) -> bool {
        self.says_so && !self.blocked.is_empty()
    }
}

#[derive(Clone, Debug)]
enum Action {
    Submit {
        op: u8,
        sector: u64,
        sectors: u32,
        flags: u8,
        plugged: bool,
    },
    Unplug {
        from_schedule: bool,
    },
    Finish(usize),
    Unblock,
    Pass(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0u8..10, 0u64..200, 1u32..40, 0u8..16, any::<bool>()).prop_map(
            |(op, sector, sectors, flags, plugged)| Action::Submit { op, sector, sectors, flags, plugged }
        ),
        1 => any::<bool>().prop_map(|from_schedule| Action::Unplug { from_schedule }),
        4 => any::<usize>().prop_map(Action::Finish),
        1 => Just(Action::Unblock),
        1 => (0u64..5_000_000).prop_map(Action::Pass),
    ]
}

struct RandomRun {
    now: Nanos,
    queue: RequestQueue,
    driver: RandomDriver,
    plug: Plug,
    waiters: Vec<Waiter>,
    submitted: HashMap<u64, Bio>,
    ended: HashMap<u64, IoStatus>,
    /// For each flush, the sectors acknowledged before it was submitted.
    flush_covers: HashMap<u64, HashSet<u64>>,
    acknowledged: HashSet<u64>,
    account: Account,
}

impl RandomRun {
    fn new(config: &QueueConfig, budget: u32, answers: Vec<u8>) -> RandomRun {
        let mut queue = RequestQueue::new(config);
        queue.enable_trace(true);
        RandomRun {
            now: Nanos::ZERO,
            queue,
            driver: RandomDriver {
                answers,
                budget,
                ..RandomDriver::default()
            },
            plug: Plug::new(),
            waiters: Vec::new(),
            submitted: HashMap::new(),
            ended: HashMap::new(),
            flush_covers: HashMap::new(),
            acknowledged: HashSet::new(),
            account: Account::default(),
        }
    }

    /// Compares the queue's counts with the tracepoints, and the tags of what the driver has. After
    /// a failed flush the tracepoints do not tell which steps its sequences had.
    fn audit(&mut self) {
        if self.driver.failed_flush {
            return;
        }
        let mut events = Vec::new();
        self.queue.take_trace(&mut events);
        self.account.add(self.queue.limits(), &events);
        self.account.check(self.now, &self.queue);
        let depth = self.queue.info().queue_depth as usize;
        let mut tags = HashSet::new();
        for ((id, op, ..), hctx) in self.driver.in_flight.iter().zip(&self.driver.hctxs) {
            let tag = self.queue.request(*id).tag.expect("the driver has it");
            assert!(
                tag.index() < depth && tags.insert((*hctx, tag.index())),
                "{op:?} {tag:?}"
            );
        }
    }

    fn submit(&mut self, bio: Bio, cpu: usize, plugged: bool) {
        if bio.op == Op::Flush || bio.flags.has(BioFlags::PREFLUSH) {
            self.flush_covers
                .insert(bio.user_data, self.acknowledged.clone());
        }
        self.submitted.insert(bio.user_data, bio);
        let plug = plugged.then_some(&mut self.plug);
        let done = self
            .queue
            .submit_bio(self.now, cpu, plug, bio, &mut self.driver);
        if let Submit::Blocked(waiter) = done {
            self.waiters.push(waiter);
        }
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let mut ended = Vec::new();
            self.queue.take_ended(&mut ended);
            for end in &ended {
                let twice = self.ended.insert(end.user_data, end.status);
                assert!(twice.is_none(), "bio {} ended twice", end.user_data);
                self.check_durable(end.user_data, end.status);
            }
            let mut woken = Vec::new();
            self.queue.take_woken(&mut woken);
            if ended.is_empty() && woken.is_empty() {
                return;
            }
            for ticket in woken {
                let at = self.waiters.iter().position(|w| w.ticket == ticket);
                let waiter = self.waiters.remove(at.expect("a waiter is woken once"));
                let done = self.queue.resume(self.now, None, waiter, &mut self.driver);
                if let Submit::Blocked(waiter) = done {
                    self.waiters.push(waiter);
                }
            }
        }
    }

    fn check_durable(&mut self, id: u64, status: IoStatus) {
        let bio = self.submitted[&id];
        if status != IoStatus::Ok {
            return;
        }
        if let Some(covered) = self.flush_covers.get(&id) {
            let lost: Vec<_> = covered.difference(&self.driver.durable).collect();
            assert!(lost.is_empty(), "flushed, and not durable: {lost:?}");
        }
        if bio.op == Op::Write {
            let range = bio.sector.0..bio.sector.0 + bio.sectors as u64;
            if bio.flags.has(BioFlags::FUA) {
                assert!(range.clone().all(|s| self.driver.durable.contains(&s)));
            }
            self.acknowledged.extend(range);
        }
    }

    fn process(&mut self) {
        self.queue.process(self.now, &mut self.driver);
        self.settle();
    }

    /// Ends everything; from now on the driver accepts all requests.
    fn drain(&mut self) {
        self.driver.answers.clear();
        self.queue
            .flush_plug(self.now, &mut self.plug, &mut self.driver);
        self.settle();
        for _ in 0..100_000 {
            while let Some(id) = self.driver.blocked.pop() {
                self.queue.driver_unblocked(self.now, id, &mut self.driver);
            }
            if let Some(id) = self.driver.finish(0) {
                self.queue
                    .complete(self.now, id, IoStatus::Ok, &mut self.driver);
                self.settle();
                continue;
            }
            let next = self.queue.next_event();
            if next == Nanos::MAX {
                return;
            }
            self.now = self.now.max(next);
            self.process();
        }
        panic!("it never ends");
    }
}

fn bio_of(id: u64, op: u8, sector: u64, sectors: u32, flags: u8) -> Bio {
    let op = match op {
        0..=3 => Op::Read,
        4..=7 => Op::Write,
        8 => Op::Discard,
        _ => Op::Flush,
    };
    let mut bits = BioFlags::NONE;
    if op == Op::Write {
        for (bit, flag) in [
            (1, BioFlags::SYNC),
            (2, BioFlags::FUA),
            (4, BioFlags::PREFLUSH),
        ] {
            if flags & bit != 0 {
                bits = bits.with(flag);
            }
        }
    }
    if flags & 8 != 0 && matches!(op, Op::Read | Op::Write) {
        bits = bits.with(BioFlags::NOWAIT);
    }
    Bio {
        flags: bits,
        user_data: id,
        submitter: SubmitterId(flags as u32 % 3),
        ..Bio::new(
            op,
            Sector(sector),
            if op == Op::Flush { 0 } else { sectors },
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_bio_is_lost_and_what_was_flushed_is_durable(
        actions in prop::collection::vec(action(), 1..120),
        answers in prop::collection::vec(prop_oneof![6 => Just(0u8), 1 => 1u8..6], 0..200),
        depth in 1u32..6,
        queues in 1usize..4,
        fua in any::<bool>(),
        nomerges in 0u8..3,
        (round_robin_tags, seed, says_so, scheduled) in any::<(bool, u64, bool, bool)>(),
    ) {
        let limits = QueueLimits {
            capacity_sectors: 230,
            max_sectors: 16,
            write_cache: true,
            fua,
            nomerges: [NoMerges::All, NoMerges::OneHit, NoMerges::Never][nomerges as usize],
            ..QueueLimits::default()
        };
        let config = QueueConfig {
            nr_cpus: 4,
            nr_hw_queues: queues,
            queue_depth: depth,
            round_robin_tags,
            seed,
            limits,
        };
        let mut run = RandomRun::new(&config, 5, answers);
        run.driver.says_so = says_so;
        if scheduled {
            run.queue.set_elevator(Some(Box::new(Fifo::new(FifoState::default()).0)));
        }
        for (id, action) in actions.into_iter().enumerate() {
            match action {
                Action::Submit { op, sector, sectors, flags, plugged } => {
                    let bio = bio_of(id as u64, op, sector, sectors, flags);
                    run.submit(bio, id % 4, plugged);
                }
                Action::Unplug { from_schedule: true } => {
                    run.queue.flush_plug_from_schedule(run.now, &mut run.plug, &mut run.driver);
                }
                Action::Unplug { from_schedule: false } => {
                    run.queue.flush_plug(run.now, &mut run.plug, &mut run.driver);
                }
                Action::Finish(pick) => {
                    // The thread that sleeps in the driver keeps its request.
                    let held = run.driver.blocked.clone();
                    if held.is_empty() && let Some(rq) = run.driver.finish(pick) {
                        run.queue.complete(run.now, rq, IoStatus::Ok, &mut run.driver);
                    }
                }
                Action::Unblock => {
                    if let Some(rq) = run.driver.blocked.pop() {
                        run.queue.driver_unblocked(run.now, rq, &mut run.driver);
                    }
                }
                Action::Pass(ns) => {
                    run.now += Nanos(ns);
                    if run.queue.next_event() <= run.now {
                        run.process();
                    }
                }
            }
            run.settle();
            run.audit();
        }
        run.drain();
        run.audit();
        prop_assert_eq!(run.ended.len(), run.submitted.len(), "bios were lost");
        prop_assert!(run.queue.is_idle());
        prop_assert_eq!(run.queue.in_flight(), [0, 0]);
        prop_assert_eq!(run.driver.budget, 5, "budget was lost");
        let too_far = |bio: &Bio| bio.end().0 > 230;
        for (id, bio) in &run.submitted {
            if too_far(bio) {
                prop_assert_eq!(run.ended[id], IoStatus::IoError);
            }
        }
    }
}

#[test]
fn kblockd_comes_after_a_while_and_no_later_for_being_asked_again() {
    let config = QueueConfig {
        nr_cpus: 1,
        nr_hw_queues: 1,
        queue_depth: 4,
        round_robin_tags: false,
        seed: 0,
        limits: QueueLimits::default(),
    };
    let mut run = RandomRun::new(&config, 5, Vec::new());
    run.queue.set_kblockd_delay(KblockdDelay {
        after: Nanos(300),
        wake: Nanos(200),
    });
    run.queue.stop_hw_queue(0);
    run.submit(bio_of(1, 0, 0, 8, 0), 0, false);
    let issued_while_stopped = run.driver.in_flight.len();
    run.submit(bio_of(2, 0, 100, 8, 0), 0, false);
    run.queue.start_hw_queue(Nanos(1_000), 0);
    assert_eq!(run.queue.next_event(), Nanos(1_500));
    run.queue.start_hw_queue(Nanos(1_100), 0);
    assert_eq!(run.queue.next_event(), Nanos(1_500));
    run.now = Nanos(1_499);
    run.process();
    assert_eq!(run.driver.in_flight.len(), issued_while_stopped);
    run.now = Nanos(1_500);
    run.process();
    assert_eq!(run.driver.in_flight.len(), 2);
}
