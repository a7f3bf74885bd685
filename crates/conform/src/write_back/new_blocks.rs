//! Where the file system put what the program wrote to new blocks.
//!
//! That is told from the recorded writes: a file's dirty blocks are written in the
//! order of the file, from where `do_writepages` begins.

use std::collections::{BTreeMap, BTreeSet};

use blklab_blk::Op;
use blklab_fs::{InodeId, PAGE_BYTES};
use blklab_workload::trace::tracefs::{EventKind, Line, parse_line};

use crate::page_cache::{Call, Fields, RunFile};

/// Blocks of files by their first bytes.
pub(super) type Blocks = BTreeSet<(InodeId, u64)>;

/// Adds to each file the extents of the blocks that are allocated during the run, and returns
/// those blocks.
pub(super) fn place_new_blocks(files: &mut [RunFile], calls: &[Call], text: &str) -> Blocks {
    let mut allocation = Allocation::new(files);
    for line in text.lines() {
        let Some(fields) = Fields::of(line) else {
            continue;
        };
        let task = usize::from(fields.is_driver);
        match fields.event {
            "mark" => {
                let number = fields.rest.trim().strip_prefix('L');
                let number = number.and_then(|digits| digits.parse::<usize>().ok());
                if let Some(call) = number.and_then(|n| calls.get(n.checked_sub(1)?)) {
                    allocation.make(call);
                }
            }
            "writepages" => allocation.writing[task] = Writing::begin(&fields, allocation.files),
            "writepages_ret" => allocation.writing[task] = None,
            "block_bio_queue" => {
                if let Ok(Line::Event(event)) = parse_line(line)
                    && let EventKind::BioQueue(bio) = event.kind
                    && bio.rwbs.op == Some(Op::Write)
                {
                    allocation.place(task, bio.sector.0, u64::from(bio.sectors));
                }
            }
            _ => {}
        }
    }
    let placed = allocation.placed;
    for file in files {
        file.extents.sort_unstable();
    }
    placed
}

/// A file whose pages are written.
#[derive(Clone, Copy)]
struct Writing {
    inode: InodeId,
    /// The byte from which its next block is looked for.
    next: u64,
}

impl Writing {
    fn begin(fields: &Fields<'_>, files: &[RunFile]) -> Option<Writing> {
        let number = fields.unsigned("ino")?;
        let n = files.iter().position(|file| file.number == number)?;
        let next = match fields.unsigned("cyclic")? {
            0 => fields.unsigned("range_start")?,
            _ => fields.unsigned("wb_index")?.checked_mul(PAGE_BYTES)?,
        };
        let inode = InodeId(n as u32);
        Some(Writing { inode, next })
    }
}

/// An open file of the program.
struct Opened {
    inode: InodeId,
    pos: u64,
    appends: bool,
}

/// What is dirty and not allocated yet, as the calls are made.
struct Allocation<'a> {
    files: &'a mut [RunFile],
    sizes: Vec<u64>,
    open: BTreeMap<usize, Opened>,
    /// Of each mapping the file and the byte at which it begins.
    mappings: BTreeMap<usize, (InodeId, u64)>,
    new_blocks: BTreeMap<InodeId, BTreeSet<u64>>,
    /// What was found to be written, and where.
    placed: Blocks,
    /// What the flusher and the program are at.
    writing: [Option<Writing>; 2],
}

