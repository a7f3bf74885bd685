//! The pages of a memory cgroup on one memory node, which have lists of their own
//! (`struct lruvec`).

use std::ops::{Index, IndexMut};

/// A memory cgroup's part of a memory node, to which a folio's pages are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lruvec {
    /// The memory node.
    pub(crate) node: u8,
    /// The memory cgroup.
    pub(crate) group: u16,
}

/// How many nodes and memory cgroups there are, of which each has a part of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lruvecs {
    pub(super) nodes: u8,
    pub(super) groups: u16,
}

impl Lruvecs {
    /// How many parts there are.
    pub(super) fn count(self) -> usize {
        usize::from(self.nodes) * usize::from(self.groups)
    }

    /// All of them, in the order of their numbers.
    pub(super) fn all(self) -> impl Iterator<Item = Lruvec> {
        (0..self.count()).map(move |number| self.at(number))
    }

    /// The number of one, of all from 0 on.
    #[inline]
    pub(super) fn number(self, of: Lruvec) -> usize {
        usize::from(of.node) * usize::from(self.groups) + usize::from(of.group)
    }

    /// The one of that number.
    pub(super) fn at(self, number: usize) -> Lruvec {
        let groups = usize::from(self.groups);
        Lruvec {
            node: (number / groups) as u8,
            group: (number % groups) as u16,
        }
    }

    /// A memory cgroup's part of each node, from the node that is near on (the order of a
    /// zonelist).
    pub(super) fn of_group(self, group: u16, near: u8) -> impl Iterator<Item = Lruvec> {
        nodes_from(near, self.nodes).map(move |node| Lruvec { node, group })
    }
}

/// All of so many nodes, from the one that is near on.
pub(super) fn nodes_from(near: u8, nodes: u8) -> impl Iterator<Item = u8> {
    (0..nodes).map(move |further| ((u16::from(near) + u16::from(further)) % u16::from(nodes)) as u8)
}

/// Something of each.
#[derive(Debug)]
pub(super) struct ByLruvec<T> {
    lruvecs: Lruvecs,
    all: Vec<T>,
}

impl<T> ByLruvec<T> {
    /// What `new` makes of each.
    pub(super) fn new(lruvecs: Lruvecs, new: impl FnMut(Lruvec) -> T) -> ByLruvec<T> {
        ByLruvec {
            lruvecs,
            all: lruvecs.all().map(new).collect(),
        }
    }
}

impl<T> Index<Lruvec> for ByLruvec<T> {
    type Output = T;

    #[inline]
    fn index(&self, of: Lruvec) -> &T {
        &self.all[self.lruvecs.number(of)]
    }
}

impl<T> IndexMut<Lruvec> for ByLruvec<T> {
    #[inline]
    fn index_mut(&mut self, of: Lruvec) -> &mut T {
        &mut self.all[self.lruvecs.number(of)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_number_and_nodes_follow_the_near_one() {
        let lruvecs = Lruvecs {
            nodes: 3,
            groups: 2,
        };
        let numbers = lruvecs.all().map(|of| lruvecs.number(of));
        assert!(numbers.eq(0..6));
        assert_eq!(lruvecs.at(5), Lruvec { node: 2, group: 1 });
        assert!(nodes_from(1, 3).eq([1, 2, 0]));
        let one = Lruvecs {
            nodes: 1,
            groups: 9,
        };
        assert_eq!(one.number(Lruvec { node: 0, group: 7 }), 7);
    }
}
