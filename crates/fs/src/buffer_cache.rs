//! The buffer cache of a mounted file system. Its blocks are in the pages of its device:
//! they are read and written by bios, and evicted like other pages (`fs/buffer.c`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use blklab_blk::{BioFlags, Op};

use crate::PAGE_BYTES;
use crate::bio::{Bio, BioId};
use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::Ino;
use crate::image::Storage;
use crate::inode::InodeId;
use crate::page_cache::{FolioId, flag};
use crate::reclaim::Origin;
use crate::vfs::{Host, Vfs};

/// A block that is being read.
#[derive(Debug)]
enum Reading {
    /// It is read ahead, and no task waits for it yet.
    Ahead(BioId),
    /// A task reads it, and these wait.
    Waited(Vec<Waker>),
}

/// A device's buffer cache.
///
/// The page cache decides whether a block must be read and when it is written. Pages have
/// no contents there, so those of the file system's blocks are kept here, also while their
/// page is evicted.
#[derive(Debug)]
pub struct BufferCache<H, S> {
    vfs: Weak<Vfs<H>>,
    device: InodeId,
    storage: S,
    size_bytes: u64,
    block_bytes: Cell<u32>,
    buffers: RefCell<BTreeMap<u64, Buffer>>,
    /// By inode, the blocks that its `fsync` must write.
    changed: RefCell<BTreeMap<Ino, BTreeSet<u64>>>,
    /// The one that was added there last.
    changed_last: Cell<Option<(Ino, u64)>>,
    reading: RefCell<BTreeMap<u64, Reading>>,
    counts: Cell<BufferCounts>,
}

/// How often blocks were needed and transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferCounts {
    /// Blocks that were asked for.
    pub lookups: u64,
    /// Blocks that had to be read.
    pub reads: u64,
    /// Bios that wrote blocks.
    pub writes: u64,
}

impl<H: Host, S: Storage> BufferCache<H, S> {
    /// The buffer cache of `device`, whose pages are in `vfs`. `storage` holds the device's
    /// contents.
    ///
    /// # Errors
    /// [`FsError::Device`] where the length of the storage cannot be read.
    pub fn new(
        vfs: &Rc<Vfs<H>>,
        device: InodeId,
        storage: S,
    ) -> Result<BufferCache<H, S>, FsError> {
        Ok(BufferCache {
            vfs: Rc::downgrade(vfs),
            device,
            size_bytes: storage.size_bytes().map_err(|_| FsError::Device)?,
            storage,
            block_bytes: Cell::new(512),
            buffers: RefCell::default(),
            changed: RefCell::default(),
            changed_last: Cell::default(),
            reading: RefCell::default(),
            counts: Cell::default(),
        })
    }

    /// The device's pages.
    pub fn device(&self) -> InodeId {
        self.device
    }

    /// The device's contents, as far as blocks were written.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// The counts since the last call.
    pub fn take_counts(&self) -> BufferCounts {
        self.counts.take()
    }

    /// The counts so far.
    pub fn counts(&self) -> BufferCounts {
        self.counts.get()
    }

    fn count(&self, count: impl FnOnce(&mut BufferCounts)) {
        let mut counts = self.counts.get();
        count(&mut counts);
        self.counts.set(counts);
    }

    /// Copies the file system's blocks among these bytes to the storage, because a bio
    /// writes them.
    ///
    /// # Errors
    /// [`FsError::Device`] where the storage cannot be written.
    pub fn written(&self, byte: u64, bytes: u64) -> Result<(), FsError> {
        let block_bytes = u64::from(self.block_bytes.get());
        let (first, end) = (byte / block_bytes, (byte + bytes).div_ceil(block_bytes));
        let buffers = self.buffers.borrow();
        let mut any = false;
        for (block, buffer) in buffers.range(first..end) {
            let stored = self.storage.write_at(block * block_bytes, &buffer.bytes());
            stored.map_err(|_| FsError::Device)?;
            any = true;
        }
        if any {
            self.count(|counts| counts.writes += 1);
        }
        Ok(())
    }

