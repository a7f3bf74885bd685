//! A hash that is the same in every build: FNV-1a with 128 bits, because the standard library's may
//! differ between compilers, and machines share data sets.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The hash of the texts that were added.
#[derive(Clone, Copy)]
pub(crate) struct StableHash(u128);

impl Default for StableHash {
    fn default() -> StableHash {
        StableHash(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl StableHash {
    const PRIME: u128 = (1 << 88) + 0x13b;

    /// Returns the hash with a text added; its end is marked with a byte that no text has.
    pub(crate) fn with(self, text: &str) -> StableHash {
        text.bytes().chain([0xff]).fold(self, StableHash::step)
    }

    /// Returns the hash of a file's bytes.
    pub(crate) fn of_file(path: &Path) -> std::io::Result<StableHash> {
        let mut file = BufReader::new(File::open(path)?);
        let mut hash = StableHash::default();
        loop {
            let bytes = file.fill_buf()?;
            let read = bytes.len();
            if read == 0 {
                return Ok(hash);
            }
            hash = bytes.iter().fold(hash, |hash, byte| hash.step(*byte));
            file.consume(read);
        }
    }

    fn step(self, byte: u8) -> StableHash {
        StableHash((self.0 ^ u128::from(byte)).wrapping_mul(Self::PRIME))
    }

    pub(crate) fn bits(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        // The hash of no bytes, and of one: http://www.isthe.com/chongo/tech/comp/fnv/.
        let none = StableHash::default();
        assert_eq!(none.bits(), 0x6c62272e07bb014262b821756295c58d);
        let (one, two) = (none.with("a").with("b"), none.with("ab"));
        assert_ne!(one.bits(), two.bits());
        assert_eq!(one.bits(), none.with("a").with("b").bits());
    }
}
