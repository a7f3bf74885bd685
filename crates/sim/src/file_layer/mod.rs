//! The file layer: VFS and page cache of crate `fs` on virtual time, between processes
//! and the block layer.
//!
//! Whatever can sleep in the kernel is a task with a future of its own: a process in a
//! system call, a drive's flusher, `kswapd`. A task is made once and serves one call
//! after the other, so that a call allocates nothing. Its owner polls it
//! ([`FileLayer::go_on`]) until it sleeps, either for a tag in the block layer or for
//! a waker. The owner of a woken task is called in the simulation's next turn.

mod calls;
mod kernel;
mod owners;
mod tree;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use blklab_blk::{
    Bio, BioFlags, CgroupId, CostCounts, IoPrio, IoStatus, Nanos, Op, Plug, SECTOR_SIZE, Span,
    Submit, SubmitterId, Waiter,
};
use blklab_fs::write_back::{Bandwidth, DeviceId, History, Settings};
use blklab_fs::{BackingDevice, BioId, FsError, Inode, InodeId, Memory, PAGE_BYTES, ReadPath, Vfs};
use blklab_stats::{CacheSample, CacheStats, MemoryGroupStats, PageFaults};

use crate::caching::{Caching, FileSystemKind};
use crate::cgroups::MemoryGroups;
use crate::cpu::{CostTable, Cpus, Mode};
use crate::disk::Disk;
use crate::machine::{Machine, PeriodicFlush};
use crate::timers::user_data;
pub(crate) use calls::pages_of;
use calls::{AtOnce, CallSlot, call_without_waiting, serve_calls};
pub(crate) use calls::{Call, Durability, PathId, Route};
use kernel::{JIFFY, Kernel, OpenFile, Opened, PageWork, Region, WriteLock};
use tree::Tree;
pub(crate) use tree::{Contents, NewFile};

/// Slots in `user_data` from here on stand for bios of the page cache; those below are
/// a process's own I/Os.
pub(crate) const FIRST_SLOT: u32 = 1 << 31;

/// Samples of dirty and cached memory that are kept at most. When there are this many,
/// every other one is dropped and the interval doubles.
const SAMPLES_MAX: usize = 512;

/// The interval between samples at the start of a run.
const FIRST_SAMPLE_INTERVAL: Nanos = Nanos::from_millis(1);

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u32);

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId(u32);

/// Why a task stopped running.
pub(crate) enum Progress {
    /// Its call has returned this.
    Over(Result<u64, FsError>),
    /// It sleeps for a tag in that drive's queue; [`System::take_waiter`] has its place there.
    ///
    /// [`System::take_waiter`]: crate::system::System::take_waiter
    AwaitsTag(usize),
    /// It sleeps until its waker is called: for a bio's end, a lock, a timer.
    Waits,
}

/// The process that a task submits bios for, and what they are charged to.
pub(crate) struct Submitter<'a> {
    /// The process that is called when its bios end.
    pub(crate) pid: usize,
    pub(crate) id: SubmitterId,
    pub(crate) cpu: usize,
    pub(crate) prio: IoPrio,
    pub(crate) cgroup: CgroupId,
    pub(crate) costs: &'a CostTable,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    calls: Rc<CallSlot>,
    owner: usize,
    disk: usize,
    plug: Plug,
    /// It sleeps for a tag in its drive's queue: it is not polled until it has one.
    awaits_tag: bool,
    /// Its place there, until its owner has taken that.
    waiter: Option<Waiter>,
}

impl Task {
    /// Submits a bio from CPU `cpu`; returns that the task sleeps where there is no tag.
    #[inline]
    fn submit(&mut self, disk: &mut Disk, now: Nanos, cpu: usize, bio: Bio) -> Option<Progress> {
        let plug = Some(&mut self.plug);
        let taken = (disk.queue).submit_bio(now, cpu, plug, bio, &mut disk.driver);
        let Submit::Blocked(waiter) = taken else {
            return None;
        };
        self.awaits_tag = true;
        self.waiter = Some(waiter);
        Some(Progress::AwaitsTag(self.disk))
    }
}

