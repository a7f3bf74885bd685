//! Control groups (`block/bfq-cgroup.c`): a group is served like a queue, by its weight, among the
//! members of its parent; its own service trees choose among its members. Groups are kept after
//! their last process has exited.

use blklab_blk::{CgroupId, SchedCtx};

use super::budget::Expiration;
use super::cooperators::NextRequest;
use super::queue::QueueId;
use super::red_black::RedBlackTree;
use super::wf2q::{Entity, SchedData};
use super::{ASYNC_QUEUES, Bfq};

/// Index of a group.
pub(super) type GroupId = usize;
pub(super) const ROOT: GroupId = 0;

/// Groups are served in the best-effort class (`BFQ_DEFAULT_GRP_CLASS`).
pub(super) const GROUP_CLASS: usize = 1;
/// The default weight of a group (`CGROUP_WEIGHT_DFL`).
const DEFAULT_GROUP_WEIGHT: u32 = 100;

/// A member of a group: a queue or a child group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Queue(QueueId),
    Group(GroupId),
}

/// A group (`bfq_group`).
#[derive(Debug)]
pub(super) struct Group {
    pub(super) cgroup: CgroupId,
    /// Its parent; the root is its own parent.
    parent: GroupId,
    /// Its entity in the service trees of its parent; unused for the root.
    pub(super) entity: Entity,
    pub(super) sched: SchedData,
    pub(super) async_queues: [Option<QueueId>; ASYNC_QUEUES],
    /// Queues by the sectors of their next requests.
    pub(super) positions: RedBlackTree<NextRequest>,
    pub(super) last_created: Option<QueueId>,
    /// Number of queues with requests, queued or in the drive.
    pub(super) pending_queues: u32,
}

impl Group {
    pub(super) fn new(cgroup: CgroupId) -> Group {
        Group {
            cgroup,
            parent: ROOT,
            entity: Entity::new(DEFAULT_GROUP_WEIGHT),
            sched: SchedData::new(),
            async_queues: [None; ASYNC_QUEUES],
            positions: RedBlackTree::default(),
            last_created: None,
            pending_queues: 0,
        }
    }
}

impl Bfq {
    fn group(&mut self, cgroup: CgroupId) -> GroupId {
        let known = self.groups.iter().position(|g| g.cgroup == cgroup);
        known.unwrap_or_else(|| {
            self.groups.push(Group::new(cgroup));
            self.groups.len() - 1
        })
    }

    /// Sets a group's weight, which applies from its next activation on.
    pub(super) fn set_group_weight(&mut self, cgroup: CgroupId, weight: u32) {
        let group = self.group(cgroup);
        let entity = &mut self.groups[group].entity;
        if entity.new_weight != weight {
            entity.new_weight = weight;
            entity.prio_changed = true;
        }
    }

    /// Sets the parent of a group that has not done I/O yet.
    pub(super) fn set_group_parent(&mut self, cgroup: CgroupId, parent: CgroupId) {
        let (group, parent) = (self.group(cgroup), self.group(parent));
        let mut ancestor = parent;
        while ancestor != ROOT && ancestor != group {
            ancestor = self.groups[ancestor].parent;
        }
        debug_assert!(ancestor == ROOT && group != ROOT, "groups in a circle");
        self.groups[group].parent = parent;
    }

    /// The group that contains a member.
    pub(super) fn group_of(&self, member: Member) -> GroupId {
        match member {
            Member::Queue(q) => self.queues[q].group,
            Member::Group(group) => self.groups[group].parent,
        }
    }

    /// The group that contains a member, as a member itself; `None` for the root.
    pub(super) fn parent(&self, member: Member) -> Option<Member> {
        match self.group_of(member) {
            ROOT => None,
            group => Some(Member::Group(group)),
        }
    }

    pub(super) fn entity(&self, member: Member) -> &Entity {
        match member {
            Member::Queue(q) => &self.queues[q].entity,
            Member::Group(group) => &self.groups[group].entity,
        }
    }

    pub(super) fn entity_mut(&mut self, member: Member) -> &mut Entity {
        match member {
            Member::Queue(q) => &mut self.queues[q].entity,
            Member::Group(group) => &mut self.groups[group].entity,
        }
    }

    pub(super) fn class_of(&self, member: Member) -> usize {
        match member {
            Member::Queue(q) => self.queues[q].class,
            Member::Group(_) => GROUP_CLASS,
        }
    }

    /// The weight of a queue's group against other groups; for a queue of the root, its own weight.
    pub(super) fn weight_outside_group(&self, q: QueueId) -> u32 {
        match self.queues[q].group {
            ROOT => self.queues[q].entity.weight,
            group => self.groups[group].entity.weight,
        }
    }

