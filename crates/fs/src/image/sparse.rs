//! An image in memory that stores only what is not zero, so that a file system as large as
//! a drive fits into memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::Storage;

/// The unit of storage.
const CHUNK_BYTES: u64 = 4096;

/// A disk that reads as zeroes where nothing was written.
#[derive(Debug)]
pub struct SparseDisk {
    size_bytes: u64,
    chunks: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl SparseDisk {
    /// A disk of that length.
    pub fn new(size_bytes: u64) -> SparseDisk {
        SparseDisk {
            size_bytes,
            chunks: RefCell::default(),
        }
    }

    /// Writes the stored chunks to another disk, at the same places.
    ///
    /// # Errors
    /// Those of the other disk.
    pub fn copy_to(&self, other: &impl Storage) -> io::Result<()> {
        for (chunk, bytes) in self.chunks.borrow().iter() {
            other.write_at(chunk * CHUNK_BYTES, bytes)?;
        }
        Ok(())
    }

    /// Splits `bytes` from `byte` on at chunk borders. Of each part: its chunk, its offset
    /// there, its offset in the whole, and its length.
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
            let in_chunk = (at % CHUNK_BYTES) as usize;
            let length = (bytes - done).min(CHUNK_BYTES as usize - in_chunk);
            let part = (at / CHUNK_BYTES, in_chunk, done, length);
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
        let chunks = self.chunks.borrow();
        for (chunk, from, to, length) in self.parts(byte, into.len())? {
            let into = &mut into[to..to + length];
            match chunks.get(&chunk) {
                Some(chunk) => into.copy_from_slice(&chunk[from..from + length]),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()> {
        let mut chunks = self.chunks.borrow_mut();
        for (chunk, to, at, length) in self.parts(byte, from.len())? {
            let from = &from[at..at + length];
            if !chunks.contains_key(&chunk) && from.iter().all(|byte| *byte == 0) {
                continue;
            }
            let blank = || vec![0; CHUNK_BYTES as usize].into_boxed_slice();
            let chunk = chunks.entry(chunk).or_insert_with(blank);
            chunk[to..to + length].copy_from_slice(from);
        }
        Ok(())
    }

    fn clear_at(&self, byte: u64, bytes: u64) -> io::Result<()> {
        let end = byte + bytes;
        let whole = byte.div_ceil(CHUNK_BYTES)..end / CHUNK_BYTES;
        if whole.is_empty() {
            return self.write_at(byte, &vec![0; bytes as usize]);
        }
        let behind = self.chunks.borrow_mut().split_off(&whole.start);
        let kept = behind.into_iter().filter(|(at, _)| *at >= whole.end);
        self.chunks.borrow_mut().extend(kept);
        let (head, tail) = (whole.start * CHUNK_BYTES, whole.end * CHUNK_BYTES);
        self.write_at(byte, &vec![0; (head - byte) as usize])?;
        self.write_at(tail, &vec![0; (end - tail) as usize])
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A storage with several owners.
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
