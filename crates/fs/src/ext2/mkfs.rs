//! Making an ext2 file system with the layout of `mke2fs -t ext2`, but without reserved
//! group descriptors for growing.

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Ino, Timestamp};

use super::bitmap;
use super::dir::{entry_bytes, write_dots, write_entry};
use super::group::GroupDescriptor;
use super::inode::{Inode, ROOT};
use super::mode;
use super::superblock::{
    Geometry, INCOMPAT_FILETYPE, MAGIC, RO_COMPAT_LARGE_FILE, RO_COMPAT_SPARSE_SUPER, STATE_VALID,
    SUPERBLOCK_BYTE, at,
};

/// The first inode for files, which is lost+found's (`EXT2_GOOD_OLD_FIRST_INO`).
const FIRST_INO: u32 = 11;
/// A last group with fewer blocks for files is left out.
const LAST_GROUP_BLOCKS_MIN: u32 = 50;
/// Bytes of lost+found.
const LOST_FOUND_BYTES: u32 = 16 << 10;
/// The most blocks of lost+found: those with direct pointers.
const LOST_FOUND_BLOCKS_MAX: u32 = 12;

/// The layout of a new ext2; see mke2fs(8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext2Layout {
    /// Bytes of a block: 1024, 2048 or 4096; chosen by the device's length if `None`.
    pub block_bytes: Option<u32>,
    /// Bytes of an inode: 128 or 256.
    pub inode_bytes: u32,
    /// The device's bytes for each inode; chosen by its length if `None`.
    pub bytes_per_inode: Option<u32>,
    /// Blocks reserved for root, in percent.
    pub reserved_percent: u32,
    /// The volume's label, up to 16 bytes.
    pub label: Vec<u8>,
    /// The volume's UUID.
    pub uuid: [u8; 16],
}

impl Default for Ext2Layout {
    fn default() -> Ext2Layout {
        Ext2Layout {
            block_bytes: None,
            inode_bytes: 256,
            bytes_per_inode: None,
            reserved_percent: 5,
            label: Vec::new(),
            uuid: [0; 16],
        }
    }
}

impl Ext2Layout {
    /// The geometry for a device of this length. Block sizes and inode ratios are those of
    /// the types floppy, small and default in mke2fs.conf.
    fn geometry(&self, size_bytes: u64) -> Result<Geometry, FsError> {
        let by_size = match size_bytes >> 20 {
            ..3 => (1024, 8192),
            3..512 => (1024, 4096),
            _ => (4096, 16384),
        };
        let block_bytes = self.block_bytes.unwrap_or(by_size.0);
        let ratio = u64::from(self.bytes_per_inode.unwrap_or(by_size.1).max(1));
        let is_legal = [1024, 2048, 4096].contains(&block_bytes)
            && [128, 256].contains(&self.inode_bytes)
            && self.reserved_percent <= 50
            && self.label.len() <= 16;
        let blocks = u32::try_from(size_bytes / u64::from(block_bytes));
        let mut geometry = Geometry {
            block_bytes,
            first_data_block: u32::from(block_bytes == 1024),
            blocks: blocks.map_err(|_| FsError::TooBig)?,
            blocks_per_group: 8 * block_bytes,
            inodes: 0,
            inodes_per_group: 0,
            inode_bytes: self.inode_bytes,
            first_ino: FIRST_INO,
            has_file_types: true,
            is_sparse: true,
            first_meta_bg: u32::MAX,
        };
        if !is_legal {
            return Err(FsError::BadCall);
        }
        if geometry.blocks <= geometry.first_data_block {
            return Err(FsError::NoSpace);
        }
        loop {
            let groups = geometry.groups();
            let inodes = u64::from(geometry.blocks) * u64::from(block_bytes) / ratio;
            let per_group = inodes.max(u64::from(FIRST_INO) + 1).div_ceil(groups.into());
            // The inode table fills its last block, and its bitmap the last byte.
            let in_block = u64::from(block_bytes / self.inode_bytes).max(8);
            let per_group = per_group.next_multiple_of(in_block);
            geometry.inodes_per_group = per_group.min(u64::from(8 * block_bytes)) as u32;
            let all = u64::from(geometry.inodes_per_group) * u64::from(groups);
            geometry.inodes = u32::try_from(all).map_err(|_| FsError::TooBig)?;
            let last = groups - 1;
            let needed = own_blocks(&geometry, last) + LAST_GROUP_BLOCKS_MIN;
            if geometry.group_blocks(last) >= needed {
                return Ok(geometry);
            }
            if last == 0 {
                let needed = own_blocks(&geometry, 0) + lost_found_blocks(&geometry) + 2;
                return match geometry.blocks > needed {
                    true => Ok(geometry),
                    false => Err(FsError::NoSpace),
                };
            }
            geometry.blocks = geometry.group_first_block(last);
        }
    }

