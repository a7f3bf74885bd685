//! Memory cgroups: who is charged for a cached page, and what is reclaimed when a group is
//! at its limit (`mm/memcontrol.c` of Linux 6.12, `Documentation/admin-guide/cgroup-v2.rst`).
//!
//! A page is charged to the group of the task that brought it in, and counts for the groups
//! above as well. Above `memory.max` the task reclaims from that group first; above
//! `memory.high` it reclaims, and is held back, before it returns from its call.

use std::cell::RefCell;

use crate::PAGE_BYTES;
use crate::page_cache::FolioId;
use crate::reclaim::Lru;
use crate::reclaim::lruvec::Lruvec;
use crate::reclaim::scan::{CLUSTER_PAGES, PRIORITY_FIRST, RECLAIM_RETRIES_MAX, Reclaimer};
use crate::vfs::{Host, Vfs};
use crate::write_back::{GroupMemory, HZ};

/// Pages that are charged at once: those that are not needed are the group's stock
/// (`MEMCG_CHARGE_BATCH`). Linux has a stock for each CPU.
const BATCH_PAGES: u64 = 64;

/// The longest delay above `memory.high` (`MEMCG_MAX_HIGH_DELAY_JIFFIES`).
const DELAY_MAX_JIFFIES: u64 = 2 * HZ;

/// Fractional bits of how far a group is above `memory.high`
/// (`MEMCG_DELAY_PRECISION_SHIFT`).
const OVERAGE_BITS: u32 = 20;

/// The delay grows with the square of that, divided by 2 to this power
/// (`MEMCG_DELAY_SCALING_SHIFT`).
const DELAY_BITS: u32 = 14;

/// A memory cgroup below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryGroup {
    /// The group above it; 0 is the root.
    pub parent: u16,
    /// `memory.max` in pages; [`u64::MAX`] for none.
    pub max_pages: u64,
    /// `memory.high` in pages; [`u64::MAX`] for none.
    pub high_pages: u64,
}

impl MemoryGroup {
    /// The most groups: a page's shadow entry has room for no larger number.
    pub const COUNT_MAX: usize = 255;

    /// A group without limits.
    pub fn in_group(parent: u16) -> MemoryGroup {
        MemoryGroup {
            parent,
            max_pages: u64::MAX,
            high_pages: u64::MAX,
        }
    }
}

/// A file of a memory cgroup with a limit.
#[derive(Debug)]
pub struct MemoryFile {
    /// Its name.
    pub name: &'static str,
    set: fn(&mut MemoryGroup, u64),
}

/// Files are compared by name, which is unique.
impl PartialEq for MemoryFile {
    fn eq(&self, other: &MemoryFile) -> bool {
        self.name == other.name
    }
}

/// All of them.
pub const MEMORY_FILES: &[MemoryFile] = &[
    MemoryFile {
        name: "memory.max",
        set: |group, pages| group.max_pages = pages,
    },
    MemoryFile {
        name: "memory.high",
        set: |group, pages| group.high_pages = pages,
    },
];

/// The least limit that is simulated, with which a program of Linux's can still run.
const LEAST_BYTES: u64 = 1 << 20;

impl MemoryFile {
    /// Syntax of what is written.
    pub const FORM: &'static str = "bytes from 1M on, such as 512M or 2G, or max";

    /// Writes to the file of `group`.
    ///
    /// # Errors
    /// If this is no limit, or one that is too low; the message says why.
    pub fn write(&self, group: &mut MemoryGroup, text: &str) -> Result<(), String> {
        let pages = match text.trim() {
            "max" => u64::MAX,
            text => {
                let bytes = bytes(text).ok_or_else(|| format!("{text:?} is no size (EINVAL)"))?;
                if bytes < LEAST_BYTES {
                    return Err(format!(
                        "{bytes} bytes are not enough for a program, which Linux would kill"
                    ));
                }
                bytes / PAGE_BYTES
            }
        };
        (self.set)(group, pages);
        Ok(())
    }
}

