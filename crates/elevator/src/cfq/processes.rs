//! Processes and their queues.

use super::*;

impl Cfq {
    pub(super) fn process(&mut self, id: u32, now: i64) -> usize {
        if let Some(&process) = self.process_ids.get(&(id as u64)) {
            return process;
        }
        let mut new = Process::default();
        new.think_time.last_end = now;
        let process = match self.free_processes.pop() {
            Some(process) => {
                self.processes[process] = new;
                process
            }
            None => {
                self.processes.push(new);
                self.processes.len() - 1
            }
        };
        self.process_ids.insert(id as u64, process);
        process
    }

    /// A process is gone (`cfq_exit_icq`): its queues lose their turn, and
    /// nobody waits for it.
    pub(super) fn forget_process(&mut self, now: Nanos, submitter: SubmitterId) {
        let Some(process) = self.process_ids.remove(&(submitter.0 as u64)) else {
            return;
        };
        self.processes[process].exited = true;
        for sync in [0, 1] {
            let Some(id) = self.processes[process].queues[sync].take() else {
                continue;
            };
            if self.active == Some(id) {
                self.expire_slice(jiffies(now), false);
                self.kick = (self.busy > 0).then_some(now);
            }
            self.leave_queue(id);
        }
        self.active_process.take_if(|active| *active == process);
        self.free_process_if_done(process);
    }

    pub(super) fn process_loses_request(&mut self, process: usize) {
        self.processes[process].requests -= 1;
        self.free_process_if_done(process);
    }

    fn free_process_if_done(&mut self, process: usize) {
        let p = &self.processes[process];
        if p.exited && p.requests == 0 {
            self.active_process.take_if(|active| *active == process);
            self.free_processes.push(process);
        }
    }

    pub(super) fn make_queue(&mut self, group: GroupId, sync: bool) -> QueueId {
        let id = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(Queue::default());
            self.queues.len() - 1
        });
        let q = &mut self.queues[id];
        // The sort list keeps its memory.
        let sorted = std::mem::take(&mut q.sorted);
        *q = Queue {
            group,
            sync,
            sorted,
            idle_window: sync,
            prio_changed: true,
            ..Queue::default()
        };
        id
    }

    /// Gives a process a queue: a new one, or the shared one of its priority.
    pub(super) fn assign_queue(&mut self, process: usize, sync: bool) -> QueueId {
        let Process { prio, group, .. } = self.processes[process];
        let id = if sync {
            self.make_queue(group, true)
        } else {
            let level = match prio.class {
                IoClass::None => NORMAL_PRIO,
                _ => prio.level.min(PRIO_LEVELS as u8 - 1),
            };
            let (class, level) = (class_of(prio) as usize, level as usize);
            match self.groups[group].async_queues[class][level] {
                Some(id) => id,
                None => {
                    let id = self.make_queue(group, false);
                    self.queues[id].processes = 1;
                    self.groups[group].async_queues[class][level] = Some(id);
                    id
                }
            }
        };
        self.queues[id].processes += 1;
        self.processes[process].queues[sync as usize] = Some(id);
        self.apply_prio(id, process);
        id
    }

    /// A changed priority reaches a queue with its next request.
    pub(super) fn apply_prio(&mut self, id: QueueId, process: usize) {
        let prio = self.processes[process].prio;
        let q = &mut self.queues[id];
        if !std::mem::take(&mut q.prio_changed) {
            return;
        }
        q.class = class_of(prio);
        q.ioprio = match prio.class {
            IoClass::None => NORMAL_PRIO as i64,
            IoClass::Idle => PRIO_LEVELS - 1,
            _ => (prio.level as i64).min(PRIO_LEVELS - 1),
        };
        if q.class == Class::Idle {
            q.idle_window = false;
        }
    }

    pub(super) fn note_prio(&mut self, process: usize, prio: IoPrio) {
        if self.processes[process].prio == prio {
            return;
        }
        self.processes[process].prio = prio;
        if let Some(id) = self.processes[process].queues[0].take() {
            self.leave_queue(id);
        }
        if let Some(id) = self.processes[process].queues[1] {
            self.queues[id].prio_changed = true;
        }
    }

    pub(super) fn leave_queue(&mut self, id: QueueId) {
        self.queues[id].processes -= 1;
        self.free_if_unused(id);
    }

    pub(super) fn free_if_unused(&mut self, id: QueueId) {
        let q = &self.queues[id];
        if q.processes == 0 && q.allocated == 0 && !q.on_rr && self.active != Some(id) {
            self.free_queues.push(id);
            for other in &mut self.queues {
                if other.merges_into == Some(id) {
                    other.merges_into = None;
                }
            }
        }
    }

    /// The queue that a process's next request goes to: its own, after a split
    /// or a merge that is due.
    pub(super) fn queue_for(&mut self, process: usize, sync: bool) -> QueueId {
        let Some(id) = self.processes[process].queues[sync as usize] else {
            return self.assign_queue(process, sync);
        };
        if self.queues[id].shared && self.queues[id].split {
            if self.queues[id].processes > 1 {
                self.processes[process].queues[sync as usize] = None;
                self.leave_queue(id);
                return self.assign_queue(process, sync);
            }
            self.queues[id].shared = false;
            self.queues[id].split = false;
        }
        let Some(into) = self.queues[id].merges_into else {
            return id;
        };
        self.processes[process].queues[sync as usize] = Some(into);
        self.queues[into].processes += 1;
        self.queues[into].shared = true;
        self.leave_queue(id);
        into
    }

    /// Plans to make two queues one, towards the one of more processes.
    pub(super) fn plan_merge(&mut self, id: QueueId, other: QueueId) {
        let mut into = other;
        while let Some(next) = self.queues[into].merges_into {
            if next == id {
                return;
            }
            into = next;
        }
        let (here, there) = (self.queues[id].processes, self.queues[into].processes);
        if into == id || here == 0 || there == 0 {
            return;
        }
        if there >= here {
            self.queues[id].merges_into = Some(into);
        } else {
            self.queues[into].merges_into = Some(id);
        }
    }
}

fn class_of(prio: IoPrio) -> Class {
    match prio.class {
        IoClass::Rt => Class::RealTime,
        IoClass::None | IoClass::Be => Class::BestEffort,
        IoClass::Idle => Class::Idle,
    }
}
