//! How processes and kernel threads run the tasks that they own, and are called when
//! those are woken.

use blklab_blk::{IoStatus, Nanos, Submit, Waiter};

use super::{Call, FileLayer, Progress, Submitter, TaskId};
use crate::system::System;

impl FileLayer {
    /// Sets the process whose timer ends sleeps and starts flushers.
    pub(crate) fn set_time_keeper(&mut self, pid: usize) {
        self.time_keeper.0 = pid;
    }

    /// Queues each woken task with its owner. `call` is given the owners whose queues
    /// were empty; the others are going to be called already.
    fn collect_woken(&mut self, mut call: impl FnMut(usize)) {
        self.woken.take(|task| {
            let owner = self.tasks[task.0 as usize].owner;
            let called = &mut self.called[owner];
            if called.is_empty() {
                call(owner);
            }
            if !called.contains(&task) {
                called.push_back(task);
            }
        });
    }
}

impl System {
    fn file_layer(&mut self) -> &mut FileLayer {
        self.files
            .as_deref_mut()
            .expect("who makes calls has files")
    }

    /// Gives a task its next call.
    pub(crate) fn begin_call(&mut self, task: TaskId, call: Call) {
        self.file_layer().begin(task, call);
    }

    /// Runs a task until its call returns or it sleeps. Returns the CPU time that the
    /// block layer took for its bios.
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

    /// Lets a task that sleeps for a tag try again to get one.
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

    /// The time that all writers together were throttled so far
    /// (`balance_dirty_pages`).
    pub(crate) fn throttled(&mut self) -> Nanos {
        self.file_layer().vfs.host().throttled()
    }

    /// A program takes pages of memory, for which others may have to go.
    pub(crate) fn take_memory(&mut self, now: Nanos, pages: u64) {
        let files = self.file_layer();
        files.vfs.host().set_now(now);
        files.vfs.take_memory(pages);
        self.call_owners();
    }

    /// It gives them back.
    pub(crate) fn give_memory(&mut self, now: Nanos, pages: u64) {
        let files = self.file_layer();
        files.vfs.host().set_now(now);
        files.vfs.give_memory(pages);
    }

    /// A bio of the page cache has ended.
    pub(crate) fn cached_bio_ended(&mut self, now: Nanos, slot: u32, status: IoStatus) {
        self.file_layer().bio_ended(now, slot, status);
        self.call_owners();
    }

    /// Wakes sleepers and flushers whose time has come.
    pub(crate) fn wake_due(&mut self, now: Nanos) {
        let files = self.file_layer();
        if files.time_keeper.1 <= now {
            files.time_keeper.1 = Nanos::MAX;
        }
        files.vfs.host().set_now(now);
        files.vfs.host().wake_due();
        self.call_owners();
    }

    /// The next woken task of a process.
    pub(crate) fn take_woken(&mut self, pid: usize) -> Option<TaskId> {
        self.file_layer().called[pid].pop_front()
    }

    /// Has the owners of woken tasks called in the next turn, and sets the time keeper's
    /// timer for the earliest sleep or flusher.
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
