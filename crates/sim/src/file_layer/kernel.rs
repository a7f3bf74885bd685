//! What the page cache stands on in a simulation: virtual time, where files are on
//! their drives, and bios on their way to the block layer.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use blklab_blk::{CgroupId, JIFFY_NS, Nanos, Op, SECTOR_SIZE};
use blklab_fs::write_back::{DeviceId, Dirtier};
use blklab_fs::{
    Bio, BioId, BufferCache, Caller, Event, Extent, Fault, File, FileSystem, FsError, Host, Ino,
    InodeId, Mapping, Mounted, OpenFlags, OverHigh, PAGE_BYTES, Place, SparseDisk, Timestamp, Vfs,
};
use blklab_stats::PageFaults;

/// A jiffy, the kernel's unit of timers.
pub(super) const JIFFY: Nanos = Nanos(JIFFY_NS);

/// The wall-clock time at which runs begin, for inodes' times: 14 November 2023.
const START_SECONDS: i64 = 1_700_000_000;

/// A mounted file system.
pub(super) type MountedFs = Mounted<BufferCache<Kernel, Rc<SparseDisk>>>;

/// A file that a process has open, or is going to open by [`Call::OpenFile`].
///
/// [`Call::OpenFile`]: super::Call::OpenFile
pub(super) struct OpenFile {
    pub(super) disk: usize,
    pub(super) what: Opened,
    /// Its mapping, once `mmap` was called.
    pub(super) mapping: RefCell<Option<Rc<Mapping>>>,
}

pub(super) enum Opened {
    /// A part of a drive.
    Region(Region),
    /// A file of the mounted file system: its path, and the open file between `open`
    /// and `close`.
    InTree(Rc<[u8]>, RefCell<Option<Rc<blklab_fs::OpenFile>>>),
}

impl OpenFile {
    /// Whether a mapping of it may be written to.
    pub(super) fn can_write(&self) -> bool {
        match &self.what {
            Opened::Region(region) => !region.refuses(true),
            Opened::InTree(_, opened) => {
                (opened.borrow().as_ref()).is_some_and(|opened| opened.can_write())
            }
        }
    }
}

/// A part of a drive that is a file, or all of it.
pub(super) struct Region {
    pub(super) file: Rc<File>,
    /// Where it begins on its drive.
    pub(super) base_bytes: u64,
    /// The inode's `i_rwsem`; a block device is written without.
    pub(super) write_lock: Option<Rc<WriteLock>>,
    /// How it is open, between [`Call::OpenFile`] and [`Call::Close`]; a job's is open for
    /// everything without that.
    ///
    /// [`Call::OpenFile`]: super::Call::OpenFile
    /// [`Call::Close`]: super::Call::Close
    pub(super) opened: Cell<Option<OpenFlags>>,
    /// The file position.
    pub(super) position: Cell<u64>,
}

impl Region {
    /// Whether it is not open for a read or write.
    pub(super) fn refuses(&self, is_write: bool) -> bool {
        let opened = self.opened.get();
        opened.is_some_and(|how| if is_write { !how.write } else { !how.read })
    }
}

/// What a task did with pages that takes CPU time beyond copying them, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageWork {
    /// Written in another memory node.
    pub(super) remote: u64,
    /// Dropped from the cache.
    pub(super) dropped: u64,
}

/// Where the bytes of an inode are.
#[derive(Clone, Copy, Debug)]
enum Bytes {
    /// A part of its drive: the first byte, and the length.
    Region(u64, u64),
    /// Wherever the mounted file system has mapped this inode's blocks.
    Mapped(Ino),
}

