//! fio job files, traces, and generators of addresses and arrivals

pub mod fio;
pub mod library;
pub mod generate;
mod nearest;
pub mod trace;

pub use nearest::nearest;
