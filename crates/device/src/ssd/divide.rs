//! Division by a number that is known only when the drive is built.

/// A divisor with its reciprocal: a multiplication instead of a division
/// (Robison, "N-bit unsigned division via N-bit multiply-add", ARITH 2005).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    by: u32,
    /// (2^64 - 1) / by, rounded down: a little too small, so that the next
    /// number's product is a little less than its quotient, and no divisor is a
    /// case of its own.
    reciprocal: u64,
}

impl Divisor {
    pub(crate) fn new(by: u32) -> Divisor {
        debug_assert!(by > 0);
        Divisor {
            by,
            reciprocal: u64::MAX / by as u64,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.by
    }

    /// Quotient and remainder.
    #[inline]
    pub(crate) fn split(&self, number: u32) -> (u32, u32) {
        let quotient = (self.reciprocal as u128 * (number as u64 + 1) as u128) >> 64;
        let quotient = quotient as u32;
        (quotient, number - quotient * self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_divides(by in 1u32.., number: u32) {
            prop_assert_eq!(Divisor::new(by).split(number), (number / by, number % by));
        }

        #[test]
        fn it_divides_by_small_numbers(by in 1u32..5000, number: u32) {
            prop_assert_eq!(Divisor::new(by).split(number), (number / by, number % by));
        }
    }
}
