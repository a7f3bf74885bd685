//! Images of file systems: a file, or memory, in place of a block device. No call on an
//! image waits.

mod sparse;
mod strings;
mod volume;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::Ino;

pub use sparse::SparseDisk;
pub use volume::{FileExtent, Volume};

/// Blocks in the cache above which clean ones are dropped: 64 MiB of 1 KiB each.
const CLEAN_BLOCKS_MAX: usize = 1 << 16;

/// Bytes that are cleared at once.
const CLEARED_BYTES: u64 = 4096;

/// The bytes of an image.
pub trait Storage {
    /// Their number.
    ///
    /// # Errors
    /// Those of the operating system, as for all calls below.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Fills `into` from `byte` on.
    ///
    /// # Errors
    /// As above, and if the image ends before.
    fn read_at(&self, byte: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `from` at `byte`.
    ///
    /// # Errors
    /// As above.
    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()>;

    /// Fills a range with zeroes. Parts that hold only zeroes are not written, so that a
    /// hole of a sparse image stays one.
    ///
    /// # Errors
    /// As above.
    fn clear_at(&self, byte: u64, bytes: u64) -> io::Result<()> {
        let mut found = vec![0; CLEARED_BYTES.min(bytes) as usize];
        let zeroes = found.clone();
        for at in (byte..byte + bytes).step_by(CLEARED_BYTES as usize) {
            let length = CLEARED_BYTES.min(byte + bytes - at) as usize;
            self.read_at(at, &mut found[..length])?;
            if found[..length] != zeroes[..length] {
                self.write_at(at, &zeroes[..length])?;
            }
        }
        Ok(())
    }

    /// Makes all writes so far durable.
    ///
    /// # Errors
    /// As above.
    fn flush(&self) -> io::Result<()>;
}

impl Storage for File {
    fn size_bytes(&self) -> io::Result<u64> {
        // A block device's metadata has length 0, but seeking finds its end.
        use std::io::{Seek, SeekFrom};
        let mut file = self;
        file.seek(SeekFrom::End(0))
    }

    fn read_at(&self, byte: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, byte)
    }

    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()> {
        self.write_all_at(from, byte)
    }

    fn flush(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// An image in memory.
impl Storage for RefCell<Vec<u8>> {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.borrow().len() as u64)
    }

