//! Invariants of every scheduler: no request is lost or dispatched twice, every queued request is
//! announced by has_work, everything drains, head inserts go first, no tunable value breaks it, and
//! equal calls give equal results, even if ends that can wait do.

use std::collections::BTreeMap;
use std::thread;

use blklab_blk::{
    Bio, BioFlags, InsertAt, IoClass, IoPrio, MergeKind, Nanos, Op, RequestId, Sector, SubmitterId,
};
use blklab_elevator::ElevatorType;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

mod recorded_runs;
#[path = "../../src/test_queue.rs"]
mod test_queue;
use test_queue::{TestQueue, queue_info};

#[derive(Clone, Debug)]
enum Call {
    Insert(Bio),
    Merge(Bio),
    FlushData(Bio),
    Dispatch(u8),
    Complete(Index),
    Requeue(Index),
    PassMs(u16),
    SetTunable(Index, u8),
}

fn any_bio() -> impl Strategy<Value = Bio> {
    let op = prop_oneof![
        4 => Just(Op::Read),
        4 => Just(Op::Write),
        1 => Just(Op::Discard),
        1 => Just(Op::WriteZeroes),
    ];
    let flags = prop_oneof![
        4 => Just(BioFlags::NONE),
        4 => Just(BioFlags::SYNC),
        1 => Just(BioFlags::SYNC.with(BioFlags::IDLE)),
        1 => Just(BioFlags::META),
        1 => Just(BioFlags::FUA),
        1 => Just(BioFlags::RAHEAD),
    ];
    let class = prop_oneof![
        6 => Just(IoClass::None),
        1 => Just(IoClass::Rt),
        1 => Just(IoClass::Be),
        1 => Just(IoClass::Idle),
    ];
    let place = (0u64..16, 0u64..40, 1u32..4);
    (op, flags, class, 0u8..8, place, 0u32..4).prop_map(
        |(op, flags, class, level, (region, slot, length), submitter)| {
            let start = region * (queue_info().capacity_sectors / 16) + slot * 8;
            let mut bio = Bio::new(op, Sector(start), length * 8);
            bio.flags = flags;
            bio.prio = IoPrio { class, level };
            bio.submitter = SubmitterId(submitter);
            bio
        },
    )
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        10 => any_bio().prop_map(Call::Insert),
        4 => any_bio().prop_map(Call::Merge),
        1 => any_bio().prop_map(Call::FlushData),
        6 => (1u8..6).prop_map(Call::Dispatch),
        6 => any::<Index>().prop_map(Call::Complete),
        1 => any::<Index>().prop_map(Call::Requeue),
        3 => (0u16..2000).prop_map(Call::PassMs),
        1 => (any::<Index>(), 0u8..4).prop_map(|(i, v)| Call::SetTunable(i, v)),
    ]
}

/// Kyber, like the kernel's, puts a head insert first in its software queue, behind requests
/// already collected from there. ADIOS, as shipped, first serves requests by arrival.
const HEAD_MAY_WAIT: [&str; 2] = ["kyber", "adios"];

/// A scheduler and the requests that it should hold.
struct CheckedRun {
    queue: TestQueue,
    /// Queued requests, and whether they were inserted at the head.
    queued: BTreeMap<usize, (RequestId, bool)>,
    in_flight: Vec<RequestId>,
    /// Whether ends wait if they can, and those that do.
    ends_wait: bool,
    ended: Vec<(RequestId, Nanos)>,
    tunables_changed: bool,
    sectors_in: u64,
    sectors_out: u64,
    merged: u64,
    dispatched: u64,
    /// Serial numbers in the order of dispatch.
    order: Vec<u64>,
}

impl CheckedRun {
    fn new(kind: &ElevatorType, ends_wait: bool) -> Option<CheckedRun> {
        Some(CheckedRun {
            queue: TestQueue::new(kind.build(&queue_info())?),
            queued: BTreeMap::new(),
            in_flight: Vec::new(),
            ends_wait,
            ended: Vec::new(),
            tunables_changed: false,
            sectors_in: 0,
            sectors_out: 0,
            merged: 0,
            dispatched: 0,
            order: Vec::new(),
        })
    }

