//! A slab: objects in one array, addressed by index, whose places are reused.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::num::NonZeroU32;
use core::ops::{Index, IndexMut};

/// Identifies an object in a [`Slab`] of `T`.
pub struct Id<T>(NonZeroU32, PhantomData<fn() -> T>);

impl<T> Id<T> {
    /// Returns the id of the object at `index`.
    ///
    /// # Panics
    /// If the index is `u32::MAX`.
    pub fn from_index(index: usize) -> Id<T> {
        let raw = NonZeroU32::new(index as u32 + 1).expect("slab index below u32::MAX");
        Id(raw, PhantomData)
    }

    /// The index in the array.
    #[inline]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Id<T> {}
impl<T> core::fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "#{}", self.index())
    }
}

/// Objects in one array. The place freed last is reused first, so that a warm slab stays in the
/// cache and never allocates.
#[derive(Debug)]
pub struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Stores `item` and returns its id.
    #[inline(always)]
    pub fn insert(&mut self, item: T) -> Id<T> {
        self.insert_with(|| item)
    }

    /// Stores the item that `make` returns, which is built in its place, and returns its id.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> Id<T> {
        match self.free.pop() {
            Some(index) => {
                let place = &mut self.items[index as usize];
                *place = make();
                Id::from_index(index as usize)
            }
            None => self.append(make()),
        }
    }

    #[cold]
    fn append(&mut self, item: T) -> Id<T> {
        self.items.push(item);
        Id::from_index(self.items.len() - 1)
    }

    /// Makes `places` places, so that so many objects can be stored and freed without an
    /// allocation; the new ones hold copies of `item`. Returns `false` if there is no memory.
    pub fn try_grow(&mut self, places: usize, item: &T) -> bool
    where
        T: Clone,
    {
        let had = self.items.len();
        let more = places.saturating_sub(had);
        let more_free = places.saturating_sub(self.free.len());
        if self.items.try_reserve_exact(more).is_err()
            || self.free.try_reserve_exact(more_free).is_err()
        {
            return false;
        }
        self.items.resize(had + more, item.clone());
        // In reverse, as the last one in the list is the first one used.
        self.free.extend((had as u32..(had + more) as u32).rev());
        true
    }

    /// Frees the object `id`, which must not be used again.
    #[inline]
    pub fn remove(&mut self, id: Id<T>) {
        debug_assert!(!self.free.contains(&(id.index() as u32)), "freed twice");
        self.free.push(id.index() as u32);
    }

    /// The ids of all objects in use, in order of their index. It takes time proportional to the
    /// size of the slab.
    pub fn ids(&self) -> Vec<Id<T>> {
        let mut used = vec![true; self.items.len()];
        self.free
            .iter()
            .for_each(|free| used[*free as usize] = false);
        let places = used.iter().enumerate().filter(|(_, used)| **used);
        places.map(|(place, _)| Id::from_index(place)).collect()
    }

    /// The number of objects in use.
    pub fn in_use(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

impl<T> Index<Id<T>> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: Id<T>) -> &T {
        &self.items[id.index()]
    }
}

impl<T> IndexMut<Id<T>> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        &mut self.items[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grown_places_are_used_from_the_first() {
        let mut slab = Slab::default();
        let first = slab.insert(7);
        assert!(slab.try_grow(4, &0));
        assert_eq!(slab.in_use(), 1);
        let room = (slab.items.capacity(), slab.free.capacity());
        let more: Vec<usize> = (0..3).map(|n| slab.insert(n).index()).collect();
        assert_eq!((first.index(), more), (0, vec![1, 2, 3]));
        (0..4).for_each(|index| slab.remove(Id::from_index(index)));
        assert_eq!((slab.items.capacity(), slab.free.capacity()), room);
        // Fewer places than there are change nothing.
        assert!(slab.try_grow(2, &0) && slab.items.len() == 4);
    }

    #[test]
    fn what_no_memory_holds_is_refused() {
        let mut slab = Slab::default();
        assert!(!slab.try_grow(usize::MAX >> 4, &0_u64));
        assert_eq!(slab.in_use(), 0);
    }
}
