//! Readahead: how many pages are read before they are asked for.
//!
//! The rules and the names of functions are those of Linux 6.12's `mm/readahead.c`. A
//! file's window is `size` pages from `start`; a read that reaches its last `async_size`
//! pages starts to read the next window.

use core::ops::Range;

use blklab_blk::Op;

use crate::PAGE_BYTES;
use crate::bio::{Bio, BioId};
use crate::event::Event;
use crate::inode::{File, Inode, InodeId, RaState, ReadPath};
use crate::page_cache::{FolioId, flag};
use crate::readpages::Reason;
use crate::reclaim::Origin;
use crate::vfs::{Host, Vfs};

/// Missed faults after which faults no longer read around (`MMAP_LOTSAMISS`).
pub(crate) const MMAP_LOTSAMISS: u32 = 100;

/// Pages that forced readahead reads at once: 2 MiB.
const FORCED_CHUNK: u64 = 2 * 1024 * 1024 / PAGE_BYTES;

/// The smallest window that is read in large folios.
const MIN_LARGE_WINDOW: u32 = 4;

/// The largest folio: `MAX_PAGECACHE_ORDER`, the pages of a huge page.
pub(crate) const MAX_ORDER: u32 = 9;

impl RaState {
    /// The first window for a read of `req` pages (`get_init_ra_size`): four times, twice
    /// or once the read, depending on how much smaller it is than the largest window.
    fn initial_size(req: u64, max: u64) -> u32 {
        let size = req.next_power_of_two();
        let size = match size {
            _ if size <= max / 32 => size * 4,
            _ if size <= max / 4 => size * 2,
            _ => max,
        };
        size as u32
    }

    /// The length of the window after this one (`get_next_ra_size`).
    fn next_size(&self, max: u64) -> u32 {
        let size = self.size as u64;
        let next = match size {
            _ if size < max / 16 => 4 * size,
            _ if size <= max / 2 => 2 * size,
            _ => max,
        };
        next as u32
    }

    /// Begins a window at `start` with the mark on its first page.
    fn begin(&mut self, start: u64, size: u32) {
        self.start = start;
        self.size = size;
        self.async_size = size;
    }
}

/// What is read for a page that is missing.
pub(crate) enum SyncReadahead {
    /// So many pages, without a window.
    Forced(u64),
    /// The pages asked for: they are part of no sequence.
    Asked,
    /// This window.
    Window(RaState),
}

/// Pages that readahead has added and not yet read (`struct readahead_control`).
pub(crate) struct Readahead<'a> {
    inode: InodeId,
    of: &'a Inode,
    /// The first page of the run.
    index: u64,
    /// New folios that follow each other from there on.
    run: Vec<FolioId>,
    nr_pages: u64,
    /// The pages that the caller has asked for.
    asked: Range<u64>,
    origin: Origin,
}

impl<'a> Readahead<'a> {
    fn new(
        (inode, of): (InodeId, &'a Inode),
        index: u64,
        asked: Range<u64>,
        origin: Origin,
    ) -> Readahead<'a> {
        Readahead {
            inode,
            of,
            index,
            run: Vec::new(),
            nr_pages: 0,
            asked,
            origin,
        }
    }
}

/// The largest window for a read of `req` pages. A read longer than the usual largest
/// window gets up to as much as the device takes at once (`ractl_max_pages`).
fn max_pages(ra: &RaState, of: &Inode, req: u64) -> u64 {
    let (window, largest) = (ra.ra_pages as u64, of.device.io_pages as u64);
    if req > window && largest > window {
        req.min(largest)
    } else {
        window
    }
}

