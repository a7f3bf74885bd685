//! A sparse array from page index to a 32-bit entry.
//!
//! Like the kernel's XArray it is a tree of nodes with 64 slots. The entry zero means that
//! there is none.

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

/// A node of the tree.
#[derive(Clone, Debug)]
struct Node {
    /// Entries at the lowest level, numbers of nodes above.
    slots: [u32; SLOTS],
    /// Slots with an entry below them that has the mark, a bit each.
    marks: [u64; 3],
}

impl Node {
    const EMPTY: Node = Node {
        slots: [0; SLOTS],
        marks: [0; 3],
    };
}

/// Levels that a 64-bit index needs.
const MAX_HEIGHT: usize = 11;

/// The array.
#[derive(Debug)]
pub(crate) struct XArray {
    nodes: Vec<Node>,
    /// Levels of nodes; 0 until something is stored.
    height: u32,
    /// The lowest node that was looked at last, behind its indices without their last
    /// bits: a call looks at the same pages several times.
    recent: Cell<(u64, u32)>,
    /// The same of the node that was missing last: its level, and indices without the bits
    /// below that.
    missing: Cell<(u64, u32)>,
}

/// The root's number. No node has the root below it, so 0 in a slot means no node.
const ROOT: u32 = 0;

/// No lowest node has such indices.
const NOT_RECENT: (u64, u32) = (u64::MAX, ROOT);

impl Default for XArray {
    fn default() -> XArray {
        XArray {
            nodes: Vec::new(),
            height: 0,
            recent: Cell::new(NOT_RECENT),
            missing: Cell::new(NOT_RECENT),
        }
    }
}

impl XArray {
    /// The entry at `index`, 0 if there is none.
    #[inline]
    pub(crate) fn load(&self, index: u64) -> u32 {
        match self.leaf(index) {
            Ok(leaf) => self.nodes[leaf as usize].slots[slot(index, 0)],
            Err(_) => 0,
        }
    }

