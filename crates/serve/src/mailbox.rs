//! Messages to a thread that waits for file descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// A list of messages with something to wait on.
pub(crate) struct Mailbox<T> {
    messages: Mutex<Vec<T>>,
    event: OwnedFd,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> std::io::Result<Mailbox<T>> {
        Ok(Mailbox {
            messages: Mutex::default(),
            event: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Puts a message in.
    pub(crate) fn send(&self, message: T) {
        self.messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Takes all messages out.
    pub(crate) fn take(&self) -> Vec<T> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Readable while there are messages.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
