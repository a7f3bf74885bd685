//! A sparse array from page index to a 32-bit entry.
//!
//! Like the kernel's XArray it is a tree of nodes with 64 slots. The entry zero means that
//! there is none. An entry that is the only one of its lowest node stands in the slot above
//! in place of that node, so that pages far from each other need no node each.

use std::cell::Cell;
use std::ops::Range;

use branches::{prefetch_read_data, prefetch_write_data};

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;

/// A mark of entries, by which they are found quickly (`xa_mark_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The folio is dirty (`PAGECACHE_TAG_DIRTY`).
    Dirty,
    /// The folio is dirty, and a call in progress will write it (`PAGECACHE_TAG_TOWRITE`).
    ToWrite,
    /// The folio is under write-back (`PAGECACHE_TAG_WRITEBACK`).
    WriteBack,
}

/// The first of the processor's caches, for a prefetch.
const FIRST_CACHE: i32 = 0;

/// Nodes above leaves that leave room for little else in the caches of a processor's core: 256 KiB.
const SPREAD_NODES: usize = 512;

const MARKS: [Mark; 3] = [Mark::Dirty, Mark::ToWrite, Mark::WriteBack];

/// A node at the lowest level.
#[derive(Clone, Debug)]
struct Leaf {
    entries: [u32; SLOTS],
    /// Slots whose entry has the mark, a bit each.
    marks: [u64; MARKS.len()],
}

/// What is below a slot.
#[derive(Clone, Copy, Debug)]
enum Child {
    Nothing,
    /// In place of a leaf: its only entry, the slot of that, and its marks, a bit each.
    Lone {
        slot: u8,
        marks: u8,
        entry: u32,
    },
    /// The number of a leaf, or of an inner node where the level is not the lowest.
    Node(u32),
}

/// Levels that a 64-bit index needs.
const MAX_HEIGHT: usize = 11;

/// The array.
#[derive(Debug)]
pub(crate) struct XArray {
    /// The slots of nodes above leaves.
    inner: Vec<[Child; SLOTS]>,
    /// Of each of those nodes, its slots that have anything below them, a bit each: of a large
    /// array all of these are in the processor's cache, and few slots are.
    used: Vec<u64>,
    /// Of each, its slots with an entry below them that has the mark, a bit each.
    marks: Vec<[u64; MARKS.len()]>,
    leaves: Vec<Leaf>,
    root: Child,
    /// Levels of nodes; 0 until something is stored.
    height: u32,
    /// The node above leaves that was looked at last, behind its indices without the bits
    /// that it and leaves decide on: a call looks at the same pages several times.
    recent: Cell<(u64, u32)>,
}

impl Default for XArray {
    fn default() -> XArray {
        XArray {
            inner: Vec::new(),
            used: Vec::new(),
            marks: Vec::new(),
            leaves: Vec::new(),
            root: Child::Nothing,
            height: 0,
            // No node has such indices.
            recent: Cell::new((u64::MAX, 0)),
        }
    }
}

impl XArray {
    /// The entry at `index`, 0 if there is none.
    #[inline]
    pub(crate) fn load(&self, index: u64) -> u32 {
        match self.lowest(index) {
            Ok(Child::Node(leaf)) => self.leaves[leaf as usize].entries[slot(index, 0)],
            Ok(Child::Lone {
                slot: at, entry, ..
            }) if at as usize == slot(index, 0) => entry,
            _ => 0,
        }
    }

