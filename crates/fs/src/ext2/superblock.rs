//! The superblock, and the geometry that follows from it.

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::Ino;

/// The device's byte where the superblock begins.
pub(crate) const SUPERBLOCK_BYTE: u64 = 1024;
/// The magic number (`EXT2_SUPER_MAGIC`).
pub(crate) const MAGIC: u16 = 0xef53;
/// The byte of the magic number in the superblock.
pub(crate) const MAGIC_BYTE: usize = at::MAGIC;

/// Byte offsets of the superblock's fields (`struct ext2_super_block`).
pub(super) mod at {
    pub(in crate::ext2) const INODES_COUNT: usize = 0;
    pub(in crate::ext2) const BLOCKS_COUNT: usize = 4;
    pub(in crate::ext2) const RESERVED_BLOCKS_COUNT: usize = 8;
    pub(in crate::ext2) const FREE_BLOCKS_COUNT: usize = 12;
    pub(in crate::ext2) const FREE_INODES_COUNT: usize = 16;
    pub(in crate::ext2) const FIRST_DATA_BLOCK: usize = 20;
    pub(in crate::ext2) const LOG_BLOCK_SIZE: usize = 24;
    pub(in crate::ext2) const LOG_FRAG_SIZE: usize = 28;
    pub(in crate::ext2) const BLOCKS_PER_GROUP: usize = 32;
    pub(in crate::ext2) const FRAGS_PER_GROUP: usize = 36;
    pub(in crate::ext2) const INODES_PER_GROUP: usize = 40;
    pub(in crate::ext2) const MOUNT_TIME: usize = 44;
    pub(in crate::ext2) const WRITE_TIME: usize = 48;
    pub(in crate::ext2) const MOUNT_COUNT: usize = 52;
    pub(in crate::ext2) const MAX_MOUNT_COUNT: usize = 54;
    pub(in crate::ext2) const MAGIC: usize = 56;
    pub(in crate::ext2) const STATE: usize = 58;
    pub(in crate::ext2) const ERRORS: usize = 60;
    pub(in crate::ext2) const LAST_CHECK: usize = 64;
    pub(in crate::ext2) const REV_LEVEL: usize = 76;
    pub(in crate::ext2) const RESERVED_UID: usize = 80;
    pub(in crate::ext2) const RESERVED_GID: usize = 82;
    pub(in crate::ext2) const FIRST_INO: usize = 84;
    pub(in crate::ext2) const INODE_SIZE: usize = 88;
    pub(in crate::ext2) const BLOCK_GROUP_NR: usize = 90;
    pub(in crate::ext2) const FEATURE_COMPAT: usize = 92;
    pub(in crate::ext2) const FEATURE_INCOMPAT: usize = 96;
    pub(in crate::ext2) const FEATURE_RO_COMPAT: usize = 100;
    pub(in crate::ext2) const UUID: usize = 104;
    pub(in crate::ext2) const VOLUME_NAME: usize = 120;
    pub(in crate::ext2) const FIRST_META_BG: usize = 260;
    pub(in crate::ext2) const MKFS_TIME: usize = 264;
}

/// The state of a cleanly unmounted file system (`EXT2_VALID_FS`).
pub(super) const STATE_VALID: u16 = 1;

pub(super) const INCOMPAT_FILETYPE: u32 = 0x2;
const INCOMPAT_META_BG: u32 = 0x10;
pub(super) const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
pub(super) const RO_COMPAT_LARGE_FILE: u32 = 0x2;
const RO_COMPAT_BTREE_DIR: u32 = 0x4;

/// Bytes of a group descriptor.
pub(super) const DESCRIPTOR_BYTES: u32 = 32;

/// The layout of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) block_bytes: u32,
    pub(super) first_data_block: u32,
    pub(super) blocks: u32,
    pub(super) blocks_per_group: u32,
    pub(super) inodes: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_bytes: u32,
    pub(super) first_ino: u32,
    pub(super) has_file_types: bool,
    pub(super) is_sparse: bool,
    /// The first block of group descriptors that lies in one of its own groups
    /// (`s_first_meta_bg`).
    pub(super) first_meta_bg: u32,
}