    fn insert(&mut self, id: RequestId, at: InsertAt) {
        self.sectors_in += self.queue.rq(id).sectors as u64;
        self.queued.insert(id.index(), (id, at == InsertAt::Head));
        self.queue.insert_request(id, at);
        self.forget_merged_away();
    }

    fn forget_merged_away(&mut self) {
        for gone in self.queue.merged_away() {
            let known = self.queued.remove(&gone.index());
            assert!(known.is_some(), "{gone:?} was merged but not queued");
            self.merged += 1;
        }
    }

    fn dispatch(&mut self) -> bool {
        self.tell_ends();
        let Some(id) = self.queue.dispatch() else {
            return false;
        };
        let known = self.queued.remove(&id.index());
        let (known, first) = known.expect("dispatched a request that was not queued");
        assert_eq!(known, id);
        let rq = self.queue.rq(id);
        let passed = self
            .queued
            .values()
            .any(|(other, head)| *head && self.queue.rq(*other).op == rq.op);
        let may_wait = HEAD_MAY_WAIT.contains(&self.queue.elevator.name());
        assert!(first || !passed || may_wait, "{id:?} passed a head insert");
        self.sectors_out += rq.sectors as u64;
        self.dispatched += 1;
        self.order.push(rq.serial);
        self.in_flight.push(id);
        true
    }

    fn complete(&mut self, index: usize) {
        let id = self.in_flight.swap_remove(index);
        if self.ends_wait && self.queue.elevator.ends_can_wait() {
            self.ended.push((id, self.queue.now));
        } else {
            self.tell_ends();
            self.queue.complete(id);
        }
    }

    /// Tells of the ends that waited, as if each had been told of at its time.
    fn tell_ends(&mut self) {
        let (now, timer) = (self.queue.now, self.queue.elevator.next_timer());
        let runs = self.queue.take_runs();
        for (id, at) in std::mem::take(&mut self.ended) {
            self.queue.now = at;
            self.queue.complete(id);
            assert_eq!(self.queue.elevator.next_timer(), timer, "a timer was due");
            assert_eq!(self.queue.take_runs(), [], "a run was due");
        }
        self.queue.now = now;
        self.queue.with(|_, ctx| ctx.runs.extend(runs));
    }

    fn requeue(&mut self, index: usize) {
        let id = self.in_flight.swap_remove(index);
        self.sectors_out -= self.queue.rq(id).sectors as u64;
        self.queued.insert(id.index(), (id, true));
        self.queue.requeue(id);
    }

    fn set_tunable(&mut self, index: &Index, value: u8) {
        let declared = self.queue.elevator.tunables().declared();
        if declared.is_empty() {
            return;
        }
        let t = declared[index.index(declared.len())];
        let middle = t.min / 2 + t.max / 2;
        let value = [t.min, t.max, t.default.clamp(t.min, t.max), middle][value as usize];
        if self.queue.elevator.set_tunable(t.name, value).is_err() {
            // It sorts only for drives with moving parts.
            assert_eq!(
                (self.queue.elevator.name(), t.name),
                ("adios", "batch_order")
            );
            return;
        }
        self.tunables_changed = true;
        if let Some(beyond) = t.max.checked_add(1) {
            assert!(self.queue.elevator.set_tunable(t.name, beyond).is_err());
        }
        assert_eq!(self.queue.elevator.tunables().get(t.name), Some(value));
    }

    fn step(&mut self, step: &Call) {
        if !matches!(step, Call::Complete(_)) {
            self.tell_ends();
        }
        match step {
            Call::Insert(bio) => {
                let id = self.queue.make(bio);
                self.insert(id, InsertAt::Tail);
            }
            Call::Merge(bio) => {
                if let Some(into) = self.queue.merge(bio) {
                    self.sectors_in += bio.sectors as u64;
                    self.forget_merged_away();
                    assert!(self.queued.contains_key(&into.index()));
                }
            }
            Call::FlushData(bio) => {
                let id = self.queue.make_flush_data(bio);
                self.insert(id, InsertAt::Head);
            }
            Call::Dispatch(n) => (0..*n).for_each(|_| {
                self.dispatch();
            }),
            Call::Complete(i) if !self.in_flight.is_empty() => {
                self.complete(i.index(self.in_flight.len()));
            }
            Call::Requeue(i) if !self.in_flight.is_empty() => {
                self.requeue(i.index(self.in_flight.len()));
            }
            Call::Complete(_) | Call::Requeue(_) => {}
            Call::PassMs(ms) => {
                self.queue.pass_ms(*ms as u64);
                self.queue.run_timer();
            }
            Call::SetTunable(index, value) => self.set_tunable(index, *value),
        }
        self.check_work();
    }

