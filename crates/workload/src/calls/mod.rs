//! Lists of calls: what a program that is not fio asks of the kernel, call by call.
//!
//! ```text
//! # Copies a file.
//! file /in 1M
//!
//! [cp]
//! open from /in read
//! open to /out write create truncate
//! repeat 8
//!   read from 128K
//!   think 20us
//!   write to 128K
//! end
//! fsync to
//! stat /none = ENOENT
//! ```
//!
//! What was there before (`file PATH BYTES`, `directory PATH`) comes first. Then each
//! `[process]`, or `[process/thread]`, has its calls; they begin together, but one that
//! another has a `start` for. The threads of a process share its open files. A call
//! that does not do what its line says ends the run, so that one that has to fail names
//! its error behind `=`.

mod argument;
mod call;
mod list;
mod strace;

pub use argument::{
    Advice, Bytes, Caches, Duration, Errno, Handle, OpenFlags, Path, ProgramName, RangeSync, Target,
};
pub use call::{CALLS, Call, CallType};
pub use list::{CallError, CallList, Made, Prepared, Program, Step};
pub use strace::{Recorded, RecordedOptions, parse_strace, read_strace};
