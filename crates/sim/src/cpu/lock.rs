//! The spinlock of a scheduler that serves all hardware queues (`dd->lock`,
//! `bfqd->lock`).
//!
//! A call into the block layer takes the lock to look for a merge, to insert, and for
//! each request that it dispatches. The cache lines of the lock, and those that it
//! protects, stay with a CPU until another one takes it. Under contention every hold
//! brings them from another CPU, so that throughput falls as CPUs are added.
//!
//! A call dispatches until the scheduler is empty, whoever inserted the requests. Calls
//! that meet therefore share their requests, and end at about the same time.

use std::cmp::Reverse;
use std::collections::VecDeque;

use blklab_blk::Nanos;

use super::{Slowdown, Topology};

/// What a lock that was held by another CPU costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferCost {
    /// The transfer of its cache lines, and of those that it protects, between two CPUs
    /// of a socket.
    pub(super) base: Nanos,
    /// What each CPU ahead in the queue adds, up to [`MAX_COUNTED_WAITERS`].
    pub(super) each_waiter: Nanos,
    /// How much longer a cache line takes from another socket, in hundredths.
    pub(super) remote_percent: u64,
    /// Which CPUs share a core, and which a socket.
    pub(super) topology: Topology,
    /// Issuing a request that another CPU of the socket inserted.
    pub(super) foreign_request: Nanos,
}

impl TransferCost {
    /// The cost of a transfer from one CPU to another, behind this many others.
    fn between(&self, from: usize, to: usize, waiters: u64) -> Nanos {
        // Threads of a core share its caches.
        if self.topology.core_of(from) == self.topology.core_of(to) {
            return Nanos::ZERO;
        }
        self.over_distance(from, to, self.base.0 + self.each_waiter.0 * waiters)
    }

    /// How long a transfer from one CPU to another takes that takes `local_ns` inside a
    /// socket.
    fn over_distance(&self, from: usize, to: usize, local_ns: u64) -> Nanos {
        match self.topology.socket_of(from) == self.topology.socket_of(to) {
            true => Nanos(local_ns),
            false => Nanos(local_ns + local_ns * self.remote_percent / 100),
        }
    }
}

/// A number of holds of the lock and the length of each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds {
    count: u64,
    each: Nanos,
}

impl Holds {
    /// `count` holds; none if they take no time.
    pub(super) fn new(count: u64, each: Nanos) -> Holds {
        match each {
            Nanos::ZERO => Holds::default(),
            each => Holds { count, each },
        }
    }

    /// The time of all holds.
    fn sum(&self) -> Nanos {
        Nanos(self.count * self.each.0)
    }

    fn slowed(&self, slowdown: Slowdown) -> Holds {
        Holds::new(self.count, slowdown.of(self.each))
    }
}

/// The steps of a call, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockedSteps {
    /// Attempts to merge, or the end of a request.
    pub(super) first: Holds,
    /// Work without the lock after those.
    pub(super) between: Nanos,
    /// Inserts, all under one hold.
    pub(super) insert: Nanos,
    /// Requests that are dispatched, each under a hold.
    pub(super) dispatches: Holds,
    /// Issuing one of these to the driver, without the lock.
    pub(super) issue_each: Nanos,
    /// Other work without the lock at the end.
    pub(super) after: Nanos,
}

impl LockedSteps {
    /// The steps with so much work of issuing requests, shared out among the dispatches.
    pub(super) fn with_issues(self, issues: Nanos) -> LockedSteps {
        let issue_each = issues.0.checked_div(self.dispatches.count).unwrap_or(0);
        LockedSteps {
            issue_each: Nanos(issue_each),
            after: issues - Nanos(issue_each * self.dispatches.count),
            ..self
        }
    }

    /// The time that the lock is held.
    pub(super) fn held(&self) -> Nanos {
        self.first.sum() + self.insert + self.dispatches.sum()
    }

    /// The time without the lock.
    pub(super) fn not_held(&self) -> Nanos {
        let issues = Nanos(self.dispatches.count * self.issue_each.0);
        self.between + issues + self.after
    }

