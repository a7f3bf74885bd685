//! Mapped files: faults, fault-around and read-around (`filemap_fault` and
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

/// Pages of one page table, at whose ends fault-around stops (`PTRS_PER_PTE`).
pub(crate) const TABLE_PAGES: u64 = 512;

/// How a mapping is said to be used (`madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing was said.
    #[default]
    Normal,
    /// In no order: nothing is read around a fault (`VM_RAND_READ`).
    Random,
    /// In order: a fault reads on as a read does (`VM_SEQ_READ`).
    Sequential,
}

/// A part of a file in an address space.
#[derive(Debug)]
pub struct Mapping {
    file: Rc<File>,
    /// The address of its first page, in pages.
    address_page: u64,
    /// The file's page there.
    first: u64,
    pages: u64,
    /// Pages that fault-around maps at most; 1 switches it off.
    fault_around_pages: u64,
    access: Cell<Access>,
    /// Page table entries. One whose folio has left the cache is none.
    entries: RefCell<BTreeMap<u64, Entry>>,
}

/// A page table entry: the folio of a page, by its serial number, and whether it was
/// used since it was asked last (the accessed bit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
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

    /// Says how it will be used.
    pub fn advise(&self, access: Access) {
        self.access.set(access);
    }

    /// Whether a page that was used through it will be used again: not one that is
    /// read in order or at random (`vma_has_recency`).
    pub(crate) fn has_recency(&self) -> bool {
        self.access.get() == Access::Normal
    }

    fn origin(&self) -> Origin {
        if self.has_recency() {
            Origin::Fault
        } else {
            Origin::Read
        }
    }

    /// Whether a page's entry leads to this folio and was used.
    pub(crate) fn is_young(&self, index: u64, serial: u32) -> bool {
        let young = Entry {
            serial,
            young: true,
        };
        self.entries.borrow().get(&index) == Some(&young)
    }

    /// Forgets that a page's entry was used.
    pub(crate) fn clear_young(&self, index: u64) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&index) {
            entry.young = false;
        }
    }

    /// The used entries from page `from` to `to`, with the folios that they lead to.
    pub(crate) fn young_entries(&self, from: u64, to: u64) -> Vec<(u64, u32)> {
        let entries = self.entries.borrow();
        let young = entries.range(from..=to).filter(|(_, entry)| entry.young);
        young.map(|(&index, entry)| (index, entry.serial)).collect()
    }

    /// The page table that a page's entry is in.
    pub(crate) fn table_of(&self, index: u64) -> u64 {
        (self.address_page + index - self.first) / TABLE_PAGES
    }

    /// Its page tables, each with the first and last page that it has entries of.
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

    /// The `pages` pages around one whose entries are in the same page table
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

    /// The window of fault-around for a page: so many pages, aligned by their
    /// addresses, inside the mapping and inside one page table.
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
    /// [`FsError::NotMapped`] behind the end of the file or of the mapping,
    /// [`FsError::Device`] where the page cannot be read.
    pub async fn touch(&self, mapping: &Mapping, offset: u64) -> Result<(), FsError> {
        let index = mapping.first + offset / PAGE_BYTES;
        let walks = (self.host()).walks_page_table(mapping.address_page + offset / PAGE_BYTES);
        if self.has_entry(mapping, index) {
            if let Some(entry) = mapping.entries.borrow_mut().get_mut(&index) {
                entry.young |= walks;
            }
            return Ok(());
        }
        let in_file = index < self.size_bytes(mapping.file.inode).div_ceil(PAGE_BYTES);
        if !in_file || offset / PAGE_BYTES >= mapping.pages {
            return Err(FsError::NotMapped);
        }
        let mut tried = false;
        loop {
            if mapping.fault_around_pages > 1 && self.filemap_map_pages(mapping, index) {
                return Ok(());
            }
            if let Some(folio) = self.filemap_fault(mapping, index, tried).await {
                if !self.cache.borrow().has(folio, flag::UPTODATE) {
                    return Err(FsError::Device);
                }
                self.set_entry(mapping, index, folio);
                return Ok(());
            }
            tried = true;
        }
    }

    /// A program writes the byte at `offset` of a shared mapping: its page is dirty
    /// from the first write on, until it is written out. A hole gets its block.
    ///
    /// # Errors
    /// As [`Vfs::touch`]; [`FsError::NoSpace`].
    pub async fn touch_for_write(&self, mapping: &Mapping, offset: u64) -> Result<(), FsError> {
        self.touch(mapping, offset).await?;
        let inode = mapping.file.inode;
        let index = mapping.first + offset / PAGE_BYTES;
        let Some(folio) = self.cache.borrow().find(inode, index) else {
            return Ok(());
        };
        if self.cache.borrow().has(folio, flag::DIRTY) {
            return Ok(());
        }
        let of = self.inode(inode);
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

    /// Whether a page has a page table entry.
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
        let entry = Entry {
            serial,
            young: true,
        };
        let before = mapping.entries.borrow_mut().insert(index, entry);
        if before.map(|before| before.serial) != Some(serial) {
            cache.map(folio, true);
        }
    }

    /// Maps the cached pages around a fault; whether the page itself was one.
    /// Every page found says that read-around was worth it.
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

    /// Whether fault-around may map it: not one that is being read, and not one
    /// with the mark, which must be met.
    fn can_map(&self, folio: FolioId) -> bool {
        let cache = self.cache.borrow();
        cache.has(folio, flag::UPTODATE) && !cache.has(folio, flag::LOCKED | flag::READAHEAD)
    }

    /// Has the page of a fault, or waits for it and returns `None`: the fault is
    /// then tried again.
    async fn filemap_fault(&self, mapping: &Mapping, index: u64, tried: bool) -> Option<FolioId> {
        let file = &mapping.file;
        let inode = file.inode;
        let mmap_miss = file.ra.get().mmap_miss;
        self.trace(Event::Fault {
            inode,
            index,
            mmap_miss,
        });
        // A first try that had to read or wait lets go of the mapping meanwhile,
        // and is made again; a second one keeps it.
        let mut let_go = false;
        let found = self.cache.borrow().find(inode, index);
        let folio = match found {
            Some(folio) => {
                if !tried {
                    let_go = self.do_async_mmap_readahead(mapping, folio).await;
                }
                folio
            }
            None => {
                let_go = self.do_sync_mmap_readahead(mapping, index).await && !tried;
                self.find_or_create(mapping, index)
            }
        };
        let waited = self.lock_for_fault(folio).await;
        let_go |= waited && !tried;
        if !self.cache.borrow().has(folio, flag::UPTODATE) {
            self.read_folio(folio).await;
            self.wait_until_clear(folio, flag::LOCKED).await;
            let_go |= !tried;
        } else {
            self.cache.borrow_mut().clear(folio, flag::LOCKED);
        }
        self.trace(Event::FaultEnd {
            inode,
            index,
            retry: let_go,
        });
        (!let_go).then_some(folio)
    }

    /// The folio of a fault after readahead, new and not locked where readahead
    /// left it out.
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

    /// Locks a folio; whether that took waiting.
    async fn lock_for_fault(&self, folio: FolioId) -> bool {
        let waits = self.cache.borrow().has(folio, flag::LOCKED);
        if waits {
            self.wait_until_clear(folio, flag::LOCKED).await;
        }
        self.cache.borrow_mut().set(folio, flag::LOCKED);
        waits
    }

    /// A fault found no page: reads around it. Whether the mapping was let go of.
    async fn do_sync_mmap_readahead(&self, mapping: &Mapping, index: u64) -> bool {
        let file = &mapping.file;
        let mut ra = file.ra.get();
        if mapping.access.get() == Access::Random || ra.ra_pages == 0 {
            return false;
        }
        if mapping.access.get() == Access::Sequential {
            self.page_cache_sync_ra(file, index, ra.ra_pages as u64, mapping.origin())
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
        self.page_cache_ra_order(file, &of, 0, mapping.origin())
            .await;
        true
    }

    /// A fault found a page: one miss less, and the next window if it has the
    /// mark. Whether the mapping was let go of.
    async fn do_async_mmap_readahead(&self, mapping: &Mapping, folio: FolioId) -> bool {
        let file = &mapping.file;
        let mut ra = file.ra.get();
        if mapping.access.get() == Access::Random || ra.ra_pages == 0 {
            return false;
        }
        ra.mmap_miss = ra.mmap_miss.saturating_sub(1);
        file.ra.set(ra);
        if !self.cache.borrow().has(folio, flag::READAHEAD) {
            return false;
        }
        self.page_cache_async_ra(file, folio, ra.ra_pages as u64, mapping.origin())
            .await;
        true
    }
}