/// A number of bytes, which may have one of the kernel's suffixes (`memparse`).
fn bytes(text: &str) -> Option<u64> {
    const SUFFIXES: &str = "KMGTPE";
    let is_suffix = |last: char| SUFFIXES.find(last.to_ascii_uppercase());
    let power = text.chars().next_back().and_then(is_suffix);
    let digits = &text[..text.len() - usize::from(power.is_some())];
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = is_number.then(|| digits.parse().ok())??;
    number.checked_mul(1 << (10 * power.map_or(0, |power| power + 1)))
}

/// What happened in a memory cgroup itself; groups below it count for themselves
/// (`memory.stat`, `memory.events.local`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryGroupCounts {
    /// Pages charged to it and to the groups below it (`memory.current`).
    pub current_pages: u64,
    /// The most of them at once (`memory.peak`).
    pub peak_pages: u64,
    /// Cached pages that its tasks brought in.
    pub charged_pages: u64,
    /// Pages of it that were reclaimed, for whatever limit (`pgsteal`).
    pub reclaimed_pages: u64,
    /// Reclaims because it was above `memory.high` (`high`).
    pub high_events: u64,
    /// Charges that would have passed `memory.max` (`max`).
    pub max_events: u64,
    /// Writes that passed it, as nothing could be reclaimed for as long as Linux tries before it
    /// kills a program (`oom`).
    pub oom_events: u64,
    /// How long its tasks were held back above `memory.high`.
    pub delay_jiffies: u64,
}

/// What a task has charged above `memory.high` since it was last held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverHigh {
    /// Pages (`memcg_nr_pages_over_high`).
    pub pages: u64,
    /// For how long it is to be held back for those that were dealt with.
    pub delay_jiffies: u64,
}

/// A group's counter and stock.
#[derive(Debug)]
struct Group {
    of: MemoryGroup,
    /// Pages charged, of which `stock` are not in use.
    charged: u64,
    stock: u64,
    counts: MemoryGroupCounts,
    /// Itself and all groups below it, each before those in it.
    subtree: Vec<u16>,
    /// Cached pages at the last flush of statistics.
    seen_cached: u64,
    /// By node, the place in `subtree` where reclaim for this group's limit goes on
    /// (`mem_cgroup_iter` with a cookie).
    next: Vec<usize>,
}

impl Group {
    /// How far it is above `memory.high`, as a fraction of that (`calculate_overage`).
    fn overage(&self) -> u128 {
        let high = self.of.high_pages;
        let over = u128::from(self.charged.saturating_sub(high));
        (over << OVERAGE_BITS) / u128::from(high.max(1))
    }
}

