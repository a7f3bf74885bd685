//! `[channel]`: the bus between controller and packages.

use super::{Geometry, byte_ps};
use blklab_description::{ReadError, Table};

/// `[channel]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelSpec {
    /// Time of a byte of data, in picoseconds.
    pub byte_ps: u64,
    /// Command and address cycles of a read.
    pub read_command_ns: u64,
    /// Of a program.
    pub program_command_ns: u64,
    /// Of an erase.
    pub erase_command_ns: u64,
    /// Of every further plane of a multi-plane command.
    pub plane_command_ns: u64,
    /// Data is read from the page register in pieces of this size.
    pub codeword_bytes: u32,
    /// Idle dies get the commands of their reads before data that is ready goes.
    pub commands_first: bool,
}

pub(super) fn read_channel(
    table: &Table<'_>,
    geometry: &Geometry,
) -> Result<ChannelSpec, ReadError> {
    let rate_mt_s = table.number("rate_mt_s", 1.0..=10_000.0)?;
    let width_bits = table.int_or("width_bits", 8..=16, 8)?;
    if !matches!(width_bits, 8 | 16) {
        return Err(table.wrong("width_bits", "legal is 8 or 16"));
    }
    // The defaults are ONFI NV-DDR2's typical command, address and wait cycles.
    let channel = ChannelSpec {
        byte_ps: byte_ps(rate_mt_s * (width_bits / 8) as f64),
        read_command_ns: table.int_or("read_command_ns", 0..=100_000, 290)?,
        program_command_ns: table.int_or("program_command_ns", 0..=100_000, 361)?,
        erase_command_ns: table.int_or("erase_command_ns", 0..=100_000, 220)?,
        plane_command_ns: table.int_or("plane_command_ns", 0..=100_000, 650)?,
        codeword_bytes: table.int("codeword_bytes", 512..=65536)? as u32,
        commands_first: table.flag_or("commands_first", false)?,
    };
    if !channel.codeword_bytes.is_power_of_two() {
        return Err(table.wrong(
            "codeword_bytes",
            "legal is a power of two from 512 to 65536",
        ));
    }
    if channel.codeword_bytes > geometry.page_bytes {
        let problem = format!("legal is at most a page ({} bytes)", geometry.page_bytes);
        return Err(table.wrong("codeword_bytes", problem));
    }
    table.finish()?;
    Ok(channel)
}
