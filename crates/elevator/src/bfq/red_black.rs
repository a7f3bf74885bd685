//! A red-black tree with the shape that the kernel's has (`lib/rbtree.c`).
//!
//! The shape influences bfq's decisions: its search for an eligible queue turns right only if
//! nothing was found on the way, and the search for a queue close to a sector starts at the last
//! node of its descent. Balancing follows T. Cormen et al., "Introduction to Algorithms", chapter
//! 13, like the kernel.

use alloc::vec::Vec;

/// Index of a node, valid until the node is removed.
pub(super) type NodeId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

use Side::{Left, Right};

impl Side {
    fn other(self) -> Side {
        match self {
            Left => Right,
            Right => Left,
        }
    }
}

/// The contents of a node, which include a summary of its subtree.
pub(super) trait Augmented {
    /// Updates the summary from the left and right children.
    fn update_subtree(&mut self, children: [Option<&Self>; 2])
    where
        Self: Sized;
}

#[derive(Debug)]
struct Node<T> {
    content: T,
    parent: Option<NodeId>,
    /// Left, right.
    children: [Option<NodeId>; 2],
    red: bool,
}

/// A red-black tree.
#[derive(Debug)]
pub(super) struct RedBlackTree<T> {
    /// Nodes by index; `None` if a node was removed.
    nodes: Vec<Option<Node<T>>>,
    free: Vec<NodeId>,
    root: Option<NodeId>,
}

impl<T> Default for RedBlackTree<T> {
    fn default() -> RedBlackTree<T> {
        RedBlackTree {
            nodes: Vec::new(),
            free: Vec::new(),
            root: None,
        }
    }
}

impl<T> core::ops::Index<NodeId> for RedBlackTree<T> {
    type Output = T;
    fn index(&self, place: NodeId) -> &T {
        &self.node(place).content
    }
}

impl<T> RedBlackTree<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    pub(super) fn root(&self) -> Option<NodeId> {
        self.root
    }

    pub(super) fn left(&self, place: NodeId) -> Option<NodeId> {
        self.child(place, Left)
    }

    pub(super) fn right(&self, place: NodeId) -> Option<NodeId> {
        self.child(place, Right)
    }

    /// The next node in order.
    pub(super) fn next(&self, place: NodeId) -> Option<NodeId> {
        self.neighbour(place, Right)
    }

    /// The previous node in order.
    pub(super) fn previous(&self, place: NodeId) -> Option<NodeId> {
        self.neighbour(place, Left)
    }

    /// All contents, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().flatten().map(|node| &node.content)
    }

    fn node(&self, place: NodeId) -> &Node<T> {
        self.nodes[place]
            .as_ref()
            .expect("a node that is in the tree")
    }

    fn node_mut(&mut self, place: NodeId) -> &mut Node<T> {
        self.nodes[place]
            .as_mut()
            .expect("a node that is in the tree")
    }

    fn child(&self, place: NodeId, side: Side) -> Option<NodeId> {
        self.node(place).children[side as usize]
    }

    fn is_red(&self, place: Option<NodeId>) -> bool {
        place.is_some_and(|place| self.node(place).red)
    }

    fn side_of(&self, parent: NodeId, place: Option<NodeId>) -> Side {
        match self.child(parent, Left) == place {
            true => Left,
            false => Right,
        }
    }

    fn outermost(&self, from: NodeId, side: Side) -> NodeId {
        let step = |&place: &NodeId| self.child(place, side);
        core::iter::successors(Some(from), step)
            .last()
            .unwrap_or(from)
    }

    fn neighbour(&self, place: NodeId, side: Side) -> Option<NodeId> {
        if let Some(below) = self.child(place, side) {
            return Some(self.outermost(below, side.other()));
        }
        let mut at = place;
        while let Some(parent) = self.node(at).parent {
            if self.child(parent, side.other()) == Some(at) {
                return Some(parent);
            }
            at = parent;
        }
        None
    }

    /// Makes `new` the child of `parent` in place of `old`.
    fn replace_child(&mut self, parent: Option<NodeId>, old: NodeId, new: Option<NodeId>) {
        match parent {
            None => self.root = new,
            Some(parent) => {
                let side = self.side_of(parent, Some(old));
                self.node_mut(parent).children[side as usize] = new;
            }
        }
        if let Some(new) = new {
            self.node_mut(new).parent = parent;
        }
    }
}

