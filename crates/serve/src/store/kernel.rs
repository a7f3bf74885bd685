//! A file through the kernel's asynchronous I/O: io_uring or libaio's calls.
//!
//! Reads, writes and flushes go to the kernel; what it has no vectored form for
//! (trims, zeroes, pieces with gaps) goes through a thread.

use std::os::fd::BorrowedFd;

use blklab_blk::IoStatus;
use blklab_uring as uring;

use super::threads::Threads;
use super::{Action, Done, Work, status_of};
use crate::buffers::Buffer;

/// The kernel takes no more pieces in one call (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// The kernel's engine, and a thread beside it.
pub(crate) struct KernelEngine {
    engine: Box<dyn uring::Engine>,
    /// Work in the kernel, by token.
    works: Vec<Option<Work>>,
    free: Vec<usize>,
    completed: Vec<uring::Completed>,
    beside: Threads,
}

impl KernelEngine {
    /// An engine over a file; `beside` does what it cannot.
    pub(crate) fn new(engine: Box<dyn uring::Engine>, beside: Threads) -> KernelEngine {
        KernelEngine {
            engine,
            works: Vec::new(),
            free: Vec::new(),
            completed: Vec::new(),
            beside,
        }
    }

    /// What is readable when [`KernelEngine::take_done`] has something.
    pub(crate) fn events(&self) -> [BorrowedFd<'_>; 2] {
        [self.engine.event(), self.beside.event()]
    }

    pub(crate) fn submit(&mut self, mut work: Work) {
        let Some(action) = kernel_action(&work) else {
            return self.beside.submit(work);
        };
        let offset = work.segments.first().map_or(0, |segment| segment.offset);
        let pieces = work.segments.iter_mut();
        let pieces = pieces.map(|s| std::mem::take(&mut s.data).into_piece());
        let pieces = pieces.collect();
        let token = self.free.pop().unwrap_or(self.works.len());
        if token == self.works.len() {
            self.works.push(Some(work));
        } else {
            self.works[token] = Some(work);
        }
        self.engine.submit(token as u64, action, offset, pieces);
    }

    /// Hands what was submitted to the kernel.
    pub(crate) fn kick(&mut self) {
        if let Err(error) = self.engine.kick() {
            eprintln!("blklab: asynchronous I/O: {error}");
        }
    }

    pub(crate) fn take_done(&mut self, out: &mut Vec<Done>) {
        self.beside.take_done(out);
        if let Err(error) = self.engine.take_completed(&mut self.completed) {
            eprintln!("blklab: asynchronous I/O: {error}");
        }
        for completed in self.completed.drain(..) {
            let token = completed.token as usize;
            let Some(mut work) = self.works[token].take() else {
                continue;
            };
            self.free.push(token);
            for (segment, piece) in work.segments.iter_mut().zip(completed.pieces) {
                segment.data = Buffer::from_piece(piece);
            }
            let status = completed.result.map_or_else(status_of, |()| IoStatus::Ok);
            out.push(Done { work, status });
        }
    }

    pub(crate) fn end(&mut self) {
        self.beside.end();
    }
}

/// How the kernel does this work, if it can.
fn kernel_action(work: &Work) -> Option<uring::Action> {
    let segments = &work.segments;
    let whole = segments.len() <= MAX_PIECES
        && segments
            .windows(2)
            .all(|w| w[0].offset + w[0].length == w[1].offset);
    match work.action {
        Action::Flush => Some(uring::Action::Sync),
        Action::Read if whole => Some(uring::Action::Read),
        Action::Write if whole => Some(uring::Action::Write { durable: work.fua }),
        _ => None,
    }
}
