//! How owners have their tasks go on, and are called when these are woken.

use blklab_blk::{IoStatus, Nanos, Submit, Waiter};

use super::{Call, FileLayer, Progress, Submitter, TaskId, lock};
use crate::system::System;

impl FileLayer {
    /// The process that is called by its timer when something is due.
    pub(crate) fn set_time_keeper(&mut self, pid: usize) {
        self.time_keeper.0 = pid;
    }

    /// Adds the tasks that were woken to those that their owners are called for. `call`
    /// is given each owner that has none yet.
    fn collect_woken(&mut self, mut call: impl FnMut(usize)) {
        for task in lock(&self.woken).drain(..) {
            let owner = self.tasks[task.0 as usize].owner;
            let called = &mut self.called[owner];
            if called.is_empty() {
                call(owner);
            }
            if !called.contains(&task) {
                called.push_back(task);
            }
        }
    }
}

impl System {
    fn file_layer(&mut self) -> &mut FileLayer {
        self.files
            .as_deref_mut()
            .expect("who makes calls has files")
    }

    /// A task begins a call.
    pub(crate) fn begin_call(&mut self, task: TaskId, call: Call) {
        self.file_layer().begin(task, call);
    }

    /// Has a task go on in its call. Returns the CPU time that it took in the block
    /// layer.
    pub(crate) fn go_on_in_call(
        &mut self,
        now: Nanos,
        task: TaskId,
        who: &Submitter<'_>,
    ) -> (Progress, Nanos) {
        let files = self.files.as_deref_mut();
        let files = files.expect("who makes calls has files");
        let progress = files.go_on((&mut self.disks, &mut self.cpus), now, task, who);
        self.call_owners();
        progress
    }

    /// A task that waited for a tag in a drive's queue tries again.
    pub(crate) fn resume_in_call(
        &mut self,
        now: Nanos,
        disk: usize,
        (task, waiter): (TaskId, Waiter),
        who: &Submitter<'_>,
    ) -> (Submit, Nanos) {
        let files = self.files.as_deref_mut();
        let files = files.expect("who makes calls has files");
        let on = (&mut self.disks[disk], &mut self.cpus);
        files.resume(on, now, (task, waiter), who)
    }

    /// How long writers were held back so far, over all of them.
    pub(crate) fn throttled(&mut self) -> Nanos {
        self.file_layer().vfs.host().throttled()
    }

    /// A bio of the page cache has ended.
    pub(crate) fn cached_bio_ended(&mut self, now: Nanos, slot: u32, status: IoStatus) {
        self.file_layer().bio_ended(now, slot, status);
        self.call_owners();
    }

    /// Wakes what is due.
    pub(crate) fn wake_due(&mut self, now: Nanos) {
        let files = self.file_layer();
        if files.time_keeper.1 <= now {
            files.time_keeper.1 = Nanos::MAX;
        }
        files.vfs.host().set_now(now);
        files.vfs.host().wake_due();
        self.call_owners();
    }

    /// A task of the process that was woken.
    pub(crate) fn take_woken(&mut self, pid: usize) -> Option<TaskId> {
        self.file_layer().called[pid].pop_front()
    }

    /// Has the owners of woken tasks called in the next turn, and the time keeper when
    /// something is due.
    fn call_owners(&mut self) {
        let Some(files) = self.files.as_deref_mut() else {
            return;
        };
        files.collect_woken(|owner| self.next_turn.push_back(owner));
        let (pid, called_at) = files.time_keeper;
        if let Some(due) = files.vfs.host().next_due()
            && due < called_at
        {
            files.time_keeper.1 = due;
            self.timers.set(due, pid);
        }
    }
}
