//! Mapped files: page faults, fault-around and read-around (`filemap_fault` and
//! `filemap_map_pages` of Linux 6.12's `mm/filemap.c`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::PAGE_BYTES;
use crate::error::FsError;
use crate::event::Event;
use crate::inode::File;
use crate::page_cache::{FolioId, flag};
use crate::readahead::MMAP_LOTSAMISS;
use crate::reclaim::Origin;
use crate::vfs::{Host, Vfs};

/// Pages of one page table; fault-around does not cross into the next (`PTRS_PER_PTE`).
pub(crate) const TABLE_PAGES: u64 = 512;

/// The advice of `madvise` on a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MmapAdvice {
    /// No advice: the default.
    #[default]
    Normal,
    /// Accessed in no order: faults do not read around (`VM_RAND_READ`).
    Random,
    /// Accessed in order: faults read ahead as reads do (`VM_SEQ_READ`).
    Sequential,
}

/// What a page fault took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The page was cached.
    Minor,
    /// It had to be read, or waited for (`VM_FAULT_MAJOR`, `FAULT_FLAG_TRIED`).
    Major,
}

/// A part of a file that is mapped into an address space (`struct vm_area_struct`).
#[derive(Debug)]
pub struct Mapping {
    file: Rc<File>,
    /// The address of its first page, in pages.
    address_page: u64,
    /// The page of the file that is mapped there.
    first: u64,
    pages: u64,
    /// Pages that fault-around maps at most; 1 switches it off.
    fault_around_pages: u64,
    access: Cell<MmapAdvice>,
    /// Page table entries by page. An entry whose folio has left the cache is invalid.
    entries: RefCell<BTreeMap<u64, Pte>>,
}

/// A page table entry: the folio that it maps, by serial number, and the accessed bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pte {
    serial: u32,
    young: bool,
}

impl Mapping {
    /// Maps `bytes` of an open file from byte `offset` on at `address`.
    pub(crate) fn new(
        file: Rc<File>,
        address: u64,
        offset: u64,
        bytes: u64,
        around_pages: u64,
    ) -> Mapping {
        Mapping {
            file,
            address_page: address / PAGE_BYTES,
            first: offset / PAGE_BYTES,
            pages: bytes.div_ceil(PAGE_BYTES),
            fault_around_pages: around_pages,
            access: Cell::default(),
            entries: RefCell::default(),
        }
    }

    /// The file that is mapped.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file's byte at byte `offset` of the mapping.
    pub fn file_byte(&self, offset: u64) -> u64 {
        self.first * PAGE_BYTES + offset
    }

    /// Sets how it will be accessed (`madvise`).
    pub fn advise(&self, access: MmapAdvice) {
        self.access.set(access);
    }

    /// Whether accesses through it count for reclaim: those in order or at random do not, and
    /// neither do those to a file that will not be used again (`vma_has_recency`).
    pub(crate) fn has_recency(&self) -> bool {
        self.access.get() == MmapAdvice::Normal && !self.file.is_used_once.get()
    }

    fn origin(&self) -> Origin {
        if self.has_recency() {
            Origin::Fault
        } else {
            Origin::Read
        }
    }

    /// Whether a page's entry maps this folio and has the accessed bit.
    pub(crate) fn is_young(&self, index: u64, serial: u32) -> bool {
        let young = Pte {
            serial,
            young: true,
        };
        self.entries.borrow().get(&index) == Some(&young)
    }

