//! `[flash]` and `[channel]`: the commands and times of the flash, and the bus between
//! it and the controller.

use alloc::format;
use alloc::vec::Vec;

use blklab_description::{KeyType, flag, keys, nanos, number, one_or_each, whole, word};
use strum::{Display, EnumMessage, VariantArray};

use super::{Geometry, MAX_US};
use crate::spec::byte_ps;

/// Kind of cell, by its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Cell {
    /// One bit.
    Slc,
    /// Two bits.
    Mlc,
    /// Three bits.
    Tlc,
    /// Four bits.
    Qlc,
}

impl Cell {
    fn bits(self) -> usize {
        self as usize + 1
    }
}

/// The smallest part of the flash that executes a command of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Interleave {
    /// A package.
    Package,
    /// A die (interleaved-die commands).
    Die,
    /// A plane (asynchronous plane reads of 3D NAND).
    Plane,
}

/// Which multi-plane commands a die has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum MultiPlane {
    /// None.
    None,
    /// For the same page of each plane's block, as ONFI demands.
    SamePage,
    /// For any pages.
    Any,
}

/// What ONFI's copyback commands may move: a page from the array to the page
/// register and back, within a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Copyback {
    /// None: there is no copyback.
    None,
    /// Any page, to any other of its plane.
    SamePlane,
}

/// In which order a drive serves the transactions that wait for its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Scheduling {
    /// Strictly in order of arrival: nothing starts before everything older has started.
    Fcfs,
    /// In order of arrival on each die; dies do not wait for each other.
    OutOfOrder,
    /// Out of order, and reads before programs before erases on each die.
    ReadPriority,
    /// Out of order, and reads ordered by physical address (physically addressed queueing).
    Paq,
}

const MULTI_PLANE: &str = "several planes a die, flash.multi_plane = \"same_page\" or \"any\" and \
     flash.interleave = \"die\" or \"package\"";

keys! {
    /// Commands and times of the flash.
    #[derive(Clone, Debug, PartialEq)]
    pub struct FlashSpec(table, geometry: &Geometry) {
        /// Kind of cell, which decides the page levels.
        let cell: Cell = word();
        /// Array time of a read, one entry a page level (LSB, CSB, MSB, ...).
        pub read_ns: Vec<u64> as "read_us" = by_page_level(cell);
        /// Array time of a program, likewise.
        pub program_ns: Vec<u64> as "program_us" = by_page_level(cell);
        /// Time of an erase.
        pub erase_ns: u64 as "erase_us" = number(0.001..=MAX_US).map(nanos);
        /// The smallest part that executes a command of its own.
        pub interleave: Interleave = word();
        /// Which operations on planes of one die may run as one command.
        pub multi_plane: MultiPlane = word();
        /// ONFI's read cache command: a die reads the next page while the data of the last
        /// one waits for the bus or is on it.
        pub cache_read: bool = flag().or(false);
        /// ONFI's page cache program: a die takes the data of its next program while it
        /// executes the last.
        pub cache_program: bool = flag().or(false);
        /// Which pages collection may move within a plane without the channel.
        pub copyback: Copyback = word().or(Copyback::None);
        /// How many operations behind the first of a queue are searched for partners of a
        /// multi-plane command.
        pub multi_plane_reach: u32 = whole(1..=1024)
            .or(64)
            .needs(works_on_planes(geometry, multi_plane, interleave), MULTI_PLANE);
        /// Collection programs the word lines of all planes together.
        pub superpage: bool = flag().or(false);
        /// Time to suspend a program for a read; without it, programs cannot be suspended.
        pub program_suspend_ns: Option<u64> as "program_suspend_us" =
            number(0.0..=MAX_US).map(nanos).optional();
        /// Time to suspend an erase for a read; without it, erases cannot be suspended.
        pub erase_suspend_ns: Option<u64> as "erase_suspend_us" =
            number(0.0..=MAX_US).map(nanos).optional();
        /// An operation with no more than this time left is not suspended.
        pub suspend_above_ns: u64 as "suspend_above_us" = number(0.0..=MAX_US)
            .or(0.0)
            .map(nanos)
            .needs(
                program_suspend_ns.is_some() || erase_suspend_ns.is_some(),
                "flash.program_suspend_us or flash.erase_suspend_us",
            );
    }
}

fn by_page_level(cell: Cell) -> KeyType<'static, Vec<u64>> {
    let one = number(0.001..=MAX_US);
    one_or_each(cell.bits(), one, "one a bit of the cell")
        .map(|spans| spans.into_iter().map(nanos).collect())
        .documented("0.001 to 10000000, or an array of such, one a bit of the cell")
}

/// Whether there are multi-plane commands.
fn works_on_planes(geometry: &Geometry, multi_plane: MultiPlane, interleave: Interleave) -> bool {
    multi_plane != MultiPlane::None
        && geometry.planes_per_die > 1
        && interleave != Interleave::Plane
}

impl FlashSpec {
    /// Whether programs or erases can be suspended for a read.
    pub(super) fn suspends(&self) -> bool {
        self.program_suspend_ns.is_some() || self.erase_suspend_ns.is_some()
    }
}

keys! {
    /// The bus between controller and packages. The defaults are ONFI NV-DDR2's
    /// typical command, address and wait cycles.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ChannelSpec(
        table,
        geometry: &Geometry,
        flash: &FlashSpec,
        scheduling: Scheduling,
    ) {
        /// Transfers a second.
        let rate_mt_s: f64 = number(1.0..=10_000.0);
        /// Bits of a transfer.
        let width_bits: u32 = whole(8..=16)
            .or(8)
            .such_that(|bits: &u32| matches!(bits, 8 | 16), "8 or 16")
            .documented("8 or 16");
        /// Time of a byte of data, in picoseconds.
        pub byte_ps: u64 => byte_ps(rate_mt_s * (width_bits / 8) as f64);
        /// Command and address cycles of a read.
        pub read_command_ns: u64 = whole(0..=100_000).or(290);
        /// Command and address cycles of a program.
        pub program_command_ns: u64 = whole(0..=100_000).or(361);
        /// Command and address cycles of an erase.
        pub erase_command_ns: u64 = whole(0..=100_000).or(220);
        /// Command and address cycles of every further plane of a multi-plane command.
        pub plane_command_ns: u64 = whole(0..=100_000).or(650).needs(
            works_on_planes(geometry, flash.multi_plane, flash.interleave),
            MULTI_PLANE,
        );
        /// Size of a codeword, the least that is read from the page register.
        pub codeword_bytes: u32 = whole(512..=65536)
            .such_that(|bytes: &u32| bytes.is_power_of_two(), "a power of two from 512 to 65536")
            .such_that(
                |bytes: &u32| *bytes <= geometry.page_bytes,
                format!("at most a page ({} bytes)", geometry.page_bytes),
            )
            .documented("a power of two from 512 to the page");
        /// Idle dies get the commands of their reads before data that is ready goes out.
        pub commands_first: bool = flag().or(false).needs(
            scheduling != Scheduling::Paq,
            "controller.scheduling other than \"paq\", which sends them first itself",
        );
    }
}