impl Geometry {
    /// Reads and checks a superblock at byte `offset` of a buffer.
    pub(super) fn read(buffer: &Buffer, offset: usize, size_bytes: u64) -> Result<Self, FsError> {
        let wrong = |at, what, found: u32| Err(buffer.corrupt(offset + at, what, found));
        let u32_at = |at| buffer.u32_at(offset + at);
        let magic = buffer.u16_at(offset + at::MAGIC);
        if magic != MAGIC {
            return wrong(at::MAGIC, "ext2's magic number is 0xef53", magic.into());
        }
        let log_block_size = u32_at(at::LOG_BLOCK_SIZE);
        if log_block_size > 2 {
            let what = "ext2's blocks are 1024 << 0, 1 or 2 bytes";
            return wrong(at::LOG_BLOCK_SIZE, what, log_block_size);
        }
        let is_dynamic = u32_at(at::REV_LEVEL) > 0;
        let feature = |at| if is_dynamic { u32_at(at) } else { 0 };
        let incompat = feature(at::FEATURE_INCOMPAT);
        if incompat & !(INCOMPAT_FILETYPE | INCOMPAT_META_BG) != 0 {
            let what = "ext2 has the incompatible features 0x12 at most (ext4 has more)";
            return wrong(at::FEATURE_INCOMPAT, what, incompat);
        }
        let ro_compat = feature(at::FEATURE_RO_COMPAT);
        let known = RO_COMPAT_SPARSE_SUPER | RO_COMPAT_LARGE_FILE | RO_COMPAT_BTREE_DIR;
        if ro_compat & !known != 0 {
            let what = "ext2 is written with the features 0x7 at most (ext4 has more)";
            return wrong(at::FEATURE_RO_COMPAT, what, ro_compat);
        }
        let geometry = Geometry {
            block_bytes: 1024 << log_block_size,
            first_data_block: u32_at(at::FIRST_DATA_BLOCK),
            blocks: u32_at(at::BLOCKS_COUNT),
            blocks_per_group: u32_at(at::BLOCKS_PER_GROUP),
            inodes: u32_at(at::INODES_COUNT),
            inodes_per_group: u32_at(at::INODES_PER_GROUP),
            inode_bytes: match is_dynamic {
                true => buffer.u16_at(offset + at::INODE_SIZE).into(),
                false => 128,
            },
            first_ino: if is_dynamic {
                u32_at(at::FIRST_INO)
            } else {
                11
            },
            has_file_types: incompat & INCOMPAT_FILETYPE != 0,
            is_sparse: ro_compat & RO_COMPAT_SPARSE_SUPER != 0,
            first_meta_bg: match incompat & INCOMPAT_META_BG {
                0 => u32::MAX,
                _ => u32_at(at::FIRST_META_BG),
            },
        };
        match geometry.wrong_field(size_bytes) {
            None => Ok(geometry),
            Some((at, what, found)) => wrong(at, what, found),
        }
    }

    /// The first field that is wrong: its byte, what would be right, and its value.
    fn wrong_field(&self, size_bytes: u64) -> Option<(usize, &'static str, u32)> {
        let g = self;
        let bits = 8 * g.block_bytes;
        let checks = [
            (
                g.first_data_block == u32::from(g.block_bytes == 1024),
                at::FIRST_DATA_BLOCK,
                "the first data block is 1 with blocks of 1024 bytes, 0 otherwise",
                g.first_data_block,
            ),
            (
                g.inode_bytes.is_power_of_two() && (128..=g.block_bytes).contains(&g.inode_bytes),
                at::INODE_SIZE,
                "an inode has 128, 256, ... bytes up to a block",
                g.inode_bytes,
            ),
            (
                g.blocks_per_group > 0
                    && g.blocks_per_group <= bits
                    && g.blocks_per_group.is_multiple_of(8),
                at::BLOCKS_PER_GROUP,
                "a group has at most as many blocks as a block has bits, in eights",
                g.blocks_per_group,
            ),
            (
                g.inodes_per_group >= g.block_bytes / g.inode_bytes.max(1)
                    && g.inodes_per_group <= bits,
                at::INODES_PER_GROUP,
                "a group has a block of inodes at least, and as many as a block has bits at most",
                g.inodes_per_group,
            ),
            (
                u64::from(g.blocks) * u64::from(g.block_bytes) <= size_bytes,
                at::BLOCKS_COUNT,
                "the device is shorter than this many blocks",
                g.blocks,
            ),
            (
                g.blocks > g.first_data_block,
                at::BLOCKS_COUNT,
                "there are fewer blocks than the superblock needs",
                g.blocks,
            ),
            (
                g.first_ino >= 11,
                at::FIRST_INO,
                "the first inode for files is 11 or more",
                g.first_ino,
            ),
        ];
        let wrong = checks.into_iter().find(|check| !check.0);
        if let Some((_, at, what, found)) = wrong {
            return Some((at, what, found));
        }
        let inodes = u64::from(g.groups()) * u64::from(g.inodes_per_group);
        (inodes != u64::from(g.inodes)).then_some((
            at::INODES_COUNT,
            "there are as many inodes as groups times inodes of a group",
            g.inodes,
        ))
    }

