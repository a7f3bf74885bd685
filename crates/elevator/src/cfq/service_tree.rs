//! Service trees: in what order queues are served.

use super::*;

impl Cfq {
    pub(super) fn leave_tree(&mut self, id: QueueId) {
        if let Some((tree, _)) = self.queues[id].tree.take() {
            self.groups[self.queues[id].group].trees[tree]
                .queues
                .retain(|&(_, q)| q != id);
        }
    }

    /// The key by which a queue waits: earlier for a higher priority and for
    /// what it did not use of its last slice.
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
        now + offset - std::mem::take(&mut self.queues[id].slice_residue)
    }

    pub(super) fn enter_tree(&mut self, id: QueueId, now: i64, first: bool) {
        let tree = self.queues[id].tree_index();
        let key = self.service_key(id, tree, now, first);
        if self.queues[id].tree == Some((tree, key)) {
            return;
        }
        self.leave_tree(id);
        let queues = &mut self.groups[self.queues[id].group].trees[tree].queues;
        let at = queues.partition_point(|&(k, _)| k <= key);
        queues.insert(at, (key, id));
        self.queues[id].tree = Some((tree, key));
    }

    pub(super) fn enter_service(&mut self, id: QueueId, now: i64) {
        self.queues[id].on_rr = true;
        self.busy += 1;
        self.busy_sync += self.queues[id].sync as u32;
        self.group_gains_queue(self.queues[id].group);
        self.enter_tree(id, now, false);
    }

    pub(super) fn leave_service(&mut self, id: QueueId) {
        self.queues[id].on_rr = false;
        self.leave_tree(id);
        self.busy -= 1;
        self.busy_sync -= self.queues[id].sync as u32;
        self.group_loses_queue(self.queues[id].group);
    }

    /// Which class and workload of the group is served now, and until when.
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

    /// A workload's part of its group's share of `target_latency`, by the number
    /// of its queues.
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