    fn vfs(&self) -> Result<Rc<Vfs<H>>, FsError> {
        self.vfs.upgrade().ok_or(FsError::Device)
    }

    /// A block's first byte on the device, and its length.
    fn place(&self, block: u64) -> Result<(u64, u64), FsError> {
        let bytes = u64::from(self.block_bytes.get());
        match block < self.size_bytes / bytes {
            true => Ok((block * bytes, bytes)),
            false => Err(FsError::Device),
        }
    }

    /// A block with its contents, which are read from the storage the first time.
    fn contents(&self, block: u64, is_zeroed: bool) -> Result<Buffer, FsError> {
        let (byte, bytes) = self.place(block)?;
        if let Some(buffer) = self.buffers.borrow().get(&block) {
            if is_zeroed {
                buffer.bytes_mut().fill(0);
            }
            return Ok(buffer.clone());
        }
        let mut contents = vec![0; bytes as usize].into_boxed_slice();
        if !is_zeroed {
            let read = self.storage.read_at(byte, &mut contents);
            read.map_err(|_| FsError::Device)?;
        }
        let buffer = Buffer::new(block, contents);
        self.buffers.borrow_mut().insert(block, buffer.clone());
        Ok(buffer)
    }

    /// Whether this caller must read a block. If another task reads it already, waits for
    /// that task and returns `false`.
    async fn begin_reading(&self, block: u64) -> Result<bool, FsError> {
        if let Some(Reading::Ahead(bio)) = self.take_ahead(block) {
            let read = self.vfs()?.bio_end(bio).await;
            return self.end_reading(block, read).map(|()| false);
        }
        let mut has_waited = false;
        poll_fn(|context| {
            let mut reading = self.reading.borrow_mut();
            let Some(Reading::Waited(waiters)) = reading.get_mut(&block) else {
                return Poll::Ready(());
            };
            waiters.push(context.waker().clone());
            has_waited = true;
            Poll::Pending
        })
        .await;
        if !has_waited {
            self.reading
                .borrow_mut()
                .insert(block, Reading::Waited(Vec::new()));
        }
        Ok(!has_waited)
    }

    /// Takes a block's read ahead, which the caller then waits for in place of its bio's
    /// end.
    fn take_ahead(&self, block: u64) -> Option<Reading> {
        let mut reading = self.reading.borrow_mut();
        let is_ahead = matches!(reading.get(&block), Some(Reading::Ahead(_)));
        is_ahead
            .then(|| reading.insert(block, Reading::Waited(Vec::new())))
            .flatten()
    }

    fn end_reading(&self, block: u64, read: Result<(), FsError>) -> Result<(), FsError> {
        let waited = self.reading.borrow_mut().remove(&block);
        if let Some(Reading::Waited(waiters)) = waited {
            waiters.into_iter().for_each(Waker::wake);
        }
        let (byte, bytes) = self.place(block)?;
        if read.is_ok() {
            self.vfs()?.set_block_uptodate(self.device, byte, bytes);
        }
        read
    }

    /// Begins to write a block if it is dirty.
    async fn write(&self, block: u64) -> Result<Option<BioId>, FsError> {
        let (byte, bytes) = self.place(block)?;
        let vfs = self.vfs()?;
        if !vfs.clear_block_dirty(self.device, byte, bytes) {
            return Ok(None);
        }
        let bio = Bio::data(Op::Write, BioFlags::SYNC, byte / 512, bytes);
        Ok(Some(vfs.submit(bio, Vec::new()).await))
    }
}