impl<T: Augmented> RedBlackTree<T> {
    /// Inserts `content`, descending from the root to the left at nodes for which `goes_before` is
    /// true.
    pub(super) fn insert(&mut self, content: T, goes_before: impl Fn(&T) -> bool) -> NodeId {
        let mut leaf = None;
        let mut at = self.root;
        while let Some(place) = at {
            let side = if goes_before(&self[place]) {
                Left
            } else {
                Right
            };
            leaf = Some((place, side));
            at = self.child(place, side);
        }
        let node = Node {
            content,
            parent: leaf.map(|(parent, _)| parent),
            children: [None; 2],
            red: true,
        };
        let new = match self.free.pop() {
            Some(place) => place,
            None => {
                self.nodes.push(None);
                self.nodes.len() - 1
            }
        };
        self.nodes[new] = Some(node);
        match leaf {
            None => self.root = Some(new),
            Some((parent, side)) => self.node_mut(parent).children[side as usize] = Some(new),
        }
        self.update_to_root(Some(new));
        self.balance_inserted(new);
        new
    }

    /// Removes a node.
    pub(super) fn remove(&mut self, place: NodeId) {
        let node = self.node(place);
        let (parent, red) = (node.parent, node.red);
        let (gap_parent, gap_was_black) = match node.children {
            [Some(left), Some(right)] => {
                let successor = self.outermost(right, Left);
                let gap = self.put_successor(place, successor, left);
                (Some(gap.0), gap.1)
            }
            [only, None] | [None, only] => {
                self.replace_child(parent, place, only);
                // An only child is red; it takes over the colour of its parent.
                if let Some(only) = only {
                    self.node_mut(only).red = red;
                }
                (parent, !red && only.is_none())
            }
        };
        self.nodes[place] = None;
        self.free.push(place);
        self.update_to_root(gap_parent);
        if gap_was_black && let Some(parent) = gap_parent {
            self.balance_removed(parent);
        }
    }

    /// Replaces a node that has two children by its successor. Returns the node that lost a child,
    /// and whether that child was black and has no replacement.
    fn put_successor(&mut self, place: NodeId, successor: NodeId, left: NodeId) -> (NodeId, bool) {
        let (was_red, rest) = (self.node(successor).red, self.child(successor, Right));
        let gap_parent = match self.node(successor).parent {
            Some(parent) if parent != place => {
                self.replace_child(Some(parent), successor, rest);
                let right = self.child(place, Right);
                self.node_mut(successor).children[Right as usize] = right;
                if let Some(right) = right {
                    self.node_mut(right).parent = Some(successor);
                }
                parent
            }
            _ => successor,
        };
        let (parent, red) = (self.node(place).parent, self.node(place).red);
        self.node_mut(successor).children[Left as usize] = Some(left);
        self.node_mut(left).parent = Some(successor);
        self.replace_child(parent, place, Some(successor));
        self.node_mut(successor).red = red;
        if let Some(rest) = rest {
            self.node_mut(rest).red = false;
        }
        (gap_parent, !was_red && rest.is_none())
    }

    /// Updates the summaries from a node up to the root.
    fn update_to_root(&mut self, from: Option<NodeId>) {
        let mut at = from;
        while let Some(place) = at {
            self.update_subtree(place);
            at = self.node(place).parent;
        }
    }

    fn update_subtree(&mut self, place: NodeId) {
        let Some(mut node) = self.nodes[place].take() else {
            return;
        };
        let below = node.children.map(|below| below.map(|below| &self[below]));
        node.content.update_subtree(below);
        self.nodes[place] = Some(node);
    }

    /// Rotates a node down to `side`; its child on the other side takes its place.
    fn rotate(&mut self, place: NodeId, side: Side) -> Option<NodeId> {
        let up = self.child(place, side.other())?;
        let between = self.child(up, side);
        self.node_mut(place).children[side.other() as usize] = between;
        if let Some(between) = between {
            self.node_mut(between).parent = Some(place);
        }
        let parent = self.node(place).parent;
        self.replace_child(parent, place, Some(up));
        self.node_mut(up).children[side as usize] = Some(place);
        self.node_mut(place).parent = Some(up);
        self.update_subtree(place);
        self.update_subtree(up);
        Some(up)
    }

    /// Restores the rule that no red node has a red child.
    fn balance_inserted(&mut self, new: NodeId) {
        let mut at = new;
        while let Some(parent) = self.node(at).parent.filter(|&p| self.node(p).red) {
            let Some(grandparent) = self.node(parent).parent else {
                break;
            };
            let side = self.side_of(grandparent, Some(parent));
            let uncle = self.child(grandparent, side.other());
            if let Some(uncle) = uncle.filter(|&uncle| self.node(uncle).red) {
                self.node_mut(parent).red = false;
                self.node_mut(uncle).red = false;
                self.node_mut(grandparent).red = true;
                at = grandparent;
                continue;
            }
            let mut outer = parent;
            if self.side_of(parent, Some(at)) != side {
                outer = self.rotate(parent, side).unwrap_or(parent);
            }
            self.node_mut(outer).red = false;
            self.node_mut(grandparent).red = true;
            self.rotate(grandparent, side.other());
            break;
        }
        if let Some(root) = self.root {
            self.node_mut(root).red = false;
        }
    }

