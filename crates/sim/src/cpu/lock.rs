//! The lock that all CPUs share under some schedulers.
//!
//! A call into the block layer takes it several times: to look for a request to merge
//! with, to insert, and for each request that it asks for. Alone a CPU finds what the
//! lock protects in its own cache from the second time on; where others wait, each of
//! them comes in between, and every hold brings all of it from another CPU. That is why
//! such a lock collapses rather than fills up.

use std::collections::VecDeque;

use blklab_blk::Nanos;

use super::Slowdown;

/// What taking the lock over from another CPU costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransferCost {
    /// Bringing its cache lines, and those it protects, from another CPU.
    pub(super) base: Nanos,
    /// More where another holds it, and as much again where some wait already.
    pub(super) each_waiter: Nanos,
    /// How much longer both take from a CPU of another socket, in hundredths.
    pub(super) remote_percent: u64,
    /// CPUs of one socket, which follow each other.
    pub(super) cpus_per_socket: usize,
}

impl TransferCost {
    /// The cost of a transfer from one CPU to another, behind this many waiters.
    fn between(&self, from: usize, to: usize, waiters: u64) -> Nanos {
        if from == to {
            return Nanos::ZERO;
        }
        let local = self.base.0 + self.each_waiter.0 * waiters;
        match from / self.cpus_per_socket == to / self.cpus_per_socket {
            true => Nanos(local),
            false => Nanos(local + local * self.remote_percent / 100),
        }
    }
}

/// Holds of the lock: how many, and how long each lasts.
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

/// The steps of a call, in this order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockedSteps {
    /// Attempts to merge, or the end of a request.
    pub(super) first: Holds,
    /// Work without the lock after those.
    pub(super) between: Nanos,
    /// Inserts, all under one hold.
    pub(super) insert: Nanos,
    /// Requests asked for.
    pub(super) dispatches: Holds,
    /// Work without the lock at the end.
    pub(super) after: Nanos,
}

impl LockedSteps {
    /// The time that the lock is held.
    pub(super) fn held(&self) -> Nanos {
        self.first.sum() + self.insert + self.dispatches.sum()
    }

    /// The time without the lock.
    pub(super) fn not_held(&self) -> Nanos {
        self.between + self.after
    }

    /// The time of all steps on a CPU that no other keeps waiting.
    fn alone(&self) -> Nanos {
        self.held() + self.not_held()
    }

    /// The steps on a CPU that takes longer for each.
    pub(super) fn slowed(&self, slowdown: Slowdown) -> LockedSteps {
        LockedSteps {
            first: self.first.slowed(slowdown),
            between: slowdown.of(self.between),
            insert: slowdown.of(self.insert),
            dispatches: self.dispatches.slowed(slowdown),
            after: slowdown.of(self.after),
        }
    }

    /// Takes the next hold, and the work without the lock before it.
    fn next(&mut self) -> Option<(Nanos, Nanos)> {
        if self.first.count > 0 {
            self.first.count -= 1;
            return Some((Nanos::ZERO, self.first.each));
        }
        let before = std::mem::take(&mut self.between);
        let insert = std::mem::take(&mut self.insert);
        if insert > Nanos::ZERO {
            return Some((before, insert));
        }
        if self.dispatches.count > 0 {
            self.dispatches.count -= 1;
            return Some((before, self.dispatches.each));
        }
        self.after += before;
        None
    }
}

/// An unfinished call.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    cpu: usize,
    /// When it asks for the lock next.
    asks_at: Nanos,
    /// How long it holds the lock then.
    work: Nanos,
    /// The steps after that.
    rest: LockedSteps,
    /// When the call ends, as far as is known.
    end: Nanos,
}

/// The lock's last owner and the releases to come.
#[derive(Clone, Debug, Default)]
struct Order {
    /// When its holder and those that wait for it will release it, in order.
    releases: VecDeque<Nanos>,
    last_cpu: Option<usize>,
}

/// Linux' queued spinlocks get dearer twice: with one waiter, which spins on the lock
/// word, and with more, which spin on nodes of a queue of any length.
const MAX_COUNTED_WAITERS: u64 = 2;

impl Order {
    /// Takes the lock at `at` to do `work` under it. Returns when it is released.
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

    /// Gives the lock to the call that asks for it first. A call that ends with it is
    /// removed and returned.
    fn serve_first(&mut self, calls: &mut Vec<Call>, cost: &TransferCost) -> Option<Call> {
        let at = first(calls)?;
        let call = &mut calls[at];
        let released = self.take(call.cpu, call.asks_at, call.work, cost);
        if let Some((before, work)) = call.rest.next() {
            (call.asks_at, call.work) = (released + before, work);
            return None;
        }
        let mut over = calls.remove(at);
        over.end = released + over.rest.after;
        // The next call of its CPU cannot begin earlier.
        if let Some(next) = calls[at..].iter_mut().find(|c| c.cpu == over.cpu) {
            next.asks_at = next.asks_at.max(over.end);
        }
        Some(over)
    }
}

/// The index of the call that asks first. Of a CPU's calls only the first has begun.
fn first(calls: &[Call]) -> Option<usize> {
    let under_way = |&at: &usize| calls[..at].iter().all(|c| c.cpu != calls[at].cpu);
    (0..calls.len())
        .filter(under_way)
        .min_by_key(|&at| calls[at].asks_at)
}

