//! Clocks that run while something is the case, read instead of listened to.

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