    /// The time of all steps on a CPU that no other delays.
    pub(super) fn alone(&self) -> Nanos {
        self.held() + self.not_held()
    }

    /// The steps on a CPU that takes longer for each.
    pub(super) fn slowed(&self, slowdown: Slowdown) -> LockedSteps {
        LockedSteps {
            first: self.first.slowed(slowdown),
            between: slowdown.of(self.between),
            insert: slowdown.of(self.insert),
            dispatches: self.dispatches.slowed(slowdown),
            issue_each: slowdown.of(self.issue_each),
            after: slowdown.of(self.after),
        }
    }
}

/// Why a call takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Merging, inserting, or the end of a request.
    Update,
    /// Dispatching until the scheduler is empty.
    Dispatch,
}

/// An unfinished call.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    cpu: usize,
    /// When it asks for the lock next.
    asks_at: Nanos,
    purpose: Purpose,
    /// How long it holds the lock then.
    work: Nanos,
    /// The steps after that.
    rest: LockedSteps,
    /// Its requests that are still in the scheduler.
    queued: u64,
    /// The work of issuing requests that it has dispatched so far.
    issue: Nanos,
    /// The predicted end; zero before the first prediction.
    end: Nanos,
}

impl Call {
    /// A call that begins at `start`; `None` for one that never takes the lock.
    fn new(number: u64, cpu: usize, start: Nanos, steps: LockedSteps) -> Option<Call> {
        let mut call = Call {
            number,
            cpu,
            asks_at: start,
            purpose: Purpose::Update,
            work: Nanos::ZERO,
            rest: steps,
            queued: 0,
            issue: Nanos::ZERO,
            end: Nanos::ZERO,
        };
        call.go_on(start).then_some(call)
    }

    /// Goes on from `now` to its next hold. Returns false if there is none.
    fn go_on(&mut self, now: Nanos) -> bool {
        let rest = &mut self.rest;
        self.asks_at = now;
        if rest.first.count > 0 {
            rest.first.count -= 1;
            self.work = rest.first.each;
            return true;
        }
        self.asks_at += std::mem::take(&mut rest.between);
        self.work = std::mem::take(&mut rest.insert);
        if self.work > Nanos::ZERO {
            return true;
        }
        if rest.dispatches.count == 0 {
            return false;
        }
        self.purpose = Purpose::Dispatch;
        self.work = rest.dispatches.each;
        self.queued = std::mem::take(&mut rest.dispatches.count);
        true
    }
}

/// The lock's last holder and its future releases.
#[derive(Debug, Default)]
struct Order {
    /// When its holder and its waiters release it, in the order of the queue.
    releases: VecDeque<Nanos>,
    last_cpu: Option<usize>,
}

/// A queued spinlock has two slow paths: the first waiter spins on the lock word, all
/// further ones on their own nodes of the queue (`queued_spin_lock_slowpath`).
const MAX_COUNTED_WAITERS: u64 = 2;

impl Order {
    /// Becomes a copy of `other`, in the memory that it has.
    fn copy_from(&mut self, other: &Order) {
        self.releases.clone_from(&other.releases);
        self.last_cpu = other.last_cpu;
    }

    /// Whether who holds it or waits for it has released it by then.
    fn is_released_by(&self, at: Nanos) -> bool {
        self.releases.back().is_none_or(|&release| release <= at)
    }

    /// Takes the lock from `at` on for `work`. Returns when it is released.
    fn take(&mut self, cpu: usize, at: Nanos, work: Nanos, cost: &TransferCost) -> Nanos {
        while self.releases.front().is_some_and(|&release| release <= at) {
            self.releases.pop_front();
        }
        let waiters = (self.releases.len() as u64).min(MAX_COUNTED_WAITERS);
        let start = self.releases.back().copied().unwrap_or(at);
        let last = self.last_cpu.replace(cpu).unwrap_or(cpu);
        let transfer = cost.between(last, cpu, waiters);
        let release = start + transfer + work;
        self.releases.push_back(release);
        release
    }