/// Tasks whose wakers were called, and whose owners do not know of it yet.
#[derive(Default)]
struct Woken {
    tasks: Mutex<Vec<TaskId>>,
    /// Whether there is one: most calls wake none, and need no lock to see that.
    any: AtomicBool,
}

impl Woken {
    fn add(&self, task: TaskId) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
        self.any.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Hands over each woken task.
    fn take(&self, wake: impl FnMut(TaskId)) {
        if self.has_any() {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            self.any.store(false, Ordering::Relaxed);
            tasks.drain(..).for_each(wake);
        }
    }
}

/// By owner, its woken tasks: it is called for them in the next turn.
#[derive(Default)]
struct CalledOwners {
    tasks: Vec<VecDeque<TaskId>>,
    /// By task, whether it is among them.
    are_called: Vec<bool>,
}

impl CalledOwners {
    fn add_task(&mut self, owner: usize) {
        if self.tasks.len() <= owner {
            self.tasks.resize_with(owner + 1, VecDeque::new);
        }
        self.are_called.push(false);
    }

    /// Queues a task. Returns its owner if no other was queued.
    #[inline]
    fn add(&mut self, task: TaskId, owner: usize) -> Option<usize> {
        let called = &mut self.tasks[owner];
        let is_first = called.is_empty();
        if !std::mem::replace(&mut self.are_called[task.0 as usize], true) {
            called.push_back(task);
        }
        is_first.then_some(owner)
    }

    /// Takes the next task of an owner.
    #[inline]
    fn take(&mut self, owner: usize) -> Option<TaskId> {
        let task = self.tasks[owner].pop_front()?;
        self.are_called[task.0 as usize] = false;
        Some(task)
    }
}

struct TaskWaker {
    task: TaskId,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.add(self.task);
    }
}

/// A part of a drive that has been opened as a file: the drive, where it begins, and whether it
/// is a block device.
type PartOfDrive = (usize, u64, bool);

/// What is shared by all who open a part of a drive.
struct KnownFile {
    /// Its inode, and that inode's `i_rwsem`; a block device is written without.
    inode: InodeId,
    write_lock: Option<Rc<WriteLock>>,
}

/// The page cache of a run.
pub(crate) struct FileLayer {
    vfs: Rc<Vfs<Kernel>>,
    /// By CPU, the memory node near to it.
    nodes: Vec<u8>,
    read_ahead_kb: u32,
    known: BTreeMap<PartOfDrive, KnownFile>,
    tasks: Vec<Task>,
    woken: Arc<Woken>,
    called: CalledOwners,
    /// By number of a bio that a call without a future awaits, the task of that call.
    readers: Vec<Option<TaskId>>,
    /// The process whose timer ends sleeps and starts flushers, and when its timer is
    /// set to run out.
    time_keeper: (usize, Nanos),
    /// The mounted file system.
    tree: Option<Tree>,
    /// Whether drives have a file system, whose mount holds their block devices open.
    are_mounted: bool,
    /// The paths of the control groups whose memory has limits or could have.
    memory_groups: Vec<String>,
    /// Of their write-back, the drive that each part is of.
    group_parts: Vec<(usize, DeviceId)>,
    /// Whether one has a `memory.high`, for which a call that needs nothing else may sleep.
    may_hold_back: bool,
    samples: Vec<CacheSample>,
    sample_interval: Nanos,
    next_sample: Nanos,
}

