//! A connection's bytes, with or without TLS.
//!
//! Both kinds behave like a socket that blocks or does not, so that only this
//! file and `tls.rs` know TLS.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Data that one call encrypts.
const WRITE_BYTES: usize = 64 << 10;
/// Room for a few TLS records: with less, no further one is read.
const MIN_ROOM_BYTES: usize = 64 << 10;

/// A connection's socket, with or without TLS above it.
pub(crate) struct Channel {
    socket: OwnedFd,
    tls: Option<Box<rustls::Connection>>,
    /// Calls return rather than sleep.
    nonblocking: bool,
    /// Why TLS broke.
    fault: Option<String>,
}

/// rustls reads and writes through the standard library's traits.
struct Wire<'a>(&'a OwnedFd);

impl Read for Wire<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, room)?)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, pieces)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket's error, or `EPROTO` for one of TLS.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::PROTO)
}

impl Channel {
    /// The socket as it is, which blocks.
    pub(crate) fn plain(socket: OwnedFd) -> Channel {
        Channel {
            socket,
            tls: None,
            nonblocking: false,
            fault: None,
        }
    }

    /// Uses TLS from now on.
    pub(crate) fn start_tls(&mut self, tls: rustls::Connection) {
        self.tls = Some(Box::new(tls));
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn set_nonblocking(&mut self, nonblocking: bool) -> Result<(), Errno> {
        self.nonblocking = nonblocking;
        rustix::io::ioctl_fionbio(&self.socket, nonblocking)
    }

    /// Sleeps until the socket is ready, at most until `end`.
    ///
    /// # Errors
    /// `ETIMEDOUT` at `end`.
    pub(crate) fn wait_ready(&self, what: PollFlags, end: Instant) -> Result<(), Errno> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::from_borrowed_fd(self.socket(), what)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Err(Errno::TIMEDOUT),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the TLS handshake still runs.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether something that was written has not reached the socket yet.
    #[inline]
    pub(crate) fn holds_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads; 0 is the end. With TLS it reads all that the socket has and that
    /// fits, as `epoll` does not tell of what is left inside rustls.
    #[inline]
    pub(crate) fn read(&mut self, room: &mut [u8]) -> Result<usize, Errno> {
        match self.tls {
            None => rustix::io::read(&self.socket, room),
            Some(_) => self.read_tls(room),
        }
    }

    /// Reads into `payload` first and `rest` then. With TLS only the second.
    pub(crate) fn read_vectored(
        &mut self,
        payload: &mut [u8],
        rest: &mut [u8],
    ) -> Result<(usize, usize), Errno> {
        if self.tls.is_some() {
            return self.read(rest).map(|len| (0, len));
        }
        let direct = payload.len();
        let mut pieces = [IoSliceMut::new(payload), IoSliceMut::new(rest)];
        let len = rustix::io::readv(&self.socket, &mut pieces)?;
        Ok((len.min(direct), len.saturating_sub(direct)))
    }

    fn read_tls(&mut self, room: &mut [u8]) -> Result<usize, Errno> {
        let Some(tls) = &mut self.tls else {
            return Err(Errno::PROTO);
        };
        let mut filled = 0;
        loop {
            // What is decrypted already comes first.
            match tls.reader().read(&mut room[filled..]) {
                Ok(0) => return Ok(filled),
                Ok(len) => filled += len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let enough = !self.nonblocking || room.len() - filled < MIN_ROOM_BYTES;
                    if filled > 0 && enough {
                        return Ok(filled);
                    }
                    match tls.read_tls(&mut Wire(&self.socket)) {
                        Ok(0) => return Ok(filled),
                        Ok(_) => {}
                        Err(_) if filled > 0 => return Ok(filled),
                        Err(e) => return Err(errno(&e)),
                    }
                    if tls.process_new_packets().is_err() {
                        // The peer gets the reason, if it still reads.
                        let _ = tls.write_tls(&mut Wire(&self.socket));
                        return Err(Errno::PROTO);
                    }
                }
                // The other side closed without TLS's own end.
                Err(_) => return Ok(filled),
            }
        }
    }

    /// Writes; what rustls still holds counts as written.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.tls.is_none() {
            return rustix::io::write(&self.socket, bytes);
        }
        self.push()?;
        let Some(tls) = &mut self.tls else {
            return Err(Errno::PROTO);
        };
        let piece = &bytes[..bytes.len().min(WRITE_BYTES)];
        let len = tls.writer().write(piece).map_err(|e| errno(&e))?;
        match self.push() {
            Ok(()) | Err(Errno::AGAIN) => Ok(len),
            Err(error) => Err(error),
        }
    }

    /// Writes what rustls still holds to the socket.
    pub(crate) fn push(&mut self) -> Result<(), Errno> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut Wire(&self.socket)) {
                Ok(_) => {}
                Err(e) if errno(&e) == Errno::INTR => {}
                Err(e) => return Err(errno(&e)),
            }
        }
        Ok(())
    }

    /// Reads and writes once for the TLS handshake.
    pub(crate) fn handshake(&mut self) -> Result<(), Errno> {
        self.push()?;
        let Some(tls) = &mut self.tls else {
            return Err(Errno::PROTO);
        };
        if !tls.is_handshaking() {
            return Ok(());
        }
        match tls.read_tls(&mut Wire(&self.socket)) {
            Ok(0) => return Err(Errno::CONNRESET),
            Ok(_) => {}
            Err(e) => return Err(errno(&e)),
        }
        let done = tls.process_new_packets();
        if let Err(error) = done {
            self.fault = Some(error.to_string());
            // The peer gets the reason, if it still reads.
            let _ = self.push();
            return Err(Errno::PROTO);
        }
        self.push()
    }

    /// Why TLS broke, where it did.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Writes all of it to a socket that blocks.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(len) => bytes = &bytes[len..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.push()
    }

    /// Writes all of both to a socket that blocks, with one call where it can.
    pub(crate) fn write_both(&mut self, head: &[u8], data: &[u8]) -> Result<(), Errno> {
        if self.tls.is_some() {
            self.write_all(head)?;
            return self.write_all(data);
        }
        let mut pieces = [IoSlice::new(head), IoSlice::new(data)];
        let mut left = &mut pieces[..];
        while left.iter().any(|piece| !piece.is_empty()) {
            match rustix::io::writev(&self.socket, left) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(len) => IoSlice::advance_slices(&mut left, len),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends TLS's own end of the connection.
    pub(crate) fn close_notify(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // The other side may be gone.
            let _ = self.push();
        }
    }
}
