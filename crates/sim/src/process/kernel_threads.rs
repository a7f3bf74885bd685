//! The kernel's threads that work for the page cache: a flusher for each drive and each
//! control group's part of it, and a `kswapd` for each memory node. They are there as long as
//! there are programs.
//!
//! Their CPU time is charged to a CPU as kblockd's is: no program waits for its turn
//! because of them.

use blklab_blk::{CgroupId, IoClass, IoPrio, Nanos, Submit, SubmitterId, Waiter};

use crate::cpu::CostTable;
use crate::file_layer::{FileLayer, Progress, Submitter, TaskId};
use crate::system::{System, TagWaiters};

/// A thread of the kernel's that has no priority of its own.
const PRIO: IoPrio = IoPrio {
    class: IoClass::Be,
    level: 4,
};

pub(crate) struct KernelThreads {
    pid: usize,
    cpu: usize,
    costs: CostTable,
    /// By drive its flusher; then those of control groups, drive by drive; then each `kswapd`.
    tasks: Vec<TaskId>,
    /// By drive, those that sleep in its queue.
    asleep: Vec<TagWaiters<(Waiter, TaskId)>>,
    /// Those that have the tag that they slept for.
    have_tags: Vec<TaskId>,
}

impl KernelThreads {
    pub(crate) fn new(
        (pid, cpu): (usize, usize),
        costs: CostTable,
        disks: usize,
        files: &mut FileLayer,
    ) -> KernelThreads {
        let mut tasks = files.add_flushers(pid, disks);
        tasks.extend(files.add_kswapds(pid));
        files.set_time_keeper(pid);
        KernelThreads {
            pid,
            cpu,
            costs,
            tasks,
            asleep: (0..disks).map(|_| TagWaiters::new()).collect(),
            have_tags: Vec::new(),
        }
    }

    /// The CPU that their time is charged to.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// They begin to wait for work.
    pub(crate) fn start(&mut self, now: Nanos, system: &mut System) {
        for at in 0..self.tasks.len() {
            self.go_on(now, self.tasks[at], system);
        }
    }

    /// Something may be due.
    pub(crate) fn on_timer(&mut self, now: Nanos, system: &mut System) {
        system.wake_due(now);
    }

    /// Some of them were woken.
    pub(crate) fn on_turn(&mut self, now: Nanos, system: &mut System) {
        while let Some(task) = system.take_woken(self.pid) {
            self.go_on(now, task, system);
        }
    }

    /// The block layer lets the one of that ticket try again.
    pub(crate) fn on_tag(&mut self, now: Nanos, (disk, ticket): (usize, u64), system: &mut System) {
        let Some((waiter, task)) = self.asleep[disk].take(ticket) else {
            return;
        };
        let who = self.submitter(task);
        match system.resume_in_call(now, disk, (task, waiter), &who).0 {
            Submit::Done => self.have_tags.push(task),
            Submit::Blocked(waiter) => self.sleep_for_tag(disk, waiter, task, system),
        }
    }

    /// All that were woken together have tried.
    pub(crate) fn on_all_tried(&mut self, now: Nanos, system: &mut System) {
        while let Some(task) = self.have_tags.pop() {
            self.go_on(now, task, system);
        }
    }

    fn go_on(&mut self, now: Nanos, task: TaskId, system: &mut System) {
        let who = self.submitter(task);
        let (progress, _) = system.go_on_in_call(now, task, &who);
        if let Progress::AwaitsTag(disk) = progress
            && let Some(waiter) = system.take_waiter(task)
        {
            self.sleep_for_tag(disk, waiter, task, system);
        }
    }

    fn sleep_for_tag(&mut self, disk: usize, waiter: Waiter, task: TaskId, system: &mut System) {
        system.tag_waiters[disk].push(waiter.ticket, self.pid);
        self.asleep[disk].push(waiter.ticket, (waiter, task));
    }

    /// The flushers of each drive submit under a number of its own, behind those of
    /// processes.
    fn submitter(&self, task: TaskId) -> Submitter<'_> {
        let at = self.tasks.iter().position(|t| *t == task).unwrap_or(0);
        Submitter {
            pid: self.pid,
            id: SubmitterId((self.pid + at % self.asleep.len().max(1)) as u32),
            cpu: self.cpu,
            prio: PRIO,
            cgroup: CgroupId::ROOT,
            costs: &self.costs,
        }
    }
}
