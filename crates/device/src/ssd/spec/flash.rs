//! `[flash]`: what the arrays do and how long it takes.

use super::MAX_US;
use blklab_description::{ReadError, Table};

/// `[flash]`
#[derive(Clone, Debug, PartialEq)]
pub struct FlashSpec {
    /// Array time of a read, one entry a page level (LSB, CSB, MSB, ...).
    pub read_ns: Vec<u64>,
    /// Array time of a program, likewise.
    pub program_ns: Vec<u64>,
    /// Time of an erase.
    pub erase_ns: u64,
    /// The smallest part that works on its own.
    pub interleave: Interleave,
    /// Which operations of planes of one die may run as one.
    pub multi_plane: MultiPlane,
    /// A die may read on while what it has read waits for the bus or is on it.
    pub cache_read: bool,
    /// A die may take the data of its next program while it is at the last.
    pub cache_program: bool,
    /// Whether collection may move a page within a plane without the channel.
    pub copyback: Copyback,
    /// How many operations behind the first of its queue such a command looks
    /// at for partners.
    pub multi_plane_reach: u32,
    /// Word lines of all planes that collection writes are programmed together.
    pub superpage: bool,
    /// Time to stop a program for a read; `None` where it cannot be stopped.
    pub program_suspend_ns: Option<u64>,
    /// Likewise an erase.
    pub erase_suspend_ns: Option<u64>,
    /// Not stopped when it would end this soon anyway.
    pub suspend_above_ns: u64,
}

/// The smallest part of the flash that executes a command of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    /// One command a package.
    Package,
    /// One a die (interleaved-die commands).
    Die,
    /// One a plane (asynchronous plane reads of 3D NAND).
    Plane,
}

/// Which pages ONFI's copyback commands may move: from the array to the page
/// register and back, always within a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copyback {
    /// None.
    None,
    /// Any.
    SamePlane,
    /// From odd pages to odd ones and from even to even.
    SameParity,
}

/// When planes of one die work as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiPlane {
    /// Never.
    None,
    /// At the same page of their blocks, as ONFI demands.
    SamePage,
    /// At any pages.
    Any,
}

pub(super) fn read_flash(table: &Table<'_>) -> Result<FlashSpec, ReadError> {
    let bits: usize = table.choice("cell", &[("slc", 1), ("mlc", 2), ("tlc", 3), ("qlc", 4)])?;
    let flash = FlashSpec {
        read_ns: table.micros_each("read_us", bits, MAX_US)?,
        program_ns: table.micros_each("program_us", bits, MAX_US)?,
        erase_ns: table.micros_above_zero("erase_us", MAX_US)?,
        interleave: table.choice(
            "interleave",
            &[
                ("package", Interleave::Package),
                ("die", Interleave::Die),
                ("plane", Interleave::Plane),
            ],
        )?,
        multi_plane: table.choice(
            "multi_plane",
            &[
                ("none", MultiPlane::None),
                ("same_page", MultiPlane::SamePage),
                ("any", MultiPlane::Any),
            ],
        )?,
        cache_read: table.flag_or("cache_read", false)?,
        cache_program: table.flag_or("cache_program", false)?,
        copyback: table.choice_or(
            "copyback",
            &[
                ("none", Copyback::None),
                ("same_plane", Copyback::SamePlane),
                ("same_parity", Copyback::SameParity),
            ],
            Copyback::None,
        )?,
        multi_plane_reach: table.int_or("multi_plane_reach", 1..=1024, 64)? as u32,
        superpage: table.flag_or("superpage", false)?,
        program_suspend_ns: table.micros_if_any("program_suspend_us", MAX_US)?,
        erase_suspend_ns: table.micros_if_any("erase_suspend_us", MAX_US)?,
        suspend_above_ns: table.micros_or("suspend_above_us", MAX_US, 0)?,
    };
    table.finish()?;
    Ok(flash)
}
