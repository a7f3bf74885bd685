//! fio job files, traces, and generators of addresses and arrivals
