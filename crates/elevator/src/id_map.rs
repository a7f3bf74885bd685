//! A map from numbers (blocks, processes) that is looked up for each request.
//! Nothing iterates over it, so the order inside decides nothing.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from numbers.
pub type IdMap<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;

/// One multiplication: numbers need no more to be spread.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(b as u64));
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}
