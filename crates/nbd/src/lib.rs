//! The NBD protocol as state machines.
//!
//! Bytes in, bytes out: nothing here owns a socket, a thread or a clock, so
//! that a server, a client, a load generator and a fuzzer all use the same
//! code. Written from the protocol's document, `doc/proto.md` of
//! NetworkBlockDevice/nbd: fixed newstyle only.

mod bytes;
mod export;
mod handshake;
mod reply;
mod request;
mod uri;
pub mod wire;

pub use export::{BlockSizes, Export, Session};
pub use handshake::client::{ClientHandshake, ClientStep, Negotiated, Wanted};
pub use handshake::server::{Chosen, HandshakeError, ServerHandshake, Step, Tls};
pub use reply::{
    Extent, REPLY_HEAD_BYTES, ReplyHead, block_status, data_head, done, error, hole, simple,
};
pub use request::{REQUEST_BYTES, Refusal, Request, RequestError};
pub use uri::{Address, Uri, UriTls};
