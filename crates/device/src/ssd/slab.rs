//! Objects in one array, named by index. A place that was given back is used
//! again, so memory is allocated only while the number of objects reaches a new
//! high.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// The array, and its free places, the last one freed first.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn with_capacity(items: usize) -> Slab<T> {
        Slab {
            items: Vec::with_capacity(items),
            free: Vec::with_capacity(items),
        }
    }

    /// Puts an object in; returns its index.
    #[inline]
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = item;
                index
            }
            None => self.append(item),
        }
    }

    /// A place for the caller to fill in field by field: it holds `blank`, or the
    /// object that was there before.
    #[inline(always)]
    pub(crate) fn take(&mut self, blank: impl FnOnce() -> T) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            None => self.append(blank()),
        }
    }

    #[cold]
    fn append(&mut self, item: T) -> u32 {
        self.items.push(item);
        self.items.len() as u32 - 1
    }

    /// Gives a place back.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        debug_assert!(!self.free.contains(&index), "given back twice");
        self.free.push(index);
    }

    /// Gives all places back, and their memory with them.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.free.clear();
    }

    /// How many objects there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Whether there is no object.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.len() == self.free.len()
    }

    /// The indices of all objects, in order.
    pub(crate) fn indices(&self) -> Vec<u32> {
        let mut used = vec![true; self.items.len()];
        self.free
            .iter()
            .for_each(|free| used[*free as usize] = false);
        (0..self.items.len() as u32)
            .filter(|index| used[*index as usize])
            .collect()
    }

    /// All places, free ones included.
    pub(crate) fn as_slice(&self) -> &[T] {
        &self.items
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.items[index as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.items[index as usize]
    }
}
