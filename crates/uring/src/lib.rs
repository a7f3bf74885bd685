//! The kernel's asynchronous I/O over one file: io_uring, and the older kind
//! that libaio wraps; and [`ublk`], whose commands go through io_uring.
//!
//! This is the only unsafe code of the workspace. It is sound because a slot of the engine owns the
//! memory that the kernel uses from before the call until the completion, and an engine waits for
//! all completions before it is dropped.

mod aio;
mod ring;
pub mod ublk;

use std::io;
use std::os::fd::BorrowedFd;

use slab::Slab;

pub use aio::Aio;
pub use ring::Ring;

/// A kernel interface for asynchronous reads and writes of a file.
pub trait Engine: Send {
    /// A descriptor that is readable when [`Engine::take_completed`] has completions.
    fn event(&self) -> BorrowedFd<'_>;

    /// Adds a request, which the next [`Engine::kick`] submits to the kernel.
    fn submit(&mut self, token: u64, action: Action, offset: u64, pieces: Vec<Piece>);

    /// Submits the added requests to the kernel; those that it has no room for follow in
    /// [`Engine::take_completed`].
    ///
    /// # Errors
    /// If the kernel refuses all requests.
    fn kick(&mut self) -> io::Result<()>;

    /// Appends the completed requests.
    ///
    /// # Errors
    /// If the kernel refuses all requests.
    fn take_completed(&mut self, out: &mut Vec<Completed>) -> io::Result<()>;
}

// Requests in flight and their memory.

/// A piece of memory to read into or write from: `memory[start..start + len]`.
#[derive(Debug, Default)]
pub struct Piece {
    /// The memory.
    pub memory: Vec<u8>,
    /// Start of the piece in the memory.
    pub start: usize,
    /// Its length.
    pub len: usize,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fills the pieces from the file.
    Read,
    /// Writes the pieces to the file.
    Write {
        /// Whether data must be on stable storage before the request completes.
        durable: bool,
    },
    /// `fdatasync`.
    Sync,
}

/// A completed request.
#[derive(Debug)]
pub struct Completed {
    /// The submitter's handle.
    pub token: u64,
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
    /// Its error, if it failed.
    pub result: Result<(), rustix::io::Errno>,
}

/// A request in flight.
pub(crate) struct Slot {
    token: u64,
    pub(crate) action: Action,
    pieces: Vec<Piece>,
    /// The remaining pieces, in the kernel's format.
    pub(crate) vectors: Vec<libc::iovec>,
    offset: u64,
    moved: usize,
    total: usize,
}

// SAFETY: the pointers in `vectors` point into `pieces`, which the slot owns and which move
// together with it.
unsafe impl Send for Slot {}

impl Slot {
    /// Returns a request that has not transferred any bytes.
    pub(crate) fn new(token: u64, action: Action, offset: u64, pieces: Vec<Piece>) -> Slot {
        let total = match action {
            Action::Sync => 0,
            _ => pieces.iter().map(|piece| piece.len).sum(),
        };
        let mut slot = Slot {
            token,
            action,
            pieces,
            vectors: Vec::new(),
            offset,
            moved: 0,
            total,
        };
        slot.point();
        slot
    }

    /// The file offset of the remaining part.
    pub(crate) fn at(&self) -> u64 {
        self.offset + self.moved as u64
    }

    /// Converts it to its completion.
    pub(crate) fn completed(self, result: Result<(), rustix::io::Errno>) -> Completed {
        Completed {
            token: self.token,
            pieces: self.pieces,
            result,
        }
    }

    /// Sets the vectors to the remaining part.
    pub(crate) fn point(&mut self) {
        let mut skip = self.moved;
        self.vectors.clear();
        for piece in &mut self.pieces {
            let bytes = &mut piece.memory[piece.start..piece.start + piece.len];
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            let left = &mut bytes[skipped..];
            if !left.is_empty() {
                self.vectors.push(libc::iovec {
                    iov_base: left.as_mut_ptr().cast(),
                    iov_len: left.len(),
                });
            }
        }
    }

    /// Handles the result of a completion. Returns `None` if the rest must be submitted again.
    pub(crate) fn advance(&mut self, result: i64) -> Option<Result<(), rustix::io::Errno>> {
        match usize::try_from(result) {
            Ok(moved) => {
                self.moved += moved;
                if self.moved >= self.total {
                    return Some(Ok(()));
                }
                if moved == 0 {
                    return Some(self.ended_early());
                }
            }
            Err(_) => {
                let error = rustix::io::Errno::from_raw_os_error(-result as i32);
                if !matches!(error, rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) {
                    return Some(Err(error));
                }
            }
        }
        self.point();
        None
    }

    /// Handles the end of the file: the missing part reads as zeroes.
    fn ended_early(&mut self) -> Result<(), rustix::io::Errno> {
        if self.action != Action::Read {
            return Err(rustix::io::Errno::IO);
        }
        let mut skip = self.moved;
        for piece in &mut self.pieces {
            let bytes = &mut piece.memory[piece.start..piece.start + piece.len];
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            bytes[skipped..].fill(0);
        }
        Ok(())
    }
}

/// Requests in flight, by index.
#[derive(Default)]
pub(crate) struct Slots(Slab<Slot>);

impl Slots {
    pub(crate) fn insert(&mut self, slot: Slot) -> usize {
        self.0.insert(slot)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Slot> {
        self.0.get(index)
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<Slot> {
        self.0.try_remove(index)
    }

    /// Handles the result of a completion. Returns the completed request, or `None` if the rest
    /// must be submitted again.
    pub(crate) fn advance(&mut self, index: usize, result: i64) -> Option<Completed> {
        let result = self.0.get_mut(index)?.advance(result)?;
        Some(self.remove(index)?.completed(result))
    }

    /// Leaks the memory, because the kernel may still write to it.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests;
