//! The memory that the page cache uses and its limits: those of memory cgroups, and the
//! watermarks of a machine with `kswapd`, the thread that keeps pages free.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::reclaim::Memory;
use crate::reclaim::scan::{CLUSTER_PAGES, Reclaimer, Scan};
use crate::vfs::{Host, Vfs};

/// Reclaims before a page is charged in spite of the limit (`MAX_RECLAIM_RETRIES`).
const RECLAIMS_MAX: u32 = 16;

/// Watermarks of free pages, for memory in one zone (`/proc/zoneinfo`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it, a task that needs a page reclaims itself.
    pub min: u64,
    /// Below it, `kswapd` is woken.
    pub low: u64,
    /// From it on, `kswapd` sleeps.
    pub high: u64,
}

impl Watermarks {
    /// The watermarks of a machine with `pages` pages. `min_free_kbytes` is four times the
    /// square root of the memory in KiB, from 128 KiB to 256 MiB;
    /// `watermark_scale_factor` is the default of 0.1 %.
    pub fn of(pages: u64) -> Watermarks {
        let min_free_kib = pages.saturating_mul(4 * 16).isqrt().clamp(128, 262_144);
        let min = min_free_kib / 4;
        let step = (min / 4).max(pages / 1000);
        Watermarks {
            min,
            low: min + step,
            high: min + 2 * step,
        }
    }
}

/// The pages charged to the limit.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Memory,
    /// A machine's watermarks, which do not change.
    marks: Watermarks,
    used: u64,
    /// The waker of a sleeping `kswapd`.
    kswapd: Option<Waker>,
    kswapd_wanted: bool,
}

impl Charge {
    pub(super) fn new(memory: Memory) -> Charge {
        let (Memory::Machine { pages } | Memory::Cgroup { max_pages: pages }) = memory;
        Charge {
            memory,
            marks: Watermarks::of(pages),
            used: 0,
            kswapd: None,
            kswapd_wanted: false,
        }
    }

    pub(super) fn is_cgroup(&self) -> bool {
        matches!(self.memory, Memory::Cgroup { .. })
    }

    /// Charges pages, if there is room besides `others`, which are not the page cache's.
    /// Otherwise returns who must reclaim (`try_charge_memcg`, `__alloc_pages`).
    fn charge(&mut self, pages: u64, others: u64) -> Option<Reclaimer> {
        match self.memory {
            Memory::Cgroup { max_pages } => {
                let room = max_pages.saturating_sub(others).saturating_sub(self.used);
                if pages > room {
                    return Some(Reclaimer::Cgroup);
                }
                self.used += pages;
                None
            }
            Memory::Machine { pages: all } => {
                let marks = self.marks;
                let free = all.saturating_sub(others + self.used);
                if free < marks.low + pages {
                    self.wake_kswapd();
                }
                if free < marks.min + pages {
                    return Some(Reclaimer::Direct);
                }
                self.used += pages;
                None
            }
        }
    }

    /// The limit, and the watermarks of a machine.
    fn limit(&self) -> (Memory, Watermarks) {
        (self.memory, self.marks)
    }

    /// Charges pages although there is no room.
    fn force(&mut self, pages: u64) {
        self.used += pages;
    }

    pub(super) fn uncharge(&mut self, pages: u64) {
        self.used -= pages;
    }

    fn wake_kswapd(&mut self) {
        self.kswapd_wanted = true;
        if let Some(waker) = self.kswapd.take() {
            waker.wake();
        }
    }

    /// Whether enough pages are free for `kswapd` to sleep.
    fn is_balanced(&self, others: u64) -> bool {
        match self.memory {
            Memory::Cgroup { .. } => true,
            Memory::Machine { pages } => {
                pages.saturating_sub(others + self.used) >= self.marks.high
            }
        }
    }
}

impl<H: Host> Vfs<H> {
    /// A program takes pages of memory, for which others may be evicted, and which hold no
    /// file's data: less can be dirty.
    pub fn take_memory(&self, pages: u64) {
        // Memory comes page by page, and what is short is reclaimed a cluster at a time.
        for taken in (0..pages).step_by(CLUSTER_PAGES as usize) {
            self.charge_pages((pages - taken).min(CLUSTER_PAGES));
        }
        self.write_back.borrow_mut().taken_pages += pages;
    }

    /// It gives them back.
    pub fn give_memory(&self, pages: u64) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().charge.uncharge(pages);
        }
        self.write_back.borrow_mut().taken_pages -= pages;
    }

    /// Charges a folio of `pages` pages, after reclaim if there is no room.
    pub(crate) fn charge_pages(&self, pages: u64) {
        for _ in 0..=RECLAIMS_MAX {
            let others = self.host().other_pages();
            let reclaimer = match &self.lru {
                Some(lru) => lru.borrow_mut().charge.charge(pages, others),
                None => None,
            };
            match reclaimer {
                None => return,
                Some(reclaimer) => self.try_to_free_pages(reclaimer, pages),
            };
        }
        if let Some(lru) = &self.lru {
            lru.borrow_mut().charge.force(pages);
        }
    }

    /// The thread `kswapd`, which keeps pages free and never ends.
    pub async fn kswapd(&self) {
        loop {
            poll_fn(|context| {
                let Some(lru) = &self.lru else {
                    return Poll::Pending;
                };
                let charge = &mut lru.borrow_mut().charge;
                if std::mem::take(&mut charge.kswapd_wanted) {
                    return Poll::Ready(());
                }
                charge.kswapd = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            self.balance_pgdat();
        }
    }

    /// Reclaims until the high watermark is reached, or nothing more can be freed.
    fn balance_pgdat(&self) {
        let is_balanced = || {
            let others = self.host().other_pages();
            let lru = self.lru.as_ref();
            lru.is_none_or(|lru| lru.borrow().charge.is_balanced(others))
        };
        let wanted = match self.lru.as_ref().map(|lru| lru.borrow().charge.limit()) {
            Some((Memory::Machine { .. }, marks)) => marks.high,
            _ => 0,
        };
        let mut scan = Scan::new(Reclaimer::Kswapd, wanted.max(CLUSTER_PAGES));
        while scan.priority >= 1 && !is_balanced() {
            scan.scanned = 0;
            scan.reclaimed = 0;
            self.shrink_lruvec(&mut scan);
            if scan.scanned < scan.wanted || scan.reclaimed == 0 {
                scan.priority -= 1;
            }
        }
        if scan.needs_flusher {
            self.start_flushers();
        }
    }
}
