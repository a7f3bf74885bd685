//! Clients that have not chosen an export yet: a thread each, for a short time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blklab_nbd::{Export, ServerHandshake, Step, Tls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::export_loop::{Arrival, Message, Ticket};
use crate::mailbox::Mailbox;

/// What all handshakes share.
pub(crate) struct Reception {
    pub(crate) exports: Vec<Export>,
    pub(crate) mailboxes: Vec<Arc<Mailbox<Message>>>,
    pub(crate) deadline: Duration,
    pub(crate) shutting_down: AtomicBool,
}

impl Reception {
    /// Receives one client, and hands it to the thread of the export it chose.
    pub(crate) fn receive(&self, socket: OwnedFd, ticket: Ticket) {
        // A client that goes away or breaks the protocol concerns nobody else.
        let _ = self.shake_hands(socket, ticket);
    }

    fn shake_hands(&self, socket: OwnedFd, ticket: Ticket) -> Result<(), Errno> {
        let end = Instant::now() + self.deadline;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let (mut out, mut input) = (Vec::new(), Vec::new());
        let mut handshake = ServerHandshake::start(Tls::Off, &mut out);
        loop {
            send_all(&socket, &out, end)?;
            out.clear();
            if self.shutting_down.load(Ordering::Relaxed) {
                handshake.shut_down();
            }
            receive_some(&socket, &mut input, end)?;
            let step = handshake.step(&input, &self.exports, &mut out);
            let (used, step) = step.map_err(|_| Errno::PROTO)?;
            input.drain(..used);
            match step {
                Step::More => {}
                Step::StartTls => return Err(Errno::PROTO),
                Step::Closed => return send_all(&socket, &out, end),
                Step::Ready(chosen) => {
                    send_all(&socket, &out, end)?;
                    let arrival = Arrival {
                        socket,
                        session: chosen.session,
                        early: input,
                        ticket,
                    };
                    self.mailboxes[chosen.export].send(Message::Arrive(Box::new(arrival)));
                    return Ok(());
                }
            }
        }
    }
}

/// Sleeps until the socket is ready, at most until `end`.
fn wait_for(socket: &OwnedFd, what: PollFlags, end: Instant) -> Result<(), Errno> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Errno::TIMEDOUT);
    }
    let timeout = Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), what)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

fn send_all(socket: &OwnedFd, mut bytes: &[u8], end: Instant) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(socket, bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::AGAIN) => wait_for(socket, PollFlags::OUT, end)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Appends what comes next; it is bounded by what a handshake leaves unread.
fn receive_some(socket: &OwnedFd, input: &mut Vec<u8>, end: Instant) -> Result<(), Errno> {
    let mut room = [0; 16 << 10];
    loop {
        match rustix::io::read(socket, &mut room) {
            Ok(0) => return Err(Errno::CONNRESET),
            Ok(len) => {
                input.extend_from_slice(&room[..len]);
                return Ok(());
            }
            Err(Errno::AGAIN) => wait_for(socket, PollFlags::IN, end)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
