//! A hash that is the same in every build: FNV-1a with 128 bits, because the standard library's may
//! differ between compilers, and machines share data sets.

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
        let bytes = text.bytes().chain([0xff]);
        let step = |hash: u128, byte| (hash ^ u128::from(byte)).wrapping_mul(Self::PRIME);
        StableHash(bytes.fold(self.0, step))
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