    fn read_at(&self, byte: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = self.borrow();
        let from = usize::try_from(byte)
            .ok()
            .and_then(|byte| bytes.get(byte..));
        let from = from.and_then(|from| from.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()> {
        let mut bytes = self.borrow_mut();
        let into = usize::try_from(byte)
            .ok()
            .and_then(|byte| bytes.get_mut(byte..));
        let into = into.and_then(|into| into.get_mut(..from.len()));
        into.ok_or(io::ErrorKind::UnexpectedEof)?
            .copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Cached {
    buffer: Buffer,
    is_dirty: bool,
}

/// An image with a buffer cache. Files' data is written at once, the file system's own
/// blocks only by [`Image::commit`], so that an image which was not committed holds the
/// file system of the last commit.
#[derive(Debug)]
pub struct Image<S> {
    storage: S,
    size_bytes: u64,
    block_bytes: Cell<u32>,
    buffers: RefCell<BTreeMap<u64, Cached>>,
    /// So many buffers are kept before those are dropped that need not be.
    most_kept: Cell<usize>,
    /// The last error of the operating system.
    failure: RefCell<Option<io::Error>>,
}

impl<S: Storage> Image<S> {
    /// An image with an empty cache.
    ///
    /// # Errors
    /// Those of [`Storage::size_bytes`].
    pub fn new(storage: S) -> io::Result<Image<S>> {
        Ok(Image {
            size_bytes: storage.size_bytes()?,
            storage,
            block_bytes: Cell::new(512),
            buffers: RefCell::default(),
            most_kept: Cell::new(CLEAN_BLOCKS_MAX),
            failure: RefCell::default(),
        })
    }

    /// Its bytes.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// The operating system's error behind the last [`FsError::Device`].
    pub fn failure(&self) -> Option<io::Error> {
        self.failure.borrow_mut().take()
    }

    fn checked(&self, done: io::Result<()>) -> Result<(), FsError> {
        done.map_err(|error| {
            *self.failure.borrow_mut() = Some(error);
            FsError::Device
        })
    }

    /// Reads data.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn read(&self, byte: u64, into: &mut [u8]) -> Result<(), FsError> {
        self.checked(self.storage.read_at(byte, into))
    }

    /// Writes data.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn write(&self, byte: u64, from: &[u8]) -> Result<(), FsError> {
        self.checked(self.storage.write_at(byte, from))
    }

    /// Writes changed blocks of the file system, after the data that they refer to is
    /// durable.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn commit(&self) -> Result<(), FsError> {
        self.checked(self.storage.flush())?;
        let block_bytes = u64::from(self.block_bytes.get());
        for (block, cached) in self.buffers.borrow_mut().iter_mut() {
            if cached.is_dirty {
                let done = self
                    .storage
                    .write_at(block * block_bytes, &cached.buffer.bytes());
                self.checked(done)?;
                cached.is_dirty = false;
            }
        }
        self.checked(self.storage.flush())
    }

    fn is_inside(&self, block: u64) -> Result<(), FsError> {
        match block < self.size_bytes / u64::from(self.block_bytes.get()) {
            true => Ok(()),
            false => self.checked(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("block {block} is beyond the end of the image"),
            ))),
        }
    }

    fn blank(&self) -> Box<[u8]> {
        vec![0; self.block_bytes.get() as usize].into_boxed_slice()
    }

    fn keep(&self, buffer: &Buffer) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() >= self.most_kept.get() {
            // A shared one may still be changed by its holder.
            buffers.retain(|_, cached| cached.is_dirty || cached.buffer.is_shared());
            // Dirty ones are not looked at again for each that is added.
            self.most_kept.set(CLEAN_BLOCKS_MAX.max(2 * buffers.len()));
        }
        let cached = Cached {
            buffer: buffer.clone(),
            is_dirty: false,
        };
        buffers.insert(buffer.block(), cached);
    }
}

impl<S: Storage> Buffers for Image<S> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    async fn set_block_bytes(&self, block_bytes: u32) -> Result<(), FsError> {
        if self.block_bytes.get() != block_bytes {
            self.commit()?;
            self.buffers.borrow_mut().clear();
            self.block_bytes.set(block_bytes);
        }
        Ok(())
    }

    async fn bread(&self, block: u64) -> Result<Buffer, FsError> {
        if let Some(cached) = self.buffers.borrow().get(&block) {
            return Ok(cached.buffer.clone());
        }
        self.is_inside(block)?;
        let mut contents = self.blank();
        self.read(block * u64::from(self.block_bytes.get()), &mut contents)?;
        let buffer = Buffer::new(block, contents);
        self.keep(&buffer);
        Ok(buffer)
    }

    fn zeroed(&self, block: u64) -> Result<Buffer, FsError> {
        self.is_inside(block)?;
        if let Some(cached) = self.buffers.borrow().get(&block) {
            cached.buffer.bytes_mut().fill(0);
            return Ok(cached.buffer.clone());
        }
        let buffer = Buffer::new(block, self.blank());
        self.keep(&buffer);
        Ok(buffer)
    }

    fn clear(&self, block: u64, blocks: u64) -> Result<(), FsError> {
        self.forget(block, blocks);
        let block_bytes = u64::from(self.block_bytes.get());
        let cleared = (self.storage).clear_at(block * block_bytes, blocks * block_bytes);
        self.checked(cleared)
    }

    fn mark_dirty(&self, buffer: &Buffer, _of: Option<Ino>) {
        let cached = Cached {
            buffer: buffer.clone(),
            is_dirty: true,
        };
        self.buffers.borrow_mut().insert(buffer.block(), cached);
    }

    fn forget(&self, block: u64, blocks: u64) {
        let mut buffers = self.buffers.borrow_mut();
        let forgotten = buffers.range(block..block.saturating_add(blocks));
        let forgotten: Vec<u64> = forgotten.map(|(&block, _)| block).collect();
        for block in forgotten {
            buffers.remove(&block);
        }
    }
}

/// Runs a call on an image to its end.
///
/// # Panics
/// If the call waits for anything, which no call on an image does.
pub fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("no call waits for an image"),
    }
}
