//! io_uring over one file, with buffers that the ring owns while the kernel
//! uses them.
//!
//! This is the workspace's only unsafe code. What makes it sound: memory that
//! an entry points to belongs to the ring's slot from before the entry is
//! pushed until its completion was seen, and a ring waits for all of them
//! before it goes away.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

/// Entries of the submission queue.
const ENTRIES: u32 = 256;

/// A piece of memory on its way: `memory[start..start + len]`.
#[derive(Debug, Default)]
pub struct Piece {
    /// The memory.
    pub memory: Vec<u8>,
    /// Where the piece begins in it.
    pub start: usize,
    /// Its length.
    pub len: usize,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fills the pieces from the file.
    Read,
    /// Writes the pieces to the file.
    Write {
        /// On stable storage before it ends.
        durable: bool,
    },
    /// `fdatasync`.
    Sync,
}

/// What was done.
#[derive(Debug)]
pub struct Completed {
    /// The submitter's handle.
    pub token: u64,
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
    /// How it went.
    pub result: Result<(), rustix::io::Errno>,
}

/// A request under way.
struct Slot {
    token: u64,
    action: Action,
    pieces: Vec<Piece>,
    /// What of the pieces is still to be moved, as the kernel wants it.
    vectors: Vec<libc::iovec>,
    offset: u64,
    moved: usize,
    total: usize,
}

// SAFETY: the pointers in `vectors` point into `pieces`, which the slot owns;
// they go where it goes.
unsafe impl Send for Slot {}

/// A ring over one file.
pub struct Ring {
    ring: IoUring,
    file: Arc<File>,
    event: OwnedFd,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Slots that found the submission queue full.
    waiting: VecDeque<usize>,
    in_flight: usize,
    pushed: bool,
}

impl Ring {
    /// A ring over `file`.
    ///
    /// # Errors
    /// Where the kernel has none, or does not allow it.
    pub fn new(file: Arc<File>) -> io::Result<Ring> {
        let ring = IoUring::new(ENTRIES)?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(Ring {
            ring,
            file,
            event,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            in_flight: 0,
            pushed: false,
        })
    }