    fn check_work(&self) {
        let announced = self.queue.elevator.has_work(0);
        assert_eq!(announced, !self.queued.is_empty(), "{:?}", self.queued);
    }

    /// mq-deadline, like the kernel's, computes the arrival of a request from its deadline and the
    /// current expiry: after the expiry was lowered, a request waits until its seeming arrival.
    fn await_timer(&mut self) {
        let name = self.queue.elevator.name();
        let at = match self.queue.elevator.next_timer() {
            Some(at) => at,
            None if self.tunables_changed => self.queue.now + Nanos(1 << 52),
            None => panic!("{name} waits for nothing that will come"),
        };
        self.queue.now = self.queue.now.max(at);
    }

    /// Completes all requests. A scheduler may wait for completions and for its timer, but for
    /// nothing else.
    fn drain(&mut self) {
        while !self.queued.is_empty() || !self.in_flight.is_empty() {
            if self.dispatch() {
                continue;
            }
            if !self.in_flight.is_empty() {
                self.complete(0);
                continue;
            }
            self.await_timer();
            self.queue.run_timer();
        }
        self.tell_ends();
        self.check_work();
        assert_eq!(self.sectors_in, self.sectors_out);
        assert_eq!(self.queue.in_use(), 0);
        self.check_counters();
    }

    /// Kyber counts dispatches by kind.
    fn check_counters(&self) {
        let counters = self.queue.elevator.counters();
        let name = self.queue.elevator.name();
        for (of, expected, but) in [
            ("dispatched", self.dispatched, &["bfq"][..]),
            ("requests merged", self.merged, &["bfq", "kyber"]),
        ] {
            let counted = counters.iter().filter(|(name, _)| name.ends_with(of));
            let counted: Vec<u64> = counted.map(|(_, count)| *count).collect();
            assert_eq!(counted.is_empty(), but.contains(&name), "{counters:?}");
            let sum = counted.iter().sum::<u64>();
            assert!(counted.is_empty() || sum == expected, "{of}: {counters:?}");
        }
    }
}

fn run(kind: &ElevatorType, steps: &[Call], ends_wait: bool) -> Option<Vec<u64>> {
    let mut run = CheckedRun::new(kind, ends_wait)?;
    steps.iter().for_each(|step| run.step(step));
    run.drain();
    Some(run.order)
}

/// Random steps until a scheduler breaks an invariant; the message is the shortest such run.
fn check(kind: &ElevatorType) -> Result<(), String> {
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let steps = prop::collection::vec(any_call(), 1..150);
    let mut runner = TestRunner::new(config);
    let checked = runner.run(&steps, |steps| {
        prop_assert_eq!(
            run(kind, &steps, false),
            run(kind, &steps, true),
            "it decides differently"
        );
        Ok(())
    });
    checked.map_err(|error| format!("{}: {error}", kind.name))
}

