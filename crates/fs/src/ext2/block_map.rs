//! The block map of a file: direct pointers in the inode, and indirect blocks of one, two
//! and three levels (Linux 6.12's `fs/ext2/inode.c`).

use std::pin::Pin;

use crate::buffer::{Buffer, Buffers};
use crate::error::FsError;
use crate::file_system::{BlockMap, Caller, Ino};

use super::Ext2;
use super::inode::Inode;
use super::superblock::Geometry;

/// Direct pointers of an inode (`EXT2_NDIR_BLOCKS`).
pub(super) const DIRECT: u64 = 12;

/// The path to a block of a file: the index of the pointer at each level
/// (`ext2_block_to_path`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Path {
    offsets: [usize; 4],
    depth: usize,
    /// Pointers of the last level from the block's own one on.
    leaf_left: u64,
}

impl Path {
    fn to(block: u64, geometry: &Geometry) -> Option<Path> {
        let pointers = geometry.pointers();
        if block < DIRECT {
            return Some(Path {
                offsets: [block as usize, 0, 0, 0],
                depth: 1,
                leaf_left: DIRECT - block,
            });
        }
        let mut rest = block - DIRECT;
        for levels in 1..=3_u32 {
            if rest < pointers.pow(levels) {
                let mut offsets = [(DIRECT - 1) as usize + levels as usize, 0, 0, 0];
                for level in 1..=levels {
                    let below = pointers.pow(levels - level);
                    offsets[level as usize] = (rest / below % pointers) as usize;
                }
                return Some(Path {
                    offsets,
                    depth: levels as usize + 1,
                    leaf_left: pointers - rest % pointers,
                });
            }
            rest -= pointers.pow(levels);
        }
        None
    }

    /// How many blocks of the file, from this one on, the pointer of a level covers.
    fn covered_from_here(&self, level: usize, pointers: u64) -> u64 {
        let covered = pointers.pow((self.depth - level) as u32);
        let below = self.offsets[level..self.depth].iter();
        covered - below.fold(0, |rest, &offset| rest * pointers + offset as u64)
    }
}

/// The length of the longest file: one that pointers reach and whose sectors an inode can
/// count (`ext2_max_size`).
pub(super) fn file_bytes_max(geometry: &Geometry) -> u64 {
    let pointers = geometry.pointers();
    let reached = DIRECT + pointers + pointers.pow(2) + pointers.pow(3);
    // The 32-bit count of sectors includes those of indirect blocks.
    let countable = u64::from(u32::MAX) / geometry.block_sectors();
    let levels = 1 + countable.div_ceil(pointers) + countable.div_ceil(pointers.pow(2));
    reached.min(countable - levels) * u64::from(geometry.block_bytes)
}

/// The pointers of a path that exist (`Indirect chain[4]`).
struct Branch {
    path: Path,
    /// The indirect blocks of the path, as many as `depth` says.
    parents: [Option<Buffer>; 3],
    depth: usize,
    /// The last pointer that was read; 0 in a hole.
    pointer: u32,
}

impl Branch {
    /// The level of the last pointer.
    fn level(&self) -> usize {
        self.depth + 1
    }

    /// The last indirect block.
    fn parent(&self) -> Option<&Buffer> {
        self.parents[..self.depth].last()?.as_ref()
    }

    /// The number of indirect blocks that are missing.
    fn missing(&self) -> usize {
        self.path.depth - self.level()
    }

    /// The pointer `n` after the last one.
    fn nth_after(&self, inode: &Inode, n: u64) -> u32 {
        let offset = self.path.offsets[self.level() - 1] + n as usize;
        match self.parent() {
            Some(buffer) => buffer.u32_at(4 * offset),
            None => inode.pointers[offset],
        }
    }

    /// How many pointers in a row, from the last one on, satisfy `is`, up to `most`.
    fn run(&self, inode: &Inode, most: u64, is: impl Fn(u64, u32) -> bool) -> u64 {
        let most = most.min(self.path.leaf_left);
        let mut count = 1;
        while count < most && is(count, self.nth_after(inode, count)) {
            count += 1;
        }
        count
    }
}

