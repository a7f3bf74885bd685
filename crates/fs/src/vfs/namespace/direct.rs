//! Direct I/O on open files: who holds an inode's lock, and for how long
//! (`ext2_dio_write_iter`, `xfs_file_dio_write`, `do_blockdev_direct_IO`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::lock::{Hold, LockGuard};
use super::{InCore, Namespace, OpenFile, Written};
use crate::PAGE_BYTES;
use crate::direct::DirectCall;
use crate::error::FsError;
use crate::file_system::{Caller, DirectLocking, FileSystem};
use crate::vfs::Host;
use crate::vfs::dentry::Place;

/// A direct call under way, which a truncation waits for (`inode_dio_begin`).
struct InFlight<'a> {
    inodes: &'a RefCell<BTreeMap<Place, InCore>>,
    place: Place,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(inode) = self.inodes.borrow_mut().get_mut(&self.place) {
            inode.direct_calls -= 1;
            if inode.direct_calls == 0 {
                inode.direct_waiters.drain(..).for_each(Waker::wake);
            }
        }
    }
}

/// How a direct write goes about its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WriteHold {
    hold: Hold,
    /// It lets others share the lock while its bios are under way.
    shares_io: bool,
    /// It holds the lock up to their end.
    to_the_end: bool,
    /// It waits first for the direct calls that are under way.
    alone: bool,
}

impl<H: Host, F: FileSystem> Namespace<H, F> {
    /// Reads without the page cache (`O_DIRECT`).
    ///
    /// # Errors
    /// As [`Namespace::read`]; [`FsError::NotAligned`].
    pub async fn read_direct(&self, file: &OpenFile, call: DirectCall) -> Result<u64, FsError> {
        let data = file.data_to_read()?;
        let locking = self.fs(file.place).direct_locking();
        let hold = match locking {
            DirectLocking::Exclusive => Hold::Alone,
            DirectLocking::ExclusiveWrites | DirectLocking::Shared => Hold::Shared,
        };
        let held = self.locks.lock(Some(file.place), hold).await;
        let in_flight = self.direct_call_begins(file.place);
        let begun = self.vfs.begin_read_direct(data, call).await?;
        let to_the_end = !call.is_async && locking != DirectLocking::Exclusive;
        let held = to_the_end.then_some(held);
        let read = self.vfs.end_direct(data, begun).await?;
        drop((in_flight, held));
        self.accessed(file).await?;
        Ok(read)
    }

    /// Writes without the page cache (`O_DIRECT`). The part that fills a hole, or on VFAT
    /// makes the file longer, goes through the page cache and is written back before the
    /// call returns (`ext2_dio_write_iter`, `fat_direct_IO`). With `O_APPEND` it goes to the
    /// end of the file.
    ///
    /// # Errors
    /// As [`Namespace::write_at`]; [`FsError::NotAligned`].
    pub async fn write_direct(
        &self,
        file: &OpenFile,
        call: DirectCall,
        caller: &Caller,
    ) -> Result<Written, FsError> {
        file.data_to_write()?;
        let pos = self.write_place(file, call.pos)?;
        let how = self.write_hold(file, DirectCall { pos, ..call })?;
        let held = self.locks.lock(Some(file.place), how.hold).await;
        if how.alone {
            self.direct_calls_end(file.place).await;
        }
        let pos = self.write_place(file, call.pos)?;
        let call = DirectCall { pos, ..call };
        let direct_bytes = self.allocate_direct(file, call, caller).await?;
        let mut bytes = 0;
        if direct_bytes > 0 {
            let to_the_end = how.to_the_end || direct_bytes < call.bytes;
            let how = WriteHold { to_the_end, ..how };
            let call = DirectCall {
                bytes: direct_bytes,
                ..call
            };
            bytes = self.write_blocks(file, call, (held, how), caller).await?;
        } else {
            drop(held);
        }
        if bytes < call.bytes {
            let rest = (call.pos + bytes, call.bytes - bytes);
            bytes += self.write_rest(file, rest, caller).await?;
        }
        Ok(Written { pos, bytes })
    }

