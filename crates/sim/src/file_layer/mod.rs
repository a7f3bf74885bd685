//! The file layer: what lies between processes and the block layer where I/O is not
//! direct. It is the page cache of crate `fs` on virtual time.
//!
//! Whatever waits in it is a task: a process in a call, a drive's flusher, `kswapd`.
//! Each is made once and serves one call after the other, so that a call allocates
//! nothing. A task runs when its owner has it go on, up to where it waits for a tag or
//! for something that wakes it; then its owner is called in the next turn.

mod kernel;
mod owners;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use blklab_blk::{
    Bio, BioFlags, CgroupId, CostCounts, IoPrio, IoStatus, Nanos, Op, Plug, SECTOR_SIZE, Span,
    Submit, SubmitterId, Waiter,
};
use blklab_fs::write_back::{Bandwidth, DeviceId, History, SyncRange};
use blklab_fs::{
    Advice, BackingDevice, BioId, File, Inode, InodeId, Memory, PAGE_BYTES, Policy, ReadPath, Vfs,
};
use blklab_stats::{CacheSample, CacheStats};

use crate::caching::Caching;
use crate::cpu::{CostTable, Cpus};
use crate::disk::Disk;
use crate::timers::user_data;
use kernel::{Kernel, OpenFile, WriteLock};

/// Slots from here on are of bios of the page cache.
pub(crate) const FIRST_SLOT: u32 = 1 << 31;

/// Samples of dirty and cached memory over time that are kept at most; then every
/// other one goes.
const SAMPLES_MAX: usize = 512;

/// How often memory is looked at in the beginning.
const FIRST_SAMPLE_INTERVAL: Nanos = Nanos::from_millis(1);

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u32);

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId(u32);

/// A call that a process makes. Places are bytes of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// fio opens a file: it drops what is cached of it (`invalidate`) or reads so many
    /// bytes of it (`pre_read`), and says how it will use it (`fadvise_hint`).
    Open {
        file: FileId,
        invalidate: bool,
        pre_read: Option<(u64, u64)>,
        advice: Option<Advice>,
    },
    /// `pread`.
    Read { file: FileId, at: u64, bytes: u64 },
    /// `pwrite`, with what `O_SYNC` or `O_DSYNC` adds to it.
    Write {
        file: FileId,
        at: u64,
        bytes: u64,
        sync: Option<Durability>,
    },
    /// `fsync` or `fdatasync`.
    Sync { file: FileId, what: Durability },
    /// `sync_file_range`, of all of the file.
    SyncRange { file: FileId, what: SyncRange },
}

/// What has to be on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The data, and what is needed to find it.
    Data,
    /// The inode's times as well.
    All,
}

/// How far a task came.
pub(crate) enum Progress {
    /// Its call is over, with this status.
    Over(IoStatus),
    /// It waits in that drive's queue.
    AwaitsTag(usize, Waiter),
    /// It waits for something that wakes it.
    Waits,
}

/// For whom a task submits, and who pays for it.
pub(crate) struct Submitter<'a> {
    /// The process that hears of its bios' ends.
    pub(crate) pid: usize,
    pub(crate) id: SubmitterId,
    pub(crate) cpu: usize,
    pub(crate) prio: IoPrio,
    pub(crate) cgroup: CgroupId,
    pub(crate) costs: &'a CostTable,
}

/// The calls of a task: one at a time.
#[derive(Default)]
struct Mailbox {
    call: Cell<Option<Call>>,
    status: Cell<Option<IoStatus>>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    calls: Rc<Mailbox>,
    owner: usize,
    disk: usize,
    plug: Plug,
    /// It sleeps in its drive's queue, and nothing else wakes it.
    awaits_tag: bool,
}

/// Tasks that were woken.
type Woken = Arc<Mutex<Vec<TaskId>>>;

struct TaskWaker {
    task: TaskId,
    woken: Woken,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.woken).push(self.task);
    }
}

fn lock(woken: &Woken) -> MutexGuard<'_, Vec<TaskId>> {
    woken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file on a drive, as the page cache knows it.
struct KnownFile {
    disk: usize,
    base_bytes: u64,
    /// Its inode, and the lock of those who write it.
    inode: InodeId,
    write_lock: Option<Rc<WriteLock>>,
    is_device: bool,
}