    /// Clears the accessed bit of a page's entry.
    pub(crate) fn clear_young(&self, index: u64) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&index) {
            entry.young = false;
        }
    }

    /// The entries from page `from` to `to` with the accessed bit: page and folio.
    pub(crate) fn young_entries(&self, from: u64, to: u64) -> Vec<(u64, u32)> {
        let entries = self.entries.borrow();
        let young = entries.range(from..=to).filter(|(_, entry)| entry.young);
        young.map(|(&index, entry)| (index, entry.serial)).collect()
    }

    /// The number of the page table that holds a page's entry.
    pub(crate) fn table_of(&self, index: u64) -> u64 {
        (self.address_page + index - self.first) / TABLE_PAGES
    }

    /// The numbers of its page tables, each with the first and last page of its entries.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let last = self.first + self.pages.max(1) - 1;
        (self.table_of(self.first)..=self.table_of(last)).map(move |table| {
            let (from, to) = self.pages_of_table(table);
            (table, from, to)
        })
    }

    fn pages_of_table(&self, table: u64) -> (u64, u64) {
        let page_at = |address: u64| self.first + address.saturating_sub(self.address_page);
        let last = self.first + self.pages.max(1) - 1;
        let end = page_at((table + 1) * TABLE_PAGES);
        (page_at(table * TABLE_PAGES), last.min(end - 1))
    }

    /// The first and last of `pages` pages around one, all of the same page table
    /// (`lru_gen_look_around`).
    pub(crate) fn look_around(&self, index: u64, pages: u64) -> (u64, u64) {
        let (from, to) = self.pages_of_table(self.table_of(index));
        if to - from < pages {
            return (from, to);
        }
        let half = pages / 2;
        if index - from < half {
            (from, from + pages - 1)
        } else if to + 1 - index <= half {
            (to + 1 - pages, to)
        } else {
            (index - half, index + half - 1)
        }
    }

    /// The first and last page of the fault-around window of a page: aligned by address,
    /// inside the mapping and inside one page table (`do_fault_around`).
    fn around(&self, index: u64) -> (u64, u64) {
        let around = self.fault_around_pages;
        let in_mapping = index - self.first;
        let in_table = (self.address_page + in_mapping) % TABLE_PAGES;
        let from = (in_table / around * around).max(in_table - in_table.min(in_mapping));
        let end = (from + around)
            .min(TABLE_PAGES)
            .min(in_table + self.pages - in_mapping);
        (index + from - in_table, index + end - 1 - in_table)
    }
}

impl<H: Host> Vfs<H> {
    /// A program reads the byte at `offset` of a mapping.
    ///
    /// # Errors
    /// [`FsError::NotMapped`] after the end of the file or of the mapping,
    /// [`FsError::Device`] where the page cannot be read.
    pub async fn touch(&self, mapping: &Mapping, offset: u64) -> Result<(), FsError> {
        let fault = self.access(mapping, offset).await?;
        let index = mapping.first + offset / PAGE_BYTES;
        let folio = self.cache.borrow().find(mapping.file.inode, index);
        if let Some(folio) = folio {
            self.count_read(&mut self.cache.borrow_mut(), folio, 1);
        }
        self.counts.borrow_mut().missed += u64::from(fault == Some(Fault::Major));
        Ok(())
    }

    /// Has a page mapped. Returns which fault that took.
    async fn access(&self, mapping: &Mapping, offset: u64) -> Result<Option<Fault>, FsError> {
        let index = mapping.first + offset / PAGE_BYTES;
        let walks = (self.host()).walks_page_table(mapping.address_page + offset / PAGE_BYTES);
        if self.has_entry(mapping, index) {
            if let Some(entry) = mapping.entries.borrow_mut().get_mut(&index) {
                entry.young |= walks;
            }
            return Ok(None);
        }
        let in_file = index < self.size_bytes(mapping.file.inode).div_ceil(PAGE_BYTES);
        if !in_file || offset / PAGE_BYTES >= mapping.pages {
            return Err(FsError::NotMapped);
        }
        let (mut tried, mut reads) = (false, false);
        loop {
            if mapping.fault_around_pages > 1 && self.filemap_map_pages(mapping, index) {
                break;
            }
            reads |= self
                .cache
                .borrow()
                .find(mapping.file.inode, index)
                .is_none();
            if let Some(folio) = self.filemap_fault(mapping, index, tried).await {
                if !self.cache.borrow().has(folio, flag::UPTODATE) {
                    return Err(FsError::Device);
                }
                self.set_entry(mapping, index, folio);
                break;
            }
            tried = true;
        }
        let fault = match tried || reads {
            true => Fault::Major,
            false => Fault::Minor,
        };
        self.host().faulted(fault);
        Ok(Some(fault))
    }

