//! Connecting to an NBD server.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use blklab_nbd::{Address, ClientHandshake, ClientStep, Negotiated, Uri, Wanted};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::channel::Channel;
use crate::tls;

/// A server that says nothing for so long is not there.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection with an export in use; its socket blocks.
pub(crate) fn connect(uri: &Uri, base_allocation: bool) -> Result<(Channel, Negotiated), String> {
    let mut channel = Channel::plain(open(&uri.address)?);
    let patience = |channel: &Channel, span| {
        set_socket_timeout(channel.socket(), Timeout::Recv, span).map_err(broken)
    };
    patience(&channel, Some(PATIENCE))?;
    let negotiated = shake_hands(&mut channel, uri, base_allocation)?;
    patience(&channel, None)?;
    Ok((channel, negotiated))
}

fn shake_hands(
    channel: &mut Channel,
    uri: &Uri,
    base_allocation: bool,
) -> Result<Negotiated, String> {
    let mut handshake = ClientHandshake::new(Wanted {
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
    tls::connect(channel, folder, &tls.hostname)
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

pub(crate) fn broken(error: Errno) -> String {
    format!("the connection broke: {error}")
}