/// The page cache of a run.
pub(crate) struct FileLayer {
    vfs: Rc<Vfs<Kernel>>,
    read_ahead_kb: u32,
    known: Vec<KnownFile>,
    tasks: Vec<Task>,
    woken: Woken,
    /// By owner, its tasks that it is called for.
    called: Vec<VecDeque<TaskId>>,
    /// The process that is called when something is due, and when it is called next.
    time_keeper: (usize, Nanos),
    /// By bio, its drive.
    disk_of_bio: Vec<usize>,
    /// By drive, how a bio of it failed that nobody was told of.
    failed: Vec<Option<IoStatus>>,
    samples: Vec<CacheSample>,
    sample_interval: Nanos,
    next_sample: Nanos,
}

impl FileLayer {
    /// An empty page cache over so many drives.
    pub(crate) fn new(caching: &Caching, disks: &[Disk]) -> FileLayer {
        let kernel = Kernel::default();
        let pages = caching.write_back.memory_pages;
        let vfs = Vfs::with_settings(kernel, caching.write_back)
            .limited(Policy::ActiveInactive, Memory::Machine { pages });
        let layer = FileLayer {
            vfs: Rc::new(vfs),
            read_ahead_kb: caching.read_ahead_kb,
            known: Vec::new(),
            tasks: Vec::new(),
            woken: Woken::default(),
            called: Vec::new(),
            time_keeper: (0, Nanos::MAX),
            disk_of_bio: Vec::new(),
            failed: vec![None; disks.len()],
            samples: Vec::new(),
            sample_interval: FIRST_SAMPLE_INTERVAL,
            next_sample: Nanos::ZERO,
        };
        for (disk, number) in disks.iter().zip(0..) {
            layer.add_disk(disk, DeviceId(number));
        }
        layer
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

    /// Opens `bytes` of a drive from byte `base_bytes` on as a file; all of it is the
    /// block device.
    pub(crate) fn open(
        &mut self,
        (number, disk): (usize, &Disk),
        (base_bytes, bytes): (u64, u64),
        is_device: bool,
    ) -> FileId {
        let same =
            |f: &&KnownFile| (f.disk, f.base_bytes, f.is_device) == (number, base_bytes, is_device);
        let (inode, write_lock) = match self.known.iter().find(same) {
            Some(known) => (known.inode, known.write_lock.clone()),
            None => self.add_file((number, disk), (base_bytes, bytes), is_device),
        };
        let file = OpenFile {
            file: self.vfs.open(inode),
            disk: number,
            base_bytes,
            write_lock,
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
            device: BackingDevice {
                ra_pages: self.read_ahead_kb / (PAGE_BYTES as u32 / 1024),
                io_pages: limits.max_sectors / (PAGE_BYTES as u32 / 512),
            },
        };
        let inode = self.vfs.add_inode_on(inode, DeviceId(number as u32));
        self.vfs.host().place_file(base_bytes, bytes);
        let write_lock = (!is_device).then(Rc::default);
        self.known.push(KnownFile {
            disk: number,
            base_bytes,
            inode,
            write_lock: write_lock.clone(),
            is_device,
        });
        (inode, write_lock)
    }

    /// A task for the calls of a process.
    pub(crate) fn add_caller(&mut self, pid: usize) -> TaskId {
        let calls = Rc::<Mailbox>::default();
        let future = serve_calls(Rc::clone(&self.vfs), Rc::clone(&calls));
        self.add_task(Box::pin(future), calls, pid, 0)
    }

    /// The thread that writes to a drive what is dirty.
    pub(crate) fn add_flusher(&mut self, pid: usize, disk: usize) -> TaskId {
        let vfs = Rc::clone(&self.vfs);
        let device = DeviceId(disk as u32);
        let future = async move {
            loop {
                vfs.host().flusher_wanted(device).await;
                vfs.flush(device).await;
            }
        };
        self.add_task(Box::pin(future), Rc::default(), pid, disk)
    }

    /// The thread that keeps memory free.
    pub(crate) fn add_kswapd(&mut self, pid: usize) -> TaskId {
        let vfs = Rc::clone(&self.vfs);
        let future = async move { vfs.kswapd().await };
        self.add_task(Box::pin(future), Rc::default(), pid, 0)
    }

    fn add_task(
        &mut self,
        future: Pin<Box<dyn Future<Output = ()>>>,
        calls: Rc<Mailbox>,
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
        });
        if self.called.len() <= owner {
            self.called.resize_with(owner + 1, VecDeque::new);
        }
        self.vfs.host().add_task();
        task
    }

    /// A task begins a call; [`FileLayer::go_on`] runs it.
    pub(crate) fn begin(&mut self, task: TaskId, call: Call) {
        let (Call::Open { file, .. }
        | Call::Read { file, .. }
        | Call::Write { file, .. }
        | Call::Sync { file, .. }
        | Call::SyncRange { file, .. }) = call;
        let task = &mut self.tasks[task.0 as usize];
        task.disk = self.vfs.host().open_file(file.0).disk;
        task.calls.call.set(Some(call));
    }

    /// Lets a task run as far as it gets. Returns the CPU time that it took in the
    /// block layer.
    pub(crate) fn go_on(
        &mut self,
        (disks, cpus): (&mut [Disk], &mut Cpus),
        now: Nanos,
        at: TaskId,
        who: &Submitter<'_>,
    ) -> (Progress, Nanos) {
        self.sample(now);
        let kernel = self.vfs.host();
        kernel.set_now(now);
        kernel.runs(at.0 as usize);
        let task = &mut self.tasks[at.0 as usize];
        if task.awaits_tag {
            return (Progress::Waits, Nanos::ZERO);
        }
        let (number, disk) = (task.disk, &mut disks[task.disk]);
        let before = disk.queue.cost_counts();
        let mut context = Context::from_waker(&task.waker);
        let progress = loop {
            let over = task.future.as_mut().poll(&mut context).is_ready();
            debug_assert!(!over, "tasks never end");
            let Some((id, bio)) = kernel.take_submitted() else {
                break match task.calls.status.take() {
                    Some(status) => Progress::Over(self.failed[number].take().unwrap_or(status)),
                    None => Progress::Waits,
                };
            };
            let bio = who.bio(id, bio);
            set_at(&mut self.disk_of_bio, id.0 as usize, number);
            let plug = Some(&mut task.plug);
            let taken = disk
                .queue
                .submit_bio(now, who.cpu, plug, bio, &mut disk.driver);
            if let Submit::Blocked(waiter) = taken {
                task.awaits_tag = true;
                break Progress::AwaitsTag(number, waiter);
            }
        };
        if !task.plug.is_empty() {
            disk.queue.flush_plug(now, &mut task.plug, &mut disk.driver);
        }
        let spent = who.charge((disk, cpus), now, &before);
        (progress, spent)
    }

    /// A task that waited in a drive's queue tries again.
    pub(crate) fn resume(
        &mut self,
        (disk, cpus): (&mut Disk, &mut Cpus),
        now: Nanos,
        (task, waiter): (TaskId, Waiter),
        who: &Submitter<'_>,
    ) -> (Submit, Nanos) {
        let task = &mut self.tasks[task.0 as usize];
        let before = disk.queue.cost_counts();
        let plug = Some(&mut task.plug);
        let taken = disk.queue.resume(now, plug, waiter, &mut disk.driver);
        task.awaits_tag = matches!(taken, Submit::Blocked(_));
        (taken, who.charge((disk, cpus), now, &before))
    }

    /// A bio of the page cache has ended.
    pub(crate) fn bio_ended(&mut self, now: Nanos, slot: u32, status: IoStatus) {
        let id = slot - FIRST_SLOT;
        if status != IoStatus::Ok {
            self.failed[self.disk_of_bio[id as usize]] = Some(status);
        }
        self.vfs.host().set_now(now);
        self.vfs.bio_ended(BioId(id));
    }

    /// Looks at how much is dirty and cached.
    fn sample(&mut self, now: Nanos) {
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + self.sample_interval;
        self.samples.push(CacheSample {
            at_ns: now.0,
            dirty_bytes: self.vfs.dirty_pages_now() * PAGE_BYTES,
            cached_bytes: self.vfs.all_cached_pages() * PAGE_BYTES,
        });
        if self.samples.len() == SAMPLES_MAX {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.sample_interval = self.sample_interval + self.sample_interval;
        }
    }

    /// Counters start afresh at the end of a ramp.
    pub(crate) fn reset_counters(&mut self) {
        self.vfs.reset_counts();
        self.vfs.host().reset_throttled();
    }

    /// What it did.
    pub(crate) fn stats(&self) -> CacheStats {
        let counts = self.vfs.counts();
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
            samples: self.samples.clone(),
        }
    }
}