#[test]
fn every_scheduler_keeps_its_promises() {
    let checked: Vec<Result<(), String>> = thread::scope(|scope| {
        let kinds = blklab_elevator::all().iter();
        let threads: Vec<_> = kinds.map(|kind| scope.spawn(|| check(kind))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|checked| checked.expect("it catches panics"))
            .collect()
    });
    let broken: Vec<String> = checked.into_iter().filter_map(Result::err).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Kyber, like the kernel's, merges bios with requests of a plain list, and ADIOS, as shipped,
/// returns no neighbours.
const NEIGHBOURS_STAY: [&str; 2] = ["kyber", "adios"];

#[test]
fn a_bio_that_fills_a_hole_joins_the_requests_on_both_sides() {
    for kind in blklab_elevator::all() {
        for (merge, sectors) in [(MergeKind::Back, 24), (MergeKind::Front, 32)] {
            let elevator = kind.build(&queue_info());
            let Some(elevator) = elevator.filter(|_| !NEIGHBOURS_STAY.contains(&kind.name)) else {
                continue;
            };
            let mut queue = TestQueue::new(elevator);
            let mut insert = |sector| queue.insert(&Bio::new(Op::Read, Sector(sector), 8));
            // One is elsewhere, so that ac2 counts the submitter as deep from here on.
            let [other, first, second] = [900_000, 1000, 1016].map(|s| insert(s).expect("alone"));
            let merged = queue.fill_hole(first, second, merge);
            assert_eq!(merged, Some(first), "{}: {merge:?}", kind.name);
            assert_eq!(queue.merged_away(), [second], "{}: {merge:?}", kind.name);
            let counters = queue.elevator.counters();
            let merged = counters.iter().find(|(name, _)| *name == "requests merged");
            assert!(merged.is_none_or(|(_, n)| *n == 1), "{}", kind.name);
            let mut sent = queue.drain();
            sent.sort_unstable_by_key(|id| id.index());
            assert_eq!(sent, [other, first], "{}: {merge:?}", kind.name);
            assert_eq!(queue.rq(first).sectors, sectors, "{}", kind.name);
            assert!(!queue.elevator.has_work(0), "{}", kind.name);
        }
    }
}

/// The block layer wakes waiters in batches that the smallest limit allows
/// (`sbitmap_queue_min_shallow_depth`), so no limit may be below it.
#[test]
fn limits_of_tags_are_no_smaller_than_the_declared_least() {
    let kinds = blklab_elevator::all();
    let mut elevators: Vec<_> = kinds
        .iter()
        .filter_map(|k| k.build(&queue_info()))
        .collect();
    for elevator in &mut elevators {
        let least = elevator.min_shallow_depth();
        assert_ne!(least, Some(0), "{}", elevator.name());
        for op in [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes] {
            for flags in [BioFlags::NONE, BioFlags::SYNC, BioFlags::META] {
                let Some(limit) = elevator.limit_depth(op, flags) else {
                    continue;
                };
                let is_declared = least.is_some_and(|least| least <= limit);
                assert!(is_declared, "{}: {limit} for {op:?}", elevator.name());
            }
        }
    }
}

/// A kernel need not take a scheduler's lock at the ends of requests that set no timer and run no
/// queue.
#[test]
fn ends_can_wait_where_they_change_nothing() {
    for kind in blklab_elevator::all() {
        let Some(elevator) = kind.build(&queue_info()) else {
            continue;
        };
        let mut queue = TestQueue::new(elevator);
        for sector in 0..64 {
            queue.insert(&Bio::new(Op::Read, Sector(sector * 100_000), 8));
        }
        let mut changes = false;
        while let Some(id) = queue.dispatch() {
            let timer = queue.elevator.next_timer();
            queue.pass_ms(1);
            queue.complete(id);
            changes |= queue.elevator.next_timer() != timer || !queue.take_runs().is_empty();
        }
        assert!(changes || queue.elevator.ends_can_wait(), "{}", kind.name);
    }
}

#[test]
fn every_declaration_is_sound() {
    for kind in blklab_elevator::all() {
        assert_eq!(
            blklab_elevator::find(kind.name).map(|k| k.name),
            Some(kind.name)
        );
        assert!(!kind.help.is_empty() && !kind.source.is_empty());
        let Some(elevator) = kind.build(&queue_info()) else {
            continue;
        };
        assert_eq!(elevator.name(), kind.name);
        assert_eq!(elevator.tunables().declared(), kind.tunables);
        assert_eq!(elevator.attributes(), kind.attributes);
        let steps = kind.costs.map(|c| [c.merge, c.insert, c.dispatch]);
        assert!(
            steps.is_some_and(|steps| !steps.contains(&0)),
            "{}",
            kind.name
        );
        for a in kind.attributes {
            let shown = elevator.attribute(a.name);
            assert_eq!(shown.is_some(), a.readable, "{}: {}", kind.name, a.name);
        }
        for t in kind.tunables {
            let value = elevator.tunables().get(t.name);
            assert!(t.min <= t.max, "{}: {}", kind.name, t.name);
            assert!(
                value.is_some_and(|v| (t.min..=t.max).contains(&v)),
                "{}: {}",
                kind.name,
                t.name
            );
        }
    }
}