/// An inode's `i_rwsem` as writers take it: a ticket lock, first come, first served.
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

    /// Whether nobody holds it.
    pub(super) fn is_free(&self) -> bool {
        self.served.get() == self.drawn.get()
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
    /// By task, its state in dirty throttling.
    dirtiers: RefCell<Vec<Dirtier>>,
    /// By task, its page faults.
    faults: RefCell<Vec<PageFaults>>,
    /// By task, what it has charged above `memory.high`.
    over_high: RefCell<Vec<OverHigh>>,
    /// The control group that the running task belongs to.
    cgroup: Cell<CgroupId>,
    /// The memory node near to its CPU.
    node: Cell<u8>,
    page_work: Cell<PageWork>,
    /// By inode, the control group that first dirtied it, which pays for its write-back
    /// (`inode_attach_wb`).
    owners: RefCell<Vec<Option<CgroupId>>>,
    /// The bio that the running task has made, until [`FileLayer::go_on`] submits it.
    ///
    /// [`FileLayer::go_on`]: super::FileLayer::go_on
    to_submit: Cell<Option<(BioId, Bio)>>,
    /// Tasks that sleep, and until when.
    sleepers: RefCell<Vec<(Nanos, Waker)>>,
    /// By drive, when its flusher is to run next, and the flusher's waker while it
    /// sleeps.
    flushers: RefCell<Vec<(Nanos, Option<Waker>)>>,
    /// By inode, where its bytes are.
    places: RefCell<Vec<Bytes>>,
    files: RefCell<Vec<Rc<OpenFile>>>,
    paths: RefCell<Vec<Rc<[u8]>>>,
    /// The mounted file system.
    mounted: RefCell<Option<Rc<MountedFs>>>,
    /// Bios end as soon as they are submitted, as the run has not begun.
    is_instant: Cell<bool>,
    throttled: Cell<Nanos>,
    /// The device that the task which was polled last sleeps for.
    slowed_down: Cell<Option<DeviceId>>,
    /// The earliest due time may have changed since [`Kernel::next_due`] told it.
    is_due_changed: Cell<bool>,
}

impl Kernel {
    /// Notes which part of a drive an inode's bytes are.
    pub(super) fn place_region(&self, inode: InodeId, base_bytes: u64, room_bytes: u64) {
        self.place(inode, Bytes::Region(base_bytes, room_bytes));
    }

    fn place(&self, inode: InodeId, bytes: Bytes) {
        let mut places = self.places.borrow_mut();
        debug_assert_eq!(places.len(), inode.0 as usize, "inodes are added in order");
        places.push(bytes);
    }

    /// The inodes of drives and their parts.
    pub(super) fn regions(&self) -> Vec<InodeId> {
        let places = self.places.borrow();
        let numbered = (0..).map(InodeId).zip(places.iter());
        let regions = numbered.filter(|(_, bytes)| matches!(bytes, Bytes::Region(..)));
        regions.map(|(inode, _)| inode).collect()
    }

    /// Runs `before_run` with bios that end at once.
    pub(super) fn instantly<T>(&self, before_run: impl FnOnce() -> T) -> T {
        self.is_instant.set(true);
        let done = before_run();
        self.is_instant.set(false);
        done
    }

    /// Sets the mounted file system.
    pub(super) fn set_mounted(&self, mounted: Rc<MountedFs>) {
        *self.mounted.borrow_mut() = Some(mounted);
    }

    /// The file system that is mounted.
    pub(super) fn mounted(&self) -> Option<Rc<MountedFs>> {
        self.mounted.borrow().clone()
    }

    /// The credentials and the time of a call into the file system: root, now.
    pub(super) fn caller(&self) -> Caller {
        let now = self.now.get().0;
        Caller {
            pid: self.running.get() as u32,
            now: Timestamp {
                seconds: START_SECONDS + (now / 1_000_000_000) as i64,
                nanoseconds: (now % 1_000_000_000) as u32,
            },
            ..Caller::default()
        }
    }

    /// Copies the file system's blocks that a submitted bio writes to the drive's
    /// contents.
    pub(super) fn store(&self, bio: &Bio) {
        let is_write = bio.op == Op::Write && bio.size_sectors > 0;
        if let Some(fs) = self.mounted().filter(|_| is_write) {
            let bytes = u64::from(bio.size_sectors) * SECTOR_SIZE;
            let stored = fs.device().written(bio.sector.bytes(), bytes);
            debug_assert!(stored.is_ok(), "memory takes what a drive has room for");
        }
    }