    /// Writes what a direct write leaves over through the page cache, and waits until it is
    /// on the device.
    async fn write_rest(
        &self,
        file: &OpenFile,
        (pos, bytes): (u64, u64),
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let inode = file.data()?.inode;
        let written = {
            let _held = self.lock(Some(file.place)).await;
            self.write_locked(file, (pos, bytes), caller).await?
        };
        let last = pos + bytes - 1;
        self.vfs.write_range(inode, pos, last, true).await;
        let pages = (pos / PAGE_BYTES, last / PAGE_BYTES);
        (self.vfs).invalidate_mapping_pages(inode, pages.0, pages.1);
        Ok(written)
    }

    /// How a direct write holds its inode's lock.
    fn write_hold(&self, file: &OpenFile, call: DirectCall) -> Result<WriteHold, FsError> {
        let fs = self.fs(file.place);
        let size = self.vfs.size_bytes(file.data()?.inode);
        let block_bytes = u64::from(fs.block_bytes());
        let is_whole = (call.pos | call.bytes).is_multiple_of(block_bytes);
        let end = call.pos.saturating_add(call.bytes);
        let is_shared = fs.direct_locking() == DirectLocking::Shared;
        // What lies between the end of the file and the write is zeroed first, by one alone.
        let alone = is_shared && (call.pos > size || (!is_whole && end >= size));
        Ok(WriteHold {
            hold: match is_shared && !alone {
                true => Hold::Shared,
                false => Hold::Alone,
            },
            shares_io: is_shared && is_whole,
            to_the_end: !call.is_async
                || match is_shared {
                    true => alone && !is_whole,
                    false => end > size || !is_whole,
                },
            alone,
        })
    }

    /// Writes to blocks that are allocated.
    async fn write_blocks(
        &self,
        file: &OpenFile,
        call: DirectCall,
        (held, how): (LockGuard<'_>, WriteHold),
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let (data, fs, ino) = (file.data()?, self.fs(file.place), file.place.ino);
        let size_before = self.vfs.size_bytes(data.inode);
        fs.set_size(ino, size_before, caller.now);
        self.vfs.inode_changed(data.inode, false);
        if how.shares_io {
            held.share();
        }
        let in_flight = self.direct_call_begins(file.place);
        let begun = self.vfs.begin_write_direct(data, call).await?;
        let held = how.to_the_end.then_some(held);
        let written = self.vfs.end_direct(data, begun).await?;
        let size = self.vfs.size_bytes(data.inode);
        if size != size_before {
            fs.set_size(ino, size, caller.now);
            self.vfs.inode_changed(data.inode, true);
        }
        drop((in_flight, held));
        Ok(written)
    }

    /// Allocates blocks after the end of a file for a direct write. Returns how many of its
    /// bytes may go to the device directly.
    async fn allocate_direct(
        &self,
        file: &OpenFile,
        call: DirectCall,
        caller: &Caller,
    ) -> Result<u64, FsError> {
        let (fs, ino) = (self.fs(file.place), file.place.ino);
        let size = self.vfs.size_bytes(file.data()?.inode);
        let end = call.pos.checked_add(call.bytes).ok_or(FsError::TooBig)?;
        if end > fs.file_bytes_max() {
            return Err(FsError::TooBig);
        }
        if !fs.has_holes() && end > size {
            return Ok(0);
        }
        let block_bytes = u64::from(fs.block_bytes());
        let (mut block, last) = (call.pos / block_bytes, end.div_ceil(block_bytes));
        while block < last {
            let is_behind = block * block_bytes >= size;
            let create = is_behind.then_some(caller);
            match fs.map(ino, block, last - block, create).await {
                Ok(map) if map.block.is_some() => block += map.blocks.max(1),
                Err(error) if block * block_bytes <= call.pos => return Err(error),
                _ => break,
            }
        }
        Ok((block * block_bytes).min(end).saturating_sub(call.pos))
    }

    fn direct_call_begins(&self, place: Place) -> InFlight<'_> {
        (self.inodes.borrow_mut().entry(place).or_default()).direct_calls += 1;
        InFlight {
            inodes: &self.inodes,
            place,
        }
    }