impl<H: Host> Vfs<H> {
    /// A call wants `req` pages from `index` on, of which the program has asked for the first
    /// `asked`, and the first is not cached.
    pub(crate) async fn page_cache_sync_ra(
        &self,
        file: &File,
        index: u64,
        (req, asked): (u64, u64),
        origin: Origin,
    ) {
        let of = self.inode(file.inode);
        let inode = file.inode;
        let ra = file.ra.get();
        self.trace(Event::SyncReadahead {
            inode,
            index,
            req,
            ra,
        });
        let asked = index..index.saturating_add(asked);
        match self.sync_readahead(file, &of, index, req) {
            SyncReadahead::Forced(nr) => {
                self.force_page_cache_ra(file, (index, nr), asked).await;
            }
            SyncReadahead::Asked => {
                let mut at = Readahead::new((inode, &of), index, asked, origin);
                self.do_page_cache_ra(&mut at, req, 0).await;
            }
            SyncReadahead::Window(ra) => {
                file.ra.set(ra);
                self.page_cache_ra_order(file, (&of, asked), 0, origin)
                    .await;
            }
        }
    }

    /// What is read for a read of `req` pages whose first is missing.
    pub(crate) fn sync_readahead(
        &self,
        file: &File,
        of: &Inode,
        index: u64,
        req: u64,
    ) -> SyncReadahead {
        let mut ra = file.ra.get();
        if ra.ra_pages == 0 {
            return SyncReadahead::Forced(1);
        }
        if file.random.get() {
            return SyncReadahead::Forced(req);
        }
        let max = max_pages(&ra, of, req);
        let from_prev = index.wrapping_sub((ra.prev_pos >> 12) as u64);
        if index == 0 || req > max || from_prev <= 1 {
            ra.start = index;
            ra.size = RaState::initial_size(req, max);
            ra.async_size = match ra.size as u64 {
                size if size > req => (size - req) as u32,
                _ => ra.size / 2,
            };
        } else {
            // Not sequential by this open file: cached pages before it may still show a
            // sequential reader (`count_history_pages`).
            let miss = self.cache.borrow().prev_miss(file.inode, index - 1, max);
            let cached = match miss {
                Some(miss) => index - miss - 1,
                None => index,
            };
            if cached <= req {
                return SyncReadahead::Asked;
            }
            let history = if miss.is_none() { 2 * cached } else { cached };
            ra.start = index;
            ra.size = (history + req).min(max) as u32;
            ra.async_size = 1;
        }
        SyncReadahead::Window(ra)
    }

    /// A read or fault that wants `req` pages, of which the program has asked for the first
    /// `asked`, has reached a folio with the mark.
    pub(crate) async fn page_cache_async_ra(
        &self,
        file: &File,
        folio: FolioId,
        (req, asked): (u64, u64),
        origin: Origin,
    ) {
        let of = self.inode(file.inode);
        let mut ra = file.ra.get();
        let (inode, index, order) = {
            let cache = self.cache.borrow();
            (file.inode, cache.index(folio), cache.order(folio))
        };
        self.trace(Event::AsyncReadahead {
            inode,
            index,
            req,
            ra,
        });
        if ra.ra_pages == 0 || self.cache.borrow().has(folio, flag::WRITEBACK) {
            return;
        }
        self.cache.borrow_mut().clear(folio, flag::READAHEAD);
        let max = max_pages(&ra, &of, req);
        let mark = (ra.start + ra.size as u64).wrapping_sub(ra.async_size as u64);
        if index == mark >> order << order {
            // A long read's window may be larger than the largest usual one.
            ra.begin(ra.start + ra.size as u64, ra.size.max(ra.next_size(max)));
        } else {
            // The mark is another reader's: the window begins after its cached pages.
            let start = self.cache.borrow().next_miss(inode, index + 1, max);
            if start == 0 || start - index > max {
                return;
            }
            ra.size = (start - index + req) as u32;
            ra.begin(start, ra.next_size(max));
        }
        file.ra.set(ra);
        let asked = index..index.saturating_add(asked);
        self.page_cache_ra_order(file, (&of, asked), order, origin)
            .await;
    }

