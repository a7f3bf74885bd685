//! Big-endian numbers at the front of a slice.

/// Takes numbers and pieces off the front of what is left.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.left
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (piece, left) = self.left.split_at_checked(len)?;
        self.left = left;
        Some(piece)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (piece, left) = self.left.split_first_chunk()?;
        self.left = left;
        Some(*piece)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string behind its length.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
}