/// All groups by number, the root first.
#[derive(Debug)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    /// The root, and these groups in it; each follows its parent.
    pub(super) fn new(below: &[MemoryGroup], nodes: u8) -> Groups {
        debug_assert!(below.len() <= MemoryGroup::COUNT_MAX);
        let all = std::iter::once(MemoryGroup::in_group(0)).chain(below.iter().copied());
        let groups = all.map(|of| Group {
            of,
            charged: 0,
            stock: 0,
            counts: MemoryGroupCounts::default(),
            subtree: Vec::new(),
            seen_cached: 0,
            next: vec![0; usize::from(nodes)],
        });
        let mut groups = Groups(groups.collect());
        for group in 0..groups.0.len() as u16 {
            groups.get(group).subtree.push(group);
            let above: Vec<u16> = groups.above(group).collect();
            for above in above {
                groups.get(above).subtree.push(group);
            }
        }
        groups
    }

    /// How many there are, the root included.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// A group and all below it.
    pub(super) fn subtree(&self, group: u16) -> &[u16] {
        &self.0[usize::from(group)].subtree
    }

    /// The group whose pages on a node the next round of reclaim for a group's limit begins
    /// with, and goes on.
    pub(super) fn next_to_scan(&mut self, Lruvec { node, group }: Lruvec) -> Lruvec {
        let target = &mut self.0[usize::from(group)];
        let next = &mut target.next[usize::from(node)];
        let group = target.subtree[*next];
        *next = (*next + 1) % target.subtree.len();
        Lruvec { node, group }
    }

    /// The groups above a group, the root last.
    pub(super) fn above(&self, group: u16) -> impl Iterator<Item = u16> {
        let parent = |at: &u16| (*at != 0).then(|| self.0[usize::from(*at)].of.parent);
        std::iter::successors(parent(&group), parent)
    }

    /// A group and those above it below the root, which has no limits.
    fn with_limits(&self, group: u16) -> impl Iterator<Item = &Group> {
        let upwards = std::iter::once(group).chain(self.above(group));
        let limited = upwards.filter(|at| *at != 0);
        limited.map(|at| &self.0[usize::from(at)])
    }

    fn get(&mut self, group: u16) -> &mut Group {
        &mut self.0[usize::from(group)]
    }

    fn change_upwards(&mut self, group: u16, change: impl Fn(&mut Group)) {
        let mut at = group;
        while at != 0 {
            let changed = self.get(at);
            change(changed);
            at = changed.of.parent;
        }
    }

    /// Charges pages to a group (`try_charge_memcg`). Returns how many pages were charged
    /// above `memory.high` for that.
    ///
    /// # Errors
    /// The group whose `memory.max` is in the way.
    fn try_charge(&mut self, group: u16, pages: u64) -> Result<u64, u16> {
        let own = self.get(group);
        if own.stock >= pages {
            own.stock -= pages;
            own.counts.charged_pages += pages;
            return Ok(0);
        }
        let mut batch = pages.max(BATCH_PAGES);
        while let Some(over) = self.first_over_max(group, batch) {
            if batch == pages {
                return Err(over);
            }
            batch = pages;
        }
        self.add(group, batch);
        let own = self.get(group);
        own.stock += batch - pages;
        own.counts.charged_pages += pages;
        let mut upwards = self.with_limits(group);
        let is_high = upwards.any(|at| at.charged > at.of.high_pages);
        Ok(if is_high { batch } else { 0 })
    }

    /// The first group upwards that has no room for this many pages.
    fn first_over_max(&self, group: u16, pages: u64) -> Option<u16> {
        let upwards = std::iter::once(group).chain(self.above(group));
        let mut limited = upwards.zip(self.with_limits(group));
        let over = limited.find(|(_, at)| at.charged + pages > at.of.max_pages);
        over.map(|(number, _)| number)
    }

    fn add(&mut self, group: u16, pages: u64) {
        self.change_upwards(group, |at| {
            at.charged += pages;
            at.counts.peak_pages = at.counts.peak_pages.max(at.charged);
        });
    }

    /// Charges pages in spite of all limits.
    fn force(&mut self, group: u16, pages: u64) {
        self.add(group, pages);
        self.get(group).counts.charged_pages += pages;
    }

    pub(super) fn uncharge(&mut self, group: u16, pages: u64) {
        self.change_upwards(group, |at| at.charged -= pages);
    }

    /// Pages of a group were reclaimed.
    pub(super) fn reclaimed(&mut self, group: u16, pages: u64) {
        self.get(group).counts.reclaimed_pages += pages;
    }

    /// How many pages a group may still be charged, by its own limit alone
    /// (`mem_cgroup_margin`).
    fn margin(&self, group: u16) -> u64 {
        let group = &self.0[usize::from(group)];
        group.of.max_pages.saturating_sub(group.charged)
    }

    /// The memory of a group as dirty throttling sees it (`mem_cgroup_wb_stats`).
    fn memory(&self, group: u16) -> GroupMemory {
        let own = &self.0[usize::from(group)];
        let room = |at: &Group| {
            let limit = at.of.max_pages.min(at.of.high_pages);
            limit.saturating_sub(at.charged)
        };
        GroupMemory {
            cached: own.seen_cached,
            headroom: self.with_limits(group).map(room).min().unwrap_or(u64::MAX),
        }
    }

    pub(super) fn flush_statistics(&mut self) {
        for group in &mut self.0 {
            group.seen_cached = group.charged - group.stock;
        }
    }

    /// Whether pages can be charged to a group without reclaim.
    fn has_room(&self, group: u16, pages: u64) -> bool {
        let own = &self.0[usize::from(group)];
        own.stock >= pages || self.first_over_max(group, pages).is_none()
    }

    /// Gives back the stock of a group and of those below it (`drain_all_stock`).
    fn drain_stock(&mut self, group: u16) {
        for at in 0..self.subtree(group).len() {
            let below = self.subtree(group)[at];
            let stock = std::mem::take(&mut self.get(below).stock);
            self.uncharge(below, stock);
        }
    }

    /// For how long a task that has charged this many pages above `memory.high` is to be held
    /// back, by the group that is furthest above (`calculate_high_delay`).
    fn delay_jiffies(&self, group: u16, pages: u64) -> u64 {
        let overage = self.with_limits(group).map(Group::overage).max();
        let overage = overage.unwrap_or(0);
        let square = overage.saturating_mul(overage).saturating_mul(HZ.into());
        let delay = square >> OVERAGE_BITS >> DELAY_BITS;
        let delay = delay.saturating_mul(pages.into()) / u128::from(BATCH_PAGES);
        u64::try_from(delay).map_or(DELAY_MAX_JIFFIES, |delay| delay.min(DELAY_MAX_JIFFIES))
    }

    /// The counts of the groups below the root.
    fn counts(&self) -> impl Iterator<Item = MemoryGroupCounts> + '_ {
        self.0[1..].iter().map(|group| MemoryGroupCounts {
            current_pages: group.charged,
            ..group.counts
        })
    }
}