    /// Readable when [`Ring::take_completed`] has something.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes a request. It reaches the kernel with the next [`Ring::kick`].
    pub fn submit(&mut self, token: u64, action: Action, offset: u64, pieces: Vec<Piece>) {
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
        let index = self.free.pop().unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(Some(slot));
        } else {
            self.slots[index] = Some(slot);
        }
        self.waiting.push_back(index);
    }

    /// Hands what was submitted to the kernel.
    ///
    /// # Errors
    /// Where the kernel takes nothing any more.
    pub fn kick(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            self.push_waiting();
            if self.waiting.is_empty() {
                break;
            }
            self.enter()?;
        }
        self.enter()
    }

    fn enter(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.pushed) {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // Completions must be taken first; the entries stay where they are.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)
                ) =>
            {
                self.pushed = true;
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn push_waiting(&mut self) {
        while let Some(&index) = self.waiting.front() {
            let Some(slot) = &self.slots[index] else {
                self.waiting.pop_front();
                continue;
            };
            let entry = slot.entry(&self.file).user_data(index as u64);
            // SAFETY: the entry points to the slot's vectors and, through them,
            // to its pieces. The slot stays in `slots`, and neither is touched,
            // until its completion is seen in `take_completed` or `drop`: a
            // `Vec`'s memory does not move when the slot does. The file is held
            // by the ring.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                return;
            }
            self.pushed = true;
            self.in_flight += 1;
            self.waiting.pop_front();
        }
    }

    /// Appends what is completed.
    ///
    /// # Errors
    /// Where the kernel takes nothing any more.
    pub fn take_completed(&mut self, out: &mut Vec<Completed>) -> io::Result<()> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        self.reap(out);
        self.kick()
    }

    fn reap(&mut self, out: &mut Vec<Completed>) {
        while let Some(entry) = self.ring.completion().next() {
            self.in_flight -= 1;
            let index = entry.user_data() as usize;
            let Some(mut slot) = self.slots[index].take() else {
                continue;
            };
            match slot.advance(entry.result()) {
                Some(result) => {
                    self.free.push(index);
                    out.push(Completed {
                        token: slot.token,
                        pieces: slot.pieces,
                        result,
                    });
                }
                // Only part of it was moved: the rest goes again.
                None => {
                    self.slots[index] = Some(slot);
                    self.waiting.push_back(index);
                }
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to our memory: wait until it is done.
        let mut done = Vec::new();
        while self.in_flight > 0 {
            let waited = self.ring.submit_and_wait(1);
            if waited.is_err_and(|e| e.raw_os_error() != Some(libc::EINTR)) {
                break;
            }
            self.reap(&mut done);
        }
        if self.in_flight > 0 {
            // Rather lose memory than have it written to by the kernel later.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

impl Slot {
    /// Points the vectors at what is still to be moved.
    fn point(&mut self) {
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

    fn entry(&self, file: &File) -> squeue::Entry {
        let fd = types::Fd(file.as_raw_fd());
        let (vectors, count) = (self.vectors.as_ptr(), self.vectors.len() as u32);
        let offset = self.offset + self.moved as u64;
        match self.action {
            Action::Read => opcode::Readv::new(fd, vectors, count)
                .offset(offset)
                .build(),
            Action::Write { durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(fd, vectors, count)
                    .offset(offset)
                    .rw_flags(flags as _)
                    .build()
            }
            Action::Sync => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        }
    }

    /// Takes a completion's result. `None` where the rest must go again.
    fn advance(&mut self, result: i32) -> Option<Result<(), rustix::io::Errno>> {
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
                let error = rustix::io::Errno::from_raw_os_error(-result);
                if !matches!(error, rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) {
                    return Some(Err(error));
                }
            }
        }
        self.point();
        None
    }

    /// The file became shorter: what is gone reads as zeroes.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(byte: u8, len: usize) -> Piece {
        Piece {
            memory: vec![byte; len + 10],
            start: 5,
            len,
        }
    }

    fn wait(ring: &mut Ring, count: usize) -> Vec<Completed> {
        let mut done = Vec::new();
        while done.len() < count {
            ring.take_completed(&mut done).expect("the ring works");
        }
        done
    }

    #[test]
    fn what_is_written_is_read() {
        let file = tempfile::tempfile().expect("a file");
        let Ok(mut ring) = Ring::new(Arc::new(file)) else {
            eprintln!("SKIPPED: io_uring is not to be had here");
            return;
        };
        // More than the queue holds at once.
        let many = 3 * u64::from(ENTRIES);
        for i in 0..many {
            let pieces = vec![piece(i as u8, 100), piece((i as u8).wrapping_add(1), 156)];
            let durable = i % 50 == 0;
            ring.submit(i, Action::Write { durable }, i * 256, pieces);
        }
        ring.kick().expect("submitted");
        let done = wait(&mut ring, many as usize);
        assert!(done.iter().all(|one| one.result.is_ok()));
        ring.submit(1, Action::Sync, 0, Vec::new());
        ring.kick().expect("submitted");
        assert!(wait(&mut ring, 1)[0].result.is_ok());
        // The last piece lies behind the end.
        let at = (many - 1) * 256;
        ring.submit(
            7,
            Action::Read,
            at,
            vec![piece(9, 100), piece(9, 156), piece(9, 64)],
        );
        ring.kick().expect("submitted");
        let done = wait(&mut ring, 1);
        assert_eq!(done[0].token, 7);
        let bytes = |n: usize| {
            let piece = &done[0].pieces[n];
            piece.memory[piece.start..piece.start + piece.len].to_vec()
        };
        assert_eq!(bytes(0), [(many - 1) as u8; 100]);
        assert_eq!(bytes(1), [many as u8; 156]);
        assert_eq!(bytes(2), [0; 64]);
        // What surrounds a piece is not touched.
        assert_eq!(done[0].pieces[0].memory[..5], [9; 5]);
    }

    #[test]
    fn a_ring_that_goes_away_waits() {
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let Ok(mut ring) = Ring::new(Arc::clone(&file)) else {
            return;
        };
        for i in 0..64 {
            ring.submit(
                i,
                Action::Write { durable: false },
                i * 4096,
                vec![piece(1, 4096)],
            );
        }
        ring.kick().expect("submitted");
        drop(ring);
        assert_eq!(file.metadata().expect("its size").len(), 64 * 4096);
    }
}
