//! B-WF2Q+: the choice of the queue to serve next.
//!
//! Each class has its own service tree. Virtual time advances by service divided by the sum of
//! weights. A queue that becomes busy gets a start time, and a finish time that is later by its
//! budget divided by its weight. Among the eligible queues, whose start time has come, the one with
//! the earliest finish time is served next. An empty queue whose finish time is in the future stays
//! in the idle tree and continues from there, so a pause gains nothing.
//!
//! A control group is served like a queue: it is an [`Entity`] among the queues of its parent, and
//! has its own [`SchedData`] for its members. Its budget is that of its next member.
//!
//! Source: P. Valente, "BFQ: B-WF2Q+ with budgets", and Linux 6.12's `block/bfq-wf2q.c`. The active
//! tree is a red-black tree in which each node knows the earliest start time of its subtree. The
//! search may miss an eligible entity with a slightly earlier finish time, depending on the shape
//! of the tree, which is therefore the kernel's.

use alloc::vec::Vec;

use blklab_blk::msecs_to_jiffies;

use super::Bfq;
use super::groups::{GroupId, Member, ROOT};
use super::queue::{CLASSES, IDLE_CLASS, LEVELS, QueueId};
use super::red_black::{Augmented, NodeId, RedBlackTree};

/// Fraction bits of virtual time.
const SERVICE_SHIFT: u32 = 22;
/// The longest time between services of a busy idle-class queue, in milliseconds.
const IDLE_CLASS_TIMEOUT_MS: i64 = 200;

const MIN_WEIGHT: u32 = 1;
const MAX_WEIGHT: u32 = 1000;

/// Whether `a` is later than `b`; virtual times wrap around.
fn later(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) as i64 > 0
}

/// Converts service to virtual time.
fn virtual_span(service: u64, weight: u64) -> u64 {
    (service << SERVICE_SHIFT) / weight.max(1)
}

/// The tree that contains an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// No tree; the entity may be in service.
    None,
    Active(NodeId),
    Idle,
}

/// State of a queue or group in a service tree.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) on_tree_or_in_service: bool,
    pub(super) tree: Tree,
    pub(super) start: u64,
    pub(super) finish: u64,
    /// Service in this slot, in sectors.
    pub(super) service: i64,
    pub(super) budget: i64,
    /// Number of its requests, queued or in the drive.
    pub(super) allocated: u32,
    pub(super) weight: u32,
    /// The weight from its next activation on.
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

    /// Applies a changed weight, within bounds. Returns whether it changed.
    fn take_new_weight(&mut self) -> bool {
        let changed = self.new_weight != self.orig_weight;
        self.new_weight = self.new_weight.clamp(MIN_WEIGHT, MAX_WEIGHT);
        self.orig_weight = self.new_weight;
        changed
    }

    fn calc_finish(&mut self, service: i64) {
        let span = virtual_span(service.max(0) as u64, self.weight as u64);
        self.finish = self.start.wrapping_add(span);
    }
}

/// A queue or group in the active tree.
#[derive(Debug)]
struct Active {
    finish: u64,
    start: u64,
    /// The earliest start time in its subtree.
    min_start: u64,
    member: Member,
    /// Number of insertions into active trees before it.
    serial: u64,
}

impl Augmented for Active {
    fn update_subtree(&mut self, children: [Option<&Active>; 2]) {
        self.min_start = self.start;
        for child in children.into_iter().flatten() {
            if later(self.min_start, child.min_start) {
                self.min_start = child.min_start;
            }
        }
    }
}

/// A queue or group in the idle tree.
#[derive(Clone, Copy, Debug)]
struct Idle {
    finish: u64,
    member: Member,
}

/// The service tree of one class.
#[derive(Debug, Default)]
pub(super) struct ServiceTree {
    /// Active and idle entities, both sorted by finish time.
    active: RedBlackTree<Active>,
    idle: Vec<Idle>,
    vtime: u64,
    /// Sum of the weights of active and idle entities.
    pub(super) weight_sum: u64,
}

impl ServiceTree {
    /// The earliest virtual time at which an entity is eligible.
    fn eligible_vtime(&self) -> u64 {
        let first = self.active.root().map(|root| self.active[root].min_start);
        match first {
            Some(start) if later(start, self.vtime) => start,
            _ => self.vtime,
        }
    }

