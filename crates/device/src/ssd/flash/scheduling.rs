//! Which command a unit starts next, by the drive's scheduling, and what it suspends
//! for that.

use core::ops::Range;

use crate::ssd::events::EventKind;
use crate::ssd::flash::Flash;
use crate::ssd::flash::multi_plane::{HeldPlanes, take_group, take_reads};
use crate::ssd::flash::paq;
use crate::ssd::flash::transaction::{List, NONE, Operation, Priority, Source, Transaction};
use crate::ssd::flash::unit::{Phase, Suspended, Unit};
use crate::ssd::spec::Scheduling;

/// The lists of a unit that it takes its next command from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Reads,
    Programs,
    Erases,
    Background,
    /// Urgent transactions of this kind.
    Urgent(Operation),
}

impl Flash {
    /// Takes the next command's transactions out of their queue.
    #[inline(always)]
    pub(crate) fn pick(&mut self, now_ns: u64, unit_index: u32, only_reads: bool) -> List {
        let Some(choice) = self.choose(&self.units[unit_index as usize], only_reads) else {
            return List::EMPTY;
        };
        let unit = &self.units[unit_index as usize];
        let no_erase = match choice {
            // The oldest may run; others that reads still wait before may not join it.
            Queue::Erases if !unit.erases.is_single() => {
                let oldest = &self.transactions[unit.erases.head()];
                self.planes_with_reads_before_erases(unit, unit.erases) & !self.partners.bit(oldest)
            }
            Queue::Urgent(Operation::Erase) => {
                self.planes_with_reads_before_erases(unit, unit.urgent)
            }
            _ => 0,
        };
        let unit = &mut self.units[unit_index as usize];
        if self.scheduling == Scheduling::Paq && choice == Queue::Reads {
            let passed = &mut unit.passed_over;
            let packed = paq::pack(
                &mut self.transactions,
                &mut unit.reads,
                &self.partners,
                passed,
            );
            self.counts.paq.packed += packed as u64;
        }
        let (transactions, partners) = (&mut self.transactions, &self.partners);
        let (group, taken) = match choice {
            Queue::Reads => take_reads(transactions, &mut unit.reads, partners, &self.queued_reads),
            Queue::Programs => self.programs.take_group(transactions, unit, partners),
            Queue::Erases => take_group(transactions, &mut unit.erases, partners, no_erase, None),
            Queue::Background => {
                take_group(transactions, &mut unit.background, partners, no_erase, None)
            }
            Queue::Urgent(kind) => take_group(
                transactions,
                &mut unit.urgent,
                partners,
                no_erase,
                Some(kind),
            ),
        };
        if !matches!(choice, Queue::Programs | Queue::Erases) {
            self.queued_reads.take(&self.transactions, group);
        }
        unit.count_queued(now_ns, -(taken as i32));
        if self.scheduling == Scheduling::Fcfs {
            self.note_started(group);
        }
        group
    }

    /// Whether a read of a block is queued. (It came before the block's erase, since
    /// nothing in the block is valid any more.)
    pub(crate) fn has_queued_read(&self, unit: &Unit, block: u32) -> bool {
        self.transactions
            .of(unit.reads)
            .any(|read| read.block == block)
    }

    /// Which queue is next, by the drive's scheduling.
    #[inline(always)]
    pub(crate) fn choose(&self, unit: &Unit, only_reads: bool) -> Option<Queue> {
        if only_reads {
            // Only reads may run while something is suspended.
            return (!unit.reads.is_empty()).then_some(Queue::Reads);
        }
        if !unit.urgent.is_empty()
            && let Some(queue) = self.urgent_or_its_reads(unit)
        {
            return Some(queue);
        }
        let only_reads_wait = unit.program_planes == 0 && unit.erases.is_empty();
        let chosen = match only_reads_wait && self.scheduling != Scheduling::Fcfs {
            true => (!unit.reads.is_empty()).then_some(Queue::Reads),
            false => self.choose_among_all(unit),
        };
        // A background erase must not destroy the page of a queued read.
        let background = unit.reads.is_empty() && !unit.background.is_empty();
        chosen.or(background.then_some(Queue::Background))
    }

    /// Which queue is next, of those whose first transaction may start.
    #[inline(never)]
    fn choose_among_all(&self, unit: &Unit) -> Option<Queue> {
        let reads = !unit.reads.is_empty();
        let programs = self.programs.any_startable(&self.transactions, unit);
        let erases = !unit.erases.is_empty();
        if self.scheduling == Scheduling::ReadPriority {
            let had_their_turn = unit.reads_in_a_row >= self.reads_in_a_row;
            if reads && !had_their_turn {
                return Some(Queue::Reads);
            }
            if programs {
                return Some(Queue::Programs);
            }
            let may_erase =
                erases && !self.has_queued_read(unit, self.transactions[unit.erases.head()].block);
            return match may_erase {
                true => Some(Queue::Erases),
                false => reads.then_some(Queue::Reads),
            };
        }
        let mut oldest: Option<(u64, Queue)> = None;
        let program = self
            .programs
            .oldest(&self.transactions, unit)
            .unwrap_or(NONE);
        for (waits, first, queue) in [
            (reads, unit.reads.head(), Queue::Reads),
            (programs, program, Queue::Programs),
            (erases, unit.erases.head(), Queue::Erases),
        ] {
            if waits {
                let arrival = self.transactions[first].arrival;
                oldest = match oldest {
                    Some(older) if older.0 <= arrival => Some(older),
                    _ => Some((arrival, queue)),
                };
            }
        }
        let (arrival, queue) = oldest?;
        let has_turn =
            self.scheduling != Scheduling::Fcfs || self.fcfs_order.front() == Some(&arrival);
        has_turn.then_some(queue)
    }

