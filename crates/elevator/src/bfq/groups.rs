//! Control groups (`block/bfq-cgroup.c`): a group is served like one queue,
//! by its weight, among the queues and groups of the group above; whose turn it
//! is within it, its own service trees say. Groups stay when their last process
//! is gone.

use blklab_blk::{CgroupId, SchedCtx};

use super::budget::Expiration;
use super::cooperators::NextRequest;
use super::queue::QueueId;
use super::red_black::RedBlackTree;
use super::wf2q::{Entity, SchedData};
use super::{ASYNC_QUEUES, Bfq};

/// The index of a group.
pub(super) type GroupId = usize;
pub(super) const ROOT: GroupId = 0;

/// Groups are served in the class of best effort (`BFQ_DEFAULT_GRP_CLASS`).
pub(super) const GROUP_CLASS: usize = 1;
/// The weight of a group that was given none (`CGROUP_WEIGHT_DFL`).
const DEFAULT_GROUP_WEIGHT: u32 = 100;

/// Who is served in a group: a queue, or a group below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Queue(QueueId),
    Group(GroupId),
}

/// One group (`bfq_group`).
#[derive(Debug)]
pub(super) struct Group {
    pub(super) cgroup: CgroupId,
    /// The group that this one is in; the root is in itself.
    above: GroupId,
    /// What the service trees of the group above know of it. The root itself is
    /// nobody's member.
    pub(super) entity: Entity,
    pub(super) sched: SchedData,
    pub(super) async_queues: [Option<QueueId>; ASYNC_QUEUES],
    /// Queues in the order of their next requests' sectors.
    pub(super) positions: RedBlackTree<NextRequest>,
    pub(super) last_created: Option<QueueId>,
    /// Queues with requests, queued or in the drive.
    pending_queues: u32,
}

impl Group {
    pub(super) fn new(cgroup: CgroupId) -> Group {
        Group {
            cgroup,
            above: ROOT,
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

    /// A group's new weight counts from its next activation on.
    pub(super) fn set_group_weight(&mut self, cgroup: CgroupId, weight: u32) {
        let group = self.group(cgroup);
        let entity = &mut self.groups[group].entity;
        if entity.new_weight != weight {
            entity.new_weight = weight;
            entity.prio_changed = true;
        }
    }

    /// A group that nobody does I/O in yet is made part of another.
    pub(super) fn set_group_above(&mut self, cgroup: CgroupId, above: CgroupId) {
        let (group, above) = (self.group(cgroup), self.group(above));
        let mut up = above;
        while up != ROOT && up != group {
            up = self.groups[up].above;
        }
        debug_assert!(up == ROOT && group != ROOT, "groups in a circle");
        self.groups[group].above = above;
    }

    /// The group that something is a member of.
    pub(super) fn group_of(&self, member: Member) -> GroupId {
        match member {
            Member::Queue(q) => self.queues[q].group,
            Member::Group(group) => self.groups[group].above,
        }
    }

    /// The same as a member of the group above; `None` for the root.
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

    /// The weight by which a queue, or the group it is in, stands against
    /// others that are not of that group.
    pub(super) fn outer_weight(&self, q: QueueId) -> u32 {
        match self.queues[q].group {
            ROOT => self.queues[q].entity.weight,
            group => self.groups[group].entity.weight,
        }
    }

    /// A group and those above it, without the root.
    pub(super) fn groups_from(&self, group: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        let below_root = |&group: &GroupId| group != ROOT;
        let above = move |&group: &GroupId| Some(self.groups[group].above).filter(below_root);
        core::iter::successors(Some(group).filter(below_root), above)
    }

    /// Does something to a group and to those above it, without the root.
    pub(super) fn each_group_from(&mut self, group: GroupId, mut change: impl FnMut(&mut Entity)) {
        let mut at = group;
        while at != ROOT {
            let group = &mut self.groups[at];
            change(&mut group.entity);
            at = group.above;
        }
    }

    /// A request more belongs to a queue, and to its groups.
    pub(super) fn request_allocated(&mut self, q: QueueId) {
        self.queues[q].entity.allocated += 1;
        self.each_group_from(self.queues[q].group, |entity| entity.allocated += 1);
    }

    pub(super) fn request_freed(&mut self, q: QueueId) {
        self.queues[q].entity.allocated -= 1;
        self.each_group_from(self.queues[q].group, |entity| entity.allocated -= 1);
    }

    /// A queue has requests, queued or in the drive.
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

    /// A submitter's next bio is of this group (`bfq_bic_update_cgroup`): its
    /// queues go with it.
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

    /// Whether a queue, or one that it is to be merged into, is of another group.
    fn is_merged_outside(&self, q: QueueId, group: GroupId) -> bool {
        let merges = |&q: &QueueId| self.queues[q].merge_into;
        core::iter::successors(Some(q), merges).any(|q| self.queues[q].group != group)
    }

    /// Moves a queue that is one process's alone to another group. The kernel
    /// leaves the count of its requests with the old one.
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