    pub(super) const fn groups(&self) -> u32 {
        (self.blocks - self.first_data_block).div_ceil(self.blocks_per_group)
    }

    pub(super) const fn group_first_block(&self, group: u32) -> u32 {
        self.first_data_block + group * self.blocks_per_group
    }

    /// The number of a group's blocks; the last group may have fewer.
    pub(super) fn group_blocks(&self, group: u32) -> u32 {
        let left = self.blocks - self.group_first_block(group);
        left.min(self.blocks_per_group)
    }

    /// The group of a block, and the block's bit in its bitmap.
    pub(super) const fn place(&self, block: u32) -> (u32, u32) {
        let from_first = block - self.first_data_block;
        let bit = from_first % self.blocks_per_group;
        (from_first / self.blocks_per_group, bit)
    }

    pub(super) const fn inode_table_blocks(&self) -> u32 {
        (self.inodes_per_group * self.inode_bytes).div_ceil(self.block_bytes)
    }

    pub(super) const fn descriptors_per_block(&self) -> u32 {
        self.block_bytes / DESCRIPTOR_BYTES
    }

    pub(super) const fn descriptor_blocks(&self) -> u32 {
        self.groups().div_ceil(self.descriptors_per_block())
    }

    /// Whether a group begins with a copy of superblock and descriptors (`ext2_bg_has_super`).
    pub(super) fn has_superblock(&self, group: u32) -> bool {
        let is_power_of = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        !self.is_sparse || group <= 1 || [3, 5, 7].into_iter().any(is_power_of)
    }

    /// The n-th block of group descriptors (`descriptor_loc`).
    pub(super) fn descriptor_block(&self, n: u32) -> u32 {
        if n < self.first_meta_bg {
            return self.first_data_block + 1 + n;
        }
        let group = n * self.descriptors_per_block();
        self.group_first_block(group) + u32::from(self.has_superblock(group))
    }

    /// Whether a block number can be a file's (`ext2_data_block_valid`).
    pub(super) fn is_data_block(&self, block: u32) -> bool {
        block > self.first_data_block && block < self.blocks
    }

    /// The group of an inode, and the inode's bit in its bitmap.
    pub(super) const fn inode_place(&self, ino: Ino) -> (u32, u32) {
        let number = (ino.0 - 1) as u32;
        (
            number / self.inodes_per_group,
            number % self.inodes_per_group,
        )
    }

    /// Pointers of an indirect block.
    pub(super) const fn pointers(&self) -> u64 {
        self.block_bytes as u64 / 4
    }

    /// Sectors of 512 bytes in a block.
    pub(super) const fn block_sectors(&self) -> u64 {
        self.block_bytes as u64 / 512
    }
}

/// Reads the superblock and sets the device's block size to its own. Returns the buffer that
/// holds it, and its byte there.
pub(super) async fn load<D: Buffers>(device: &D) -> Result<(Buffer, usize, Geometry), FsError> {
    let too_short = FsError::Corrupt {
        byte: device.size_bytes(),
        what: "the device ends before ext2's superblock does",
        found: device.size_bytes(),
    };
    if device.size_bytes() < 2 * SUPERBLOCK_BYTE {
        return Err(too_short);
    }
    device.set_block_bytes(1024).await?;
    let first = device.bread(1).await?;
    let geometry = Geometry::read(&first, 0, device.size_bytes())?;
    if geometry.block_bytes == 1024 {
        return Ok((first, 0, geometry));
    }
    device.set_block_bytes(geometry.block_bytes).await?;
    Ok((device.bread(0).await?, SUPERBLOCK_BYTE as usize, geometry))
}
