//! Clients that have not chosen an export yet: a thread each, for a short time.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blklab_nbd::{Export, ServerHandshake, Step, Tls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::export_loop::{Arrival, Message, Ticket};
use crate::mailbox::Mailbox;
use crate::tls::ServerTls;

/// What all handshakes share.
pub(crate) struct Reception {
    pub(crate) exports: Vec<Export>,
    pub(crate) mailboxes: Vec<Arc<Mailbox<Message>>>,
    pub(crate) deadline: Duration,
    pub(crate) tls: ServerTls,
    pub(crate) shutting_down: AtomicBool,
}

impl Reception {
    /// Receives one client, and hands it to the thread of the export it chose.
    pub(crate) fn receive(&self, channel: Channel, tls: Tls, ticket: Ticket) {
        // A client that goes away or breaks the protocol concerns nobody else.
        let _ = self.shake_hands(channel, tls, ticket);
    }

    fn shake_hands(&self, mut channel: Channel, tls: Tls, ticket: Ticket) -> Result<(), Errno> {
        let end = Instant::now() + self.deadline;
        channel.set_nonblocking(true)?;
        let (mut out, mut input) = (Vec::new(), Vec::new());
        let mut handshake = ServerHandshake::start(tls, &mut out);
        loop {
            send_all(&mut channel, &out, end)?;
            out.clear();
            if self.shutting_down.load(Ordering::Relaxed) {
                handshake.shut_down();
            }
            receive_some(&mut channel, &mut input, end)?;
            let step = handshake.step(&input, &self.exports, &mut out);
            let (used, step) = step.map_err(|_| Errno::PROTO)?;
            input.drain(..used);
            match step {
                Step::More => {}
                // What came before TLS must not pass for what comes under it.
                Step::StartTls if !input.is_empty() => return Err(Errno::PROTO),
                Step::StartTls => {
                    send_all(&mut channel, &out, end)?;
                    out.clear();
                    self.tls.accept(&mut channel, end)?;
                    handshake.tls_started();
                }
                Step::Closed => {
                    send_all(&mut channel, &out, end)?;
                    channel.say_goodbye();
                    return Ok(());
                }
                Step::Ready(chosen) => {
                    send_all(&mut channel, &out, end)?;
                    let arrival = Arrival {
                        channel,
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
pub(crate) fn wait_for(socket: BorrowedFd<'_>, what: PollFlags, end: Instant) -> Result<(), Errno> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Errno::TIMEDOUT);
    }
    let timeout = Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let mut fds = [PollFd::from_borrowed_fd(socket, what)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

fn send_all(channel: &mut Channel, mut bytes: &[u8], end: Instant) -> Result<(), Errno> {
    loop {
        let done = match bytes.is_empty() {
            true => channel.push().map(|()| 0),
            false => channel.write(bytes),
        };
        match done {
            Ok(_) if bytes.is_empty() => return Ok(()),
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::AGAIN) => wait_for(channel.socket(), PollFlags::OUT, end)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Appends what comes next; it is bounded by what a handshake leaves unread.
fn receive_some(channel: &mut Channel, input: &mut Vec<u8>, end: Instant) -> Result<(), Errno> {
    let mut room = [0; 16 << 10];
    loop {
        match channel.read(&mut room) {
            Ok(0) => return Err(Errno::CONNRESET),
            Ok(len) => {
                input.extend_from_slice(&room[..len]);
                return Ok(());
            }
            Err(Errno::AGAIN) => wait_for(channel.socket(), PollFlags::IN, end)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
