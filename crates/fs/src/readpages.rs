//! Folios to bios: how file systems read the pages that they are given.

use blklab_blk::{BioFlags, Op};

use crate::PAGE_BYTES;
use crate::inode::{Extent, Inode, InodeId, ReadPath};
use crate::page_cache::FolioId;
use crate::vfs::{Host, Vfs};

/// Segments that a bio holds at most (`BIO_MAX_VECS`).
const BIO_MAX_SEGMENTS: u32 = 256;

/// Why folios are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Somebody may want them soon (`REQ_RAHEAD`).
    Readahead,
    /// Somebody waits for them.
    Wanted,
}

impl Reason {
    fn flags(self) -> BioFlags {
        match self {
            Reason::Readahead => BioFlags::RAHEAD,
            Reason::Wanted => BioFlags::default(),
        }
    }
}

/// A bio that is being filled.
struct Open {
    /// Its first sector and its bytes so far.
    bio: Option<(u64, u64)>,
    segments: u32,
    /// The page frame behind its last one, where that is known.
    next_frame: Option<u64>,
    folios: Vec<FolioId>,
    reason: Reason,
}

impl<H: Host> Vfs<H> {
    /// Reads locked folios of one file that follow each other, and does not wait
    /// for their end.
    pub(crate) async fn read_folios(&self, folios: &[FolioId], reason: Reason) {
        let Some(&first) = folios.first() else {
            return;
        };
        let inode = self.cache.borrow().inode_of(first);
        let of = self.inode(inode);
        let mut open = Open {
            bio: None,
            segments: 0,
            next_frame: None,
            folios: Vec::new(),
            reason,
        };
        for &folio in folios {
            self.cache.borrow_mut().begin_read(folio);
            match of.read_path {
                ReadPath::Mpage => {
                    self.read_folio_by_blocks(inode, &of, folio, &mut open)
                        .await
                }
                ReadPath::Iomap => self.read_folio_by_extents(inode, folio, &mut open).await,
            }
            self.cache.borrow_mut().end_read(folio, false);
        }
        self.send(&mut open).await;
    }

    /// Adds a folio of one page to the open bio. One whose blocks do not follow
    /// each other, or that goes on behind a hole, is read block by block
    /// (`block_read_full_folio`).
    async fn read_folio_by_blocks(
        &self,
        inode: InodeId,
        of: &Inode,
        folio: FolioId,
        open: &mut Open,
    ) {
        let begin = self.cache.borrow().index(folio) * PAGE_BYTES;
        let last_block = of.size_bytes.next_multiple_of(of.block_bytes);
        let end = (begin + PAGE_BYTES).min(last_block);
        let mut at = begin;
        let mut mapped: Option<(u64, u64)> = None;
        let mut hole = false;
        let mut ends_map = false;
        // It has buffers, of which some are newer than the device's.
        if self.cache.borrow().uptodate_blocks(folio) != 0 {
            return self.read_blocks(inode, of, folio, end, open).await;
        }
        while at < end {
            let extent = self.host().extent(inode, at, end - at).await;
            let bytes = extent.bytes.min(end - at);
            ends_map = extent.boundary && at + bytes == end;
            match (extent.sector, mapped) {
                (None, _) => hole = true,
                (Some(sector), None) if !hole => mapped = Some((sector, bytes)),
                (Some(sector), Some((first, so_far)))
                    if !hole && first + so_far / 512 == sector =>
                {
                    mapped = Some((first, so_far + bytes));
                }
                _ => return self.read_blocks(inode, of, folio, end, open).await,
            }
            at += bytes;
        }
        // What lies behind a hole or the end of the file is zeroed.
        let Some((sector, bytes)) = mapped else {
            return;
        };
        self.append(open, folio, sector, bytes).await;
        if bytes < PAGE_BYTES || ends_map {
            self.send(open).await;
        }
    }

    /// Reads each block of a folio by a bio of its own.
    async fn read_blocks(
        &self,
        inode: InodeId,
        of: &Inode,
        folio: FolioId,
        end: u64,
        open: &mut Open,
    ) {
        self.send(open).await;
        let begin = self.cache.borrow().index(folio) * PAGE_BYTES;
        let uptodate = self.cache.borrow().uptodate_blocks(folio);
        for at in (begin..end).step_by(of.block_bytes as usize) {
            if of.blocks(at, at + 1) & uptodate != 0 {
                continue;
            }
            let extent = self.host().extent(inode, at, of.block_bytes).await;
            if let Some(sector) = extent.sector {
                self.append(open, folio, sector, of.block_bytes).await;
                let others = std::mem::replace(&mut open.reason, Reason::Wanted);
                self.send(open).await;
                open.reason = others;
            }
        }
    }

    /// Adds a folio to the open bio, piece by piece where it has several extents.
    async fn read_folio_by_extents(&self, inode: InodeId, folio: FolioId, open: &mut Open) {
        let (begin, end) = {
            let cache = self.cache.borrow();
            let pages = (cache.index(folio), cache.next_index(folio));
            (pages.0 * PAGE_BYTES, pages.1 * PAGE_BYTES)
        };
        let mut at = begin;
        while at < end.min(self.size_bytes(inode)) {
            let Extent { sector, bytes, .. } = self.host().extent(inode, at, end - at).await;
            let bytes = bytes.min(end - at);
            if let Some(sector) = sector {
                self.append(open, folio, sector, bytes).await;
            }
            at += bytes;
        }
    }

    /// Adds a piece to the open bio, or to a new one if it does not follow it.
    async fn append(&self, open: &mut Open, folio: FolioId, sector: u64, bytes: u64) {
        let (index, order) = {
            let cache = self.cache.borrow();
            (cache.index(folio), cache.order(folio))
        };
        let inode = self.cache.borrow().inode_of(folio);
        let frame = self.host().frame(inode, index);
        let joins_segment = frame.is_some() && frame == open.next_frame;
        let follows = (open.bio).is_some_and(|(first, so_far)| first + so_far / 512 == sector);
        let is_full = open.segments >= BIO_MAX_SEGMENTS && !joins_segment;
        if open.bio.is_some() && (!follows || is_full) {
            self.send(open).await;
        }
        let (first, so_far) = open.bio.unwrap_or((sector, 0));
        open.segments += u32::from(open.bio.is_none() || !joins_segment);
        open.bio = Some((first, so_far + bytes));
        open.next_frame = frame.map(|frame| frame + (1 << order));
        self.cache.borrow_mut().begin_read(folio);
        open.folios.push(folio);
    }

    /// Sends the open bio, if there is one.
    async fn send(&self, open: &mut Open) {
        if let Some((sector, bytes)) = open.bio.take() {
            let bio = Self::data_bio(Op::Read, open.reason.flags(), sector, bytes);
            let folios = std::mem::take(&mut open.folios);
            open.segments = 0;
            self.submit(bio, folios).await;
        }
    }

    /// Reads a locked folio that somebody waits for (`read_folio`).
    pub(crate) async fn read_folio(&self, folio: FolioId) {
        self.read_folios(&[folio], Reason::Wanted).await;
    }
}
