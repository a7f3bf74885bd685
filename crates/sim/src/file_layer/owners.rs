//! How processes and kernel threads run the tasks that they own, and are called when
//! those are woken.

use blklab_blk::{IoStatus, Nanos, Submit, Waiter};
use blklab_fs::NodePages;

use super::{Call, FIRST_SLOT, FileId, FileLayer, Opened, Progress, Submitter, TaskId};
use crate::cpu::Cpus;
use crate::disk::Disk;
use crate::system::System;

impl FileLayer {
    /// Sets the process whose timer ends sleeps and starts flushers.
    pub(crate) fn set_time_keeper(&mut self, pid: usize) {
        self.time_keeper.0 = pid;
    }

    #[inline]
    fn prefetch_page(&self, file: FileId, place: impl FnOnce() -> Option<u64>) {
        self.vfs.host().with_open_file(file.0, |open| {
            if let Opened::Region(region) = &open.what {
                self.vfs.prefetch(&region.file, place);
            }
        });
    }

    /// Queues a task whose bio without a future has ended with its owner. Returns the owner
    /// if its queue was empty; else it is going to be called already.
    fn collect_reader(&mut self, slot: u32) -> Option<usize> {
        let task = self.readers.get_mut((slot - FIRST_SLOT) as usize)?.take()?;
        self.called.add(task, self.tasks[task.0 as usize].owner)
    }

    #[inline]
    fn has_woken(&self) -> bool {
        self.woken.has_any()
    }

    /// Queues each woken task with its owner. `call` is given the owners whose queues
    /// were empty.
    fn collect_woken(&mut self, mut call: impl FnMut(usize)) {
        self.woken.take(|task| {
            let owner = self.tasks[task.0 as usize].owner;
            self.called.add(task, owner).map(&mut call);
        });
    }
}

impl System {
    fn file_layer(&mut self) -> &mut FileLayer {
        self.files
            .as_deref_mut()
            .expect("who makes calls has files")
    }

    /// Has the processor prefetch what a call on that byte of a file will look up.
    #[inline]
    pub(crate) fn prefetch_page(&self, file: FileId, place: impl FnOnce() -> Option<u64>) {
        if let Some(files) = &self.files {
            files.prefetch_page(file, place);
        }
    }

    /// Gives a task its next call.
    pub(crate) fn begin_call(&mut self, task: TaskId, call: Call) {
        self.file_layer().begin(task, call);
    }

    /// Gives a task its next call, and has it go on as [`System::go_on_in_call`] does.
    #[inline]
    pub(crate) fn call(
        &mut self,
        now: Nanos,
        call: (TaskId, &Call),
        who: &Submitter<'_>,
    ) -> (Progress, Nanos) {
        self.in_files(|files, system| files.call(system, now, call, who))
    }

    /// Runs a task until its call returns or it sleeps. Returns the CPU time that the
    /// block layer took for its bios.
    #[inline]
    pub(crate) fn go_on_in_call(
        &mut self,
        now: Nanos,
        task: TaskId,
        who: &Submitter<'_>,
    ) -> (Progress, Nanos) {
        self.in_files(|files, system| files.go_on(system, now, task, who))
    }

    /// Has a task run in the file layer, and calls the owners of those that it woke.
    #[inline]
    fn in_files(
        &mut self,
        run: impl FnOnce(&mut FileLayer, (&mut [Disk], &mut Cpus)) -> (Progress, Nanos),
    ) -> (Progress, Nanos) {
        let files = self.files.as_deref_mut();
        let files = files.expect("who makes calls has files");
        let progress = run(files, (&mut self.disks, &mut self.cpus));
        self.call_owners();
        progress
    }

    /// The place in its drive's queue of a task that has gone to sleep for a tag.
    pub(crate) fn take_waiter(&mut self, task: TaskId) -> Option<Waiter> {
        self.file_layer().tasks[task.0 as usize].waiter.take()
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

    /// How many pages of memory programs can still take.
    pub(crate) fn memory_left(&mut self) -> u64 {
        self.file_layer().vfs.memory_left()
    }

    /// A program on that CPU takes pages of memory, for which others may have to go. Returns
    /// how many are of another node.
    pub(crate) fn take_memory(
        &mut self,
        now: Nanos,
        cpu: usize,
        (pages, held): (u64, &mut NodePages),
    ) -> u64 {
        let files = self.file_layer();
        files.vfs.host().set_now(now);
        files.vfs.host().set_node(files.nodes[cpu]);
        let remote_pages = files.vfs.take_memory(pages, held);
        self.call_owners();
        remote_pages
    }

    /// It gives them back.
    pub(crate) fn give_memory(&mut self, now: Nanos, pages: &NodePages) {
        let files = self.file_layer();
        files.vfs.host().set_now(now);
        files.vfs.give_memory(pages);
    }

    /// A bio of the page cache has ended.
    pub(crate) fn cached_bio_ended(&mut self, now: Nanos, slot: u32, status: IoStatus) {
        let files = self.file_layer();
        // Others that wait for the page began to after the task that reads it.
        let owner = files.collect_reader(slot);
        files.bio_ended(now, slot, status);
        if let Some(owner) = owner {
            self.next_turn.push_back(owner);
        }
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
        self.file_layer().called.take(pid)
    }

    /// Has the owners of woken tasks called in the next turn, and sets the time keeper's
    /// timer for the earliest sleep or flusher. Most calls wake nobody and change neither.
    #[inline]
    fn call_owners(&mut self) {
        let files = self.files.as_deref();
        if files.is_some_and(|files| files.has_woken() || files.vfs.host().is_due_changed()) {
            self.call_each_owner();
        }
    }

    #[inline(never)]
    fn call_each_owner(&mut self) {
        let Some(files) = self.files.as_deref_mut() else {
            return;
        };
        files.collect_woken(|owner| self.next_turn.push_back(owner));
        if !files.vfs.host().is_due_changed() {
            return;
        }
        let (due, (pid, called_at)) = (files.vfs.host().next_due(), files.time_keeper);
        if due < called_at {
            files.time_keeper.1 = due;
            self.timers.set(due, pid);
        }
    }
}