    /// Writes a new file system.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] on a device that is too small, [`FsError::TooBig`] on one
    /// too large, [`FsError::BadCall`] where a value is none of those above.
    pub async fn make<D: Buffers>(&self, device: &D, now: Timestamp) -> Result<(), FsError> {
        let geometry = self.geometry(device.size_bytes())?;
        device.set_block_bytes(geometry.block_bytes).await?;
        let new = New {
            device,
            layout: self,
            geometry,
            now,
        };
        let descriptors = new.groups()?;
        new.directories().await?;
        new.superblocks(&descriptors)
    }
}

fn lost_found_blocks(geometry: &Geometry) -> u32 {
    let blocks = LOST_FOUND_BYTES.div_ceil(geometry.block_bytes);
    blocks.min(LOST_FOUND_BLOCKS_MAX)
}

/// Blocks of a group that the file system needs for itself.
fn own_blocks(geometry: &Geometry, group: u32) -> u32 {
    let copies = match geometry.has_superblock(group) {
        true => 1 + geometry.descriptor_blocks(),
        false => 0,
    };
    copies + 2 + geometry.inode_table_blocks()
}

/// A file system being made.
struct New<'a, D> {
    device: &'a D,
    layout: &'a Ext2Layout,
    geometry: Geometry,
    now: Timestamp,
}

