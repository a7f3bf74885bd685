//! One run as fio prints it.

pub mod json;
mod number;
#[cfg(test)]
mod real_fio;
mod stat;
pub mod text;

pub(crate) use number::strerror;
