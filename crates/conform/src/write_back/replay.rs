//! Runs the recorded calls and the flusher on our page cache. Which of the two
//! runs is given by the trace; where they may be interrupted is ours.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use blklab_fs::write_back::{DeviceId, Dirtier, History, Reason, Settings};
use blklab_fs::{Bio, BioId, Event, Extent, FsError, Host, InodeId, PAGE_BYTES, Vfs};

use super::new_blocks::Blocks;
use super::recorded::{Recorded, RecordedStep, Task, compared_bio, has_small_blocks};
use crate::page_cache::{Call, Program, RunFile, is_data};

/// A step of ours, and for which reason the flusher took it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FlusherStep {
    pub(super) event: Event,
    pub(super) reason: Option<Reason>,
}

/// A recorded step beside ours.
pub(super) enum Outcome {
    /// The kernel's, at this place among the steps, and ours.
    Both(usize, FlusherStep),
    /// Only the kernel took it, for this reason.
    OnlyKernel(usize, FlusherStep),
    /// Only we took it.
    OnlyOurs(FlusherStep),
    /// The flusher began to run there; when it was due by us, and since when.
    Runs(usize, Option<(u64, u64)>),
}

/// What a run is given before it begins.
pub(super) struct RunInputs<'a> {
    pub(super) calls: &'a [Call],
    pub(super) files: &'a [RunFile],
    /// The blocks that are allocated during the run.
    pub(super) new_blocks: Blocks,
    pub(super) settings: Settings,
    pub(super) history: History,
    pub(super) fault_around_pages: u64,
}

/// How far ahead a step of ours is looked for.
const WINDOW: usize = 64;

/// Steps of one task that have no recorded one beside them yet.
#[derive(Default)]
struct Stream {
    taken: Vec<FlusherStep>,
    /// Up to here they are matched.
    matched: usize,
    reason: Option<Reason>,
}

/// The recorded machine.
struct Machine<'a> {
    files: &'a [RunFile],
    /// The file system's own blocks are not looked at.
    own_blocks_are_given: bool,
    jiffies: Cell<u64>,
    /// The call that may be made.
    call: Cell<usize>,
    /// The call that is waited for.
    waits_for: Cell<usize>,
    running: Cell<Task>,
    /// The running task has taken steps since it was let run.
    has_taken: Cell<bool>,
    streams: RefCell<[Stream; 2]>,
    /// Bios that have not ended, with the sectors of each that have not.
    under_way: RefCell<Vec<(BioId, Bio, u64)>>,
    dirtier: Cell<Dirtier>,
    /// When the flusher is due, and when that was said.
    due: Cell<Option<(u64, u64)>>,
    address: Cell<u64>,
    /// The blocks that will be allocated during the run.
    new_blocks: RefCell<Blocks>,
    /// The recorded page frames of pages that were added, by file and index.
    frames: RefCell<BTreeMap<(InodeId, u64), u64>>,
}

