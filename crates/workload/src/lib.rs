//! fio job files, traces, and generators of addresses and arrivals

pub mod cgroup;
pub mod fio;
pub mod generate;
pub mod library;
pub mod trace;
