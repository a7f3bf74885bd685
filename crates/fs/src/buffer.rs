//! The buffer cache as file systems use it for their own structures
//! (`fs/buffer.c`): blocks with their contents, read when they are first asked for
//! and written when somebody writes out what is dirty.

use std::cell::{Ref, RefCell, RefMut};
use std::future::ready;
use std::rc::Rc;

use crate::error::FsError;
use crate::file_system::Ino;

/// A cached block of a device. Clones are the same block.
#[derive(Clone, Debug)]
pub struct Buffer {
    block: u64,
    contents: Rc<RefCell<Box<[u8]>>>,
}

impl Buffer {
    /// The block with that number, counted in blocks of the length of its contents.
    pub fn new(block: u64, contents: Box<[u8]>) -> Buffer {
        Buffer {
            block,
            contents: Rc::new(RefCell::new(contents)),
        }
    }

    /// Its number on the device.
    pub const fn block(&self) -> u64 {
        self.block
    }

    /// What it holds. Borrowed only between two waits, as under a spin lock.
    pub fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.contents.borrow(), |contents| &**contents)
    }

    /// What it holds, to be changed; [`Buffers::mark_dirty`] tells the cache.
    pub fn bytes_mut(&self) -> RefMut<'_, [u8]> {
        RefMut::map(self.contents.borrow_mut(), |contents| &mut **contents)
    }

    /// Whether somebody beside one cache holds it.
    pub fn is_shared(&self) -> bool {
        Rc::strong_count(&self.contents) > 1
    }

    /// Where byte `offset` of it lies on the device.
    pub fn byte(&self, offset: usize) -> u64 {
        self.block * self.bytes().len() as u64 + offset as u64
    }

    /// That something of it is broken.
    pub fn corrupt(&self, offset: usize, what: &'static str, found: impl Into<u64>) -> FsError {
        FsError::Corrupt {
            byte: self.byte(offset),
            what,
            found: found.into(),
        }
    }

    /// The little-endian number at `offset`.
    pub fn u16_at(&self, offset: usize) -> u16 {
        let bytes = self.bytes();
        u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
    }

    /// The little-endian number at `offset`.
    pub fn u32_at(&self, offset: usize) -> u32 {
        u32::from(self.u16_at(offset)) | u32::from(self.u16_at(offset + 2)) << 16
    }

    /// Puts a little-endian number at `offset`.
    pub fn set_u16(&self, offset: usize, value: u16) {
        self.bytes_mut()[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
    }

    /// Puts a little-endian number at `offset`.
    pub fn set_u32(&self, offset: usize, value: u32) {
        self.bytes_mut()[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// A block device through its buffer cache.
///
/// A file system changes a [`Buffer`] between two waits and marks it dirty at once,
/// so that tasks which share it see whole changes.
pub trait Buffers {
    /// The device's length in bytes.
    fn size_bytes(&self) -> u64;

    /// From now on blocks have this length (`sb_set_blocksize`). What was cached in
    /// blocks of another length is written out and dropped.
    fn set_block_bytes(&self, block_bytes: u32) -> impl Future<Output = Result<(), FsError>>;

    /// The block with its contents; waits until it is read (`sb_bread`).
    ///
    /// # Errors
    /// [`FsError::Device`] where it cannot be read or lies behind the end.
    fn bread(&self, block: u64) -> impl Future<Output = Result<Buffer, FsError>>;

    /// The block filled with zeroes, without reading it (`sb_getblk`).
    ///
    /// # Errors
    /// [`FsError::Device`] behind the end of the device.
    fn zeroed(&self, block: u64) -> Result<Buffer, FsError>;

    /// These blocks hold zeroes from now on (`blkdev_issue_zeroout`).
    ///
    /// # Errors
    /// [`FsError::Device`] where they cannot be written.
    fn clear(&self, block: u64, blocks: u64) -> Result<(), FsError>;

    /// The buffer was changed. A change that an `fsync` of one inode must write is
    /// told with it (`mark_buffer_dirty_inode`).
    fn mark_dirty(&self, buffer: &Buffer, of: Option<Ino>);

    /// Blocks that hold no structure of the file system any more: a change of them is
    /// not written (`bforget`, `clean_bdev_aliases`).
    fn forget(&self, block: u64, blocks: u64);

    /// Asks for a block that will be read soon, without waiting for it
    /// (`sb_breadahead`).
    fn read_ahead(&self, block: u64) -> impl Future<Output = ()> {
        let _ = block;
        ready(())
    }

    /// Writes a buffer if it is dirty, and waits for that (`sync_dirty_buffer`). An
    /// image is written as a whole later.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_buffer(&self, buffer: &Buffer) -> impl Future<Output = Result<(), FsError>> {
        let _ = buffer;
        ready(Ok(()))
    }

    /// Writes the changes that were told with this inode, and waits for that
    /// (`sync_mapping_buffers`). An image is written as a whole later.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_of(&self, ino: Ino) -> impl Future<Output = Result<(), FsError>> {
        let _ = ino;
        ready(Ok(()))
    }
}