impl FileLayer {
    /// An empty page cache over these drives, in the memory of a machine whose sockets have a
    /// node each, and in that of control groups.
    pub(crate) fn new(
        caching: &Caching,
        machine: &Machine,
        disks: &[Disk],
        memory: MemoryGroups,
    ) -> FileLayer {
        let kernel = Kernel::default();
        let pages = caching.write_back.memory_pages;
        let topology = machine.topology;
        let nodes = topology.sockets as u8;
        let settings = Settings {
            finishes_unexpired: machine.periodic_flush == PeriodicFlush::Unfinished,
            ..caching.write_back
        };
        let MemoryGroups { limits, names } = memory;
        let machine_memory = Memory::Machine { pages, nodes };
        let vfs = Vfs::with_settings(kernel, settings)
            .limited_in_groups(caching.reclaim, machine_memory, &limits)
            .with_cache_pressure(caching.cache_pressure_percent);
        let mut layer = FileLayer {
            vfs: Rc::new(vfs),
            nodes: (0..machine.cpus() as usize)
                .map(|cpu| topology.socket_of(cpu) as u8)
                .collect(),
            read_ahead_kb: caching.read_ahead_kb,
            known: BTreeMap::new(),
            tasks: Vec::new(),
            woken: Arc::default(),
            called: CalledOwners::default(),
            readers: Vec::new(),
            time_keeper: (0, Nanos::MAX),
            tree: None,
            are_mounted: caching.file_system != FileSystemKind::Raw,
            memory_groups: names,
            group_parts: Vec::new(),
            may_hold_back: limits.iter().any(|group| group.high_pages != u64::MAX),
            samples: Vec::new(),
            sample_interval: FIRST_SAMPLE_INTERVAL,
            next_sample: Nanos::ZERO,
        };
        for (disk, number) in disks.iter().zip(0..) {
            layer.add_disk(disk, DeviceId(number));
        }
        // VFAT has no write-back by control group (`SB_I_CGROUPWB`).
        if caching.file_system != FileSystemKind::Vfat {
            (1..=limits.len() as u16).for_each(|group| layer.add_group(group, disks.len()));
        }
        layer
    }

    /// Gives a control group its part of each drive's write-back.
    fn add_group(&mut self, group: u16, disks: usize) {
        for disk in 0..disks {
            self.vfs.host().add_flusher();
            let part = self.vfs.add_group_device(DeviceId(disk as u32), group);
            self.group_parts.push((disk, part));
        }
    }

    fn add_disk(&self, disk: &Disk, device: DeviceId) {
        self.vfs.host().add_flusher();
        let history = History {
            rates: Bandwidth::new(0),
            written_pages: 0,
            others_written_pages: 0,
            limit: None,
            last_periodic: 0,
            has_volatile_cache: disk.queue.limits().write_cache,
        };
        self.vfs.set_history(device, &history);
    }

    /// Opens `bytes` of a drive from byte `base_bytes` on as a file, or the block device
    /// itself (`is_device`).
    pub(crate) fn open(
        &mut self,
        (number, disk): (usize, &Disk),
        (base_bytes, bytes): (u64, u64),
        is_device: bool,
    ) -> FileId {
        let known = self.known.get(&(number, base_bytes, is_device));
        let (inode, write_lock) = match known {
            Some(known) => (known.inode, known.write_lock.clone()),
            None => self.add_file((number, disk), (base_bytes, bytes), is_device),
        };
        let file = OpenFile {
            disk: number,
            what: Opened::Region(Region {
                file: Rc::new(self.vfs.open(inode)),
                base_bytes,
                write_lock,
                opened: Cell::default(),
                position: Cell::default(),
            }),
            mapping: RefCell::default(),
        };
        FileId(self.vfs.host().add_open_file(file))
    }

    fn add_file(
        &mut self,
        (number, disk): (usize, &Disk),
        (base_bytes, bytes): (u64, u64),
        is_device: bool,
    ) -> (InodeId, Option<Rc<WriteLock>>) {
        let limits = disk.queue.limits();
        let readahead = self.readahead_of(disk);
        let inode = Inode {
            size_bytes: bytes,
            block_bytes: match is_device {
                true => {
                    device_block_bytes(bytes, u64::from(limits.logical_block_sectors) * SECTOR_SIZE)
                }
                false => PAGE_BYTES,
            },
            large_folios: false,
            read_path: ReadPath::Mpage,
            is_device,
            device: readahead,
        };
        let inode = self.vfs.add_inode_on(inode, DeviceId(number as u32));
        self.vfs.host().place_region(inode, base_bytes, bytes);
        if is_device && self.are_mounted {
            self.vfs.device_opened(inode);
        }
        let write_lock = (!is_device).then(Rc::default);
        let known = KnownFile {
            inode,
            write_lock: write_lock.clone(),
        };
        self.known.insert((number, base_bytes, is_device), known);
        (inode, write_lock)
    }