impl Submitter<'_> {
    fn bio(&self, id: BioId, bio: blklab_fs::Bio) -> Bio {
        let is_flush = bio.size_sectors == 0;
        let (op, flags) = match is_flush {
            true => (Op::Flush, BioFlags::SYNC),
            false => (bio.op, bio.flags),
        };
        Bio {
            flags,
            prio: self.prio,
            submitter: self.id,
            cgroup: self.cgroup,
            user_data: user_data(self.pid, FIRST_SLOT + id.0),
            ..Bio::new(op, bio.sector, bio.size_sectors)
        }
    }

    /// Charges what the block layer did since `before`.
    fn charge(
        &self,
        (disk, cpus): (&mut Disk, &mut Cpus),
        now: Nanos,
        before: &CostCounts,
    ) -> Nanos {
        if self.costs.free {
            return Nanos::ZERO;
        }
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
}

fn set_at(list: &mut Vec<usize>, at: usize, value: usize) {
    if list.len() <= at {
        list.resize(at + 1, 0);
    }
    list[at] = value;
}

/// The block size of a device that nobody has set: the largest up to a page that its
/// size is a multiple of (`set_init_blocksize`).
fn device_block_bytes(size_bytes: u64, logical_bytes: u64) -> u64 {
    let mut block = logical_bytes.clamp(512, PAGE_BYTES);
    while block < PAGE_BYTES && size_bytes.is_multiple_of(block * 2) {
        block *= 2;
    }
    block
}

