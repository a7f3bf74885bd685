//! The page cache with its files, and bios in flight.

mod dentry;
mod namespace;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{poll_fn, ready};
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use blklab_blk::Op;

use crate::PAGE_BYTES;
use crate::bio::{Bio, BioId};
use crate::counts::CacheCounts;
use crate::error::FsError;
use crate::event::Event;
use crate::fault::{Fault, Mapping};
use crate::inode::{Extent, File, Inode, InodeId};
use crate::page_cache::{FolioId, PageCache, flag};
use crate::reclaim::{Lru, Lruvec, Memory, MemoryGroup, Origin, OverHigh, Policy};
use crate::write_back::{DeviceId, Dirtier, Settings, WriteBack};

pub use dentry::{DentryCounts, Place};
pub use namespace::{MountDevice, Namespace, OpenFile, OpenFlags, ShrinkCounts, Written};

/// What the page cache needs from its surroundings: a block layer, the block maps of
/// files, and time.
pub trait Host: Sized {
    /// Takes a bio, and calls [`Vfs::bio_ended`] or [`Vfs::bio_failed`] at its end. Waits
    /// where a submitter waits, for a tag.
    fn submit(&self, vfs: &Vfs<Self>, id: BioId, bio: Bio) -> impl Future<Output = ()>;

    /// Where `bytes` of a file from `byte` on are on its device. A map that cannot be read
    /// counts as a hole.
    fn extent(&self, inode: InodeId, byte: u64, bytes: u64) -> impl Future<Output = Extent>;

    /// The same where nothing has to be read for that; `None` where it may have to be.
    fn known_extent(&self, inode: InodeId, byte: u64, bytes: u64) -> Option<Extent> {
        let _ = (inode, byte, bytes);
        None
    }

    /// Allocates the blocks of a page whose bytes from `first_byte` up to `end_byte` are
    /// about to be written (`get_block`). Returns the blocks of the page that are new, a
    /// bit each: what those hold is not the file's.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], and [`FsError::Device`] where the file's map cannot be read.
    fn allocate(
        &self,
        inode: InodeId,
        first_byte: u64,
        end_byte: u64,
    ) -> impl Future<Output = Result<u8, FsError>> {
        let _ = (inode, first_byte, end_byte);
        ready(Ok(0))
    }

    /// An inode of a mounted file system was added to the page cache.
    fn inode_added(&self, inode: InodeId, place: Place) {
        let _ = (inode, place);
    }

    /// Writes the blocks that map a file's data, but not the inode, and waits
    /// (`sync_mapping_buffers`).
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_buffers(&self, inode: InodeId) -> impl Future<Output = Result<(), FsError>> {
        let _ = inode;
        ready(Ok(()))
    }

    /// Sets the times of an inode whose contents change through a mapping
    /// (`file_update_time`). Returns whether it has such times.
    fn update_times(&self, inode: InodeId, size_bytes: u64) -> bool {
        let _ = (inode, size_bytes);
        false
    }

    /// Puts an inode's changes into its block, and writes that if `wait` (`write_inode`).
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn write_inode(&self, inode: InodeId, wait: bool) -> impl Future<Output = Result<(), FsError>> {
        let _ = (inode, wait);
        ready(Ok(()))
    }

    /// Puts what changed in memory of a device's file system into its blocks (`sync_fs`).
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_file_system(&self, device: DeviceId) -> impl Future<Output = Result<(), FsError>> {
        let _ = device;
        ready(Ok(()))
    }

    /// The page frame of a cached page, if frames are known. Pages in frames that follow
    /// each other are one segment of a bio.
    fn frame(&self, inode: InodeId, index: u64) -> Option<u64> {
        let _ = (inode, index);
        None
    }

    /// The time in jiffies of 4 ms.
    fn now_jiffies(&self) -> u64 {
        0
    }

    /// A point where another task may run (`cond_resched`).
    fn resched(&self) -> impl Future<Output = ()> {
        ready(())
    }