    /// Makes a file system with these files on a drive, and mounts it.
    ///
    /// # Errors
    /// Where drive or files are too large for it.
    pub(crate) fn mount(
        &mut self,
        (number, disk): (usize, &Disk),
        (kind, files): (FileSystemKind, &[NewFile]),
        size_bytes: u64,
    ) -> Result<(), FsError> {
        let readahead = self.readahead_of(disk);
        let mounted = Tree::mount(&self.vfs, (kind, files), (number, size_bytes), readahead)?;
        // Who opens the drive shares the pages of the mount, which has it open as well.
        self.vfs.device_opened(mounted.device());
        let device = KnownFile {
            inode: mounted.device(),
            write_lock: None,
        };
        self.known.entry((number, 0, true)).or_insert(device);
        self.tree = Some(mounted);
        Ok(())
    }

    /// Whether there is a file system.
    pub(crate) fn has_tree(&self) -> bool {
        self.tree.is_some()
    }

    /// Whether io_uring can try reads and writes of the mounted file system's files without
    /// waiting; if not, workers do all of them.
    pub(crate) fn can_try(&self) -> bool {
        self.tree.as_ref().is_none_or(Tree::can_try)
    }

    /// How many CPUs the machine has.
    pub(crate) fn cpus(&self) -> usize {
        self.nodes.len()
    }

    /// Reserves a [`FileId`] for a file of the mounted file system, which a process
    /// opens by [`Call::OpenFile`].
    pub(crate) fn open_in_tree(&mut self, path: &[u8]) -> FileId {
        let file = OpenFile {
            disk: self.tree.as_ref().map_or(0, Tree::disk),
            what: Opened::InTree(path.into(), RefCell::default()),
            mapping: RefCell::default(),
        };
        FileId(self.vfs.host().add_open_file(file))
    }

    /// Stores a path that calls name by its [`PathId`].
    pub(crate) fn add_path(&mut self, path: &[u8]) -> PathId {
        PathId(self.vfs.host().add_path(path))
    }

    /// The drive's limits that size the readahead window.
    fn readahead_of(&self, disk: &Disk) -> BackingDevice {
        BackingDevice {
            ra_pages: self.read_ahead_kb / (PAGE_BYTES as u32 / 1024),
            io_pages: disk.queue.limits().max_sectors / (PAGE_BYTES as u32 / 512),
        }
    }

    /// A task for the calls of a process.
    pub(crate) fn add_caller(&mut self, pid: usize) -> TaskId {
        let calls = Rc::<CallSlot>::default();
        let namespace = self.tree.as_ref().map(Tree::namespace);
        let future = serve_calls(Rc::clone(&self.vfs), namespace, Rc::clone(&calls));
        self.add_task(Box::pin(future), calls, pid, 0)
    }

    /// The flusher threads of this many drives, which write their dirty pages back, and then
    /// those of control groups' parts, drive by drive for each group.
    pub(crate) fn add_flushers(&mut self, pid: usize, disks: usize) -> Vec<TaskId> {
        let drives = (0..disks).map(|disk| (disk, DeviceId(disk as u32)));
        let all: Vec<(usize, DeviceId)> = drives.chain(self.group_parts.iter().copied()).collect();
        let all = all.into_iter();
        all.map(|(disk, device)| self.add_flusher(pid, disk, device))
            .collect()
    }

    fn add_flusher(&mut self, pid: usize, disk: usize, device: DeviceId) -> TaskId {
        let vfs = Rc::clone(&self.vfs);
        let future = async move {
            loop {
                vfs.host().flusher_wanted(device).await;
                vfs.flush(device).await;
            }
        };
        self.add_task(Box::pin(future), Rc::default(), pid, disk)
    }

    /// The threads that reclaim pages of a memory node each where it is below its low
    /// watermark, and shrink the caches of names and inodes as far as that and other tasks'
    /// reclaim call for.
    pub(crate) fn add_kswapds(&mut self, pid: usize) -> Vec<TaskId> {
        let nodes = 0..self.vfs.memory_nodes();
        nodes.map(|node| self.add_kswapd(pid, node)).collect()
    }

