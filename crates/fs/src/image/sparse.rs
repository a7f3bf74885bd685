//! An image in memory that keeps only what is not zero: a drive's worth of file system
//! without a drive's worth of memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::Storage;

/// The unit in which it keeps bytes.
const PIECE_BYTES: u64 = 4096;

/// A disk of zeroes, and what was written to it.
#[derive(Debug)]
pub struct SparseDisk {
    size_bytes: u64,
    pieces: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl SparseDisk {
    /// A disk of that length.
    pub fn new(size_bytes: u64) -> SparseDisk {
        SparseDisk {
            size_bytes,
            pieces: RefCell::default(),
        }
    }

    /// Writes what it keeps to another disk, at the same places.
    ///
    /// # Errors
    /// Those of the other disk.
    pub fn copy_to(&self, other: &impl Storage) -> io::Result<()> {
        for (piece, bytes) in self.pieces.borrow().iter() {
            other.write_at(piece * PIECE_BYTES, bytes)?;
        }
        Ok(())
    }

    /// The parts of `bytes` from `byte` on: the piece that each lies in, where it begins
    /// there and in the whole, and its length.
    fn parts(
        &self,
        byte: u64,
        bytes: usize,
    ) -> io::Result<impl Iterator<Item = (u64, usize, usize, usize)> + use<>> {
        let end = byte.checked_add(bytes as u64);
        if end.is_none_or(|end| end > self.size_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        Ok(std::iter::from_fn(move || {
            let at = byte + done as u64;
            let in_piece = (at % PIECE_BYTES) as usize;
            let length = (bytes - done).min(PIECE_BYTES as usize - in_piece);
            let part = (at / PIECE_BYTES, in_piece, done, length);
            done += length;
            (length > 0).then_some(part)
        }))
    }
}

impl Storage for SparseDisk {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.size_bytes)
    }

    fn read_at(&self, byte: u64, into: &mut [u8]) -> io::Result<()> {
        let pieces = self.pieces.borrow();
        for (piece, from, to, length) in self.parts(byte, into.len())? {
            let into = &mut into[to..to + length];
            match pieces.get(&piece) {
                Some(piece) => into.copy_from_slice(&piece[from..from + length]),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()> {
        let mut pieces = self.pieces.borrow_mut();
        for (piece, to, at, length) in self.parts(byte, from.len())? {
            let from = &from[at..at + length];
            if !pieces.contains_key(&piece) && from.iter().all(|byte| *byte == 0) {
                continue;
            }
            let blank = || vec![0; PIECE_BYTES as usize].into_boxed_slice();
            let piece = pieces.entry(piece).or_insert_with(blank);
            piece[to..to + length].copy_from_slice(from);
        }
        Ok(())
    }

    fn clear_at(&self, byte: u64, bytes: u64) -> io::Result<()> {
        let end = byte + bytes;
        let whole = byte.div_ceil(PIECE_BYTES)..end / PIECE_BYTES;
        if whole.is_empty() {
            return self.write_at(byte, &vec![0; bytes as usize]);
        }
        let behind = self.pieces.borrow_mut().split_off(&whole.start);
        let kept = behind.into_iter().filter(|(at, _)| *at >= whole.end);
        self.pieces.borrow_mut().extend(kept);
        let (head, tail) = (whole.start * PIECE_BYTES, whole.end * PIECE_BYTES);
        self.write_at(byte, &vec![0; (head - byte) as usize])?;
        self.write_at(tail, &vec![0; (end - tail) as usize])
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A disk that several have.
impl<S: Storage> Storage for Rc<S> {
    fn size_bytes(&self) -> io::Result<u64> {
        (**self).size_bytes()
    }

    fn read_at(&self, byte: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(byte, into)
    }

    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()> {
        (**self).write_at(byte, from)
    }

    fn clear_at(&self, byte: u64, bytes: u64) -> io::Result<()> {
        (**self).clear_at(byte, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}
