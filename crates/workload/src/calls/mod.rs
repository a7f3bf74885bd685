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
//! What was there before (`file PATH BYTES`, `directory PATH`, `tree PATH DIRECTORIES
//! FILES BYTES`) comes first. Then each `[process]`, or `[process/thread]`, has its calls; they begin together, but one that
//! another has a `start` for. The threads of a process share its open files. A call
//! that does not do what its line says ends the run, so that one that has to fail names
//! its error behind `=`.
//!
//! Requests go on beside the program that made them:
//!
//! ```text
//! prepare a link pwrite log 4K 0
//! prepare b fdatasync log
//! io_uring_enter 2 a b
//! aio_read c data 64K 1M
//! aio_suspend c
//! ```

mod argument;
mod call;
mod list;
mod request;
mod strace;

pub use argument::{
    Advice, Bytes, Caches, Count, Duration, Errno, Handle, MapAdvice, OpenFlags, Path, ProgramName,
    RangeSync, Target,
};
pub use call::{CALLS, Call, CallType};
pub use list::{CallError, CallList, Made, Prepared, PreparedKind, Program, Step};
pub use request::{Interface, Operation, Requests, SubmitFlags, WaitMode};
pub use strace::{Recorded, RecordedOptions, parse_strace, read_strace};
