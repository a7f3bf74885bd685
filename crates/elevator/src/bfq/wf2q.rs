//! B-WF2Q+: which queue is served next.
//!
//! Each class has its own service tree. Virtual time moves by service divided
//! by the weights of all; a queue that becomes busy gets a start time, and with
//! its budget divided by its weight a finish time. Served next is, of those
//! whose start time has come (which are eligible), the one with the earliest
//! finish time. A queue without requests whose finish time is still ahead stays
//! in the idle tree: when it comes back it goes on from there, so that nobody
//! gains by a pause.
//!
//! Queues all belong to one group. A control group would be an [`Entity`] among
//! them with a [`SchedData`] of its own below it.
//!
//! Source: P. Valente, "BFQ: B-WF2Q+ with budgets", and Linux 6.12's
//! `block/bfq-wf2q.c`. The kernel's trees are red-black with the least start
//! time below each node; here each is a sorted array, as there are as many
//! queues as processes that do I/O. With many queues the kernel's descent may
//! pass over an eligible queue with a slightly earlier finish time, depending
//! on the shape of its tree; that is not imitated.

use super::Bfq;
use super::queue::{CLASSES, IDLE_CLASS, LEVELS, QueueId};
use crate::jiffies::msecs_to_jiffies;

/// Fraction bits of virtual time.
const SERVICE_SHIFT: u32 = 22;
/// A busy idle-class queue is served at least this often.
const IDLE_CLASS_TIMEOUT_MS: i64 = 200;

const MIN_WEIGHT: u32 = 1;
const MAX_WEIGHT: u32 = 1000;

/// Virtual times wrap around.
fn later(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) as i64 > 0
}

/// Service in virtual time.
fn virtual_span(service: u64, weight: u64) -> u64 {
    (service << SERVICE_SHIFT) / weight.max(1)
}

/// Where an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// In none; perhaps in service.
    None,
    Active,
    Idle,
}

/// What the service tree knows of a queue.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) on_tree_or_in_service: bool,
    pub(super) tree: Tree,
    pub(super) start: u64,
    pub(super) finish: u64,
    /// Service in this slot, in sectors.
    pub(super) service: i64,
    pub(super) budget: i64,
    /// Requests that belong to it, queued or in the drive.
    pub(super) allocated: u32,
    pub(super) weight: u32,
    /// The weight it shall have from its next activation on.
    pub(super) new_weight: u32,
    /// The weight before raising.
    pub(super) orig_weight: u32,
    pub(super) prio_changed: bool,
}

impl Entity {
    pub(super) fn new(weight: u32) -> Entity {
        Entity {
            on_tree_or_in_service: false,
            tree: Tree::None,
            start: 0,
            finish: 0,
            service: 0,
            budget: 0,
            allocated: 0,
            weight,
            new_weight: weight,
            orig_weight: weight,
            prio_changed: true,
        }
    }

    fn calc_finish(&mut self, service: i64) {
        let span = virtual_span(service.max(0) as u64, self.weight as u64);
        self.finish = self.start.wrapping_add(span);
    }
}

/// A queue in a tree.
#[derive(Clone, Copy, Debug)]
struct Node {
    finish: u64,
    start: u64,
    q: QueueId,
    /// How many were put in before it.
    serial: u64,
}

/// The scheduler of one class.
#[derive(Debug, Default)]
pub(super) struct ServiceTree {
    /// In order of finish times.
    active: Vec<Node>,
    idle: Vec<Node>,
    vtime: u64,
    /// Weights of active and idle queues.
    pub(super) weight_sum: u64,
}

impl ServiceTree {
    fn insert(tree: &mut Vec<Node>, node: Node) {
        let at = tree.partition_point(|n| !later(n.finish, node.finish));
        tree.insert(at, node);
    }

    fn remove(tree: &mut Vec<Node>, q: QueueId) {
        if let Some(at) = tree.iter().position(|n| n.q == q) {
            tree.remove(at);
        }
    }

    /// The earliest virtual time at which some queue is eligible.
    fn eligible_vtime(&self) -> u64 {
        let first = self.active.iter().map(|n| n.start);
        let first = first.reduce(|a, b| if later(a, b) { b } else { a });
        match first {
            Some(start) if later(start, self.vtime) => start,
            _ => self.vtime,
        }
    }