impl<H: Host> Vfs<H> {
    /// The counts of the memory cgroups below the root, in their order.
    pub fn memory_group_counts(&self) -> Vec<MemoryGroupCounts> {
        let Some(lru) = &self.lru else {
            return Vec::new();
        };
        lru.borrow().groups.counts().collect()
    }

    /// Sets the counts to zero, all but those of memory in use.
    pub(crate) fn reset_memory_group_counts(&self) {
        let Some(lru) = &self.lru else { return };
        for group in &mut lru.borrow_mut().groups.0 {
            group.counts = MemoryGroupCounts {
                peak_pages: group.counts.peak_pages,
                ..MemoryGroupCounts::default()
            };
        }
    }

    /// Charges pages to the running task's group, after reclaim if that is at its limit.
    /// Returns the group.
    #[inline]
    pub(crate) fn charge_group(&self, pages: u64) -> u16 {
        match &self.lru {
            Some(lru) if lru.borrow().groups.count() > 1 => self.charge_below_root(lru, pages),
            _ => 0,
        }
    }

    #[inline(never)]
    fn charge_below_root(&self, lru: &RefCell<Lru>, pages: u64) -> u16 {
        let group = self.host().memory_group();
        if group == 0 {
            return 0;
        }
        self.flush_statistics_if_due();
        let (mut reclaims_left, mut is_drained) = (RECLAIM_RETRIES_MAX, false);
        loop {
            let tried = lru.borrow_mut().groups.try_charge(group, pages);
            let over = match tried {
                Ok(over_high) => {
                    self.charged_over_high(over_high);
                    return group;
                }
                Err(over) => over,
            };
            lru.borrow_mut().groups.get(over).counts.max_events += 1;
            let reclaimed = self.try_to_free_pages((Reclaimer::Cgroup, over), pages);
            let groups = &mut lru.borrow_mut().groups;
            if groups.margin(over) >= pages {
                continue;
            }
            if !std::mem::replace(&mut is_drained, true) {
                groups.drain_stock(over);
            } else if reclaimed == 0 || reclaims_left == 0 {
                // What could not be freed is not until time passes, in which Linux sleeps.
                groups.force(group, pages);
                return group;
            } else {
                reclaims_left -= 1;
            }
        }
    }

