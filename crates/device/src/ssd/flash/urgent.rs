//! Collection that the host waits for goes before all else.
//!
//! Below the hard limit of free blocks a drive that let reads and programs go
//! first would wait for an erase behind everything that is in its cache. As in
//! MQSim (Tavakkol et al., FAST 2018), whose collection is urgent then, its
//! reads, programs and erases go first, and so does what is queued already.

use std::ops::Range;

use crate::ssd::flash::Flash;
use crate::ssd::flash::multi_plane::Held;
use crate::ssd::flash::scheduling::Queue;
use crate::ssd::flash::transaction::{NONE, Operation, Priority, Source, Transaction};
use crate::ssd::flash::unit::{Phase, Unit};
use crate::ssd::spec::Scheduling;

impl Flash {
    /// What an idle unit with urgent operations should start: one of those,
    /// reads first, then programs, then erases, as MQSim does, so that programs
    /// of several planes find each other; or a read that an erase waits for.
    /// `None` where none of them may start.
    #[inline(never)]
    pub(crate) fn urgent_or_its_reads(&self, unit: &Unit) -> Option<Queue> {
        let mut held = Held::nothing(&self.partners);
        let (mut programs, mut erases, mut waits_for_read) = (false, false, false);
        for op in self.transactions.of(unit.urgent) {
            let bit = self.partners.bit(op);
            match op.kind {
                Operation::Read => return Some(Queue::Urgent(Operation::Read)),
                Operation::Program => {
                    programs |= op.ready && !held.holds(op, bit);
                    held.hold(op, bit);
                }
                Operation::Erase => match self.is_read(unit, op.block) {
                    true => waits_for_read = true,
                    false => erases = true,
                },
            }
        }
        match (programs, erases, waits_for_read) {
            (true, ..) => Some(Queue::Urgent(Operation::Program)),
            (_, true, _) => Some(Queue::Urgent(Operation::Erase)),
            (_, _, true) => Some(Queue::Reads),
            _ => None,
        }
    }

    /// The host waits for the collection of a plane, which writes to the planes
    /// `to`: what is queued for it goes before all else from now on.
    pub(crate) fn promote_collection(&mut self, now_ns: u64, plane: u32, to: Range<u32>) {
        if self.scheduling == Scheduling::Fcfs {
            return;
        }
        let own = self.planes[plane as usize].unit;
        self.promote_in_unit(now_ns, own, plane, &to);
        let mut last = own;
        for other in to.clone() {
            let unit = self.planes[other as usize].unit;
            if unit != own && unit != last {
                self.promote_in_unit(now_ns, unit, plane, &to);
                last = unit;
            }
        }
    }

    /// The host waits for the collection of a plane: what is queued for it
    /// steps aside no more.
    pub(crate) fn raise_collection(&mut self, now_ns: u64, plane: u32) {
        let unit_index = self.planes[plane as usize].unit;
        let unit = &mut self.units[unit_index as usize];
        let mut raised = (unit.background).sift(&mut self.transactions, |op| op.owner == plane);
        while let Some(index) = raised.pop(&self.transactions) {
            let op = &mut self.transactions[index];
            op.priority = Priority::Normal;
            let kind = op.kind;
            self.transactions.renumber(index);
            match kind {
                Operation::Read => unit.reads.push(&mut self.transactions, index),
                _ => unit.erases.push(&mut self.transactions, index),
            }
            if self.scheduling == Scheduling::Fcfs {
                self.in_order.push_back(self.transactions[index].arrival);
            }
        }
        self.wake(now_ns, unit_index);
    }

    fn promote_in_unit(&mut self, now_ns: u64, unit_index: u32, plane: u32, to: &Range<u32>) {
        let unit = &mut self.units[unit_index as usize];
        let belongs = |op: &Transaction| match op.source {
            Source::Gc | Source::Copyback => op.owner == plane,
            Source::Program => op.collects && to.contains(&op.plane),
            _ => false,
        };
        let transactions = &mut self.transactions;
        let promoted = [
            unit.background.sift(transactions, belongs),
            unit.reads.sift(transactions, belongs),
            self.programs.sift(transactions, unit, belongs),
            unit.erases.sift(transactions, belongs),
        ];
        let mut urgent = unit.urgent;
        for mut promoted in promoted {
            while let Some(index) = promoted.pop(&self.transactions) {
                self.transactions[index].priority = Priority::Urgent;
                urgent.push(&mut self.transactions, index);
            }
        }
        unit.urgent = urgent;
        if unit.urgent.head() == NONE {
            return;
        }
        if unit.phase == Phase::Idle && unit.suspended.is_some() {
            // It was stopped for reads that have not begun yet. They wait for it
            // now, or are not ordinary reads any more: it goes on, as it does
            // at the end of a read.
            self.channels[unit.channel as usize].enter(now_ns);
            self.resume(now_ns, unit_index);
        } else {
            self.wake(now_ns, unit_index);
        }
    }
}
