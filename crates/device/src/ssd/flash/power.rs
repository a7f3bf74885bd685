//! Loss of power: everything stops at once.

use crate::ssd::events::EventQueue;
use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{List, Transaction, Transactions};
use crate::ssd::flash::unit::Phase;

/// Programs that were changing the array when the power went.
#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    /// The records of pages.
    pub(crate) records: Vec<u32>,
    /// Programs of pages of the map.
    pub(crate) map_programs: Vec<Transaction>,
}

impl Interrupted {
    fn add(&mut self, transactions: &Transactions, group: List) {
        self.records.extend(transactions.programs_of(group));
        self.map_programs
            .extend(transactions.map_programs_of(group));
    }
}

impl Flash {
    /// Stops everything at once. Returns whose programs were changing the array.
    pub(crate) fn power_off(&mut self, now_ns: u64) -> Interrupted {
        let mut interrupted = Interrupted::default();
        self.plane_busy_ns = self.planes_busy_until(now_ns);
        for unit in &mut self.units {
            if unit.phase != Phase::Idle {
                let channel = &mut self.channels[unit.channel as usize];
                // What was going to arrive at an idle drive may have started.
                channel.leave(now_ns.max(channel.active_since_ns));
            }
            if let Some(stopped) = unit.suspended {
                interrupted.add(&self.transactions, stopped.group);
            }
            // Before that its data was still on the bus.
            if unit.phase == Phase::Busy && unit.began_ns <= now_ns {
                interrupted.add(&self.transactions, unit.group);
            }
            *unit = unit.powered_off(now_ns);
        }
        for channel in &mut self.channels {
            *channel = channel.powered_off(now_ns);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_all();
        }
        self.transactions = Transactions::new();
        self.events = EventQueue::new();
        self.queued_reads.clear();
        self.programs.clear();
        self.in_order.clear();
        self.finished.clear();
        interrupted
    }
}
