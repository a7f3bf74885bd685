//! Control groups: the choice of the group to serve, and what it is charged.
//!
//! Groups are in one tree, sorted by virtual disk time. The slice that a queue used is charged to
//! its group, divided by the group's weighted share of the drive; the group with the least virtual
//! time is next. The root's own processes count as another group with the root's weight. A group's
//! share also scales the slices of its queues.
//!
//! Within a group, queues wait in service trees by class and workload.
//!
//! Groups are one level below the root, as fio creates them. Weights are those of `blkio.weight`:
//! 10 to 1000, 500 by default.

use super::*;

/// Index of a group.
pub(super) type GroupId = usize;
pub(super) const ROOT: GroupId = 0;

/// The default weight; the root's is twice that.
const DEFAULT_WEIGHT: u32 = 500;
/// Fraction bits of a share of the drive and of virtual disk time.
const SERVICE_SHIFT: u32 = 12;

/// The workload that was being served when its group was left.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedWorkload {
    left: i64,
    class: Class,
    workload: Workload,
}

/// A group and its queues.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) cgroup: CgroupId,
    weight: u32,
    /// The weight from its next insertion into the tree on.
    new_weight: u32,
    /// Its share of the drive among the groups in the tree, with `1 << 12` for the whole.
    pub(super) fraction: u64,
    disk_time: u64,
    /// Number of queues in its service trees.
    pub(super) busy: u32,
    pub(super) trees: [ServiceTree; TREES],
    /// Average number of busy queues of each class.
    pub(super) busy_average: [i64; 2],
    pub(super) think_time: ThinkTime,
    /// Number of its requests in the drive.
    pub(super) dispatched: u32,
    pub(super) saved: Option<SavedWorkload>,
    /// Shared queues for asynchronous requests, by class and level.
    pub(super) async_queues: [[Option<QueueId>; PRIO_LEVELS as usize]; 3],
}

/// Groups with busy queues, sorted by virtual disk time.
#[derive(Debug, Default)]
pub(super) struct GroupTree {
    groups: Vec<(u64, GroupId)>,
    /// Sum of the weights of the groups in the tree.
    weight_sum: u32,
    least_time: u64,
}

impl Cfq {
    pub(super) fn group(&mut self, cgroup: CgroupId) -> GroupId {
        let known = self.groups.iter().position(|g| g.cgroup == cgroup);
        known.unwrap_or_else(|| {
            let root = cgroup == CgroupId::ROOT;
            let weight = DEFAULT_WEIGHT * (1 + root as u32);
            self.groups.push(Group {
                cgroup,
                weight,
                new_weight: weight,
                ..Group::default()
            });
            self.groups.len() - 1
        })
    }

    pub(super) fn set_group_weight(&mut self, cgroup: CgroupId, weight: u32) {
        let group = self.group(cgroup);
        self.groups[group].new_weight = weight.clamp(10, 1000);
    }

    pub(super) fn trees_of(&self, id: QueueId) -> &[ServiceTree; TREES] {
        &self.groups[self.queues[id].group].trees
    }

    /// Number of busy queues in the group of this queue.
    pub(super) fn busy_in_group(&self, id: QueueId) -> u32 {
        self.groups[self.queues[id].group].busy
    }

    fn group_tree_add(&mut self, group: GroupId) {
        let tree = &mut self.group_tree;
        let g = &mut self.groups[group];
        let at = tree
            .groups
            .partition_point(|&(time, _)| time <= g.disk_time);
        tree.groups.insert(at, (g.disk_time, group));
        g.weight = g.new_weight;
        tree.weight_sum += g.weight;
        g.fraction = (((g.weight as u64) << SERVICE_SHIFT) / tree.weight_sum as u64).max(1);
    }

    fn group_tree_remove(&mut self, group: GroupId) {
        let tree = &mut self.group_tree;
        tree.groups.retain(|&(_, g)| g != group);
        tree.weight_sum -= self.groups[group].weight;
    }

