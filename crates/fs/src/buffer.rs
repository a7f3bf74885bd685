//! The interface of the buffer cache, through which file systems read and change their
//! own blocks (`fs/buffer.c`).

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::future::ready;
use std::rc::Rc;

use crate::error::FsError;
use crate::file_system::Ino;

/// A cached block of a device (`struct buffer_head`). Clones share the block.
#[derive(Clone, Debug)]
pub struct Buffer {
    block: u64,
    contents: Rc<Contents>,
}

#[derive(Debug)]
struct Contents {
    bytes: RefCell<Box<[u8]>>,
    /// The device's buffer cache has another buffer for the block, or none.
    is_forgotten: Cell<bool>,
}

impl Buffer {
    /// A block by its number, counted in blocks of the length of its contents.
    pub fn new(block: u64, contents: Box<[u8]>) -> Buffer {
        let contents = Contents {
            bytes: RefCell::new(contents),
            is_forgotten: Cell::new(false),
        };
        Buffer {
            block,
            contents: Rc::new(contents),
        }
    }

    /// Its number on the device.
    pub const fn block(&self) -> u64 {
        self.block
    }

    /// Its contents. A borrow must not be held across an `await`, as a spin lock must not.
    pub fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.contents.bytes.borrow(), |bytes| &**bytes)
    }

    /// Its contents, to be changed; the change counts after [`Buffers::mark_dirty`].
    pub fn bytes_mut(&self) -> RefMut<'_, [u8]> {
        RefMut::map(self.contents.bytes.borrow_mut(), |bytes| &mut **bytes)
    }

    /// Notes that its cache does not hold it any more.
    pub(crate) fn forget(&self) {
        self.contents.is_forgotten.set(true);
    }

    /// Whether its cache does not hold it any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.contents.is_forgotten.get()
    }

    /// Whether anything besides one cache holds it.
    pub fn is_shared(&self) -> bool {
        Rc::strong_count(&self.contents) > 1
    }

    /// The device's byte at `offset` of the block.
    pub fn byte(&self, offset: usize) -> u64 {
        self.block * self.bytes().len() as u64 + offset as u64
    }

    /// The error that the field at `offset` is wrong.
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

/// A block device with a buffer cache.
///
/// A file system changes a [`Buffer`] and marks it dirty without an `await` in between,
/// so that other tasks never see half a change.
pub trait Buffers {
    /// The device's length in bytes.
    fn size_bytes(&self) -> u64;

    /// Sets the block size (`sb_set_blocksize`). Cached blocks of another size are written
    /// and dropped.
    fn set_block_bytes(&self, block_bytes: u32) -> impl Future<Output = Result<(), FsError>>;

    /// A block, which is read if it is not cached (`sb_bread`).
    ///
    /// # Errors
    /// [`FsError::Device`] where it cannot be read or is after the end of the device.
    fn bread(&self, block: u64) -> impl Future<Output = Result<Buffer, FsError>>;

    /// Whether a buffer that [`Buffers::bread`] gave is still that of its block, and is
    /// cached: then it need not be asked for again. It counts as asked for.
    fn is_current(&self, buffer: &Buffer) -> bool {
        let _ = buffer;
        false
    }

    /// Whether buffers may be kept for [`Buffers::is_current`].
    fn keeps_buffers(&self) -> bool {
        false
    }

    /// A block filled with zeroes, which is not read (`sb_getblk`).
    ///
    /// # Errors
    /// [`FsError::Device`] after the end of the device.
    fn zeroed(&self, block: u64) -> Result<Buffer, FsError>;

    /// Fills blocks of the device with zeroes (`blkdev_issue_zeroout`).
    ///
    /// # Errors
    /// [`FsError::Device`] where they cannot be written.
    fn clear(&self, block: u64, blocks: u64) -> Result<(), FsError>;

    /// Marks a changed buffer dirty. With `of`, an `fsync` of that inode writes it
    /// (`mark_buffer_dirty_inode`).
    fn mark_dirty(&self, buffer: &Buffer, of: Option<Ino>);

    /// Drops blocks that the file system no longer uses for itself; changes of them are
    /// not written (`bforget`, `clean_bdev_aliases`).
    fn forget(&self, block: u64, blocks: u64);

    /// Starts to read a block that will be needed soon (`sb_breadahead`).
    fn read_ahead(&self, block: u64) -> impl Future<Output = ()> {
        let _ = block;
        ready(())
    }

    /// Writes a buffer, if it is dirty, and waits (`sync_dirty_buffer`). An image does
    /// nothing, as it is written as a whole later.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_buffer(&self, buffer: &Buffer) -> impl Future<Output = Result<(), FsError>> {
        let _ = buffer;
        ready(Ok(()))
    }

    /// Writes the buffers that were marked dirty with this inode, and waits
    /// (`sync_mapping_buffers`). An image does nothing, as it is written as a whole later.
    ///
    /// # Errors
    /// [`FsError::Device`].
    fn sync_of(&self, ino: Ino) -> impl Future<Output = Result<(), FsError>> {
        let _ = ino;
        ready(Ok(()))
    }
}
