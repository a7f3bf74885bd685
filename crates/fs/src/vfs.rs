//! The page cache with its files, and bios under way.

mod dentry;
mod namespace;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::{poll_fn, ready};
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use blklab_blk::Op;

use crate::bio::{Bio, BioId};
use crate::counts::CacheCounts;
use crate::error::FsError;
use crate::event::Event;
use crate::fault::Mapping;
use crate::inode::{Extent, File, Inode, InodeId};
use crate::page_cache::{FolioId, PageCache, flag};
use crate::reclaim::{Lru, Memory, Origin, Policy};
use crate::write_back::{DeviceId, Dirtier, Settings, WriteBack};

pub use dentry::{DentryCounts, Place};
pub use namespace::{MountedOn, Namespace, OpenFile, OpenFlags};

/// What files stand on: a block layer, and maps from files to their device.
pub trait Host: Sized {
    /// Takes a bio; its end is told to [`Vfs::bio_ended`]. Waits where the
    /// submitter would, for a tag.
    fn submit(&self, vfs: &Vfs<Self>, id: BioId, bio: Bio) -> impl Future<Output = ()>;

    /// Where `byte` of a file is, and `bytes` behind it at most. What cannot be found
    /// out is a hole.
    fn extent(&self, inode: InodeId, byte: u64, bytes: u64) -> impl Future<Output = Extent>;

    /// Sees to it that the bytes of one page of a file that are about to be written
    /// have their place (`get_block`). Returns how many of the blocks that they touch
    /// are new, a bit for each block of the page: what those hold is not the file's.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], and where the file's map cannot be read.
    fn allocate(
        &self,
        inode: InodeId,
        first_byte: u64,
        end_byte: u64,
    ) -> impl Future<Output = Result<u8, FsError>> {
        let _ = (inode, first_byte, end_byte);
        ready(Ok(0))
    }

    /// The page cache holds pages of an inode of a mounted file system from now on.
    fn inode_added(&self, inode: InodeId, place: Place) {
        let _ = (inode, place);
    }

    /// Writes what is needed to find a file's data, but not the inode, and waits for
    /// it (`sync_mapping_buffers`).
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_buffers(&self, inode: InodeId) -> impl Future<Output = Result<(), FsError>> {
        let _ = inode;
        ready(Ok(()))
    }

    /// Puts an inode into its block, and writes that if somebody waits
    /// (`write_inode`).
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn write_inode(&self, inode: InodeId, wait: bool) -> impl Future<Output = Result<(), FsError>> {
        let _ = (inode, wait);
        ready(Ok(()))
    }

    /// Puts what the file system of a device has in memory alone into its blocks
    /// (`sync_fs`).
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_file_system(&self, device: DeviceId) -> impl Future<Output = Result<(), FsError>> {
        let _ = device;
        ready(Ok(()))
    }

    /// The page frame that a cached page is in, where that is known. Pages in frames
    /// that follow each other are one segment of a bio.
    fn frame(&self, inode: InodeId, index: u64) -> Option<u64> {
        let _ = (inode, index);
        None
    }

    /// The time in jiffies of 4 ms.
    fn now_jiffies(&self) -> u64 {
        0
    }

    /// A place where another task may run (`cond_resched`).
    fn resched(&self) -> impl Future<Output = ()> {
        ready(())
    }

    /// A task that dirtied too many pages sleeps for so many jiffies.
    fn sleep(&self, jiffies: u64) -> impl Future<Output = ()> {
        let _ = jiffies;
        ready(())
    }

    /// What is remembered of the task that runs. Without it no writer is slowed
    /// down.
    fn with_dirtier(&self, look: impl FnOnce(&mut Dirtier)) {
        look(&mut Dirtier::default());
    }

    /// A device's flusher has to run at `due_jiffies` ([`Vfs::flush`]), not at a
    /// time told before.
    fn flusher_due(&self, device: DeviceId, due_jiffies: u64) {
        let _ = (device, due_jiffies);
    }
    /// Pages of the machine, or of the memory cgroup, that are not the cache's: of
    /// processes, and of the kernel for itself.
    fn other_pages(&self) -> u64 {
        0
    }

    /// Whether a program's access to a mapped page goes through its page table, where
    /// it leaves the accessed bit: not while the CPU has the translation in its TLB.
    fn walks_page_table(&self, address_page: u64) -> bool {
        let _ = address_page;
        true
    }

    /// A step that can be traced. Bios may end in it, as in an interrupt.
    fn trace(&self, vfs: &Vfs<Self>, event: Event);
}

/// A bio under way.
#[derive(Debug, Default)]
struct Pending {
    op: Option<Op>,
    folios: Vec<FolioId>,
    ended: bool,
    has_failed: bool,
    waker: Option<Waker>,
}