    /// The file system that an inode belongs to, and its inode number; `None` for a
    /// part of a drive.
    fn mapped(&self, inode: InodeId) -> Option<(Rc<MountedFs>, Ino)> {
        match self.places.borrow()[inode.0 as usize] {
            Bytes::Region(..) => None,
            Bytes::Mapped(ino) => Some((self.mounted()?, ino)),
        }
    }

    /// Adds the flusher of the next drive.
    pub(super) fn add_flusher(&self) {
        self.flushers.borrow_mut().push((Nanos::MAX, None));
    }

    /// Adds the next task.
    pub(super) fn add_task(&self) {
        self.dirtiers.borrow_mut().push(Dirtier::default());
        self.faults.borrow_mut().push(PageFaults::default());
        self.over_high.borrow_mut().push(OverHigh::default());
    }

    /// A task's page faults.
    pub(super) fn faults(&self, task: usize) -> PageFaults {
        self.faults.borrow()[task]
    }

    /// Sets all tasks' page faults to zero.
    pub(super) fn reset_faults(&self) {
        self.faults.borrow_mut().fill(PageFaults::default());
    }

    /// Adds an open file; returns its number.
    pub(super) fn add_open_file(&self, file: OpenFile) -> u32 {
        let mut files = self.files.borrow_mut();
        files.push(Rc::new(file));
        files.len() as u32 - 1
    }

    pub(super) fn open_file(&self, number: u32) -> Rc<OpenFile> {
        Rc::clone(&self.files.borrow()[number as usize])
    }

    /// Has `look` look at an open file, while no file is added.
    #[inline]
    pub(super) fn with_open_file<T>(&self, number: u32, look: impl FnOnce(&OpenFile) -> T) -> T {
        look(&self.files.borrow()[number as usize])
    }

    /// Adds a path; returns its number.
    pub(super) fn add_path(&self, path: &[u8]) -> u32 {
        let mut paths = self.paths.borrow_mut();
        paths.push(path.into());
        paths.len() as u32 - 1
    }

    pub(super) fn path(&self, number: u32) -> Rc<[u8]> {
        Rc::clone(&self.paths.borrow()[number as usize])
    }

    /// Sets the time.
    pub(super) fn set_now(&self, now: Nanos) {
        self.now.set(now);
    }

    /// Sets the task that runs next, and its control group.
    pub(super) fn runs(&self, task: usize, cgroup: CgroupId) {
        self.running.set(task);
        self.cgroup.set(cgroup);
    }

    /// Sets the memory node near to the CPU of who runs next.
    pub(super) fn set_node(&self, node: u8) {
        self.node.set(node);
    }

    /// What was done with pages since this was last asked.
    pub(super) fn take_page_work(&self) -> PageWork {
        self.page_work.take()
    }

    /// The control group that an inode's write-back is charged to: the first that
    /// dirtied it.
    pub(super) fn owner(&self, inode: InodeId) -> Option<CgroupId> {
        self.owners
            .borrow()
            .get(inode.0 as usize)
            .copied()
            .flatten()
    }

    /// The running task dirties a page of an inode.
    fn dirtied(&self, inode: InodeId) {
        let mut owners = self.owners.borrow_mut();
        let at = inode.0 as usize;
        if owners.len() <= at {
            owners.resize(at + 1, None);
        }
        owners[at].get_or_insert(self.cgroup.get());
    }

    /// The bio that the task made when it was last polled.
    pub(super) fn take_submitted(&self) -> Option<(BioId, Bio)> {
        self.to_submit.take()
    }

    /// The device for which the task was put to sleep when it was last polled.
    pub(super) fn take_slowed_down(&self) -> Option<DeviceId> {
        self.slowed_down.take()
    }

    /// The time that all writers together were throttled.
    pub(super) fn throttled(&self) -> Nanos {
        self.throttled.get()
    }

    /// Sets that time to zero.
    pub(super) fn reset_throttled(&self) {
        self.throttled.set(Nanos::ZERO);
    }

    /// Wakes sleepers and flushers whose time has come.
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

