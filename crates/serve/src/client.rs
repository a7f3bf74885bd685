//! Connecting to an NBD server.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use blklab_nbd::{Address, ClientHandshake, ClientStep, Negotiated, Uri, Wanted};
use rustix::io::Errno;

/// A connection with an export in use; its socket blocks.
pub(crate) fn connect(uri: &Uri) -> Result<(OwnedFd, Negotiated), String> {
    let socket = open(&uri.address)?;
    let mut handshake = ClientHandshake::new(Wanted {
        export: uri.export.clone(),
        structured: true,
        base_allocation: false,
    });
    let (mut input, mut out) = (Vec::new(), Vec::new());
    loop {
        let mut room = [0; 4096];
        match rustix::io::read(&socket, &mut room).map_err(broken)? {
            0 => return Err("the server hung up".to_string()),
            len => input.extend_from_slice(&room[..len]),
        }
        let (used, step) = handshake.step(&input, &mut out)?;
        input.drain(..used);
        while !out.is_empty() {
            let len = rustix::io::write(&socket, &out).map_err(broken)?;
            out.drain(..len);
        }
        if let ClientStep::Ready(negotiated) = step {
            return Ok((socket, negotiated));
        }
    }
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
