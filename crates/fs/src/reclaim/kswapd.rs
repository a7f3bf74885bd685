//! The memory that the page cache uses and its limits: the watermarks of a machine's nodes,
//! with a `kswapd` each, the thread that keeps pages free, or a memory cgroup that stands for
//! all.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use crate::page_cache::FolioId;
use crate::reclaim::lruvec::nodes_from;
use crate::reclaim::node::{Node, NodePages, Watermarks};
use crate::reclaim::scan::{CLUSTER_PAGES, RECLAIM_RETRIES_MAX, Reclaimer, Scan};
use crate::reclaim::{Lru, Memory};
use crate::vfs::{Host, Vfs};
use crate::write_back::{DirtyLimit, Settings};

/// The memory cgroup whose pages are all pages.
const ROOT: u16 = 0;

/// Pages that are needed.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    pages: u64,
    /// The node of the CPU.
    near: u8,
    /// They are going to be dirty (`__GFP_WRITE`).
    will_be_dirty: bool,
}

/// The pages charged to the limit.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Memory,
    /// A memory cgroup has one.
    nodes: Vec<Node>,
    dirty_limit: DirtyLimit,
}

impl Charge {
    pub(super) fn new(memory: Memory, settings: &Settings) -> Charge {
        let (pages, nodes) = match memory {
            Memory::Machine { pages, nodes } => (pages, nodes.max(1)),
            Memory::Cgroup { max_pages } => (max_pages, 1),
        };
        Charge {
            memory,
            nodes: vec![Node::one_of(nodes, pages); usize::from(nodes)],
            dirty_limit: settings.dirty_limit(),
        }
    }

    pub(super) fn count_nodes(&self) -> u8 {
        self.nodes.len() as u8
    }

    pub(super) fn has_remote_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    pub(super) fn is_cgroup(&self) -> bool {
        matches!(self.memory, Memory::Cgroup { .. })
    }

    /// Charges pages, if there is room besides `others`, which are not the page cache's, and
    /// returns their node. Otherwise returns who must reclaim (`try_charge_memcg`,
    /// `__alloc_pages`).
    #[inline]
    fn charge(&mut self, wanted: Wanted, others: u64) -> Result<u8, Reclaimer> {
        let Wanted { pages, near, .. } = wanted;
        let at = usize::from(near);
        let is_plenty =
            at < self.nodes.len() && self.free_of(at, others) >= self.nodes[at].marks.low + pages;
        if is_plenty && !self.is_cgroup() && self.is_dirty_ok(at, wanted, others) {
            self.nodes[at].used += pages;
            return Ok(near);
        }
        self.charge_when_short(wanted, others)
    }

    #[inline(never)]
    fn charge_when_short(&mut self, wanted: Wanted, others: u64) -> Result<u8, Reclaimer> {
        let pages = wanted.pages;
        if self.is_cgroup() {
            if pages > self.free_of(0, others) {
                return Err(Reclaimer::Cgroup);
            }
            self.nodes[0].used += pages;
            return Ok(0);
        }
        let is_above = |charge: &Charge, node: usize, mark: fn(&Watermarks) -> u64| {
            charge.free_of(node, others) >= mark(&charge.nodes[node].marks) + pages
        };
        let first = self.nearest(wanted.near, |node| {
            is_above(self, node, |marks| marks.low) && self.is_dirty_ok(node, wanted, others)
        });
        let node = first.or_else(|| {
            self.wake_kswapds(others);
            // Rather too many dirty pages on a node than no page.
            self.nearest(wanted.near, |node| is_above(self, node, |marks| marks.min))
        });
        let node = node.ok_or(Reclaimer::Direct)?;
        self.nodes[usize::from(node)].used += pages;
        Ok(node)
    }

    /// The first node that suits, from the one that is near to the CPU on
    /// (`get_page_from_freelist` with the zonelist of a node).
    fn nearest(&self, near: u8, suits: impl Fn(usize) -> bool) -> Option<u8> {
        nodes_from(near, self.count_nodes()).find(|&node| suits(usize::from(node)))
    }

    /// A node's free pages, if `others` are spread over all nodes.
    #[inline]
    fn free_of(&self, node: usize, others: u64) -> u64 {
        self.nodes[node].free(others / self.nodes.len() as u64)
    }

    /// Whether a node has no more dirty pages than its share, or none are wanted for that
    /// (`node_dirty_ok`). Where there is but one node, it is taken in any case.
    #[inline]
    fn is_dirty_ok(&self, node: usize, wanted: Wanted, others: u64) -> bool {
        !wanted.will_be_dirty || !self.has_remote_nodes() || self.is_within_share(node, others)
    }

    fn is_within_share(&self, node: usize, others: u64) -> bool {
        let others = others / self.nodes.len() as u64;
        let all = || self.nodes.iter().map(|node| node.dirtyable(others)).sum();
        let node = &self.nodes[node];
        node.dirty <= self.dirty_limit.of_node(node.dirtyable(others), all)
    }