impl<'a> Machine<'a> {
    /// The machine when the first step is about to be taken.
    fn of(known: &RunInputs<'a>, steps: &[Recorded]) -> Machine<'a> {
        Machine {
            files: known.files,
            own_blocks_are_given: has_small_blocks(known.files),
            jiffies: Cell::new(steps.first().map_or(0, |first| first.jiffies)),
            call: Cell::new(0),
            waits_for: Cell::new(0),
            running: Cell::new(Task::Program),
            has_taken: Cell::new(false),
            streams: RefCell::default(),
            under_way: RefCell::default(),
            dirtier: Cell::default(),
            due: Cell::new(None),
            address: Cell::new(0),
            new_blocks: RefCell::new(known.new_blocks.clone()),
            frames: RefCell::default(),
        }
    }

    /// Lets another task run, once the recorded steps call for it.
    async fn pause(&self) {
        let mut paused = !self.has_taken.get();
        poll_fn(|_| match std::mem::replace(&mut paused, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Waits until the call on this line may be made.
    async fn gate(&self, line: usize) {
        self.waits_for.set(line);
        poll_fn(|_| match self.call.get() >= line {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Requests of these sectors have ended.
    fn end(&self, vfs: &Vfs<Self>, sector: u64, sectors: u64) {
        let mut ended = Vec::new();
        self.under_way.borrow_mut().retain_mut(|(id, bio, left)| {
            let end = bio.end().min(sector.saturating_add(sectors));
            *left -= end.saturating_sub(bio.sector.0.max(sector)).min(*left);
            if *left == 0 {
                ended.push(*id);
            }
            *left > 0
        });
        for id in ended {
            vfs.bio_ended(id);
        }
    }
}

impl Host for Machine<'_> {
    async fn submit(&self, vfs: &Vfs<Self>, id: BioId, bio: Bio) {
        let sectors = u64::from(bio.size_sectors);
        let is_given = self.own_blocks_are_given && !is_data(self.files, bio.sector.0);
        if !is_given {
            self.trace(vfs, Event::Submit(compared_bio(bio)));
        }
        if is_given || sectors == 0 {
            vfs.bio_ended(id);
        } else {
            self.under_way.borrow_mut().push((id, bio, sectors));
        }
        self.pause().await;
    }

    async fn extent(&self, inode: InodeId, byte: u64, _bytes: u64) -> Extent {
        self.files[inode.0 as usize].extent(byte)
    }

    async fn allocate(&self, inode: InodeId, first: u64, end: u64) -> Result<u8, FsError> {
        let block = self.files[inode.0 as usize].inode.block_bytes;
        let mut left = self.new_blocks.borrow_mut();
        let blocks = (first / block * block..end).step_by(block as usize);
        let new = blocks.filter(|&at| left.remove(&(inode, at)));
        let bit = |at: u64| 1_u8.checked_shl((at % PAGE_BYTES / block) as u32);
        Ok(new.filter_map(bit).fold(0, |bits, bit| bits | bit))
    }

    fn now_jiffies(&self) -> u64 {
        self.jiffies.get()
    }

    async fn resched(&self) {
        self.pause().await;
    }

    async fn sleep(&self, _jiffies: u64) {
        let mut slept = false;
        poll_fn(|_| match std::mem::replace(&mut slept, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn frame(&self, inode: InodeId, index: u64) -> Option<u64> {
        self.frames.borrow().get(&(inode, index)).copied()
    }

    fn with_dirtier(&self, look: impl FnOnce(&mut Dirtier)) {
        let mut dirtier = self.dirtier.get();
        if self.running.get() == Task::Program {
            look(&mut dirtier);
            self.dirtier.set(dirtier);
        }
    }

    fn flusher_due(&self, _device: DeviceId, due_jiffies: u64) {
        let now = self.jiffies.get();
        let before = self.due.replace(Some((due_jiffies, now)));
        if due_jiffies == now && before.is_none_or(|(due, _)| due > now) {
            // The task that woke it may be interrupted.
            self.has_taken.set(true);
        }
    }

    fn trace(&self, _vfs: &Vfs<Self>, event: Event) {
        let is_compared = matches!(
            event,
            Event::Dirty { .. }
                | Event::Submit(_)
                | Event::OverBackground { .. }
                | Event::FlushStart { .. }
                | Event::QueueIo { .. }
                | Event::WriteInode { .. }
                | Event::WroteInode { .. }
        );
        let task = self.running.get();
        let of_flusher = matches!(event, Event::WriteInode { .. } | Event::WroteInode { .. });
        if !is_compared || (of_flusher && task == Task::Program) {
            return;
        }
        self.has_taken.set(true);
        self.streams.borrow_mut()[task as usize].take(event);
    }
}

impl Stream {
    fn take(&mut self, event: Event) {
        if let Event::FlushStart { reason } = event {
            self.reason = Some(reason);
        }
        let reason = self.reason;
        self.taken.push(FlusherStep { event, reason });
    }

    /// The place of a step among those not matched yet.
    fn find(&self, event: &Event) -> Option<usize> {
        let waiting = self.taken[self.matched..].iter().take(WINDOW);
        let found = (waiting.zip(self.matched..)).find(|(taken, _)| taken.event == *event);
        found.map(|(_, at)| at)
    }
}

/// Our steps beside the recorded ones.
pub(super) fn replay(known: &RunInputs<'_>, steps: &[Recorded]) -> Vec<Outcome> {
    let vfs = Vfs::with_settings(Machine::of(known, steps), known.settings);
    for file in known.files {
        vfs.add_inode(file.inode);
    }
    vfs.set_history(DEVICE, &known.history);
    let address = |_| vfs.host().address.get();
    let mut program = Program::new(&vfs, known.files, known.fault_around_pages, &address);
    let calls = async {
        for (call, line) in known.calls.iter().zip(1..) {
            vfs.host().gate(line).await;
            program.call(call).await;
        }
    };
    let mut replay = Replay {
        vfs: &vfs,
        tasks: [Some(Box::pin(calls)), None],
        kernels_reason: None,
        outcomes: Vec::new(),
    };
    for (recorded, at) in steps.iter().zip(0..) {
        vfs.host().jiffies.set(recorded.jiffies);
        replay.take(recorded, at);
    }
    replay.end()
}

/// The device that all files are on.
const DEVICE: DeviceId = DeviceId(0);

/// How often a task is let run at most until it takes a step.
const POLLS: usize = 256;

type Running<'v> = Pin<Box<dyn Future<Output = ()> + 'v>>;

/// Both tasks, and what became of their steps.
struct Replay<'v, 'a> {
    vfs: &'v Vfs<Machine<'a>>,
    /// By task, what has not ended.
    tasks: [Option<Running<'v>>; 2],
    /// Why the kernel's flusher writes.
    kernels_reason: Option<Reason>,
    outcomes: Vec<Outcome>,
}

impl<'v, 'a> Replay<'v, 'a> {
    fn machine(&self) -> &'v Machine<'a> {
        self.vfs.host()
    }

    /// Takes the recorded step at this place.
    fn take(&mut self, recorded: &Recorded, at: usize) {
        let (vfs, machine) = (self.vfs, self.machine());
        match recorded.step {
            RecordedStep::Call(line) => {
                self.catch_up(line);
                machine.call.set(line);
            }
            RecordedStep::Took(task, event) => self.take_event(task, event, at),
            RecordedStep::Looked { pages } => {
                let mut dirtier = machine.dirtier.get();
                dirtier.nr_dirtied = pages;
                dirtier.nr_dirtied_pause = dirtier.nr_dirtied_pause.min(pages);
                machine.dirtier.set(dirtier);
            }
            RecordedStep::Queued => self.finish(Task::Program),
            RecordedStep::Counters { dirty, writing } => vfs.set_counters(dirty, writing),
            RecordedStep::FlusherRuns => self.flusher_runs(recorded.jiffies, at),
            RecordedStep::Ended { sector, sectors } => machine.end(vfs, sector, sectors),
            RecordedStep::Changed { inode, data } => vfs.inode_changed(inode, data),
            RecordedStep::FileSystemDirtied { task, index } => {
                machine.running.set(task);
                let before = machine.streams.borrow()[task as usize].taken.len();
                vfs.mark_buffer_dirty(InodeId(0), index);
                // It was given, and is no step of ours.
                let mut streams = machine.streams.borrow_mut();
                streams[task as usize].taken.truncate(before);
            }
            RecordedStep::FileSystemCleaned { sector, sectors } => {
                vfs.buffers_written(InodeId(0), sector * 512, sectors * 512);
            }
            RecordedStep::RatesRenewed => vfs.update_bandwidth(DEVICE),
            RecordedStep::Mapped { address } => machine.address.set(address),
            RecordedStep::Added {
                inode,
                index,
                frame,
            } => {
                machine.frames.borrow_mut().insert((inode, index), frame);
            }
        }
    }

    /// Takes a step that the kernel's task took, and has ours take it.
    fn take_event(&mut self, task: Task, event: Event, at: usize) {
        if let Event::FlushStart { reason } = event {
            self.kernels_reason = Some(reason);
        }
        let reason = self.kernels_reason.filter(|_| task == Task::Flusher);
        self.run_until(task, &event);
        self.put_beside(task, at, FlusherStep { event, reason });
    }

    /// Has the flusher begin to run, as the kernel's does.
    fn flusher_runs(&mut self, now_jiffies: u64, at: usize) {
        let machine = self.machine();
        let is_due = (machine.due.get()).is_some_and(|(due, _)| due <= now_jiffies);
        if !is_due {
            // The program has just woken it.
            self.run(Task::Program);
        }
        let due = machine.due.take();
        self.outcomes.push(Outcome::Runs(at, due));
        self.finish(Task::Flusher);
        self.tasks[Task::Flusher as usize] = Some(Box::pin(self.vfs.flush(DEVICE)));
    }

    /// The program is about to make a call: what it still does in the one before is
    /// done, if need be with all bios at their end.
    fn catch_up(&mut self, line: usize) {
        let machine = self.machine();
        for attempt in 0..8 {
            if machine.waits_for.get() >= line {
                return;
            }
            self.finish(Task::Program);
            if attempt > 3 {
                self.finish(Task::Flusher);
                for (id, ..) in machine.under_way.take() {
                    self.vfs.bio_ended(id);
                }
            }
        }
    }

    /// Lets a task run up to its next pause. Whether there was one to run.
    fn run(&mut self, task: Task) -> bool {
        let machine = self.machine();
        let Some(future) = &mut self.tasks[task as usize] else {
            return false;
        };
        machine.running.set(task);
        machine.has_taken.set(false);
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_ready() {
            self.tasks[task as usize] = None;
        }
        true
    }

    /// Lets a task run until it waits for something, or is at its end.
    fn finish(&mut self, task: Task) {
        while self.run(task) && self.machine().has_taken.get() {}
    }

    /// Lets a task run until it has taken a step, or cannot go on.
    fn run_until(&mut self, task: Task, event: &Event) {
        let machine = self.machine();
        let stream = || Ref::map(machine.streams.borrow(), |streams| &streams[task as usize]);
        let mut idle = 0;
        for _ in 0..POLLS {
            let is_over = idle == 2 || stream().find(event).is_some();
            if is_over || !self.run(task) {
                return;
            }
            idle = match machine.has_taken.get() {
                true => 0,
                false => idle + 1,
            };
            if stream().taken.len() - stream().matched > WINDOW {
                return;
            }
        }
    }

    /// Puts a recorded step beside ours. Those of ours before it stand alone.
    fn put_beside(&mut self, task: Task, at: usize, kernel: FlusherStep) {
        let mut streams = self.machine().streams.borrow_mut();
        let stream = &mut streams[task as usize];
        let Some(found) = stream.find(&kernel.event) else {
            self.outcomes.push(Outcome::OnlyKernel(at, kernel));
            return;
        };
        let before = stream.taken[stream.matched..found].iter();
        self.outcomes
            .extend(before.map(|&taken| Outcome::OnlyOurs(taken)));
        self.outcomes
            .push(match stream.taken[found].reason == kernel.reason {
                true => Outcome::Both(at, stream.taken[found]),
                false => Outcome::OnlyKernel(at, kernel),
            });
        stream.matched = found + 1;
    }

    /// Lets both tasks run to their ends.
    fn end(mut self) -> Vec<Outcome> {
        for task in [Task::Program, Task::Flusher] {
            self.finish(task);
            let streams = self.machine().streams.borrow();
            let stream = &streams[task as usize];
            let left = stream.taken[stream.matched..].iter();
            self.outcomes
                .extend(left.map(|&taken| Outcome::OnlyOurs(taken)));
        }
        self.outcomes
    }
}
