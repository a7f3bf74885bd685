//! A scheduler's lock: who comes while it is held spins, and taking it over
//! from another CPU costs more when others wait for it too.

use std::collections::VecDeque;

use blklab_blk::Nanos;

#[derive(Debug, Default)]
pub(crate) struct Lock {
    /// When those that hold it or wait for it will let it go, in order.
    releases: VecDeque<Nanos>,
    last_cpu: Option<usize>,
}

/// What taking a lock over costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferCost {
    /// Bringing its cache lines, and those it protects, from another CPU.
    pub(crate) base: Nanos,
    /// More where another holds it, and as much again where some wait already.
    pub(crate) each_waiter: Nanos,
}

/// Linux' queued spinlocks have three ways of waiting, each dearer than the one
/// before: for nobody, for the lock's own word, and in a queue of nodes. How
/// long the queue is makes no difference.
const WAYS_OF_WAITING: u64 = 2;

impl Lock {
    /// Takes the lock at `at` to do `work` under it. Returns when it is let go.
    pub(crate) fn take(&mut self, cpu: usize, at: Nanos, work: Nanos, cost: TransferCost) -> Nanos {
        while self.releases.front().is_some_and(|&release| release <= at) {
            self.releases.pop_front();
        }
        let waiters = (self.releases.len() as u64).min(WAYS_OF_WAITING);
        let start = self.releases.back().copied().unwrap_or(at);
        let moved = self.last_cpu.is_some_and(|last| last != cpu);
        let transfer = if moved {
            cost.base + Nanos(cost.each_waiter.0 * waiters)
        } else {
            Nanos::ZERO
        };
        self.last_cpu = Some(cpu);
        let release = start + transfer + work;
        self.releases.push_back(release);
        release
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fighting_costs_and_being_alone_does_not() {
        let ns = Nanos;
        let cost = TransferCost {
            base: ns(10),
            each_waiter: ns(1),
        };
        let mut lock = Lock::default();
        assert_eq!(lock.take(0, ns(0), ns(100), cost), ns(100));
        assert_eq!(lock.take(0, ns(200), ns(100), cost), ns(300));
        // Another CPU comes while it is held, and a third behind that.
        assert_eq!(lock.take(1, ns(250), ns(100), cost), ns(300 + 11 + 100));
        assert_eq!(lock.take(2, ns(260), ns(100), cost), ns(411 + 12 + 100));
    }
}