/// Blocks that follow each other and are freed together.
#[derive(Debug, Default)]
struct PendingFree {
    first: u32,
    count: u32,
}

impl<D: Buffers> Ext2<D> {
    fn check_pointer(&self, byte: u64, pointer: u32) -> Result<(), FsError> {
        if self.geometry.is_data_block(pointer) {
            return Ok(());
        }
        Err(FsError::Corrupt {
            byte,
            what: "a file's block is not on the device, or is the superblock",
            found: pointer.into(),
        })
    }

    /// Reads the pointers to a block of a file (`ext2_get_branch`).
    async fn branch(&self, ino: Ino, block: u64) -> Result<Branch, FsError> {
        let path = Path::to(block, &self.geometry).ok_or(FsError::TooBig)?;
        let pointer = self.state.borrow().inodes[&ino].pointers[path.offsets[0]];
        let mut byte = self.pointer_byte(ino, path.offsets[0]);
        let mut branch = Branch {
            path,
            parents: [const { None }; 3],
            depth: 0,
            pointer,
        };
        while branch.pointer != 0 && branch.missing() > 0 {
            self.check_pointer(byte, branch.pointer)?;
            let buffer = self.indirect(ino, branch.depth, branch.pointer).await?;
            let offset = 4 * path.offsets[branch.level()];
            branch.pointer = buffer.u32_at(offset);
            byte = buffer.byte(offset);
            branch.parents[branch.depth] = Some(buffer);
            branch.depth += 1;
        }
        if branch.pointer != 0 {
            self.check_pointer(byte, branch.pointer)?;
        }
        Ok(branch)
    }

    /// An indirect block of a level.
    async fn indirect(&self, ino: Ino, level: usize, block: u32) -> Result<Buffer, FsError> {
        let known = self.state.borrow().inodes[&ino].branch[level].clone();
        let known = known.filter(|known| known.block() == u64::from(block));
        if let Some(known) = known.filter(|known| self.device.is_current(known)) {
            return Ok(known);
        }
        let buffer = self.device.bread(block.into()).await?;
        if self.device.keeps_buffers()
            && let Some(inode) = self.state.borrow_mut().inodes.get_mut(&ino)
        {
            inode.branch[level] = Some(buffer.clone());
        }
        Ok(buffer)
    }

    /// Maps blocks of a file; see `FileSystem::map`.
    pub(super) async fn get_blocks(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        create: Option<&Caller>,
    ) -> Result<BlockMap, FsError> {
        let branch = self.branch(ino, block).await?;
        let geometry = &self.geometry;
        if branch.pointer != 0 {
            let first = branch.pointer;
            let state = self.state.borrow();
            let count = branch.run(&state.inodes[&ino], blocks, |n, pointer| {
                u64::from(pointer) == u64::from(first) + n && geometry.is_data_block(pointer)
            });
            return Ok(BlockMap {
                block: Some(first.into()),
                blocks: count,
                is_new: false,
                boundary: count == branch.path.leaf_left,
            });
        }
        if let Some(caller) = create {
            return self.allocate(ino, block, blocks, &branch, caller).await;
        }
        let state = self.state.borrow();
        let count = match branch.missing() {
            0 => branch.run(&state.inodes[&ino], blocks, |_, pointer| pointer == 0),
            _ => branch
                .path
                .covered_from_here(branch.level(), geometry.pointers())
                .min(blocks),
        };
        Ok(BlockMap {
            block: None,
            blocks: count.max(1),
            is_new: false,
            boundary: false,
        })
    }