    /// Reads the file's window, of which the caller has asked for these pages. With large
    /// folios, their order is two above that of the folio that had the mark.
    pub(crate) async fn page_cache_ra_order(
        &self,
        file: &File,
        (of, asked): (&Inode, Range<u64>),
        new_order: u32,
        origin: Origin,
    ) {
        let ra = file.ra.get();
        let (inode, start) = (file.inode, ra.start);
        self.trace(Event::Window {
            inode,
            index: start,
            new_order,
            ra,
        });
        let mut at = Readahead::new((inode, of), start, asked, origin);
        let mut index = start;
        if of.large_folios && ra.size >= MIN_LARGE_WINDOW {
            let last_in_file = of.size_bytes.saturating_sub(1) / PAGE_BYTES;
            let limit = last_in_file.min(start + ra.size as u64 - 1);
            let mark = start + (ra.size - ra.async_size) as u64;
            let order = (new_order + 2).min(MAX_ORDER).min(ra.size.ilog2());
            let mut met_page = false;
            while index <= limit && !met_page {
                let order = fitting_order(index, order, limit);
                met_page = !self.add_to_run(&mut at, index, order, mark >> order << order);
                if !met_page {
                    index += 1 << order;
                }
            }
            self.read_pages(&mut at).await;
            if !met_page {
                return;
            }
        }
        self.do_page_cache_ra(&mut at, ra.size as u64, ra.async_size as u64)
            .await;
    }

    /// Reads `nr` pages, as far as the file has them.
    async fn do_page_cache_ra(&self, at: &mut Readahead<'_>, nr: u64, lookahead: u64) {
        let Some(last) = at.of.size_bytes.checked_sub(1) else {
            return;
        };
        let last = last / PAGE_BYTES;
        if at.index > last {
            return;
        }
        let nr = nr.min(last - at.index + 1);
        self.page_cache_ra_unbounded(at, nr, lookahead).await;
    }

    /// Reads those of `nr` pages that are not cached. The page `lookahead` pages before
    /// the end gets the mark if it is new.
    async fn page_cache_ra_unbounded(&self, at: &mut Readahead<'_>, nr: u64, lookahead: u64) {
        let (inode, first) = (at.inode, at.index);
        self.trace(Event::Fill {
            inode,
            index: first,
            nr,
            lookahead,
        });
        let mark = nr.checked_sub(lookahead).map(|before| first + before);
        let mut index = first;
        while index < first + nr {
            if self.add_to_run(at, index, 0, mark.unwrap_or(u64::MAX)) {
                index += 1;
            } else {
                self.read_pages(at).await;
                at.index += 1;
                index = at.index;
            }
        }
        self.read_pages(at).await;
    }

    /// Adds a folio to the run, with the mark if it begins at `mark`; `false` if one of its
    /// pages is cached.
    fn add_to_run(&self, at: &mut Readahead<'_>, index: u64, order: u32, mark: u64) -> bool {
        let Some(folio) = self.add_folio(at.inode, index, order, at.origin) else {
            return false;
        };
        if at.asked.end <= index || index + (1 << order) <= at.asked.start {
            self.added_unasked(folio, order);
        }
        if index == mark {
            self.cache.borrow_mut().set(folio, flag::READAHEAD);
        }
        if at.run.capacity() == 0 {
            at.run = self.take_list();
        }
        at.run.push(folio);
        at.nr_pages += 1 << order;
        true
    }

    /// Counts a folio that was added and that nobody has asked for yet.
    fn added_unasked(&self, folio: FolioId, order: u32) {
        self.cache.borrow_mut().set(folio, flag::UNUSED_READAHEAD);
        self.counts.borrow_mut().readahead += 1 << order;
    }

    /// Has the file system read the run.
    async fn read_pages(&self, at: &mut Readahead<'_>) {
        let (inode, index, nr) = (at.inode, at.index, at.nr_pages);
        self.trace(Event::ReadPages { inode, index, nr });
        let run = std::mem::take(&mut at.run);
        self.read_folios(&run, Reason::Readahead).await;
        self.give_list(run);
        at.index += nr;
        at.nr_pages = 0;
    }