    /// The eligible entity that the search finds (`bfq_first_active_entity`): it goes left while
    /// that subtree has an eligible one, and right only while none was found; the last one found is
    /// returned.
    fn first_eligible(&self, vtime: u64) -> Option<Member> {
        let tree = &self.active;
        let mut found = None;
        let mut at = tree.root();
        while let Some(place) = at {
            if !later(tree[place].start, vtime) {
                found = Some(tree[place].member);
            }
            let left = tree.left(place);
            at = match left.filter(|&left| !later(tree[left].min_start, vtime)) {
                Some(left) => Some(left),
                None if found.is_some() => break,
                None => tree.right(place),
            };
        }
        found
    }
}

/// The service trees of a group, its member in service and its next member.
#[derive(Debug)]
pub(super) struct SchedData {
    pub(super) in_service: Option<Member>,
    pub(super) next_in_service: Option<Member>,
    pub(super) trees: [ServiceTree; CLASSES],
    /// The time at which the idle class was last served, in jiffies.
    idle_served: i64,
}

impl SchedData {
    pub(super) fn new() -> SchedData {
        SchedData {
            in_service: None,
            next_in_service: None,
            trees: Default::default(),
            idle_served: super::queue::LONG_AGO,
        }
    }

    fn active_members(&self) -> usize {
        self.trees.iter().map(|tree| tree.active.len()).sum()
    }
}

/// Contents of the trees.
impl Bfq {
    fn trees(&self) -> impl Iterator<Item = &ServiceTree> {
        self.groups.iter().flat_map(|group| &group.sched.trees)
    }

    /// The most recently activated queue in an active tree that is `wanted`.
    pub(super) fn last_activated(&self, wanted: impl Fn(QueueId) -> bool) -> Option<QueueId> {
        let queue = |n: &Active| match n.member {
            Member::Queue(q) if wanted(q) => Some((n.serial, q)),
            _ => None,
        };
        let active = self.trees().flat_map(|tree| tree.active.iter());
        active
            .filter_map(queue)
            .max_by_key(|&(serial, _)| serial)
            .map(|(_, q)| q)
    }

    /// All queues in the trees.
    pub(super) fn queues_in_trees(&self) -> Vec<QueueId> {
        let members = self.trees().flat_map(|tree| {
            let active = tree.active.iter().map(|n| n.member);
            active.chain(tree.idle.iter().map(|n| n.member))
        });
        let queue = |member| match member {
            Member::Queue(q) => Some(q),
            Member::Group(_) => None,
        };
        members.filter_map(queue).collect()
    }

    fn tree_of(&mut self, member: Member) -> &mut ServiceTree {
        let (group, class) = (self.group_of(member), self.class_of(member));
        &mut self.groups[group].sched.trees[class]
    }

    fn active_insert(&mut self, member: Member) {
        self.activations += 1;
        let serial = self.activations;
        let &Entity { finish, start, .. } = self.entity(member);
        let node = Active {
            finish,
            start,
            min_start: start,
            member,
            serial,
        };
        let tree = &mut self.tree_of(member).active;
        let place = tree.insert(node, |other| later(other.finish, finish));
        self.entity_mut(member).tree = Tree::Active(place);
    }

    fn active_extract(&mut self, member: Member) {
        let tree = core::mem::replace(&mut self.entity_mut(member).tree, Tree::None);
        if let Tree::Active(place) = tree {
            self.tree_of(member).active.remove(place);
        }
    }

    fn idle_insert(&mut self, member: Member) {
        let entity = self.entity_mut(member);
        entity.tree = Tree::Idle;
        let finish = entity.finish;
        let tree = &mut self.tree_of(member).idle;
        let at = tree.partition_point(|other| !later(other.finish, finish));
        tree.insert(at, Idle { finish, member });
    }

    fn idle_extract(&mut self, member: Member) {
        self.entity_mut(member).tree = Tree::None;
        self.tree_of(member)
            .idle
            .retain(|idle| idle.member != member);
    }

    /// Removes an entity from its service tree, so that its weight no longer counts.
    fn forget_entity(&mut self, member: Member) {
        let entity = self.entity_mut(member);
        entity.on_tree_or_in_service = false;
        let weight = entity.weight as u64;
        let tree = self.tree_of(member);
        tree.weight_sum = tree.weight_sum.saturating_sub(weight);
        // The queue in service is freed when it leaves service.
        if let Member::Queue(q) = member {
            self.release(q);
        }
    }

