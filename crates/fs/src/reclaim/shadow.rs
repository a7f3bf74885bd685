//! What the page cache remembers of a page that was evicted, in place of it
//! (`pack_shadow` of Linux 6.12's `mm/workingset.c`).

/// Bits of an entry for the token and the group; the next bit is a flag.
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
    /// The memory cgroup whose clock it is.
    pub(super) group: u16,
}

/// Bits that the number of a group takes.
fn group_bits(groups: usize) -> u32 {
    usize::BITS - groups.saturating_sub(1).leading_zeros()
}

impl Shadow {
    pub(super) fn new(token: u32, flag: bool, group: u16) -> Shadow {
        Shadow {
            token,
            token_bits: BITS,
            flag,
            group,
        }
    }

    /// As a number, where there are this many groups.
    pub(super) fn pack(self, groups: usize) -> u32 {
        let with_group = self.token << group_bits(groups) | u32::from(self.group);
        with_group & ((1 << BITS) - 1) | u32::from(self.flag) << BITS
    }

    pub(super) fn unpack(packed: u32, groups: usize) -> Shadow {
        let group_bits = group_bits(groups);
        let with_group = packed & ((1 << BITS) - 1);
        Shadow {
            token: with_group >> group_bits,
            token_bits: BITS - group_bits,
            flag: packed >> BITS != 0,
            group: (with_group & ((1 << group_bits) - 1)) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_only_the_token_loses_bits() {
        for (groups, group, token_bits) in [(1, 0, 30), (2, 1, 29), (3, 2, 28), (256, 255, 22)] {
            for flag in [false, true] {
                let unpacked =
                    Shadow::unpack(Shadow::new(u32::MAX, flag, group).pack(groups), groups);
                let expected = Shadow {
                    token: (1 << token_bits) - 1,
                    token_bits,
                    flag,
                    group,
                };
                assert_eq!(unpacked, expected);
            }
        }
    }
}
