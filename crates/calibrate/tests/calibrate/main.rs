//! The crate's outside tests, one file a subject.

mod recover;
mod study;