    /// A task is about to write to pages that are not cached. Where its group is full of dirty
    /// pages it waits for the flushers, until Linux would kill it (`reclaim_throttle` for
    /// `VMSCAN_THROTTLE_CONGESTED`).
    pub(crate) async fn await_room(&self, pages: u64) {
        let Some(lru) = &self.lru else { return };
        let group = match lru.borrow().groups.count() {
            1 => return,
            _ => self.host().memory_group(),
        };
        let mut sleeps_left = RECLAIM_RETRIES_MAX * (PRIORITY_FIRST + 1);
        while !lru.borrow().groups.has_room(group, pages) {
            let over = lru.borrow().groups.first_over_max(group, pages);
            let Some(over) = over else { return };
            lru.borrow_mut().groups.get(over).counts.max_events += 1;
            if self.try_to_free_pages((Reclaimer::Cgroup, over), pages) > 0 {
                continue;
            }
            if sleeps_left == 0 {
                lru.borrow_mut().groups.get(over).counts.oom_events += 1;
                return;
            }
            sleeps_left -= 1;
            self.start_flushers();
            self.host().sleep(1).await;
        }
    }

    /// Brings statistics up to date that are as old as they become.
    pub(crate) fn flush_statistics_if_due(&self) {
        let now = self.host().now_jiffies();
        if self.write_back.borrow_mut().is_flush_of_statistics_due(now) {
            self.flush_memory_statistics();
        }
    }

    /// The memory cgroup that a folio is charged to.
    pub(crate) fn group_of(&self, folio: FolioId) -> u16 {
        let lru = self.lru.as_ref();
        lru.map_or(0, |lru| lru.borrow().lists.entry(folio).group)
    }

    /// The memory of a group as dirty throttling sees it; nothing of the root.
    pub(crate) fn group_memory(&self, group: u16) -> GroupMemory {
        match &self.lru {
            Some(lru) if group != 0 => {
                self.flush_statistics_if_due();
                lru.borrow().groups.memory(group)
            }
            _ => GroupMemory::default(),
        }
    }

    /// Gives back what was charged to a group for a folio that was not added.
    pub(crate) fn uncharge_group(&self, group: u16, pages: u64) {
        if let Some(lru) = &self.lru {
            lru.borrow_mut().groups.uncharge(group, pages);
        }
    }

    /// The running task has charged pages above `memory.high`. Of a batch and more it does
    /// not wait for the end of its call.
    fn charged_over_high(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        let mut sum = 0;
        self.host().with_over_high(|over| {
            over.pages += pages;
            sum = over.pages;
        });
        if sum > BATCH_PAGES {
            self.reclaim_over_high();
        }
    }

    /// What the running task has charged above `memory.high` is reclaimed, and what that
    /// leaves holds the task back at the end of its call (`mem_cgroup_handle_over_high`).
    pub fn reclaim_over_high(&self) {
        let mut pages = 0;
        (self.host()).with_over_high(|over| pages = std::mem::take(&mut over.pages));
        let Some(lru) = self.lru.as_ref().filter(|_| pages > 0) else {
            return;
        };
        let group = self.host().memory_group();
        let (mut wanted, mut reclaims_left) = (pages, RECLAIM_RETRIES_MAX);
        loop {
            let reclaimed = self.reclaim_high(lru, group, wanted);
            let delay = lru.borrow().groups.delay_jiffies(group, pages);
            if delay <= HZ / 100 {
                return;
            }
            if reclaimed == 0 && reclaims_left == 0 {
                lru.borrow_mut().groups.get(group).counts.delay_jiffies += delay;
                self.host()
                    .with_over_high(|over| over.delay_jiffies += delay);
                return;
            }
            if reclaimed == 0 {
                reclaims_left -= 1;
            }
            wanted = CLUSTER_PAGES;
        }
    }