    /// Whether nothing was ever stored.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        self.height == 0
    }

    /// The first index from `from` on, and before `end`, that has an entry. Missing nodes are
    /// skipped as a whole.
    pub(crate) fn next_before(&self, from: u64, end: u64) -> Option<u64> {
        let mut index = from;
        while index < end && !self.is_beyond(index) {
            let (first, mut missing) = (slot(index, 0), 1);
            let found = match self.lowest(index) {
                Ok(Child::Node(leaf)) => {
                    let entries = &self.leaves[leaf as usize].entries;
                    (first..SLOTS).find(|&at| entries[at] != 0)
                }
                Ok(Child::Lone { slot: at, .. }) => Some(at as usize).filter(|at| *at >= first),
                Ok(Child::Nothing) => None,
                Err(level) => {
                    missing = level;
                    None
                }
            };
            if let Some(at) = found {
                return Some(index + (at - first) as u64).filter(|index| *index < end);
            }
            let span = 1_u64 << (SLOT_BITS * missing);
            index = (index / span + 1).checked_mul(span)?;
        }
        None
    }

    /// Whether there are more nodes than a processor's core has in its caches.
    #[inline]
    pub(crate) fn is_spread_out(&self) -> bool {
        self.inner.len() >= SPREAD_NODES
    }

    /// Has the processor prefetch the slot above the entry at `index`, to be read and written.
    pub(crate) fn prefetch(&self, index: u64) {
        if self.is_beyond(index) {
            return;
        }
        let mut child = self.root;
        for level in (1..self.height).rev() {
            let Child::Node(node) = child else { return };
            let at = slot(index, level);
            if level == 1 {
                prefetch_read_data::<_, FIRST_CACHE>(&self.used[node as usize]);
                prefetch_write_data::<_, FIRST_CACHE>(&self.inner[node as usize][at]);
                return;
            }
            child = self.child(node, at);
        }
    }

    /// Whether an index needs more levels than there are.
    #[inline]
    fn is_beyond(&self, index: u64) -> bool {
        self.height == 0 || index.checked_shr(SLOT_BITS * self.height).unwrap_or(0) != 0
    }

    /// What is in place of the leaf of an index, or the level from which on there is
    /// nothing.
    #[inline]
    fn lowest(&self, index: u64) -> Result<Child, u32> {
        let (indices, node) = self.recent.get();
        if indices == index >> (2 * SLOT_BITS) {
            return Ok(self.child(node, slot(index, 1)));
        }
        self.descend(index)
    }

    /// What is below a slot of a node.
    #[inline]
    fn child(&self, node: u32, at: usize) -> Child {
        match self.used[node as usize] >> at & 1 {
            0 => Child::Nothing,
            _ => self.inner[node as usize][at],
        }
    }

    /// The same; below no node is the root.
    #[inline]
    fn below(&self, node: Option<u32>, at: usize) -> Child {
        node.map_or(self.root, |node| self.child(node, at))
    }

    /// Puts a child there.
    #[inline]
    fn put(&mut self, node: Option<u32>, at: usize, child: Child) {
        let Some(node) = node else {
            self.root = child;
            return;
        };
        let used = &mut self.used[node as usize];
        match child {
            Child::Nothing => *used &= !(1 << at),
            _ => *used |= 1 << at,
        }
        self.inner[node as usize][at] = child;
    }

    fn add_node(&mut self) -> u32 {
        self.inner.push([Child::Nothing; SLOTS]);
        self.used.push(0);
        self.marks.push([0; MARKS.len()]);
        self.inner.len() as u32 - 1
    }

    fn descend(&self, index: u64) -> Result<Child, u32> {
        if self.is_beyond(index) {
            return Err(self.height);
        }
        let mut child = self.root;
        let mut level = self.height - 1;
        while level > 0 {
            let Child::Node(node) = child else {
                return Err(level + 1);
            };
            if level == 1 {
                self.recent.set((index >> (2 * SLOT_BITS), node));
                return Ok(self.child(node, slot(index, 1)));
            }
            child = self.inner[node as usize][slot(index, level)];
            level -= 1;
        }
        Ok(child)
    }

    /// The node above the leaf of an index; none where that is the root. Nodes that are missing
    /// are added.
    #[inline]
    fn parent(&mut self, index: u64) -> Option<u32> {
        let (indices, node) = self.recent.get();
        match indices == index >> (2 * SLOT_BITS) {
            true => Some(node),
            false => self.grow_to(index),
        }
    }

    fn grow_to(&mut self, index: u64) -> Option<u32> {
        while self.is_beyond(index) {
            self.grow();
        }
        let (mut parent, mut at) = (None, 0);
        for level in (1..self.height).rev() {
            let node = match self.below(parent, at) {
                Child::Node(node) => node,
                _ => {
                    let added = self.add_node();
                    self.put(parent, at, Child::Node(added));
                    added
                }
            };
            (parent, at) = (Some(node), slot(index, level));
        }
        if let Some(node) = parent {
            self.recent.set((index >> (2 * SLOT_BITS), node));
        }
        parent
    }

    /// Puts `entry` at `index`.
    pub(crate) fn store(&mut self, index: u64, entry: u32) {
        if entry == 0 {
            if self.load(index) == 0 {
                return;
            }
            for mark in MARKS {
                self.unmark(index, mark);
            }
        }
        let (parent, in_parent) = (self.parent(index), slot(index, 1));
        let at = slot(index, 0);
        let before = self.below(parent, in_parent);
        let marks = match before {
            Child::Node(leaf) => {
                self.leaves[leaf as usize].entries[at] = entry;
                return;
            }
            Child::Lone { slot, .. } if slot as usize != at => {
                let mut leaf = Leaf::with(before);
                leaf.entries[at] = entry;
                self.leaves.push(leaf);
                let leaf = Child::Node(self.leaves.len() as u32 - 1);
                return self.put(parent, in_parent, leaf);
            }
            Child::Lone { marks, .. } => marks,
            Child::Nothing => 0,
        };
        let slot = at as u8;
        let child = match entry {
            0 => Child::Nothing,
            _ => Child::Lone { slot, marks, entry },
        };
        self.put(parent, in_parent, child);
    }

    /// Puts `entry` at each index of a range, whose leaves are filled as a whole.
    pub(crate) fn store_all(&mut self, range: Range<u64>, entry: u32) {
        if range.end - range.start == 1 {
            return self.store(range.start, entry);
        }
        if entry == 0 {
            MARKS
                .into_iter()
                .for_each(|mark| self.unmark_all(range.clone(), mark));
        }
        let mut first = range.start;
        while first < range.end {
            let end = range.end.min((first / SLOTS as u64 + 1) * SLOTS as u64);
            let (parent, in_parent) = (self.parent(first), slot(first, 1));
            let leaf = match self.below(parent, in_parent) {
                Child::Node(leaf) => leaf,
                Child::Nothing if entry == 0 => {
                    first = end;
                    continue;
                }
                lone => {
                    self.leaves.push(Leaf::with(lone));
                    let leaf = self.leaves.len() as u32 - 1;
                    self.put(parent, in_parent, Child::Node(leaf));
                    leaf
                }
            };
            let at = slot(first, 0);
            self.leaves[leaf as usize].entries[at..at + (end - first) as usize].fill(entry);
            first = end;
        }
    }

    fn unmark_all(&mut self, range: Range<u64>, mark: Mark) {
        let mut from = range.start;
        while let Some(marked) = self.next_marked(from, mark).filter(|at| *at < range.end) {
            self.unmark(marked, mark);
            from = marked + 1;
        }
    }

    /// The slots of a child at `level` that have the mark, a bit each.
    fn marks(&self, child: Child, level: u32, mark: Mark) -> u64 {
        match child {
            Child::Nothing => 0,
            Child::Lone { slot, marks, .. } => u64::from(marks >> mark as u8 & 1) << slot,
            Child::Node(leaf) if level == 0 => self.leaves[leaf as usize].marks[mark as usize],
            Child::Node(inner) => self.marks[inner as usize][mark as usize],
        }
    }

    /// Whether the entry at `index` has the mark.
    fn is_marked(&self, index: u64, mark: Mark) -> bool {
        let child = self.lowest(index);
        child.is_ok_and(|child| self.marks(child, 0, mark) >> slot(index, 0) & 1 != 0)
    }

    /// Marks the entry at `index`, if there is one.
    pub(crate) fn mark(&mut self, index: u64, mark: Mark) {
        if self.load(index) == 0 || self.is_marked(index, mark) {
            return;
        }
        let (mut parent, mut at) = (None, 0);
        for level in (1..self.height).rev() {
            let Child::Node(node) = self.below(parent, at) else {
                return;
            };
            at = slot(index, level);
            self.marks[node as usize][mark as usize] |= 1 << at;
            parent = Some(node);
        }
        self.set_marked(parent, index, mark, true);
    }

    /// Marks the entry at `index`, whose leaf is below `parent`, or takes the mark from it.
    /// Whether an entry of the leaf has the mark then.
    fn set_marked(&mut self, parent: Option<u32>, index: u64, mark: Mark, marked: bool) -> bool {
        let in_parent = slot(index, 1);
        match self.below(parent, in_parent) {
            Child::Nothing => false,
            Child::Lone { slot, marks, entry } => {
                let bit = 1 << mark as u8;
                let marks = if marked { marks | bit } else { marks & !bit };
                self.put(parent, in_parent, Child::Lone { slot, marks, entry });
                marked
            }
            Child::Node(leaf) => {
                let marks = &mut self.leaves[leaf as usize].marks[mark as usize];
                let bit = 1 << slot(index, 0);
                *marks = if marked { *marks | bit } else { *marks & !bit };
                *marks != 0
            }
        }
    }

    /// Takes the mark from the entry at `index`.
    pub(crate) fn unmark(&mut self, index: u64, mark: Mark) {
        if !self.is_marked(index, mark) {
            return;
        }
        let mut path = [0; MAX_HEIGHT];
        let (mut parent, mut at) = (None, 0);
        for level in (1..self.height).rev() {
            let Child::Node(node) = self.below(parent, at) else {
                return;
            };
            path[level as usize] = node;
            (parent, at) = (Some(node), slot(index, level));
        }
        let mut is_left = self.set_marked(parent, index, mark, false);
        for level in 1..self.height {
            if is_left {
                return;
            }
            let marks = &mut self.marks[path[level as usize] as usize][mark as usize];
            *marks &= !(1 << slot(index, level));
            is_left = *marks != 0;
        }
    }

    /// Whether an entry has the mark.
    pub(crate) fn any_marked(&self, mark: Mark) -> bool {
        self.marks(self.root, self.height.saturating_sub(1), mark) != 0
    }

    /// The first index from `from` on whose entry has the mark.
    pub(crate) fn next_marked(&self, mut from: u64, mark: Mark) -> Option<u64> {
        'from_the_root: while !self.is_beyond(from) {
            let mut child = self.root;
            for level in (0..self.height).rev() {
                let at = slot(from, level);
                let later = self.marks(child, level, mark) & (u64::MAX << at);
                if later == 0 {
                    let span = 1_u64.checked_shl(SLOT_BITS * (level + 1))?;
                    from = (from / span + 1).checked_mul(span)?;
                    continue 'from_the_root;
                }
                let first = later.trailing_zeros() as usize;
                if first != at {
                    let below = SLOT_BITS * level;
                    from = ((from >> below) + (first - at) as u64) << below;
                }
                if let (Child::Node(node), 1..) = (child, level) {
                    child = self.child(node, first);
                }
            }
            return Some(from);
        }
        None
    }

    /// Adds a level above the root.
    fn grow(&mut self) {
        if self.height > 0 {
            let marks = MARKS.map(|mark| u64::from(self.any_marked(mark)));
            let (below, above) = (self.root, self.add_node());
            self.put(Some(above), 0, below);
            self.marks[above as usize] = marks;
            self.root = Child::Node(above);
        }
        self.height += 1;
    }
}