    /// Serves the call that asks first, if that is before `until`. A call that ends is removed
    /// and returned.
    fn serve_first(&mut self, calls: &mut Calls, until: Nanos, cost: &TransferCost) -> Served {
        let Some((cpu, others_ask)) = calls.first() else {
            return Served::Nothing;
        };
        let Some(call) = calls.front_mut(cpu).filter(|call| call.asks_at < until) else {
            return Served::Nothing;
        };
        let goes_on = match call.purpose {
            Purpose::Update => self.update(call, until.min(others_ask), cost),
            Purpose::Dispatch => self.dispatch(calls, cpu, cost),
        };
        match goes_on {
            true => Served::Hold,
            false => calls
                .remove_front(cpu)
                .map_or(Served::Nothing, Served::Last),
        }
    }

    /// Serves holds that merge, insert or end a request: one, and those like it that the call
    /// asks for before `until`, when no other does. Returns whether the call goes on.
    fn update(&mut self, call: &mut Call, until: Nanos, cost: &TransferCost) -> bool {
        let mut released = self.take(call.cpu, call.asks_at, call.work, cost);
        let more = call.rest.first;
        if more.count > 0 && released < until {
            let before = (until - released - Nanos(1)).0 / more.each.0 + 1;
            let holds = before.min(more.count);
            call.rest.first.count -= holds;
            released += Nanos(holds * more.each.0);
            self.releases.push_back(released);
        }
        call.go_on(released)
    }

    /// Serves a hold that dispatches a request. If the scheduler is empty the call issues
    /// what it has, and looks again after that (`blk_mq_do_dispatch_sched`). Returns
    /// whether the call goes on.
    fn dispatch(&mut self, calls: &mut Calls, cpu: usize, cost: &TransferCost) -> bool {
        let request = calls.take_request(cpu);
        let Some(call) = calls.front_mut(cpu) else {
            return false;
        };
        let Some((owner, mut issue)) = request else {
            let issue = std::mem::take(&mut call.issue);
            call.asks_at += issue;
            return issue > Nanos::ZERO;
        };
        let mut work = call.work;
        if owner != cpu {
            work += cost.over_distance(owner, cpu, cost.base.0);
            issue += cost.over_distance(owner, cpu, cost.foreign_request.0);
        }
        call.issue += issue;
        call.asks_at = self.take(cpu, call.asks_at, work, cost);
        true
    }
}

/// What has been served.
enum Served {
    Nothing,
    Hold,
    /// The last hold of a call.
    Last(Call),
}

/// Unfinished calls by CPU, those of each in order. Only the first of each has begun.
#[derive(Debug, Default)]
struct Calls {
    of_cpu: Vec<VecDeque<Call>>,
    /// The CPUs that have any, in no order: mostly few of all.
    busy: Vec<usize>,
}

impl Calls {
    /// Becomes a copy of `other`, in the memory that it has.
    fn copy_from(&mut self, other: &Calls) {
        self.of_cpu.clone_from(&other.of_cpu);
        self.busy.clone_from(&other.busy);
    }

    fn push(&mut self, call: Call) {
        if self.of_cpu.len() <= call.cpu {
            self.of_cpu.resize_with(call.cpu + 1, VecDeque::new);
        }
        if self.of_cpu[call.cpu].is_empty() {
            self.busy.push(call.cpu);
        }
        self.of_cpu[call.cpu].push_back(call);
    }

    fn iter(&self) -> impl Iterator<Item = &Call> {
        self.busy.iter().flat_map(|&cpu| &self.of_cpu[cpu])
    }

    fn is_empty(&self) -> bool {
        self.busy.is_empty()
    }

    /// Whether there are calls, and all are that CPU's.
    fn are_all_of(&self, cpu: usize) -> bool {
        self.busy == [cpu]
    }

