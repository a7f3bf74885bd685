//! A sparse array from page index to a 32-bit entry.
//!
//! Like the kernel's XArray it is a tree of nodes with 64 slots. The entry zero means that
//! there is none. An entry that is the only one of its lowest node stands in the slot above
//! in place of that node, so that pages far from each other need no node each.

use std::cell::Cell;

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

const MARKS: [Mark; 3] = [Mark::Dirty, Mark::ToWrite, Mark::WriteBack];

/// A node at the lowest level.
#[derive(Clone, Debug)]
struct Leaf {
    entries: [u32; SLOTS],
    /// Slots whose entry has the mark, a bit each.
    marks: [u64; MARKS.len()],
}

/// A node above that.
#[derive(Clone, Debug)]
struct Inner {
    children: [Child; SLOTS],
    /// Slots with an entry below them that has the mark, a bit each.
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
    inner: Vec<Inner>,
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

    /// The first index from `from` on that has an entry. Missing nodes are skipped as a
    /// whole.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let mut index = from;
        while !self.is_beyond(index) {
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
                return Some(index + (at - first) as u64);
            }
            let span = 1_u64 << (SLOT_BITS * missing);
            index = (index / span + 1).checked_mul(span)?;
        }
        None
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
            return Ok(self.inner[node as usize].children[slot(index, 1)]);
        }
        self.descend(index)
    }

    fn descend(&self, index: u64) -> Result<Child, u32> {
        if self.is_beyond(index) {
            return Err(self.height);
        }
        let mut child = self.root;
        for level in (1..self.height).rev() {
            let Child::Node(node) = child else {
                return Err(level + 1);
            };
            if level == 1 {
                self.recent.set((index >> (2 * SLOT_BITS), node));
            }
            child = self.inner[node as usize].children[slot(index, level)];
        }
        Ok(child)
    }

    /// What is in place of the leaf of an index, to be changed. Nodes that are missing above
    /// it are added.
    fn lowest_mut(&mut self, index: u64) -> &mut Child {
        while self.is_beyond(index) {
            self.grow();
        }
        let mut parent = None;
        for level in (1..self.height).rev() {
            let added = self.inner.len() as u32;
            let child = match parent {
                None => &mut self.root,
                Some(node) => {
                    let inner: &mut Inner = &mut self.inner[node as usize];
                    &mut inner.children[slot(index, level + 1)]
                }
            };
            parent = match *child {
                Child::Node(node) => Some(node),
                _ => {
                    *child = Child::Node(added);
                    self.inner.push(Inner::EMPTY);
                    Some(added)
                }
            };
        }
        match parent {
            None => &mut self.root,
            Some(node) => &mut self.inner[node as usize].children[slot(index, 1)],
        }
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
        let at = slot(index, 0);
        let new_leaf = self.leaves.len() as u32;
        let child = self.lowest_mut(index);
        let before = *child;
        let leaf = match before {
            Child::Node(leaf) => leaf,
            Child::Lone { slot, .. } if slot as usize != at => {
                *child = Child::Node(new_leaf);
                self.leaves.push(Leaf::with(before));
                new_leaf
            }
            _ if entry == 0 => return *child = Child::Nothing,
            _ => {
                let marks = match before {
                    Child::Lone { marks, .. } => marks,
                    _ => 0,
                };
                let slot = at as u8;
                return *child = Child::Lone { slot, marks, entry };
            }
        };
        self.leaves[leaf as usize].entries[at] = entry;
    }

    /// The slots of a child at `level` that have the mark, a bit each.
    fn marks(&self, child: Child, level: u32, mark: Mark) -> u64 {
        match child {
            Child::Nothing => 0,
            Child::Lone { slot, marks, .. } => u64::from(marks >> mark as u8 & 1) << slot,
            Child::Node(leaf) if level == 0 => self.leaves[leaf as usize].marks[mark as usize],
            Child::Node(inner) => self.inner[inner as usize].marks[mark as usize],
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
        let mut child = self.root;
        for level in (1..self.height).rev() {
            let Child::Node(node) = child else { return };
            let inner = &mut self.inner[node as usize];
            inner.marks[mark as usize] |= 1 << slot(index, level);
            child = inner.children[slot(index, level)];
        }
        match self.lowest_mut(index) {
            Child::Nothing => {}
            Child::Lone { marks, .. } => *marks |= 1 << mark as u8,
            Child::Node(leaf) => {
                let leaf = *leaf as usize;
                self.leaves[leaf].marks[mark as usize] |= 1 << slot(index, 0);
            }
        }
    }

    /// Takes the mark from the entry at `index`.
    pub(crate) fn unmark(&mut self, index: u64, mark: Mark) {
        if !self.is_marked(index, mark) {
            return;
        }
        match self.lowest_mut(index) {
            Child::Nothing => {}
            Child::Lone { marks, .. } => *marks &= !(1 << mark as u8),
            Child::Node(leaf) => {
                let leaf = *leaf as usize;
                self.leaves[leaf].marks[mark as usize] &= !(1 << slot(index, 0));
                if self.leaves[leaf].marks[mark as usize] != 0 {
                    return;
                }
            }
        }
        let mut path = [0; MAX_HEIGHT];
        let mut child = self.root;
        for level in (1..self.height).rev() {
            let Child::Node(node) = child else { return };
            path[level as usize] = node;
            child = self.inner[node as usize].children[slot(index, level)];
        }
        for level in 1..self.height {
            let marks = &mut self.inner[path[level as usize] as usize].marks[mark as usize];
            *marks &= !(1 << slot(index, level));
            if *marks != 0 {
                return;
            }
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
                    child = self.inner[node as usize].children[first];
                }
            }
            return Some(from);
        }
        None
    }

    /// Adds a level above the root.
    fn grow(&mut self) {
        if self.height > 0 {
            let mut above = Inner::EMPTY;
            above.children[0] = self.root;
            above.marks = MARKS.map(|mark| u64::from(self.any_marked(mark)));
            self.root = Child::Node(self.inner.len() as u32);
            self.inner.push(above);
        }
        self.height += 1;
    }
}

impl Inner {
    const EMPTY: Inner = Inner {
        children: [Child::Nothing; SLOTS],
        marks: [0; MARKS.len()],
    };
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
                prop_assert_eq!(array.next(index), stored.map(|(&index, _)| index));
                prop_assert_eq!(array.load(index + 1), map.get(&(index + 1)).copied().unwrap_or(0));
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
