//! A file through the kernel's asynchronous I/O: io_uring, or the calls behind
//! libaio.
//!
//! The kernel has no vectored form of discards, of zeroes and of ranges with
//! gaps: those go another way.

use std::os::fd::BorrowedFd;

use blklab_blk::IoStatus;
use blklab_uring as uring;
use slab::Slab;

use super::{BackendRequest, Buffer, Completed, Operation, status_of};

/// The kernel takes no more pieces in one call (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// Requests in the kernel.
pub(crate) struct KernelIo {
    engine: Box<dyn uring::Engine>,
    requests: Slab<BackendRequest>,
    reaped: Vec<uring::Completed>,
}

impl KernelIo {
    pub(crate) fn new(engine: Box<dyn uring::Engine>) -> KernelIo {
        KernelIo {
            engine,
            requests: Slab::new(),
            reaped: Vec::new(),
        }
    }

    /// Readable when [`KernelIo::reap`] has something.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.engine.event()
    }

    /// Takes a request, or gives back one that the kernel has no call for.
    pub(crate) fn submit(&mut self, mut request: BackendRequest) -> Result<(), BackendRequest> {
        let Some(action) = kernel_action(&request) else {
            return Err(request);
        };
        let offset = request.segments.first().map_or(0, |s| s.offset);
        let segments = request.segments.iter_mut();
        let pieces = segments.map(|s| std::mem::take(&mut s.data).into_piece());
        let pieces = pieces.collect();
        let token = self.requests.insert(request) as u64;
        self.engine.submit(token, action, offset, pieces);
        Ok(())
    }

    /// Hands what was submitted to the kernel.
    pub(crate) fn kick(&mut self) {
        if let Err(error) = self.engine.kick() {
            eprintln!("blklab: asynchronous I/O: {error}");
        }
    }

    /// Appends what completed.
    pub(crate) fn reap(&mut self, completed: &mut Vec<Completed>) {
        if let Err(error) = self.engine.take_completed(&mut self.reaped) {
            eprintln!("blklab: asynchronous I/O: {error}");
        }
        for reaped in self.reaped.drain(..) {
            let Some(mut request) = self.requests.try_remove(reaped.token as usize) else {
                continue;
            };
            for (segment, piece) in request.segments.iter_mut().zip(reaped.pieces) {
                segment.data = Buffer::from_piece(piece);
            }
            let status = reaped.result.map_or_else(status_of, |()| IoStatus::Ok);
            completed.push(Completed { request, status });
        }
    }
}

/// The kernel's call for a request, if it has one.
fn kernel_action(request: &BackendRequest) -> Option<uring::Action> {
    let segments = &request.segments;
    let is_vector = segments.len() <= MAX_PIECES
        && segments
            .windows(2)
            .all(|w| w[0].offset + w[0].length == w[1].offset);
    match request.operation {
        Operation::Flush => Some(uring::Action::Sync),
        Operation::Read if is_vector => Some(uring::Action::Read),
        Operation::Write if is_vector => Some(uring::Action::Write {
            durable: request.fua,
        }),
        _ => None,
    }
}