    /// The goal of a new block (`ext2_find_goal`, `ext2_find_near`): after the block
    /// allocated last, else near the block before it in the file, else near its indirect
    /// block, else in the inode's group at a place that depends on the process.
    fn find_goal(&self, ino: Ino, block: u64, branch: &Branch, caller: &Caller) -> u32 {
        let state = self.state.borrow();
        let inode = &state.inodes[&ino];
        if let Some((last, at)) = inode.last_allocated
            && block == last + 1
        {
            return at + 1;
        }
        let offset = branch.path.offsets[branch.level() - 1];
        let before = match branch.parent() {
            Some(buffer) => (0..offset)
                .rev()
                .map(|n| buffer.u32_at(4 * n))
                .find(|&p| p != 0),
            None => inode.pointers[..offset]
                .iter()
                .rev()
                .copied()
                .find(|&p| p != 0),
        };
        if let Some(before) = before {
            return before;
        }
        if let Some(parent) = branch.parent() {
            return parent.block() as u32;
        }
        let (group, _) = self.geometry.inode_place(ino);
        let colour = caller.pid % 16 * (self.geometry.blocks_per_group / 16);
        self.geometry.group_first_block(group) + colour
    }

    /// Allocates blocks of a hole, as many as follow each other, and the indirect blocks that
    /// are missing.
    async fn allocate(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        branch: &Branch,
        caller: &Caller,
    ) -> Result<BlockMap, FsError> {
        let goal = self.find_goal(ino, block, branch, caller);
        let missing = branch.missing();
        let count = match missing {
            0 => {
                let state = self.state.borrow();
                branch.run(&state.inodes[&ino], blocks, |_, pointer| pointer == 0)
            }
            _ => blocks.min(branch.path.leaf_left),
        };
        let (maps, first, count) = self.alloc_blocks(ino, goal, missing, count, caller).await?;
        let built = self.build_branch(ino, branch, &maps, first, count);
        if let Err(error) = built {
            // The file does not refer to any of them yet.
            self.undo_blocks(&maps).await?;
            self.free_blocks(first, count).await?;
            return Err(error);
        }
        let mut state = self.state.borrow_mut();
        if let Some(inode) = state.inodes.get_mut(&ino) {
            let all = u64::from(count) + maps.len() as u64;
            inode.sectors += all * self.geometry.block_sectors();
            let last = count - 1;
            inode.last_allocated = Some((block + u64::from(last), first + last));
            inode.ctime = caller.now.seconds;
            inode.is_dirty = true;
        }
        Ok(BlockMap {
            block: Some(first.into()),
            blocks: count.into(),
            is_new: true,
            boundary: u64::from(count) == branch.path.leaf_left,
        })
    }

    /// Allocates `missing` indirect blocks, and up to `count` blocks of the file in a row.
    /// Returns the indirect blocks, the file's first block and its blocks' number
    /// (`ext2_alloc_blocks`).
    async fn alloc_blocks(
        &self,
        ino: Ino,
        goal: u32,
        missing: usize,
        count: u64,
        caller: &Caller,
    ) -> Result<(Vec<u32>, u32, u32), FsError> {
        let mut maps = Vec::with_capacity(missing);
        loop {
            let wanted = (missing - maps.len()) as u64 + count;
            let wanted = wanted.min(self.geometry.blocks_per_group.into()) as u32;
            let (mut first, mut got) = match self.new_blocks(ino, goal, wanted, caller).await {
                Ok(found) => found,
                Err(error) => {
                    self.undo_blocks(&maps).await?;
                    return Err(error);
                }
            };
            while got > 0 && maps.len() < missing {
                maps.push(first);
                first += 1;
                got -= 1;
            }
            if got > 0 {
                return Ok((maps, first, got));
            }
        }
    }

    async fn undo_blocks(&self, maps: &[u32]) -> Result<(), FsError> {
        for &block in maps {
            self.free_blocks(block, 1).await?;
        }
        Ok(())
    }

