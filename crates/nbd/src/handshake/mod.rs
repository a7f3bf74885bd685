//! The handshake, from both sides.

pub mod client;
pub mod server;
#[cfg(test)]
mod tests;