    /// A program writes the byte at `offset` of a shared mapping. The first write after
    /// write-back makes the page dirty, and a hole gets a block (`page_mkwrite`).
    ///
    /// # Errors
    /// As [`Vfs::touch`]; [`FsError::NoSpace`].
    pub async fn touch_for_write(&self, mapping: &Mapping, offset: u64) -> Result<(), FsError> {
        let fault = self.access(mapping, offset).await?;
        let inode = mapping.file.inode;
        let index = mapping.first + offset / PAGE_BYTES;
        let Some(folio) = self.cache.borrow().find(inode, index) else {
            return Ok(());
        };
        self.count_used(folio);
        if self.cache.borrow().has(folio, flag::DIRTY) {
            return Ok(());
        }
        if fault.is_none() {
            // It was mapped to be read only (`do_wp_page`).
            self.host().faulted(Fault::Minor);
        }
        let of = self.inode(inode);
        if self.host().update_times(inode, of.size_bytes) {
            self.inode_changed(inode, false);
        }
        let begin = index * PAGE_BYTES;
        let end = (begin + PAGE_BYTES).min(of.size_bytes.max(begin + 1));
        if !self.cache.borrow().has(folio, flag::MAPPED_TO_DISK) {
            self.host().allocate(inode, begin, end).await?;
            self.cache.borrow_mut().set(folio, flag::MAPPED_TO_DISK);
        }
        self.mark_folio_dirty(folio, of.blocks(begin, end));
        self.balance_dirty_pages_ratelimited(inode).await;
        self.host().resched().await;
        Ok(())
    }

    /// Whether a page has a valid page table entry.
    fn has_entry(&self, mapping: &Mapping, index: u64) -> bool {
        let cache = self.cache.borrow();
        let serial = cache
            .find(mapping.file.inode, index)
            .map(|folio| cache.serial(folio));
        let entries = mapping.entries.borrow();
        serial.is_some() && entries.get(&index).map(|entry| entry.serial) == serial
    }

    fn set_entry(&self, mapping: &Mapping, index: u64, folio: FolioId) {
        let mut cache = self.cache.borrow_mut();
        let serial = cache.serial(folio);
        let entry = Pte {
            serial,
            young: true,
        };
        let before = mapping.entries.borrow_mut().insert(index, entry);
        if before.map(|before| before.serial) != Some(serial) {
            cache.map(folio, true);
        }
    }

    /// Maps the cached pages around a fault. Whether the faulting page was among them.
    /// Each page found lowers `mmap_miss`, because reading around it was of use.
    fn filemap_map_pages(&self, mapping: &Mapping, index: u64) -> bool {
        let (from, to) = mapping.around(index);
        let inode = mapping.file.inode;
        self.trace(Event::MapPages {
            inode,
            index,
            from,
            to,
        });
        let file_end = self.size_bytes(inode).div_ceil(PAGE_BYTES);
        let (mut found, mut served) = (0, false);
        for page in from..(to + 1).min(file_end) {
            let folio = self.cache.borrow().find(inode, page);
            let Some(folio) = folio.filter(|&folio| self.can_map(folio)) else {
                continue;
            };
            found += u32::from(!self.cache.borrow().has(folio, flag::WORKINGSET));
            if !self.has_entry(mapping, page) {
                self.set_entry(mapping, page, folio);
                served |= page == index;
            }
        }
        let mut ra = mapping.file.ra.get();
        ra.mmap_miss = ra.mmap_miss.saturating_sub(found);
        mapping.file.ra.set(ra);
        self.trace(Event::MapPagesEnd {
            inode,
            index,
            served,
        });
        served
    }

    /// Whether fault-around may map a folio: not while it is read, and not with the
    /// readahead mark, which only a fault on it triggers.
    fn can_map(&self, folio: FolioId) -> bool {
        let cache = self.cache.borrow();
        cache.has(folio, flag::UPTODATE) && !cache.has(folio, flag::LOCKED | flag::READAHEAD)
    }

