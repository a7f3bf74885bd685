//! Numbers for tests that record what happens.

/// Numbers that look random, the same each time (the linear congruence of Knuth's MMIX).
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns the next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}
