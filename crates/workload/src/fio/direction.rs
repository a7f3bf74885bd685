//! The direction of data, values by direction, and the kinds of flushes, which fio counts among
//! the directions.

use std::ops::{Index, IndexMut};

/// The direction of an I/O; fio has most settings once per direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Data is read from the drive.
    Read,
    /// Data is written to the drive.
    Write,
    /// Data is discarded.
    Trim,
}

impl Direction {
    /// All three, in fio's order.
    pub const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Trim];
}

/// A kind of flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// `fsync(2)`.
    Fsync,
    /// `fdatasync(2)`.
    Fdatasync,
    /// `sync_file_range(2)`, which has nothing to do after direct I/O.
    FileRange,
}

/// One value for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByDirection<T> {
    /// For reads.
    pub read: T,
    /// For writes.
    pub write: T,
    /// For trims.
    pub trim: T,
}

impl<T: Clone> ByDirection<T> {
    /// Returns the same value for all three directions.
    pub fn all(value: T) -> ByDirection<T> {
        ByDirection {
            read: value.clone(),
            write: value.clone(),
            trim: value,
        }
    }
}

impl<T> ByDirection<T> {
    /// Returns the result of `value` for each direction.
    pub fn from_fn(value: impl Fn(Direction) -> T) -> ByDirection<T> {
        ByDirection {
            read: value(Direction::Read),
            write: value(Direction::Write),
            trim: value(Direction::Trim),
        }
    }
}

impl<T> Index<Direction> for ByDirection<T> {
    type Output = T;
    fn index(&self, direction: Direction) -> &T {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
            Direction::Trim => &self.trim,
        }
    }
}

impl<T> IndexMut<Direction> for ByDirection<T> {
    fn index_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
            Direction::Trim => &mut self.trim,
        }
    }
}