    /// A throttled dirtier sleeps for this many jiffies.
    fn sleep(&self, jiffies: u64) -> impl Future<Output = ()> {
        let _ = jiffies;
        ready(())
    }

    /// The running task is put to sleep because too much of this device is dirty
    /// (`last_bdp_sleep`).
    fn slows_dirtier(&self, device: DeviceId) {
        let _ = device;
    }

    /// Gives `f` the running task as a dirtier. By default it is always a new task, so that
    /// none is throttled.
    fn with_dirtier(&self, f: impl FnOnce(&mut Dirtier)) {
        f(&mut Dirtier::default());
    }

    /// Sets when a device's flusher must run ([`Vfs::flush`]), in place of any time set
    /// before.
    fn flusher_due(&self, device: DeviceId, due_jiffies: u64) {
        let _ = (device, due_jiffies);
    }

    /// Pages of the machine, or of the memory cgroup, that are not the page cache's: those
    /// of processes and of the kernel itself.
    fn other_pages(&self) -> u64 {
        0
    }

    /// The memory node near to the CPU of the running task, one of [`Memory::Machine`]'s; 0 in
    /// a memory cgroup.
    ///
    /// [`Memory::Machine`]: crate::Memory::Machine
    fn node(&self) -> u8 {
        0
    }

    /// The number of the memory cgroup of the running task; 0 is the root.
    fn memory_group(&self) -> u16 {
        0
    }

    /// Gives `f` what the running task has charged above `memory.high`.
    fn with_over_high(&self, f: impl FnOnce(&mut OverHigh)) {
        f(&mut OverHigh::default());
    }

    /// The running task has written to this many cached pages of another memory node.
    fn wrote_remote_pages(&self, pages: u64) {
        let _ = pages;
    }

    /// The running task has dropped this many pages from the cache.
    fn dropped_pages(&self, pages: u64) {
        let _ = pages;
    }

    /// The running task had a page fault.
    fn faulted(&self, fault: Fault) {
        let _ = fault;
    }

    /// The size of the pages that the running task's buffer is made of: each is one segment of
    /// a direct bio.
    fn buffer_page_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    /// Whether a program's access to a mapped page walks the page table, which sets the
    /// accessed bit; with the translation in the TLB it does not.
    fn walks_page_table(&self, address_page: u64) -> bool {
        let _ = address_page;
        true
    }

    /// Records an event. Bios may end during it, as in an interrupt.
    fn trace(&self, vfs: &Vfs<Self>, event: Event);
}

/// A bio in flight.
#[derive(Debug, Default)]
struct Pending {
    op: Option<Op>,
    /// Empty once it has ended, with memory for those of the next one.
    folios: Vec<FolioId>,
    ended: bool,
    has_failed: bool,
    waker: Option<Waker>,
}

/// Files with their page cache, its write-back and its reclaim.
#[derive(Debug)]
pub struct Vfs<H> {
    host: H,
    pub(crate) cache: RefCell<PageCache>,
    pub(crate) write_back: RefCell<WriteBack>,
    /// The LRU lists; `None` if memory is not limited.
    pub(crate) lru: Option<Box<RefCell<Lru>>>,
    pub(crate) counts: RefCell<CacheCounts>,
    mappings: RefCell<Vec<Weak<Mapping>>>,
    /// How many programs have a block device open.
    pub(crate) device_openers: RefCell<BTreeMap<InodeId, u32>>,
    bios: RefCell<Vec<Pending>>,
    free_bios: RefCell<Vec<u32>>,
    /// Empty lists of folios, which the next bios are filled with.
    spare_lists: RefCell<Vec<Vec<FolioId>>>,
}

impl<H: Host> Vfs<H> {
    /// An empty page cache in 4 GiB of memory.
    pub fn new(host: H) -> Vfs<H> {
        Vfs::with_settings(host, Settings::with_memory(1 << 20))
    }