    /// A CPU's call of that number.
    fn numbered(&mut self, cpu: usize, number: u64) -> Option<&mut Call> {
        let calls = &mut self.of_cpu[cpu];
        let at = calls.binary_search_by_key(&number, |call| call.number);
        calls.get_mut(at.ok()?)
    }

    /// The CPU whose call asks first, the older one of two that ask together, and when the
    /// next of another asks.
    fn first(&self) -> Option<(usize, Nanos)> {
        let asking = || self.busy.iter().filter_map(|&cpu| self.of_cpu[cpu].front());
        let first = asking().min_by_key(|call| (call.asks_at, call.number))?;
        let others = asking().filter(|call| call.cpu != first.cpu);
        let others_ask = others.map(|call| call.asks_at).min();
        Some((first.cpu, others_ask.unwrap_or(Nanos::MAX)))
    }

    fn front_mut(&mut self, cpu: usize) -> Option<&mut Call> {
        self.of_cpu[cpu].front_mut()
    }

    /// Removes a CPU's first call, which is over.
    fn remove_front(&mut self, cpu: usize) -> Option<Call> {
        let calls = &mut self.of_cpu[cpu];
        let mut over = calls.pop_front()?;
        over.end = over.asks_at + over.rest.after;
        match calls.front_mut() {
            // The next call of its CPU cannot begin earlier.
            Some(next) => next.asks_at = next.asks_at.max(over.end),
            None => self.busy.retain(|&busy| busy != cpu),
        }
        Some(over)
    }

    /// Takes the request that a CPU's call dispatches next; the CPU that inserted it and the
    /// work of issuing it. `None` if the scheduler is empty. A scheduler's order does not
    /// depend on the CPU, so each call's requests go at a rate that follows their number: one
    /// with most of them is chosen, the CPU's own before the oldest.
    fn take_request(&mut self, cpu: usize) -> Option<(usize, Nanos)> {
        let own = self.of_cpu[cpu].front().map_or(0, |call| call.number);
        let waiting = self.iter().filter(|call| call.queued > 0);
        let Call { number, cpu, .. } = *waiting.min_by_key(|call| {
            let is_others = call.number != own;
            (Reverse(call.queued), is_others, call.number)
        })?;
        let from = self.numbered(cpu, number)?;
        from.queued -= 1;
        Some((cpu, from.rest.issue_each))
    }
}

/// The lock of one scheduler, which is granted in the order of asking, as Linux' queued
/// spinlocks are.
///
/// The end of a call is predicted when the call begins. A later call may take the lock
/// between its holds and delay it.
#[derive(Debug, Default)]
pub(crate) struct SchedulerLock {
    /// Its state after all holds that are over.
    current: Order,
    /// Unfinished calls.
    calls: Calls,
    /// How many calls there have been.
    made: u64,
    /// By how much the last call delays those of other CPUs.
    delays: Vec<(usize, Nanos)>,
    /// Copies of both on which the future is predicted.
    predicted: Order,
    predicted_calls: Calls,
}

impl SchedulerLock {
    /// Begins the steps of a CPU at `start`; no later call begins before `now`. Returns
    /// when they end. [`SchedulerLock::delays`] then lists the calls that they delay.
    pub(super) fn call(
        &mut self,
        now: Nanos,
        (cpu, start): (usize, Nanos),
        steps: LockedSteps,
        cost: &TransferCost,
    ) -> Nanos {
        self.delays.clear();
        self.advance(now, cost);
        let alone = start + steps.alone();
        self.made += 1;
        let Some(mut call) = Call::new(self.made, cpu, start, steps) else {
            return alone;
        };
        if self.is_uncontended(&call, start) {
            call.end = alone;
            self.calls.push(call);
            return alone;
        }
        self.calls.push(call);
        self.predict(cost);
        let last = self.calls.of_cpu[cpu].back();
        last.map_or(alone, |call| call.end)
    }

    /// The CPUs whose calls the last call delays, and by how much.
    pub(super) fn delays(&self) -> &[(usize, Nanos)] {
        &self.delays
    }