    /// Restores the rule that all paths have equally many black nodes, after a black leaf below
    /// `parent` was removed.
    fn balance_removed(&mut self, parent: NodeId) {
        let mut parent = parent;
        let mut short = None;
        loop {
            let side = match short {
                None if self.child(parent, Left).is_some() => Right,
                None => Left,
                short => self.side_of(parent, short),
            };
            let Some(mut sibling) = self.child(parent, side.other()) else {
                return;
            };
            if self.node(sibling).red {
                self.node_mut(sibling).red = false;
                self.node_mut(parent).red = true;
                self.rotate(parent, side);
                let Some(nearer) = self.child(parent, side.other()) else {
                    return;
                };
                sibling = nearer;
            }
            let (inner, outer) = (self.child(sibling, side), self.child(sibling, side.other()));
            if !self.is_red(outer) {
                if !self.is_red(inner) {
                    self.node_mut(sibling).red = true;
                    if core::mem::take(&mut self.node_mut(parent).red) {
                        return;
                    }
                    short = Some(parent);
                    match self.node(parent).parent {
                        None => return,
                        Some(above) => parent = above,
                    }
                    continue;
                }
                self.node_mut(sibling).red = true;
                if let Some(up) = self.rotate(sibling, side.other()) {
                    self.node_mut(up).red = false;
                    sibling = up;
                }
            }
            if let Some(outer) = self.child(sibling, side.other()) {
                self.node_mut(outer).red = false;
            }
            let red = core::mem::take(&mut self.node_mut(parent).red);
            self.node_mut(sibling).red = red;
            self.rotate(parent, side);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use proptest::prelude::*;

    use super::*;

    /// A number, and the smallest number of its subtree.
    #[derive(Debug)]
    struct Number(u32, u32);

    impl Augmented for Number {
        fn update_subtree(&mut self, below: [Option<&Number>; 2]) {
            let least = below.into_iter().flatten().map(|n| n.1).min();
            self.1 = least.map_or(self.0, |least| least.min(self.0));
        }
    }

    /// Checks the subtree and returns its black height.
    fn check(tree: &RedBlackTree<Number>, at: Option<NodeId>) -> usize {
        let Some(place) = at else { return 1 };
        let node = tree.node(place);
        let [left, right] = node.children;
        for below in [left, right].into_iter().flatten() {
            assert_eq!(tree.node(below).parent, Some(place));
            assert!(!(node.red && tree.node(below).red), "red below red");
        }
        let least = left.map_or(tree[place].0, |left| tree[left].1);
        assert_eq!(tree[place].1, least);
        let heights = (check(tree, left), check(tree, right));
        assert_eq!(heights.0, heights.1, "black heights");
        heights.0 + usize::from(!node.red)
    }

    fn in_order(tree: &RedBlackTree<Number>) -> Vec<u32> {
        let first = tree.root().map(|root| tree.outermost(root, Left));
        let places = core::iter::successors(first, |&place| tree.next(place));
        places.map(|place| tree[place].0).collect()
    }

    proptest! {
        #[test]
        fn it_stays_a_red_black_tree(steps in prop::collection::vec((any::<bool>(), 0..50u32), 0..300)) {
            let mut tree = RedBlackTree::default();
            let mut places: Vec<(u32, NodeId)> = Vec::new();
            for (removes, number) in steps {
                if removes && !places.is_empty() {
                    let (_, place) = places.swap_remove(number as usize % places.len());
                    tree.remove(place);
                } else {
                    let place = tree.insert(Number(number, number), |other| other.0 > number);
                    places.push((number, place));
                }
                prop_assert!(!tree.is_red(tree.root()));
                check(&tree, tree.root());
                let mut expected: Vec<u32> = places.iter().map(|p| p.0).collect();
                expected.sort_unstable();
                prop_assert_eq!(in_order(&tree), expected);
                prop_assert_eq!(tree.len(), places.len());
            }
        }
    }

    /// The tree that the book's algorithm makes of sixteen ascending numbers.
    #[test]
    fn ascending_numbers_lean_right() {
        let mut tree = RedBlackTree::default();
        for number in 0..16 {
            tree.insert(Number(number, number), |other| other.0 > number);
        }
        let right = |place: NodeId| tree.right(place);
        let spine = core::iter::successors(tree.root(), |&place| right(place));
        let spine: Vec<u32> = spine.map(|place| tree[place].0).collect();
        assert_eq!(spine, [3, 7, 11, 13, 14, 15]);
    }
}
