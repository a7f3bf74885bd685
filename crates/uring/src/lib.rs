//! The kernel's asynchronous I/O over one file: io_uring, and the older kind
//! that libaio wraps.
//!
//! This is the workspace's only unsafe code. It is sound because memory that the
//! kernel uses is owned by a slot of the engine from before the call until the
//! completion, and an engine waits for all completions before it is dropped.

mod aio;
mod ring;
mod slot;

use std::io;
use std::os::fd::BorrowedFd;

pub use aio::Aio;
pub use ring::Ring;
pub use slot::{Action, Completed, Piece};

/// An interface of the kernel for asynchronous reads and writes of a file.
pub trait Engine: Send {
    /// Readable when [`Engine::take_completed`] has something.
    fn event(&self) -> BorrowedFd<'_>;

    /// Takes a request, which the next [`Engine::kick`] hands to the kernel.
    fn submit(&mut self, token: u64, action: Action, offset: u64, pieces: Vec<Piece>);

    /// Hands what was submitted to the kernel.
    ///
    /// # Errors
    /// Where the kernel refuses all requests.
    fn kick(&mut self) -> io::Result<()>;

    /// Appends what is completed.
    ///
    /// # Errors
    /// Where the kernel refuses all requests.
    fn take_completed(&mut self, out: &mut Vec<Completed>) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
