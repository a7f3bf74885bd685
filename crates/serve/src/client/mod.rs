//! The other side of the protocols: connections to an NBD server, for a back end, a
//! load generator and the probe; and a virtual machine's disk, for the load generator.

mod load;
mod machine;
mod probe;

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use blklab_nbd::{
    Address, ClientHandshake, ClientOptions, ClientStep, Negotiated, Replies, Reply, Uri,
};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::net::{Channel, connect_tls};

pub use load::{LoadConfig, LoadReport, LoadTarget, load};
pub use machine::{Kept, Machine, MachineQueue, MachineSetup};
pub use probe::ProbeTarget;

/// A server that is silent for this long during the handshake counts as gone.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection with an export in use; its socket blocks.
pub(crate) struct Client {
    pub(crate) channel: Channel,
    pub(crate) negotiated: Negotiated,
    replies: Replies,
}

/// What a client asks of a server, and how much it reads in one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientSetup {
    /// The metadata context `base:allocation`, and with it BLOCK_STATUS.
    pub(crate) base_allocation: bool,
    pub(crate) room_bytes: usize,
}

impl Client {
    /// # Errors
    /// Where the server cannot be reached or refuses.
    pub(crate) fn connect(uri: &Uri, setup: ClientSetup) -> Result<Client, String> {
        let mut channel = Channel::plain(open(&uri.address)?);
        let set_timeout = |channel: &Channel, timeout| {
            set_socket_timeout(channel.socket(), Timeout::Recv, timeout).map_err(broken)
        };
        set_timeout(&channel, Some(HANDSHAKE_TIMEOUT))?;
        let negotiated = shake_hands(&mut channel, uri, setup.base_allocation)?;
        set_timeout(&channel, None)?;
        Ok(Client {
            channel,
            negotiated,
            replies: Replies::new(setup.room_bytes),
        })
    }

    /// Reads once; `false` where nothing came yet.
    ///
    /// # Errors
    /// Where the connection is at its end.
    pub(crate) fn receive(&mut self) -> Result<bool, String> {
        match self.channel.read(self.replies.room()) {
            Ok(0) => Err("the server hung up".to_string()),
            Ok(len) => {
                self.replies.received(len);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(broken(error)),
        }
    }

    /// The next reply that was received, as [`Replies::next_reply`].
    ///
    /// # Errors
    /// Where what came is no reply.
    pub(crate) fn next_reply(
        &mut self,
        read_bytes: impl FnOnce(u64) -> usize,
    ) -> Result<Option<Reply>, String> {
        self.replies
            .next_reply(read_bytes)
            .map_err(|e| e.to_string())
    }

    /// Reads the data of the last reply, from a socket that blocks.
    ///
    /// # Errors
    /// Where the connection ends before.
    pub(crate) fn read_data(&mut self, into: &mut [u8]) -> Result<(), String> {
        let mut filled = self.replies.take_data(into);
        while filled < into.len() {
            match self.channel.read(&mut into[filled..]) {
                Ok(0) => return Err("the server hung up".to_string()),
                Ok(len) => {
                    self.replies.data_received(len);
                    filled += len;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }
}

fn shake_hands(
    channel: &mut Channel,
    uri: &Uri,
    base_allocation: bool,
) -> Result<Negotiated, String> {
    let mut handshake = ClientHandshake::new(ClientOptions {
        export: uri.export.clone(),
        structured: true,
        base_allocation,
        tls: uri.tls.is_some(),
    });
    let (mut input, mut out) = (Vec::new(), Vec::new());
    loop {
        let mut room = [0; 4096];
        match channel.read(&mut room).map_err(broken)? {
            0 => return Err("the server hung up".to_string()),
            len => input.extend_from_slice(&room[..len]),
        }
        let (used, step) = handshake.step(&input, &mut out)?;
        input.drain(..used);
        if step == ClientStep::StartTls {
            // What came before TLS must not pass for what comes under it.
            if !input.is_empty() {
                return Err("the server said more before TLS than it may".to_string());
            }
            start_tls(channel, uri)?;
            handshake.tls_started(&mut out);
        }
        channel.write_all(&out).map_err(broken)?;
        out.clear();
        if let ClientStep::Ready(negotiated) = step {
            return Ok(negotiated);
        }
    }
}

fn start_tls(channel: &mut Channel, uri: &Uri) -> Result<(), String> {
    let tls = uri.tls.as_ref().ok_or("no TLS was asked for")?;
    let folder = tls.certificates.as_deref().ok_or(
        "whom to trust is not known; add ?tls-certificates=DIR with ca-cert.pem in it to the URI",
    )?;
    connect_tls(channel, folder, &tls.hostname)
}

fn open(address: &Address) -> Result<OwnedFd, String> {
    match address {
        Address::Unix(path) => UnixStream::connect(path)
            .map(OwnedFd::from)
            .map_err(|e| format!("{}: {e}", path.display())),
        Address::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port));
            let stream = stream.map_err(|e| format!("{host}:{port}: {e}"))?;
            stream.set_nodelay(true).map_err(|e| e.to_string())?;
            Ok(stream.into())
        }
    }
}

fn broken(error: Errno) -> String {
    format!("the connection broke: {error}")
}