    /// Whether a call that begins at `start` finds the lock free and its cache line at its
    /// CPU, and delays nobody: all others are over by then. Those of them that are unfinished
    /// are its CPU's own, and it takes no requests from them.
    fn is_uncontended(&self, call: &Call, start: Nanos) -> bool {
        let cpu = call.cpu;
        let own_end_first = || {
            let last = self.calls.of_cpu[cpu].back();
            call.purpose == Purpose::Update
                && self.calls.are_all_of(cpu)
                && last.is_some_and(|last| last.end <= start)
        };
        self.current.last_cpu == Some(cpu)
            && match self.calls.is_empty() {
                true => self.current.is_released_by(start),
                false => own_end_first(),
            }
    }

    /// Serves all holds that begin before `now`.
    fn advance(&mut self, now: Nanos, cost: &TransferCost) {
        while !matches!(
            self.current.serve_first(&mut self.calls, now, cost),
            Served::Nothing
        ) {}
    }

    /// Predicts when the calls end if no other begins.
    fn predict(&mut self, cost: &TransferCost) {
        self.predicted.copy_from(&self.current);
        self.predicted_calls.copy_from(&self.calls);
        loop {
            let calls = &mut self.predicted_calls;
            match self.predicted.serve_first(calls, Nanos::MAX, cost) {
                Served::Nothing => break,
                Served::Hold => {}
                Served::Last(over) => self.record_end(&over),
            }
        }
    }

