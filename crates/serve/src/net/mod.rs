//! Sockets, TLS and the handshake: all that comes before an export is chosen.

mod channel;
mod handshake;
mod listener;
mod tls;

pub(crate) use channel::Channel;
pub(crate) use handshake::{Arrival, ConnectionPermit, Handshake};
pub use listener::Listen;
pub(crate) use listener::{AcceptThread, Listener};
pub(crate) use tls::{ServerTls, connect as connect_tls, tls_needed};
pub use tls::{TlsMode, TlsSettings};
