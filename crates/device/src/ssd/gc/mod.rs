//! Garbage collection.

pub(crate) mod collect;
pub(crate) mod copyback;
pub(crate) mod fold;
pub(crate) mod merging;
pub(crate) mod pace;
pub(crate) mod throttle;
pub(crate) mod victim;