    /// The first index from `from` on that has an entry. Missing nodes are skipped as a
    /// whole.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let mut index = from;
        while self.height > 0 && index >> (SLOT_BITS * self.height).min(63) == 0 {
            match self.leaf(index) {
                Ok(leaf) => {
                    let slots = &self.nodes[leaf as usize].slots;
                    let first = slot(index, 0);
                    if let Some(at) = (first..SLOTS).find(|&at| slots[at] != 0) {
                        return Some(index + (at - first) as u64);
                    }
                    index = (index | (SLOTS as u64 - 1)) + 1;
                }
                Err(missing) => {
                    let span = 1_u64 << (SLOT_BITS * missing);
                    index = (index / span + 1).checked_mul(span)?;
                }
            }
        }
        None
    }

    /// The lowest node of an index, or the level from which on there is none.
    #[inline]
    fn leaf(&self, index: u64) -> Result<u32, u32> {
        let (indices, leaf) = self.recent.get();
        if indices == index >> SLOT_BITS {
            return Ok(leaf);
        }
        let (indices, level) = self.missing.get();
        match level > 0 && indices == index >> (SLOT_BITS * level) {
            true => Err(level),
            false => self.descend(index),
        }
    }

    fn descend(&self, index: u64) -> Result<u32, u32> {
        if self.height == 0 || index >> (SLOT_BITS * self.height).min(63) != 0 {
            return Err(self.height);
        }
        let mut node = ROOT;
        for level in (1..self.height).rev() {
            node = self.nodes[node as usize].slots[slot(index, level)];
            if node == 0 {
                self.missing.set((index >> (SLOT_BITS * level), level));
                return Err(level);
            }
        }
        self.recent.set((index >> SLOT_BITS, node));
        Ok(node)
    }

    /// Whether the entry at `index` has the mark.
    fn is_marked(&self, index: u64, mark: Mark) -> bool {
        let marks = |leaf: u32| self.nodes[leaf as usize].marks[mark as usize];
        (self.leaf(index)).is_ok_and(|leaf| marks(leaf) >> slot(index, 0) & 1 != 0)
    }

    /// Puts `entry` at `index`.
    pub(crate) fn store(&mut self, index: u64, entry: u32) {
        if entry == 0 {
            if self.load(index) == 0 {
                return;
            }
            for mark in [Mark::Dirty, Mark::ToWrite, Mark::WriteBack] {
                self.unmark(index, mark);
            }
        }
        let leaf = match self.leaf(index) {
            Ok(leaf) => leaf,
            Err(_) => self.add_leaf(index),
        };
        self.nodes[leaf as usize].slots[slot(index, 0)] = entry;
    }

    /// Adds the nodes that lead to an index. Returns the lowest.
    fn add_leaf(&mut self, index: u64) -> u32 {
        while self.height == 0 || index >> (SLOT_BITS * self.height).min(63) != 0 {
            self.grow();
        }
        let mut node = ROOT;
        for level in (1..self.height).rev() {
            let at = slot(index, level);
            let mut child = self.nodes[node as usize].slots[at];
            if child == 0 {
                self.missing.set(NOT_RECENT);
                child = self.nodes.len() as u32;
                self.nodes.push(Node::EMPTY);
                self.nodes[node as usize].slots[at] = child;
            }
            node = child;
        }
        node
    }

    /// Marks the entry at `index`, if there is one.
    pub(crate) fn mark(&mut self, index: u64, mark: Mark) {
        if self.load(index) == 0 || self.is_marked(index, mark) {
            return;
        }
        let mut node = ROOT;
        for level in (0..self.height).rev() {
            let at = slot(index, level);
            let of = &mut self.nodes[node as usize];
            of.marks[mark as usize] |= 1 << at;
            node = of.slots[at];
        }
    }

    /// Takes the mark from the entry at `index`.
    pub(crate) fn unmark(&mut self, index: u64, mark: Mark) {
        if !self.is_marked(index, mark) {
            return;
        }
        let mut path = [ROOT; MAX_HEIGHT];
        for level in (1..self.height).rev() {
            let node = &self.nodes[path[level as usize] as usize];
            path[level as usize - 1] = node.slots[slot(index, level)];
        }
        for level in 0..self.height {
            let marks = &mut self.nodes[path[level as usize] as usize].marks[mark as usize];
            *marks &= !(1 << slot(index, level));
            if *marks != 0 {
                return;
            }
        }
    }

    /// Whether an entry has the mark.
    pub(crate) fn any_marked(&self, mark: Mark) -> bool {
        (self.nodes.first()).is_some_and(|root| root.marks[mark as usize] != 0)
    }

    /// The first index from `from` on whose entry has the mark.
    pub(crate) fn next_marked(&self, mut from: u64, mark: Mark) -> Option<u64> {
        'from_the_root: while self.height > 0
            && from.checked_shr(SLOT_BITS * self.height).unwrap_or(0) == 0
        {
            let mut node = ROOT;
            for level in (0..self.height).rev() {
                let at = slot(from, level);
                let of = &self.nodes[node as usize];
                let later = of.marks[mark as usize] & (u64::MAX << at);
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
                node = of.slots[first];
            }
            return Some(from);
        }
        None
    }

    /// Adds a level above the root.
    fn grow(&mut self) {
        let mut root = Node::EMPTY;
        if self.height > 0 {
            let child = self.nodes.len() as u32;
            root.slots[0] = child;
            root.marks = self.nodes[ROOT as usize]
                .marks
                .map(|marks| u64::from(marks != 0));
            let old = std::mem::replace(&mut self.nodes[ROOT as usize], root);
            self.nodes.push(old);
        } else {
            self.nodes.push(root);
        }
        self.height += 1;
        self.recent.set(NOT_RECENT);
        self.missing.set(NOT_RECENT);
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
