//! NVMe's arbitration: from which submission queue the controller fetches its
//! next command (NVM Express base specification, "Command Arbitration").
//!
//! Round robin takes up to a burst of commands from each queue in turn.
//! Weighted round robin with urgent priority class serves urgent queues first;
//! what is left is shared by high, medium and low queues by their weights, with
//! round robin inside each class.
//!
//! The specification tells commands that are being processed from those that the
//! controller has only taken over, of which it chooses what it deems ready. A
//! write for which there is no room in the cache is not. So it takes no place
//! among those that are processed, and queues of reads have their turn while
//! others are full of writes. That is what Linux' driver counts on when it is
//! given queues for writes alone (`write_queues`).

use std::collections::VecDeque;

use super::HostInterface;
use super::fetch::{FETCH, FetchCtx};
use crate::Command;
use crate::ssd::events::EventKind;
use crate::ssd::flash::transaction::NONE;
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
    /// Whose turn it is, and how many more it may send in a row.
    turn: usize,
    burst: u32,
    /// Commands a round, and what is left of them.
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
    /// Fetched and not ended.
    inside: u32,
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
            inside: 0,
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

    fn post(&mut self, posted: Posted) {
        let queue = posted.command.queue;
        while self.queues.len() <= queue as usize {
            let class = self.class_of(self.queues.len() as u16);
            self.classes[class].members.push(self.queues.len() as u16);
            self.queues.push(VecDeque::new());
        }
        self.queues[queue as usize].push_back(posted);
    }

    /// When the first command that waits is or becomes visible.
    fn first_visible_ns(&self) -> Option<u64> {
        let heads = self.queues.iter().filter_map(|queue| queue.front());
        heads.map(|posted| posted.visible_ns).min()
    }

    /// Takes the next command that is visible at `now_ns`, and its class.
    fn take(&mut self, now_ns: u64) -> Option<(Posted, usize)> {
        if let Some(posted) = self.take_of(URGENT, now_ns) {
            return Some((posted, URGENT));
        }
        // Each class once with what is left of its round, then with a new one.
        for _ in 0..2 * (CLASSES - 1) {
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
        self.inside = 0;
        self.due_ns = u64::MAX;
    }

    /// A command has ended.
    fn leave(&mut self) {
        self.inside -= 1;
    }
}

impl HostInterface {
    /// A command is put into its submission queue. Without queues it is fetched as
    /// it comes: returns when it arrives where that can be carried out at once.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        ctx: &mut FetchCtx<'_>,
        now_ns: u64,
        index: u32,
        command: &Command,
    ) -> Option<u64> {
        let visible_ns = now_ns + self.submit_ns;
        match &mut self.arbiter {
            None => self.fetch(ctx, visible_ns, index, command),
            Some(arbiter) => {
                arbiter.post(Posted {
                    visible_ns,
                    index,
                    command: *command,
                });
                self.schedule_fetch(ctx, now_ns);
                None
            }
        }
    }

    /// Sees to it that the next command is fetched when that can be.
    ///
    /// Writes that wait for room in the cache are none that are being processed:
    /// the controller goes on to what is ready.
    fn schedule_fetch(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        if arbiter.inside - ctx.writes_waiting >= arbiter.spec.fetch_limit {
            return;
        }
        let Some(visible_ns) = arbiter.first_visible_ns() else {
            return;
        };
        let due_ns = visible_ns.max(self.controller_ns).max(now_ns);
        if due_ns < arbiter.due_ns {
            arbiter.due_ns = due_ns;
            ctx.events.push(EventKind::ARRIVING, due_ns, FETCH);
        }
    }

    /// Fetches a command.
    pub(crate) fn fetch_next(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        if arbiter.due_ns != now_ns {
            return; // An earlier one was found since.
        }
        arbiter.due_ns = u64::MAX;
        if let Some((posted, class)) = arbiter.take(now_ns) {
            debug_assert_ne!(posted.index, NONE);
            arbiter.inside += 1;
            ctx.stats.fetches.commands[class] += 1;
            ctx.stats.fetches.wait_ns[class] += now_ns - posted.visible_ns;
            let at_once = self.fetch(ctx, now_ns, posted.index, &posted.command);
            debug_assert_eq!(at_once, None, "other queues may have their turn before");
        }
        self.schedule_fetch(ctx, now_ns);
    }

    /// Whether commands are fetched from submission queues.
    #[inline]
    pub(crate) fn arbitrates(&self) -> bool {
        self.arbiter.is_some()
    }

    /// A command has ended: another may be fetched in its place.
    #[inline(never)]
    pub(crate) fn fetch_in_its_place(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.leave();
            self.schedule_fetch(ctx, now_ns);
        }
    }

    /// A write that was fetched waits for room: another command may be fetched
    /// in its place.
    pub(crate) fn fetch_beside_waiting(&mut self, ctx: &mut FetchCtx<'_>, now_ns: u64) {
        if ctx.writes_waiting > 0 {
            self.schedule_fetch(ctx, now_ns);
        }
    }
}
