//! The NBD protocol as state machines.
//!
//! Bytes in, bytes out: nothing here owns a socket, a thread or a clock, so
//! that a server, a client, a load generator and a fuzzer all use the same
//! code. Written from the protocol's document, `doc/proto.md` of
//! NetworkBlockDevice/nbd: fixed newstyle only.

mod client;
mod export;
mod reply;
mod request;
mod server;
#[cfg(test)]
mod tests;
mod uri;
pub mod wire;

pub use client::{
    ClientHandshake, ClientOptions, ClientStep, Negotiated, Replies, Reply, ReplyBody, ReplyError,
};
pub use export::{BlockSizes, Export, Session};
pub use reply::{Extent, block_status, data_head, done, error, hole, simple};
pub use request::{REQUEST_BYTES, Refusal, Request, RequestError};
pub use server::{Chosen, HandshakeError, ServerHandshake, ServerStep, Tls};
pub use uri::{Address, Uri, UriTls};
