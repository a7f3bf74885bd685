//! Allocation of inodes (Linux 6.12's `fs/ext2/ialloc.c`): directories are spread over the
//! groups, files go to the group of their directory.

use rand_xoshiro::rand_core::RngCore;

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{Caller, Ino};

use super::inode::{FLAG_TOPDIR, Inode, ROOT};
use super::mode;
use super::superblock::at;
use super::{Ext2, bitmap};

/// The weights of an inode and of a block in a group's largest debt.
const INODE_COST: u32 = 64;
const BLOCK_COST: u32 = 256;

impl<D: Buffers> Ext2<D> {
    async fn inode_bitmap(&self, group: u32) -> Result<Buffer, FsError> {
        let block = self.descriptor(group).inode_bitmap();
        self.device.bread(block.into()).await
    }

    /// Allocates an inode and creates it in memory (`ext2_new_inode`).
    pub(super) async fn new_inode(
        &self,
        dir: Ino,
        new_mode: u16,
        caller: &Caller,
    ) -> Result<Ino, FsError> {
        let is_dir = new_mode & mode::KIND == mode::DIRECTORY;
        let group = match is_dir {
            true => self.find_group_orlov(dir),
            false => self.find_group_other(dir),
        };
        let (group, bit) = self.take_inode(group.ok_or(FsError::NoSpace)?).await?;
        let descriptor = self.descriptor(group);
        descriptor.add_free_inode(-1, is_dir);
        self.device.mark_dirty(descriptor.buffer(), None);
        let number = group * self.geometry.inodes_per_group + bit + 1;
        let ino = Ino(number.into());
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let debt = &mut state.debts[group as usize];
        *debt = match is_dir {
            true => debt.saturating_add(1),
            false => debt.saturating_sub(1),
        };
        state.free_inodes = state.free_inodes.saturating_sub(1);
        state.dirs += u64::from(is_dir);
        state.next_generation = state.next_generation.wrapping_add(1);
        let parent = &state.inodes[&dir];
        let is_groups = parent.mode & mode::SET_GROUP_ID != 0;
        let group_bit = if is_groups && is_dir {
            mode::SET_GROUP_ID
        } else {
            0
        };
        let now = caller.now.seconds;
        let inode = Inode {
            mode: new_mode | group_bit,
            uid: caller.uid,
            gid: if is_groups { parent.gid } else { caller.gid },
            atime: now,
            ctime: now,
            mtime: now,
            links: 1,
            flags: parent.inherited_flags(new_mode),
            generation: state.next_generation,
            is_new: true,
            is_dirty: true,
            ..Inode::default()
        };
        state.inodes.insert(ino, inode);
        Ok(ino)
    }

    /// Marks the first free inode from a group on as used. Returns its group and bit.
    async fn take_inode(&self, group: u32) -> Result<(u32, u32), FsError> {
        let geometry = &self.geometry;
        for n in 0..geometry.groups() {
            let group = (group + n) % geometry.groups();
            let buffer = self.inode_bitmap(group).await?;
            let mut bits = buffer.bytes_mut();
            let Some(bit) = bitmap::next_zero(&bits, 0, geometry.inodes_per_group) else {
                continue;
            };
            if group == 0 && bit + 1 < geometry.first_ino {
                drop(bits);
                let what = "the inode bitmap says that a reserved inode is free";
                return Err(buffer.corrupt(bit as usize / 8, what, bit + 1));
            }
            bitmap::set(&mut bits, bit);
            drop(bits);
            self.device.mark_dirty(&buffer, None);
            return Ok((group, bit));
        }
        Err(FsError::NoSpace)
    }

    /// Frees an inode (`ext2_free_inode`).
    pub(super) async fn free_inode(&self, ino: Ino, is_dir: bool) -> Result<(), FsError> {
        let (group, bit) = self.geometry.inode_place(ino);
        let buffer = self.inode_bitmap(group).await?;
        let was_set = bitmap::clear(&mut buffer.bytes_mut(), bit);
        if !was_set {
            let what = "an inode in use is marked free";
            return Err(buffer.corrupt(bit as usize / 8, what, ino.0));
        }
        self.device.mark_dirty(&buffer, None);
        let descriptor = self.descriptor(group);
        descriptor.add_free_inode(1, is_dir);
        self.device.mark_dirty(descriptor.buffer(), None);
        let mut state = self.state.borrow_mut();
        state.free_inodes += 1;
        state.dirs = state.dirs.saturating_sub(is_dir.into());
        Ok(())
    }

