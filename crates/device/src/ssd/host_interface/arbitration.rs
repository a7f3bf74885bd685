//! NVMe's arbitration: from which submission queue the controller fetches its
//! next command (NVM Express base specification, "Command Arbitration").
//!
//! Round robin takes up to a burst of commands from each queue in turn.
//! Weighted round robin with urgent priority class serves urgent queues first;
//! what is left is shared by high, medium and low queues by their weights, with
//! round robin inside each class.
//!
//! The specification distinguishes commands that are being processed from those
//! that were only fetched. A write that waits for room in the cache counts as only
//! fetched, so that queues of reads have their turn while others are full of
//! writes; Linux's driver relies on that when it is given queues for writes alone
//! (`write_queues`).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::Command;
use crate::ssd::spec::{Arbitration, NvmeSpec};

/// Priority classes: urgent, high, medium, low.
const CLASSES: usize = 4;
/// The urgent one, which has no weight.
const URGENT: usize = 0;

/// A command in its submission queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    /// When the controller learns of it.
    pub(crate) visible_ns: u64,
    pub(crate) index: u32,
    pub(crate) command: Command,
}

/// Queues of one class.
#[derive(Clone, Debug, Default)]
struct Class {
    members: Vec<u16>,
    /// The member whose turn it is, and how many more commands it may send in a row.
    turn: usize,
    burst: u32,
    /// Commands of the class in a round, and how many of them are left.
    weight: u32,
    credit: u32,
}

/// The submission queues as the controller sees them.
#[derive(Clone, Debug)]
pub(crate) struct Arbiter {
    spec: NvmeSpec,
    queues: Vec<VecDeque<Posted>>,
    classes: [Class; CLASSES],
    /// The weighted class that is served.
    serving: usize,
    /// Commands that were fetched and have not ended.
    outstanding: u32,
    /// When the next fetch is due; `u64::MAX` while there is none.
    due_ns: u64,
}

impl Arbiter {
    pub(crate) fn new(spec: &NvmeSpec) -> Arbiter {
        let mut classes: [Class; CLASSES] = Default::default();
        for (class, weight) in classes[1..].iter_mut().zip(spec.weights) {
            class.weight = weight;
        }
        for class in &mut classes {
            class.burst = spec.burst;
        }
        Arbiter {
            spec: spec.clone(),
            queues: Vec::new(),
            classes,
            serving: 1,
            outstanding: 0,
            due_ns: u64::MAX,
        }
    }

    /// The class of a queue.
    fn class_of(&self, queue: u16) -> usize {
        match self.spec.arbitration {
            Arbitration::RoundRobin => URGENT,
            Arbitration::Weighted => {
                let priorities = &self.spec.queue_priorities;
                priorities[queue as usize % priorities.len()] as usize
            }
        }
    }

    pub(super) fn post(&mut self, posted: Posted) {
        let queue = posted.command.queue;
        while self.queues.len() <= queue as usize {
            let class = self.class_of(self.queues.len() as u16);
            self.classes[class].members.push(self.queues.len() as u16);
            self.queues.push(VecDeque::new());
        }
        self.queues[queue as usize].push_back(posted);
    }

    /// When the earliest waiting command is visible to the controller.
    pub(super) fn first_visible_ns(&self) -> Option<u64> {
        let heads = self.queues.iter().filter_map(|queue| queue.front());
        heads.map(|posted| posted.visible_ns).min()
    }

    /// Whether as many commands are being processed as the limit allows; writes that
    /// wait for room do not count.
    pub(super) fn is_full(&self, writes_waiting: u32) -> bool {
        self.outstanding - writes_waiting >= self.spec.fetch_limit
    }

    /// A fetch is possible at `due_ns`; returns whether none is scheduled so early.
    pub(super) fn schedule(&mut self, due_ns: u64) -> bool {
        let is_earlier = due_ns < self.due_ns;
        self.due_ns = self.due_ns.min(due_ns);
        is_earlier
    }

    /// Whether a fetch is scheduled for `now_ns`, which begins then.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = self.due_ns == now_ns;
        if is_due {
            self.due_ns = u64::MAX;
        }
        is_due
    }

    /// Takes the next command that is visible at `now_ns`, and its class.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(Posted, usize)> {
        let taken = self.take_next(now_ns);
        self.outstanding += taken.is_some() as u32;
        taken
    }

    fn take_next(&mut self, now_ns: u64) -> Option<(Posted, usize)> {
        if let Some(posted) = self.take_of(URGENT, now_ns) {
            return Some((posted, URGENT));
        }
        // The class that is served with the credit left of this round, then each with a new one's.
        for _ in 0..CLASSES {
            let class = self.serving;
            if self.classes[class].credit > 0
                && let Some(posted) = self.take_of(class, now_ns)
            {
                self.classes[class].credit -= 1;
                return Some((posted, class));
            }
            self.serving = class % (CLASSES - 1) + 1;
            let next = &mut self.classes[self.serving];
            next.credit = next.weight;
        }
        None
    }

    /// The next command of a class, its queues in turn.
    fn take_of(&mut self, class: usize, now_ns: u64) -> Option<Posted> {
        let Class {
            members,
            turn,
            burst,
            ..
        } = &mut self.classes[class];
        for _ in 0..=members.len() {
            let queue = &mut self.queues[*members.get(*turn)? as usize];
            let visible = queue.front().is_some_and(|p| p.visible_ns <= now_ns);
            if *burst > 0 && visible {
                *burst -= 1;
                return queue.pop_front();
            }
            *turn = (*turn + 1) % members.len();
            *burst = self.spec.burst;
        }
        None
    }

    /// All commands are gone.
    pub(crate) fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.outstanding = 0;
        self.due_ns = u64::MAX;
    }

    /// A command has ended.
    pub(super) fn command_ended(&mut self) {
        self.outstanding -= 1;
    }
}
