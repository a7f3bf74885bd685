//! The io_uring engine.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use crate::Engine;
use crate::{Action, Completed, Piece, Slot, Slots};

/// Number of entries in the submission queue.
const ENTRIES: u32 = 256;

/// A ring for one file.
pub struct Ring {
    ring: IoUring,
    file: Arc<File>,
    event: OwnedFd,
    slots: Slots,
    /// Slots to be submitted when both queues have space.
    waiting: VecDeque<usize>,
    in_flight: usize,
    /// Entries of the completion queue, and so the most in flight: what it has no room for
    /// stays in the kernel until it is entered to fetch events (io_uring_enter(2)).
    completions: usize,
    pushed: bool,
}

impl Ring {
    /// Creates a ring for `file`.
    ///
    /// # Errors
    /// If the kernel does not support or allow it.
    pub fn new(file: Arc<File>) -> io::Result<Ring> {
        let ring = IoUring::new(ENTRIES)?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(Ring {
            completions: ring.params().cq_entries() as usize,
            ring,
            file,
            event,
            slots: Slots::default(),
            waiting: VecDeque::new(),
            in_flight: 0,
            pushed: false,
        })
    }

    fn enter(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.pushed) {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // Completions must be taken first; the entries stay in the queue.
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

    fn has_room(&self) -> bool {
        self.in_flight < self.completions
    }

    fn push_waiting(&mut self) {
        while self.has_room()
            && let Some(&index) = self.waiting.front()
        {
            let Some(slot) = self.slots.get(index) else {
                self.waiting.pop_front();
                continue;
            };
            let entry = entry(slot, &self.file).user_data(index as u64);
            // SAFETY: the entry points to the slot's vectors and, through them, to its pieces. The
            // slot stays in `slots`, and neither is touched, until `take_completed` or `drop` sees
            // its completion: the memory of a `Vec` does not move when the slot does. The ring owns
            // the file.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                return;
            }
            self.pushed = true;
            self.in_flight += 1;
            self.waiting.pop_front();
        }
    }

    fn reap(&mut self, out: &mut Vec<Completed>) {
        while let Some(entry) = self.ring.completion().next() {
            self.in_flight -= 1;
            let index = entry.user_data() as usize;
            match self.slots.advance(index, i64::from(entry.result())) {
                Some(completed) => out.push(completed),
                None => self.waiting.push_back(index),
            }
        }
    }
}

impl Engine for Ring {
    fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn submit(&mut self, token: u64, action: Action, offset: u64, pieces: Vec<Piece>) {
        let slot = Slot::new(token, action, offset, pieces);
        self.waiting.push_back(self.slots.insert(slot));
    }

    fn kick(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() && self.has_room() {
            self.push_waiting();
            self.enter()?;
        }
        self.enter()
    }

    fn take_completed(&mut self, out: &mut Vec<Completed>) -> io::Result<()> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        self.reap(out);
        self.kick()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to our memory, so wait for all completions.
        let mut done = Vec::new();
        while self.in_flight > 0 {
            let waited = self.ring.submit_and_wait(1);
            if waited.is_err_and(|e| e.raw_os_error() != Some(libc::EINTR)) {
                break;
            }
            self.reap(&mut done);
        }
        if self.in_flight > 0 {
            self.slots.leak();
        }
    }
}

fn entry(slot: &Slot, file: &File) -> squeue::Entry {
    let fd = types::Fd(file.as_raw_fd());
    let (vectors, count) = (slot.vectors.as_ptr(), slot.vectors.len() as u32);
    let offset = slot.at();
    match slot.action {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_completion_queue_has_room_for_all_in_flight() {
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let mut ring = match Ring::new(file) {
            Ok(ring) => ring,
            Err(error) => return blklab_judges::not_possible(&format!("no io_uring: {error}")),
        };
        let many = 4 * u64::from(ENTRIES);
        for token in 0..many {
            ring.submit(token, Action::Sync, 0, Vec::new());
        }
        ring.kick().expect("submitted");
        assert_eq!(ring.in_flight, 2 * ENTRIES as usize);
        // What ends unseen meanwhile has its place.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut done = Vec::new();
        while (done.len() as u64) < many {
            ring.take_completed(&mut done).expect("it works");
        }
        assert_eq!((done.len() as u64, ring.in_flight), (many, 0));
    }
}
