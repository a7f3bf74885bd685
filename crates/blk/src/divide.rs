//! Division of addresses by a number that a tunable or the drive's size gives.

/// A divisor with its reciprocal: a division would be a fifth of what an insert
/// costs.
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    by: u64,
    /// 2^64 over that.
    reciprocal: u64,
}

impl Divisor {
    /// By a number; by one where that is zero.
    pub fn new(by: u64) -> Divisor {
        let by = by.max(1);
        Divisor {
            by,
            reciprocal: u64::MAX / by,
        }
    }

    /// The number itself.
    #[inline]
    pub fn get(self) -> u64 {
        self.by
    }

    /// Quotient and remainder. The product is the quotient, or one less.
    #[inline]
    pub fn split(self, number: u64) -> (u64, u64) {
        let quotient = ((number as u128 * self.reciprocal as u128) >> 64) as u64;
        let rest = number - quotient * self.by;
        let one_more = rest >= self.by;
        (quotient + one_more as u64, rest - one_more as u64 * self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_divides() {
        for by in [1, 2, 3, 8, 1000, (1 << 26) - 1, 1 << 40, u64::MAX / 2] {
            let edges = [0, 1, by - 1, by, 7 * (by / 7), u64::MAX - 1, u64::MAX];
            for number in edges.into_iter().chain((1..9).map(|i| i * (by / 4))) {
                let divided = Divisor::new(by).split(number);
                assert_eq!(divided, (number / by, number % by), "{number}/{by}");
            }
        }
    }
}
