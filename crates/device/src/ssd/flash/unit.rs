//! A unit: the smallest part of the flash that executes a command of its own.

use crate::ssd::flash::transaction::{List, NONE, Operation};

/// The position of a plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneAddress {
    pub(crate) unit: u32,
    /// The plane within its unit, and the die that it is in.
    pub(crate) place: u8,
    pub(crate) die: u8,
}

impl PlaneAddress {
    pub(crate) fn new(plane: u32, planes_per_unit: u32, planes_per_die: u32) -> PlaneAddress {
        let place = plane % planes_per_unit;
        PlaneAddress {
            unit: plane / planes_per_unit,
            place: place as u8,
            die: (place / planes_per_die) as u8,
        }
    }
}

/// What a unit is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    /// Command or data on the bus, or the array at work.
    Busy,
    /// Data waits for the bus or is on it.
    Output,
}

/// A program or erase that was suspended for a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspended {
    pub(crate) group: List,
    pub(crate) kind: Operation,
    pub(crate) remaining_ns: u64,
}

/// The next program of a unit, loaded by a cache command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    pub(crate) group: List,
    /// When its data has left the bus.
    pub(crate) at_ns: u64,
    pub(crate) array_ns: u64,
}

impl Loaded {
    pub(crate) const NOTHING: Loaded = Loaded {
        group: List::EMPTY,
        at_ns: 0,
        array_ns: 0,
    };
}

/// A unit, the command that it executes, and what waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) channel: u32,
    /// Its bit in the channel's masks.
    pub(crate) bit: u64,
    /// The first of its planes.
    pub(crate) first_plane: u32,
    pub(crate) phase: Phase,
    pub(crate) kind: Operation,
    /// Transactions being executed; several in a multi-plane command.
    pub(crate) group: List,
    /// When the array will be done.
    pub(crate) done_ns: u64,
    pub(crate) reads: List,
    /// Planes that programs wait for, as bits (see [`crate::ssd::flash::program_queues`]).
    pub(crate) program_planes: u64,
    pub(crate) erases: List,
    pub(crate) background: List,
    /// Transactions of any kind of a collection that the host waits for.
    pub(crate) urgent: List,
    /// Transactions in all of these lists.
    pub(crate) queued: u32,
    /// Reads started since the last program or erase.
    pub(crate) reads_in_a_row: u32,
    pub(crate) suspended: Option<Suspended>,
    /// Of a cache read: data in the cache register that goes out, while the array may
    /// read the next page.
    pub(crate) outgoing: List,
    /// Of a cache program: data in the cache register or on its way there, while the
    /// array executes the program before.
    pub(crate) loaded: Loaded,
    /// When it was last idle.
    pub(crate) freed_ns: u64,
    /// The only host command that it has read for since then; [`NONE`] if it did
    /// anything else.
    pub(crate) reader: u32,
    /// How often its oldest read was passed over.
    pub(crate) passed_over: u32,
    /// How long programs and erases have occupied it.
    pub(crate) writing: HoldClock,
    /// How long collection has occupied it.
    pub(crate) collecting: HoldClock,
    /// When the array began its current operation.
    pub(crate) began_ns: u64,
    pub(crate) busy_ns: u64,
    pub(crate) commands: u64,
    pub(crate) queue: QueueClock,
}

impl Unit {
    pub(crate) fn new(channel: u32, bit: u64, first_plane: u32) -> Unit {
        Unit {
            channel,
            bit,
            first_plane,
            phase: Phase::Idle,
            kind: Operation::Read,
            group: List::EMPTY,
            done_ns: 0,
            reads: List::EMPTY,
            program_planes: 0,
            erases: List::EMPTY,
            background: List::EMPTY,
            urgent: List::EMPTY,
            queued: 0,
            reads_in_a_row: 0,
            suspended: None,
            outgoing: List::EMPTY,
            loaded: Loaded::NOTHING,
            freed_ns: 0,
            reader: NONE,
            passed_over: 0,
            writing: HoldClock::default(),
            collecting: HoldClock::default(),
            began_ns: 0,
            busy_ns: 0,
            commands: 0,
            queue: QueueClock::default(),
        }
    }

    /// The unit after a loss of power: idle, nothing queued.
    pub(crate) fn powered_off(&self, now_ns: u64) -> Unit {
        Unit {
            writing: self.writing.stopped(now_ns),
            collecting: self.collecting.stopped(now_ns),
            queue: self.queue.stopped(now_ns, self.queued),
            busy_ns: self.busy_ns - self.ahead_ns(now_ns),
            commands: self.commands,
            ..Unit::new(self.channel, self.bit, self.first_plane)
        }
    }

