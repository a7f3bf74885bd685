//! Text in an image, whoever it belongs to or belonged to.

use crate::error::FsError;

use super::{Image, Storage};

/// What is looked through at once, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Whether a byte is one of a text: printable ASCII or a tab, as for strings(1).
const fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte <= b'~')
}

impl<S: Storage> Image<S> {
    /// Tells `found` of every text of at least `bytes_min` bytes, with the byte where
    /// it begins. A text longer than 1 MiB comes in pieces.
    ///
    /// # Errors
    /// [`FsError::Device`], and what `found` returns.
    pub fn strings<E: From<FsError>>(
        &self,
        bytes_min: usize,
        mut found: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut piece = vec![0; PIECE_BYTES.min(self.size_bytes as usize)];
        let mut text = Vec::new();
        let mut at = 0;
        while at < self.size_bytes {
            let bytes = (self.size_bytes - at).min(piece.len() as u64) as usize;
            self.read(at, &mut piece[..bytes])?;
            for (n, &byte) in piece[..bytes].iter().enumerate() {
                if is_text(byte) && text.len() < PIECE_BYTES {
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
