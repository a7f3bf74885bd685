//! The host interface.

pub(crate) mod arbitration;
pub(crate) mod fetch;
pub(crate) mod link;
