//! What the page cache remembers of a page that was evicted, in place of it
//! (`pack_shadow` of Linux 6.12's `mm/workingset.c`).

use crate::reclaim::lruvec::{Lruvec, Lruvecs};

/// Bits of an entry for the token and for whose it is; the next bit is a flag.
const BITS: u32 = 30;

/// The shadow entry of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shadow {
    /// The time of the eviction by the policy's clock, as far as there is room for it.
    pub(super) token: u32,
    /// How many bits of the token there are.
    pub(super) token_bits: u32,
    /// Whether the page belonged to the working set, or was read more than once.
    pub(super) flag: bool,
    /// The memory cgroup and the node whose clock it is.
    pub(super) of: Lruvec,
}

/// Bits that the number of one of these takes.
fn number_bits(lruvecs: Lruvecs) -> u32 {
    usize::BITS - lruvecs.count().saturating_sub(1).leading_zeros()
}

impl Shadow {
    pub(super) fn new(token: u32, flag: bool, of: Lruvec) -> Shadow {
        Shadow {
            token,
            token_bits: BITS,
            flag,
            of,
        }
    }

    /// As a number, where there are these nodes and groups.
    pub(super) fn pack(self, lruvecs: Lruvecs) -> u32 {
        let with_number = self.token << number_bits(lruvecs) | lruvecs.number(self.of) as u32;
        with_number & ((1 << BITS) - 1) | u32::from(self.flag) << BITS
    }

    pub(super) fn unpack(packed: u32, lruvecs: Lruvecs) -> Shadow {
        let number_bits = number_bits(lruvecs);
        let with_number = packed & ((1 << BITS) - 1);
        Shadow {
            token: with_number >> number_bits,
            token_bits: BITS - number_bits,
            flag: packed >> BITS != 0,
            of: lruvecs.at((with_number & ((1 << number_bits) - 1)) as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_only_the_token_loses_bits() {
        let sizes = [
            ((1, 1), (0, 0), 30),
            ((1, 2), (0, 1), 29),
            ((1, 3), (0, 2), 28),
            ((2, 3), (1, 2), 27),
            ((1, 256), (0, 255), 22),
            ((64, 256), (63, 255), 16),
        ];
        for ((nodes, groups), (node, group), token_bits) in sizes {
            let lruvecs = Lruvecs { nodes, groups };
            let of = Lruvec { node, group };
            for flag in [false, true] {
                let packed = Shadow::new(u32::MAX, flag, of).pack(lruvecs);
                let unpacked = Shadow::unpack(packed, lruvecs);
                let expected = Shadow {
                    token: (1 << token_bits) - 1,
                    token_bits,
                    flag,
                    of,
                };
                assert_eq!(unpacked, expected);
            }
        }
    }
}
