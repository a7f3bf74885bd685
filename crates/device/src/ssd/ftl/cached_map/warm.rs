//! What a cache held before the start, without a list of it.
//!
//! Of all keys from 0 on, some were used before the start, in random order. The
//! order is a permutation that can be asked both ways: a Feistel network (Luby
//! and Rackoff, SIAM Journal on Computing 17(2), 1988) over pairs of digits, of
//! which hardly more exist than there are keys, walked on where it leaves them
//! (Black and Rogaway: "Ciphers with arbitrary finite domains", CT-RSA 2002).
//! So the keys that are left are those before one place of the order, and the
//! key at that place is the one used longest ago.

use crate::ssd::rng::Rng;

/// Luby and Rackoff: four rounds look random from both ends.
const ROUNDS: usize = 4;

/// The keys that are left from before the start, last used first, and among
/// them those that were used since.
#[derive(Clone, Debug)]
pub(crate) struct Warm {
    order: Order,
    left: u32,
}

impl Warm {
    /// `held` of `all` keys, or all if there are no more, drawn from a seed.
    pub(crate) fn new(seed: u64, held: u32, all: u32) -> Warm {
        Warm {
            order: Order::new(seed, all),
            left: held.min(all),
        }
    }

    /// Whether a key that was not used since the start is still here.
    pub(crate) fn holds(&self, key: u32) -> bool {
        self.left > 0 && self.order.place(key) < self.left
    }

    /// The key used longest ago goes; those that were used since are passed over.
    pub(crate) fn push_out(&mut self, was_used: impl Fn(u32) -> bool) {
        while self.left > 0 {
            self.left -= 1;
            if !was_used(self.order.key(self.left)) {
                break;
            }
        }
    }
}

/// A random order of keys.
#[derive(Clone, Debug)]
struct Order {
    keys: u32,
    /// A number is two digits of this base.
    base: u32,
    rounds: [u64; ROUNDS],
}

impl Order {
    fn new(seed: u64, keys: u32) -> Order {
        let mut rng = Rng::new(seed);
        let root = u64::from(keys).isqrt();
        let base = root + u64::from(root * root < u64::from(keys));
        Order {
            keys,
            base: base as u32,
            rounds: std::array::from_fn(|_| rng.next()),
        }
    }

    /// Where a key is in the order.
    fn place(&self, key: u32) -> u32 {
        self.walk(key, |mut left, mut right| {
            for round in self.rounds {
                let sum = left + self.draw(round, right);
                (left, right) = (
                    right,
                    if sum < self.base {
                        sum
                    } else {
                        sum - self.base
                    },
                );
            }
            (left, right)
        })
    }

    /// Which key is at a place of the order.
    fn key(&self, place: u32) -> u32 {
        self.walk(place, |mut left, mut right| {
            for round in self.rounds.into_iter().rev() {
                let draw = self.draw(round, left);
                let sum = if right < draw {
                    right + self.base
                } else {
                    right
                };
                (left, right) = (sum - draw, left);
            }
            (left, right)
        })
    }

    fn walk(&self, from: u32, step: impl Fn(u32, u32) -> (u32, u32)) -> u32 {
        let (mut left, mut right) = (from / self.base, from % self.base);
        loop {
            (left, right) = step(left, right);
            let number = u64::from(left) * u64::from(self.base) + u64::from(right);
            if number < u64::from(self.keys) {
                return number as u32;
            }
        }
    }

    fn draw(&self, round: u64, digit: u32) -> u32 {
        Rng::new(round ^ u64::from(digit)).below(self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_key_has_a_place_of_its_own(seed: u64, keys in 1u32..3000) {
            let order = Order::new(seed, keys);
            let mut seen = vec![false; keys as usize];
            for key in 0..keys {
                let place = order.place(key);
                prop_assert!(!std::mem::replace(&mut seen[place as usize], true));
                prop_assert_eq!(order.key(place), key);
            }
        }

        #[test]
        fn all_that_a_number_can_hold_have_a_place(seed: u64, key in 0..u32::MAX) {
            let order = Order::new(seed, u32::MAX);
            prop_assert_eq!(order.key(order.place(key)), key);
        }
    }

    #[test]
    fn places_do_not_follow_keys() {
        // Of 100 000 keys those at the first tenth of the places: how many are
        // in each run of 1000 keys, and how often two neighbours are.
        let order = Order::new(5, 100_000);
        let first = |key: u32| order.place(key) < 10_000;
        let runs = (0..100).map(|run| (run * 1000..(run + 1) * 1000).filter(|key| first(*key)));
        // Five deviations of a sample: 9.5 of 100.
        let counts: Vec<usize> = runs.map(Iterator::count).collect();
        assert!(counts.iter().all(|n| n.abs_diff(100) < 48), "{counts:?}");
        for apart in [1, 2, 64, 316, 317, 1000, 50_000] {
            let both = (0..100_000 - apart).filter(|key| first(*key) && first(key + apart));
            let (both, wanted) = (both.count(), (100_000 - apart) as usize / 100);
            assert!(both.abs_diff(wanted) < 160, "{apart} apart: {both}");
        }
    }
}
