//! Text anywhere in an image, of files that exist and of deleted ones, as strings(1) finds
//! it.

use crate::error::FsError;

use super::{Image, Storage};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Whether a byte belongs to a text: printable ASCII or a tab, as for strings(1).
const fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte <= b'~')
}

impl<S: Storage> Image<S> {
    /// Calls `found` with every text of at least `bytes_min` bytes and its first byte in the
    /// image. A text longer than 1 MiB is split.
    ///
    /// # Errors
    /// [`FsError::Device`], and what `found` returns.
    pub fn strings<E: From<FsError>>(
        &self,
        bytes_min: usize,
        mut found: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut chunk = vec![0; CHUNK_BYTES.min(self.size_bytes as usize)];
        let mut text = Vec::new();
        let mut at = 0;
        while at < self.size_bytes {
            let bytes = (self.size_bytes - at).min(chunk.len() as u64) as usize;
            self.read(at, &mut chunk[..bytes])?;
            for (n, &byte) in chunk[..bytes].iter().enumerate() {
                if is_text(byte) && text.len() < CHUNK_BYTES {
                    text.push(byte);
                    continue;
                }
                if text.len() >= bytes_min {
                    found(at + n as u64 - text.len() as u64, &text)?;
                }
                text.clear();
                if is_text(byte) {
                    text.push(byte);
                }
            }
            at += bytes as u64;
        }
        if text.len() >= bytes_min {
            found(at - text.len() as u64, &text)?;
        }
        Ok(())
    }
}
