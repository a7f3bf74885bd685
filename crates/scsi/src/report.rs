//! READ CAPACITY and the REPORT commands.

use crate::command::{COMMANDS, Opcodes, Supported};
use crate::sense::Sense;
use crate::unit::Disk;

/// Bytes of a command timeouts descriptor, whose values are all "not reported".
const TIMEOUTS_BYTES: usize = 12;
/// CTDP: a command timeouts descriptor follows.
const WITH_TIMEOUTS: u8 = 0x80;
/// SUPPORT: the command is supported in conformance with a standard, or not supported.
const SUPPORTED: u8 = 3;
const UNSUPPORTED: u8 = 1;

/// Returns the answer to READ CAPACITY(10) (SBC-3, section 5.15).
pub(crate) fn capacity_10(disk: &Disk) -> Vec<u8> {
    // All ones: the capacity needs READ CAPACITY(16).
    let last = u32::try_from(disk.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    [last.to_be_bytes(), disk.block_bytes.to_be_bytes()].concat()
}

/// Returns the answer to READ CAPACITY(16) (SBC-3, section 5.16).
pub(crate) fn capacity_16(disk: &Disk) -> Vec<u8> {
    let mut data = vec![0; 32];
    let last = disk.blocks.saturating_sub(1);
    data[..8].copy_from_slice(&last.to_be_bytes());
    data[8..12].copy_from_slice(&disk.block_bytes.to_be_bytes());
    data[13] = disk.physical_blocks().ilog2() as u8;
    // LBPME: logical block provisioning.
    data[14] = u8::from(disk.unmaps) * 0x80;
    data
}

/// Returns the answer to GET LBA STATUS (SBC-3, section 5.7): all blocks from `lba` on count as
/// mapped, because back ends do not tell.
pub(crate) fn lba_status(disk: &Disk, lba: u64) -> Vec<u8> {
    let mut data = vec![0; 24];
    let blocks = u32::try_from(disk.blocks - lba).unwrap_or(u32::MAX);
    data[3] = 20;
    data[8..16].copy_from_slice(&lba.to_be_bytes());
    data[16..20].copy_from_slice(&blocks.to_be_bytes());
    data
}

/// Returns the answer to REPORT LUNS (SPC-4, section 6.33): unit 0 is the only one.
pub(crate) fn luns(select: u8) -> Result<Vec<u8>, Sense> {
    match select {
        // Addressable logical units, or all logical units.
        0 | 2 => Ok([[0, 0, 0, 8, 0, 0, 0, 0], [0; 8]].concat()),
        // Well-known logical units; there are none.
        1 => Ok(vec![0; 8]),
        _ => Err(Sense::invalid_field(2)),
    }
}

/// Returns the answer to REPORT SUPPORTED OPERATION CODES (SPC-4, section 6.27).
pub(crate) fn opcodes(disk: &Disk, which: Opcodes, with_timeouts: bool) -> Result<Vec<u8>, Sense> {
    let (opcode, action) = match which {
        Opcodes::All => return Ok(all_opcodes(disk, with_timeouts)),
        Opcodes::One(opcode) => (opcode, None),
        Opcodes::Action(opcode, action) | Opcodes::Either(opcode, action) => (opcode, Some(action)),
    };
    let has_actions = |one: &Supported| one.service_action.is_some();
    let mut same = COMMANDS
        .iter()
        .filter(|one| one.opcode() == opcode && disk.has(one));
    if let Some(first) = same.clone().next() {
        let mistaken = match which {
            Opcodes::One(_) => has_actions(first),
            Opcodes::Action(..) => !has_actions(first),
            _ => false,
        };
        if mistaken {
            return Err(Sense::invalid_field(2));
        }
    }
    let found = same.find(|one| match one.service_action {
        Some(own) => action == Some(own.into()),
        None => action.is_none_or(|action| action == 0),
    });
    let flags = u8::from(with_timeouts) * WITH_TIMEOUTS;
    let Some(found) = found else {
        return Ok(vec![0, UNSUPPORTED, 0, 0]);
    };
    let length = found.usage.len() as u8;
    let mut data = vec![0, flags | SUPPORTED, 0, length];
    data.extend(found.usage);
    if with_timeouts {
        data.extend(timeouts());
    }
    Ok(data)
}

fn all_opcodes(disk: &Disk, with_timeouts: bool) -> Vec<u8> {
    let mut list = Vec::new();
    for one in COMMANDS.iter().filter(|one| disk.has(one)) {
        let action = u16::from(one.service_action.unwrap_or(0)).to_be_bytes();
        // SERVACTV and CTDP.
        let flags = u8::from(one.service_action.is_some()) + 2 * u8::from(with_timeouts);
        list.extend([one.opcode(), 0, action[0], action[1], 0, flags]);
        list.extend([0, one.usage.len() as u8]);
        if with_timeouts {
            list.extend(timeouts());
        }
    }
    [&(list.len() as u32).to_be_bytes()[..], &list].concat()
}

fn timeouts() -> [u8; TIMEOUTS_BYTES] {
    let mut descriptor = [0; TIMEOUTS_BYTES];
    descriptor[1] = TIMEOUTS_BYTES as u8 - 2;
    descriptor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(blocks: u64) -> Disk {
        Disk {
            blocks,
            block_bytes: 512,
            physical_block_bytes: 4096,
            max_transfer_bytes: 1 << 20,
            read_only: false,
            rotational: false,
            unmaps: true,
            name: String::new(),
        }
    }

    #[test]
    fn capacities_have_sbc_s_layout() {
        assert_eq!(capacity_10(&disk(0x0102_0305)), [1, 2, 3, 4, 0, 0, 2, 0]);
        let large = disk(0x0000_0102_0304_0506);
        assert_eq!(capacity_10(&large)[..4], [0xff; 4]);
        let data = capacity_16(&large);
        assert_eq!(data.len(), 32);
        assert_eq!(data[..12], [0, 0, 1, 2, 3, 4, 5, 5, 0, 0, 2, 0]);
        // Eight blocks are a physical one; blocks can be unmapped.
        assert_eq!(data[12..], [&[0, 3, 0x80, 0][..], &[0; 16]].concat());
    }

    #[test]
    fn the_status_of_blocks_reaches_to_the_end() {
        let data = lba_status(&disk(0x200), 0x1ff);
        assert_eq!(data[..8], [0, 0, 0, 20, 0, 0, 0, 0]);
        assert_eq!(data[8..16], 0x1ff_u64.to_be_bytes());
        assert_eq!(data[16..], [0, 0, 0, 1, 0, 0, 0, 0]);
        let far = lba_status(&disk(1 << 40), 0);
        assert_eq!(far[16..20], [0xff; 4]);
    }

    #[test]
    fn one_unit_is_reported() {
        let one = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(luns(0), Ok(one.to_vec()));
        assert_eq!(luns(2), Ok(one.to_vec()));
        assert_eq!(luns(1), Ok(vec![0; 8]));
        assert_eq!(luns(3), Err(Sense::invalid_field(2)));
    }

    #[test]
    fn each_command_is_reported_with_its_bits() {
        let (disk, timeouts) = (disk(1), false);
        let one = |which| opcodes(&disk, which, timeouts);
        assert_eq!(
            one(Opcodes::One(0x00)),
            Ok(vec![0, 3, 0, 6, 0, 0, 0, 0, 0, 0])
        );
        // FORMAT UNIT is not there.
        assert_eq!(one(Opcodes::One(0x04)), Ok(vec![0, 1, 0, 0]));
        assert_eq!(one(Opcodes::One(0x9e)), Err(Sense::invalid_field(2)));
        assert_eq!(one(Opcodes::Action(0x28, 0)), Err(Sense::invalid_field(2)));
        let capacity = one(Opcodes::Action(0x9e, 0x10)).expect("a command");
        assert_eq!(capacity[..6], [0, 3, 0, 16, 0x9e, 0x10]);
        assert_eq!(one(Opcodes::Either(0x9e, 0x11)), Ok(vec![0, 1, 0, 0]));
        assert_eq!(one(Opcodes::Either(0x28, 0)).expect("a command")[4], 0x28);
        let all = opcodes(&disk, Opcodes::All, timeouts).expect("all");
        assert_eq!(all.len(), 4 + 8 * COMMANDS.len());
        assert_eq!(all[..4], (8 * COMMANDS.len() as u32).to_be_bytes());
        let timed = opcodes(&disk, Opcodes::All, true).expect("all");
        assert_eq!(timed.len(), 4 + 20 * COMMANDS.len());
        assert_eq!(timed[4..14], [0, 0, 0, 0, 0, 2, 0, 6, 0, 10]);
    }

    #[test]
    fn a_disk_that_does_not_unmap_has_no_such_command() {
        let disk = Disk {
            unmaps: false,
            ..disk(1)
        };
        let found = opcodes(&disk, Opcodes::One(0x42), false);
        assert_eq!(found, Ok(vec![0, 1, 0, 0]));
    }
}