    /// The pages that a node's `kswapd` keeps free; none of a cgroup.
    fn kept_free(&self, node: u8) -> u64 {
        match self.is_cgroup() {
            true => 0,
            false => self.nodes[usize::from(node)].marks.high,
        }
    }

    /// Charges pages of a node although there is no room.
    fn force(&mut self, pages: u64, node: u8) {
        self.nodes[usize::from(node)].used += pages;
    }

    pub(super) fn uncharge(&mut self, pages: u64, node: u8) {
        self.nodes[usize::from(node)].used -= pages;
    }

    /// Whether more than `spare` pages of a node are free above what its `kswapd` keeps free.
    pub(super) fn has_spare(&self, node: u8, spare: u64, others: u64) -> bool {
        self.free_of(usize::from(node), others) > self.kept_free(node) + spare
    }

    /// Has each node below its high watermark reclaimed (`wake_all_kswapds`).
    fn wake_kswapds(&mut self, others: u64) {
        for node in 0..self.count_nodes() {
            if !self.is_balanced(node, others) {
                self.nodes[usize::from(node)].wake_kswapd();
            }
        }
    }

    /// Whether enough pages of a node are free for its `kswapd` to sleep (`pgdat_balanced`).
    fn is_balanced(&self, node: u8, others: u64) -> bool {
        self.is_cgroup() || self.free_of(usize::from(node), others) >= self.kept_free(node)
    }
}

impl<H: Host> Vfs<H> {
    /// How many pages programs can still take, if all that are cached go: there is no swap.
    pub fn memory_left(&self) -> u64 {
        let Some(lru) = &self.lru else {
            return u64::MAX;
        };
        let lru = lru.borrow();
        let nodes = lru.charge.nodes.iter();
        let most: u64 = nodes.map(|node| node.pages - node.marks.min).sum();
        most.saturating_sub(self.write_back.borrow().taken_pages)
    }

    /// A program takes pages of memory, which are added to `held`, for which others may be
    /// evicted, and which hold no file's data: less can be dirty. Returns how many are of
    /// another node than its CPU.
    pub fn take_memory(&self, pages: u64, held: &mut NodePages) -> u64 {
        let (near, mut remote_pages) = (self.host().node(), 0);
        // Memory comes page by page, and what is short is reclaimed a cluster at a time.
        for taken in (0..pages).step_by(CLUSTER_PAGES as usize) {
            let cluster = (pages - taken).min(CLUSTER_PAGES);
            let node = self.charge_pages(cluster, false);
            if let Some(lru) = &self.lru {
                lru.borrow_mut().charge.nodes[usize::from(node)].taken += cluster;
            }
            held.add(node, cluster);
            remote_pages += if node == near { 0 } else { cluster };
        }
        self.write_back.borrow_mut().taken_pages += pages;
        remote_pages
    }

    /// It gives them back.
    pub fn give_memory(&self, pages: &NodePages) {
        if let Some(lru) = &self.lru {
            let charge = &mut lru.borrow_mut().charge;
            for (node, pages) in pages.by_node() {
                charge.uncharge(pages, node);
                charge.nodes[usize::from(node)].taken -= pages;
            }
        }
        self.write_back.borrow_mut().taken_pages -= pages.total();
    }

    /// Charges pages, of a folio whose pages are going to be dirty or not, after reclaim if
    /// there is no room. Returns their node.
    pub(crate) fn charge_pages(&self, pages: u64, will_be_dirty: bool) -> u8 {
        let near = self.host().node();
        let Some(lru) = &self.lru else { return near };
        let wanted = Wanted {
            pages,
            near,
            will_be_dirty,
        };
        match self.try_charge(lru, wanted) {
            Ok(node) => node,
            Err(reclaimer) => self.charge_after_reclaim(lru, wanted, reclaimer),
        }
    }

    #[inline]
    fn try_charge(&self, lru: &RefCell<Lru>, wanted: Wanted) -> Result<u8, Reclaimer> {
        let others = self.host().other_pages();
        lru.borrow_mut().charge.charge(wanted, others)
    }

    #[inline(never)]
    fn charge_after_reclaim(
        &self,
        lru: &RefCell<Lru>,
        wanted: Wanted,
        mut reclaimer: Reclaimer,
    ) -> u8 {
        for _ in 0..RECLAIM_RETRIES_MAX {
            self.try_to_free_pages((reclaimer, ROOT), wanted.pages);
            match self.try_charge(lru, wanted) {
                Ok(node) => return node,
                Err(next) => reclaimer = next,
            }
        }
        self.try_to_free_pages((reclaimer, ROOT), wanted.pages);
        lru.borrow_mut().charge.force(wanted.pages, wanted.near);
        wanted.near
    }

