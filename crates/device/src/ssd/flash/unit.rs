//! A unit: the smallest part of the flash that executes a command of its own.

use crate::ssd::flash::transaction::{List, NONE, Operation};

/// Where a plane is.
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
    /// Command or data on their way, or the array at work.
    Busy,
    /// Data waits for the bus or is on it.
    Output,
}

/// An operation that was stopped for a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspended {
    pub(crate) group: List,
    pub(crate) kind: Operation,
    pub(crate) remaining_ns: u64,
}

/// What a unit programs next.
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

/// A unit, what it has in hand and what waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub(crate) channel: u32,
    /// Its bit in the channel's masks.
    pub(crate) bit: u64,
    /// The first of its planes.
    pub(crate) first_plane: u32,
    pub(crate) phase: Phase,
    pub(crate) kind: Operation,
    /// What is being executed; several under a multi-plane command.
    pub(crate) group: List,
    /// When the array will be done.
    pub(crate) done_ns: u64,
    pub(crate) reads: List,
    /// Planes that programs wait for, as bits (see [`crate::ssd::flash::program_queues`]).
    pub(crate) program_planes: u64,
    pub(crate) erases: List,
    pub(crate) background: List,
    /// Of collection that the host waits for, of all kinds.
    pub(crate) urgent: List,
    /// Operations in all of these.
    pub(crate) queued: u32,
    /// Reads started since the last program or erase.
    pub(crate) reads_in_a_row: u32,
    pub(crate) suspended: Option<Suspended>,
    /// Cache reads: what is in the cache register and goes out, while the array
    /// may be at the next.
    pub(crate) outgoing: List,
    /// Cache programs: what is in the cache register or on its way there, while
    /// the array is at the last program.
    pub(crate) loaded: Loaded,
    /// When it was last without work in hand.
    pub(crate) freed_ns: u64,
    /// The host's command that it has read for since then, alone; [`NONE`] if it
    /// did anything else.
    pub(crate) reader: u32,
    /// How often its oldest read was passed over.
    pub(crate) passed_over: u32,
    /// Programs and erases that hold it.
    pub(crate) writing: HoldClock,
    /// Collection that holds it.
    pub(crate) collecting: HoldClock,
    /// When the array began what it is at.
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

    /// As after a loss of power: nothing in hand, nothing queued.
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

    /// What it has in hand, and how much longer the array has to work for each.
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

    /// Time counted in `busy_ns` that has not passed yet. (What is loaded counts
    /// there when the array begins it.)
    pub(crate) fn ahead_ns(&self, now_ns: u64) -> u64 {
        let [at_work, stopped, _] = self.under_way(now_ns);
        at_work.1 + stopped.1
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.phase == Phase::Idle && self.queued == 0 && self.suspended.is_none()
    }

    /// More (or, below zero, fewer) operations wait for it.
    #[inline]
    pub(crate) fn count_queued(&mut self, now_ns: u64, change: i32) {
        self.queue.was(now_ns, || self.queued);
        self.queued = self.queued.wrapping_add_signed(change);
    }
}

/// How long something has held a unit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldClock {
    pub(crate) held_ns: u64,
    /// Since when it does.
    since_ns: u64,
    pub(crate) holds: bool,
}

impl HoldClock {
    /// How long by now.
    #[inline]
    pub(crate) fn read(&self, now_ns: u64) -> u64 {
        match self.holds {
            true => self.held_ns + (now_ns - self.since_ns),
            false => self.held_ns,
        }
    }

    /// It begins to hold it.
    #[inline]
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.holds = true;
        self.since_ns = now_ns;
    }

    /// It is not held any more, whoever held it.
    pub(crate) fn stopped(&self, now_ns: u64) -> HoldClock {
        HoldClock {
            // What was going to arrive may have begun.
            held_ns: self.read(now_ns.max(self.since_ns)),
            ..HoldClock::default()
        }
    }

    /// It lets it go.
    #[inline]
    pub(crate) fn end(&mut self, now_ns: u64) {
        self.held_ns = self.read(now_ns);
        self.holds = false;
    }
}

/// How long a queue was over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueClock {
    /// Length times time.
    pub(crate) sum_ns: u64,
    since_ns: u64,
    pub(crate) longest: u32,
}

impl QueueClock {
    /// The length was what `length` says until now; it is about to change.
    #[inline]
    pub(crate) fn was(&mut self, now_ns: u64, length: impl FnOnce() -> u32) {
        debug_assert!(now_ns >= self.since_ns);
        // What came and went at one time has not waited.
        if now_ns > self.since_ns {
            let length = length();
            self.sum_ns += length as u64 * (now_ns - self.since_ns);
            self.since_ns = now_ns;
            self.longest = self.longest.max(length);
        }
    }

    /// The same with the time until `now_ns`, over which it is `length`.
    pub(crate) fn until(mut self, now_ns: u64, length: u32) -> QueueClock {
        self.was(now_ns.max(self.since_ns), || length);
        self
    }

    /// Everything that was queued is gone, what was to come later as well.
    pub(crate) fn stopped(self, now_ns: u64, length: u32) -> QueueClock {
        QueueClock {
            since_ns: now_ns,
            ..self.until(now_ns, length)
        }
    }

    /// Starts afresh.
    pub(crate) fn reset(&mut self, now_ns: u64) {
        *self = QueueClock {
            // A command may have been followed into the near future already.
            since_ns: self.since_ns.max(now_ns),
            ..QueueClock::default()
        };
    }
}