    fn add_kswapd(&mut self, pid: usize, node: u8) -> TaskId {
        let vfs = Rc::clone(&self.vfs);
        let namespace = self.tree.as_ref().map(Tree::namespace);
        let future = async move {
            loop {
                vfs.kswapd(node).await;
                let pressure = vfs.take_pressure();
                if let Some(namespace) = &namespace {
                    // Whoever needs an inode that the drive does not give is told so.
                    let _ = namespace.shrink(pressure).await;
                }
            }
        };
        let disk = self.tree.as_ref().map_or(0, Tree::disk);
        self.add_task(Box::pin(future), Rc::default(), pid, disk)
    }

    fn add_task(
        &mut self,
        future: Pin<Box<dyn Future<Output = ()>>>,
        calls: Rc<CallSlot>,
        owner: usize,
        disk: usize,
    ) -> TaskId {
        let task = TaskId(self.tasks.len() as u32);
        let woken = Arc::clone(&self.woken);
        self.tasks.push(Task {
            future,
            waker: Waker::from(Arc::new(TaskWaker { task, woken })),
            calls,
            owner,
            disk,
            plug: Plug::new(),
            awaits_tag: false,
            waiter: None,
        });
        self.called.add_task(owner);
        self.vfs.host().add_task();
        task
    }

    /// Gives a task its next call, which [`FileLayer::go_on`] then runs.
    pub(crate) fn begin(&mut self, task: TaskId, call: Call) {
        let disk = match call.file() {
            Some(file) => self.vfs.host().with_open_file(file.0, |open| open.disk),
            None => self.tree.as_ref().map_or(0, Tree::disk),
        };
        let task = &mut self.tasks[task.0 as usize];
        task.disk = disk;
        task.calls.begin(call);
    }

    /// Runs a task until its call returns or it sleeps, and submits the bios that it
    /// makes. Returns the CPU time that the block layer took for them.
    pub(crate) fn go_on(
        &mut self,
        (disks, cpus): (&mut [Disk], &mut Cpus),
        now: Nanos,
        at: TaskId,
        who: &Submitter<'_>,
    ) -> (Progress, Nanos) {
        self.run_next(now, at, who);
        let task = &self.tasks[at.0 as usize];
        if task.awaits_tag {
            return (Progress::Waits, Nanos::ZERO);
        }
        let mut alone = None;
        if let Some(call) = task.calls.unseen() {
            match self.try_at_once(&call) {
                Some(AtOnce::Over(returned)) => {
                    self.tasks[at.0 as usize].calls.forget();
                    return (
                        Progress::Over(returned),
                        self.charge_page_work(cpus, now, who),
                    );
                }
                Some(AtOnce::Reads(id, bio)) => alone = Some((id, bio)),
                None => {}
            }
        }
        self.go_on_with((disks, cpus), now, (at, alone), who)
    }

    /// Gives a task its next call and runs it, which most calls need no task for.
    #[inline]
    pub(crate) fn call(
        &mut self,
        (disks, cpus): (&mut [Disk], &mut Cpus),
        now: Nanos,
        (at, call): (TaskId, &Call),
        who: &Submitter<'_>,
    ) -> (Progress, Nanos) {
        self.run_next(now, at, who);
        let alone = match self.try_at_once(call) {
            Some(AtOnce::Over(returned)) => {
                return (
                    Progress::Over(returned),
                    self.charge_page_work(cpus, now, who),
                );
            }
            Some(AtOnce::Reads(id, bio)) => Some((id, bio)),
            None => None,
        };
        self.begin(at, *call);
        self.go_on_with((disks, cpus), now, (at, alone), who)
    }

    /// Sets the task that runs from now on.
    #[inline]
    fn run_next(&mut self, now: Nanos, at: TaskId, who: &Submitter<'_>) {
        self.sample(now);
        let kernel = self.vfs.host();
        kernel.set_now(now);
        kernel.runs(at.0 as usize, who.cgroup);
        kernel.set_node(self.nodes[who.cpu]);
    }

    /// Makes a call without its task, if that needs none.
    #[inline]
    fn try_at_once(&self, call: &Call) -> Option<AtOnce> {
        if self.may_hold_back {
            return None;
        }
        let tree = self.tree.as_ref().map(Tree::files);
        call_without_waiting(&self.vfs, tree, call)
    }

