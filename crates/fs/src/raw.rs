//! Block devices that programs have open: the last one to close a device has its pages
//! written and dropped (`block/bdev.c`).

use crate::inode::InodeId;
use crate::vfs::{Host, Vfs};

impl<H: Host> Vfs<H> {
    /// A program has opened a block device.
    pub fn device_opened(&self, device: InodeId) {
        *self.device_openers.borrow_mut().entry(device).or_default() += 1;
    }

    /// A program that opened a block device closes it. If no other has it open, its dirty
    /// pages are written and waited for, and all of its pages dropped
    /// (`blkdev_flush_mapping`).
    pub async fn device_closed(&self, device: InodeId) {
        let is_last = {
            let mut openers = self.device_openers.borrow_mut();
            let left = openers.get(&device).map_or(0, |count| count - 1);
            match left {
                0 => openers.remove(&device).is_some(),
                left => openers.insert(device, left).is_none(),
            }
        };
        if is_last {
            self.write_range(device, 0, u64::MAX / 2, true).await;
            self.invalidate_pages2(device, 0, u64::MAX).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::PAGE_BYTES;
    use crate::image::at_once;
    use crate::inode::{BackingDevice, Inode, ReadPath};
    use crate::vfs::Vfs;
    use crate::vfs::tests::Instant;

    #[test]
    fn the_last_close_writes_and_drops_all_pages() {
        let vfs = Vfs::new(Instant);
        let device = vfs.add_inode(Inode {
            size_bytes: 64 * PAGE_BYTES,
            block_bytes: PAGE_BYTES,
            large_folios: false,
            read_path: ReadPath::Mpage,
            is_device: true,
            device: BackingDevice {
                ra_pages: 32,
                io_pages: 320,
            },
        });
        for round in 1..=2 {
            vfs.device_opened(device);
            vfs.device_opened(device);
            let file = vfs.open(device);
            at_once(vfs.write(&file, 0, 8 * PAGE_BYTES)).expect("there is room");
            at_once(vfs.read(&file, 8 * PAGE_BYTES, PAGE_BYTES)).expect("it is there");
            at_once(vfs.device_closed(device));
            assert_eq!(vfs.dirty_pages_now(), 8, "another has it open");
            at_once(vfs.device_closed(device));
            assert_eq!((vfs.dirty_pages_now(), vfs.cached_pages(device)), (0, 0));
            assert_eq!(vfs.counts().written, 8 * round);
        }
        // Nobody has it open: there is nothing to close.
        at_once(vfs.device_closed(device));
    }
}
