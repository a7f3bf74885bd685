//! A connection's bytes, with or without TLS.
//!
//! Both kinds behave like a socket that blocks or does not, so that only this
//! file and `tls.rs` know TLS.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send, sendmsg,
};

/// Data that one call encrypts.
const WRITE_BYTES: usize = 64 << 10;
/// Room for a few TLS records: with less, no further one is read.
const MIN_ROOM_BYTES: usize = 64 << 10;

/// A connection's socket, with or without TLS above it.
pub(crate) struct Channel {
    wire: Wire,
    tls: Option<Box<rustls::Connection>>,
    /// The next read sleeps all the same.
    waits: bool,
    /// Why TLS broke.
    fault: Option<String>,
}

/// The socket, which rustls reads and writes through the standard library's traits.
struct Wire {
    socket: OwnedFd,
    /// Calls return rather than sleep. The socket itself blocks always, so that one
    /// call may sleep without a change of it.
    nonblocking: bool,
}

impl Wire {
    fn receive_flags(&self) -> RecvFlags {
        match self.nonblocking {
            true => RecvFlags::DONTWAIT,
            false => RecvFlags::empty(),
        }
    }

    fn send_flags(&self) -> SendFlags {
        match self.nonblocking {
            true => SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            false => SendFlags::NOSIGNAL,
        }
    }

    fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut nothing = SendAncillaryBuffer::default();
        sendmsg(&self.socket, pieces, &mut nothing, self.send_flags())
    }
}

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.socket, room, self.receive_flags())?.0)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.socket, bytes, self.send_flags())?)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(self.send_vectored(pieces)?)
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
            wire: Wire {
                socket,
                nonblocking: false,
            },
            tls: None,
            waits: false,
            fault: None,
        }
    }

    /// Uses TLS from now on.
    pub(crate) fn start_tls(&mut self, tls: rustls::Connection) {
        self.tls = Some(Box::new(tls));
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.wire.socket.as_fd()
    }

    /// Whether calls return rather than sleep.
    pub(crate) fn set_nonblocking(&mut self, nonblocking: bool) {
        self.wire.nonblocking = nonblocking;
    }

    /// Limits for how long reads sleep.
    pub(crate) fn limit_waits(&self, limit: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.wire.socket, Timeout::Recv, Some(limit))
    }

    /// Has the next read sleep until something comes. Returns whether it can, which
    /// it cannot under TLS.
    pub(crate) fn wait_next_read(&mut self) -> bool {
        self.waits = self.tls.is_none();
        self.waits
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
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
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
            None => {
                let flags = match std::mem::take(&mut self.waits) {
                    true => RecvFlags::empty(),
                    false => self.wire.receive_flags(),
                };
                recv(&self.wire.socket, room, flags).map(|(len, _)| len)
            }
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
        let (mut nothing, flags) = (RecvAncillaryBuffer::default(), self.wire.receive_flags());
        let len = recvmsg(&self.wire.socket, &mut pieces, &mut nothing, flags)?.bytes;
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
                    let enough = !self.wire.nonblocking || room.len() - filled < MIN_ROOM_BYTES;
                    if filled > 0 && enough {
                        return Ok(filled);
                    }
                    match tls.read_tls(&mut self.wire) {
                        Ok(0) => return Ok(filled),
                        Ok(_) => {}
                        Err(_) if filled > 0 => return Ok(filled),
                        Err(e) => return Err(errno(&e)),
                    }
                    if tls.process_new_packets().is_err() {
                        // The peer gets the reason, if it still reads.
                        let _ = tls.write_tls(&mut self.wire);
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
            return send(&self.wire.socket, bytes, self.wire.send_flags());
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
            match tls.write_tls(&mut self.wire) {
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
        match tls.read_tls(&mut self.wire) {
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
            match self.wire.send_vectored(left) {
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
