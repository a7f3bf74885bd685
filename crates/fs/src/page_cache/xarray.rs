//! A sparse array from page index to a 32-bit entry.
//!
//! As the kernel's XArray it is a tree of nodes with 64 slots. Zero is "no
//! entry".

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;

/// Slots of a node: entries at the lowest level, numbers of nodes above.
type Node = Box<[u32; SLOTS]>;

/// The array.
#[derive(Debug, Default)]
pub(crate) struct XArray {
    nodes: Vec<Node>,
    /// Levels of nodes; none while nothing was stored.
    height: u32,
}

/// The root's number; others are below it, so 0 also says "no node".
const ROOT: u32 = 0;

impl XArray {
    /// The entry at `index`, 0 if there is none.
    #[inline]
    pub(crate) fn load(&self, index: u64) -> u32 {
        if self.height == 0 || index >> (SLOT_BITS * self.height).min(63) != 0 {
            return 0;
        }
        let mut node = ROOT;
        for level in (1..self.height).rev() {
            node = self.nodes[node as usize][slot(index, level)];
            if node == 0 {
                return 0;
            }
        }
        self.nodes[node as usize][slot(index, 0)]
    }

    /// The first index from `from` on that has an entry. Parts of the array that
    /// were never stored to are passed over whole.
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let mut index = from;
        while self.height > 0 && index >> (SLOT_BITS * self.height).min(63) == 0 {
            match self.leaf(index) {
                Ok(leaf) => {
                    let first = slot(index, 0);
                    if let Some(at) = (first..SLOTS).find(|&at| leaf[at] != 0) {
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
    fn leaf(&self, index: u64) -> Result<&Node, u32> {
        let mut node = ROOT;
        for level in (1..self.height).rev() {
            node = self.nodes[node as usize][slot(index, level)];
            if node == 0 {
                return Err(level);
            }
        }
        Ok(&self.nodes[node as usize])
    }

    /// Puts `entry` at `index`.
    pub(crate) fn store(&mut self, index: u64, entry: u32) {
        if entry == 0 && self.load(index) == 0 {
            return;
        }
        while self.height == 0 || index >> (SLOT_BITS * self.height).min(63) != 0 {
            self.grow();
        }
        let mut node = ROOT;
        for level in (1..self.height).rev() {
            let at = slot(index, level);
            let mut child = self.nodes[node as usize][at];
            if child == 0 {
                child = self.nodes.len() as u32;
                self.nodes.push(Box::new([0; SLOTS]));
                self.nodes[node as usize][at] = child;
            }
            node = child;
        }
        self.nodes[node as usize][slot(index, 0)] = entry;
    }

    /// Adds a level above the root.
    fn grow(&mut self) {
        let mut root = Box::new([0; SLOTS]);
        if self.height > 0 {
            let child = self.nodes.len() as u32;
            root[0] = child;
            let old = std::mem::replace(&mut self.nodes[ROOT as usize], root);
            self.nodes.push(old);
        } else {
            self.nodes.push(root);
        }
        self.height += 1;
    }
}

#[inline]
fn slot(index: u64, level: u32) -> usize {
    (index >> (SLOT_BITS * level)) as usize & (SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::XArray;

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
    }
}
