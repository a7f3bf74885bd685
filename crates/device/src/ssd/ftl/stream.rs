//! Who writes: each stream has a block of its own in every plane.

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Host,
    Collection,
    /// The host's data in the SLC cache.
    Slc,
    /// Data that static wear levelling moves.
    Wear,
    /// The host's data in a sequential log of this number (see
    /// [`crate::ssd::ftl::hybrid`]).
    Sequential(u8),
}

/// Sequential logs that a plane may have.
const MOST_SEQUENTIAL: usize = 8;
/// Streams there are.
pub(in crate::ssd) const STREAMS: usize = 4 + MOST_SEQUENTIAL;

impl Stream {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Stream> {
        let sequential = (0..MOST_SEQUENTIAL as u8).map(Stream::Sequential);
        [Stream::Host, Stream::Collection, Stream::Slc, Stream::Wear]
            .into_iter()
            .chain(sequential)
    }

    /// Its place among all.
    #[inline]
    pub(crate) fn index(self) -> usize {
        match self {
            Stream::Host => 0,
            Stream::Collection => 1,
            Stream::Slc => 2,
            Stream::Wear => 3,
            Stream::Sequential(number) => 4 + number as usize,
        }
    }

    /// Whether it carries data of the host's from DRAM.
    #[inline]
    pub(crate) fn is_of_host(self) -> bool {
        !matches!(self, Stream::Collection | Stream::Wear)
    }
}
