//! `[link]`: the cable between host and drive.

use super::{MAX_US, byte_ps};
use blklab_description::{ReadError, Table};

/// `[link]`: between host and drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Time of a byte, in picoseconds.
    pub byte_ps: u64,
    /// Data flows both ways at once.
    pub full_duplex: bool,
    /// From the host's doorbell to the command in the controller.
    pub submit_ns: u64,
    /// From the last byte to the host's notice of the end.
    pub complete_ns: u64,
}

pub(super) fn read_link(table: &Table<'_>) -> Result<LinkSpec, ReadError> {
    let mut link = LinkSpec {
        byte_ps: byte_ps(table.number("bandwidth_mb_s", 1.0..=1e6)?),
        full_duplex: table.flag_or("full_duplex", false)?,
        submit_ns: table.micros("submit_us", MAX_US)?,
        complete_ns: table.micros("complete_us", MAX_US)?,
    };
    // In no time a job whose commands follow each other would never see the end
    // of its run.
    if link.submit_ns + link.complete_ns == 0 {
        link.complete_ns = 1;
    }
    table.finish()?;
    Ok(link)
}
