//! Programs and erases that are stopped for a read.

use crate::ssd::events::EventKind;
use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{NONE, Operation};
use crate::ssd::flash::unit::{Phase, Suspended, Unit};

impl Flash {
    /// Whether a read may stop what the unit is doing.
    #[inline]
    pub(crate) fn can_suspend(&self, now_ns: u64, unit: &Unit) -> bool {
        // Still on the bus: the array has not begun.
        unit.began_ns <= now_ns && self.will_suspend(now_ns, unit)
    }

    /// Whether a read may stop what the unit is doing as soon as its array is at
    /// it: until then the data of the unit is on the bus, which is free when the
    /// array begins.
    #[inline]
    pub(crate) fn will_suspend(&self, now_ns: u64, unit: &Unit) -> bool {
        let Some(cost_ns) = self.suspend_ns(unit.kind) else {
            return false;
        };
        !unit.reads.is_empty()
            && unit.suspended.is_none()
            // It was stopped for as many as it may be.
            && unit.reads_in_a_row < self.reads_in_a_row
            // Reads, too, wait for what the host waits for.
            && unit.urgent.is_empty()
            && unit.loaded.group.is_empty()
            && unit.done_ns.saturating_sub(now_ns.max(unit.began_ns))
                > cost_ns + self.flash.suspend_above_ns
    }

    /// How long the array takes to stop; `None` where it does not.
    #[inline]
    fn suspend_ns(&self, kind: Operation) -> Option<u64> {
        match kind {
            Operation::Read => None,
            Operation::Program => self.flash.program_suspend_ns,
            Operation::Erase => self.flash.erase_suspend_ns,
        }
    }

    /// Stops what the array is doing and returns what that costs.
    #[inline(never)]
    pub(crate) fn suspend(&mut self, now_ns: u64, unit_index: u32) -> u64 {
        if self.recorder.is_some() {
            self.record_array(now_ns, unit_index);
        }
        let unit = &mut self.units[unit_index as usize];
        unit.writing.end(now_ns);
        unit.collecting.end(now_ns);
        unit.suspended = Some(Suspended {
            group: unit.group,
            kind: unit.kind,
            remaining_ns: unit.done_ns.saturating_sub(now_ns),
        });
        self.counts.suspensions += 1;
        self.channels[unit.channel as usize].leave(now_ns);
        self.suspend_ns(self.units[unit_index as usize].kind)
            .unwrap_or(0)
    }

    #[inline(never)]
    pub(crate) fn resume(&mut self, now_ns: u64, unit_index: u32) {
        let unit = &mut self.units[unit_index as usize];
        let Some(stopped) = unit.suspended.take() else {
            return;
        };
        unit.phase = Phase::Busy;
        unit.kind = stopped.kind;
        unit.reader = NONE;
        unit.group = stopped.group;
        unit.began_ns = now_ns;
        unit.done_ns = now_ns + stopped.remaining_ns;
        unit.writing.begin(now_ns);
        if self.transactions[unit.group.head()].collects {
            unit.collecting.begin(now_ns);
        }
        self.events
            .push(EventKind::CHANGE, unit.done_ns, unit_index);
    }
}