impl<H: Host, S: Storage> Buffers for BufferCache<H, S> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    async fn set_block_bytes(&self, block_bytes: u32) -> Result<(), FsError> {
        if self.block_bytes.get() != block_bytes {
            self.vfs()?.flush_buffers(self.device).await;
            self.vfs()?.set_block_bytes(self.device, block_bytes.into());
            let forgotten = self.buffers.take();
            forgotten.values().for_each(Buffer::forget);
            self.block_bytes.set(block_bytes);
        }
        Ok(())
    }

    async fn bread(&self, block: u64) -> Result<Buffer, FsError> {
        let (byte, bytes) = self.place(block)?;
        let vfs = self.vfs()?;
        self.count(|counts| counts.lookups += 1);
        while !vfs.is_block_uptodate(self.device, byte, bytes) {
            if !self.begin_reading(block).await? {
                continue;
            }
            self.count(|counts| counts.reads += 1);
            let bio = Bio::data(Op::Read, BioFlags::NONE, byte / 512, bytes);
            let bio = vfs.submit(bio, Vec::new()).await;
            let read = vfs.bio_end(bio).await;
            self.end_reading(block, read)?;
        }
        self.contents(block, false)
    }

    fn is_current(&self, buffer: &Buffer) -> bool {
        let (Ok((byte, bytes)), Ok(vfs)) = (self.place(buffer.block()), self.vfs()) else {
            return false;
        };
        let is_current = !buffer.is_forgotten() && vfs.is_block_uptodate(self.device, byte, bytes);
        self.count(|counts| counts.lookups += u64::from(is_current));
        is_current
    }

    fn keeps_buffers(&self) -> bool {
        true
    }

    fn zeroed(&self, block: u64) -> Result<Buffer, FsError> {
        let (byte, bytes) = self.place(block)?;
        self.vfs()?.set_block_uptodate(self.device, byte, bytes);
        self.contents(block, true)
    }

    fn clear(&self, block: u64, blocks: u64) -> Result<(), FsError> {
        self.forget(block, blocks);
        let bytes = u64::from(self.block_bytes.get());
        let cleared = self.storage.clear_at(block * bytes, blocks * bytes);
        cleared.map_err(|_| FsError::Device)
    }

    fn mark_dirty(&self, buffer: &Buffer, of: Option<Ino>) {
        let (Ok(vfs), Ok((byte, bytes))) = (self.vfs(), self.place(buffer.block())) else {
            return;
        };
        vfs.mark_block_dirty(self.device, byte, bytes);
        let changed = of.map(|ino| (ino, buffer.block()));
        if let Some((ino, block)) = changed
            && self.changed_last.replace(changed) != changed
        {
            let mut changed = self.changed.borrow_mut();
            changed.entry(ino).or_default().insert(block);
        }
    }

    fn forget(&self, block: u64, blocks: u64) {
        let end = block.saturating_add(blocks);
        let forgotten = {
            let buffers = self.buffers.borrow();
            let blocks = buffers.range(block..end).map(|(&block, _)| block);
            Vec::from_iter(blocks)
        };
        for block in &forgotten {
            let buffer = self.buffers.borrow_mut().remove(block);
            if let Some(buffer) = buffer {
                buffer.forget();
            }
        }
        if let (Ok(vfs), false) = (self.vfs(), forgotten.is_empty()) {
            for block in forgotten {
                let bytes = u64::from(self.block_bytes.get());
                vfs.clear_block_dirty(self.device, block * bytes, bytes);
            }
        }
    }

    async fn read_ahead(&self, block: u64) {
        let (Ok(vfs), Ok((byte, bytes))) = (self.vfs(), self.place(block)) else {
            return;
        };
        let is_known = vfs.is_block_uptodate(self.device, byte, bytes)
            || self.reading.borrow().contains_key(&block);
        if is_known {
            return;
        }
        self.count(|counts| counts.reads += 1);
        // Tasks that need the block while the bio is submitted wait for it.
        (self.reading.borrow_mut()).insert(block, Reading::Waited(Vec::new()));
        let bio = Bio::data(Op::Read, BioFlags::RAHEAD, byte / 512, bytes);
        let bio = vfs.submit(bio, Vec::new()).await;
        let found = (self.reading.borrow_mut()).insert(block, Reading::Ahead(bio));
        if let Some(Reading::Waited(waiters)) = found {
            waiters.into_iter().for_each(Waker::wake);
        }
    }

    async fn sync_buffer(&self, buffer: &Buffer) -> Result<(), FsError> {
        match self.write(buffer.block()).await? {
            Some(bio) => self.vfs()?.bio_end(bio).await,
            None => Ok(()),
        }
    }

    async fn sync_of(&self, ino: Ino) -> Result<(), FsError> {
        self.changed_last.set(None);
        let blocks = self.changed.borrow_mut().remove(&ino).unwrap_or_default();
        let mut under_way = Vec::new();
        let mut done = Ok(());
        for block in blocks {
            match self.write(block).await {
                Ok(bio) => under_way.extend(bio),
                Err(error) => done = Err(error),
            }
        }
        self.vfs()?.bios_end(under_way).await.and(done)
    }
}

