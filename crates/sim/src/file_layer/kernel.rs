//! What the page cache stands on in a simulation: virtual time, where files are on
//! their drives, and bios on their way to the block layer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use blklab_blk::{Nanos, SECTOR_SIZE};
use blklab_fs::write_back::{DeviceId, Dirtier, HZ};
use blklab_fs::{Bio, BioId, Event, Extent, File, Host, InodeId, Vfs};

/// A jiffy, the kernel's unit of timers.
const JIFFY: Nanos = Nanos(1_000_000_000 / HZ);

/// A file that a process has open.
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) disk: usize,
    /// Where it begins on its drive.
    pub(super) base_bytes: u64,
    /// Whoever writes holds it; a block device has none.
    pub(super) write_lock: Option<Rc<WriteLock>>,
}

/// An inode's lock (`i_rwsem`), which goes from one writer to the next as they came.
#[derive(Default)]
pub(super) struct WriteLock {
    drawn: Cell<u64>,
    served: Cell<u64>,
    waiters: RefCell<Vec<(u64, Waker)>>,
}

impl WriteLock {
    pub(super) async fn lock(&self) {
        let ticket = self.drawn.replace(self.drawn.get() + 1);
        poll_fn(|context| {
            if self.served.get() == ticket {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            waiters.retain(|(waiter, _)| *waiter != ticket);
            waiters.push((ticket, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    pub(super) fn unlock(&self) {
        let next = self.served.get() + 1;
        self.served.set(next);
        let mut waiters = self.waiters.borrow_mut();
        if let Some(at) = waiters.iter().position(|(ticket, _)| *ticket == next) {
            waiters.swap_remove(at).1.wake();
        }
    }
}

/// The kernel as the page cache sees it.
#[derive(Default)]
pub(super) struct Kernel {
    now: Cell<Nanos>,
    /// The task that runs.
    running: Cell<usize>,
    /// By task, what is remembered of it as a writer.
    dirtiers: RefCell<Vec<Dirtier>>,
    /// The bio that the task which runs gives to the block layer.
    to_submit: Cell<Option<(BioId, Bio)>>,
    /// Tasks that sleep, and until when.
    sleepers: RefCell<Vec<(Nanos, Waker)>>,
    /// By drive, when its flusher has to run, and the flusher while it waits.
    flushers: RefCell<Vec<(Nanos, Option<Waker>)>>,
    /// By inode, where it begins on its drive, and its room there.
    places: RefCell<Vec<(u64, u64)>>,
    files: RefCell<Vec<Rc<OpenFile>>>,
    throttled: Cell<Nanos>,
    /// Something is due at another time than was told before.
    is_due_changed: Cell<bool>,
}

impl Kernel {
    /// A file that was added to the page cache, in the order of these.
    pub(super) fn place_file(&self, base_bytes: u64, room_bytes: u64) {
        self.places.borrow_mut().push((base_bytes, room_bytes));
    }

    /// A drive more, in their order.
    pub(super) fn add_flusher(&self) {
        self.flushers.borrow_mut().push((Nanos::MAX, None));
    }

    /// A task more, in their order.
    pub(super) fn add_task(&self) {
        self.dirtiers.borrow_mut().push(Dirtier::default());
    }

    /// A file is open from now on; returns its number.
    pub(super) fn add_open_file(&self, file: OpenFile) -> u32 {
        let mut files = self.files.borrow_mut();
        files.push(Rc::new(file));
        files.len() as u32 - 1
    }

    pub(super) fn open_file(&self, number: u32) -> Rc<OpenFile> {
        Rc::clone(&self.files.borrow()[number as usize])
    }

    /// What happens next happens at `now`.
    pub(super) fn set_now(&self, now: Nanos) {
        self.now.set(now);
    }

    /// A task is about to run.
    pub(super) fn runs(&self, task: usize) {
        self.running.set(task);
    }

    /// The bio that the task which ran waits to have submitted.
    pub(super) fn take_submitted(&self) -> Option<(BioId, Bio)> {
        self.to_submit.take()
    }

    /// How long writers were held back.
    pub(super) fn throttled(&self) -> Nanos {
        self.throttled.get()
    }

    /// Counts how long writers are held back afresh.
    pub(super) fn reset_throttled(&self) {
        self.throttled.set(Nanos::ZERO);
    }

    /// Wakes what is due.
    pub(super) fn wake_due(&self) {
        let now = self.now.get();
        let mut sleepers = self.sleepers.borrow_mut();
        let due = sleepers.extract_if(.., |(until, _)| *until <= now);
        due.for_each(|(_, waker)| waker.wake());
        for (due, waker) in self.flushers.borrow_mut().iter_mut() {
            if *due <= now
                && let Some(waker) = waker.take()
            {
                waker.wake();
            }
        }
        self.is_due_changed.set(true);
    }

    /// When something is due next, if that has changed; [`Nanos::MAX`] where nothing
    /// is.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        if !self.is_due_changed.take() {
            return None;
        }
        let (sleepers, flushers) = (self.sleepers.borrow(), self.flushers.borrow());
        let asleep = sleepers.iter().map(|(until, _)| *until);
        // One that runs looks itself whether it has more to do.
        let waits = |flusher: &&(Nanos, Option<Waker>)| flusher.1.is_some();
        let flushers = flushers.iter().filter(waits).map(|(due, _)| *due);
        Some(asleep.chain(flushers).min().unwrap_or(Nanos::MAX))
    }

    /// Waits until a drive's flusher has something to do.
    pub(super) async fn flusher_wanted(&self, device: DeviceId) {
        poll_fn(|context| {
            let (due, waker) = &mut self.flushers.borrow_mut()[device.0 as usize];
            if *due <= self.now.get() {
                (*due, *waker) = (Nanos::MAX, None);
                return Poll::Ready(());
            }
            *waker = Some(context.waker().clone());
            self.is_due_changed.set(true);
            Poll::Pending
        })
        .await;
    }
}

impl Host for Kernel {
    /// The bio is handed over at the first poll. The task is polled again when the block
    /// layer has taken it.
    async fn submit(&self, _vfs: &Vfs<Self>, id: BioId, bio: Bio) {
        let mut bio = Some((id, bio));
        poll_fn(|_| match bio.take() {
            Some(bio) => {
                self.to_submit.set(Some(bio));
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
    }

    async fn extent(&self, inode: InodeId, byte: u64) -> Extent {
        let (base_bytes, room_bytes) = self.places.borrow()[inode.0 as usize];
        Extent {
            sector: Some((base_bytes + byte) / SECTOR_SIZE),
            bytes: room_bytes.saturating_sub(byte).max(SECTOR_SIZE),
        }
    }

    fn now_jiffies(&self) -> u64 {
        self.now.get().0 / JIFFY.0
    }

    /// A timer ends with the jiffy behind the last that it counts.
    async fn sleep(&self, jiffies: u64) {
        let until = Nanos((self.now_jiffies() + jiffies + 1) * JIFFY.0);
        let asleep = until.saturating_sub(self.now.get());
        self.throttled.set(self.throttled.get() + asleep);
        poll_fn(|context| {
            if self.now.get() >= until {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            self.is_due_changed.set(true);
            self.sleepers.borrow_mut().push((until, waker));
            Poll::Pending
        })
        .await;
    }

    fn with_dirtier(&self, look: impl FnOnce(&mut Dirtier)) {
        look(&mut self.dirtiers.borrow_mut()[self.running.get()]);
    }

    fn flusher_due(&self, device: DeviceId, due_jiffies: u64) {
        let due = Nanos(due_jiffies.saturating_mul(JIFFY.0)).max(self.now.get());
        self.flushers.borrow_mut()[device.0 as usize].0 = due;
        self.is_due_changed.set(true);
    }

    fn trace(&self, _vfs: &Vfs<Self>, _event: Event) {}
}