    /// Begins to read the one page that a read asks for and misses, if there is no window
    /// to it and its place is known: all that [`Vfs::page_cache_sync_ra`] does then, up to
    /// the bio, but without a task that could wait. Otherwise does nothing and returns
    /// `None`.
    pub(crate) fn begin_single_page(&self, file: &File, index: u64) -> Option<(BioId, Bio)> {
        let (inode, ra, req) = (file.inode, file.ra.get(), 1);
        let of = self.inode(inode);
        if of.read_path != ReadPath::Mpage {
            return None;
        }
        let is_forced = match self.sync_readahead(file, &of, index, req) {
            SyncReadahead::Forced(_) => true,
            SyncReadahead::Asked => false,
            SyncReadahead::Window(_) => return None,
        };
        let begin = index * PAGE_BYTES;
        let bytes = PAGE_BYTES.min(of.size_bytes.next_multiple_of(of.block_bytes) - begin);
        let extent = self.host().known_extent(inode, begin, bytes)?;
        let sector = extent.sector?;
        if extent.bytes < bytes || extent.boundary {
            return None;
        }
        self.trace(Event::SyncReadahead {
            inode,
            index,
            req,
            ra,
        });
        if is_forced {
            self.trace(Event::Force {
                inode,
                index,
                nr: 1,
            });
        }
        self.trace(Event::Fill {
            inode,
            index,
            nr: 1,
            lookahead: 0,
        });
        let folio = self.add_missing(inode, index, 0, Origin::Read)?;
        self.counts.borrow_mut().missed += 1;
        self.trace(Event::ReadPages {
            inode,
            index,
            nr: 1,
        });
        self.cache.borrow_mut().begin_read(folio);
        let bio = Bio::data(Op::Read, Reason::Readahead.flags(), sector, bytes);
        Some((self.begin_single_read(folio), bio))
    }

    /// Readahead of `nr` pages that a program asked for: without a window, and at most as much
    /// as a window holds or the device takes at once. `asked` are those that it reads now.
    pub(crate) async fn force_page_cache_ra(
        &self,
        file: &File,
        (index, nr): (u64, u64),
        asked: Range<u64>,
    ) {
        let of = self.inode(file.inode);
        self.trace(Event::Force {
            inode: file.inode,
            index,
            nr,
        });
        let most = of.device.io_pages.max(file.ra.get().ra_pages) as u64;
        let mut at = Readahead::new((file.inode, &of), index, asked, Origin::Read);
        let mut left = nr.min(most);
        while left > 0 {
            let chunk = left.min(FORCED_CHUNK);
            self.do_page_cache_ra(&mut at, chunk, 0).await;
            left -= chunk;
        }
    }
}

/// The largest order up to `order` of a folio that begins at `index`, is aligned
/// there and does not reach beyond `limit`.
fn fitting_order(index: u64, order: u32, limit: u64) -> u32 {
    let mut order = match index.trailing_zeros() {
        aligned if aligned < order => aligned,
        _ => order,
    };
    while order > 0 && index + (1 << order) - 1 > limit {
        order -= 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::{RaState, fitting_order};

    #[test]
    fn windows_grow_as_the_kernels() {
        assert_eq!(RaState::initial_size(1, 32), 4);
        assert_eq!(RaState::initial_size(4, 32), 8);
        assert_eq!(RaState::initial_size(9, 32), 32);
        let mut ra = RaState::new(32);
        let mut sizes = Vec::new();
        ra.size = 1;
        for _ in 0..5 {
            ra.begin(0, ra.next_size(32));
            sizes.push(ra.size);
        }
        assert_eq!(sizes, [4, 8, 16, 32, 32]);
    }

    #[test]
    fn folios_are_aligned_and_end_with_the_window() {
        assert_eq!(fitting_order(4, 4, 100), 2);
        assert_eq!(fitting_order(16, 4, 31), 4);
        assert_eq!(fitting_order(16, 4, 30), 3);
        assert_eq!(fitting_order(7, 4, 7), 0);
    }
}
