//! Lists of calls: the system calls of any program other than fio.
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
//! The files that exist before the first call (`file PATH BYTES`, `directory PATH`,
//! `tree PATH DIRECTORIES FILES BYTES`) come first. Then each `[process]` or `[process/thread]`
//! has its calls. All programs begin together, except those that another one has a `start` for.
//! The threads of a process share its open files. A call with another result than its line says
//! ends the run; a call that has to fail names its error behind `=`.
//!
//! Asynchronous requests run beside the program that made them:
//!
//! ```text
//! prepare a link pwrite log 4K 0
//! prepare b fdatasync log
//! io_uring_enter 2 a b
//! sigevent c signal
//! aio_read c data 64K 1M
//! sigwait 1
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
pub use list::{CallError, CallList, Made, Prepared, PreparedKind, Program, ProgramStep};
pub use request::{Interface, Notification, Operation, Requests, SubmitFlags, WaitMode};
pub use strace::{Recorded, RecordedOptions, parse_strace, read_strace};