    /// The folio of a fault; `None` if it had to be waited for, and the fault must be
    /// retried.
    async fn filemap_fault(&self, mapping: &Mapping, index: u64, tried: bool) -> Option<FolioId> {
        let file = &mapping.file;
        let inode = file.inode;
        let mmap_miss = file.ra.get().mmap_miss;
        self.trace(Event::Fault {
            inode,
            index,
            mmap_miss,
        });
        // A first try that reads or waits drops `mmap_lock` meanwhile and must be retried
        // (`VM_FAULT_RETRY`); a second one keeps the lock.
        let mut must_retry = false;
        let found = self.cache.borrow().find(inode, index);
        let folio = match found {
            Some(folio) => {
                if !tried {
                    must_retry = self.do_async_mmap_readahead(mapping, folio).await;
                }
                folio
            }
            None => {
                must_retry = self.do_sync_mmap_readahead(mapping, index).await && !tried;
                self.find_or_create(mapping, index)
            }
        };
        let waited = self.lock_for_fault(folio).await;
        must_retry |= waited && !tried;
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            self.read_folio(folio).await;
            self.wait_until_clear(folio, flag::LOCKED).await;
            must_retry |= !tried;
        } else {
            self.cache.borrow_mut().clear(folio, flag::LOCKED);
        }
        self.trace(Event::FaultEnd {
            inode,
            index,
            retry: must_retry,
        });
        (!must_retry).then_some(folio)
    }

    /// The folio of a fault after readahead; a new, unlocked one if readahead left it out.
    fn find_or_create(&self, mapping: &Mapping, index: u64) -> FolioId {
        let inode = mapping.file.inode;
        let found = self.cache.borrow().find(inode, index);
        found.unwrap_or_else(|| {
            let added = self.add_folio(inode, index, 0, mapping.origin());
            let folio = added.expect("nothing lies between looking and adding");
            self.cache.borrow_mut().clear(folio, flag::LOCKED);
            folio
        })
    }

    /// Locks a folio. Whether it had to wait.
    async fn lock_for_fault(&self, folio: FolioId) -> bool {
        let waits = self.cache.borrow().has(folio, flag::LOCKED);
        if waits {
            self.wait_until_clear(folio, flag::LOCKED).await;
        }
        self.cache.borrow_mut().set(folio, flag::LOCKED);
        waits
    }

    /// Reads around a fault whose page is missing. Whether `mmap_lock` was dropped.
    async fn do_sync_mmap_readahead(&self, mapping: &Mapping, index: u64) -> bool {
        let file = &mapping.file;
        let mut ra = file.ra.get();
        if mapping.access.get() == MmapAdvice::Random || ra.ra_pages == 0 {
            return false;
        }
        if mapping.access.get() == MmapAdvice::Sequential {
            let req = ra.ra_pages as u64;
            self.page_cache_sync_ra(file, index, (req, 1), mapping.origin())
                .await;
            return true;
        }
        if ra.mmap_miss < MMAP_LOTSAMISS * 10 {
            ra.mmap_miss += 1;
        }
        if ra.mmap_miss > MMAP_LOTSAMISS {
            file.ra.set(ra);
            return false;
        }
        ra.start = index.saturating_sub(ra.ra_pages as u64 / 2);
        ra.size = ra.ra_pages;
        ra.async_size = ra.ra_pages / 4;
        file.ra.set(ra);
        let of = self.inode(file.inode);
        self.page_cache_ra_order(file, (&of, index..index + 1), 0, mapping.origin())
            .await;
        true
    }

    /// Reads the next window if a fault's page has the readahead mark. Whether `mmap_lock`
    /// was dropped.
    async fn do_async_mmap_readahead(&self, mapping: &Mapping, folio: FolioId) -> bool {
        let file = &mapping.file;
        let mut ra = file.ra.get();
        if mapping.access.get() == MmapAdvice::Random || ra.ra_pages == 0 {
            return false;
        }
        ra.mmap_miss = ra.mmap_miss.saturating_sub(1);
        file.ra.set(ra);
        if !self.cache.borrow().has(folio, flag::READAHEAD) {
            return false;
        }
        let req = ra.ra_pages as u64;
        self.page_cache_async_ra(file, folio, (req, 1), mapping.origin())
            .await;
        true
    }
}
