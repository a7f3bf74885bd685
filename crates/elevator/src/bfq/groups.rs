//! Control groups (`block/bfq-cgroup.c`): a group is served like one queue,
//! by its weight; whose turn it is within the group, its own service trees say.
//! Groups are one level below the root, as fio makes them. They stay when their
//! last process is gone.

use alloc::vec::Vec;

use blklab_blk::{CgroupId, SchedCtx};

use super::budget::Expiration;
use super::queue::QueueId;
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
    /// What the root's service trees know of it. The root itself is nobody's
    /// member.
    pub(super) entity: Entity,
    pub(super) sched: SchedData,
    pub(super) async_queues: [Option<QueueId>; ASYNC_QUEUES],
    /// Queues in the order of their next requests' sectors.
    pub(super) positions: Vec<(u64, QueueId)>,
    pub(super) last_created: Option<QueueId>,
    /// Queues with requests, queued or in the drive.
    pending_queues: u32,
}

impl Group {
    pub(super) fn new(cgroup: CgroupId) -> Group {
        Group {
            cgroup,
            entity: Entity::new(DEFAULT_GROUP_WEIGHT),
            sched: SchedData::new(),
            async_queues: [None; ASYNC_QUEUES],
            positions: Vec::new(),
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

    /// The group that something is a member of.
    pub(super) fn group_of(&self, member: Member) -> GroupId {
        match member {
            Member::Queue(q) => self.queues[q].group,
            Member::Group(_) => ROOT,
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

    /// A request more belongs to a queue, and to its group.
    pub(super) fn request_allocated(&mut self, q: QueueId) {
        let group = self.queues[q].group;
        self.queues[q].entity.allocated += 1;
        self.groups[group].entity.allocated += 1;
    }

    pub(super) fn request_freed(&mut self, q: QueueId) {
        let group = self.queues[q].group;
        self.queues[q].entity.allocated -= 1;
        self.groups[group].entity.allocated -= 1;
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
        self.groups[old].entity.allocated -= allocated;
        self.groups[group].entity.allocated += allocated;
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
