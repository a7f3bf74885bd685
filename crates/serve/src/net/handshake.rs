//! The handshake phase: clients that have not chosen an export yet have a
//! thread each, for a short time.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blklab_nbd::{Export, ServerHandshake, ServerStep, Session, Tls};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::Listener;
use super::channel::Channel;
use super::tls::ServerTls;

/// A client that has chosen an export.
pub(crate) struct Arrival {
    pub(crate) channel: Channel,
    pub(crate) session: Session,
    /// What it sent behind its handshake.
    pub(crate) early: Vec<u8>,
    pub(crate) permit: ConnectionPermit,
}

/// Counts a connection for as long as it is held.
pub(crate) type ConnectionPermit = Arc<()>;

/// What all handshakes share.
pub(crate) struct Handshake {
    pub(crate) exports: Vec<Export>,
    pub(crate) timeout: Duration,
    pub(crate) tls: ServerTls,
    pub(crate) max_connections: usize,
    /// Cloned for each connection.
    pub(crate) permit: ConnectionPermit,
    pub(crate) shutting_down: AtomicBool,
    /// Gets each client, with the index of what it chose of `exports`.
    pub(crate) deliver: Box<dyn Fn(usize, Arrival) + Send + Sync>,
}

impl Handshake {
    /// Starts the handshake with a client, unless there are too many.
    pub(crate) fn start(self: &Arc<Handshake>, listener: &Listener, socket: OwnedFd) {
        // One more than the permits given out: our own.
        if Arc::strong_count(&self.permit) > self.max_connections {
            return;
        }
        let Some(tls) = self.tls.policy(listener.is_public()) else {
            return;
        };
        let (handshake, permit) = (Arc::clone(self), Arc::clone(&self.permit));
        let builder = std::thread::Builder::new()
            .name("handshake".to_string())
            .stack_size(512 << 10);
        // Where there is no thread, the client is turned away. One that leaves or
        // breaks the protocol concerns no other.
        let _ = builder.spawn(move || handshake.run(Channel::plain(socket), tls, permit));
    }

    fn run(&self, mut channel: Channel, tls: Tls, permit: ConnectionPermit) -> Result<(), Errno> {
        let end = Instant::now() + self.timeout;
        channel.set_nonblocking(true);
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
                ServerStep::More => {}
                // What came before TLS must not pass for what comes under it.
                ServerStep::StartTls if !input.is_empty() => return Err(Errno::PROTO),
                ServerStep::StartTls => {
                    send_all(&mut channel, &out, end)?;
                    out.clear();
                    self.tls.accept(&mut channel, end)?;
                    handshake.tls_started();
                }
                ServerStep::Closed => {
                    send_all(&mut channel, &out, end)?;
                    channel.close_notify();
                    return Ok(());
                }
                ServerStep::Ready(chosen) => {
                    send_all(&mut channel, &out, end)?;
                    let arrival = Arrival {
                        channel,
                        session: chosen.session,
                        early: input,
                        permit,
                    };
                    (self.deliver)(chosen.export, arrival);
                    return Ok(());
                }
            }
        }
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
            Err(Errno::AGAIN) => channel.wait_ready(PollFlags::OUT, end)?,
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
            Err(Errno::AGAIN) => channel.wait_ready(PollFlags::IN, end)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
