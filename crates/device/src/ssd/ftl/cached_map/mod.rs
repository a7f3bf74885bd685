//! The part of the map that is in DRAM, where not all of it is.

pub(crate) mod blocks;
pub(crate) mod cmt;
pub(crate) mod fetch;
pub(crate) mod traffic;
pub(crate) mod warm;
