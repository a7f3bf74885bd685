//! Calls that write data and wait for it: `sync`, `syncfs`, `fsync`, `fdatasync`,
//! `sync_file_range`, and writes to files opened with `O_SYNC` or `O_DSYNC`.

use blklab_blk::{BioFlags, Op, Sector};

use super::device::{DeviceId, state};
use super::work::{Reason, WritebackControl, WritebackWork};
use crate::bio::Bio;
use crate::error::FsError;
use crate::inode::{File, InodeId};
use crate::page_cache::Mark;
use crate::vfs::{Host, Vfs};

/// What `sync_file_range` does, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncRange {
    /// Waits for pages under write-back (`SYNC_FILE_RANGE_WAIT_BEFORE`).
    pub wait_before: bool,
    /// Writes dirty pages (`SYNC_FILE_RANGE_WRITE`).
    pub write: bool,
    /// Waits for pages under write-back (`SYNC_FILE_RANGE_WAIT_AFTER`).
    pub wait_after: bool,
}

impl<H: Host> Vfs<H> {
    /// `fsync`, or `fdatasync` if `only_data`, of a range of bytes: writes it, waits, and
    /// flushes the device's cache.
    ///
    /// # Errors
    /// [`FsError::Device`] if a write of the file has failed that this open file did not
    /// report yet (`file_check_and_advance_wb_err`).
    pub async fn fsync(
        &self,
        file: &File,
        first_byte: u64,
        last_byte: u64,
        only_data: bool,
    ) -> Result<(), FsError> {
        let inode = file.inode;
        self.write_range(inode, first_byte, last_byte, true).await;
        let mut done = Ok(());
        if !self.inode(inode).is_device {
            done = self.host().sync_buffers(inode).await;
            done = self.sync_inode(inode, only_data).await.and(done);
        }
        done = self.flush_device(inode).await.and(done);
        self.take_write_error(file).and(done)
    }

    /// Reports failed writes of the file once for each open file.
    fn take_write_error(&self, file: &File) -> Result<(), FsError> {
        let errors = self.cache.borrow().write_errors(file.inode);
        match file.write_errors_seen.replace(errors) == errors {
            true => Ok(()),
            false => Err(FsError::Device),
        }
    }

    /// Writes the inode itself; `fdatasync` leaves out one of which only times changed
    /// (`generic_buffers_fsync_noflush`).
    async fn sync_inode(&self, inode: InodeId, only_data: bool) -> Result<(), FsError> {
        let dirty = self.write_back.borrow_mut().inode(inode).state & state::DIRTY;
        let is_needed = dirty != 0 && (!only_data || dirty & state::DATASYNC != 0);
        if !is_needed {
            return Ok(());
        }
        self.wait_for_inode(inode).await;
        let mut control = WritebackControl {
            pages: 0,
            is_integrity: true,
            ..WritebackControl::all()
        };
        let written = self.write_inode(inode, &mut control, false).await;
        self.written_by_caller(inode);
        written
    }

    /// Flushes the device's cache, if it has one (`blkdev_issue_flush`).
    async fn flush_device(&self, inode: InodeId) -> Result<(), FsError> {
        let has_cache = {
            let mut write_back = self.write_back.borrow_mut();
            write_back.device_of(inode).has_volatile_cache
        };
        if !has_cache {
            return Ok(());
        }
        let flush = Bio {
            op: Op::Write,
            flags: BioFlags::SYNC.with(BioFlags::PREFLUSH),
            sector: Sector(0),
            size_sectors: 0,
        };
        let flush = self.submit(flush, Vec::new()).await;
        self.bio_end(flush).await
    }

    /// `sync_file_range`.
    ///
    /// # Errors
    /// As [`Vfs::fsync`].
    pub async fn sync_file_range(
        &self,
        file: &File,
        first_byte: u64,
        last_byte: u64,
        what: SyncRange,
    ) -> Result<(), FsError> {
        let integrity = what.wait_before && what.write && what.wait_after;
        let mut control = WritebackControl::range(first_byte, last_byte, integrity);
        let (first, last) = (control.first, control.last);
        if what.wait_before {
            self.wait_for_pages(file.inode, first, last).await;
        }
        if what.write && self.cache.borrow().any_marked(file.inode, Mark::Dirty) {
            self.do_writepages(file.inode, &mut control).await;
        }
        if what.wait_after {
            self.wait_for_pages(file.inode, first, last).await;
        }
        self.take_write_error(file)
    }

    /// `sync`: writes all that is dirty on a device, its file system's own blocks last.
    /// `inodes` are those with pages on the device.
    pub async fn sync(&self, device: DeviceId, inodes: &[InodeId]) {
        self.start_flushers_of(device, Reason::Sync);
        self.host().resched().await;
        self.sync_inodes(device, inodes, false).await;
        // `sync` reports no errors.
        let _ = self.host().sync_file_system(device).await;
        for wait in [false, true] {
            for &inode in inodes.iter().filter(|&&inode| self.inode(inode).is_device) {
                if wait {
                    self.wait_for_pages(inode, 0, u64::MAX).await;
                } else if self.cache.borrow().any_marked(inode, Mark::Dirty) {
                    let mut control = WritebackControl::range(0, u64::MAX / 2, true);
                    self.do_writepages(inode, &mut control).await;
                }
            }
        }
    }

    /// `syncfs`: writes all that is dirty on the file system of `file`.
    pub async fn syncfs(&self, device: DeviceId, inodes: &[InodeId], file: &File) {
        if self.inode(file.inode).is_device {
            // A block device's file is in bdev's file system, which has no device to write.
            return;
        }
        let tagged = WritebackWork {
            pages: i64::MAX,
            is_integrity: false,
            is_tagged: true,
            ..WritebackWork::sync(false)
        };
        self.queue_and_wait(device, tagged).await;
        let devices = || inodes.iter().filter(|&&inode| self.inode(inode).is_device);
        for &inode in devices() {
            self.write_range(inode, 0, u64::MAX / 2, false).await;
        }
        self.sync_inodes(device, inodes, false).await;
        for &inode in devices() {
            self.write_range(inode, 0, u64::MAX / 2, true).await;
        }
    }

    /// Has the flusher write files or the device's own pages, and waits for all pages
    /// under write-back (`sync_inodes_sb`).
    async fn sync_inodes(&self, device: DeviceId, inodes: &[InodeId], only_device: bool) {
        self.queue_and_wait(device, WritebackWork::sync(only_device))
            .await;
        for &inode in inodes {
            if self.inode(inode).is_device == only_device {
                self.wait_for_pages(inode, 0, u64::MAX).await;
            }
        }
    }
}
