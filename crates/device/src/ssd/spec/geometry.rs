//! The geometry of the flash, and in which order addresses run over it.

use blklab_description::{keys, whole};
use strum::{Display, EnumMessage, VariantArray};

keys! {
    /// Number of channels, packages, dies, planes, blocks and pages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Geometry(table) {
        /// Channels, each a bus between controller and packages.
        pub channels: u32 = whole(1..=64);
        /// Packages ("ways") on a channel.
        pub packages_per_channel: u32 = whole(1..=64);
        /// Dies in a package.
        pub dies_per_package: u32 = whole(1..=32);
        /// Planes in a die.
        pub planes_per_die: u32 = whole(1..=8);
        /// Blocks in a plane, the unit of an erase.
        pub blocks_per_plane: u32 = whole(4..=1 << 20);
        /// Pages in a block, the unit of a program.
        pub pages_per_block: u32 = whole(1..=16384);
        /// Size of a page.
        pub page_bytes: u32 as "page_kb" = whole(1..=64)
            .such_that(|kb: &u32| kb.is_power_of_two(), "a power of two from 1 to 64")
            .documented("a power of two from 1 to 64")
            .map(|kb| kb * 1024);
        /// Parts of a physical page. Each counts as a page; the physical page is programmed
        /// as a whole, and sensed for each part.
        pub page_parts: u32 = whole(1..=16)
            .or(1)
            .such_that(
                |parts: &u32| parts.is_power_of_two() && pages_per_block.is_multiple_of(*parts),
                "a power of two from 1 to 16 that divides pages_per_block",
            )
            .documented("a power of two from 1 to 16 that divides pages_per_block");
    }
}

impl Geometry {
    /// Dies on a channel.
    pub fn dies_per_channel(&self) -> u32 {
        self.packages_per_channel * self.dies_per_package
    }

    /// Planes in a package.
    pub fn planes_per_package(&self) -> u32 {
        self.dies_per_package * self.planes_per_die
    }

    /// Whether two planes are in one package.
    pub(crate) fn same_package(&self, a: u32, b: u32) -> bool {
        a / self.planes_per_package() == b / self.planes_per_package()
    }

    /// Planes on a channel.
    pub fn planes_per_channel(&self) -> u32 {
        self.dies_per_channel() * self.planes_per_die
    }

    /// All planes.
    pub fn planes(&self) -> u32 {
        self.channels * self.planes_per_channel()
    }

    /// All blocks.
    pub fn blocks(&self) -> u64 {
        self.planes() as u64 * self.blocks_per_plane as u64
    }

    /// The number of positions on an axis.
    pub(crate) fn size(&self, axis: Axis) -> u32 {
        match axis {
            Axis::Channel => self.channels,
            Axis::Way => self.packages_per_channel,
            Axis::Die => self.dies_per_package,
            Axis::Plane => self.planes_per_die,
        }
    }
}

/// A direction in which addresses can run over the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Over channels.
    Channel,
    /// Over the packages of a channel.
    Way,
    /// Over the dies of a package.
    Die,
    /// Over the planes of a die.
    Plane,
}

impl Axis {
    /// Reads `"CWDP"` and its permutations: the first letter runs fastest.
    pub fn parse_order(text: &str) -> Option<[Axis; 4]> {
        let mut order = [Axis::Channel; 4];
        let mut seen = [false; 4];
        if text.len() != 4 {
            return None;
        }
        for (place, letter) in order.iter_mut().zip(text.chars()) {
            *place = match letter {
                'C' => Axis::Channel,
                'W' => Axis::Way,
                'D' => Axis::Die,
                'P' => Axis::Plane,
                _ => return None,
            };
            let first_time = !core::mem::replace(&mut seen[*place as usize], true);
            if !first_time {
                return None;
            }
        }
        Some(order)
    }
}

/// How logical addresses are spread over channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Layout {
    /// Page after page goes to the next place in the order, as real drives do.
    Striped,
    /// Every channel holds one contiguous range, as document 002 assumes.
    Ranges,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations() {
        assert!(Axis::parse_order("CWDP").is_some());
        for wrong in ["", "CWD", "CWDD", "CWDPP", "cwdp", "CWDX"] {
            assert_eq!(Axis::parse_order(wrong), None, "{wrong}");
        }
    }
}