    /// Removes an entity from the idle tree.
    pub(super) fn forget_idle_member(&mut self, member: Member) {
        self.idle_extract(member);
        self.forget_entity(member);
    }

    /// Removes the first idle entity if its finish time has passed. Without active entities,
    /// virtual time first advances to the finish time of the last idle one.
    fn forget_idle(&mut self, group: GroupId, class: usize) {
        let tree = &mut self.groups[group].sched.trees[class];
        if tree.active.is_empty()
            && let Some(last) = tree.idle.last()
            && !later(last.finish, tree.vtime)
        {
            tree.vtime = last.finish;
        }
        if let Some(first) = tree.idle.first().copied()
            && !later(first.finish, tree.vtime)
        {
            self.forget_idle_member(first.member);
        }
    }
}

/// A single entity and its times.
impl Bfq {
    /// Applies a changed weight, and with `class_too` a changed class, which moves the queue to
    /// another tree.
    pub(super) fn update_weight(&mut self, q: QueueId, class_too: bool) {
        if !self.queues[q].entity.prio_changed {
            return;
        }
        let (group, old_class) = (self.queues[q].group, self.queues[q].class);
        let old_weight = self.queues[q].entity.weight;
        let tree = &mut self.groups[group].sched.trees[old_class];
        tree.weight_sum = tree.weight_sum.saturating_sub(old_weight as u64);
        let queue = &mut self.queues[q];
        if queue.entity.take_new_weight() {
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
        let trees = &mut self.groups[group].sched.trees;
        trees[class].weight_sum += weight as u64;
        if class != old_class {
            self.queues[q].entity.start = trees[class].vtime;
            // The kernel does not update these counts.
            if self.queues[q].busy {
                self.busy[old_class] -= 1;
                self.busy[class] += 1;
            }
        }
    }

    /// Applies a group's new weight.
    fn update_group_weight(&mut self, group: GroupId) {
        let entity = &mut self.groups[group].entity;
        if !core::mem::take(&mut entity.prio_changed) {
            return;
        }
        let old = entity.weight as u64;
        entity.take_new_weight();
        entity.weight = entity.orig_weight;
        let new = entity.weight as u64;
        let tree = self.tree_of(Member::Group(group));
        tree.weight_sum = tree.weight_sum.saturating_sub(old) + new;
    }

    /// Charges service to a queue and its groups, and advances virtual time (`bfq_bfqq_served`).
    pub(super) fn charge_service(&mut self, q: QueueId, service: u64) {
        let jiffies = self.jiffies;
        let queue = &mut self.queues[q];
        if queue.service_since_idle == 0 {
            queue.first_io = jiffies;
        }
        if queue.is_raised() {
            queue.raising.service += service;
        }
        queue.service_since_idle += service;
        let mut at = Some(Member::Queue(q));
        while let Some(member) = at {
            self.entity_mut(member).service += service as i64;
            let tree = self.tree_of(member);
            let span = virtual_span(service, tree.weight_sum);
            tree.vtime = tree.vtime.wrapping_add(span);
            at = self.parent(member);
            self.forget_idle(self.group_of(member), self.class_of(member));
        }
    }

    /// Computes an entity's finish time and puts it into the active tree.
    ///
    /// An entity that continues from its old finish time (`backshifted`) and would finish in the
    /// past is moved forward, the less so the more its weight is raised; otherwise it would occupy
    /// the drive until it has caught up.
    fn enqueue(&mut self, member: Member, backshifted: bool) {
        let coeff = match member {
            Member::Queue(q) => {
                self.update_weight(q, true);
                self.queues[q].raising.coeff as u64
            }
            Member::Group(group) => {
                self.update_group_weight(group);
                1
            }
        };
        let vtime = self.tree_of(member).vtime;
        let entity = self.entity_mut(member);
        entity.calc_finish(entity.budget);
        if backshifted && later(vtime, entity.finish) {
            let behind = vtime.wrapping_sub(entity.finish) / coeff;
            entity.start = entity.start.wrapping_add(behind);
            entity.finish = entity.finish.wrapping_add(behind);
        }
        self.active_insert(member);
    }

    /// Activates an entity. If its request came within the idle slice (`in_time`) it keeps its
    /// position, as if it had never been empty.
    fn activate_entity(&mut self, member: Member, in_time: bool) {
        let vtime = self.tree_of(member).vtime;
        let finish = self.entity(member).finish;
        let backshifted = in_time && later(vtime, finish);
        let earliest = if backshifted { finish } else { vtime };
        if self.entity(member).tree == Tree::Idle {
            self.idle_extract(member);
            let start = if later(earliest, finish) {
                earliest
            } else {
                finish
            };
            self.entity_mut(member).start = start;
        } else {
            let entity = self.entity_mut(member);
            entity.start = earliest;
            entity.on_tree_or_in_service = true;
            let weight = entity.weight as u64;
            self.tree_of(member).weight_sum += weight;
        }
        self.enqueue(member, backshifted);
    }

    fn is_in_service(&self, member: Member) -> bool {
        self.groups[self.group_of(member)].sched.in_service == Some(member)
    }

    /// Computes new times for an entity that is active or in service.
    fn requeue_entity(&mut self, member: Member) {
        if self.is_in_service(member) {
            let entity = self.entity_mut(member);
            entity.calc_finish(entity.service);
            entity.start = entity.finish;
        }
        self.active_extract(member);
        self.enqueue(member, false);
    }

    /// Deactivates an entity without requests. Returns whether it was active.
    fn deactivate_entity(&mut self, member: Member, into_idle: bool) -> bool {
        let in_service = self.is_in_service(member);
        let group = self.group_of(member);
        let entity = self.entity_mut(member);
        if !entity.on_tree_or_in_service {
            return false;
        }
        entity.calc_finish(entity.service);
        if !in_service {
            entity.service = 0;
        }
        let tree = entity.tree;
        if in_service {
            self.groups[group].sched.in_service = None;
        }
        match tree {
            Tree::Active(_) => self.active_extract(member),
            Tree::Idle if !in_service => self.idle_extract(member),
            _ => {}
        }
        let finish = self.entity(member).finish;
        if into_idle && later(finish, self.tree_of(member).vtime) {
            self.idle_insert(member);
        } else {
            self.forget_entity(member);
        }
        true
    }
}

/// Activation and deactivation of queues and the groups that contain them.
impl Bfq {
    /// Activates or requeues a queue and its groups. With `all` they leave service.
    fn activate_or_requeue(&mut self, q: QueueId, in_time: bool, all: bool, expiration: bool) {
        let mut at = Some(Member::Queue(q));
        while let Some(member) = at {
            let active = matches!(self.entity(member).tree, Tree::Active(_));
            if active || self.is_in_service(member) {
                self.requeue_entity(member);
            } else {
                self.activate_entity(member, in_time);
            }
            let group = self.group_of(member);
            if !self.update_next_in_service(group, Some(member), expiration) && !all {
                break;
            }
            at = self.parent(member);
        }
    }

