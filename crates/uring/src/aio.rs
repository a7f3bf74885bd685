//! The kernel's older asynchronous I/O (`io_submit(2)`), which libaio wraps.
//!
//! Only direct I/O is asynchronous; through the page cache, `io_submit` blocks until the I/O is
//! done.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::Engine;
use crate::{Action, Completed, Piece, Slot, Slots};

/// The most requests in the kernel.
const EVENTS: usize = 256;
/// The most requests in one call.
const BATCH: usize = 64;

/// Opcodes, and the flag for an event descriptor (linux/aio_abi.h).
const IOCB_CMD_FDSYNC: u16 = 3;
const IOCB_CMD_PREADV: u16 = 7;
const IOCB_CMD_PWRITEV: u16 = 8;
const IOCB_FLAG_RESFD: u32 = 1;

/// A completed request (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

/// An AIO context for one file.
pub struct Aio {
    context: libc::c_ulong,
    file: Arc<File>,
    event: OwnedFd,
    slots: Slots,
    /// Slots to be submitted when the kernel has space.
    waiting: VecDeque<usize>,
    in_flight: usize,
    /// Requests that the kernel refused.
    refused: Vec<Completed>,
}

impl Aio {
    /// Creates a context for `file`.
    ///
    /// # Errors
    /// If the kernel does not support it or has no context left (`fs.aio-max-nr`).
    pub fn new(file: Arc<File>) -> io::Result<Aio> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word to `context`, which outlives the call.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, EVENTS, &raw mut context) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Aio {
            context,
            file,
            event,
            slots: Slots::default(),
            waiting: VecDeque::new(),
            in_flight: 0,
            refused: Vec::new(),
        })
    }

    fn control_block(&self, index: usize, slot: &Slot) -> libc::iocb {
        // SAFETY: all fields are numbers, for which zero is valid.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        block.aio_data = index as u64;
        block.aio_fildes = self.file.as_raw_fd() as u32;
        block.aio_flags = IOCB_FLAG_RESFD;
        block.aio_resfd = self.event.as_raw_fd() as u32;
        block.aio_lio_opcode = match slot.action {
            Action::Read => IOCB_CMD_PREADV,
            Action::Write { .. } => IOCB_CMD_PWRITEV,
            Action::Sync => IOCB_CMD_FDSYNC,
        };
        if slot.action != Action::Sync {
            block.aio_buf = slot.vectors.as_ptr() as u64;
            block.aio_nbytes = slot.vectors.len() as u64;
            block.aio_offset = slot.at() as i64;
        }
        if slot.action == (Action::Write { durable: true }) {
            block.aio_rw_flags = libc::RWF_DSYNC as _;
        }
        block
    }

    /// Submits a batch of waiting requests. Returns the number that the kernel accepted.
    fn offer(&mut self) -> io::Result<usize> {
        let batch = self.waiting.iter().take(BATCH);
        let mut blocks: Vec<libc::iocb> = batch
            .filter_map(|&index| Some(self.control_block(index, self.slots.get(index)?)))
            .collect();
        let mut pointers: Vec<*mut libc::iocb> = blocks.iter_mut().map(|b| &raw mut *b).collect();
        // SAFETY: the kernel copies the control blocks and the vectors that they point to during
        // the call. The pieces that the vectors point to stay in their slots, untouched, until
        // `reap` sees the completion: the memory of a `Vec` does not move when the slot does. This
        // context owns the file and the event's descriptor.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.context,
                pointers.len(),
                pointers.as_mut_ptr(),
            )
        };
        match usize::try_from(taken) {
            Ok(taken) => {
                self.waiting.drain(..taken);
                self.in_flight += taken;
                Ok(taken)
            }
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Fails the oldest waiting request.
    fn refuse_first(&mut self, error: &io::Error) {
        let first = self.waiting.pop_front();
        if let Some(slot) = first.and_then(|index| self.slots.remove(index)) {
            let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
            self.refused.push(slot.completed(Err(errno)));
            // The owner must be woken to take it.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Takes completed requests from the kernel into `events`, waiting for at least `at_least` of
    /// them. Returns their number.
    fn events(&self, at_least: usize, events: &mut [IoEvent]) -> io::Result<usize> {
        let mut at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = match at_least {
            0 => &raw mut at_once,
            _ => std::ptr::null_mut(),
        };
        loop {
            // SAFETY: the kernel writes at most as many events as there is space for, and reads
            // the timeout; both outlive the call.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    at_least,
                    events.len(),
                    events.as_mut_ptr(),
                    timeout,
                )
            };
            match usize::try_from(count) {
                Ok(count) => return Ok(count),
                Err(_) => match io::Error::last_os_error() {
                    // A signal came while it waited or looked.
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }

    /// Appends all completed requests, waiting for at least `at_least` of them.
    fn reap(&mut self, mut at_least: usize, out: &mut Vec<Completed>) -> io::Result<()> {
        loop {
            let mut events = [IoEvent::default(); BATCH];
            let count = self.events(at_least, &mut events)?;
            for event in &events[..count] {
                self.in_flight -= 1;
                let index = event.data as usize;
                match self.slots.advance(index, event.res) {
                    Some(completed) => out.push(completed),
                    None => self.waiting.push_back(index),
                }
            }
            if count < BATCH {
                return Ok(());
            }
            // After a full batch nothing may be left in flight to wait for.
            at_least = 0;
        }
    }
}

impl Engine for Aio {
    fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn submit(&mut self, token: u64, action: Action, offset: u64, pieces: Vec<Piece>) {
        let slot = Slot::new(token, action, offset, pieces);
        self.waiting.push_back(self.slots.insert(slot));
    }

    fn kick(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.offer() {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Completions of the requests in flight will make space.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.in_flight > 0 => break,
                Err(e) => self.refuse_first(&e),
            }
        }
        Ok(())
    }

    fn take_completed(&mut self, out: &mut Vec<Completed>) -> io::Result<()> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        out.append(&mut self.refused);
        self.reap(0, out)?;
        self.kick()
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // The kernel may still write to our memory, so wait for all completions.
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if self.reap(1, &mut done).is_err() {
                break;
            }
        }
        if self.in_flight > 0 {
            self.slots.leak();
        }
        // SAFETY: this object owns the context, which is not used afterwards.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
