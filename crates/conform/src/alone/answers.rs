//! Answers against answers: choices, state, deadlines, queues.

use std::collections::BTreeMap;

use blklab_blk::RequestId;

use super::probes::{Answer, Picked, StateValue};
use super::{Alone, Cpu, DEPTH_IN_PROBE, INTERRUPT_GAP_NS, Unread};
use crate::clock::jiffies_of;
use crate::report::Difference;

impl Alone<'_> {
    pub(super) fn answered(&mut self, kernel: Answer) {
        self.answered_at = self.at;
        let Some(ours) = self.cpu().answer.take() else {
            return;
        };
        self.compare_choice(&kernel, ours);
        let cpu = self.events[self.at].event.cpu;
        let own = (self.at + 1..self.events.len()).filter(|&at| self.events[at].event.cpu == cpu);
        let in_probe = own.take_while(|&at| {
            let event = &self.events[at].event;
            let soon = event.at_ns.saturating_sub(self.events[at - 1].event.at_ns);
            event.irq && event.preempt_depth >= DEPTH_IN_PROBE && soon < INTERRUPT_GAP_NS
        });
        let unread = Unread {
            at: self.at,
            read_behind: in_probe.last().unwrap_or(self.at),
            answer: kernel,
            ours: self.elevator.debug_state(),
        };
        self.cpu().unread = Some(unread);
        // What the kernel is done with cannot be taken back; it only is late here.
        if let Some(id) = ours
            && let Some(at) = self.overdue.iter().position(|&late| late == id)
        {
            self.overdue.swap_remove(at);
            self.free(id);
        }
    }

    fn compare_choice(&mut self, kernel: &Answer, ours: Option<RequestId>) {
        let Some(picked) = kernel.picked else {
            let text = self.describe(ours);
            return self.count("none", ours.is_none(), || ("none may go".to_owned(), text));
        };
        let wanted = self.by_pointer.get(&picked.rq).copied();
        let same = wanted.is_some() && ours == wanted;
        let text = self.describe(ours);
        self.count("choice", same, || {
            (format!("request at {}", picked.sector), text)
        });
        if ours.is_some() {
            self.compare_queue(&picked);
        }
        let (Some(fifo_time), Some(id), true) = (picked.fifo_time, ours, same) else {
            return;
        };
        let ours = self.rqs[id].fifo_time.0;
        if ours.checked_add(1) == Some(fifo_time) {
            self.note_tick(id);
        }
        self.count("deadline", ours == fifo_time, || {
            (fifo_time.to_string(), ours.to_string())
        });
    }

    /// The deadline is one tick behind ours: where the next line of the trace
    /// is in the next tick, that came right before the deadline was made.
    fn note_tick(&mut self, id: RequestId) {
        let Some(&insert) = self.inserted_by.get(&id.index()) else {
            return;
        };
        let (this, next) = (&self.events[insert], self.events.get(insert + 1));
        let jiffies = jiffies_of(&this.event.kind);
        let next =
            next.map(|r| jiffies_of(&r.event.kind).unwrap_or(self.clock.jiffies(r.event.at_ns)));
        if next > jiffies {
            self.behind_tick.insert(insert);
        }
    }

    /// Compares the state of answers whose fields were read by now.
    pub(super) fn compare_read_state(&mut self) {
        let at = self.at;
        let read = |cpu: &mut Cpu<'_>| cpu.unread.take_if(|unread| unread.read_behind <= at);
        let read: Vec<Unread> = self.cpus.values_mut().filter_map(read).collect();
        for unread in read {
            let now = std::mem::replace(&mut self.at, unread.at);
            self.compare_state(&unread);
            self.at = now;
        }
    }

    /// Each part of the state was read before or behind the interrupts that
    /// came meanwhile.
    fn compare_state(&mut self, Unread { answer, ours, .. }: &Unread) {
        let now = self.elevator.debug_state();
        let is = |ours: &[(&str, i64)], s: &StateValue| ours.contains(&(s.name, s.value));
        for part in answer.state.chunk_by(|a, b| a.kind == b.kind) {
            let same = part.iter().all(|s| is(ours, s)) || part.iter().all(|s| is(&now, s));
            let text = part.iter().map(|s| format!("{} {}", s.name, s.value));
            let text: Vec<String> = text.collect();
            self.count(part[0].kind, same, || (text.join(", "), state_text(ours)));
        }
    }

    /// Whether the request came from the queue that is the kernel's: a queue
    /// has one name there and one here, for as long as it has its owner.
    fn compare_queue(&mut self, picked: &Picked) {
        let Some(kernel) = picked.queue else {
            return;
        };
        let (Some(queue), Some(owner)) = (self.state_of("bfqq"), self.state_of("pid")) else {
            return;
        };
        let known = *self.queues.entry(kernel).or_insert((queue, owner));
        let same = known == (queue, owner) && owner == kernel.1;
        self.queues.insert(kernel, (queue, owner));
        self.count("queue", same, || {
            let name = |(queue, owner)| format!("queue {queue} of {owner}");
            (name((known.0, kernel.1)), name((queue, owner)))
        });
    }

    pub(super) fn count(
        &mut self,
        kind: &'static str,
        agrees: bool,
        texts: impl FnOnce() -> (String, String),
    ) {
        let recorded = &self.events[self.at];
        let state = if agrees { Vec::new() } else { self.state() };
        self.report.count(kind, agrees, || {
            let (kernel, ours) = texts();
            Difference {
                line: recorded.line,
                at_ns: recorded.event.at_ns,
                kind,
                kernel,
                ours,
                state,
            }
        });
    }

    pub(super) fn describe(&self, id: Option<RequestId>) -> String {
        let Some(id) = id else {
            return "none".to_owned();
        };
        let rq = &self.rqs[id];
        let direction = if rq.is_write() { "write" } else { "read" };
        let extent = extent(rq.sector.0, rq.sectors);
        format!(
            "{:?} {direction} {extent}, deadline {}",
            rq.prio.class, rq.fifo_time.0
        )
    }

    /// Our scheduler's state, and the request of each class and direction that
    /// waits longest.
    fn state(&self) -> Vec<String> {
        let mut lines = vec![state_text(&self.elevator.debug_state())];
        let mut heads: BTreeMap<_, (usize, RequestId)> = BTreeMap::new();
        let queued = self.by_pointer.values().chain(&self.overdue);
        for &id in queued.filter(|id| self.held.contains(&id.index())) {
            let rq = &self.rqs[id];
            let head = heads
                .entry((rq.prio.class, rq.is_write()))
                .or_insert((0, id));
            head.0 += 1;
            let age = |id: RequestId| (self.rqs[id].fifo_time, self.rqs[id].serial);
            if age(id) < age(head.1) {
                head.1 = id;
            }
        }
        lines.extend(heads.values().map(|&(count, head)| {
            format!("{count} queued, oldest: {}", self.describe(Some(head)))
        }));
        lines
    }
}

pub(super) fn extent(sector: u64, sectors: u32) -> String {
    format!("{sector} + {sectors}")
}

fn state_text(state: &[(&'static str, i64)]) -> String {
    let words = state.iter().map(|(name, value)| format!("{name} {value}"));
    words.collect::<Vec<_>>().join(", ")
}
