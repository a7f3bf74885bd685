//! The crate's outside tests, one file a subject.

mod kernel_traces;
mod page_cache;
mod recorded;
mod write_back;