    /// Charges the CPU for what the running task did with pages; returns how long it takes.
    #[inline]
    fn charge_page_work(&self, cpus: &mut Cpus, now: Nanos, who: &Submitter<'_>) -> Nanos {
        let work = self.vfs.host().take_page_work();
        who.charge_pages(work, cpus, now)
    }

    /// Runs a task on, which makes its call, or awaits the bio that the call has made already.
    #[inline(never)]
    fn go_on_with(
        &mut self,
        (disks, cpus): (&mut [Disk], &mut Cpus),
        now: Nanos,
        (at, alone): (TaskId, Option<(BioId, blklab_fs::Bio)>),
        who: &Submitter<'_>,
    ) -> (Progress, Nanos) {
        let task = &self.tasks[at.0 as usize];
        let disk = &mut disks[task.disk];
        let before = who.steps_to_charge(disk);
        let progress = match alone {
            Some(read) => self.submit_alone(disk, now, (at, read), who),
            None => None,
        };
        let progress = progress.unwrap_or_else(|| self.poll(disk, now, at, who));
        let task = &mut self.tasks[at.0 as usize];
        if !task.plug.is_empty() {
            disk.queue.flush_plug(now, &mut task.plug, &mut disk.driver);
        }
        let submitting = who.charge((disk, cpus), now, before);
        if let Some(device) = self.vfs.host().take_slowed_down()
            && let Some(disk) = disks.get_mut(device.0 as usize)
        {
            disk.queue.dirtier_sleeps(now);
        }
        (progress, submitting + self.charge_page_work(cpus, now, who))
    }

    /// Submits the bio of a call that needs no future, which is made again when the bio has
    /// ended. `None` if it has ended already.
    fn submit_alone(
        &mut self,
        disk: &mut Disk,
        now: Nanos,
        (at, (id, bio)): (TaskId, (BioId, blklab_fs::Bio)),
        who: &Submitter<'_>,
    ) -> Option<Progress> {
        let task = &mut self.tasks[at.0 as usize];
        let sleeps = task.submit(disk, now, who.cpu, who.bio(id, bio, who.cgroup));
        if sleeps.is_some() {
            return sleeps;
        }
        if !self.vfs.awaits_read(id) {
            return None;
        }
        let number = id.0 as usize;
        if self.readers.len() <= number {
            self.readers.resize(number + 1, None);
        }
        self.readers[number] = Some(at);
        Some(Progress::Waits)
    }

    /// Polls a task's future, and submits the bios that it makes, until its call returns or
    /// it sleeps.
    #[inline(never)]
    fn poll(&mut self, disk: &mut Disk, now: Nanos, at: TaskId, who: &Submitter<'_>) -> Progress {
        let kernel = self.vfs.host();
        let task = &mut self.tasks[at.0 as usize];
        let number = task.disk;
        loop {
            let mut context = Context::from_waker(&task.waker);
            let over = task.future.as_mut().poll(&mut context).is_ready();
            debug_assert!(!over, "tasks never end");
            let Some((id, bio)) = kernel.take_submitted() else {
                return match task.calls.returned() {
                    Some(returned) => Progress::Over(returned),
                    None => Progress::Waits,
                };
            };
            if self.tree.as_ref().is_some_and(|tree| tree.disk() == number) {
                kernel.store(&bio);
            }
            let owner = match bio.op {
                Op::Write => (self.vfs.inode_of_bio(id)).and_then(|inode| kernel.owner(inode)),
                _ => None,
            };
            let bio = who.bio(id, bio, owner.unwrap_or(who.cgroup));
            if let Some(sleeps) = task.submit(disk, now, who.cpu, bio) {
                return sleeps;
            }
        }
    }

