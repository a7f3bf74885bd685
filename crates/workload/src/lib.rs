//! fio job files, traces, and generators of addresses and arrivals

pub mod trace;
