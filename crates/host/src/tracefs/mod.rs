//! The kernel's trace of its block layer, taken from tracefs's binary ring
//! buffers: no blktrace, no BPF, no debugfs, no kernel headers.

mod decode;
mod format;
mod page;
mod session;
mod split;

pub use decode::{Decoder, Kind, RequestEvent};
pub use format::{EventFormat, Field, FormatFault, PageFormat};
pub use page::{Page, PageFault, Record};
pub(crate) use session::check;
pub use session::{Recording, Session};
pub use split::Splitter;