impl<'a> Allocation<'a> {
    fn new(files: &'a mut [RunFile]) -> Allocation<'a> {
        Allocation {
            sizes: files.iter().map(|file| file.inode.size_bytes).collect(),
            files,
            open: BTreeMap::new(),
            mappings: BTreeMap::new(),
            new_blocks: BTreeMap::new(),
            placed: Blocks::new(),
            writing: [None, None],
        }
    }

    fn size(&mut self, inode: InodeId) -> &mut u64 {
        &mut self.sizes[inode.0 as usize]
    }

    /// The program makes a call.
    fn make(&mut self, call: &Call) {
        match *call {
            Call::Open {
                slot,
                ref path,
                how,
            } => {
                if let Some(n) = self.files.iter().position(|file| file.path == *path) {
                    let opened = Opened {
                        inode: InodeId(n as u32),
                        pos: 0,
                        appends: how.append,
                    };
                    self.open.insert(slot, opened);
                }
            }
            Call::Close { slot } => drop(self.open.remove(&slot)),
            Call::Seek { slot, offset } => self.move_to(slot, offset),
            Call::Read { slot, bytes } => self.read(slot, bytes),
            Call::Write { slot, bytes } => {
                let Some((inode, pos)) = self.place_of_write(slot, None) else {
                    return;
                };
                self.write(inode, pos, pos + bytes);
                self.move_to(slot, pos + bytes);
            }
            Call::WriteAt {
                slot,
                offset,
                bytes,
                ..
            } => {
                if let Some((inode, pos)) = self.place_of_write(slot, Some(offset)) {
                    self.write(inode, pos, pos + bytes);
                }
            }
            Call::Truncate { slot, bytes } => self.truncate(slot, bytes),
            Call::Map {
                mapping,
                slot,
                offset,
                ..
            } => {
                let mapped = self.open.get(&slot).map(|opened| (opened.inode, offset));
                self.mappings.extend(mapped.map(|mapped| (mapping, mapped)));
            }
            Call::Touch {
                mapping,
                offset,
                write: true,
            } => self.touch(mapping, offset),
            _ => {}
        }
    }

    fn move_to(&mut self, slot: usize, pos: u64) {
        if let Some(opened) = self.open.get_mut(&slot) {
            opened.pos = pos;
        }
    }

    fn read(&mut self, slot: usize, bytes: u64) {
        if let Some(opened) = self.open.get_mut(&slot) {
            let size = self.sizes[opened.inode.0 as usize];
            opened.pos = (opened.pos + bytes).min(size.max(opened.pos));
        }
    }

    /// The file and the byte of a write, at an offset or at the position.
    fn place_of_write(&self, slot: usize, offset: Option<u64>) -> Option<(InodeId, u64)> {
        let opened = self.open.get(&slot)?;
        let pos = match opened.appends {
            true => self.sizes[opened.inode.0 as usize],
            false => offset.unwrap_or(opened.pos),
        };
        Some((opened.inode, pos))
    }

    fn write(&mut self, inode: InodeId, first: u64, end: u64) {
        self.dirty(inode, first, end);
        let size = self.size(inode);
        *size = end.max(*size);
    }

    /// The blocks with these bytes become dirty.
    fn dirty(&mut self, inode: InodeId, first: u64, end: u64) {
        let file = &self.files[inode.0 as usize];
        let block = file.inode.block_bytes;
        let dirty = (first / block * block..end).step_by(block as usize);
        let holes = dirty.filter(|&at| file.extent(at).sector.is_none());
        self.new_blocks.entry(inode).or_default().extend(holes);
    }

    /// A write to a mapped page takes all blocks of the page that the file reaches
    /// (`block_page_mkwrite`).
    fn touch(&mut self, mapping: usize, offset: u64) {
        if let Some(&(inode, begin)) = self.mappings.get(&mapping) {
            let page = (begin + offset) / PAGE_BYTES * PAGE_BYTES;
            let end = (page + PAGE_BYTES).min(*self.size(inode));
            self.dirty(inode, page, end);
        }
    }

    fn truncate(&mut self, slot: usize, bytes: u64) {
        let Some(inode) = self.open.get(&slot).map(|opened| opened.inode) else {
            return;
        };
        *self.size(inode) = bytes;
        if let Some(blocks) = self.new_blocks.get_mut(&inode) {
            blocks.retain(|&at| at < bytes);
        }
    }

    /// A task writes these sectors.
    fn place(&mut self, task: usize, sector: u64, sectors: u64) {
        let Some(writing) = &mut self.writing[task] else {
            return;
        };
        let file = &mut self.files[writing.inode.0 as usize];
        let new_blocks = self.new_blocks.entry(writing.inode).or_default();
        let block = file.inode.block_bytes;
        for sector in (sector..sector + sectors).step_by((block / 512) as usize) {
            let known = file
                .extents
                .iter()
                .find(|&&(_, bytes, first)| (first..first + bytes.div_ceil(512)).contains(&sector));
            let at = match known {
                Some(&(logical, _, first)) => logical + (sector - first) * 512,
                None => {
                    let after = new_blocks.range(writing.next..).next();
                    let Some(&at) = after.or_else(|| new_blocks.first()) else {
                        return;
                    };
                    new_blocks.remove(&at);
                    file.extents.push((at, block, sector));
                    self.placed.insert((writing.inode, at));
                    at
                }
            };
            writing.next = at + block;
        }
    }
}