    fn first_eligible(&self, vtime: u64) -> Option<QueueId> {
        let mut nodes = self.active.iter();
        nodes.find(|n| !later(n.start, vtime)).map(|n| n.q)
    }
}

/// The service trees of a group, and who is served now and next.
#[derive(Debug)]
pub(super) struct SchedData {
    pub(super) in_service: Option<QueueId>,
    pub(super) next_in_service: Option<QueueId>,
    pub(super) trees: [ServiceTree; CLASSES],
    /// When the idle class was served last, in jiffies.
    idle_served: i64,
    serial: u64,
}

impl SchedData {
    pub(super) fn new() -> SchedData {
        SchedData {
            in_service: None,
            next_in_service: None,
            trees: Default::default(),
            idle_served: super::queue::LONG_AGO,
            serial: 0,
        }
    }

    /// Queues in the active trees, the one put in last first.
    pub(super) fn last_activated(&self, wanted: impl Fn(QueueId) -> bool) -> Option<QueueId> {
        let active = self.trees.iter().flat_map(|tree| &tree.active);
        let wanted = active.filter(|n| wanted(n.q));
        wanted.max_by_key(|n| n.serial).map(|n| n.q)
    }

    /// All queues in the trees.
    pub(super) fn in_trees(&self) -> Vec<QueueId> {
        let nodes = |t: &ServiceTree| t.active.iter().chain(&t.idle).map(|n| n.q).collect();
        self.trees
            .iter()
            .flat_map(|t| -> Vec<QueueId> { nodes(t) })
            .collect()
    }
}

impl Bfq {
    fn tree_of(&mut self, q: QueueId) -> &mut ServiceTree {
        &mut self.sched.trees[self.queues[q].class]
    }

    fn active_insert(&mut self, class: usize, q: QueueId) {
        let entity = &mut self.queues[q].entity;
        entity.tree = Tree::Active;
        self.sched.serial += 1;
        let node = Node {
            finish: entity.finish,
            start: entity.start,
            q,
            serial: self.sched.serial,
        };
        ServiceTree::insert(&mut self.sched.trees[class].active, node);
    }

    fn active_extract(&mut self, q: QueueId) {
        self.queues[q].entity.tree = Tree::None;
        ServiceTree::remove(&mut self.tree_of(q).active, q);
    }

    fn idle_insert(&mut self, q: QueueId) {
        let entity = &mut self.queues[q].entity;
        entity.tree = Tree::Idle;
        let node = Node {
            finish: entity.finish,
            start: entity.start,
            q,
            serial: 0,
        };
        ServiceTree::insert(&mut self.tree_of(q).idle, node);
    }

    fn idle_extract(&mut self, q: QueueId) {
        self.queues[q].entity.tree = Tree::None;
        ServiceTree::remove(&mut self.tree_of(q).idle, q);
    }

    /// The queue no longer takes part; its weight no longer counts.
    fn forget_entity(&mut self, q: QueueId) {
        let entity = &mut self.queues[q].entity;
        entity.on_tree_or_in_service = false;
        let weight = entity.weight as u64;
        let tree = self.tree_of(q);
        tree.weight_sum = tree.weight_sum.saturating_sub(weight);
        // One that is in service is let go when it leaves service.
        self.release(q);
    }

    /// Drops an idle queue whose finish time has passed. With none active,
    /// virtual time first goes on to the last idle one's finish time.
    fn forget_idle(&mut self, class: usize) {
        let tree = &mut self.sched.trees[class];
        if tree.active.is_empty()
            && let Some(last) = tree.idle.last()
            && !later(last.finish, tree.vtime)
        {
            tree.vtime = last.finish;
        }
        if let Some(first) = tree.idle.first().copied()
            && !later(first.finish, tree.vtime)
        {
            self.idle_extract(first.q);
            self.forget_entity(first.q);
        }
    }

