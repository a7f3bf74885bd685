//! Buffers for data on its way, kept for reuse.

use std::ops::{Deref, DerefMut};

/// Direct I/O wants memory that starts at a block.
const ALIGN: usize = 4096;
/// The smallest class.
const MIN_CLASS_BITS: u32 = 12;
/// Classes: up to 64 MiB.
const CLASSES: usize = 15;
/// Bytes of unused buffers that are kept.
const KEEP_BYTES: usize = 16 << 20;

/// Memory for one piece of data, aligned for direct I/O.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Without memory, for requests that move no data.
    pub(crate) fn empty() -> Buffer {
        Buffer::default()
    }

    /// Gives up what is behind the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Its memory, for the kernel to fill or to write.
    pub(crate) fn into_piece(self) -> blklab_uring::Piece {
        blklab_uring::Piece {
            memory: self.memory,
            start: self.start,
            len: self.len,
        }
    }

    /// The memory that the kernel is done with.
    pub(crate) fn from_piece(piece: blklab_uring::Piece) -> Buffer {
        Buffer {
            memory: piece.memory,
            start: piece.start,
            len: piece.len,
        }
    }

    fn with_capacity(capacity: usize) -> Buffer {
        let memory = vec![0; capacity + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Buffer {
            memory,
            start,
            len: 0,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Unused buffers, by size.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: [Vec<Buffer>; CLASSES],
    kept_bytes: usize,
}

fn class_of(len: usize) -> usize {
    let bits = len.next_power_of_two().trailing_zeros();
    bits.saturating_sub(MIN_CLASS_BITS) as usize
}

impl Buffers {
    /// A buffer of `len` bytes that hold anything.
    pub(crate) fn get(&mut self, len: usize) -> Buffer {
        if len == 0 {
            return Buffer::empty();
        }
        let class = class_of(len);
        let capacity = 1usize << (class as u32 + MIN_CLASS_BITS);
        let kept = self.free.get_mut(class).and_then(Vec::pop);
        if kept.is_some() {
            self.kept_bytes -= capacity;
        }
        let mut buffer = kept.unwrap_or_else(|| Buffer::with_capacity(capacity));
        buffer.len = len;
        buffer
    }

    /// Takes one back.
    pub(crate) fn put(&mut self, buffer: Buffer) {
        if buffer.memory.is_empty() {
            return;
        }
        let capacity = buffer.memory.len() - ALIGN;
        let class = class_of(capacity);
        if self.kept_bytes + capacity <= KEEP_BYTES
            && let Some(free) = self.free.get_mut(class)
        {
            self.kept_bytes += capacity;
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let mut buffers = Buffers::default();
        for len in [1, 4096, 4097, 100_000, 32 << 20] {
            let buffer = buffers.get(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGN), 0);
            let at = buffer.as_ptr();
            buffers.put(buffer);
            if len <= 100_000 {
                let again = buffers.get(len);
                assert_eq!(again.as_ptr(), at);
                buffers.put(again);
            }
        }
        assert!(buffers.kept_bytes <= KEEP_BYTES);
        assert!(buffers.get(0).is_empty());
    }
}