    /// Fills new indirect blocks and then connects them with the file
    /// (`ext2_alloc_branch`, `ext2_splice_branch`).
    fn build_branch(
        &self,
        ino: Ino,
        branch: &Branch,
        maps: &[u32],
        first: u32,
        count: u32,
    ) -> Result<(), FsError> {
        let level = branch.level();
        for (n, &map) in maps.iter().enumerate() {
            let buffer = self.device.zeroed(map.into())?;
            let offset = branch.path.offsets[level + n];
            match maps.get(n + 1) {
                Some(&below) => buffer.set_u32(4 * offset, below),
                None => {
                    for n in 0..count as usize {
                        buffer.set_u32(4 * (offset + n), first + n as u32);
                    }
                }
            }
            self.device.mark_dirty(&buffer, Some(ino));
        }
        let offset = branch.path.offsets[level - 1];
        let (top, pointers) = match maps.first() {
            Some(&map) => (map, 1),
            None => (first, count),
        };
        if let Some(parent) = branch.parent() {
            for n in 0..pointers {
                parent.set_u32(4 * (offset + n as usize), top + n);
            }
            self.device.mark_dirty(parent, Some(ino));
            return Ok(());
        }
        let mut state = self.state.borrow_mut();
        if let Some(inode) = state.inodes.get_mut(&ino) {
            for n in 0..pointers {
                inode.pointers[offset + n as usize] = top + n;
            }
        }
        Ok(())
    }

    /// Frees all blocks of a file from block `from` on (`__ext2_truncate_blocks`).
    pub(super) async fn truncate_blocks(&self, ino: Ino, from: u64) -> Result<(), FsError> {
        let pointers = self.geometry.pointers();
        {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            if let Some(inode) = state.inodes.get_mut(&ino) {
                inode.reservation.discard(&mut state.windows);
                inode.last_allocated = None;
            }
        }
        let mut pending = PendingFree::default();
        let mut before = 0;
        for n in 0..super::inode::POINTERS {
            let levels = (n + 1).saturating_sub(DIRECT as usize) as u32;
            let covered = pointers.pow(levels);
            let first = from.saturating_sub(before);
            before += covered;
            let pointer = self.state.borrow().inodes[&ino].pointers[n];
            if first >= covered || pointer == 0 {
                continue;
            }
            self.check_pointer(self.pointer_byte(ino, n), pointer)?;
            if first == 0
                && let Some(inode) = self.state.borrow_mut().inodes.get_mut(&ino)
            {
                inode.pointers[n] = 0;
                inode.is_dirty = true;
            }
            self.free_tree(ino, pointer, levels, first, &mut pending)
                .await?;
        }
        self.free_pending(ino, &mut pending).await
    }

    /// Frees the blocks below a pointer of `levels` levels, from its `first` one on. If that
    /// is all of them, the pointer's own block is freed too (`ext2_free_branches`).
    fn free_tree<'a>(
        &'a self,
        ino: Ino,
        pointer: u32,
        levels: u32,
        first: u64,
        pending: &'a mut PendingFree,
    ) -> Pin<Box<dyn Future<Output = Result<(), FsError>> + 'a>> {
        Box::pin(async move {
            if levels > 0 {
                let below = self.geometry.pointers().pow(levels - 1);
                let buffer = self.device.bread(pointer.into()).await?;
                let start = (first / below) as usize;
                for n in start..self.geometry.pointers() as usize {
                    let child = buffer.u32_at(4 * n);
                    if child == 0 {
                        continue;
                    }
                    self.check_pointer(buffer.byte(4 * n), child)?;
                    let child_first = if n == start { first % below } else { 0 };
                    if first > 0 && child_first == 0 {
                        buffer.set_u32(4 * n, 0);
                        self.device.mark_dirty(&buffer, Some(ino));
                    }
                    self.free_tree(ino, child, levels - 1, child_first, pending)
                        .await?;
                }
            }
            if first > 0 {
                return Ok(());
            }
            if pointer != pending.first + pending.count {
                self.free_pending(ino, pending).await?;
                pending.first = pointer;
            }
            pending.count += 1;
            Ok(())
        })
    }

    async fn free_pending(&self, ino: Ino, pending: &mut PendingFree) -> Result<(), FsError> {
        let PendingFree { first, count } = std::mem::take(pending);
        if count == 0 {
            return Ok(());
        }
        self.free_blocks(first, count).await?;
        let mut state = self.state.borrow_mut();
        if let Some(inode) = state.inodes.get_mut(&ino) {
            let sectors = u64::from(count) * self.geometry.block_sectors();
            inode.sectors = inode.sectors.saturating_sub(sectors);
        }
        Ok(())
    }
}