    /// Makes a changed weight or class effective; the class only where
    /// `class_too`, as it moves the queue to another tree.
    pub(super) fn update_weight(&mut self, q: QueueId, class_too: bool) {
        if !self.queues[q].entity.prio_changed {
            return;
        }
        let (old_class, old_weight) = (self.queues[q].class, self.queues[q].entity.weight);
        let tree = &mut self.sched.trees[old_class];
        tree.weight_sum = tree.weight_sum.saturating_sub(old_weight as u64);
        let queue = &mut self.queues[q];
        if queue.entity.new_weight != queue.entity.orig_weight {
            queue.entity.new_weight = queue.entity.new_weight.clamp(MIN_WEIGHT, MAX_WEIGHT);
            queue.entity.orig_weight = queue.entity.new_weight;
            queue.level = LEVELS.saturating_sub((queue.entity.orig_weight / 10) as u8);
        }
        if class_too {
            queue.class = queue.new_class;
        }
        queue.entity.prio_changed = queue.class != queue.new_class;
        let (class, coeff) = (queue.class, queue.raising.coeff);
        let weight = queue.entity.orig_weight * coeff;
        if weight != old_weight {
            self.uncount_weight(q);
        }
        self.queues[q].entity.weight = weight;
        if weight != old_weight && coeff == 1 {
            self.count_weight(q);
        }
        self.sched.trees[class].weight_sum += weight as u64;
        if class != old_class {
            self.queues[q].entity.start = self.sched.trees[class].vtime;
            // The kernel leaves these counts as they were.
            if self.queues[q].busy {
                self.busy[old_class] -= 1;
                self.busy[class] += 1;
            }
        }
    }

    /// Books service: the queue's own, and virtual time.
    pub(super) fn book_service(&mut self, q: QueueId, service: u64) {
        let jiffies = self.jiffies;
        let queue = &mut self.queues[q];
        if queue.service_since_idle == 0 {
            queue.first_io = jiffies;
        }
        if queue.is_raised() {
            queue.raising.service += service;
        }
        queue.service_since_idle += service;
        queue.entity.service += service as i64;
        let class = queue.class;
        let tree = &mut self.sched.trees[class];
        let span = virtual_span(service, tree.weight_sum);
        tree.vtime = tree.vtime.wrapping_add(span);
        self.forget_idle(class);
    }

    /// Gives an entity its finish time and puts it into the active tree.
    ///
    /// A queue that was back in time (`backshifted`) and whose finish time is
    /// past even so is moved forward, the less the more its weight is raised:
    /// else it would hold the drive for as long as it was behind.
    fn enqueue(&mut self, q: QueueId, backshifted: bool) {
        self.update_weight(q, true);
        let queue = &mut self.queues[q];
        let budget = queue.entity.budget;
        queue.entity.calc_finish(budget);
        let class = queue.class;
        let vtime = self.sched.trees[class].vtime;
        if backshifted && later(vtime, queue.entity.finish) {
            let behind = vtime.wrapping_sub(queue.entity.finish) / queue.raising.coeff as u64;
            queue.entity.start = queue.entity.start.wrapping_add(behind);
            queue.entity.finish = queue.entity.finish.wrapping_add(behind);
        }
        self.active_insert(class, q);
    }

    /// A queue becomes active. One whose request came within its idle window
    /// (`in_time`) keeps its place, as if it had never been without.
    fn activate_entity(&mut self, q: QueueId, in_time: bool) {
        let vtime = self.tree_of(q).vtime;
        let finish = self.queues[q].entity.finish;
        let backshifted = in_time && later(vtime, finish);
        let earliest = if backshifted { finish } else { vtime };
        if self.queues[q].entity.tree == Tree::Idle {
            self.idle_extract(q);
            let start = if later(earliest, finish) {
                earliest
            } else {
                finish
            };
            self.queues[q].entity.start = start;
        } else {
            let entity = &mut self.queues[q].entity;
            entity.start = earliest;
            entity.on_tree_or_in_service = true;
            let weight = entity.weight as u64;
            self.tree_of(q).weight_sum += weight;
        }
        self.enqueue(q, backshifted);
    }

    /// A queue that is active or in service gets new times.
    fn requeue_entity(&mut self, q: QueueId) {
        if self.sched.in_service == Some(q) {
            let entity = &mut self.queues[q].entity;
            let service = entity.service;
            entity.calc_finish(service);
            entity.start = entity.finish;
        }
        if self.queues[q].entity.tree == Tree::Active {
            self.active_extract(q);
        }
        self.enqueue(q, false);
    }

