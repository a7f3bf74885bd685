//! What an export counts.

use blklab_nbd::wire::Command;
use blklab_stats::Histogram;

/// Names of the kinds that latency is told of.
pub(crate) const KINDS: [&str; 5] = ["read", "write", "flush", "trim", "zero"];

/// Counters of one export.
#[derive(Default)]
pub(crate) struct Stats {
    /// Requests answered, by kind.
    pub(crate) requests: [u64; 5],
    /// Bytes, by kind.
    pub(crate) bytes: [u64; 5],
    /// Time from the request to its reply, by kind.
    pub(crate) latency: [Histogram; 5],
    /// Requests answered with an error.
    pub(crate) errors: u64,
    /// Connections, ever.
    pub(crate) connections_total: u64,
    /// Connections, now.
    pub(crate) connections: u64,
    /// Connections that broke the protocol.
    pub(crate) protocol_errors: u64,
    /// Turns of the event loop.
    pub(crate) turns: u64,
}

/// The index of a command's kind; `None` for what moves no data.
pub(crate) fn kind_of(command: Command) -> Option<usize> {
    Some(match command {
        Command::Read => 0,
        Command::Write => 1,
        Command::Flush => 2,
        Command::Trim => 3,
        Command::WriteZeroes => 4,
        _ => return None,
    })
}