    /// Lets a task that sleeps for a tag try again to get one.
    pub(crate) fn resume(
        &mut self,
        (disk, cpus): (&mut Disk, &mut Cpus),
        now: Nanos,
        (task, waiter): (TaskId, Waiter),
        who: &Submitter<'_>,
    ) -> (Submit, Nanos) {
        let task = &mut self.tasks[task.0 as usize];
        let before = who.steps_to_charge(disk);
        let plug = Some(&mut task.plug);
        let taken = disk.queue.resume(now, plug, waiter, &mut disk.driver);
        task.awaits_tag = matches!(taken, Submit::Blocked(_));
        (taken, who.charge((disk, cpus), now, before))
    }

    /// A bio of the page cache has ended.
    pub(crate) fn bio_ended(&mut self, now: Nanos, slot: u32, status: IoStatus) {
        let id = BioId(slot - FIRST_SLOT);
        self.vfs.host().set_now(now);
        match status {
            IoStatus::Ok => self.vfs.bio_ended(id),
            _ => self.vfs.bio_failed(id),
        }
    }

    /// Takes a sample of dirty and cached memory, if one is due.
    #[inline]
    fn sample(&mut self, now: Nanos) {
        if now >= self.next_sample {
            self.take_sample(now);
        }
    }

    #[inline(never)]
    fn take_sample(&mut self, now: Nanos) {
        self.next_sample = now + self.sample_interval;
        self.samples.push(CacheSample {
            at_ns: now.0,
            dirty_bytes: self.vfs.dirty_pages_now() * PAGE_BYTES,
            cached_bytes: self.vfs.all_cached_pages() * PAGE_BYTES,
        });
        while self.samples.len() >= SAMPLES_MAX {
            self.sample_interval = self.sample_interval + self.sample_interval;
            thin_out(&mut self.samples, self.sample_interval);
        }
    }

    /// Sets all counters to zero, at the end of the ramp time.
    pub(crate) fn reset_counters(&mut self) {
        self.vfs.reset_counts();
        self.vfs.host().reset_throttled();
        self.vfs.host().reset_faults();
    }

    /// The page faults of a process's tasks.
    pub(crate) fn faults_of(&self, pid: usize) -> PageFaults {
        let mut sum = PageFaults::default();
        let own = self.tasks.iter().enumerate();
        for (task, _) in own.filter(|(_, task)| task.owner == pid) {
            sum.add(&self.vfs.host().faults(task));
        }
        sum
    }

    /// Syncs and unmounts the file system, and returns what the drive then holds.
    #[cfg(test)]
    pub(crate) fn write_out(&self) -> Rc<blklab_fs::SparseDisk> {
        let tree = self.tree.as_ref().expect("it is mounted");
        tree.write_out(&self.vfs).expect("memory has no errors")
    }

    /// The counters of the results.
    pub(crate) fn stats(&self) -> CacheStats {
        let counts = self.vfs.counts();
        let (names, blocks) = match &self.tree {
            Some(tree) => tree.counts(),
            None => Default::default(),
        };
        let shrunk = self.tree.as_ref().map(|tree| tree.files().shrink_counts());
        let shrunk = shrunk.unwrap_or_default();
        CacheStats {
            read_pages: counts.read,
            hits: counts.read.saturating_sub(counts.missed),
            misses: counts.missed,
            readahead_pages: counts.readahead,
            readahead_used: counts.readahead_used,
            readahead_wasted: counts.readahead_wasted,
            dirtied_pages: counts.dirtied,
            written_pages: counts.written,
            flusher_pages: counts.flushed,
            dirty_max_bytes: counts.dirty_max * PAGE_BYTES,
            throttled_ns: self.vfs.host().throttled().0,
            evicted_pages: counts.evicted,
            names_looked_up: names.lookups,
            names_cached: names.hits,
            names_known_missing: names.negative_hits,
            names_shrunk: shrunk.dentries,
            inodes_shrunk: shrunk.inodes,
            blocks_looked_up: blocks.lookups,
            blocks_read: blocks.reads,
            blocks_written: blocks.writes,
            groups: self.memory_group_stats(),
            samples: self.samples.clone(),
        }
    }