    /// An empty page cache.
    pub fn with_settings(host: H, settings: Settings) -> Vfs<H> {
        let now = host.now_jiffies();
        Vfs {
            host,
            cache: RefCell::default(),
            write_back: RefCell::new(WriteBack::new(settings, now)),
            lru: None,
            counts: RefCell::default(),
            mappings: RefCell::default(),
            device_openers: RefCell::default(),
            bios: RefCell::default(),
            free_bios: RefCell::default(),
            spare_lists: RefCell::default(),
        }
    }

    /// The same, still empty, with limited memory.
    pub fn limited(self, policy: Policy, memory: Memory) -> Vfs<H> {
        self.limited_in_groups(policy, memory, &[])
    }

    /// The same with memory cgroups, [`MemoryGroup::COUNT_MAX`] at most, each behind its
    /// parent; they are numbered from 1.
    pub fn limited_in_groups(
        mut self,
        policy: Policy,
        memory: Memory,
        groups: &[MemoryGroup],
    ) -> Vfs<H> {
        let settings = self.write_back.borrow().settings;
        let lru = Lru::new(policy, memory, groups, &settings);
        self.lru = Some(Box::new(RefCell::new(lru)));
        let now = self.host.now_jiffies();
        self.write_back.borrow_mut().add_groups(groups.len(), now);
        self
    }

    /// Its surroundings.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Adds a file, which can then be opened.
    pub fn add_inode(&self, inode: Inode) -> InodeId {
        self.cache.borrow_mut().add_inode(inode)
    }

    /// Adds a file whose pages are written to `device`.
    pub fn add_inode_on(&self, inode: Inode, device: DeviceId) -> InodeId {
        let id = self.add_inode(inode);
        let mut write_back = self.write_back.borrow_mut();
        write_back.device(device);
        write_back.inode(id).device = device;
        id
    }

    /// Opens a file.
    pub fn open(&self, inode: InodeId) -> File {
        let cache = self.cache.borrow();
        let file = File::new(inode, &cache.inode(inode).device);
        file.write_errors_seen.set(cache.write_errors(inode));
        file
    }

    /// A file's length in bytes.
    pub fn size_bytes(&self, inode: InodeId) -> u64 {
        self.cache.borrow().inode(inode).size_bytes
    }

    /// Whether an inode is a block device.
    pub fn is_device(&self, inode: InodeId) -> bool {
        self.inode(inode).is_device
    }

    /// How many pages of a file are cached.
    pub fn cached_pages(&self, inode: InodeId) -> u64 {
        self.cache.borrow().cached_pages(inode)
    }

    /// Has the processor prefetch what a call on the byte at `place` will look up, where the
    /// file's tree of pages is too large for its caches.
    #[inline]
    pub fn prefetch(&self, file: &File, place: impl FnOnce() -> Option<u64>) {
        let cache = self.cache.borrow();
        if cache.is_spread_out(file.inode)
            && let Some(pos) = place()
        {
            cache.prefetch(file.inode, pos / PAGE_BYTES);
        }
    }

    /// How many pages of all files are cached.
    pub fn all_cached_pages(&self) -> u64 {
        self.cache.borrow().all_cached_pages()
    }

    pub(crate) fn inode(&self, inode: InodeId) -> Inode {
        *self.cache.borrow().inode(inode)
    }

    #[inline]
    pub(crate) fn trace(&self, event: Event) {
        self.host.trace(self, event);
    }

    /// Adds a locked folio to the cache, unless one of its pages is cached. Other pages may
    /// be evicted for it.
    pub(crate) fn add_folio(
        &self,
        inode: InodeId,
        index: u64,
        order: u32,
        origin: Origin,
    ) -> Option<FolioId> {
        if self.cache.borrow().find(inode, index).is_some() {
            return None;
        }
        self.add_missing(inode, index, order, origin)
    }