    /// What it executes, has suspended and has loaded, and the remaining array time of
    /// each.
    pub(crate) fn under_way(&self, now_ns: u64) -> [(List, u64); 3] {
        let at_work_ns = match self.phase {
            Phase::Busy => self.done_ns.saturating_sub(now_ns.max(self.began_ns)),
            _ => 0,
        };
        let stopped = self.suspended.map_or((List::EMPTY, 0), |stopped| {
            (stopped.group, stopped.remaining_ns)
        });
        let loaded = (self.loaded.group, self.loaded.array_ns);
        [(self.group, at_work_ns), stopped, loaded]
    }

    /// Time counted in `busy_ns` that has not passed yet. (A loaded program is counted
    /// when the array begins it.)
    pub(crate) fn ahead_ns(&self, now_ns: u64) -> u64 {
        let [at_work, stopped, _] = self.under_way(now_ns);
        at_work.1 + stopped.1
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.phase == Phase::Idle && self.queued == 0 && self.suspended.is_none()
    }

    /// Changes the number of transactions that wait for it.
    #[inline]
    pub(crate) fn count_queued(&mut self, now_ns: u64, change: i32) {
        self.queue.accumulate(now_ns, || self.queued);
        self.queued = self.queued.wrapping_add_signed(change);
    }
}

/// How long a unit was occupied by something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldClock {
    pub(crate) held_ns: u64,
    /// The start of the current span, while `holds`.
    since_ns: u64,
    pub(crate) holds: bool,
}

impl HoldClock {
    /// The sum until now.
    #[inline]
    pub(crate) fn read(&self, now_ns: u64) -> u64 {
        match self.holds {
            true => self.held_ns + (now_ns - self.since_ns),
            false => self.held_ns,
        }
    }

    /// Begins a span.
    #[inline]
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.holds = true;
        self.since_ns = now_ns;
    }

    /// The clock after a loss of power, which ends any span.
    pub(crate) fn stopped(&self, now_ns: u64) -> HoldClock {
        HoldClock {
            // A command to an idle drive may have begun ahead of `now_ns`.
            held_ns: self.read(now_ns.max(self.since_ns)),
            ..HoldClock::default()
        }
    }

    /// Ends the span, if there is one.
    #[inline]
    pub(crate) fn end(&mut self, now_ns: u64) {
        self.held_ns = self.read(now_ns);
        self.holds = false;
    }
}

/// The length of a queue over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueClock {
    /// Length times time.
    pub(crate) sum_ns: u64,
    since_ns: u64,
    pub(crate) longest: u32,
}

impl QueueClock {
    /// Adds the time since the last change, over which the queue had this `length`.
    #[inline]
    pub(crate) fn accumulate(&mut self, now_ns: u64, length: impl FnOnce() -> u32) {
        debug_assert!(now_ns >= self.since_ns);
        // A length that lasted no time does not count.
        if now_ns > self.since_ns {
            let length = length();
            self.sum_ns += length as u64 * (now_ns - self.since_ns);
            self.since_ns = now_ns;
            self.longest = self.longest.max(length);
        }
    }

    /// A copy with the time until `now_ns` added, over which the queue had this `length`.
    pub(crate) fn until(mut self, now_ns: u64, length: u32) -> QueueClock {
        self.accumulate(now_ns.max(self.since_ns), || length);
        self
    }

    /// The clock after a loss of power, which empties the queue.
    pub(crate) fn stopped(self, now_ns: u64, length: u32) -> QueueClock {
        QueueClock {
            since_ns: now_ns,
            ..self.until(now_ns, length)
        }
    }

    /// Counts from `now_ns` on.
    pub(crate) fn reset(&mut self, now_ns: u64) {
        *self = QueueClock {
            // A command to an idle drive may have been counted ahead of `now_ns`.
            since_ns: self.since_ns.max(now_ns),
            ..QueueClock::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_add_up_also_over_a_loss_of_power() {
        let mut clock = HoldClock::default();
        clock.begin(10);
        assert_eq!(clock.read(15), 5);
        clock.end(20);
        assert_eq!(clock.read(30), 10);
        clock.begin(40);
        let stopped = clock.stopped(50);
        assert_eq!((stopped.read(60), stopped.holds), (20, false));
        // The span began ahead of the loss.
        assert_eq!(clock.stopped(35).read(60), 10);
    }

    #[test]
    fn a_queue_counts_its_length_over_time() {
        let mut clock = QueueClock::default();
        clock.accumulate(10, || 3);
        // A length that lasts no time does not count.
        clock.accumulate(10, || 100);
        let until = clock.until(20, 2);
        assert_eq!((until.sum_ns, until.longest), (50, 3));
        clock.reset(20);
        let until = clock.until(30, 1);
        assert_eq!((until.sum_ns, until.longest), (10, 1));
        let stopped = clock.stopped(25, 4).until(35, 0);
        assert_eq!((stopped.sum_ns, stopped.longest), (20, 4));
    }
}
