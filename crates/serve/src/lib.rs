//! The block layer under the real clock: exports over NBD.
//!
//! Each export is one thread with one request queue, so that its scheduler
//! sees the requests of all connections together, as a kernel's does those of
//! all processes.

mod attributes;
mod buffers;
mod channel;
mod client;
mod clock;
mod config;
mod connection;
mod control;
mod disk;
mod export_loop;
mod gate;
mod handshakes;
mod io;
mod listener;
mod load;
mod mailbox;
mod metrics;
mod moderation;
mod probed;
mod recorder;
mod replies;
mod sample;
mod server;
mod size;
mod spec;
mod stats;
mod store;
mod sysfs;
mod tls;

pub use config::{Backend, ExportConfig, FileEngine, Limits, Listen, ServerConfig};
pub use control::{ask, record};
pub use load::{LoadConfig, LoadReport, load};
pub use probed::Probed;
pub use recorder::RecordFormat;
pub use sample::{Rate, Sample};
pub use server::Server;
pub use size::parse_size;
pub use spec::{ExportSpec, LimitsSpec, ServerSpec};
pub use tls::{TlsMode, TlsSettings};
