//! How file systems make bios of the folios that they are given to read
//! (`fs/mpage.c`, `fs/iomap/buffered-io.c`).

use blklab_blk::{BioFlags, Op};

use crate::PAGE_BYTES;
use crate::bio::BioBuilder;
use crate::inode::{Extent, Inode, InodeId, ReadPath};
use crate::page_cache::FolioId;
use crate::vfs::{Host, Vfs};

/// Why folios are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// They may be wanted soon (`REQ_RAHEAD`).
    Readahead,
    /// A task waits for them.
    Wanted,
}

impl Reason {
    pub(crate) fn flags(self) -> BioFlags {
        match self {
            Reason::Readahead => BioFlags::RAHEAD,
            Reason::Wanted => BioFlags::default(),
        }
    }
}

/// The read that folios are gathered for.
struct Gathering {
    bio: BioBuilder,
    reason: Reason,
}

impl<H: Host> Vfs<H> {
    /// Starts to read locked folios of one file, which follow each other there.
    pub(crate) async fn read_folios(&self, folios: &[FolioId], reason: Reason) {
        let Some(&first) = folios.first() else {
            return;
        };
        let inode = self.cache.borrow().inode_of(first);
        let of = self.inode(inode);
        let mut open = Gathering {
            bio: BioBuilder::default(),
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

    /// Adds a folio of one page to the bio being filled (`do_mpage_readpage`). A folio
    /// whose blocks do not follow each other on the device, or that has data after a
    /// hole, is read block by block (`block_read_full_folio`).
    async fn read_folio_by_blocks(
        &self,
        inode: InodeId,
        of: &Inode,
        folio: FolioId,
        open: &mut Gathering,
    ) {
        let begin = self.cache.borrow().index(folio) * PAGE_BYTES;
        let last_block = of.size_bytes.next_multiple_of(of.block_bytes);
        let end = (begin + PAGE_BYTES).min(last_block);
        let mut at = begin;
        let mut mapped: Option<(u64, u64)> = None;
        let mut hole = false;
        let mut ends_map = false;
        // Some of its blocks were written already and are newer than the device's.
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
        // The rest of the page, in a hole or after the end of the file, is zeroed.
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
        open: &mut Gathering,
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

    /// Adds a folio to the bio being filled, one part for each extent
    /// (`iomap_readpage_iter`).
    async fn read_folio_by_extents(&self, inode: InodeId, folio: FolioId, open: &mut Gathering) {
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

    /// Adds part of a folio to the bio, after sending it if the part does not fit.
    async fn append(&self, open: &mut Gathering, folio: FolioId, sector: u64, bytes: u64) {
        let (inode, index, pages) = self.cache.borrow().place(folio);
        let frame = self.host().frame(inode, index);
        let extends_segment = open.bio.extends_segment(frame);
        if open.bio.must_send_before(sector, extends_segment) {
            self.send(open).await;
        }
        let next_frame = frame.map(|frame| frame + pages);
        open.bio.add(sector, bytes, extends_segment, next_frame);
        self.cache.borrow_mut().begin_read(folio);
        open.bio.add_folio(folio, || self.take_list());
    }

    /// Sends the bio, if it has any data.
    async fn send(&self, open: &mut Gathering) {
        if let Some((bio, folios)) = open.bio.take(Op::Read, open.reason.flags()) {
            self.submit(bio, folios).await;
        }
    }

    /// Starts to read a locked folio that a task waits for (`read_folio`).
    pub(crate) async fn read_folio(&self, folio: FolioId) {
        self.read_folios(&[folio], Reason::Wanted).await;
    }
}