/// Pages that so many bytes lie in.
pub(crate) fn pages_of(at: u64, bytes: u64) -> u64 {
    (at + bytes).div_ceil(PAGE_BYTES) - at / PAGE_BYTES
}

/// Makes the calls of a process, one after the other.
async fn serve_calls(vfs: Rc<Vfs<Kernel>>, calls: Rc<Mailbox>) {
    loop {
        let call = poll_fn(|_| match calls.call.take() {
            Some(call) => Poll::Ready(call),
            None => Poll::Pending,
        });
        let status = carry_out(&vfs, call.await).await;
        calls.status.set(Some(status));
    }
}

async fn carry_out(vfs: &Vfs<Kernel>, call: Call) -> IoStatus {
    match call {
        Call::Open {
            file,
            invalidate,
            pre_read,
            advice,
        } => {
            let open = vfs.host().open_file(file.0);
            if invalidate {
                drop_cached(vfs, &open.file).await;
            }
            if let Some((at, bytes)) = pre_read {
                vfs.read(&open.file, at, bytes).await;
            }
            if let Some(advice) = advice {
                vfs.fadvise(&open.file, 0, 0, advice).await;
            }
            IoStatus::Ok
        }
        Call::Read { file, at, bytes } => {
            let open = vfs.host().open_file(file.0);
            vfs.read(&open.file, at - open.base_bytes, bytes).await;
            IoStatus::Ok
        }
        Call::Write {
            file,
            at,
            bytes,
            sync,
        } => {
            let open = vfs.host().open_file(file.0);
            write(vfs, &open, (at, bytes), sync).await
        }
        Call::Sync { file, what } => {
            let open = vfs.host().open_file(file.0);
            let only_data = what == Durability::Data;
            vfs.fsync(&open.file, 0, u64::MAX / 2, only_data).await;
            IoStatus::Ok
        }
        Call::SyncRange { file, what } => {
            let open = vfs.host().open_file(file.0);
            vfs.sync_file_range(&open.file, 0, u64::MAX / 2, what).await;
            IoStatus::Ok
        }
    }
}

/// What fio does with the cache of a file that it opens: `BLKFLSBUF` on a block device,
/// `POSIX_FADV_DONTNEED` else.
async fn drop_cached(vfs: &Vfs<Kernel>, file: &File) {
    if vfs.is_device(file.inode) {
        vfs.flush_buffers(file.inode).await;
    } else {
        vfs.fadvise(file, 0, 0, Advice::DontNeed).await;
    }
}

async fn write(
    vfs: &Vfs<Kernel>,
    open: &OpenFile,
    (at, bytes): (u64, u64),
    sync: Option<Durability>,
) -> IoStatus {
    let at = at - open.base_bytes;
    if let Some(lock) = &open.write_lock {
        lock.lock().await;
    }
    let written = vfs.write(&open.file, at, bytes).await;
    if let Some(lock) = &open.write_lock {
        lock.unlock();
    }
    let (Ok(_), Some(what)) = (&written, sync) else {
        return written.map_or(IoStatus::NoSpace, |_| IoStatus::Ok);
    };
    let (last, only_data) = (at + bytes.max(1) - 1, what == Durability::Data);
    vfs.fsync(&open.file, at, last, only_data).await;
    IoStatus::Ok
}