    /// Activates a queue that got its first request.
    pub(super) fn activate(&mut self, q: QueueId) {
        let in_time = core::mem::take(&mut self.queues[q].non_blocking_wait);
        self.activate_or_requeue(q, in_time, false, false);
    }

    /// Requeues a queue whose budget changed, or that leaves service with requests left.
    pub(super) fn requeue(&mut self, q: QueueId, expiration: bool) {
        self.activate_or_requeue(q, false, self.in_service == Some(q), expiration);
    }

    /// Deactivates a queue without requests, and its group if that has none either.
    pub(super) fn deactivate(&mut self, q: QueueId, into_idle: bool, expiration: bool) {
        let mut into_idle = into_idle;
        let mut at = Some(Member::Queue(q));
        while let Some(member) = at {
            // The queue may be freed below.
            let (group, parent) = (self.group_of(member), self.parent(member));
            if !self.deactivate_entity(member, into_idle) {
                return;
            }
            at = parent;
            if self.groups[group].sched.next_in_service == Some(member) {
                self.update_next_in_service(group, None, expiration);
            }
            let sched = &self.groups[group].sched;
            if sched.next_in_service.is_some() || sched.in_service.is_some() {
                break;
            }
            into_idle = true;
        }
        while let Some(member) = at {
            self.requeue_entity(member);
            let group = self.group_of(member);
            if !self.update_next_in_service(group, Some(member), expiration) && !expiration {
                break;
            }
            at = self.parent(member);
        }
    }