    /// Waits until no direct call is under way on an inode (`inode_dio_wait`).
    pub(super) async fn direct_calls_end(&self, place: Place) {
        poll_fn(|context| {
            let mut inodes = self.inodes.borrow_mut();
            match inodes.get_mut(&place) {
                Some(inode) if inode.direct_calls > 0 => {
                    inode.direct_waiters.push(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::rc::Rc;
    use std::task::Context;

    use super::*;
    use crate::vfs::tests::Instant;
    use crate::{
        BackingDevice, Bio, BioId, Event, Ext2, Ext2Layout, Ext2Options, Extent, Image, InodeId,
        MountOptions, Mounted, OpenFlags, Timestamp, VfatLayout, Vfs, Xfs, at_once,
    };

    /// A device that ends a bio only when it is told to.
    #[derive(Default)]
    struct Device {
        under_way: RefCell<Vec<BioId>>,
        ends_at_once: std::cell::Cell<bool>,
    }

    impl Host for Device {
        async fn submit(&self, vfs: &Vfs<Self>, id: BioId, _: Bio) {
            match self.ends_at_once.get() {
                true => vfs.bio_ended(id),
                false => self.under_way.borrow_mut().push(id),
            }
        }

        async fn extent(&self, inode: InodeId, byte: u64, bytes: u64) -> Extent {
            Instant.extent(inode, byte, bytes).await
        }

        fn trace(&self, _: &Vfs<Self>, _: Event) {}
    }

    type Tree = Namespace<Device, Mounted<Image<RefCell<Vec<u8>>>>>;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Kind {
        Ext2,
        Vfat,
        Xfs,
    }

    /// A file system with a file of 64 KiB that has all its blocks.
    fn tree(kind: Kind) -> (Tree, OpenFile) {
        let image = Image::new(RefCell::new(vec![0; 4 << 20])).unwrap();
        let now = Timestamp::default();
        let fs = match kind {
            Kind::Ext2 => {
                at_once(Ext2Layout::default().make(&image, now)).unwrap();
                Mounted::Ext2(at_once(Ext2::open(image, Ext2Options::default())).unwrap())
            }
            Kind::Vfat => {
                at_once(VfatLayout::default().make(&image, now)).unwrap();
                at_once(Mounted::open(image, &MountOptions::default())).unwrap()
            }
            Kind::Xfs => Mounted::Xfs(Xfs::new(image, now)),
        };
        let device = BackingDevice {
            ra_pages: 32,
            io_pages: 320,
        };
        let tree = Namespace::new(Rc::new(Vfs::new(Device::default())), Rc::new(fs), device);
        let flags = OpenFlags {
            read: true,
            write: true,
            create: Some(0o644),
            ..OpenFlags::default()
        };
        let caller = Caller::default();
        let file = at_once(tree.open(b"/f", flags, &caller)).unwrap();
        let (fs, ino) = (tree.fs(file.place), file.place.ino);
        let (mut block, last) = (0, 65536 / u64::from(fs.block_bytes()));
        while block < last {
            let map = at_once(fs.map(ino, block, last - block, Some(&caller))).unwrap();
            block += map.blocks;
        }
        fs.set_size(ino, 65536, caller.now);
        at_once((tree.vfs).truncate(file.data().unwrap().inode, 65536));
        (tree, file)
    }

    fn poll<F: Future + ?Sized>(call: Pin<&mut F>) -> Option<F::Output> {
        match call.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    /// How many of two calls of 4 KiB on one file are on the device at once, a write and then
    /// a write or a read.
    fn at_once_on_device(kind: Kind, places: [u64; 2], is_async: bool, reads: bool) -> usize {
        let (tree, file) = tree(kind);
        let caller = Caller::default();
        let call = |pos| DirectCall {
            pos,
            bytes: PAGE_BYTES,
            buffer_offset: 0,
            is_async,
        };
        let mut write = pin!(tree.write_direct(&file, call(places[0]), &caller));
        assert_eq!(poll(write.as_mut()), None);
        let mut second: Pin<Box<dyn Future<Output = _>>> = match reads {
            true => Box::pin(tree.read_direct(&file, call(places[1]))),
            false => Box::pin(async {
                let written = tree.write_direct(&file, call(places[1]), &caller).await;
                written.map(|written| written.bytes)
            }),
        };
        assert_eq!(poll(second.as_mut()), None);
        let device = tree.vfs.host();
        let bios = device.under_way.take();
        bios.iter().for_each(|bio| tree.vfs.bio_ended(*bio));
        device.ends_at_once.set(true);
        let first = Written {
            pos: places[0],
            bytes: PAGE_BYTES,
        };
        assert_eq!(poll(write.as_mut()), Some(Ok(first)));
        assert_eq!(poll(second.as_mut()), Some(Ok(PAGE_BYTES)));
        assert_eq!(tree.locks.held(), 0);
        bios.len()
    }

    #[test]
    fn a_write_that_nobody_waits_for_holds_the_lock_only_while_it_is_submitted() {
        for kind in [Kind::Ext2, Kind::Vfat, Kind::Xfs] {
            for reads in [false, true] {
                let of = |is_async| at_once_on_device(kind, [0, 8192], is_async, reads);
                assert_eq!(of(true), 2, "{kind:?}, read: {reads}");
                let shared = 1 + usize::from(kind == Kind::Xfs);
                assert_eq!(of(false), shared, "{kind:?}, read: {reads}");
            }
        }
    }

    #[test]
    fn a_write_that_makes_a_file_longer_holds_the_lock_to_its_end() {
        let of = |kind| at_once_on_device(kind, [65536, 0], true, false);
        assert_eq!(of(Kind::Ext2), 1);
        assert_eq!(of(Kind::Xfs), 2, "its blocks are behind the end up to then");
    }

    #[test]
    fn a_truncation_waits_for_direct_calls() {
        let (tree, file) = tree(Kind::Ext2);
        let caller = Caller::default();
        let call = DirectCall {
            pos: 8192,
            bytes: PAGE_BYTES,
            buffer_offset: 0,
            is_async: true,
        };
        let mut read = pin!(tree.read_direct(&file, call));
        assert_eq!(poll(read.as_mut()), None);
        let mut cut = pin!(tree.resize(&file, 0, &caller));
        assert_eq!(poll(cut.as_mut()), None);
        let device = tree.vfs.host();
        tree.vfs.bio_ended(device.under_way.take()[0]);
        device.ends_at_once.set(true);
        assert_eq!(poll(read.as_mut()), Some(Ok(PAGE_BYTES)));
        assert_eq!(poll(cut.as_mut()), Some(Ok(())));
    }

    #[test]
    fn a_direct_write_to_a_file_that_is_appended_to_goes_to_its_end() {
        for kind in [Kind::Ext2, Kind::Vfat, Kind::Xfs] {
            let (tree, file) = tree(kind);
            tree.vfs.host().ends_at_once.set(true);
            let flags = OpenFlags {
                write: true,
                append: true,
                ..OpenFlags::default()
            };
            let caller = Caller::default();
            let appended = at_once(tree.open(b"/f", flags, &caller)).unwrap();
            let call = DirectCall {
                pos: 0,
                bytes: PAGE_BYTES,
                buffer_offset: 0,
                is_async: true,
            };
            let at = |pos, bytes| Ok(Written { pos, bytes });
            let direct = at_once(tree.write_direct(&appended, call, &caller));
            assert_eq!(direct, at(65536, PAGE_BYTES), "{kind:?}");
            let cached = at_once(tree.write_at(&appended, 0, 100, &caller));
            assert_eq!(cached, at(65536 + PAGE_BYTES, 100), "{kind:?}");
            assert_eq!(appended.position(), 0, "pwrite does not move it");
            let size = tree.vfs.size_bytes(file.data().unwrap().inode);
            assert_eq!(size, 65536 + PAGE_BYTES + 100, "{kind:?}");
        }
    }
}