/// The state of a device's blocks in its pages.
impl<H: Host> Vfs<H> {
    fn set_block_bytes(&self, device: InodeId, block_bytes: u64) {
        self.cache.borrow_mut().inode_mut(device).block_bytes = block_bytes;
    }

    /// Whether a block is cached, which counts as an access of its page (`touch_buffer`).
    fn is_block_uptodate(&self, device: InodeId, byte: u64, bytes: u64) -> bool {
        let blocks = self.inode(device).blocks(byte, byte + bytes);
        let found = self.cache.borrow().find(device, byte / PAGE_BYTES);
        let Some(folio) = found else {
            return false;
        };
        let is_uptodate = self.cache.borrow().uptodate_blocks(folio) & blocks == blocks;
        if is_uptodate {
            self.mark_accessed(&mut self.cache.borrow_mut(), folio);
        }
        is_uptodate
    }

    /// Marks a block uptodate.
    fn set_block_uptodate(&self, device: InodeId, byte: u64, bytes: u64) {
        let of = self.inode(device);
        let index = byte / PAGE_BYTES;
        let all = of.blocks(index * PAGE_BYTES, (index + 1) * PAGE_BYTES);
        if let Some(folio) = self.block_page(device, index) {
            let blocks = of.blocks(byte, byte + bytes);
            let mut cache = self.cache.borrow_mut();
            cache.set_blocks_uptodate(folio, blocks, all);
        }
    }

    /// The folio of a block, which is added if it is not cached (`grow_dev_folio`).
    fn block_page(&self, device: InodeId, index: u64) -> Option<FolioId> {
        let found = self.cache.borrow().find(device, index);
        found.or_else(|| {
            let folio = self.add_folio(device, index, 0, Origin::Read)?;
            self.cache.borrow_mut().clear(folio, flag::LOCKED);
            Some(folio)
        })
    }

    /// Marks a block dirty (`mark_buffer_dirty`).
    fn mark_block_dirty(&self, device: InodeId, byte: u64, bytes: u64) {
        let blocks = self.inode(device).blocks(byte, byte + bytes);
        let find = || self.cache.borrow().find(device, byte / PAGE_BYTES);
        let is_uptodate =
            |folio: &FolioId| self.cache.borrow().uptodate_blocks(*folio) & blocks == blocks;
        let found = find().filter(is_uptodate).or_else(|| {
            self.set_block_uptodate(device, byte, bytes);
            find()
        });
        if let Some(folio) = found {
            self.mark_folio_dirty(folio, blocks);
        }
    }

    /// Marks the blocks of a range clean, because a file system writes them itself
    /// (`sync_dirty_buffer`).
    pub fn buffers_written(&self, device: InodeId, byte: u64, bytes: u64) {
        let mut at = byte;
        while at < byte + bytes {
            let end = (byte + bytes).min((at / PAGE_BYTES + 1) * PAGE_BYTES);
            self.clear_block_dirty(device, at, end - at);
            at = end;
        }
    }

    /// Marks a block clean, because the caller writes it or it need not be written. Its page
    /// stays dirty, also without dirty blocks: the flusher then finds nothing in it to write
    /// (`__block_write_full_folio`). Whether the block was dirty.
    fn clear_block_dirty(&self, device: InodeId, byte: u64, bytes: u64) -> bool {
        let found = self.cache.borrow().find(device, byte / PAGE_BYTES);
        let Some(folio) = found else {
            return false;
        };
        let blocks = self.inode(device).blocks(byte, byte + bytes);
        self.cache.borrow_mut().clean_blocks(folio, blocks)
    }
}
