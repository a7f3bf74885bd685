//! The kernel's trace of its block layer, taken from tracefs's binary ring
//! buffers: no blktrace, no BPF, no debugfs, no kernel headers.

mod decode;
mod event;
mod format;
mod page;
#[cfg(all(test, target_endian = "little"))]
mod recorded;
mod session;
mod split;
mod text;

pub use decode::{COMM_BYTES, Decoder, Kind, RequestEvent};
pub use event::trace_event;
pub use format::{EventFormat, Field, FormatFault, PageFormat};
pub use page::{Page, PageFault, Record};
pub use session::{Recording, Session, Sink, check};
pub use split::Splitter;
pub(crate) use split::name as comm_name;
pub use text::TextWriter;