    /// Reclaims from each group upwards that is above its `memory.high`. Returns how many
    /// pages.
    fn reclaim_high(&self, lru: &RefCell<Lru>, group: u16, wanted: u64) -> u64 {
        let mut reclaimed = 0;
        let mut at = group;
        while at != 0 {
            let (is_high, parent) = {
                let at = &lru.borrow().groups.0[usize::from(at)];
                (at.charged > at.of.high_pages, at.of.parent)
            };
            if is_high {
                lru.borrow_mut().groups.get(at).counts.high_events += 1;
                reclaimed += self.try_to_free_pages((Reclaimer::Cgroup, at), wanted);
            }
            at = parent;
        }
        reclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u64 = u64::MAX;

    #[test]
    fn limits_are_written_as_to_the_kernel_s_files() {
        let mut group = MemoryGroup::in_group(0);
        for (text, expected) in [
            ("1048576", 256),
            ("12m", 3072),
            ("2G\n", 1 << 19),
            ("max", NONE),
        ] {
            MEMORY_FILES[0].write(&mut group, text).expect(text);
            assert_eq!((group.max_pages, group.high_pages), (expected, NONE));
        }
        for text in [
            "",
            "M",
            "-1",
            "1.5G",
            "5 M",
            "20000000000G",
            "1048575",
            "0",
            "äöü",
        ] {
            let error = MEMORY_FILES[1].write(&mut group, text);
            assert!(error.is_err(), "{text}");
        }
    }

    /// A group with two groups in it.
    fn groups(limits: [(u64, u64); 3]) -> Groups {
        let parents = [0, 1, 1];
        let below = limits.into_iter().zip(parents);
        let below = below.map(|((max_pages, high_pages), parent)| MemoryGroup {
            parent,
            max_pages,
            high_pages,
        });
        Groups::new(&below.collect::<Vec<_>>(), 1)
    }

    #[test]
    fn a_page_counts_for_all_groups_above() {
        let mut groups = groups([(1000, NONE), (NONE, NONE), (500, NONE)]);
        assert_eq!(groups.try_charge(2, 600), Ok(0));
        assert_eq!(groups.try_charge(3, 400), Ok(0));
        assert_eq!(groups.try_charge(3, 1), Err(1), "the parent's limit");
        groups.uncharge(2, 200);
        assert_eq!(groups.try_charge(3, 101), Err(3), "its own");
        assert_eq!(groups.try_charge(3, 100), Ok(0));
        let current: Vec<u64> = groups.counts().map(|counts| counts.current_pages).collect();
        assert_eq!(current, [900, 400, 500]);
        assert_eq!(groups.subtree(1), [1, 2, 3]);
        assert!(groups.above(3).eq([1, 0]));
    }

    #[test]
    fn pages_are_charged_in_batches_while_there_is_room_for_one() {
        let mut groups = groups([(NONE, NONE), (100, NONE), (NONE, NONE)]);
        let current = |groups: &Groups| groups.counts().nth(1).map(|c| c.current_pages);
        for _ in 0..BATCH_PAGES {
            assert_eq!(groups.try_charge(2, 1), Ok(0));
            assert_eq!(current(&groups), Some(BATCH_PAGES));
        }
        assert_eq!(groups.try_charge(2, 1), Ok(0));
        assert_eq!(current(&groups), Some(BATCH_PAGES + 1));
        groups.drain_stock(1);
        assert_eq!(current(&groups), Some(BATCH_PAGES + 1));
    }

    /// A sixteenth above, a batch costs a quarter of a second; at twice the limit it is the
    /// longest delay.
    #[test]
    fn the_delay_grows_with_the_square_of_what_is_above() {
        let mut groups = groups([(NONE, 16_000), (NONE, NONE), (NONE, NONE)]);
        assert_eq!(groups.try_charge(2, 16_000), Ok(0));
        assert_eq!(groups.delay_jiffies(2, BATCH_PAGES), 0);
        assert_eq!(groups.try_charge(2, 1_000), Ok(1_000));
        assert_eq!(groups.delay_jiffies(2, BATCH_PAGES), HZ / 4);
        assert_eq!(groups.delay_jiffies(2, BATCH_PAGES / 2), HZ / 8);
        assert_eq!(groups.try_charge(2, 15_000), Ok(15_000));
        assert_eq!(groups.delay_jiffies(2, BATCH_PAGES), DELAY_MAX_JIFFIES);
    }
}