/// Open files over a page cache.
#[derive(Debug)]
pub struct Vfs<H> {
    host: H,
    pub(crate) cache: RefCell<PageCache>,
    pub(crate) write_back: RefCell<WriteBack>,
    /// Lists of cached pages, where memory is limited.
    pub(crate) lru: Option<Box<RefCell<Lru>>>,
    pub(crate) counts: RefCell<CacheCounts>,
    mappings: RefCell<Vec<Weak<Mapping>>>,
    bios: RefCell<Vec<Pending>>,
    free_bios: RefCell<Vec<u32>>,
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
            bios: RefCell::default(),
            free_bios: RefCell::default(),
        }
    }

    /// The same, still empty, in memory that may be short.
    pub fn limited(mut self, policy: Policy, memory: Memory) -> Vfs<H> {
        self.lru = Some(Box::new(RefCell::new(Lru::new(policy, memory))));
        self
    }

    /// What it stands on.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// A file that may be opened.
    pub fn add_inode(&self, inode: Inode) -> InodeId {
        self.cache.borrow_mut().add_inode(inode)
    }

    /// The same of a file whose pages are written to that device.
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

    /// How many pages of a file are cached.
    pub fn cached_pages(&self, inode: InodeId) -> u64 {
        self.cache.borrow().cached_pages(inode)
    }

    pub(crate) fn inode(&self, inode: InodeId) -> Inode {
        *self.cache.borrow().inode(inode)
    }

    pub(crate) fn trace(&self, event: Event) {
        self.host.trace(self, event);
    }

    /// Adds a locked folio to the cache, unless a page of it is there. Other pages may
    /// have to go for it.
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
        self.charge_pages(1 << order);
        let added = self.cache.borrow_mut().add(inode, index, order)?;
        self.trace(Event::Add {
            inode,
            index,
            order,
        });
        if let Some(active) = self.lru_added(added, origin) {
            self.trace(Event::Refault {
                inode,
                index,
                active,
            });
        }
        Some(added)
    }

    /// Takes a folio out of the cache.
    pub(crate) fn delete_folio(&self, id: FolioId) {
        let (inode, index, order) = {
            let cache = self.cache.borrow();
            (cache.inode_of(id), cache.index(id), cache.order(id))
        };
        if self.cache.borrow().has(id, flag::AHEAD) {
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

    /// Waits until the folio has none of these states.
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

    /// Sends a bio for these folios. A read ends with them uptodate and unlocked,
    /// a write with their write-back over.
    pub(crate) async fn submit(&self, bio: Bio, folios: Vec<FolioId>) -> BioId {
        let pending = Pending {
            op: Some(bio.op),
            folios,
            ended: false,
            has_failed: false,
            waker: None,
        };
        let free = self.free_bios.borrow_mut().pop();
        let id = match free {
            Some(id) => {
                self.bios.borrow_mut()[id as usize] = pending;
                BioId(id)
            }
            None => {
                self.bios.borrow_mut().push(pending);
                BioId(self.bios.borrow().len() as u32 - 1)
            }
        };
        self.host.submit(self, id, bio).await;
        id
    }

    /// The inode whose pages a bio under way has; none of one without pages.
    pub fn inode_of_bio(&self, id: BioId) -> Option<InodeId> {
        let bios = self.bios.borrow();
        let folio = bios[id.0 as usize].folios.first()?;
        Some(self.cache.borrow().inode_of(*folio))
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

    /// A bio has ended well.
    pub fn bio_ended(&self, id: BioId) {
        self.end_bio(id, false);
    }

    /// A bio has failed: pages that it should read are not uptodate, and who writes
    /// their file is told of those that it should write ([`Vfs::fsync`]).
    pub fn bio_failed(&self, id: BioId) {
        self.end_bio(id, true);
    }

    fn end_bio(&self, id: BioId, has_failed: bool) {
        let (op, folios, waker) = {
            let mut bios = self.bios.borrow_mut();
            let bio = &mut bios[id.0 as usize];
            bio.ended = true;
            bio.has_failed = has_failed;
            (bio.op, std::mem::take(&mut bio.folios), bio.waker.take())
        };
        if folios.is_empty() {
            // Whoever waits for it frees it.
            if let Some(waker) = waker {
                waker.wake();
            }
            return;
        }
        for folio in folios {
            if op == Some(Op::Read) {
                self.cache.borrow_mut().end_read(folio, has_failed);
            } else {
                if has_failed {
                    let inode = self.cache.borrow().inode_of(folio);
                    self.cache.borrow_mut().add_write_error(inode);
                }
                self.end_folio_write(folio);
            }
        }
        self.free_bios.borrow_mut().push(id.0);
    }

    /// Maps `bytes` of an open file from byte `offset` on at `address`; a fault maps
    /// `around_pages` of what is cached around it.
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

    /// The mappings that there are, each with a number that it keeps.
    pub(crate) fn live_mappings(&self) -> Vec<(usize, Rc<Mapping>)> {
        let mappings = self.mappings.borrow();
        let live = mappings.iter().enumerate();
        live.filter_map(|(number, weak)| Some((number, weak.upgrade()?)))
            .collect()
    }
}
