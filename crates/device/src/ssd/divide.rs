//! Division by a number that is known only when the drive is built.

/// A divisor with its reciprocal (Lemire, Kaser and Kurz, "Faster remainder by
/// direct computation", 2019): a multiplication instead of a division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    by: u32,
    /// ceil(2^64 / by); zero stands for a division by one.
    reciprocal: u64,
}

impl Divisor {
    pub(crate) fn new(by: u32) -> Divisor {
        debug_assert!(by > 0);
        let reciprocal = match by {
            1 => 0,
            by => u64::MAX / by as u64 + 1,
        };
        Divisor { by, reciprocal }
    }

    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.by
    }

    /// Quotient and remainder.
    #[inline]
    pub(crate) fn split(&self, number: u32) -> (u32, u32) {
        let quotient = match self.reciprocal {
            0 => number,
            reciprocal => ((reciprocal as u128 * number as u128) >> 64) as u32,
        };
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