    /// A group and its ancestors, except the root.
    pub(super) fn groups_from(&self, group: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        let below_root = |&group: &GroupId| group != ROOT;
        let parent = move |&group: &GroupId| Some(self.groups[group].parent).filter(below_root);
        core::iter::successors(Some(group).filter(below_root), parent)
    }

    /// Changes the entities of a group and its ancestors, except the root.
    pub(super) fn each_group_from(&mut self, group: GroupId, mut change: impl FnMut(&mut Entity)) {
        let mut at = group;
        while at != ROOT {
            let group = &mut self.groups[at];
            change(&mut group.entity);
            at = group.parent;
        }
    }

    /// Counts a request for its queue and the groups that contain it.
    pub(super) fn request_allocated(&mut self, q: QueueId) {
        self.queues[q].entity.allocated += 1;
        self.each_group_from(self.queues[q].group, |entity| entity.allocated += 1);
    }

    pub(super) fn request_freed(&mut self, q: QueueId) {
        self.queues[q].entity.allocated -= 1;
        self.each_group_from(self.queues[q].group, |entity| entity.allocated -= 1);
    }

    /// Counts a queue that has requests, queued or in the drive.
    pub(super) fn count_pending(&mut self, q: QueueId) {
        let queue = &mut self.queues[q];
        if !core::mem::replace(&mut queue.counted_pending, true) {
            let group = &mut self.groups[queue.group];
            group.pending_queues += 1;
            self.pending_groups += (group.pending_queues == 1) as u32;
        }
    }

    pub(super) fn uncount_pending(&mut self, q: QueueId) {
        let queue = &mut self.queues[q];
        if core::mem::take(&mut queue.counted_pending) {
            let group = &mut self.groups[queue.group];
            group.pending_queues -= 1;
            self.pending_groups -= (group.pending_queues == 0) as u32;
        }
    }

    /// Moves a submitter's queues to the group of its next bio, if that has changed
    /// (`bfq_bic_update_cgroup`).
    pub(super) fn check_cgroup(&mut self, ctx: &SchedCtx<'_>, context: usize, cgroup: CgroupId) {
        if self.groups[self.contexts[context].group].cgroup == cgroup {
            return;
        }
        let group = self.group(cgroup);
        self.contexts[context].group = group;
        let [asynchronous, sync] = self.contexts[context].queues;
        if let Some(q) = asynchronous
            && self.queues[q].group != group
        {
            self.set_queue(context, None, false);
            self.drop_process_ref(q);
        }
        let Some(q) = sync else { return };
        if self.queues[q].merge_into.is_none() && !self.queues[q].coop {
            self.move_queue(ctx, q, group);
        } else if self.is_merged_outside(q, group) {
            self.drop_cooperators(q);
            self.set_queue(context, None, true);
            self.drop_process_ref(q);
        }
    }

    /// Whether a queue, or one that it is to be merged into, belongs to another group.
    fn is_merged_outside(&self, q: QueueId, group: GroupId) -> bool {
        let merges = |&q: &QueueId| self.queues[q].merge_into;
        core::iter::successors(Some(q), merges).any(|q| self.queues[q].group != group)
    }

    /// Moves the queue of one process to another group. As in the kernel, its requests stay counted
    /// in the old one.
    fn move_queue(&mut self, ctx: &SchedCtx<'_>, q: QueueId, group: GroupId) {
        let old = self.queues[q].group;
        if old == group {
            return;
        }
        let pending = self.queues[q].counted_pending;
        self.uncount_pending(q);
        if self.in_service == Some(q) {
            self.expire(ctx, q, false, Expiration::Preempted);
        }
        if self.queues[q].busy {
            self.deactivate(q, false, false);
        } else if self.queues[q].entity.on_tree_or_in_service {
            self.forget_idle_member(Member::Queue(q));
        }
        self.remove_position_of(q);
        if self.groups[old].last_created == Some(q) {
            self.groups[old].last_created = None;
        }
        let allocated = self.queues[q].entity.allocated;
        self.each_group_from(old, |entity| entity.allocated -= allocated);
        self.each_group_from(group, |entity| entity.allocated += allocated);
        self.queues[q].group = group;
        if pending {
            self.count_pending(q);
        }
        if self.queues[q].busy {
            self.move_position(ctx, q);
            self.activate(q);
        }
        if self.in_service.is_none() && self.in_driver == 0 {
            self.run_queues();
        }
    }
}
