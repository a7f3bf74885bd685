//! The state of a drive before its first command.

pub(crate) mod ageing;
pub(crate) mod scaled_row;
pub(crate) mod steady;
