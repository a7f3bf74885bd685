//! The driver program of a recorded run: its calls, made on our page cache.

use std::collections::BTreeMap;
use std::rc::Rc;

use blklab_fs::write_back::{DeviceId, SyncRange};
use blklab_fs::{Advice, DirectCall, File, Host, InodeId, Mapping, MmapAdvice, Vfs};

use super::calls::{Call, Open, RunFile};

/// The inode of the device itself.
const DEVICE: InodeId = InodeId(0);

/// An open file of the program, with its position.
struct Opened {
    file: Rc<File>,
    pos: u64,
    how: Open,
}

/// The driver program.
pub(crate) struct Program<'a, H> {
    vfs: &'a Vfs<H>,
    files: &'a [RunFile],
    fault_around_pages: u64,
    /// The address that `mmap` answered with to a request of so many bytes.
    mapped_address: &'a dyn Fn(u64) -> u64,
    /// How much of the buffer of this call's read is in the program's memory.
    pub(crate) buffer_bytes: u64,
    open: BTreeMap<usize, Opened>,
    mappings: BTreeMap<usize, Rc<Mapping>>,
    /// Files without a name that may be open.
    unlinked: Vec<InodeId>,
}

impl<'a, H: Host> Program<'a, H> {
    /// A program that has opened nothing.
    pub(crate) fn new(
        vfs: &'a Vfs<H>,
        files: &'a [RunFile],
        fault_around_pages: u64,
        mapped_address: &'a dyn Fn(u64) -> u64,
    ) -> Program<'a, H> {
        Program {
            vfs,
            files,
            fault_around_pages,
            mapped_address,
            buffer_bytes: u64::MAX,
            open: BTreeMap::new(),
            mappings: BTreeMap::new(),
            unlinked: Vec::new(),
        }
    }

    /// All files.
    fn inodes(&self) -> Vec<InodeId> {
        (0..self.files.len() as u32).map(InodeId).collect()
    }

    /// Makes a call. What a slot that is not open would answer is not looked at.
    pub(crate) async fn call(&mut self, call: &Call) {
        match *call {
            Call::Open {
                slot,
                ref path,
                how,
            } => self.open(slot, path, how),
            Call::Close { slot } => self.close(slot).await,
            Call::Read { slot, bytes } => self.read_on(slot, bytes).await,
            Call::Write { slot, bytes } => self.write_on(slot, bytes).await,
            Call::ReadAt {
                slot,
                offset,
                bytes,
                buffer_offset,
            } => {
                self.read(slot, offset, bytes, buffer_offset).await;
            }
            Call::WriteAt {
                slot,
                offset,
                bytes,
                buffer_offset,
            } => {
                self.write(slot, offset, bytes, buffer_offset).await;
            }
            Call::Seek { slot, offset } => self.moved(slot, offset),
            Call::Sync { slot, only_data } => self.sync(slot, only_data).await,
            Call::SyncAll => self.vfs.sync(DeviceId(0), &self.inodes()).await,
            Call::SyncFileSystem { slot } => self.sync_file_system(slot).await,
            Call::SyncRange {
                slot,
                offset,
                bytes,
                what,
            } => {
                self.sync_range(slot, offset, bytes, what).await;
            }
            Call::SyncMapping {
                mapping,
                offset,
                bytes,
            } => {
                self.sync_mapping(mapping, offset, bytes).await;
            }
            Call::Truncate { slot, bytes } => self.truncate(slot, bytes).await,
            Call::PunchHole {
                slot,
                offset,
                bytes,
            } => self.punch_hole(slot, offset, bytes).await,
            Call::Unlink { ref path } => self.unlink(path).await,
            Call::Advise {
                slot,
                offset,
                bytes,
                advice,
            } => {
                self.advise(slot, offset, bytes, advice).await;
            }
            Call::FlushBuffers { slot } => self.flush_buffers(slot).await,
            Call::Map {
                mapping,
                slot,
                offset,
                bytes,
            } => self.map(mapping, slot, offset, bytes),
            Call::Touch {
                mapping,
                offset,
                write,
            } => self.touch(mapping, offset, write).await,
            Call::AdviseMapping {
                mapping,
                offset,
                bytes,
                advice,
            } => {
                self.advise_mapping(mapping, offset, bytes, advice).await;
            }
            Call::Nothing => {}
        }
    }

    fn open(&mut self, slot: usize, path: &str, how: Open) {
        let Some(n) = self.files.iter().position(|file| file.path == path) else {
            return;
        };
        let file = Rc::new(self.vfs.open(InodeId(n as u32)));
        if file.inode == DEVICE {
            self.vfs.device_opened(DEVICE);
        }
        let pos = 0;
        self.open.insert(slot, Opened { file, pos, how });
    }

    async fn close(&mut self, slot: usize) {
        let Some(closed) = self.open.remove(&slot) else {
            return;
        };
        if closed.file.inode == DEVICE {
            self.vfs.device_closed(DEVICE).await;
        }
        self.evict_unlinked().await;
    }

    /// Files that have no name and are not open are gone.
    async fn evict_unlinked(&mut self) {
        let is_open = |inode| self.open.values().any(|open| open.file.inode == inode);
        let gone: Vec<InodeId> = (self.unlinked)
            .extract_if(.., |inode| !is_open(*inode))
            .collect();
        for inode in gone {
            self.vfs.evict(inode).await;
        }
    }

    fn moved(&mut self, slot: usize, pos: u64) {
        if let Some(opened) = self.open.get_mut(&slot) {
            opened.pos = pos;
        }
    }

    /// Reads from the position of an open file.
    async fn read_on(&mut self, slot: usize, bytes: u64) {
        if let Some(pos) = self.open.get(&slot).map(|opened| opened.pos) {
            let done = self.read(slot, pos, bytes, 0).await;
            self.moved(slot, pos + done);
        }
    }

    /// Writes to the position of an open file.
    async fn write_on(&mut self, slot: usize, bytes: u64) {
        if let Some(pos) = self.open.get(&slot).map(|opened| opened.pos) {
            let done = self.write(slot, pos, bytes, 0).await;
            self.moved(slot, pos + done);
        }
    }

    async fn read(&self, slot: usize, pos: u64, bytes: u64, buffer_offset: u64) -> u64 {
        let Some(opened) = self.open.get(&slot) else {
            return 0;
        };
        let direct = DirectCall {
            pos,
            bytes,
            buffer_offset,
            is_async: false,
        };
        let done = match opened.how.direct {
            true => self.vfs.read_direct(&opened.file, direct).await,
            false => {
                let buffer_bytes = self.buffer_bytes;
                (self.vfs.read_into(&opened.file, pos, bytes, buffer_bytes)).await
            }
        };
        done.unwrap_or(0)
    }

    async fn write(&self, slot: usize, pos: u64, bytes: u64, buffer_offset: u64) -> u64 {
        let Some(opened) = self.open.get(&slot) else {
            return 0;
        };
        let file = &opened.file;
        let Open {
            sync, data_sync, ..
        } = opened.how;
        let pos = match opened.how.append {
            true => self.vfs.size_bytes(file.inode),
            false => pos,
        };
        let direct = DirectCall {
            pos,
            bytes,
            buffer_offset,
            is_async: false,
        };
        let done = match opened.how.direct {
            true => self.vfs.write_direct(file, direct).await,
            false => self.vfs.write(file, pos, bytes).await,
        };
        let done = done.unwrap_or(0);
        if done > 0 && (sync || data_sync) {
            let _ = self.vfs.fsync(file, pos, pos + done - 1, data_sync).await;
        }
        done
    }

    async fn sync(&self, slot: usize, only_data: bool) {
        if let Some(opened) = self.open.get(&slot) {
            let vfs = self.vfs;
            let _ = vfs.fsync(&opened.file, 0, u64::MAX / 2, only_data).await;
        }
    }

    async fn sync_file_system(&self, slot: usize) {
        if let Some(opened) = self.open.get(&slot) {
            let inodes = self.inodes();
            self.vfs.syncfs(DeviceId(0), &inodes, &opened.file).await;
        }
    }

    async fn sync_range(&self, slot: usize, offset: u64, bytes: u64, what: SyncRange) {
        if let Some(opened) = self.open.get(&slot) {
            let last = match bytes {
                0 => u64::MAX / 2,
                bytes => offset + bytes - 1,
            };
            let vfs = self.vfs;
            let _ = vfs.sync_file_range(&opened.file, offset, last, what).await;
        }
    }

    async fn truncate(&self, slot: usize, bytes: u64) {
        if let Some(opened) = self.open.get(&slot) {
            self.vfs.truncate(opened.file.inode, bytes).await;
        }
    }

    async fn punch_hole(&self, slot: usize, offset: u64, bytes: u64) {
        if let Some(opened) = self.open.get(&slot) {
            let inode = opened.file.inode;
            self.vfs.punch_hole(inode, offset, offset + bytes).await;
        }
    }

    async fn unlink(&mut self, path: &str) {
        let found = self.files.iter().position(|file| file.path == path);
        if let Some(n) = found {
            self.unlinked.push(InodeId(n as u32));
            self.evict_unlinked().await;
        }
    }

    async fn advise(&self, slot: usize, offset: u64, bytes: u64, advice: Advice) {
        if let Some(opened) = self.open.get(&slot) {
            let vfs = self.vfs;
            vfs.fadvise(&opened.file, offset, bytes, advice).await;
        }
    }

    async fn flush_buffers(&self, slot: usize) {
        if let Some(opened) = self.open.get(&slot) {
            self.vfs.flush_buffers(opened.file.inode).await;
        }
    }

    fn map(&mut self, mapping: usize, slot: usize, offset: u64, bytes: u64) {
        if let Some(opened) = self.open.get(&slot) {
            let address = (self.mapped_address)(bytes);
            let file = Rc::clone(&opened.file);
            let around = self.fault_around_pages;
            let mapped = self.vfs.map(file, address, offset, bytes, around);
            self.mappings.insert(mapping, mapped);
        }
    }

    async fn touch(&self, mapping: usize, offset: u64, write: bool) {
        if let Some(mapping) = self.mappings.get(&mapping) {
            // A program that touches what is not there would have been killed.
            let _ = match write {
                true => self.vfs.touch_for_write(mapping, offset).await,
                false => self.vfs.touch(mapping, offset).await,
            };
        }
    }

    async fn sync_mapping(&self, mapping: usize, offset: u64, bytes: u64) {
        if let Some(mapping) = self.mappings.get(&mapping) {
            let first = mapping.file_byte(offset);
            let last = first + bytes.max(1) - 1;
            let _ = self.vfs.fsync(mapping.file(), first, last, false).await;
        }
    }

    async fn advise_mapping(&self, mapping: usize, offset: u64, bytes: u64, advice: Advice) {
        let Some(mapping) = self.mappings.get(&mapping) else {
            return;
        };
        match advice {
            Advice::Random => mapping.advise(MmapAdvice::Random),
            Advice::Sequential => mapping.advise(MmapAdvice::Sequential),
            Advice::Normal => mapping.advise(MmapAdvice::Normal),
            Advice::WillNeed => {
                let byte = mapping.file_byte(offset);
                self.vfs
                    .fadvise(mapping.file(), byte, bytes, Advice::WillNeed)
                    .await;
            }
            Advice::DontNeed | Advice::NoReuse => {}
        }
    }
}