    /// Gives back what was charged for a folio that was not added.
    pub(crate) fn uncharge_pages(&self, pages: u64, node: u8) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().charge.uncharge(pages, node);
        }
    }

    /// Pages of a folio became dirty.
    pub(crate) fn node_dirtied(&self, folio: FolioId, pages: u64) {
        self.change_dirty(folio, |dirty| *dirty += pages);
    }

    /// Pages of a folio are dirty no more, because they were written or dropped.
    pub(crate) fn node_cleaned(&self, folio: FolioId, pages: u64) {
        self.change_dirty(folio, |dirty| *dirty -= pages);
    }

    /// Changes how many pages of a folio's node are dirty or under write-back, which is asked
    /// for only where there are several.
    #[inline]
    fn change_dirty(&self, folio: FolioId, change: impl FnOnce(&mut u64)) {
        let Some(lru) = &self.lru else { return };
        let lru = &mut *lru.borrow_mut();
        if lru.charge.has_remote_nodes() {
            let node = usize::from(lru.lists.entry(folio).node);
            change(&mut lru.charge.nodes[node].dirty);
        }
    }

    /// A run of a node's thread `kswapd`, which keeps pages free: sleeps until it is woken,
    /// and reclaims.
    pub async fn kswapd(&self, node: u8) {
        poll_fn(|context| {
            let Some(lru) = &self.lru else {
                return Poll::Pending;
            };
            let of = &mut lru.borrow_mut().charge.nodes[usize::from(node)];
            if std::mem::take(&mut of.is_kswapd_wanted) {
                return Poll::Ready(());
            }
            of.kswapd = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.balance_pgdat(node);
    }

    /// Reclaims until a node's high watermark is reached, or nothing more can be freed.
    fn balance_pgdat(&self, node: u8) {
        let is_balanced = || {
            let others = self.host().other_pages();
            let lru = self.lru.as_ref();
            lru.is_none_or(|lru| lru.borrow().charge.is_balanced(node, others))
        };
        let lru = self.lru.as_ref();
        let wanted = lru.map_or(0, |lru| lru.borrow().charge.kept_free(node));
        let mut scan = Scan::new((Reclaimer::Kswapd, ROOT), wanted.max(CLUSTER_PAGES));
        while scan.priority >= 1 && !is_balanced() {
            scan.scanned = 0;
            scan.reclaimed = 0;
            self.shrink_node(&mut scan, node);
            if scan.scanned < scan.wanted || scan.reclaimed == 0 {
                scan.priority -= 1;
            }
        }
        if scan.needs_flusher {
            self.start_flushers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge_of_two(pages: u64) -> Charge {
        let memory = Memory::Machine { pages, nodes: 2 };
        Charge::new(memory, &Settings::with_memory(pages))
    }

    fn near(pages: u64, near: u8) -> Wanted {
        Wanted {
            pages,
            near,
            will_be_dirty: false,
        }
    }

    #[test]
    fn pages_come_from_the_near_node_then_from_the_next() {
        let mut charge = charge_of_two(2_000_000);
        let low = Watermarks::of(2_000_000).low / 2;
        assert_eq!(charge.charge(near(1_000_000 - low, 1), 0), Ok(1));
        assert_eq!(charge.charge(near(1, 1), 0), Ok(0));
        let are_wanted =
            |charge: &Charge| [0, 1].map(|node: usize| charge.nodes[node].is_kswapd_wanted);
        assert_eq!(are_wanted(&charge), [false, false]);
        assert_eq!(charge.charge(near(999_999 - low, 1), 0), Ok(0));
        // Both are at the low watermark: the near one gives its last pages.
        assert_eq!(charge.charge(near(1, 1), 0), Ok(1));
        assert_eq!(are_wanted(&charge), [true, true]);
        assert!(!charge.is_balanced(0, 0) && !charge.is_balanced(1, 0));
        assert_eq!(charge.charge(near(low, 1), 0), Err(Reclaimer::Direct));
        charge.uncharge(500_000, 0);
        assert!(charge.is_balanced(0, 0) && !charge.is_balanced(1, 0));
        assert_eq!(charge.charge(near(1, 1), 0), Ok(0));
    }

    /// A node with its share of dirty pages is passed over for more, and taken if no other is
    /// left; only those below their watermark are reclaimed for that.
    #[test]
    fn a_node_takes_dirty_pages_up_to_its_share() {
        let mut charge = charge_of_two(2_000_000);
        let marks = charge.nodes[0].marks;
        let dirty = Wanted {
            will_be_dirty: true,
            ..near(1, 0)
        };
        let share = (1_000_000 - marks.high) / 5;
        charge.nodes[0].dirty = share;
        assert_eq!(charge.charge(dirty, 0), Ok(0));
        charge.nodes[0].dirty = share + 1;
        assert_eq!(charge.charge(dirty, 0), Ok(1));
        assert_eq!(
            charge.charge(near(1, 0), 0),
            Ok(0),
            "others still come from it"
        );
        charge.force(1_000_000 - marks.low, 1);
        assert_eq!(charge.charge(dirty, 0), Ok(0));
        let wanted = charge.nodes.iter().map(|node| node.is_kswapd_wanted);
        assert!(wanted.eq([false, true]));
        let memory = Memory::Machine {
            pages: 1_000_000,
            nodes: 1,
        };
        let mut alone = Charge::new(memory, &Settings::with_memory(1_000_000));
        alone.nodes[0].dirty = 1_000_000;
        assert_eq!(alone.charge(dirty, 0), Ok(0));
        assert!(!alone.nodes[0].is_kswapd_wanted);
    }
}
