//! The NBD protocol as state machines.
//!
//! Bytes in, bytes out: nothing here owns a socket, a thread or a clock, so
//! that a server, a client, a load generator and a fuzzer all use the same
//! code. Written from the protocol's document, `doc/proto.md` of
//! NetworkBlockDevice/nbd: fixed newstyle only.

mod client;
mod reply;
mod request;
mod server;
#[cfg(test)]
mod tests;
mod uri;
pub mod wire;

use wire::ExportFlags;

pub use client::{
    ClientHandshake, ClientOptions, ClientStep, Negotiated, Replies, Reply, ReplyBody, ReplyError,
};
pub use reply::{Extent, block_status, data_head, done, error, hole, simple};
pub use request::{REQUEST_BYTES, Refusal, Request, RequestError};
pub use server::{Chosen, HandshakeError, ServerHandshake, ServerStep, Tls};
pub use uri::{Address, Uri, UriTls};

/// Sizes of requests that an export takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this.
    pub minimum: u32,
    /// The length with the best throughput.
    pub preferred: u32,
    /// The longest read or write.
    pub maximum: u32,
}

/// An export as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name clients ask for; the empty one is the default.
    pub name: String,
    /// A line for people, or nothing.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What it can do. [`ExportFlags::SEND_DF`] is shown only to those who use
    /// structured replies.
    pub flags: ExportFlags,
    /// Sizes of requests.
    pub block_sizes: BlockSizes,
    /// Only under TLS.
    pub tls_only: bool,
}

impl Export {
    /// The flags for a connection with or without structured replies.
    pub fn flags_for(&self, structured: bool) -> ExportFlags {
        let flags = self.flags | ExportFlags::HAS_FLAGS;
        if structured {
            flags | ExportFlags::SEND_DF
        } else {
            flags - ExportFlags::SEND_DF
        }
    }
}

/// What one connection agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Structured replies.
    pub structured: bool,
    /// The metadata context `base:allocation`, and with it BLOCK_STATUS.
    pub base_allocation: bool,
}