    /// Counts a queue of the group that became busy. A group without other busy queues goes to the
    /// end of the tree.
    pub(super) fn group_add_queue(&mut self, group: GroupId) {
        self.groups[group].busy += 1;
        if self.groups[group].busy > 1 {
            return;
        }
        let last = self.group_tree.groups.last();
        let time = last.map(|&(time, _)| time + IDLE_DELAY as u64);
        self.groups[group].disk_time = time.unwrap_or(self.group_tree.least_time);
        self.group_tree_add(group);
    }

    pub(super) fn group_del_queue(&mut self, group: GroupId) {
        self.groups[group].busy -= 1;
        if self.groups[group].busy == 0 {
            self.group_tree_remove(group);
            self.groups[group].saved = None;
        }
    }

    /// The part of its slice that a queue has used, in jiffies. A queue that expires before its
    /// first completion is charged for the time since it became active.
    fn slice_usage(&self, id: QueueId, now: i64) -> i64 {
        let q = &self.queues[id];
        if q.slice_start == 0 || q.slice_start == now {
            return (now - q.dispatch_start).max(1);
        }
        (now - q.slice_start).min(q.allocated_slice)
    }

    /// Charges a group for the service of its queue: by time, or by requests on a drive that queues
    /// commands and is not idled, where time is not meaningful.
    pub(super) fn charge_group(&mut self, id: QueueId, now: i64) {
        let q = &self.queues[id];
        let group = q.group;
        let only_async = [Workload::SyncNoIdle, Workload::Sync]
            .into_iter()
            .flat_map(|w| [Class::RealTime, Class::BestEffort].map(|class| tree_index(class, w)))
            .all(|tree| self.groups[group].trees[tree].queues.is_empty());
        let by_requests = self.ticks(SLICE_IDLE) == 0 && self.queues_in_drive != Some(false);
        let charge = if by_requests {
            q.slice_dispatch
        } else if !q.sync && only_async {
            q.allocated_slice
        } else {
            self.slice_usage(id, now)
        };
        let fraction = self.groups[group].fraction.max(1);
        let in_tree = self.groups[group].busy > 0;
        if in_tree {
            self.group_tree_remove(group);
        }
        self.groups[group].disk_time += ((charge.max(0) as u64) << (2 * SERVICE_SHIFT)) / fraction;
        if in_tree {
            self.group_tree_add(group);
        }
        self.groups[group].saved = (self.workload_end > now).then_some(SavedWorkload {
            left: self.workload_end - now,
            class: self.class,
            workload: self.workload,
        });
    }

    /// Chooses the group to serve; its saved workload continues.
    pub(super) fn choose_group(&mut self, now: i64) {
        let Some(&(time, group)) = self.group_tree.groups.first() else {
            return;
        };
        self.group_tree.least_time = self.group_tree.least_time.max(time);
        self.serving = group;
        match self.groups[group].saved {
            Some(saved) => {
                self.workload_end = now + saved.left;
                self.class = saved.class;
                self.workload = saved.workload;
            }
            None => self.workload_end = now - 1,
        }
        self.choose_workload(now);
    }

    /// The group's part of `target_latency`.
    pub(super) fn group_slice(&self, group: GroupId) -> i64 {
        let share = self.ticks(TARGET_LATENCY) as u64 * self.groups[group].fraction;
        (share >> SERVICE_SHIFT) as i64
    }

    /// Gives a process new queues if its next request belongs to another group
    /// (`check_blkcg_changed`).
    pub(super) fn check_group(&mut self, process: usize, cgroup: CgroupId) {
        if self.groups[self.processes[process].group].cgroup == cgroup {
            return;
        }
        self.processes[process].group = self.group(cgroup);
        for sync in [0, 1] {
            if let Some(id) = self.processes[process].queues[sync].take() {
                self.put_cooperators(id);
                self.put_queue(id);
            }
        }
    }

    pub(super) fn service_tree_remove(&mut self, id: QueueId) {
        if let Some((tree, _)) = self.queues[id].tree.take() {
            self.groups[self.queues[id].group].trees[tree]
                .queues
                .retain(|&(_, q)| q != id);
        }
    }