    /// The same for a folio whose first page is known not to be cached.
    pub(crate) fn add_missing(
        &self,
        inode: InodeId,
        index: u64,
        order: u32,
        origin: Origin,
    ) -> Option<FolioId> {
        let node = self.charge_pages(1 << order, origin == Origin::Write);
        let group = self.charge_group(1 << order);
        let added = self.cache.borrow_mut().add(inode, index, order);
        let Some(added) = added else {
            self.uncharge_pages(1 << order, node);
            self.uncharge_group(group, 1 << order);
            return None;
        };
        self.trace(Event::Add {
            inode,
            index,
            order,
        });
        if let Some(active) = self.lru_added((added, Lruvec { node, group }), origin) {
            self.trace(Event::Refault {
                inode,
                index,
                active,
            });
        }
        Some(added)
    }

    /// Removes a folio from the cache.
    pub(crate) fn delete_folio(&self, id: FolioId) {
        let (inode, index, order) = {
            let cache = self.cache.borrow();
            (cache.inode_of(id), cache.index(id), cache.order(id))
        };
        if self.cache.borrow().has(id, flag::UNUSED_READAHEAD) {
            self.counts.borrow_mut().readahead_wasted += 1 << order;
        }
        self.cancel_dirty(id);
        self.lru_deleted(id);
        self.cache.borrow_mut().delete(id);
        self.trace(Event::Delete {
            inode,
            index,
            order,
        });
    }

