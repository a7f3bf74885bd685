//! The NBD protocol as state machines.
//!
//! The crate owns no socket, thread or clock: bytes come in and go out, so that a server, a client,
//! a load generator and a fuzzer use the same code. It follows the protocol specification,
//! `doc/proto.md` of NetworkBlockDevice/nbd, with fixed newstyle only.

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
pub use reply::{Extent, block_status, data_head, error, hole, simple, success};
pub use request::{REQUEST_BYTES, Refusal, Request, RequestError};
pub use server::{Chosen, HandshakeError, ServerHandshake, ServerStep, Tls};
pub use uri::{Address, Uri, UriTls};

/// Block size constraints of an export, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this.
    pub minimum: u32,
    /// The length with the best throughput.
    pub preferred: u32,
    /// The longest read or write.
    pub maximum: u32,
}

/// An export as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name; the empty name is the default export.
    pub name: String,
    /// Description for people; may be empty.
    pub description: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Transmission flags. [`ExportFlags::SEND_DF`] is shown only to clients with structured
    /// replies.
    pub flags: ExportFlags,
    /// Block size constraints.
    pub block_sizes: BlockSizes,
    /// Whether it is available only under TLS.
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

/// Negotiated properties of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Whether replies are structured.
    pub structured: bool,
    /// Whether the metadata context `base:allocation`, and with it BLOCK_STATUS, was selected.
    pub base_allocation: bool,
}
