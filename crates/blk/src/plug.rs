//! `Plug`: requests a submitter holds back for a moment, so that what follows
//! can be merged with them (`blk_start_plug`).

use crate::list::RqList;

/// Requests held back before they are let go (`BLK_MAX_REQUEST_COUNT`).
pub(crate) const MAX_REQUEST_COUNT: u32 = 32;
/// A held request this large ends the holding back (`BLK_PLUG_FLUSH_SIZE`).
pub(crate) const FLUSH_SIZE_BYTES: u64 = 128 * 1024;

/// One submitter's plug on one queue.
#[derive(Debug, Default)]
pub struct Plug {
    pub(crate) list: RqList,
}

impl Plug {
    /// An empty plug.
    pub fn new() -> Plug {
        Plug::default()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