impl<D: Buffers> New<'_, D> {
    fn write(&self, block: u32) -> Result<Buffer, FsError> {
        let buffer = self.device.zeroed(block.into())?;
        self.device.mark_dirty(&buffer, None);
        Ok(buffer)
    }

    /// The first block for files: the root's, after which come those of lost+found.
    fn first_file_block(&self) -> u32 {
        self.geometry.first_data_block + own_blocks(&self.geometry, 0)
    }

    /// Writes bitmaps and inode tables. Returns the blocks of the group descriptors.
    fn groups(&self) -> Result<Vec<Buffer>, FsError> {
        let geometry = &self.geometry;
        let blank = || vec![0; geometry.block_bytes as usize].into_boxed_slice();
        let blocks = 0..geometry.descriptor_blocks();
        let descriptors: Vec<Buffer> = blocks.map(|n| Buffer::new(n.into(), blank())).collect();
        for group in 0..geometry.groups() {
            let first = geometry.group_first_block(group);
            let own = own_blocks(geometry, group);
            let block_bitmap = first + own - 2 - geometry.inode_table_blocks();
            let mut used = own;
            let mut used_inodes = 0;
            if group == 0 {
                used += 1 + lost_found_blocks(&self.geometry);
                used_inodes = FIRST_INO;
            }
            let group_blocks = geometry.group_blocks(group);
            self.bitmap(block_bitmap, used, group_blocks)?;
            self.bitmap(block_bitmap + 1, used_inodes, geometry.inodes_per_group)?;
            let table = u64::from(block_bitmap) + 2;
            self.device
                .clear(table, geometry.inode_table_blocks().into())?;
            let descriptor = GroupDescriptor::of(group, &descriptors, geometry);
            descriptor.set_places(block_bitmap, block_bitmap + 1, block_bitmap + 2);
            let free_inodes = geometry.inodes_per_group - used_inodes;
            let dirs = if group == 0 { 2 } else { 0 };
            descriptor.set_counts((group_blocks - used) as u16, free_inodes as u16, dirs);
        }
        Ok(descriptors)
    }

    /// Writes a bitmap with the first `used` bits set, and those from `end` on, which stand
    /// for nothing.
    fn bitmap(&self, block: u32, used: u32, end: u32) -> Result<(), FsError> {
        let buffer = self.write(block)?;
        let mut bits = buffer.bytes_mut();
        for bit in (0..used).chain(end..8 * self.geometry.block_bytes) {
            bitmap::set(&mut bits, bit);
        }
        Ok(())
    }

    /// Writes the root directory and lost+found.
    async fn directories(&self) -> Result<(), FsError> {
        let root_block = self.first_file_block();
        let lost_found = Ino(FIRST_INO.into());
        let blocks = lost_found_blocks(&self.geometry);
        self.inode(ROOT, 0o755, 3, root_block, 1).await?;
        self.inode(lost_found, 0o700, 2, root_block + 1, blocks)
            .await?;
        let root = self.write(root_block)?;
        write_dots(&root, ROOT, ROOT, true);
        let name = b"lost+found";
        root.set_u16(entry_bytes(1) + 4, entry_bytes(2) as u16);
        let offset = entry_bytes(1) + entry_bytes(2);
        let block_bytes = self.geometry.block_bytes as usize;
        let directory = root.bytes()[7];
        write_entry(
            &root,
            offset,
            block_bytes - offset,
            lost_found,
            name,
            directory,
        );
        for n in 0..blocks {
            let buffer = self.write(root_block + 1 + n)?;
            match n {
                0 => write_dots(&buffer, lost_found, ROOT, true),
                _ => write_entry(&buffer, 0, block_bytes, Ino(0), b"", 0),
            }
        }
        Ok(())
    }

    async fn inode(
        &self,
        ino: Ino,
        permissions: u16,
        links: u16,
        first: u32,
        blocks: u32,
    ) -> Result<(), FsError> {
        let geometry = &self.geometry;
        let now = self.now.seconds;
        let mut inode = Inode {
            mode: mode::DIRECTORY | permissions,
            links,
            size_bytes: u64::from(blocks) * u64::from(geometry.block_bytes),
            sectors: u64::from(blocks) * geometry.block_sectors(),
            atime: now,
            ctime: now,
            mtime: now,
            ..Inode::default()
        };
        for n in 0..blocks {
            inode.pointers[n as usize] = first + n;
        }
        let (_, index) = geometry.inode_place(ino);
        let byte = index * geometry.inode_bytes;
        let table = self.first_file_block() - geometry.inode_table_blocks();
        let block = table + byte / geometry.block_bytes;
        let offset = (byte % geometry.block_bytes) as usize;
        let buffer = self.device.bread(block.into()).await?;
        inode.write(&buffer, offset);
        self.device.mark_dirty(&buffer, None);
        Ok(())
    }

    /// Writes the superblock and the group descriptors, with their copies.
    fn superblocks(&self, descriptors: &[Buffer]) -> Result<(), FsError> {
        let geometry = &self.geometry;
        let groups = 0..geometry.groups();
        for group in groups.filter(|&group| geometry.has_superblock(group)) {
            let first = geometry.group_first_block(group);
            let buffer = self.write(first)?;
            let is_first = group == 0 && geometry.block_bytes > 1024;
            let offset = if is_first {
                SUPERBLOCK_BYTE as usize
            } else {
                0
            };
            self.superblock(&buffer, offset, group);
            let (mut free_blocks, mut free_inodes) = (0, 0);
            for group in 0..geometry.groups() {
                let descriptor = GroupDescriptor::of(group, descriptors, geometry);
                free_blocks += u32::from(descriptor.free_blocks());
                free_inodes += u32::from(descriptor.free_inodes());
            }
            buffer.set_u32(offset + at::FREE_BLOCKS_COUNT, free_blocks);
            buffer.set_u32(offset + at::FREE_INODES_COUNT, free_inodes);
            for (n, descriptor) in descriptors.iter().enumerate() {
                let copy = self.write(first + 1 + n as u32)?;
                copy.bytes_mut().copy_from_slice(&descriptor.bytes());
            }
        }
        Ok(())
    }

    fn superblock(&self, buffer: &Buffer, offset: usize, group: u32) {
        let (geometry, layout) = (&self.geometry, self.layout);
        let put32 = |at, value| buffer.set_u32(offset + at, value);
        let put16 = |at, value| buffer.set_u16(offset + at, value);
        let log_block_size = geometry.block_bytes.trailing_zeros() - 10;
        let reserved = u64::from(geometry.blocks) * u64::from(layout.reserved_percent) / 100;
        let now = self.now.seconds as u32;
        put32(at::INODES_COUNT, geometry.inodes);
        put32(at::BLOCKS_COUNT, geometry.blocks);
        put32(at::RESERVED_BLOCKS_COUNT, reserved as u32);
        put32(at::FIRST_DATA_BLOCK, geometry.first_data_block);
        put32(at::LOG_BLOCK_SIZE, log_block_size);
        put32(at::LOG_FRAG_SIZE, log_block_size);
        put32(at::BLOCKS_PER_GROUP, geometry.blocks_per_group);
        put32(at::FRAGS_PER_GROUP, geometry.blocks_per_group);
        put32(at::INODES_PER_GROUP, geometry.inodes_per_group);
        put32(at::WRITE_TIME, now);
        put16(at::MAX_MOUNT_COUNT, u16::MAX);
        put16(at::MAGIC, MAGIC);
        put16(at::STATE, STATE_VALID);
        // The kernel continues on errors (`EXT2_ERRORS_CONTINUE`).
        put16(at::ERRORS, 1);
        put32(at::LAST_CHECK, now);
        put32(at::REV_LEVEL, 1);
        put32(at::FIRST_INO, geometry.first_ino);
        put16(at::INODE_SIZE, geometry.inode_bytes as u16);
        put16(at::BLOCK_GROUP_NR, group as u16);
        put32(at::FEATURE_COMPAT, 0);
        put32(at::FEATURE_INCOMPAT, INCOMPAT_FILETYPE);
        put32(
            at::FEATURE_RO_COMPAT,
            RO_COMPAT_SPARSE_SUPER | RO_COMPAT_LARGE_FILE,
        );
        put32(at::MKFS_TIME, now);
        let mut bytes = buffer.bytes_mut();
        bytes[offset + at::UUID..][..16].copy_from_slice(&layout.uuid);
        bytes[offset + at::VOLUME_NAME..][..layout.label.len()].copy_from_slice(&layout.label);
    }
}