impl Leaf {
    /// A leaf with the entry that stood in its place.
    fn with(lone: Child) -> Leaf {
        let mut leaf = Leaf {
            entries: [0; SLOTS],
            marks: [0; MARKS.len()],
        };
        if let Child::Lone { slot, marks, entry } = lone {
            leaf.entries[slot as usize] = entry;
            leaf.marks = MARKS.map(|mark| u64::from(marks >> mark as u8 & 1) << slot);
        }
        leaf
    }
}

#[inline]
fn slot(index: u64, level: u32) -> usize {
    (index >> (SLOT_BITS * level)) as usize & (SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::{Mark, XArray};

    proptest! {
        #[test]
        fn it_is_a_map(stores in prop::collection::vec((0..40_u32, any::<u64>(), 0..3_u32), 0..200)) {
            let (mut array, mut map) = (XArray::default(), BTreeMap::new());
            for (bits, index, entry) in stores {
                let index = index & ((1 << bits) - 1);
                array.store(index, entry);
                map.insert(index, entry);
                for (&index, &entry) in &map {
                    prop_assert_eq!(array.load(index), entry);
                }
                let stored = map.range(index..).find(|&(_, &entry)| entry != 0);
                let stored = stored.map(|(&index, _)| index);
                prop_assert_eq!(array.next_before(index, u64::MAX), stored);
                let near = stored.filter(|at| *at < index + 100);
                prop_assert_eq!(array.next_before(index, index + 100), near);
                prop_assert_eq!(array.load(index + 1), map.get(&(index + 1)).copied().unwrap_or(0));
            }
        }

        /// Ranges of a power of two of entries, as folios are, or not.
        #[test]
        fn ranges_are_stored_as_one_by_one(
            stores in prop::collection::vec((0..20_u32, any::<u32>(), 1..700_u64, 0..3_u32), 0..40),
        ) {
            let (mut whole, mut single) = (XArray::default(), XArray::default());
            for (bits, first, count, entry) in stores {
                let first = u64::from(first) & ((1 << bits) - 1);
                whole.store_all(first..first + count, entry);
                (first..first + count).for_each(|index| single.store(index, entry));
                for array in [&mut whole, &mut single] {
                    array.mark(first, Mark::WriteBack);
                }
                for index in first.saturating_sub(70)..first + count + 70 {
                    prop_assert_eq!(whole.load(index), single.load(index));
                }
                for from in [0, first, first + 1, first + count] {
                    let marked = single.next_marked(from, Mark::WriteBack);
                    prop_assert_eq!(whole.next_marked(from, Mark::WriteBack), marked);
                    let next = single.next_before(from, u64::MAX);
                    prop_assert_eq!(whole.next_before(from, u64::MAX), next);
                }
            }
        }

        #[test]
        fn marks_are_a_set(
            changes in prop::collection::vec((0..24_u32, any::<u64>(), 0..4_u8), 0..200),
        ) {
            let (mut array, mut marked) = (XArray::default(), BTreeSet::new());
            for (bits, index, change) in changes {
                let index = index & ((1 << bits) - 1);
                match change {
                    0 => {
                        array.store(index, 0);
                        marked.remove(&index);
                    }
                    1 => {
                        array.unmark(index, Mark::Dirty);
                        marked.remove(&index);
                    }
                    _ => {
                        array.store(index, 1);
                        array.mark(index, Mark::Dirty);
                        marked.insert(index);
                    }
                }
                prop_assert_eq!(array.any_marked(Mark::Dirty), !marked.is_empty());
                prop_assert!(!array.any_marked(Mark::ToWrite));
                for from in [0, index, index + 1] {
                    let next = marked.range(from..).next().copied();
                    prop_assert_eq!(array.next_marked(from, Mark::Dirty), next);
                }
            }
        }
    }
}
