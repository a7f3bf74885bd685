//! fio job files, lists of calls, traces, and generators of addresses and arrivals

pub mod calls;
pub mod cgroup;
pub mod fio;
pub mod generate;
pub mod library;
pub mod trace;