    /// Waits until the folio has none of these flags.
    pub(crate) async fn wait_until_clear(&self, id: FolioId, flags: u16) {
        poll_fn(|context| {
            let mut cache = self.cache.borrow_mut();
            if !cache.has(id, flags) {
                return Poll::Ready(());
            }
            cache.wait(id, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Sends a bio. At its end the folios that it reads are uptodate and unlocked, and the
    /// write-back of those that it writes ends.
    pub(crate) async fn submit(&self, bio: Bio, folios: Vec<FolioId>) -> BioId {
        let id = self.begin_bio(bio.op, folios);
        self.host.submit(self, id, bio).await;
        id
    }

    /// Notes a bio that is about to be submitted.
    pub(crate) fn begin_bio(&self, op: Op, folios: Vec<FolioId>) -> BioId {
        let pending = Pending {
            op: Some(op),
            folios,
            ended: false,
            has_failed: false,
            waker: None,
        };
        let mut bios = self.bios.borrow_mut();
        match self.free_bios.borrow_mut().pop() {
            Some(id) => {
                let before = std::mem::replace(&mut bios[id as usize], pending);
                self.give_list(before.folios);
                BioId(id)
            }
            None => {
                bios.push(pending);
                BioId(bios.len() as u32 - 1)
            }
        }
    }

    /// Notes a bio that is about to be submitted and reads one folio.
    pub(crate) fn begin_single_read(&self, folio: FolioId) -> BioId {
        let free = self.free_bios.borrow_mut().pop();
        let Some(id) = free else {
            return self.begin_bio(Op::Read, vec![folio]);
        };
        let pending = &mut self.bios.borrow_mut()[id as usize];
        pending.op = Some(Op::Read);
        (pending.ended, pending.has_failed, pending.waker) = (false, false, None);
        pending.folios.push(folio);
        BioId(id)
    }

    /// An empty list of folios, with the memory of one that is not needed any more.
    pub(crate) fn take_list(&self) -> Vec<FolioId> {
        self.spare_lists.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the memory of a list of folios for [`Vfs::take_list`].
    pub(crate) fn give_list(&self, mut folios: Vec<FolioId>) {
        if folios.capacity() > 0 {
            folios.clear();
            self.spare_lists.borrow_mut().push(folios);
        }
    }

    /// The inode whose pages a bio in flight reads or writes; `None` for one without pages.
    pub fn inode_of_bio(&self, id: BioId) -> Option<InodeId> {
        let bios = self.bios.borrow();
        let folio = bios[id.0 as usize].folios.first()?;
        Some(self.cache.borrow().inode_of(*folio))
    }

    /// Whether a submitted bio of [`Vfs::begin_read`] is still under way; then whoever made
    /// the read waits for the end of the bio.
    pub fn awaits_read(&self, id: BioId) -> bool {
        !self.bios.borrow()[id.0 as usize].folios.is_empty()
    }

    /// Waits for the end of a bio of [`Vfs::submit`] without folios.
    ///
    /// # Errors
    /// [`FsError::Device`] where it failed.
    pub(crate) async fn bio_end(&self, id: BioId) -> Result<(), FsError> {
        poll_fn(|context| {
            let mut bios = self.bios.borrow_mut();
            let bio = &mut bios[id.0 as usize];
            if bio.ended {
                return Poll::Ready(());
            }
            bio.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.free_bios.borrow_mut().push(id.0);
        match self.bios.borrow()[id.0 as usize].has_failed {
            true => Err(FsError::Device),
            false => Ok(()),
        }
    }

    /// Waits for several bios of [`Vfs::submit`] without folios.
    ///
    /// # Errors
    /// [`FsError::Device`] where one of them failed.
    pub(crate) async fn bios_end(&self, bios: Vec<BioId>) -> Result<(), FsError> {
        let mut done = Ok(());
        for bio in bios {
            done = self.bio_end(bio).await.and(done);
        }
        done
    }

    /// A bio has succeeded.
    pub fn bio_ended(&self, id: BioId) {
        self.end_bio(id, false);
    }

    /// A bio has failed: pages that it read are not uptodate, and the next [`Vfs::fsync`] of
    /// a file that it wrote reports an error.
    pub fn bio_failed(&self, id: BioId) {
        self.end_bio(id, true);
    }

    fn end_bio(&self, id: BioId, has_failed: bool) {
        let (folios, waker) = {
            let mut bios = self.bios.borrow_mut();
            let bio = &mut bios[id.0 as usize];
            bio.ended = true;
            bio.has_failed = has_failed;
            if bio.op == Some(Op::Read) && !bio.folios.is_empty() {
                let mut cache = self.cache.borrow_mut();
                let folios = bio.folios.drain(..);
                folios.for_each(|folio| cache.end_read(folio, has_failed));
                return self.free_bios.borrow_mut().push(id.0);
            }
            (std::mem::take(&mut bio.folios), bio.waker.take())
        };
        if folios.is_empty() {
            // The task that waits for it frees it.
            if let Some(waker) = waker {
                waker.wake();
            }
            return;
        }
        for &folio in &folios {
            if has_failed {
                let inode = self.cache.borrow().inode_of(folio);
                self.cache.borrow_mut().add_write_error(inode);
            }
            self.end_folio_write(folio);
        }
        self.give_list(folios);
        self.free_bios.borrow_mut().push(id.0);
    }

    /// Maps `bytes` of an open file from byte `offset` on at `address` (`mmap`). A fault
    /// also maps the cached pages among `around_pages` around it.
    pub fn map(
        &self,
        file: Rc<File>,
        address: u64,
        offset: u64,
        bytes: u64,
        around_pages: u64,
    ) -> Rc<Mapping> {
        let mapping = Rc::new(Mapping::new(file, address, offset, bytes, around_pages));
        let mut mappings = self.mappings.borrow_mut();
        let weak = Rc::downgrade(&mapping);
        match mappings.iter().position(|other| other.strong_count() == 0) {
            Some(free) => mappings[free] = weak,
            None => mappings.push(weak),
        }
        mapping
    }

    /// The mappings in use, each with a number that stays the same.
    pub(crate) fn live_mappings(&self) -> Vec<(usize, Rc<Mapping>)> {
        let mappings = self.mappings.borrow();
        let live = mappings.iter().enumerate();
        live.filter_map(|(number, weak)| Some((number, weak.upgrade()?)))
            .collect()
    }
}