    /// Planes of a unit whose erase has to wait for a read of that block.
    #[inline(never)]
    fn planes_with_reads_before_erases(&self, unit: &Unit, list: List) -> u64 {
        if unit.reads.is_empty() {
            return 0;
        }
        let waits =
            |op: &&Transaction| op.kind == Operation::Erase && self.has_queued_read(unit, op.block);
        let bit = |op: &Transaction| self.partners.bit(op);
        self.transactions
            .of(list)
            .filter(waits)
            .fold(0, |all, op| all | bit(op))
    }

    /// Under first-come order: removes a group that has started from the order.
    #[inline(never)]
    pub(crate) fn note_started(&mut self, group: List) {
        let mut index = group.head();
        while index != NONE {
            let arrival = self.transactions[index].arrival;
            if let Some(place) = self.fcfs_order.iter().position(|a| *a == arrival) {
                self.fcfs_order.remove(place);
            }
            index = self.transactions[index].next;
        }
    }

    /// Under first-come order: wakes the unit that has the oldest transaction.
    #[inline(never)]
    pub(crate) fn wake_next_in_order(&mut self, now_ns: u64) {
        let Some(&arrival) = self.fcfs_order.front() else {
            return;
        };
        let holder = self.units.iter().position(|unit| {
            let program = self
                .programs
                .oldest(&self.transactions, unit)
                .unwrap_or(NONE);
            [unit.reads.head(), program, unit.erases.head()]
                .iter()
                .any(|first| *first != NONE && self.transactions[*first].arrival == arrival)
        });
        let Some(holder) = holder else { return };
        let unit = &self.units[holder];
        if unit.phase == Phase::Idle && unit.queued > 0 {
            let channel_index = unit.channel;
            let channel = &mut self.channels[channel_index as usize];
            channel.set_ready(now_ns, unit.bit);
            // Even if its bus is free it starts by an event, since starting here would
            // recurse without bound.
            channel.free_ns = channel.free_ns.max(now_ns);
            self.schedule_bus(channel_index);
        }
    }
}

/// Suspension of programs and erases for reads.
impl Flash {
    /// Whether a read may suspend the unit's operation now.
    #[inline]
    pub(crate) fn can_suspend(&self, now_ns: u64, unit: &Unit) -> bool {
        // Before that its data is on the bus.
        unit.began_ns <= now_ns && self.will_suspend(now_ns, unit)
    }

    /// Whether a read may suspend the unit's operation as soon as the array has begun
    /// it, which is when the bus is free of its data.
    #[inline]
    pub(crate) fn will_suspend(&self, now_ns: u64, unit: &Unit) -> bool {
        let Some(cost_ns) = self.suspend_ns(unit.kind) else {
            return false;
        };
        !unit.reads.is_empty()
            && unit.suspended.is_none()
            // It has not been suspended for as many reads as it may be.
            && unit.reads_in_a_row < self.reads_in_a_row
            // Collection that the host waits for goes before reads.
            && unit.urgent.is_empty()
            && unit.loaded.group.is_empty()
            && unit.done_ns.saturating_sub(now_ns.max(unit.began_ns))
                > cost_ns + self.flash.suspend_above_ns
    }

    /// How long the array takes to suspend; `None` where it cannot.
    #[inline]
    fn suspend_ns(&self, kind: Operation) -> Option<u64> {
        match kind {
            Operation::Read => None,
            Operation::Program => self.flash.program_suspend_ns,
            Operation::Erase => self.flash.erase_suspend_ns,
        }
    }

    /// Suspends the array's operation. Returns how long that takes.
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
            .push(EventKind::ARRAY_CHANGED, unit.done_ns, unit_index);
    }
}

/// Urgent collection, which the host waits for, goes before all else.
///
/// Below the hard limit of free blocks a drive that let reads and programs go
/// first would wait for an erase behind everything that is in its cache. As in
/// MQSim (Tavakkol et al., FAST 2018), collection is urgent then: its reads,
/// programs and erases go first, including those that are queued already.
impl Flash {
    /// Which queue an idle unit with urgent transactions takes from: urgent reads, then
    /// programs, then erases, as in MQSim, so that programs of several planes find each
    /// other; or reads, if an urgent erase waits for one. `None` where none may start.
    #[inline(never)]
    pub(crate) fn urgent_or_its_reads(&self, unit: &Unit) -> Option<Queue> {
        let mut held = HeldPlanes::none(&self.partners);
        let (mut programs, mut erases, mut waits_for_read) = (false, false, false);
        for op in self.transactions.of(unit.urgent) {
            let bit = self.partners.bit(op);
            match op.kind {
                Operation::Read => return Some(Queue::Urgent(Operation::Read)),
                Operation::Program => {
                    programs |= op.ready && !held.holds(op, bit);
                    held.hold(op, bit);
                }
                Operation::Erase => match self.has_queued_read(unit, op.block) {
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

    /// Makes the queued transactions of a plane's collection urgent, which writes to the
    /// planes `to`.
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

    /// Gives the queued background transactions of a plane's collection normal priority.
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
                self.fcfs_order.push_back(self.transactions[index].arrival);
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
            // It was suspended for reads that have not begun. Those wait now, or have
            // become urgent themselves, so it resumes as after a read.
            self.channels[unit.channel as usize].enter(now_ns);
            self.resume(now_ns, unit_index);
        } else {
            self.wake(now_ns, unit_index);
        }
    }
}
