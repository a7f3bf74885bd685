//! Group descriptors: where a group's bitmaps and inode table are, and how full it is.

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;

use super::bitmap;
use super::superblock::{DESCRIPTOR_BYTES, Geometry};

/// Byte offsets of a descriptor's fields (`struct ext2_group_desc`).
mod at {
    pub(super) const BLOCK_BITMAP: usize = 0;
    pub(super) const INODE_BITMAP: usize = 4;
    pub(super) const INODE_TABLE: usize = 8;
    pub(super) const FREE_BLOCKS: usize = 12;
    pub(super) const FREE_INODES: usize = 14;
    pub(super) const USED_DIRS: usize = 16;
}

/// A group's descriptor in its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupDescriptor<'a> {
    buffer: &'a Buffer,
    offset: usize,
}

impl GroupDescriptor<'_> {
    /// The descriptor of a group; `buffers` hold all descriptors.
    pub(super) fn of<'a>(
        group: u32,
        buffers: &'a [Buffer],
        geometry: &Geometry,
    ) -> GroupDescriptor<'a> {
        let per_block = geometry.descriptors_per_block();
        GroupDescriptor {
            buffer: &buffers[(group / per_block) as usize],
            offset: (group % per_block * DESCRIPTOR_BYTES) as usize,
        }
    }

    pub(super) fn buffer(&self) -> &Buffer {
        self.buffer
    }

    pub(super) fn block_bitmap(&self) -> u32 {
        self.buffer.u32_at(self.offset + at::BLOCK_BITMAP)
    }

    pub(super) fn inode_bitmap(&self) -> u32 {
        self.buffer.u32_at(self.offset + at::INODE_BITMAP)
    }

    pub(super) fn inode_table(&self) -> u32 {
        self.buffer.u32_at(self.offset + at::INODE_TABLE)
    }

    pub(super) fn free_blocks(&self) -> u16 {
        self.buffer.u16_at(self.offset + at::FREE_BLOCKS)
    }

    pub(super) fn free_inodes(&self) -> u16 {
        self.buffer.u16_at(self.offset + at::FREE_INODES)
    }

    pub(super) fn used_dirs(&self) -> u16 {
        self.buffer.u16_at(self.offset + at::USED_DIRS)
    }

    /// Sets where the bitmaps and the inode table are.
    pub(super) fn set_places(&self, block_bitmap: u32, inode_bitmap: u32, inode_table: u32) {
        let put = |at, value| self.buffer.set_u32(self.offset + at, value);
        put(at::BLOCK_BITMAP, block_bitmap);
        put(at::INODE_BITMAP, inode_bitmap);
        put(at::INODE_TABLE, inode_table);
    }

    /// Sets the counters.
    pub(super) fn set_counts(&self, free_blocks: u16, free_inodes: u16, used_dirs: u16) {
        let put = |at, value| self.buffer.set_u16(self.offset + at, value);
        put(at::FREE_BLOCKS, free_blocks);
        put(at::FREE_INODES, free_inodes);
        put(at::USED_DIRS, used_dirs);
    }

    /// Adds to the count of free blocks; negative for allocated ones.
    pub(super) fn add_free_blocks(&self, blocks: i32) {
        let free = i32::from(self.free_blocks()) + blocks;
        let free = free.clamp(0, u16::MAX.into()) as u16;
        self.set_counts(free, self.free_inodes(), self.used_dirs());
    }

    /// Counts an inode that was allocated (-1) or freed (1).
    pub(super) fn add_free_inode(&self, inodes: i16, is_dir: bool) {
        let free = self.free_inodes().saturating_add_signed(inodes);
        let dirs = self.used_dirs();
        let dirs = match is_dir {
            true => dirs.saturating_add_signed(-inodes),
            false => dirs,
        };
        self.set_counts(self.free_blocks(), free, dirs);
    }

    /// Checks that the bitmaps and the inode table of a group lie in it.
    fn check(&self, geometry: &Geometry, group: u32) -> Result<(), FsError> {
        let first = geometry.group_first_block(group);
        let last = first + (geometry.group_blocks(group) - 1);
        let table_blocks = geometry.inode_table_blocks();
        let fields = [
            (at::BLOCK_BITMAP, self.block_bitmap(), 1),
            (at::INODE_BITMAP, self.inode_bitmap(), 1),
            (at::INODE_TABLE, self.inode_table(), table_blocks),
        ];
        for (at, block, blocks) in fields {
            let end = u64::from(block) + u64::from(blocks);
            if block < first || end > u64::from(last) + 1 {
                let what = match at {
                    at::BLOCK_BITMAP => "a group's block bitmap is not in the group",
                    at::INODE_BITMAP => "a group's inode bitmap is not in the group",
                    _ => "a group's inode table is not in the group",
                };
                return Err(self.buffer.corrupt(self.offset + at, what, block));
            }
        }
        Ok(())
    }

    /// Whether blocks of a group overlap its bitmaps or its inode table.
    pub(super) fn is_system_zone(&self, geometry: &Geometry, block: u32, blocks: u32) -> bool {
        let touches = |first: u32, count: u32| block < first + count && first < block + blocks;
        touches(self.block_bitmap(), 1)
            || touches(self.inode_bitmap(), 1)
            || touches(self.inode_table(), geometry.inode_table_blocks())
    }

    /// Checks that the block bitmap of a group marks its bitmaps and its inode table as used
    /// (`ext2_valid_block_bitmap`).
    pub(super) fn check_block_bitmap(
        &self,
        geometry: &Geometry,
        group: u32,
        block_bitmap: &Buffer,
    ) -> Result<(), FsError> {
        let first = geometry.group_first_block(group);
        let table = self.inode_table()..self.inode_table() + geometry.inode_table_blocks();
        let bitmap = block_bitmap.bytes();
        let own = [self.block_bitmap(), self.inode_bitmap()].into_iter();
        let free = own
            .chain(table)
            .find(|block| !bitmap::test(&bitmap, block - first));
        drop(bitmap);
        let what = "the block bitmap says that a block of the group's own structures is free";
        match free {
            None => Ok(()),
            Some(block) => Err(block_bitmap.corrupt((block - first) as usize / 8, what, block)),
        }
    }
}

/// Reads all descriptors.
pub(super) async fn load<D: Buffers>(
    device: &D,
    geometry: &Geometry,
) -> Result<Vec<Buffer>, FsError> {
    let mut buffers = Vec::new();
    for n in 0..geometry.descriptor_blocks() {
        let block = geometry.descriptor_block(n);
        buffers.push(device.bread(block.into()).await?);
    }
    for group in 0..geometry.groups() {
        GroupDescriptor::of(group, &buffers, geometry).check(geometry, group)?;
    }
    Ok(buffers)
}