/// A scheduler's lock. CPUs that come while it is held spin, in the order of coming.
///
/// The end of a call is foretold when it begins. A later call may still come between its
/// holds and delay it.
#[derive(Debug, Default)]
pub(crate) struct SchedulerLock {
    /// Its state after all holds before now.
    settled: Order,
    /// Calls with holds after that, those of each CPU in order.
    calls: Vec<Call>,
    made: u64,
    /// How much later than foretold the calls of other CPUs end.
    delays: Vec<(usize, Nanos)>,
    /// Copies in which the future is tried out.
    trial: Order,
    trial_calls: Vec<Call>,
}

impl SchedulerLock {
    /// Begins the steps of a CPU at `start`; no later call begins before `now`. Returns
    /// when they end. [`SchedulerLock::delays`] then lists the calls that they delay.
    pub(super) fn call(
        &mut self,
        now: Nanos,
        (cpu, start): (usize, Nanos),
        mut steps: LockedSteps,
        cost: &TransferCost,
    ) -> Nanos {
        self.delays.clear();
        self.settle(now, cost);
        let alone = start + steps.alone();
        let Some((before, work)) = steps.next() else {
            return alone;
        };
        self.made += 1;
        self.calls.push(Call {
            number: self.made,
            cpu,
            asks_at: start + before,
            work,
            rest: steps,
            end: Nanos::ZERO,
        });
        self.foresee(cost);
        self.calls.last().map_or(alone, |call| call.end)
    }

    /// The CPUs whose calls the last one delays, and by how much.
    pub(super) fn delays(&self) -> &[(usize, Nanos)] {
        &self.delays
    }

    /// Settles all holds before `now`.
    fn settle(&mut self, now: Nanos, cost: &TransferCost) {
        while first(&self.calls).is_some_and(|at| self.calls[at].asks_at < now) {
            self.settled.serve_first(&mut self.calls, cost);
        }
    }

    /// Foretells when the calls end if no other comes.
    fn foresee(&mut self, cost: &TransferCost) {
        self.trial.clone_from(&self.settled);
        self.trial_calls.clone_from(&self.calls);
        while !self.trial_calls.is_empty() {
            if let Some(over) = self.trial.serve_first(&mut self.trial_calls, cost) {
                self.note_end(&over);
            }
        }
    }

    /// Notes the end of a call. The last call of a CPU tells how late that CPU is.
    fn note_end(&mut self, over: &Call) {
        let Some(at) = self.calls.iter().position(|c| c.number == over.number) else {
            return;
        };
        let said = std::mem::replace(&mut self.calls[at].end, over.end);
        let late = over.end.saturating_sub(said);
        let is_last = self.calls[at + 1..].iter().all(|c| c.cpu != over.cpu);
        if said > Nanos::ZERO && late > Nanos::ZERO && is_last {
            self.delays.push((over.cpu, late));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: TransferCost = TransferCost {
        base: Nanos(10),
        each_waiter: Nanos(1),
        remote_percent: 200,
        cpus_per_socket: 4,
    };

    fn one_hold(ns: u64) -> LockedSteps {
        LockedSteps {
            first: Holds::new(1, Nanos(ns)),
            ..LockedSteps::default()
        }
    }

    #[test]
    fn fighting_costs_and_being_alone_does_not() {
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
        // One of the other socket: each line comes from three times as far.
        assert_eq!(take(4, 600), 600 + 30 + 100);
        assert_eq!(take(5, 800), 800 + 10 + 100);
    }

    #[test]
    fn who_comes_in_between_makes_the_next_hold_dear() {
        let steps = LockedSteps {
            first: Holds::new(1, Nanos(20)),
            between: Nanos(100),
            insert: Nanos(30),
            dispatches: Holds::new(2, Nanos(10)),
            after: Nanos(50),
        };
        let mut lock = SchedulerLock::default();
        let end = lock.call(Nanos(0), (0, Nanos(0)), steps, &COST);
        assert_eq!((end, lock.delays()), (Nanos(220), &[][..]));
        // Another CPU takes it while the first does something else.
        let end = lock.call(Nanos(40), (1, Nanos(40)), one_hold(15), &COST);
        assert_eq!(end, Nanos(40 + 10 + 15));
        assert_eq!(lock.delays(), [(0, Nanos(10))]);
        // A third waits for it behind the first one's insert, which then waits for it.
        let end = lock.call(Nanos(140), (2, Nanos(140)), one_hold(15), &COST);
        assert_eq!(end, Nanos(160 + 11 + 15));
        assert_eq!(lock.delays(), [(0, Nanos(11 + 15 + 11))]);
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

    /// Calls in a millisecond of CPUs that pause for about so long after each.
    fn calls_per_ms(cpus: usize, pause: Nanos) -> u64 {
        let steps = LockedSteps {
            first: Holds::new(1, Nanos(30)),
            between: Nanos(100),
            insert: Nanos(80),
            dispatches: Holds::new(1, Nanos(60)),
            after: Nanos(0),
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
        cpus_per_socket: 10,
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