    /// Records the predicted end of a call. The last call of a CPU gives the CPU's delay.
    fn record_end(&mut self, over: &Call) {
        let calls = &mut self.calls.of_cpu[over.cpu];
        let Ok(at) = calls.binary_search_by_key(&over.number, |call| call.number) else {
            return;
        };
        let is_last = at + 1 == calls.len();
        let earlier = calls[at].end;
        // The CPU's time is booked up to the latest prediction and is not given back.
        calls[at].end = earlier.max(over.end);
        let late = over.end.saturating_sub(earlier);
        if earlier > Nanos::ZERO && late > Nanos::ZERO && is_last {
            self.delays.push((over.cpu, late));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Numbering;
    use super::*;
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    const fn two_sockets(cpus: u32) -> Topology {
        Topology {
            cpus,
            sockets: 2,
            threads_per_core: 1,
            numbering: Numbering::CoresFirst,
        }
    }

    const COST: TransferCost = TransferCost {
        base: Nanos(10),
        each_waiter: Nanos(1),
        remote_percent: 200,
        topology: two_sockets(8),
        foreign_request: Nanos(100),
    };

    fn one_hold(ns: u64) -> LockedSteps {
        LockedSteps {
            first: Holds::new(1, Nanos(ns)),
            ..LockedSteps::default()
        }
    }

    #[test]
    fn a_transfer_costs_and_a_repeated_hold_does_not() {
        let mut lock = SchedulerLock::default();
        let mut take = |cpu, at| {
            lock.call(Nanos(at), (cpu, Nanos(at)), one_hold(100), &COST)
                .0
        };
        assert_eq!(take(0, 0), 100);
        assert_eq!(take(0, 200), 300);
        // Another CPU comes while it is held, and a third behind that.
        assert_eq!(take(1, 250), 300 + 11 + 100);
        assert_eq!(take(2, 260), 411 + 12 + 100);
        // One of the other socket: each line takes three times as long.
        assert_eq!(take(4, 600), 600 + 30 + 100);
        assert_eq!(take(5, 800), 800 + 10 + 100);
    }

    #[test]
    fn a_hold_of_another_cpu_makes_the_next_one_costlier() {
        let steps = LockedSteps {
            first: Holds::new(1, Nanos(20)),
            between: Nanos(100),
            insert: Nanos(30),
            dispatches: Holds::new(2, Nanos(10)),
            after: Nanos(50),
            ..LockedSteps::default()
        };
        let mut lock = SchedulerLock::default();
        let end = lock.call(Nanos(0), (0, Nanos(0)), steps, &COST);
        assert_eq!((end, lock.delays()), (Nanos(220), &[][..]));
        // Another CPU takes it while the first does something else.
        let end = lock.call(Nanos(40), (1, Nanos(40)), one_hold(15), &COST);
        assert_eq!(end, Nanos(40 + 10 + 15));
        assert_eq!(lock.delays(), [(0, Nanos(10))]);
        // A third waits behind the first one's insert, whose dispatches wait behind the third.
        let end = lock.call(Nanos(140), (2, Nanos(140)), one_hold(15), &COST);
        assert_eq!(end, Nanos(160 + 11 + 15));
        assert_eq!(lock.delays(), [(0, Nanos(11 + 15 + 11))]);
    }

    /// A call that comes with one request while another has eight takes its share of them.
    #[test]
    fn calls_that_meet_share_their_requests() {
        let steps = |requests| {
            let steps = LockedSteps {
                insert: Nanos(30),
                dispatches: Holds::new(requests, Nanos(12)),
                ..LockedSteps::default()
            };
            steps.with_issues(Nanos(40 * requests))
        };
        let mut lock = SchedulerLock::default();
        let end = lock.call(Nanos(0), (0, Nanos(0)), steps(8), &COST);
        assert_eq!(end, Nanos(30 + 8 * 12 + 8 * 40));
        // Both dispatch in turn; the second issues three of the first's beside its own.
        let end = lock.call(Nanos(35), (1, Nanos(35)), steps(1), &COST);
        let empty_at = 42 + (11 + 30) + 4 * (11 + 12) + 3 * (11 + 22) + (11 + 12);
        assert_eq!(end, Nanos(empty_at + 40 + 3 * 140));
        let first_end = empty_at - (11 + 12) + 5 * 40;
        assert_eq!(lock.delays(), [(0, Nanos(first_end - 446))]);
        // Without the first it has but its own.
        let end = lock.call(Nanos(2000), (1, Nanos(2000)), steps(1), &COST);
        assert_eq!(end, Nanos(2000 + 30 + 12 + 40));
    }

    #[test]
    fn a_cpu_begins_what_comes_next_when_it_is_done() {
        let mut lock = SchedulerLock::default();
        lock.call(Nanos(0), (0, Nanos(50)), one_hold(100), &COST);
        lock.call(Nanos(0), (0, Nanos(150)), one_hold(100), &COST);
        // It is before both, and the CPU is told once that it is late.
        lock.call(Nanos(0), (1, Nanos(20)), one_hold(100), &COST);
        assert_eq!(lock.delays(), [(0, Nanos(70 + 11))]);
    }

    /// A flusher's call holds the lock for each of its bios, and the ends of requests wait for
    /// its CPU: served hold by hold and predicted from the start each time, this takes hours.
    #[test]
    fn calls_behind_a_long_one_of_their_cpu_are_cheap() {
        let long = LockedSteps {
            first: Holds::new(1_000_000, Nanos(20)),
            between: Nanos(100),
            ..LockedSteps::default()
        };
        let mut lock = SchedulerLock::default();
        let mut end = lock.call(Nanos(0), (0, Nanos(0)), long, &COST);
        assert_eq!(end, Nanos(20_000_100));
        for call in 1..10_000 {
            end = lock.call(Nanos(1000 * call), (0, end), one_hold(7), &COST);
        }
        assert_eq!(end, Nanos(20_000_100 + 7 * 9_999));
        // Another CPU gets it between two holds, and all that waits is as late.
        let other = lock.call(
            Nanos(10_000_005),
            (1, Nanos(10_000_005)),
            one_hold(5),
            &COST,
        );
        assert_eq!(other, Nanos(10_000_020 + 11 + 5));
        assert_eq!(lock.delays(), [(0, Nanos(11 + 5 + 11))]);
    }

    /// As [`SchedulerLock::call`], with a prediction for each call.
    fn call_predicted(
        lock: &mut SchedulerLock,
        now: Nanos,
        (cpu, start): (usize, Nanos),
        steps: LockedSteps,
    ) -> Nanos {
        lock.delays.clear();
        lock.advance(now, &COST);
        lock.made += 1;
        let Some(call) = Call::new(lock.made, cpu, start, steps) else {
            return start + steps.alone();
        };
        lock.calls.push(call);
        lock.predict(&COST);
        lock.calls.of_cpu[cpu].back().map(|call| call.end).unwrap()
    }

    /// Three CPUs make calls of all kinds, mostly the first.
    #[test]
    fn who_finds_the_lock_free_ends_as_a_prediction_would_have_it() {
        let mut random = SplitMix64::seed_from_u64(1);
        let mut below = |end: u64| random.next_u64() % end;
        for _ in 0..100 {
            let (mut lock, mut predicted) = (SchedulerLock::default(), SchedulerLock::default());
            let (mut now, mut free_at) = (Nanos::ZERO, [Nanos::ZERO; 3]);
            for _ in 0..200 {
                now += Nanos(below(400));
                let cpu = (below(20) as usize).saturating_sub(17);
                let steps = LockedSteps {
                    first: Holds::new(below(3), Nanos(below(40))),
                    between: Nanos(below(100)),
                    insert: Nanos(below(3) * 15),
                    dispatches: Holds::new(below(4), Nanos(below(30))),
                    ..LockedSteps::default()
                };
                let steps = steps.with_issues(Nanos(below(200)));
                let start = free_at[cpu].max(now);
                let end = lock.call(now, (cpu, start), steps, &COST);
                let predicted_end = call_predicted(&mut predicted, now, (cpu, start), steps);
                assert_eq!((end, lock.delays()), (predicted_end, predicted.delays()));
                free_at[cpu] = end;
                for &(late_cpu, late) in lock.delays() {
                    free_at[late_cpu] += late;
                }
            }
        }
    }

    /// Calls in a millisecond of CPUs that pause for about so long after each.
    fn calls_per_ms(cpus: usize, pause: Nanos) -> u64 {
        let steps = LockedSteps {
            first: Holds::new(1, Nanos(30)),
            between: Nanos(100),
            insert: Nanos(80),
            dispatches: Holds::new(1, Nanos(60)),
            ..LockedSteps::default()
        };
        let mut lock = SchedulerLock::default();
        let mut free_at: Vec<Nanos> = (0..cpus).map(|cpu| Nanos(97 * cpu as u64)).collect();
        let mut calls = 0;
        loop {
            let next = (0..cpus).min_by_key(|&cpu| free_at[cpu]).unwrap();
            let now = free_at[next];
            if now > Nanos::from_millis(1) {
                return calls;
            }
            // Pauses of different lengths keep CPUs from falling into step.
            let pause = Nanos(pause.0 / 2 + pause.0 * (calls * 7 % 10) / 10);
            let end = lock.call(now, (next, now), steps, &COST_OF_A_SERVER);
            free_at[next] = end + pause;
            for &(cpu, late) in lock.delays() {
                free_at[cpu] += late;
            }
            calls += 1;
        }
    }

    const COST_OF_A_SERVER: TransferCost = TransferCost {
        base: Nanos(50),
        each_waiter: Nanos(50),
        remote_percent: 130,
        topology: two_sockets(20),
        foreign_request: Nanos(0),
    };

    #[test]
    fn it_collapses_when_a_second_socket_joins() {
        let calls: Vec<u64> = [1, 5, 10, 14, 20]
            .map(|cpus| calls_per_ms(cpus, Nanos(4_000)))
            .to_vec();
        assert!(calls[1] > calls[0] * 9 / 2, "it is shared well: {calls:?}");
        assert!(calls[2] > calls[1] * 5 / 4, "and still grows: {calls:?}");
        assert!(calls[3] < calls[2] * 9 / 10, "then falls: {calls:?}");
        assert!(calls[4] < calls[2] * 9 / 10, "and stays low: {calls:?}");
    }
}