    fn memory_group_stats(&self) -> Vec<MemoryGroupStats> {
        let counts = self.vfs.memory_group_counts();
        let named = self.memory_groups.iter().zip(counts);
        let stats = named.map(|(name, counts)| MemoryGroupStats {
            name: name.clone(),
            current_bytes: counts.current_pages * PAGE_BYTES,
            peak_bytes: counts.peak_pages * PAGE_BYTES,
            charged_pages: counts.charged_pages,
            reclaimed_pages: counts.reclaimed_pages,
            high_events: counts.high_events,
            max_events: counts.max_events,
            oom_events: counts.oom_events,
            throttled_ns: counts.delay_jiffies * JIFFY.0,
        });
        stats.collect()
    }
}

impl Submitter<'_> {
    /// The block layer's form of a bio of the page cache, charged to `cgroup`.
    fn bio(&self, id: BioId, bio: blklab_fs::Bio, cgroup: CgroupId) -> Bio {
        let is_flush = bio.size_sectors == 0;
        let (op, flags) = match is_flush {
            true => (Op::Flush, BioFlags::SYNC),
            false => (bio.op, bio.flags),
        };
        Bio {
            flags,
            prio: self.prio,
            submitter: self.id,
            cgroup,
            user_data: user_data(self.pid, FIRST_SLOT + id.0),
            ..Bio::new(op, bio.sector, bio.size_sectors)
        }
    }

    /// The block layer's steps so far, where more of them will be charged.
    #[inline]
    fn steps_to_charge(&self, disk: &Disk) -> Option<CostCounts> {
        (!self.costs.free).then(|| disk.queue.cost_counts())
    }

    /// Charges the CPU for the block layer's work since `before`; returns how long it
    /// takes.
    #[inline]
    fn charge(
        &self,
        (disk, cpus): (&mut Disk, &mut Cpus),
        now: Nanos,
        before: Option<CostCounts>,
    ) -> Nanos {
        match before {
            Some(before) => self.charge_steps((disk, cpus), now, &before),
            None => Nanos::ZERO,
        }
    }

    #[inline(never)]
    fn charge_steps(
        &self,
        (disk, cpus): (&mut Disk, &mut Cpus),
        now: Nanos,
        before: &CostCounts,
    ) -> Nanos {
        let steps = disk.queue.cost_counts().since(before);
        let start = cpus.free_at(self.cpu).max(now);
        let end = self
            .costs
            .charge(cpus, &mut disk.lock, self.cpu, now, &steps);
        let span = Span {
            start,
            end,
            reached: end,
        };
        disk.set_trace_times(self.costs, span);
        disk.release(end);
        end - start
    }

    /// Charges the CPU for what a task did with pages beyond copying them; returns how long
    /// it takes.
    #[inline]
    fn charge_pages(&self, work: PageWork, cpus: &mut Cpus, now: Nanos) -> Nanos {
        match work == PageWork::default() || self.costs.free {
            true => Nanos::ZERO,
            false => self.charge_slow_pages(work, cpus, now),
        }
    }

    #[inline(never)]
    fn charge_slow_pages(&self, work: PageWork, cpus: &mut Cpus, now: Nanos) -> Nanos {
        let PageWork { remote, dropped } = work;
        let cost = self.costs.remote_pages(remote) + self.costs.dropped_pages(dropped);
        let cost = (cpus.slowdown(self.cpu, now)).of(cost);
        let start = cpus.free_at(self.cpu).max(now);
        cpus.run(self.cpu, now, cost, Mode::System) - start
    }
}

/// Drops samples that are closer than `interval` to the one before. Those around a time in
/// which nothing happened stay: what is drawn between them did not change.
fn thin_out(samples: &mut Vec<CacheSample>, interval: Nanos) {
    let mut kept_ns = None;
    samples.retain(|sample| {
        let is_far = kept_ns.is_none_or(|kept_ns| sample.at_ns - kept_ns >= interval.0);
        if is_far {
            kept_ns = Some(sample.at_ns);
        }
        is_far
    });
}

/// The block size of a device's page cache while no file system has set one: the
/// largest power of two, up to a page, that divides its size (`set_init_blocksize`).
fn device_block_bytes(size_bytes: u64, logical_bytes: u64) -> u64 {
    let mut block = logical_bytes.clamp(512, PAGE_BYTES);
    while block < PAGE_BYTES && size_bytes.is_multiple_of(block * 2) {
        block *= 2;
    }
    block
}
