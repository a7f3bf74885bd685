//! A channel: the bus that units share, and what waits for it.

use alloc::collections::VecDeque;

use blklab_stats::ChannelStats;

use crate::ssd::flash::transaction::NONE;
use crate::ssd::flash::unit::QueueClock;

/// A bus, the units on it, and how long both were busy.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) free_ns: u64,
    /// An event at `free_ns` is scheduled.
    pub(crate) scheduled: bool,
    /// The host's command whose read used the bus last, [`NONE`] for others.
    pub(crate) reader: u32,
    /// Reads whose data waits for the bus.
    output: VecDeque<u32>,
    /// Units that could start an operation, as bits.
    ready: u64,
    /// How many reads with data and ready units wait for the bus.
    waiting: u32,
    /// The place of the unit whose turn it is.
    turn: u32,
    pub(crate) units: u32,
    pub(crate) first_unit: u32,
    /// Units at work, and since when at least one is.
    pub(crate) active: u32,
    pub(crate) active_since_ns: u64,
    pub(crate) queue: QueueClock,
    pub(crate) stats: ChannelStats,
}

impl Channel {
    pub(crate) fn new(first_unit: u32, units: u32) -> Channel {
        Channel {
            free_ns: 0,
            scheduled: false,
            reader: NONE,
            output: VecDeque::with_capacity(units as usize),
            ready: 0,
            waiting: 0,
            turn: 0,
            units,
            first_unit,
            active: 0,
            active_since_ns: 0,
            queue: QueueClock::default(),
            stats: ChannelStats::default(),
        }
    }

    /// Accounts for the queue until now, before it changes.
    #[inline]
    pub(crate) fn count_queue(&mut self, now_ns: u64) {
        self.queue.accumulate(now_ns, || self.waiting);
    }

    /// How many wait for the bus.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Units that could start an operation, as bits.
    #[inline]
    pub(crate) fn ready(&self) -> u64 {
        self.ready
    }

    /// Whether data waits for the bus.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    #[inline]
    pub(crate) fn set_ready(&mut self, now_ns: u64, bit: u64) {
        self.count_queue(now_ns);
        self.waiting += (self.ready & bit == 0) as u32;
        self.ready |= bit;
    }

    #[inline]
    pub(crate) fn clear_ready(&mut self, now_ns: u64, bit: u64) {
        self.count_queue(now_ns);
        self.waiting -= (self.ready & bit != 0) as u32;
        self.ready &= !bit;
    }

    #[inline]
    pub(crate) fn put_output(&mut self, now_ns: u64, index: u32) {
        self.count_queue(now_ns);
        self.waiting += 1;
        self.output.push_back(index);
    }

    #[inline]
    pub(crate) fn take_output(&mut self, now_ns: u64) -> Option<u32> {
        if self.output.is_empty() {
            return None;
        }
        self.count_queue(now_ns);
        self.waiting -= 1;
        self.output.pop_front()
    }

    /// The channel after a loss of power: nothing uses it or waits for it.
    pub(crate) fn powered_off(&self, now_ns: u64) -> Channel {
        let stats = ChannelStats {
            bus_busy_ns: self.bus_busy_until(now_ns),
            ..self.stats.clone()
        };
        Channel {
            queue: self.queue.stopped(now_ns, self.waiting()),
            stats,
            ..Channel::new(self.first_unit, self.units)
        }
    }

    /// The next unit in turn among those that could start an operation.
    #[inline]
    pub(crate) fn next_ready(&self) -> u32 {
        let later = self.ready >> self.turn;
        let place = match later {
            0 => self.ready.trailing_zeros(),
            _ => self.turn + later.trailing_zeros(),
        };
        self.first_unit + place
    }

    /// A unit had its turn; the one behind it is next.
    #[inline]
    pub(crate) fn had_turn(&mut self, unit_index: u32) {
        let next = unit_index - self.first_unit + 1;
        self.turn = if next < self.units { next } else { 0 };
    }

    /// Whether it is neither occupied nor about to be given to a waiter.
    #[inline]
    pub(crate) fn is_free(&self, now_ns: u64) -> bool {
        self.free_ns <= now_ns && !self.scheduled
    }

    #[inline]
    pub(crate) fn occupy(&mut self, now_ns: u64, ns: u64) {
        self.free_ns = now_ns + ns;
        self.stats.bus_busy_ns += ns;
    }

    #[inline]
    pub(crate) fn enter(&mut self, now_ns: u64) {
        if self.active == 0 {
            self.active_since_ns = now_ns;
        }
        self.active += 1;
    }

    #[inline]
    pub(crate) fn leave(&mut self, now_ns: u64) {
        self.active -= 1;
        if self.active == 0 {
            self.stats.die_busy_ns += now_ns - self.active_since_ns;
        }
    }

    /// How long its bus was busy by `now_ns`. A transfer in progress was counted in full
    /// when it began.
    fn bus_busy_until(&self, now_ns: u64) -> u64 {
        let ahead_ns = self.free_ns.saturating_sub(now_ns);
        self.stats.bus_busy_ns.saturating_sub(ahead_ns)
    }

    /// Counters until `now_ns`, including the operations in progress: under steady
    /// writes a channel is never idle.
    pub(crate) fn stats(&self, now_ns: u64) -> ChannelStats {
        let mut stats = self.stats.clone();
        if self.active > 0 {
            stats.die_busy_ns += now_ns.saturating_sub(self.active_since_ns);
        }
        stats.bus_busy_ns = self.bus_busy_until(now_ns);
        let queue = self.queue.until(now_ns, self.waiting());
        (stats.queue_ns, stats.longest_queue) = (queue.sum_ns, queue.longest);
        stats
    }
}
