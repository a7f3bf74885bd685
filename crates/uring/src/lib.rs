//! The kernel's asynchronous I/O over one file: io_uring, and the older kind
//! that libaio wraps.
//!
//! This is the workspace's only unsafe code. What makes it sound: memory that
//! the kernel is told of belongs to a slot of the engine from before the call
//! that tells it until its completion was seen, and an engine waits for all of
//! them before it goes away.

mod aio;
mod ring;
mod slot;

use std::io;
use std::os::fd::BorrowedFd;

pub use aio::Aio;
pub use ring::Ring;
pub use slot::{Action, Completed, Piece};

/// A way to have the kernel read and write a file.
pub trait Engine: Send {
    /// Readable when [`Engine::take_completed`] has something.
    fn event(&self) -> BorrowedFd<'_>;

    /// Takes a request. It reaches the kernel with the next [`Engine::kick`].
    fn submit(&mut self, token: u64, action: Action, offset: u64, pieces: Vec<Piece>);

    /// Hands what was submitted to the kernel.
    ///
    /// # Errors
    /// Where the kernel takes nothing any more.
    fn kick(&mut self) -> io::Result<()>;

    /// Appends what is completed.
    ///
    /// # Errors
    /// Where the kernel takes nothing any more.
    fn take_completed(&mut self, out: &mut Vec<Completed>) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