    /// The key of a queue in its service tree: earlier for a higher priority and for an unused rest
    /// of its last slice.
    pub(super) fn service_key(&mut self, id: QueueId, tree: usize, now: i64, first: bool) -> i64 {
        let others = |q: &&(i64, QueueId)| q.1 != id;
        let waiting = &self.trees_of(id)[tree].queues;
        if self.queues[id].class == Class::Idle {
            let last = waiting.last().filter(others);
            return IDLE_DELAY + last.map_or(now, |&(key, _)| key);
        }
        if first {
            return waiting.first().map_or(now, |&(key, _)| key) - HZ;
        }
        let q = &self.queues[id];
        let shorter = self.prio_slice(true, 0) - self.prio_slice(q.sync, q.ioprio);
        let offset = (self.busy_in_group(id) as i64 - 1) * shorter;
        now + offset - core::mem::take(&mut self.queues[id].slice_residue)
    }

    pub(super) fn service_tree_add(&mut self, id: QueueId, now: i64, first: bool) {
        let tree = self.queues[id].tree_index();
        let key = self.service_key(id, tree, now, first);
        if self.queues[id].tree == Some((tree, key)) {
            return;
        }
        self.service_tree_remove(id);
        let queues = &mut self.groups[self.queues[id].group].trees[tree].queues;
        let at = queues.partition_point(|&(k, _)| k <= key);
        queues.insert(at, (key, id));
        self.queues[id].tree = Some((tree, key));
    }

    pub(super) fn add_queue_rr(&mut self, id: QueueId, now: i64) {
        self.queues[id].on_rr = true;
        self.busy += 1;
        self.busy_sync += self.queues[id].sync as u32;
        // Its key does not count the queue itself, unlike those of queues that were busy before.
        self.service_tree_add(id, now, false);
        self.group_add_queue(self.queues[id].group);
    }

    pub(super) fn del_queue_rr(&mut self, id: QueueId) {
        self.queues[id].on_rr = false;
        self.service_tree_remove(id);
        self.busy -= 1;
        self.busy_sync -= self.queues[id].sync as u32;
        self.group_del_queue(self.queues[id].group);
    }

    /// Chooses the class and the workload of the group to be served, and until when.
    pub(super) fn choose_workload(&mut self, now: i64) {
        let (before, group) = (self.class, self.serving);
        let busy = [Class::RealTime, Class::BestEffort]
            .into_iter()
            .find(|&class| self.busy_of_class(group, class) > 0);
        let Some(class) = busy else {
            self.class = Class::Idle;
            self.workload_end = now + 1;
            return;
        };
        self.class = class;
        let tree = &self.groups[group].trees[tree_index(class, self.workload)];
        if before == class && !tree.queues.is_empty() && now <= self.workload_end {
            return;
        }
        self.workload = self.best_workload(class);
        self.workload_end = now + self.workload_slice(class);
    }

    /// The workload whose first queue has waited longest.
    pub(super) fn best_workload(&self, class: Class) -> Workload {
        let trees = &self.groups[self.serving].trees;
        let first = |w: &Workload| trees[tree_index(class, *w)].queues.first();
        let waiting = WORKLOADS.into_iter().filter(|w| first(w).is_some());
        waiting
            .min_by_key(|w| first(w).map(|&(key, _)| key))
            .unwrap_or(Workload::SyncNoIdle)
    }

    /// The workload's part of its group's share of `target_latency`, by the number of its queues.
    pub(super) fn workload_slice(&self, class: Class) -> i64 {
        let group = &self.groups[self.serving];
        let count = group.trees[tree_index(class, self.workload)].queues.len() as i64;
        let all = group.busy_average[class as usize].max(self.busy_of_class(self.serving, class));
        let slice = self.group_slice(self.serving) * count / all.max(1);
        let slice = if self.workload == Workload::Async {
            let queues =
                |class| group.trees[tree_index(class, Workload::Async)].queues.len() as i64;
            let asyncs = queues(Class::RealTime) + queues(Class::BestEffort);
            let target = self.ticks(TARGET_LATENCY);
            let slice = slice.min(target * asyncs / (self.busy as i64).max(1));
            slice * self.ticks(SLICE_ASYNC) / self.ticks(SLICE_SYNC)
        } else {
            slice.max(2 * self.ticks(SLICE_IDLE))
        };
        slice.max(MIN_THINK_TIME)
    }
}