    /// Whether what [`Kernel::next_due`] tells may have changed since that was called.
    #[inline]
    pub(super) fn is_due_changed(&self) -> bool {
        self.is_due_changed.get()
    }

    /// When the next sleep ends or the next flusher is to run, [`Nanos::MAX`] for
    /// never.
    pub(super) fn next_due(&self) -> Nanos {
        self.is_due_changed.set(false);
        let (sleepers, flushers) = (self.sleepers.borrow(), self.flushers.borrow());
        let asleep = sleepers.iter().map(|(until, _)| *until);
        // A flusher that is not asleep checks itself for more work before it sleeps.
        let waits = |flusher: &&(Nanos, Option<Waker>)| flusher.1.is_some();
        let flushers = flushers.iter().filter(waits).map(|(due, _)| *due);
        asleep.chain(flushers).min().unwrap_or(Nanos::MAX)
    }

    /// A timer runs out at the first jiffy after the given number of whole ones.
    fn timer_end(&self, jiffies: u64) -> Nanos {
        Nanos((self.now_jiffies() + jiffies + 1) * JIFFY.0)
    }

    async fn sleep_until(&self, until: Nanos) {
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

    /// Holds the running task back before it returns from its call, for what it has charged
    /// above `memory.high` (`resume_user_mode_work`).
    pub(super) async fn return_to_program(&self, vfs: &Vfs<Kernel>) {
        vfs.reclaim_over_high();
        let mut jiffies = 0;
        self.with_over_high(|over| jiffies = std::mem::take(&mut over.delay_jiffies));
        if jiffies > 0 {
            self.sleep_until(self.timer_end(jiffies)).await;
        }
    }

    /// Sleeps until a drive's flusher is to run.
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

impl Kernel {
    /// The extent that the mounted file system has mapped at `byte` of an inode; a hole
    /// where its map cannot be read.
    async fn mapped_extent(&self, inode: InodeId, byte: u64, bytes: u64) -> Extent {
        let hole = Extent {
            sector: None,
            bytes,
            boundary: false,
        };
        let Some((fs, ino)) = self.mapped(inode) else {
            return hole;
        };
        let block_bytes = u64::from(fs.block_bytes());
        let in_block = byte % block_bytes;
        let blocks = (in_block + bytes).div_ceil(block_bytes);
        match fs.map(ino, byte / block_bytes, blocks, None).await {
            Ok(map) => Extent {
                sector: (map.block).map(|block| (block * block_bytes + in_block) / SECTOR_SIZE),
                bytes: map.blocks.max(1) * block_bytes - in_block,
                boundary: map.boundary,
            },
            Err(_) => hole,
        }
    }
}

impl Host for Kernel {
    /// The first poll leaves the bio for [`FileLayer::go_on`], which polls again once the
    /// block layer has taken it.
    ///
    /// [`FileLayer::go_on`]: super::FileLayer::go_on
    async fn submit(&self, vfs: &Vfs<Self>, id: BioId, bio: Bio) {
        if self.is_instant.get() {
            self.store(&bio);
            return vfs.bio_ended(id);
        }
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

    async fn extent(&self, inode: InodeId, byte: u64, bytes: u64) -> Extent {
        match self.known_extent(inode, byte, bytes) {
            Some(extent) => extent,
            None => self.mapped_extent(inode, byte, bytes).await,
        }
    }

    fn known_extent(&self, inode: InodeId, byte: u64, _bytes: u64) -> Option<Extent> {
        match self.places.borrow()[inode.0 as usize] {
            Bytes::Region(base_bytes, room_bytes) => Some(Extent {
                sector: Some((base_bytes + byte) / SECTOR_SIZE),
                bytes: room_bytes.saturating_sub(byte).max(SECTOR_SIZE),
                boundary: false,
            }),
            Bytes::Mapped(_) => None,
        }
    }

    async fn allocate(&self, inode: InodeId, first: u64, end: u64) -> Result<u8, FsError> {
        let Some((fs, ino)) = self.mapped(inode) else {
            return Ok(0);
        };
        let (caller, block_bytes) = (self.caller(), u64::from(fs.block_bytes()));
        let first_of_page = first / PAGE_BYTES * PAGE_BYTES / block_bytes;
        let blocks_of_page = PAGE_BYTES / block_bytes;
        let (mut block, last) = (first / block_bytes, end.div_ceil(block_bytes));
        let mut new_blocks = 0;
        while block < last {
            let map = fs.map(ino, block, last - block, Some(&caller)).await?;
            let next = block + map.blocks.clamp(1, last - block);
            for block in block..next.min(first_of_page + blocks_of_page) {
                new_blocks |= u8::from(map.is_new) << (block - first_of_page);
            }
            block = next;
        }
        Ok(new_blocks)
    }

    fn inode_added(&self, inode: InodeId, place: Place) {
        self.place(inode, Bytes::Mapped(place.ino));
    }

    async fn sync_buffers(&self, inode: InodeId) -> Result<(), FsError> {
        match self.mapped(inode) {
            Some((fs, ino)) => fs.sync_buffers(ino).await,
            None => Ok(()),
        }
    }

    fn update_times(&self, inode: InodeId, size_bytes: u64) -> bool {
        let mapped = self.mapped(inode);
        if let Some((fs, ino)) = &mapped {
            fs.set_size(*ino, size_bytes, self.caller().now);
        }
        mapped.is_some()
    }

    async fn write_inode(&self, inode: InodeId, wait: bool) -> Result<(), FsError> {
        match self.mapped(inode) {
            Some((fs, ino)) => fs.write_inode(ino, wait).await,
            None => Ok(()),
        }
    }

    async fn sync_file_system(&self, _device: DeviceId) -> Result<(), FsError> {
        match self.mounted() {
            Some(fs) => fs.sync(self.caller().now).await,
            None => Ok(()),
        }
    }

    fn now_jiffies(&self) -> u64 {
        self.now.get().0 / JIFFY.0
    }

    fn node(&self) -> u8 {
        self.node.get()
    }

    fn wrote_remote_pages(&self, pages: u64) {
        let work = self.page_work.get();
        self.page_work.set(PageWork {
            remote: work.remote + pages,
            ..work
        });
    }

    fn dropped_pages(&self, pages: u64) {
        let work = self.page_work.get();
        self.page_work.set(PageWork {
            dropped: work.dropped + pages,
            ..work
        });
    }

    fn slows_dirtier(&self, device: DeviceId) {
        self.slowed_down.set(Some(device));
    }

    async fn sleep(&self, jiffies: u64) {
        let until = self.timer_end(jiffies);
        let asleep = until.saturating_sub(self.now.get());
        self.throttled.set(self.throttled.get() + asleep);
        self.sleep_until(until).await;
    }

    fn memory_group(&self) -> u16 {
        self.cgroup.get().0
    }

    fn with_over_high(&self, look: impl FnOnce(&mut OverHigh)) {
        match self.over_high.borrow_mut().get_mut(self.running.get()) {
            Some(over) => look(over),
            None => look(&mut OverHigh::default()),
        }
    }

    fn faulted(&self, fault: Fault) {
        if let Some(faults) = self.faults.borrow_mut().get_mut(self.running.get()) {
            match fault {
                Fault::Minor => faults.minor += 1,
                Fault::Major => faults.major += 1,
            }
        }
    }

    fn with_dirtier(&self, look: impl FnOnce(&mut Dirtier)) {
        // Before the run there are no tasks.
        match self.dirtiers.borrow_mut().get_mut(self.running.get()) {
            Some(dirtier) => look(dirtier),
            None => look(&mut Dirtier::default()),
        }
    }

    fn flusher_due(&self, device: DeviceId, due_jiffies: u64) {
        let due = Nanos(due_jiffies.saturating_mul(JIFFY.0)).max(self.now.get());
        self.flushers.borrow_mut()[device.0 as usize].0 = due;
        self.is_due_changed.set(true);
    }

    #[inline]
    fn trace(&self, _vfs: &Vfs<Self>, event: Event) {
        if let Event::Dirty { inode, .. } = event {
            self.dirtied(inode);
        }
    }
}