    /// Updates the next member of a group to be served. If only the times of `changed` are new, it
    /// is enough to compare that one with the previous choice. Returns whether the times of the
    /// group itself may change.
    fn update_next_in_service(
        &mut self,
        group: GroupId,
        changed: Option<Member>,
        expiration: bool,
    ) -> bool {
        let before = self.groups[group].sched.next_in_service;
        let goes_first = |changed: &Member| match before {
            None => true,
            Some(next) => next != *changed && self.goes_before(*changed, next),
        };
        let next = match changed.filter(goes_first) {
            Some(changed) => Some(changed),
            None => self.lookup_next(group, expiration),
        };
        self.groups[group].sched.next_in_service = next;
        let Some(next) = next else {
            return false;
        };
        before.is_none() | self.take_budget_of_next(group, next)
    }

    /// Sets a group's budget to that of its next member. Returns whether it got smaller.
    fn take_budget_of_next(&mut self, group: GroupId, next: Member) -> bool {
        if group == ROOT {
            return false;
        }
        let budget = self.entity(next).budget;
        core::mem::replace(&mut self.groups[group].entity.budget, budget) > budget
    }

    fn goes_before(&self, changed: Member, next: Member) -> bool {
        let class = self.class_of(changed);
        let tree = &self.groups[self.group_of(changed)].sched.trees[class];
        let (c, n) = (self.entity(changed), self.entity(next));
        class == self.class_of(next) && !later(c.start, tree.vtime) && later(n.finish, c.finish)
    }

    /// The eligible member with the earliest finish time in the highest class that has one; the
    /// idle class comes first if it has waited too long.
    fn lookup_next(&mut self, group: GroupId, expiration: bool) -> Option<Member> {
        let jiffies = self.jiffies;
        let sched = &mut self.groups[group].sched;
        let mut first_class = 0;
        if sched.idle_served + msecs_to_jiffies(IDLE_CLASS_TIMEOUT_MS) < jiffies {
            if !sched.trees[IDLE_CLASS].active.is_empty() {
                first_class = IDLE_CLASS;
            }
            sched.idle_served = jiffies;
        }
        let in_service = sched.in_service.is_some() && !expiration;
        (first_class..CLASSES).find_map(|class| self.lookup_in_class(group, class, in_service))
    }

    fn lookup_in_class(
        &mut self,
        group: GroupId,
        class: usize,
        in_service: bool,
    ) -> Option<Member> {
        let tree = &mut self.groups[group].sched.trees[class];
        if tree.active.is_empty() {
            return None;
        }
        let vtime = tree.eligible_vtime();
        // An entity in service is eligible although it is in no tree; without one, virtual time
        // jumps to the next eligible entity.
        if !in_service && vtime > tree.vtime {
            tree.vtime = vtime;
            self.forget_idle(group, class);
        }
        self.groups[group].sched.trees[class].first_eligible(vtime)
    }

    /// Whether another queue would be served if the one in service expired now.
    pub(super) fn next_may_preempt(&self) -> bool {
        let sched = &self.groups[ROOT].sched;
        sched.next_in_service != sched.in_service
    }

    /// Puts the next queue and the groups that contain it into service. A group with several active
    /// members may be next again, so it stays in its tree.
    pub(super) fn take_next_queue(&mut self) -> Option<QueueId> {
        if self.busy_total() == 0 {
            return None;
        }
        let mut group = ROOT;
        let q = loop {
            let sched = &mut self.groups[group].sched;
            let next = sched.next_in_service?;
            sched.in_service = Some(next);
            match next {
                Member::Queue(q) => break q,
                Member::Group(below) => {
                    if self.groups[below].sched.active_members() == 1 {
                        self.active_extract(next);
                    }
                    group = below;
                }
            }
        };
        let mut at = Some(Member::Queue(q));
        self.active_extract(Member::Queue(q));
        while let Some(member) = at {
            if !self.update_next_in_service(self.group_of(member), None, false) {
                break;
            }
            at = self.parent(member);
        }
        Some(q)
    }

    /// Takes a queue and the groups that contain it out of service.
    pub(super) fn clear_in_service(&mut self, q: QueueId) {
        let mut at = Some(Member::Queue(q));
        while let Some(member) = at {
            let group = self.group_of(member);
            self.groups[group].sched.in_service = None;
            at = self.parent(member);
        }
    }
}
