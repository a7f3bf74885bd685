//! Direct I/O on files that may have cached pages (`block/fops.c`,
//! `fs/iomap/direct-io.c`).

use blklab_blk::{BioFlags, Op, SECTOR_SIZE};

use crate::PAGE_BYTES;
use crate::bio::{BIO_MAX_BYTES, Bio, BioId};
use crate::error::FsError;
use crate::inode::File;
use crate::vfs::{Host, Vfs};

/// A read or write with `O_DIRECT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectCall {
    /// The first byte of the file.
    pub pos: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The buffer's address modulo the sector size.
    pub buffer_offset: u64,
    /// Whoever submits it does not wait for its end (`!is_sync_kiocb`), as with `io_submit`
    /// and io_uring.
    pub is_async: bool,
}

/// A direct call whose bios are submitted.
#[derive(Debug)]
pub(crate) struct BegunDirect {
    op: Op,
    pos: u64,
    /// How many bytes it returns if nothing fails.
    bytes: u64,
    is_async: bool,
    bios: Vec<BioId>,
}

impl DirectCall {
    /// Whether offset, length and buffer are multiples of the `logical_block_size`.
    fn is_aligned(&self) -> bool {
        (self.pos | self.bytes | self.buffer_offset).is_multiple_of(SECTOR_SIZE)
    }
}

impl<H: Host> Vfs<H> {
    /// Reads without the page cache; dirty pages of the range are written first and stay
    /// cached. Returns the number of bytes read: a file may end inside the sector that is
    /// read last.
    ///
    /// # Errors
    /// [`FsError::NotAligned`] where offset, length or buffer is not whole sectors,
    /// [`FsError::Device`] where a bio fails.
    pub async fn read_direct(&self, file: &File, call: DirectCall) -> Result<u64, FsError> {
        let begun = self.begin_read_direct(file, call).await?;
        self.end_direct(file, begun).await
    }

    /// Submits the bios of such a read.
    ///
    /// # Errors
    /// [`FsError::NotAligned`].
    pub(crate) async fn begin_read_direct(
        &self,
        file: &File,
        call: DirectCall,
    ) -> Result<BegunDirect, FsError> {
        let of = self.inode(file.inode);
        let bytes = call.bytes.min(of.size_bytes.saturating_sub(call.pos));
        let mut begun = BegunDirect {
            op: Op::Read,
            pos: call.pos,
            bytes,
            is_async: call.is_async,
            bios: Vec::new(),
        };
        if bytes == 0 {
            return Ok(begun);
        }
        // A call on a device is cut at its end before it is looked at, one on a file is not.
        let end = match of.is_device {
            true => of.size_bytes,
            false => of.size_bytes.next_multiple_of(of.block_bytes),
        };
        let on_device = DirectCall {
            bytes: call.bytes.min(end - call.pos),
            ..call
        };
        let checked = if of.is_device { on_device } else { call };
        if !checked.is_aligned() {
            return Err(FsError::NotAligned);
        }
        let last = call.pos + bytes - 1;
        self.write_range(file.inode, call.pos, last, true).await;
        begun.bios = self.transfer(file, Op::Read, on_device).await;
        Ok(begun)
    }

    /// Writes without the page cache; cached pages of the range are written and dropped
    /// first, on a block device even before the alignment is checked, and dropped again
    /// afterwards.
    ///
    /// # Errors
    /// [`FsError::NotAligned`] where offset, length or buffer is not whole sectors,
    /// [`FsError::Device`] where a bio fails.
    pub async fn write_direct(&self, file: &File, call: DirectCall) -> Result<u64, FsError> {
        let begun = self.begin_write_direct(file, call).await?;
        self.end_direct(file, begun).await
    }

    /// Drops what is cached of such a write, and submits its bios.
    ///
    /// # Errors
    /// [`FsError::NotAligned`].
    pub(crate) async fn begin_write_direct(
        &self,
        file: &File,
        call: DirectCall,
    ) -> Result<BegunDirect, FsError> {
        let last = call.pos + call.bytes.max(1) - 1;
        if !call.is_aligned() && !self.inode(file.inode).is_device {
            return Err(FsError::NotAligned);
        }
        self.write_range(file.inode, call.pos, last, true).await;
        let (first_page, last_page) = (call.pos / PAGE_BYTES, last / PAGE_BYTES);
        self.invalidate_pages2(file.inode, first_page, last_page)
            .await;
        if !call.is_aligned() {
            return Err(FsError::NotAligned);
        }
        Ok(BegunDirect {
            op: Op::Write,
            pos: call.pos,
            bytes: call.bytes,
            is_async: call.is_async,
            bios: self.transfer(file, Op::Write, call).await,
        })
    }

    /// Waits for the bios of a direct call. Returns the number of bytes that it moved.
    ///
    /// # Errors
    /// [`FsError::Device`] where a bio failed.
    pub(crate) async fn end_direct(&self, file: &File, begun: BegunDirect) -> Result<u64, FsError> {
        self.bios_end(begun.bios).await?;
        if begun.op == Op::Write && begun.bytes > 0 {
            self.invalidate_written(file, (begun.pos, begun.bytes), begun.is_async)
                .await;
            self.grow(file.inode, begun.pos + begun.bytes);
        }
        Ok(begun.bytes)
    }

    /// Drops pages that were read into the cache during a direct write, and so may hold what
    /// was there before it (`kiocb_invalidate_post_direct_write`); a block device does so only
    /// where the caller waits (`blkdev_direct_write`).
    async fn invalidate_written(&self, file: &File, (pos, bytes): (u64, u64), is_async: bool) {
        if is_async && self.inode(file.inode).is_device {
            return;
        }
        let (first, last) = (pos / PAGE_BYTES, (pos + bytes - 1) / PAGE_BYTES);
        self.invalidate_pages2(file.inode, first, last).await;
    }

    /// Sends all bios of a call. A read of a block device is marked synchronous only if it
    /// fits into one bio (`__blkdev_direct_IO_simple`).
    async fn transfer(&self, file: &File, op: Op, call: DirectCall) -> Vec<BioId> {
        let is_simple = self.inode(file.inode).is_device && call.bytes <= BIO_MAX_BYTES;
        let flags = match op {
            Op::Write => BioFlags::SYNC | BioFlags::IDLE,
            _ if is_simple => BioFlags::SYNC,
            _ => BioFlags::NONE,
        };
        let bio_bytes = BIO_MAX_BYTES / PAGE_BYTES * self.host().buffer_page_bytes();
        let mut under_way = Vec::new();
        let (mut at, end) = (call.pos, call.pos + call.bytes);
        while at < end {
            let wanted = bio_bytes.min(end - at);
            let extent = self.host().extent(file.inode, at, wanted).await;
            let length = extent.bytes.min(wanted);
            if let Some(sector) = extent.sector {
                let bio = Bio::data(op, flags, sector, length);
                under_way.push(self.submit(bio, Vec::new()).await);
            }
            at += length;
        }
        under_way
    }
}
