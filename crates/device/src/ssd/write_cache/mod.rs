//! The write cache.

pub(crate) mod admission;
pub(crate) mod allocation;
pub(crate) mod discard;
pub(crate) mod epochs;
pub(crate) mod queue;
pub(crate) mod too_full;
pub(crate) mod write;