    fn activate_or_requeue(&mut self, q: QueueId, in_time: bool, expiration: bool) {
        let active = self.queues[q].entity.tree == Tree::Active;
        if active || self.sched.in_service == Some(q) {
            self.requeue_entity(q);
        } else {
            self.activate_entity(q, in_time);
        }
        self.update_next_in_service(Some(q), expiration);
    }

    /// A queue got its first request.
    pub(super) fn activate(&mut self, q: QueueId) {
        let in_time = std::mem::take(&mut self.queues[q].non_blocking_wait);
        self.activate_or_requeue(q, in_time, false);
    }

    /// A queue's budget changed, or it leaves service with requests left.
    pub(super) fn requeue(&mut self, q: QueueId, expiration: bool) {
        self.activate_or_requeue(q, false, expiration);
    }

    /// A queue has no requests left.
    pub(super) fn deactivate(&mut self, q: QueueId, expiration: bool) {
        let entity = &mut self.queues[q].entity;
        if !entity.on_tree_or_in_service {
            return;
        }
        let (service, tree) = (entity.service, entity.tree);
        entity.calc_finish(service);
        let in_service = self.sched.in_service == Some(q);
        if in_service {
            self.sched.in_service = None;
        } else {
            entity.service = 0;
        }
        match tree {
            Tree::Active => self.active_extract(q),
            Tree::Idle if !in_service => self.idle_extract(q),
            _ => {}
        }
        let finish = self.queues[q].entity.finish;
        if later(finish, self.tree_of(q).vtime) {
            self.idle_insert(q);
        } else {
            self.forget_entity(q);
        }
        if self.sched.next_in_service == Some(q) {
            self.update_next_in_service(None, expiration);
        }
    }

    /// Whom to serve next, if nothing changes. `changed` has new times: then it
    /// is enough to compare it with the one chosen before.
    fn update_next_in_service(&mut self, changed: Option<QueueId>, expiration: bool) {
        let next = self.sched.next_in_service;
        if let Some(changed) = changed
            && next != Some(changed)
        {
            let first = match next {
                None => true,
                Some(next) => self.goes_before(changed, next),
            };
            if first {
                self.sched.next_in_service = Some(changed);
                return;
            }
        }
        self.sched.next_in_service = self.lookup_next(expiration);
    }

    fn goes_before(&self, changed: QueueId, next: QueueId) -> bool {
        let (c, n) = (&self.queues[changed], &self.queues[next]);
        c.class == n.class
            && !later(c.entity.start, self.sched.trees[c.class].vtime)
            && later(n.entity.finish, c.entity.finish)
    }

    /// The eligible queue with the earliest finish time, of the highest class
    /// that has one; the idle class first when it has waited too long.
    fn lookup_next(&mut self, expiration: bool) -> Option<QueueId> {
        let mut first_class = 0;
        if self.sched.idle_served + msecs_to_jiffies(IDLE_CLASS_TIMEOUT_MS) < self.jiffies {
            if !self.sched.trees[IDLE_CLASS].active.is_empty() {
                first_class = IDLE_CLASS;
            }
            self.sched.idle_served = self.jiffies;
        }
        let in_service = self.sched.in_service.is_some() && !expiration;
        (first_class..CLASSES).find_map(|class| self.lookup_in_class(class, in_service))
    }

    fn lookup_in_class(&mut self, class: usize, in_service: bool) -> Option<QueueId> {
        let tree = &mut self.sched.trees[class];
        if tree.active.is_empty() {
            return None;
        }
        let vtime = tree.eligible_vtime();
        // The one in service is eligible, though in no tree; with nobody in
        // service virtual time jumps to where somebody is.
        if !in_service && vtime > tree.vtime {
            tree.vtime = vtime;
            self.forget_idle(class);
        }
        self.sched.trees[class].first_eligible(vtime)
    }

    /// Whether somebody else would be served if the one in service left now.
    pub(super) fn next_may_preempt(&self) -> bool {
        self.sched.next_in_service != self.sched.in_service
    }

    /// Takes the next queue into service.
    pub(super) fn take_next_queue(&mut self) -> Option<QueueId> {
        if self.busy_total() == 0 {
            return None;
        }
        let q = self.sched.next_in_service?;
        self.sched.in_service = Some(q);
        self.active_extract(q);
        self.update_next_in_service(None, false);
        Some(q)
    }
}