    /// The group of a new directory (`find_group_orlov`): one of the root goes to a group
    /// with few directories, others near their parent as long as there is room.
    fn find_group_orlov(&self, dir: Ino) -> Option<u32> {
        let geometry = &self.geometry;
        let groups = geometry.groups();
        let mut state = self.state.borrow_mut();
        let average_inodes = state.free_inodes / u64::from(groups);
        let average_blocks = state.free_blocks / u64::from(groups);
        let is_top = dir == ROOT || state.inodes[&dir].flags & FLAG_TOPDIR != 0;
        let parent_group = match is_top {
            true => (state.random.next_u64() % u64::from(groups)) as u32,
            false => geometry.inode_place(dir).0,
        };
        let from_parent = || (0..groups).map(|n| (parent_group + n) % groups);
        let with_inodes = || from_parent().filter(|&g| self.descriptor(g).free_inodes() > 0);
        let found = if is_top {
            let mut best = None;
            let mut fewest = geometry.inodes_per_group;
            for group in with_inodes() {
                let descriptor = self.descriptor(group);
                if u32::from(descriptor.used_dirs()) < fewest
                    && u64::from(descriptor.free_inodes()) >= average_inodes
                    && u64::from(descriptor.free_blocks()) >= average_blocks
                {
                    fewest = descriptor.used_dirs().into();
                    best = Some(group);
                }
            }
            best
        } else {
            let dirs = state.dirs.max(1);
            let used_blocks = u64::from(geometry.blocks).saturating_sub(state.free_blocks);
            let blocks_per_dir = (used_blocks / dirs) as u32;
            let dirs_max = (dirs as u32) / groups + geometry.inodes_per_group / 16;
            let inodes_min =
                average_inodes.saturating_sub(u64::from(geometry.inodes_per_group / 4));
            let blocks_min =
                average_blocks.saturating_sub(u64::from(geometry.blocks_per_group / 4));
            let debt_max = (geometry.blocks_per_group / blocks_per_dir.max(BLOCK_COST))
                .min(geometry.inodes_per_group / INODE_COST)
                .clamp(1, 255);
            with_inodes().find(|&group| {
                let descriptor = self.descriptor(group);
                u32::from(state.debts[group as usize]) < debt_max
                    && u32::from(descriptor.used_dirs()) < dirs_max
                    && u64::from(descriptor.free_inodes()) >= inodes_min
                    && u64::from(descriptor.free_blocks()) >= blocks_min
            })
        };
        let fair = |&group: &u32| u64::from(self.descriptor(group).free_inodes()) >= average_inodes;
        found
            .or_else(|| with_inodes().find(fair))
            .or_else(|| with_inodes().next())
    }

    /// The group of any other inode (`find_group_other`): that of its directory, else one by
    /// a hash of the directory, so that files of one directory stay together.
    fn find_group_other(&self, dir: Ino) -> Option<u32> {
        let groups = self.geometry.groups();
        let parent_group = self.geometry.inode_place(dir).0;
        let has_both = |group: &u32| {
            let descriptor = self.descriptor(*group);
            descriptor.free_inodes() > 0 && descriptor.free_blocks() > 0
        };
        if has_both(&parent_group) {
            return Some(parent_group);
        }
        let mut group = ((u64::from(parent_group) + dir.0) % u64::from(groups)) as u32;
        let mut step = 1;
        while step < groups {
            group = (group + step) % groups;
            if has_both(&group) {
                return Some(group);
            }
            step *= 2;
        }
        let behind = (1..=groups).map(|n| (parent_group + n) % groups);
        let mut behind = behind.filter(|&group| self.descriptor(group).free_inodes() > 0);
        behind.next()
    }

    /// Puts the descriptors' sums of free blocks and inodes into the superblock
    /// (`ext2_sync_fs`).
    pub(super) fn update_superblock(&self, now_s: i64) {
        let (mut blocks, mut inodes) = (0_u32, 0_u32);
        for group in 0..self.geometry.groups() {
            let descriptor = self.descriptor(group);
            blocks += u32::from(descriptor.free_blocks());
            inodes += u32::from(descriptor.free_inodes());
        }
        let at = |field| self.superblock_byte(field);
        self.superblock.set_u32(at(at::FREE_BLOCKS_COUNT), blocks);
        self.superblock.set_u32(at(at::FREE_INODES_COUNT), inodes);
        self.superblock.set_u32(at(at::WRITE_TIME), now_s as u32);
        self.device.mark_dirty(&self.superblock, None);
    }
}
