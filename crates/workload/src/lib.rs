//! fio job files, traces, and generators of addresses and arrivals

pub mod fio;
pub mod library;
pub mod generate;
#[cfg(test)]
mod judge;
mod nearest;
pub mod trace;

pub use nearest::nearest;
